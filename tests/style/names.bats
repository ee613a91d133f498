#!/usr/bin/env bats
# names.bats - Headers and link symbols: guards, one meaning per name, prefixes, callers.
load ../support/cli_common

setup() {
    cd "$ROOT"
    BUILD=${BUILD:-build/gcc}
    export PYTHONDONTWRITEBYTECODE=1
}

# object TREE FILE FLAGS...: compiles TREE/FILE.c into TREE/b, with its .d file, as make does
object() {
    mkdir -p "$1/b/$(dirname "$2")"
    (cd "$1" && cc -I. -MMD -MP "${@:3}" -c "$2.c" -o "b/$2.o")
}

# layers TREE: what check_layers.py says of a tree of its own
layers() { (cd "$1" && "$PYTHON" "$ROOT/tests/style/check_layers.py" "${@:2}" b); }

@test "a link symbol without the prefix of the project is named" {
    local t=$BATS_TEST_TMPDIR
    mkdir -p "$t/core/low"
    echo 'int qm_low(void) { return 0; } int planted(void) { return 1; } int main(void) {}
          int __planted(void) { return 2; }' >"$t/core/low/low.c"
    object "$t" core/low/low
    run layers "$t" --prefix
    echo "$output"
    [ "$status" -eq 1 ]
    [ "$(grep 'no prefix' <<<"$output")" = "no prefix qm_: core/low/low defines __planted
no prefix qm_: core/low/low defines planted" ]
    command -v c++ >/dev/null || skip "the symbols of C++: no C++ compiler"
    echo 'int qm_high() { return 0; } static int f() { return 1; } int planted(int) { return f(); }
        inline int cached() { static int last; return ++last; } int (*qm_hook)() = cached;
        __attribute__((weak)) int weak() { return 1; }
        inline int kept = 3; int *qm_use() { return &kept; }' >"$t/core/low/planted.cpp"
    run layers "$t" --prefix
    echo "$output"
    for symbol in planted cached weak kept; do
        [[ $output == *"no prefix qm_: core/low/planted.cpp defines $symbol"* ]]
    done
    [[ $output == *", 6 errors" ]]
}

@test "all public headers compile in one translation unit" {
    run make check-headers BUILD="$BUILD"
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "two headers of one guard, no guard and a tag of two meanings are named" {
    local t=$BATS_TEST_TMPDIR one=core/rule two=oracle/rule
    mkdir -p "$t"/{core/rule,oracle/rule}
    refused() { # refused TEXT: the tree's check fails, and says TEXT
        run bash -c "cd '$t' && '$PYTHON' '$ROOT/tests/style/check_headers.py'"
        echo "expected $1: $output"
        [ "$status" -eq 1 ]
        [[ $output == *"$1"* ]]
    }
    header() { # header FILE GUARD TAG [MORE]
        printf '/* a.h - A. */\n%b\nenum %s { QM_A };\n%s#endif\n' "$2" "$3" "${4-}" >"$t/$1"
    }
    header $one/a.h '#ifndef QM_RULE_A_H\n#define QM_RULE_A_H' qm_a
    header $two/a.h '#ifndef QM_ORACLE_RULE_A_H\n#define QM_ORACLE_RULE_A_H' qm_oracle_a
    (cd "$t" && "$PYTHON" "$ROOT/tests/style/check_headers.py")
    header $two/a.h '#ifndef QM_ORACLE_RULE_A_H\n#define QM_ORACLE_RULE_A_H' qm_a
    refused "$two/a.h:1: enum qm_a is defined in $one/a.h too"
    header $two/a.h '#ifndef QM_RULE_A_H\n#define QM_RULE_A_H' qm_oracle_a
    refused "$two/a.h:1: guard QM_RULE_A_H is that of $one/a.h too"
    header $two/a.h '#if !defined(QM_RULE_A_H)\n#define QM_RULE_A_H' qm_oracle_a
    refused "$two/a.h:1: no guard"
    header $two/a.h '# ifndef QM_RULE_A_H\n#define QM_RULE_A_H' qm_oracle_a
    refused "$two/a.h:1: no guard"
    header $two/a.h '#ifndef QM_RULE_A_H\n#define QM_RULE_B_H' qm_oracle_a
    refused "$two/a.h:1: no guard"
    header $two/a.h '#ifndef QM_RULE_B_H\n#define QM_RULE_B_H' qm_oracle_a
    refused "$two/a.h:1: the guard is QM_RULE_B_H"
    printf 'int a;\n' >"$t/$two/a.h"
    refused "$two/a.h:1: no guard"
    local guard='#ifndef QM_ORACLE_RULE_A_H\n#define QM_ORACLE_RULE_A_H' line
    for line in 'tag spare:struct spare { int x; };' 'macro MOST:#define MOST 3' \
        'function half:static inline int half(int x) { return x / 2; }' \
        'enumerator DEEP:enum { QM_B, DEEP = 3 };' 'tag spare:struct spare;' \
        'tag spare:struct __attribute__((aligned(64))) spare { int x; };' \
        'tag spare:static const struct spare { int x; } qm_rows[] = {{1}};' \
        'function half:static __attribute__((unused)) inline int half(int x) { return x; }' \
        'function half:__attribute__((unused)) static int half(int x) { return x; }' \
        'function half:QM_INLINED int half(int x) { return x; }' 'function half:int half(int);' \
        'type half:typedef int (*half)(int);' 'variable half:extern const int half[2];' \
        $'enumerator DEEP_:enum qm_deep {\n#define X(name) DEEP_##name,\n};' \
        $'enumerator DEEP:#define QM_L(X) X(DEEP)\nenum qm_b {\n#define X(name) name,\nQM_L(X)\n};' \
        $'function half:#define QM_HALF(f) static int f(int x) { return x; }\nQM_HALF(half)' \
        'variable half:extern const int half, qm_b;' 'tag spare:struct spare *qm_b(int);'; do
        header $two/a.h "$guard" qm_oracle_a "${line#*:}"$'\n'
        refused "$two/a.h:1: ${line%%:*} of a header has no prefix qm_ or QM_"
    done
    header $two/a.h "$guard" qm_oracle_a $'typedef float qm_oracle_a;\n'
    refused "$two/a.h:1: type qm_oracle_a is defined in $two/a.h too"
    header $two/a.h "$guard\n#endif\n#if 1" qm_oracle_a
    refused "$two/a.h:1: the guard ends before #if 1"
    header $two/a.h "$guard" qm_oracle_a $'#define ROW 3\n#undef ROW\nstatic inline int qm_b(void)
        {\n enum { PIECE = 4 };\n struct pair { int x; } p = {1};\n return p.x;\n}\n'
    (cd "$t" && "$PYTHON" "$ROOT/tests/style/check_headers.py")
    for line in 'struct qm_other qm_a' 'struct { int x; } qm_a' 'int (*qm_a)(int)'; do
        header $two/a.h "$guard" qm_oracle_a "typedef $line;"$'\n'
        refused "$two/a.h:1: type qm_a is defined in $one/a.h too"
    done
    header $two/a.h "$guard" qm_oracle_a
    echo 'static const struct qm_a { int x; } rows[] = {{1}};' >"$t/$two/b.c"
    refused "$two/b.c:1: struct qm_a is defined in $one/a.h too"
    for line in 'typedef int qm_a;' 'typedef struct { int x; } qm_a;' 'typedef int (*qm_a)(int);' \
        'typedef struct qm_other qm_a;'; do
        echo "$line" >"$t/$two/b.c"
        refused "$two/b.c:1: type qm_a is defined in $one/a.h too"
    done
    rm "$t/$two/b.c"
    for line in 'enum class qm_a : int {' 'enum qm_a : unsigned char {' 'class qm_a {' \
        'struct qm_a final : qm_other {' 'enum struct qm_a {'; do
        echo "$line X };" >"$t/$two/b.cpp"
        refused "$two/b.cpp:1: ${line%% qm_a*} qm_a is defined in $one/a.h too"
    done
}

@test "a header that compiles only behind others is named" {
    local t=$BATS_TEST_TMPDIR
    mkdir -p "$t/core/base"
    echo 'typedef unsigned qm_word;' >"$t/core/base/planted_a.h"
    printf '#include "core/base/planted_a.h"\nqm_word qm_one(void);\n' >"$t/core/base/planted_b.h"
    alone() { (cd "$t" && "$PYTHON" "$ROOT/tests/style/check_headers.py" --alone cc -I. -std=c11); }
    alone
    echo 'qm_word qm_one(void);' >"$t/core/base/planted_b.h"
    run alone
    echo "$output"
    [ "$status" -eq 1 ]
    [[ $output == "core/base/planted_b.h:1: does not compile alone"*qm_word* ]]
}

@test "every function of the project has a caller" {
    run "$PYTHON" tests/style/check_callers.py "$BUILD"
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "a function that nobody calls, or its own file alone, is named" {
    local t=$BATS_TEST_TMPDIR text
    mkdir -p "$t/core/low" "$t/tests/core/low"
    callers() { (cd "$t" && "$PYTHON" "$ROOT/tests/style/check_callers.py" "$@" b); }
    echo 'int qm_low(void);' >"$t/core/low/planted.h"
    printf '%s\n' '#include "core/low/planted.h"' 'int qm_low(void) { return 0; } /* qm_low */' \
        >"$t/core/low/planted.c"
    object "$t" core/low/planted
    run callers
    echo "$output"
    [ "$status" -eq 1 ]
    [[ $output == "core/low/planted.c: nobody calls qm_low"* ]]
    echo 'int x(void) { return qm_low(); }' >"$t/tests/core/low/planted.c"
    callers
    rm "$t/tests/core/low/planted.c"
    printf '%s\n' '#include "core/low/planted.h"' 'int qm_high(void) { return qm_low(); }' \
        'int main(void) { return qm_high(); }' >"$t/core/low/planted_b.c"
    object "$t" core/low/planted_b
    run callers
    [ "$status" -eq 1 ]
    [[ $output == "core/low/planted_b.c alone calls qm_high, which should be static"* ]]
    sed -i 's/int qm_high/static int high/; s/qm_high/high/' "$t/core/low/planted_b.c"
    object "$t" core/low/planted_b
    callers
}
