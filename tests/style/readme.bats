#!/usr/bin/env bats
# readme.bats - Pastes the commands of README.md and of the text on kernels; README.md's limit.
# Run it from the root of the repository.

load ../support/cli_common

@test "README.md has at most 180 lines" {
    [ "$(wc -l <README.md)" -le 180 ]
}

@test "every ./qualm command of README.md does what it says" {
    long 3
    run /usr/bin/python3 tests/style/run_readme.py README.md
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "every ./qualm command of experiments/kernel/README.md does what it says" {
    long 4
    run /usr/bin/python3 tests/style/run_readme.py experiments/kernel/README.md
    echo "$output"
    [ "$status" -eq 0 ]
}

# counts FILE...: "EQUAL NEAR SKIPPED" of their cases
counts() {
    "${QUALM:-./qualm}" conform "$@" 2>/dev/null |
        sed -nE 's/^([0-9]+) EQUAL, ([0-9]+) NEAR, 0 DIFFERS, ([0-9]+) skipped.*/\1 \2 \3/p'
}

# sum_of_rows [FILE]: "EQUAL NEAR SKIPPED", summed over the rows of a table that have three counts
sum_of_rows() {
    sed -nE 's/.*\| ([0-9]+) \/ ([0-9]+) \/ ([0-9]+)( \([^|]*\))? \|.*/\1 \2 \3/p' "$@" |
        awk '{ equal += $1; near += $2; skipped += $3 } END { print equal, near, skipped }'
}

@test "the counts of recorded cases in the texts are those of conform" {
    long 3
    local all apart rows
    all=$(counts tests/golden/*.h5)
    apart=$(counts tests/golden/dtypes.h5 tests/golden/philox.h5) # they are of no system
    read -r equal near skipped <<<"$all"
    grep -qF "| $equal equal, $near near, 0 differ, $skipped skipped |" README.md
    grep -qF "| $equal equal, $near within a tolerance, 0 differ, $skipped skipped:" \
        experiments/check/README.md
    rows=$(sum_of_rows README.md)
    echo "rows $rows, of no system $apart, all $all"
    [ "$rows" = "$((equal - ${apart%% *})) $near $((skipped - ${apart##* }))" ]
    rows=$(sed -n '/^| system | variants | golden cases/,/^$/p' variants/README.md | sum_of_rows)
    echo "rows of variants/README.md $rows, all $all"
    [ "$rows" = "$all" ]
}

@test "what README.md says of the bits of adamw5_3_qm is what analyze counts" {
    "${QUALM:-./qualm}" analyze -q experiments/data/{gpt_austen,digits_cnn,cancer_tabular}.h5 \
        --json -R adamw4_lpmm,adamw5_3_qm,adamw5_3_qm,exp_avg.norm=block:128 \
        >"$BATS_TEST_TMPDIR/bits.json"
    /usr/bin/python3 - "$BATS_TEST_TMPDIR/bits.json" <<'P'
import json, statistics, sys
found = {}
for row in json.load(open(sys.argv[1]))["rows"]:
    if row["n"] > 4096:  # the matrices of experiments/suites/adamw_qm.yaml
        found.setdefault(row["tensor"], {})[row["recipe"]] = (row["bits"], row["sqnr"])
of = {name: [matrix[name] for matrix in found.values()] for name in next(iter(found.values()))}
base, own, block = (of[name] for name in sorted(of, key=len))

def signed(pairs, k):
    return [a[k] - b[k] for a, b in zip(pairs, base)]

def said(x):
    return f"{statistics.median(x):.1f} dB", f"[{min(x):.1f} to {max(x):.1f}]"

more, better, readme = signed(own, 0), signed(own, 1), " ".join(open("README.md").read().split())
want = [f"{said(better)[0]} better than `adamw4_lpmm` on {sum(x > 0 for x in better)} of "
        f"{len(own)} matrices {said(better)[1]}",
        f"more below: on {sum(x > 0 for x in more)} of these {len(more)}, "
        f"{statistics.median(more):.2f} in the median",
        f"exactly as many bits, and {' '.join(said(signed(block, 1)))}"]
assert signed(block, 0) == [0] * len(own), signed(block, 0)
assert all(text in readme for text in want), want
P
}
