#!/usr/bin/env bats
# cuda.bats - Tests kernels, check --backend and gpu-check on machines without a GPU.

load ../../support/cli_common

setup() {
    export QM_CACHE=$BATS_TEST_TMPDIR/cache QM_LIBCUDA=none
}

NESTED=adamw_f32,exp_avg=dyn:8s/block:64/bisect/mid/nest:256

@test "kernels: registers and memory of one variant, compiled once" {
    long 2
    needs_nvrtc
    run -0 --separate-stderr "$QUALM" kernels adamw4_ao --arch sm_90
    [[ $output == *"adamw4_ao  sm_90"* && $stderr == *"none spills or uses local memory"* ]]
    [ "$(ls "$QM_CACHE" | wc -l)" = 1 ]
    run -0 --separate-stderr "$QUALM" kernels adamw4_ao --arch sm_90
    [[ $output == *cached* ]]
    json_on_stdout kernels adamw4_ao,param=bf16/kahan,grad=bf16 --arch sm_80,sm_100 --json
    run -0 --separate-stderr "$QUALM" kernels adamw4_ao --text
    [[ $output == *"qm_element_adamw_ao"* ]]
}

@test "kernels: PTX has no registers to report and is no failure; too old an architecture" {
    needs_nvrtc
    run -0 --separate-stderr "$QUALM" kernels adamw4_ao --arch sm_91
    [[ $output == *"sm_91"*"PTX"* && $stderr != *SPILLS* ]]
    [[ $stderr == *"1 of them are PTX: this NVRTC does not know the architecture"* ]]
    "$QUALM" doctor | grep -q 'version 13' || skip "needs NVRTC 13"
    fails_with 77 "compiles for sm_75 and later, not for sm_70" kernels adamw4_ao --arch sm_70
}

@test "kernels: a variant without kernels gives the reason" {
    needs_nvrtc
    fails_with 77 "nested scales have no kernel" kernels "$NESTED"
}

@test "kernels: bad words are refused; exit code 77 without NVRTC" {
    fails_with 2 "expected up to" kernels adamw4_ao --arch 90
    fails_with 2 "expected exact or fast" kernels adamw4_ao --mode slow
    QM_NVRTC=none fails_with 77 "no NVRTC: QM_NVRTC=none does not load" kernels adamw4_ao
    fails_with 4 "did you mean 'adamw4_ao'?" kernels adamw4_oa
}

@test "gpu-check without a GPU: 77 and one line" {
    run -77 "$QUALM" gpu-check
    [ "${#lines[@]}" = 1 ]
    [[ $output == "qualm gpu-check: GPU backend unavailable: "* ]]
    fails_with 2 "expected exact, speed, codes, check, tables or peers" gpu-check --only all
    fails_with 2 "expected a number from 0.01" gpu-check --limit 0
    fails_with 4 "holds no report" gpu-check --resume --out "$BATS_TEST_TMPDIR"
    fails_with 4 "did you mean 'adamw4_ao'?" gpu-check adamw4_oa
}

@test "doctor names missing libraries and the variable that names another one" {
    run -0 "$QUALM" doctor
    [[ $output == *"no NVIDIA driver: QM_LIBCUDA=none does not load"* ]]
    QM_NVRTC=none QM_CURAND=none QM_CACHE=off run -0 "$QUALM" doctor
    [[ $output == *"no NVRTC"* && $output == *"no cuRAND"* && $output == *"QM_CACHE=off"* ]]
    unset QM_LIBCUDA
    [ -e /usr/local/cuda/lib64/stubs/libcuda.so ] || skip "no stub of the toolkit"
    QM_LIBCUDA=/usr/local/cuda/lib64/stubs/libcuda.so run -77 "$QUALM" check adamw4_ao \
        --backend cuda
    [[ $output == *"cuInit gives error 34, the toolkit's stub: no driver, no GPU"* ]]
}

@test "check --backend emu judges the CUDA kernels" {
    long 4
    command -v c++ >/dev/null || skip "no C++ compiler"
    run -0 "$QUALM" check adamw4_ao --backend emu --case 4097/planted/wd/t1/forced -q
    [[ $output == *passed* ]]
    run -0 "$QUALM" check apollo_f32 fira_f32 --backend emu --case 61x67/normal/default/t1/forced -q
    [[ $output == *"apollo_f32"*passed*"fira_f32"*passed* ]]
    run -0 "$QUALM" check adamw4_ao "$NESTED" --backend emu --case 129/normal/default/t1/forced -q
    [[ $output == *"skipped $NESTED: nested scales have no kernel"* ]]
}

@test "check --specials and --search on the emulator" {
    long 4
    command -v c++ >/dev/null || skip "no C++ compiler"
    run -0 "$QUALM" check adamw_f32 --specials --backend emu
    [[ $output == *passed*"seed 20240501, backend emu, mode exact" ]]
    [ -n "$(ls "$QM_CACHE")" ] # kernels were compiled
    run -0 "$QUALM" check adamw_f32 --search --time 8 --backend emu
    [[ $output == *passed*"seed 20240501, backend emu, mode exact" ]]
}

@test "check --mode fast: inexact within a GPU's limits on the emulator, refused on the CPU" {
    long 4
    command -v c++ >/dev/null || skip "no C++ compiler"
    grep -qw fma /proc/cpuinfo || skip "no fma on this processor"
    for mode in exact fast; do
        json_value 'd["variants"][0]["passed"], d["variants"][0]["equal"]' check lamb_bnb --backend emu \
            --mode $mode --case 4097/normal/default/t1/forced
    done > "$BATS_TEST_TMPDIR/two"
    [ "$(grep -c True "$BATS_TEST_TMPDIR/two")" = 2 ]
    [ "$(sort -u "$BATS_TEST_TMPDIR/two" | wc -l)" = 2 ] # different bits
    fails_with 2 "--mode fast is of --backend cuda or emu" check lamb_bnb --mode fast
}

@test "--specials and --search judge the backend that is asked for, and name it" {
    long 3
    needs_nvrtc
    fake_driver
    export FAKE_TRACE=$BATS_TEST_TMPDIR/trace QM_CUDA_LIMIT=30
    for options in "--specials" "--search --time 2" "--specials --mode fast"; do
        rm -f "$FAKE_TRACE"
        run -1 "$QUALM" check $options adamw_f32 --backend cuda # launches do nothing
        mode=exact
        [[ $options = *fast ]] && mode=fast
        [[ $output == *FAILED*"seed 20240501, backend cuda, mode $mode" ]]
        grep -q cuLaunchKernel "$FAKE_TRACE"
    done
    says='d["backend"], d["mode"], d["passed"], [s["variant"] for s in d["skipped"]]'
    [ "$(json_value "$says" check --specials adamw_f32 "$NESTED" --backend cuda)" = \
        "cuda exact False ['$NESTED']" ]
    [ "$(json_value "$says" check --search --time 1 adamw_f32 --backend cuda)" = \
        "cuda exact False []" ]
    fails_with 77 "nested scales have no kernel" check --specials "$NESTED" --backend cuda
}

@test "the command that repeats a failure names backend and mode" {
    long 2
    needs_nvrtc
    fake_driver
    export QM_CUDA_LIMIT=30
    for case in "" "--mode fast"; do
        run -1 "$QUALM" check adamw_f32 --backend cuda $case --quick --draws 3
        grep -q "again: qualm check 'adamw_f32' --backend cuda${case:+ $case} --case" <<<"$output"
        again=$(sed -n 's/^ *again: qualm //p' <<<"$output" | head -1)
        run -1 bash -c "'$QUALM' $again"
        [[ $output == *"backend cuda, mode ${case:+fast}"* ]]
    done
}

@test "what runs on one backend is refused on another: one line" {
    cd "$BATS_TEST_TMPDIR"
    "$QUALM" check --template lion8_fused.cu > k.cu
    fails_with 2 "--search runs a .cu file on --backend emu" check --search --kernel k.cu \
        --backend cuda
    fails_with 2 "k.cu: backend cpu runs no CUDA sources" check --kernel k.cu --backend cpu
    fails_with 2 "k.cu: backend cpu runs no CUDA" prove k.cu --map nf4 --backend cpu
    fails_with 4 "no backend 'gpu'" prove k.cu --map nf4 --backend gpu
    fails_with 4 "no backend 'gpu'" prove nf4:4s/scan/mid --backend gpu
    fails_with 2 "--mode fast is of" check --specials adamw_f32 --mode fast
    [ "$(json_value 'd["backend"], "mode" in d' check --specials adamw_f32)" = "cpu False" ]
}

@test "a user's .cu file is compiled again when a file changes that it includes" {
    needs_nvrtc
    mkdir -p "$BATS_TEST_TMPDIR/deep" && cd "$BATS_TEST_TMPDIR"
    { echo '#include "deep/a.h"'; "$QUALM" check --template adamw4_ao.cu; } > k.cu
    echo '  #  include "b.h" /* beside it */' > deep/a.h
    echo '__device__ int one = 1;' > deep/b.h
    for i in 1 2; do run -77 "$QUALM" check --kernel k.cu --backend cuda; done
    [ "$(ls "$QM_CACHE" | wc -l)" = 1 ]
    echo '__device__ int one = nothing;' > deep/b.h
    fails_with 2 "does not compile" check --kernel k.cu --backend cuda
    echo '__device__ int one = 2;' > deep/b.h
    run -77 "$QUALM" check --kernel k.cu --backend cuda
    [ "$(ls "$QM_CACHE" | wc -l)" = 2 ]
    run -77 env CUDAFLAGS="--fmad=true -DX=1" "$QUALM" check --kernel k.cu --backend cuda
    [ "$(ls "$QM_CACHE" | wc -l)" = 3 ]
}

@test "a user's .cu file is compiled again whatever spelling brings in the file that changes" {
    long 2
    needs_nvrtc
    mkdir -p "$BATS_TEST_TMPDIR/inc" && cd "$BATS_TEST_TMPDIR"
    "$QUALM" check --template adamw4_ao.cu > plain.cu
    # the spelling, and 1 where it is followed, 0 where the kernel is not cached and a note says so
    while IFS='|' read -r is_followed line; do
        rm -rf "$QM_CACHE"
        { printf "$line\n"; cat plain.cu; } > k.cu
        echo '__device__ int one = 1;' | tee x.h > inc/x.h
        run -77 env CUDAFLAGS=-Iinc "$QUALM" check --kernel k.cu --backend cuda
        [ "$(ls "$QM_CACHE" | wc -l)" = "$is_followed" ] || { echo "$line"; false; }
        if [ $is_followed = 0 ]; then
            [[ $output = *"k.cu is compiled anew each time, because which files it includes"* ]]
        fi
        echo '__device__ int one = nothing;' | tee x.h > inc/x.h
        CUDAFLAGS=-Iinc fails_with 2 "does not compile" check --kernel k.cu --backend cuda
    done << 'END'
1|%%:include "x.h"
1|%%: include <x.h>
1|#inc\\\nlude "x.h"
1|\f#\finclude "x.h"
0|#define B "x.h"\n#include B
0|#include_next "x.h"
0|%%:include_next <x.h>
0|#define A \\ \n#include "x.h"
END
    for line in '?''?=include "x.h"' '#inc?''?/\nlude "x.h"'; do # trigraphs, of C++11 alone
        rm -rf "$QM_CACHE"
        { printf "$line\n"; cat plain.cu; } > k.cu
        echo '__device__ int one = 1;' > x.h
        run -77 env CUDAFLAGS=-std=c++11 "$QUALM" check --kernel k.cu --backend cuda
        [[ $output = *"which files it includes is not known"* ]]
        echo '__device__ int one = nothing;' > x.h
        CUDAFLAGS=-std=c++11 fails_with 2 "does not compile" check --kernel k.cu --backend cuda
    done
}

@test "a user's .cu file is compiled by NVRTC before a GPU is needed" {
    needs_nvrtc
    "$QUALM" check --template adamw4_ao.cu > "$BATS_TEST_TMPDIR/k.cu"
    fails_with 77 "GPU backend unavailable" check --kernel "$BATS_TEST_TMPDIR/k.cu" --backend cuda
    echo '__device__ int x = nothing;' >> "$BATS_TEST_TMPDIR/k.cu"
    fails_with 2 "does not compile" check --kernel "$BATS_TEST_TMPDIR/k.cu" --backend cuda
}

# fake_driver: a libcuda that fails at $FAKE_CALL as $FAKE_HOW says (tests/support/fake_cuda.c)
fake_driver() {
    command -v cc >/dev/null || skip "no C compiler"
    cc -shared -fPIC -o "$BATS_TEST_TMPDIR/libcuda.so.1" "$ROOT/tests/support/fake_cuda.c"
    export QM_LIBCUDA=$BATS_TEST_TMPDIR/libcuda.so.1 QM_CUDA_LIMIT=0.2
}

@test "a driver that crashes or does not return is a line of doctor, and no other command hangs" {
    long 6
    fake_driver
    commands=("check adamw_f32 --backend cuda" "prove nf4:4s/scan/mid --backend cuda"
        "gpu-check --out $BATS_TEST_TMPDIR/gpu")
    for call in load cuDriverGetVersion cuInit cuDeviceGetCount; do
        for how in hang crash; do
            export FAKE_CALL=$call FAKE_HOW=$how
            says="ended by signal 11" what=$call
            [ $how = hang ] && says="has not returned from"
            [ $call = load ] && what="loading libcuda"
            run -0 "$QUALM" doctor
            [[ $output == *"driver "*"$says"*"$what"* && $output == *python3* ]]
            for command in "${commands[@]}"; do
                run -3 "$QUALM" $command
                [ "${#lines[@]}" = 1 ]
                [[ $output == *"$what"* ]]
            done
        done
    done
    [ ! -e "$BATS_TEST_TMPDIR/gpu" ]
}

@test "an NVML that crashes, hangs, fails or lies is a line of doctor" {
    long 2
    command -v cc >/dev/null || skip "no C compiler"
    cat > "$BATS_TEST_TMPDIR/nvml.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int nvmlInit_v2(void)
{
    const char *how = getenv("FAKE_NVML");
    if (!strcmp(how, "hang"))
        pause();
    if (!strcmp(how, "crash"))
        abort();
    return !strcmp(how, "fail") ? 18 : 0;
}
int nvmlSystemGetDriverVersion(char *s, unsigned n)
{
    return snprintf(s, n, "%s", strcmp(getenv("FAKE_NVML"), "lie") ? "580.65.06" : "\x1b[31m") < 0;
}
#define NONE(name) int name(void) { return 3; }
NONE(nvmlDeviceGetHandleByPciBusId_v2)
NONE(nvmlDeviceGetClockInfo)
NONE(nvmlDeviceGetMaxClockInfo)
NONE(nvmlDeviceGetPowerUsage)
NONE(nvmlDeviceGetTemperature)
C
    cc -shared -fPIC -o "$BATS_TEST_TMPDIR/nvml.so" "$BATS_TEST_TMPDIR/nvml.c"
    export QM_NVML=$BATS_TEST_TMPDIR/nvml.so QM_CUDA_LIMIT=0.5
    says() {
        run -0 env FAKE_NVML="$1" "$QUALM" doctor
        [[ $output == *"nvml "*"$2"* ]] || { echo "$1: $output"; return 1; }
    }
    says good "nvml.so, driver 580.65.06"
    says hang "NVML has not returned from nvmlInit_v2 within 0.5 s"
    says crash "ended by signal 6 (Aborted), in nvmlInit_v2"
    says fail "nvmlInit_v2 gives error 18; clocks are not measured"
    says lie "a version of the driver that is none"
    QM_NVML=none run -0 "$QUALM" doctor
    [[ $output == *"no NVML: QM_NVML=none does not load; clocks are not measured"* ]]
}

@test "QM_CUDA_LIMIT that is no number of seconds: one line and 2 in every command" {
    for command in "check adamw_f32 --backend cuda" "prove nf4:4s/scan/mid --backend cuda" doctor \
        "kernels adamw_f32" "gpu-check --out $BATS_TEST_TMPDIR/gpu" "gpu-check --resume"; do
        for limit in x 0 "" 1e7 nan 2s; do
            QM_CUDA_LIMIT=$limit run -2 "$QUALM" $command
            [ "$output" = "qualm ${command%% *}: QM_CUDA_LIMIT=$limit: expected seconds, from\
 0.01 to 1e6" ]
        done
    done
}

@test "a driver that leaves gives no verdict, and what it prints is no answer" {
    fake_driver
    commands=("check adamw_f32 --backend cuda" "prove nf4:4s/scan/mid --backend cuda"
        "gpu-check --limit 5 --out $BATS_TEST_TMPDIR/gpu")
    for command in "${commands[@]}"; do
        FAKE_CALL=cuInit FAKE_HOW=exit0 run -3 "$QUALM" $command
        [ "${#lines[@]}" = 1 ]
        [[ $output == *"left with exit code 0, in cuInit"* ]]
        FAKE_CALL=cuInit FAKE_HOW=exit0 json_on_stdout $command --json
        FAKE_CALL=cuDeviceGetCount FAKE_HOW=999 run -3 "$QUALM" $command
    done
    for command in doctor "check adamw_f32 --backend cuda --case 129/normal/default/t1/forced"; do
        FAKE_CALL=cuInit FAKE_HOW=print json_on_stdout $command --json
    done
    [ ! -e "$BATS_TEST_TMPDIR/gpu" ]
}

@test "a driver that scribbles, forks, raises signals or lowers limits: one line or one answer" {
    long 3
    fake_driver
    check=(check adamw_f32 --backend cuda --case 129/normal/default/t1/forced -q)
    said=$BATS_TEST_TMPDIR/said
    for how in scribble int term hup; do
        for command in "${check[*]}" "prove nf4:4s/scan/mid --backend cuda --range 0.7:0.701"; do
            FAKE_CALL=cuInit FAKE_HOW=$how run -3 "$QUALM" $command
            [ "${#lines[@]}" = 1 ] || { echo "$how: $output"; return 1; }
        done
        FAKE_CALL=cuInit FAKE_HOW=$how run -0 "$QUALM" doctor
        [[ $output == *"driver  the process that uses the GPU"* ]]
    done
    for how in fork twin fsize; do # into files: the limit is of files
        status=0
        FAKE_CALL=cuInit FAKE_HOW=$how FAKE_RUN=$BATS_TEST_TMPDIR QM_CUDA_LIMIT=30 \
            "$QUALM" "${check[@]}" --json > "$said" 2> "$said.notes" || status=$?
        [[ $status = [13] ]] # a driver that computes nothing fails, or it is one that failed
        python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$said"
        [ -z "$(grep -lzs "FAKE_RUN=$BATS_TEST_TMPDIR" /proc/[0-9]*/environ)" ] # no process is left
    done
}

@test "check and prove of a .cu file: a failing driver is no verdict on the kernel" {
    long 3
    needs_nvrtc
    fake_driver
    cd "$BATS_TEST_TMPDIR"
    "$QUALM" check --template adamw4_ao.cu > k.cu
    printf '%s\n' '#include "kernel_cuda.h"' \
        'extern "C" __global__ void qm_cuda_nearest(const float *y, long n, unsigned char *c) {}' \
        'QM_CUDA_LAUNCH(qm_cuda_nearest, 256, 256, 0);' > n.cu
    for call in cuStreamCreate cuModuleLoadData cuModuleGetFunction cuModuleGetGlobal_v2; do
        for how in 2 999 crash exit0 scribble; do
            for command in "check --kernel k.cu" "prove n.cu --map nf4"; do
                [[ $call$command = cuModuleGetFunctioncheck* ]] && continue # variables come first
                [[ $call$command = cuModuleGetGlobal_v2prove* ]] && continue
                FAKE_CALL=$call FAKE_HOW=$how QM_CUDA_LIMIT=30 run -3 "$QUALM" $command \
                    --fmad=true --backend cuda
                [[ ${#lines[@]} = 1 && $output == "qualm ${command%% *}: "* ]] ||
                    { echo "$command $call $how: $output"; return 1; }
            done
        done
    done
}

# Calls of the driver that a check of a user's kernel makes, with each fault of fake_cuda.c.
pairs() {
    for call in load cuInit cuDriverGetVersion cuDeviceGetCount cuDeviceGet cuDeviceGetAttribute \
        cuDevicePrimaryCtxRetain cuCtxSetCurrent cuStreamCreate cuMemAlloc_v2 cuMemFree_v2 \
        cuMemsetD8Async cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuModuleLoadData \
        cuModuleGetFunction cuModuleGetGlobal_v2 cuLaunchKernel cuStreamSynchronize; do
        for how in 1 2 100 700 719 999 late hang crash exit0 print int term hup fork twin fsize \
            scribble; do
            echo "$call/$how/1 $call/$how/2 $call/$how/3"
        done
    done
}

@test "check --kernel on a driver that runs it: passed, and under faults never a wrong verdict" {
    long 4
    needs_nvrtc
    fake_driver
    cd "$BATS_TEST_TMPDIR"
    for name in kernel_abi.h kernel_cuda.h adamw4_ao.cu; do
        "$QUALM" check --template "$name" > "$name"
    done
    "$QUALM" check --template adamw_f32 > mine.c
    printf '%s\n' '#include "mine.c"' '#include "kernel_cuda.h"' 'int qm_cuda_abi = QM_KERNEL_ABI;' \
        'char qm_cuda_as[] = "adamw_f32"; int qm_cuda_step_launch[3] = {128, 128, 0};' \
        'void qm_cuda_step(void **args) { struct qm_cuda_args *c = args[0];' \
        '*c->refused = (uint32_t)qm_kernel_step(&c->a); }' > kernel.c
    cc -O2 -ffp-contract=off -shared -fPIC -I. -o kernel.so kernel.c -lm
    export FAKE_KERNEL=$PWD/kernel.so QM_CUDA_LIMIT=30
    check=(check --kernel adamw4_ao.cu --backend cuda --fmad=true -q --no-shrink --limit-time 3
        --case 129/normal/default/t1/forced)
    run -0 "$QUALM" "${check[@]}"
    [[ $output == "as adamw_f32: passed"* ]]
    sed -i 's/take2 \* x \* x/take2 * x/' mine.c # and a wrong kernel fails there
    cc -O2 -ffp-contract=off -shared -fPIC -I. -o wrong.so kernel.c -lm
    FAKE_KERNEL=$PWD/wrong.so run -1 "$QUALM" "${check[@]}"
    export QM_CUDA_LIMIT=2
    for pair in cuMemFree_v2/twin/1 $(drawn $(pairs)); do # twin: two processes in one memory
        IFS=/ read -r FAKE_CALL FAKE_HOW FAKE_COUNT <<< "$pair"
        export FAKE_CALL FAKE_HOW FAKE_COUNT
        run --separate-stderr "$QUALM" "${check[@]}"
        # 1 where a launch is waited for: a fault there is the kernel's
        [[ $status = [03] || $status = 77 || ( $status = 1 &&
            $FAKE_CALL = @(cuLaunchKernel|cuStreamSynchronize) ) ]] &&
            { [[ $status = [01] ]] ||
                [[ ${#stderr_lines[@]} = 1 && $stderr == "qualm check: "* ]]; } ||
            { echo "$pair: exit code $status: $output $stderr"; return 1; }
    done
}

@test "kernels compiles beside a driver that hangs and says so; a driver's texts are plain" {
    long 5
    needs_nvrtc
    fake_driver
    FAKE_CALL=cuDriverGetVersion FAKE_HOW=hang run -0 --separate-stderr "$QUALM" kernels adamw_f32 \
        --arch sm_90
    [[ $stderr == *"NVRTC is chosen without the driver: "*"cuDriverGetVersion within 0.2 s"* ]]
    export FAKE_CALL=cuMemAlloc_v2 FAKE_HOW=700 QM_CUDA_LIMIT=30
    fails_with 3 "CUDA_ERROR_FAKE (700): not UTF-8: ?|<b>" check adamw_f32 --backend cuda
    json_on_stdout check adamw_f32 --backend cuda --json
    # a driver that computes nothing proves nothing
    unset FAKE_CALL
    fails_with 1 "the kernel gave no codes" prove nf4:4s/scan/mid --backend cuda --range 0.7:0.701
    run -1 "$QUALM" check adamw_f32 --backend cuda --case 129/normal/default/t1/forced -q
}

@test "signals and exit codes pass the process that uses the GPU" {
    needs_nvrtc
    fake_driver
    check=(check adamw_f32 --backend cuda --case 129/normal/default/t1/forced -q)
    # what NVRTC compiles is then in the cache: its compiler has its own answer to signals
    run -1 "$QUALM" "${check[@]}"
    export FAKE_CALL=cuMemAlloc_v2 FAKE_HOW=hang QM_CUDA_LIMIT=60
    "$QUALM" "${check[@]}" 3>&- > "$BATS_TEST_TMPDIR/said" 2>&1 &
    for _ in $(seq 200); do
        child=$(pgrep -P $!) && break
        sleep 0.02
    done
    sleep 0.3
    kill -TERM $!
    status=0
    wait $! || status=$?
    [ $status = 75 ] && grep -q "interrupted (Terminated)" "$BATS_TEST_TMPDIR/said" ||
        { echo "$status"; cat "$BATS_TEST_TMPDIR/said"; return 1; }
    run -1 kill -0 "$child"
    QM_CUDA_LIMIT=0 fails_with 2 "QM_CUDA_LIMIT=0: expected seconds" "${check[@]}"
}

@test "the process of a user's kernel is the only one that holds the GPU" {
    needs_nvrtc
    fake_driver
    cd "$BATS_TEST_TMPDIR"
    export FAKE_TRACE=$BATS_TEST_TMPDIR/trace QM_CUDA_LIMIT=30
    "$QUALM" check --template adamw4_ao.cu > k.cu
    printf '%s\n' '#include "kernel_cuda.h"' \
        'extern "C" __global__ void qm_cuda_nearest(const float *y, long n, unsigned char *c) {}' \
        'QM_CUDA_LAUNCH(qm_cuda_nearest, 256, 256, 0);' > n.cu
    for command in "check --kernel k.cu --fmad=true" "prove n.cu --map nf4 --fmad=false"; do
        rm -f "$FAKE_TRACE"
        run "$QUALM" $command --backend cuda
        # the fake has no variables: the kernel is refused when its process has loaded it
        [[ $status = 2 && $output == *"QM_CUDA_"*" line"* ]] || { echo "$output"; return 1; }
        grep -q cuModuleLoadData "$FAKE_TRACE"
        [ "$(grep -c cuDevicePrimaryCtxRetain "$FAKE_TRACE")" = 1 ]
        # and the process that asked for the architecture was gone before that
        [ "$(awk '{print $1}' "$FAKE_TRACE" | uniq | wc -l)" = 2 ]
    done
    export FAKE_MODE=3
    fails_with 2 "EXCLUSIVE_PROCESS lets one process use it, and this check takes 2" \
        check --kernel k.cu --backend cuda
    fails_with 2 "QM_CUDA_KERNEL" check --kernel k.cu --backend cuda --fmad=true
}

@test "an ignored SIGCHLD hides no exit code" {
    QM_LIBCUDA=none run -77 env --ignore-signal=CHLD "$QUALM" check adamw_f32 --backend cuda
}

@test "kernels: shapes that no tensor has are refused" {
    for shape in 99999999999999999999 4294967296x4294967296 0x4294967296x4294967296 -1 +5 \
        1152921504606846976; do
        fails_with 2 "--shape: shape '$shape'" kernels adamw4_ao --shape "$shape" --text
    done
    "$QUALM" kernels adamw4_ao --shape 0x5 --text > /dev/null
}

@test "help of the commands that use a GPU: every exit code" {
    for command in "gpu-check 0 1 2 3 4 75 77" "check 0 1 2 3 4 75 77" "prove 0 1 2 3 4 75 77" \
        "kernels 0 1 2 3 4 75 77"; do
        read -ra words <<< "$command"
        codes=$("$QUALM" "${words[0]}" --help | tr '\n' ' ' | sed 's/.*Exit codes://')
        for code in "${words[@]:1}"; do
            [[ " $codes" =~ [^0-9]$code\  ]]
        done
    done
}
