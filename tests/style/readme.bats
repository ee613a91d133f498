#!/usr/bin/env bats
# readme.bats - Pastes the commands of README.md, and holds it to its length.
# Run it from the root of the repository.

@test "README.md has at most 180 lines" {
    [ "$(wc -l <README.md)" -le 180 ]
}

@test "every ./qualm command of README.md does what it says" {
    run /usr/bin/python3 tests/style/run_readme.py README.md
    echo "$output"
    [ "$status" -eq 0 ]
}
