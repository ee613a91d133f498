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
    local t=$BATS_TEST_TMPDIR file text found=0
    links() { (cd "$t" && "$PYTHON" "$ROOT/tests/style/check_links.py"); }
    mkdir -p "$t"/core/folder
    echo 'int qm_there; char spare; char *s = "QM_THERE";' |
        tee "$t/core/planted.h" >"$t/core/planted_b.h"
    echo '/* qm_there, QM_THERE */' >"$t/core/planted_c.c"
    printf '%s\n' '# The head' '[a](README.md "the text") [b](#the-head) [c](https://a.b/c)' \
        '[d][e] `qm_there(x)` `planted.h` core/{planted,planted_b}.h' '[e]: core/planted.h' \
        '| `core/folder/` | b |' >"$t/README.md"
    echo '# Head' >"$t/core/README.md"
    links
    while IFS='|' read -r file text; do
        found=$((found + 1))
        cp "$t/README.md" "$t/kept"
        printf '\n%b\n' "${text//GONE/spare}" >>"$t/$file"
        run links
        echo "$file: $text: $output"
        [ "$status" -eq 1 ]
        [[ $output == *"$file:"*spare*"1 missing"* ]]
        rm "$t/$file"
        mv "$t/kept" "$t/README.md"
    done <<'LIST'
core/planted.c|/* As results/GONE.md says. */
core/planted.c|/* As tests/GONE.bash says. */
core/planted.c|/* As tests/GONE.h5 says. */
core/planted.c|/* As core/README.md#GONE says. */
core/planted.c|/* As core/{planted,GONE}.h says. */
core/planted.c|/* As qm_spare does. */
core/planted.js|// As core/GONE.c says.
core/planted.txt|# As core/GONE.c says.
Makefile|# As core/GONE.c says.
results.md|See `qm_GONE`.
README.md|See `qm_GONE(x)`.
README.md|See `QM_GONE(X)`.
README.md|See `struct qm_GONE`.
README.md|See `GONE.yaml`.
README.md|See `GONE.c`.
README.md|| `GONE/` | b |
README.md|[x](GONE.md)
README.md|[x](GONE.md "the text")
README.md|[x](#GONE)
README.md|[x]: GONE.md
README.md|<img src="GONE.svg">
LIST
    [ "$found" -eq 21 ]
}
