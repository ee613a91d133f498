#!/usr/bin/env bats
# cuda.bats - Tests kernels, check --backend and gpu-check on machines without a GPU.

load ../../support/cli_common

setup() {
    export QM_CACHE=$BATS_TEST_TMPDIR/cache QM_LIBCUDA=none
}

NESTED=adamw_f32,exp_avg=dyn:8s/block:64/bisect/mid/nest:256

needs_nvrtc() {
    "$QUALM" doctor --json | grep -q '"nvrtc": "no NVRTC' && skip "no NVRTC"
    return 0
}

@test "kernels: registers and memory of one variant, compiled once" {
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
    fails_with 2 "expected a number of at least 0.01" gpu-check --limit 0
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
    command -v c++ >/dev/null || skip "no C++ compiler"
    run -0 "$QUALM" check adamw4_ao --backend emu --case 4097/planted/wd/t1/forced -q
    [[ $output == *passed* ]]
    run -0 "$QUALM" check apollo_f32 fira_f32 --backend emu --case 61x67/normal/default/t1/forced -q
    [[ $output == *"apollo_f32"*passed*"fira_f32"*passed* ]]
    run -0 "$QUALM" check adamw4_ao "$NESTED" --backend emu --case 129/normal/default/t1/forced -q
    [[ $output == *"skipped $NESTED: nested scales have no kernel"* ]]
}

@test "check --mode fast: inexact within a GPU's limits on the emulator, refused on the CPU" {
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
    printf '#define B "b.h"\n#include B\n' > deep/a.h # what it names is not known: no cache
    run -77 "$QUALM" check --kernel k.cu --backend cuda
    [ "$(ls "$QM_CACHE" | wc -l)" = 3 ]
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
    fake_driver
    commands=("check adamw_f32 --backend cuda" "prove nf4:4s/scan/mid --backend cuda"
        "gpu-check --limit 0.2 --out $BATS_TEST_TMPDIR/gpu")
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

@test "kernels compiles beside a driver that hangs and says so; a driver's texts are plain" {
    needs_nvrtc
    fake_driver
    FAKE_CALL=cuDriverGetVersion FAKE_HOW=hang run -0 --separate-stderr "$QUALM" kernels adamw_f32 \
        --arch sm_90
    [[ $stderr == *"NVRTC is chosen without the driver: "*"cuDriverGetVersion within 0.2 s"* ]]
    export FAKE_CALL=cuMemAlloc_v2 FAKE_HOW=700
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
    [ $status = 143 ] || { echo "$status"; cat "$BATS_TEST_TMPDIR/said"; return 1; }
    run -1 kill -0 "$child"
    QM_CUDA_LIMIT=0 fails_with 2 "QM_CUDA_LIMIT=0: expected seconds" "${check[@]}"
}

@test "kernels: shapes that no tensor has are refused" {
    for shape in 99999999999999999999 4294967296x4294967296 0x4294967296x4294967296 -1 +5 \
        1152921504606846976; do
        fails_with 2 "--shape: shape '$shape'" kernels adamw4_ao --shape "$shape" --text
    done
    "$QUALM" kernels adamw4_ao --shape 0x5 --text > /dev/null
}

@test "help of the commands that use a GPU: every exit code" {
    for command in "gpu-check 0 1 2 3 4 75 77" "check 0 1 2 3 4 77" "prove 0 1 2 3 4 77" \
        "kernels 0 1 2 3 4 77"; do
        read -ra words <<< "$command"
        codes=$("$QUALM" "${words[0]}" --help | tr '\n' ' ' | sed 's/.*Exit codes://')
        for code in "${words[@]:1}"; do
            [[ " $codes" =~ [^0-9]$code\  ]]
        done
    done
}
