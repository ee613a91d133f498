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
    long 4
    draw "$DIR/a" $(scripts)
    draw "$DIR/b" $(drawn $(scripts))
    for script in $(scripts); do
        [ -e "$DIR/a/$(basename "$script" .py).png" ]
    done
    [ "$(ls "$DIR/a" | wc -l)" -eq 10 ] # 5 scripts, a figure each
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

@test "qualm plot: figures of any suite, in three formats, twice the same; titles count right" {
    long 6
    mkdir -p "$DIR/p"
    "$QUALM" plot -q "$DIR/results/drift.h5" --what drift -o "$DIR/p/drift-drift.svg" \
        -o "$DIR/p/drift.png" -o "$DIR/p/drift.pdf"
    [ -s "$DIR/p/drift.png" ] && [ -s "$DIR/p/drift.pdf" ]
    for one in $(drawn momentum_format:frontier momentum_convergence:ratio drift_second:points); do
        "$QUALM" plot -q "$DIR/results/${one%:*}.h5" --what "${one#*:}" -o "$DIR/p/one.svg"
        [ "$(stat -c %s "$DIR/p/one.svg")" -gt 10000 ]
    done
    "$QUALM" plot "$DIR/results/momentum_format.h5" --list | grep -q "^frontier  *exp_avg: SQNR of the state: at "
    "$QUALM" plot -q "$DIR/results/drift.h5" -o "$DIR/again.svg"
    cmp "$DIR/again.svg" "$DIR/p/drift-drift.svg"
    export TITLE=$(json_value 'd["title"]' plot "$DIR/results/momentum_format.h5" --what points \
        --pair int4,nf4 -o "$DIR/x.png")
    in_python <<'EOF'
title = os.environ["TITLE"]
f = common.load(DIR + "momentum_format.h5")
axes, cells = common.table(f, "/axes"), common.table(f, "/cells")
sqnr = common.table(f, "/metrics")["sqnr"]
rows = (axes["exp_avg.norm"] == "block:128") & (cells["slot"] == "exp_avg")
one, two = (sqnr[rows & (axes["exp_avg"] == name)] for name in ("int4", "nf4"))
assert f"on {(two > one).sum()} of {len(one)} tensors" in title, title
assert f" by {np.median(two - one):.2g} dB" in title, title
EOF
    fails_with 2 "no figure 'nothing'; there are drift," plot "$DIR/results/drift.h5" \
        --what nothing -o "$DIR/x.png"
    fails_with 2 "no figure 'dirft'; did you mean 'drift'?" plot "$DIR/results/drift.h5" --what dirft
    fails_with 2 "expected an ending" plot "$DIR/results/drift.h5" -o "$DIR/x.gif"
    fails_with 2 "expected two different values of exp_avg: int4, " \
        plot "$DIR/results/drift.h5" --pair a,b -o "$DIR/x.png"
    fails_with 4 "has no tables of figure gap" \
        plot "$DIR/results/drift.h5" --what gap -o "$DIR/x.png"
    fails_with 3 "cannot open" plot "$DIR/results/absent.h5" -o "$DIR/x.png"
}

@test "qualm plot: a user's suite of a shipped name, small multiples, a format's look anywhere" {
    long 4
    printf '%s\n' 'variant: adamw4_ao' 'exp_avg.map: [int, nf4]' \
        'exp_avg.norm: ["block:64", row, tensor]' 'exp_avg.round: [near, stoch]' \
        'source: "states:cancer_mlp*"' 'coupling: oneshot' 'slot: exp_avg' \
        >"$DIR/momentum_format.yaml"
    mkdir -p "$DIR/own"
    "$QUALM" run -q -o "$DIR/own/" "$DIR/momentum_format.yaml" >/dev/null
    "$QUALM" plot -q "$DIR/own/momentum_format.h5"
    [ -s "$DIR/own/momentum_format.png" ]
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - "$DIR/own/momentum_format.h5" <<'EOF'
import copy, importlib, itertools, random, sys
import campaign, cells, common, encode, frontier, points, sheet
import numpy as np
# a row of a vector is one element: such cells are exact, and count in medians as in the table
metrics = common.table(common.load(sys.argv[1]), "/metrics")
assert np.isinf(metrics["sqnr"]).sum() > 20
table, told = cells.Cells(campaign.Campaign(sys.argv[1])), sheet.Sizes()
for _, _, grid in table.grids():
    shown = {p[-1:-3:-1]: p[1] for p in frontier.points_of(grid)}
    for key, found in grid.value.items():
        x = np.array([*found.values()])
        assert shown.get(key) == (np.median(x) if 2 * (x >= cells.EXACT).sum() < len(x) else None)
frontier.draw(campaign.Campaign(sys.argv[1]), told)
assert "inf" not in told.found["title"] and " count in medians" in told.found["caption"], told.found
# where half of the values are exact there is no median: no point, not in a title, but counted
grid.names = grid.labels = ["a", "b"]
grid.x, grid.value = None, {("a", "a"): {(1,): 20.0, (2,): 21.0, (3,): np.inf},
                            ("b", "b"): {(1,): 20.0, (2,): np.inf}}
grid.bits = {("a", "a"): 4.0, ("b", "b"): 4.0}
assert [p[:2] for p in frontier.points_of(grid)] == [(4.0, 21.0)] and grid.exact() == (2, 1)
assert grid.answer() == "" and grid.effect() == 0
assert grid.why().startswith("Nothing to compare: half or more of the values are exact")
assert encode.bars(20.0, 21.0, 144.0)[1][1] == 0.0
# the largest sure effect is in the title, a loss too, and whichever panel it is in
none = {(k,): 20.0 + k for k in range(9)}
grid.names = grid.labels = ["scan", "mids", "ladder"]
grid.axis = "search"
grid.value = {(name, name): dict(none) for name in grid.labels}
grid.bits = {key: 4.0 for key in grid.value}
assert grid.answer() == "search: scan and mids are the same to the bit on 9 of 9 tensors"
grid.value["ladder", "ladder"] = {k: x - 0.5 for k, x in none.items()}
assert grid.answer() == "search: of equal bits nothing is surely above scan; scan beats ladder " \
    "on 9 of 9 tensors by 0.5 dB [0.5, 0.5]" and grid.effect() == -0.5, grid.answer()
grid.value["mids", "mids"] = {k: x - 0.1 for k, x in none.items()}
assert "search: scan beats mids, the best of the others, on 9 of 9" in grid.answer()
grid.value["mids", "mids"] = {k: x + 0.1 for k, x in none.items()}
assert grid.answer().startswith("search: mids beats scan on 9 of 9 tensors by 0.1 dB")
two = [("one", "SQNR (dB)", copy.copy(grid)), ("two", "SQNR (dB)", grid)]
two[0][2].value = {(name, name): none for name in grid.labels}
real, cells.Cells.grids = cells.Cells.grids, lambda self: (setattr(self, "exact", (0, 0)), two)[1]
points.panel = lambda *_: common.plt.figure()
setattr(cells.Cells, "omitted", lambda self: ".")
points.draw(campaign.Campaign(sys.argv[1]), told)
assert told.found["title"].startswith("two: SQNR (dB): search: mids beats scan"), told.found
assert "one: SQNR (dB): search: scan and mids are the same to" in told.found["caption"], told.found
importlib.reload(cells)
table = cells.Cells(campaign.Campaign(sys.argv[1]))
table.left_out = table.beyond = table.without = table.plain = 0
table.below = {("exp_avg_sq", "SQNR of the update (dB)", "lin0"): -53.2}
assert "lin0 (exp_avg_sq, SQNR of the update: -53 dB)." in table.omitted()
# maps without a colour of their own leave that of another map
four = {name: [f"{name}:4u/block:128/near"] for name in ("lin", "lin0", "de", "de0", "dyn")}
assert len({look["color"] for look in encode.looks(four).values()}) == 5
print("seed", seed := random.randrange(1 << 30))
draw = random.Random(seed)
nf4 = encode.colour("nf4:4s/block:64/bisect")
for _ in range(300):
    labels = {"l%d" % k: ["%s:4s/%s/near" % (
        draw.choice(["int", "nf4", "dyn", "lin", "nf4a8", "de"]),
        draw.choice(["block:64", "row", "rank1", "tensor"]))] for k in range(draw.randint(2, 8))}
    looks = encode.looks(labels)
    for a, b in itertools.combinations(looks.values(), 2):
        for key in ("color", "linestyle"):  # in grey, too
            assert (a["marker"], a[key]) != (b["marker"], b[key]), labels
    if len({encode.colour(q[0]) for q in labels.values()}) > 1:
        for label, (q,) in labels.items():
            assert not q.startswith("nf4:") or looks[label]["color"] == common.PALETTE[nf4]
EOF
}

@test "titles of loss, shares, lr and budget state what the tables of the file say" {
    long 8
    cat >"$DIR/suites/paired.yaml" <<'Y'
protocol: paired
coupling: closed
variant:
  - four: "adamw4_ao,min_numel=0,whole_blocks=0"
  - lpmm: "adamw4_lpmm,min_numel=0,whole_blocks=0"
source: ["problem:quad:layout=dct,start=normal", "problem:lowrank"]
weight_decay: 0
budget: 1
seed: 1..6
steps: 60
lr_scale: [0.5, 1, 2]
Y
    "$QUALM" run -q -o "$DIR/results/paired.h5" "$DIR/suites/paired.yaml" >/dev/null
    export TITLES=$("$QUALM" plot -q "$DIR/results/paired.h5" --list)
    "$QUALM" plot "$DIR/results/paired.h5" --list 2>&1 >"$DIR/list" |
        grep -q "qualm report $DIR/results/paired.h5 --against baseline"
    fails_with 4 "qualm report $DIR/results/paired.h5 --against baseline" \
        plot "$DIR/results/paired.h5" --what against -o "$DIR/x.png"
    fails_with 2 "figure contrasts takes no --pair; the suite says what is compared" \
        plot "$DIR/results/paired.h5" --what contrasts --pair four,lpmm -o "$DIR/x.png"
    in_python <<'EOF'
titles = dict(line.split(None, 1) for line in os.environ["TITLES"].splitlines())
f = common.load(DIR + "paired.h5")
labels = ("four", "lpmm")
names = ("ecdf", "sensitivity", "budget", "runs")
t = {name: common.table(f, "/protocol/" + name) for name in names}
share = {label: 100 * t["ecdf"]["share"][t["ecdf"]["label"] == label].max() for label in labels}
for label in labels:
    assert f"{label} {'reached ' * (share[label] == max(share.values()))}{share[label]:.3g} %" in \
        titles["shares"] or "as every variant" in titles["shares"], (share, titles)
s, same, n = t["sensitivity"], 0, 0
for problem in set(s["problem"].tolist()):
    for label in labels:
        at = (s["problem"] == problem) & (s["label"] == label)
        same += np.argmin(s["gap_median"][at]) == np.argmin(s["twin_median"][at])
        n += 1
assert f"best {same} times of {n}" in titles["lr"], titles
v = common.table(f, "/protocol/verdicts")  # equivalent: of the 90 % interval, within that of 95 %
known = np.isfinite(v["null_lo"]) & (v["null_lo"] >= -v["delta"]) & (v["null_hi"] <= v["delta"])
assert known.any() and not v["null_apart"][known].any() and set(v["null_apart"]) <= {0, 1}
b, first, sure = t["budget"], [], 0
for problem in set(b["problem"].tolist()):
    for label in labels:
        at = (b["problem"] == problem) & (b["label"] == label)
        behind = b["lo95"][at & (b["part"] == "all")][0] > 0
        at &= (b["part"] != "all") & (b["part"] != "rest")
        k, sure = np.argmax(b["lo95"][at]), sure + behind
        if behind and b["lo95"][at][k] > max(0, *np.delete(b["hi95"][at], k)):
            first.append(b["part"][at][k])
for part in set(first):
    assert f"{part} in {first.count(part)}" in titles["budget"], titles
assert first and f" of {sure} cases" in titles["budget"], titles
r, ends = t["runs"], []
for problem in set(r["problem"].tolist()):
    at = (r["problem"] == problem) & (r["lr_scale"] == 1)
    gap = {label: np.median(r["gap"][at & (r["label"] == label)]) for label in labels}
    gap["float64"] = np.median(r["twin_gap"][at & (r["label"] == "four")])
    ends.append(min(gap, key=gap.get))
for label in set(ends):
    assert f"{label} on {ends.count(label)}" in titles["loss"], (ends, titles)
EOF
    # the figure without --what is the first of the list; captions say how many seeds, and of what
    [ "$(json_value 'd["name"]' plot "$DIR/results/paired.h5" -o "$DIR/x.png")" = \
        "$(head -1 "$DIR/list" | cut -d' ' -f1)" ]
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - "$DIR/results/paired.h5" <<'EOF'
import sys
import campaign, forest, heat, shares, sheet
for figure in (forest, heat, shares):
    told = sheet.Sizes()
    figure.draw(campaign.Campaign(sys.argv[1]), told)
    caption = told.found["caption"]
    assert figure is shares or "over 6 paired runs" in caption and forest.GAP in caption, caption
    assert figure is not shares or " leaves out the targets that both " in caption and \
        caption.startswith("Variant and twin both at the problem's own learning rate."), caption
    assert figure is not heat or caption.startswith("log10 of the gap over the twin's gap")
EOF
}

@test "titles single nobody out of a tie, name what is decided; the bend of an axis is labelled" {
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - <<'EOF'
import numpy as np
import common, contrasts, forest
v = {"label": np.array(["a", "b", "c"]), "problem": np.array(["problem:logreg"] * 3),
     "mean": np.array([0.5, 0.5, 0.9]), "verdict": np.array(["worse", "worse", "undecided"])}
assert forest.answer(v).endswith("the largest of those worse: 2 variants on logreg, +0.5 decades")
v["verdict"][1] = "undecided"
assert forest.answer(v).endswith("the largest of those worse: a on logreg, +0.5 decades")
v["verdict"][0] = "equivalent"
assert forest.answer(v).endswith("2 undecided")
answers = ["x: b against a: undecided on 2", "x: c against a: worse on 1", "y: e against d: better"]
assert contrasts.title(["x", "x", "y"], answers, [0, 1, 1], [1, 1, 1]) == (answers[1], [1])
assert contrasts.title(["x", "x", "y"], answers, [0, 0, 1], [1, 1, 1]) == (answers[2], [2])
assert contrasts.title(["x", "x", "y"], answers, [0, 0, 0], [0, 0, 0]) == (answers[0], [0])
assert contrasts.title(["x", "x", "y"], answers, [0, 0, 0], [0, 1, 1]) == (answers[1], [1])
assert contrasts.title(["x", "x", "y"], answers, [1, 1, 0], [1, 1, 1]) == \
    (answers[0] + "; c against a: worse on 1", [0, 1])
one = {"verdict": np.array(["same results", "worse"])}
assert contrasts.answer(one, "b against a") == "b against a: worse on 1 of 1 problem"
found = forest.ticks(0.02, -0.05, 2.0, lambda x: np.arcsinh(x / 0.01) / 8)
assert found == sorted(found) and {-0.02, 0.0, 0.02, 0.1, 2.0} <= set(found), found
assert min(np.diff(np.arcsinh(np.array(found) / 0.01) / 8)) > forest.ROOM
# an axis ends with a label, beyond all values
assert [forest.beyond(x) for x in (-4.9, 0.2, 0.21, -0.05, 0)] == [-5.0, 0.2, 0.5, -0.05, 0]
ax = common.plt.figure().add_subplot()
forest.axis(ax, {"delta": np.array([0.021])}, -3.3, 0.4)
assert ax.get_xticks()[0] == -5.0 == ax.get_xlim()[0] and ax.get_xticks()[-1] == 0.5
# where float32 is apart too, a verdict is marked and no title counts it
v = {"label": np.array(["a", "b", "a"]), "mean": np.array([0.5, -2.0, 0.1]), "n": np.full(3, 16),
     "problem": np.array(["problem:quad", "problem:lowrank", "problem:mlp"]),
     "verdict": np.array(["worse", "better", "undecided"]), "null_apart": np.array([0, 1, 0]),
     "same_verdict": np.array(["worse", "better", "worse"])}
assert forest.answer(v).startswith("Of 3 comparisons with float64 1 worse, 1 undecided, "
                                   "1 where float32 is apart too; the largest"), forest.answer(v)
assert forest.marks(v) == ["", " *", " \u2020"]
told = forest.marks_told(v, forest.named(v))
assert "* float32 is apart too" in told and "same rate, the twin's (a on mlp: worse)" in told, told
late = dict(v, verdict_late=np.array(["equivalent", "better", "too few"]),
            verdict_area=np.array(["worse", "undecided", "undecided"]))
assert forest.marks(late) == [" \u00a7", " *\u00a7", " \u2020"], forest.marks(late)
told = forest.marks_told(late, forest.named(late))
assert told.endswith("\u00a7 another verdict over the last eighth of the steps (late) or over the "
                     "logarithm of the step (area) (a on quad: late: equivalent; b on lowrank: "
                     "area: undecided)."), told
del v["null_apart"]
old = dict(v, null_lo=np.array([-0.01, -0.01, -0.01]), null_hi=np.array([0.0, 0.1, 0.0]),
           delta=np.full(3, 0.021))
assert forest.marks(old) == ["", " *", " \u2020"]
assert forest.mean_over(v) == "trimmed mean over 16 paired runs"
one = {"verdict": np.array(["better", "better", "worse"]), "apart": np.array([False, True, False])}
assert contrasts.answer(one, "b against a") == \
    "b against a: better on 1, worse on 1 of 2 problems, float32 is apart too on 1 more"
one["apart"][:] = True
assert contrasts.answer(one, "b against a") == "b against a: float32 is apart too on 3"
EOF
}

@test "every script prints one line per missing result file and exits with 0" {
    long 3
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

@test "the interval of a median: exact ranks, of many values too" {
    run -0 "$PYTHON" - <<'P'
import sys
from math import comb
sys.path[:0] = ["plots/report", "plots/figures"]
from cells import interval
for n in [*range(6, 80), 500, 1100, 5000]:
    rank, tail = 0, 0
    while 40 * (tail + comb(n, rank)) <= 1 << n:  # P(Bin(n, 1/2) <= rank) <= 1/40, in integers
        tail += comb(n, rank)
        rank += 1
    middle, low, high = interval(list(range(n)))
    assert (low, high) == (rank - 1, n - rank) and middle == (n - 1) / 2, n
assert interval([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
P
}

# guarded NAME CODE WORD: what a script's process does, and the one line that tells it
guarded() {
    local body
    case $1 in
    signal) body='os.kill(os.getpid(), 11)' ;;
    memory) body='bytearray(3 << 30)' ;;
    table) body='{}["no column"]' ;;
    time) body='sum(iter(int, 1))' ;;
    exit) body='common.fail("x", 4)' ;;
    esac
    QM_FIGURE_SECONDS=1 "$PYTHON" -c "import os, sys
sys.path.insert(0, 'plots/figures')
import common
def main():
    $body
common.guarded(main)" >"$DIR/out" 2>"$DIR/err" && return 1
    [ $? = "$2" ]
    [ "$(wc -l <"$DIR/err")" = 1 ]
    grep -q "$3" "$DIR/err"
    [ ! -s "$DIR/out" ]
}

@test "a script that crashes, asks for too much or meets an odd table ends with one line" {
    long 2
    guarded exit 4 "figures/-c: x"
    for one in $(drawn signal:signal.11 memory:more.memory table:do.not.fit time:too.long); do
        guarded "${one%:*}" 3 "${one#*:}"
    done
}

@test "plot, report and the scripts refuse links that lead out of a file" {
    "$QUALM" run -q -w 0 -o "$DIR/link.h5" experiments/suites/smoke.yaml >/dev/null
    "$PYTHON" -c 'import h5py, sys
with h5py.File(sys.argv[1], "r+") as f:
    del f["cells"]
    f["cells"] = h5py.ExternalLink("/dev/zero", "/")
    del f["provenance"].attrs["digest"]' "$DIR/link.h5"
    fails_with 3 "leads out of the file" plot --list "$DIR/link.h5"
    run "$PYTHON" plots/report/draw.py "$DIR/link.h5" --list
    [ "$status" = 3 ]
    [ "${#lines[@]}" = 1 ]
    [[ $output == *"'cells' leads out of the file"* ]]
}

@test "a median is numpy's: of an even number of rows the mean of the middle two, without NaN" {
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - "$RANDOM" <<'P'
import sys, warnings
import numpy as np
import common
rng = np.random.default_rng(int(sys.argv[1]))
warnings.simplefilter("ignore")  # of a column of NaN
for _ in range(200):
    x = rng.normal(size=(rng.integers(1, 9), 5))
    x[rng.random(x.shape) < 0.2] = np.nan
    assert np.allclose(common.median(x), np.nanmedian(x, axis=0), equal_nan=True), x
assert common.median([[1.0], [np.inf]])[0] == np.inf == common.median([[np.inf], [np.inf]])[0]
P
}
