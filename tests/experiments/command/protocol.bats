#!/usr/bin/env bats
# protocol.bats - Tests paired suites: the shipped ones at small size, one digest for every way of
# running, unknown words.

load ../../support/cli_common

setup() { dir=$(mktemp -d); }
teardown() { rm -rf "$dir"; }

@test "every shipped paired suite plans at every size, without a skipped cell but of vectors" {
    local size
    for size in small normal large; do
        for suite in $(drawn experiments/suites/{ablation,axis,published}_*.yaml); do
            run "$QUALM" plan --json --size $size "$suite"
            [ "$status" -eq 0 ]
            [[ "$output" != *because* || # a vector has no columns
                "$(grep -o 'because": "[^"]*' <<<"$output")" == \
                'because": "norm col wants a tensor of at least two dimensions' ]]
        done
    done
}

@test "the small ablations run, with a verdict for every label" {
    long 3
    for name in ablation_momentum ablation_rank1; do
        run --separate-stderr "$QUALM" run -q --size small $name -o "$dir/$name.h5"
        [ "$status" -eq 0 ]
        [[ "$output" == *"verdicts: against the float64 twin"* ]]
        [[ "$output" == *"scores:"* ]]
    done
    [ "$(json_value '[v["n"] for v in d[0]["protocol"]["verdicts"] if v["own"]] == [6] * 28' \
        run -q --size small ablation_momentum -o "$dir/again.h5")" = True ]
}

@test "the claims of the published tables hold in direction on each problem at small size" {
    long 3
    run --separate-stderr "$QUALM" run -q --claims --size small published_second_moment \
        -o "$dir/p.h5"
    [ "$status" -eq 0 ]
    [ "$(grep -c ': holds' <<<"$output")" -ge 14 ] # of nine for each of two problems
    [ "$(grep -c ': does not hold' <<<"$output")" -eq 0 ]
}

@test "a verdict reports where float32 differs from float64, too" {
    cat >"$dir/apart.yaml" <<'Y'
{variant: adamw8_bnb, exp_avg.min_numel: 0, exp_avg_sq.min_numel: 0, protocol: paired,
 coupling: closed, source: ["problem:factor", "problem:nqm:n=64"], weight_decay: 0, seed: 1..6,
 steps: 2000}
Y
    run -0 --separate-stderr "$QUALM" run -q -w 0 "$dir/apart.yaml" -o "$dir/apart.h5"
    [ "$(grep -c 'float32 apart too' <<<"$output")" -eq 1 ]
    grep -q '^factor .*float32 apart too' <<<"$output"
    [ "$(json_value '[v["null_apart"] for v in d[0]["protocol"]["verdicts"] if v["own"]]' \
        run -q -w 0 "$dir/apart.yaml" -o "$dir/apart.h5")" = "[True, False]" ]
}

@test "one digest for threads, a campaign's processes and shards" {
    long 3
    "$QUALM" run -q -w 0 -t 1 --size small axis_scale -o "$dir/a.h5" >/dev/null
    "$QUALM" run -q -w 0 -t 2 --size small axis_scale -o "$dir/b.h5" >/dev/null
    "$QUALM" run -q -w 2 --size small axis_scale -o "$dir/c.h5" >/dev/null
    for i in 2 1 3; do
        "$QUALM" run -q -w 1 --shard $i/3 --size small axis_scale -o "$dir/d.h5" >/dev/null
    done
    "$QUALM" merge "$dir/d.run" -o "$dir/d.h5" >/dev/null
    for x in b c d; do
        [ "$("$QUALM" digest "$dir/$x.h5" | cut -c1-64)" = \
          "$("$QUALM" digest "$dir/a.h5" | cut -c1-64)" ]
    done
}

@test "a verdict reports unquantized variants, diverged twins and the detectable effect" {
    long 4
    cat >"$dir/v.yaml" <<'END'
variant: [adamw4_ao, adamw_f32]
source: ["problem:nqm:n=64", "problem:nqm:n=8192,rows=64"]
coupling: closed
protocol: paired
seed: 1..6
steps: 20
END
    run --separate-stderr "$QUALM" run -q "$dir/v.yaml" -o "$dir/v.h5"
    [ "$status" -eq 0 ]
    [[ "$output" =~ nqm:n=64\ .*adamw4_ao\ .*\ 64\ .*\ 0\ %\ .*not\ quantized ]]
    [ "$(json_value '[(v["coded"], v["verdict"] == "not quantized")
        for v in d[0]["protocol"]["verdicts"] if v["own"]]' run -q "$dir/v.yaml" \
        -o "$dir/v.h5")" = "[(0.0, True), (None, False), (1.0, False), (None, False)]" ]
    # with the fallbacks switched off the same tensors have codes
    sed 's/adamw4_ao,/"adamw4_ao,min_numel=0,whole_blocks=0",/' "$dir/v.yaml" >"$dir/forced.yaml"
    [ "$(json_value '[v["coded"] for v in d[0]["protocol"]["verdicts"] if v["own"]]' \
        run -q "$dir/forced.yaml" -o "$dir/forced.h5")" = "[1.0, None, 1.0, None]" ]
    sed -i 's/^variant.*/variant: ["sgdm4_lpmm,momentum_buffer.min_numel=0"]/
        s/nqm:n=64/quad:n=256,start=normal/; s/^steps.*/steps: 400/' "$dir/v.yaml"
    echo 'lr_scale: [1, 64]' >>"$dir/v.yaml"
    local verdict='[(v["n"], v["twin_diverged"], v["verdict"]) for v in d[0]["protocol"]["verdicts"]
        if v["own"] and v["lr_scale"] == 64][0]'
    [ "$(json_value "$verdict" run -q "$dir/v.yaml" -o "$dir/w.h5")" = "(0, 6, 'too few')" ]
}

@test "--size takes a size" {
    run "$QUALM" run --size tiny ablation_search -o "$dir/x.h5"
    [ "$status" -eq 4 ]
    [[ "$output" == *"no size 'tiny'; there are small, normal and large"* ]]
    [ ! -e "$dir/x.h5" ]
    run --separate-stderr "$QUALM" plan --size large smoke
    [ "$status" -eq 0 ]
    [[ "$stderr" == "smoke: no values for size large; as it is" ]]
    run --separate-stderr "$QUALM" plan --size small axis_unit
    [ -z "$stderr" ]
}

@test "a figure of two axes answers for the suite's first one; what has no codes has its cure" {
    long 3
    cat >"$dir/two.yaml" <<'Y'
variant: "adamw4_ao,min_numel=0,whole_blocks=0"
exp_avg.map: [int, nf4]
exp_avg.norm: ["block:128", rank1]
source: "problem:mlp:batch=16"
coupling: closed
protocol: paired
seed: 1..6
steps: 20
Y
    qualm run "$dir/two.yaml" -q --out "$dir/two.h5" >"$dir/out"
    ! grep -q "^not quantized" "$dir/out" || return 1
    sed '1s/.*/variant: adamw4_ao/' "$dir/two.yaml" >"$dir/plain.yaml"
    [[ $(qualm run "$dir/plain.yaml" -q --out "$dir/plain.h5") == \
        *"not quantized: "*'"NAME,min_numel=0,whole_blocks=0" gives codes to all'* ]]
    "$PYTHON" -c "import h5py, matplotlib" 2>/dev/null || skip "Python has no h5py or no matplotlib"
    run -0 "$QUALM" plot "$dir/two.h5" --out "$dir/two.svg"
    [[ $output == *"exp_avg.map: nf4 against int (block:128)"* ]]
}

@test "a contrast of two rules is of the gaps themselves, and the text says that each has a twin" {
    long 3
    cat >"$dir/rules.yaml" <<'Y'
variant: [adamw_f32, "adamw8_ao,min_numel=0,whole_blocks=0", lion8_fused]
source: "problem:logreg"
coupling: closed
protocol: paired
seed: 1..6
steps: 20
Y
    run -0 json_value '[(c["label"][:4], c["two_twins"]) for c in d[0]["protocol"]["contrasts"]]' \
        run -q "$dir/rules.yaml" -o "$dir/rules.h5"
    [ "$output" = "[('adam', False), ('lion', True)]" ]
    qualm run -q "$dir/rules.yaml" -o "$dir/rules.h5" | grep -q \
        "^1 of 2 contrasts: each side has a float64 twin of its own .*; shown are the gaps"
    "$PYTHON" -c "import h5py, matplotlib" 2>/dev/null || skip "Python has no h5py or no matplotlib"
    "$PYTHON" - "$dir/rules.h5" <<'P'
import sys
import h5py, numpy as np
f = h5py.File(sys.argv[1])
runs, rows = f["/protocol/runs"][()], f["/protocol/contrasts"][()]
gap = {(r["label"], r["seed"]): r["gap"] for r in runs}
for row in rows:
    d = [np.log10(gap[row["label"], s] / gap[row["against"], s]) for s in range(1, 7)]
    assert abs(np.mean(d) - row["plain_mean"]) < 1e-9, (row["label"], d)
P
    "$QUALM" report -q "$dir/rules.h5"
    grep -q "have a float64 twin each in 1 of 2 rows (another rule or rate)" "$dir/rules.html"
}

@test "a value that changes nothing has the same results, in no family and in no count" {
    long 5
    cat >"$dir/same.yaml" <<'Y'
variant: "adamw4_ao,min_numel=0,whole_blocks=0"
exp_avg_sq.norm: ["block:32", "block:64", "block:512"]
source: ["problem:logreg", "problem:nqm:n=256"] # 20 parameters and 256
coupling: closed
protocol: paired
seed: 1..6
steps: 20
Y
    run -0 json_value '[(c["problem"], c["verdict"] == "same results", c["q"] is None,
        c["same_verdict"] == "same results") for c in d[0]["protocol"]["contrasts"]]' \
        run -q "$dir/same.yaml" -o "$dir/same.h5"
    [ "$output" = "[('logreg', True, True, True), ('logreg', True, True, True), \
('nqm:n=256', False, False, False), ('nqm:n=256', False, False, False)]" ]
    "$PYTHON" -c "import h5py, matplotlib" 2>/dev/null || skip "Python has no h5py or no matplotlib"
    "$QUALM" report -q "$dir/same.h5"
    grep -q "Same results to the bit, not counted: block:64 against block:32 on logreg;" \
        "$dir/same.html"
    "$QUALM" plot "$dir/same.h5" --list | grep -q "^contrasts .*: .* of 1 problem"
}

@test "the error budget's intervals are of instances, as those of verdicts" {
    printf '%s\n' 'variant: "adamw4_ao,min_numel=0,whole_blocks=0"' 'coupling: closed' \
        'protocol: paired' 'budget: 1' 'source: "problem:lowrank:n=32,p=16,q=8"' \
        'instance: 1..4' 'seed: 1..3' 'steps: 40' >"$dir/b.yaml"
    "$QUALM" run -q --json -w 0 "$dir/b.yaml" -o "$dir/b.h5" >"$dir/b.json"
    "$PYTHON" - "$dir/b.json" <<'P'
import json, sys
p = json.load(open(sys.argv[1]))[0]["protocol"]
verdict = next(v for v in p["verdicts"] if v["label"].startswith("adamw4_ao"))
last, part = verdict["outcomes"]["last"], {b["part"]: b for b in p["budget"]}
for end in ("lo95", "hi95", "mean"):
    assert abs(part["all"][end] - last[end]) < 1e-12, (part["all"], last)
P
}
