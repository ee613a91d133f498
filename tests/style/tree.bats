#!/usr/bin/env bats
# tree.bats - The tree keeps its own rules: layers, one meaning per name, sizes, layout, texts.
load ../support/cli_common

setup() {
    cd "$ROOT"
    BUILD=${BUILD:-build/gcc}
    export PYTHONDONTWRITEBYTECODE=1
}

@test "link symbols between folders go one way" {
    run "$PYTHON" tests/style/check_layers.py "$BUILD"
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "a planted cycle of folders is named with its symbols" {
    mkdir -p "$BATS_TEST_TMPDIR/b/low" "$BATS_TEST_TMPDIR/b/high"
    echo 'int high(void); int low(void) { return high(); }' >"$BATS_TEST_TMPDIR/low.c"
    echo 'int low(void); int high(void) { return low(); }' >"$BATS_TEST_TMPDIR/high.c"
    for part in low high; do
        cc -c "$BATS_TEST_TMPDIR/$part.c" -o "$BATS_TEST_TMPDIR/b/$part/$part.o"
    done
    run "$PYTHON" tests/style/check_layers.py "$BATS_TEST_TMPDIR/b"
    [ "$status" -eq 1 ]
    [[ $output == *"cycle: low -> high"*"low/low -> high/high: high"* ]]
}

@test "an oracle that calls the core is named" {
    mkdir -p "$BATS_TEST_TMPDIR/b/oracle/rule" "$BATS_TEST_TMPDIR/b/core/rule"
    echo 'int rule(void); int oracle(void) { return rule(); }' >"$BATS_TEST_TMPDIR/o.c"
    echo 'int rule(void) { return 0; }' >"$BATS_TEST_TMPDIR/r.c"
    cc -c "$BATS_TEST_TMPDIR/o.c" -o "$BATS_TEST_TMPDIR/b/oracle/rule/o.o"
    cc -c "$BATS_TEST_TMPDIR/r.c" -o "$BATS_TEST_TMPDIR/b/core/rule/r.o"
    run "$PYTHON" tests/style/check_layers.py "$BATS_TEST_TMPDIR/b"
    [ "$status" -eq 1 ]
    [[ $output == *"symbol goes up: oracle/rule/o -> core/rule/r: rule"* ]]
}

@test "all public headers compile in one translation unit" {
    run make check-headers BUILD="$BUILD"
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "lines, functions, lists of parameters and files keep the limits" {
    run "$PYTHON" tests/style/check_style.py
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "each limit of the style is noticed when it is broken" {
    local f=$BATS_TEST_TMPDIR/long.c
    {
        echo '/* long.c - Breaks every limit. */'
        echo 'int many(int a, int b, int c, int d, int e, int f, int g, int h, int i)'
        echo '{'
        for _ in $(seq 90); do echo '    a++;'; done
        echo '    return a + b + c + d + e + f + g + h + i;'
        echo '}'
        printf '/* %0120d */\n' 0
        for i in $(seq 600); do echo "extern int x$i;"; done
    } >"$f"
    run "$PYTHON" tests/style/check_style.py "$f"
    [ "$status" -eq 1 ]
    [[ $output == *"many has 93 lines"* ]]
    [[ $output == *"many has 9 parameters"* ]]
    [[ $output == *"columns, at most 100"* ]]
    [[ $output == *"lines, at most 600"* ]]
    echo 'int x;' >"$f"
    run "$PYTHON" tests/style/check_style.py "$f"
    [[ $output == *'expected "/* long.c - Purpose'* ]]
}

@test "the sources are laid out as clang-format 14 lays them out" {
    command -v clang-format >/dev/null || skip "no clang-format (Debian's package clang-format)"
    clang-format --version | grep -q 'version 14' ||
        skip "clang-format is not version 14, Debian 12's"
    run make check-format
    echo "${output: -2000}"
    [ "$status" -eq 0 ]
}

@test "every folder of code stands in a README above it" {
    local folder found=0
    for folder in core/*/ oracle/*/ experiments/*/ variants/*/ plots/*/ tests/*/; do
        [ -d "$folder" ] && [ "${folder%__pycache__/}" = "$folder" ] || continue
        found=$((found + 1))
        grep -q "$(basename "$folder")/" "$(dirname "$folder")/README.md" ||
            { echo "$folder is not in $(dirname "$folder")/README.md"; return 1; }
    done
    [ "$found" -gt 40 ]
}

@test "links between texts lead to files that are there" {
    run "$PYTHON" tests/style/check_links.py
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "a change names the tests that it can affect" {
    run "$PYTHON" tests/style/affected_tests.py "$BUILD" core/quant/search.h
    [ "$status" -eq 0 ]
    [[ $output == *"$BUILD/tests/core/quant/test_search"* ]]
    [[ $output != *test_sha256* ]]
    run "$PYTHON" tests/style/affected_tests.py "$BUILD" sha256
    [[ $output == *"$BUILD/tests/core/base/test_sha256"* ]]
    run "$PYTHON" tests/style/affected_tests.py --linked "$BUILD" core/base/status
    [ "$(printf '%s\n' "$output" | grep -c test_)" -gt 40 ]
    run "$PYTHON" tests/style/affected_tests.py "$BUILD" no/such/file
    [ "$status" -eq 1 ]
    [[ $output == "no file has 'no/such/file' in its path" ]]
}
