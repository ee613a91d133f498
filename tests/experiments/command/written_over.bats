#!/usr/bin/env bats
# written_over.bats - Tests that no command writes its output over a file that it reads.

load ../../support/cli_common

setup_file() {
    export DIR=$(mktemp -d)
    cd "$DIR"
    cat >one.yaml <<'Y'
variant: adamw4_ao
source: "dist:gauss"
coupling: oneshot
slot: exp_avg
Y
    "$QUALM" run -q one.yaml -o one.h5
    "$QUALM" check --template adamw4_ao >k.c
    ln -s one.yaml link.yaml
    ln one.h5 hard.h5
}

teardown_file() { rm -rf "$DIR"; }

@test "an output that is one of the inputs is refused, under whatever name, and stays as it was" {
    cd "$DIR"
    cp one.yaml was.yaml && cp one.h5 was.h5 && cp k.c was.c
    local over="over a file that this command reads"
    fails_with 2 "$over" run one.yaml -o one.yaml
    fails_with 2 "$over" run one.yaml --out=link.yaml
    fails_with 2 "$over" run one.yaml --data one.h5 --out hard.h5
    fails_with 2 "$over" run one.yaml --against one.h5 -oone.h5
    fails_with 2 "$over" analyze one.h5 -Q nf4:4s/block:64 -o ./one.h5
    fails_with 2 "$over" check --kernel k.c --quick --junit k.c
    fails_with 2 "$over" plot one.h5 -o one.h5
    fails_with 2 "$over" import one.h5 --out hard.h5
    cmp one.yaml was.yaml && cmp one.h5 was.h5 && cmp k.c was.c
}

@test "an output that a command derives from the suite's name is not written over its data" {
    cd "$DIR"
    mkdir -p results && cp one.h5 results/one.h5
    fails_with 2 "over a file that this command reads" run one.yaml --data results/one.h5
    cmp one.h5 results/one.h5
}

@test "an output that is there, and is not read, is replaced" {
    cd "$DIR"
    cp k.c again.h5
    "$QUALM" run -q one.yaml -o again.h5
    "$QUALM" digest again.h5
}

@test "neither a file that an input names, nor one that two options name, is written over" {
    cd "$DIR"
    local over="over a file that this command reads"
    "$PYTHON" - <<'P'
import json, struct, h5py, numpy as np
def shard(path, name):
    head = json.dumps({name: {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]}}).encode()
    open(path, "wb").write(struct.pack("<Q", len(head)) + head + np.ones(64, "<f4").tobytes())
import os
os.mkdir("s")
shard("s/m-1.safetensors", "a/exp_avg"); shard("s/m-2.safetensors", "b/exp_avg")
json.dump({"weight_map": {"a/exp_avg": "m-1.safetensors", "b/exp_avg": "m-2.safetensors"}},
          open("s/m.safetensors.index.json", "w"))
with h5py.File("ext.h5", "w") as f: f["a/exp_avg"] = np.ones(64, "f4")
with h5py.File("main.h5", "w") as f: f["a/exp_avg"] = h5py.ExternalLink("ext.h5", "a/exp_avg")
P
    cp -r s was_s && cp ext.h5 was_ext.h5
    fails_with 2 "$over" import s -o s/m-2.safetensors
    fails_with 2 "$over" import s/m.safetensors.index.json --tensor b/exp_avg -o s/m-2.safetensors
    fails_with 2 "results are HDF5" analyze s -Q nf4:4s/block:64 -o s/m-1.safetensors
    QM_FOLLOW_LINKS=1 fails_with 2 "$over" analyze main.h5 -Q nf4:4s/block:64 -o ext.h5
    QM_FOLLOW_LINKS=1 fails_with 2 "$over" import main.h5 -o ext.h5
    "$QUALM" state -q make state.safetensors --recipe ema4_nf4 --shapes 65x64 --steps 1 || return 1
    cp state.safetensors was_state
    fails_with 2 "$over" state convert state.safetensors state.safetensors --recipe adamw_f32
    diff -r s was_s && cmp ext.h5 was_ext.h5
    cmp state.safetensors was_state
    fails_with 2 "under this name" report one.h5 -o new.html --latex ./new.html --no-figures
    fails_with 2 "given twice" import one.h5 -o x.npz -o y.npz
    [ ! -e new.html ] && [ ! -e y.npz ] && [ ! -e x.npz ]
}
