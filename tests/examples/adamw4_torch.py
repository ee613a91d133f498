"""adamw4_torch.py - 4-bit AdamW of torchao in PyTorch, as adamw4_numpy.py, with torch's lerp.

    qualm gen adamw4_ao --out in.npz
    python3 adamw4_torch.py in.npz out.npz && qualm verify out.npz
"""
import json
import math
import re
import sys

import numpy as np
import torch


def decode(codes, scales, book, block, n):
    unit = book[torch.stack([codes >> 4, codes & 15], dim=1).ravel()[:n].long()]
    return unit * scales.repeat_interleave(block)[:n]


def encode(x, book, block):
    blocks = torch.nn.functional.pad(x, (0, -x.numel() % block)).view(-1, block)
    scales = blocks.abs().amax(dim=1).clamp(min=1e-12)
    middle = (book[1:].double() + book[:-1].double()) / 2
    unit = (blocks / scales[:, None]).ravel()[:x.numel()].double()
    codes = torch.searchsorted(middle, unit, right=True).to(torch.uint8)  # right: ties go up
    codes[unit.isnan()] = 0  # no comparison with NaN holds
    codes = torch.nn.functional.pad(codes, (0, x.numel() % 2))
    return codes[0::2] << 4 | codes[1::2], scales


def step(p, m, v, g, t, h):
    g = -g if h.get("maximize") else g
    m, v = m.lerp(g, 1 - h["beta1"]), v.lerp(g.square(), 1 - h["beta2"])
    p = p - h["lr"] * h["weight_decay"] * p
    root = v.sqrt() / math.sqrt(1 - h["beta2"] ** t) + h["eps"]
    return p - h["lr"] * (m / (1 - h["beta1"] ** t)) / root, m, v


def answer(a):
    """Adds CASE/out/STEP/... to the tensors of a golden file."""
    golden = json.loads(bytes(a["golden"].tolist()))
    assert (golden["format"], golden["version"]) == ("qualm-golden", 2)
    for case in golden["cases"]:
        p, before = a[f"{case['name']}/in/param"].ravel(), f"{case['name']}/in"
        for k in range(1, case["steps"] + 1):
            out, state = f"{case['name']}/out/{k}", []
            for s in case["slots"]:
                at = f"{before}/{s['name']}"
                s["block"] = int((re.findall(r"block:(\d+)", s["quantizer"]) or [0])[0])
                state.append(decode(a[at + ".codes"], a[at + ".scales"], a["codebook/" + s["name"]],
                                    s["block"], p.numel()) if s["bits"] == 4 else a[at].ravel())
            g = a[f"{case['name']}/grad/{k}"].ravel()
            p, *state = step(p, *state, g, case["first_step"] + k - 1, case["hyper"][k - 1])
            a[f"{out}/param"] = p
            for s, x in zip(case["slots"], state):
                at = f"{out}/{s['name']}"
                if s["bits"] == 4:
                    a[at + ".codes"], a[at + ".scales"] = encode(x, a["codebook/" + s["name"]],
                                                                 s["block"])
                else:
                    a[at] = x
            before = out
    return a


if __name__ == "__main__":
    tensors = {name: torch.from_numpy(x) for name, x in np.load(sys.argv[1]).items()}
    np.savez(sys.argv[2], **{name: x.numpy() for name, x in answer(tensors).items()})
