#!/usr/bin/env bats
# checkpoint_torch.bats - Tests checkpoints that torch, where it is installed, writes as they run.
#
# QM_TORCH_PYTHON is a Python with torch (python3 else); without torch all are skipped.
load ../../support/cli_common

@test "drawn checkpoints: every array is torch's own" {
    python=${QM_TORCH_PYTHON:-python3}
    "$python" -c 'import torch, numpy' 2>/dev/null || skip "torch is not installed for $python"
    "$python" "$ROOT/tests/experiments/readers/drawn_checkpoints.py" "$QUALM" \
        $((80 / ${QM_TEST_SHARE:-1})) "${QM_TEST_SEED:-1}"
}

@test "torchao's states in a folder of torch.distributed.checkpoint are those of a file" {
    python=${QM_TORCH_PYTHON:-python3}
    "$python" -c 'import torchao.optim' 2>/dev/null || skip "torchao is not installed for $python"
    "$python" - "$BATS_TEST_TMPDIR" <<'END' 2>/dev/null >&2
import sys
import torch
import torch.distributed.checkpoint as dcp
from torchao.optim import AdamW4bit, AdamW8bit, AdamWFp8
for dtype in (torch.float32, torch.bfloat16):
    for kind in (AdamW4bit, AdamW8bit, AdamWFp8):
        model = torch.nn.Linear(64, 130).to(dtype)
        optimizer = kind(model.parameters())
        for _ in range(2):
            model(torch.randn(8, 64).to(dtype)).sum().backward()
            optimizer.step()
        both = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        path = f"{sys.argv[1]}/{kind.__name__}.{str(dtype)[6:]}"
        torch.save(both, path + ".pt")
        dcp.save(both, checkpoint_id=path)
END
    for file in "$BATS_TEST_TMPDIR"/*.pt; do
        run -0 "$QUALM" import "$file" --out "$BATS_TEST_TMPDIR/a.npz"
        [[ $output == *"weight/exp_avg_sq"* && $output != *"left out"* ]]
        run -0 "$QUALM" import "${file%.pt}" --out "$BATS_TEST_TMPDIR/b.npz"
        "$python" - "$BATS_TEST_TMPDIR" <<'END'
import sys
import numpy as np
a, b = (np.load(f"{sys.argv[1]}/{name}.npz") for name in "ab")
assert sorted(a.files) == sorted(b.files)
assert all(a[k].dtype == b[k].dtype and a[k].tobytes() == b[k].tobytes() for k in a.files)
END
    done
}

@test "several models, copies and optimizers in drawn nestings: a name is the right one, or it is said" {
    python=${QM_TORCH_PYTHON:-python3}
    "$python" -c 'import torch, numpy' 2>/dev/null || skip "torch is not installed for $python"
    "$python" "$ROOT/tests/experiments/readers/drawn_nestings.py" "$QUALM" \
        $((120 / ${QM_TEST_SHARE:-1})) "${QM_TEST_SEED:-1}"
}

@test "one optimizer of two models whose parameters have equal names: numbers, and all states" {
    python=${QM_TORCH_PYTHON:-python3}
    "$python" -c 'import torch' 2>/dev/null || skip "torch is not installed for $python"
    "$python" - "$BATS_TEST_TMPDIR" <<'P' || skip "this torch has no named parameters in optimizers"
import itertools, sys, torch
models = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
named = itertools.chain(*(m.named_parameters() for m in models))
optimizer = torch.optim.AdamW(named, lr=0.1)
sum(m(torch.randn(5, 4)).square().sum() for m in models).backward()
optimizer.step()
assert "param_names" in optimizer.state_dict()["param_groups"][0]
for keys in ("encoder decoder optimizer", "state_dict head optimizer", "G D opt_G"):
    values = [*(m.state_dict() for m in models), optimizer.state_dict()]
    torch.save(dict(zip(keys.split(), values)), f"{sys.argv[1]}/{keys.split()[0]}.pt")
P
    for name in encoder state_dict G; do
        run -0 "$QUALM" import "$BATS_TEST_TMPDIR/$name.pt" --out "$BATS_TEST_TMPDIR/a.npz"
        [[ $output == *"names in the optimizer (two of its parameters are 'weight')"* ]]
        [[ $output == *"3/exp_avg"* && $output == *": 16 arrays"* ]]
    done
}

@test "values that stand in several places, or in themselves, are read once" {
    python=${QM_TORCH_PYTHON:-python3}
    "$python" -c 'import torch' 2>/dev/null || skip "torch is not installed for $python"
    "$python" - "$BATS_TEST_TMPDIR" <<'P'
import sys, torch
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
own = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
itself, parent = dict(own), dict(own)
itself["self"] = itself
parent["trainer"] = {"parent": parent}
saved = {"itself": itself, "parent": parent, "list": [own] * 20,
         "many": {"model": own["model"], **{f"o{i}": own["optimizer"] for i in range(20)}}}
for name, values in saved.items():
    torch.save(values, f"{sys.argv[1]}/{name}.pt")
P
    for name in itself parent list many; do
        run -0 "$QUALM" import "$BATS_TEST_TMPDIR/$name.pt" --out "$BATS_TEST_TMPDIR/a.npz"
        [[ $output != *"left out"* && $output == *"weight/exp_avg"* && $output == *": 8 arrays"* ]]
    done
}
