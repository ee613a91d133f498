#!/usr/bin/env bats
# files.bats - What is said of files that cannot be written, hold nothing, or have no end.

load ../../support/cli_common

setup() {
    dir=$(mktemp -d)
    cd "$dir"
    "$PYTHON" -c '
import h5py, numpy
h5py.File("f.h5", "w")["exp_avg"] = numpy.ones((8, 128), "f4")'
}

teardown() { rm -rf "$dir"; }

@test "import: a folder that cannot be written is named with the reason, and not as full" {
    for ending in npz safetensors h5; do
        fails_with 3 "cannot be written in the folder no/such: No such file" \
            import f.h5 -o "no/such/o.$ending"
    done
    mkdir -m 555 closed
    if [ "$(id -u)" != 0 ]; then
        fails_with 3 "cannot be written in the folder closed: Permission denied" \
            import f.h5 -o closed/o.npz
    fi
}

@test "a flipped bit of the file or of its checksum is refused alike by every command" {
    "$QUALM" state make -q --recipe adamw8_bnb --shapes 24x40 --steps 1 s.h5
    for from in -64 -61 -60 -50 -30 -17 -1 -65 -2000 100; do
        "$PYTHON" -c '
import sys
b = bytearray(open("s.h5", "rb").read())
b[int(sys.argv[1])] ^= 4
open("t.h5", "wb").write(b)' $from
        for words in "digest t.h5" "size -S t.h5 -V adamw4_ao" "import t.h5 -o o.npz" \
            "state show t.h5" "analyze t.h5 -Q nf4:4s/block:64/bisect/mid/hi" \
            "report --no-figures t.h5" "conform t.h5" "compare t.h5 s.h5"; do
            fails_with 3 "t.h5" $words
        done
    done
}

@test "tensors that claim many times what is stored are refused before there is room for them" {
    "$PYTHON" -c '
import h5py, numpy
h5py.File("chunks.h5", "w").create_dataset("w/exp_avg", (2 ** 28,), "f4", chunks=(2 ** 20,))
h5py.File("whole.h5", "w").create_dataset("w/exp_avg", (2 ** 27,), "f4")
with h5py.File("many.h5", "w") as f:
    for i in range(40):
        f.create_dataset(f"w{i}/exp_avg", (2 ** 24,), "f4")
h5py.File("small.h5", "w").create_dataset("w/exp_avg", (2 ** 20,), "f4")'
    printf '%s\n' 'variant: adamw4_ao' 'source: "states:*"' 'coupling: oneshot' \
        'slot: exp_avg' >s.yaml
    for words in "import chunks.h5 -o o.npz" "digest chunks.h5"; do # chunks are filled one by one
        fails_with 3 "claims 1073741824 bytes, and stores 0" $words
    done
    for file in whole many; do
        for words in "import $file.h5 -o o.npz" "run -q --data $file.h5 -o o.h5 s.yaml" \
            "analyze $file.h5 -Q nf4:4s/block:64/bisect/mid/hi"; do
            (ulimit -v 1000000; fails_with 3 "are stored; beyond 320 MiB" $words)
        done
    done
    qualm import small.h5 -q -o o.npz >/dev/null
    QM_READER_MEMORY=600 qualm import whole.h5 -q -o o.safetensors >/dev/null
}

@test "digest refuses a file that inflates without end, at once" {
    long 4
    "$PYTHON" - <<'P'
import h5py, numpy, zlib
with h5py.File("bomb.h5", "w") as f: # 40 chunks of 16 MiB of zeros, deflated
    d = f.create_dataset("w", (40 * 2 ** 24,), "u1", chunks=(2 ** 24,), compression=9)
    chunk = zlib.compress(bytes(2 ** 24), 9)
    for i in range(40):
        d.id.write_direct_chunk((i * 2 ** 24,), chunk)
with h5py.File("many.h5", "w") as f: # the same, in parts that are small
    for i in range(40):
        d = f.create_dataset(f"w{i}", (2 ** 24,), "u1", chunks=(2 ** 24,), compression=9)
        d.id.write_direct_chunk((0,), chunk)
with h5py.File("less.h5", "w") as f: # 16 MiB, a thousand times what is stored
    d = f.create_dataset("w", (2 ** 24,), "u1", chunks=(2 ** 24,), compression=9)
    d.id.write_direct_chunk((0,), chunk)
P
    for file in bomb many; do
        fails_with 3 "are stored; beyond 320 MiB at most 64 times as many are read" digest $file.h5
    done
    qualm digest less.h5 >/dev/null
    QM_READER_MEMORY=700 qualm digest bomb.h5 >/dev/null
}

@test "plot --list of a file without figures ends with 4 and says so" {
    "$QUALM" state make -q --recipe adamw8_bnb --shapes 24x40 --steps 1 s.h5
    fails_with 4 "s.h5: has no tables of any figure" plot --list s.h5
}

@test "stdin without an end is refused" {
    timeout 60 "$QUALM" verify - </dev/zero 2>err || status=$?
    cat err
    [ "$status" = 3 ]
    [ "$(wc -l <err)" = 1 ]
    grep -q "MiB on stdin" err
}

@test "tables that do not fit are refused alike with figures and without; no word of Python" {
    printf '%s\n' 'variant: adamw4_ao' 'source: dist:gauss' 'seed: [1, 2]' 'n: 256' >s.yaml
    "$QUALM" run -q -o a.h5 s.yaml
    for change in 'f.create_dataset("axes", data=numpy.zeros(3))' 'f["axes"] = a[:1]' \
        'f.create_group("axes")' 'f["axes"] = h5py.SoftLink("/cells")'; do
        "$PYTHON" - "$change" <<'P'
import h5py, numpy, shutil, sys
shutil.copy("a.h5", "b.h5")
with h5py.File("b.h5", "r+") as f:
    del f["provenance"].attrs["digest"]
    a, kept = f["axes"][:], dict(f["axes"].attrs)
    del f["axes"]
    exec(sys.argv[1])
    if isinstance(f["axes"], h5py.Dataset) and f["axes"] != f["cells"]:
        f["axes"].attrs.update(kept)
P
        for words in "report --no-figures" report plot "plot --list"; do
            fails_with 3 "axes" $words b.h5
            "$QUALM" $words b.h5 2>err >out || true
            ! grep -E "Error|h5py|Traceback" err || return 1
        done
    done
}

@test "flipped bits of campaign.json are damage, exit code 3, and so is one without a sum" {
    printf '%s\n' 'variant: [adamw4_ao, adamw8_bnb]' 'source: dist:gauss' 'n: 256' >"$dir/mix.yaml"
    "$QUALM" run -q -k -w 1 --shard 1/2 -o "$dir/j.h5" "$dir/mix.yaml" >/dev/null
    cp "$dir/j.run/campaign.json" "$dir/whole"
    cat "$dir/whole"
    size=$(stat -c %s "$dir/whole") refused=0
    for i in $(seq 24); do
        "$PYTHON" - "$dir/whole" "$dir/j.run/campaign.json" "$((RANDOM % size))" "$((i % 8))" <<'P'
import sys
b, at, bit = bytearray(open(sys.argv[1], "rb").read()), int(sys.argv[3]), int(sys.argv[4])
b[at] ^= 1 << bit
open(sys.argv[2], "wb").write(b)
print("byte", at, "bit", bit)
P
        same=$("$PYTHON" -c 'import json, sys
try: print(json.load(open(sys.argv[1], "rb")) == json.load(open(sys.argv[2], "rb")))
except ValueError: print(False)' "$dir/whole" "$dir/j.run/campaign.json")
        [ "$same" = False ] || continue # white space
        refused=$((refused + 1))
        fails_with 3 "campaign.json: is damaged" run -w 1 --shard 1/2 -o "$dir/j.h5" "$dir/mix.yaml"
        fails_with 3 "campaign.json: is damaged" status "$dir/j.run"
        fails_with 3 "campaign.json: is damaged" merge "$dir/j.run" -o "$dir/m.h5"
    done
    [ $refused -gt 10 ]
    "$PYTHON" - "$dir/whole" "$dir/j.run/campaign.json" <<'P'
import json, sys
d = json.load(open(sys.argv[1]))
del d["sum"]
json.dump(d, open(sys.argv[2], "w"))
P
    fails_with 3 "campaign.json: is damaged" run -w 1 --shard 1/2 -o "$dir/j.h5" "$dir/mix.yaml"
}

@test "digest: control characters of a name are escaped; a name that is not UTF-8 is in the JSON" {
    local dir=$BATS_TEST_TMPDIR
    qualm run smoke -q -o "$dir/a.h5" >/dev/null
    cp "$dir/a.h5" "$dir/"$'b\e]0;x.h5'
    cp "$dir/a.h5" "$dir/"$'\xff.h5'
    run -0 "$QUALM" digest "$dir/"$'b\e]0;x.h5'
    [[ $output == *'b\x1b]0;x.h5' && $output != *$'\e'* ]]
    [ "$(json_value 'len(d)' digest "$dir/"$'\xff.h5')" = 1 ]
}

@test "no control character of a name or a word reaches the terminal or the JSON" {
    long 4
    "$QUALM" state make -q --recipe adamw8_bnb --shapes 24x40 --steps 1 s.h5
    for sign in $'\e[31m' $'\xc2\x9b31m' $'\u202e' $'\x7f'; do
        cp s.h5 "x$sign.h5"
        for words in "" "run --" "run -w " "show " "list " "plan " "conform " "digest " "report " \
            "state show " "size -S " "import -o o.npz " "analyze " "check --kernel " "tune " \
            "status " "help " "search --space " "run -o o.h5 " "gen " "prove " "compare "; do
            for end in "" .h5; do
                for json in "" --json; do
                    "$QUALM" $words"x$sign$end" $json >out 2>&1 </dev/null || true
                    if grep -qF -e "$sign" out; then
                        echo "qualm $words x$(printf %q "$sign")$end $json: $(cat -v out)"
                        false
                    fi
                done
            done
        done
    done
}

@test "a damaged campaign.json says what to do, and doing that loses no finished cell" {
    printf '%s\n' 'variant: adamw4_ao' 'source: dist:gauss' 'seed: [1, 2]' 'n: 256' >s.yaml
    qualm run -q -k -w 1 --shard 1/2 -o c.h5 s.yaml
    cp c.run/*.0001.h5 kept
    echo damage >c.run/campaign.json
    fails_with 3 "removed, and the same" run -w 1 --shard 1/2 -o c.h5 s.yaml
    rm c.run/campaign.json
    qualm run -q -k -w 1 --shard 1/2 -o c.h5 s.yaml
    cmp kept c.run/1of2.0001.h5
    [ ! -e c.run/1of2.0002.h5 ]
}

@test "flipped bits of a campaign's suite.yaml are damage, exit code 3; run writes it anew" {
    cd "$dir"
    printf '%s\n' 'variant: [adamw4_ao, adamw8_bnb]' 'source: dist:gauss' 'n: 256' >mix.yaml
    "$QUALM" run -q -k -w 1 --shard 1/1 -o c.h5 mix.yaml >/dev/null
    "$QUALM" merge -q c.run -o want.h5 >/dev/null
    want=$("$QUALM" digest want.h5 | cut -d ' ' -f 1)
    cp c.run/suite.yaml whole
    size=$(stat -c %s whole)
    for i in $(seq 16); do
        "$PYTHON" -c 'import sys
b, at, bit = bytearray(open("whole", "rb").read()), int(sys.argv[1]), int(sys.argv[2])
b[at] ^= 1 << bit
open("c.run/suite.yaml", "wb").write(b)
print("byte", at, "bit", bit)' $((RANDOM % size)) $((i % 8))
        fails_with 3 "merge: c.run/suite.yaml: is damaged" merge c.run -o m.h5
        [ ! -e m.h5 ]
    done
    rm c.run/suite.yaml
    fails_with 3 "merge: c.run/suite.yaml: is gone" merge c.run -o m.h5
    "$QUALM" run -q -k -w 1 -o c.h5 mix.yaml >/dev/null
    cmp c.run/suite.yaml whole
    "$QUALM" merge -q c.run -o m.h5 >/dev/null
    [ "$("$QUALM" digest m.h5 | cut -d ' ' -f 1)" = "$want" ]
}

@test "merge from another folder finds data by the relative paths of where it was begun" {
    mkdir "$dir/a [1]" "$dir/b"
    cd "$dir/a [1]"
    cp "$ROOT/tests/experiments/readers/checkpoints/zip.pt" .
    printf '%s\n' 'variant: [adamw4_ao, adamw8_bnb]' 'source: "states:*"' 'coupling: oneshot' \
        'slot: exp_avg' 'data: zip.pt' >s.yaml
    "$QUALM" run -q -w 0 -o one.h5 s.yaml >/dev/null
    want=$("$QUALM" digest one.h5 | cut -d ' ' -f 1)
    "$QUALM" run -q -k -w 1 --shard 1/1 -o c.h5 s.yaml >/dev/null
    for from in "$dir/b" /; do
        cd "$from"
        "$QUALM" merge -q "$dir/a [1]/c.run" -o "$dir/m.h5" >/dev/null
        [ "$("$QUALM" digest "$dir/m.h5" | cut -d ' ' -f 1)" = "$want" ]
        rm "$dir/m.h5"
    done
    mv "$dir/a [1]" "$dir/moved" # the folder is elsewhere now: the current one counts
    fails_with 4 "data: no file matches 'zip.pt', in '$dir/a [1]', where" merge "$dir/moved/c.run"
    cd "$dir/moved"
    "$QUALM" merge -q c.run -o "$dir/m.h5" >/dev/null
    [ "$("$QUALM" digest "$dir/m.h5" | cut -d ' ' -f 1)" = "$want" ]
    cp "$ROOT/tests/experiments/readers/checkpoints/legacy.pt" zip.pt
    fails_with 2 "c.run: its data have other names, order or contents than" merge c.run
}

@test "run makes the folder of --out; a suite with too many elements is a usage error" {
    printf '%s\n' 'variant: adamw4_ao' 'source: dist:gauss' 'n: 4611686018427387904' >big.yaml
    fails_with 2 "big.yaml: n: 4611686018427387904, expected less than 2^38" run big.yaml -o b.h5
    [ ! -e b.h5 ] && [ ! -e b.run ]
    sed -i 's/n: .*/n: 256/' big.yaml
    qualm run -q big.yaml -o results/b.h5
    [ -f results/b.h5 ]
    fails_with 3 "in the folder no/such: No such file or directory (it cannot be made)" \
        run big.yaml -o no/such/b.h5
    sed -i 's/source: .*/source: "states:*"/' big.yaml
    fails_with 4 "no file matches 'experiments/data/samples/absent.pt'" \
        run big.yaml --data experiments/data/samples/absent.pt -o b.h5
    "$QUALM" run big.yaml --data experiments/data/samples/absent.pt -o b.h5 2>err || true
    [ "$(grep -c "without recorded" err)" = 0 ]
}

@test "digest takes every HDF5 file; what is no result file is said by what it lacks" {
    qualm digest f.h5 >/dev/null
    fails_with 3 "" digest "$ROOT/README.md"
    fails_with 3 "expected the attributes 'schema'" report --no-figures f.h5
}

@test "a suite with more anchors than 1000; an array whose name .safetensors takes for itself" {
    cd "$BATS_TEST_TMPDIR"
    for i in $(seq 1001); do echo "k$i: &a$i 1"; done >s.yaml
    run -2 "$QUALM" plan s.yaml
    [[ $output == *"more than 1000 anchors"* ]]
    "$PYTHON" -c 'import numpy as n; n.savez("m.npz", **{"__metadata__": n.ones(3, "f4")})'
    run -3 "$QUALM" import m.npz -o m.safetensors
    [[ $output == *"an array is called __metadata__"* ]]
    [ ! -e m.safetensors ]
    cd /
    qualm import -q experiments/data/samples/checkpoint.pt -o "$BATS_TEST_TMPDIR/c.npz" >/dev/null
}

@test "help that cannot be written is an error, and a full stdout is one line" {
    for words in "size --help" "--help" "size --usage" "show sqnr" \
        "gen adamw_f32 --cases normal --setting default --shape 3x5 --steps 1 --out -"; do
        code=0
        "$QUALM" $words 2>"$dir/err" >/dev/full || code=$?
        cat "$dir/err"
        [ $code = 3 ] && [ "$(wc -l <"$dir/err")" = 1 ]
        grep -q "cannot write to stdout" "$dir/err"
    done
    qualm size --help | head -1
}

@test "a name with a line's end in it is one line; an unwritable result is one, before reading" {
    name=$'new\nline.pt'
    cp "$ROOT/tests/experiments/readers/checkpoints/zip.pt" "$dir/$name"
    cd "$dir"
    run -3 "$QUALM" digest "$name"
    [ "$output" = "qualm digest: new?line.pt: is not an HDF5 file" ]
    qualm import "$name" --out $'o\n.npz' 2>err >/dev/null
    grep -qxE "wrote o\?.npz: [0-9]+ arrays" err
    for words in "import zip.pt --out absent/o.npz" "state convert zip.pt absent/o.h5"; do
        cp "$name" zip.pt
        run -3 "$QUALM" $words
        [[ $output == "qualm ${words%% *}: absent/o."* && $output != *$'\n'* ]]
    done
}

@test "data: a pattern that visits more than 100000 entries of folders is refused in one line" {
    "$PYTHON" -c '
import os
for i in range(110):
    os.makedirs(f"d/e{i}")
for i in range(910):
    open(f"d/e0/f{i}", "w").close()
for i in range(1, 110):
    os.rmdir(f"d/e{i}")
    os.symlink("e0", f"d/e{i}")'
    printf '%s\n' 'variant: adamw4_ao' 'source: "states:*"' 'coupling: oneshot' \
        'data: ["d/*/no*"]' >s.yaml
    for words in "plan s.yaml" "run -q -w 0 s.yaml" "run -n s.yaml"; do
        fails_with 2 "data: 'd/*/no*' visits more than 100000 entries of folders" $words
    done
    rm d/e9*
    fails_with 4 "no file matches" plan s.yaml
}

@test "texts in foreign HDF5, two arrays of one name, a NUL in YAML, long words: one short line" {
    "$PYTHON" - <<'P'
import h5py, io, numpy as np, zipfile
with h5py.File("t.h5", "w") as f:
    f["w/exp_avg"] = np.ones((8, 128), "f4")
    f["w/note"] = "of the run"
    f.create_dataset("names", data=[b"ab", b"cd"])
x = io.BytesIO()
np.save(x, np.ones(4, "f4"))
with zipfile.ZipFile("n.npz", "w") as z:
    z.writestr("a", x.getvalue())
    z.writestr("a.npy", x.getvalue())
open("nul.yaml", "w").write('variant: adamw4_ao\nsource: dist:gauss\ntitle: "a\\0b"\n')
open("long.yaml", "w").write("variant: adamw4_ao\nsource: dist:gauss\nn: " + "9" * 400 + "\n")
open("long.txt", "w").write("a " + "8x" * 100000 + "8\n")
P
    "$QUALM" import t.h5 -o o.npz >/dev/null 2>err
    grep -qx "t.h5: left out: names (a text); w/note (a text)" err
    "$QUALM" state make -q --recipe adamw_f32 --shapes 24x40 --steps 1 s.h5 >/dev/null
    "$QUALM" import s.h5 -o o.npz >/dev/null 2>err # texts of our own files are no news
    ! grep "left out" err || return 1
    fails_with 3 "n.npz: holds two arrays 'a'; of a member the ending .npy is no part" \
        import n.npz -o o.npz
    fails_with 2 "nul.yaml:3: 'a...' has a NUL in it" plan nul.yaml
    fails_with 2 "long.yaml:3: 'n' is '9999" plan long.yaml
    for words in "plan long.yaml" "size -S long.txt -V adamw4_ao"; do
        "$QUALM" $words 2>err || true
        [ "$(wc -l <err)" = 1 ] && [ "$(wc -c <err)" -lt 320 ]
    done
}

@test "digest: chunks of one column are unpacked once, and give the digest of any other layout" {
    "$PYTHON" -c '
import h5py, numpy
x = (numpy.arange(2 ** 24) % 1021).astype("f4").reshape(4096, 4096)
for name, chunks in (("column", (4096, 1)), ("row", (1, 4096)), ("none", None)):
    how = {"chunks": chunks, "compression": "gzip"} if chunks else {}
    h5py.File(name + ".h5", "w").create_dataset("exp_avg", data=x, **how)'
    "$QUALM" digest row.h5 2>/dev/null | cut -d " " -f 1 >row
    for name in column none; do
        (ulimit -t 8 && "$QUALM" digest $name.h5 2>/dev/null) | cut -d " " -f 1 | cmp - row
    done
}
