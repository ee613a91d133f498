#!/usr/bin/env bats
# compare.bats - Tests qualm compare: the same, worse and failed cells of two result files.

load ../../support/cli_common

setup() { dir=$(mktemp -d); }

teardown() { rm -rf "$dir"; }

# a_file: runs a suite of ten cells to $dir/a.h5
a_file() {
    printf '%s\n' 'variant: [adamw4_ao, adamw8_bnb]' 'source: dist:gauss' 'seed: [1, 2, 3, 4, 5]' \
        'n: 1024' >"$dir/c.yaml"
    "$QUALM" run -q -o "$dir/a.h5" "$dir/c.yaml"
}

@test "compare: the same, worse, no longer ok, JSON, wrong files" {
    long 4
    a_file
    run "$QUALM" compare "$dir/a.h5" "$dir/a.h5"
    [ "$status" -eq 0 ]
    [[ "$output" =~ worse\ +0 ]]
    # one recipe has another format: pairs are formed by the remaining equal axes
    "$PYTHON" - "$dir/a.h5" "$dir/b.h5" <<'P'
import h5py, shutil, sys
shutil.copy(sys.argv[1], sys.argv[2])
with h5py.File(sys.argv[2], "r+") as f:
    m, v = f["metrics"][:], f["cells"]["variant"]
    m["sqnr"][v == b"adamw4_ao"] -= [0.3, 0.2, 0.4, 0.3, 0.25]
    f["metrics"][...] = m
P
    run "$QUALM" compare "$dir/a.h5" "$dir/b.h5"
    [ "$status" -eq 1 ]
    [[ "$output" == *"adamw4_ao  sqnr"*"worse"* ]]
    [ "$(json_value 'd["worse"]' compare "$dir/a.h5" "$dir/b.h5")" = 1 ]
    run "$QUALM" compare "$dir/b.h5" "$dir/a.h5" # better is a difference too
    [ "$status" -eq 1 ]
    [ "$(json_value 'd["worse"]' compare "$dir/b.h5" "$dir/a.h5")" = 0 ]
    run "$QUALM" compare --margin 0.5 --all "$dir/a.h5" "$dir/b.h5"
    [ "$status" -eq 0 ]
    [[ "$output" == *"within the margin"* && "$output" != *"unclear"* ]]
    # exact before and not now, a number before and none now: regressions; the reverse is none
    "$PYTHON" - "$dir/a.h5" "$dir/exact.h5" "$dir/none.h5" <<'P'
import h5py, shutil, sys
for path, value in zip(sys.argv[2:], (float("inf"), float("nan"))):
    shutil.copy(sys.argv[1], path)
    with h5py.File(path, "r+") as f:
        m = f["metrics"][:]
        m["sqnr"][f["cells"]["variant"] == b"adamw8_bnb"] = value
        f["metrics"][...] = m
P
    for pair in "exact a" "a none" "exact none"; do
        run "$QUALM" compare --margin 9 "$dir/${pair% *}.h5" "$dir/${pair#* }.h5"
        [ "$status" -eq 1 ]
        [[ "$output" == *"adamw8_bnb  sqnr"*" 5 "*"worse"* ]]
    done
    for pair in "a exact" "none a"; do
        run "$QUALM" compare "$dir/${pair% *}.h5" "$dir/${pair#* }.h5"
        [ "$status" -eq 1 ]
        [[ "$output" =~ worse\ +0 ]]
    done
    for pair in "none none" "exact exact"; do
        run "$QUALM" compare "$dir/${pair% *}.h5" "$dir/${pair#* }.h5"
        [ "$status" -eq 0 ]
    done
    rm "$dir/none.h5"
    "$PYTHON" - "$dir/b.h5" <<'P'
import h5py, sys
with h5py.File(sys.argv[1], "r+") as f:
    c = f["cells"][:]
    c["status"][0] = b"no"
    f["cells"][...] = c
P
    run "$QUALM" compare --margin 9 "$dir/a.h5" "$dir/b.h5"
    [ "$status" -eq 1 ]
    [[ "$output" =~ no\ longer\ ok\ +1 ]]
    "$PYTHON" - "$dir/b.h5" <<'P'
import h5py, sys
with h5py.File(sys.argv[1], "r+") as f:
    m, a = f["metrics"][:1], dict(f["metrics"].attrs)
    del f["metrics"]
    f.create_dataset("metrics", data=m).attrs.update(a)
P
    fails_with 3 "10 and 1 rows" compare "$dir/a.h5" "$dir/b.h5"
    fails_with 3 "none.h5" compare "$dir/a.h5" "$dir/none.h5"
    fails_with 2 "expected two files" compare "$dir/a.h5"
    fails_with 4 "no column 'nothing'" compare -m nothing "$dir/a.h5" "$dir/a.h5"
}

@test "compare: one number that differs in its last bit" {
    a_file
    "$PYTHON" - "$dir/a.h5" "$dir/bit.h5" <<'P'
import h5py, numpy, shutil, sys
shutil.copy(sys.argv[1], sys.argv[2])
with h5py.File(sys.argv[2], "r+") as f:
    m = f["metrics"][:]
    m["sqnr"][3] = numpy.nextafter(m["sqnr"][3], 100)
    f["metrics"][...] = m
P
    run "$QUALM" compare "$dir/a.h5" "$dir/bit.h5"
    [ "$status" -eq 1 ]
    [[ "$output" == *"changed by another program"* && "$output" == *sqnr* ]]
    run "$QUALM" compare --margin 1e-9 "$dir/a.h5" "$dir/bit.h5"
    [ "$status" -eq 0 ]
}

@test "compare: a column that differs or that one file alone has is listed, exit code 1" {
    long 3
    a_file
    "$PYTHON" - "$dir/a.h5" "$dir" <<'P'
import h5py, numpy as np, shutil, sys
def written(name, change):
    shutil.copy(sys.argv[1], f"{sys.argv[2]}/{name}.h5")
    with h5py.File(f"{sys.argv[2]}/{name}.h5", "r+") as f:
        change(f)
def bits(f):
    rows = f["cells"][:]
    rows["bits"][0] += 1
    f["cells"][:] = rows
def without(f):
    old = f["metrics"]
    names = [n for n in old.dtype.names if n != "sqnr"]
    kept = {k: v for k, v in old.attrs.items()}
    at = old.dtype.names.index("sqnr")
    rows = np.empty(old.shape, [(n, old.dtype[n]) for n in names])
    for n in names:
        rows[n] = old[n]
    del f["metrics"]
    new = f.create_dataset("metrics", data=rows)
    for k, v in kept.items():
        new.attrs[k] = np.delete(v, at) if np.shape(v) == (len(names) + 1,) else v
written("bits", bits)
written("without", without)
P
    run -1 --separate-stderr "$QUALM" compare "$dir/a.h5" "$dir/bits.h5"
    [[ $output == *"cells/bits "*" 1"* ]]
    run -1 --separate-stderr "$QUALM" compare "$dir/a.h5" "$dir/without.h5"
    [[ $output == *"metrics/sqnr  a "* ]]
    run -1 --separate-stderr "$QUALM" compare "$dir/without.h5" "$dir/a.h5"
    [[ $output == *"metrics/sqnr  b "* ]]
    run -0 --separate-stderr "$QUALM" compare "$dir/a.h5" "$dir/a.h5"
    [[ $output == *"not compared  all but metrics and columns of cells (curves, summaries"* ]]
    run -0 --separate-stderr "$QUALM" compare -m nmse "$dir/a.h5" "$dir/a.h5"
    [[ $output == *"metrics that --metric does not name"* ]]
    printf '%s\n' 'variant: adamw4_ao' 'source: dist:gauss' 'seed: [1, 2, 3]' 'n: 1024' \
        >"$dir/d.yaml"
    "$QUALM" run -q -o "$dir/d.h5" "$dir/d.yaml"
    run -0 --separate-stderr "$QUALM" compare "$dir/a.h5" "$dir/d.h5"
    [[ $output == *"7 cells of a and 0 of b without a pair"* ]]
    "$PYTHON" -c 'import h5py, sys
del h5py.File(sys.argv[1], "r+")["metrics"].attrs["column_units"]' "$dir/d.h5"
    run -3 --separate-stderr "$QUALM" compare "$dir/a.h5" "$dir/d.h5"
}
