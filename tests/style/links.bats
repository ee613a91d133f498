#!/usr/bin/env bats
# links.bats - Names of files, folders, headings and identifiers in texts and comments are there.
load ../support/cli_common

setup() {
    cd "$ROOT"
    export PYTHONDONTWRITEBYTECODE=1
}

@test "links between texts lead to files that are there" {
    run "$PYTHON" tests/style/check_links.py
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "a name of what is not there is noticed in every form" {
    local t=$BATS_TEST_TMPDIR/tree file text found=0
    links() { (cd "$t" && "$PYTHON" "$ROOT/tests/style/check_links.py"); }
    mkdir -p "$t"/core/folder
    echo 'int qm_there; char spare; char *s = "QM_THERE";' |
        tee "$t/core/planted.h" >"$t/core/planted_b.h"
    echo '/* qm_there, QM_THERE; as x[a][b], qm_there() and time() do */ long t = time(0);' >"$t/core/planted_c.c"
    printf '%s\n' '# The head' '[a](README.md "the text") [b](#the-head) [c]( https://a.b/c)' \
        '`x[a][b]` [e][] <img src='"'core/planted.h'"'>' \
        '[d][e] `qm_there(x)` `planted.h` core/{planted,planted_b}.h' '[e]: core/planted.h' \
        '| `core/folder/` | b |' >"$t/README.md"
    echo '# Head' >"$t/core/README.md"
    links
    while IFS='|' read -r file text; do
        found=$((found + 1))
        rm -rf "$BATS_TEST_TMPDIR/kept"
        cp -r "$t" "$BATS_TEST_TMPDIR/kept"
        printf '\n%b\n' "${text//NAME/spare}" >>"$t/$file"
        run links
        echo "$file: $text: $output"
        [ "$status" -eq 1 ]
        [[ $output == *"$file:"*spare*"1 missing"* ]]
        rm -r "$t"
        mv "$BATS_TEST_TMPDIR/kept" "$t"
    done <<'LIST'
core/planted.c|/* As results/NAME.md says. */
core/planted.c|/* As tests/NAME.bash says. */
core/planted.c|/* As tests/NAME.h5 says. */
core/planted.c|/* As core/README.md#NAME says. */
core/planted.c|/* As core/{planted,NAME}.h says. */
core/planted.c|/* As qm_spare does. */
core/planted.js|// As core/NAME.c says.
core/planted.txt|# As core/NAME.c says.
Makefile|# As core/NAME.c says.
results.md|See `qm_NAME`.
README.md|See `qm_NAME(x)`.
README.md|See `QM_NAME(X)`.
README.md|See `struct qm_NAME`.
README.md|See `NAME.yaml`.
README.md|See `NAME.c`.
README.md|| `NAME/` | b |
README.md|| `core/`, `NAME/` | b |
README.md|See `NAME.json`.
README.md|See `NAME.svg`.
core/README.md|See `../NAME.h`.
core/planted.c|/* As ../core/NAME.h says. */
core/planted.c|int x = '"'; /* As qm_spare says "yes". */
core/planted.yml|# As core/NAME.c says.
README.md|[x](NAME.md)
README.md|[x](NAME.md "the text")
README.md|[x](#NAME)
README.md|[x]: NAME.md
README.md|<img src="NAME.svg">
README.md|<img src='NAME.svg'>
README.md|[x]( NAME.md)
README.md|[x][NAME]
README.md|[NAME][]
core/planted.c|/* As NAME_of() does. */
core/planted.h|// Returns what NAME_of() returns.
LIST
    [ "$found" -eq 34 ]
}
