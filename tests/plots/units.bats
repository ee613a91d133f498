#!/usr/bin/env bats
# units.bats - What tables and figures count: tensors and not their seeds; runs that diverged.
# Run it from the root of the repository.

load ../support/figures_common

# title FILE FIGURE: its title
title() { json_value 'd["title"]' plot "$DIR/$1.h5" --what "$2" -o "$DIR/x.png"; }

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

# on_tensors N TEXT: whether TEXT compares on N tensors
on_tensors() { [[ "$2" =~ \ on\ [0-9]+\ of\ $1\ tensors\  ]]; }

@test "seeds that draw nothing but the rounding are one tensor, in titles, intervals and tables" {
    long 6
    local lines=('variant: adamw4_ao' 'exp_avg.map: [dyn, nf4]' 'exp_avg.round: [near, stoch]'
        'slot: exp_avg' 'source: "states:cancer_mlp*"'
        'summary: [{name: q, by: [exp_avg.round, exp_avg.map], value: sqnr}, {name: t, by: [tensor, from, exp_avg.round], where: {exp_avg.map: nf4}, value: sqnr}]')
    suite one "${lines[@]}"
    suite three "${lines[@]}" 'seed: 1..3'
    suite draws "${lines[@]}" 'rounding_seed: 0..2' && return 1 # in oneshot the seed draws
    grep -q "rounding_seed has no effect here" "$DIR/draws.err"
    export DIR
    PYTHONPATH=plots/figures "$PYTHON" - <<'END'
import common, os
import numpy as np
DIR = os.environ["DIR"]
def rows(name, table):
    return common.table(common.load(f"{DIR}/{name}.h5"), table)
one, three = (rows(name, "/summary/q") for name in ("one", "three"))
cells, axes = rows("three", "/cells"), rows("three", "/axes")
sqnr = rows("three", "/metrics")["sqnr"]
coded = cells["asked_coded"] > 0 if "asked_coded" in cells else cells["n"] > 0
tensors = {(cells["source"][i], cells["tensor"][i]) for i in np.flatnonzero(coded)}
for k in range(4):
    is_near = three["exp_avg.round"][k] == "near"
    assert three["n"][k] == one["n"][k] == len(tensors), three["n"]
    ends = ("sqnr_median", "sqnr_median_lo95", "sqnr_median_hi95")
    assert all(three[end][k] == one[end][k] for end in ends) == is_near, (three, one)
    found = {}
    for i in np.flatnonzero(coded & (axes["exp_avg.map"] == three["exp_avg.map"][k])
                            & (axes["exp_avg.round"] == three["exp_avg.round"][k])):
        found.setdefault((cells["source"][i], cells["tensor"][i]), []).append(sqnr[i])
    want = np.median([np.median(x) for x in found.values()])
    assert abs(three["sqnr_median"][k] - want) < 1e-12, (three["sqnr_median"][k], want)
# a row of one tensor alone has its draws, without those of equal results
alone = rows("three", "/summary/t")
n = alone["n"][alone["not_quantized"] == 0] if "not_quantized" in alone else alone["n"]
assert {*n.tolist()} == {1, 3}, n
open(f"{DIR}/n", "w").write(str(len(tensors)))
END
    grep -q "^n counts a tensor once: its value is the median over seeds" "$DIR/three.txt"
    ! grep -q "^n counts a tensor once" "$DIR/one.txt" || return 1
    for figure in points dumbbell; do
        [ "$(title three $figure)" = "$(title one $figure)" ]
        on_tensors "$(cat "$DIR/n")" "$(title three $figure)"
        [[ $(told three $figure) == *"A tensor counts once: its value is the median over its 3 seeds."* ]]
        [[ $(told one $figure) != *seeds* ]]
    done
}

@test "an axis that is no key of a table adds no tensors: a value is the median over its values" {
    local lines=('variant: "adamw4_ao,min_numel=0,whole_blocks=0"' 'exp_avg.map: [dyn, nf4]'
        'exp_avg.round: [near, stoch]' 'slot: exp_avg'
        'summary: [{name: s, by: exp_avg.map, value: sqnr}, {name: t, by: [exp_avg.map, tensor, from], value: sqnr}]')
    suite drawn "${lines[@]}" 'source: "dist:gauss"' 'n: 4096' 'seed: 1..8'
    suite recorded "${lines[@]}" 'source: "states:cancer_mlp*"'
    PYTHONPATH=plots/figures "$PYTHON" - "$DIR" <<'END'
import common, sys
import numpy as np
for name in ("drawn", "recorded"):
    f = common.load(f"{sys.argv[1]}/{name}.h5")
    s, t = common.table(f, "/summary/s"), common.table(f, "/summary/t")
    cells, axes = common.table(f, "/cells"), common.table(f, "/axes")
    sqnr, found = common.table(f, "/metrics")["sqnr"], {}
    for i in np.flatnonzero((cells["status"] == "ok")
                            & (cells.get("asked_coded", cells["n"]) > 0)):
        key = cells["source"][i], cells["tensor"][i], cells["seed"][i]
        found.setdefault(axes["exp_avg.map"][i], {}).setdefault(key, []).append(sqnr[i])
    for k, map in enumerate(s["exp_avg.map"].tolist()):
        assert {len(x) for x in found[map].values()} == {2}
        x = [np.median(x) for x in found[map].values()]
        assert s["n"][k] == len(x) and abs(s["sqnr_median"][k] - np.median(x)) < 1e-12, s
    # a row of one tensor alone counts its draws: 8 seeds of a distribution, here one
    assert {*t["n"].tolist()} == {8 if name == "drawn" else 1}, t["n"]
END
    grep -q "its value is the median over values of exp_avg.round$" "$DIR/drawn.txt"
    grep -q "its value is the median over values of exp_avg.round$" "$DIR/recorded.txt"
}

@test "a distribution draws by its seed: each is a tensor; seeds of equal results are one" {
    long 6
    suite dist 'variant: adamw4_ao' 'exp_avg.map: [dyn, nf4]' 'source: ["dist:gauss", "dist:student:1"]' \
        'slot: exp_avg' 'n: 4096' 'exp_avg.norm: ["block:32", "block:128", tensor]' 'seed: 1..4' \
        'summary: [{name: q, by: [exp_avg.norm, exp_avg.map], value: sqnr}]'
    [ "$(awk '$1 ~ /^(block|tensor)/ { print $3 }' "$DIR/dist.txt" | sort -u)" = 8 ]
    on_tensors 4 "$(title dist points)" # a distribution is a panel
    [[ $(told dist points) == *"Each seed of a distribution is a tensor of its own."* ]]
    # the quadratic's start is the same for each seed, lowrank's is not
    suite equal 'variant: ["adamw4_ao,min_numel=0,whole_blocks=0", "adamw4_lpmm,min_numel=0,whole_blocks=0"]' \
        'source: ["problem:quad", "problem:lowrank"]' 'coupling: local' 'seed: 1..3' 'steps: 20' \
        'summary: [{name: q, by: variant, value: sqnr}]'
    [ "$(awk '$1 ~ /^adamw4/ { print $2 }' "$DIR/equal.txt" | sort -u)" = 4 ]
    on_tensors 4 "$(title equal points)"
    [[ $(told equal points) == *"seeds of equal results are one."* ]]
}

@test "titles of points and dumbbell say where other blocks and panels answer otherwise" {
    long 6
    suite blocks 'variant: adamw4_ao' 'exp_avg.map: [dyn, nf4]' 'exp_avg.norm: ["block:32", "block:128", tensor]' \
        'source: "dist:student:3"' 'slot: exp_avg' 'n: 4096' 'seed: 1..12'
    PYTHONPATH=plots/figures "$PYTHON" - "$DIR/blocks.h5" >"$DIR/wins" <<'END'
import common, sys
import numpy as np
f = common.load(sys.argv[1])
axes, sqnr = common.table(f, "/axes"), common.table(f, "/metrics")["sqnr"]
left, right = (sqnr[(axes["exp_avg.norm"] == "tensor") & (axes["exp_avg.map"] == m)]
               for m in ("dyn", "nf4"))
print(f"not so at tensor: {np.sum(right > left)} of {len(left)}")
END
    [[ $(title blocks points) == *" at blocks of 128"*"; $(cat "$DIR/wins")"* ]]
    [[ $(title blocks dumbbell) == *"; $(cat "$DIR/wins")"* ]]
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - <<'END'
import cells
class Panel:
    source = ""
    def __init__(self, answer, **gains):
        self.answer, self.of = answer, gains
    def said(self):
        return self.answer
    def gains(self, first, best):
        values = [self.of[best] + 0.01 * i for i in range(8)] if best in self.of else []
        return dict(enumerate(values))
above, less = Panel(("a", "b", 1.0), b=1, c=-1), Panel(("a", "b", -1.0), b=-1, c=-2)
unsure, none = Panel(("a", "b", 0.0), b=-0.03, c=-1), Panel(None)
worse = Panel(("a", "c", -1.0), b=-1, c=-0.5)
for panels, k, words in (([above, unsure, none, above], 0, "1 of 2"), ([above] * 4, 0, ""),
                         ([less, worse], 0, ""), ([unsure, less, worse], 0, ""),
                         ([unsure, above, less], 0, "1 of 2"), ([less, above, unsure], 0, "2 of 2"),
                         ([above, Panel(("a", "c", 1.0), c=1)], 0, ""), ([none, above], 0, "")):
    want = f"; not so in {words} other panels" if words else ""
    assert cells.others(panels, k) == want, (cells.others(panels, k), want)
assert cells.others([above, less], 0) == "; the reverse in 1 of 1 other panels"
assert cells.others([above, less, unsure], 0) == "; not so in 2 of 2 other panels"
END
    suite panels 'variant: adamw4_lpmm' 'exp_avg_sq.map: [lin, dyn]' 'source: "states:cancer_mlp*"' \
        'min_numel: 128' 'slot: [exp_avg, exp_avg_sq]'
    [[ $(title panels points) == *"; not so in "[1-3]" of "[1-3]" other panels" ]]
    [[ $(told panels points) == *" | The title is of exp_avg"* ]]
}

@test "drift: runs of problems are no recorded traces; the title names the state; diverged runs" {
    long 3
    suite drift 'variant: ["adamw4_ao,min_numel=0,whole_blocks=0", "lion8_bnb,min_numel=0,whole_blocks=0"]' \
        'source: ["problem:quad", "problem:lowrank"]' 'coupling: [local, global]' 'seed: 1..3' \
        'steps: 50' 'lr: [1e-3, 1e3]' 'summary: [{name: g, by: [lr, variant], value: [sqnr, log_gap]}]'
    run told drift drift
    [[ "$output" == "First state, global: after 50 updates "*" dB; 24 of 48 runs diverged | "* ]]
    [[ "$output" == *"Median over 4 runs of training (2 problems, "* ]]
    [[ "$output" != *"recorded trace"* ]]
    [[ "$output" == *"Diverged: adamw4_ao,"*" 1e3: 6 of 6"*" They have no curve."* ]]
    [[ $(told drift points) == *"; 24 of 48 runs diverged | "*"They are in no number here."* ]]
    # the summary counts them, and has no value of theirs but the gap
    [ "$(grep -c "^ *1e3 .* 0, 12 of 12 diverged  *nan  *nan" "$DIR/drift.txt")" = 2 ]
    ! grep -q "^ *1e-3 .*diverged" "$DIR/drift.txt" || return 1
    # no name of the legend leaves the sheet
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - "$DIR/drift.h5" <<'END'
import sys
path, sys.argv[0] = sys.argv[1], "draw.py"
import campaign, drift, sheet
fig, _ = sheet.draw(drift, campaign.Campaign(path))
fig.draw_without_rendering()
box, = (legend.get_window_extent() for legend in fig.legends)
assert box.x0 >= 0 and box.x1 <= fig.bbox.x1, (box, fig.bbox)
for ax in fig.axes:
    assert len([t for t in ax.get_xticks() if 0 <= t <= 50]) > 1
END
}

@test "lr: a median of runs that diverged is not drawn, and they are counted" {
    long 2
    suite rates 'protocol: paired' 'coupling: closed' 'source: "problem:quad:layout=dct,start=normal"' \
        'variant: [{ao: "adamw4_ao,min_numel=0,whole_blocks=0"}, adamw_f32]' 'seed: 1..6' 'steps: 30' \
        'lr_scale: [0.5, 1, 100000]'
    run told rates lr
    [[ "$output" == *"; 12 of 36 runs diverged | "* ]]
    [[ "$output" == *"Diverged: ao at rates times 100000: 6 of 6, adamw_f32 at rates times 100000: 6 of 6."* ]]
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - "$DIR/rates.h5" <<'END'
import sys
path, sys.argv[0] = sys.argv[1], "draw.py"
import campaign, lr, sheet
import numpy as np
fig, _ = sheet.draw(lr, campaign.Campaign(path))
ax = fig.axes[0]
curves = [l for l in ax.lines if l.get_transform() == ax.transData]
assert len(curves) >= 3
for line in curves:
    y = np.asarray(line.get_ydata())
    assert not (y >= 1000).any() and np.isnan(y[np.asarray(line.get_xdata()) == 1e5]).all(), y
assert ax.get_ylim()[1] < 100, ax.get_ylim()
assert sum(line.get_marker() == "x" for line in ax.lines) == 2
END
}

@test "contrasts and sweep: where both sides diverged wholly they are counted, too" {
    suite both 'protocol: paired' 'coupling: closed' 'source: "problem:quad:layout=dct,start=normal"' \
        'variant: [{ao: "adamw4_ao,min_numel=0,whole_blocks=0"}, adamw_f32]' 'seed: 1..6' 'steps: 30' \
        'lr_scale: [0.25, 0.5, 1, 100000]'
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - "$DIR/both.h5" <<'END'
import sys
path, sys.argv[0] = sys.argv[1], "draw.py"
import campaign, common, contrasts, sheet, sweep
import numpy as np
table = common.table
def tuned(f, name):
    rows = table(f, name)
    if "rates" in rows:
        rows["rates"] = np.array(["same rate"] * len(rows["rates"]))
    return rows
common.table = tuned
told, c = sheet.Sizes(), campaign.Campaign(path)
sweep.draw(c, told)
assert told.found["title"].endswith("; 12 of 48 runs diverged"), told.found["title"]
assert "ao on quad layout=dct, start=normal at rates times 100000: 6 of 6" in \
    told.found["caption"], told.found["caption"]
c.one = 100000.0
contrasts.draw(c, told)
assert told.found["title"].endswith("; 12 of 12 runs diverged"), told.found["title"]
END
}

@test "shares and scores: a twin that diverged is in no share, a pair that diverged in no score" {
    long 4
    suite lost 'protocol: paired' 'coupling: closed' 'source: "problem:quad"' 'seed: 1..6' \
        'steps: 40' 'variant: ["adamw_f32", "adamw_f32,lr=1e30"]'
    run told lost shares
    [[ "$output" == *"Of all targets adamw_f32 reached 100 %,"*"; float64 100 %; 6 of 12 runs diverged | "* ]]
    [[ "$output" == *"Diverged: adamw_f32,lr=1e30: 6 of 6."* ]]
    grep -q "^adamw_f32,lr=1e30  *-  .* 6 of 6$" "$DIR/lost.txt"
    grep -q "^adamw_f32  *1.0000 .* 0 of 6$" "$DIR/lost.txt"
    grep -q "too few, 6 of 6 diverged, 6 of 6 twins diverged" "$DIR/lost.txt"
    for figure in gap heat loss ratio; do
        run told lost $figure
        [[ "$output" == *"; 6 of 12 runs diverged | "*"Diverged: adamw_f32,lr=1e30"*": 6 of 6."* ]]
    done
}

@test "gap, heat, contrasts, budget: the gap 1000 of a run that diverged is no number of theirs" {
    long 5
    suite worse 'protocol: paired' 'coupling: closed' 'source: ["problem:embed:rows=256", "problem:mlp:batch=16"]' \
        'variant: [{bnb: "adamw8_bnb_2048,min_numel=0,whole_blocks=0"}, {ao: "adamw8_ao,min_numel=0,whole_blocks=0"}, {fp8: "adamw_fp8_ao,min_numel=0,whole_blocks=0"}]' \
        'seed: 1..6' 'steps: 300' 'budget: 1'
    export DIR
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - <<'END'
import os, sys
sys.argv[0] = "draw.py"
import budget, campaign, common, contrasts, forest, heat, sheet
import numpy as np
c = campaign.Campaign(os.environ["DIR"] + "/worse.h5")
v = common.table(c.f, "/protocol/verdicts")
row = (v["label"] == "bnb") & (v["problem"] == "embed:rows=256")
assert v["diverged"][row] == 6 and v["twin_diverged"][row] == 0 and v["mean"][row] > 3
for figure in (forest, heat, contrasts, budget):
    told = sheet.Sizes()
    figure.draw(c, told)
    assert " runs diverged" in told.found["title"], told.found["title"]
    assert "bnb on embed rows=256: " in told.found["caption"], told.found["caption"]
    fig, _ = sheet.draw(figure, c)
    for ax in fig.axes:
        texts = [t.get_text() for t in ax.texts]
        assert not any("+3" in t or "+4" in t for t in texts), texts
fig, _ = sheet.draw(forest, c)
assert any("diverged" in t.get_text() for t in fig.axes[0].texts)
assert all(abs(x) < 3.5 for line in fig.axes[0].lines for x in line.get_xdata()
           if line.get_marker() != "None" and np.isfinite(x))
fig, _ = sheet.draw(budget, c)
assert len([ax for ax in fig.axes if ax.axison]) == 1  # no panel of embed
END
    grep -q "^embed:rows=256 *bnb .*worse, 6 of 6 diverged" "$DIR/worse.txt"
    grep -q "^embed:rows=256 *bnb *all, 6 of 6 diverged" "$DIR/worse.txt"
    # a pair that both diverged says nothing
    grep -q "^embed:rows=256 *fp8 *bnb *0 .*too few, 6 of 6 and 6 of 6 diverged" "$DIR/worse.txt"
}

@test "plot shows on a terminal how far it is, and nothing of it elsewhere" {
    long 5
    suite tty 'variant: adamw4_ao' 'exp_avg.map: [dyn, nf4]' 'source: "states:cancer_mlp*"' \
        'slot: exp_avg'
    script -qec true /dev/null </dev/null >/dev/null 2>&1 || skip "no terminal"
    script -qec "$QUALM plot $DIR/tty.h5 -o $DIR/x.png" /dev/null </dev/null >"$DIR/shown"
    grep -q "drawing: 0" "$DIR/shown" && grep -Eq "drawing: [1-4]/4 \(" "$DIR/shown"
    "$QUALM" plot "$DIR/tty.h5" -o "$DIR/x.png" >"$DIR/shown" 2>&1
    ! grep -q "drawing\|1/4" "$DIR/shown" || return 1
    script -qec "$QUALM plot -q $DIR/tty.h5 -o $DIR/x.png" /dev/null </dev/null >"$DIR/shown"
    ! grep -q "drawing" "$DIR/shown" || return 1
}
