"""make_checkpoints.py - Writes the sample checkpoints in checkpoints/ and the values they hold.

Usage: make_checkpoints.py FOLDER.  Needs torch, torchao and bitsandbytes; the samples are
committed, so that tests need none of them.  expected.npz holds FILE|NAME for every array that
import writes, as torch and the two packages decode it.
"""
import json
import os
import shutil
import sys
import warnings

import bitsandbytes
import numpy as np
import torch
import torch.distributed.checkpoint as dcp
import torchao.optim
from torch.distributed.checkpoint.state_dict import get_state_dict

want = {}


def note(file, name, t):
    t = t.detach()
    if hasattr(t, "dequantize") and type(t) is not torch.Tensor:
        t = t.dequantize()
    if t.is_floating_point() and t.dtype != torch.float64:
        t = t.float()
    want[f"{file}|{name}"] = t.contiguous().numpy()


def trained(make, shape=(3, 8), steps=2):
    model = torch.nn.Sequential(torch.nn.Linear(shape[1], shape[0]))
    optimizer = make(model.parameters())
    for _ in range(steps):
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        optimizer.step()
    return model, optimizer


def note_states(file, model, optimizer, joined=True):
    names = [n for n, _ in model.named_parameters()]
    for i, state in optimizer.state_dict()["state"].items():
        for slot, v in state.items():
            v = v if torch.is_tensor(v) else torch.tensor(float(v), dtype=torch.float64)
            note(file, f"{names[i] if joined else i}/{slot}", v)
    for n, p in model.named_parameters() if joined else []:
        note(file, n + "/param", p)


def zip_and_legacy(folder):
    model, optimizer = trained(lambda p: torch.optim.AdamW(p, lr=0.25, betas=(0.5, 0.75)))
    both = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    for file, new in (("zip.pt", True), ("legacy.pt", False)):
        torch.save(both, f"{folder}/{file}", _use_new_zipfile_serialization=new)
        note_states(file, model, optimizer)
    model, optimizer = trained(lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.875))
    torch.save(optimizer.state_dict(), f"{folder}/sgd.pt")
    note_states("sgd.pt", model, optimizer, False)


def tensors(folder):
    base = torch.arange(60, dtype=torch.float32).reshape(5, 12)
    all_types = {
        "strided": base[1::2, ::3], "turned": base.t(), "shared": base[4], "repeated":
        base[:1, :2].expand(4, 2), "half": base[0].half(), "bfloat": base[0].bfloat16(),
        "nothing": torch.empty(0, 3), "scalar": torch.tensor(7, dtype=torch.int64),
        "double": torch.tensor([1 / 3], dtype=torch.float64), "truth": base[0] > 5,
        "turns": torch.view_as_complex(torch.randn(3, 2))}
    for name in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu"):
        raw = torch.arange(0, 256, dtype=torch.int32).to(torch.uint8)
        all_types[name] = raw.view(getattr(torch, "float8_" + name))
    torch.save(all_types, f"{folder}/tensors.pth")
    for k, v in all_types.items():
        note("tensors.pth", k, torch.view_as_real(v) if v.is_complex() else v)
    nested = {"a": {"b": [torch.ones(2), (torch.zeros(3), 5)], 7: torch.full((2, 2), 0.5)},
              "n": None, "text": "word", "big": 2 ** 70}
    torch.save(nested, f"{folder}/nested.pt")
    for k, v in {"a/b/0": nested["a"]["b"][0], "a/b/1/0": nested["a"]["b"][1][0],
                 "a/7": nested["a"][7]}.items():
        note("nested.pt", k, v)


def quantized(folder):
    for file, make in (("ao4.pt", torchao.optim.AdamW4bit), ("ao8.pt", torchao.optim.AdamW8bit),
                       ("aofp8.pt", torchao.optim.AdamWFp8)):
        model = torch.nn.Linear(64, 64, bias=False)
        optimizer = make(model.parameters(), lr=0.125)
        model.weight.grad = torch.randn_like(model.weight)
        optimizer.step()
        torch.save(optimizer.state_dict(), f"{folder}/{file}",
                   _use_new_zipfile_serialization=file != "ao8.pt")
        for slot, v in optimizer.state_dict()["state"][0].items():
            note(file, f"0/{slot}", v)
    model = torch.nn.Linear(64, 65, bias=False)
    optimizer = bitsandbytes.optim.AdamW8bit(model.parameters(), lr=0.125)
    model.weight.grad = torch.randn_like(model.weight)
    optimizer.step()
    saved = optimizer.state_dict()
    torch.save(saved, f"{folder}/bnb8.pt")
    state = saved["state"][0].get("__bnb_optimizer_quant_state__", saved["state"][0])
    for i in "12":
        codes, table, scale = (state[k + i] for k in ("state", "qmap", "absmax"))
        scales = scale.repeat_interleave(256)[:codes.numel()].reshape(codes.shape)
        note("bnb8.pt", f"0/state{i}", table[codes.long()] * scales)
    note("bnb8.pt", "0/step", torch.tensor(1.0, dtype=torch.float64))


def sharded(folder):
    model, optimizer = trained(lambda p: torch.optim.Adam(p, lr=0.25), (2, 3), 1)
    shutil.rmtree(f"{folder}/distributed", ignore_errors=True)
    warnings.simplefilter("ignore")
    of_model, of_optimizer = get_state_dict(model, optimizer)
    dcp.save({"model": of_model, "optim": of_optimizer}, checkpoint_id=f"{folder}/distributed")
    note_states("distributed", model, optimizer)
    shutil.rmtree(f"{folder}/indexed", ignore_errors=True)
    os.mkdir(f"{folder}/indexed")
    parts = {"a.bin": {"x": torch.randn(2, 2)}, "b.bin": {"y": torch.randn(3), "z": torch.ones(1)}}
    for file, saved in parts.items():
        torch.save(saved, f"{folder}/indexed/{file}")
        for k, v in saved.items():
            note("indexed", k, v)
    with open(f"{folder}/indexed/pytorch_model.bin.index.json", "w", encoding="utf-8") as f:
        json.dump({"weight_map": {k: file for file, s in parts.items() for k in s}}, f)


def left_out(folder):
    """What once cost the whole file, or the names: no array of these is in expected.npz."""
    mask = torch.ones(1).expand(2048, 2048)
    torch.save({"w": torch.ones(3), "mask": mask}, f"{folder}/expand.pt")
    q = torch.quantize_per_tensor(torch.ones(2), 0.5, 3, torch.quint8)
    torch.save({"w": torch.ones(3), "q": q}, f"{folder}/quantized.pt",
               _use_new_zipfile_serialization=False)
    order = {"0.weight": (2, 3), "1.weight": (4, 2), "0.bias": (2,), "1.bias": (4,)}
    states = {i: {"step": 1, "__bnb_optimizer_quant_state__": {"state1": torch.ones(shape)}}
              for i, shape in enumerate(order.values())}
    model = {name: torch.ones(order[name]) for name in sorted(order)}
    groups = [{"lr": 1e-3, "params": [0, 1]}, {"lr": 1e-3, "params": [2, 3]}]
    torch.save({"model": model, "optimizer": {"state": states, "param_groups": groups}},
               f"{folder}/groups.pt")


def main():
    folder = sys.argv[1]
    torch.manual_seed(1)
    zip_and_legacy(folder)
    tensors(folder)
    quantized(folder)
    sharded(folder)
    left_out(folder)
    np.savez_compressed(f"{folder}/expected.npz", **want)


if __name__ == "__main__":
    main()
