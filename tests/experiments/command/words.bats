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

@test "show: every key of a suite, and a slot with an axis" {
    keys=$(sed -n '/define PLAIN_KEY_LIST/,/^static/s/^ *X(\([a-z_]*\),.*/\1/p' \
        "$ROOT/experiments/suite/suite.c"
        sed -n '/axis_keys\[\] = {/,/};/p;/"stat", *"versus"/p' "$ROOT/experiments/suite/suite.c" \
            "$ROOT/experiments/suite/suite_tables.c" | grep -o '"[a-z_]*"' | tr -d '"')
    [ "$(wc -w <<<"$keys")" -ge 33 ]
    for key in $keys exp_avg.norm exp_avg_sq.map; do
        qualm show "$key" >/dev/null || { echo "$key"; return 1; }
    done
    fails_with 4 "nothing is named" show exp_avg.nom
}
