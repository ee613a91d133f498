#!/usr/bin/env bats
# check_kernel.bats - Tests qualm check --kernel: right kernels, and every way in which one fails.
load ../../support/cli_common

one=61x67/normal/wd/t1/forced

setup() {
    cd "$BATS_TEST_TMPDIR" || exit 1
    export TMPDIR=$BATS_TEST_TMPDIR/tmp
    mkdir "$TMPDIR"
}

# No test leaves a process or a file behind.
teardown() {
    ! pgrep -f "kernel-host.*$BATS_TEST_TMPDIR" || return 1
    [ -z "$(ls "$TMPDIR")" ] || { ls "$TMPDIR"; return 1; }
}

# kernel FILE [BEFORE [AFTER]]: writes the kernel of sgdm_f32, with C code before and after its loop
kernel() {
    cat > "$1" <<C
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "kernel_abi.h"
QM_KERNEL("sgdm_f32");
int qm_kernel_step(const struct qm_kernel_args *a)
{
    float *p = a->p, *m = a->slot[0].values;
    const float *g = a->g;
    int64_t n = a->n;
    ${2:-}
    for (int64_t i = 0; i < n; i++) {
        float d = a->maximize ? -g[i] : g[i], momentum = (float)a->momentum;
        if (a->weight_decay != 0.0) d = fmaf(p[i], (float)a->weight_decay, d);
        if (momentum != 0.0f) {
            m[i] = a->t == 1 ? d : fmaf(d, (float)(1.0 - a->dampening), m[i] * momentum);
            d = a->nesterov ? fmaf(m[i], momentum, d) : m[i];
        }
        p[i] = fmaf(d, (float)-a->lr, p[i]);
    }
    ${3:-}
    return 0;
}
C
}

# verdict RESULT TEXT OPTIONS...: `check --kernel k.c` exits with 1, and its first failure is RESULT
verdict() {
    local result=$1 text=$2
    shift 2
    run -1 "$QUALM" check --no-shrink --kernel k.c -q --case "$one" "$@"
    if [[ $output != *"FAILED $one $result: "*"$text"* ]]; then
        echo "expected $result with '$text', got: $output"
        return 1
    fi
}

# the command behind "again:" fails again, alone
again() {
    local line
    line=$(sed -n 's/^ *again: qualm //p' <<<"$1" | head -1)
    [ -n "$line" ]
    run -1 bash -c "'$QUALM' $line -q --no-shrink"
    [[ $output == *FAILED* ]]
}

@test "every template passes as the variant it names, from an empty folder" {
    long 6
    names=$("$QUALM" check --template list | grep -vE '\.(h|cu)$') # .cu: emu.bats
    [ "$(wc -w <<<"$names")" -ge 10 ]
    for name in $(drawn $(drawn $names)); do # each takes seconds
        "$QUALM" check --template "$name" > "$name.c"
        status=0
        out=$("$QUALM" check --no-shrink --kernel "$name.c" -q 2>&1) || status=$?
        [ "$status" = 0 ] || { echo "$name: $status $out"; return 1; }
        [[ $out == *" passed"* && $out != *FAILED* ]]
    done
}

@test "a right kernel passes every case; a reciprocal instead of a division is within bounds" {
    long 4
    kernel k.c
    [ "$(json_value 'd["passed"] and d["results"]["passed"] > 280' check --no-shrink \
        --kernel k.c)" = True ]
    [ "$(json_value 'd["as"], d["backend"], "mode" in d' check --no-shrink --kernel k.c \
        --case "$one")" = "sgdm_f32 cpu False" ]
    "$QUALM" check --template adamw_f32 | sed 's|/ (sqrtf(v\[i\]) / root_bc2 + eps)|* (1.0f / (sqrtf(v[i]) / root_bc2 + eps))|' > r.c
    ! grep -q '/ (sqrtf' <(grep 'p\[i\] =' r.c | grep -v '1.0f') || return 1
    run -0 "$QUALM" check --no-shrink --kernel r.c -q --regime normal --regime outlier
}

@test "a shared object is judged; --as replaces the variant that it names" {
    kernel k.c
    "$QUALM" check --template kernel_abi.h > kernel_abi.h
    cc -std=c11 -O2 -ffp-contract=off -shared -fPIC -I. -o k.so k.c -lm
    run -0 "$QUALM" check --no-shrink --kernel k.so -q --case "$one"
    run -0 "$QUALM" check --no-shrink --kernel k.so --as sgdm_f32,momentum=0.5 -q --case "$one"
    [[ $output == *"sgdm_f32,momentum=0.5"*passed* ]]
    sed 's/QM_KERNEL("sgdm_f32")/const int qm_kernel_abi = QM_KERNEL_ABI/' k.c > noname.c
    fails_with 2 "give --as" check --no-shrink --kernel noname.c
    run -0 "$QUALM" check --no-shrink --kernel noname.c --as sgdm_f32 -q --case "$one"
    fails_with 4 "did you mean 'sgdm_f32'?" check --no-shrink --kernel k.so --as sgdm_f23
}

@test "C++ kernels, and contraction by the compiler" {
    long 3
    command -v g++ >/dev/null || skip "no C++ compiler"
    "$QUALM" check --template kernel_abi.h > kernel_abi.h
    cat > k.cc <<'C'
#include "kernel_abi.h"
QM_KERNEL("sgdm_f32");
int qm_kernel_step(const qm_kernel_args *a)
{
    float *p = static_cast<float *>(a->p), *m = a->slot[0].values;
    const float *g = static_cast<const float *>(a->g);
    for (int64_t i = 0; i < a->n; i++) {
        float d = a->maximize ? -g[i] : g[i], momentum = static_cast<float>(a->momentum);
        if (a->weight_decay != 0)
            d += static_cast<float>(a->weight_decay) * p[i];
        float weight = static_cast<float>(1.0 - a->dampening);
        if (momentum != 0) {
            m[i] = a->t == 1 ? d : momentum * m[i] + weight * d;
            d = a->nesterov ? d + momentum * m[i] : m[i];
        }
        p[i] -= static_cast<float>(a->lr) * d;
    }
    return 0;
}
C
    for contract in off fast; do
        g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -O3 -march=native \
            -ffp-contract=$contract -shared -fPIC -o "$contract.so" k.cc
        run -0 "$QUALM" check --kernel "$contract.so" -q --regime normal --regime planted
    done
}

@test "SIGSEGV: buffer and index are named; every case runs in a fresh process" {
    long 4
    kernel k.c "*(volatile int *)0 = 1;"
    verdict crashed "SIGSEGV at a null pointer"
    if [ "$(uname -m)" = x86_64 ]; then # tells no address of these
        local four="typedef float four __attribute__((vector_size(16)));"
        kernel k.c "$four *(volatile four *)((char *)p + 4) = *(volatile four *)p * 2.0f;"
        verdict crashed "SIGSEGV by a vector instruction at an address that is not aligned for it"
        kernel k.c "*(volatile float *)((size_t)p ^ (size_t)1 << 60) = 1;"
        verdict crashed "SIGSEGV at a number that is no address"
    fi
    kernel k.c "" "p[n + 64] = 0;"
    verdict crashed "SIGSEGV past the parameters, end plus"
    again "$output"
    kernel k.c "" "((float *)(uintptr_t)g)[0] = 1;"
    verdict crashed "SIGSEGV within the gradients, byte 0 (read-only)"
    kernel k.c "" "if (n == 127) *(volatile int *)0 = 1;"
    expression='(d["results"]["crashed"], d["results"]["passed"] > 200, d["passed"])'
    [ "$(json_value "$expression" check --no-shrink --kernel k.c --regime normal \
        --regime wd0)" = "(0, False, True)" ]
    [ "$(json_value 'd["results"]["crashed"]' check --no-shrink --kernel k.c)" -ge 12 ]
    [ "$(json_value 'd["results"]["passed"]' check --no-shrink --kernel k.c)" -ge 200 ]
}

@test "abort, a used-up stack, a floating-point trap" {
    kernel k.c 'fprintf(stderr, "k.c:7: no such dim\n"); abort();'
    verdict crashed "SIGABRT; it had printed: k.c:7: no such dim"
    kernel k.c "volatile char big[1 << 26]; big[0] = big[(1 << 26) - 1] = 1;"
    verdict crashed SIGSEGV
    kernel k.c "volatile int zero = 0; zero = 7 / zero;"
    verdict crashed SIGFPE
}

@test "a hang is cut short, three hangs end the run; the time limit is per case" {
    kernel k.c "for (volatile int k = 0;; k++) ;"
    verdict hung "no answer within 0.3 s" --limit-time 0.3
    run -1 "$QUALM" check --no-shrink --kernel k.c -q --limit-time 0.3
    [[ $output == *"stopped: 3 cases hung"*"left out: "* ]]
}

@test "exit(0) is not a pass" {
    kernel k.c "exit(0);"
    verdict left "it called exit(0)"
    kernel k.c "_exit(3);"
    verdict left "it called exit(3)"
}

@test "memory has a limit" {
    kernel k.c 'for (;;) {
        char *x = malloc(1 << 20);
        for (int i = 0; i < 1 << 20; i += 512) x[i] = 1;
        usleep(500);
    }'
    verdict memory "the limit is 200" --limit-memory 200
}

@test "output of a kernel to any descriptor does not disturb the result" {
    kernel k.c 'puts("{\"passed\": false}"); fprintf(stderr, "noise\n"); fflush(stdout);'
    json_on_stdout check --no-shrink --kernel k.c --json --case "$one"
    [ "$(json_value 'd["passed"]' check --no-shrink --kernel k.c --case "$one")" = True ]
    run -0 "$QUALM" check --no-shrink --kernel k.c -q --case "$one"
    [[ $output != *noise* ]]
    kernel k.c 'for (int fd = 3; fd < 256; fd++) if (write(fd, "junk\n", 5) < 0) continue;'
    verdict garbage "is no answer: "
}

@test "a worker that closes its connection, leaves a child behind, or never stops printing" {
    kernel k.c 'for (int fd = 3; fd < 256; fd++) close(fd); for (;;) pause();'
    verdict garbage "closed the connection"
    kernel k.c 'if (fork() == 0) { sleep(100); _exit(0); } _exit(5);'
    verdict left "exit(5)"
    kernel k.c 'for (;;) puts("and so on");'
    verdict hung "no answer within 0.5 s; it had printed: " --limit-time 0.5
}

@test "a write one element beyond the end, unwritten results, static state" {
    kernel k.c "" "p[n] = 1;"
    verdict failed "wrote outside the buffer of the parameters"
    kernel k.c "n = n > 0 ? n - 1 : 0;"
    verdict failed "4086 is"
    kernel k.c "static int calls; if (calls++ % 2) n = 0;"
    verdict failed "the step differs"
    again "$output"
    kernel k.c "" "extern int fesetround(int); fesetround(0xc00);"
    verdict failed "rounding mode"
}

@test "a wrong formula, a wrong tie, a wrong scale are verdicts with inputs" {
    long 5
    kernel k.c "" "for (int64_t i = 0; i < n; i++) p[i] = nextafterf(nextafterf(p[i], 9), 9);"
    verdict failed "want"
    "$QUALM" check --template adamw4_ao | sed 's/>= (value\[k + 1\]/> (value[k + 1]/' > t.c
    ! cmp -s t.c <("$QUALM" check --template adamw4_ao) || return 1
    run -1 "$QUALM" check --no-shrink --kernel t.c -q --regime exact # ties go down
    [[ $output == *"has code"* ]]
    again "$output"
    "$QUALM" check --template adamw8_bnb | sed 's/\] = top;/] = top * 1.0000002f;/' > s.c
    ! cmp -s s.c <("$QUALM" check --template adamw8_bnb) || return 1
    run -1 "$QUALM" check --no-shrink --kernel s.c -q --regime normal
    [[ $output == *scale* ]]
}

@test "a refused case is a failure unless it is allowed; refusals are listed by coordinate" {
    long 4
    kernel k.c "if (a->ndim != 2) return 5;"
    expression='(d["passed"], d["results"]["refused"] > 50, d["results"]["passed"] > 50)'
    [ "$(json_value "$expression" check --no-shrink --kernel k.c)" = "(False, True, True)" ]
    [ "$(json_value "$expression" check --no-shrink --kernel k.c --allow-refused 2000)" = \
        "(True, True, True)" ]
    run -1 "$QUALM" check --no-shrink --kernel k.c -q
    [[ $output == *"refused by shape"*"--allow-refused permits 0"*"it returned 5"* ]]
    kernel k.c "return 5;"
    run -1 "$QUALM" check --no-shrink --kernel k.c -q --case "$one"
    [[ $output == *"it returned 5"* && $output == *": FAILED: 1 case refused that the variant"* ]]
    run -77 "$QUALM" check --no-shrink --kernel k.c -q --case "$one" --allow-refused 1
    [[ $output == *"nothing judged"* ]]
    kernel k.c "if (a->t > 1) return 1; p[0] += 1;" # wrong first, and refused then
    run -1 "$QUALM" check --no-shrink --kernel k.c -q --case "$one" --allow-refused 1
    [[ $output == *": FAILED: "*" numbers OFF_BY_ONE or WRONG"* ]]
}

@test "a file that is no kernel: the compiler's message and exit code 2" {
    echo 'int x = ;' > k.c
    run -2 --separate-stderr "$QUALM" check --no-shrink --kernel k.c
    [[ $stderr == *"k.c:1:"*error* && $stderr == *"k.c does not compile (cc)"* ]]
    [ -z "$output" ]
    kernel k.c
    sed 's/qm_kernel_step/other/' k.c > nostep.c
    fails_with 2 "nostep.c: the kernel does not export qm_kernel_step" check --no-shrink --kernel nostep.c
    sed 's/QM_KERNEL("sgdm_f32")/const int qm_kernel_abi = 7/' k.c > abi.c
    fails_with 2 "version 7 of kernel_abi.h, this is 5" check --no-shrink --kernel abi.c \
        --as sgdm_f32
    fails_with 3 "No such file" check --no-shrink --kernel none.c
    fails_with 2 "a .c, .cu or .so file" check --no-shrink --kernel "$QUALM"
    CC=nocc fails_with 2 "cannot run the compiler 'nocc'" check --no-shrink --kernel k.c
    echo '__attribute__((constructor)) static void f(void) {
        volatile int *volatile at = 0; *at = 1; }' >> k.c
    run -1 "$QUALM" check --no-shrink --kernel k.c -q
    [[ $output == *"while it was loaded: SIGSEGV"* ]]
}

@test "CC and CFLAGS are respected" {
    kernel k.c
    sed -i '1i #ifndef MINE\n#error no MINE\n#endif' k.c
    fails_with 2 "does not compile" check --no-shrink --kernel k.c --case "$one"
    CFLAGS="-DMINE -O1" CC="cc -pipe" run -0 "$QUALM" check --no-shrink --kernel k.c --case "$one" \
        -q
}

@test "--regime selects by class and setting; the seed is printed and changes the draws" {
    long 5
    kernel k.c
    all=$("$QUALM" check --list-cases sgdm_f32)
    count() { json_value 'd["results"]["passed"]' check --no-shrink --kernel k.c "$@"; }
    # Those of the list; a few more are drawn about what had too little effect in them.
    local listed=$(grep -c /planted/ <<<"$all") run=$(count --regime planted)
    [ "$run" -ge "$listed" ] && [ "$run" -le $((listed + 8)) ]
    [ "$(count --regime planted --regime outlier --regime wd)" = \
        "$(grep -cE '/(planted|outlier)/wd/' <<<"$all")" ]
    fails_with 4 "did you mean 'planted'?" check --no-shrink --kernel k.c --regime plantde
    fails_with 4 "no case has" check --no-shrink --kernel k.c --draws 0 --regime zeros --regime lr0
    run -0 "$QUALM" check --no-shrink --kernel k.c --regime planted --seed 7 -q
    [[ $output == *"seed 7"* ]]
    [ "$output" = "$("$QUALM" check --no-shrink --kernel k.c --regime planted --seed 7 -q)" ]
    [ "$output" != "$("$QUALM" check --no-shrink --kernel k.c --regime planted --seed 8 -q \
        | sed 's/seed 8/seed 7/')" ]
}

@test "--forever draws new cases until its time ends or a signal comes; failures run again" {
    long 2
    kernel k.c
    run -0 "$QUALM" check --no-shrink --kernel k.c --forever --time 1 -q
    [[ $output == *"raised by one with each case"* ]]
    kernel bad.c "" "if (n % 7 == 3) p[n / 2] *= 1.000001f;"
    run -1 "$QUALM" check --no-shrink --kernel bad.c --forever --time 1 -q
    again "$output"
    "$QUALM" check --no-shrink --kernel k.c --forever -q > out &
    sleep 1
    kill -INT $!
    status=0
    wait $! || status=$?
    [ "$status" = 0 ]
    [[ $(cat out) == *"interrupted"* ]]
}

@test "--against: the same kernel has no difference, a changed kernel has codes and errors" {
    long 8
    "$QUALM" check --template adamw4_ao > old.c
    sed 's/(value\[k + 1\] - value\[k\]) \* 0.5f/(value[k + 1] - value[k]) * 0.48f/' old.c > new.c
    cp old.c same.c
    expression='all(t["codes_changed"] == t["values_changed"] == t["scales_changed"] == 0
        and t["rmse_ratio"] == 1 for t in d["against"]["tensors"])'
    [ "$(json_value "$expression" check --no-shrink --kernel same.c --against old.c \
        --regime normal --quick)" = True ]
    "$QUALM" check --template lion8_ecc8 > ecc.c # parameters of 16 bits with residuals
    expression="($expression), [t[\"elements\"] > 0 for t in d[\"against\"][\"tensors\"]]"
    [ "$(json_value "$expression" check --no-shrink --kernel ecc.c --against ecc.c --quick \
        --regime normal)" = "True [True, True]" ]
    "$QUALM" check --no-shrink --kernel new.c --against old.c --regime normal --json > d.json \
        2>/dev/null || [ $? = 1 ]
    "$PYTHON" - <<'P'
import json
a = json.load(open("d.json"))["against"]
m, v, p = a["tensors"]
assert m["tensor"] == "exp_avg" and m["codes_changed"] > 100 and m["scales_changed"] == 0
assert m["rmse_ratio"] > 1 and m["worse"] > m["better"]
assert v["codes_changed"] > 100 and p["values_changed"] == 0
s = a["speed"]
assert s["rounds"] >= 5 and 0 < s["new_min"] <= s["new_median"] and s["elements"] == 1 << 20
assert 0.1 < s["times_as_fast_min"] < 10
P
    kernel crash.c "*(volatile int *)0 = 1;"
    kernel k.c
    run -0 "$QUALM" check --no-shrink --kernel k.c --against crash.c -q --regime normal --quick
    [[ $output == *"the old kernel fails: "*"SIGSEGV"* ]]
}

@test "--junit: well-formed, with every case, its failure and the command" {
    long 4
    kernel k.c 'if (n == 127) exit(0); if (n == 128) { puts("<&\"\x01>"); abort(); } if (n == 4096) return 2;' \
        "if (n == 129) p[0] += 1;"
    run -1 "$QUALM" check --no-shrink --kernel k.c --junit out.xml -q
    "$PYTHON" - <<'P'
import xml.etree.ElementTree as E
suite = E.parse("out.xml").getroot().find("testsuite")
cases = suite.findall("testcase")
assert len(cases) == int(suite.get("tests")) > 280
assert len({c.get("name") for c in cases}) == len(cases)
kinds = {k: [c for c in cases if c.find(k) is not None] for k in ("failure", "error", "skipped")}
for k, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
    assert len(kinds[k]) == int(suite.get(name)) > 5, k
assert {c.find("error").get("type") for c in kinds["error"]} == {"left", "crashed"}
assert "--case 129/" in kinds["failure"][0].find("failure").text
assert all(float(c.get("time")) >= 0 for c in cases)
P
    # three findings of one slot's rates, beside those of a case, have three names
    "$QUALM" check --template adamw4_2_solo | sed 's/s->draws\[from + i\]/0u/' > still.c
    run -1 "$QUALM" check --no-shrink --kernel still.c --junit out.xml -q --case \
        4097/normal/default/t1/forced
    [[ $output == *": FAILED: "*"3 findings that no single case shows (stochastic)"* ]]
    [ "$(grep -o '<testcase[^>]* name="[^"]*"' out.xml | cut -d'"' -f4 | paste -sd ' ')" = \
        "stochastic stochastic 2 stochastic 3 4097/normal/default/t1/forced" ]
    kernel k.c
    fails_with 3 "" check --no-shrink --kernel k.c --junit /nowhere/out.xml --case "$one" -q
    echo 'int x = ;' > bad.c
    run -2 "$QUALM" check --kernel bad.c --junit bad.xml -q
    "$PYTHON" - <<'P'
import xml.etree.ElementTree as E
suite = E.parse("bad.xml").getroot().find("testsuite")
assert (suite.get("tests"), suite.get("errors")) == ("1", "1")
assert suite.find("testcase/error").get("message") == "bad.c does not compile (cc)"
P
}

@test "failures are counted by coordinate, with decimals; tables have at most 120 columns" {
    long 4
    kernel k.c "" "if (a->nesterov) p[0] += 1;"
    run -1 "$QUALM" check --no-shrink --kernel k.c -q
    [[ $output == *"failed by setting  nesterov "*"failed by tensor   parameter "* ]]
    [[ $output == *"failed by number   value "* ]]
    [[ $output =~ parameter\ 0\ is\ -?0x1[.0-9a-f]*p[-+][0-9]+\ =\ -?[0-9] ]]
    ! grep -v "^FAILED\|again:\|^coverage" <<<"$output" | grep -q '.\{121\}' || return 1
    [ "$(json_value 'd["failed_by"]["setting"][0]["name"]' check --no-shrink --kernel k.c)" = \
        nesterov ]
}

@test "--specials tables a kernel's special values" {
    kernel k.c
    run -0 "$QUALM" check --kernel k.c --specials
    [ "$(grep -c "^sgdm_f32 .*passed$" <<<"$output")" = 5 ]
    kernel k.c "" "for (int64_t i = 0; i < n; i++) if (isnan(p[i])) p[i] = 0;"
    run -1 "$QUALM" check --kernel k.c --specials
    [[ $output == *"FAILED"* ]]
}

@test "results are the same on any number of threads" {
    kernel k.c "if (n == 127) abort();" "if (n == 129) p[0] += 1;"
    for threads in 1 2 5; do
        OMP_NUM_THREADS=$threads "$QUALM" check --no-shrink --kernel k.c -q --quick > "$threads" ||
            [ $? = 1 ]
    done
    cmp 1 2
    cmp 1 5
}

@test "options that need --kernel are refused without it; absent backends: exit code 77" {
    fails_with 2 "needs --kernel" check --regime planted
    fails_with 2 "needs --kernel" check --against k.c adamw4_ao
    fails_with 2 "by --as" check --no-shrink --kernel k.c adamw4_ao
    fails_with 2 "expected a number above 0" check --no-shrink --kernel k.c --limit-time 0
    QM_LIBCUDA=none fails_with 77 "GPU backend unavailable: no NVIDIA driver: QM_LIBCUDA=none" \
        check adamw4_ao --backend cuda
    fails_with 2 "backend emu runs CUDA sources" check --no-shrink --kernel k.c --backend emu
    fails_with 4 "no backend 'gpu'" check --backend gpu
    run -0 "$QUALM" check adamw4_ao --backend cpu --case "$one" -q
    fails_with 4 "did you mean 'adamw4_ao'?" check --template adamw4_oa
}

@test "no compiler outlives a judge that SIGKILL ends" {
    "$QUALM" check --template adamw4_ao.cu >k.cu
    mark=MARK${BATS_ROOT_PID}x$RANDOM
    under() { pgrep -fc -- "-D$mark" || true; }
    mkfifo held # nobody writes it, so the compiler that includes it does not end by itself
    CXXFLAGS="-D$mark -include $PWD/held" "$QUALM" check --kernel k.cu >out 2>&1 3>&- &
    pid=$!
    for _ in $(seq 500); do
        if pgrep -f -- "cc1plus .*$mark" >pids; then break; fi
        sleep 0.01
    done
    [ "$(under)" -ge 2 ] # the driver and what it started
    kill -9 $pid
    for _ in $(seq 20); do
        [ "$(under)" != 0 ] || break
        sleep 0.02
    done
    [ "$(under)" = 0 ]
    rm -r "$TMPDIR"/qualm-kernel-* # a killed program removes nothing
}

@test "an unfit case is named with its reason, and is no pass" {
    local case=61x67/normal/lr=0+initial_lr=0/t1/forced
    "$QUALM" check --template lion8_fused >lion.c
    run -77 "$QUALM" check --no-shrink --kernel lion.c -q --case $case
    [[ $output == *"nothing judged: 1 case unfit"*"unfit 1 case, which"*"lr is 0 from the start"* ]]
    run -77 "$QUALM" check lion8_fused --case $case
    [[ $output == *"the case is unfit: lr is 0 from the start"* ]]
}

# Setting lr0 has an initial_lr, the variant's own rate; without one it is refused as by hand.
@test "setting lr0 is judged as lr=0 after the variant's own rate" {
    local case=61x67/normal
    "$QUALM" check lion8_fused --case $case/lr0/t1/forced
    run -77 "$QUALM" check lion8_fused --case $case/lr0+initial_lr=0/t1/forced
    [[ $output == *"the case is unfit: lr is 0 from the start"* ]]
    run -77 "$QUALM" check lion8_fused --case $case/wd+lr=0/t1/forced
    [[ $output == *"the case is unfit: lr is 0 from the start"* ]]
}

@test "a NaN that is wanted is called NaN" {
    "$QUALM" check --template adamw_f32 | sed 's/float x = /if (g[i] != g[i]) continue;\n        &/' >nan.c
    run -1 "$QUALM" check --no-shrink --kernel nan.c -q --case 4097/nonfinite/default/t1/forced
    [[ $output == *", want NaN; step 1"* && $output != *"want nan"* ]]
}

@test "large tensors: codes of three bits in nibbles have their bytes" {
    cat >"$BATS_TEST_TMPDIR/k.c" <<'C'
#include "kernel_abi.h"

QM_KERNEL("adamw3_3_solo");

/* Writes nothing, as it does in the small tensor that this case is compared with, and refuses one
 * whose codes are not two in a byte. */
int qm_kernel_step(const struct qm_kernel_args *a)
{
    for (int k = 0; k < a->n_slots; k++)
        if (a->slot[k].bits == 3 && a->slot[k].code_bytes != (a->slot[k].n + 1) / 2)
            return 7;
    return 0;
}
C
    "$QUALM" check --kernel "$BATS_TEST_TMPDIR/k.c" --case 33554433/far --no-shrink
}

@test "a kernel's OpenMP has four threads on any machine, or what OMP_NUM_THREADS says" {
    "$QUALM" check --template adamw_f32 | sed -e '/^#include <math.h>/a #include <omp.h>' \
        -e '/qm_kernel_step/,/^{/s/^{/{\n    if (omp_get_max_threads() != 4) return 0;/' \
        >"$dir/four.c"
    grep -q "!= 4) return 0" "$dir/four.c"
    unset OMP_NUM_THREADS
    CFLAGS="-O2 -fopenmp" run -0 "$QUALM" check -q --quick --draws 3 --kernel "$dir/four.c"
    OMP_NUM_THREADS=3 CFLAGS="-O2 -fopenmp" run -1 "$QUALM" check -q --quick --draws 3 \
        --kernel "$dir/four.c"
}
