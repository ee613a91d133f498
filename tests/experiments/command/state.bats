#!/usr/bin/env bats
# state.bats - Tests qualm state: optimizer states in files.

load ../../support/cli_common

setup() {
    dir=$(mktemp -d)
    a=$dir/a.safetensors
    qualm state make --recipe adamw4_ao --shapes 64x64,300,0x5 --steps 4 --seed 3 "$a" >/dev/null
}

teardown() { rm -rf "$dir"; }

digest() { json_value 'd["digest"]' state show "$1"; }

@test "k steps, a file, k more steps: the digest of 2k steps, in every file format" {
    qualm state make -R adamw4_ao -S 64x64,300,0x5 --steps 8 -s 3 "$dir/whole.h5" >/dev/null
    qualm state step "$a" "$dir/b.h5" --steps 4 >/dev/null
    qualm state step "$a" "$dir/b.safetensors" --steps 4 >/dev/null
    [ "$(digest "$dir/b.h5")" = "$(digest "$dir/whole.h5")" ]
    [ "$(digest "$dir/b.safetensors")" = "$(digest "$dir/whole.h5")" ]
    [ "$(digest "$a")" != "$(digest "$dir/whole.h5")" ]
    qualm state convert "$dir/whole.h5" "$dir/c.safetensors" >/dev/null
    cmp "$dir/b.safetensors" "$dir/c.safetensors"
}

@test "every variant resumes bit for bit, also with stochastic rounding" {
    long 5
    for v in $(qualm list variants --names); do
        r=$v,param=bf16/stoch
        qualm state make -q -R "$r" -S 33x65 --steps 2 "$dir/1.safetensors" >/dev/null
        qualm state step -q "$dir/1.safetensors" "$dir/2.safetensors" --steps 2 >/dev/null
        qualm state make -q -R "$r" -S 33x65 --steps 4 "$dir/4.safetensors" >/dev/null
        cmp "$dir/2.safetensors" "$dir/4.safetensors"
    done
}

@test "a conversion through float32 is noted once for all tensors" {
    run --separate-stderr qualm state convert "$a" "$dir/b.h5" --recipe sgdm_f32,param=bf16/kahan
    [ "$status" -eq 0 ]
    [[ $stderr == *"param: f32 -> bf16/kahan through float32 (3 tensors)"* ]]
    [[ $stderr == *"momentum_buffer: not in the file, starts anew (2 tensors)"* ]]
    [[ $stderr == *"exp_avg: dropped, sgdm has no such slot (2 tensors)"* ]]
    run --separate-stderr qualm state convert "$a" "$dir/c.h5" -R adamw4_ao,exp_avg.map=nf4
    [[ $stderr == *"exp_avg: dyn:4s/block:128/"*" -> nf4:4s/block:128/"*" through float32"* ]]
    [[ $stderr != *"exp_avg_sq"* ]]
    [ "$(json_value 'd["notes"][0]["tensors"]' state convert "$a" "$dir/c.h5" \
        -R adamw4_ao,exp_avg.map=nf4)" = 1 ]
}

@test "a conversion keeps hyper-parameters that its recipe does not state, and says what it drops" {
    checkpoint=$ROOT/experiments/data/samples/checkpoint.pt # lr 0.003, beta2 0.99
    recipe() { json_value 'd["tensors"][0]["recipe"]' state convert "$@"; }
    [ "$(recipe "$checkpoint" "$dir/4.h5" -R adamw4_ao)" = adamw4_ao,lr=0.003,beta2=0.99 ]
    [ "$(recipe "$dir/4.h5" "$dir/32.h5" -R adamw_f32)" = adamw_f32,lr=0.003,beta2=0.99 ]
    [ "$(recipe "$dir/4.h5" "$dir/32.h5" -R adamw_f32,beta2=0.999,lr=1)" = adamw_f32,lr=1 ]
    run --separate-stderr qualm state convert "$dir/4.h5" "$dir/s.h5" -R sgdm_f32,weight_decay=0
    [[ $stderr == *"beta1=0.9, beta2=0.99, eps=1e-08: dropped, not read by rule sgdm (4 "* ]]
    [[ $output == *"sgdm_f32,lr=0.003"* ]]
    [[ $(qualm state convert "$a" "$dir/e.h5" -R adamw8_bnb 2>&1) != *"not read"* ]]
}

@test "commands that take numbers refuse a state file with codes, and say what decodes it" {
    cd "$dir"
    qualm state convert a.safetensors a.h5 >/dev/null
    printf "%s\n" "variant: adamw4_ao" "source: states:*" "coupling: oneshot" >s.yaml
    for file in a.safetensors a.h5; do
        how="$file: is a state file of qualm with codes, expected numbers; \`qualm state convert"
        fails_with 2 "$how" analyze $file
        fails_with 2 "$how" analyze $file -R adamw4_ao
        fails_with 2 "$how" import $file -o x.npz
        fails_with 2 "$how" run s.yaml --data $file -o x.h5
    done
    [ ! -e x.npz ] && [ ! -e x.h5 ]
    fails_with 2 "convert $file f32.safetensors --recipe adamw_f32\`" analyze $file
    qualm state convert a.h5 f32.safetensors --recipe adamw_f32 >/dev/null
    [ "$(json_value 'len(d["tensors"])' import f32.safetensors -o x.npz)" = 9 ]
    [[ $(json_value '[x["tensor"] for x in d["tensors"]]' import f32.safetensors -o x.npz) == \
        *"'t0/param', 't0/exp_avg', 't0/exp_avg_sq', 't1/param'"* ]]
    qualm analyze f32.safetensors -V adamw4_ao >/dev/null
    for file in a.safetensors a.h5 f32.safetensors; do
        [ "$(json_value 'd["params"]' size --shapes $file -V adamw4_ao)" = $((64 * 64 + 300)) ]
    done
}

@test "a recipe that gives codes to no tensor of these sizes is said to" {
    qualm state make "$dir/small.h5" --shapes 8x8,16 -R adamw_f32 >/dev/null
    run --separate-stderr qualm state convert "$dir/small.h5" "$dir/c.h5" -R adamw4_ao
    [[ $stderr == *"exp_avg stays in float32, as the recipe"*"min_numel=0"*"(2 tensors)"* ]]
    run --separate-stderr qualm state convert "$dir/small.h5" "$dir/d.h5" \
        -R adamw4_ao,min_numel=0,whole_blocks=0
    [[ $stderr != *"stays in float32"* ]]
}

@test "--json is one document" {
    json_on_stdout state show "$a" --json
    [ "$(json_value 'd["tensors"][1]["step"], len(d["slots"])' state show "$a")" = "4 6" ]
}

@test "NumPy alone reads a .safetensors state" {
    "$PYTHON" -c 'import numpy' 2>/dev/null || skip "there is no NumPy"
    "$PYTHON" - "$a" <<'PY'
import json, sys, numpy as np
raw = open(sys.argv[1], "rb").read()
n = int.from_bytes(raw[:8], "little")
head = json.loads(raw[8:8 + n])
about = json.loads(head.pop("__metadata__")["tensors"])
kinds = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "U8": "u1", "I8": "i1", "I16": "<i2"}
array = {k: np.frombuffer(raw[8 + n:][slice(*v["data_offsets"])], kinds[v["dtype"]])
         .reshape(v["shape"]) for k, v in head.items()}
assert [t["name"] for t in about] == ["t0", "t1", "t2"] and about[0]["step"] == 4
codes = array["t0/exp_avg_sq.codes"]                 # lin:4u, hi: the first code in the high bits
code = np.stack([codes >> 4, codes & 15], -1).reshape(-1, 128)
v = (code + np.float32(1)) / np.float32(16) * array["t0/exp_avg_sq.scales"][:, None]
assert v.shape == (32, 128) and (v > 0).all() and 1e-4 < v.mean() < 0.1, v.mean()
assert array["t0/param"].shape == (64, 64) and array["t2/param"].shape == (0, 5)
PY
}

@test "files that are no states: exit code 3 and one line" {
    fails_with 3 "No such file" state show "$dir/none.h5"
    head -c 100 "$a" >"$dir/cut.safetensors"
    fails_with 3 "the file ends at 100" state show "$dir/cut.safetensors"
    write_npy "$dir/x.npy" 2 2
    fails_with 3 "is npy, expected a state" state show "$dir/x.npy"
    qualm run -q -o "$dir/run.h5" smoke >/dev/null
    fails_with 3 "not a state file" state show "$dir/run.h5"
    fails_with 3 "cannot be written" state convert "$a" "$dir/no/b.h5"
    cp "$a" "$dir/flip.safetensors"
    printf '\x55' | dd of="$dir/flip.safetensors" bs=1 seek=$(($(stat -c %s "$a") - 3)) \
        conv=notrunc status=none
    fails_with 3 "digest" state show "$dir/flip.safetensors"
    sed 's/"digest"/"eigest"/' "$a" >"$dir/key.safetensors" # one bit
    fails_with 3 "'eigest' in __metadata__" state step "$dir/key.safetensors" "$dir/k.h5" --steps 1
}

@test "errors on the command line: exit code 2 or 4" {
    fails_with 2 "expected show, convert, make or step" state
    fails_with 2 "no 'shwo'" state shwo "$a"
    fails_with 2 "convert wants two files" state convert "$a"
    fails_with 2 "make wants --recipe" state make "$dir/x.h5"
    fails_with 2 ".h5 or .safetensors (\`qualm import\`" state convert "$a" "$dir/x.pt"
    fails_with 2 "--steps is 'ten'" state step "$a" "$dir/x.h5" --steps ten
    fails_with 4 "did you mean 'adamw4_ao'" state convert "$a" "$dir/x.h5" --recipe adamw4_a
    [ ! -e "$dir/x.h5" ]
}

@test "help has examples; completion knows the command" {
    run qualm state --help
    [ "$status" -eq 0 ]
    [[ $output == *"qualm state convert b.safetensors b.h5"* ]]
    [[ $(qualm completion bash) == *" state "* ]]
}
