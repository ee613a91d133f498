#!/usr/bin/env bats
# safetensors.bats - Element types of .safetensors files, beside those of PyTorch's checkpoints.

load ../../support/cli_common

SAMPLES=$ROOT/tests/experiments/readers/checkpoints

setup() { dir=$(mktemp -d); }

teardown() { rm -rf "$dir"; }

@test "8-bit floats and complex numbers of .safetensors are those of .pt, other dtypes left out" {
    "$PYTHON" - "$dir" <<'P'
import json, struct, sys
kinds = {"e4m3fn": "F8_E4M3", "e5m2": "F8_E5M2", "e4m3fnuz": "F8_E4M3FNUZ",
         "e5m2fnuz": "F8_E5M2FNUZ", "e8m0fnu": "F8_E8M0"}
tensors = {name: (dtype, [256], bytes(range(256))) for name, dtype in kinds.items()}
tensors["turns"] = "C64", [2], struct.pack("<4f", 1, -2, 3, float("inf"))
tensors["small"] = "F4", [4], b"ab"
tensors["plain"] = "F32", [2], struct.pack("<2f", 5, 6)
header, data = {"__metadata__": {"left_out": "one of the writer"}}, b""
for name, (dtype, shape, held) in tensors.items():
    ends = [len(data), len(data + held)]
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": ends}
    data += held
header = json.dumps(header).encode()
open(sys.argv[1] + "/a.safetensors", "wb").write(struct.pack("<Q", len(header)) + header + data)
json.dump({"weight_map": {name: "a.safetensors" for name in tensors}},
          open(sys.argv[1] + "/a.index.json", "w"))
P
    qualm import -q "$SAMPLES/tensors.pth" -o "$dir/torch.npz" >/dev/null
    for file in a.safetensors a.index.json; do
        qualm import "$dir/$file" -o "$dir/own.npz" >/dev/null 2>"$dir/said"
        grep -q "left out: .*small (.*dtype F4)" "$dir/said"
        grep -q "complex numbers in 1 of 7 arrays" "$dir/said"
        "$PYTHON" - "$dir" <<'P'
import sys
import numpy as np
own, torch = (np.load(f"{sys.argv[1]}/{name}.npz") for name in ("own", "torch"))
for name in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu"):
    assert own[name].tobytes() == torch[name].tobytes(), name
assert own["turns"].tolist() == [[1, -2], [3, float("inf")]] and own["plain"].tolist() == [5, 6]
P
    done
    qualm import "$dir/a.safetensors" -o "$dir/own.npz" 2>&1 >/dev/null |
        grep -q "one of the writer; "
    qualm analyze "$dir/a.safetensors" --tensor '^plain$' \
        -Q nf4:4s/block:64/bisect/mid/hi >/dev/null
    for texts in null '[]' '"x"' 3 false; do
        "$PYTHON" - "$dir/m.safetensors" "$texts" <<'P'
import struct, sys
head = '{"__metadata__":%s,"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}' % sys.argv[2]
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head.encode() + bytes(4))
P
        fails_with 3 "__metadata__ is no object of texts" import "$dir/m.safetensors" \
            -o "$dir/m.npz"
    done
}
