"""planted_bugs.py - Runs an example with one bug after the other; `qualm verify` must fail each.

    python3 planted_bugs.py QUALM EXAMPLE.py IN.npz

The first run is the example as it is, which must pass.  A bug is a list of replacements in the
example's text, and each must change it.
"""
import io
import json
import os
import re
import subprocess
import sys

import numpy as np

# name: replacements (pattern, replacement), for the examples in NumPy and in PyTorch
BOTH = {
    "maximize ignored": [(r"    g = -g if .*\n", "")],
    "weight decay after the step": [
        (r"    p = p - (.*) \* p\n", ""),
        (r"return (.*), m, v",
         r"p = \1\n    return p - f32(h['lr'] * h['weight_decay']) * p, m, v")],
    "weight decay in the gradient": [
        (r"    m, v = (lerp|m\.lerp)", r"    g = g + f32(h['weight_decay']) * p\n    m, v = \1"),
        (r"    p = p - .* \* p\n", "")],
    "weight decay without lr": [(r'h\["lr"\] \* h\["weight_decay"\]', 'h["weight_decay"]')],
    "bias correction of the next step": [(r"\*\* t\b", "** (t + 1)")],
    "bias correction of beta2 left out": [(r'1 - h\["beta2"\] \*\* t', "1.0")],
    "step counted from 1 for every tensor": [(r'case\["first_step"\] \+ k - 1', "k")],
    "step counted over all tensors": [
        (r'case\["first_step"\] \+ k - 1', 'a.setdefault("t", [0]).append(0) or len(a["t"])'),
        (r"    return a\n", '    del a["t"]\n    return a\n')],
    "hyper-parameters of the first tensor for all": [
        (r'case\["hyper"\]\[k - 1\]', 'golden["cases"][0]["hyper"][0]')],
    "lr is a constant": [(r'h\["lr"\]', "1e-3")],
    "beta1 is a constant": [(r'h\["beta1"\]', "0.9")],
    "beta2 is a constant": [(r'h\["beta2"\]', "0.999")],
    "eps is a constant": [(r'h\["eps"\]', "1e-8")],
    "weight decay is a constant": [(r'h\["weight_decay"\]', "1e-2")],
    "a byte's halves swapped when written": [
        (r"codes\[0::2\] << 4 \| codes\[1::2\]", "codes[1::2] << 4 | codes[0::2]")],
    "a byte's halves swapped when read": [
        (r"\[codes >> 4, codes & 15\]", "[codes & 15, codes >> 4]")],
    "NaN gets the last code": [(r"    codes\[.*isnan.*\] = 0.*\n", "")],
    "a short last block is not encoded": [
        (r"    codes\[.*isnan", r"    codes[len(x) // block * block:] = 0\n\g<0>")],
    "table searched one too far": [
        (r"    codes\[.*isnan", r"    codes[codes < 15] += 1\n\g<0>")],
    "one threshold 1e-6 too high": [(r"    unit = \(blocks", r"    middle[9] *= 1 + 1e-6\n\g<0>")],
    "table of the other moment": [(r'a\["codebook/" \+ s\["name"\]\]',
                                   'a["codebook/exp_avg"]')],
    "state read back after it is encoded": [
        (r"    return p - (.*)\(m / (.*), m, v",
         r"    m8 = decode(*encode(m, STEP_BOOK, 128), STEP_BOOK, 128, len(m))\n"
         r"    return p - \1(m8 / \2, m, v"),
        (r"            g = a\[", r'            globals()["STEP_BOOK"] = a["codebook/exp_avg"]'
                                r"\n\g<0>")],
    "moments kept from tensor to tensor": [
        (r"    m, v = (.*)\n",
         r"    m, v = \1\n    KEPT = globals().setdefault('KEPT', {})\n"
         r"    m = KEPT.setdefault((t, len(m)), m)\n")],
}
NUMPY = {
    "ties go down": [(r'side="right"', 'side="left"')],
    "eps inside the root": [
        (r"np\.sqrt\(v\) / (np\.float32\(np\.sqrt\(.*?\)\)) \+ (np\.float32\(h\[\"eps\"\]\))",
         r"np.sqrt(v / \1 ** 2 + \2)")],
    "zero blocks divide by zero": [(r"np\.maximum\((.*), np\.float32\(1e-12\)\)", r"\1")],
    "denormal gradients are 0": [
        (r"    m, v = l",
         "    g = np.where(np.abs(g) < 2.0 ** -126, np.float32(0), g)\n    m, v = l")],
    "the maximum skips NaN": [
        (r"np\.abs\(blocks\)\.max", "np.nan_to_num(np.abs(blocks), posinf=np.inf).max")],
    "the largest number, not magnitude": [(r"np\.abs\(blocks\)\.max", "blocks.max")],
    "gradients rounded to float16": [
        (r"    m, v = lerp", "    g = g.astype(np.float16).astype(np.float32)\n    m, v = lerp")],
}
TORCH = {
    "ties go down": [(r"right=True", "right=False")],
    "eps inside the root": [
        (r"v\.sqrt\(\) / math\.sqrt\((.*?)\) \+ (h\[\"eps\"\])", r"(v / (\1) + \2).sqrt()")],
    "zero blocks divide by zero": [(r"\.clamp\(min=1e-12\)", "")],
    "denormal gradients are 0": [
        (r"    m, v = m", "    g = torch.where(g.abs() < 2.0 ** -126, 0.0, g)\n    m, v = m")],
    "the maximum skips NaN": [
        (r"blocks\.abs\(\)\.amax", "blocks.abs().nan_to_num(0, torch.inf).amax")],
    "the largest number, not magnitude": [(r"blocks\.abs\(\)\.amax", "blocks.amax")],
    "gradients rounded to float16": [(r"    m, v = m", "    g = g.half().float()\n    m, v = m")],
}


def answers(text, arrays):
    """Arrays of IN.npz with the answers of an example of this text."""
    scope = {"__name__": "example", "f32": np.float32 if "torch" not in text else float}
    exec(compile(text, "example", "exec"), scope)
    if "import torch" not in text:
        return scope["answer"](dict(arrays))
    import torch
    torch.set_num_threads(1)
    a = scope["answer"]({n: torch.from_numpy(x) for n, x in arrays.items()})
    return {n: x.numpy() for n, x in a.items()}


def verdict(qualm, text, arrays):
    """Exit code of `qualm verify --json` and what it printed."""
    a = answers(text, arrays)
    data = io.BytesIO()
    np.savez(data, **{n: x for n, x in a.items() if "/want/" not in n})
    done = subprocess.run([qualm, "verify", "-", "--json"], input=data.getvalue(),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    return done.returncode, json.loads(done.stdout)


def main():
    qualm, example, path = sys.argv[1:]
    np.seterr(all="ignore")
    source = open(example).read()
    arrays = dict(np.load(path))
    every = {**BOTH, **(TORCH if "import torch" in source else NUMPY)}
    # One in QM_TEST_SHARE of them, by QM_TEST_SEED, as tests/support/drawn.h does.
    share, seed = (int(os.environ.get("QM_TEST_" + x, d)) for x, d in (("SHARE", 1), ("SEED", 0)))
    bugs = {name: every[name] for i, name in enumerate(every) if (i + seed) % share == 0}
    survived = 0
    code, said = verdict(qualm, source, arrays)
    print(f"{'as it is':46} {said.get('verdict')}")
    survived += code != 0
    for name, changes in bugs.items():
        text = source
        for pattern, by in changes:
            changed = re.sub(pattern, by, text)
            if changed == text:
                raise SystemExit(f"{name}: '{pattern}' is not in {example}")
            text = changed
        code, said = verdict(qualm, text, arrays)
        first = (said.get("failures") or [{"step": "", "what": said.get("error", "")}])[0]
        print(f"{name:46} {said.get('verdict')} {said.get('failed_steps')} steps, "
              f"{first['step']}: {first['what'][:60]}", flush=True)
        survived += code != 1
    print(f"{len(bugs)} of {len(every)} bugs, {survived} survived")
    raise SystemExit(survived > 0)


main()
