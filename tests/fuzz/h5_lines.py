"""h5_lines.py - Prints the begin of an HDF5 file as the lines that h5_text.h reads, for a seed.

    /usr/bin/python3 tests/fuzz/h5_lines.py FILE.h5 [MOST]        at most MOST lines (40)
"""
import itertools
import sys

import h5py
import numpy as np


def words(kind, x):
    """TYPE DIMS VALUE... of an array or attribute; None: of no kind that the lines have."""
    x = np.asarray(x)
    if x.ndim == 0 and isinstance(x.item(), (str, bytes)):
        text = x.item() if isinstance(x.item(), str) else x.item().decode("utf8", "replace")
        return f"{'sv' if kind is None else kind} - {' '.join(text.split())[:200]}"
    if x.dtype.kind not in "fiub" or x.size > 4096:
        return None
    dims = "x".join(map(str, x.shape)) or "-"
    name = "b1" if x.dtype.kind == "b" else f"{x.dtype.kind}{x.dtype.itemsize}"
    return f"{name} {dims} " + " ".join(f"{v:.6g}" for v in x.ravel()[:12].astype(float))


def lines(f):
    def of(name, thing):
        if isinstance(thing, h5py.Dataset):
            said = words(None, thing[()]) if thing.size and thing.size <= 4096 else None
            found = [f"d {name} {said}"] if said else []
        else:
            found = [f"g {name}"]
        for key, value in thing.attrs.items():
            said = words(None, value)
            if said:
                found.append(f"a {name} {key} {said}")
        return found
    yield from of("/", f)[1:]
    names = []
    f.visit(lambda name: names.append(name) if len(names) < 200 else name)
    for name in names:
        yield from of("/" + name, f[name])


with h5py.File(sys.argv[1], "r") as file:
    print("\n".join(itertools.islice(lines(file), int(sys.argv[2]) if len(sys.argv) > 2 else 40)))
