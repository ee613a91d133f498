"""drawn_nestings.py - Compares drawn checkpoints of several models, copies of them and optimizers.

    drawn_nestings.py QUALM COUNT SEED

Drawn are one to three models of equal or different shapes, copies of some (ema, best, target), and
an optimizer of each, whose states hold the number of their model; dictionaries and lists that they
stand in; one state_dict with a prefix for each model; and whether optimizers give names.  An entry
NAME/param has to hold the numbers of the model that the optimizer of its states trains, or what
`qualm import` says has to name that optimizer.  Exits 1 when an array is another model's.
"""
import random
import subprocess
import sys
import tempfile

import numpy as np
import torch


def draw_model(r, number):
    """A model whose parameters all are its number, plus hundredths that tell its copies apart."""
    width = r.choice([4, 4, 6])
    model = torch.nn.Sequential(torch.nn.Linear(width, 3), torch.nn.Linear(3, width))
    for p in model.parameters():
        torch.nn.init.constant_(p, number)
    return model


def draw_optimizer(r, model, number):
    """Its state_dict(); the first averages all are its model's number."""
    named = list(model.named_parameters())
    groups = named if r.random() < 0.4 else [p for _, p in named]
    try:
        optimizer = torch.optim.Adam(groups)
    except TypeError:  # names are taken since torch 2.6
        optimizer = torch.optim.Adam([p for _, p in named])
    for _, p in named:
        p.grad = torch.ones_like(p)
    optimizer.step()
    for state in optimizer.state.values():
        state["exp_avg"].fill_(number)
    for p in model.parameters():
        torch.nn.init.constant_(p, number)
    return optimizer.state_dict()


def draw_checkpoint(r):
    names = r.sample(["G", "D", "actor", "critic", "A"], r.choice([1, 2, 2, 3]))
    models = {n: draw_model(r, i + 1) for i, n in enumerate(names)}
    states = {n: m.state_dict() for n, m in models.items()}
    trained = r.sample(names, r.randint(1, len(names)))
    optimizers = {n: draw_optimizer(r, models[n], names.index(n) + 1) for n in trained}
    copies = {n: {k: v + 0.01 for k, v in states[n].items()} for n in names if r.random() < 0.4}
    word = r.choice(["ema", "best", "target"])
    form = r.choice(["dicts", "dicts", "lists", "flat", "each", "prefixes", "inside", "orphan"])
    if form == "dicts":
        x = {r.choice(["models", "model", "nets"]): states, "optimizers": optimizers}
    elif form == "lists":
        x = {"models": list(states.values()), "optimizers": [optimizers.get(n) for n in names]}
    elif form == "flat":
        x = {**{f"{n}_model": s for n, s in states.items()},
             **{f"{n}_optimizer": o for n, o in optimizers.items()}}
    elif form == "each":
        x = {n: {"model": states[n], **({"optim": optimizers[n]} if n in optimizers else {})}
             for n in names}
    elif form == "inside":
        n = trained[0]
        x = {"model": {**states[n], word: {"shadow": {k: v + 0.01 for k, v in states[n].items()}}},
             "optimizer": optimizers[n]}
    elif form == "orphan":  # another model's optimizer, or a copy alone
        n = names[0]
        x = {f"{n}_net": states[n], f"opt{trained[-1]}": optimizers[trained[-1]]}
    else:
        x = {"state_dict": {f"{n}.{k}": v for n in names for k, v in states[n].items()},
             "optimizer_states": list(optimizers.values())}
    if copies and r.random() < 0.5:
        x[word] = copies if len(copies) > 1 else next(iter(copies.values()))
    elif copies:
        x.update({f"{word}_{n}": c for n, c in copies.items()})
    x = dict(r.sample(list(x.items()), len(x)))
    return {"checkpoint": x} if r.random() < 0.2 else x


def wrong_names(arrays, said):
    """The entries NAME/param that are of another model than NAME/exp_avg, where nothing is said."""
    for key, value in arrays.items():
        states = arrays.get(key[:-len("param")] + "exp_avg")
        if key.endswith("/param") and (states is None or states.shape != value.shape or
                                       not np.array_equal(states, value)):
            words = ("joined by", "would fit as well", "proof that")
            of = key.rsplit("/", 2)[0] if key.count("/") > 1 else ""  # with several optimizers
            if not any(x in said for x in words) or of not in said:
                yield key


def main():
    qualm, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    failed = joined = 0
    with tempfile.TemporaryDirectory() as folder:
        for i in range(count):
            r = random.Random(f"{seed}/{i}")
            torch.manual_seed(i)
            torch.save(draw_checkpoint(r), f"{folder}/c.pt")
            run = subprocess.run([qualm, "import", f"{folder}/c.pt", "--out", f"{folder}/o.npz"],
                                 capture_output=True, text=True)
            if run.returncode:
                wrong = [f"exit {run.returncode}: {run.stderr.strip()}"]
            else:
                arrays = dict(np.load(f"{folder}/o.npz"))
                joined += sum(k.endswith("/param") for k in arrays)
                wrong = list(wrong_names(arrays, run.stderr))
            failed += bool(wrong)
            if wrong:
                print(f"case {seed}/{i}: {wrong[0]}; {run.stderr.strip()[:200]}")
    print(f"drawn_nestings: {count} drawn, {joined} joined, {failed} failed, seed {seed}")
    return 1 if failed or not joined else 0


if __name__ == "__main__":
    sys.exit(main())
