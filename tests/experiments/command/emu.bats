#!/usr/bin/env bats
# emu.bats - Tests CUDA kernels on the CPU.
load ../../support/cli_common

setup() {
    cd "$BATS_TEST_TMPDIR" || exit 1
    command -v c++ >/dev/null || skip "no C++ compiler (c++)"
}

one=4097/normal/default/t1/forced

# plant FILE TEMPLATE SED: writes a template with a bug
plant() {
    "$QUALM" check --template "$2" > right.cu
    sed "$3" right.cu > "$1"
    ! cmp -s right.cu "$1" || return 1
}
race() { plant race.cu adamw4_lpmm_group.cu 's/atomicMax(top, \(.*\));/*top = max(*top, \1);/'; }

@test "a CUDA template passes every case and 2^31 + 7 elements, from an empty folder" {
    long 4
    mkdir empty && cd empty
    "$QUALM" check --template lion8_fused.cu > mine.cu
    run -0 --separate-stderr "$QUALM" check --kernel mine.cu --json
    [[ $stderr == *"mine.cu: backend emu, on the CPU"* ]]
    "$PYTHON" -c 'import json, sys; d = json.load(sys.stdin)
assert d["passed"] and d["results"]["passed"] >= 642, d["results"]  # 321 listed cases, two forms
assert sum(d["results"].values()) == d["results"]["passed"], d["results"]
for form in ("contracted", "uncontracted"):
    assert d["forms"][form]["verdict"] == "passed", d["forms"]
assert "p[i] * decay - sign * lr" in d["forms"]["contraction_changes"]
assert "beyond_2_31" not in d' <<<"$output"
    [ "$(ls)" = mine.cu ]
}

@test "the other templates pass; --backend emu selects the emulator" {
    long 4
    for name in $(drawn $("$QUALM" check --template list | grep '\.cu$')); do
        "$QUALM" check --template "$name" > "$name"
        run -0 --separate-stderr "$QUALM" check --kernel "$name" --backend emu --regime exact -q
        [[ $output == *" passed"* && $output != *FAILED* && -z $stderr ]]
    done
}

@test "a variant without a template in CUDA names the nearest one, or none" {
    fails_with 4 "start from that of adamw4_2_solo.cu, of the same rule adamw_solo" \
        check --template adamw3_3_solo.cu
    fails_with 4 "start from that of adamw4_ao.cu, of the family adamw" \
        check --template adamw4_qm.cu
    fails_with 4 "no template in CUDA is of its rule microadam or of its family" \
        check --template microadam4.cu
}

@test "mode fast of a .cu file wants no --backend" {
    long 3
    "$QUALM" check --template lion8_fused.cu > mine.cu
    run -0 "$QUALM" check --kernel mine.cu --mode fast --case "$one" -q
    fails_with 2 "--mode fast is of" check --kernel mine.c --mode fast
    sed 's/127\.0f/126.0f/' mine.cu > bad.cu
    run -1 "$QUALM" check --kernel bad.cu --mode fast --case 129/exact/exact/t1/forced -q \
        --no-shrink
    [[ $output == *"again: qualm check --kernel bad.cu --backend emu --mode fast --as"* ]]
}

@test "a race is a verdict with line, block and thread; its command repeats it" {
    long 5
    race
    run -1 "$QUALM" check --no-shrink --kernel race.cu --backend emu --regime exact -q
    [[ $output == *"race.cu:39: data race: thread (1,0,0) of block (0,0,0) reads 4 bytes"* ]]
    [[ $output == *"reads 4 bytes at byte 0 of shared top"* ]]
    line=$(sed -n 's/^ *again: qualm //p' <<<"$output" | head -1)
    [ -n "$line" ]
    run -1 bash -c "'$QUALM' $line -q --no-shrink"
    [[ $output == *"data race"* ]]
}

@test "a program that ends its process after an error hides no finding" {
    long 4
    cat > ends.cu <<'EOF'
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include "kernel_abi.h"
QM_KERNEL("lion_f32");
__global__ void over(float *p, long n) { p[n + threadIdx.x] = 1; }
int qm_kernel_step(const struct qm_kernel_args *a)
{
    float *p;
    cudaMalloc(&p, 64);
    over<<<1, 1>>>(p, 16);
    if (cudaDeviceSynchronize() != cudaSuccess) {
        puts("what it prints");
        END;
    }
    return 0;
}
EOF
    for end in 'abort()' 'exit(1)' 'raise(SIGKILL)' '*(volatile int *)0 = 1' 'for (;;) {}'; do
        sed "s/END/$end/" ends.cu > own.cu
        run -1 "$QUALM" check --no-shrink --kernel own.cu --case "$one" -q --time-limit 2
        [[ $output == *"own.cu:7: thread (0,0,0) of block (0,0,0) writes 4 bytes out of bounds"* ]]
        [[ $output != *crashed* && $output != *hung* ]]
    done
}

@test "a race shrinks to a program that loads the kernel and finds the race without qualm" {
    race
    run -0 "$QUALM" shrink --kernel race.cu -q
    [[ $output == *"elements         3"* && $output == *"verified         yes"* ]]
    cc -O2 -ffp-contract=off -Wall -Wextra -Werror race-repro.c -lm -ldl -o repro
    run -1 ./repro
    [[ $output == "expected: nothing found; got: race.cu:39: data race:"* ]]
}

@test "a trick that contraction breaks: which form fails, in which line; --fmad and CUDAFLAGS" {
    long 8
    plant trick.cu lion8_fused.cu 's/__fmul_rn(x, 8193.0f)/x * 8193.0f/'
    run -1 "$QUALM" check --no-shrink --kernel trick.cu --case "$one" -q
    [[ $output == *"contracted (--fmad=true), as nvcc and NVRTC compile by default: FAILED"* ]]
    [[ $output == *"uncontracted (--fmad=false): passed"* ]]
    [[ $output == *"trick.cu:18: return x == x ? far - (far - x) : x;"* ]]
    line=$(sed -n 's/^ *again: qualm //p' <<<"$output" | head -1)
    [[ $line == *"--fmad=true"* ]]
    run -1 bash -c "'$QUALM' $line -q --no-shrink"
    run -0 "$QUALM" check --no-shrink --kernel trick.cu --case "$one" -q --fmad=false
    [[ $output == *"judged uncontracted (--fmad=false) alone, as --fmad asks"* ]]
    run -0 env CUDAFLAGS="-lineinfo -fmad false" "$QUALM" check --kernel trick.cu --case "$one" -q
    run -1 env CUDAFLAGS=--fmad=false "$QUALM" check --no-shrink --kernel trick.cu --case "$one" \
        -q --fmad=true
    run -0 env CXXFLAGS=-ffp-contract=off "$QUALM" check --kernel trick.cu --case "$one" -q
    [[ $output == *"the compiler contracts nothing in this kernel"* ]]
    fails_with 2 "--fmad: expected true or false, got 'no'" check --kernel trick.cu --fmad=no
}

@test "the host's arithmetic is not contracted, nor are functions with a rounding mode" {
    long 2
    "$QUALM" check --template lion8_fused.cu > right.cu
    cat > exact.cu <<'EOF'
#include "kernel_cuda.h"
QM_KERNEL("adamw_f32");
__global__ void device(const struct qm_kernel_args *a, float x, float y, float z,
                       float w)
{
    float one = __fadd_rn(x * y, z), two = __fmul_rn(x, y) + z, off = x * w + z;
    __shared__ float sum;
    sum = z;
    atomicAdd(&sum, x * y);
    ((float *)a->p)[0] = one == two && one == sum ? off == one ? 2.0f : 3.0f : 4.0f;
}
int qm_kernel_step(const struct qm_kernel_args *a)
{
    volatile float x = 1.0f + 0x1p-12f, z = -1.0f;
    float product = x * x, sum = x * x + z;
    if (product + z != sum)
        return 1;
    if (a->n)
        device<<<1, 1>>>(a, x, x, z, x);
    return cudaDeviceSynchronize();
}
EOF
    run -1 "$QUALM" check --no-shrink --kernel exact.cu --case 1/normal/default/t1/forced -q --json
    "$PYTHON" -c 'import json, sys
d = json.load(sys.stdin)
assert d["results"]["refused"] == 0, d["results"]
said = {f["form"]: f["what"] for f in d["failures"]}
assert "0x1.8p+1" in said["contracted"] and "0x1p+1" in said["uncontracted"], said' <<<"$output"
}

@test "a .c kernel of 2^31 + 7 elements is judged on request; a check without it says so" {
    long 3
    "$QUALM" check --template adamw_f32 > mine.c
    run -0 "$QUALM" check --kernel mine.c -q --time 3
    [[ $output == *"not judged: indices beyond 2^31 (takes a minute; --case 2147483655/far)"* ]]
    sed 's/i < a->n;/i < a->n \&\& a->n < 0x7fffffff;/' mine.c > leaves.c
    run -1 "$QUALM" check --no-shrink --kernel leaves.c --case 2147483655/far -q
    [[ $output == *"step 2 of 2^31 + 7 elements: parameter 0 stays as it is"* ]]
    sed 's/: g\[i\]/: *(const float *)((const char *)g + (int)(4 * i))/' mine.c > bytes.c
    run -1 "$QUALM" check --no-shrink --kernel bytes.c --case 2147483655/far -q
    [[ $output == *"SIGSEGV"* ]]
}

@test "a .c kernel steps 2^25 + 1 elements by default: an index of a block in 16 bits fails" {
    long 3
    "$QUALM" check --template adamw4_ao > mine.c
    sed 's|s->scales\[from / BLOCK\]$|s->scales[(uint16_t)(from / BLOCK)]|
        s|\* s->scales\[from / BLOCK\]|* s->scales[(uint16_t)(from / BLOCK)]|' mine.c > short.c
    run -0 "$QUALM" check --kernel mine.c --case 33554433/far -q
    run -1 "$QUALM" check --no-shrink --kernel short.c --case 33554433/far -q
    [[ $output == *"step 2 of 2^25 + 1 elements: parameter "* ]]
    "$QUALM" check --template adafactor_hf > mean.c # a mean over the tensor depends on n
    run -0 "$QUALM" check --kernel mean.c --case 33554433/far -q
    sed 's/^    if (a->n == 0)$/    if (a->n == 0 || a->n > 1 << 24)/' mean.c > stays.c
    run -1 "$QUALM" check --no-shrink --kernel stays.c --case 33554433/far -q
    [[ $output == *"step 2 of 2^25 + 1 elements: parameter 0 stays as it is"* ]]
}

@test "a .c kernel of 2^25 + 1 elements: counts in float32, writes behind the end, the middle" {
    long 3
    local case=33554433/far
    "$QUALM" check --template adamw_f32 > mine.c
    run -0 "$QUALM" check --kernel mine.c --case $case -q
    sed 's/i < a->n; i/i < (int64_t)(float)a->n; i/' mine.c > count.c
    run -1 "$QUALM" check --no-shrink --kernel count.c --case $case -q
    [[ $output == *"parameter 33554432 stays as it is"* ]]
    run -1 "$QUALM" check --no-shrink --kernel count.c --case 33554439/far -q # one too many
    [[ $output == *"wrote outside the buffer of the parameters, byte 0 behind its end"* ]]
    "$QUALM" check --template adamw4_ao > blocks.c
    sed 's/from < a->n; /from < (int64_t)ceilf((float)a->n \/ BLOCK) * BLOCK; /' blocks.c > ceil.c
    ! cmp -s blocks.c ceil.c || return 1
    run -1 "$QUALM" check --no-shrink --kernel ceil.c --case $case -q
    [[ $output == *"parameter 33554432 stays as it is"* ]]
    sed 's/i < a->n; i++) {/i < a->n; i++) {\n        if (i >> 15 == 513)\n            continue;/' \
        mine.c > middle.c
    ! cmp -s mine.c middle.c || return 1
    run -1 "$QUALM" check --no-shrink --kernel middle.c --case $case -q
    [[ $output == *"parameter 16809984 stays as it is"* ]]
}

@test "codes of a large tensor that are not written fail" {
    long 4
    plant kept.cu adamw4_ao.cu 's/ i % 2 == 0)/ i % 2 == 0 \&\& i < 1 << 30)/'
    run -1 "$QUALM" check --no-shrink --kernel kept.cu --case 2147483655/far -q
    [[ $output == *"step 2 of 2^31 + 7 elements: code byte "*" of exp_avg is "* ]]
}

@test "a kernel that refuses a large tensor alone fails unless it is allowed" {
    long 2
    "$QUALM" check --template adamw_f32 > mine.c
    sed 's/!m || !v)/!m || !v || a->n > 1 << 24)/' mine.c > refuses.c
    ! cmp -s mine.c refuses.c || return 1
    run -1 "$QUALM" check --no-shrink --kernel refuses.c --case 33554433/far -q
    [[ $output == *"refused that the variant takes"*"refuses 2^25 + 1 elements, and takes "* ]]
    run -77 "$QUALM" check --kernel refuses.c --case 33554433/far -q --allow-refused 1
    sed '/size_t bytes = /i\    if (a->n > (1u << 31) - 1)\n        return 2;' \
        "$ROOT/tests/emu/grid_stride.cu" > refuses.cu
    run -1 "$QUALM" check --no-shrink --kernel refuses.cu --case 2147483655/far -q
    [[ $output == *"refuses 2^31 + 7 elements, and takes 2^16 + 7"* ]]
}

@test "the power of an expanded block's centre is exact, and its ties are judged" {
    long 4
    plant away.cu adamw8_coat.cu 's/rintf(ldexpf(size, -e))/floorf(ldexpf(size, -e) + 0.5f)/'
    run -0 "$QUALM" check --no-shrink --kernel right.cu --case 4097/exact/exact/t1/forced -q
    run -1 "$QUALM" check --no-shrink --kernel away.cu --case 4097/exact/exact/t1/forced -q
    [[ $output == *"exp_avg: element "*" has code "*", want the code of "* ]]
}

@test "a 32-bit index fails only at 2^31 + 7 elements" {
    long 5
    plant far.cu adamw8_bnb.cu \
        's/int64_t from = (int64_t)blockIdx.x \* BLOCK, i/int from = blockIdx.x * BLOCK, i/'
    run -0 "$QUALM" check --no-shrink --kernel far.cu --case "$one" -q
    run -1 "$QUALM" check --no-shrink --kernel far.cu --case 2147483655/far -q
    local where="far.cu:96: thread (0,0,0) of block (8388608,0,0)"
    [[ $output == *"step 2 of 2^31 + 7 elements: $where reads 4 bytes out of bounds"* ]]
}

@test "a .cu file is judged above 2^17 elements, and the largest size is named" {
    long 4
    cp "$ROOT/tests/emu/grid_stride.cu" right.cu
    sed 's/cudaMemcpy(a->p, p, bytes/cudaMemcpy(a->p, p, a->n > 100000 ? bytes - 4 : bytes/' \
        right.cu > short.cu
    ! cmp -s right.cu short.cu || return 1
    run -1 "$QUALM" check --no-shrink --kernel short.cu --draws 1 -q
    local failed=" failed (both forms): parameter "
    [[ $output =~ "FAILED "([0-9]+)x([0-9]+)/[^$'\n']*"$failed"([0-9]+)" is" ]]
    local largest=$((BASH_REMATCH[1] * BASH_REMATCH[2]))
    [ $largest -gt 131072 ] && [ "${BASH_REMATCH[3]}" -eq $((largest - 1)) ]
    [[ $output == *"; sizes above $largest not exercised"* ]]
    run -0 "$QUALM" check --kernel right.cu --quick -q
    [[ $output == *"; sizes above "*" not exercised"* && $output != *$largest* ]]
}

@test "blocks that communicate are judged with 2^20 + 7 elements in place of 2^31 + 7" {
    long 4
    "$QUALM" check --template adamw4_ao.cu > right.cu
    sed -e 's/^extern "C" __global__.*/__device__ unsigned int ticket;\n&/' \
        -e 's/blockIdx.x \* BLOCK/block * BLOCK/' \
        -e 's/^    const struct qm_kernel_args \*a = &c.a;/&\n    __shared__ unsigned int block;\n    if (threadIdx.x == 0) {\n        __threadfence();\n        block = atomicAdd(\&ticket, 1u) % gridDim.x;\n    }\n    __syncthreads();/' \
        right.cu > ticket.cu
    ! cmp -s right.cu ticket.cu || return 1
    run -0 "$QUALM" check --no-shrink --kernel ticket.cu --case 2147483655/far -q
    [[ $output == *"not judged: indices beyond 2^31 (its blocks communicate by atomic operations, as \
at ticket.cu:"*"only some of them are run; of 2^20 + 7 elements the ends were judged)"* ]]
    run -0 "$QUALM" check --no-shrink --kernel ticket.cu --case "$one" -q
}

@test "a step of 2^31 + 7 elements that takes too long is not judged, and the limit is named" {
    long 2
    sed 's/float x = c.maximize/for (volatile int k = 0; k < 9999; k++) {} float x = c.maximize/' \
        "$BATS_TEST_DIRNAME/../../emu/grid_stride.cu" > slow.cu
    run -77 "$QUALM" check --kernel slow.cu --case 2147483655/far --time-limit 0.5
    [[ $output == *"the step takes longer than 0.5 s, the limit of --time-limit; of 2^20 + 7"* ]]
    [[ $output == *"it takes longer too, so that no large tensor is judged"* ]]
}

@test "kernels that cannot be emulated or compiled are refused with the reason" {
    long 3
    "$QUALM" check --template lion8_fused.cu > right.cu
    sed 's/^    if (i >= a->n)$/    asm("");\n&/' right.cu > ptx.cu
    fails_with 2 "ptx.cu:55: inline PTX (asm) cannot be emulated" check --kernel ptx.cu
    sed 's/floorf(y)/tex2D(y)/' right.cu > texture.cu
    run -2 "$QUALM" check --kernel texture.cu
    [[ $output == *"texture.cu:60:"*"tex2D"* && $output == *"texture.cu does not compile"* ]]
    run -2 env CXX=no-such-compiler "$QUALM" check --kernel right.cu
    [[ $output == *"cannot run the compiler 'no-such-compiler'"* ]]
    fails_with 3 "nowhere.cu" check --kernel nowhere.cu
    run -2 env CXX=/bin/true QM_CACHE=off "$QUALM" check --kernel right.cu
    [[ $output == *"/bin/true ends without an error and writes nothing: expected a compiler"* ]]
    sed '1i #include <cooperative_groups.h>' right.cu > groups.cu
    fails_with 2 "groups.cu:1: cooperative groups (cooperative_groups.h) cannot be emulated" \
        check --kernel groups.cu
    sed 's/__device__ float warp_max/float warp_max/' right.cu > host.cu
    ! cmp -s right.cu host.cu || return 1
    run -2 --separate-stderr "$QUALM" check --kernel host.cu
    [[ $stderr == *"host.cu:"*"calls warp_max, a function of the host: it has no __device__" ]]
    echo '#include "kernel_cuda.h"' > empty.cu
    fails_with 2 "empty.cu: the kernel does not export qm_kernel_abi" check --kernel empty.cu
}

@test "clang++ gives the same verdicts" {
    long 8
    command -v clang++ >/dev/null || skip "no clang++"
    race
    run -0 --separate-stderr env CXX=clang++ "$QUALM" check --no-shrink --kernel right.cu \
        --case "$one" -q
    [ -z "$stderr" ] # no warning of its assembler
    run -1 env CXX=clang++ "$QUALM" check --no-shrink --kernel race.cu --case "$one" -q
    [[ $output == *"race.cu:39: data race"* ]]
    run -0 env CXX=clang++ "$QUALM" check --no-shrink --kernel right.cu --case "$one" -q
}

# proof QUANTIZER RANGE BACKEND: prints a proof without its backend and time
proof() {
    "$QUALM" prove "$1" --range="$2" --backend "$3" --json | "$PYTHON" -c '
import json, sys
p = json.load(sys.stdin)["proofs"][0]
for key in ("seconds", "device_seconds", "backend"):
    p.pop(key, None)
print(json.dumps(p, sort_keys=True))'
}

@test "prove: the kernels have the proof of the CPU's search" {
    long 3
    for q in $(drawn nf4:4s/ladder/mid nf4a8:4s/ladder/mid nf4a8:4s/argmin/mid dyn:8s/lower/mid \
        intm:4s/arith/even); do
        for range in -1e-41:1e-41 -0.7811:-0.78 0.0397:0.0398 0.99999:1.00001 \
            -inf:-3.4e38 3.4e38:inf; do
            [ "$(proof $q $range emu)" = "$(proof $q $range cpu)" ]
        done
    done
    run -2 --separate-stderr "$QUALM" prove step:adamw4_ao --backend emu
    [[ $stderr == *"backend emu runs routines of this program and .cu files"* ]]
    run -2 --separate-stderr "$QUALM" prove nf4:4s/ladder/mid --backend emu
    [[ $stderr == *"say --range"* ]]
}

# nearest FILE SED: writes a right nearest-code kernel for nf4, altered by SED
nearest() {
    cat > right.cu <<'EOF'
#include "kernel_cuda.h"
__device__ const float value[16] = {-1.0f, -0.6961928009986877f, -0.5250730514526367f,
    -0.39491748809814453f, -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f,
    0.0f, 0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
    0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f};
QM_CUDA_LAUNCH(qm_cuda_nearest, 256, 256, 0);
extern "C" __global__ void qm_cuda_nearest(const float *y, int64_t n, unsigned char *code)
{
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int k = 0;
    while (k < 15 && y[i] > 0.5f * (value[k] + value[k + 1]))
        k++;
    code[i] = (unsigned char)k;
}
EOF
    sed "${2:-}" right.cu > "$1"
}

@test "prove: a user's nearest-code kernel: right, wrong at an edge, out of bounds" {
    long 4
    nearest mine.cu
    run -0 "$QUALM" prove mine.cu --map nf4 --range 0.3893:0.3894
    [[ $output == *"nearest, of those run"* ]]
    nearest edge.cu 's/0.24611230/0.24611330/'
    run -1 "$QUALM" prove edge.cu --map nf4 --range 0.2920:0.2921
    [[ $output == *"WRONG: not nearest"* ]]
    nearest tail.cu 's/i >= n/i > n/'
    run -1 "$QUALM" prove tail.cu --map nf4 --range 0.3893:0.3894
    local what="reads 4 bytes out of bounds, 0 bytes past the end of the values"
    [[ $output == *"WRONG: tail.cu:13: thread ("*"$what"* ]]
    local again="float z = ((volatile const float *)y)[i];" # not the same product to the compiler
    nearest trick.cu \
        "s/^    code/    $again if (z * y[i] - __fmul_rn(y[i], y[i]) != 0.0f) k = 0;\n&/"
    run -1 "$QUALM" prove trick.cu --map nf4 --range 0.3893:0.3894
    [[ $(grep -E '^(form|verdict) ' <<<"$output" | tr -s ' ' | paste -sd ' ') == \
        "form contracted (--fmad=true) verdict WRONG: not nearest"\
" form uncontracted (--fmad=false) verdict nearest, of those run" ]]
    run -0 "$QUALM" prove trick.cu --map nf4 --range 0.3893:0.3894 --fmad=false
    # the other form alone fails, and so do both with other counts; each has its entry
    local expression='[(p["form"][:4], p["holds"], p["wrong"]) for p in d["proofs"]]'
    local fused='z * y[i] - __fmul_rn(y[i], y[i]) != 0.0f' most='y[i] < 0.38935f'
    nearest two.cu "s/^    code/    $again if (!($fused)) k++; else if ($most) k += 2;\n&/"
    [ "$(json_value "$expression" prove two.cu --map nf4 --range 0.38936:0.3894)" = \
        "[('cont', True, 0), ('unco', False, 1343)]" ]
    [ "$(json_value "$expression" prove two.cu --map nf4 --range 0.3893:0.3894)" = \
        "[('cont', False, 1678), ('unco', False, 3356)]" ]
    nearest none.cu 's/qm_cuda_nearest/mine/'
    run -2 --separate-stderr "$QUALM" prove none.cu --map nf4 --range 0.1:0.2
    [[ $stderr == *"no extern \"C\" __global__ qm_cuda_nearest"* ]]
    run -2 --separate-stderr "$QUALM" prove mine.cu --map nf4
    [[ $stderr == *"say --range"* ]]
}

# body LAYOUT: a kernel of adamw_f32 whose blocks take the elements in another order.
layout() {
    sed "s|LAYOUT|$1|" << 'C'
#include "kernel_abi.h"
#include <cuda_runtime.h>
#include <math.h>
QM_KERNEL("adamw_f32");
typedef long long ll;
struct K {
    float *p, *m, *v;
    const float *g;
    ll n;
    float b1, t1, b2, t2, dec, lr, rb, eps;
    int max;
};
static __device__ void at(const K &k, ll i)
{
    float x = k.max ? -k.g[i] : k.g[i];
    k.m[i] = k.t1 < 0.5f ? k.m[i] + k.t1 * (x - k.m[i]) : x - k.b1 * (x - k.m[i]);
    k.v[i] = k.b2 * k.v[i] + k.t2 * x * x;
    k.p[i] = k.p[i] * k.dec - k.lr * k.m[i] / (sqrtf(k.v[i]) / k.rb + k.eps);
}
__global__ void step(K k) { ll b = blockIdx.x, last = gridDim.x - 1, t = threadIdx.x; LAYOUT }
int qm_kernel_step(const struct qm_kernel_args *a)
{
    double c1 = 1.0 - pow(a->beta1, (double)a->t), c2 = 1.0 - pow(a->beta2, (double)a->t);
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || !a->slot[0].values)
        return 1;
    K k = {(float *)a->p, a->slot[0].values, a->slot[1].values, (const float *)a->g, a->n,
           (float)a->beta1, (float)(1.0 - a->beta1), (float)a->beta2, (float)(1.0 - a->beta2),
           (float)(1.0 - a->lr * a->weight_decay), (float)(a->lr / c1), (float)sqrt(c2),
           (float)a->eps, (int)a->maximize};
    if (a->n > 0)
        step<<<(unsigned)((a->n + 255) / 256), 256>>>(k);
    return cudaDeviceSynchronize() != cudaSuccess ? 2 : 0;
}
C
}

@test "emu: beyond 2^31 blocks may take elements in any order that rises or falls" {
    local case=2147483655/far layout
    cd "$BATS_TEST_TMPDIR"
    for layout in 'll i = (last - b) * 256 + t; if (i < k.n) at(k, i);' \
        'll i = b * 256 + t; if (i < 4 \&\& i < k.n) at(k, i); if (i + 4 < k.n) at(k, i + 4);' \
        'll h = (k.n + 1) / 2, i = b * 256 + t; if (i < h) at(k, i); if (i < h \&\& i + h < k.n) at(k, i + h);' \
        'll h = last / 2 + 1, i = (b < h ? 2 * b : 2 * (b - h) + 1) * 256 + t; if (i < k.n) at(k, i);'; do
        layout "$layout" > right.cu
        run -0 "$QUALM" check --kernel right.cu --fmad=false --case $case -q
        [[ $output == *"as adamw_f32: passed"* && $output != *"not judged"* ]]
    done
    layout 'll i = (last - b) * 256 + t; if (i < k.n \&\& i != 2147483500) at(k, i);' > left.cu
    run -1 "$QUALM" check --no-shrink --kernel left.cu --fmad=false --case $case -q
    [[ $output == *"parameter 2147483500 stays as it is"* ]]
    layout 'int i = (int)((last - b) * 256 + t); if (i < k.n) at(k, i);' > wraps.cu
    run -1 "$QUALM" check --no-shrink --kernel wraps.cu --fmad=false --case $case -q
}
