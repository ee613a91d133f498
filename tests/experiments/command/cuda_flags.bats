#!/usr/bin/env bats
# cuda_flags.bats - Tests $CUDAFLAGS: its words on the emulator and for NVRTC, and which form of a
# failing .cu file is named.

load ../../support/cli_common

setup() {
    command -v c++ >/dev/null || skip "no C++ compiler"
    cd "$BATS_TEST_TMPDIR"
    mkdir "a folder" toolkit
    touch toolkit/cuda_runtime.h
    echo '#define FACTOR 1' > "a folder/factor.h"
    {
        printf '%s\n' '#ifdef WITH' '#include "factor.h"' '#if FACTOR + WITH != 3' \
            '#error not WITH 2' '#endif' '#endif' '#ifdef BAD' '#error BAD was defined' '#endif'
        "$QUALM" check --template lion8_fused.cu
    } > k.cu
    one=129/normal/default/t1/forced
}

# judge FLAGS WORD...: checks one case of k.cu
judge() {
    local flags=$1
    shift
    CUDAFLAGS=$flags run "$@" "$QUALM" check --kernel k.cu --no-shrink --case "$one"
}

right=('-DWITH=2 -I"a folder"' "-D WITH=2 -I 'a folder'" '--define-macro=WITH=2 -Ia\ folder'
    "'-DWITH=2' --include-path='a folder'" '"-DWITH=2"  --include-path "a folder"'
    '-DBAD -UBAD' '-DBAD --undefine-macro BAD' '')

@test "CUDAFLAGS on the emulator: quoted words, -I, -D and -U in each spelling" {
    long 2
    for i in $(drawn "${!right[@]}"); do
        flags=${right[i]}
        judge "$flags" -0
        [[ $output == *"passed"* && $output != *"left out of"* ]] ||
            { echo "$flags: $output"; return 1; }
    done
    judge "-DWITH=2" -2
    [[ $output == *"factor.h"*"k.cu does not compile"* ]]
    judge "-DBAD" -2
    [[ $output == *"BAD was defined"* ]]
}

@test "CUDAFLAGS for NVRTC: the same words compile, without a GPU 77" {
    needs_nvrtc
    export QM_LIBCUDA=none QM_CACHE=$BATS_TEST_TMPDIR/cache
    for flags in "${right[@]}"; do
        CUDAFLAGS=$flags run -77 "$QUALM" check --kernel k.cu --backend cuda
    done
    CUDAFLAGS=-DBAD fails_with 2 "BAD was defined" check --kernel k.cu --backend cuda
    CUDAFLAGS=--no-such-option fails_with 2 "k.cu does not compile" check --kernel k.cu \
        --backend cuda
}

@test "CUDAFLAGS: options that the emulator has not are named, and a folder of CUDA's headers" {
    judge "-lineinfo -I toolkit --maxrregcount=32 --fmad=false" -0
    [[ $output == *"left out of \$CUDAFLAGS on backend emu, which has no such option or has CUDA's"*\
" headers of its own: -lineinfo -Itoolkit --maxrregcount=32"* ]]
    [[ $output == *"judged uncontracted (--fmad=false) alone"* ]]
}

@test "CUDAFLAGS that are wrong: exit code 2 and a line, on the emulator and for NVRTC" {
    words=$(printf -- '-DX%d ' {1..100})
    some=$(printf -- '-DX%d ' {1..60}) # on the emulator a macro is two words
    long=$(printf -- '-DX=%09000d' 0)
    for backend in emu cuda; do
        more=()
        if [ $backend = cuda ]; then
            "$QUALM" doctor --json | grep -q '"nvrtc": "no NVRTC' && continue
            more=(--backend cuda)
        fi
        [ $backend = emu ] || some=$words
        for case in '-I"a folder|a " is not closed' "-I'a folder|a ' is not closed" \
            '--fmad=maybe|--fmad=maybe: expected true or false' '-fmad|--fmad=: expected true or false' \
            "$words|too many words" "$some|too many words" "$long|too long"; do
            CUDAFLAGS=${case%|*} QM_LIBCUDA=none fails_with 2 "CUDAFLAGS: ${case##*|}" \
                check --kernel k.cu "${more[@]}"
        done
    done
    CFLAGS="-O2 'x" fails_with 2 "CFLAGS: a ' is not closed" check --kernel \
        "$ROOT/variants/native/adamw_f32.c"
    CXXFLAGS="\"" fails_with 2 'CXXFLAGS: a " is not closed' check --kernel k.cu
}

@test "CXX and CC are words, and no shell reads them; blank ones are not set" {
    long 3
    for word in '$(touch ran)c++' '`touch ran`c++' 'c++;touch ran' 'c++>ran'; do
        CXX=$word fails_with 2 "cannot run the compiler '${word%% *}'" check --kernel k.cu
        CC=$word fails_with 2 "cannot run the compiler '${word%% *}'" check --kernel \
            "$ROOT/variants/native/adamw_f32.c"
        [ ! -e ran ]
    done
    CXX='"c++' run -2 "$QUALM" check --kernel k.cu
    [[ $output == *'CXX: a " is not closed'* && $output != *"sh:"* ]]
    command -v cc >/dev/null || skip "no C compiler"
    CC=$' \t' run -0 "$QUALM" check --kernel "$ROOT/variants/native/adamw_f32.c" --case "$one" -q
    CXX=' ' judge "" -0
}

@test "CFLAGS and CC: quoted words" {
    command -v cc >/dev/null || skip "no C compiler"
    { "$QUALM" check --template adamw_f32 && printf '#include "factor.h"\n'; } > k.c
    CFLAGS='-I"a folder"' run -0 "$QUALM" check --kernel k.c --case "$one" -q
    ln -s "$(command -v cc)" "a folder/cc"
    CC="'$PWD/a folder/cc' -I 'a folder'" run -0 "$QUALM" check --kernel k.c --case "$one" -q
}

@test "a failing .cu file: once where both forms fail alike, else with the name of the form" {
    long 4
    sed 's/127\.0f/126.0f/' k.cu > bad.cu
    run -1 "$QUALM" check --kernel bad.cu --no-shrink --case 129/exact/exact/t1/forced -q
    [ "$(grep -c '^FAILED' <<<"$output")" = 1 ]
    [[ $output == *"FAILED 129/exact/exact/t1/forced failed (both forms): "* ]]
    again=$(sed -n 's/^ *again: qualm //p' <<<"$output")
    [[ -n $again && $again != *--fmad* ]]
    run -1 bash -c "'$QUALM' $again -q --no-shrink"
    [[ $output == *"(both forms)"* ]]
    # JSON keeps an entry for each form
    forms=$(json_value '[f["form"] for f in d["failures"]]' check --kernel bad.cu --no-shrink \
        --case 129/exact/exact/t1/forced || true)
    [[ $forms == "['contracted', 'uncontracted']" ]]
    run -1 "$QUALM" check --kernel bad.cu --no-shrink --case 129/exact/exact/t1/forced -q \
        --fmad=false
    [[ $output == *"failed (uncontracted): "* ]]
    sed 's/__fmul_rn(x, 8193.0f)/x * 8193.0f/' k.cu > trick.cu
    run -1 "$QUALM" check --kernel trick.cu --no-shrink --case 4097/exact/exact/t1/forced -q \
        --junit trick.xml
    [[ $output == *"failed (contracted): "* && $output != *"failed (uncontracted)"* ]]
    names=$(sed -n 's/.*testcase.* name="\([^"]*\)" time="[0-9.]*"\(\/\?\)>/\1\2/p' trick.xml)
    [ "$names" = "$(printf '4097/exact/exact/t1/forced (%s\n' "contracted)" "uncontracted)/")" ]
    # the two forms have other numbers: each is printed
    sed 's/126\.0f/125.0f/;s/__fmul_rn(x, 8193.0f)/x * 8193.0f/' bad.cu > two.cu
    run -1 "$QUALM" check --kernel two.cu --no-shrink --case 4097/exact/exact/t1/forced -q
    [[ $output == *"failed (contracted): "*"failed (uncontracted): "* ]]
}
