#!/usr/bin/env bats
# claims.bats - Tests qualm run --claims: effects, intervals, verdicts.
# Run it from the root of the repository.

load ../../support/cli_common

setup() {
    dir=$(mktemp -d)
    suite=$dir/small.yaml
    printf '%s\n' 'variant: ema4_uniform' 'source: dist:gauss' 'n: 4096' 'seed: [1, 2, 3]' \
        'exp_avg: [nf4: "nf4:4s/block:128", int4: "int:4s/block:128/arith/even"]' \
        'claim: NF4 beats int4 on normal values' 'claim_source: a test' 'expect:' \
        '  - {value: sqnr, of: {exp_avg: nf4}, versus: {exp_avg: int4}, unit: seed, relation: above 0}' \
        '  - {value: sqnr, of: {exp_avg: nf4}, unit: seed, relation: below 10}' >"$suite"
}

teardown() { rm -rf "$dir"; }

@test "verdicts on stdout, their count on stderr, exit code 0 for any verdict" {
    run --separate-stderr qualm run --claims -o "$dir/" "$suite"
    [ "$status" -eq 0 ]
    [[ $output == *"small: NF4 beats int4 on normal values"*"said by a test"* ]]
    [[ $output == \
        *"minus exp_avg=int4: "*" dB ["*"over 3 x seed (3 cells); expected above 0: holds"* ]]
    [[ $output == *"expected below 10: does not hold"* ]]
    [[ $stderr == *"1 expectations hold, 1 do not, 0 undecided"* ]]
}

@test "--json has the numbers; the file keeps them" {
    run json_value '[(e["verdict"], e["n"], e["lo"] < e["mean"] < e["hi"], 1 < e["mean"] < 30)
        for e in d[0]["claim"]["expect"]]' run -o "$dir/out.h5" "$suite"
    [ "$output" = "[('holds', 3, True, True), ('does not hold', 3, True, True)]" ]
    "$PYTHON" -c 'import h5py' 2>/dev/null || skip "there is no h5py"
    "$PYTHON" - "$dir/out.h5" <<'PY'
import h5py, sys
f = h5py.File(sys.argv[1])
rows = f["claims"][:]
assert [r["verdict"] for r in rows] == [b"holds", b"does not hold"], rows
assert 1 < rows["mean"][0] < 4 and rows["n"][0] == 3
claim = f["suite"].attrs["claim"]
assert (claim.decode() if isinstance(claim, bytes) else claim).startswith("NF4")
PY
}

@test "a misspelt label is an error with file and line before any cell runs" {
    sed -i 's/{exp_avg: nf4}, versus/{exp_avg: nf5}, versus/' "$suite"
    fails_with 2 "small.yaml:9: axis 'exp_avg' has no value 'nf5'" run -o "$dir/" "$suite"
    [ "$(ls "$dir")" = small.yaml ]
}

@test "the help describes claims" {
    run qualm run --help
    [[ $output == *"claim_source"*"undecided"* ]]
}
