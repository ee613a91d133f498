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

# object TREE FILE FLAGS...: compiles TREE/FILE.c into TREE/b, with its .d file, as make does
object() {
    mkdir -p "$1/b/$(dirname "$2")"
    (cd "$1" && cc -I. -MMD -MP "${@:3}" -c "$2.c" -o "b/$2.o")
}

# layers TREE: what check_layers.py says of a tree of its own
layers() { (cd "$1" && "$PYTHON" "$ROOT/tests/style/check_layers.py" "${@:2}" b); }

@test "a planted cycle of folders is named with its symbols, and no edge outside it" {
    local t=$BATS_TEST_TMPDIR
    mkdir -p "$t"/core/{low,high,data,top}
    echo 'int high(void); int low(void) { return high() + high(); }' >"$t/core/low/low.c"
    echo 'int low(void); int high(void) { return low(); } int more(void) { return 1; }' \
        >"$t/core/high/high.c"
    echo 'extern const int data; int more(void); int high(void); int low(void);
          int top(void) { return data + more() + high() + low(); }' >"$t/core/top/top.c"
    echo 'const int data = 3;' >"$t/core/data/data.c"
    for part in low high data top; do object "$t" "core/$part/$part"; done
    run layers "$t" --graph
    echo "$output"
    [ "$status" -eq 1 ]
    [[ $output == *"  core/low -> core/high, 1"*"core/low/low -> core/high/high: high"* ]]
    [ "$(grep -c '^cycle of 2 folders' <<<"$output")" -eq 1 ] # one cycle is one error
    [ "$(grep -c '^  core/' <<<"$output")" -eq 2 ]
    [[ $output == *"1 errors" ]]
    for part in low high data top; do grep -q "^core/$part: " <<<"$output"; done
    grep -qx 'core/data: nothing' <<<"$output"
    # A weak reference is a reference; the object of a source that is gone is none.
    echo '__attribute__((weak)) int high(void); int low(void) { return high ? high() : 0; }' \
        >"$t/core/low/low.c"
    object "$t" core/low/low
    run layers "$t"
    [[ $output == *"cycle of 2 folders"*"  core/low -> core/high"* ]]
    rm "$t/core/low/low.c"
    run layers "$t"
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "a cycle of headers is noticed in every part of the tree" {
    local t top
    for top in core oracle experiments variants; do
        t=$BATS_TEST_TMPDIR/$top
        mkdir -p "$t/$top"/{codebook,theory}
        for part in codebook theory; do echo "int $part(void);" >"$t/$top/$part/$part.h"; done
        printf '#include "%s"\nint a(void) { return 1; }\n' "$top/theory/theory.h" \
            >"$t/$top/codebook/a.c"
        printf '#include "%s"\nint b(void) { return 1; }\n' "$top/codebook/codebook.h" \
            >"$t/$top/theory/b.c"
        object "$t" $top/codebook/a
        object "$t" $top/theory/b
        run layers "$t"
        echo "$output"
        [ "$status" -eq 1 ]
        [[ $output == *"cycle of 2 folders"*"reads $top/theory/theory.h"* ]]
    done
}

@test "the graph has every folder of sources" {
    run "$PYTHON" tests/style/check_layers.py --graph "$BUILD"
    local folder found=0
    for folder in $(find core oracle variants experiments -name '*.[ch]' -exec dirname {} + |
        sort -u); do
        found=$((found + 1))
        grep -q "^$folder: " <<<"$output" || { echo "$folder is not in the graph"; return 1; }
    done
    [ "$found" -gt 40 ]
}

@test "an oracle that calls the core is named" {
    local t=$BATS_TEST_TMPDIR
    mkdir -p "$t/oracle/rule" "$t/core/rule"
    echo 'int rule(void); int oracle(void) { return rule(); }' >"$t/oracle/rule/o.c"
    echo 'int rule(void) { return 0; }' >"$t/core/rule/r.c"
    object "$t" oracle/rule/o
    object "$t" core/rule/r
    run layers "$t"
    [ "$status" -eq 1 ]
    [[ $output == *"goes up: oracle/rule/o -> core/rule/r: rule"* ]]
    local metric=oracle/metric/m theory=oracle/theory/l drawn=tests/t
    mkdir -p "$t/oracle/metric" "$t/oracle/theory" "$t/tests"
    echo 'int metric(void);' | tee "$t/$metric.h" >"$t/$drawn.h"
    printf '#include "%s.h"\n' $metric >"$t/$theory.c"
    printf '#include "%s.h"\nint a(void) { return 0; }\n' $drawn >"$t/core/rule/r.c"
    object "$t" $theory
    object "$t" core/rule/r
    run layers "$t"
    echo "$output"
    [[ $output == *"goes up: $theory.c reads $metric.h"* ]]
    [[ $output == *"goes up: "core/rule/r".c reads $drawn.h"* ]]
}

# goes_up FILE TEXT HEADER: a source with this text is said to read the header
goes_up() {
    local t=$BATS_TEST_TMPDIR/tree
    rm -rf "$t"
    mkdir -p "$t"/{core/{base,rule,abi,cpu},oracle/{rule,bound,metric},experiments/cli} \
        "$t/variants/native"
    for h in core/base/order core/rule/sgdm oracle/oracle oracle/bound/bound experiments/cli/cli \
        core/cpu/plan; do
        echo "static inline int f(void) { return 1; }" >"$t/$h.h"
    done
    echo '#include "core/rule/sgdm.h"' >"$t/core/base/planted_through.h"
    mkdir -p "$t/$(dirname "$1")"
    printf '%b\n' "$2" >"$t/$1"
    [[ $1 != *.c || $1 == variants/native/* ]] || object "$t" "${1%.c}"
    run layers "$t"
    echo "$1: $2: $output"
    [ "$status" -eq 1 ]
    [[ $output == *"goes up: "*" reads $3"* ]]
}

@test "a header that goes up is named, however it is reached and spelled" {
    local o=oracle/rule/planted.c sgdm=core/rule/sgdm.h
    goes_up $o '#include "core/base/planted_through.h"\nint o(void) { return f(); }' $sgdm
    goes_up $o '#include <core/rule/sgdm.h>\nint o(void) { return f(); }' $sgdm
    goes_up $o '  #  include"core/rule/sgdm.h"\nint o(void) { return f(); }' $sgdm
    goes_up $o '#include "../../core/rule/sgdm.h"\nint o(void) { return f(); }' $sgdm
    goes_up $o '#include "./core/../core/rule/sgdm.h"\nint o(void) { return f(); }' $sgdm
    goes_up $o '/**/ #include /**/ "core/rule/sgdm.h"\nint o(void) { return f(); }' $sgdm
    goes_up $o '#inc\\\nlude "core/rule/sgdm.h"\nint o(void) { return f(); }' $sgdm
    goes_up $o '#define H "core/rule/sgdm.h"\n#include H\nint o(void) { return f(); }' $sgdm
    goes_up $o '%:include "core/rule/sgdm.h"\nint o(void) { return f(); }' $sgdm
    goes_up oracle/metric/planted.c '#include "oracle/bound/bound.h"\nint m(void) { return f(); }' \
        oracle/bound/bound.h
    goes_up core/base/planted.h '#include "core/rule/sgdm.h"' $sgdm
    goes_up core/cpu/planted.c '#include "experiments/cli/cli.h"\nint c(void) { return f(); }' \
        experiments/cli/cli.h
    goes_up core/cpu/planted.c '#include "oracle/oracle.h"\nint c(void) { return f(); }' \
        oracle/oracle.h
    goes_up core/cpu/planted.c '#if QM_A\n#include "oracle/oracle.h"\n#endif\nint c;' \
        oracle/oracle.h
    goes_up core/cpu/planted.hpp '#ifdef __CUDACC__\n#include "oracle/oracle.h"\n#endif' \
        oracle/oracle.h
    goes_up core/cpu/planted.cpp '#include "oracle/oracle.h"' oracle/oracle.h
    goes_up core/cpu/planted.hpp '#include "oracle/oracle.h"' oracle/oracle.h
    goes_up variants/native/planted.c '#include "core/rule/sgdm.h"' $sgdm
    goes_up variants/native/planted.cu '#include "core/base/order.h"' core/base/order.h
}

@test "folders of experiments include each other's headers one way" {
    local t=$BATS_TEST_TMPDIR
    mkdir -p "$t"/experiments/{low,high}
    echo '#include "experiments/high/planted.h"' >"$t/experiments/low/planted.h"
    echo 'enum { H };' >"$t/experiments/high/planted.h"
    echo '#include "experiments/low/planted.h"' >"$t/experiments/high/planted.c"
    object "$t" experiments/high/planted
    run layers "$t"
    [ "$status" -eq 1 ]
    [[ $output == *"experiments/low -> experiments/high"*"/planted.h reads "*"high/planted.h"* ]]
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
    # A prototype above a definition is none of its parameters.
    printf '%s\n' '/* long.c - Has a prototype. */' 'static int f(int a, int b, int c, int d,' \
        '             int e);' 'static int f(int a, int b, int c, int d, int e)' '{' \
        '    return a + b + c + d + e;' '}' >"$f"
    "$PYTHON" tests/style/check_style.py "$f"
}

@test "limits hold of every form of a line, a function and a list of parameters" {
    local t=$BATS_TEST_TMPDIR nine='int, int, int, int, int, int, int, int, int' form end
    # noticed FILE TEXT: the style's check says TEXT of FILE, whose text comes on stdin
    noticed() {
        cat >"$t/$1"
        run "$PYTHON" "$ROOT/tests/style/check_style.py" "$t/$1"
        echo "$1: $output"
        [ "$status" -eq 1 ] && [[ $output == *"$2"* ]]
    }
    body() { seq -f "$1" 85; }
    while IFS= read -r form; do
        printf '%s\n' '/* a.h - A. */' "$form" | noticed a.h "f has 9 parameters"
    done <<<"int f($nine);
        typedef int (*f)($nine);
        void f(const char *a, int, int, int, int, int, int, int, ...) __attribute__((nonnull(1)));
        struct qm_a { int (*f)($nine); };
        int qm_a(int (*f)($nine), int b);
        #define X(name) int f($nine);
        int qm_a(void) { extern int f($nine); return 0; }
        int (*f($nine))(int);
        int (*f)(qm_a *a, size_t, float x[3], int (*b)(int, int), int, int, int, int, int a) = 0;
        int f(const float *x /* [n] */, int b, int, int, int, int, int, int, int);
        typedef int (*f)(long, short, int, int, int, int, int, int, qm_status);"
    printf '%s\n' '"""a.py - A."""' 'f = lambda a, b, c, d, e, f, g, h, i: 0' |
        noticed a.py "lambda has 9 parameters"
    for form in 'function f {' 'function f() {' $'f()\n{' 'f() {' 'f() { # A.' 'lib::f() {' \
        'f() { # one (with its twin)' 'f() { local a=${1}' $'f() {\ncat <<A\n}\nA'; do
        for end in '}' '} # f' '} | sort' '} >out' '  }'; do
            { printf '%s\n' '# a.sh - A.' "$form"; body '    echo %g'; echo "$end"; } |
                noticed a.sh "lines, at most 80"
        done
    done
    printf '%s\n' '# a.sh - A.' 'f() { echo; }' 'g() (cd x)' "$(body 'echo %g')" >"$t/a.sh"
    "$PYTHON" tests/style/check_style.py "$t/a.sh"
    { printf '%s\n' '/* a.c - A. */' '#define RUN(x) \' '    do { \'; body '    x += %g; \'
        echo '    } while (0)'; } | noticed a.c "RUN has 8"
    printf '/* a.c - A. */\nint qm_a;' | noticed a.c "a.c:2: no line's end"
    printf '%s\n' '/* a.c - A. */' '/* One  ' ' * two. */' | noticed a.c "a.c:2: blanks at the end"
    printf '%s\n' '.a {}' | noticed a.css 'expected "/* a.css - Purpose'
    { printf '%s\n' '/* a.c - A. */' '#define MAKE(name) \' 'int name(int x) { \'
        body '    x += %g; \'; printf '%s\n' '    return x; }' 'MAKE(f)'; } |
        noticed a.c "name has 8"
    printf '%s\n' '/* a.c - A. */' "int f(int x) {" "{ return x + $(seq -s ' + ' 40)" '; } }' |
        noticed a.c "columns, at most 100"
    printf '%s\n' '/* a.c - A. */' "void f(void) {" "    X($(seq -s ' + ' 40));" '}' |
        noticed a.c "columns, at most 100"
    printf '%s\n' '/* a.c - A. */' "$(printf '\t%.0s' {1..12})/* far */" |
        noticed a.c "columns, at most 100"
    printf '%s\n' '"""a.py - A."""' 'def f():' "    \"\"\"$(seq -s ' ' 40)\"\"\"" |
        noticed a.py "columns, at most 100"
    for form in "awk '\n/x/ {\n    n++\n}\n' a" "echo 'void f(void)\n{\n}\n' >a" 'echo "\n}\n"'; do
        { printf '%b\n' '# a.bats - A.' '@test "a" {' "    $form"; body '    echo %g'; echo '}'; } |
            noticed a.bats "lines, at most 80"
    done
    printf '%s\n' '# a.bats - A.' "# The kernel's$(printf %99s)twin's" |
        noticed a.bats "columns, at most 100"
    for form in 'template <int N = 4> struct x {' 'struct alignas(64) x {'; do
        { printf '%s\n' '/* a.hpp - A. */' "$form" 'void f() {'; body '    x += %g;'
            printf '}\n};\n'; } | noticed a.hpp ": f has 87 lines"
    done
    for form in 'auto f = [] {' 'static const auto f = [](int x) -> int {' 'auto f = [=]() mutable {'; do
        { printf '%s\n' '/* a.cpp - A. */' "$form"; body '    x += %g;'; echo '};'; } |
            noticed a.cpp ": f has 87 lines"
    done
    printf '%s\n' '#!/usr/bin/env bats' '# a.bats - A.' '@test "a" {' \
        "    echo $(seq -s ' ' 40) \\" '        a' '}' | noticed a.bats "columns, at most 100"
}

@test "no switch over rounds or searches has a default, so that the compiler names each" {
    run "$PYTHON" - <<'P'
import glob, re
for path in glob.glob("[ceo]*/**/*.[ch]", recursive=True):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    for m in re.finditer(r"switch \([^{]*\{(?:[^{}]|\{[^{}]*\})*\}", text):
        if re.search(r"case QM_(ROUND|SEARCH)_", m[0]) and "default:" in m[0]:
            print(path, text.count("\n", 0, m.start()) + 1)
P
    [ -z "$output" ] || { echo "$output"; return 1; }
}

@test "line 1 of a script names it, and Python functions keep the limits" {
    local t=$BATS_TEST_TMPDIR end mark
    for end in py sh bash bats; do
        mark='# '
        [ $end = py ] && mark='"""'
        printf '%s\n' '#!/usr/bin/env x' "${mark}a.$end - A."'"""' >"$t/a.$end"
        "$PYTHON" tests/style/check_style.py "$t/a.$end"
        printf '%s\n' '#!/usr/bin/env x' "${mark}b.$end - A."'"""' >"$t/a.$end"
        run "$PYTHON" tests/style/check_style.py "$t/a.$end"
        [ "$status" -eq 1 ]
        [[ $output == *"a.$end:2: line 1 is"*"expected \"${mark}a.$end - Purpose"* ]]
    done
    {
        echo '"""a.py - A."""'
        echo 'def many(a, b, c, d, *e, f=1, g=2, h=3, **i):'
        for _ in $(seq 80); do echo '    a += 1'; done
    } >"$t/a.py"
    run "$PYTHON" tests/style/check_style.py "$t/a.py"
    [[ $output == *"many has 81 lines"*"many has 9 parameters"* ]]
}

@test "a negation that could not fail a test is noticed" {
    local t=$BATS_TEST_TMPDIR line end
    for end in bats bash; do
        for line in '! true' 'cd x; ! true' '[ -f z ] && ! true' 'if a; then ! true' 'a) ! true' \
            '! true; ! false || return 1'; do
            printf '%s\n' "# a.$end - A." 'f() {' "    $line" '    true' '}' >"$t/a.$end"
            run "$PYTHON" tests/style/check_style.py "$t/a.$end"
            [ "$status" -eq 1 ]
            [[ $output == *"a.$end:3: '! ...' alone cannot fail a test"* ]]
            sed -i 's/! true/& || return 1/' "$t/a.$end"
            "$PYTHON" tests/style/check_style.py "$t/a.$end"
        done
    done
    printf '%s\n' '# a.bats - A.' 'for f in a b; do ! grep x $f || return 1; done' \
        '[ -f a ] || { ! grep x a || return 1; }' 'if a && ! grep x f; then skip; fi' >"$t/a.bats"
    "$PYTHON" tests/style/check_style.py "$t/a.bats"
}

@test "rows of tables, short methods and branches of the preprocessor break no limit" {
    local t=$BATS_TEST_TMPDIR row
    row="$(seq -f '"%g"' -s ', ' 30)"
    printf '%s\n' '"""a.py - A."""' 'A = [' "    ($row)," ']' "B = (" "    f\"${row//\"/}\"" ')' \
        >"$t/a.py"
    printf '%s\n' '/* b.hpp - B. */' '#define MANY(a, b, c, d, e, f, g, h, i) a b c d e f g h i' \
        'int x[] = {' "$(seq -f '    %g,' 90)" '};' >"$t/b.hpp"
    { printf '%s\n' '/* a.hpp - A. */' 'struct alignas(64) x {'
        seq -f '    int f%g() { return 1; }' 90; echo '};'; } >"$t/a.hpp"
    printf '%s\n' '/* a.c - A. */' 'void f(int a)' '{' '#ifdef A' '    if (a) {' '#else' \
        '    if (!a) {' '#endif' '        a++;' '    }' '}' >"$t/a.c"
    "$PYTHON" tests/style/check_style.py "$t"/{a.py,a.hpp,b.hpp,a.c}
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
    local folder row readme found=0
    for folder in $({
        find core oracle experiments variants plots -mindepth 1 -type d ! -name __pycache__
        find tests -mindepth 1 -maxdepth 1 -type d ! -name __pycache__ # whose folders mirror those
    }); do
        found=$((found + 1))
        row='^\|[^|]*\b' # but for plots/, whose text tells of its three folders
        [ "${folder%%/*}" != plots ] || row=
        readme=$(dirname "$folder")/README.md
        # A folder further down may stand in any text of the README of the folder above.
        [ -e "$readme" ] || { row= && readme=$(dirname "$(dirname "$folder")")/README.md; }
        grep -qE "$row$(basename "$folder")/" "$readme" ||
            { echo "$folder is not in $readme"; return 1; }
    done
    [ "$found" -gt 40 ]
}

@test "every folder of compiled code stands in the picture of the layers" {
    local folder texts
    texts=$(sed 's/<[^>]*>/ /g' core/pictures/layers.svg)
    while read -r folder; do
        [[ $texts =~ (^|[^a-z_])"$folder"([^a-z_]|$) ]] || { echo "no $folder"; false; }
    done < <(git ls-files 'core/*.c' 'oracle/*/*.c' 'experiments/*.c' 'variants/*.c' |
        sed 's|^variants/.*|variants|; s|/[^/]*$||; s|^experiments/||; s|.*core/||' | sort -u)
}

@test "every source file of core stands in core/README.md" {
    local f folder left=""
    for f in $(find core -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.cu'); do
        folder=$(dirname "$f")
        awk -v head="### $folder" '$0 == head { on = 1; next } /^##/ { on = 0 } on' core/README.md |
            grep -qF "\`$(basename "$f")\`" || left="$left $f"
    done
    [ -z "$left" ] || { echo "not in core/README.md:$left"; return 1; }
}

@test "no source lies further down than the Makefile looks" {
    [ -z "$(find core oracle variants experiments -mindepth 3 -name '*.c')" ]
}

@test "external libraries stay at the edges that experiments/README.md names" {
    local line header folders found=0
    while read header folders; do # a line ends with \ where it goes on
        for f in $(grep -lE "include [<\"]$header" -r core oracle experiments variants); do
            found=$((found + 1))
            [[ " $folders " == *" $(dirname "$f") "* || " $folders " == *" $f "* ||
                " $folders " == *" ${f%%/*} "* ]] ||
                { echo "$f includes $header"; return 1; }
        done
    done <<'LIST'
hdf5 experiments/store experiments/foreign experiments/command/doctor.c experiments/machine
zip.h experiments/readers experiments/store experiments/problems/gpt.c
jansson.h experiments
yaml.h experiments/suite experiments/recipes experiments/command/doctor.c
mpi.h experiments/campaign
gsl/ oracle/codebook oracle/rule oracle/theory experiments/check experiments/problems \
 experiments/protocol experiments/report experiments/run experiments/machine experiments/search \
 experiments/kernel experiments/bench experiments/gpu \
 experiments/command/doctor.c
LIST
    [ "$found" -gt 20 ]
}
@test "only commands and the files of their tables print" {
    local found bare='(^|[^a-z_])(perror|psignal|v?d?printf|puts|putchar)\('
    local tables="analyze/analysis_rows|mutants/report|protocol/protocol|report/against_counts"
    tables+="|report/figures|campaign/worker|store/array_file"
    found=$(grep -rnE "\bstderr\b.*\)|$bare|f(put[cs]|printf|write)\(.*stdout" \
        --include=*.[ch] --include=*.[ch]pp core oracle variants experiments |
        grep -vE "^experiments/((cli|command)/|($tables)\.c)" |
        grep -vE '^[^:]*:[0-9]*: *("|/?\*)') || true # lines of text are other programs' code
    [ -z "$found" ] || { echo "$found"; return 1; }
    for file in ${tables//|/ }; do # the exceptions are there still
        grep -qE "std(err|out)|[^a-z_](printf|puts|putchar)\(" "experiments/$file.c"
    done
}

@test "no source changes how its numbers are computed, but against contraction" {
    local found
    found=$(grep -rniE "(pragma|__attribute__).*(optimize|fast.?math|fp.contract|reassoc)" \
        --include=*.[ch] --include=*.[ch]pp --include=*.cu core oracle variants experiments)
    [ "$(grep -v '"fp-contract=off"' <<< "$found")" = "" ] || { echo "$found"; return 1; }
    [ "$(wc -l <<< "$found")" -eq 1 ] # the emulator's own
}

@test "every problem has its loss written a second time, or is named here with the reason" {
    # quad, nqm: closed forms in test_problems.c; ema has no loss; heavy, spike wrap another problem
    local name left=""
    for name in $(json_value '" ".join(p["name"] for p in d)' list problems); do
        [[ " quad nqm ema heavy spike " == *" $name "* ]] ||
            grep -q "\"$name[\":]" tests/experiments/problems/test_*_losses.c ||
            left="$left $name"
    done
    [ -z "$left" ] || { echo "no second loss:$left"; return 1; }
}

@test "a change names the tests that it can affect" {
    long 4
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

# changed FILE...: the tests that make test ONLY=changed runs where these files differ
changed() { "$PYTHON" tests/style/affected_tests.py "$BUILD" changed "$@" 2>&1; }

@test "ONLY=changed names every test that a file can affect" {
    long 4
    local every f test found
    every=$(find tests -name 'test_*.c' -o -name '*.bats' | wc -l)
    # What is gone, or steers the build, or nobody is known to use: all tests, and a line about it.
    for f in core/quant/gone".c" tests/support/gone".h" tests/run.sh Makefile; do
        found=$(changed $f)
        [ "$(wc -l <<<"$found")" -eq $((every + 1)) ]
        grep -q "^$f .*: every test is named" <<<"$found"
    done
    # Helpers of tests, by every file that names them, through files that name those.
    [ "$(changed tests/support/cli_common.bash | grep -c 'command/.*bats')" -gt 10 ]
    for f in $(drawn check_layers check_style affected_tests link_symbols); do
        changed tests/style/$f.py | grep -qx tests/style/tree.bats
    done
    for f in $(drawn experiments/data/*.*); do
        found=$(changed "$f")
        [ "$(grep -c . <<<"$found")" -gt 20 ]
        for test in $(grep -rlF "$(basename "$f")" tests \
            --include='test_*.c' --include='*.bats'); do
            test=${test%.c}
            grep -q "$test\$" <<<"$found" || { echo "$f: $test is not named"; return 1; }
        done
    done
    # What a program links, as source, as inline function, as embedded text.
    local -a rows=(
        "variants/torchao/adamw4_ao.c variants/test_variants"
        "core/base/half.h variants/test_variants"
        "core/rule/packed_blocks.h variants/test_variants"
        "core/quant/simd_group.h variants/test_variants"
        "core/device/step.cu core/device/test_step_kernels"
        "core/abi/kernel_abi.h core/user_kernel/test_user_kernel"
        "variants/native/adamw4_ao.c core/user_kernel/test_user_kernel"
    )
    while read -r f test; do
        found=$(changed $f)
        grep -qx "$BUILD/tests/$test" <<<"$found" || { echo "$f: no $test"; return 1; }
        grep -q '\.bats$' <<<"$found"
    done < <(drawn "${rows[@]}")
    # What it does not link, it does not name.
    [ ! -e "$BUILD/tests/core/base/test_sha256" ] ||
        ! changed variants/torchao/adamw4_ao.c | grep test_sha256 || return 1
}

@test "ONLY= that finds no test is no success" {
    for only in changed no/such/file; do
        run env BUILD="$BATS_TEST_TMPDIR/b" ONLY=$only bash -c "cd '$BATS_TEST_TMPDIR' &&
            mkdir -p tests/style && cp '$ROOT'/tests/style/*.py tests/style &&
            { [ -d .git ] || { echo b >.gitignore; git init -q . && git add -A &&
              git -c user.name=q -c user.email=q@q commit -qm all; }; } &&
            bash '$ROOT/tests/run.sh'"
        echo "$output"
        [ "$status" -eq 4 ]
        [[ $output != *passed* ]]
    done
}

@test "changed flags compile objects again, and a removed source leaves the library" {
    local b=$BATS_TEST_TMPDIR/b
    build() {
        make BUILD="$b" INSTALL=0 BY_ISA= "$b/libqm.a" "$@" >"$b.log" 2>&1 ||
            { cat "$b.log"; return 1; }
    }
    build ALL_SOURCES="core/base/status.c core/base/name.c"
    [ "$(ar t "$b/libqm.a" | sort | tr '\n' ' ')" = "name.o status.o " ]
    build ALL_SOURCES="core/base/status.c core/base/name.c"
    run ! grep -q '^CC' "$b.log"
    build ALL_SOURCES="core/base/status.c core/base/name.c" OPT=-O1
    [ "$(grep -c '^CC' "$b.log")" -eq 2 ]
    build ALL_SOURCES=core/base/status.c OPT=-O1
    run ! grep -q '^CC' "$b.log"
    [ "$(ar t "$b/libqm.a")" = status.o ]
    # The flags of one object (the commit in provenance.o) are not those of all.
    make BUILD="$b" INSTALL=0 "$b/experiments/machine/provenance.o" OPT=-O1 >/dev/null
    run ! grep -q QM_COMMIT "$b/gen/flags"
}

@test "numbers that C and Python both state are the same" {
    "$PYTHON" -c '
import re
def c(path, name):
    return float(re.search(rf"(?:#define {name}\s+|\b{name} = )([\w.+-]+)", open(path).read())[1])
def py(path, name):
    text = open(path).read()
    names, values = re.search(rf"^((?:\w+, )*{name}(?:, \w+)*) = ([^#\n]*)", text, re.M).groups()
    return float(values.split(", ")[names.split(", ").index(name)])
pairs = [(c("experiments/lockstep/lockstep.h", "QM_DIVERGED_GAP"),
          py("plots/report/curves.py", "LOST_GAP")),
         (c("experiments/foreign/h5_guard.h", "QM_H5_LINK_MAX"),
          py("plots/figures/common.py", "LINKS")),
         (c("experiments/protocol/stats.h", "QM_LEAST_PAIRS"),
          py("plots/report/forest.py", "LEAST_PAIRS"))]
assert all(a == b for a, b in pairs), pairs'
}

@test "every json_pack has the values that its format asks for, and one that has not is found" {
    /usr/bin/python3 tests/style/check_packs.py $(git ls-files '*.c')
    echo 'x = json_pack("{s:I, s:o}", "a", 1, "b", f(2, "c"), 3);' >"$BATS_TEST_TMPDIR/x.c"
    run -1 /usr/bin/python3 tests/style/check_packs.py "$BATS_TEST_TMPDIR/x.c"
    [[ $output == *"has 5 values, expected 4" ]]
}

@test "the top level holds what it is meant to, and no file that a test left there" {
    cd "$ROOT"
    git rev-parse --git-dir >/dev/null 2>&1 || skip "no git"
    [ "$(git ls-files | cut -d/ -f1 | grep -v '^\.' | LC_ALL=C sort -u | xargs)" = "Containerfile`
        ` LICENSE Makefile README.md core experiments oracle plots results tests variants" ]
}
