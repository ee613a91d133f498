#!/usr/bin/env bats
# gen_verify.bats - Tests qualm gen and qualm verify with right and wrong steps of other programs.
load ../../support/cli_common

setup() {
    dir=$(mktemp -d)
    example=$ROOT/tests/examples/adamw4_numpy.py
    plain="-c normal --setting default --first-step 1 --own" # one case for each shape
}

teardown() { rm -rf "$dir"; }

# answers SOURCE TARGET [PYTHON]: copies a golden .npz with the reference's answers; PYTHON may
# change the dict a of arrays first
answers() {
    "$PYTHON" - "$@" <<'P'
import sys
import numpy as np
a = dict(np.load(sys.argv[1]))
a.update({n.replace("/want/", "/out/"): x.copy() for n, x in a.items() if "/want/" in n})
exec(sys.argv[3] if len(sys.argv) > 3 else "")
np.savez_compressed(sys.argv[2], **a)
P
}

@test "NumPy's 4-bit AdamW passes by default, and nothing of the list is left out" {
    long 5
    qualm gen adamw4_ao -q -o "$dir/in.npz" >/dev/null
    [ "$(stat -c %s "$dir/in.npz")" -lt 16000000 ]
    "$PYTHON" "$example" "$dir/in.npz" "$dir/out.npz"
    run -0 "$QUALM" verify "$dir/out.npz"
    [[ $output == *"not exercised   nothing of the list"* ]]
    [ "$(json_value 'd["equal"] > 1000000 and d["off_by_one"] == d["wrong"] == 0 and \
        d["pairs"] == d["of_pairs"] and all(r["not_exercised"] == [] for r in d["coverage"])' \
        verify "$dir/out.npz")" = True ]
}

@test "an order that a kernel may have, a program may have as well" {
    long 3
    qualm gen adamw4_ao -q -o "$dir/in.npz" >/dev/null
    sed 's/p = p - np.float32(h\["lr"\] \* h\["weight_decay"\]) \* p/p = p * (np.float32(1) - np.float32(h["lr"] * h["weight_decay"]))/' \
        "$example" >"$dir/folded.py"
    ! cmp -s "$example" "$dir/folded.py" || return 1
    "$PYTHON" "$dir/folded.py" "$dir/in.npz" "$dir/out.npz"
    run -0 "$QUALM" verify "$dir/out.npz"
}

@test "NumPy's 4-bit AdamW passes every case of check" {
    long 4
    [ "$(json_value 'd["cases"] > 500' gen adamw4_ao -c all -o "$dir/in.npz")" = True ]
    "$PYTHON" "$example" "$dir/in.npz" "$dir/out.npz"
    run -0 "$QUALM" verify "$dir/out.npz"
}

@test "drawn cases: NumPy's AdamW passes, schedules among them, and a constant lr fails" {
    long 3
    local seed=$RANDOM
    echo "seed $seed"
    qualm gen adamw4_ao -q --draws 400 --seed $seed -S 300 $plain -o "$dir/in.npz" >/dev/null
    "$PYTHON" - "$dir/in.npz" <<'P'
import json, sys
import numpy as np
cases = json.loads(bytes(np.load(sys.argv[1])["golden"]))["cases"]
assert len(cases) > 300
assert sum(c["hyper"][0]["lr"] != c["hyper"][1]["lr"] for c in cases) > 5
P
    "$PYTHON" "$example" "$dir/in.npz" "$dir/out.npz"
    run -0 "$QUALM" verify "$dir/out.npz"
    [ "$(json_value 'd["domain"]["pairs"] > 2000' verify "$dir/out.npz")" = True ]
    sed 's/case\["hyper"\]\[k - 1\]/case["hyper"][0]/' "$example" >"$dir/bug.py"
    "$PYTHON" "$dir/bug.py" "$dir/in.npz" "$dir/out.npz"
    run -1 "$QUALM" verify "$dir/out.npz"
}

@test "the default meets every pair, --quick every value, for every kind of system" {
    for recipe in $(drawn adamw4_ao adamw4_lpmm adamw8_bnb_2048 lion8_ecc8 adafactor8_026 \
        came8_026 flash_adamw lamb_bnb); do
        # of adafactor8_026 one is left out: a small tensor whose projection is larger than 16 of it
        [ "$(json_value 'd["not_exercised"], d["pairs"] == d["of_pairs"], d["cases_left_out"] < 2' \
            gen "$recipe" -o "$dir/in.npz")" = "nothing of the list True True" ]
        [ "$(json_value 'd["not_exercised"][-13:], "," in d["not_exercised"], d["cases"] <= 24' \
            gen "$recipe" --quick -o "$dir/in.npz")" = " of 639 pairs False True" ]
    done
}

@test "the verdict names what was not exercised" {
    qualm gen adamw4_ao -q -c normal,planted --setting default --first-step 1 --own -S 64x68,300 \
        -o "$dir/in.npz" >/dev/null
    answers "$dir/in.npz" "$dir/out.npz"
    local short="['exp_avg with a short block', 'exp_avg_sq with a short block']"
    run -0 "$QUALM" verify "$dir/out.npz"
    [[ $output == *" 20 of 22 class, 9 of 10 setting, 3 of 4 first_step, "*" pairs"* ]]
    [[ $output =~ class\ +2\ of\ 22\ +loguniform,\ denormal,\ huge ]]
    [[ $output =~ mode\ +1\ of\ 2\ +forced ]]
    ! grep -qE '^.{121}' <<<"$output" || return 1
    [ "$(json_value '[r["not_exercised"] for r in d["coverage"] if r["coordinate"] in
        ("mode", "state", "first_step")]' verify "$dir/out.npz")" = \
        "[['2..99', '100..9999', '10000..'], ['forced'], $short]" ]
    # an unanswered case counts as not exercised
    answers "$dir/in.npz" "$dir/out.npz" \
        'a = {n: x for n, x in a.items() if not n.startswith("t1/out")}'
    run -1 "$QUALM" verify "$dir/out.npz"
    [[ $output == *"not there; 3 steps are not answered"* ]]
}

@test "every planted bug in the NumPy example fails by default" {
    long 4
    qualm gen adamw4_ao -q -o "$dir/in.npz" >/dev/null
    "$PYTHON" "$ROOT/tests/experiments/vectors/planted_bugs.py" "$QUALM" "$example" "$dir/in.npz"
}

@test "every planted bug in the PyTorch example fails by default, if torch is installed" {
    local python=${QM_TORCH_PYTHON:-$PYTHON}
    "$python" -c "import torch" 2>/dev/null ||
        skip "torch is not installed; QM_TORCH_PYTHON names a Python that has it"
    qualm gen adamw4_ao -q -o "$dir/in.npz" >/dev/null
    "$python" "$ROOT/tests/experiments/vectors/planted_bugs.py" "$QUALM" \
        "$ROOT/tests/examples/adamw4_torch.py" "$dir/in.npz"
    "$python" "$ROOT/tests/examples/adamw4_torch.py" "$dir/in.npz" "$dir/out.npz"
    run -0 "$QUALM" verify "$dir/out.npz"
}

@test "the NumPy example reads and writes every file format, and pipes" {
    for form in npz safetensors; do
        qualm gen adamw4_ao -q --quick -o "$dir/in.$form" >/dev/null
        "$PYTHON" "$example" "$dir/in.$form" "$dir/out.$form"
        run -0 "$QUALM" verify "$dir/out.$form"
    done
    qualm gen adamw4_ao --quick --out - | "$PYTHON" "$example" - - | qualm verify - >/dev/null
}

@test "inputs are the same in every file format; answers are read in every format" {
    for form in h5 npz safetensors; do
        qualm gen adamw4_ao -q --quick --steps 2 -o "$dir/in.$form" >/dev/null
        fails_with 4 "t0/out/1/param" verify "$dir/in.$form"
    done
    cp "$dir/in.h5" "$dir/out.h5"
    "$PYTHON" "$example" "$dir/in.h5" "$dir/out.h5"
    run -0 "$QUALM" verify "$dir/out.h5"
    "$PYTHON" - "$dir" <<'P'
import json, struct, sys
import h5py, numpy as np
folder = sys.argv[1]
z, h = np.load(folder + "/in.npz"), h5py.File(folder + "/in.h5")
raw = open(folder + "/in.safetensors", "rb").read()
length = struct.unpack("<Q", raw[:8])[0]
head = json.loads(raw[8:8 + length])
kind = {"F32": "<f4", "U8": "u1"}
assert len(head) == len(z.files) > 200
for name in z.files:
    e = head[name]
    at = 8 + length + e["data_offsets"][0]
    x = np.frombuffer(raw[at:8 + length + e["data_offsets"][1]], kind[e["dtype"]])
    assert np.array_equal(x.reshape(e["shape"]), z[name], equal_nan=True), name
    assert np.array_equal(h[name][()], z[name], equal_nan=True), name
    assert z[name].flags.c_contiguous
    # answers appended to the .safetensors file
    if "/want/" in name:
        head[name.replace("/want/", "/out/")] = dict(e)
data = raw[8 + length:]
out = b""
for name, e in head.items():
    x = data[slice(*e["data_offsets"])]
    e = head[name] = dict(e, data_offsets=[len(out), len(out) + len(x)])
    out += x
text = json.dumps(head).encode()
open(folder + "/out.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + out)
P
    run -0 "$QUALM" verify "$dir/out.safetensors"
    qualm verify - <"$dir/out.safetensors" >/dev/null
    qualm gen adamw4_ao --quick --steps 2 --form npz -o - | cmp - "$dir/in.npz"
    qualm gen adamw4_ao --quick --steps 2 -o - | cmp - "$dir/in.safetensors"
}

@test "the reference's own answers pass for other systems" {
    long 3
    for recipe in $(drawn adamw8_ao adamw8_bnb lion8_bnb lion8_fused sgdm8_bnb adamw4_lpmm \
        adamw_f32 adamw4_ao,grad=bf16 adamw4_ao,exp_avg.round=stoch adafactor8_026 came_f32 \
        lamb_bnb lion8_ecc8 flash_adamw); do
        qualm gen "$recipe" -q -o "$dir/in.npz" >/dev/null
        answers "$dir/in.npz" "$dir/out.npz"
        run "$QUALM" verify "$dir/out.npz"
        [ "$status" -eq 0 ] || { echo "$recipe: $output"; false; }
    done
}

@test "one wrong nibble, scale or parameter is found and named" {
    qualm gen adamw4_ao -q --steps 2 $plain -S 64x68,300 -o "$dir/in.npz" >/dev/null
    answers "$dir/in.npz" "$dir/a.npz" 'a["t0/out/2/exp_avg_sq.codes"][7] ^= 0x30'
    run -1 "$QUALM" verify "$dir/a.npz"
    [[ $output == *"t0/out/2"*"exp_avg_sq: element 14 has code"* ]]
    answers "$dir/in.npz" "$dir/a.npz" 'a["t0/out/1/exp_avg.scales"][3] *= np.float32(1 + 2e-6)'
    run -1 "$QUALM" verify "$dir/a.npz"
    [[ $output == *"t0/out/1"*"exp_avg: scale 3 is"* ]]
    answers "$dir/in.npz" "$dir/a.npz" 'a["t1/out/2/param"][5] += np.float32(1e-5)'
    run -1 "$QUALM" verify "$dir/a.npz"
    [[ $output == *"t1/out/2"*"parameter 5 is"* ]]
}

# LAMB in NumPy, in double, with sums over the tensor; a third word leaves out the ratio
lamb() {
    "$PYTHON" - "$@" <<'P'
import json, sys
import numpy as np
a, f = dict(np.load(sys.argv[1])), np.float32
head = json.loads(bytes(a["golden"]))
assert head["param"] == "f32" and head["cases"][0]["slots"][0]["shape"] == [61, 67]
for c in head["cases"]:
    name = c["name"]
    for k in range(1, c["steps"] + 1):
        h = c["hyper"][k - 1]
        at = f"{name}/out/{k - 1}" if k > 1 else f"{name}/in"
        p, m, v = (a[f"{at}/{x}"].astype("f8") for x in ("param", "exp_avg", "exp_avg_sq"))
        g, t = a[f"{name}/grad/{k}"].astype("f8"), c["first_step"] + k - 1
        m = h["beta1"] * m + (1 - h["beta1"]) * g
        v = h["beta2"] * v + (1 - h["beta2"]) * g * g
        u = m / (1 - h["beta1"] ** t) / (np.sqrt(v / (1 - h["beta2"] ** t)) + h["eps"])
        ratio = min(1, h["max_unorm"] * np.linalg.norm(p) / np.linalg.norm(u))
        if len(sys.argv) > 3:
            ratio = 1
        p = p * (1 - h["lr"] * h["weight_decay"]) - h["lr"] * ratio * u
        for x, y in (("param", p), ("exp_avg", m), ("exp_avg_sq", v)):
            a[f"{name}/out/{k}/{x}"] = f(y)
np.savez(sys.argv[2], **a)
P
}

@test "a rule with sums over tensors: LAMB in NumPy passes, without its ratio it fails" {
    qualm gen lamb_bnb,max_unorm=0.001,weight_decay=0.1 -q -S 61x67 $plain -o "$dir/in.npz" \
        >/dev/null
    lamb "$dir/in.npz" "$dir/out.npz"
    run -0 "$QUALM" verify "$dir/out.npz"
    lamb "$dir/in.npz" "$dir/out.npz" wrong
    run -1 "$QUALM" verify "$dir/out.npz"
    [[ $output == *"t0/out/1"*"parameter"* ]]
}

@test "parameters of 16 and 8 bits with residuals, in every file format" {
    long 2
    for recipe in lion8_ecc8 adamw8_ao,param=bf16/kahan adamw4_ao,param=e4m3/stoch \
        lion8_fused,param=f16/ecc16; do
        for form in h5 npz safetensors; do
            qualm gen "$recipe" -q --steps 2 -S 300 $plain -o "$dir/in.$form" >/dev/null
            fails_with 4 "t0/out/1/param" verify "$dir/in.$form"
        done
        answers "$dir/in.npz" "$dir/out.npz"
        run -0 "$QUALM" verify "$dir/out.npz"
    done
    answers "$dir/in.npz" "$dir/a.npz" 'a["t0/out/2/residual"][7] ^= 64'
    run -1 "$QUALM" verify "$dir/a.npz"
    [[ $output == *"t0/out/2"*"parameter 7 with its residual is"* ]]
    answers "$dir/in.npz" "$dir/a.npz" 'del a["t0/out/1/residual"]'
    fails_with 3 "there is no array 't0/out/1/residual'" verify "$dir/a.npz"
    answers "$dir/in.npz" "$dir/a.npz" 'a["t0/out/1/zzz"] = a["t0/out/1/param"]'
    fails_with 3 "array 't0/out/1/zzz' is of no case, step" verify "$dir/a.npz"
}

@test "missing, foreign or changed arrays are one line each" {
    qualm gen adamw4_ao -q --steps 2 $plain -S 64x68,300 -o "$dir/in.npz" >/dev/null
    answers "$dir/in.npz" "$dir/a.npz" 'del a["t0/out/2/exp_avg.scales"]'
    fails_with 3 "there is no array 't0/out/2/exp_avg.scales'" verify "$dir/a.npz"
    answers "$dir/in.npz" "$dir/a.npz" 'a = {n: x for n, x in a.items() if "t1/out/2" not in n}'
    run -1 "$QUALM" verify "$dir/a.npz"
    [[ $output == *"t1/out/2/param"*"not answered"* ]]
    head -c 3000 "$dir/in.npz" >"$dir/b.npz"
    fails_with 3 "b.npz" verify "$dir/b.npz"
    "$PYTHON" - "$dir/in.npz" "$dir/c.npz" <<'P'
import sys
b = bytearray(open(sys.argv[1], "rb").read())
b[5000] ^= 1
open(sys.argv[2], "wb").write(b)
P
    fails_with 3 "damaged" verify "$dir/c.npz"
}

@test "each kind of member altered, deleted, renamed or added is named, in every file format" {
    "$PYTHON" "$ROOT/tests/experiments/vectors/golden_members.py" "$QUALM" "$example" "$dir"
}

@test "damaged and hostile files: one line, a documented exit code, in bounded time and memory" {
    "$PYTHON" "$ROOT/tests/experiments/vectors/golden_fuzz.py" "$QUALM" "$example" "$dir" $((240 / ${QM_TEST_SHARE:-1}))
}

@test "gen: refused arguments" {
    fails_with 2 "--out is missing" gen adamw4_ao
    fails_with 2 "RECIPE is missing" gen -o "$dir/a.npz"
    fails_with 4 "did you mean 'planted'" gen adamw4_ao -c planed -o "$dir/a.npz"
    fails_with 2 "ends in .h5, .npz or .safetensors" gen adamw4_ao -o "$dir/a.txt"
    fails_with 2 "expected safetensors or npz" gen adamw4_ao --form h5 -o -
    fails_with 2 "1 to 1000" gen adamw4_ao --steps 0 -o "$dir/a.npz"
    fails_with 2 "'wd' is there twice" gen adamw4_ao --setting wd,wd -o "$dir/a.npz"
    fails_with 4 "did you mean 'maximize'" gen adamw4_ao --setting maximise -o "$dir/a.npz"
    fails_with 2 "stands beside no choice" gen adamw4_ao -c all --own -o "$dir/a.npz"
    fails_with 2 "--shape" gen adamw4_ao -S 3y4 -o "$dir/a.npz"
    fails_with 2 "2^24" gen adamw4_ao -S 5000x5000 -o "$dir/a.npz"
    fails_with 2 "--first-step is '0'" gen adamw4_ao --first-step 1,0 -o "$dir/a.npz"
    [ -z "$(ls "$dir")" ]
}
