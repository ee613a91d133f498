"""check_headers.py - Checks that each header has a guard of its own, and each public tag one meaning.

    /usr/bin/python3 tests/style/check_headers.py [--list]

A guard is "#ifndef QM_..._NAME_H" and "#define" of the same as the first two directives, and #endif
as the last; NAME is the file's name in capitals.  Two headers with one guard would hide each other.
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
