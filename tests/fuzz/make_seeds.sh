#!/bin/bash
# make_seeds.sh - Makes the seed corpus of every fuzz target: DIR/TARGET/FILE.
#
#     tests/fuzz/make_seeds.sh QUALM DIR
#
# Every file is small and whole: made by the program, by NumPy or by h5py, or one that ships.
# Inputs that once found a fault lie in tests/fuzz/found/TARGET and are added.
set -eu
qualm=$(realpath "$1") dir=$2 root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$dir"
cd "$dir"
mkdir -p npy npz safetensors tensors results state_h5 state golden vectors suite lpmm ledger \
    golden_file segment campaign shapes digest checkpoint distributed index
cp "$root"/experiments/data/samples/sample_ln_param_f32_1d.npy npy/
/usr/bin/python3 - <<'P'
import h5py
import numpy as np
for k, (t, shape) in enumerate([("<f4", (3, 4)), (">f2", (5, 7)), ("<f8", (2, 3, 4)), ("<i8", (6,)),
                                ("|b1", (4,)), ("<u2", (0, 9)), ("<f4", ())]):
    a = np.arange(int(np.prod(shape)), dtype=float).reshape(shape).astype(t)
    np.save(f"npy/{k}.npy", np.asfortranarray(a) if k % 2 else a)
np.savez("npz/plain.npz", a=np.arange(8, dtype="f4"), b=np.ones((2, 3), "f8"))
np.savez_compressed("npz/packed.npz", a=np.zeros(300, "f4"), b=np.arange(5, dtype="i4"))
with h5py.File("tensors/chunks.h5", "w") as f:
    f.create_dataset("g/exp_avg", data=np.arange(500, dtype="f4"), chunks=(64,), compression="gzip",
                     shuffle=True, fletcher32=True)
    f["y"] = np.arange(64, dtype="i2")
    f["soft"] = h5py.SoftLink("/g/exp_avg")
    f.attrs["lr"] = 0.25
with h5py.File("tensors/latest.h5", "w", libver="latest") as f:
    f.create_dataset("exp_avg", data=np.arange(200, dtype="f8"), chunks=(50,), maxshape=(None,))
P
"$qualm" state make -q --recipe adamw4_ao,exp_avg.min_numel=0 --shapes 3x5,9 --steps 1 \
    safetensors/state.safetensors >/dev/null
"$qualm" state make -q --recipe adamw8_bnb --shapes 3x5 --steps 1 state_h5/state.h5 >/dev/null
cp safetensors/state.safetensors state/
cp state_h5/state.h5 tensors/state.h5
printf '%s\n' 'variant: [adamw4_ao, adamw8_bnb]' 'source: dist:gauss' 'seed: [1, 2]' 'n: 256' \
    'summary: [{name: s, by: variant, value: sqnr}]' >suite/small.yaml
cp "$root"/experiments/suites/{smoke,axis_map,lpmm_training}.yaml suite/
"$qualm" run -q -k -w 1 -o results/run.h5 suite/small.yaml >/dev/null
cp results/run.run/*.jsonl ledger/
cp results/run.run/*.h5 segment/
{ cat results/run.run/campaign.json; echo; for file in suite.yaml 1of1.jsonl; do
    printf '\n== %s\n' "${file/1of1/1of2}"; cat "results/run.run/$file"; done; } >campaign/whole
/usr/bin/python3 -c '
import json, sys
print(json.dumps({k: v for k, v in json.load(sys.stdin).items()
                  if k not in ("sum", "suite", "folder")}))' \
    <results/run.run/campaign.json | cat - <(sed 1,9d campaign/whole) >campaign/older
rm -rf results/run.run
cp results/run.h5 digest/
"$qualm" gen adamw_f32 --cases normal --setting default --shape 3x5 --first-step 1 --steps 1 --out \
    vectors/golden.npz >/dev/null 2>&1
cp "$root"/tests/golden/adafactor8bit_043plus.h5 golden_file/
for file in adafactor8bit_043plus torchao lion8bit shampoo4bit; do
    /usr/bin/python3 "$root/tests/fuzz/h5_lines.py" "$root/tests/golden/$file.h5" 80 >golden/$file
done
printf '%s\n' 'QUANT: {M: {SCALE_TYPE: {DEFAULT: rank1-group}, GROUP_SIZE: 64, BITS: 4,' \
    '  QUANT_TYPE: {DEFAULT: nonlinear}, ROUND_TYPE: real-nearest}, SQM: {BITS: 8, ENABLE: True}}' \
    >lpmm/a.yml
samples=$root/tests/experiments/readers/checkpoints
cp "$samples"/*.pt "$samples"/*.pth checkpoint/
cp "$samples"/distributed/.metadata distributed/metadata
cp "$samples"/indexed/*.json index/
printf '%s\n' 'wte 50x7  # a comment' 'bias 768' 'h.0.w 3x4x5' >shapes/list.txt
[ ! -d "$root/tests/fuzz/found" ] || cp -r "$root"/tests/fuzz/found/. .
