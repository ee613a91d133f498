"""adamw4_numpy.py - 4-bit AdamW of torchao in NumPy, checked without linking Qualm:

    qualm gen adamw4_ao --out in.npz                       # or .h5, .safetensors
    python3 adamw4_numpy.py in.npz out.npz && qualm verify out.npz
    qualm gen adamw4_ao --out - | python3 adamw4_numpy.py - - | qualm verify -
"""
import io
import json
import re
import sys

import numpy as np


def decode(codes, scales, book, block, n):
    unit = book[np.stack([codes >> 4, codes & 15], axis=1).ravel()[:n]]  # high nibble first
    return unit * np.repeat(scales, block)[:n]


def encode(x, book, block):
    blocks = np.pad(x, (0, -x.size % block)).reshape(-1, block)  # zeros behind a short last block
    scales = np.maximum(np.abs(blocks).max(axis=1), np.float32(1e-12))
    middle = (book[1:].astype(np.float64) + book[:-1]) / 2
    unit = (blocks / scales[:, None]).ravel()[:x.size]
    codes = np.searchsorted(middle, unit, side="right").astype(np.uint8)  # right: ties go up
    codes[np.isnan(unit)] = 0  # no comparison with NaN holds
    codes = np.pad(codes, (0, x.size % 2))
    return codes[0::2] << 4 | codes[1::2], scales


def lerp(a, b, w):  # torch's lerp: exact at both ends
    return a + (b - a) * np.float32(w) if w < 0.5 else b - (b - a) * (1 - np.float32(w))


def step(p, m, v, g, t, h):
    g = -g if h.get("maximize") else g
    m, v = lerp(m, g, 1 - h["beta1"]), lerp(v, g * g, 1 - h["beta2"])
    p = p - np.float32(h["lr"] * h["weight_decay"]) * p
    root = np.sqrt(v) / np.float32(np.sqrt(1 - h["beta2"] ** t)) + np.float32(h["eps"])
    return p - np.float32(h["lr"]) * (m / np.float32(1 - h["beta1"] ** t)) / root, m, v


def answer(a):
    """Adds CASE/out/STEP/... to the arrays of a golden file."""
    golden = json.loads(bytes(a["golden"]))
    assert (golden["format"], golden["version"]) == ("qualm-golden", 2)
    for case in golden["cases"]:
        p, before = a[f"{case['name']}/in/param"].ravel(), f"{case['name']}/in"
        for k in range(1, case["steps"] + 1):
            out, state = f"{case['name']}/out/{k}", []
            for s in case["slots"]:
                at = f"{before}/{s['name']}"
                s["block"] = int((re.findall(r"block:(\d+)", s["quantizer"]) or [0])[0])
                state.append(decode(a[at + ".codes"], a[at + ".scales"], a["codebook/" + s["name"]],
                                    s["block"], p.size) if s["bits"] == 4 else a[at].ravel())
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


KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "U8": "|u1", "I8": "|i1", "I16": "<i2"}


def load(path):
    """{name: array} of a golden file in any format; "-" is stdin."""
    if path.endswith(".h5"):
        import h5py
        found = {}
        with h5py.File(path) as f:
            f.visititems(lambda name, x: found.update({name: x[()]})
                         if isinstance(x, h5py.Dataset) else None)
        return found
    data = sys.stdin.buffer.read() if path == "-" else open(path, "rb").read()
    if data[:2] == b"PK":
        return dict(np.load(io.BytesIO(data)))
    start = 8 + int.from_bytes(data[:8], "little")  # .safetensors: a length, JSON, the bytes
    head = json.loads(data[8:start])
    return {name: np.frombuffer(data[start + e["data_offsets"][0]:start + e["data_offsets"][1]],
                                KINDS[e["dtype"]]).reshape(e["shape"])
            for name, e in head.items() if name != "__metadata__"}


def save(path, arrays):
    """Writes .npz, or .safetensors where the name ends so; appends the answers to an .h5 file."""
    if path.endswith(".h5"):
        import h5py
        with h5py.File(path, "a") as f:
            for name in [n for n in arrays if "/out/" in n]:
                f.create_dataset(name, data=arrays[name])
        return
    data, head, at = io.BytesIO(), {}, 0
    if path.endswith(".safetensors"):
        words = {v: k for k, v in KINDS.items()}
        for name, x in arrays.items():
            head[name] = {"dtype": words[x.dtype.str], "shape": x.shape,
                          "data_offsets": [at, at + x.nbytes]}
            at += x.nbytes
        text = json.dumps(head).encode()
        data.write(len(text).to_bytes(8, "little") + text)
        for x in arrays.values():
            data.write(x.tobytes())
    else:
        np.savez(data, **arrays)
    with sys.stdout.buffer if path == "-" else open(path, "wb") as f:
        f.write(data.getvalue())


if __name__ == "__main__":
    np.seterr(all="ignore")  # planted infinities
    save(sys.argv[2], answer(load(sys.argv[1])))
