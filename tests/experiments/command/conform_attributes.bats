#!/usr/bin/env bats
# conform_attributes.bats - What `qualm conform` makes of attributes and datasets of a wrong form.

load ../../support/conform_common

# changed VERDICT COUNT TEXT PYTHON: each of COUNT files, which the lines of Python make by
# `case(FILE, GROUP)` from recordings of tests/golden, has that verdict, and its text has TEXT.
changed() {
    cd "$(mktemp -d -p "$BATS_TEST_TMPDIR")"
    GOLDEN=$ROOT/tests/golden PYTHONPATH=$ROOT/tests/support "$PYTHON" - <<P
import os, random
import h5py, numpy as np
from golden_copy import copy
rng, made = random.Random(7), [0]
def case(name, group):
    """Copies one case into the next file; returns the file and its group."""
    f = h5py.File("%d.h5" % made[0], "w")
    made[0] += 1
    with h5py.File(os.environ["GOLDEN"] + "/" + name + ".h5") as g:
        f.attrs.update(g.attrs)
        copy(g[group], f.create_group(group))
    return f, f[group]
def groups(name, has):
    with h5py.File(os.environ["GOLDEN"] + "/" + name + ".h5") as g:
        found = []
        g.visititems(lambda n, x: found.append(n) if has(x) else None)
        return found
$4
P
    [ "$(find . -name '*.h5' | wc -l)" -ge "$2" ]
    for file in *.h5; do
        "$QUALM" conform "$file" >out 2>err || true
        cat out
        grep -qE "^$1 " out
        grep -qF -- "$3" out
    done
}

# A list where a number stands, a number more than a list has, a matrix.
lists='
def lists(name, dtype, keys, form):
    for group in groups(name, lambda x: isinstance(x, h5py.Group) and
                        x.attrs.get("dtype") in (dtype, dtype.encode()))[:2]:
        for key in keys:
            f, g = case(name, group)
            if key not in g.attrs:
                f.close(); made[0] -= 1; os.remove("%d.h5" % made[0])
                continue
            x = np.asarray(g.attrs[key]).reshape(-1)
            g.attrs[key] = form(x)
            f.close()
def all_lists(form):
    lists("came", "f32", ("betas", "eps", "clip_threshold"), form)
    lists("adafactor", "f64", ("eps", "decay_rate", "beta2_decay", "lr"), form)
    lists("apollo", "f32", ("betas", "eps", "rank", "scale"), form)
    lists("fira", "f64", ("betas", "eps", "rank", "alpha"), form)
'

@test "conform: a number more than are expected makes a case UNREADABLE, a list of one does not" {
    long 3
    changed UNREADABLE 16 "is a list of numbers" "$lists"'
all_lists(lambda x: np.append(x, x[-1]))'
    changed UNREADABLE 16 "is of a type that is not read" "$lists"'
all_lists(lambda x: x.reshape(1, -1))'
    changed "(EQUAL|NEAR|skipped)" 16 "" "$lists"'
all_lists(lambda x: x)'
}

@test "conform: a float32 case with numbers that float32 does not have is UNREADABLE" {
    changed UNREADABLE 6 "which float32 does not have" '
for name, key in ("fira", "proj"), ("apollo", "proj"), ("came", "state_RMS"), ("came", "grads"), \
        ("adafactor", "state_RMS"), ("torch215_adamw", "state_mu_product"):
    for group in groups(name, lambda x: isinstance(x, h5py.Group) and key in x and
                        x.attrs.get("dtype") in ("f32", b"f32"))[:2]:
        f, g = case(name, group)
        x = g[key][()].astype("f8")
        del g[key]
        x.flat[rng.randrange(x.size)] = 1.0 + 2.0 ** -30
        g[key] = x
        f.close()'
}

@test "conform: attributes of a quantizer that nobody reads are named, and its shape is checked" {
    local quant='
def quantizers(name, n=2):
    return groups(name, lambda x: isinstance(x, h5py.Group) and "x" in x and "codes" in x)[:n]
'
    changed "(EQUAL|NEAR)" 6 "attribute extra" "$quant"'
for name in "lion8bit", "flashoptim", "shampoo4bit":
    for group in quantizers(name):
        f, g = case(name, group)
        g.attrs["extra"] = 0.5
        f.close()'
    changed UNREADABLE 6 "attribute shape of" "$quant"'
for name in "lion8bit", "flashoptim", "shampoo4bit":
    for group in quantizers(name):
        f, g = case(name, group)
        g.attrs["shape"] = [g["x"].size + 1]
        f.close()'
}

@test "conform: a text with more behind a NUL is another text" {
    changed UNREADABLE 2 "no text, or one with more behind a NUL" '
for group in groups("torchao", lambda x: "state_class" in x.attrs or "state" in x.attrs)[:2]:
    f, g = case("torchao", group)
    g.attrs["dtype"] = np.bytes_(b"float32\0junk")
    f.close()'
    changed "(EQUAL|NEAR)" 2 "" '
for group in groups("torchao", lambda x: "state_class" in x.attrs or "state" in x.attrs)[:2]:
    f, g = case("torchao", group)
    g.attrs["dtype"] = np.array(g.attrs["dtype"].encode(), "S20")
    f.close()'
}

# The version of a layout message, 3, becomes one that the library does not read.
@test "conform: a dataset that cannot be opened is named with the reason" {
    changed UNREADABLE 1 "param0 cannot be opened: bad version number for layout message" '
f, g = case("came", groups("came", lambda x: "betas" in x.attrs)[0])
x = g["param0"][()] if "param0" in g else g["p0"][()]
for key in ("param0", "p0", "params0"):
    if key in g:
        del g[key]
d = g.create_dataset("param0", data=x)
f.flush()
offset = d.id.get_offset()
f.close()
data = bytearray(open("0.h5", "rb").read())
at = data.index(b"\x03\x01" + offset.to_bytes(8, "little"))
data[at] = 9
open("0.h5", "wb").write(data)'
}
