#!/usr/bin/env bats
# readme.bats - Pastes the commands of README.md and of the text on kernels; README.md's limit.
# Run it from the root of the repository.

@test "README.md has at most 180 lines" {
    [ "$(wc -l <README.md)" -le 180 ]
}

@test "every ./qualm command of README.md does what it says" {
    run /usr/bin/python3 tests/style/run_readme.py README.md
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "every ./qualm command of experiments/kernel/README.md does what it says" {
    run /usr/bin/python3 tests/style/run_readme.py experiments/kernel/README.md
    echo "$output"
    [ "$status" -eq 0 ]
}

# counts FILE...: "EQUAL NEAR SKIPPED" of their cases
counts() {
    "${QUALM:-./qualm}" conform "$@" 2>/dev/null |
        sed -nE 's/^([0-9]+) EQUAL, ([0-9]+) NEAR, 0 DIFFERS, ([0-9]+) skipped.*/\1 \2 \3/p'
}

@test "the counts of recorded cases in the texts are those of conform" {
    local all apart rows
    all=$(counts tests/golden/*.h5)
    apart=$(counts tests/golden/dtypes.h5 tests/golden/philox.h5) # they are of no system
    read -r equal near skipped <<<"$all"
    grep -qF "| $equal equal, $near near, 0 differ, $skipped skipped |" README.md
    grep -qF "| $equal equal, $near within a tolerance, 0 differ, $skipped skipped:" \
        experiments/check/README.md
    rows=$(sed -nE 's/.*\| ([0-9]+) \/ ([0-9]+) \/ ([0-9]+) \|.*/\1 \2/p' README.md |
        awk '{ equal += $1; near += $2 } END { print equal, near }')
    echo "rows $rows, of no system $apart, all $all"
    [ "$rows" = "$((equal - ${apart%% *})) $near" ]
}
