"""check_packs.py - Checks that calls of json_pack have as many values as their formats ask for.

    /usr/bin/python3 tests/style/check_packs.py FILE.c...

The compiler does not: a missing value is read from nowhere.  It prints one line per violation and
exits 1 when there is any, or when no call was found.
"""
import re
import sys


def arguments(text, at):
    """The arguments of the call whose opening bracket is before `at`."""
    depth, quoted, found, start = 0, False, [], at
    while True:
        c = text[at]
        if quoted:
            at += c == "\\"
            quoted = c != '"'
        elif c == '"':
            quoted = True
        elif c in "([{":
            depth += 1
        elif c in ")]}" and depth:
            depth -= 1
        elif c == ")":
            return found + [text[start:at]]
        elif c == "," and not depth:
            found.append(text[start:at])
            start = at + 1
        at += 1


def main():
    calls, bad = 0, 0
    for path in sys.argv[1:]:
        with open(path) as f:
            text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
        for call in re.finditer(r"\bjson_pack\(", text):
            form, *values = arguments(text, call.end())
            form = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', form))
            asked = len(re.findall("[soObifI#%]", form))
            calls += 1
            if not form or asked != len(values):
                bad += 1
                print(f"{path}: json_pack \"{form}\" has {len(values)} values, expected {asked}")
    sys.exit(bad > 0 or calls == 0)


main()
