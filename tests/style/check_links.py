"""check_links.py - Checks that texts and comments name files that are there.

    /usr/bin/python3 tests/style/check_links.py [--texts]

It looks at the links of every Markdown file, at the headings that their anchors name, at every path
of the tree that a comment or a text names ("core/quant/search.h"), at every file that a folder's
README quotes by a short name (`search.h`; in variants/ these are files of the packages), and at
every identifier that it quotes (`qm_encode`): some source must contain it.  One line per name that
is not there; exits 1 when there is any.  --texts prints instead the Markdown files and every
file that they link to, which an installed program has as well.
"""
import os
import re
import sys

PATH = re.compile(r"(?<![\w/.*{-])((?:core|variants|oracle|experiments|plots|tests)/[\w/.-]*\w\."
                  r"(?:c|h|cu|cpp|hpp|py|bats|md|yaml|css|js|sh|json|txt|svg|npy))(?![\w*{])")
# Names that stand for any file, files that a reader is asked to make, files of other projects, and
# the text of a stored column, which keeps the words that digests were made of.
MADE_UP = re.compile(r"NAME|XXX|(?<![a-z])mine(?![a-z])|valley|/x\.|/planted|test_X|"
                     r"test_functional|test_lion8b|"
                     r"oracle/theory.h$|step_recipe.h|yards.c|fused_adamw_kernel.cu|csrc/|"
                     r"cuda_runtime.h|adamw_kernel3|austen_b999|METRIC_q|HDF5_PLUGIN|"
                     r"loss_(momentum|sgdm)")


TREE = []  # what texts() yields


def texts():
    """Every source and text of the tree but what is built, by the file system."""
    for folder, folders, files in os.walk("."):
        folders[:] = sorted(d for d in folders if not d.startswith(".")
                            and d not in ("build", "bundle", "__pycache__"))
        yield from (os.path.relpath(os.path.join(folder, f)) for f in sorted(files)
                    if f.endswith((".md", ".c", ".h", ".cu", ".hpp", ".cpp", ".py", ".bats",
                                   ".bash", ".sh", ".yaml")))


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
    cuts = [i + 1 for i, c in enumerate(name) if c == "_"]
    return name in words or any(name[:i] in words and name[i:] in words for i in cuts)


def is_file(name):
    """Whether a short name is the end of a file's path."""
    return os.path.exists(name) or any(("/" + path).endswith("/" + name) for path in TREE)


LINK = re.compile(r"\]\(([^)#:]+)[)#]")


def linked():
    """The Markdown files of the tree, and the files that they link to."""
    found = set()
    for path in texts():
        if path.endswith(".md"):
            with open(path, encoding="utf-8") as f:
                links = [os.path.normpath(os.path.join(os.path.dirname(path), m))
                         for m in LINK.findall(f.read())]
            found.update([path, *filter(os.path.isfile, links)])
    return sorted(found)


def main():
    if "--texts" in sys.argv:
        print("\n".join(linked()))
        return
    TREE.extend(texts())
    missing, looked_at = [], 0
    words = set()
    for path in texts():
        if not path.endswith(".md"):
            words.add(os.path.splitext(os.path.basename(path))[0])
            with open(path, encoding="utf-8") as f:
                words.update(re.findall(r"\w+", f.read()))
    for path in texts():
        with open(path, encoding="utf-8") as f:
            text = f.read()
        wanted = [(m.start(), m.group(1)) for m in PATH.finditer(text)]
        if path.endswith(".md"):
            wanted += [(m.start(), os.path.join(os.path.dirname(path), m.group(1)))
                       for m in LINK.finditer(text)]
            for m in re.finditer(r"\]\(([^)#:]*)#([^)]+)\)", text):
                of = os.path.join(os.path.dirname(path), m.group(1)) if m.group(1) else path
                looked_at += 1
                if of.endswith(".md") and os.path.exists(of) and m.group(2) not in headings(of):
                    missing.append(f"{path}:{text.count(chr(10), 0, m.start()) + 1}: {of} has no "
                                   f"heading #{m.group(2)}")
        if path.endswith("README.md") and not re.match(r"tests/golden", path):
            for m in re.finditer(r"`((?:[\w-]+/)*[\w-]+\.(?:c|h|cu|cpp|hpp|py|bats))`", text):
                looked_at += 1
                if not MADE_UP.search(m.group(1)) and not is_file(m.group(1)) and \
                        not path.startswith("variants"):  # which names files of the packages
                    missing.append(f"{path}:{text.count(chr(10), 0, m.start()) + 1}: no file "
                                   + m.group(1))
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
