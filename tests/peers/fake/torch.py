"""torch.py - A fake of torch with its own clock, to test peers.py.

Each request to the GPU is a line of the file $FAKE_LOG.  A step takes the next of the seconds in
$FAKE_SECONDS, the last one forever; reading the cache full takes 1000."""
import os

__version__ = "fake"
uint8 = "uint8"
_clock = 0.0
_seconds = [float(s) for s in os.environ.get("FAKE_SECONDS", "0.5").split()]


def _log(text):
    if "FAKE_LOG" in os.environ:
        with open(os.environ["FAKE_LOG"], "a") as f:
            f.write(text + "\n")


def _advance(seconds):
    global _clock
    _clock += seconds


def fake_step(name):
    _log("step " + name)
    _advance(_seconds[0] if len(_seconds) == 1 else _seconds.pop(0))


class _Event:
    def __init__(self, enable_timing):
        assert enable_timing
        self.at = None

    def record(self):
        self.at = _clock
        _log("record")

    def synchronize(self):
        assert self.at is not None
        _log("synchronize")

    def elapsed_time(self, other):
        return 1e3 * (other.at - self.at)


class cuda:
    Event = _Event

    @staticmethod
    def is_available():
        return "FAKE_NO_GPU" not in os.environ

    @staticmethod
    def empty_cache():
        _log("empty_cache")


class _Tensor:
    def __init__(self, shape):
        self.shape = shape

    def sum(self):
        _log("flush %d" % self.shape)
        _advance(1000.0)


def set_num_threads(n):
    _log("threads %d" % n)


def zeros(n, dtype, device):
    assert dtype == uint8 and device in ("cuda", "cpu")
    return _Tensor(n)


def randn(shape, device):
    assert device in ("cuda", "cpu")
    return _Tensor(shape)


class nn:
    class Parameter:
        def __init__(self, value):
            self.shape, self.grad = value.shape, None


class optim:
    class AdamW:
        made = 0

        def __init__(self, params, lr, fused=False, foreach=False):
            assert fused != foreach and all(p.grad.shape == p.shape for p in params)
            self.name = "%d: %d of %s" % (optim.AdamW.made, len(params), params[0].shape)
            optim.AdamW.made += 1

        def step(self):
            fake_step(self.name)
