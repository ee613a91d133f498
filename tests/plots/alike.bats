#!/usr/bin/env bats
# alike.bats - Figures compare formats over the tensors, traces and runs that all of them have.
# Run it from the root of the repository.

load ../support/figures_common

# python FILE.h5: runs the script of stdin with the modules of figures, which draw; seeded
python() {
    SEED=${QM_TEST_SEED:-$RANDOM} PYTHONPATH=plots/figures:plots/report "$PYTHON" - "$@"
}

# told FILE FIGURE: "TITLE | CAPTION"
told() {
    python "$DIR/$1.h5" "$2" <<'END'
import importlib, sys
path, name = sys.argv[1:]
sys.argv[0] = "draw.py"
import campaign, sheet
found = sheet.Sizes()
importlib.import_module({"gap": "forest", "loss": "curves"}.get(name, name)).draw(
    campaign.Campaign(path), found)
print(f"{found.found['title']} | {found.found['caption']}" if found.found else "none")
END
}

@test "the rule: what all compared have is at least half, or two formats are left; drawn sets" {
    python <<'END'
import os, random
import alike
draw = random.Random(int(os.environ["SEED"]))
print("seed", os.environ["SEED"])
for _ in range(2000):
    every = range(draw.randint(1, 20))
    found = {f"f{k}": {x for x in every if draw.random() < draw.choice([0.1, 0.5, 0.9, 1.0])}
             for k in range(draw.randint(1, 6))}
    same, union = alike.Alike(found), set().union(*found.values())
    inside = [found[name] for name in same.inside]
    assert same.common == (set.intersection(*inside) if inside else set()), found
    assert {*same.inside, *same.apart} == {name for name in found if found[name]}, found
    assert not {*same.inside} & {*same.apart}
    assert 2 * len(same.common) >= len(union) or len(same.inside) <= 2, found
    assert same.common or not union, found
    assert same.lacking == {name: len(union - found[name]) for name in same.inside
                            if union - found[name]}
    told = same.told("tensors")
    assert bool(told) == any(found[name] != union for name in found if found[name]), (found, told)
    assert f" {len(same.common)} " in told or not told
END
}

@test "points, dumbbell, frontier: medians are those of the tensors that all compared formats have" {
    long 7
    # matrices alone have row and column scales: rowcol has fewer than half of the tensors, col more
    suite fewer 'variant: "adamw4_lpmm,min_numel=0,whole_blocks=0"' 'exp_avg.map: [nf4, int]' \
        'exp_avg.norm: ["block:128", rowcol, "block:64"]' \
        'source: ["states:digits_cnn*", "dist:gauss"]' 'slot: exp_avg'
    suite most 'variant: adamw_f32' 'exp_avg: "e4m3:8s/row/bisect/floor/lo"' \
        'exp_avg.norm: [row, col, rank1, "block:128"]' 'source: "trace:*"' 'every: 20' \
        'coupling: local'
    for file in fewer most; do
        python "$DIR/$file.h5" <<'END'
import sys
path, sys.argv[0] = sys.argv[1], "draw.py"
import campaign, cells, common, frontier
import numpy as np
f = common.load(path)
rows, axes = common.table(f, "/cells"), common.table(f, "/axes")
metrics, panels = common.table(f, "/metrics"), 0
table = cells.Cells(campaign.Campaign(path))
for head, words, grid in table.grids():
    metric = metrics["sqnr" if "state" in words else "step_sqnr"]
    found = {}
    for i in np.flatnonzero(table.rows & ~np.isnan(metric)):
        names = axes[grid.x][i], axes[grid.series][i] if grid.series else rows["variant"][i]
        key = str(rows["source"][i]), str(rows["tensor"][i])
        found.setdefault(names, {})[key] = metric[i], rows["bits"][i] * rows["n"][i], rows["n"][i]
    union = {*()}.union(*map(set, found.values()))
    least = min(map(len, found.values()))
    assert least < len(union)
    is_apart = 2 * least < len(union)
    inside = [k for k in found if not is_apart or len(found[k]) > least]
    both = set.intersection(*(set(found[k]) for k in inside))
    assert {*grid.alike.apart} == {k for k in found if k not in inside}, grid.alike.apart
    for bits, mid, _, _, label, place in frontier.points_of(grid):
        mine = found[place, label]
        of = both if (place, label) in inside else set(mine)
        assert abs(mid - np.median([mine[t][0] for t in of])) < 1e-9
        assert abs(bits - sum(mine[t][1] for t in of) / sum(mine[t][2] for t in of)) < 1e-4
    answer, gains = grid.best(), [len(x) for x in grid.rivals()[1].values()]
    assert {*gains} == {len(both)}, gains
    told = grid.alike_told()
    assert f" {len(both)} " in told and ("hollow" in told) == is_apart, told
    panels += 1
assert panels
END
    done
    for figure in points frontier; do
        [[ $(told fewer $figure) == *"Medians that are compared are over the "*" tensors that there are; hollow, over what they have "*", not compared with the others: nf4 in rowcol ("* ]]
    done
    [[ $(told fewer frontier) != *rowcol*" | "* ]]
    for figure in points dumbbell; do
        [[ $(told most $figure) == *" of 13 tensors, those that all of them have (skipped, failed or undefined: col lacks "* ]]
    done
    # the title of several panels names the one that it is of
    [[ $(told fewer frontier) == "exp_avg: SQNR of the state: at "* ]]
}

@test "drift: medians at each update are over the traces that all compared formats have" {
    long 2
    suite traces 'variant: adamw_f32' 'exp_avg: "e4m3:8s/row/bisect/floor/lo"' \
        'exp_avg.norm: [row, col, rank1, "block:128"]' 'source: "trace:*"' 'every: 20' \
        'coupling: local'
    export TOLD=$(told traces drift)
    python "$DIR/traces.h5" <<'END'
import os, sys, common
import numpy as np
f = common.load(sys.argv[1])
cells, axes = common.table(f, "/cells"), common.table(f, "/axes")
curves = common.curves(f, "/curves/state0_sqnr")
found = {}
for k, i in enumerate(common.dataset(f, "/curves/cell")[...]):
    if cells["n"][i] >= 16 and cells["status"][i] == "ok" and len(curves[k]) > 1:
        found.setdefault(str(axes["exp_avg.norm"][i]), {})[cells["source"][i], cells["tensor"][i]] \
            = curves[k][-1]
both = set.intersection(*map(set, found.values()))
assert len(both) < len(found["row"]) and 2 * len(both) >= len(found["row"])
ends = {name: float(np.median([x[t] for t in both])) for name, x in found.items()}
most, least = max(ends, key=ends.get), min(ends, key=ends.get)
title, _, caption = os.environ["TOLD"].partition(" | ")
assert title == f"First state, local: after 100 updates {most} has {ends[most]:.3g} dB, " \
    f"{least} {ends[least]:.3g} dB", (title, ends)
assert f"Median over {len(both)} recorded traces" in caption, caption
assert f" are over {len(both)} of {len(found['row'])} traces" in caption and "col lacks" in caption
END
}

@test "loss, ratio, shares: only labels of the same runs are compared, the others are named" {
    long 3
    suite runs 'protocol: paired' 'coupling: closed' 'seed: 1..6' 'steps: 40' \
        'variant: ["adamw4_ao,min_numel=0,whole_blocks=0"]' 'exp_avg.norm: ["block:128", row, col]' \
        'source: ["problem:factor:m=16,n=12,r=2", "problem:logreg:n=200,d=10,batch=16"]'
    run told runs shares
    [[ "$output" != *col*" | "* ]] && [[ "$output" == *", not compared with the others: col (6 runs)"* ]]
    python "$DIR/runs.h5" <<'END'
import os, random, sys
path, sys.argv[0] = sys.argv[1], "draw.py"
import campaign, curves
import numpy as np
draw, c = random.Random(int(os.environ["SEED"])), campaign.Campaign(path)
rows, _ = curves.with_curves(c, ("step", "loss", "twin_loss"))
for _ in range(50):  # runs that failed or ended elsewhere leave a label with fewer seeds
    one = curves.select(rows, np.array([draw.random() < 0.8 for _ in rows["seed"]]))
    kept, told = curves.of_the_same(one)
    for problem in campaign.in_order(kept["problem"]):
        sets = {}
        for label, seed, apart in zip(*(kept[name][kept["problem"] == problem].tolist()
                                        for name in ("label", "seed", "apart"))):
            if not apart:
                sets.setdefault(label, set()).add(seed)
        assert len({frozenset(x) for x in sets.values()}) <= 1, sets
        had = {label: {*one["seed"][(one["problem"] == problem) & (one["label"] == label)].tolist()}
               for label in campaign.in_order(one["label"])}
        had = {label: x for label, x in had.items() if x}
        uneven = len({frozenset(x) for x in had.values()}) > 1
        assert uneven == (campaign.readable(problem) in told or
                          (bool(told) and told.startswith(" Medians"))), (had, told)
END
}

@test "gap and heat: the largest is of as many pairs as others; single pairs have no interval" {
    long 3
    python <<'END'
import forest
import numpy as np
v = {"problem": np.array(["a", "a", "b"]), "label": np.array(["x", "y", "x"]),
     "n": np.array([8, 5, 5]), "mean": np.array([0.1, 0.9, 0.2]),
     "verdict": np.array(["worse"] * 3), "delta": np.array([0.05] * 3)}
v["lo95"], v["hi95"] = v["mean"] - 0.01, v["mean"] + 0.01
assert forest.answer(v).endswith("the largest of those worse: x on b, +0.2 decades")
assert "y on a (5)" in forest.fewer_told(v, forest.named(v))
assert forest.interval_told(v) == "with its 95 % (thin) and 90 % (thick) interval"
v["lo95"][1] = np.nan
assert forest.interval_told(v).endswith(" interval where there is more than one pair")
v["lo95"][:] = np.nan
assert forest.interval_told(v) == "without an interval, which a single pair does not have"
assert forest.mean_over(dict(v, n=np.ones(3, int))) == "trimmed mean over 1 paired run"
import budget
b = {"problem": np.array(["p"] * 3), "label": np.array(["a"] * 3),
     "part": np.array(["codes", "rest", "all"]), "mean": np.array([0.3, 0.1, 0.4])}
b["lo95"], b["hi95"] = b["mean"] - 0.05, b["mean"] + 0.05
assert budget.answer(b, ["codes", "rest"], set()) == \
    "The largest part of the gap is codes in 1 of 1 cases"
END
    suite one 'protocol: paired' 'coupling: closed' 'seed: 1' 'steps: 30' 'budget: 1' \
        'variant: ["adamw4_ao,min_numel=0,whole_blocks=0", adamw_f32]' 'source: "problem:factor"'
    [[ $(told one gap) == *"Shown: trimmed mean over 1 paired run without an interval"* ]]
    [[ $(told one budget) != "No gap that is compared"* ]]
    # better stands apart from worse without colour: it has a frame
    python "$DIR/one.h5" <<'END'
import sys
path, sys.argv[0] = sys.argv[1], "draw.py"
import campaign, common, heat, sheet
import numpy as np
table, first = common.table, [-0.075, 0.36]
def signed(f, name):
    rows = table(f, name)
    if name == "/protocol/verdicts":
        rows["mean"][:] = (first * len(rows["mean"]))[:len(rows["mean"])]
    return rows
common.table = signed
fig, _ = sheet.draw(heat, campaign.Campaign(path))
framed = {round(p.get_linewidth(), 3) > 0 for p in fig.axes[0].patches}
assert framed == {True, False}, framed
END
}

@test "a suite of which one format is left has a figure; without values plot says why" {
    long 8
    suite one 'variant: adamw4_ao' 'exp_avg.norm: ["block:64"]' 'source: "states:cancer_mlp*"' \
        'slot: exp_avg'
    suite left 'variant: adamw_f32' 'exp_avg: "e4m3:8s/block:2048/bisect/stoch/lo"' \
        'exp_avg.norm: ["block:16", rowcol]' 'source: "states:cancer_mlp*"' 'slot: exp_avg'
    for file in one left; do
        python "$DIR/$file.h5" >"$DIR/want" <<'END'
import sys, campaign, common
import numpy as np
f = common.load(sys.argv[1])
cells, sqnr = common.table(f, "/cells"), common.table(f, "/metrics")["sqnr"]
x = sqnr[(cells["status"] == "ok") & ~campaign.is_plain(cells)]
print(f"the median of {len(x)} tensors is {np.median(x):.3g} dB [")
END
        [[ $(told $file points) == *", alone: $(cat "$DIR/want")"* ]]
        "$QUALM" plot -q "$DIR/$file.h5" -o "$DIR/x.png"
        json_value 'd["name"]' plot "$DIR/$file.h5" -o "$DIR/x.png" | grep -qx points
    done
    [[ $(told left points) == "block:16, alone: "* ]]
    printf '%s\n' 'variant: "adamw4_lpmm,min_numel=0,whole_blocks=0"' 'source: "dist:gauss"' \
        'n: 64' 'slot: exp_avg_sq' >"$DIR/none.yaml"
    "$QUALM" run -q -o "$DIR/none.h5" "$DIR/none.yaml" || true
    fails_with 4 "no cell has values: 1 skipped (gauss has both signs" \
        plot "$DIR/none.h5" -o "$DIR/x.png"
    # half or more exact: the word stands where a median would, no axes of 0 to 1
    suite exact 'variant: "adamw4_ao,min_numel=0,whole_blocks=0"' 'exp_avg.round: [near, mid]' \
        'exp_avg.norm: [row]' 'source: "dist:gauss"' 'n: 1' 'slot: exp_avg' || true
    python "$DIR/one.h5" <<'END'
import sys
path, sys.argv[0] = sys.argv[1], "draw.py"
import campaign, common, points, sheet
import numpy as np
table = common.table
def exact(f, name):
    rows = table(f, name)
    if name == "/metrics":
        rows["sqnr"][:] = np.inf
    return rows
common.table = exact
fig, _ = sheet.draw(points, campaign.Campaign(path))
ax = fig.axes[0]
assert [t.get_text() for t in ax.texts] == ["exact"] and not len(ax.get_yticks()), ax.get_yticks()
END
}

@test "what is 0 to the bit or as printed is called equal, and beats nothing" {
    long 2
    python <<'END'
import cells
import numpy as np
told = lambda d: cells.equal_told(np.array(d), "dB")
assert told([0.0] * 6) == "are the same to the bit on 6 of 6 tensors"
assert told([0.0]) == "are the same to the bit on 1 of 1 tensor"
assert told([1e-5] * 9) == told([-1e-5] * 9) == "are equal within 0.005 dB on 9 of 9 tensors"
assert told([1e-5] * 8 + [0.3]) == "are equal within 0.005 dB on 8 of 9 tensors"
assert told([0.02] * 9) == told([-0.02] * 9) == "" and told([-0.3, 0.0, 0.3] * 3) == ""
assert cells.sure({k: 1e-5 for k in range(9)}) == 0.0 < cells.sure({k: 0.02 for k in range(9)})
END
    suite equal 'variant: [{a: "adamw4_ao,min_numel=0"}, {b: "adamw4_ao,min_numel=0"}]' \
        'source: "dist:gauss"' 'n: 2560' 'seed: 1..6' 'slot: exp_avg'
    "$QUALM" plot "$DIR/equal.h5" --list | \
        grep -q "^points  *a and b are the same to the bit on 6 of 6 tensors$"
}

@test "numbers of titles: no exponent, no digits below noise, unlike texts of unlike numbers" {
    python <<'END'
import os, random
import cells, common
draw = random.Random(int(os.environ["SEED"]))
for _ in range(5000):
    x = draw.choice([-1, 1]) * 10 ** draw.uniform(-4.9, 6.9)
    n = draw.randint(2, 6)
    text = common.digits(x, n)
    assert "e" not in text and abs(float(text) / x - 1) <= 0.51 * 10 ** (1 - n), (x, n, text)
    y = x * (1 + draw.choice([0, 1e-9, 1e-5, 1e-4, 1e-3, 0.1]))
    a, b = common.unlike(x, y)
    unlike = any(common.digits(x, k) != common.digits(y, k) for k in range(3, 7))
    assert (a != b) == unlike, (x, y, a, b)
    said = cells.measured("dB", *sorted((x, y, draw.choice([x, 1e-7, -1e-8, float("inf")]))))
    assert "e+" not in said and "e-" not in said, said
assert cells.measured("dB", 0.0, -0.2, 0.3) == "by 0 dB [-0.2, 0.3]"
assert cells.measured("dB", 5.8, 5.7, 5.9, 4) == "by 5.8 dB (from 5.7 to 5.9)"
assert cells.measured("dB", 5.8, 5.8, 5.8, 1) == "by 5.8 dB"
assert cells.measured("dB", 110.2, 88.4, float("inf")) == "by 110 dB [88, Inf]"
assert common.unlike(4.508, 4.511) == ("4.508", "4.511")
END
}

@test "figures survive infinite and undefined values, drawn at random, and draw none as a number" {
    long 3
    suite wild 'variant: "adamw4_lpmm,min_numel=0,whole_blocks=0"' 'exp_avg.map: [nf4, int, dyn]' \
        'exp_avg.norm: ["block:128", rowcol, "block:64"]' 'source: "states:cancer_mlp*"' \
        'slot: exp_avg'
    suite drift 'variant: "adamw4_lpmm,min_numel=0"' 'exp_avg.map: [nf4, int, dyn]' \
        'source: "trace:cancer_mlp*"' 'every: 25' 'coupling: [local, global]'
    python "$DIR/wild.h5" "$DIR/drift.h5" <<'END'
import os, random, sys
paths, sys.argv[0] = sys.argv[1:], "draw.py"
import campaign, common, drift, dumbbell, frontier, points, sheet
import numpy as np
draw = random.Random(int(os.environ["SEED"]))
print("seed", os.environ["SEED"])
table, curves, share = common.table, common.curves, 0.0
def wild(x):
    y = np.array(x, dtype=float)
    for k in range(len(y)):
        if draw.random() < share:
            y[k] = draw.choice([np.inf, -np.inf, -np.inf, np.nan])
    return y
def wild_table(f, name):
    rows = table(f, name)
    if name == "/metrics":
        rows.update({m: wild(rows[m]) for m in ("sqnr", "step_sqnr") if m in rows})
    return rows
common.table = wild_table
common.curves = lambda f, name: [wild(x) if "sqnr" in name else x for x in curves(f, name)]
for share in (0.1, 0.5, 0.9, 1.0):
    for path in paths:
        for figure in (drift, points, dumbbell, frontier):
            state = draw.getstate()
            told = sheet.Sizes()
            figure.draw(campaign.Campaign(path), told)
            draw.setstate(state)  # both passes of a sheet see the same values
            first = sheet.Sizes
            if told.found:
                title = told.found["title"]
                assert "nan" not in title and "inf" not in title and title, title
                assert len(told.found["heads"]) >= 1
END
}
