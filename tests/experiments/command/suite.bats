#!/usr/bin/env bats
# suite.bats - What is said of a suite whose values or words are wrong, and of one to be planned.

load ../../support/cli_common

setup() { dir=$(mktemp -d); cd "$dir"; }

teardown() { rm -rf "$dir"; }

# wrong WANT LINE...: a suite with these lines is refused with 2 and WANT, with the number of its
# last line, by plan and by run, and no result is written
wrong() {
    local want=$1 words
    shift
    printf '%s\n' "$@" >s.yaml
    for words in "plan s.yaml" "run -q -w 0 s.yaml -o s.h5"; do
        fails_with 2 "s.yaml:$#: $want" $words
        [ ! -e s.h5 ]
    done
}

dist() { wrong "$1" 'variant: adamw4_ao' 'source: dist:gauss' 'n: 256' "$2"; }
problem() { wrong "$1" 'variant: adamw4_ao' 'coupling: closed' 'steps: 2' "$2"; }

@test "a value that is wrong in itself is a mistake in the suite, named with its line and key" {
    dist "exp_avg.norm: 'block:-4': 'block' wants a whole number" 'exp_avg.norm: ["block:-4"]'
    dist "exp_avg.norm: 'block:abc': 'block' wants" 'exp_avg.norm: ["block:64", "block:abc"]'
    dist "exp_avg: 'nf4:4s/block': quantizer" 'exp_avg: "nf4:4s/block"'
    dist "exp_avg.map: 'nf4:9s': map nf4 does not exist at 9 bits" 'exp_avg.map: ["nf4:9s", dyn]'
    dist "exp_avg.min_numel: expected a finite number, got 'x'" 'exp_avg.min_numel: x'
    dist "exp_avg.whole_blocks: expected 0 or 1, got '3'" 'exp_avg.whole_blocks: 3'
    dist "nesterov: expected 0 or 1, got '3'" 'nesterov: 3' # which the rule does not even read
    dist "beta1: '1.5': expected a number from 0 to below 1" 'beta1: [0.9, 1.5]'
    for key in eps lr weight_decay; do
        dist "$key: '-1': expected a number of at least 0" "$key: -1"
    done
    problem "quad: n is -1, expected a whole number from 1" 'source: "problem:quad:n=-1"'
    problem "mlp: batch is -1, expected a whole number" 'source: ["problem:quad", "problem:mlp:batch=-1"]'
}

@test "a misspelt word in a suite is a mistake in it, and the words that there are are named" {
    dist "exp_avg.round: 'sr': no round 'sr'; there are near, mid, even" 'exp_avg.round: [sr]'
    dist "exp_avg.norm: 'blok:64': no norm 'blok'; there are tensor, row" 'exp_avg.norm: ["blok:64"]'
    dist "exp_avg.mpa: 'dyn': no axis 'mpa'; did you mean 'map'?" 'exp_avg.mpa: [dyn]'
    dist "exp_avg.map: '~': no map '~'; \`qualm list maps\` shows them" 'exp_avg.map: [~]'
    dist "no param 'bf17'; did you mean 'bf16'?" 'param: bf17'
    dist "no schedule 'cosin'; there are constant, linear, cosine" 'schedule: cosin'
    problem "no problem 'qaud'; did you mean 'quad'?" 'source: "problem:qaud"'
    problem "no distribution 'gaus'; did you mean 'gauss'?" 'source: "dist:gaus"'
    wrong "no variant 'adamw4_oa'; did you mean" 'source: dist:gauss' 'variant: adamw4_oa'
    wrong "no axis 'mpa'" 'source: dist:gauss' 'variant: "adamw4_ao,exp_avg.mpa=dyn"'
    dist "summary table1: no axis or column 'nothing'; there are variant, source" \
        'summary: [{by: nothing, value: sqnr}]'
}

# reads YES|NO KEY LINE...: whether the first cell of a suite with these lines is skipped for KEY
reads() {
    local want=$1 key=$2 found=yes
    shift 2
    printf '%s\n' "$@" >s.yaml
    run -0 "$QUALM" run -n s.yaml
    [[ $output != *" $key has no effect here: it is for "* ]] || found=no
    [ "$found" = "$want" ] || { echo "$key: $want expected: $*; $output"; return 1; }
}

@test "a key that no cell reads is the reason why all are skipped; where one reads it none is" {
    local line key v='variant: adamw4_ao' dist='source: "dist:gauss"'
    local closed=('protocol: paired' 'coupling: closed' 'source: "problem:nqm:n=64"')
    for line in 'delta: 0.1' 'budget: 1' 'contrast: none' 'rates: none' 'every: 3' 'steps: 4' \
        'rounding_seed: 1..2' 'lr: 0.1' 'weight_decay: 0.1' 'beta1: 0.5' 'eps: 1' 'grad: bf16' \
        'param: bf16' 'exp_avg_sq.map: [lin, dyn]' 'exp_avg_sq.norm: "block:64"'; do
        key=${line%%:*}
        reads no "$key" "$v" "$dist" 'slot: exp_avg' "$line"
        reads yes "$key" "$v" "${closed[@]}" "$line"
    done
    for line in 'delta: 0.1' 'budget: 1' 'rates: none'; do # closed, but nothing is judged
        reads no "${line%%:*}" "$v" "${closed[@]:1}" "$line"
    done
    reads no n "$v" "${closed[@]}" 'n: 100'
    reads yes n "$v" "$dist" 'n: 100'
    reads yes steps "$v" 'coupling: [oneshot, closed]' "source: [\"problem:nqm\", \"dist:gauss\"]" \
        'steps: 4' # some cell reads it
    reads yes exp_avg_sq.map "$v" 'source: "dist:lognormal"' 'slot: [exp_avg, exp_avg_sq]' \
        'exp_avg_sq.map: [lin, dyn]'
    reads no exp_avg_sq.map "$v" "$dist" 'slot: exp_avg' 'exp_avg_sq.map: [lin, dyn]'
    fails_with 4 "every cell was skipped: exp_avg_sq.map has no effect" run s.yaml -o s.h5
}

@test "every suite that ships is read whole, at every size" {
    long 4
    for size in small normal large; do
        for suite in "$ROOT"/experiments/suites/*.yaml "$ROOT"/experiments/suites/claims/*.yaml; do
            "$QUALM" plan -z "$size" "$suite" 2>&1 | grep "has no effect" && return 1
        done
    done
    true
}

@test "keys that a table takes twice, values that no axis has and keys of other sizes are refused" {
    local map='exp_avg.map: [dyn, nf4]'
    wrong "'exp_avg.map' twice, in 'by' and 'across' of one summary" 'variant: adamw4_ao' \
        'source: dist:gauss' "$map" \
        'summary: [{by: [exp_avg.map, coupling], across: exp_avg.map, value: sqnr}]'
    dist "'coupling' twice, in 'by' and 'by' of one summary" \
        'summary: [{by: [coupling, coupling], value: sqnr}]'
    wrong "summary table1: where: axis 'exp_avg.map' has no value 'foo'" 'variant: adamw4_ao' \
        'source: dist:gauss' "$map" \
        'summary: [{by: exp_avg.map, value: sqnr, where: {exp_avg.map: foo}}]'
    wrong "contrast: no value of exp_avg.map 'fp4'; there are dyn, nf4" 'variant: adamw4_ao' \
        'source: "problem:nqm:n=256"' 'coupling: closed' 'protocol: paired' "$map" \
        'contrast: {exp_avg.map: {against: fp4}}'
    dist "summary table1: no metric 'sqnrr'; did you mean 'sqnr'?" \
        'summary: [{by: variant, value: sqnrr}]'
    dist "no key 'stps'; did you mean 'steps'?" 'sizes: {small: {stps: 5}}'
}

@test "what only does not go together is skipped, beside cells that run" {
    printf '%s\n' 'variant: adamw4_ao' 'source: dist:gauss' 'n: 256' \
        'exp_avg.map: ["nf4:4s", "lint:4u"]' >s.yaml
    "$QUALM" run -q -w 0 s.yaml -o s.h5 >/dev/null
    "$QUALM" plan s.yaml --json | "$PYTHON" -c '
import json, sys
suite = json.load(sys.stdin)[0]
assert suite["cells"] == 2 and suite["skipped"] == 1, suite'
    fails_with 4 "every cell was skipped: closed needs a problem: source" run -q -w 0 \
        <(printf '%s\n' 'variant: adamw4_ao' 'source: dist:gauss' 'coupling: closed') -o t.h5
}

@test "data that nothing reads and a protocol that has nothing to judge are said" {
    printf '%s\n' 'variant: adamw4_ao' 'source: dist:gauss' 'n: 256' 'protocol: paired' >s.yaml
    run -0 --separate-stderr "$QUALM" run -w 0 s.yaml -d 'x/*.h5' -o s.h5
    [[ $stderr == *"s: data 'x/*.h5' is not read: no source of the suite is recorded"* ]]
    [[ $stderr == *"s: protocol paired has nothing to judge: no cell is of coupling closed"* ]]
}

@test "a wrong value of a contrast: the values of a long axis are listed" {
    local values
    values=$(printf '"adamw4_ao,lr=%d", ' {1..40})
    fails_with 2 "adamw4_ao,lr=28" plan <(printf '%s\n' 'protocol: paired' 'coupling: closed' \
        'source: "problem:nqm:n=64"' 'steps: 9' "variant: [${values%, }]" \
        'contrast: {variant: {against: no}}')
}

@test "plan counts the cells that run refuses for their tensors, too" {
    printf '%s\n' 'variant: [adamw4_ao, "adamw4_ao,exp_avg.norm=col,min_numel=0", muon8_lin]' \
        'source: ["problem:nqm:n=1000", "problem:digits", "states:*"]' \
        'coupling: [oneshot, local, closed]' 'steps: 2' >s.yaml
    "$QUALM" state make -q --recipe adamw_f32 --shapes 24x40,9 --steps 1 a.safetensors
    "$QUALM" plan s.yaml -d a.safetensors --json >p.json
    "$QUALM" run -w 0 s.yaml -d a.safetensors -o s.h5 --json >r.json 2>said
    "$PYTHON" -c '
import json
plan, run = json.load(open("p.json"))[0], json.load(open("r.json"))
said = open("said").read()
run = run[0] if isinstance(run, list) else run
assert plan["cells"] == run["cells"] and plan["skipped"] == run["skipped"] > 0, (plan, run)
reasons = " ".join(s["because"] for s in plan["skips"])
assert "norm col wants" in reasons and "two and more dimensions" in reasons, plan
for skip in plan["skips"]:
    assert skip["because"] in said, (skip, said)'
}

@test "plan takes --data as run does" {
    "$QUALM" state make -q --recipe adamw_f32 --shapes 24x40,8x8 --steps 1 a.safetensors
    printf '%s\n' 'variant: adamw4_ao' 'source: "states:*"' 'coupling: oneshot' \
        'data: ["absent.h5"]' >s.yaml
    fails_with 4 "no file matches 'absent.h5'" plan s.yaml
    "$QUALM" plan s.yaml --data a.safetensors --json | "$PYTHON" -c '
import json, sys
assert json.load(sys.stdin)[0]["cells"] == 2'
    fails_with 4 "no file matches 'b.*'" plan s.yaml -d a.safetensors -d 'b.*'
}

@test "versus without an axis: the answer shows the form" {
    cat >v.yaml <<'Y'
{variant: adamw_f32, source: "dist:gauss", exp_avg.map: [dyn, nf4], slot: exp_avg,
 coupling: oneshot, summary: [{name: a, across: exp_avg.map, value: sqnr, versus: nf4}]}
Y
    fails_with 2 "expected an axis and its value, such as versus: {exp_avg.map: nf4}" run v.yaml
}

@test "recorded numbers that are not finite leave their cells out, and are the reason" {
    cd "$BATS_TEST_TMPDIR"
    "$PYTHON" - <<'P'
import numpy as np
r = np.random.default_rng(1)
x = {f"w{i}/exp_avg": r.standard_normal((8, 64)).astype("f4") for i in range(4)}
x["w0/exp_avg"][3, 5] = np.nan
x["w1/exp_avg"][0, 0] = -np.inf
np.savez("some.npz", **x)
np.savez("none.npz", **{"w0/exp_avg": x["w0/exp_avg"]})
P
    printf '%s\n' 'variant: adamw4_ao' 'exp_avg.map: [dyn, nf4]' 'source: "states:*"' \
        'coupling: oneshot' 'slot: exp_avg' \
        'summary: [{name: a, by: exp_avg.map, value: sqnr}]' >odd.yaml
    run --separate-stderr "$QUALM" run odd.yaml --data some.npz -o some.h5
    [[ $status -eq 0 && $output != *inf* && $output != *nan* ]]
    [[ $stderr == *"4 cells skipped: the recorded state has NaN or Inf among its numbers"* ]]
    fails_with 4 "the recorded state has NaN or Inf" run odd.yaml --data none.npz -o none.h5
}

@test "plan takes a folder of shards as run does, and its digest is of their contents" {
    cd "$BATS_TEST_TMPDIR"
    mkdir s
    "$PYTHON" - <<'P'
import json, struct
import numpy as np
def shard(path, name, x):
    head = json.dumps({name: {"dtype": "F32", "shape": [256], "data_offsets": [0, 1024]}}).encode()
    open(path, "wb").write(struct.pack("<Q", len(head)) + head + x.astype("<f4").tobytes())
shard("s/m-1.safetensors", "a/exp_avg", np.ones(256))
shard("s/m-2.safetensors", "b/exp_avg", np.arange(256))
json.dump({"weight_map": {"a/exp_avg": "m-1.safetensors", "b/exp_avg": "m-2.safetensors"}},
          open("s/m.safetensors.index.json", "w"))
P
    printf '%s\n' 'variant: adamw4_ao' 'source: "states:*"' 'coupling: oneshot' \
        'slot: exp_avg' >s.yaml
    "$QUALM" run -q s.yaml --data s -o s.h5
    for data in s s/m.safetensors.index.json; do
        was=$(json_value 'd[0]["digest"]' plan s.yaml --data $data)
        printf '\x01' | dd of=s/m-2.safetensors bs=1 seek=300 conv=notrunc status=none
        is=$(json_value 'd[0]["digest"]' plan s.yaml --data $data)
        [ "$was" != "$is" ]
        printf '\x00' | dd of=s/m-2.safetensors bs=1 seek=300 conv=notrunc status=none
    done
}

@test "what would count twice is refused: a pair of a contrast, one problem, one number" {
    paired=('variant: adamw4_ao' 'coupling: closed' 'protocol: paired' 'steps: 2'
        'exp_avg.map: [dyn, nf4, int]' 'source: "problem:nqm"')
    for pairs in '[nf4, dyn], [int, dyn], [nf4, dyn]' '[nf4, dyn], [int, dyn], [dyn, nf4]'; do
        wrong "contrast: the pair of" "${paired[@]}" \
            "contrast: {exp_avg.map: {pairs: [$pairs]}}"
    done
    wrong "contrast: 'nf4' is paired with itself" "${paired[@]}" \
        'contrast: {exp_avg.map: {pairs: [[nf4, nf4]]}}'
    problem "'source' lists one problem twice: 'problem:nqm' and 'problem:nqm:'" \
        'source: ["problem:nqm", "problem:nqm:"]'
    problem "'source' lists one problem twice: " 'source: ["problem:quad:cond=100,n=64", "problem:quad:n=64,cond=1e2"]'
    problem "'source' lists one problem twice: " 'source: ["problem:spike:base=nqm:n=64", {b: "problem:spike:base=nqm:64"}]'
    wrong "'lr_scale' lists '1.0' twice" 'variant: adamw4_ao' 'coupling: closed' 'source: "problem:nqm"' 'lr_scale: [1, 1.0]'
    wrong "'lr_scale' is '1e300', expected above 0, below 1e30" 'variant: adamw4_ao' 'coupling: closed' 'source: "problem:nqm"' 'lr_scale: [1e300]'
    # others are not: arguments that differ, another base
    printf '%s\n' 'variant: adamw4_ao' 'coupling: closed' 'steps: 2' \
        'source: ["problem:nqm", "problem:nqm:n=64", "problem:spike:base=nqm", "problem:spike:base=quad"]' >s.yaml
    "$QUALM" plan s.yaml
    # nothing is trained at a rate of 0, and nothing is called equivalent
    printf '%s\n' "${paired[@]}" 'lr: 0' >s.yaml
    fails_with 4 "every cell was skipped: lr is 0, with which nothing is trained" \
        run -w 0 s.yaml -o s.h5
    run "$QUALM" run -w 0 s.yaml -o s.h5
    [[ "$output" != *"nothing to judge"* ]] # for its cells are of coupling closed
}
