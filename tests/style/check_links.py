"""check_links.py - Checks that texts and comments name files that are there.

    /usr/bin/python3 tests/style/check_links.py [--texts]

It looks at the links of every Markdown file ([text](name), [text][name], src=, href=), at the
calls NAME() and the identifiers of qm_ and QM_ in comments of C, at the headings that their anchors
name, at every path of the tree that a comment or a text names ("core/quant/search.h", with an
anchor or {a,b} as well), at every file that a folder's README quotes by a short name (`search.h`,
`../base/name.h`; in variants/ these are files of the packages), at the folders in the first cells
of its tables, at every identifier that it quotes (`qm_encode`) and at those of qm_ and QM_ within
any quotation of a Markdown file: some source must contain it.  Folders that running text names are
not looked at, nor files in folders whose names begin with a dot.  Result files (.h5 of results/)
are what a reader makes, and are not looked at.  One line per name that is not there; exits 1 when
there is any.
--texts prints instead the Markdown files and every file that they link to, which an installed
program has as well.
"""
import os
import re
import sys

PATH = re.compile(r"(?<![\w/.*{-])(?:\.\./)*"
                  r"((?:(?:core|variants|oracle|experiments|plots|tests)/[\w/.-]*\w\."
                  r"(?:c|h|cu|cpp|hpp|py|bats|bash|md|yaml|yml|css|js|sh|json|txt|svg|npy|npz|h5|zip)|"
                  r"results/[\w/.-]*\w\.md))(?![\w*{])(?:#([\w-]+))?")
CHOICE = re.compile(r"([\w/.-]+/[\w.-]*)\{([\w.,-]+,[\w.,-]+)\}([\w.-]*)")  # a/{b,c}.h
LINK = re.compile(r'(?:\]\(\s*|^\[[^\]\n]+\]: +|\b(?:src|href)=["\'])<?([^)#:\s"\'>]*)'
                  r'(?:#([^)\s"\'>]+))?(?=[)\s"\'>])', re.M)
QUOTED = re.compile(r"```.*?```|`[^`\n]*`|^    [^\n]*$", re.S | re.M)  # of Markdown
REFERENCE = re.compile(r"\[([^\]\[\n]+)\]\[([^\]\n]*)\]")  # [text][name], [name][]
CALL = re.compile(r"(?<![\w.>])([A-Za-z_]\w*)\(\)")
FILE = re.compile(r"`((?:(?:\.\.|[\w-]+)/)*[\w-]+\."
                  r"(?:c|h|cu|cpp|hpp|py|bats|bash|sh|yaml|yml|css|js|json|txt|md|svg|npz))`")
ROW = re.compile(r"^\| `[^|\n]*", re.M)  # its first cell
FOLDER = re.compile(r"`((?:[\w.-]+/)+)`")
IDENTIFIER = re.compile(r"`([A-Za-z]\w*_\w+)(?:\(\))?`")
QM_NAME = re.compile(r"\b(?:qm|QM)_\w+(?<!_)\b")
COMMENT = re.compile(r"""'(?:\\.|[^'\\\n])'|"""  # a character, which may be a quotation mark
                     r'"(?:\\.|[^"\\\n])*"|(/\*.*?\*/|//[^\n]*)', re.S)
C_LIKE = (".c", ".h", ".cu", ".cpp", ".hpp")

# Names that stand for any file, files that a reader is asked to make or the program makes, files of
# other projects, and the text of a stored column, which keeps the words that digests were made of.
MADE_UP = re.compile(r"NAME|XXX|(?<![a-z])mine(?![a-z])|valley|/x\.|test_X|"
                     r"/planted(_[a-z]|_through)?\.|test_functional|test_lion8b|"
                     r"oracle/theory\.h |suite\.yaml|side-by-side|step_recipe.h|yards.c|"
                     r"fused_adamw_kernel.cu|csrc/|"
                     r"cuda_runtime.h|adamw_kernel3|austen_b999|METRIC_q|HDF5_PLUGIN|"
                     r"loss_(momentum|sgdm)|(campaign|figures)\.json|file nvidia-h200-all-")


TREE = []  # what files() yields
CALLED = set()  # words of scripts, for the calls that comments of C name
TEXTS = (".md", ".c", ".h", ".cu", ".hpp", ".cpp", ".py", ".bats", ".bash", ".sh", ".yaml", ".yml",
         ".js", ".css", ".txt", "Makefile")


def files():
    """Every file of the tree but what is built, by the file system."""
    for folder, folders, names in os.walk("."):
        folders[:] = sorted(d for d in folders if not d.startswith(".")
                            and d not in ("build", "bundle", "__pycache__"))
        yield from (os.path.relpath(os.path.join(folder, f)) for f in sorted(names))


def texts():
    """Every source and text of the tree."""
    return (path for path in files() if path.endswith(TEXTS))


def headings(path):
    """The anchors of a Markdown file's headings: small letters, hyphens, no other signs."""
    found, fenced = {}, False
    with open(path, encoding="utf-8") as f:
        for line in f:
            fenced ^= line.startswith("```")
            m = re.match(r"#{1,6} +(.*)", line)
            if m and not fenced:
                plain = re.sub(r"\]\([^)]*\)", "", m.group(1)).strip().lower()
                name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
                again = found.get(name, 0)
                found[name] = again + 1
                if again:
                    found[f"{name}-{again}"] = 1
    return found


def is_word(name, words):
    """Whether the sources contain the name, or the two parts that a macro pastes together."""
    cuts = [i + 1 for i, c in enumerate(name) if c == "_" and i > 2]
    return name in words or any({name[:i], name[i:]} <= words for i in cuts)


def is_file(name):
    """Whether a short name is the end of a file's path."""
    return os.path.exists(name) or any(("/" + path).endswith("/" + name) for path in TREE)


def linked():
    """The Markdown files of the tree, and the files that they link to."""
    found = set()
    for path in texts():
        if path.endswith(".md"):
            with open(path, encoding="utf-8") as f:
                links = [os.path.normpath(os.path.join(os.path.dirname(path), name))
                         for name, _ in LINK.findall(f.read())]
            found.update([path, *filter(os.path.isfile, links)])
    return sorted(found)


def is_heading(path, anchor):
    return not anchor or not path.endswith(".md") or anchor in headings(path)


def named(path, text, words, code):
    """(place in the text, what is wrong, whether it is) of each name in a text."""
    folder = os.path.dirname(path)
    found = [(m, m[1]) for m in PATH.finditer(text)]
    if path.endswith(".md"):
        found += [(m, os.path.join(folder, m[1]) if m[1] else path) for m in LINK.finditer(text)]
        plain = QUOTED.sub(lambda m: " " * len(m[0]), text)
        for m in REFERENCE.finditer(plain):
            name = m[2] or m[1]
            is_missing = not re.search(rf"^ {{0,3}}\[{re.escape(name)}\]:", plain, re.M | re.I)
            yield m.start(), f"no link is [{name}]", is_missing
        for m in re.finditer(r"`[^`\n]+`", text):
            yield from ((m.start(), f"no code has {name}", not is_word(name, code))
                        for name in QM_NAME.findall(m[0]))
    if path.endswith(C_LIKE):
        for m in filter(lambda m: m[1], COMMENT.finditer(text)):
            yield from ((m.start(), f"no code has {name}", not is_word(name, code))
                        for name in QM_NAME.findall(m[1]))
            yield from ((m.start(), f"no code has {name}()",
                         not is_word(name, code) and name not in CALLED)
                        for name in CALL.findall(m[1]))
    for m, name in found:
        is_there = os.path.exists(name)
        yield m.start(), f"{name} is not there", not is_there
        if is_there:
            yield m.start(), f"{name} has no heading #{m[2]}", not is_heading(name, m[2])
    if path.endswith("README.md") and not path.startswith("tests/golden"):
        for m in FILE.finditer(text):  # variants/ names files of the packages
            name = os.path.normpath(os.path.join(folder, m[1])) if m[1][0] == "." else m[1]
            is_missing = not is_file(name) and not path.startswith("variants")
            yield m.start(), f"no file {m[1]}", is_missing
        for m in IDENTIFIER.finditer(text):
            yield m.start(), f"no source has {m[1]}", not is_word(m[1], words)
        for row in ROW.finditer(text):
            for name in FOLDER.findall(row[0]):
                is_missing = not any(os.path.isdir(os.path.join(d, name)) for d in (folder, "."))
                yield row.start(), f"no folder {name}", is_missing


def main():
    if "--texts" in sys.argv:
        print("\n".join(linked()))
        return
    TREE.extend(files())
    missing, looked_at, words, code, held = [], 0, set(), set(), {}
    for path in filter(lambda path: path.endswith(TEXTS), TREE):
        with open(path, encoding="utf-8") as f:
            text = held[path] = f.read()
        if not path.endswith(".md"):
            stem, is_c = os.path.splitext(os.path.basename(path))[0], path.endswith(C_LIKE)
            words.update([stem, *re.findall(r"\w+", text)])
            stated = COMMENT.sub(lambda m: " " if m[1] else m[0], text) if is_c else text
            plain = COMMENT.sub(" ", text) if is_c else ""
            CALLED.update(() if is_c or path.endswith(".txt") else re.findall(r"\w+", text))
            code.update([stem, *QM_NAME.findall(stated), *re.findall(r"\w+", plain)])
    for path, text in held.items():
        text = CHOICE.sub(lambda m: " ".join(m[1] + x + m[3] for x in m[2].split(",")), text)
        for at, wrong, is_missing in named(path, text, words, code):
            looked_at += 1
            if is_missing and not MADE_UP.search(wrong):
                missing.append(f"{path}:{text.count(chr(10), 0, at) + 1}: {wrong}")
    print("\n".join(missing + [f"check-links: {looked_at} names, {len(missing)} missing"]))
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
