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
         column=np.asfortranarray(z), text=np.array(["a"]), thing=np.array([None], object),
         table=np.zeros(2, [("a]", "<f4"), ("b", "<i4", (2,))]))
np.save("text.npy", np.array(["a"]))
np.save("column.npy", np.asfortranarray(z))
np.savez("none.npz", text=np.array(["a"]))
P
    run -0 "$QUALM" import all.npz -o out.npz
    for what in "column (complex numbers in Fortran order or 8 dimensions, descr <c16)" \
        "text (descr <U1)" "thing (descr |O)" "table (descr a table)"; do
        [[ $output == *"left out: "*"$what"* ]]
    done
    "$PYTHON" - <<'P'
import numpy as np
f, z = np.load("out.npz"), np.arange(6).reshape(2, 3) * (1 + 2j)
assert {*f} == {"small", "large", "one", "w"}
for key, kind in ("small", "f4"), ("large", "f8"):
    assert f[key].dtype == kind and (f[key][..., 0] == z.real).all()
    assert (f[key][..., 1] == z.imag).all()
assert f["one"].tolist() == [3, -4]
P
    fails_with 3 "descr '<U1' is not read" import text.npy -o out.npz
    fails_with 3 "complex numbers in Fortran order" import column.npy -o out.npz
    fails_with 3 "none.npz: holds no tensors that are read; left out: text (descr <U1)" \
        import none.npz -o out.npz
}

@test "import: --tensor takes names of HDF5 as they are printed, and with their '/'" {
    "$PYTHON" -c 'import h5py
with h5py.File("a.h5", "w") as f:
    f["w"] = f["b/w"] = [1.0, 2.0]'
    for filter in '^w$' '^/w$'; do
        run -0 "$QUALM" import a.h5 --tensor "$filter" -o out.npz
        [[ $output == *"1 arrays"* ]]
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
