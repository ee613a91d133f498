"""check_style.py - Checks the limits of the house style: sizes of lines, functions and files.

    /usr/bin/python3 tests/style/check_style.py [FILE...]      (default: every source)

It prints one line per violation and exits 1 when there is any.  The limits:

    a line          100 columns, a backslash at its end apart and a tab as 8; tables may be wider:
                    initialiser rows, rows of list macros, strings, in C and Python; in bash and
                    bats strings of 40 columns and more, which hold other languages, do not count
    a function      80 lines from its brace (Python: its def) to its end, a macro's, too; 8
                    parameters, of a prototype, a type of function and a lambda, too
    a file          600 lines; step.cu may be longer, because it is one kernel's text
    a bats test     no line "! COMMAND" alone, which cannot fail it: "! COMMAND || return 1"
    line 1          "/* name.c - Purpose ..." with the file's own name; after "#!" of scripts
                    "# name.sh - Purpose ...", of Python the docstring "name.py - Purpose ..."
"""
import ast
import os
import re
import sys

LINE, FUNCTION, PARAMETERS, FILE = 100, 80, 8, 600
LONG_FILES = {"core/device/step.cu"}
C_LIKE = (".c", ".h", ".cu", ".cpp", ".hpp")
CHECKED = C_LIKE + (".py", ".bats", ".bash", ".sh")


def sources():
    """Every source of the tree but what is built, by the file system: no git is needed."""
    for folder, folders, files in os.walk("."):
        folders[:] = sorted(d for d in folders if not d.startswith(".")
                            and d not in ("build", "bundle", "__pycache__"))
        yield from (os.path.relpath(os.path.join(folder, f)) for f in sorted(files)
                    if f.endswith(CHECKED))


def is_table_row(line):
    """Whether a long line is one row of a table, which would be harder to read when wrapped: it has
    no statement outside of its strings."""
    return ROW.match(line) is not None and ";" not in BLANK.sub("", line)


def count_parameters(text):
    """The number of parameters in TEXT, what stands between the outer parentheses."""
    depth, count = 0, 1
    for c in text:
        depth += c in "([{"
        depth -= c in ")]}"
        count += c == "," and depth == 0
    return count if text.strip() not in ("", "void") else 0


ROW = re.compile(r'\s*(X\(|\{(?! *(?:return|if|for|while|switch|do)\b)|"(?!"")|\.\w+ = |I\('
                 r'|\[\w+\] = )')

LONG_STRING = re.compile(r"""'[^']{40,}'|"(?:\\.|[^"\\]){40,}\"""")

# A comment, a string or a character, a line of the preprocessor with those that continue it.
BLANK = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
                   r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.S | re.M)
OUTER = re.compile(r"\b(?:namespace|extern)\b[^()=]*$|^[^()=]*\b(?:class|struct|union)\b[^()=]*$")

VALUE = re.compile(r"=\s*(?:\([^()]*\))?$|\b(?:struct|enum|union)\b[^()]*$")


def functions(path, text):
    """(name, first line, last line, parameters) of each function; (None, line, ...) of a brace
    outside of functions that is of none of a function, a type, an initialiser or a namespace."""
    text = BLANK.sub(lambda m: '""' + re.sub(r"[^\n]", "", m[0]), text)
    inside, start, first, is_cpp = [], 0, 0, path.endswith((".cpp", ".hpp", ".cu"))
    for m in re.finditer(r"[{};]", text):
        at, head = m.start(), text[start:m.start()].replace('""', " ").strip()
        if m[0] == "{":
            kind = "inner" if inside and inside[-1] != "outer" else \
                "outer" if OUTER.search(head) and (is_cpp or head.startswith("extern")) else \
                "inner" if VALUE.search(head) or (is_cpp and "(" not in head) else "function"
            if kind == "function":
                first = at
                found = function_of(head)
                if not found:
                    yield None, text.count("\n", 0, at) + 1, 0, 0
            inside.append(kind)
        elif m[0] == "}" and inside and inside.pop() == "function" and found:
            yield found[0], text.count("\n", 0, first) + 1, text.count("\n", 0, at) + 1, found[1]
        elif m[0] == ";" and (not inside or inside[-1] == "outer") and head.endswith(")"):
            line, declared = text.count("\n", 0, at) + 1, function_of(head)
            if declared and "=" not in head:
                yield declared[0], line, line, declared[1]
        if not inside or inside[-1] == "outer":
            start = at + 1
    if inside:
        yield None, text.count("\n") + 1, 0, 0


def macros(path, lines):
    """As functions, of a C file: those that the bodies of macros define."""
    first = None
    for i, line in enumerate(lines):
        if first is None and re.match(r"\s*#\s*define\b.*\\$", line):
            first = i + 1
        elif first is not None and not line.endswith("\\"):
            body = "\n".join(x.rstrip("\\") for x in lines[first:i + 1])
            yield from ((name, first + a, first + b, n) for name, a, b, n in functions(path, body)
                        if name)
            first = None


def function_of(head):
    """(name, parameters) of the function whose definition begins with HEAD, or None."""
    head = re.sub(r"\)\s*:\s.*$", ")", head, flags=re.S)  # a constructor's members
    end, depth = head.rfind(")"), 0
    for at in range(end, -1, -1):
        depth += (head[at] == ")") - (head[at] == "(")
        if depth == 0:
            name = re.search(r"(\w+|operator\W+)\s*(?:\([^()]*\)\s*)?$", head[:at])
            return (name[1], count_parameters(head[at + 1:end])) if name else None
    return None


def check(path):
    with open(path, encoding="utf-8") as f:
        lines = f.read().removesuffix("\n").split("\n")
    if len(lines) > FILE and path not in LONG_FILES:
        yield f"{path}:1: {len(lines)} lines, at most {FILE}"
    for i, line in enumerate(lines, 1):
        line = line.expandtabs(8)
        if not path.endswith(".py"):  # backslashes stand in one column beyond the text
            line = line.rstrip("\\").rstrip()
        if not path.endswith(C_LIKE + (".py",)):
            line = LONG_STRING.sub('""', line)
        if len(line) > LINE and not (path.endswith(C_LIKE + (".py",)) and is_table_row(line)):
            yield f"{path}:{i}: {len(line)} columns, at most {LINE}"
    yield from check_line_1(path, lines)
    if path.endswith(".bats"):
        yield from check_negations(path, lines)
    text = "\n".join(lines)
    found = [*functions(path, text), *macros(path, lines)] if path.endswith(C_LIKE) else \
        python_functions(text) if path.endswith(".py") else bash_functions(lines)
    for function, first, last, parameters in found:
        if function is None:
            yield f"{path}:{first}: a brace of no function, type or initialiser known here"
        if last - first + 1 > FUNCTION:
            yield f"{path}:{first}: {function} has {last - first + 1} lines, at most {FUNCTION}"
        if parameters > PARAMETERS:
            yield f"{path}:{first}: {function} has {parameters} parameters, at most {PARAMETERS}"


def bash_functions(lines):
    """As functions, of a bash or bats file: from NAME() {, function NAME { or @test "..." { to the
    brace in the same column, which may open on the next line; what a here-document holds is a part
    of it."""
    name = None
    for i, line in enumerate(lines, 1):
        m = re.match(r"""(\s*)(?:(?:function +)?([\w-]+) *\(\)|function +([\w-]+)"""
                     r"""|@test (["'].*["'])) *(?:([{(]).*)?$""", line)
        if m and m[5] and re.search(r"[})]\s*(#.*)?$", line):  # ends on its first line
            m = None
        if m and not m[5] and not re.match(m[1] + "[{(]$", (lines + [""])[i]):
            m = None
        if m and name is None:
            name, first, end = m[2] or m[3] or m[4], i, (m[1] + "}", m[1] + ")")
        elif name is not None and line in end:
            yield name, first, i, 0
            name = None


def python_functions(text):
    """As functions, of a Python file; self is a parameter.  A function of a single return statement
    may be of any length."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            a = node.args
            count = len(a.posonlyargs + a.args + a.kwonlyargs) + bool(a.vararg) + bool(a.kwarg)
            is_lambda = isinstance(node, ast.Lambda)
            is_table = is_lambda or (len(node.body) == 1 and isinstance(node.body[0], ast.Return))
            yield ("lambda" if is_lambda else node.name, node.lineno,
                   node.lineno if is_table else node.end_lineno, count)


def joined(lines):
    """The lines, each with those that a backslash at its end continues; "" for those."""
    for i, line in enumerate(lines):
        if i > 0 and lines[i - 1].endswith("\\"):
            yield ""
            continue
        while line.endswith("\\") and i + 1 < len(lines):
            i += 1
            line = line[:-1] + lines[i]
        yield line


def check_negations(path, lines):
    """bash lets "! COMMAND" fail without an end of the test, unless it is the test's last line."""
    goes_on = ("|| return 1", "||", "&&", "; then")
    lines = list(joined(lines))
    for i, line in enumerate(lines, 1):
        if re.match(r"\s*(?:(?:do|then|else) +)?! ", line) and not line.endswith(goes_on):
            yield f"{path}:{i}: '! ...' alone cannot fail a test, expected || return 1 behind it"


def check_line_1(path, lines):
    mark = "/* " if path.endswith(C_LIKE) else '"""' if path.endswith(".py") else "# "
    at = 1 if lines[0].startswith("#!") and mark != "/* " and len(lines) > 1 else 0
    start = f"{mark}{os.path.basename(path)} - "
    if not re.match(re.escape(start) + r"\S", lines[at]):
        yield f'{path}:{at + 1}: line 1 is "{lines[at][:50]}", expected "{start}Purpose ..."'


def main():
    found = [line for path in (sys.argv[1:] or sources()) for line in check(path)]
    print("\n".join(found + [f"check-style: {len(found)} violations"]))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
