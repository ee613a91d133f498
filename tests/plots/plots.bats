#!/usr/bin/env bats
# plots.bats - Draws every figure twice from small runs of the suites, and compares the files.
# Run it from the root of the repository.

load ../support/cli_common

setup_file() {
    local missing=""
    for module in h5py matplotlib; do
        /usr/bin/python3 -c "import $module" 2>/dev/null || missing="$missing python3-$module"
    done
    export MISSING=$missing
    export DIR=$(mktemp -d)
    [ -z "$missing" ] || return 0
    local s=experiments/suites
    mkdir "$DIR/suites" "$DIR/results"
    for name in momentum_format second_moment rank1; do
        sed 's|"states:\*"|"states:cancer_mlp/s0001*"|' "$s/$name.yaml" >"$DIR/suites/$name.yaml"
    done
    for name in drift drift_second; do
        sed 's|"trace:\*"|"trace:cancer_mlp*"|; s|^every: .*|every: 50|' "$s/$name.yaml" \
            >"$DIR/suites/$name.yaml"
    done
    for name in convergence momentum_convergence momentum_sgdm; do
        sed 's|^steps: .*|steps: 20|; s|^seed: .*|seed: [1, 2]|' "$s/$name.yaml" \
            >"$DIR/suites/$name.yaml"
    done
    sed 's|^n: .*|n: 4096|' "$s/theory.yaml" >"$DIR/suites/theory.yaml"
    "$QUALM" run -q -o "$DIR/results/" "$DIR"/suites/*.yaml >"$DIR/tables"
    "$QUALM" bench -q --quick --only searches --out "$DIR/results/bench.h5" >>"$DIR/tables"
}

teardown_file() { rm -rf "$DIR"; }

setup() {
    if [ -n "$MISSING" ]; then
        skip "missing packages:$MISSING"
    fi
}

scripts() { ls plots/figures/*.py | grep -v /common.py; }

# draw FOLDER: runs every script as `make plots` does
draw() {
    local folder=$1
    shift
    printf '%s\n' "$@" | xargs -P 2 -I{} "$PYTHON" {} --results "$DIR/results" --out "$folder"
}

@test "every script writes a PNG and an SVG; drawing twice gives equal files" {
    draw "$DIR/a" $(scripts)
    draw "$DIR/b" $(drawn $(scripts))
    for script in $(scripts); do
        [ -e "$DIR/a/$(basename "$script" .py).png" ]
    done
    [ "$(ls "$DIR/a" | wc -l)" -eq 22 ] # 8 scripts, 11 figures
    for png in "$DIR"/a/*.png; do
        name=$(basename "$png" .png)
        [ "$(stat -c %s "$png")" -gt 10000 ]
        [ "$(stat -c %s "$DIR/a/$name.svg")" -gt 10000 ]
        [ "$(head -c 4 "$png" | tail -c 3)" = PNG ]
        "$PYTHON" -c "import sys, xml.dom.minidom as x; x.parse(sys.argv[1])" "$DIR/a/$name.svg"
    done
    [ -n "$(ls "$DIR/b")" ]
    for again in "$DIR"/b/*; do
        cmp "$DIR/a/$(basename "$again")" "$again"
    done
}

@test "every script prints one line per missing result file and exits with 0" {
    mkdir -p "$DIR/none"
    for script in $(scripts); do
        run --separate-stderr "$PYTHON" "$script" --results "$DIR/none" --out "$DIR/c"
        [ "$status" -eq 0 ]
        [ -z "$output" ]
        [ "${#stderr_lines[@]}" -ge 1 ]
        for line in "${stderr_lines[@]}"; do
            [[ $line == "${script%.py}: skipped: $DIR/none/"* ]]
            [[ $line == *".h5 is not there (make run writes it)" ]]
        done
    done
    [ -z "$(ls "$DIR/c")" ]
}

@test "a file that is no result file: exit code 3" {
    mkdir -p "$DIR/bad"
    echo text >"$DIR/bad/theory.h5"
    run --separate-stderr "$PYTHON" plots/figures/block_size.py --results "$DIR/bad" --out "$DIR/d"
    [ "$status" -eq 3 ]
    [ "${#stderr_lines[@]}" -eq 1 ]
    [[ "$stderr" == "plots/figures/block_size: $DIR/bad/theory.h5: "* ]]
    cp "$DIR/results/bench.h5" "$DIR/bad/theory.h5"
    run --separate-stderr "$PYTHON" plots/figures/block_size.py --results "$DIR/bad" --out "$DIR/d"
    [ "$status" -eq 3 ]
    [[ "$stderr" == *'holds results of `bench`; expected run' ]]
}

# in_python: runs the program on stdin with common, np and DIR
in_python() { PYTHONPATH=plots/figures "$PYTHON" -c "import os, common, numpy as np
DIR = os.environ['DIR'] + '/results/'
$(cat)"; }

@test "/codebooks: boundaries are midpoints, except one of the 0.2.4 table's ladder" {
    in_python <<'EOF'
b = common.table(common.load(DIR + "momentum_format.h5"), "/codebooks")
def rows(map_name, search):
    return {k: v[(b["map"] == map_name) & (b["search"] == search)] for k, v in b.items()}
nf4, near, ladder = rows("nf4:4s", "bisect"), rows("nf4a8:4s", "argmin"), rows("nf4a8:4s", "ladder")
for r, n in ((nf4, 16), (near, 16), (ladder, 16), (rows("int:4s", "arith"), 16),
             (rows("dyn:4s", "bisect"), 16), (rows("dyn:8s", "bisect"), 256)):
    assert list(r["position"]) == list(range(n))
    assert np.isnan(r["edge"][-1]) and np.isnan(r["midpoint"][-1])
    assert (np.diff(r["value"]) > 0).all()
    assert np.allclose(r["midpoint"][:-1], (r["value"][:-1] + r["value"][1:]) / 2, rtol=1e-12)
assert np.allclose(rows("intm:4s", "arith")["value"], np.arange(-8, 8) / 8, rtol=1e-6)
assert len(b["map"]) == 6 * 16 + 256                       # each table once, for all block sizes
assert list(nf4["value"][[0, 7, 15]]) == [-1, 0, 1]
assert np.float32(nf4["value"][1]) == np.float32(-0.6961928009986877)   # QLoRA's table
assert np.allclose(rows("int:4s", "arith")["value"], np.arange(-8, 8) / 7, rtol=1e-6)
# boundaries are the midpoints but for float rounding, with one exception
for r in (nf4, near):
    assert np.abs(r["edge"] - r["midpoint"])[:-1].max() < 2e-7
assert np.abs(ladder["edge"] - ladder["midpoint"])[1:-1].max() < 2e-7
assert abs(ladder["midpoint"][0] + 0.8480964) < 1e-7
last = np.nextafter(np.float32(ladder["edge"][0]), np.float32(-2))
assert last == np.float32(-0.7801653), last
EOF
}

@test "/unit_decades and theory_sqnr" {
    in_python <<'EOF'
f = common.load(DIR + "theory.h5")
axes, metrics, n = common.table(f, "/axes"), common.table(f, "/metrics"), 4096
low, count = f["unit_decades/low"][...], f["unit_decades/count"][...]
zero, error = f["unit_decades/zero_share"][...], f["unit_decades/mean_rel"][...]
assert (count.sum(axis=1) == n).all()                      # draws of a density are never 0
assert (count[:, low > 0] == 0).all()                      # nothing above the maximum
one = (axes["exp_avg.norm"] == "block:32") & (axes["source"] == "dist:gauss")
int4 = np.flatnonzero(one & (axes["exp_avg"] == "int4"))[0]
# below 1 / 14 of the maximum everything becomes 0, above 1 / 10 nothing
assert count[int4, low == -3] > 0
assert zero[int4, low == -3] == 1 and error[int4, low == -3] == 1
assert zero[int4, low == -1] == 0 and 0 < error[int4, low == -1] < 1 / 1.4
assert 0 < zero[int4, low == -2] < 1
# one element in 32 is its block's maximum, and NF4 keeps it exactly
nf4 = np.flatnonzero(one & (axes["exp_avg"] == "nf4"))[0]
assert count[nf4, low == 0] == n // 32 and error[nf4, low == 0] == 0
assert np.allclose(metrics["theory_sqnr"], -10 * np.log10(metrics["theory_nmse"]), rtol=1e-13)
assert not np.isnan(metrics["theory_sqnr"]).any()
EOF
}
