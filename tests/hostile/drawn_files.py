"""drawn_files.py - Draws hostile files of every format by a seed: each kind with drawn numbers.

    /usr/bin/python3 tests/hostile/drawn_files.py FOLDER [SEED [COUNT]]

make_files.py holds the declared cases; here each of the kinds below is made with sizes, offsets,
depths and names that a seed draws, the edges of integers favoured.  Prints the number of files.
"""
import io
import json
import os
import random
import struct
import sys
import tarfile
import zipfile
import zlib

import h5py
import numpy as np

import make_files as known
import torch_files as torch

EDGES = [0, 1, 2, 7, 2 ** 15, 2 ** 16 - 1, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1, 2 ** 32, 2 ** 40,
         2 ** 62, 2 ** 63 - 1, 2 ** 63, 2 ** 64 - 1]
WORDS = known.NAMES + ["a\\b", "con", "\u0085next line", "%00", "x" * 70000, "a" + "/b" * 400]


def number(r):
    return max(0, r.choice(EDGES) + r.choice([-1, 0, 0, 1]))


# ---- HDF5 ---------------------------------------------------------------------------------------


def h5_cycles(r, f):
    """Groups in groups, each with links to drawn others, hard and soft."""
    groups = [f] + [f.create_group(f"g{k}") for k in range(r.choice([5, 40, 200]))]
    for k in range(r.choice([20, 400])):
        a, b = r.choice(groups), r.choice(groups)
        try:
            a[f"l{k}"] = b if r.random() < 0.6 else h5py.SoftLink(r.choice(groups).name + "/l0")
        except (ValueError, RuntimeError):
            pass
    groups[-1]["exp_avg"] = np.ones(64, "f4")


def h5_layers(r, f):
    """Every group of a layer holds every group of the next: paths multiply."""
    layers, wide = r.choice([(6, 8), (15, 3), (30, 2)])
    above = [f]
    for k in range(layers):
        below = [f.create_group(f"layer{k}_{i}") for i in range(wide)]
        for group in above:
            for i, x in enumerate(below):
                group[f"x{i}" if group != f else f"y{k}_{i}"] = x
        above = below
    above[0]["exp_avg"] = np.ones(64, "f4")


def h5_deep(r, f):
    at = f
    for k in range(r.choice([60, 65, 500, 3000])):
        at = at.create_group(r.choice(["a", "b" * 60]))
    at["exp_avg"] = np.ones(64, "f4")


def h5_sparse(r, f):
    rank = r.choice([1, 2, 5, 32])
    shape = tuple(r.choice([1, 2, 2 ** 10, 2 ** 20]) for _ in range(rank))
    chunk = tuple(r.choice([1, min(x, 7)]) for x in shape)
    f.create_dataset("exp_avg", shape, "f4", chunks=chunk, fillvalue=1.0,
                     compression=r.choice([None, "gzip"]))


def h5_types(r, f):
    base = [np.dtype("f4"), np.dtype("S1"), np.dtype("u8"), np.dtype(("f4", (3,))),
            np.dtype([("r", "f4"), ("i", "f4")]), h5py.string_dtype(),
            h5py.vlen_dtype(np.dtype("f4")), h5py.ref_dtype, h5py.regionref_dtype,
            np.dtype([("x", h5py.string_dtype()), ("y", "f8")]), np.dtype(">f2"), np.dtype("f16"),
            h5py.enum_dtype({"a": 0, "b": 1}, "i2"), np.dtype("V7")]
    for k in range(6):
        t = r.choice(base)
        try:
            f.create_dataset(f"run/s000001/w{k}/exp_avg", (r.choice([0, 1, 128]),), t)
            f[f"type{k}"] = t
        except (TypeError, ValueError, OSError):
            pass
    f.create_dataset("nothing", data=h5py.Empty("f4"))
    f.create_dataset("scalar", data=np.float32(1))


def h5_attributes(r, f):
    d = f.create_dataset("exp_avg", data=np.ones(128, "f4"))
    for thing in (f, d, f.create_group("provenance")):
        for name in ("schema", "schema_version", "kind", "digest", "recipe", "step", "optimizer",
                     "column_units", "qualm", r.choice(WORDS).replace("\0", "") or "x"):
            value = r.choice([b"qualm-results", "qualm-results", 1, -1, 2 ** 40, float("nan"),
                              np.zeros((3, 3)), ["a", "b"], "z" * 60000, h5py.Empty("S1"),
                              np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]), b"\x1b[31m\n"])
            try:
                thing.attrs[name] = value
            except (ValueError, OSError, RuntimeError, TypeError):
                pass


def h5_outside(r, f):
    to = r.choice(["/dev/zero", "/dev/stdin", "fifo", "/proc/self/fd/0", ".", "../x.h5",
                   "/proc/self/mem", "absent"])
    f["exp_avg"] = h5py.ExternalLink(to, r.choice(["/", "/exp_avg", ".."]))
    f["x/exp_avg"] = h5py.SoftLink(r.choice(["/x", "..", "/exp_avg/exp_avg", "exp_avg"]))
    f.create_dataset("raw", (number(r) % 2 ** 40,), "f4",
                     external=[(to, number(r) % 2 ** 60, h5py.h5f.UNLIMITED)])


def h5_virtual(r, f):
    n = r.choice([128, 2 ** 31, 2 ** 40])
    layout = h5py.VirtualLayout((n,), "f4")
    layout[0:64] = h5py.VirtualSource(r.choice([".", "fifo", "absent.h5"]), "exp_avg", (64,))
    f.create_virtual_dataset("exp_avg", layout, fillvalue=0)


def h5_strings(r, f):
    f.create_dataset("names", (r.choice([3, 100000]),), h5py.string_dtype())
    f["names"][:3] = ["a", "b" * r.choice([10, 10 ** 6]), ""]
    f.create_dataset("exp_avg", (2,), f"S{r.choice([1, 2 ** 16, 2 ** 27])}")


def h5_damaged(make, **options):
    """Whole, then 8 drawn places of the metadata get drawn words."""
    def drawn(r):
        data = bytearray(known.h5_of(lambda f: make(r, f), **options))
        marks = [data.find(x) for x in (b"TREE", b"SNOD", b"HEAP", b"OHDR", b"BTHD", b"BTLF",
                                        b"FRHP", b"EAHD", b"FAHD", b"GCOL")]
        marks = [x for x in marks if x > 0] or [len(data) // 2]
        for _ in range(r.choice([1, 2, 8])):
            at = min(r.choice(marks) + r.randrange(96), len(data) - 9)
            word = struct.pack("<Q", number(r) & 2 ** 64 - 1)[:r.choice([1, 2, 4, 8])]
            data[at:at + len(word)] = word
        return bytes(data)
    return drawn


def chunks(r, f):
    f.create_dataset("run/s000001/w/exp_avg", data=np.arange(3000, dtype="f4"), chunks=(64,),
                     compression="gzip", shuffle=True, maxshape=(None,))


def vlens(r, f):
    f["exp_avg"] = np.ones(9, "f4")
    f.create_dataset("v", data=["abc"] * 50, dtype=h5py.string_dtype())


def h5(make):
    return lambda r: known.h5_of(lambda f: make(r, f), libver=r.choice(["earliest", "latest"]))


# ---- NumPy --------------------------------------------------------------------------------------


def npy(r):
    shape = "(" + "".join(f"{r.choice(EDGES + [-1, 4, 4, 8])}, " for _ in
                          range(r.choice([0, 1, 2, 3, 33]))) + ")"
    shape = r.choice([shape, shape, "(4L, 8L)", "[4, 8]", "(4, 8) + (2,)", "(True, 8)", "(4,,8)",
                      "(0x4, 8)", "4", "(4.0, 8)", "(" * 5000 + ")" * 5000])
    descr = r.choice(["<f4", ">f8", "|b1", "=f4", "f4", "<f16", "<M8[ns]", "|O", "<U1", "\x1b[7m"])
    return known.npy(shape=shape, descr=descr, fortran=r.choice(["True", "False", "None", "1"]),
                     version=r.choice([1, 2, 3, 4]), data=b"\0" * r.choice([0, 127, 128, 129]),
                     length=r.choice([None, None, 10, 65535, 2 ** 32 - 1]))


def npz(r):
    one = known.npy()
    entries, crc = [], zlib.crc32(one)
    for k in range(r.choice([1, 2, 50])):
        name = r.choice(WORDS)[:60000].replace("\0", "") + r.choice(["", ".npy"])
        packed = r.random() < 0.5
        data = zlib.compress(one)[2:-4] if packed else one
        size = r.choice([len(one), len(one), number(r)])
        entries.append((name, data, size, crc, 8 if packed else 0))
    out = known.zip_of(entries, overlap=r.random() < 0.3, count=r.choice([None, None, 65535]),
                       offset=r.choice([None, None, number(r) % 2 ** 32]))
    if r.random() < 0.3:  # the extra field of zip64, with lies
        extra = struct.pack("<HHQQ", 1, 16, number(r) & 2 ** 64 - 1, number(r) & 2 ** 64 - 1)
        out += b"PK\6\6" + struct.pack("<Q", 44) + extra + b"PK\6\7" + b"\0" * 16 + out[-22:]
    return out


def bomb_in_bomb(r):
    """An archive of an array whose data are an archive of zeros, deflated."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("a.npy", known.npy(shape="(%d,)" % (r.choice([1, 40]) << 20),
                                      data=b"\0" * (r.choice([1, 40]) << 20)))
    return known.archive([("b.npy", inner.getvalue()), ("a.npy", known.npy())],
                         zipfile.ZIP_DEFLATED)


# ---- safetensors --------------------------------------------------------------------------------


def tensors(r):
    entries = []
    for k in range(r.choice([1, 3, 40])):
        start = r.choice([0, 0, 64, number(r), -number(r)])
        entry = {"dtype": r.choice(["F32", "F32", "BF16", "F8_E4M3", "U64", "I4", ""]),
                 "shape": [r.choice([4, 8, number(r)]) for _ in range(r.choice([0, 1, 2, 9]))],
                 "data_offsets": [start, r.choice([start + 128, 128, number(r)])]}
        entries.append(json.dumps(r.choice(WORDS)) + ":" + json.dumps(entry))
    r.shuffle(entries)
    entries += entries[:r.choice([0, 1])]  # a doubled key
    meta = r.choice(["", '"__metadata__":{"format":"pt"},', '"__metadata__":[],',
                     '"__metadata__":{"recipe":"adamw4_ao","step":"99999999999999999999"},'])
    text = ("{" + meta + ",".join(entries) + "}").encode("utf8", "surrogatepass")
    return known.safetensors(text, b"\0" * r.choice([0, 128, 300]),
                             length=r.choice([None, None, None, number(r) & 2 ** 64 - 1]))


def large_header(r):
    kind = r.choice([b" ", b"[", b'"a', b'{"a":', b"1"])
    return known.safetensors(b'{"a":' + kind * (r.choice([1, 30, 100]) * 1000000 // len(kind)))


# ---- checkpoints of PyTorch ---------------------------------------------------------------------


def pickle(r):
    """Opcodes in a drawn order, with drawn arguments: most are no pickle at all."""
    small = [b"(", b")", b"]", b"}", b"t", b"a", b"e", b"s", b"u", b"0", b"1", b"2", b"N", b"Q",
             b"R", b"b", b"\x81", b"\x85", b"\x86", b"\x87", b"\x88", b"\x94", b"l", b"d", b"o"]
    out = b""
    for _ in range(r.choice([10, 300, 30000])):
        x = r.random()
        out += r.choice(small) if x < 0.6 else b"h" + bytes([r.randrange(4)]) if x < 0.7 else \
            b"q" + bytes([r.randrange(4)]) if x < 0.8 else torch.whole(number(r)) if x < 0.88 \
            else torch.text(r.choice(WORDS)[:200]) if x < 0.95 else r.choice(
                [torch.name("torch._utils", "_rebuild_tensor_v2"), torch.tensor(),
                 torch.name("collections", "OrderedDict"), torch.name("torch", "FloatStorage")])
    return torch.archive(out)


def states(r):
    """A checkpoint with sizes, strides, offsets and counts that lie."""
    def one():
        return torch.tensor(
            sizes=tuple(r.choice([2, 3, number(r)]) for _ in range(r.choice([0, 1, 2, 5]))),
            strides=tuple(r.choice([1, 3, 0, number(r)]) for _ in range(r.choice([1, 2, 5]))),
            offset=r.choice([0, 0, number(r), -number(r)]),
            key=r.choice(["0", "0", "1", "../0", "0\n"]),
            kind=r.choice(["FloatStorage", "ByteStorage", "ComplexFloatStorage", "X"]),
            count=r.choice([6, number(r)]))
    body = torch.mapping((torch.text(r.choice(WORDS)[:300]), one()) for _ in
                         range(r.choice([1, 4, 30])))
    data = b"\0" * r.choice([0, 23, 24, 25])
    if r.random() < 0.3:
        return torch.legacy(body, sizes=(r.choice([6, number(r) % 2 ** 62]),), data=data)
    return torch.archive(body, (("0", data),), order=r.choice([b"little", b"big", b"", b"\xff"]),
                         method=r.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED,
                                          zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]),
                         extra=r.choice([(), (("a/data/0", data),), (("a/version", b"9" * 99),)]))


def nest(r):
    inner, outer = r.choice([(b"(", b"t"), (b"]", b"a"), (b"\x85", b""), (b"}" + torch.text("k"),
                                                                       b"s")])
    n = r.choice([1000, 100000, 500000])
    return torch.archive((b")" if inner == b"\x85" else b"") + inner * n + b"N" + outer * n)


def tape(r):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("sys_info", "pickle", "tensors", "storages"):
            info = tarfile.TarInfo(r.choice([name, "../" + name]))
            info.type = r.choice([tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE])
            tar.addfile(info)
    return out.getvalue()


# ---- texts --------------------------------------------------------------------------------------


def yaml(r):
    k = r.choice([9, 30])
    bomb = "".join(f"a{i}: &a{i} [" + (f"*a{i - 1}, " * 9 if i else "1") + "]\n" for i in range(k))
    deep = r.choice(["[", "{a: ", "- ", "? "]) * r.choice([50, 101, 5000, 200000])
    big = "variant: adamw4_ao\nsource: \"dist:gauss\"\n" + r.choice(
        ["seed: 1..99999999999999999999", "seed: -5..5", "n: 99999999999999999999", "steps: 1e9",
         "seed: [" + "1, " * 300000 + "2]", "title: " + "x" * 3000000, "title: \"\\e[31m\\n\\0\"",
         "<<: *a", "seed: !!python/object:os.system 1", "seed: &s [*s]", "seed: !!binary aaaa",
         "data: [\"/dev/*\", \"/proc/self/fd/*\"]", "data: [\"fifo\"]", "summary: [{by: [a" + ", a" *
         10000 + "]}]", "exp_avg: \"" + "nf4:4s/" * 50000 + "\"", "instance: 9223372036854775807",
         "seed: 1..1000000\nn: 1..1000000"]) + "\n"
    return r.choice([bomb, deep, big, big, big, "%YAML 9.9\n---\n" + big,
                     big.replace("\n", "\r"), "\ufeff" + big, big * 2]).encode("utf8")


def lines(r):
    """A list of shapes, a ledger, a weight map or JSON that is none."""
    return r.choice([
        b"".join(b"w%d %s\n" % (k, b"x".join(b"%d" % number(r) for _ in range(r.choice([1, 40]))))
                 for k in range(r.choice([3, 3000]))),
        b'{"weight_map": {' + b",".join(b'"w%d": "%s"' % (k, r.choice(
            [b"../../etc/passwd", b"fifo", b"/dev/zero", b"\\u0000", b"."])) for k in range(99)) +
        b"}}",
        b'{"cell": ' + b"%d" % number(r) + b', "id": "' + b"f" * 16 + b'"}\n' * 3,
        b"[" * r.choice([2000, 2100, 300000]), b'{"a":' * 300000, b"\xff\xfe" * 1000, b"\0" * 4096])


KINDS = {
    "h5": [h5(h5_cycles), h5(h5_layers), h5(h5_deep), h5(h5_sparse), h5(h5_types),
           h5(h5_attributes), h5(h5_outside), h5(h5_virtual), h5(h5_strings), h5_damaged(chunks),
           h5_damaged(chunks, libver="latest"), h5_damaged(vlens), h5_damaged(h5_attributes)],
    "npy": [npy, npy], "npz": [npz, npz, bomb_in_bomb], "safetensors": [tensors, tensors,
                                                                       large_header],
    "pt": [pickle, pickle, states, states, nest, tape], "txt": [yaml, yaml, lines]}


def make(folder, seed, count):
    """Writes COUNT files drawn_NNN.KIND; each kind gets its turn."""
    turns = [(ending, kind) for ending in KINDS for kind in KINDS[ending]]
    made = 0
    for k in range(count):
        r = random.Random(seed * 1000003 + k)
        ending, kind = turns[k % len(turns)]
        name = getattr(kind, "__name__", "x").strip("<>")
        try:
            data = kind(r)
        except (OSError, ValueError, RuntimeError, TypeError, KeyError, struct.error):
            continue  # h5py or zipfile refuses to write it
        with open(os.path.join(folder, f"drawn_{k:04d}_{name}.{ending}"), "wb") as f:
            f.write(data)
        made += 1
    return made


if __name__ == "__main__":
    print(make(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1,
               int(sys.argv[3]) if len(sys.argv) > 3 else 60))
