#!/usr/bin/env bats
# damage.bats - Tests that damaged, grown or unproven files are refused or remarked in one line.

load ../../support/cli_common

setup() { dir=$(mktemp -d); cd "$dir"; }

teardown() { rm -rf "$dir"; }

# one_line CODE TEXT COMMAND...: as fails_with, and stderr is one line; 10 s and 1 GiB are enough
one_line() {
    local code=$1 text=$2 status=0
    shift 2
    (ulimit -v 8388608 && exec timeout 10 "$QUALM" "$@") >out 2>err || status=$?
    if [ "$status" -ne "$code" ] || [ "$(wc -l <err)" -ne 1 ] || ! grep -qF -- "$text" err; then
        echo "qualm $*: exit code $status, expected $code and one line with: $text"
        cat err
        return 1
    fi
}

# campaign: makes c.run, whose cells are done
campaign() {
    printf '%s\n' 'variant: adamw4_ao' 'source: dist:gauss' 'n: 1024' 'seed: 1..6' >c.yaml
    "$QUALM" run -q -k -w 1 -o c.h5 c.yaml
    mv c.h5 whole.h5
}

@test "a sparse giant in a campaign's folder is refused at once" {
    campaign
    for file in 1of1.jsonl suite.yaml 1of1.0001.h5 campaign.json; do
        cp -r c.run s.run
        truncate -s 60G "s.run/$file"
        one_line 3 "s.run/$file: is damaged" merge s.run -o s.h5
        case $file in
        1of1.jsonl | campaign.json) one_line 3 "$file: is damaged" status s.run ;;
        *) "$QUALM" status s.run >out ;; # reads neither
        esac
        case $file in
        1of1.0001.h5) # its cells are run again
            timeout 20 "$QUALM" run -o s.h5 s.run >out 2>err
            grep -q "6 cells are run again" err
            [ "$("$QUALM" digest s.h5 | cut -c1-64)" = "$("$QUALM" digest whole.h5 | cut -c1-64)" ]
            ;;
        *) one_line 3 "$file: is damaged" run -q -o s.h5 s.run ;;
        esac
        rm -rf s.run s.h5
    done
}

@test "merge says that it healed a damaged ledger" {
    campaign
    "$QUALM" merge c.run -o a.h5 2>err >out
    ! grep -q damaged err || return 1
    sed -i '3s/"ok"/"oK"/' c.run/1of1.jsonl
    "$QUALM" merge c.run -o b.h5 2>err >out
    grep -q "ledgers: damaged lines: 1; cells without a line, read back from their segments: 1$" err
    [ "$("$QUALM" digest a.h5 | cut -c1-64)" = "$("$QUALM" digest b.h5 | cut -c1-64)" ]
}

@test "analyze --recipe, its file, its JSON and a state's file say that a join is not proven" {
    cd "$dir"
    write_models <<'L'
plain model=w:44,v:44 adamw@44,44
L
    want="names are joined by order: 2 of 2 parameters follow the order of the model within"
    recipe=adamw4_ao,min_numel=0,whole_blocks=0
    for how in "--recipe $recipe" "-V $recipe"; do
        "$QUALM" analyze plain.pt $how -o an.h5 --json >out 2>err
        [ "$(grep -c "^plain.pt: $want" err)" = 1 ]
        "$PYTHON" - "$want" <<'P'
import h5py, json, sys
assert json.load(open("out"))["remarks"]["plain.pt"].startswith(sys.argv[1])
f = h5py.File("an.h5")
group = f["next_update"] if "next_update" in f else f["analyze"]
text = group.attrs["remarks"]
text = text.decode() if isinstance(text, bytes) else text
assert text.startswith("plain.pt: " + sys.argv[1]), text
P
        rm an.h5
    done
    for file in s.safetensors s.h5; do
        "$QUALM" state convert plain.pt $file --as adamw_f32 --recipe $recipe >out 2>err
        "$QUALM" state show $file >out 2>err
        [ "$(grep -c "^$file: plain.pt: $want" err)" = 1 ]
        "$QUALM" state convert $file copy.h5 >out 2>err # a copy keeps it
        "$QUALM" state show copy.h5 >out 2>err
        [ "$(grep -c "^copy.h5: plain.pt: $want" err)" = 1 ]
    done
}

# rates_of FILE: rates of a small suite, s.yaml
rates_of() {
    cat >s.yaml <<'Y'
variant: adamw4_ao
source: "problem:nqm:n=128"
coupling: closed
protocol: paired
exp_avg.min_numel: 0
exp_avg_sq.min_numel: 0
seed: 1..3
steps: 20
Y
    "$QUALM" tune -q --seeds 1 s.yaml -o "$1" >/dev/null
}

@test "rates: a changed digit, a rate off its curve and deep nesting are refused, no sum is said" {
    rates_of r.json
    "$QUALM" run -q -w 0 s.yaml --rates r.json -o a.h5 >out 2>err
    ! grep -q checksum err || return 1
    "$PYTHON" - <<'P'
import json
r = json.load(open("r.json"))
text = open("r.json").read()
digit = text.index('"rate": ') + 8
open("word.json", "w").write(text.replace('"sum"', '"rum"'))
open("flip.json", "w").write(text[:digit] + chr(ord(text[digit]) ^ 1) + text[digit + 1:])
r["rates"][0]["key"] += "x"
json.dump(r, open("key.json", "w"))
del r["sum"]
json.dump(r, open("none.json", "w"))
r["rates"][0]["rate"] *= 1.01
json.dump(r, open("off.json", "w"))
curve = r["rates"][0]["curve"]
r["rates"][0]["rate"] = max(curve, key=lambda p: 1e9 if p[1] is None else p[1])[0]
json.dump(r, open("worst.json", "w"))
open("deep.json", "w").write('{"a":' * 200 + "1" + "}" * 200)
open("twice.json", "w").write('{"a": 1, "a": 2}')
P
    for file in flip key; do
        one_line 3 "$file.json: was damaged or changed" run s.yaml --rates $file.json -n
    done
    one_line 3 "word.json: key 'rum', expected qualm_rates" run s.yaml --rates word.json -n
    one_line 3 "off.json: 'problem:nqm" run s.yaml --rates off.json -n
    one_line 3 "is no point of its curve" run s.yaml --rates off.json -n
    one_line 3 "not the one that its curve gives; expected" run s.yaml --rates worst.json -n
    one_line 3 "deep.json: nests deeper" run s.yaml --rates deep.json -n
    printf 'variant: adamw4_ao\n\0[[[[' >zero.yaml
    one_line 3 "zero.yaml: is no text: byte 19 is 0" run zero.yaml -n
    one_line 3 "is no text: byte" run "$OLDPWD/experiments/data/gpt_austen.h5" -n
    printf '\xff\xfev\0a\0r\0i\0a\0n\0t\0:\0 \0a\0d\0a\0m\0w\0004\0_\0a\0o\0\n\0' >wide.yaml
    one_line 2 "the suite has no 'source'" run wide.yaml -n
    one_line 3 "twice.json:1: no file of \`qualm tune\`, which is JSON: duplicate" \
        run s.yaml --rates twice.json -n
    one_line 0 "none.json: has no checksum" run s.yaml --rates none.json -n
    one_line 3 "flip.json: was damaged or changed" tune s.yaml -o flip.json
}

@test "the rates that ship have checksums, and fit their suites" {
    for file in "$ROOT"/experiments/rates/*.json; do
        grep -q '^ "sum": "[0-9a-f]\{16\}"$' "$file"
        suite=$(find "$ROOT/experiments/suites" -name "$(basename "$file" .json).yaml")
        "$QUALM" run -q -n "$suite" --rates "$file" >out 2>err
        ! grep -q checksum err || return 1
    done
}

@test "a trace with an impossible number is a damaged file, named with the attribute" {
    printf '%s\n' 'variant: adamw4_ao' 'exp_avg.min_numel: 0' 'source: "trace:*"' \
        'coupling: global' >t.yaml
    for case in beta1=1 beta1=-1 beta2=1.5 eps=-1e-8 weight_decay=-1 lr_peak=-1 w.weight_decay=-1 \
        lr=-1 nesterov=1; do
        "$PYTHON" - "$case" <<'P'
import numpy as np, h5py, sys
name, value = sys.argv[1].split("=")
f = h5py.File("t.h5", "w")
run = f.create_group("run")
run.attrs.update(optimizer="sgdm" if name == "nesterov" else "adamw", beta1=0.9, beta2=0.95,
                 eps=1e-8, weight_decay=0.01, momentum=0.9, dampening=0.5, nesterov=0)
trace = run.create_group("trace")
trace.attrs.update(first_step=1, n_steps=2)
for array in ("param_init", "exp_avg_init", "exp_avg_sq_init"):
    trace["w/" + array] = np.ones(8, "f4")
trace["lr"] = np.array([1e-3, float(value) if name == "lr" else 1e-3])
w = trace["w"]
w["grad"] = np.ones((2, 8), "f4")
if name == "w.weight_decay":
    w.attrs["weight_decay"] = float(value)
elif name != "lr":
    run.attrs[name] = float(value)
P
        want=${case%%=*}
        one_line 3 "${want#*.}" run t.yaml --data t.h5 --out d.h5
        grep -q "t.h5: .*run" err
        [ ! -e d.h5 ]
    done
}

@test "a state with a changed bit is refused by every command that reads it" {
    "$QUALM" state make -R adamw_f32 -S 8x8,12 --steps 3 a.safetensors >/dev/null
    "$QUALM" analyze a.safetensors -Q nf4:4s/block:64/bisect/mid/hi --tensor exp_avg >/dev/null
    printf '%s\n' 'variant: adamw4_ao' 'source: "states:*"' 'coupling: oneshot' >s.yaml
    "$PYTHON" - <<'P'
b = bytearray(open("a.safetensors", "rb").read())
b[-6] ^= 64
open("b.safetensors", "wb").write(b)
P
    want="b.safetensors: the contents do not match their digest"
    one_line 3 "$want" state show b.safetensors
    one_line 3 "$want" state convert b.safetensors c.h5
    one_line 3 "$want" analyze b.safetensors -Q nf4:4s/block:64/bisect/mid/hi
    one_line 3 "$want" analyze b.safetensors --recipe adamw4_ao
    one_line 3 "$want" import b.safetensors -o c.npz
    one_line 3 "$want" size --shapes b.safetensors -V adamw4_ao
    one_line 3 "$want" run s.yaml --data b.safetensors -o c.h5
    [ ! -e c.h5 ] && [ ! -e c.npz ]
    sed 's/"digest":/"Digest":/' b.safetensors >key.safetensors
    one_line 3 "'Digest' in __metadata__, expected format" state show key.safetensors
    "$PYTHON" - <<'P' # other programs need not write one: a note says so
import json, struct
b = open("b.safetensors", "rb").read()
n = struct.unpack("<Q", b[:8])[0]
head = json.loads(b[8:8 + n])
del head["__metadata__"]["digest"]
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
open("none.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + b[8 + n:])
P
    one_line 0 "none.safetensors: has no digest" state show none.safetensors
}

@test "a result file that was changed, and an error: one line that says both" {
    printf '%s\n' 'variant: adamw4_ao' 'source: dist:gauss' 'n: 1024' >c.yaml
    "$QUALM" run -q -o a.h5 c.yaml >/dev/null
    "$PYTHON" -c 'import h5py; f = h5py.File("a.h5", "r+"); del f["cells"]'
    for command in "compare a.h5 a.h5" "report a.h5 -o a.html" "import a.h5 --tensor none -o b.npz" \
        "state show a.h5"; do
        status=0
        "$QUALM" $command >out 2>err || status=$?
        echo "$command: $status, $(<err)"
        [ "$status" -ge 2 ] && [ "$(wc -l <err)" = 1 ]
        grep -q "a.h5: was changed by another program" err
    done
    "$QUALM" digest a.h5 >out 2>err # no error: the note is the one line
    [ "$(wc -l <err)" = 1 ]
}

@test "run where every cell is skipped: one line with the reason, no table" {
    printf '%s\n' 'variant: adamw4_ao' 'source: dist:gauss' 'coupling: closed' 'summary:' \
        '  - {name: s, by: variant, value: sqnr}' >s.yaml
    one_line 4 "every cell was skipped: closed needs" run s.yaml -o s.h5
    [ ! -s out ] && [ -e s.h5 ]
    grep -q "(1 of 1 cells); s.h5 lists them$" err
    one_line 4 "s.h5 stays as it was" run s.yaml -o s.h5
    [ "$("$QUALM" run s.yaml -o s.h5 --json 2>/dev/null | "$PYTHON" -m json.tool | wc -l)" -gt 1 ]
}

@test "a damaged .npz: what is damaged and what was expected, no errno" {
    "$PYTHON" - <<'P'
import numpy as np, struct
np.savez("a.npz", exp_avg=np.ones(5, "f4"))
b = bytearray(open("a.npz", "rb").read())
at = b.find(b"PK\1\2")
for name, field, value in (("size", 20, 0xffffffff), ("offset", 42, 0x7ffffff0)):
    c = bytearray(b)
    struct.pack_into("<I", c, at + field, value)
    open(name + ".npz", "wb").write(c)
P
    for file in size offset; do
        one_line 3 "damaged: an offset or a size in its directory lies outside of the file" \
            import $file.npz -o z.npz
        grep -q "$file.npz: .*expected" err
        [ ! -e z.npz ]
    done
    one_line 3 "entry 'exp_avg.npy' is damaged" import offset.npz -o z.npz
}

@test "an .npz whose two names of an entry differ is refused" {
    "$PYTHON" - <<'P'
import numpy as np
np.savez("a.npz", exp_avg=np.ones(5, "f4"))
b = bytearray(open("a.npz", "rb").read())
for name, at in (("local", b.find(b"exp_avg")), ("central", b.rfind(b"exp_avg"))):
    c = bytearray(b)
    c[at] ^= 2
    open(name + ".npz", "wb").write(c)
P
    "$QUALM" import -q a.npz -o z.npz
    rm z.npz
    for file in local central; do
        one_line 3 "$file.npz: the archive is damaged: Zip archive inconsistent" \
            import $file.npz -o z.npz
        [ ! -e z.npz ]
    done
}

@test "datasets that are not read are named by import, analyze and run, and in what is written" {
    "$PYTHON" - <<'P'
import h5py, numpy as np
with h5py.File("l.h5", "w") as f:
    f["w/exp_avg"] = np.ones((8, 128), "f4")
    f["z/exp_avg"] = np.ones((8, 128), "c8")
    f.attrs["left_out"] = "b (of its writer)"
P
    said="left out: b (of its writer); z/exp_avg (a compound type)"
    for out in o.h5 o.npz o.safetensors; do
        "$QUALM" import l.h5 -o $out >/dev/null 2>err
        grep -qxF "l.h5: $said" err
    done
    grep -q "z/exp_avg (a compound type)" o.safetensors
    "$PYTHON" -c "import h5py; print(h5py.File('o.h5').attrs['left_out'])" | grep -q "z/exp_avg (a"
    "$QUALM" import --json l.h5 -o o.npz 2>/dev/null | grep -q "z/exp_avg (a compound type)"
    "$QUALM" analyze l.h5 -Q nf4:4s/block:64/bisect/mid/hi 2>&1 | grep -qF "$said"
    printf '%s\n' 'variant: adamw4_ao' 'source: "states:*"' 'coupling: oneshot' \
        'slot: exp_avg' >s.yaml
    "$QUALM" run --data l.h5 -o r.h5 s.yaml 2>&1 | grep -qF "$said"
}

@test "a long title is cut in notes, and stored whole" {
    printf 'title: "%s"\n' "$(printf 'ab\303\251%.0s' {1..5000})" >t.yaml
    printf '%s\n' 'variant: adamw4_ao' 'source: dist:gauss' 'n: 1024' >>t.yaml
    "$QUALM" run t.yaml -o t.h5 >out 2>err
    [ "$(wc -c <err)" -lt 500 ]
    iconv -f UTF-8 -t UTF-8 err >plain && grep -q '^t: ab.*\.\.\.$' plain
    "$PYTHON" -c 'import h5py; assert len(h5py.File("t.h5")["suite"].attrs["title"]) > 9000' ||
        "$PYTHON" -c 'import h5py; assert len(h5py.File("t.h5")["suite/title"][()]) > 9000'
}

@test "show: a misspelling with a slash or a space gets its neighbour" {
    for word in adamw4/ao "adamw4 oa" adam-w4_ao; do
        one_line 4 "did you mean 'adamw4_ao" show "$word"
    done
    one_line 4 "did you mean 'best against best'" show "best/against best"
    one_line 4 "nothing is named 'qqqqqqq/wwwwwww'" show qqqqqqq/wwwwwww
    one_line 4 "no map 'nf5'; did you mean 'nf4'" show nf5:4s/block:64
}

# Each attribute of a result file in turn becomes an array, a null space or a structure.
@test "an attribute of another type or shape is refused and named, and no process crashes" {
    long 3
    printf '%s\n' 'variant: adamw4_ao' 'source: dist:gauss' 'n: 256' >c.yaml
    "$QUALM" run -q -o a.h5 c.yaml >/dev/null
    "$PYTHON" - "$QUALM" "${QM_TEST_SHARE:-1}" "${QM_TEST_SEED:-0}" <<'P'
import h5py, numpy as np, shutil, subprocess, sys
qualm, share, seed = sys.argv[1], min(int(sys.argv[2]), 6), int(sys.argv[3])
forms = {"numbers": np.zeros(3), "many": np.zeros((40, 40)), "none": np.zeros(0),
         "texts": np.array([b"a", b"b"]), "null": h5py.Empty("f8"), "complex": 1j,
         "structure": np.zeros(1, [("a", "f4")])[0]}
shutil.copy("a.h5", "b.h5")
with h5py.File("b.h5", "r+") as f:
    names = [(name, key) for name in ["/provenance", "/metrics", "/cells"] for key in f[name].attrs
             if key not in ("digest", "DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME")]
    assert len(names) > 20
    del f["provenance"].attrs["digest"]
shutil.copy("b.h5", "whole.h5")
n = refused = 0
for at, (name, key) in enumerate(names):
    for form, value in forms.items():
        n += 1
        if (n + seed) % share and (key, form) != ("cpu", "numbers"):
            continue
        shutil.copy("whole.h5", "b.h5")
        with h5py.File("b.h5", "r+") as f:
            del f[name].attrs[key]
            f[name].attrs[key] = value
        r = subprocess.run([qualm, "report", "--no-figures", "b.h5", "-o", "b.html"],
                           capture_output=True, text=True)
        refused += r.returncode == 3
        is_named = r.returncode == 3 and f"'{key}'" in r.stderr and r.stderr.count("\n") == 1
        is_unread = name != "/provenance" and key == "unit" and r.returncode == 0
        if "signal" in r.stderr or not (is_named or is_unread):
            sys.exit(f"{name} {key} {form}: {r.returncode} {r.stderr}")
        if form == "numbers" and refused % 8 == 1 or key == "cpu":
            r = subprocess.run([qualm, "plot", "--list", "b.h5"], capture_output=True, text=True)
            assert r.returncode == 3 and f"'{key}'" in r.stderr and "signal" not in r.stderr, r
assert refused > 5, refused
P
    for data in '3' '["a"]' '[[1.5]]'; do
        "$PYTHON" - "$data" <<'P'
import h5py, json, shutil, sys
shutil.copy("whole.h5", "b.h5")
with h5py.File("b.h5", "r+") as f:
    del f["provenance/argv"]
    f["provenance/argv"] = json.loads(sys.argv[1])
P
        [ "$data" = '["a"]' ] && want=0 || want=3
        status=0
        "$QUALM" report --no-figures b.h5 -o b.html >out 2>err || status=$?
        cat err
        [ "$status" = $want ]
        [ $want = 0 ] || grep -q "b.h5: /provenance/argv holds no texts" err
    done
}

@test "a storage whose record holds another number of elements than it says is refused" {
    "$PYTHON" - "$ROOT/tests/support" "${QM_TEST_SEED:-$RANDOM}" <<'P'
import random, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from torch_pickle import Tensor, write
draw = random.Random(int(sys.argv[2]))
n, kind = draw.randint(1, 300), draw.choice(["f2", "f4"])
x = np.zeros(n, kind)
write("true.pt", {"x": Tensor(0, x)}, {0: x})
write("false.pt", {"x": Tensor(0, x)}, {0: np.zeros(n + draw.choice([1, n, 3 * n]), kind)})
P
    "$QUALM" import -q true.pt -o out.npz
    one_line 3 "storage '0' has " import false.pt -o out.npz
}

@test "a file of external data alone is one line that says so" {
    "$PYTHON" - <<'P'
import h5py
with h5py.File("x.h5", "w") as f:
    f.create_dataset("w", (4,), "f4", external=[("/nothing", 0, 16)])
P
    one_line 4 "no tensor; left out: w (its data is in other files)" import x.h5 -o out.npz
    one_line 4 "no tensors; left out: w (its data is in other files)" analyze x.h5
}

@test "a dictionary of a checkpoint that holds a key twice is refused" {
    "$PYTHON" - <<'P'
import struct, zipfile
def text(s): return b"X" + struct.pack("<I", len(s)) + s
for name, key in (("text", text(b"a")), ("whole", b"K\x07")):
    for n, keys in (("once", [key, text(b"b")]), ("twice", [key, text(b"b"), key])):
        with zipfile.ZipFile(f"{name}_{n}.pt", "w") as z:
            z.writestr("a/data.pkl", b"\x80\x02}(" + b"".join(k + b"K\x01" for k in keys) + b"u.")
            z.writestr("a/byteorder", "little")
P
    one_line 3 "a dictionary holds the key 'a' twice" import text_twice.pt -o out.npz
    one_line 3 "a dictionary holds the key 7 twice" import whole_twice.pt -o out.npz
    for name in text whole; do
        run "$QUALM" import ${name}_once.pt -o out.npz
        [[ $output != *twice* ]]
    done
}

@test "analyze says which float64 numbers are beyond float32" {
    local at="$BATS_TEST_TMPDIR"
    "$PYTHON" - "$at" <<'P'
import struct, sys
def npy(name, values):
    head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }" % len(values)
    head += b" " * (63 - (len(head) + 10) % 64) + b"\n"
    with open(f"{sys.argv[1]}/{name}.npy", "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head
                + struct.pack(f"<{len(values)}d", *values))
inf = float("inf")
npy("wide", [1e300, -3.5e38, inf, 1.0, 3.4e38, 1e-300] * 100)
npy("fits", [inf, 3.4e38, 1.0] * 100)
P
    run -0 --separate-stderr qualm analyze -Q nf4:4s/block:64 "$at/wide.npy" "$at/fits.npy"
    [ "$(grep -c "beyond\|larger than any float32" <<<"$stderr")" = 1 ]
    [[ "$stderr" == *"wide.npy: 200 numbers of float64, in 1 of its tensors, are larger than any float32 and are read as infinite"* ]]
    grep -q "^wide .* 600 .* 300 " <<<"$output"
}

@test "a copy of a file is no second model: it is left out, and said, by a link or by another name" {
    cp "$ROOT"/experiments/data/samples/checkpoint.pt one.pt
    cp one.pt two.pt
    ln -s one.pt three.pt
    head -c -1 one.pt >four.pt && printf '\1' >>four.pt # as long, of other bytes
    "$QUALM" analyze -R adamw4_ao,adamw8_ao one.pt --json >one.json
    "$QUALM" analyze -R adamw4_ao,adamw8_ao one.pt two.pt three.pt --json >all.json 2>err
    grep -q "one.pt: .*two.pt, three.pt: the same bytes, left out" err
    "$PYTHON" - <<'P'
import json
one, all = (json.load(open(f"{name}.json")) for name in ("one", "all"))
assert all["summary"] == one["summary"] and all["summary"][0]["models"] == 1
assert "the same bytes, left out" in str(all["remarks"])
P
    run "$QUALM" analyze -R adamw4_ao one.pt four.pt
    [[ "$output" == *"four.pt: "* && "$output" != *"the same bytes"* ]] # it is read, and is damaged
    # the same moments in another file count, but not unsaid
    "$QUALM" import one.pt -o again.safetensors -q
    run "$QUALM" analyze -R adamw4_ao one.pt again.safetensors
    [[ "$output" == *"again.safetensors: 4 of its moments are in one.pt, too, and count twice"* ]]
}

@test "an empty list of metrics and a second word of --template are refused" {
    one_line 2 "--metrics ',': a name between commas is empty" analyze -m , "$ROOT"/experiments/data/digits_cnn.h5
    for recipe in "" "-R adamw4_ao"; do # with and without recipes one code
        fails_with 3 "absent.pt: cannot open: No such file" analyze $recipe absent.pt
    done
    fails_with 2 "--template takes one VARIANT" check --template adamw4_ao adamw8_ao
}

@test "analyze --recipe says which elements have no update: a second moment below 0" {
    "$QUALM" import -q "$ROOT"/experiments/data/samples/checkpoint.pt -o good.h5
    "$QUALM" analyze -q -R adamw4_ao,min_numel=0 good.h5 --json >good.json
    "$PYTHON" - <<'P'
import h5py, json
rows = json.load(open("good.json"))["rows"]
assert rows and all(r["left_out"] == 0 for r in rows)
with h5py.File("good.h5", "r+") as f:
    found = []
    f.visititems(lambda name, x: found.append(name) if name.endswith("/exp_avg_sq") else None)
    x = f[found[0]][...]
    x.flat[:5] = -1
    f[found[0]][...] = x
    open("name", "w").write(found[0].rpartition("/")[0])
P
    "$QUALM" analyze -R adamw4_ao,min_numel=0 good.h5 >out 2>err
    grep -q "^left out: 5 of [0-9]* elements of .*$(cat name) under adamw4_ao.*update is not finite" out
}
