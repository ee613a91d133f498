#!/usr/bin/env bats
# cuda_places.bats - Tests where CUDA's libraries are sought, and which NVRTC is taken beside a
# driver, with small libraries that answer and compute nothing.

load ../../support/cli_common

# nvrtc FILE VERSION: a libnvrtc whose version is VERSION, "12, 4"
nvrtc() {
    mkdir -p "${1%/*}"
    {
        grep -oE '"nvrtc[A-Za-z]+"' "$ROOT/core/compile/nvrtc.c" | tr -d '"' | sort -u |
            grep -v '^nvrtcVersion$' | sed 's/.*/int &(void) { return 1; }/'
        echo "int nvrtcVersion(int *a, int *b) { int v[] = {$2}; *a = v[0]; *b = v[1]; return 0; }"
    } > "$BATS_TEST_TMPDIR/nvrtc.c"
    cc -shared -fPIC -o "$1" "$BATS_TEST_TMPDIR/nvrtc.c"
}

# driver VERSION: a driver of two devices in libcuda.so.1
driver() {
    {
        echo '#include <stdio.h>'
        grep -oE '"cu[A-Z][A-Za-z0-9_]+"' "$ROOT/core/cuda/cuda_driver.h" | tr -d '"' | sort -u |
            grep -vE '^cu(DriverGetVersion|DeviceGet(Count|Name|Attribute|))$' |
            sed 's/.*/int &(void) { return 0; }/'
        echo "int cuDriverGetVersion(int *v) { *v = $1; return 0; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 9 : 0; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *s, int n, int d) { snprintf(s, n, \"Card %c\", 'A' + d); return 0; }"
    } > "$BATS_TEST_TMPDIR/cuda.c"
    cc -shared -fPIC -o "$BATS_TEST_TMPDIR/libcuda.so.1" "$BATS_TEST_TMPDIR/cuda.c"
    export QM_LIBCUDA=$BATS_TEST_TMPDIR/libcuda.so.1
}

# doctor [NAME=VALUE...]: without what this machine's variables name, which CUDA it may have
doctor() {
    run -0 env -u CUDA_HOME -u CUDA_PATH -u VIRTUAL_ENV -u CONDA_PREFIX -u PYENV_ROOT -u QM_NVRTC \
        HOME="$BATS_TEST_TMPDIR/home" "$@" "$QUALM" doctor
}

@test "doctor describes the device of QM_CUDA_DEVICE, and says which numbers there are" {
    long 2
    driver 12040
    doctor
    [[ $output == *"driver API 12.4, 2 devices, number 0: Card A"* ]]
    doctor QM_CUDA_DEVICE=1
    [[ $output == *"2 devices, number 1: Card B"* ]]
    doctor QM_CUDA_DEVICE=2
    [[ $output == *"QM_CUDA_DEVICE=2: expected a number from 0 to 1"* ]]
    # where there is no such device it is skipped; what is no number is a mistake, also without a
    # driver
    commands=("check adamw4_ao --backend cuda" "prove nf4:4s/scan/mid --backend cuda" gpu-check)
    for command in "${commands[@]}"; do
        for number in 2 99999999999 99999999999999999999; do
            QM_NVRTC=none QM_CUDA_DEVICE=$number run -77 "$QUALM" $command
        done
        for number in -1 x 1x "" " 1" 0x1 1.0; do
            for library in "$QM_LIBCUDA" none; do
                QM_LIBCUDA=$library QM_CUDA_DEVICE=$number run -2 "$QUALM" $command
                [ "${#lines[@]}" = 1 ]
                [[ $output == *"QM_CUDA_DEVICE=$number: expected the number of a GPU, from 0 on" ]]
            done
        done
    done
    doctor QM_CUDA_DEVICE=1x
    [[ $output == *"QM_CUDA_DEVICE=1x: expected the number of a GPU, from 0 on"* ]]
}

@test "NVRTC: the first that is not newer than the driver, in the environment of python3 on PATH" {
    wheel=lib/python3.11/site-packages/nvidia
    nvrtc "$BATS_TEST_TMPDIR/env/$wheel/cuda_nvrtc/lib/libnvrtc.so.12" "12, 4"
    nvrtc "$BATS_TEST_TMPDIR/first/libnvrtc.so.13" "13, 0"
    mkdir "$BATS_TEST_TMPDIR/env/bin"
    ln -s /usr/bin/python3 "$BATS_TEST_TMPDIR/env/bin/python3"
    places=("PATH=$BATS_TEST_TMPDIR/env/bin:$PATH" "LD_LIBRARY_PATH=$BATS_TEST_TMPDIR/first")
    driver 12020
    doctor "${places[@]}"
    [[ $output == *"env/$wheel/cuda_nvrtc/lib/libnvrtc.so.12, version 12.4"* ]]
    driver 13000
    doctor "${places[@]}"
    [[ $output == *"libnvrtc.so.13, version 13.0"* ]]
    driver 11080 # all are newer: the oldest
    doctor "${places[@]}"
    [[ $output == *"libnvrtc.so.12, version 12.4"* ]]
    export QM_LIBCUDA=none # no driver: the first
    doctor "${places[@]}"
    [[ $output == *"libnvrtc.so.13, version 13.0"* ]]
    # a program behind a link: its own prefix
    nvrtc "$BATS_TEST_TMPDIR/real/$wheel/cu12/lib/libnvrtc.so.12" "12, 9"
    mkdir "$BATS_TEST_TMPDIR/real/bin" "$BATS_TEST_TMPDIR/links"
    printf '#!/bin/sh\n' > "$BATS_TEST_TMPDIR/real/bin/python3"
    chmod +x "$BATS_TEST_TMPDIR/real/bin/python3"
    ln -s "$BATS_TEST_TMPDIR/real/bin/python3" "$BATS_TEST_TMPDIR/links/python3"
    driver 12020
    doctor "PATH=$BATS_TEST_TMPDIR/links:$PATH" "LD_LIBRARY_PATH=$BATS_TEST_TMPDIR/first"
    [[ $output == *"real/$wheel/cu12/lib/libnvrtc.so.12, version 12.9"* ]]
}

@test "the driver is sought in /usr/local/nvidia/lib64, where containers mount it" {
    unshare -rm mount -t tmpfs none /usr/local 2>/dev/null || skip "no mount namespaces here"
    driver 12040
    ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1' && skip "the loader finds a driver first"
    run -0 env -u QM_LIBCUDA -u LD_LIBRARY_PATH unshare -rm sh -c "
        mount -t tmpfs none /usr/local && mkdir -p /usr/local/nvidia/lib64 &&
        cp '$BATS_TEST_TMPDIR/libcuda.so.1' /usr/local/nvidia/lib64/ && '$QUALM' doctor"
    [[ $output == *"/usr/local/nvidia/lib64/libcuda.so.1, driver API 12.4"* ]]
    run -0 env -u QM_LIBCUDA -u LD_LIBRARY_PATH unshare -rm sh -c "
        mount -t tmpfs none /usr/local && '$QUALM' doctor"
    [[ $output == *"no libcuda.so.1 where the loader looks or in /usr/local/nvidia/lib64"* ]]
}
