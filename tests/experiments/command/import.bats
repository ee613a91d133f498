#!/usr/bin/env bats
# import.bats - Tests that qualm import gives what a file holds, through every format it writes.

load ../../support/cli_common

setup() {
    "$PYTHON" -c "import h5py, numpy" 2>/dev/null || skip "python3 has no h5py"
    cd "$BATS_TEST_TMPDIR"
}

# Arrays of every type in drawn shapes, in .npz and .h5 of three layouts; each goes to each format
# and from there to .npz.
@test "import: integers, truth values and complex numbers go through every format to the bit" {
    "$PYTHON" - "${QM_TEST_SEED:-1}" <<'P'
import sys, h5py, numpy as np
r = np.random.default_rng(int(sys.argv[1]))
kinds = [*"f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1".split()]
made = {}
for i, kind in enumerate(kinds * 3):
    shape = tuple(r.integers(0, 6, r.integers(0, 4)))
    raw = r.integers(0, 256, (*shape, np.dtype(kind).itemsize), "u1")
    x = np.ascontiguousarray(raw).view(kind).reshape(shape) if kind[0] not in "fb" else \
        r.integers(-3, 4, shape).astype(kind)
    made[f"a{i}"] = x.astype(x.dtype.newbyteorder(r.choice(["<", ">"])))
np.savez("made.npz", **made)
with h5py.File("made.h5", "w") as f:
    for k, (name, x) in enumerate(made.items()):
        chunks = {"chunks": True, "compression": 4} if k % 3 == 0 and x.ndim and x.size else {}
        f.create_dataset(name, data=x, **chunks)
with h5py.File("made.h5") as f:
    np.savez("want.npz", **{n: f[n][()] for n in f})
P
    for from in made.npz made.h5; do
        for to in npz h5 safetensors; do
            run -0 "$QUALM" import $from -o $to.$to
            [[ $output == *"36 arrays"* && $output != *"left out"* ]]
            run -0 "$QUALM" import $to.$to -o end.npz
            [[ $output == *"36 arrays"* && $output != *"left out"* ]]
            "$PYTHON" - $from <<'P'
import sys, numpy as np
a, b = np.load("want.npz"), np.load("end.npz")
assert {*a} == {*b}
for k in a:
    x = a[k].astype("f4" if a[k].dtype.str[1:] == "f2" else a[k].dtype.newbyteorder("="))
    assert x.shape == b[k].shape and x.dtype == b[k].dtype and x.tobytes() == b[k].tobytes(), k
P
            rm end.npz $to.$to
        done
    done
}

@test "import: complex arrays of NumPy have a last axis of 2; texts, objects and tables are named" {
    "$PYTHON" - <<'P'
import numpy as np
z = np.arange(6).reshape(2, 3) * (1 + 2j)
np.savez("all.npz", small=z.astype(">c8"), large=z, one=np.array(3 - 4j), w=np.ones(3, "f4"),
         column=np.asfortranarray(z), cube=np.asfortranarray(z.reshape(1, 3, 2)),
         wide=np.ones((1,) * 8, "c8"), text=np.array(["a"]), thing=np.array([None], object),
         table=np.zeros(2, [("a]", "<f4"), ("b", "<i4", (2,))]))
np.save("text.npy", np.array(["a"]))
np.save("wide.npy", np.ones((1,) * 8, "c8"))
np.savez("none.npz", text=np.array(["a"]))
P
    run -0 "$QUALM" import all.npz -o out.npz
    for what in "wide (complex numbers in 8 dimensions, descr <c8)" "text (descr <U1)" \
        "thing (descr |O)" "table (descr a table)"; do
        [[ $output == *"left out: "*"$what"* ]]
    done
    [[ $output == *"; complex numbers in 5 of 6 arrays, whose real and imaginary part are a last"* ]]
    "$PYTHON" - <<'P'
import numpy as np
f, z = np.load("out.npz"), np.arange(6).reshape(2, 3) * (1 + 2j)
assert {*f} == {"small", "large", "one", "w", "column", "cube"}
for key, kind in ("small", "f4"), ("large", "f8"), ("column", "f8"), ("cube", "f8"):
    x = f[key] if key != "cube" else f[key].reshape(2, 3, 2)
    assert f[key].dtype == kind and (x[..., 0] == z.real).all() and (x[..., 1] == z.imag).all()
assert f["one"].tolist() == [3, -4]
P
    fails_with 3 "descr '<U1' is not read" import text.npy -o out.npz
    fails_with 3 "complex numbers in 8 dimensions are not read" import wide.npy -o out.npz
    fails_with 3 "none.npz: holds no tensors that are read; left out: text (descr <U1)" \
        import none.npz -o out.npz
}

@test "import: --tensor takes names of HDF5 as they are printed, and with their '/'" {
    "$PYTHON" -c 'import h5py
with h5py.File("a.h5", "w") as f:
    f["w"] = f["b/w"] = [1.0, 2.0]'
    for filter in '^w$' '^/w$'; do
        run -0 "$QUALM" import a.h5 --tensor "$filter" -o out.npz
        [[ $output == *"1 array"* ]]
    done
    run -0 "$QUALM" import a.h5 --tensor '^b/w$' -o out.npz
    run -0 "$QUALM" analyze a.h5 --slot exp_avg --tensor '^w$' --quantizer int:4s/block:128
    fails_with 4 "no tensor matches ^v" import a.h5 --tensor '^v$' -o out.npz
}

# Python calls set_() with the state of a tensor; which of two headers names a record is the
# reader's choice.
@test "import: a tensor that is set anew after it was made, and two records at one place" {
    PYTHONPATH=$ROOT/tests/support "$PYTHON" - <<'P'
import struct, zipfile, numpy as np, torch_pickle as t
x = np.arange(6, dtype="f4")
class Set:
    """A tensor of 6 elements that is set to 2 of them."""
    def __reduce__(self):
        storage = t.Storage(t.torch.FloatStorage, "0", 6)
        return t.rebuild, (storage, 0, (6,), (1,), False, {}), (storage, 1, (2,), (1,))
t.write("set.pt", {"w": Set(), "v": t.Tensor("0", x)}, {"0": x})
t.write("two.pt", {"w": t.Tensor("0", x), "v": t.Tensor("1", x + 6)}, {"0": x, "1": x + 6})
raw = bytearray(open("two.pt", "rb").read())
at = {i.filename: i for i in zipfile.ZipFile("two.pt").infolist()}
entry = raw.index(b"a/data/0", raw.index(b"PK\1\2")) - 46
raw[entry + 42:entry + 46] = struct.pack("<I", at["a/data/1"].header_offset)
raw[entry + 16:entry + 20] = struct.pack("<I", at["a/data/1"].CRC)
open("shared.pt", "wb").write(raw)
P
    run -0 "$QUALM" import set.pt -o out.npz
    [[ $output == *"left out: w (set to another storage or shape after it was made)"* ]]
    "$PYTHON" -c "import numpy; assert [*numpy.load('out.npz')] == ['v']"
    run -0 "$QUALM" import two.pt -o out.npz
    fails_with 3 "expected entries with the names and sizes of its directory" \
        import shared.pt -o out.npz
}

@test "import: HDF5 that this library does not read rightly is named: cut integers, LZF, newer files" {
    "$PYTHON" - <<'P'
import h5py, numpy as np
for name, kind in ("big", h5py.h5t.STD_I16BE), ("little", h5py.h5t.STD_I16LE):
    cut = kind.copy()
    cut.set_precision(12)
    with h5py.File(name + ".h5", "w") as f:
        space = h5py.h5s.create_simple((3,))
        d = h5py.h5d.create(f.id, b"w", cut, space)
        d.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([-3, 0, 2], "i4"))
        f["x"] = [1.0]
with h5py.File("lzf.h5", "w") as f:
    f.create_dataset("w", data=np.zeros(1000), compression="lzf")
with h5py.File("new.h5", "w", libver="latest") as f:
    f["b"] = np.array([True, False])
P
    run -0 "$QUALM" import big.h5 -o out.npz
    [[ $output == *"left out: w (big-endian integers of 12 bits in 2 bytes)"* ]]
    run -0 "$QUALM" import little.h5 -o out.npz
    "$PYTHON" -c "import numpy; assert numpy.load('out.npz')['w'].tolist() == [-3, 0, 2]"
    fails_with 3 "packed by filter 32000 (LZF of h5py)" import lzf.h5 -o out.npz
    case $("$PYTHON" -c "import h5py; print(h5py.version.hdf5_version)") in
    1.[0-9].* | 1.10.*) ;;
    *) fails_with 3 "of a newer HDF5 than" import new.h5 -o out.npz ;;
    esac
}

@test "digest: texts and lists of any length in chunks, packed or not, give one digest" {
    "$PYTHON" - <<'P'
import h5py, numpy as np
row = np.dtype([("t", h5py.string_dtype()), ("x", "f4"), ("v", h5py.vlen_dtype("i4"))])
rows = np.zeros(3, row)
rows["t"], rows["v"] = ["q", "rr", ""], [np.arange(3), np.arange(2), np.arange(1)]
for i, how in enumerate(({}, {"maxshape": (None,)}, {"chunks": (2,), "compression": 1},
                         {"maxshape": (None,), "shuffle": True})):
    with h5py.File(f"{i}.h5", "w") as f:
        f.create_dataset("s", data=["a", "", "e" * 300], dtype=h5py.string_dtype(), **how)
        f.create_dataset("rows", data=rows, **how)
P
    for i in 0 1 2 3; do "$QUALM" digest -q $i.h5 2>/dev/null | cut -d' ' -f1; done >sums
    [ "$(wc -l <sums)" = 4 ] && [ "$(sort -u sums | wc -l)" = 1 ]
}

# What HDF5 reads where nothing was written, and nothing is to be filled, is what was in memory.
@test "import: HDF5 values that were never written are left out where nothing fills them" {
    "$PYTHON" - <<'P'
import h5py, numpy as np
def never(f, name, n, chunk=None):
    how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    how.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    if chunk:
        how.set_chunk((chunk,))
    space = h5py.h5s.create_simple((n,))
    h5py.h5d.create(f.id, name.encode(), h5py.h5t.IEEE_F32LE, space, how)
    return f[name]
with h5py.File("holes.h5", "w") as f:
    f["secret"] = np.arange(1, 1025, dtype="f4")
    never(f, "unset", 1024)
    never(f, "part", 16, 4)[0:4] = 5
    never(f, "whole", 16, 4)[:] = 5
    never(f, "none", 0)
    f.create_dataset("zeros", (16,), "f4", chunks=(4,))
    f.create_dataset("threes", (16,), "f4", fillvalue=3)
    f["truth"] = np.array([0, 1, 2, 255, 128, 127], "u1").view("?")
P
    run -0 "$QUALM" import holes.h5 -o out.npz
    [[ $output == *"left out: "*"part (values that were never written"*"unset (values that were"* ]]
    "$PYTHON" - <<'P'
import numpy as np
f = np.load("out.npz")
assert {*f} == {"secret", "whole", "none", "zeros", "threes", "truth"}
assert (f["whole"] == 5).all() and (f["zeros"] == 0).all() and (f["threes"] == 3).all()
assert f["truth"].tolist() == [False] + [True] * 5
P
    fails_with 3 "/part has values that were never written" digest holes.h5
}

@test "import: what is no array in an .npz is named; counts in a filter's braces have an end" {
    "$PYTHON" - <<'P'
import zipfile, numpy as np
np.savez("more.npz", a=np.ones(3, "f4"))
with zipfile.ZipFile("more.npz", "a") as f:
    f.writestr("sub/", "")
    f.writestr("README.txt", "hello")
with zipfile.ZipFile("broken.npz", "w") as f:
    f.writestr("w.npy", "hello")
P
    run -0 "$QUALM" import more.npz -o out.npz
    [[ $output == *"left out: sub/ (no .npy); README.txt (no .npy)"*"1 array"* ]]
    fails_with 3 "expected .npy version" import broken.npz -o out.npz
    fails_with 2 "counts in braces make more than 10000 repetitions" import more.npz -o out.npz \
        --tensor '((a{1,255}){1,255}){1,255}'
    run -0 "$QUALM" import more.npz -o out.npz --tensor '^a{1,255}$'
}

@test "import: what nobody wrote in a file with a user's block is its fill value" {
    "$PYTHON" - "$BATS_TEST_TMPDIR" << 'P'
import sys, h5py, numpy as np
for block in 0, 512, 4096:
    with h5py.File("%s/%d.h5" % (sys.argv[1], block), "w", userblock_size=block) as f:
        f["written"] = np.ones(4, "f4")
        f.create_dataset("never", (3,), "f4", fillvalue=7)
P
    for block in 0 512 4096; do
        "$QUALM" import -q "$BATS_TEST_TMPDIR/$block.h5" -o "$BATS_TEST_TMPDIR/$block.npz"
        cmp "$BATS_TEST_TMPDIR/0.npz" "$BATS_TEST_TMPDIR/$block.npz"
    done
}

@test "parameters that were never updated open the names of no others, in groups of their own" {
    "$PYTHON" - "$ROOT/tests/support" <<'P'
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from torch_pickle import Tensor, write
x = {1: np.ones((4, 6), "f4"), 2: np.ones((2, 3), "f4"), 3: np.ones(4, "f4"), 4: np.ones(2, "f4"),
     5: np.ones((6, 4), "f4"), 6: np.ones(6, "f4")}
model = {"a.weight": 1, "a.bias": 3, "u.weight": 2, "u.bias": 4, "b.weight": 5, "b.bias": 6}
def save(name, states, groups):
    write(name + ".pt",
          {"model": {k: Tensor(i, x[i]) for k, i in model.items()},
           "optimizer": {"state": {p: {"exp_avg": Tensor(i, x[i])} for p, i in states.items()},
                         "param_groups": [{"params": g} for g in groups]}}, x)
save("unused", {0: 1, 2: 5, 3: 3, 5: 6}, ([0, 1, 2], [3, 4, 5]))  # all but u.weight and u.bias
x[2] = np.ones((4, 6), "f4")  # of the shape of a.weight: which of the two has states?
save("alike", {0: 1, 1: 5, 3: 3, 5: 6}, ([0, 1], [2], [3, 4, 5]))
P
    names() { "$PYTHON" -c "import sys, numpy as n; assert {*sys.argv[2:]} <= {*n.load(sys.argv[1])}" "$@"; }
    "$QUALM" import unused.pt -o unused.npz >/dev/null 2>said
    grep -q "names are joined by order" said
    names unused.npz a.weight/exp_avg b.weight/exp_avg a.bias/exp_avg b.bias/exp_avg
    "$QUALM" import alike.pt -o alike.npz >/dev/null 2>said
    grep -q "in several ways; PyTorch from 2.6 on stores names" said
    names alike.npz 0/exp_avg 5/exp_avg
}
