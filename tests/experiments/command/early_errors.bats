#!/usr/bin/env bats
# early_errors.bats - Errors before a command runs and of its words with --json; a full stdout.
load ../../support/cli_common

@test "with --json every error is JSON on stdout, those before a command runs and of usage too" {
    local words
    for words in "4|nosuch -j" "4|help nosuch -j" "2|-x --json" "2|show a b -j" "2|show -j" \
        "2|run --nosuch --json" "2|plot -j" "4|show nosuch -j"; do
        run "-${words%%|*}" --separate-stderr "$QUALM" ${words#*|}
        "$PYTHON" -c 'import json, sys; d = json.loads(sys.argv[1])
assert list(d) == ["code", "error"] or list(d) == ["error", "code"], d
assert d["code"] == int(sys.argv[2]) and d["error"] in sys.argv[3], d' \
            "$output" "${words%%|*}" "$stderr"
    done
    run -2 --separate-stderr "$QUALM" show a b
    [ -z "$output" ]
    fails_with 2 "in quotes: qualm show 'same rate'" show same rate
    "$QUALM" show "robust standard deviation" | grep -q 1.4826
}

@test "a full disk behind stdout is named by every command that writes there" {
    local words
    for words in "list" "gen adamw4_ao --quick --out -" "list variants -j"; do
        run -3 bash -c '"$0" "$@" 2>&1 >/dev/full' "$QUALM" $words
        [[ $output == *"cannot write to stdout: No space left on device" ]]
    done
}
