"""affected_tests.py - Names the tests that a change can affect.

    /usr/bin/python3 tests/style/affected_tests.py [--linked] BUILD WORD...

A WORD is a part of a path ("quant", "oracle/rule", "search.h") or `changed`, which stands for the
files that differ from the last commit.  A test is named where its path or its text holds WORD,
where it includes a matching file (the compiler's list of dependencies says so), or where it calls a
function that a matching file defines.  --linked names every test program that a matching file is
linked into as well: these are all that a change can affect.  A .bats file runs the whole program,
so that every change of the product can affect it: --linked and `changed` name all of them.
"""
import os
import re
import subprocess
import sys

import link_symbols


def changed_files():
    out = subprocess.run(["git", "status", "--porcelain", "--untracked-files=all"],
                         capture_output=True, text=True, check=True).stdout
    return [line[3:].split(" -> ")[-1] for line in out.splitlines()]


def dependencies(program):
    """The paths that the compiler read for this program."""
    try:
        with open(program + ".d", encoding="utf-8") as f:
            return re.findall(r"[\w./-]+\.[ch]\b", f.read())
    except OSError:
        return []


def main():
    linked = "--linked" in sys.argv
    build, *words = [a for a in sys.argv[1:] if a != "--linked"]
    is_change = "changed" in words
    words = [w for w in words if w != "changed"] + (changed_files() if is_change else [])
    product = [w for w in words if not w.startswith("tests/")]
    defined, _ = link_symbols.program(build)
    symbols = {s for s, file in defined.items()
               if any(w in file or os.path.splitext(w)[0] == file for w in words)}
    tests = sorted(os.path.join(d, f) for d, _, files in os.walk("tests") for f in files
                   if re.fullmatch(r"test_\w+\.c|\w+\.bats", f))
    for test in tests:
        program = os.path.join(build, os.path.splitext(test)[0])
        is_program = test.endswith(".c")
        with open(test, encoding="utf-8") as f:
            text = f.read()
        holds = {s for _, _, s in link_symbols.nm([program])} & symbols \
            if is_program and os.path.exists(program) else set()
        if any(w in path for w in words for path in [test, text, *dependencies(program)]) or \
                any(s in text for s in holds) or (linked and holds) or \
                (not is_program and product and (linked or is_change)):
            print(program if is_program else test)


if __name__ == "__main__":
    main()
