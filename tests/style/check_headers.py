"""check_headers.py - Checks guards of headers, one meaning of each tag, and prefixes.

    /usr/bin/python3 tests/style/check_headers.py [--list | --alone COMPILER...]

A guard is "#ifndef QM_..._NAME_H" and "#define" of the same as the first two directives, and #endif
as the last; NAME is the file's name in capitals.  Two headers with one guard would hide each other.
What a header defines or declares for its includers (tags, types, macros, functions, variables,
enumerators) begins with qm_ or QM_, but for the parts of one source file, and no tag is a type of
another kind as well.  What bodies of functions hold, and macros that it undefines again, are its
own.  Headers are the *.h of core, oracle, experiments and variants: those of tests have no prefix,
and the .hpp of the emulator have the names of CUDA.
--list prints, where nothing is wrong, the headers that make sense alone, for `make check-headers`,
which compiles them together.  --alone compiles each of them with this command, so that a header
includes what it needs; nothing else is checked then.
"""
import concurrent.futures
import glob
import os
import re
import subprocess
import sys

# The inside of one source file, which includes them more than once or within a function.
PARTS = {"core/quant/simd_avx2.h", "core/quant/simd_avx512.h", "core/quant/simd_blocks.h",
         "oracle/metric/pair_sums_loop.h"}
# The inside of loops for one instruction set.
PER_ISA = {"core/quant/simd_group.h", "core/rule/packed_blocks.h"}
# Whose short names are the letters of the rule's formulas, for the rule's own files.
LETTERS = {"oracle/rule/adafactor8.h"}
# What a library or C itself names: tags of pointers, types that no header brings to NVRTC.
FOREIGN = re.compile(r"zip|zip_error|sigaction|stat|timespec|timeval|tm|argp|argp_state|u?int\d+_t")
MACRO = re.compile(r"^#\s*(define|undef)\s+(\w+)", re.M)
DEFINED = re.compile(r"^#\s*define\s+(\w+)\(([^)]*)\)(.*)", re.M)
ENUMERATORS = re.compile(r"\benum(?:\s+\w+)?\s*\{([^{}]*)\}")
LISTED = re.compile(r"^#\s*define\s+X\([^)]*\)\s+(\w+?)##\w+\s*[,=]", re.M)  # by a list macro
OF_LIST = re.compile(r"^#\s*define\s+X\((\w+)[^)]*\)\s+\1\s*[,=].*\s+(\w+)\(X\)", re.M)
IN_PARENTHESES = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
ATTRIBUTE = re.compile(r"\b(?:__attribute__|_Alignas)\s*" + IN_PARENTHESES)
CALL = re.compile(r"^[A-Z]\w*" + IN_PARENTHESES, re.M)  # of a macro
KIND = r"\b(struct|class|enum(?:\s+(?:struct|class)\b)?|union)\s+"
TAG = re.compile(KIND + r"(qm_\w+)\s*(?:final\s*)?(?::[^:{};()][^{};()]*)?\{")
ANY_TAG = re.compile(r"\b(?:struct|enum(?:\s+(?:struct|class)\b)?|union)\s+(\w+)")


def headers():
    return sorted(path for top in ("core", "oracle", "experiments", "variants")
                  for path in glob.glob(top + "/**/*.h", recursive=True))


def without_comments(text):
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text.replace("\\\n", " "), flags=re.S)
    return ATTRIBUTE.sub(" ", text)


def without_bodies(code):
    """The text without what the braces of functions hold."""
    while m := re.search(r"\)\s*\{", code):
        end, depth = m.end(), 1
        while depth and end < len(code):
            depth += (code[end] == "{") - (code[end] == "}")
            end += 1
        code = code[:m.start()] + ");" + code[end:]
    return code


def made(text):
    """Yields (kind, name) of what the header's own macros make: the functions that a call at the
    start of a line defines, and the enumerators of X(name) name, over a list of this header."""
    macros = {m[1]: m for m in DEFINED.finditer(text)}
    for call in re.finditer(r"^(\w+)\(([^()]*)\)", text, re.M):
        m = macros.get(call[1], [""] * 4)
        for parameter, argument in zip(m[2].split(","), call[2].split(",")):
            if re.search(rf"\w[\s*]+{re.escape(parameter.strip())}\s*\(", m[3]):
                yield "function", argument.strip()
    for m in OF_LIST.finditer(text):
        listed = re.findall(r"\bX\((\w+)", macros.get(m[2], [""] * 4)[3])
        yield from (("enumerator", name) for name in listed)


def declared(text):
    """Yields (kind, name) of what a text declares at file scope; what braces hold is left out."""
    code = CALL.sub(";", text)
    code = re.sub(r'^\s*#.*$|\bextern\s+"C"\s*\{|"(?:\\.|[^"\\\n])*"', "", code, flags=re.M)
    held = 1
    while held:
        code, held = re.subn(r"\{[^{}]*\}", "@", code)
    for part in re.split(r"[;}]", re.sub(r"([;)])\s*@", r"\1;", code)):
        head = re.sub(r"=(?:[^,()]|\([^()]*\))*", "", part).strip()
        if "(" not in head and "," in head:  # but for the last one, which is below
            kind = "type" if head.startswith("typedef") else "variable"
            yield from ((kind, name) for name in re.findall(r"(\w+)\s*(?:\[[^\]]*\]\s*)*,", head))
        m = re.match(r"[^(]*\(\s*\*\s*(?:const\s+)?(\w+)", head) or \
            re.search(r"[\w*@]\s*\b(\w+)\s*\(", head) or \
            re.search(r"[\s*@](\w+)\s*(?:\[[^\]]*\]\s*)*$", head)
        if m and not re.fullmatch(r"(?:struct|enum|union)\s+\w+[\s@]*", head):
            yield ("type" if head.startswith("typedef") else
                   "function" if re.search(r"\w\s*\(", m[0]) else "variable"), m[1]


def guard(path, text):
    """(name, None) or (None, what is wrong)"""
    code = [line.strip() for line in text.split("\n") if line.strip()]
    name = re.sub(r"\W", "_", os.path.basename(path)).upper()
    first = re.fullmatch(r"#ifndef (QM_\w+)", code[0]) if len(code) > 2 else None
    if not first or code[1] != f"#define {first[1]}" or code[-1] != "#endif":
        return None, f'no guard: expected "#ifndef QM_..._{name}", "#define" of it and "#endif"'
    depth = 0
    for at, line in enumerate(code):
        depth += bool(re.match(r"#\s*if", line)) - bool(re.match(r"#\s*endif", line))
        if depth == 0 and at < len(code) - 1:
            return None, f"the guard ends before {code[at + 1]}"
    if not first[1].endswith("_" + name):
        return None, f"the guard is {first[1]}, expected QM_..._{name}"
    return first[1], None


def unprefixed(text):
    """Yields (kind, name) of what a header defines for all of its includers without the prefix."""
    code = without_bodies(re.sub(r"^#.*$", "", text, flags=re.M))
    names = [("tag", tag) for tag in ANY_TAG.findall(code)]
    last = {name: directive for directive, name in MACRO.findall(text)}
    names += [*declared(text), *made(text),
              *(("macro", name) for name, directive in last.items() if directive == "define")]
    names += [("enumerator", name) for name in LISTED.findall(text)]
    for body in ENUMERATORS.findall(code):
        flat = re.sub(r"=[^,]*", "", re.sub(r"\b\w+\(\w+\)", "", body))
        names += [("enumerator", name) for name in re.findall(r"\w+", flat)]
    prefixes = {"macro": ("QM_", "qm_", "H5_USE_"), "enumerator": "QM_"}
    yield from ((kind, name) for kind, name in names
                if not name.startswith(prefixes.get(kind, "qm_")) and not FOREIGN.fullmatch(name))


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
        for name in (n for kind, n in declared(text) if kind == "type" and n.startswith("qm_")):
            is_tag = name in (tag for _, tag in TAG.findall(text)) and \
                not re.search(rf"\btypedef\s+(?:struct|enum|union)\s+{name}\b", text)
            if tags.setdefault(name, path) != path or f"typedef {name}" in tags or is_tag:
                yield f"{path}:1: type {name} is defined in {tags[name]} too"
            tags[f"typedef {name}"] = path
        if path not in PARTS | PER_ISA | LETTERS:
            for kind, name in unprefixed(text):
                yield f"{path}:1: {kind} {name} of a header has no prefix qm_ or QM_"


def named(text):
    """Yields (kind, name) of the tags that a text defines and of its types of prefix qm_."""
    yield from TAG.findall(text)
    yield from (("type", name) for kind, name in declared(text)
                if kind == "type" and name.startswith("qm_"))


def check_sources():
    """Yields the tags and types that a source file gives a meaning of its own, and a header or
    another source file another one; the text that judged kernels are compiled with repeats some
    (.hpp)."""
    tags = {}
    for path in headers():
        with open(path, encoding="utf-8") as f:
            tags.update((name, path) for _, name in named(without_comments(f.read())))
    for top in ("core", "oracle", "experiments", "variants"):
        for path in sorted(p for end in ("c", "cu", "cpp", "hpp")
                           for p in glob.glob(f"{top}/**/*.{end}", recursive=True)):
            with open(path, encoding="utf-8") as f:
                for kind, tag in named(without_comments(f.read())):
                    other = tags.get(tag, path)
                    if not path.endswith(".hpp"):
                        tags.setdefault(tag, path)
                    if other != path:
                        yield f"{path}:1: {kind} {tag} is defined in {tags[tag]} too"


def compiled_alone(command):
    """What the compiler says of each header that it cannot compile without others before it."""
    def tried(path):
        run = subprocess.run([*command, "-x", "c", "-fsyntax-only", "-"], text=True,
                             input=f'#include "{path}"\n', capture_output=True, check=False)
        return f"{path}:1: does not compile alone\n{run.stderr}" if run.returncode else None
    paths = [p for p in headers() if p not in PARTS | PER_ISA]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return [wrong for wrong in pool.map(tried, paths) if wrong]


def main():
    if "--alone" in sys.argv:
        wrong = compiled_alone(sys.argv[sys.argv.index("--alone") + 1:])
        sys.exit("\n".join(wrong) if wrong else 0)
    paths = headers()
    errors = list(check(paths)) + list(check_sources())
    if errors:
        sys.exit("\n".join(errors + [f"check-headers: {len(errors)} errors"]))
    if "--list" in sys.argv:
        print("\n".join(p for p in paths if p not in PARTS | PER_ISA))


if __name__ == "__main__":
    main()
