"""link_symbols.py - Reads from the objects of a build who defines and who uses each link symbol.

check_layers.py and affected_tests.py share it.  A file is named by its path without the ending; the
objects of one source for several instruction sets are one file.  An object whose source is gone is
left over from an older build and is not read.
"""
import os
import re
import subprocess
from collections import defaultdict

ISA = re.compile(r"_(sse2|avx2|avx512)$")
UNDEFINED = "Uwv"  # w and v are weak references: a use, whether or not somebody defines it


def nm(paths):
    """(path, type, symbol) of every external symbol."""
    out = subprocess.run(["nm", "-A", "-g", "--", *paths], capture_output=True, text=True,
                         check=True).stdout if paths else ""
    for line in out.splitlines():
        path, rest = line.split(":", 1)
        words = rest.split()
        yield path, words[-2], words[-1]


def objects(build):
    """The objects of the program whose sources are there, without the tests'."""
    for folder, _, files in os.walk(build):
        if os.path.relpath(folder, build).split(os.sep)[0] != "tests":
            yield from (path for path in (os.path.join(folder, f) for f in sorted(files))
                        if path.endswith(".o") and os.path.exists(source_of(path, build) + ".c"))


def source_of(path, build):
    """The path, without its ending, of the source of an object."""
    stem = os.path.relpath(path, build)[:-len(".o")]
    return stem if os.path.exists(stem + ".c") else ISA.sub("", stem)


def program(build):
    """({symbol: defining file}, {file: symbols it uses}); every file is a key of the second."""
    defined, used = {}, defaultdict(set)
    paths = list(objects(build))
    for path in paths:
        used[source_of(path, build)].update()
    for path, kind, symbol in nm(paths):
        file = source_of(path, build)
        if kind in UNDEFINED:
            used[file].add(symbol)
        else:
            defined[symbol] = file
    return defined, used


def prerequisites(path):
    """The files of the tree that a .d file names, as the compiler read them, the source first."""
    with open(path, encoding="utf-8") as f:
        rule = f.read().replace("\\\n", " ").split("\n", 1)[0]
    return of_the_tree(rule.split(": ", 1)[-1])


def of_the_tree(names):
    """The paths of a rule's prerequisites within the current folder; a blank may be escaped."""
    for name in re.findall(r"(?:\\ |\S)+", names):
        path = os.path.relpath(os.path.realpath(name.replace("\\ ", " ")),
                               os.path.realpath(os.curdir))
        if not path.startswith(os.pardir + os.sep):
            yield path
