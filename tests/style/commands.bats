#!/usr/bin/env bats
# commands.bats - Commands, options and targets of make that the texts name exist, and the check
# of it finds those that do not; no text has blanks at the end of a line.

load ../support/cli_common

check() { QUALM=$QUALM "$PYTHON" "$ROOT/tests/style/check_commands.py" "$@"; }

@test "every command, option and target of make that a text names exists" {
    cd "$ROOT"
    run check
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "the check of commands, options and targets finds one that does not exist" {
    cd "$ROOT"
    local text=$BATS_TEST_TMPDIR/a.md line
    for line in '`qualm frobnicate x`' '    ./qualm run x.yaml --nothing' '`make nothing`' \
        '`cd x && ./qualm check --quik`' '    make test nothing ONLY=quant'; do
        printf '%s\n' "$line" >"$text"
        run check "$text"
        [ "$status" -eq 1 ]
        [[ $output == *"a.md:1: "*"1 unknown" ]]
    done
    printf '%s\n' '`qualm run x.yaml --json | sort --nothing`' '`make test ONLY="a b"`' \
        '    make build/x/y && ./qualm list axes' 'a qualm nothing' >"$text"
    check "$text"
}

@test "no text and no script has a blank at the end of a line, or a tab" {
    cd "$ROOT"
    ! grep -rnP '[ \t]$|\t' --include=*.md --include=*.py --include=*.bats --include=*.bash \
        README.md core oracle variants experiments plots results tests || return 1
}
