"""merge_drawn.py - Drawn recordings of several ranks, merged; and files that lack what replays
need.

    /usr/bin/python3 merge_drawn.py merged FOLDER SEED     prints nothing where every array is whole
    /usr/bin/python3 merge_drawn.py refused FOLDER         each damage is refused by its text
    /usr/bin/python3 merge_drawn.py lacking FILE FOLDER    FILE without one attribute, in FOLDER
"""
import json
import os
import random
import shutil
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../experiments/record"))
import qualm_record  # noqa: E402


def write_parts(folder, draw, ranks, updates, states, beta2=lambda t: 0.95):
    """Parts as Recorder writes them: rows of 2-D tensors on all ranks, vectors on rank 0.
    Returns {(tensor, leaf, update): array}."""
    os.makedirs(folder, exist_ok=True)
    shapes = {"h.%d.weight" % i: [draw.randint(1, 9), draw.randint(1, 9)]
              for i in range(draw.randint(1, 3))}
    shapes["h.0.bias"] = [draw.randint(1, 9)]
    truth = {}
    for t in sorted({*updates, *states}):
        for rank in range(ranks):
            entries, offsets = [], {}
            for name, shape in shapes.items():
                leaves = ["grad"]
                if t in states or t == updates[0]:
                    leaves += ["param", "exp_avg", "exp_avg_sq"]
                for leaf in leaves:
                    whole = truth.setdefault((name, leaf, t), numpy.float32(
                        [draw.gauss(0, 1) for _ in range(int(numpy.prod(shape)))]).reshape(shape))
                    chunk = -(-shape[0] // ranks) if len(shape) > 1 else shape[0]
                    piece = whole[rank * chunk:(rank + 1) * chunk]
                    if piece.size:
                        entry = "%s/%s" % (name, leaf)
                        entries.append((entry, "F32", piece.shape, lambda p=piece: [p.tobytes()]))
                        offsets[entry] = [rank * chunk] + [0] * (len(shape) - 1)
            about = {"t": t, "run": "run", "optimizer": "adamw", "states": states, "torch": "2",
                     "trace": [updates[0], len(updates)], "rank": rank, "world": ranks,
                     "left_out": [], "skipped": {}, "offsets": offsets,
                     "groups": [{"beta1": 0.9, "beta2": beta2(t), "eps": 1e-8, "lr": 1e-3 / t,
                                 "weight_decay": 0.1}],
                     "tensors": {n: [0, s, s[0]] for n, s in shapes.items()}}
            qualm_record.write_safetensors("%s/s%06d.r%03d.safetensors" % (folder, t, rank),
                                           entries, {"qualm_record": json.dumps(about)})
    return truth


def arrays(path):
    header, start = qualm_record.read_header(path)
    texts = header.pop("__metadata__")
    return texts, {k: numpy.fromfile(path, {"F32": "<f4", "F64": "<f8"}[e["dtype"]],
                                     int(numpy.prod(e["shape"])), offset=start +
                                     e["data_offsets"][0]).reshape(e["shape"])
                   for k, e in header.items()}


def merged(folder, seed):
    draw = random.Random(seed)
    first = draw.randint(1, 999)
    updates = list(range(first, first + draw.randint(1, 5)))
    states = [draw.choice(updates), first + 1000]
    ranks = draw.randint(1, 4)
    truth = write_parts(folder + "/a", draw, ranks, updates, states)
    folders = [folder + "/a"]
    if ranks > 1:  # the last rank's disk
        folders.append(folder + "/b")
        os.makedirs(folders[1])
        for name in os.listdir(folders[0]):
            if ".r%03d." % (ranks - 1) in name:
                shutil.move("%s/%s" % (folders[0], name), folders[1])
    out = folder + "/run.safetensors"
    assert qualm_record.main(["merge", *folders, "--out", out]) == 0
    texts, got = arrays(out)
    want = {"run/trace/lr": numpy.array([1e-3 / t for t in updates])}
    for (name, leaf, t), x in truth.items():
        if t in states:
            want["run/s%06d/%s/%s" % (t, name, leaf)] = x
        if leaf == "grad" and t == first:
            want["run/trace/%s/grad" % name] = numpy.stack(
                [truth[name, leaf, u] for u in updates])
        elif t == first:
            want["run/trace/%s/%s_init" % (name, leaf)] = x
    assert want.keys() == got.keys(), want.keys() ^ got.keys()
    for k, x in want.items():
        assert x.shape == got[k].shape and x.tobytes() == got[k].tobytes(), k
    assert texts["/run/trace@first_step"] == str(first), texts
    assert texts["/run@beta2"] == "0.95" and texts["/run/trace/h.0.bias@weight_decay"] == "0.1"


def refusal(folders, out):
    try:
        qualm_record.merge(folders, out)
    except qualm_record.Refused as e:
        return str(e)
    return "not refused"


def refused(folder):
    def parts(word, **k):
        place = "%s/%s" % (folder, word)
        write_parts(place, random.Random(7), 2, [5, 6, 7], [6], **k)
        return place
    out = folder + "/out.safetensors"
    rank, gap, twice = parts("rank"), parts("gap"), parts("twice")
    os.unlink(rank + "/s000006.r001.safetensors")
    assert "rank 1 too: merge FOLDER..." in refusal([rank], out), refusal([rank], out)
    for r in "01":
        os.unlink(gap + "/s000006.r00%s.safetensors" % r)
    assert "lacks update 6" in refusal([gap], out), refusal([gap], out)
    assert "name one of them" in refusal([twice, parts("again")], out)
    beta = parts("beta", beta2=lambda t: 0.95 if t < 7 else 0.99)
    assert "beta2 of parameter group 0 is 0.95" in refusal([beta], out), refusal([beta], out)
    differ = parts("differ")
    shutil.copy(differ + "/s000005.r000.safetensors", differ + "/s000005.r001.safetensors")
    assert "name one of them" in refusal([differ], out), refusal([differ], out)
    cut = parts("cut")
    with open(cut + "/s000005.r000.safetensors", "r+b") as f:
        f.truncate(6)
    assert "remove it" in refusal([cut], out)
    assert not os.path.exists(out)
    assert qualm_record.main(["merge"]) == 2


def lacking(path, folder):
    """Prints a line for each file: its path, what it lacks and the line to add."""
    import h5py
    texts, got = arrays(path)
    for key in ("optimizer", "beta1", "beta2", "eps", "weight_decay", "first_step", "lr"):
        gone = [k for k in texts if k.endswith("@" + key)]
        kept = {k: v for k, v in got.items() if key != "lr" or not k.endswith("/lr")}
        left = {k: v for k, v in texts.items() if k not in gone}
        a = "%s/%s.safetensors" % (folder, key)
        qualm_record.write_safetensors(a, [(k, "F64" if v.dtype == "f8" else "F32", v.shape,
                                            lambda v=v: [v.tobytes()]) for k, v in kept.items()],
                                       left)
        add = "add the array run/trace/lr" if key == "lr" else "@%s\": \"" % key
        print(a, key, add, sep="|")
        b = "%s/%s.h5" % (folder, key)
        with h5py.File(b, "w") as f:
            for k, v in kept.items():
                f[k] = v
            for k, v in left.items():
                at, _, name = k.rpartition("@")
                if at:
                    f[at].attrs[name] = v if name in ("optimizer", "torch_version") else float(v)
        print(b, key, add if key == "lr" else "attrs[\"%s\"] = " % key, sep="|")
    numpy.savez(folder + "/plain.npz", **{k: v for k, v in got.items()})
    print(folder + "/plain.npz", "first_step", "record it with qualm_record.py", sep="|")


if __name__ == "__main__":
    {"merged": merged, "refused": refused, "lacking": lacking}[sys.argv[1]](*sys.argv[2:])
