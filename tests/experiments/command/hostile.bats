#!/usr/bin/env bats
# hostile.bats - Drives every command that opens files over damaged, lying and bottomless ones.
#
# QM_HOSTILE is how many calls one is drawn from (40; `make check-long` sets 1: all of them).

load ../../support/cli_common

setup() { dir=$(mktemp -d); }

teardown() { rm -rf "$dir"; }

@test "hostile files: a documented exit code, one line, 10 s, 1 GiB, nothing left behind" {
    long 6
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

@test "hostile files: one that changes while it is read is refused in one line, or read as it was" {
    long 8
    local draws=$((264 / ${QM_TEST_SHARE:-1}))
    "$PYTHON" "$ROOT/tests/hostile/changing_files.py" "$QUALM" "$dir" \
        $((draws < 22 ? 22 : draws)) "${QM_TEST_SEED:-$RANDOM}"
}

@test "hostile files: chunks beyond the end of an HDF5 file are refused by size, too" {
    "$PYTHON" - "$dir" <<'P'
import h5py, os, sys
os.chdir(sys.argv[1])
for name, libver in ("old.h5", "earliest"), ("new.h5", "latest"):
    with h5py.File(name, "w", libver=libver) as f:
        d = f.create_dataset("w", shape=(8192,), chunks=(1024,), dtype="f4",
                             maxshape=(8192 if libver == "latest" else None,))
        d[:] = 1
        last = d.id.get_chunk_info(7).byte_offset
    data = open(name, "rb").read()
    place = last.to_bytes(8, "little")
    assert data.count(place) == 1, name
    data = data.replace(place, (last + (1 << 30)).to_bytes(8, "little"))
    open(name, "wb").write(data)
P
    for file in old new; do
        for words in "size --shapes" "import -o $dir/o.npz" "analyze -V adamw4_ao"; do
            # shellcheck disable=SC2086
            run -3 qualm $words "$dir/$file.h5"
            echo "$file $words: $output"
            [ "${#lines[@]}" = 1 ]
        done
    done
}

@test "hostile files: size gives up on a file of the system that stays silent" {
    long 4
    [ -r /proc/kmsg ] || skip "/proc/kmsg cannot be read"
    run -3 timeout 15 "$QUALM" size --shapes /proc/kmsg -V adamw4_ao
    [[ $output == *"/proc/kmsg: "* ]]
}

@test "hostile files: containers that hold each other many times end soon" {
    "$PYTHON" "$ROOT/tests/hostile/drawn_cycles.py" "$QUALM" \
        $((240 / ${QM_TEST_SHARE:-1})) "${QM_TEST_SEED:-1}"
}

@test "hostile files: a header that memory does not hold is said to be one, not damaged" {
    long 3
    "$PYTHON" - "$dir/m.safetensors" <<'P'
import struct, sys
head = b",".join(b'"t%06d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(60000))
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head) + 2) + b"{" + head + b"}")
P
    qualm import "$dir/m.safetensors" -o "$dir/m.npz" >/dev/null
    for memory in 40 48 56 64; do
        export QM_READER_MEMORY=$memory
        for words in "size --shapes" "import -o x.npz" "state show"; do
            # shellcheck disable=SC2086
            run -3 qualm $words "$dir/m.safetensors"
            echo "$memory: $output"
            [[ $output == *"needs more than the $memory MiB"* ]]
        done
    done
}
