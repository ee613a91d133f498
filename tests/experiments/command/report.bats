#!/usr/bin/env bats
# report.bats - Tests qualm report: the page, its figures, tables for papers, the page in a browser.

load ../../support/cli_common

BUILD=${BUILD:-build/gcc}

setup_file() {
    export DIR=$(mktemp -d)
    export MISSING=""
    for module in h5py matplotlib; do
        /usr/bin/python3 -c "import $module" 2>/dev/null || MISSING="$MISSING python3-$module"
    done
    "$BUILD/tests/experiments/report/test_report" sample "$DIR/s.h5"
    "$BUILD/tests/experiments/report/test_report" sample "$DIR/evil.h5" evil
    if [ -z "$MISSING" ]; then
        "$QUALM" report -q "$DIR/s.h5" --markdown "$DIR/s.md" --latex "$DIR/s.tex"
        "$QUALM" report -q "$DIR/evil.h5" --markdown "$DIR/evil.md" --latex "$DIR/evil.tex"
    fi
}

teardown_file() { rm -rf "$DIR"; }

setup() {
    if [ -n "$MISSING" ]; then
        skip "missing packages:$MISSING"
    fi
}

browser() {
    command -v chromium >/dev/null || skip "chromium is not installed"
    "$PYTHON" tests/support/browser.py "$@" >"$DIR/seen" || { cat "$DIR/seen"; return 1; }
}

# seen EXPRESSION: evaluates it with d, the browser's observations
seen() { "$PYTHON" -c "import json; d = json.load(open('$DIR/seen')); print($1)"; }

@test "the page is well-formed, loads nothing, and has every table and every figure" {
    run -0 "$PYTHON" tests/support/html_check.py "$DIR/s.html" "$DIR/s.h5"
    [[ $output == *" figures, "*" panels" ]]
    for figure in loss ratio gap shares heat; do
        grep -q "id=\"figure-$figure\"" "$DIR/s.html"
    done
    grep -q "Loss over updates" "$DIR/s.html"
    # loss curves come first
    [ "$(grep -o 'id="figure-[a-z]*"' "$DIR/s.html" | head -1)" = 'id="figure-loss"' ]
    grep -q "memory: 4.1 GB, limit 2 GB" "$DIR/s.html"
    [ "$(stat -c %s "$DIR/s.html")" -lt 4000000 ]
}

@test "text that would be markup is escaped" {
    run -0 "$PYTHON" tests/support/html_check.py "$DIR/evil.html" "$DIR/evil.h5"
    ! grep -q '<script>alert' "$DIR/evil.html" || return 1
    grep -q '&lt;script&gt;alert(1)&lt;/script&gt;' "$DIR/evil.html"
}

@test "the check of pages finds planted faults" {
    long 8
    for change in 's|</main>||' 's|<main |<img src="a.png"><main |' 's|id="tables"|id="main"|' \
        's|/protocol/targets|gone|g' 's|href="#tables"|href="#nowhere"|' 's|qualm plot|x|g'; do
        sed "$change" "$DIR/s.html" >"$DIR/broken.html"
        run ! "$PYTHON" tests/support/html_check.py "$DIR/broken.html" "$DIR/s.h5"
    done
}

@test "the same file gives the same page, with figures drawn beforehand" {
    long 6
    cp "$DIR/s.html" "$DIR/first.html"
    "$PYTHON" plots/report/draw.py "$DIR/s.h5" --page --out "$DIR/drawn"
    "$QUALM" report -q "$DIR/s.h5" --figures "$DIR/drawn" -o "$DIR/second.html"
    cmp "$DIR/first.html" "$DIR/second.html"
    [ -z "$(find "$DIR" -name '*.part')" ]
}

@test "the command below a figure draws the figure" {
    long 3
    run -0 "$PYTHON" plots/report/draw.py "$DIR/s.h5" --only heat --out "$DIR/heat"
    [ -s "$DIR/heat/heat.png" ] && [ -s "$DIR/heat/heat.svg" ]
    run -2 --separate-stderr "$PYTHON" plots/report/draw.py "$DIR/s.h5" --only nothing \
        --out "$DIR/heat"
    [[ "$stderr" == *"no figure 'nothing'"* ]]
}

@test "Markdown: every row has the cells of its head" {
    for md in s evil; do
        "$PYTHON" - "$DIR/$md.md" <<'EOF'
import re, sys
tables, columns = 0, 0
for line in open(sys.argv[1], encoding="utf-8").read().split("\n"):
    cells = len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) - 1
    if not line.startswith("|"):
        columns = 0
    elif not columns:
        columns, tables = cells, tables + 1
    else:
        assert cells == columns, line
    spans = r"`[^`|\\\\]*_[^`|\\\\]*`"  # names with underscores, which stand as they are
    bare = re.sub(r"\\.", "", re.sub(spans, "", line.replace("**", "")))
    assert not re.search(r"[`*<$]", bare), line
assert tables == 2, tables
EOF
    done
    grep -qF '| `adamw4_lpmm` |' "$DIR/s.md"
}

@test "LaTeX: braces balance, rows have equal numbers of cells, all text is escaped" {
    for tex in s evil; do
        "$PYTHON" - "$DIR/$tex.tex" <<'EOF'
import re, sys
text = re.sub(r"(?m)^%.*\n", "", open(sys.argv[1], encoding="utf-8").read())
plain = re.sub(r"\\([{}$&#%_])", "", text)          # escaped signs
assert plain.count("{") == plain.count("}")
assert not re.search(r"[#%_~^]", plain), re.search(r".*[#%_~^].*", plain)[0]
assert plain.count("$") % 2 == 0
bodies = re.findall(r"\\begin\{tabular\}\{([lr]+)\}(.*?)\\end\{tabular\}", plain, re.S)
assert len(bodies) == 2
for columns, body in bodies:
    rows = [r for r in body.replace("\\hline", "").split("\\\\") if r.strip()]
    assert len(rows) > 2
    for row in rows:
        assert row.count("&") == len(columns) - 1, row
EOF
    done
    command -v pdflatex >/dev/null || return 0
    printf '\\documentclass{article}\\begin{document}\\tiny\n\\input{%s}\n\\end{document}\n' \
        "$DIR/s.tex" >"$DIR/doc.tex"
    (cd "$DIR" && pdflatex -halt-on-error -interaction=nonstopmode doc.tex >"$DIR/doc.out")
}

@test "a plain suite gets its figures and tables" {
    long 6
    sed 's|"states:\*"|"states:digits_cnn*"|' experiments/suites/momentum_format.yaml \
        >"$DIR/momentum_format.yaml"
    "$QUALM" run -q -o "$DIR/" "$DIR/momentum_format.yaml" >/dev/null
    run -0 json_value "' '.join(d['figures'])" report "$DIR/momentum_format.h5"
    [ "$output" = "points dumbbell frontier" ]
    run -0 "$PYTHON" tests/support/html_check.py "$DIR/momentum_format.html" \
        "$DIR/momentum_format.h5"
    grep -q 'qualm plot .* --what dumbbell' "$DIR/momentum_format.html"
    sed 's|^steps: .*|steps: 20|; s|^seed: .*|seed: [1, 2]|' experiments/suites/convergence.yaml \
        >"$DIR/mine.yaml"
    "$QUALM" run -q -o "$DIR/" "$DIR/mine.yaml" >/dev/null
    run -0 json_value "' '.join(d['figures'])" report "$DIR/mine.h5"
    [ "$output" = "loss ratio" ]
    printf '%s\n' 'protocol: paired' 'coupling: closed' 'source: ["problem:logreg", "problem:nqm"]' 'steps: 9' \
        'seed: 1..4' 'instance: 1..4' 'variant: [adamw4_ao, shampoo4_sgd]' >"$DIR/two.yaml"
    "$QUALM" run -q -o "$DIR/" "$DIR/two.yaml" >/dev/null
    "$QUALM" report -q "$DIR/two.h5"
    grep -q "16 of the suite&#39;s training runs were not made: slot right_vectors" "$DIR/two.html"
    grep -q "over 4 instances of the trimmed mean over the seeds of each, 16 paired" "$DIR/two.html"
    run -0 "$PYTHON" tests/support/html_check.py "$DIR/mine.html" "$DIR/mine.h5"
}

@test "a suite without scale 1 is shown at the nearest learning rate; other basins are left out" {
    long 5
    cat >"$DIR/scales.yaml" <<'END'
variant: ["sgdm4_lpmm,momentum_buffer.min_numel=0", sgdm_f32]
source: "problem:rosen:n=64,jitter=0.5"
coupling: closed
protocol: paired
lr_scale: [0.5, 4]
seed: 1..6
steps: 60
END
    "$QUALM" run -q "$DIR/scales.yaml" -o "$DIR/scales.h5" >/dev/null
    "$QUALM" report -q "$DIR/scales.h5" --markdown "$DIR/scales.md" >/dev/null
    grep -q "at 0.5 times the problem's learning rate" "$DIR/scales.md"
    grep -q "at 0.5 times the problem&#39;s learning rate" "$DIR/scales.html"
    [ "$(grep -o 'id="figure-[a-z]*"' "$DIR/scales.html" | cut -d- -f2 | tr -d '\n')" = \
        'loss"ratio"contrasts"gap"shares"heat"lr"' ]
    "$PYTHON" - "$DIR/scales.h5" <<'END'
import sys
sys.path[:0] = ["plots/figures", "plots/report"]
import campaign, curves
c = campaign.Campaign(sys.argv[1])
assert c.one == 0.5
apart = (c.rows["status"] == "elsewhere") & (c.rows["lr_scale"] == 0.5)
rows, _ = curves.with_curves(c, ("step", "loss"))
assert len(rows["cell"]) == 12 - apart.sum(), apart
c.rows["status"][c.rows["lr_scale"] == 0.5] = ["elsewhere"] + 11 * ["ok"]
assert len(curves.with_curves(c, ("step", "loss"))[0]["cell"]) == 11
END
}

@test "without Python the page has its tables and names the missing program" {
    PYTHONHOME=/nonexistent run -0 --separate-stderr "$QUALM" report "$DIR/s.h5" -o "$DIR/bare.html"
    [[ "$stderr" == *"no figures: /usr/bin/python3 cannot run: "* ]]
    run -0 "$PYTHON" tests/support/html_check.py "$DIR/bare.html" "$DIR/s.h5"
    [ "$output" = "0 figures, 0 panels" ]
    grep -q 'class="missing"' "$DIR/bare.html"
}

@test "bad input: one line and its exit code" {
    fails_with 3 "nowhere.h5" report "$DIR/nowhere.h5"
    echo text >"$DIR/text.h5"
    fails_with 3 "text.h5" report "$DIR/text.h5"
    fails_with 2 "no result file given" report
    fails_with 2 "the second" report a.h5 b.h5
    fails_with 2 "--rows is 'many'" report --rows many "$DIR/s.h5"
    fails_with 3 "no/such/place.html" report --no-figures "$DIR/s.h5" -o "$DIR/no/such/place.html"
    mkdir -p "$DIR/odd"
    echo '{"name": "x", "panels": [{"file": "x.svg"}]}' >"$DIR/odd/figures.json"
    fails_with 3 "x.svg" report "$DIR/s.h5" --figures "$DIR/odd"
    echo '<svg><script>1</script></svg>' >"$DIR/odd/x.svg"
    fails_with 3 "no SVG for a page" report "$DIR/s.h5" --figures "$DIR/odd"
    mkdir -p "$DIR/empty"
    fails_with 3 "empty/figures.json: No such file" report "$DIR/s.h5" --figures "$DIR/empty"
    fails_with 3 "expected what plots/report/draw.py" report "$DIR/s.h5" --figures "$DIR/nowhere"
    json_on_stdout report --no-figures "$DIR/s.h5" --json -o "$DIR/x.html"
    for two in "-o - --latex=-" "--latex=- --markdown=-" "--json -o -" "--json --markdown=-"; do
        # shellcheck disable=SC2086
        fails_with 2 "both on stdout" report --no-figures "$DIR/s.h5" $two
    done
    for option in -o --markdown= --latex= --archive=; do
        fails_with 2 "over a file that this command reads" \
            report "$option$DIR/../$(basename "$DIR")/s.h5" "$DIR/s.h5"
    done
    ln -s /dev/null "$DIR/null.html"
    fails_with 3 "expected the name of a file" report --no-figures "$DIR/s.h5" -o "$DIR/null.html"
    "$QUALM" digest "$DIR/s.h5"
}

@test "Chromium: no console errors and no requests, light, dark and print" {
    for how in "" --dark --print; do
        browser "$DIR/s.html" $how --script \
            "getComputedStyle(document.documentElement).backgroundColor"
        [ "$(seen "d['console'] + d['requests']")" = "[]" ]
        [ "$(seen "d['values'][0]")" = "$([ "$how" = --dark ] && echo 'rgb(21, 23, 26)' \
            || echo 'rgb(255, 255, 255)')" ]
    done
}

@test "Chromium: no horizontal scrolling at 360 px, figures fit, tables scroll in their box" {
    for page in s evil; do
        browser "$DIR/$page.html" --width 360 --height 740 \
            --script "document.querySelectorAll('details').forEach(d => d.open = true)" \
            --script "[...document.querySelectorAll('.panels:not(.wide) svg')].every(s => s.getBoundingClientRect().right <= 360)" \
            --script "[...document.querySelectorAll('.box')].filter(b => b.scrollWidth > b.clientWidth).length" \
            --script "[...document.querySelectorAll('.box')].every(
                b => b.getBoundingClientRect().right <= 360)"
        [ "$(seen "d['width'] <= d['inner'] == 360")" = True ]
        [ "$(seen "d['values'][1], d['values'][2] > 3, d['values'][3]")" = "True True True" ]
    done
}

@test "Chromium: tables sort by keyboard, numbers by value, and announce the order" {
    browser "$DIR/s.html" \
        --script "b = document.querySelectorAll('#t-Verdicts thead button')[4], b.focus(), 0" --script "key:Enter" \
        --script "b.parentNode.ariaSort + [...b.closest('table').tBodies[0].rows].map(r => parseFloat(r.cells[4].textContent)).filter(x => !isNaN(x)).every((x, i, a) => !i || a[i - 1] <= x)" \
        --script "key: " \
        --script "b.parentNode.ariaSort + [...b.closest('table').tBodies[0].rows].map(r => parseFloat(r.cells[4].textContent)).filter(x => !isNaN(x)).every((x, i, a) => !i || a[i - 1] >= x)" \
        --script "document.querySelectorAll('#t-Verdicts th[aria-sort=none]').length" \
        --script "document.querySelectorAll('#t-Verdicts thead th').length - 1"
    [ "$(seen "d['values'][2], d['values'][4], d['values'][5] > 9, d['values'][5] == d['values'][6]")" = \
        "ascendingtrue descendingtrue True True" ]
}

@test "Chromium: a chosen variant stands out in every figure" {
    browser "$DIR/s.html" --script "b = document.querySelector('[data-series=\"3\"]'), b.focus(), 0" --script "key:Enter" \
        --script "getComputedStyle(document.querySelector('figure svg .s3')).opacity + ' ' +
            getComputedStyle(document.querySelector('figure svg .s4')).opacity + ' ' +
            b.ariaPressed"
    [ "$(seen "d['values'][2]")" = "1 0.08 true" ]
}

@test "with an archive: its comparison and the differences are on the page" {
    long 2
    "$BUILD/tests/experiments/report/test_report" sample "$DIR/mine.h5" seeds
    "$QUALM" report -q "$DIR/s.h5" --archive "$DIR/archive.h5" --no-figures -o "$DIR/none.html"
    run -0 json_value "d['figures'], d['against']" report "$DIR/mine.h5" \
        --against "$DIR/archive.h5" --no-figures
    [ "$output" = "[] $DIR/archive.h5" ]
    run -0 "$PYTHON" tests/support/html_check.py "$DIR/mine.html" "$DIR/mine.h5"
    grep -q "no such seed of this instance there" "$DIR/mine.html"
    browser "$DIR/mine.html" --width 360
    [ "$(seen "d['console'], d['requests'], d['width']")" = "[] [] 360" ]
    "$QUALM" report -q --no-figures "$DIR/archive.h5"
    run -0 "$PYTHON" tests/support/html_check.py "$DIR/archive.html" "$DIR/archive.h5"
}

@test "an archive of a campaign with instances keeps the curves of its least seed" {
    printf '%s\n' 'protocol: paired' 'variant: adamw4_ao,min_numel=0' \
        'source: ["problem:logreg:n=64,d=64", "problem:mlp:batch=4"]' 'coupling: closed' \
        'instance: 1..2' 'seed: 3..5' 'steps: 10' >"$DIR/instances.yaml"
    "$QUALM" run -q "$DIR/instances.yaml" -o "$DIR/instances.h5" >/dev/null
    "$QUALM" report -q "$DIR/instances.h5" --archive "$DIR/kept.h5" --no-figures -o "$DIR/no.html"
    cat >"$DIR/kept.py" <<'E'
import sys, h5py
f = h5py.File(sys.argv[1])
runs = {r["cell"]: (r["problem"], r["instance"], r["seed"]) for r in f["/protocol/runs"]}
of = [runs[c] for c in f["/curves/cell"]]
print(len(of), len(set(of)), sorted({int(s) for _, _, s in of}), len(f["/protocol/runs"]) >= 12)
E
    run -0 "$PYTHON" "$DIR/kept.py" "$DIR/kept.h5"
    [ "$output" = "4 4 [3] True" ]
}

@test "against an archive: intervals are of the instances' locations, as those of contrasts" {
    cat >"$DIR/two.yaml" <<'Y'
protocol: paired
variant:
  - "adamw4_ao,min_numel=0,whole_blocks=0"
  - "adamw8_ao,min_numel=0,whole_blocks=0"
  - adamw8_bnb
source: ["problem:logreg:n=64,d=64", "problem:mlp:batch=4"]
coupling: closed
instance: 1..3
seed: 1..4
steps: 30
Y
    "$QUALM" run -q "$DIR/two.yaml" -o "$DIR/two.h5" >/dev/null
    "$QUALM" report -q "$DIR/two.h5" --archive "$DIR/two_kept.h5" --no-figures -o "$DIR/no.html"
    "$QUALM" report -q "$DIR/two.h5" --against "$DIR/two_kept.h5" --no-figures -o "$DIR/no.html" \
        --markdown "$DIR/two.md" >/dev/null
    cat >"$DIR/two.py" <<'E'
import sys, h5py
rows = [[x.strip(" `") for x in line.split("|")[1:-1]] for line in open(sys.argv[2])
        if line[0] == "|"]
n = 0
for c in h5py.File(sys.argv[1])["/protocol/contrasts"]:
    problem, label, other = (c[k].decode() for k in ("problem", "label", "against"))
    found = [r for r in rows if r[:3] == [problem, label, other] and r[3] == "12"]
    assert len(found) == 1, (problem, label, other, found)
    plain = "adamw8_bnb" in (label, other)
    assert ("not quantized" in found[0]) == plain == (c["verdict"] == b"not quantized"), found
    for k, name in enumerate(("mean", "lo95", "hi95", "lo90", "hi90")):
        assert abs(float(found[0][4 + k]) - c[name]) <= 1e-4 * abs(c[name]) + 1e-9, (name, found, c)
        n += 1
print(n)
E
    run -0 "$PYTHON" "$DIR/two.py" "$DIR/two.h5" "$DIR/two.md"
    [ "$output" = 20 ]
    run -0 json_value "{c['not_quantized'] for c in d['against_counts']['counts']
        if c['label'] == 'adamw8_bnb'}" report "$DIR/two.h5" --against "$DIR/two_kept.h5" \
        --no-figures -o "$DIR/no.html"
    [ "$output" = "{2}" ]
}

@test "a file of nothing that a page shows is no page; steps and rates that differ are named" {
    "$QUALM" import -q experiments/data/gpt_austen.h5 -o "$DIR/plain.h5"
    fails_with 4 "plain.h5: holds nothing that a page shows" report "$DIR/plain.h5"
    [ ! -e "$DIR/plain.html" ]
    cat >"$DIR/steps.yaml" <<'Y'
protocol: paired
variant: adamw4_ao
source: "problem:quad:n=64"
coupling: closed
exp_avg.min_numel: 0
exp_avg_sq.min_numel: 0
seed: 1..2
steps: 20
Y
    "$QUALM" run -q "$DIR/steps.yaml" -o "$DIR/steps.h5" >/dev/null
    local -A of=([steps]="steps: 20/steps: 30" [scale]="steps: 20/steps: 20\nlr_scale: 0.5"
        [seed]="seed: 1..2/seed: 7")
    local -A said=([steps]="another number of steps there: 20, here 30"
        [scale]="no such multiple of the learning rate there: 1, here 0.5"
        [seed]="no such seed of this instance there: seeds 1, 2 of instances 1, here seed 7 of 1")
    for one in steps scale seed; do
        sed "s/${of[$one]}/" "$DIR/steps.yaml" >"$DIR/$one.2.yaml"
        "$QUALM" run -q "$DIR/$one.2.yaml" -o "$DIR/$one.2.h5" >/dev/null
        fails_with 4 "${said[$one]}" report "$DIR/$one.2.h5" --against "$DIR/steps.h5" --no-figures
        grep -q "${said[$one]}" "$DIR/$one.2.html"
    done
}

@test "against an archive: twins of another hyper-parameter pair in no run, though some end equal" {
    cat >"$DIR/decay0.yaml" <<'Y'
protocol: paired
variant: "adamw4_ao,min_numel=0"
source: "problem:mlp"
coupling: closed
seed: 1..6
steps: 100
weight_decay: 0
Y
    sed 's/^weight_decay: 0/weight_decay: 5e-9/' "$DIR/decay0.yaml" >"$DIR/decay5.yaml"
    for one in decay0 decay5; do
        "$QUALM" run -q "$DIR/$one.yaml" -o "$DIR/$one.h5" >/dev/null
    done
    "$PYTHON" - "$DIR/decay0.h5" "$DIR/decay5.h5" <<'P'
import h5py, numpy as np, sys
end = []
for path in sys.argv[1:]:
    loss = h5py.File(path)["curves/twin_loss"]
    end.append(loss["value"][()][loss["offset"][()] + loss["length"][()] - 1])
apart = np.abs(np.log10(end[0] / end[1]))
assert apart.min() < 1e-10 < apart.max(), apart  # some are equal to ten digits, some are not
P
    fails_with 4 "nothing to compare" report "$DIR/decay5.h5" --against "$DIR/decay0.h5" \
        --no-figures -o "$DIR/decay.html"
    [ "$(grep -c "the twins differ: weight_decay 0, here 5e-09" "$DIR/decay.html")" -ge 1 ]
}

@test "run --against writes the page; a missing archive is an error before the run" {
    long 6
    cat >"$DIR/paired.yaml" <<'Y'
protocol: paired
variant: [adamw4_ao, adamw8_bnb]
source: "problem:rosen:n=256,jitter=0.1"
coupling: closed
exp_avg.min_numel: 0
exp_avg_sq.min_numel: 0
seed: 1..6
steps: 20
Y
    "$QUALM" run -q "$DIR/paired.yaml" -o "$DIR/paired.h5" >/dev/null
    sed 's|adamw4_ao, adamw8_bnb|adamw8_ao|' "$DIR/paired.yaml" >"$DIR/other.yaml"
    run -0 json_value "d[0]['page']" run "$DIR/other.yaml" -o "$DIR/other.h5" \
        --against "$DIR/paired.h5"
    [ "$output" = "$DIR/other.html" ]
    run -0 "$PYTHON" tests/support/html_check.py "$DIR/other.html" "$DIR/other.h5"
    grep -q "archived variants" "$DIR/other.html"
    grep -q "at the archive&#39;s rates, which are not tuned, those here are" "$DIR/other.html"
    grep -q "^<p>At the archive&#39;s rates, which are not tuned.*--variants.* Trimmed mean" \
        "$DIR/other.html"
    run -0 json_value "[(c['archive'], c['undecided'] + c['better'] + c['worse'] + c['equivalent'],
        c['problems']) for c in sorted(d['against_counts']['counts'], key=str)]" \
        report "$DIR/other.h5" --against "$DIR/paired.h5" --no-figures -o "$DIR/again.html"
    [ "$output" = "[('adamw4_ao', 1, 1), ('adamw8_bnb', 1, 1)]" ]
    "$QUALM" report -q "$DIR/other.h5" --against "$DIR/paired.h5" --no-figures \
        -o "$DIR/again.html" >"$DIR/counts"
    grep -q "problems by verdict, at the archive's rates, which are not tuned" "$DIR/counts"
    grep -Eq "^adamw8_ao +adamw4_ao( +[01]){8} +1 +adamw4_ao,.*min_numel=0" "$DIR/counts"
    grep -q "2 of 2 archived variants" "$DIR/counts"
    [ "$(grep -c '<td>adamw8_ao</td><td>adamw4_ao</td><td class="n">6</td>' "$DIR/other.html")" \
        -eq 1 ]
    sed 's|problem:rosen[^"]*|problem:quad:n=64|' "$DIR/other.yaml" >"$DIR/apart.yaml"
    "$QUALM" run "$DIR/apart.yaml" -o "$DIR/apart.h5" --against "$DIR/paired.h5" 2>&1 >/dev/null |
        grep -q "6 of 6 runs have no partner.* no runs on this problem there: it has rosen:n=256"
    rm "$DIR/apart.html"
    fails_with 4 "paired.h5: nothing to compare: none of 2 archived variants has runs to pair with" \
        report "$DIR/apart.h5" --against "$DIR/paired.h5" --no-figures
    grep -q "no runs on this problem there" "$DIR/apart.html"
    fails_with 4 "no archive 'nowhere'" run "$DIR/other.yaml" -o "$DIR/no.h5" --against nowhere
    fails_with 3 "$DIR/no.h5" run "$DIR/other.yaml" -o "$DIR/no.h5" --against "$DIR/no.h5"
    sed /protocol/d "$DIR/other.yaml" >"$DIR/alone.yaml"
    "$QUALM" run -q "$DIR/alone.yaml" -o "$DIR/alone.h5" >/dev/null
    fails_with 4 "alone.h5: no /protocol/runs" run "$DIR/other.yaml" -o "$DIR/no.h5" \
        --against "$DIR/alone.h5"
    fails_with 2 "needs protocol: paired" run "$DIR/alone.yaml" -o "$DIR/no.h5" \
        --against "$DIR/paired.h5"
    [ ! -e "$DIR/no.h5" ]
}
