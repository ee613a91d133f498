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
    long 2
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
    long 2
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
    long 2
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
    grep -qxE "wrote o\?.npz: [0-9]+ arrays?" err
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
    long 4
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

# libhdf5 accepts a chunk that unpacks to another size.  What a file holds is drawn: filters,
# shapes, which filters a chunk was written without, and by how many bytes it is off.
@test "import: chunks with filters unpack to their size, or the dataset is refused" {
    long 10
    "$PYTHON" - <<'P'
import random, zlib
import h5py, numpy
rng = random.Random(5)
def packed(x, names, skipped, width):
    for k, name in enumerate(names):
        if name == "shuffle" and not skipped >> k & 1:
            n = len(x) // width
            x = bytes(x[i * width + b] for b in range(width) for i in range(n)) + x[n * width:]
        elif name == "gzip" and not skipped >> k & 1:
            x = zlib.compress(x)
    return x
for i in range(40):
    gzip, shuffle, sums = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1), (1, 1, 0)][i % 5]
    names = ["shuffle"] * shuffle + ["gzip"] * gzip + ["fletcher32"] * sums
    skipped = rng.getrandbits(len(names)) | (sums << len(names) - 1) # its sum is not made here
    shape, side = (rng.randint(3, 9), rng.randint(3, 9)), (rng.randint(1, 3), rng.randint(2, 3))
    width = rng.choice((2, 4, 8))
    x = numpy.arange(shape[0] * shape[1]).reshape(shape).astype("f%d" % width)
    at = tuple(rng.randrange(-(-n // s)) * s for n, s in zip(shape, side))
    right = numpy.zeros(side, x.dtype)
    part = x[at[0]:at[0] + side[0], at[1]:at[1] + side[1]]
    right[:part.shape[0], :part.shape[1]] = part
    right = right.tobytes()
    off = rng.choice((-len(right), -1, -rng.randint(1, len(right)), 1, rng.randint(1, 5000)))
    for name, data in ("good", right), ("bad", right[:len(right) + off] + bytes(max(off, 0))):
        with h5py.File(f"{name}{i}.h5", "w") as f:
            d = f.create_dataset("w", data=x, chunks=side, shuffle=bool(shuffle),
                                 compression=4 if gzip else None, fletcher32=bool(sums))
            stored = packed(data, names, skipped, width)
            if stored: # HDF5 stores no chunk of 0 bytes
                d.id.write_direct_chunk(at, stored, skipped)
            else:
                d.id.write_direct_chunk(at, right[:1], (1 << len(names)) - 1)
        numpy.save(f"want{i}.npy", x)
P
    for ((i = 0; i < 40; i++)); do
        "$QUALM" import -q -o "good$i.npz" "good$i.h5" >/dev/null
        fails_with 3 "/w: a chunk" import -q -o bad.npz "bad$i.h5"
        fails_with 3 "/w: a chunk" digest "bad$i.h5"
    done
    "$PYTHON" -c '
import numpy
for i in range(40):
    assert (numpy.load(f"good{i}.npz")["w"] == numpy.load(f"want{i}.npy")).all(), i'
}

@test "import: of the filters of HDF5 those are read whose sizes can be checked" {
    "$PYTHON" - <<'P'
import h5py, numpy
x = numpy.arange(63).reshape(7, 9)
with h5py.File("good.h5", "w") as f:
    for offset in None, 3:
        for gzip in None, 1:
            for shuffle in False, True:
                for kind in "f2", "f4", "f8":
                    f.create_dataset(f"{offset}{gzip}{shuffle}{kind}", data=x.astype(kind),
                                     chunks=(3, 4), compression=gzip, shuffle=shuffle,
                                     scaleoffset=offset if kind != "f2" else None)
with h5py.File("lzf.h5", "w") as f:
    f.create_dataset("w", data=x.astype("f4"), compression="lzf", chunks=(7, 9))
with h5py.File("offset.h5", "w") as f: # three numbers of 32 bits need 12 bytes behind the header
    d = f.create_dataset("w", (3,), "f4", chunks=(3,), scaleoffset=3)
    d.id.write_direct_chunk((0,), bytes([32, 0, 0, 0, 8] + [0] * 27), 0)
P
    "$QUALM" import -q -o good.npz good.h5 >/dev/null
    "$PYTHON" -c '
import numpy
for x in numpy.load("good.npz").values():
    assert (x == numpy.arange(63).reshape(7, 9)).all()'
    fails_with 3 "/w: a chunk is packed by filter 32000 (LZF of h5py), whose size cannot be checked" \
        import -q -o x.npz lzf.h5
    fails_with 3 "/w: a chunk holds fewer bits than its numbers have" import -q -o x.npz offset.h5
}

@test "import: chunks without filters along any axis that may grow, in any layout" {
    "$PYTHON" - <<'P'
import itertools, h5py, numpy
for low in "earliest", "v108", "v110":
    with h5py.File(low + ".h5", "w", libver=(low, "v110")) as f:
        for rank in 1, 2, 3:
            shape, chunks = (5, 7, 4)[:rank], (2, 3, 3)[:rank]
            for grows in itertools.product((False, True), repeat=rank):
                most = tuple(None if g else n for g, n in zip(grows, shape))
                f.create_dataset(f"w{len(f)}", data=numpy.arange(numpy.prod(shape), dtype="f4")
                                 .reshape(shape), chunks=chunks, maxshape=most)
P
    for low in earliest v108 v110; do
        "$QUALM" import -q -o "$low.npz" "$low.h5" >/dev/null
    done
    "$PYTHON" -c '
import numpy
for low in "earliest", "v108", "v110":
    arrays = numpy.load(low + ".npz")
    assert len(arrays.files) == 14, low
    for x in arrays.values():
        assert (x.ravel() == numpy.arange(x.size)).all(), low'
}

@test "JSON tells an infinite metric from an undefined one" {
    write_npy e.npy 1 128 1
    write_npy z.npy 1 128 0
    local metrics="d['rows'][0]['sqnr'], d['rows'][0]['collapse']"
    [[ $(json_value "$metrics" analyze e.npy -Q nf4:4s/block:64/bisect/mid) == *inf*0.0* ]]
    [[ $(json_value "$metrics" analyze z.npy -Q nf4:4s/block:64/bisect/mid) == *inf*None* ]]
    printf '%s\n' 'variant: adamw4_ao' 'exp_avg.norm: ["block:64", row]' 'source: "states:*"' \
        'slot: exp_avg' 'summary: [{name: s, by: exp_avg.norm, value: sqnr, stat: [median, max]}]' \
        >s.yaml
    [[ $(json_value "d[0]['summary']['s']" run s.yaml -o s.h5) == *"'sqnr_max': 'inf'"* ]]
}
