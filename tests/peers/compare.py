#!/usr/bin/env python3
"""compare.py - Holds the variants against the installed packages on fresh inputs (make peers).

Each package takes a few steps from inputs that nobody has seen before: shapes, classes of gradients
and hyper-parameters are drawn from a seed, which is printed.  What it computed is written as a
file of golden vectors (tests/golden/README.md), and `qualm conform` replays it and judges: EQUAL
(every bit), NEAR (within the tolerance that is stated there), DIFFERS.  A package is named by the
release that is installed; one that is missing or does not run is skipped with its reason.  On a
machine with a GPU torch's optimizers run there, too.

It prints one line for each system: its release, how many cases were equal, near, different,
skipped, and a verdict, equal, near or differs; then each case that differs.  --json prints
{"seed", "systems": [{"system", "package", "release", "device", "verdict", "equal", "near",
"differs", "skipped", "reason", "differences": [{"case", "text"}]}]}.

Exit code 0: nothing differs; 1: something does; 2: a command line that cannot be read; 3: qualm
cannot replay a file; 77: no package could be run.

Releases of adafactor8bit exclude each other, so each lies in a folder of its own (--releases).

    make peers
    build/peers/bin/python tests/peers/compare.py --seed 7 --only torch --cases 20
    build/peers/bin/python tests/peers/compare.py --seed 7 --only 'adafactor8bit 0.4.6'
"""
import argparse
import importlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile

import record_adafactor8bit
from draw import (
    CLASSES, WIDE_CLASSES, draw_adafactor, draw_adagrad, draw_adamw, draw_came, draw_lion,
    draw_nadam, draw_radam, draw_rmsprop, draw_sgd, gradients, pick, rate, small_shape, widened)

STEPS = 6
DEFAULT_CASES = 4


class Skip(Exception):
    """Why a system is not compared."""


def first_line(error):
    text = str(error).strip().splitlines()
    return "%s: %s" % (type(error).__name__, text[0] if text else "no reason given")


# ---- a case -----------------------------------------------------------------------------------

class Case:
    """A recorded run: attributes and datasets of a group."""

    def __init__(self, name, **attributes):
        self.name, self.attributes, self.data = name, attributes, {}

    def add(self, name, value):
        self.data.setdefault(name, []).append(value)


def host(np, tensor):
    """A copy on the host; bfloat16 widened to float32."""
    tensor = tensor.detach().cpu()
    return np.array((tensor.float() if "bfloat16" in str(tensor.dtype) else tensor).numpy())


# ---- torch.optim ---------------------------------------------------------------------------------

def rounds_roots(torch, np, device):
    """Whether square roots are rounded correctly; those of some builds are an ulp off."""
    x = np.random.default_rng(1).uniform(0.01, 4.0, 4096).astype(np.float32)
    got = host(np, torch.sqrt(torch.from_numpy(x).to(device)))
    return bool((got == np.sqrt(x.astype(np.float64)).astype(np.float32)).all())


TORCH = {  # class: hyper-parameters, implementations
    "AdamW": (draw_adamw, ("single", "foreach", "fused")),
    "Adam": (draw_adamw, ("single", "foreach", "fused")),
    "SGD": (draw_sgd, ("single", "foreach", "fused")),
    "RMSprop": (draw_rmsprop, ("single", "foreach")),
    "Adagrad": (draw_adagrad, ("single", "foreach", "fused")),
    "NAdam": (draw_nadam, ("single", "foreach")),
    "RAdam": (draw_radam, ("single", "foreach")),
    "Adafactor": (draw_adafactor, ("single", "foreach")),
}


def attribute(value):
    """A hyper-parameter as golden files store it: None is NaN, a flag 0 or 1."""
    if isinstance(value, tuple):
        return [attribute(x) for x in value]
    return float("nan") if value is None else int(value) if isinstance(value, bool) else value


def drawn(rng, i, draw):
    """Hyper-parameters, class of gradients and type of case i; every second one from the whole
    domain."""
    h = draw(rng)
    if i % 2 == 0:
        return h, pick(rng, *CLASSES), "f32"
    return (pick(rng, h, widened(rng, h), widened(rng, h)), pick(rng, *WIDE_CLASSES),
            pick(rng, "f32", "f32", "bf16"))


def run_torch(c, make, shape, kind, dtype, device):
    """Steps one parameter and records what the golden files of torch.optim hold."""
    torch, np, rng = c.torch, c.np, c.rng
    start = torch.from_numpy(rng.standard_normal(shape).astype(np.float32))
    if kind in WIDE_CLASSES:
        start *= pick(rng, 1.0, 1.0, 0.0, 10.0 ** rng.uniform(-40.0, 0.0),
                      10.0 ** rng.uniform(0.0, 20.0))
    grads = torch.from_numpy(gradients(np, rng, kind, STEPS, shape).astype(np.float32))
    if dtype == "bf16":
        start, grads = start.bfloat16(), grads.bfloat16()
    p = torch.nn.Parameter(start.clone().to(device))
    optimizer = make([p])
    case = Case("", shape=list(shape) or [0], ndim=len(shape), steps=STEPS, dtype=dtype,
                grad_kind=kind)
    case.data["param0"], case.data["grads"] = host(np, start), host(np, grads)
    for t in range(STEPS):
        p.grad = grads[t].clone().to(device)
        optimizer.step()
        case.add("params", host(np, p))
        for name, value in optimizer.state[p].items():
            if name != "step" and getattr(value, "shape", None) is not None:
                case.add("state_" + name, host(np, value))
    return case


def torch_cases(c, device):
    torch = c.module("torch")
    names = [name for name in sorted(TORCH) if hasattr(torch.optim, name)]
    roots = "ieee" if rounds_roots(torch, c.np, device) else "installed"
    for i in range(2 * c.cases * len(names)):
        name = names[i // 2 % len(names)]
        draw, ways = TORCH[name]
        h, kind, dtype = drawn(c.rng, i, draw)
        way = pick(c.rng, *ways)
        options = dict(h, foreach=way == "foreach")
        if "fused" in ways:
            options["fused"] = way == "fused"
        case = run_torch(c, lambda p: getattr(torch.optim, name)(p, **options), small_shape(c.rng),
                         kind, dtype, device)
        case.name = "%03d_%s_%s_%s_%s" % (i, name.lower(), way, kind, dtype)
        case.attributes.update({k: attribute(v) for k, v in h.items()}, impl=way, sqrt=roots,
                               device=device,
                               optimizer="Adafactor(torch)" if name == "Adafactor" else name)
        yield case


def one_class(package, name, draw, least_rank=0):
    """The cases of one optimizer class of a package with the layout of torch.optim."""
    def cases(c, device):
        make = getattr(c.module(package), name)
        for i in range(4 * c.cases):
            h, kind, dtype = drawn(c.rng, i, draw)
            shape = small_shape(c.rng)
            while len(shape) < least_rank:
                shape = small_shape(c.rng)
            case = run_torch(c, lambda p: make(p, **h), shape, kind, dtype, device)
            case.name = "%03d_%s_%s_%s" % (i, name.lower(), kind, dtype)
            case.attributes.update({k: attribute(v) for k, v in h.items()}, optimizer=name)
            yield case
    return cases


# ---- bitsandbytes --------------------------------------------------------------------------------

def bnb_hyper(rng, name):
    """Arguments of the class, and the numbers of the golden file."""
    lr, decay = rate(rng), pick(rng, 0.0, 0.01, 0.1)
    betas = (pick(rng, 0.9, 0.8), pick(rng, 0.999, 0.95))
    eps = pick(rng, 1e-8, 1e-6)
    if name == "SGD8bit":
        return ({"lr": lr, "momentum": betas[0], "weight_decay": decay},
                {"lr": lr, "beta1": betas[0], "weight_decay": decay})
    if name in ("RMSprop8bit", "Adagrad8bit"):
        h = {"lr": lr, "eps": eps, "weight_decay": decay}
        if name == "Adagrad8bit":
            return h, h
        return dict(h, alpha=betas[0]), dict(h, beta1=betas[0])
    h = {"lr": lr, "weight_decay": decay}
    if name != "Lion8bit":
        h["eps"] = eps
    numbers = dict(h, beta1=betas[0], beta2=betas[1])
    if name == "AdEMAMix8bit":
        return (dict(h, betas=betas + (0.999,), alpha=3.0),
                dict(numbers, beta3=0.999, alpha=3.0))
    return dict(h, betas=betas), numbers


def bnb_cases(c, device):
    torch, np = c.module("torch"), c.np
    optim = c.module("bitsandbytes.optim")
    names = ("AdamW8bit", "Adam8bit", "SGD8bit", "RMSprop8bit", "Adagrad8bit", "Lion8bit",
             "AdEMAMix8bit")
    for i in range(2 * c.cases * len(names)):
        name, small = names[i % len(names)], i // len(names) % 2 == 0
        arguments, numbers = bnb_hyper(c.rng, name)
        n = int(c.rng.integers(1, 4096)) if small else int(c.rng.integers(4096, 6000))
        kind, steps = pick(c.rng, "normal", "sparse", "outlier"), 4
        start = c.rng.standard_normal(n).astype(np.float32)
        grads = gradients(np, c.rng, kind, steps, (n,))
        p = torch.nn.Parameter(torch.from_numpy(np.array(start)))
        optimizer = getattr(optim, name)([p], **arguments)
        case = Case("%03d_%s_%s_%d" % (i, name.lower(), kind, n), T=steps, optimizer=name,
                    quantizer="cpu32" if small else "native", block_size=256, shape=[n],
                    sqrt="installed", **numbers)
        case.data["p0"], case.data["grads"] = start, grads
        for t in range(steps):
            p.grad = torch.from_numpy(grads[t].astype(np.float32))
            optimizer.step()
            case.add("params", host(np, p))
            for key in ("state1", "state2", "absmax1", "absmax2"):
                value = optimizer.state[p].get(key)
                if value is not None and getattr(value, "numel", lambda: 0)():
                    case.add(key, host(np, value).reshape(-1))
        yield case


# ---- torchao -------------------------------------------------------------------------------------

def ao_cases(bits, compiled):
    def cases(c, device):
        torch = c.module("torch")
        c.module("torchao.optim")
        if compiled and not getattr(torch, "compile", None):
            raise Skip("this torch has no torch.compile")
        torch.compiler.set_stance("default" if compiled else "force_eager")
        for i in range(c.cases if compiled else 2 * c.cases):  # a compilation takes seconds
            block = 128 if bits == 4 else 256
            n = block * int(c.rng.integers(4096 // block, 8192 // block))
            kind = pick(c.rng, "normal", "sparse", "outlier", "decades")
            h = {"lr": rate(c.rng), "betas": (pick(c.rng, 0.9, 0.8), pick(c.rng, 0.999, 0.95)),
                 "eps": pick(c.rng, 1e-8, 1e-6), "weight_decay": pick(c.rng, 0.0, 0.01, 0.1),
                 "amsgrad": i % 4 > 1}
            if i % 2 == 1:
                kind = pick(c.rng, *WIDE_CLASSES)
                h = pick(c.rng, h, widened(c.rng, h))
            name = ("AdamW%dbit", "Adam%dbit")[i // 4 % 2] % bits
            if h["amsgrad"]:  # codes have no maximum in the package: only small tensors step
                n = int(c.rng.integers(1, 4096))
            yield ao_case(c, name, compiled, h, n, kind, i)
    return cases


def ao_case(c, name, compiled, h, n, kind, i):
    torch, np, steps = c.torch, c.np, 4
    start = c.rng.standard_normal(n).astype(np.float32)
    grads = gradients(np, c.rng, kind, steps, (n,))
    p = torch.nn.Parameter(torch.from_numpy(np.array(start)))
    optimizer = getattr(c.module("torchao.optim"), name)([p], **h)
    case = Case("cls_%03d_%s_%s_%d" % (i, name.lower(), kind, n), T=steps, driver=name,
                dtype="float32", is_adamw=int("W" in name), bf16_stochastic_round=0,
                compiled=int(compiled),
                block_size=128 if "4" in name else 256,
                state_class="Tensor" if n < 4096 else "OptimState" + name[name.index("bit") - 1:],
                amsgrad=int(h["amsgrad"]),
                shape=[n], lr=h["lr"], beta1=h["betas"][0], beta2=h["betas"][1], eps=h["eps"],
                weight_decay=h["weight_decay"], sqrt="ieee" if compiled else c.roots())
    case.data["p0"], case.data["grads"] = start, grads
    for t in range(steps):
        p.grad = torch.from_numpy(grads[t].astype(np.float32))
        optimizer.step()
        case.add("params", host(np, p))
        for key, slot in (("m", "exp_avg"), ("v", "exp_avg_sq"), ("vmax", "max_exp_avg_sq")):
            state = optimizer.state[p].get(slot)
            if state is None:
                continue
            if n < 4096:
                case.add(key, host(np, state))
                continue
            case.add(key + "_codes", host(np, state.codes).reshape(-1))
            case.add(key + "_scale", host(np, state.scale).reshape(-1))
        for k in (0, 1):
            step = torch.tensor(float(t + 1))
            case.add("%sbias_correction%d" % ("eager_" if compiled else "", k + 1),
                     np.float32(1 - h["betas"][k] ** step))
    return case


# ---- systems -------------------------------------------------------------------------------------

# The releases of adafactor8bit that differ, and today's: those of tests/peers/adafactor8bit.txt.
ADAFACTOR8BIT = ("0.2.2", "0.2.4", "0.2.5", "0.2.6", "0.4.3", "0.4.6")


def adafactor8bit_cases(release):
    record = record_adafactor8bit.cases(release)
    return lambda c, device: record(c, Case, os.path.join(c.releases, release))


# System, package, devices, cases, root attributes by which `qualm conform` knows the file.
SYSTEMS = [
    ("torch.optim", "torch", ("cpu", "cuda"), torch_cases, {"executed": "torch/optim/adamw.py"}),
    ("bitsandbytes 8-bit", "bitsandbytes", ("cpu",), bnb_cases, {"source_repo": "bitsandbytes"}),
    ("torchao 8-bit eager", "torchao", ("cpu",), ao_cases(8, False), {"source_repo": "pytorch/ao"}),
    ("torchao 4-bit eager", "torchao", ("cpu",), ao_cases(4, False), {"source_repo": "pytorch/ao"}),
    ("torchao 8-bit compiled", "torchao", ("cpu",), ao_cases(8, True),
     {"source_repo": "pytorch/ao"}),
    ("torchao 4-bit compiled", "torchao", ("cpu",), ao_cases(4, True),
     {"source_repo": "pytorch/ao"}),
    ("lion-pytorch", "lion-pytorch", ("cpu",), one_class("lion_pytorch", "Lion", draw_lion),
     {"executed": "lion_pytorch/lion_pytorch.py"}),
    ("came-pytorch", "came-pytorch", ("cpu",), one_class("came_pytorch", "CAME", draw_came, 1),
     {"executed": "came_pytorch/CAME.py"}),
] + [("adafactor8bit " + release, "adafactor8bit==" + release, ("cpu",),
      adafactor8bit_cases(release), {"system": "adafactor8bit"}) for release in ADAFACTOR8BIT]


class Context:
    """What the cases of a system draw from."""

    def __init__(self, np, seed, index, cases, releases):
        self.np, self.cases, self.releases = np, cases, releases
        self.rng = np.random.default_rng([seed, index])

    def module(self, name):
        try:
            return importlib.import_module(name)
        except Exception as error:  # absent, or breaks while it is imported
            raise Skip("import %s: %s" % (name, first_line(error)))

    @property
    def torch(self):
        return self.module("torch")

    def roots(self):
        return "ieee" if rounds_roots(self.torch, self.np, "cpu") else "installed"


def write(h5py, np, path, root, cases):
    with h5py.File(path, "w") as f:
        for key, value in root.items():
            f.attrs[key] = value
        for case in cases:
            group = f.create_group(case.name)
            for key, value in case.attributes.items():
                group.attrs[key] = value
            for key, value in case.data.items():
                group.create_dataset(key, data=np.array(value))


def replay(qualm, path):
    """The cases of `qualm conform`."""
    done = subprocess.run([qualm, "conform", "--json", path], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1, 77):
        print("compare: %s conform %s: exit code %d" % (qualm, path, done.returncode),
              file=sys.stderr)
        sys.exit(3)
    return json.loads(done.stdout)["files"][0]["cases"]


def release_of(a, package):
    """The installed release; of NAME==RELEASE the one in its folder."""
    name, _, release = package.partition("==")
    if not release:
        return importlib.metadata.version(name)
    if not os.path.isdir(os.path.join(a.releases, release)):
        raise importlib.metadata.PackageNotFoundError("%s in %s" % (package, a.releases))
    return release


def compare(a, np, h5py, index, system, device, folder):
    """One row of the result."""
    name, package, _, cases, root = system
    row = {"system": name, "package": package, "release": "", "device": device,
           "verdict": "skipped", "equal": 0, "near": 0, "differs": 0, "skipped": 0, "reason": "", "differences": []}
    c = Context(np, a.seed, index, a.cases, a.releases)
    try:
        row["release"] = release_of(a, package)
        if device != "cpu" and not c.torch.cuda.is_available():
            raise Skip("torch sees no GPU")
        recorded = list(cases(c, device))
        root = dict(root, torch_version=importlib.metadata.version("torch"))
    except importlib.metadata.PackageNotFoundError as error:
        row["reason"] = "%s is not installed" % error.args[0]
        return row
    except Skip as why:
        row["reason"] = str(why)
        return row
    except Exception as error:  # any error of the package's code
        row["reason"] = first_line(error)
        return row
    path = os.path.join(folder, re.sub("[^a-z0-9]+", "-", name) + "-" + device + ".h5")
    write(h5py, np, path, root, recorded)
    for case in replay(a.qualm, path):
        outcome = case["outcome"].lower()
        outcome = "differs" if outcome == "unreadable" else outcome
        if outcome == "differs":
            row["differences"].append({"case": case["name"], "text": case["text"]})
        row[outcome] += 1
    row["verdict"] = next((k for k in ("differs", "near", "equal") if row[k]), "skipped")
    return row


def print_rows(rows):
    print("%-24s %-14s %-10s %-6s %6s %6s %8s %8s  %s" % (
        "system", "package", "release", "device", "equal", "near", "differs", "skipped", "verdict"))
    for r in rows:
        print("%-24s %-14s %-10s %-6s %6d %6d %8d %8d  %s" % (
            r["system"], r["package"], r["release"] or "-", r["device"], r["equal"], r["near"],
            r["differs"], r["skipped"],
            r["verdict"] + (": " + r["reason"] if r["reason"] else "")))
    for r in rows:
        for d in r["differences"]:
            print("DIFFERS %s %s: %s: %s" % (r["system"], r["release"], d["case"], d["text"]))


def positive(text):
    n = int(text)
    if n < 1:
        raise ValueError
    return n


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="of the inputs; default: drawn, and printed")
    parser.add_argument("--cases", type=positive, default=DEFAULT_CASES, metavar="N",
                        help="of each class (default %d)" % DEFAULT_CASES)
    parser.add_argument("--only", metavar="TEXT", help="systems whose name holds this")
    parser.add_argument("--qualm", default="./qualm", metavar="FILE", help="default ./qualm")
    parser.add_argument("--releases", default=os.path.join(sys.prefix, "adafactor8bit"),
                        metavar="DIR", help="DIR/RELEASE holds a release of adafactor8bit, "
                        "installed by pip install --target (default: in the interpreter's prefix)")
    parser.add_argument("--keep", metavar="DIR", help="keep the recorded files there")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def main():
    a = arguments()
    if a.seed is None:
        a.seed = int.from_bytes(os.urandom(4), "little")
    try:
        import h5py
        import numpy as np
    except ImportError as error:
        print("compare: skipped: %s" % first_line(error), file=sys.stderr)
        return 77
    rows = []
    with tempfile.TemporaryDirectory(prefix="qualm-peers-") as scratch:
        if a.keep:
            os.makedirs(a.keep, exist_ok=True)
        for index, system in enumerate(SYSTEMS):
            if not a.only or a.only in system[0]:
                rows += [compare(a, np, h5py, index, system, device, a.keep or scratch)
                         for device in system[2]]
    if a.json:
        print(json.dumps({"seed": a.seed, "systems": rows}, indent=1))
    else:
        print("seed %d" % a.seed)
        print_rows(rows)
    if any(r["verdict"] == "differs" for r in rows):
        return 1
    return 0 if any(r["equal"] + r["near"] for r in rows) else 77


if __name__ == "__main__":
    sys.exit(main())
