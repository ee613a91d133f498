"""golden_members.py - Alters each kind of member of a golden file; `qualm verify` must name it.

    python3 golden_members.py QUALM EXAMPLE.py FOLDER

For a recipe with codes and one with a residual, in .npz, .h5 and .safetensors.  Each alteration of
what `gen` wrote must give the stated exit code and one line with the stated words.
"""
import importlib.util
import json
import os
import subprocess
import sys

import h5py
import numpy as np

FORMS = ("npz", "h5", "safetensors")


def save(path, arrays, example):
    if path.endswith(".h5"):
        with h5py.File(path, "w") as f:
            for name, x in arrays.items():
                f.create_dataset(name, data=x)
    else:
        example.save(path, arrays)


def golden(a, change):
    """Applies a function to the description."""
    d = json.loads(bytes(a["golden"]))
    d = change(d) or d
    a["golden"] = np.frombuffer(json.dumps(d).encode(), np.uint8)


def put(*path):
    """A function of the description that sets d[path[0]][path[1]]... to the last word."""
    def change(d):
        for key in path[:-2]:
            d = d[key]
        d[path[-2]] = path[-1]
    return change


def drop(*path):
    def change(d):
        for key in path[:-1]:
            d = d[key]
        del d[path[-1]]
    return change


def rename(a, old, new):
    for name in [n for n in a if n == old or n.startswith(old + "/")]:
        a[new + name[len(old):]] = a.pop(name)


def nudge(a, name):
    """Changes the lowest bit of the last element that is a number."""
    x = a[name].copy()
    x.view(f"u{x.itemsize}").reshape(-1)[np.flatnonzero(x.ravel() == x.ravel())[-1]] ^= 1
    a[name] = x


def delete_case(a, i):
    golden(a, drop("cases", i))
    for name in [n for n in a if n.startswith(f"t{i}/")]:
        del a[name]


def add_case(a):
    golden(a, lambda d: d["cases"].append(dict(d["cases"][0], name=f"t{len(d['cases'])}")))


def shift_cases(a, n):
    """Deletes case t0 and renames the others, so that nothing is missing between them."""
    delete_case(a, 0)
    golden(a, lambda d: [c.update(name=f"t{i}") for i, c in enumerate(d["cases"])] and None)
    for i in range(1, n):
        rename(a, f"t{i}", f"t{i - 1}")


def fewer_steps(a):
    golden(a, put("cases", 0, "steps", 1))
    golden(a, lambda d: d["cases"][0].update(hyper=d["cases"][0]["hyper"][:1]))
    for name in [n for n in a if n.startswith(("t0/grad/2", "t0/out/2", "t0/want/2"))]:
        del a[name]


def edit_text(old, new):
    def change(a):
        text = bytes(a["golden"])
        assert old in text, old
        a["golden"] = np.frombuffer(text.replace(old, new, 1), np.uint8)
    return change


# what, change of the dict of arrays, exit code, words of the line
def alterations(n):
    return [
        ("nothing", lambda a: None, 0, ""),
        ("the arrays of want deleted",
         lambda a: [a.pop(x) for x in list(a) if "/want/" in x], 0, ""),
        ("an array of another name added", lambda a: a.update(notes=np.zeros(3)), 0, ""),
        # the description
        ("lr", lambda a: golden(a, put("cases", 2, "hyper", 1, "lr", 2e-3)), 3,
         "t2.hyper[1].lr is"),
        ("a hyper-parameter deleted", lambda a: golden(a, drop("cases", 1, "hyper", 0, "beta1")), 3,
         "t1.hyper[0].beta1 is nothing, expected"),
        ("a hyper-parameter added",
         lambda a: golden(a, put("cases", 1, "hyper", 0, "momentum", 0.5)), 3,
         "t1.hyper[0].momentum is 0.5, expected nothing"),
        ("shape", lambda a: golden(a, put("cases", 0, "shape", 0, 77)), 3, "t0.shape"),
        ("id", lambda a: golden(a, put("cases", 0, "id", "300/normal/wd/t1/own")), 3, "t0."),
        ("no id", lambda a: golden(a, put("cases", 0, "id", "300/normal/t1/own")), 3, "t0: case"),
        ("first step", lambda a: golden(a, put("cases", 3, "first_step", 2)), 3,
         "t3.first_step is 2"),
        ("bits", lambda a: golden(a, put("cases", 0, "slots", 0, "bits", 5)), 3,
         "t0.slots[0].bits is 5"),
        ("quantizer", lambda a: golden(a, put("cases", 0, "slots", 0, "quantizer", "nf4")), 3,
         "t0.slots[0].quantizer"),
        ("a slot deleted", lambda a: golden(a, drop("cases", 0, "slots", 0)), 3, "t0.slots has"),
        ("steps", lambda a: golden(a, put("cases", 0, "steps", 1)), 3,
         "t0.hyper has 2 entries, expected 1"),
        ("a step deleted everywhere", fewer_steps, 3, "steps"),
        ("no steps", lambda a: golden(a, drop("cases", 0, "steps")), 3, "case t0 lacks"),
        ("zero steps", lambda a: golden(a, put("cases", 0, "steps", 0)), 3, "0 steps"),
        ("a hash of an input", lambda a: golden(a, put("cases", 0, "inputs", "in/param", "0" * 64)),
         3, "digest"),
        ("an input left out", lambda a: golden(a, drop("cases", 0, "inputs", "grad/1")), 3,
         "digest"),
        ("seed", lambda a: golden(a, put("seed", "2")), 3, "digest"),
        ("recipe", lambda a: golden(a, lambda d: d.update(recipe="lion_f32")), 3,
         "golden: rule is"),
        ("recipe's lr",
         lambda a: golden(a, lambda d: d.update(recipe=d["recipe"] + ",lr=0.5")), 3, "lr is"),
        ("no recipe", lambda a: golden(a, lambda d: d.update(recipe="adamw5")), 3, "adamw5"),
        ("type of gradients", lambda a: golden(a, put("grad", "f16")), 3,
         "grad is \"f16\", expected"),
        ("format", lambda a: golden(a, put("format", "golden")), 3, "format 'golden'"),
        ("version", lambda a: golden(a, put("version", 3)), 3, "version 3"),
        ("digest", lambda a: golden(a, put("digest", "0" * 64)), 3, "digest"),
        ("no digest", lambda a: golden(a, drop("digest")), 3, "digest"),
        ("a key added", lambda a: golden(a, put("more", 1)), 3, "digest"),
        ("a key twice", edit_text(b'"seed"', b'"rule"'), 3, "duplicate"),
        ("number of cases", lambda a: golden(a, put("count", "cases", n + 1)), 3, "case t"),
        ("first case deleted", lambda a: delete_case(a, 0), 3, "case t0 is missing"),
        ("a case deleted", lambda a: delete_case(a, 2), 3, "case t2 is missing"),
        ("last case deleted", lambda a: delete_case(a, n - 1), 3, f"case t{n - 1} is missing"),
        ("cases moved up", lambda a: shift_cases(a, n), 3, f"case t{n - 1} is missing"),
        ("a case renamed", lambda a: golden(a, put("cases", 1, "name", "u1")), 3, "'u1'"),
        ("a case added", add_case, 3, f"case t{n} was added"),
        ("no cases", lambda a: golden(a, put("cases", [])), 3, "case t0 is missing"),
        ("cases is a text", lambda a: golden(a, put("cases", "t0")), 3, "case t0 is missing"),
        ("golden is no JSON", edit_text(b"{", b"["), 3, "not JSON"),
        ("golden is a number", lambda a: a.update(golden=np.frombuffer(b"7", np.uint8)), 3,
         "not JSON"),
        ("golden deleted", lambda a: a.pop("golden"), 3, "not a golden file"),
        ("golden of floats", lambda a: a.update(golden=a["golden"].astype("f4")), 3,
         "not a golden file"),
        # arrays that gen wrote
        ("all arrays of a case deleted",
         lambda a: [a.pop(x) for x in list(a) if x.startswith("t1/in")], 3, "'t1/in/"),
        ("a case's arrays renamed", lambda a: rename(a, "t1", "s1"), 3, "'t1/in/"),
        ("an array of an unknown case", lambda a: a.update({f"t{n}/in/param": a["t0/in/param"]}), 3,
         f"'t{n}/in/param' is of no case"),
        ("a number with a zero before it", lambda a: a.update({"t00/out/1/param": np.zeros(3)}), 3,
         "'t00/out/1/param' is of no case"),
        ("an array of an unknown codebook",
         lambda a: a.update({"codebook/other": np.zeros(16, "f4")}), 3, "'codebook/other'"),
        ("a gradient of step 3", lambda a: a.update({"t0/grad/3": a["t0/grad/1"]}), 3,
         "'t0/grad/3' is of no case"),
        ("two gradients exchanged",
         lambda a: a.update({"t0/grad/1": a["t0/grad/2"], "t0/grad/2": a["t0/grad/1"]}), 3,
         "'t0/grad/1'"),
        ("a gradient transposed",
         lambda a: a.update({"t0/grad/1": np.ascontiguousarray(a["t0/grad/1"].T)}), 3,
         "'t0/grad/1' ("),
        ("a parameter of float64",
         lambda a: a.update({"t0/in/param": a["t0/in/param"].astype("f8")}), 3, "'t0/in/param' ("),
        # answers
        ("a step 3", lambda a: a.update({"t0/out/3/param": a["t0/out/1/param"]}), 3,
         "'t0/out/3/param' is of no case"),
        ("an answer in part", lambda a: a.pop("t0/out/2/param"), 3,
         "there is no array 't0/out/2/param'"),
        ("a later step alone", lambda a: [a.pop(x) for x in list(a) if "t0/out/1/" in x], 1, ""),
        ("one case is not answered",
         lambda a: [a.pop(x) for x in list(a) if "t1/out/" in x], 1, ""),
        ("nothing is answered", lambda a: [a.pop(x) for x in list(a) if "/out/" in x], 4,
         "nothing is answered"),
        ("an answer of float64",
         lambda a: a.update({"t0/out/1/param": a["t0/out/1/param"].astype("f8")}), 3, "of f64"),
        ("an answer transposed",
         lambda a: a.update({"t0/out/1/param": a["t0/out/1/param"].T.copy()}), 3,
         "is 67x64 of"),
        ("a flat answer",
         lambda a: a.update({"t0/out/1/param": a["t0/out/1/param"].ravel()}), 0, ""),
        ("an answer with one dim more",
         lambda a: a.update({"t0/out/1/param": a["t0/out/1/param"][:, None]}), 0, ""),
        ("an answer too short",
         lambda a: a.update({"t0/out/1/param": a["t0/out/1/param"].ravel()[1:]}), 3, "4287"),
        ("an answer of nothing", lambda a: a.update({"t0/out/1/param": np.zeros(0, "f4")}), 3,
         "is 0 of f32"),
        ("a scalar for an answer", lambda a: a.update({"t0/out/1/param": np.float32(1)}), 3,
         "is scalar of f32"),
        ("an answer of NaN",
         lambda a: a.update({"t0/out/1/param": np.full_like(a["t0/out/1/param"], np.nan)})
         if a["t0/in/param"].dtype == np.float32 else a.pop("t0/out/1/param"), (1, 3), ""),
    ]


def of_arrays(a):
    """Each input array changed by a bit, deleted, renamed."""
    out = []
    for name in sorted(a):
        if name.startswith(("t0/in/", "t0/grad/1", "codebook/", "t1/in/")) and a[name].size:
            out += [(f"{name} changed", lambda a, name=name: nudge(a, name), 3, f"'{name}'"),
                    (f"{name} deleted", lambda a, name=name: a.pop(name), 3, f"'{name}'"),
                    (f"{name} renamed", lambda a, name=name: rename(a, name, name + "_"), 3,
                     f"'{name}'")]
    for name in sorted(n for n in a if n.startswith("t0/out/1/") and n.endswith(".codes")):
        out += [(f"{name} as NaN", lambda a, name=name: a.update(
            {name: np.full(a[name].shape, np.nan, "f4")}), 3, f"'{name}' is "),
                (f"{name} as i8", lambda a, name=name: a.update({name: a[name].astype("i1")}), 3,
                 "of i8, expected"),
                (f"{name} one short", lambda a, name=name: a.update({name: a[name][1:]}), 3,
                 "expected")]
    return out


def main():
    qualm, example, folder = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("example", example)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    source, target = os.path.join(folder, "in.npz"), os.path.join(folder, "out.")
    wrong = done = 0
    for recipe in ("adamw4_ao", "lion8_ecc16,param=f16/ecc16"):
        subprocess.run([qualm, "gen", recipe, "-q", "-S", "64x67,300", "-c", "normal,exact",
                        "--setting", "default", "--first-step", "1", "--own", "--forced", "--steps", "2",
                        "-o", source], check=True, stdout=subprocess.DEVNULL)
        given = dict(np.load(source))
        given.update({n.replace("/want/", "/out/"): x for n, x in given.items() if "/want/" in n})
        n = len(json.loads(bytes(given["golden"]))["cases"])
        # One in QM_TEST_SHARE of them, by QM_TEST_SEED, as tests/support/drawn.h does.
        share = int(os.environ.get("QM_TEST_SHARE", 1))
        from_entry = -int(os.environ.get("QM_TEST_SEED", 0)) % share
        for what, change, code, words in (alterations(n) + of_arrays(given))[from_entry::share]:
            a = dict(given)
            change(a)
            for form in FORMS:
                save(target + form, a, example)
                run = subprocess.run([qualm, "verify", target + form], check=False, text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
                codes = code if isinstance(code, tuple) else (code,)
                lines = run.stderr.splitlines()
                right = run.returncode in codes and words in run.stderr
                right &= len(lines) == (run.returncode > 1)
                done += 1
                wrong += not right
                if not right:
                    print(f"{recipe}, {what}, {form}: {run.returncode}, expected {code} with "
                          f"'{words}': {run.stderr}")
    print(f"{done} altered files, {wrong} judged wrongly")
    raise SystemExit(wrong > 0)


main()
