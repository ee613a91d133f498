#!/usr/bin/env python3
"""drawn_checkpoints.py - Draws PyTorch checkpoints, and compares what qualm imports with torch.

Usage: drawn_checkpoints.py QUALM COUNT SEED.  Exit code 77 where torch is not installed.
The domain: models of 1 to 6 layers (linear, embedding, convolution, batch and layer norm, tied
weights), trained by any class of torch.optim for 1 to 3 steps, with one or several param_groups in
any order, whose parameters may have names in an order of their own (param_names), by number or in
the flat form of torch.distributed.checkpoint.state_dict; saved alone or together, nested, under any
key, with tensors of any dtype and stride that share storages, conjugate and negative views; trees
of dictionaries, lists, tuples, deques and objects with tensors and arrays of NumPy of any type and
order in them, of which each is read or counted as left out; by any protocol of pickles, as zip or
legacy file, as a folder of torch.distributed.checkpoint with every tensor in chunks over 1 to 3
files, or as shards with an index. (A folder holds tied weights twice, so that numbers of parameters
may stand for either name: those are left out.)
"""
import argparse
import collections
import io
import json
import os
import pickle
import random
import re
import shutil
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy as np
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
except ImportError as e:
    print(f"drawn_checkpoints: skipped: {e}")
    sys.exit(77)

DTYPES = [getattr(torch, n) for n in (
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
    "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "float8_e8m0fnu", "uint16", "uint32", "uint64") if hasattr(torch, n)]


def expected(t):
    """The array that import writes for a tensor."""
    if isinstance(t, (np.ndarray, np.generic)):
        t = np.asarray(t)
        if t.dtype.kind == "c":
            t = np.stack([t.real, t.imag], -1)
        t = t.astype("f4" if t.dtype.str[1:] == "f2" else t.dtype.newbyteorder("="))
        return np.ascontiguousarray(t).reshape(t.shape)
    t = t.detach().resolve_conj().resolve_neg()
    if t.is_complex():
        return torch.view_as_real(t).contiguous().numpy()
    if t.is_floating_point() and t.dtype != torch.float64:
        return t.float().contiguous().numpy()
    return t.contiguous().numpy()


def same(a, b):
    """Equal shape, type and values, signs of zero included; every NaN equals every other."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    some = ~np.isnan(a)
    return np.array_equal(a, b, equal_nan=True) and np.array_equal(
        np.signbit(a)[some], np.signbit(b)[some])


def draw_tensor(r):
    dtype = r.choice(DTYPES)
    shape = [r.choice([1, 1, 2, 3, 5, 8, 17]) for _ in range(r.randint(0, 5))]
    if r.random() < 0.1 and shape:
        shape[r.randrange(len(shape))] = 0
    n = int(np.prod(shape, dtype=int))
    raw = torch.tensor([r.randrange(256) for _ in range(16 * n + 16)], dtype=torch.uint8)
    size = torch.empty(0, dtype=dtype).element_size()
    t = raw[:size * n].clone().view(dtype) if n else torch.empty(0, dtype=dtype)
    if dtype == torch.bool:
        t = raw[:n] > 127
    t = t.reshape(shape)
    kind = r.random()
    if kind < 0.3 and t.dim() > 1:
        t = t.transpose(r.randrange(t.dim()), r.randrange(t.dim()))
    elif kind < 0.45 and t.dim() and t.shape[0] > 1:
        t = t[1::2]
    elif kind < 0.55 and t.dim():
        t = t[:1].expand(7, *t.shape[1:]) if t.shape[0] else t
    elif kind < 0.65:
        t = torch.nn.Parameter(t, requires_grad=False)
    if t.is_complex() and r.random() < 0.5:
        t = t.conj()
        t = t.imag if r.random() < 0.3 else t
    if t.dtype not in UNSIGNED and r.random() < 0.15:
        t = torch._neg_view(t)
    return t


# torch negates neither these nor bool.
UNSIGNED = [d for d in DTYPES if d == torch.bool or "float8" in str(d) or
            str(d) in ("torch.uint16", "torch.uint32", "torch.uint64")]
ARRAYS = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "c8", "c16"]
UNREAD = [np.array([1, "a"], dtype=object), np.array(["a", "b"]), np.zeros(2, "g"),
          np.array(["2020-01-01"], dtype="M8[D]"), np.zeros(2, dtype=[("a", "f4")])]


def draw_array(r):
    """An array of NumPy, or one of its scalars."""
    dtype = np.dtype(r.choice(ARRAYS))
    dtype = dtype.newbyteorder(">") if r.random() < 0.3 else dtype
    shape = [r.choice([0, 1, 2, 3, 5, 17]) for _ in range(r.randint(0, 4))]
    n = int(np.prod(shape, dtype=int))
    a = np.frombuffer(bytes(r.randrange(256) for _ in range(n * dtype.itemsize)), dtype)
    a = (a.view("u1") & 1).view("?") if dtype.kind == "b" else a
    a = np.array(a, order="C").reshape(shape)
    kind = r.random()
    if kind < 0.2 and not a.shape:
        return a[()]
    if kind < 0.4:
        return np.asfortranarray(a)
    if kind < 0.6:
        return a.transpose(r.sample(range(a.ndim), a.ndim))
    return a[::-2] if kind < 0.7 and a.ndim else a


def draw_leaf(r):
    """A value, what is read of it (None: nothing), and how many tensors it has that are not."""
    kind = r.random()
    if kind < 0.35:
        t = draw_tensor(r).clone() if r.random() < 0.5 else draw_tensor(r)
        return t, expected(t), 0
    if kind < 0.65:
        a = draw_array(r)
        return a, expected(a), 0
    if kind < 0.75:
        return r.choice(UNREAD).copy(), None, 1
    if kind < 0.8:
        return torch.eye(3).to_sparse(), None, 1
    return r.choice([3, "text", None, 2.5, b"\xff\x00", {1, 2}, np.str_("s"), True]), None, 0


def draw_tree(r, path, depth, want):
    """A tree of containers; adds to `want` what is read of it; the number of tensors left out."""
    n, kind, lost = r.randint(0, 4), r.random(), 0
    names = [f"k{i}" if kind < 0.5 else str(i) for i in range(n)]
    items = []
    for name in names:
        if depth < 4 and r.random() < 0.45:
            x, more = draw_tree(r, f"{path}{name}/", depth + 1, want)
        else:
            x, got, more = draw_leaf(r)
            if got is not None:
                want[path + name] = got
        items.append(x)
        lost += more
    if kind < 0.5:
        return dict(zip(names, items)), lost
    hidden = [draw_tensor(r).clone(), draw_array(r).copy()]
    if kind < 0.6 and depth:  # an object, and keys that are no names: what is there has no path
        for k in [k for k in want if k.startswith(path)]:
            del want[k]
            lost += 1
        x = argparse.Namespace(items=items, hidden=hidden)
        return x if r.random() < 0.5 else {(1, 2): x}, lost + 2
    form = r.choice([list, tuple, lambda x: collections.deque(x, 9), list])
    return form(items), lost


class Tied(torch.nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.emb = torch.nn.Embedding(n, m)
        self.head = torch.nn.Linear(m, n, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, x):
        return self.head(self.emb.weight[:1])


def draw_model(r):
    layers = []
    for _ in range(r.randint(1, 6)):
        n, m = r.choice([1, 3, 4, 8, 40]), r.choice([1, 2, 4, 8, 33])
        layers.append(r.choice([
            lambda: torch.nn.Linear(n, m, bias=r.random() < 0.7), lambda: Tied(n, m),
            lambda: torch.nn.Embedding(n, m), lambda: torch.nn.LayerNorm(n),
            lambda: torch.nn.BatchNorm1d(n), lambda: torch.nn.PReLU(),
            lambda: torch.nn.Conv2d(m, n, r.choice([1, 3]))])())
    model = torch.nn.Sequential(*layers)
    if r.random() < 0.2:
        model = torch.nn.ModuleDict({"encoder": model, "b": torch.nn.Linear(3, 3)})
    return model


def draw_optimizer(r, model):
    """An optimizer, and the names of its parameters in the order of its numbers."""
    named = [(n, p) for n, p in model.named_parameters()]
    order = named
    groups = [{"params": [p for _, p in named]}]
    kind = r.random()
    if kind < 0.4 and len({p.dim() > 1 for _, p in named}) == 2:
        parts = [[x for x in named if x[1].dim() > 1], [x for x in named if x[1].dim() <= 1]]
        order = parts[0] + parts[1]
        groups = [{"params": [p for _, p in part], "weight_decay": 0.1 * i}
                  for i, part in enumerate(parts)]
    if kind > 0.9 and len(named) > 1:
        k = r.randrange(1, len(named))
        groups = [{"params": [p for _, p in named[:k]], "lr": 0.5},
                  {"params": [p for _, p in named[k:]]}]
    if r.random() < 0.3:
        order = r.sample(order, len(order))
        k = r.randint(1, len(order))
        groups = [{"params": part} for part in (order[:k], order[k:]) if part]
    o = torch.optim
    make = r.choice([
        lambda g: o.AdamW(g, lr=3e-3, betas=(0.8, 0.97), amsgrad=r.random() < 0.3), o.Adam,
        lambda g: o.SGD(g, lr=0.1, momentum=0.9, nesterov=True), o.Adagrad, o.NAdam, o.RAdam,
        lambda g: o.RMSprop(g, momentum=0.5, centered=True), o.Adadelta, o.Adamax, o.ASGD, o.Rprop,
        getattr(o, "Adafactor", o.Adam)])  # since torch 2.5
    optimizer = make(groups)
    for _ in range(r.randint(1, 3)):
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        optimizer.step()
    return optimizer, [n for n, _ in order]


def state_entries(optimizer, names, model, joined):
    out = {}
    state = optimizer.state_dict()["state"]
    parameters = dict(model.named_parameters())
    named = joined or "param_names" in optimizer.state_dict()["param_groups"][0]
    for i, name in enumerate(names):
        who = name if named else str(i)
        if joined:
            out[who + "/param"] = expected(parameters[name])
        for slot, v in state.get(i, {}).items():
            if torch.is_tensor(v):
                out[f"{who}/{slot}"] = expected(v)
            elif isinstance(v, (int, float)):
                out[f"{who}/{slot}"] = np.float64(v)
    return out


def draw_lists(r):
    """The state of LBFGS, or one with lists, tuples and dictionaries of drawn leaves."""
    p = torch.nn.Parameter(torch.randn(3, 4))
    if r.random() < 0.4:
        lbfgs = torch.optim.LBFGS([p], history_size=3, max_iter=4)

        def closure():
            lbfgs.zero_grad()
            loss = (p ** 4).sum()
            loss.backward()
            return loss
        for _ in range(r.randint(1, 3)):
            lbfgs.step(closure)
        saved, state = lbfgs.state_dict(), lbfgs.state_dict()["state"][0]
    else:
        def draw(depth):
            if depth < 3 and r.random() < 0.4:
                return r.choice([list, tuple])(draw(depth + 1) for _ in range(r.randint(0, 3)))
            return draw_leaf(r)[0]
        state = {f"s{i}": draw(0) for i in range(r.randint(1, 5))}
        saved = {"state": {0: state}, "param_groups": [{"params": [0], "lr": torch.tensor(0.5)}]}
    want, lost = {}, 0

    def walk(name, v):
        nonlocal lost
        if isinstance(v, (list, tuple, set)):
            for i, item in enumerate(v):
                walk(f"{name}.{i}", item)
        elif isinstance(v, np.ndarray) and (v.dtype.kind in "OUMV" or v.dtype == np.longdouble):
            lost += 1
        elif torch.is_tensor(v) and v.is_sparse:
            lost += 1
        elif torch.is_tensor(v) or isinstance(v, (np.ndarray, np.number, np.bool_)):
            want[name] = expected(v)
        elif isinstance(v, (int, float)):
            want[name] = np.float64(v)
    for slot, v in state.items():
        walk(f"0/{slot}", v)
    return saved, want, lost


def put_apart(r, x, keys):
    """The model or its optimizer, or both, some dictionaries or lists deeper."""
    for key in keys:
        for _ in range(r.choice([0, 0, 1, 1, 2])):
            x[key] = r.choice([{"weights": x[key]}, {"trainer": x[key], "epoch": 3}, [x[key]],
                               {"at": [x[key], 5]}])
    for _ in range(r.choice([0, 0, 1])):
        x = r.choice([{"checkpoint": x, "version": 2}, {"list": [x]}])
    return x


def draw_checkpoint(r):
    """What is saved, what import writes of it, and how many tensors it leaves out (0 where that is
    not given)."""
    kind = r.choice(["tensors", "nested", "optimizer", "both", "both", "both", "model", "tree",
                     "tree", "tree", "lists"])
    if kind == "tensors":
        x = {f"k{i}.weight": draw_tensor(r) for i in range(r.randint(1, 8))}
        if r.random() < 0.3:
            x["shared"] = next(iter(x.values()))
        return x, {k: expected(v) for k, v in x.items()}
    if kind == "nested":
        x = {"a": {"b": draw_tensor(r), "c": [draw_tensor(r), (draw_tensor(r), 3)]}, "n": 5,
             "t": "text", 7: draw_tensor(r), "none": None, "size": torch.Size([1, 2]),
             "big": 2 ** 70, "minus": -2 ** 40, "f": 0.5, "set": {1, 2}, "dtype": torch.float16,
             "device": torch.device("cpu"), "bytes": b"abc", "np": np.float32(3),
             "arr": np.arange(3)}
        return x, {"a/b": expected(x["a"]["b"]), "a/c/0": expected(x["a"]["c"][0]),
                   "a/c/1/0": expected(x["a"]["c"][1][0]), "7": expected(x[7]),
                   "np": np.float32(3), "arr": np.arange(3)}
    if kind == "tree":
        want = {}
        x, lost = draw_tree(r, "top/", 0, want)
        return {"top": x}, want, lost
    if kind == "lists":
        return draw_lists(r)
    model = draw_model(r)
    if kind == "model":
        return model.state_dict(), {k: expected(v) for k, v in model.state_dict().items()}
    optimizer, names = draw_optimizer(r, model)
    if kind == "optimizer":
        out = state_entries(optimizer, names, model, False)
        return optimizer.state_dict(), out
    keys = r.choice([("model", "optimizer"), ("state_dict", "optim"), ("module", "opt"),
                     ("model_state_dict", "optimizer_state_dict")])
    of_optimizer = optimizer.state_dict()
    if r.random() < 0.3:
        options = StateDictOptions(flatten_optimizer_state_dict=True)
        of_optimizer = get_state_dict(model, optimizer, options=options)[1]
    x = {keys[0]: model.state_dict(), keys[1]: of_optimizer, "epoch": 3}
    if r.random() < 0.4 and "param_groups" in of_optimizer:
        x = put_apart(r, x, keys)
    elif "param_groups" not in of_optimizer and r.random() < 0.3:  # as torchtitan saves them
        x = {**x.pop(keys[0]), **x}
    if r.random() < 0.3:
        x = dict(reversed(list(x.items())))
    out = state_entries(optimizer, names, model, True)
    named = set(names)
    for k, v in model.state_dict().items():
        if k not in named:
            out[k] = expected(v)
    return x, out


def boxes(r, shape):
    """Draws how a tensor is cut: lists of (starts, sizes)."""
    out = [([], [])]
    for n in shape:
        k = r.choice([1, 1, 2, 3])
        cuts = sorted(r.randrange(n + 1) for _ in range(k - 1)) if n else []
        ranges = [(a, b - a) for a, b in zip([0] + cuts, cuts + [n]) if b > a or n == 0]
        out = [(s + [a], c + [m]) for s, c in out for a, m in ranges]
    return out


def save_distributed(r, saved, path):
    """Saves with torch, then cuts the tensors of the folder into chunks as several ranks would."""
    shutil.rmtree(path, ignore_errors=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(saved, checkpoint_id=path)
    with open(f"{path}/.metadata", "rb") as f:
        meta = pickle.load(f)
    n = r.randint(1, 3)
    places, parts = {}, [open(f"{path}/__{k}_9.distcp", "wb") for k in range(n)]
    for index, info in meta.storage_data.items():
        with open(f"{path}/{info.relative_path}", "rb") as f:
            f.seek(info.offset)
            record = io.BytesIO(f.read(info.length))
        whole = meta.state_dict_metadata[index.fqn]
        chunks = [(None, None)] if index.offset is None else boxes(r, whole.size)
        if index.offset is not None:
            t = torch.load(record, weights_only=False)
            whole.chunks = [type(whole.chunks[0])(torch.Size(s), torch.Size(c)) for s, c in chunks]
        for i, (start, size) in enumerate(chunks):
            k = r.randrange(n)
            at = parts[k].tell()
            if start is None:
                parts[k].write(record.getvalue())
                key = index
            else:
                part = t[tuple(slice(a, a + m) for a, m in zip(start, size))]
                torch.save(part.clone(), parts[k])
                key = type(index)(index.fqn, torch.Size(start), i)
            places[key] = type(info)(f"__{k}_9.distcp", at, parts[k].tell() - at)
    for f in parts:
        f.close()
    meta.storage_data = places
    with open(f"{path}/.metadata", "wb") as f:
        pickle.dump(meta, f)


def save_indexed(r, saved, path):
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path)
    n = r.randint(1, 3)
    place = {k: r.randrange(n) for k in saved}
    for i in set(place.values()):
        torch.save({k: v for k, v in saved.items() if place[k] == i}, f"{path}/m-{i}.bin")
    with open(f"{path}/pytorch_model.bin.index.json", "w") as f:
        json.dump({"metadata": {}, "weight_map": {k: f"m-{i}.bin" for k, i in place.items()}}, f)


def has_key(v, end):
    """Whether a key somewhere in dictionaries and lists has this end."""
    if isinstance(v, dict):
        return any(str(k).endswith(end) or has_key(x, end) for k, x in v.items())
    return isinstance(v, list) and any(has_key(x, end) for x in v)


def save(r, saved, path):
    """Saves in a drawn form; its name."""
    kind = r.random()
    plain = all(isinstance(k, str) and torch.is_tensor(v) for k, v in saved.items())
    protocol = r.choice([2, 2, 3, 4, 5])
    if kind < 0.3:
        torch.save(saved, path, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
        return "legacy"
    tied = has_key(saved, "head.weight")
    own = "none" in saved or "top" in saved or 0 in saved.get("state", {})
    if kind < 0.6 and not own and not tied:
        save_distributed(r, saved, path)
        return "distributed"
    if kind < 0.7 and plain:
        save_indexed(r, saved, path)
        return "index"
    torch.save(saved, path, pickle_protocol=protocol)
    return "zip"


def left_out(text):
    """How many tensors the note names or counts."""
    note = re.search(r"[:;] left out: (.*)", text)
    items = note.group(1).split("; ") if note else []
    items = [i for i in items if not i.startswith("names of the parameters")]
    more = re.fullmatch(r"and (\d+) more", items[-1]) if items else None
    return len(items) - 1 + int(more.group(1)) if more else len(items)


def compare(qualm, folder, r):
    """What is wrong with one drawn checkpoint ("" where nothing is), and its number of arrays."""
    saved, want, *lost = draw_checkpoint(r)
    path, out = f"{folder}/c{r.random()}.pt", f"{folder}/o.npz"
    try:
        form = save(r, saved, path)
    except (AttributeError, KeyError, RuntimeError):  # a dtype that the legacy form does not know
        return "", 0
    if not want:
        return "", 0
    run = subprocess.run([qualm, "import", path, "--out", out], capture_output=True, text=True)
    if lost and left_out(run.stderr) != lost[0]:
        return f"{lost[0]} tensors left out ({form}), expected in: {run.stderr.strip()}", len(want)
    if run.returncode:
        return f"exit {run.returncode}: {run.stderr.strip()}", len(want)
    got = dict(np.load(out))
    wrong = [k for k in want if k not in got or not same(got[k], np.asarray(want[k]))]
    wrong += [k for k in got if k not in want]
    if not wrong:
        return "", len(want)
    both = [(x[wrong[0]].shape, x[wrong[0]].dtype) if wrong[0] in x else "absent"
            for x in (got, {k: np.asarray(v) for k, v in want.items()})]
    return (f"{len(wrong)} of {len(want)} arrays differ ({form}), first "
            f"'{wrong[0]}': {both[0]}, expected {both[1]}; {run.stderr.strip()[:200]}"), len(want)


def main():
    qualm, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    failed = compared = arrays = 0
    with tempfile.TemporaryDirectory() as folder:
        for i in range(count):
            r = random.Random(f"{seed}/{i}")
            torch.manual_seed(r.randrange(2 ** 31))
            wrong, n = compare(qualm, folder, r)
            compared += n > 0
            arrays += n
            failed += bool(wrong)
            if wrong:
                print(f"case {seed}/{i}: {wrong}")
    print(f"drawn_checkpoints: {count} drawn, {compared} compared with {arrays} arrays, "
          f"{failed} failed, seed {seed}")
    return 1 if failed or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
