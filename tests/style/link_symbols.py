"""link_symbols.py - Reads from the objects of a build who defines and who uses each link symbol.

check_layers.py and affected_tests.py share it.  A file is named by its path without the ending; the
objects of one source for several instruction sets are one file.
"""
import os
import re
import subprocess
from collections import defaultdict

ISA = re.compile(r"_(sse2|avx2|avx512)$")


def nm(paths):
    """(path, type, symbol) of every external symbol."""
    out = subprocess.run(["nm", "-A", "-g", "--", *paths], capture_output=True, text=True,
                         check=True).stdout
    for line in out.splitlines():
        path, rest = line.split(":", 1)
        words = rest.split()
        yield path, words[-2], words[-1]


def objects(build):
    """The objects of the program, without the tests'."""
    for folder, _, files in os.walk(build):
        if os.path.relpath(folder, build).split(os.sep)[0] != "tests":
            yield from (os.path.join(folder, f) for f in sorted(files) if f.endswith(".o"))


def source_of(path, build):
    return ISA.sub("", os.path.relpath(path, build)[:-len(".o")])


def program(build):
    """({symbol: defining file}, {file: symbols it uses})"""
    defined, used = {}, defaultdict(set)
    for path, kind, symbol in nm(list(objects(build))):
        file = source_of(path, build)
        if kind == "U":
            used[file].add(symbol)
        else:
            defined[symbol] = file
    return defined, used
