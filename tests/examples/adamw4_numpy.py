"""adamw4_numpy.py - 4-bit AdamW of torchao in NumPy, checked without linking Qualm:

    qualm gen adamw4_ao --cases normal,planted,exact --out in.npz
    python3 adamw4_numpy.py in.npz out.npz && qualm verify out.npz
    qualm gen adamw4_ao --form npz --out - | python3 adamw4_numpy.py - - | qualm verify -
"""
import io
import json
import sys

import numpy as np


def decode(codes, scales, book):
    unit = book[np.stack([codes >> 4, codes & 15], axis=1).ravel()]  # first code in the high nibble
    return (unit.reshape(-1, 128) * scales[:, None]).ravel()


def encode(x, book):
    x = x.reshape(-1, 128)
    scales = np.maximum(np.abs(x).max(axis=1), np.float32(1e-12))
    middle = (book[1:].astype(np.float64) + book[:-1]) / 2
    codes = np.searchsorted(middle, (x / scales[:, None]).ravel(), side="right").astype(np.uint8)
    return codes[0::2] << 4 | codes[1::2], scales  # side="right": ties go up


def lerp(a, b, w):  # torch's lerp: exact at both ends
    return a + (b - a) * np.float32(w) if w < 0.5 else b - (b - a) * (1 - np.float32(w))


def step(p, m, v, g, t, h):
    m, v = lerp(m, g, 1 - h["beta1"]), lerp(v, g * g, 1 - h["beta2"])
    p = p - np.float32(h["lr"] * h["weight_decay"]) * p
    root = np.sqrt(v) / np.float32(np.sqrt(1 - h["beta2"] ** t)) + np.float32(h["eps"])
    return p - np.float32(h["lr"] / (1 - h["beta1"] ** t)) * (m / root), m, v


def answer(a):
    """Adds CASE/out/STEP/... to the arrays of a golden file."""
    for case in json.loads(bytes(a["golden"]))["cases"]:
        names = [s["name"] for s in case["slots"]]
        quantized = [s["bits"] == 4 for s in case["slots"]]
        p, before = a[f"{case['name']}/in/param"].ravel(), f"{case['name']}/in"
        for k in range(1, case["steps"] + 1):
            out = f"{case['name']}/out/{k}"
            state = [decode(a[f"{before}/{s}.codes"], a[f"{before}/{s}.scales"], a[f"codebook/{s}"])
                     if q else a[f"{before}/{s}"].ravel() for s, q in zip(names, quantized)]
            g = a[f"{case['name']}/grad/{k}"].ravel()
            p, *state = step(p, *state, g, case["first_step"] + k - 1, case["hyper"])
            a[f"{out}/param"] = p
            for s, q, x in zip(names, quantized, state):
                if q:
                    a[f"{out}/{s}.codes"], a[f"{out}/{s}.scales"] = encode(x, a[f"codebook/{s}"])
                else:
                    a[f"{out}/{s}"] = x
            before = out
    return a


def load(path):
    """{name: array} of a golden file in any format."""
    if path.endswith(".h5"):
        import h5py
        found = {}
        with h5py.File(path) as f:
            f.visititems(lambda name, x: found.update({name: x[()]})
                         if isinstance(x, h5py.Dataset) else None)
        return found
    return dict(np.load(io.BytesIO(sys.stdin.buffer.read()) if path == "-" else path))


def save(path, arrays):
    if path.endswith(".h5"):
        import h5py
        with h5py.File(path, "a") as f:
            for name in [n for n in arrays if "/out/" in n]:
                f.create_dataset(name, data=arrays[name])
        return
    data = io.BytesIO()
    np.savez(data, **arrays)
    if path == "-":
        sys.stdout.buffer.write(data.getvalue())
    else:
        with open(path, "wb") as f:
            f.write(data.getvalue())


if __name__ == "__main__":
    np.seterr(all="ignore")  # planted infinities
    save(sys.argv[2], answer(load(sys.argv[1])))
