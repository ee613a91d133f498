"""affected_tests.py - Names the tests that a change can affect.

    /usr/bin/python3 tests/style/affected_tests.py [--linked] BUILD WORD...
    /usr/bin/python3 tests/style/affected_tests.py BUILD changed [PATH...]

A WORD is a part of a path ("quant", "oracle/rule", "search.h").  A test is named where its path
holds WORD, where it stands in the folder that mirrors a matching file's, where it includes or names
a matching file, directly or by a file of tests/ that does, or where it calls a function that such a
file defines.  Where no test does, every test program is named that the file is linked into, and
every .bats file, which run the whole program; --linked names all these in any case.

`changed` stands for the files that differ from the last commit, or for PATHs; it names all that
they can affect: also each program that links an object for which the compiler read one of them, and
every .bats file where the product changed.  A file that is gone, one that steers the build or the
tests, and one that nothing is known to use name every test, and a line on stderr says which file.
A test program that is not built is named too.
"""
import glob
import os
import re
import subprocess
import sys

import link_symbols

STEERS = re.compile(r"Makefile|tests/run\.sh|\.gitignore")
TEST = re.compile(r"tests/.*(/test_\w+\.c|\w+\.bats)")


def changed_files():
    """The paths that differ from the last commit; of a renamed file both."""
    out = subprocess.run(["git", "status", "--porcelain", "-z", "--no-renames",
                          "--untracked-files=all"], capture_output=True, text=True, check=False)
    if out.returncode:
        sys.exit("ONLY=changed asks git, and this folder is no git clone")
    return [line[3:] for line in out.stdout.split("\0") if line]


def all_paths():
    for folder, folders, files in os.walk("."):
        folders[:] = [d for d in folders if not d.startswith(".")
                      and d not in ("build", "__pycache__")]
        yield from (os.path.relpath(os.path.join(folder, f)) for f in files)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def names(text, path):
    """Whether a text names a file: by its name, as a Python module, by bats' load, by its
    folder."""
    name = os.path.basename(path)
    stem, end = os.path.splitext(name)
    word = re.escape(name)
    if end == ".py":
        word += rf"|(?:import|from) {re.escape(stem)}"
    if end == ".bash":
        word += rf"|load \S*{re.escape(stem)}"
    if path.startswith("experiments/data/"):
        word += "|experiments/data"
    return re.search(rf"(?<![\w.-])(?:{word})\b", text) is not None


def with_users(files, texts):
    """FILES, and the files of tests/ that name one of them, and those that name these."""
    reached, new = set(files), set(files)
    while new:
        new = {user for user, text in texts.items() if user not in reached
               and any(names(text, path) for path in new)}
        reached |= new
        new = {path for path in new if not TEST.fullmatch(path)}
    return reached


def dependencies(program):
    """The paths that the compiler read for this program."""
    return set(link_symbols.prerequisites(program + ".d")) \
        if os.path.exists(program + ".d") else set()


def reading_objects(build, files):
    """The sources, without ending, of objects that hold FILES: as source, header or embedded
    text."""
    generated = {os.path.relpath(inc) for inc in glob.glob(build + "/gen/*.inc")
                 for text in [read(inc)] for path in files
                 if f'QM_TEXT("{os.path.basename(path)}"' in text or f'QM_TEXT("{path}"' in text
                 or os.path.basename(inc).rsplit(".")[0] == os.path.basename(path).rsplit(".")[0]}
    wanted = set(files) | generated
    return {link_symbols.source_of(path, build) for path in link_symbols.objects(build)
            if wanted & dependencies(path[:-2])}


def affected(build, files, is_change):
    """(tests that concern files, tests that can be affected by them)"""
    paths = list(all_paths())
    product = {p for p in files if not p.startswith("tests/")}
    stems = {os.path.splitext(p)[0] for p in product}
    if is_change:
        stems |= reading_objects(build, product)
    defined, _ = link_symbols.program(build)
    symbols = {s for s, file in defined.items() if file in stems}
    texts = {p: read(p) for p in paths if p.startswith("tests/")
             and p.endswith((".c", ".h", ".py", ".bats", ".bash", ".sh"))}
    files = with_users(files, texts)
    mirrors = {os.path.join("tests", os.path.dirname(p)) for p in product}
    direct, others = set(), set()
    for test in sorted(p for p in paths if TEST.fullmatch(p)):
        program = os.path.join(build, os.path.splitext(test)[0])
        is_program = test.endswith(".c")
        holds = {s for _, _, s in link_symbols.nm([program])} & symbols \
            if is_program and os.path.exists(program) else set()
        name = program if is_program else test
        is_unbuilt = is_change and is_program and not os.path.exists(program)
        if is_unbuilt or test in files or os.path.dirname(test) in mirrors or \
                files & dependencies(program) or any(s in texts[test] for s in holds):
            direct.add(name)
        if holds or (not is_program and product):
            others.add(name)
    return direct, others


def of_change(build, files):
    """The tests that changed files can affect; all of them where that is not known."""
    tests = {os.path.join(build, os.path.splitext(p)[0]) if p.endswith(".c") else p
             for p in all_paths() if TEST.fullmatch(p)}
    for path in files:
        if not os.path.exists(path) or STEERS.fullmatch(path):
            why = "is gone" if not os.path.exists(path) else "steers the build or the tests"
            print(f"{path} {why}: every test is named", file=sys.stderr)
            return tests
    found = set()
    for path in files:
        direct, others = affected(build, {path}, True)
        if not direct | others:
            print(f"{path}: nothing is known to use it: every test is named", file=sys.stderr)
            return tests
        found |= direct | others
    return found


def main():
    linked = "--linked" in sys.argv
    build, *words = [a for a in sys.argv[1:] if a != "--linked"]
    if words[0] == "changed":
        files = sorted(words[1:] or changed_files())
        if not files:
            sys.exit("no file differs from the last commit")
        tests = of_change(build, files)
    else:
        paths = list(all_paths())
        for w in words:
            if not any(w in p for p in paths):
                sys.exit(f"no file has '{w}' in its path")
        tests, others = affected(build, {p for p in paths for w in words if w in p}, False)
        tests |= others if linked or not tests else set()
    print("\n".join(sorted(tests, key=lambda t: (t.endswith(".bats"), t))))


if __name__ == "__main__":
    main()
