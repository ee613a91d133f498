"""glossary_words.py - Names the words of the glossary that stand nowhere else in the tree.

Usage: glossary_words.py ROOT [FILE]   (FILE: the text with the glossary, experiments/README.md)

A word of letters, digits and _ stands where it is one whole word, another one where its parts stand
in a row, with blanks, line ends, signs of comments or _ between them.
"""
import os
import re
import sys

DATA = (".h5", ".npz", ".zip", ".png", ".safetensors", ".o", ".a", ".so")


def texts(root):
    """Every file of the tree but what is built, as a text; checkpoints name options of packages."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(d for d in folders if not d.startswith(".")
                            and d not in ("build", "bundle", "__pycache__"))
        for path in (os.path.join(folder, f) for f in sorted(files) if not f.endswith(DATA)):
            if not os.path.islink(path) and os.path.getsize(path) < 1 << 22:
                with open(path, encoding="utf-8", errors="replace") as f:
                    yield path, f.read()


def parted(text):
    return re.sub(r"[\s*/#\"'_+-]+", " ", text.lower())


def main():
    root = sys.argv[1]
    readme = os.path.realpath((sys.argv[2:] or [root + "/experiments/README.md"])[0])
    with open(readme, encoding="utf-8") as f:
        before, glossary = f.read().split("\n## Glossary\n")
    rows = re.findall(r"^\| (?!word \|)([^|]*?) \| ", glossary.replace("\\|", "!"), re.M)
    words = {w.split("(")[0].strip() for row in rows for w in row.split(",")} - {""}
    assert len(words) > 500, len(words)
    own = {readme, os.path.realpath(root + "/experiments/README.md"), os.path.realpath(__file__)}
    held = [before] + [text for path, text in texts(root) if os.path.realpath(path) not in own]
    whole = {w.lower() for text in held for w in re.findall(r"\w+", text)}
    in_a_row = " ".join(map(parted, held))
    stale = [w for w in sorted(words) if w.lower() not in whole
             and (re.fullmatch(r"\w+", w, re.A) or parted(w).strip() not in in_a_row)]
    sys.exit("stand nowhere but in the glossary: " + ", ".join(stale) if stale else 0)


if __name__ == "__main__":
    main()
