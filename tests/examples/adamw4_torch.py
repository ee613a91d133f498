"""adamw4_torch.py - 4-bit AdamW of torchao in PyTorch, as adamw4_numpy.py, with torch's lerp.

    qualm gen adamw4_ao --out in.npz
    python3 adamw4_torch.py in.npz out.npz && qualm verify out.npz
"""
import json
import math
import sys

import numpy as np
import torch


def decode(codes, scales, book):
    unit = book[torch.stack([codes >> 4, codes & 15], dim=1).ravel().long()]
    return (unit.view(-1, 128) * scales[:, None]).ravel()


def encode(x, book):
    x = x.view(-1, 128)
    scales = x.abs().amax(dim=1).clamp(min=1e-12)
    middle = (book[1:].double() + book[:-1].double()) / 2
    unit = (x / scales[:, None]).ravel().double()
    codes = torch.searchsorted(middle, unit, right=True).to(torch.uint8)  # right: ties go up
    return codes[0::2] << 4 | codes[1::2], scales


def step(p, m, v, g, t, h):
    m, v = m.lerp(g, 1 - h["beta1"]), v.lerp(g.square(), 1 - h["beta2"])
    p = p - h["lr"] * h["weight_decay"] * p
    root = v.sqrt() / math.sqrt(1 - h["beta2"] ** t) + h["eps"]
    return p - h["lr"] / (1 - h["beta1"] ** t) * (m / root), m, v


def answer(a):
    """Adds CASE/out/STEP/... to the tensors of a golden file."""
    for case in json.loads(bytes(a["golden"].tolist()))["cases"]:
        slots, name = case["slots"], case["name"]
        p, before = a[f"{name}/in/param"].ravel(), f"{name}/in"
        for k in range(1, case["steps"] + 1):
            out, state = f"{name}/out/{k}", []
            for s in slots:
                at = f"{before}/{s['name']}"
                state.append(decode(a[at + ".codes"], a[at + ".scales"], a["codebook/" + s["name"]])
                             if s["bits"] == 4 else a[at].ravel())
            g = a[f"{name}/grad/{k}"].ravel()
            p, *state = step(p, *state, g, case["first_step"] + k - 1, case["hyper"])
            a[f"{out}/param"] = p
            for s, x in zip(slots, state):
                at = f"{out}/{s['name']}"
                if s["bits"] == 4:
                    a[at + ".codes"], a[at + ".scales"] = encode(x, a["codebook/" + s["name"]])
                else:
                    a[at] = x
            before = out
    return a


if __name__ == "__main__":
    tensors = {name: torch.from_numpy(x) for name, x in np.load(sys.argv[1]).items()}
    np.savez(sys.argv[2], **{name: x.numpy() for name, x in answer(tensors).items()})
