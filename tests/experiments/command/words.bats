#!/usr/bin/env bats
# words.bats - Every word that commands print is one that `qualm show` explains.

load ../../support/cli_common

@test "show: every key of the JSON that commands print, and every one in the sources" {
    cd "$BATS_TEST_TMPDIR"
    cat >mine.yaml <<'Y'
variant: adamw4_ao
exp_avg.map: [dyn, nf4]
source: dist:gauss
n: 256
summary: [{name: sqnr, by: exp_avg.map, value: [sqnr, collapse]}]
Y
    cat >paired.yaml <<'Y'
protocol: paired
coupling: closed
variant: [adamw8_bnb, adamw4_ao]
source: "problem:quad:n=64"
seed: 1..6
steps: 20
Y
    "$PYTHON" "$ROOT/tests/support/json_words.py" "$ROOT" "$QUALM"
}

@test "show: a blank is also an underscore, and keys that say what of a value are taken apart" {
    [[ $(qualm show bits_per_param) == *"bits of optimizer state"* ]]
    run -0 "$QUALM" show sqnr_median_hi95
    [[ $output == *sqnr*median*hi95* ]]
    fails_with 4 "nothing is named 'qqqq_lo95'" show qqqq_lo95
}
