"""torch_pickle.py - Writes checkpoints as torch.save does, without torch.

A Tensor names its storage by a key; write() puts values and storages into an archive.
"""
import io
import pickle
import sys
import types
import zipfile

import numpy as np

KINDS = {"f4": "FloatStorage", "f2": "HalfStorage", "u1": "ByteStorage",
         "c8": "ComplexFloatStorage"}


def module(name, **names):
    m = sys.modules[name] = types.ModuleType(name)
    for k, v in names.items():
        v.__module__, v.__qualname__, v.__name__ = name, k, k
        setattr(m, k, v)
    return m


def rebuild(*args):
    pass


torch = module("torch", **{kind: type(kind, (), {}) for kind in KINDS.values()})
module("torch._utils", _rebuild_tensor_v2=rebuild)


class Storage:
    def __init__(self, kind, key, n):
        self.name = ("storage", kind, str(key), "cpu", n)


class Tensor:
    """The whole array x as storage `key`; signs: conj and neg of a view."""

    def __init__(self, key, x, **signs):
        self.key, self.x, self.signs = key, np.asarray(x), (signs,) if signs else ()

    def __reduce__(self):
        kind = getattr(torch, KINDS[self.x.dtype.str[1:]])
        strides = tuple(s // self.x.itemsize for s in self.x.strides)
        whole = self.x if self.x.base is None else self.x.base  # the storage's elements
        storage = Storage(kind, self.key, whole.nbytes // self.x.itemsize)
        return rebuild, (storage, 0, self.x.shape, strides, False, {}) + self.signs


class Pickler(pickle.Pickler):
    def persistent_id(self, x):
        return x.name if isinstance(x, Storage) else None


def write(path, saved, arrays, protocol=2):
    """arrays: {key: array} of all storages."""
    data = io.BytesIO()
    Pickler(data, protocol).dump(saved)
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("a/data.pkl", data.getvalue())
        for key, x in arrays.items():
            z.writestr(f"a/data/{key}", x.tobytes())
