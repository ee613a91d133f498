"""torch.py - A fake of torch that has tensors on a CPU and SGD alone, to test compare.py.

Its step is a fused multiply-add, as torch's; $FAKE_STEP times as long."""
import os
import sys
import types

import numpy as np


def _fma(a, b, c):
    """a b + c in float32, rounded once.

    A product of float32 numbers is exact in double; where its sum with c is not, the sum is rounded
    to an odd neighbour, which is no tie of float32."""
    a, b, c = (np.asarray(x, np.float32).astype(np.float64) for x in (a, b, c))
    product = np.atleast_1d(a * b)
    with np.errstate(invalid="ignore"):
        s = product + c
        other = s - product
        error = (product - (s - other)) + (c - other)
    even = np.isfinite(s) & (error != 0) & (s.view(np.int64) & 1 == 0)
    odd = np.where(even, np.nextafter(s, np.where(error > 0, np.inf, -np.inf)), s)
    return odd.astype(np.float32).reshape(np.broadcast_shapes(a.shape, b.shape, c.shape))


def _bfloat16(x):
    """float32 rounded to the nearest bfloat16, ties to even; NaN stays one."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    near = bits + np.uint32(0x7fff) + (bits >> np.uint32(16) & np.uint32(1))
    return np.where(np.isnan(x), x, (near & np.uint32(0xffff0000)).view(np.float32))


class Tensor:
    """Of dtype bfloat16 it holds float32 numbers that are rounded so."""

    def __init__(self, value, dtype="float32"):
        value = value if dtype == "float32" else _bfloat16(value)
        self.value, self.dtype, self.grad, self.shape = value, dtype, None, value.shape

    def __imul__(self, by):
        self.value = (self.value * np.float32(by)).astype(np.float32)
        return self

    def __getitem__(self, at):
        return Tensor(self.value[at], self.dtype)

    def clone(self):
        return Tensor(self.value.copy(), self.dtype)

    def bfloat16(self):
        return Tensor(self.value, "bfloat16")

    def float(self):
        return Tensor(self.value)

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

    def kept(self, x):
        """What one operation leaves: but in the fused kernel a number of the parameter's dtype."""
        return x if self.fused else Tensor(np.array(x, dtype=np.float32), self.p.dtype).value

    def average(self, old, g, momentum, weight):
        """The new buffer; the fused kernel's last elements are no whole vector, which has
        eight of float32 and sixteen of bfloat16."""
        new = _fma(g, weight, self.kept(old * momentum)).reshape(-1)
        lanes = 8 if self.p.dtype == "float32" else 16
        whole = g.size // lanes * lanes if self.fused else g.size
        new[whole:] = _fma(old, momentum, g * weight).reshape(-1)[whole:]
        return new.reshape(g.shape)

    def step(self):
        lr, momentum, decay, dampening, maximize, nesterov = self.h
        p, g, state = self.p, self.p.grad.value, self.state[self.p]
        g = -g if maximize else g
        g = self.kept(_fma(p.value, np.float32(decay), g)) if decay else g
        if momentum:
            old = state["momentum_buffer"].value if state else None
            new = g if old is None else self.average(old, g, np.float32(momentum),
                                                     np.float32(1 - dampening))
            state["momentum_buffer"] = Tensor(np.array(new, dtype=np.float32), p.dtype)
            if not self.fused:  # the fused kernel goes on with what it has not rounded
                new = state["momentum_buffer"].value
            g = self.kept(_fma(new, np.float32(momentum), g)) if nesterov else new
        rate = np.float32(-lr * float(os.environ.get("FAKE_STEP", "1")))
        p.value = Tensor(np.array(_fma(g, rate, p.value), dtype=np.float32), p.dtype).value


optim = types.SimpleNamespace(SGD=SGD)
sys.modules["torch.optim"] = optim
