"""result_files.py - Makes result files whose tables do not fit: whole HDF5, wrong contents.

    /usr/bin/python3 tests/hostile/result_files.py QUALM FOLDER [SEED [COUNT]]

Each file is a result of QUALM that h5py has changed at one to three drawn places: a table, column,
attribute or link is gone, renamed, of another type or shape, or holds other values.  None has a
checksum or a digest, so that only the readers behind those stand between it and the figures.
"""
import os
import random
import subprocess
import sys

import h5py
import numpy as np

SUITES = {
    "paired": "variant: [adamw4_ao, adamw8_bnb]\nsource: \"problem:quad\"\ncoupling: closed\n"
              "protocol: paired\nseed: 1..3\nsteps: 20\nlr_scale: [0.5, 1]\nbudget: 1\n",
    "oneshot": "variant: adamw4_ao\nexp_avg.map: [dyn, nf4]\nexp_avg.norm: [\"block:64\", "
               "\"block:128\"]\nsource: \"dist:gauss\"\nseed: 1..3\ncoupling: oneshot\n"
               "slot: exp_avg\nn: 4096\n"}
TEXTS = [b"", b"\x1b[31mred", b"$\\frac{", b"$x^{$", b"a\tb\nc", b"x" * 300, b"\xff\xfe",
         "\u202eback".encode(), b"<script>alert(1)</script>", b"%s%n", b"problem:", b"block:x"]
NUMBERS = [-1, 2 ** 62, -2 ** 63, 2 ** 31, 0, 7]
FLOATS = [float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 0.0, -1.0, 5e-324]


def seeds(qualm, work):
    """{name: bytes} of whole results without checksum and digest."""
    out = {}
    for name, text in SUITES.items():
        with open(os.path.join(work, name + ".yaml"), "w") as f:
            f.write(text)
        path = os.path.join(work, name + ".h5")
        subprocess.run([qualm, "run", "-q", "--workers", "0", "-o", path, name + ".yaml"],
                       check=True, cwd=work, stdout=subprocess.DEVNULL)
        with h5py.File(path, "r+") as f:
            f["provenance"].attrs.pop("digest", None)
        out[name] = path
    return out


def datasets(f):
    found = []
    f.visititems(lambda name, x: found.append(name) if isinstance(x, h5py.Dataset) else None)
    return found


def replace(f, name, data, **options):
    """Another dataset in the place of `name`, with its attributes."""
    attrs = dict(f[name].attrs)
    del f[name]
    d = f.create_dataset(name, data=data, **options) if data is not None \
        else f.create_dataset(name, **options)
    for key, value in attrs.items():
        d.attrs[key] = value


def a_column(r, d):
    return r.choice(d.dtype.names) if d.dtype.names else None


def drop(r, f, name):
    del f[name]


def rename(r, f, name):
    f.move(name, name + "x")


def cut_rows(r, f, name):
    x = f[name][()]
    replace(f, name, x[:len(x) // 2] if np.ndim(x) else np.zeros(3))


def no_rows(r, f, name):
    x = f[name][()]
    replace(f, name, x[:0] if np.ndim(x) else np.zeros(0))


def drop_column(r, f, name):
    x, column = f[name][()], a_column(r, f[name])
    if column and len(x.dtype.names) > 1:
        keep = [n for n in x.dtype.names if n != column]
        y = np.zeros(x.shape, [(n, x.dtype[n]) for n in keep])
        for n in keep:
            y[n] = x[n]
        replace(f, name, y)


def retype_column(r, f, name):
    x, column = f[name][()], a_column(r, f[name])
    if not column:
        return replace(f, name, np.zeros(np.shape(x), r.choice(["S5", "c8", "u1", "f2"])))
    kind = r.choice(["S3", "u1", "f2", "?", "(2,)f4", "i8"])
    y = np.zeros(x.shape, [(n, kind if n == column else x.dtype[n]) for n in x.dtype.names])
    for n in x.dtype.names:
        if n != column:
            y[n] = x[n]
    replace(f, name, y)


def values(r, f, name):
    x, column = f[name][()], a_column(r, f[name])
    part = x[column] if column else x
    if not np.ndim(part) or not part.size:
        return
    rows = r.sample(range(len(part)), min(len(part), r.choice([1, 3, 1000])))
    for i in rows:
        kind = part.dtype.kind
        if kind == "S":
            part[i] = r.choice(TEXTS)[:part.dtype.itemsize]
        elif kind == "i":
            part[i] = np.array(r.choice(NUMBERS)).astype(part.dtype)
        elif kind == "f":
            part[i] = r.choice(FLOATS)
    replace(f, name, x)


def as_group(r, f, name):
    del f[name]
    f.create_group(name)


def as_scalar(r, f, name):
    replace(f, name, np.float64(3.0))


def as_square(r, f, name):
    replace(f, name, np.zeros((3, 4), f[name].dtype))


def huge(r, f, name):
    replace(f, name, None, shape=(r.choice([2 ** 28, 2 ** 33, 2 ** 40]),), dtype=f[name].dtype,
            chunks=(2 ** 16,), compression="gzip")


def sparse(r, f, name):
    n = int(2 ** r.uniform(20, 26))
    replace(f, name, None, shape=(4, n), dtype="f8", chunks=(4, r.randint(1, 4096)))
    f[name][:, :8] = 1


def long_texts(r, f, name):
    replace(f, name, np.array([b"y" * 1000000] * 20))


def vlen(r, f, name):
    replace(f, name, ["a", "b" * 1000], dtype=h5py.string_dtype())


def link(r, f, name):
    del f[name]
    f[name] = r.choice([h5py.SoftLink("/" + name), h5py.SoftLink("/"), h5py.SoftLink("/nothing"),
                        h5py.ExternalLink("/dev/zero", "/"), h5py.ExternalLink("fifo", "/"),
                        h5py.ExternalLink("absent.h5", "/x")])


def outside(r, f, name):
    kind = f[name].dtype
    kind = kind if kind.names is None else "f8"
    if r.random() < 0.5:
        replace(f, name, None, shape=(64,), dtype=kind, external=[("/dev/zero", 0, 1 << 20)])
    else:
        layout = h5py.VirtualLayout((64,), "f8")
        layout[:] = h5py.VirtualSource("absent.h5", "x", (64,))
        del f[name]
        f.create_virtual_dataset(name, layout)


def attributes(r, f, name):
    thing = f[r.choice([name, "/", "provenance"])]
    keys = list(thing.attrs)
    if keys:
        key = r.choice(keys)
        thing.attrs[key] = r.choice([0, "x" * 1000, np.zeros(5), np.array(["a"] * 9, "S2"), -1.5,
                                     "\x1b[2J", h5py.Empty("f4")])


def table_of_lies(r, f, name):
    """Offsets, lengths and cells that point anywhere."""
    paths = [p for p in datasets(f) if p.endswith(("/offset", "/length", "/cell"))]
    if paths:
        path = r.choice(paths)
        x = f[path][()]
        if x.size:
            x[r.randrange(len(x))] = r.choice([-1, 2 ** 40, 10 ** 6])
            replace(f, path, x)


CHANGES = (drop, rename, cut_rows, no_rows, drop_column, retype_column, values, values, as_group,
           as_scalar, as_square, huge, sparse, long_texts, vlen, link, outside, attributes,
           table_of_lies)
WANTED = ("cells", "axes", "metrics", "runs", "verdicts", "contrasts", "ecdf", "profiles",
          "sensitivity", "budget", "curves/", "targets")


def change(r, path):
    """Changes the file at one to three places; returns their names."""
    done = []
    with h5py.File(path, "r+") as f:
        for _ in range(r.choice([1, 1, 1, 2, 3])):
            names = datasets(f)
            liked = [n for n in names if any(w in n for w in WANTED)]
            name = r.choice(liked if liked and r.random() < 0.9 else names)
            what = r.choice(CHANGES)
            try:
                what(r, f, name)
                done.append(f"{what.__name__} {name}")
            except (ValueError, TypeError, OSError, RuntimeError, KeyError):
                done.append(f"{what.__name__} {name}: not possible")
    return done


def make(qualm, folder, seed, count):
    """Writes COUNT files COUNT/result_NNN.h5 and the list of what was changed in them."""
    work = os.path.join(folder, "seeds")
    os.makedirs(work, exist_ok=True)
    found = seeds(qualm, work)
    lines = []
    for k in range(count):
        r = random.Random(seed * 100003 + k)
        path = os.path.join(folder, f"result_{k:04d}.h5")
        with open(found[r.choice(sorted(found))], "rb") as f, open(path, "wb") as to:
            to.write(f.read())
        lines.append(f"{os.path.basename(path)}: {'; '.join(change(r, path))}")
    with open(os.path.join(work, "changes.txt"), "w") as f:
        f.write("\n".join(lines) + "\n")
    return count


if __name__ == "__main__":
    print(make(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]),
               int(sys.argv[3]) if len(sys.argv) > 3 else 1,
               int(sys.argv[4]) if len(sys.argv) > 4 else 60))
