"""affected_tests.py - Names the tests that a change can affect.

    /usr/bin/python3 tests/style/affected_tests.py [--linked] BUILD WORD...

A WORD is a part of a path ("quant", "oracle/rule", "search.h") or `changed`, which stands for the
files that differ from the last commit.  A test is named where its path holds WORD, where it stands
in the folder that mirrors a matching file's, where it includes or names a matching file, or where
it calls a function that such a file defines.  Where no test does, every test program is named that
the file is linked into, and every .bats file, which run the whole program; --linked names all
these in any case: they are all that a change can affect.  `changed` names every .bats file too
where the product changed.
"""
import os
import re
import subprocess
import sys

import link_symbols


def changed_files():
    out = subprocess.run(["git", "status", "--porcelain", "--untracked-files=all"],
                         capture_output=True, text=True, check=False)
    if out.returncode:
        sys.exit("ONLY=changed asks git, and this folder is no git clone")
    return [line[3:].split(" -> ")[-1] for line in out.stdout.splitlines()]


def all_paths():
    for folder, folders, files in os.walk("."):
        folders[:] = [d for d in folders if not d.startswith(".") and d != "build"]
        yield from (os.path.relpath(os.path.join(folder, f)) for f in files)


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
    paths = list(all_paths())
    files = {p for p in paths for w in words if w in p}
    for w in words:
        if not is_change and not any(w in p for p in paths):
            sys.exit(f"no file has '{w}' in its path")
    product = {p for p in files if not p.startswith("tests/")}
    defined, _ = link_symbols.program(build)
    symbols = {s for s, file in defined.items()
               if any(os.path.splitext(p)[0] == file for p in product)}
    tests = sorted(p for p in paths if re.fullmatch(r"tests/.*(/test_\w+\.c|\w+\.bats)", p))
    mirrors = {os.path.join("tests", os.path.dirname(p)) for p in product}
    direct, others = set(), set()
    for test in tests:
        program = os.path.join(build, os.path.splitext(test)[0])
        is_program = test.endswith(".c")
        with open(test, encoding="utf-8") as f:
            text = f.read()
        holds = {s for _, _, s in link_symbols.nm([program])} & symbols \
            if is_program and os.path.exists(program) else set()
        name = program if is_program else test
        if test in files or os.path.dirname(test) in mirrors or \
                files & set(dependencies(program)) or any(s in text for s in holds) or \
                any(re.search(r"\b%s\b" % re.escape(os.path.basename(p)), text) for p in files):
            direct.add(name)
        if holds or (not is_program and product):
            others.add(name)
    if product and not direct or (linked or is_change):
        direct |= others if linked or not direct else {t for t in others if t.endswith(".bats")}
    print("\n".join(sorted(direct, key=lambda t: (t.endswith(".bats"), t))))


if __name__ == "__main__":
    main()
