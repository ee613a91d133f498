"""digest.py - Computes the digest of results/README.md, from that page alone, with h5py.

    /usr/bin/python3 tests/support/digest.py FILE
"""
import hashlib
import struct
import sys

import h5py
import numpy as np
from h5py import h5a, h5r, h5t

sha = hashlib.sha256()


def count(n):
    sha.update(struct.pack("<Q", n))


def text(s):
    s = s.encode() if isinstance(s, str) else bytes(s)
    count(len(s))
    sha.update(s)


def put_type(t):
    if isinstance(t, h5t.TypeIntegerID):
        sha.update(b"u" if t.get_sign() == h5t.SGN_NONE else b"i")
        count(t.get_size())
    elif isinstance(t, h5t.TypeFloatID):
        sha.update(b"f")
        for n in (t.get_size(),) + t.get_fields() + (t.get_ebias(),):
            count(n)
    elif isinstance(t, h5t.TypeStringID):
        sha.update(b"v" if t.is_variable_str() else b"s")
        if not t.is_variable_str():
            count(t.get_size())
    elif isinstance(t, h5t.TypeEnumID):
        sha.update(b"e")
        put_type(t.get_super())
        count(t.get_nmembers())
        for i in range(t.get_nmembers()):
            text(t.get_member_name(i))
            value = t.get_member_value(i)
            sha.update(int(value).to_bytes(t.get_size(), "little", signed=True))
    elif isinstance(t, h5t.TypeCompoundID):
        sha.update(b"c")
        count(t.get_nmembers())
        for i in range(t.get_nmembers()):
            text(t.get_member_name(i))
            put_type(t.get_member_type(i))
    elif isinstance(t, h5t.TypeVlenID):
        sha.update(b"l")
        put_type(t.get_super())
    elif isinstance(t, h5t.TypeReferenceID):
        sha.update(b"r")
    else:
        raise TypeError(t)


def put_values(f, t, values):
    """values: a numpy array, read in the type that h5py gives t."""
    if isinstance(t, h5t.TypeStringID) and t.is_variable_str():
        for s in values.ravel():
            text(s)
    elif isinstance(t, h5t.TypeVlenID):
        for s in values.ravel():
            s = np.asarray(s, dtype=object if s.dtype.hasobject else s.dtype)
            count(len(s))
            put_values(f, t.get_super(), s)
    elif isinstance(t, h5t.TypeReferenceID):
        for r in values.ravel():
            text(f[r].name)
    elif isinstance(t, h5t.TypeFloatID) and t.get_fields() == (15, 7, 8, 0, 7):  # bf16
        sha.update((values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes())
    else:
        sha.update(values.astype(values.dtype.newbyteorder("<")).tobytes())


def put_space(shape):
    sha.update(b"n" if shape is None else b"d")
    if shape is not None:
        count(len(shape))
        for n in shape:
            count(n)


def put_attributes(f, o):
    for name in sorted(o.attrs.keys(), key=lambda s: s.encode()):
        if name == "REFERENCE_LIST":
            continue
        a = h5a.open(o.id, name.encode())
        sha.update(b"A")
        text(name)
        put_type(a.get_type())
        put_space(a.shape)
        if a.shape is not None:
            values = np.empty(a.shape, dtype=a.dtype)
            a.read(values)
            put_values(f, a.get_type(), values)


def put_object(f, path, o):
    if isinstance(o, h5py.Group):
        sha.update(b"G")
        text(path)
        put_attributes(f, o)
        for name in sorted(o.keys(), key=lambda s: s.encode()):
            if path == "/" and name in ("provenance", "timing"):
                continue
            here = path.rstrip("/") + "/" + name
            link = o.get(name, getlink=True)
            if isinstance(link, h5py.SoftLink):
                sha.update(b"L")
                text(here)
                text(link.path.encode() + b"\0")
            else:
                put_object(f, here, o[name])
        return
    sha.update(b"D")
    text(path)
    put_type(o.id.get_type())
    put_space(o.shape)
    if o.shape is not None:
        values = np.empty(o.shape, dtype=o.dtype)
        if o.size:
            o.id.read(h5py.h5s.ALL, h5py.h5s.ALL, values)
        put_values(f, o.id.get_type(), values)
    put_attributes(f, o)


text("qualm-digest 1")
with h5py.File(sys.argv[1], "r") as file:
    put_object(file, "/", file)
print(sha.hexdigest())
