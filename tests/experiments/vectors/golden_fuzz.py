"""golden_fuzz.py - `qualm verify` on damaged and hostile files: one line, a documented exit code.

    python3 golden_fuzz.py QUALM EXAMPLE.py FOLDER [FILES [SEED]]

FILES altered files (default 600), a third each in .npz, .h5 and .safetensors, drawn by a seed that
is printed: bytes flipped, cut and repeated; members of the description and arrays replaced by
hostile values, with the digest made right again; headers of the containers that lie.  A file may
pass only if NumPy and h5py read from it what `gen` wrote.  A process has 4 GB and 20 seconds.
"""
import importlib.util
import json
import os
import random
import resource
import subprocess
import sys
import time
import zipfile

import h5py
import numpy as np

FORMS = ("npz", "h5", "safetensors")
KINDS = {"F32": "<f4", "U8": "|u1"}
# what of the description a sealed file may not change
SAID = ["format", "version", "recipe", "rule", "grad", "param", "count", "codebooks", "cases"]
IDS = ["16777216/normal/default/t1/forced", "4097x4097x4097/normal/default/t1/own",
       "0/zeros/wd/t1/own", "1x1x1x1x1x1x1x1/exact/exact/t1/own", "300/normal/default/t-1/own",
       "99999999999999999999/normal/default/t1/own", "300/normal/default/t999999999/forced",
       "-3/normal/default/t1/own"]
VALUES = [None, True, -1, 0, 1, 2, 2**62, -2**63, 0.5, 1e308, 5e-324, "", "x" * 100000, "nan",
          "a\nb\x1b[2J", "\u009b\u202e", [], {}, [[]], [None] * 2000, {"": {"": {}}}, "adamw4_ao",
          "lion8_bnb", "t0", "../../etc/passwd", *IDS]


def compact(x):
    """JSON as jansson writes it with sorted keys, for the digest."""
    if isinstance(x, dict):
        return "{" + ",".join(f"{compact(k)}:{compact(x[k])}" for k in sorted(
            x, key=lambda k: k.encode())) + "}"
    if isinstance(x, list):
        return "[" + ",".join(map(compact, x)) + "]"
    if isinstance(x, float):
        text = f"{x:.17g}"
        mantissa, e, power = text.partition("e")
        if not e:
            return text if "." in text else text + ".0"
        return f"{mantissa}e{int(power)}"
    return json.dumps(x, ensure_ascii=False)


def seal(d):
    import hashlib
    d = {k: v for k, v in d.items() if k != "digest"}
    d["digest"] = hashlib.sha256(compact(d).encode()).hexdigest()
    return d


def replace_member(d, r):
    """Replaces, deletes or repeats a member drawn from all of the description."""
    at, key = None, None
    here = d
    while isinstance(here, (dict, list)) and here and (at is None or r.random() < 0.75):
        key = r.choice(list(here) if isinstance(here, dict) else range(len(here)))
        at, here = here, here[key]
    what = r.random()
    if what < 0.7:
        at[key] = r.choice(VALUES)
    elif what < 0.85 or isinstance(at, dict):
        del at[key]
    else:
        at.append(at[key])


def hostile_array(x, r):
    """Something else in place of an array."""
    kind = r.randrange(9)
    if kind == 0:
        return x.astype(r.choice(["f8", "f4", "f2", "i1", "u1", "i8", "u2", "?"]))
    if kind == 1:
        return np.full_like(x, r.choice([np.nan, np.inf, -np.inf]) if x.dtype.kind == "f" else 255)
    if kind == 2:
        return np.frombuffer(r.randbytes(x.nbytes), x.dtype).reshape(x.shape)
    if kind == 3:
        return x.reshape((1,) * r.randrange(7) + (-1,))
    if kind == 4:
        return x.ravel()[:r.randrange(x.size + 1)]
    if kind == 5:
        return np.zeros((0,) * r.randrange(1, 4), x.dtype)
    if kind == 6:
        return np.zeros(r.randrange(1, 100000), x.dtype)
    if kind == 7:
        return x.dtype.type(3)
    return np.asfortranarray(x.reshape(x.shape[0], -1)) if x.ndim else x


def hostile_bytes(data, r):
    data = bytearray(data)
    kind = r.randrange(4)
    at = r.randrange(len(data)) if r.random() < 0.5 else r.randrange(min(4096, len(data)))
    if kind == 0:
        for _ in range(r.choice([1, 1, 1, 4, 64])):
            data[r.randrange(len(data))] ^= 1 << r.randrange(8)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        data[at:at + 8] = r.choice([b"\xff" * 8, bytes(8), b"\x7f" + b"\xff" * 7,
                                    b"\xff" * 7 + b"\x7f", (1 << 40).to_bytes(8, "little")])
    else:
        data[at:at] = data[at:at + r.randrange(5000)]
    return bytes(data)


def hostile_head(path, a, form, r):
    """A container whose own header lies about an array."""
    name = r.choice(sorted(a))
    if form == "npz":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
            for other, x in a.items():
                with z.open(other + ".npy", "w") as f:
                    if other != name:
                        np.lib.format.write_array(f, np.asarray(x))
                        continue
                    shape = r.choice(["(1152921504606846976,)", "(-1,)", "(4294967296, 4294967296)",
                                      "(1,) * 9", "(" + "1, " * 40 + ")", "((", "(3.5,)"])
                    head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n" % (
                        r.choice(["<f4", "|u1", "<f16", "|O", "<c8", "<M8[s]", "|S5"]), shape)
                    f.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode())
                    f.write(bytes(r.choice([0, 16, 1 << 20])))
    elif form == "h5":
        with h5py.File(path, "w") as f:
            for other, x in a.items():
                if other != name:
                    f[other] = x
            kind = r.randrange(5)
            if kind == 0:
                f.create_dataset(name, (1 << r.randrange(20, 61),), r.choice(["f4", "u1", "i8"]),
                                 chunks=(1 << 16,))
            elif kind == 1:
                f[name] = "text"
            elif kind == 2:
                f[name] = h5py.SoftLink("/" + r.choice(sorted(a)))
            elif kind == 3:
                f[name] = h5py.ExternalLink("/does/not/exist.h5", "/x")
            else:
                f[name] = h5py.SoftLink("/" + name)
    else:
        head, at = {}, 0
        for other, x in a.items():
            head[other] = {"dtype": "F32" if x.dtype == np.float32 else "U8",
                           "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
            at += x.nbytes
        replace_member(head[name], r)
        text = json.dumps(head).encode()
        length = r.choice([len(text)] * 4 + [0, 1, len(text) + 1, 1 << 40, (1 << 64) - 1])
        with open(path, "wb") as f:
            f.write(length.to_bytes(8, "little") + text)
            for x in a.values():
                f.write(x.tobytes())


def read(path, names):
    """These arrays, by a reader that is not ours."""
    if path.endswith(".h5"):
        with h5py.File(path) as f:
            return {n: f[n][()] for n in names if f[n].size < 1 << 24}
    if path.endswith(".npz"):
        with np.load(path) as f:
            return {n: f[n] for n in names}
    with open(path, "rb") as f:
        data = f.read()
    start = 8 + int.from_bytes(data[:8], "little")
    head = json.loads(data[8:start])
    return {n: np.frombuffer(data[slice(*[start + x for x in head[n]["data_offsets"]])],
                             KINDS[head[n]["dtype"]]).reshape(head[n]["shape"]) for n in names}


def is_untouched(path, given):
    """Whether other readers get from the file what `gen` wrote."""
    names = [n for n in given if "/want/" not in n and "/out/" not in n]
    try:
        a = read(path, names)
    except zipfile.BadZipFile:  # libzip finds arrays where zipfile refuses the container
        return True
    except (OSError, ValueError, KeyError, TypeError):
        return False
    one, two = (json.loads(bytes(x.pop("golden"))) for x in (a, dict(given)))
    return (all(np.array_equal(a[n], given[n], equal_nan=given[n].dtype.kind == "f") for n in a) and
            len(a) == len(names) - 1 and all(one.get(k) == two[k] for k in SAID))


def limit():
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


def write(path, a, form, example):
    if form == "h5":
        with h5py.File(path, "w") as f:
            for name, x in a.items():
                f.create_dataset(name, data=x)
    else:
        example.save(path, a)


def alter(path, given, form, example, r):
    """Writes an altered file; returns what was done."""
    a, kind = dict(given), r.randrange(4)
    if kind == 0:
        write(path, a, form, example)
        with open(path, "rb") as f:
            data = hostile_bytes(f.read(), r)
        with open(path, "wb") as f:
            f.write(data)
        return "bytes"
    if kind == 1:
        d = json.loads(bytes(a["golden"]))
        for _ in range(r.choice([1, 1, 1, 3])):
            replace_member(d, r)
        a["golden"] = np.frombuffer(json.dumps(seal(d) if isinstance(d, dict) else d).encode(),
                                    np.uint8)
        if r.random() < 0.05:
            a["golden"] = np.frombuffer(b"[" * 100000, np.uint8)
        write(path, a, form, example)
        return "description"
    if kind == 2:
        for name in r.sample(sorted(a), r.choice([1, 1, 3])):
            a[name] = hostile_array(a[name], r)
        a = {n: x if form != "safetensors" or np.asarray(x).dtype.str in example.KINDS.values()
             else np.zeros(3, "f8") for n, x in a.items()}
        write(path, a, form, example)
        return "arrays"
    hostile_head(path, a, form, r)
    return "header"


def main():
    qualm, example, folder = sys.argv[1:4]
    files = int(sys.argv[4]) if len(sys.argv) > 4 else 600
    seed = int(sys.argv[5]) if len(sys.argv) > 5 else int(time.time())
    spec = importlib.util.spec_from_file_location("example", example)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    path = os.path.join(folder, "in.npz")
    subprocess.run([qualm, "gen", "adamw4_ao", "-q", "-S", "129,3x5", "-c", "normal,exact",
                    "--setting", "default", "--first-step", "1", "--forced", "--steps", "2", "-o", path],
                   check=True, stdout=subprocess.DEVNULL)
    given = dict(np.load(path))
    d = json.loads(bytes(given["golden"]))
    assert seal(d) == d, "the digest as golden_fuzz.py computes it"
    given.update({n.replace("/want/", "/out/"): x for n, x in given.items() if "/want/" in n})
    print(f"golden_fuzz: {files} files, seed {seed}")
    codes, wrong = {}, 0
    for i in range(files):
        r, form = random.Random(f"{seed} {i}"), FORMS[i % 3]
        path = os.path.join(folder, "fuzz." + form)
        if os.path.exists(path):
            os.unlink(path)
        what = alter(path, given, form, example, r)
        try:
            run = subprocess.run([qualm, "verify", path], check=False, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, timeout=20, preexec_fn=limit)
            code, lines = run.returncode, run.stderr.decode(errors="replace").splitlines()
        except subprocess.TimeoutExpired:
            code, lines = "timeout", []
        right = code in (0, 1, 3, 4) and len(lines) == (code > 1)
        right &= all(c >= " " and not "\x7f" <= c < "\xa0" for line in lines for c in line)
        right &= code != 0 or is_untouched(path, given)
        codes[what, form, code] = codes.get((what, form, code), 0) + 1
        wrong += not right
        if not right:
            kept = os.path.join(folder, f"kept{i}.{form}")
            os.rename(path, kept)
            print(f"file {i}, {what}, {kept}: {code} {lines}")
    for key in sorted(codes, key=str):
        print(*key, codes[key])
    print(f"{files} files, {wrong} judged wrongly")
    raise SystemExit(wrong > 0)


main()
