#!/usr/bin/env bats
# answers.bats - Titles of loss and ratio where runs diverged or are equal; rates in captions.
# Run it from the root of the repository.

load ../support/figures_common

# told FILE FIGURE: "TITLE | CAPTION"
told() {
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - "$DIR/$1.h5" "$2" <<'END'
import importlib, sys
path, name = sys.argv[1:]
sys.argv[0] = "draw.py"
import campaign, sheet
found = sheet.Sizes()
importlib.import_module({"gap": "forest", "loss": "curves"}.get(name, name)).draw(
    campaign.Campaign(path), found)
print(f"{found.found['title']} | {found.found['caption']}")
END
}

four="adamw4_ao,min_numel=0,whole_blocks=0"

@test "loss and ratio: where all runs diverged nobody is lowest and nothing is furthest" {
    long 5
    suite gone 'protocol: paired' 'coupling: closed' "variant: [{n: \"$four\"}]" \
        'source: ["problem:rosen"]' 'lr: [1000]' 'seed: 1..6' 'steps: 50'
    [[ $(told gone loss) == "Nobody is lowest at the end: half or more of the runs diverged; 6 of 6 runs diverged | "*"Diverged: n: 6 of 6."*"Of their twins 6 of 6 diverged."* ]]
    [[ $(told gone ratio) == "Nothing that is compared has a median ratio at the end: "*"; 6 of 6 runs diverged | "* ]]
    # with a problem on which runs end: it alone has a winner
    suite half 'protocol: paired' 'coupling: closed' 'variant: [{n: "sgd8_046,min_numel=0,whole_blocks=0"}]' \
        'source: ["problem:rosen", "problem:lowrank"]' 'seed: 1..6' 'steps: 100'
    PYTHONPATH=plots/figures "$PYTHON" - "$DIR/half.h5" <<'END'
import sys, common
runs = common.table(common.load(sys.argv[1]), "/protocol/runs")
at = runs["problem"] == "rosen"
assert (runs["status"][at] == "diverged").all() and (runs["twin_gap"][at] == 1000).all()
assert (runs["status"][~at] == "ok").any(), runs["status"]
END
    [[ $(told half loss) == "Lowest at the end: "*" on 1 of 2 problems, nobody on 1 (half or more of the runs diverged); "* ]]
    [[ $(told half ratio) == "Furthest from its twin at the end: n on lowrank, "* ]]
}

@test "loss: of runs that are equal to the bit all are named, or how many they are" {
    suite tie 'protocol: paired' 'coupling: closed' 'source: ["problem:heavy"]' 'seed: 1..6' \
        "variant: [{first: \"$four\"}, {second: \"$four\"}]" 'steps: 80'
    [[ $(told tie loss) == "Lowest at the end: first and second on 1 of 1 problem | "* ]]
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - <<'END'
import curves
assert curves.together(["a"]) == "a" and curves.together(["", "a"]) == "float64 and a"
assert curves.together(["a", "b", "c"]) == "a, b and c"
assert curves.together(["a", "b", "c", "d"]) == "4 equal ones"
assert curves.answer([["a"], [], ["a"]], True) == "Lowest at the end: a on 2 of 3 problems, " \
    "nobody on 1 (half or more of the runs diverged)"
assert curves.answer([[]], False) == "Nobody is lowest at the end: no median loss above 0"
END
}

@test "footer and captions name the rate that the suite sets, as a key or in a variant" {
    long 4
    local lines=('protocol: paired' 'coupling: closed' 'source: "problem:nqm"' 'seed: 1..6'
        'steps: 20')
    suite own "${lines[@]}" "variant: \"$four\""
    suite key "${lines[@]}" "variant: \"$four\"" 'lr: 0.123'
    suite one "${lines[@]}" "variant: [{a: \"$four\"}, {b: \"$four,lr=0.123\"}]"
    grep -q "^1 of 1 verdicts: at the problem's own rate; nothing was tuned" "$DIR/own.txt"
    grep -q "^1 of 1 verdicts: at the rate that the suite sets (lr); nothing was tuned" "$DIR/key.txt"
    grep -q "^1 of 2 verdicts: at the problem's own rate; nothing was tuned" "$DIR/one.txt"
    grep -q "^1 of 2 verdicts: at the rate that the suite sets (lr); nothing was tuned" "$DIR/one.txt"
    for figure in loss ratio gap; do
        [[ $(told own $figure | tr A a) == *"at the problem's own learning rate"* ]]
        [[ $(told key $figure | tr A a) == *"at the learning rate that the suite sets"* ]]
        [[ $(told one $figure | tr A a) == *"at the problem's own learning rate, or that which the suite sets (b)"* ]]
    done
}

@test "budget: a negative part is drawn beside the others, and the caption names it" {
    long 3
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - <<'END'
import budget, numpy as np
parts = ["first-moment codes", "second-moment codes", "rest"]
b = {"problem": np.array(["problem:lowrank"] * 8), "label": np.array(["a"] * 4 + ["b"] * 4),
     "part": np.array([*parts, "all"] * 2), "mean": np.array([.18, -.05, .1, .23, .1, .1, 0, .2])}
b["lo95"], b["hi95"] = b["mean"] - 0.01, b["mean"] + 0.01
bars, said = budget.below_zero(b, parts)
assert bars == {("problem:lowrank", "a")}, bars
assert said == ["second-moment codes of a on lowrank (-0.05)"], said
ax = budget.draw_panel(b, ["a", "b"], parts, "gap").axes[0]
boxes = [(round(p.get_x(), 3), round(p.get_width(), 3), p.get_y(), p.get_height())
         for p in ax.patches]
assert [box[:2] for box in boxes[:3]] == [(0.0, 0.18), (0.18, -0.05), (0.13, 0.1)], boxes
for upper, lower in zip(boxes[:2], boxes[1:3]):  # no part of the bar covers another
    assert upper[2] + upper[3] <= lower[2] + 1e-9, boxes
assert len({box[2:] for box in boxes[3:]}) == 1, boxes  # the parts of the other bar are in a line
END
    # a part is the largest where its interval is apart from 0 and from those of the others
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - <<'END'
import budget, numpy as np
def bars(*means):
    rows = [(f"p{k}", part, x) for k, one in enumerate(means) for part, x in zip("xya", one)]
    b = {"problem": np.array([r[0] for r in rows]), "label": np.array(["v"] * len(rows)),
         "part": np.array([{"a": "all"}.get(r[1], r[1]) for r in rows]),
         "mean": np.array([r[2] for r in rows])}
    return dict(b, lo95=b["mean"] - 0.05, hi95=b["mean"] + 0.05)
said = [budget.answer(b, ["x", "y"], set()) for b in (
    bars((.3, .1, .4)), bars((.3, .1, .4), (.2, .15, .4), (.3, .1, .04), (.3, .1, -.4)),
    bars((.04, -.2, .4)), bars((.3, .1, .04)))]
assert said == ["The largest part of the gap is x in 1 of 1 cases",
                "The largest part of the gap is x in 1 of 2 cases, not told apart in 1; 2 more "
                "have no sure gap", "No part is surely the largest of the gap in 1 case",
                "No variant is surely behind its twin"], said
nothing = bars((.3, .1, .4))
nothing["lo95"][:] = nothing["hi95"][:] = np.nan  # a single pair has no interval
assert budget.answer(nothing, ["x", "y"], set()) == "No variant is surely behind its twin"
END
    suite parts 'protocol: paired' 'coupling: closed' 'source: "problem:lowrank"' 'seed: 1..7' \
        "variant: [{lo: \"$four\"}]" 'steps: 60' 'budget: 1'
    [[ $(told parts budget) == *" Negative: second-moment codes of lo on lowrank (-0.0"*"one below the other."* ]]
    [[ $(told parts budget) == *" | Variant and twin both at the problem's own learning rate. A bar is "* ]]
    grep -q "^error budget: .* variant and twin both at the twin's rate; .* need not sum to all$" "$DIR/parts.txt"
    grep -q "^scores: .*, variant and twin both at the twin's rate; problems by verdict$" "$DIR/parts.txt"
}

@test "drift: a state that is the same under one coupling is left out of that one alone" {
    long 2
    suite drift 'variant: "adamw4_ao,min_numel=0,whole_blocks=0"' 'exp_avg.map: [dyn, nf4]' \
        'exp_avg.round: [near, stoch]' 'source: "problem:nqm"' 'coupling: [local, global, closed]' \
        'slot: exp_avg' 'steps: 20' 'seed: 1..8'
    run told drift drift
    [[ "$output" == *" The second state, global, is the same in all of them and is left out."* ]]
    [[ "$output" == *"second state, local: after 20 updates"* ]]
    [[ "$output" == *"the quartiles at the end, with a marker at the median there (to the right of the last update)"* ]]
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - <<'END'
import drift
same = [("second state", "local"), ("second state", "global")]
assert drift.same_told(same, ["first state, local"]) == \
    " The second state is the same in all of them and is left out."
assert drift.same_told([], ["first state, local"]) == ""
END
}

@test "formats that are exact: frontier and points compare and draw them, titles say them" {
    suite row "variant: \"$four\"" 'exp_avg.map: [dyn, nf4]' 'exp_avg.norm: ["block:64", row]' \
        'source: "dist:gauss"' 'coupling: oneshot' 'slot: exp_avg' 'n: 512' 'seed: 1..8'
    [[ $(told row frontier) == "At 4.5 bits nf4 in blocks of 64 has "* ]]
    [[ $(told row frontier) == *" dB; nf4 in row is exact with 36 | "*"marked exact, above"* ]]
    [[ $(told row points) == "exp_avg.map: nf4 beats dyn on 8 of 8 tensors by "* ]]
    [[ $(told row points) == *" dB ["*"] at blocks of 64 | "* ]]
    "$QUALM" plot "$DIR/row.h5" --pair block:64,row -o "$DIR/x.png" 2>&1 | grep -v Inf |
        grep "row beats block:64 on 8 of 8 tensors by [0-9.]* dB .* (median over values of exp_avg.map)"
}

@test "wins and answers are those of differences as printed; names of drawn tensors; long names fit" {
    suite ties 'variant: adamw4_lpmm' 'exp_avg_sq.norm: ["block:128", rank1, row]' 'source: "states:*"'
    [[ $(told ties dumbbell) == *"nothing is surely above block:128; "* ]]
    suite long "variant: [\"$four,exp_avg.map=nf4,exp_avg_sq.map=lint:4u,exp_avg_sq.norm=block:128\", \"$four\", adamw8_ao]" \
        'source: "states:*"'
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - "$DIR/long.h5" <<'END'
import sys
path = sys.argv[1]
sys.argv[0] = "draw.py"
import campaign, cells, common, curves, dumbbell, frontier, sheet
import numpy as np
# an interval that ends at 0.0000003 dB does not lie above 0, and a gain of as much is no win
assert [cells.side(*x) for x in ((3e-7, 5), (-5, -3e-7), (0.01, 5), (-5, -0.01), (-1, 1),
                                 (0.01, np.inf))] == [0, 0, 1, -1, 0, 1]
assert cells.wins(np.array([1e-6, 0.004, 0.006, -2.0, np.inf])) == 2
assert cells.sure({1: 3.0, 2: 3.0, 3: 3.0, 4: 3.0, 5: 3.0, 6: 1e-6}) == 0.0
names = [dumbbell.short(key) for key in (("dist:chi2:3", "", "1"), ("dist:student:3", "", "1"),
                                         ("dist:chi2:3", "", "2"), ("a.h5:run/s000400", "w", ""))]
assert names == ["chi2:3  seed 1", "student:3  seed 1", "chi2:3  seed 2", "w  run 400"], names
name = ",".join(f"exp_avg.word{k}=value{k}" for k in range(9))
lines = common.broken(f"of {name} and more", 60)
assert "".join(lines).replace(" ", "") == f"of{name}andmore" and max(map(len, lines)) <= 60, lines
assert common.broken("a, b and c", 80) == ["a, b and c"]
fig, ax = common.plt.subplots()
for low, high in ((0.999997, 1.000002), (1 - 2e-10, 1 + 1e-10), (0.5, 0.500001), (0.3, 4.0)):
    ax.set_ylim(low, high)
    ax.set_yscale("log")
    curves.few_decades(ax.yaxis)
    fig.draw_without_rendering()
    shown = [t.label1.get_text() for t in ax.yaxis.get_major_ticks()
             if low <= t.get_loc() <= high]
    assert len(set(shown)) == len(shown) > 1, shown
fig, _ = sheet.draw(frontier, campaign.Campaign(path))
common.freeze(fig)
texts = [ax.get_legend().get_window_extent() for ax in fig.axes] + [
    text.get_window_extent() for text in fig.texts + [fig._suptitle]]
assert all(0 <= box.x0 and box.x1 <= fig.bbox.width for box in texts)
for ax in fig.axes:
    assert ax.get_legend().get_window_extent().x0 >= ax.bbox.x0
END
}

@test "gap, heat, contrasts and sweep tell both conditions of equivalent, and its margin" {
    suite verdicts 'protocol: paired' 'coupling: closed' 'source: "problem:nqm"' 'seed: 1..6' \
        'steps: 20' "variant: [{a: \"$four\"}, {b: \"$four,exp_avg.map=nf4\"}]"
    for figure in gap heat; do
        [[ $(told verdicts $figure) == *" Equivalent: the 90 % interval lies within ±δ (δ: 0.0212), and no more pairs are far off, over 8 robust "*" than with float32 states. Better or worse: the 95 % interval lies on one side of 0, "*"Hochberg's correction at 5 %. Else undecided."* ]]
    done
    # beside a contrast are no float32 states: no criterion of theirs is told
    [[ $(told verdicts contrasts) == *" Equivalent: the 90 % interval lies within ±δ (δ: 0.0212), and no pair is far off, over 8 robust standard deviations from the median. Better or worse: the 95 % interval lies on one side of 0, and the test passes"* ]]
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - <<'END'
import forest, numpy as np
assert forest.margin({"delta": np.array([0.02, np.nan, 0.02])}) == "\u00b1\u03b4 (\u03b4: 0.02)"
assert forest.margin({"delta": np.array([0.05, 0.02])}) == "\u00b1\u03b4 (\u03b4: 0.02 to 0.05)"
assert forest.margin({}) == "\u00b1\u03b4"
few = "Too few: fewer than 6 different pairs."
assert few not in forest.judged_told({"verdict": np.array(["worse"])})
assert forest.judged_told({"verdict": np.array(["worse", "too few"])}).endswith(few)
END
}

@test "ratio and gap: what prints the same has no winner, all of it is named" {
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - <<'END'
import forest, numpy as np, ratio
ends = {("mlp", "a"): 1.1325, ("mlp", "b"): 1.1301, ("mlp", "c"): 0.99}
assert ratio.furthest(ends)[:2] == (["a", "b"], ["mlp"]), ratio.furthest(ends)
ends["nqm", "c"] = 1.1299
assert ratio.furthest(ends)[:2] == (["a", "b", "c"], ["mlp", "nqm"])
ends["nqm", "c"] = 1.14
assert ratio.furthest(ends) == (["c"], ["nqm"], 1.14) and ratio.furthest({}) is None
v = {"verdict": np.array(["worse"] * 2), "mean": np.array([0.5004, 0.5001]),
     "label": np.array(["a", "b"]), "problem": np.array(["mlp"] * 2), "n": np.array([9, 9])}
assert forest.answer(v).endswith("the largest of those worse: 2 variants on mlp, +0.5 decades"), v
v["problem"] = np.array(["batch 1024 (500 steps)", "nqm:n=64"])
assert "on batch 1024 (500 steps), nqm, +0.5" in forest.answer(v), forest.answer(v)
END
}

@test "dumbbell: the caption has the title's order, its ties and exact values; the unit of intervals" {
    suite pairs "variant: \"$four\"" 'exp_avg.map: [nf4, int]' 'exp_avg.norm: ["block:32", row]' \
        'source: "states:*"' 'slot: exp_avg' 'coupling: oneshot'
    run told pairs dumbbell
    [[ "$output" == "exp_avg.map: nf4 beats int on "* ]]
    higher=${output#*beats int on }
    higher=${higher%% tensors*}
    [[ "$output" == *"SQNR of the state (dB): nf4 against int at exp_avg.norm row, $higher higher and "* ]]
    [[ "$output" == *" equal. "*"values that differ by less than 0.005 dB, 0 as printed, are equal and count for neither"* ]]
    [[ "$output" == *"; exact: no error, or one below float32's last place (a ratio of more than 138 dB), drawn to the right"* ]]
    for figure in dumbbell points frontier; do
        [[ $(told pairs $figure) == *" Intervals take tensors as independent of each other; 90 of them come from 7 recorded runs, and the interval is not one over models."* ]]
    done
    [[ $(told pairs points) == *"values that differ by less than 0.005 dB"* ]]
}
