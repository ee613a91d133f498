#!/usr/bin/env bats
# tune.bats - Tests qualm tune: files of rates, what run makes of them, what it says without them.

load ../../support/cli_common

setup() {
    dir=$(mktemp -d)
    cat >"$dir/s.yaml" <<'Y'
variant:
  - nf4: "adamw_f32,exp_avg=nf4:4s/block:64/bisect/mid/hi"
  - stoch: "adamw_f32,exp_avg=nf4:4s/block:64/bisect/stoch/hi"
source: ["problem:nqm:n=128", "problem:logreg:n=64,d=8"]
coupling: closed
protocol: paired
weight_decay: 0
instance: [1, 2, 3]
seed: 1..3
steps: 30
Y
}
teardown() { rm -rf "$dir"; }

hash_of() { "$QUALM" digest "$1" | cut -c1-64; }

# page FILE: the tables of its page, in $output
page() {
    run -0 --separate-stderr "$QUALM" report "$1" --no-figures --out "$dir/x.html" --markdown -
}

@test "tune writes rates and curves; run judges best against best; a campaign gives the same file" {
    run -0 --separate-stderr "$QUALM" tune -q --variants --seeds 2 "$dir/s.yaml" -o "$dir/r.json"
    [ "$(wc -l <<<"$output")" -eq 18 ] # two problems, three instances, a twin and two variants
    "$PYTHON" - "$dir/r.json" <<'P'
import json, math, sys
rates = json.load(open(sys.argv[1]))["rates"]
assert len(rates) == 18 and [r["key"] for r in rates] == sorted(r["key"] for r in rates)
twins = {r["key"].split(" adamw")[0]: r["rate"] for r in rates if "near" not in r}
assert len(twins) == 6
for r in rates:
    curve = {rate: loss for rate, loss, _ in r["curve"]}
    lowest = min(curve.values())
    near = twins[r["key"].split(" adamw")[0]]
    same = [(abs(round(8 * math.log10(rate / near))) if "near" in r else 0, loss, rate)
            for rate, loss, margin in r["curve"] if loss <= lowest + ("near" in r) * margin]
    assert not r["edge"] and math.isclose(min(same)[2], r["rate"], rel_tol=1e-5), r
    assert r.get("near", near) == near, r
    r["rate"] = min(curve, key=curve.get)
    for side in (10 ** 0.125, 10 ** -0.125):  # never at an edge of what was tried
        assert any(math.isclose(rate, r["rate"] * side, rel_tol=1e-4) for rate in curve), r
P
    run -0 --separate-stderr "$QUALM" run -q -w 0 "$dir/s.yaml" --rates "$dir/r.json" -o "$dir/a.h5"
    [[ "$output" == *"4 of 4 verdicts: best against best"* ]]
    [[ "$output" == *"2 of 2 contrasts: best against best"* ]]
    [[ "$output" == *"same rate"* ]]
    "$QUALM" run -q -w 2 "$dir/s.yaml" --rates "$dir/r.json" -o "$dir/b.h5" >/dev/null
    [ "$(hash_of "$dir/a.h5")" = "$(hash_of "$dir/b.h5")" ]
    page "$dir/a.h5"
    [[ "$output" == *"tuned for each"* && "$output" == *"best against best"* ]]
    [[ "$output" == *Contrasts* ]]
}

@test "tune goes on where it was, and keeps what other sizes found" {
    "$QUALM" tune -q --seeds 1 "$dir/s.yaml" -o "$dir/r.json" >/dev/null
    before=$(sha256sum <"$dir/r.json")
    run -0 --separate-stderr "$QUALM" tune -q --seeds 1 "$dir/s.yaml" -o "$dir/r.json"
    [ -z "$output" ]
    [ "$(sha256sum <"$dir/r.json")" = "$before" ]
    sed -i 's/steps: 30/steps: 20/' "$dir/s.yaml"
    [ "$(json_value 'len(d[0]["found"])' tune -q --seeds 1 "$dir/s.yaml" -o "$dir/r.json")" = 6 ]
    [ "$(grep -c '"key"' "$dir/r.json")" -eq 12 ]
}

@test "a suite at steps that nothing was tuned for says so, in its table, JSON and page" {
    long 3
    "$QUALM" tune -q --seeds 1 "$dir/s.yaml" -o "$dir/r.json" >/dev/null
    run -0 --separate-stderr "$QUALM" run -q -w 0 "$dir/s.yaml" --rates "$dir/r.json" -o "$dir/a.h5"
    [[ "$output" == *"4 of 4 verdicts: both at the rate that was tuned for the twin"* ]]
    sed -i 's/steps: 30/&\nschedule: cosine\nclip: 1/' "$dir/s.yaml" # another schedule
    run -0 --separate-stderr "$QUALM" run -q -w 0 "$dir/s.yaml" --rates "$dir/r.json" -o "$dir/b.h5"
    [[ "$output" == *"4 of 4 verdicts: at the problem's own rate; nothing was tuned for"* ]]
    [ "$(json_value '{v["rates"] for v in d[0]["protocol"]["verdicts"]}' run -q -w 0 \
        "$dir/s.yaml" --rates "$dir/r.json" -o "$dir/b.h5")" = "{'not tuned'}" ]
    # rates that no cell asks for change nothing: the file is that of a run without them
    "$QUALM" run -q -w 0 "$dir/s.yaml" --rates none -o "$dir/c.h5" >/dev/null
    [ "$(hash_of "$dir/b.h5")" = "$(hash_of "$dir/c.h5")" ]
    page "$dir/b.h5"
    [[ "$output" == *"was not tuned for these steps"* ]]
    sed '$alr: 0.123' "$dir/s.yaml" >"$dir/lr.yaml" # the suite's own rate is not the problem's
    run -0 --separate-stderr "$QUALM" run -q -w 0 "$dir/lr.yaml" --rates none -o "$dir/lr.h5"
    [[ "$output" == *"4 of 4 verdicts: at the rate that the suite sets (lr); nothing was tuned"* ]]
    [[ "$output" != *"the problem's own rate"* ]]
}

@test "mistakes: a suite without protocol, a broken file, a file that is not there" {
    run "$QUALM" tune smoke -o "$dir/r.json"
    [ "$status" -eq 2 ]
    [[ "$output" == *"needs a suite with protocol: paired"* ]]
    echo '{"qualm_rates": 2}' >"$dir/r.json"
    run "$QUALM" run "$dir/s.yaml" --rates "$dir/r.json" -o "$dir/a.h5"
    [ "$status" -eq 3 ]
    [[ "$output" == *"no file of qualm tune"* ]]
    run "$QUALM" run "$dir/s.yaml" --rates "$dir/none.json" -o "$dir/a.h5"
    [ "$status" -eq 3 ]
    [ ! -e "$dir/a.h5" ]
    printf '%s\n' 'variant: ema4_nf4' 'source: dist:gauss' >"$dir/one.yaml"
    run -3 "$QUALM" run "$dir/one.yaml" --rates "$dir/none.json" -o "$dir/one.h5"
    # It is read all the same.
    run -3 "$QUALM" run "$dir/one.yaml" --rates "$dir/r.json" -o "$dir/one.h5"
    [[ "$output" == *"no file of qualm tune"* ]]
    echo '{"qualm_rates": 1, "rates": []}' >"$dir/r.json"
    run -0 "$QUALM" run "$dir/one.yaml" --rates "$dir/r.json" -o "$dir/one.h5"
    [[ "$output" == *"one: the rates of $dir/r.json are not used: the suite has no protocol"* ]]
}

@test "best against best agrees with a program in NumPy that shares nothing with this one" {
    long 3
    cat >"$dir/n.yaml" <<'Y'
{variant: adamw_f32, source: "problem:nqm:n=256", coupling: closed, protocol: paired, seed: 1..16,
 exp_avg: [nearest: "nf4:4s/block:128/bisect/mid/hi",
           stochastic: "nf4:4s/block:128/bisect/stoch/hi"],
 weight_decay: 0, steps: 300}
Y
    "$QUALM" tune -q --variants "$dir/n.yaml" -o "$dir/r.json" >/dev/null
    "$QUALM" run -q --json -w 0 --rates "$dir/r.json" "$dir/n.yaml" -o "$dir/n.h5" >"$dir/n.json"
    "$PYTHON" tests/examples/nqm_fair_rates.py 256 300 16 >"$dir/numpy.json"
    "$PYTHON" - "$dir/n.json" "$dir/r.json" "$dir/numpy.json" <<'P'
import json, math, sys
run, rates, other = (json.load(open(path)) for path in sys.argv[1:])
twin = [r["rate"] for r in rates["rates"] if "exp_avg" not in r["key"]]
assert abs(math.log10(twin[0] / other["rates"]["float64"])) <= 2.01 / 8, (twin, other["rates"])
for v in run[0]["protocol"]["verdicts"]:
    if not v["own"]:
        continue
    assert v["rates"] == "best against best"
    for outcome in ("last", "late"):
        here, (mean, error) = v["outcomes"][outcome], other[v["label"]][outcome]
        half = (here["hi95"] - here["lo95"]) / 2
        text = f"{outcome}: {here['mean']:.4f} +- {half:.4f}, NumPy {mean:.4f} +- {error:.4f}"
        print(v["label"], text)
        assert abs(here["mean"] - mean) <= 1.5 * math.hypot(half, 2.13 * error), text
        assert mean > 3 * error  # there is something to agree on
P
}

@test "rates that are no JSON: the message says which file is expected" {
    printf "%s\n" "protocol: paired" "coupling: closed" "variant: adamw4_ao" \
        "source: problem:quad:n=64" "seed: 1..6" "steps: 20" >"$BATS_TEST_TMPDIR/s.yaml"
    fails_with 3 "s.yaml:1: no file of \`qualm tune\`, which is JSON: '[' or '{' expected" \
        run "$BATS_TEST_TMPDIR/s.yaml" --rates "$BATS_TEST_TMPDIR/s.yaml"
}

@test "a suite may use the rates of another, by its name; of none that was tuned is refused" {
    cd "$BATS_TEST_TMPDIR"
    printf '%s\n' 'variant: adamw_f32' 'exp_avg: [{nf4 B128: "nf4:4s/block:128/bisect/mid/hi"}]' \
        'source: "problem:heavy"' 'coupling: closed' 'protocol: paired' 'weight_decay: 0' \
        'seed: 1..2' 'steps: 2000' 'rates: momentum_levels' >other.yaml
    [[ $("$QUALM" run -q other.yaml -o other.h5) != *"nothing was tuned"* ]]
    sed 's/momentum_levels/momentum_level/' other.yaml >none.yaml
    fails_with 2 "no rates were tuned for a suite 'momentum_level'" run none.yaml
    sed 's/momentum_levels/none/' other.yaml >none.yaml
    [[ $("$QUALM" run -q none.yaml -o none.h5) == *"nothing was tuned"* ]]
}

@test "rates: named by a suite that has no use for them are refused" {
    printf '%s\n' 'variant: adamw_f32' 'source: "problem:quad"' 'coupling: closed' 'steps: 5' \
        'rates: momentum_levels' >"$dir/plain.yaml"
    fails_with 2 "plain.yaml: rates: a suite without protocol: paired has no use for any" \
        run "$dir/plain.yaml"
    fails_with 2 "has no use for any" plan "$dir/plain.yaml"
}

@test "rates: a key twice is refused, and seeds that the suite runs too are said" {
    "$QUALM" tune -q --seeds 1 "$dir/s.yaml" -o "$dir/r.json" >/dev/null
    "$PYTHON" - "$dir" <<'P'
import copy, json, sys
r = json.load(open(sys.argv[1] + "/r.json"))
del r["sum"]
for entry in r["rates"]:
    entry["seeds"] = "1..2"
json.dump(r, open(sys.argv[1] + "/seeds.json", "w"))
r["rates"].append(copy.deepcopy(r["rates"][0]))
json.dump(r, open(sys.argv[1] + "/twice.json", "w"))
P
    fails_with 3 "twice.json: two rates for 'problem:" \
        run "$dir/s.yaml" --rates "$dir/twice.json" -n
    run -0 "$QUALM" run -n "$dir/s.yaml" --rates "$dir/seeds.json"
    [[ "$output" == *"rates were tuned on seeds 1..2, of which the suite runs 1"* ]]
    run -0 "$QUALM" run -n "$dir/s.yaml" --rates "$dir/r.json"
    [[ "$output" != *"rates were tuned on seeds"* ]]
}
