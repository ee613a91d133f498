"""check_commands.py - Checks that commands, options and make targets that the texts name exist.

    /usr/bin/python3 tests/style/check_commands.py [FILE.md...]      (default: every text)

Looked at are spans in backticks and indented lines: what stands behind `qualm` or `./qualm` is a
command of the program, and each --option behind it, up to a pipe, one of that command or of all;
what stands behind `make` is a target or VARIABLE=.  QUALM names another program.  It prints one
line per name that is unknown and exits 1 when there is any.
"""
import os
import re
import subprocess
import sys

QUALM = os.environ.get("QUALM", "./qualm")
SPAN = re.compile(r"`([^`\n]+)`|^ {4,}(.+)$", re.M)
CALL = re.compile(r"(?:^|[\s(;&|$])(?:\./)?qualm ([a-z][a-z-]*)\b([^|;&#\n]*)")
MAKE = re.compile(r"(?:^|[;&(] ?|\$ )make((?: +[A-Za-z][\w-]*(?:=(?:\"[^\"]*\"|\S*))?(?![\w/.]))+)")


def texts():
    for folder, folders, files in os.walk("."):
        folders[:] = [d for d in folders if not d.startswith(".") and d not in ("build", "bundle")]
        yield from (os.path.relpath(os.path.join(folder, f)) for f in files if f.endswith(".md"))


def printed(*words):
    return subprocess.run([QUALM, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False).stdout


def main():
    commands = set(re.findall(r"^  ([a-z][a-z-]*)\b", printed("--help"), re.M))
    with open("Makefile", encoding="utf-8") as f:
        targets = set(re.findall(r"^([a-z][a-z-]*)(?= *:|(?: [a-z-]+)* *:)", f.read(), re.M))
    options, unknown = {}, 0
    for path in sorted(sys.argv[1:] or texts()):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for span in SPAN.finditer(text):
            line, code = text.count("\n", 0, span.start()) + 1, span[1] or span[2]
            wrong = [f"no target of make is '{word}'" for call in MAKE.finditer(code)
                     for word in re.sub(r'"[^"]*"', "", call[1]).split()
                     if "=" not in word and word not in targets]
            for command, rest in CALL.findall(code):
                if command not in commands:
                    wrong.append(f"no command is 'qualm {command}'")
                    continue
                if command not in options:
                    options[command] = set(re.findall(r"--[a-z][\w-]*", printed(command, "--help")))
                wrong += [f"'qualm {command}' has no {word}"
                          for word in re.findall(r"(?<!\S)--[a-z][\w-]*", rest)
                          if word not in options[command]]
            for what in wrong:
                print(f"{path}:{line}: {what}")
                unknown += 1
    print(f"check-commands: {unknown} unknown")
    return unknown > 0


if __name__ == "__main__":
    sys.exit(main())
