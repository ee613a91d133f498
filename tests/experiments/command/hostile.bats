#!/usr/bin/env bats
# hostile.bats - Drives every command that opens files over damaged, lying and bottomless ones.
#
# QM_HOSTILE is how many calls one is drawn from (40; `make check-long` sets 1: all of them).

load ../../support/cli_common

setup() { dir=$(mktemp -d); }

teardown() { rm -rf "$dir"; }

@test "hostile files: a documented exit code, one line, 10 s, 1 GiB, nothing left behind" {
    of=${QM_HOSTILE:-40} seed=$((RANDOM % 1000))
    echo "seed $seed, part $((seed % of)) of $of"
    "$PYTHON" "$ROOT/tests/hostile/make_files.py" "$QUALM" "$dir" "$seed"
    "$PYTHON" "$ROOT/tests/hostile/drawn_files.py" "$dir" "$seed" $((of == 1 ? 270 : 27))
    "$PYTHON" "$ROOT/tests/hostile/result_files.py" "$QUALM" "$dir" "$seed" $((of == 1 ? 150 : 8))
    "$PYTHON" "$ROOT/tests/hostile/drive.py" "$QUALM" "$dir" $((seed % of)) "$of"
}

@test "hostile files: a file that other programs write into is read with a note" {
    cd "$dir"
    printf '%s\n' 'variant: adamw4_ao' 'source: dist:gauss' 'n: 1024' >c.yaml
    "$QUALM" run -q -o a.h5 c.yaml
    "$QUALM" digest a.h5 2>err >whole
    [ ! -s err ]
    printf 'x' | dd of=a.h5 bs=1 seek=5000 conv=notrunc status=none
    fails_with 3 "checksum is wrong" digest a.h5
    fails_with 3 "checksum is wrong" report a.h5
    fails_with 3 "checksum is wrong" compare a.h5 a.h5
    "$QUALM" run -q -o b.h5 c.yaml
    python3 -c 'import h5py; h5py.File("b.h5", "r+").attrs["note"] = "mine"' 2>/dev/null ||
        /usr/bin/python3 -c 'import h5py; h5py.File("b.h5", "r+").attrs["note"] = "mine"'
    "$QUALM" digest b.h5 2>err
    [ "$(wc -l <err)" = 1 ] # HDF5's library drops the checksum: a note, once
}
