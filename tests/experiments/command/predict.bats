#!/usr/bin/env bats
# predict.bats - Tests predict against a reading of its header in NumPy, and what it refuses.

load ../../support/cli_common

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    {
        echo "variant:"
        for map in nf4:4s lint:4s dyn:4s intm:4s; do
            for block in 32 512; do
                format=$map/block:$block/bisect/mid/hi
                echo "  - \"$map $block\": \"adamw_f32,exp_avg=$format,min_numel=0\""
            done
        done
        echo "  - plain: adamw_f32"
        echo "  - absent: \"adamw_f32,exp_avg=dyn:8s/tensor/bisect/mid/hi,min_numel=0\""
    } >variants
    {
        grep -v absent variants
        printf 'source: ["dist:gauss", "dist:laplace"]\nn: 2048\ncoupling: oneshot\n'
        printf 'slot: exp_avg\nseed: 1..3\n'
    } >e.yaml
    {
        cat variants
        printf 'source: ["problem:nqm:n=512", "problem:quad:n=512"]\ncoupling: closed\n'
        printf 'protocol: paired\nseed: 1..8\nsteps: 40\nweight_decay: 0\n'
    } >t.yaml
    "$QUALM" run -q e.yaml -o e.h5 >/dev/null
    "$QUALM" run -q t.yaml -o t.h5 >/dev/null
    "$QUALM" predict -q -m sqnr -m collapse- e.h5 t.h5 -o p.h5 >table 2>notes
    "$QUALM" predict --json -m sqnr -m collapse- e.h5 t.h5 >p.json
}

setup() { cd "$BATS_FILE_TMPDIR" || return 1; }

@test "predict: every number is what a reading of the header gives" {
    "$PYTHON" - <<'P'
import json
import math
import h5py
import numpy as np
e, t, p = (h5py.File(name) for name in ("e.h5", "t.h5", "p.h5"))
word = lambda x: x.decode()
cells, metrics = e["/cells"][()], e["/metrics"][()]
v, runs, plain = t["/protocol/verdicts"][()], t["/protocol/runs"][()], t["/cells"][()]
def form(recipe):  # without hyper-parameters and limits of sizes
    return ",".join(w for w in word(recipe).split(",")
                    if not w.startswith("weight_decay") and "min_numel" not in w)
mine_of = np.array([form(r) for r in cells["recipe"]])
recipe = {word(r["label"]): plain["recipe"][r["cell"]] for r in runs
          if plain["role"][r["cell"]] == b"plain"}
def ranks(x):
    x = np.asarray(x)
    return np.array([(x < a).sum() + 0.5 * ((x == a).sum() + 1) for a in x])
def expected(error, problem, x, y):
    n = len(x)
    if n < 6 or len(set(x)) < 2 or len(set(y)) < 2:
        return n, math.nan, math.nan, math.nan
    rho = np.corrcoef(ranks(x), ranks(y))[0, 1]
    near = np.clip(rho, -1 + 12 / (n * (n * n - 1)), 1 - 12 / (n * (n * n - 1)))
    half = 1.96 * math.sqrt((1 + near * near / 2) / (n - 3))
    return (n, rho, min(math.tanh(math.atanh(near) - half), rho),
            max(math.tanh(math.atanh(near) + half), rho))
wanted, counted = {}, {}
problems = sorted({word(x) for x in v["problem"]})
for error in ("oneshot exp_avg sqnr", "oneshot exp_avg collapse", "bits"):
    sums, total = {}, np.zeros(2)
    for problem in problems:
        rows = [r for r in v if word(r["problem"]) == problem and r["coded"] > 0
                and r["verdict"] != b"not quantized" and np.isfinite(r["mean"])]
        points = []
        for r in rows:
            mine = (mine_of == form(recipe[word(r["label"])])) & (cells["status"] == b"ok") & \
                (cells["coded"] > 0 if "coded" in cells.dtype.names else True)
            x = -r["bits"] if error == "bits" else \
                (1 if "collapse" in error else -1) * \
                np.median(metrics[error.split()[-1]][mine]) if mine.any() else math.nan
            if not math.isnan(x):
                points.append((x, r["mean"], (r["hi95"] - r["lo95"]) / 2, word(r["label"])))
        x, y = [q[0] for q in points], [q[1] for q in points]
        wanted[error, problem] = expected(error, problem, x, y)
        pairs = right = 0
        for i, a in enumerate(points):
            for b in points[:i]:
                if abs(a[1] - b[1]) > math.hypot(a[2], b[2]):
                    pairs += 1
                    right += 0.5 if a[0] == b[0] else (a[0] > b[0]) == (a[1] > b[1])
        counted[error, problem] = pairs, right
        total += pairs, right
        for q, rank in zip(points, ranks(y)):
            sums.setdefault(q[3], []).append((q[0], rank))
    both = [s for s in sums.values() if len(s) == len(problems)]
    wanted[error, "all"] = expected(error, "all", [s[0][0] for s in both],
                                    [np.mean([q[1] for q in s]) for s in both])
    counted[error, "all"] = tuple(total)
got = p["/prediction/correlations"][()]
keys = {(word(r["error"]), word(r["problem"])) for r in got}
assert keys == {k for k, w in wanted.items() if w[0]}, (wanted, got)
some = 0
for r in got:
    key = word(r["error"]), word(r["problem"])
    w = wanted[key]
    assert r["n"] == w[0], (key, r["n"], w)
    np.testing.assert_allclose([r["rho"], r["lo95"], r["hi95"]], w[1:], rtol=1e-9, err_msg=str(key))
    assert (r["pairs"], r["right"]) == counted[key], (key, r, counted[key])
    some += np.isfinite(r["rho"]) and r["pairs"] > 0
    assert word(r["verdict"]) == ("predicts" if w[2] > 0 else "undecided"), (key, r)
assert some >= 4
j = json.load(open("p.json"))
assert j["recipes"] == 8 and j["left_out"] == 2, j
assert [c["n"] for c in j["correlations"]] == [int(n) for n in got["n"]]
P
    grep -q '^8 recipes in both files; 2 of the training without an error or' table notes
}

@test "predict: a figure whose title states the correlation" {
    run -0 "$QUALM" plot p.h5 -o p.svg
    [[ $output == *"rank correlation"*"over 8 recipes"* ]]
    run -0 "$QUALM" report --no-figures p.h5 --out p.html
}

@test "predict: the order of files, a metric, no common recipe" {
    run -4 "$QUALM" predict t.h5 e.h5
    [[ $output == *"e.h5: no /protocol/verdicts: expected a suite with protocol: paired"* ]]
    run -2 "$QUALM" predict e.h5 t.h5 -m nonesuch
    run -2 "$QUALM" predict e.h5 t.h5 -m count
    [[ $output == *"metric 'count': expected one that is better when higher or lower"* ]]
    run -2 "$QUALM" predict e.h5
    run -3 "$QUALM" predict e.h5 /etc/passwd
    sed 's/block:\([0-9]*\)/block:1\1/' e.yaml >f.yaml
    qualm run -q f.yaml -o f.h5 >/dev/null
    run -4 "$QUALM" predict f.h5 t.h5
    [[ $output == *"has an error of none of the"* ]]
}

@test "predict: the ranks over all problems are among the recipes that ran on all of them" {
    {
        echo "variant:"
        for map in nf4:4s lint:4s dyn:4s; do
            for block in 32 128; do
                format=$map/block:$block/bisect/mid/hi
                echo "  - \"$map $block\": \"adamw_f32,exp_avg=$format,min_numel=0\""
            done
        done
    } >common
    { # plain floats on the smaller problem, whose verdicts are then `not quantized`
        cat common
        for map in int:4s intm:4s dyn:3s; do
            echo "  - \"$map\": \"adamw_f32,exp_avg=$map/block:64/bisect/mid/hi,min_numel=1024\""
        done
    } >more
    for one in common more; do
        {
            cat $one
            printf 'source: ["problem:nqm:n=512", "problem:quad:n=2048"]\ncoupling: closed\n'
            printf 'protocol: paired\nseed: 1..8\nsteps: 40\nweight_decay: 0\n'
        } >$one.yaml
        "$QUALM" run -q $one.yaml -o $one.h5 >/dev/null
        { cat $one; printf 'source: "dist:gauss"\nn: 4096\ncoupling: oneshot\nslot: exp_avg\n'; } >$one.e.yaml
        "$QUALM" run -q $one.e.yaml -o $one.e.h5 >/dev/null
        "$QUALM" predict -q --json -m sqnr $one.e.h5 $one.h5 >$one.json
    done
    "$PYTHON" - <<'P'
import json
def row(name, problem):
    rows = json.load(open(f"{name}.json"))["correlations"]
    return next(r for r in rows if r["problem"] == problem and "sqnr" in r["error"])
common, more = row("common", "all"), row("more", "all")
assert common["n"] == more["n"] == 6, (common, more)
sizes = {p: row("more", p)["n"] for p in ("nqm:n=512", "quad:n=2048")}
assert sizes == {"nqm:n=512": 6, "quad:n=2048": 9}, sizes
for key in ("rho", "lo95", "hi95"):
    assert common[key] == more[key], (common, more)
P
}
