"""torch.py - A fake of torch that has tensors on a CPU and SGD alone, to test compare.py.

Its step is a fused multiply-add, as torch's; $FAKE_STEP times as long."""
import os
import sys
import types

import numpy as np

_WIDE = np.longdouble


def _fma(a, b, c):
    """a b + c in float32, rounded once: products of float32 numbers are exact in 64 bits."""
    a, b, c = (np.asarray(x, _WIDE) for x in (a, b, c))
    return (a * b + c).astype(np.float32)


class Tensor:
    def __init__(self, value):
        self.value, self.grad, self.shape = value, None, value.shape

    def to(self, device):
        return self

    def detach(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return self.value


def from_numpy(x):
    return Tensor(x)


def sqrt(x):
    return Tensor(np.sqrt(x.value))


class cuda:
    @staticmethod
    def is_available():
        return False


class nn:
    @staticmethod
    def Parameter(tensor):
        return tensor


class SGD:
    def __init__(self, params, **h):
        self.p, self.fused = params[0], h["fused"]
        self.state = {self.p: {}}
        self.h = tuple(h[k] for k in ("lr", "momentum", "weight_decay", "dampening", "maximize",
                                      "nesterov"))

    def average(self, old, g, momentum, weight):
        """The new buffer; the fused kernel's last elements are no whole vector of eight."""
        new = _fma(g, weight, old * momentum).reshape(-1)
        whole = g.size // 8 * 8 if self.fused else g.size
        new[whole:] = _fma(old, momentum, g * weight).reshape(-1)[whole:]
        return new.reshape(g.shape)

    def step(self):
        lr, momentum, decay, dampening, maximize, nesterov = self.h
        p, g, state = self.p, self.p.grad.value, self.state[self.p]
        g = -g if maximize else g
        g = _fma(p.value, np.float32(decay), g) if decay else g
        if momentum:
            old = state["momentum_buffer"].value if state else None
            new = g if old is None else self.average(old, g, np.float32(momentum),
                                                     np.float32(1 - dampening))
            state["momentum_buffer"] = Tensor(np.array(new, dtype=np.float32))
            g = _fma(new, np.float32(momentum), g) if nesterov else new
        rate = np.float32(-lr * float(os.environ.get("FAKE_STEP", "1")))
        p.value = np.array(_fma(g, rate, p.value), dtype=np.float32)


optim = types.SimpleNamespace(SGD=SGD)
sys.modules["torch.optim"] = optim
