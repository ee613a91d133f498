"""check_callers.py - Names functions of prefix qm_ that nobody calls or that could be static.

    /usr/bin/python3 tests/style/check_callers.py BUILD       (BUILD: build/gcc)

A function is called where an object of another file uses its symbol, or where a text names it
outside of comments: its own file behind its definition, another source (kernels and C++ are not
objects of BUILD), a test.  Functions that a list macro makes are not looked at, because their names
stand in no text; those that EXEMPT names are called nowhere for the reason beside them.
A function that its own file alone calls should be static.
"""
import glob
import os
import re
import sys

import link_symbols

EXEMPT = {}
COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|(/\*.*?\*/|//[^\n]*)', re.S)
SOURCES = (".c", ".h", ".cu", ".cpp", ".hpp")


def texts():
    """{path: its words outside of comments, in order}"""
    found = {}
    for top in ("core", "oracle", "variants", "experiments", "tests"):
        for path in glob.glob(top + "/**", recursive=True):
            if path.endswith(SOURCES):
                with open(path, encoding="utf-8") as f:
                    plain = COMMENT.sub(lambda m: " " if m[1] else m[0], f.read())
                found[path] = re.findall(r"\w+", plain)
    return found


def functions(build):
    """(name, file) of each function of prefix qm_ that no object of another file uses."""
    _, used = link_symbols.program(build)
    for path, kind, symbol in sorted(link_symbols.nm(list(link_symbols.objects(build)))):
        file = link_symbols.source_of(path, build)
        if kind == "T" and symbol.startswith("qm_") and not any(
                symbol in names for other, names in used.items() if other != file):
            yield symbol, file


def main():
    build, words = sys.argv[1], texts()
    where = {}
    for path, found in words.items():
        for word in found:
            if word.startswith("qm_"):
                where.setdefault(word, []).append(path)
    local, dead = [], []
    for name, file in functions(build):
        at = where.get(name, [])
        headers = [p for p in at if p.endswith(".h") and not p.startswith("tests/")]
        own = at.count(file + ".c")
        others = len(at) - own - min(len(headers), 1)
        if own == 0 or others > 0 or not os.path.exists(file + ".c"):
            continue
        if own > 1:
            local.append(f"{file}.c alone calls {name}, which should be static")
        elif name not in EXEMPT:
            dead.append(f"{file}.c: nobody calls {name}")
    print("\n".join(dead + local + [f"check-callers: {len(dead)} functions that nobody calls, "
                                     f"{len(local)} that should be static"]))
    sys.exit(bool(dead + local))


if __name__ == "__main__":
    main()
