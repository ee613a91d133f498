#!/usr/bin/env bats
# conform_codes.bats - Tests that qualm conform refuses a single false code of a true recording,
# whichever system, quantizer or optimizer run it stands in.

load ../../support/conform_common

setup() { needs_hdf5; }

# falsified SYSTEM DATASETS [PICK]: a file of copies of up to 20 drawn cases of a golden file, in
# each of which one code of one of these datasets, a regular expression, is one less, or 1 for 0, at
# a place drawn by QM_TEST_SEED; qualm conform must say DIFFERS of each.  PICK: an
# expression of Python that says of group g, dataset d and code i whether it may be taken.
falsified() {
    local x=$BATS_TEST_TMPDIR/$1.h5
    PYTHONPATH=$ROOT/tests/support "$PYTHON" - "$ROOT/tests/golden/$1.h5" "$x" "$2" "${3:-True}" \
        "${QM_TEST_SEED:-0}" <<'P'
import re, sys, h5py, numpy as np
from golden_copy import copy
source, path, which, pick, seed = sys.argv[1:]
rng = np.random.default_rng(int(seed))
# How far SOLO's number is from where its rounding turns, in codes; its draws are recorded.
def distance(g, i):
    block = g.attrs["block_size"]
    s, a = (float(g[k][i // block]) for k in ("scale", "alpha"))
    with np.errstate(all="ignore"):
        k = np.log2(float(g["x"][i]) / s) / np.log2(a) + float(g["rand"][i]) - 0.5
    return abs(k - np.floor(k) - 0.5) if np.isfinite(k) else 0.5
with h5py.File(source) as f, h5py.File(path, "w") as out:
    for key, value in f.attrs.items():
        out.attrs[key] = value
    cases = []
    def find(name, g):
        if isinstance(g, h5py.Group) and not name.endswith("/state"):
            names = []
            g.visititems(lambda k, d: names.append(k) if isinstance(d, h5py.Dataset) else None)
            own = [k for k in names if "/" not in k or k.startswith("state/")]
            hits = [k for k in own if re.fullmatch(which, k) and g[k].size]
            if hits:
                cases.append((name, hits))
    f.visititems(find)
    for at in rng.permutation(len(cases))[:20]:
        name, hits = cases[at]
        g = out.create_group(name)
        copy(f[name], g)
        d = hits[rng.integers(len(hits))]
        codes = g[d][()]
        flat = codes.reshape(-1)
        places = [i for i in rng.permutation(flat.size)[:64] if eval(pick)]
        if not places:
            del out[name]
            continue
        i = places[0]
        flat[i] = flat[i] - 1 if flat[i] > 0 else flat[i] + 1
        g[d][...] = codes
P
    run "$QUALM" conform "$x"
    [ "$status" -eq 1 ] || { echo "$output"; false; }
    [ -z "$(grep -E '^(EQUAL|NEAR|UNREADABLE) ' <<<"$output")" ] || { echo "$output"; false; }
}

@test "conform: a false code of SOLO far from every edge differs, however few there are" {
    falsified solo codes 'g.attrs["quantizer"] == "qema" and distance(g, i) > 0.05'
    falsified solo 'state/[mv]_codes'
}

@test "conform: a false code of COAT, MicroAdam or Muon differs" {
    falsified coat '(state/)?[mv]_codes' 'flat[i] & 127 < 126'
    falsified microadam '(codes|state/error_codes)'
    falsified muon8bit '(codes|state/momentum_codes)'
}

@test "conform: a false code of Shampoo's quantizer differs" { falsified shampoo4bit codes; }

@test "conform: a false code of torchao, bitsandbytes or lpmm differs" {
    long 2
    falsified torchao '[mv]_codes'
    falsified bitsandbytes 'state[12]' 'codes.dtype.kind in "iu"'
    falsified lpmm 'codes'
}

@test "conform: a false code of adafactor8bit differs, of a log code too" {
    local pick='"ties" not in name and ("x" not in g or i < g["x"].size)'
    pick+=' and ("grads" not in g or i % codes.shape[-1] < g["grads"].shape[-1])' # not the padding
    falsified adafactor8bit 'codes' "$pick"
}
