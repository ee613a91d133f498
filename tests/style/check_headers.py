"""check_headers.py - Checks guards of headers, one meaning of each tag, and prefixes.

    /usr/bin/python3 tests/style/check_headers.py [--list]

A guard is "#ifndef QM_..._NAME_H" and "#define" of the same as the first two directives, and #endif
as the last; NAME is the file's name in capitals.  Two headers with one guard would hide each other.
What a header defines for its includers (tags, types, macros, functions, enumerators) begins with
qm_ or QM_, but for the parts of one source file, and no tag is a type of another kind as well.
--list prints, where nothing is wrong, the headers that make sense alone, for `make check-headers`,
which compiles them together.
"""
import glob
import os
import re
import sys

# The inside of one source file, which includes them more than once or within a function.
PARTS = {"core/quant/simd_avx2.h", "core/quant/simd_avx512.h", "core/quant/simd_blocks.h",
         "oracle/metric/pair_sums_loop.h"}
# The inside of loops for one instruction set.
PER_ISA = {"core/quant/simd_group.h", "core/rule/packed_blocks.h"}
# Whose short names are the letters of the rule's formulas, for the rule's own files.
LETTERS = {"oracle/rule/adafactor8.h"}
NAMES = {  # what a header defines at file scope, and how its name has to begin
    "tag": (re.compile(r"^\s*(?:typedef\s+)?(?:struct|enum|union)\s+(\w+)\s*\{", re.M), "qm_"),
    "macro": (re.compile(r"^#\s*define\s+(\w+)", re.M), ("QM_", "qm_", "H5_USE_")),
    "function": (re.compile(r"^(?:QM_FN|static)\b[^;{}=()]*?\b(\w+)\(", re.M), ("qm_", "__attr")),
}
ENUMERATORS = re.compile(r"\benum(?:\s+\w+)?\s*\{([^{}]*)\}")
TYPEDEF = re.compile(r"^\s*typedef\s+[^;(]*?(?:\}|\s)\s*(qm_\w+)\s*;", re.M)
TAG = re.compile(r"^\s*(?:typedef\s+)?(struct|enum|union)\s+(qm_\w+)\s*\{", re.M)


def headers():
    return sorted(path for top in ("core", "oracle", "experiments", "variants")
                  for path in glob.glob(top + "/**/*.h", recursive=True))


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text.replace("\\\n", " "), flags=re.S)


def guard(path, text):
    """(name, None) or (None, what is wrong)"""
    code = [line.strip() for line in text.split("\n") if line.strip()]
    name = re.sub(r"\W", "_", os.path.basename(path)).upper()
    first = re.fullmatch(r"#ifndef (QM_\w+)", code[0]) if len(code) > 2 else None
    if not first or code[1] != f"#define {first[1]}" or code[-1] != "#endif":
        return None, f'no guard: expected "#ifndef QM_..._{name}", "#define" of it and "#endif"'
    if not first[1].endswith("_" + name):
        return None, f"the guard is {first[1]}, expected QM_..._{name}"
    return first[1], None


def unprefixed(text):
    """Yields (kind, name) of what a header defines for all of its includers without the prefix."""
    for kind, (names, prefix) in NAMES.items():
        yield from ((kind, n) for n in names.findall(text) if n != "X" and not n.startswith(prefix))
    code = re.sub(r"^#.*$", "", text, flags=re.M)
    for body in ENUMERATORS.findall(code):
        flat = re.sub(r"=[^,]*", "", re.sub(r"\b\w+\(\w+\)", "", body))
        yield from (("enumerator", n) for n in re.findall(r"\w+", flat) if not n.startswith("QM_"))


def check(paths):
    guards, tags = {}, {}
    for path in paths:
        with open(path, encoding="utf-8") as f:
            text = without_comments(f.read())
        if path not in PARTS:
            name, wrong = guard(path, text)
            if wrong:
                yield f"{path}:1: {wrong}"
            elif guards.setdefault(name, path) != path:
                yield f"{path}:1: guard {name} is that of {guards[name]} too"
        for kind, tag in TAG.findall(text):
            if tags.setdefault(tag, path) != path:
                yield f"{path}:1: {kind} {tag} is defined in {tags[tag]} too"
        for name in TYPEDEF.findall(text):
            if tags.setdefault(name, path) != path or f"typedef {name}" in tags:
                yield f"{path}:1: type {name} is defined in {tags[name]} too"
            tags[f"typedef {name}"] = path
        if path not in PARTS | PER_ISA | LETTERS:
            for kind, name in unprefixed(text):
                yield f"{path}:1: {kind} {name} of a header has no prefix qm_ or QM_"


def check_sources():
    """Yields the tags that a source file gives a meaning of its own, and a header or another source
    file another one; the text that judged kernels are compiled with repeats some (.hpp)."""
    tags = {}
    for path in headers():
        with open(path, encoding="utf-8") as f:
            tags.update((tag, path) for _, tag in TAG.findall(without_comments(f.read())))
    for top in ("core", "oracle", "experiments", "variants"):
        for path in sorted(p for end in ("c", "cu", "cpp", "hpp")
                           for p in glob.glob(f"{top}/**/*.{end}", recursive=True)):
            with open(path, encoding="utf-8") as f:
                for kind, tag in TAG.findall(without_comments(f.read())):
                    other = tags.get(tag, path)
                    if not path.endswith(".hpp"):
                        tags.setdefault(tag, path)
                    if other != path:
                        yield f"{path}:1: {kind} {tag} is defined in {tags[tag]} too"


def main():
    paths = headers()
    errors = list(check(paths)) + list(check_sources())
    if errors:
        sys.exit("\n".join(errors + [f"check-headers: {len(errors)} errors"]))
    if "--list" in sys.argv:
        print("\n".join(p for p in paths if p not in PARTS | PER_ISA))


if __name__ == "__main__":
    main()
