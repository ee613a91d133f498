#!/usr/bin/env bats
# shrink.bats - Tests qualm shrink: a failing kernel becomes a small program.
load ../../support/cli_common

setup() { cd "$BATS_TEST_TMPDIR" || exit 1; }

# plant FILE TEMPLATE SED: writes a template with a bug
plant() {
    "$QUALM" check --template "$2" > right.c
    sed "$3" right.c > "$1"
    ! cmp -s right.c "$1" || return 1
}

compiles_and_exits() {
    cc -O2 -ffp-contract=off -Wall -Wextra -Werror "$2" -lm -ldl -o repro
    run -"$1" ./repro
}

@test "the first failing case becomes a program: exit code 1, and 0 after its bug is corrected" {
    plant mine.c adamw4_ao 's/>= (value\[k + 1\]/> (value[k + 1]/'
    run -0 "$QUALM" shrink --kernel mine.c -q
    [[ $output == *"written"*"mine-repro.c"* && $output == *"verified"*yes* ]]
    [[ $(head -1 mine-repro.c) == \
        "/* cc -O2 -ffp-contract=off mine-repro.c -lm -o repro && ./repro" ]]
    ! grep -q 'include "' mine-repro.c || return 1
    compiles_and_exits 1 mine-repro.c
    [[ $output == *"expected"*"got"* ]]
    sed 's/> (value\[k + 1\]/>= (value[k + 1]/' mine-repro.c > mended.c
    compiles_and_exits 0 mended.c
    own=$(sed -n '/what the step gets/,$p' mine-repro.c | wc -l)
    [ "$own" -le 45 ]
}

@test "a million elements and twenty steps shrink to one step of one block; --time is of it all" {
    plant last.c adamw4_ao \
        's/for (int64_t i = 0; i < n; i++) {$/for (int64_t i = 0; i < n - (n < BLOCK); i++) {/'
    fails_with 4 "no case failed within 0.001 s; --time gives more" shrink --kernel last.c \
        --shape 1000003 --steps 20 --time 0.001
    from=$SECONDS
    "$QUALM" shrink --kernel last.c --shape 1000003 --steps 20 --time 120 --json > d.json
    took=$((SECONDS - from))
    "$PYTHON" - "$took" <<'P'
import json, sys
d = json.load(open("d.json"))
assert d["elements_before"] == 1000003 and d["steps"] == 1 and d["blocks"] == 1, d
assert d["verified"] and d["seconds"] <= 121 and d["seconds"] >= d["case_seconds"], d
assert d["seconds"] > 0.5 * (int(sys.argv[1]) - 5), (d["seconds"], sys.argv[1])
P
    compiles_and_exits 1 last-repro.c
}

@test "an order that is permitted is nothing to shrink, and does not hide a bug beside it" {
    plant folded.c adamw4_ao 's/\*w = \*w - decay \* \*w;/*w = *w * (1.0f - decay);/'
    fails_with 4 "no step of this case fails" shrink --kernel folded.c \
        --case 4097/exact/exact/t1/forced
    sed 's/y - value\[k\] >=/y - value[k] >/' folded.c >ties.c
    run -0 "$QUALM" shrink --kernel ties.c -q --case 4097/exact/exact/t1/forced
    compiles_and_exits 1 ties-repro.c
    [[ $output == *"code of exp_avg"* ]]
    sed 's/y - value\[k\] >/y - value[k] >=/' ties-repro.c >mended.c
    compiles_and_exits 0 mended.c
}

@test "a matrix, a shared object, a chosen file name" {
    plant rows.c adafactor_hf \
        's/\(b \* rows\) + i\(\], c = a->slot\[1\].values\[b \* cols + j\]\)/\1\2/'
    [ "$(json_value '(d["steps"], d["elements"] <= 4, d["verified"])' shrink --kernel rows.c \
        --case 61x67/normal/wd/t1/forced --out other.c)" = "(1, True, True)" ]
    compiles_and_exits 1 other.c
    "$QUALM" check --template kernel_abi.h > kernel_abi.h
    cc -std=c11 -O2 -ffp-contract=off -shared -fPIC -I. -o rows.so rows.c -lm
    # the words of CC and CFLAGS are no shell's
    CC=' ' CFLAGS="-DX=\$(touch\${IFS}$PWD/ran)" run -0 "$QUALM" shrink --kernel rows.so \
        --as adafactor_hf --case 61x67/normal/wd/t1/forced -q
    [[ ! -e ran && $output == *"verified"*yes* ]]
    grep -q dlopen rows-repro.c
    compiles_and_exits 1 rows-repro.c
}

@test "steps that hang or are killed shrink within their time limit" {
    long 6
    plant hang.c adamw_f32 's/    return 0;/    for (volatile int k = a->n > 9; k;) ; return 0;/'
    run -0 "$QUALM" shrink --kernel hang.c --case 4097/normal/wd/t1/forced -q
    [[ $output == *hung* ]]
    compiles_and_exits 1 hang-repro.c
    plant wild.c adamw_f32 's/    return 0;/    *(volatile int *)0 = 1; return 0;/'
    run -0 "$QUALM" shrink --kernel wild.c -q
    [[ $output == *"SIGSEGV at a null pointer"* ]]
    compiles_and_exits 1 wild-repro.c
}

@test "a failing check prints the program last; --no-shrink omits it; stdout has JSON alone" {
    long 6
    plant k.c adamw_f32 's/take2 \* x \* x/take1 * x * x/'
    run -1 --separate-stderr "$QUALM" check --kernel k.c --regime normal
    [[ $stderr == *"shrunk to 1 step, 1 element: k-repro.c, which compiles and exits 1"* ]]
    compiles_and_exits 1 k-repro.c
    rm k-repro.c
    run -1 --separate-stderr "$QUALM" check --kernel k.c --regime normal --no-shrink
    [ ! -e k-repro.c ]
    json_on_stdout check --kernel k.c --json --regime normal
    [ -s k-repro.c ]
}

@test "a check shrinks its first finite failure, not a NaN's; a cut reduction names the longer command" {
    plant k.c adamw_f32 's/take2 \* x \* x/(x != x ? 0.0f : take1 * x * x)/'
    run -1 --separate-stderr "$QUALM" check --kernel k.c --quick
    first=$(grep -m1 '^FAILED' <<<"$output" | cut -d' ' -f2)
    [[ $output == *", want NaN;"* && $first == */normal/* ]]
    [[ $stderr == *"k-repro.c, which compiles and exits 1, from case $first (--no-shrink"* ]]
    sed 's/take1 \* x/take2 * x/' k-repro.c >mended.c
    compiles_and_exits 0 mended.c
    [[ $output == "parameter 0: expected "*", passes" ]]
    run -0 --separate-stderr "$QUALM" shrink --kernel k.c --case "${first/normal/nonfinite}"
    [[ $stderr != *"time ran out"* ]]
    compiles_and_exits 1 k-repro.c
    [[ $output == *"expected NaN or Inf, got 0x0p+0" ]]
    sed 's/x != x ? 0.0f/x != x ? x/' k-repro.c >mended.c
    compiles_and_exits 0 mended.c
    [[ $output == *"expected NaN or Inf, got nan, passes" ]]
    plant last.c adamw4_ao \
        's/for (int64_t i = 0; i < n; i++) {$/for (int64_t i = 0; i < n - (n < BLOCK); i++) {/'
    run -0 --separate-stderr "$QUALM" shrink --kernel last.c --shape 100003 --time 0.4
    if [[ $output == *"cut short        yes"* ]]; then
        [[ $stderr == *"time ran out after 0.4 s: \`qualm shrink --kernel last.c --case "*" --time 1.6\` may"* ]]
    fi
}

@test "a race becomes a program that repeats its step until the race shows" {
    "$QUALM" check --template adamw_f32 > right.c
    sed 's|    return 0;|    volatile float last = 0;\
    _Pragma("omp parallel for num_threads(4) schedule(static, 1)")\
    for (int64_t i = 0; i < a->n; i++) {\
        last = p[i];\
        usleep(20);\
        p[i] = last;\
    }\
    return 0;|; s|#include <math.h>|&\nextern int usleep(unsigned);|' right.c > race.c
    export CFLAGS=-fopenmp
    run -1 "$QUALM" check --kernel race.c -q --case 127/normal/wd/t1/forced
    if [ -e race-repro.c ]; then
        cc -O2 -ffp-contract=off -fopenmp race-repro.c -lm -o repro
        run -1 ./repro
    fi
}

@test "a bfloat16 parameter that is cut instead of rounded" {
    cat > cut.c <<'C'
#include <math.h>
#include <string.h>
#include "kernel_abi.h"
QM_KERNEL("sgdm_f32,param=bf16,momentum=0,weight_decay=0");
static uint16_t narrow(float x)
{
    uint32_t b;
    memcpy(&b, &x, 4);
    return (uint16_t)((b + HALF) >> 16);
}
int qm_kernel_step(const struct qm_kernel_args *a)
{
    uint16_t *p = a->p;
    for (int64_t i = 0; i < a->n; i++) {
        uint32_t b = (uint32_t)p[i] << 16;
        float x;
        memcpy(&x, &b, 4);
        p[i] = narrow(fmaf(((const float *)a->g)[i], (float)-a->lr, x));
    }
    return 0;
}
C
    sed 's/HALF/0/' cut.c > cut0.c
    run -1 "$QUALM" check --kernel cut0.c -q --case 127/normal/default/t1/forced
    compiles_and_exits 1 cut0-repro.c
    sed 's/(b + 0) >> 16/(b + 0x7fff + (b >> 16 \& 1)) >> 16/' cut0-repro.c > mended.c
    compiles_and_exits 0 mended.c
}

@test "what no program can show is said" {
    plant bf.c flash_adamw 's/^    return 0;/    ((uint16_t *)a->p)[0] ^= 64; return 0;/'
    run -1 --separate-stderr "$QUALM" check --kernel bf.c --case 127/normal/wd/t1/forced
    [[ $stderr == *"not shrunk: no reproducer: "* && ! -e bf-repro.c ]]
}

@test "kernels that cannot be shrunk: one line" {
    "$QUALM" check --template adamw_f32 > right.c
    fails_with 4 "nothing to shrink" shrink --kernel right.c --case 129/normal/wd/t1/forced
    fails_with 4 "nothing to shrink" shrink adamw4_ao --case 129/normal/wd/t1/forced
    fails_with 2 "expected a variant, or --kernel FILE" shrink
    fails_with 2 "need --kernel FILE" shrink adamw4_ao --out x.c
    fails_with 2 "positive number" shrink --kernel right.c --time 0
    fails_with 2 "SHAPE/CLASS/SETTING" shrink adamw4_ao --case 129
    fails_with 3 "No such file" shrink --kernel none.c
    fails_with 4 "did you mean 'adamw4_ao'?" shrink adamw4_oa
    plant k.c adamw_f32 's/take2 \* x \* x/take1 * x * x/'
    fails_with 3 "" shrink --kernel k.c --case 129/normal/wd/t1/forced --out /nowhere/x.c
    [ ! -e right-repro.c ]
}
