"""run_readme.py - Runs the commands of a Markdown file as a reader would paste them.

    /usr/bin/python3 tests/style/run_readme.py README.md [--list]

Every indented block that calls ./qualm is run, in order, by bash in a new folder that holds a link
to each entry of the tree, so that no other test sees the files that the commands write.  Lines
of a block that begin with "$ " are commands and those that follow are what they print, on stdout
and stderr together; "..." stands for any number of lines, at the end of a line for the rest of it.
A block without "$ " is a script, whose commands end with exit code 0, or with N where "exit code N"
stands behind the command's #.  `make` is left out.  What the commands write is removed, in results/
as well.  Exits 1 at the first command that does something else.
"""
import os
import re
import subprocess
import sys
import tempfile


def blocks(path):
    """The indented blocks, each a list of lines."""
    found, block = [], []
    with open(path, encoding="utf-8") as f:
        for line in [*f.read().split("\n"), "."]:
            if line.startswith("    ") or (block and not line.strip()):
                block.append(line[4:])
            elif block:
                while not block[-1].strip():
                    block.pop()
                found.append(block)
                block = []
    return [b for b in found if any("./qualm " in line for line in b)]


def pattern(lines):
    """A regular expression of the lines shown."""
    parts = []
    for line in lines:
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        elif line.endswith(" ..."):
            parts.append(re.escape(line[:-4]) + r".*\n")
        else:
            parts.append(re.escape(line.rstrip()) + r"\s*\n")
    return re.compile("".join(parts), re.M)


def shown(block):
    """(command, lines printed) of a block with "$ "."""
    out = []
    for line in block:
        if line.startswith("$ "):
            out.append((line[2:], []))
        else:
            out[-1][1].append(line)
    return out


def bash(text):
    return subprocess.run(["bash", "-c", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)


def fail(where, want, run):
    print(f"{where}\nexpected {want}; exit code {run.returncode}, printed\n{run.stdout}")
    sys.exit(1)


def run_shown(command, lines):
    run = bash(command)
    if not pattern(lines).search(run.stdout):
        fail(f"$ {command}", "\n".join(lines), run)


def run_script(block):
    """Runs the commands of a block one after the other; a here-document is one command."""
    command, end = "", None
    for line in block:
        command += line + "\n"
        if end is None and (m := re.search(r"<<'(\w+)'", line)):
            end = m.group(1)
        if end is not None and line != end:
            continue
        end = None
        m = re.search(r"#.*exit code (\d+)", command)
        want, run = int(m.group(1)) if m else 0, bash(command)
        if run.returncode != want:
            fail(command, f"exit code {want}", run)
        command = ""


def status():
    return bash("git status --porcelain --ignored").stdout.splitlines()


def run_all(path):
    count = 0
    for block in blocks(path):
        if "--list" in sys.argv:
            print("\n".join(block) + "\n")
        elif block[0].startswith("$ "):
            for command, lines in shown(block):
                run_shown(command, lines)
                count += 1
        else:
            run_script([line for line in block if not line.startswith("make ")])
            count += 1
    print(f"run_readme: {path}: {count} blocks and commands do what they say")


def main():
    root, path = os.getcwd(), os.path.abspath(sys.argv[1])
    before = status()
    with tempfile.TemporaryDirectory() as scratch:
        for entry in os.listdir(root):
            os.symlink(os.path.join(root, entry), os.path.join(scratch, entry))
        try:
            os.chdir(scratch)
            run_all(path)
        finally:
            os.chdir(root)
            for line in set(status()) - set(before):
                if line[:3] in ("?? ", "!! ") and line[3:].startswith("results/"):
                    if not line.endswith("/"):
                        os.remove(line[3:])


main()
