#!/usr/bin/env bats
# bundle.bats - Tests the folder that `make bundle` makes for machines without packages.

load ../../support/cli_common

setup_file() {
    export BUNDLE=$BATS_FILE_TMPDIR/b
    cd "$BATS_TEST_DIRNAME/../../.."
    cc=${BUILD##*/} # make test exports BUILD=build/CC
    env -u MAKEFLAGS -u MAKELEVEL PATH="/usr/lib/ccache:$PATH" \
        make bundle BUNDLE="$BUNDLE" ${cc:+CC="$cc"} > "$BATS_FILE_TMPDIR/log" 2>&1 ||
        { cat "$BATS_FILE_TMPDIR/log"; return 1; }
}

@test "bundle: runs without an environment, from another folder, with its own libraries alone" {
    cd "$BATS_TEST_TMPDIR"
    run -0 env -i "$BUNDLE/qualm" --version
    run -0 env -i PATH="$PATH" "$BUNDLE/qualm" list suites
    env -i ldd "$BUNDLE/qualm.bin" > libs
    grep -q "$BUNDLE/lib/libgsl" libs
    # what is not in the bundle is glibc, all of it
    grep '=> /' libs | grep -v "$BUNDLE/lib/" > others
    run -1 grep -vE 'lib(c|m|dl|pthread|rt|mvec|resolv|util|anl)\.so' others
    run -1 grep "not found" libs
    for f in "$BUNDLE"/lib/*; do objdump -T "$f"; done > symbols
    run -1 grep GLIBC_PRIVATE symbols
}

@test "bundle: names the highest glibc of all its files, and no file needs a higher one" {
    read -r _ needs _ < "$BUNDLE/NEEDS"
    highest=$(for f in "$BUNDLE/qualm.bin" "$BUNDLE"/lib/*; do objdump -T "$f"; done |
        grep -oE 'GLIBC_[0-9]+\.[0-9]+' | sort -uV | tail -1)
    [ "GLIBC_$needs" = "$highest" ]
    grep -q "bundle: needs glibc $needs or newer, for " "$BATS_FILE_TMPDIR/log"
}

# says TEXT: a getconf that prints it
says() {
    printf '#!/bin/sh\necho "%s"\n' "$1" > "$BATS_TEST_TMPDIR/bin/getconf"
    chmod +x "$BATS_TEST_TMPDIR/bin/getconf"
}

@test "bundle: an older glibc is one clear line, a newer or unknown one is none" {
    mkdir "$BATS_TEST_TMPDIR/bin"
    for version in 2.31 2.17 1.99; do
        says "glibc $version"
        PATH=$BATS_TEST_TMPDIR/bin:$PATH run -3 "$BUNDLE/qualm" --version
        [ "${#lines[@]}" = 1 ]
        [[ $output == "qualm: this bundle needs glibc 2."* ]]
        [[ $output == *" or newer, this system has $version: "* ]]
    done
    for said in "glibc 2.100" "glibc 3.0" "" "musl"; do
        says "$said"
        PATH=$BATS_TEST_TMPDIR/bin:$PATH run -0 "$BUNDLE/qualm" --version
        [[ $output == qualm\ * ]]
    done
}

@test "bundle: what it starts has no LD_LIBRARY_PATH of the bundle; the peers' program is there" {
    mkdir "$BATS_TEST_TMPDIR/bin"
    printf '#!/bin/sh\necho "<$LD_LIBRARY_PATH>" > "%s/seen"\nexit 77\n' "$BATS_TEST_TMPDIR" \
        > "$BATS_TEST_TMPDIR/bin/python3"
    chmod +x "$BATS_TEST_TMPDIR/bin/python3"
    # doctor starts /usr/bin/python3; the wrapper's environment is what every child gets
    run -0 env -u LD_LIBRARY_PATH "$BUNDLE/qualm" doctor
    sed 's#^exec .*#exec python3#' "$BUNDLE/qualm" > "$BATS_TEST_TMPDIR/wrapper"
    printf '#!/bin/sh\n' > "$BATS_TEST_TMPDIR/qualm.bin" # which the wrapper looks for
    chmod +x "$BATS_TEST_TMPDIR/wrapper" "$BATS_TEST_TMPDIR/qualm.bin"
    PATH=$BATS_TEST_TMPDIR/bin:$PATH run -77 env -u LD_LIBRARY_PATH "$BATS_TEST_TMPDIR/wrapper"
    [ "$(cat "$BATS_TEST_TMPDIR/seen")" = "<>" ]
    run -0 "$PYTHON" "$BUNDLE/tests/peers/peers.py" --names
    cd "$BATS_TEST_TMPDIR"
    QM_LIBCUDA=none run -77 "$BUNDLE/qualm" gpu-check
    [[ $output == "qualm gpu-check: GPU backend unavailable: "* ]]
}

@test "bundle: gpu-check beside a driver writes a whole report, without an environment" {
    command -v cc >/dev/null || skip "no C compiler"
    needs_nvrtc
    cd "$BATS_TEST_TMPDIR"
    cc -shared -fPIC -o libcuda.so.1 "$ROOT/tests/support/fake_cuda.c"
    bare=(env -i "PATH=$PATH" "QM_LIBCUDA=$PWD/libcuda.so.1" "QM_CACHE=$PWD/cache"
        "QM_NVRTC=${QM_NVRTC-}" "$BUNDLE/qualm")
    # the driver computes nothing: it has no speed, and no code is right
    run -1 "${bare[@]}" gpu-check adamw_f32 --only speed --size 0.01 --rounds 2 --out gpu -q
    grep -q "failed: implausible: the GPU began 0 of" gpu/*-speed-*.md
    run -1 "${bare[@]}" gpu-check adamw_f32 --only exact --quick --out gpu -q
    [[ $output == *"exact  38 rows: 0 good, 38 bad, 0 not measured, 0 skipped"*": complete" ]]
    run -0 "${bare[@]}" gpu-check --beside gpu/*.h5
    [[ $output == *"| steps with the CPU's bits | "*"0 of 38 (quick)"* ]]
}
