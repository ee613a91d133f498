"""check_links.py - Checks that texts and comments name files that are there.

    /usr/bin/python3 tests/style/check_links.py

It looks at the links of every Markdown file, at every path of the tree that a comment or a text
names ("core/quant/search.h"), and at every identifier that a folder's README quotes (`qm_encode`):
some source must contain it.  One line per name that is not there; exits 1 when there is any.
"""
import os
import re
import sys

PATH = re.compile(r"(?<![\w/.*{-])((?:core|variants|oracle|experiments|plots|tests)/[\w/.-]*\w\."
                  r"(?:c|h|cu|cpp|hpp|py|bats|md|yaml|css|js))(?![\w*{])")
# Names that stand for any file, files that a reader is asked to make, files of other projects, and
# the text of a stored column, which keeps the words that digests were made of.
MADE_UP = re.compile(r"NAME|XXX|mine|valley|/x\.|planted|test_X|nosuch|test_functional|test_lion8b|"
                     r"oracle/theory.h$")


def texts():
    """Every source and text of the tree but what is built, by the file system."""
    for folder, folders, files in os.walk("."):
        folders[:] = sorted(d for d in folders if not d.startswith(".")
                            and d not in ("build", "bundle", "__pycache__"))
        yield from (os.path.relpath(os.path.join(folder, f)) for f in sorted(files)
                    if f.endswith((".md", ".c", ".h", ".cu", ".hpp", ".cpp", ".py", ".bats",
                                   ".bash", ".sh", ".yaml")))


def is_word(name, words):
    """Whether the sources contain the name, or the two parts that a macro pastes together."""
    cuts = [i + 1 for i, c in enumerate(name) if c == "_"]
    return name in words or any(name[:i] in words and name[i:] in words for i in cuts)


def main():
    missing, looked_at = [], 0
    words = set()
    for path in texts():
        if not path.endswith(".md"):
            with open(path, encoding="utf-8") as f:
                words.update(re.findall(r"\w+", f.read()))
    for path in texts():
        with open(path, encoding="utf-8") as f:
            text = f.read()
        wanted = [(m.start(), m.group(1)) for m in PATH.finditer(text)]
        if path.endswith(".md"):
            wanted += [(m.start(), os.path.join(os.path.dirname(path), m.group(1)))
                       for m in re.finditer(r"\]\(([^)#:]+)[)#]", text)]
        if re.fullmatch(r"(core|oracle|experiments|variants|tests|plots)/README.md", path):
            for m in re.finditer(r"`([A-Za-z]\w*_\w+)(?:\(\))?`", text):
                looked_at += 1
                if not is_word(m.group(1), words) and not MADE_UP.search(m.group(1)):
                    missing.append(f"{path}:{text.count(chr(10), 0, m.start()) + 1}: no source has "
                                   + m.group(1))
        for at, name in wanted:
            looked_at += 1
            if not MADE_UP.search(name) and not os.path.exists(name):
                missing.append(f"{path}:{text.count(chr(10), 0, at) + 1}: {name} is not there")
    print("\n".join(missing + [f"check-links: {looked_at} names, {len(missing)} missing"]))
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
