#!/usr/bin/env bats
# mutate.bats - Tests qualm mutate: the gate, single mutants, unknown names.
load ../../support/cli_common

setup() { cd "$BATS_TEST_TMPDIR" || exit 1; }

@test "mutate --quick passes: no mutant survives, no benign re-writing fails" {
    long 8
    local templates
    templates=$(drawn $(json_value '" ".join(sorted({e["template"] for e in d}))' mutate --list))
    run -0 "$QUALM" mutate --quick -q --only "^(${templates//$'\n'/|})[.]"
    [[ ${lines[-1]} == passed:* ]]
    [[ $output == *" 0 false alarms"* ]]
}

@test "an exported bug fails check --kernel, a benign re-writing passes it" {
    long 2
    qualm mutate --export adamw4_ao.tie-down bug.c
    run -1 "$QUALM" check --kernel bug.c -q --regime exact
    qualm mutate --export adamw4_ao.bisect fine.c
    run -0 "$QUALM" check --kernel fine.c -q --regime exact
}

@test "exported mutants compile without warnings" {
    qualm mutate --export adamw_f32 plain.c
    diff plain.c "$ROOT/variants/native/adamw_f32.c"
    qualm mutate --export adamw4_ao.tie-down bug.c
    [ "$(diff bug.c "$ROOT/variants/native/adamw4_ao.c" | grep -c '^[<>]')" -eq 2 ]
}

@test "the registry has at least 60 bugs and 20 benign re-writings of ten families" {
    n=$(json_value 'len([e for e in d if e["class"] != "benign"])' mutate --list)
    [ "$n" -ge 60 ]
    n=$(json_value 'len([e for e in d if e["class"] == "benign"])' mutate --list)
    [ "$n" -ge 20 ]
    n=$(json_value 'len({e["template"] for e in d})' mutate --list)
    [ "$n" -ge 10 ]
}

@test "one mutant: killed; equivalent pairs are bit-equal; the verdicts of other rules" {
    long 8
    run -0 "$QUALM" mutate --only '^adamw4_ao.decay-missing$' -q
    [[ $output == *"equal   adamw4_ao.decay-missing in start, digest "* ]]
    [[ $output == *"1 of 1 mutants killed"* ]]
}

@test "differences within bounds: number of outputs and largest share of a bound" {
    long 6
    local expression='[0 < a["differ"] < a["outputs"] and 0 < a["worst_ratio"] <= 1
        and a["unbounded"] == 0 for e in d["entries"] if e["kind"] == "mutant"
        for r in e["regimes"].values()
        if r["verdict"] == "survives" for a in [r["apart"]]]'
    [ "$(json_value "$expression" mutate --only '^adamw4_ao.decay-last$' \
        --runs 0)" = "[True, True]" ]
}

@test "an interrupted export leaves no partial file; unknown mutants are named" {
    fails_with 4 "did you mean 'adamw4_ao.tie-down'" mutate --export adamw4_ao.tie-dwn
    fails_with 4 "no mutant matches" mutate --only nosuchmutant
    fails_with 3 "no/such/folder" mutate --export adamw_f32 no/such/folder/x.c
    fails_with 2 "a file is for --export" mutate x.c
    fails_with 2 "whole number" mutate --runs some
}

@test "mutate --help shows examples; its names complete" {
    run -0 "$QUALM" mutate --help
    [[ $output == *"Examples:"* ]]
    source <("$QUALM" completion bash)
    COMP_WORDS=("$QUALM" mutate --export adamw4_ao.tie) COMP_CWORD=3
    _qualm
    [[ " ${COMPREPLY[*]} " == *" adamw4_ao.tie-down "* ]]
}
