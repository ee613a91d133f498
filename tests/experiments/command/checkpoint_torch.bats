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
