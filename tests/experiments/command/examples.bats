#!/usr/bin/env bats
# examples.bats - Tests the examples of every --help: whether a shell takes them as they stand.

load ../../support/cli_common

# examples_of HELP: prints what is wrong with the lines below its "Examples:": each one is a command
# with its comment behind "  # ", a comment, or continues one that ends in a backslash
examples_of() {
    "$PYTHON" - "$1" <<'P'
import re, sys
begin = re.compile(r"  (qualm |mpirun |source |[A-Z_]+=\S+ qualm |qualm$)")
inside = went_on = False
n = 0
for line in sys.argv[1].splitlines():
    if line == "Examples:":
        inside = True
    elif inside and not line.startswith("  "):
        inside = went_on = False
        if n and re.match(r"\S+$|[a-z0-9, ]+$", line):
            print("wrapped:", line)
    elif inside:
        n += 1
        command = line.split("  # ")[0] if not line.startswith("  # ") else ""
        if command and not begin.match(line) and not (went_on and line.startswith("    ")):
            print("no command:", line)
        if "  " in command.strip():
            print("a comment without #:", line)
        if len(line) > 78:
            print("long:", line)
        went_on = line.endswith("\\")
if not n:
    print("no example")
P
}

@test "examples of every --help can be pasted: no line is wrapped, a comment begins with #" {
    for c in "" $("$QUALM" list commands --names); do
        # shellcheck disable=SC2086
        run examples_of "$("$QUALM" $c --help)"
        [ -z "$output" ] || { echo "$c: $output"; false; }
    done
    for bad in $'  qualm list variants   what there is' $'  qualm check --junit\nout.xml' \
        $'  check x'; do
        [ -n "$(examples_of $'Examples:\n'"$bad")" ]
    done
}

@test "no line of a --help is blank but for spaces" {
    for c in "" $("$QUALM" list commands --names); do
        # shellcheck disable=SC2086
        ! "$QUALM" $c --help | grep -n ' $' || { echo "$c"; return 1; }
    done
}
