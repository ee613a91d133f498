"""file_words.py - Asks `qualm show` for names in result files, arguments and options.

Usage: file_words.py ROOT QUALM FILE.h5...  Names are those of attributes, columns, groups and
arrays of the files and of the results that ship, the arguments of problems and distributions with
the words that they take, and the long options of every command.
"""
import glob
import json
import re
import subprocess
import sys

import h5py

root, qualm, *files = sys.argv[1:]
NETCDF = {"DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME", "DIMENSION_LABELS"}
words, plain = {}, re.compile(r"[A-Za-z_][\w-]*")


def add(word, of):
    if plain.fullmatch(word):
        words.setdefault(word, of)


def add_file(path):
    with h5py.File(path) as f:
        is_named_by_user = f.attrs["kind"] in (b"state", b"import")

        def visit(name, thing):
            user = is_named_by_user or name.startswith("suite/")
            for key in thing.attrs:
                if key not in NETCDF:
                    add(key, f"{path}:{name}")
            if not user:
                add(name.split("/")[-1], f"{path}:{name}")
            if isinstance(thing, h5py.Dataset):
                for column in thing.dtype.names or ():
                    add(column, f"{path}:{name}")
        f.visititems(visit)
        for key in f.attrs:
            add(key, path)


def output(*command):
    return subprocess.run([qualm, *command], capture_output=True, text=True).stdout


for path in sorted([root + "/results/baseline.h5"]) + files:
    add_file(path)
assert len(words) > 250, len(words)
before = len(words)
for name in output("list", "problems", "--names").split():
    for problem in json.loads(output("show", name, "--json")):
        for argument in problem.get("arguments", []):
            add(argument["argument"], name)
            if " to " not in argument["takes"]:
                for word in argument["takes"].split("|"):
                    add(word, name)
for name in output("list", "distributions", "--names").split():
    for dist in json.loads(output("show", name, "--json")):
        for pair in dist.get("args", "").split(","):
            add(pair.split("=")[0], name)
assert len(words) > before + 30, words
before = len(words)
OPTION = re.compile(r'^\s*\{"([a-z][a-z0-9-]*)", (?:\'.\'|[A-Z_0-9]+), ', re.M)
for path in glob.glob(root + "/experiments/c[lo]*/*.c"):
    for option in OPTION.findall(open(path).read()):
        add(option, path)
assert len(words) > before + 60, len(words) - before
known = set(output("list", "--names").split("\n"))
bad = [f"{word} ({of})" for word, of in sorted(words.items()) if word not in known and
       subprocess.run([qualm, "show", "--", word], capture_output=True).returncode]
assert not bad, "show does not know: " + ", ".join(bad)
