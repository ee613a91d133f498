"""check_style.py - Checks the limits of the house style: sizes of lines, functions and files.

    /usr/bin/python3 tests/style/check_style.py [FILE...]      (default: every source)

It prints one line per violation and exits 1 when there is any.  The limits:

    a line          100 columns, a backslash at its end apart and a tab as 8; tables may be wider:
                    initialiser rows, rows of list macros, strings, in C and Python, with the
                    comments behind them; in bash and bats strings of 40 columns and more, which
                    hold other languages, do not count, but for comments; no blank at its end
    a function      80 lines from its brace (Python: its def) to its end, a macro's, a macro of
                    statements and a lambda outside of functions, too; 8 parameters, of a prototype,
                    a type of function, a pointer to one and a lambda, too; those of a macro are not
                    counted, since a row of a list macro has as many as the table has columns
    a file          600 lines; step.cu may be longer, because it is one kernel's text; its last line
                    ends
    a bats test     no command "! COMMAND" alone, which cannot fail it: "! COMMAND || return 1"; nor
                    in what tests load, "f() { ! COMMAND; }" included
    line 1          "/* name.c - Purpose ..." with the file's own name; after "#!" of scripts
                    "# name.sh - Purpose ...", of Python the docstring "name.py - Purpose ..."

Of a page's scripts and styles (.js, .css) lines and files are looked at, functions are not.
Folders whose names begin with a dot and scripts without an ending (.ci/run) are not looked at.
"""
import ast
import os
import re
import sys

LINE, FUNCTION, PARAMETERS, FILE = 100, 80, 8, 600
LONG_FILES = {"core/device/step.cu"}
C_LIKE = (".c", ".h", ".cu", ".cpp", ".hpp")
BASH = (".bats", ".bash", ".sh")
CHECKED = C_LIKE + (".py", ".js", ".css") + BASH


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


ROW = re.compile(r'\s*(X\(|\{(?! *(?:return|if|for|while|switch|do)\b)|[fr]?"(?!"")|\.\w+ = |I\('
                 r'|\[\w+\] = |\([fr]?".*\),?$)')

LONG_STRING = re.compile(r"""'[^']{40,}'|"(?:\\.|[^"\\]){40,}\"""")

COMMENT = re.compile(r"\s*(?:# |//)")  # of a script: a line that is one

# What holds no command of bash.
QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\s#.*$|\[\[ .*? \]\]""")

# A comment, a string or a character; or a line of the preprocessor with those that continue it.
TEXT = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.S)
BLANK = re.compile(TEXT.pattern + r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.S | re.M)
# A parameter, whose parentheses and brackets are "[" alone: a type, mostly in front of a name.
PARAMETER = re.compile(r"\s*(?:\.\.\.|unsigned|int|long|short|char|float|double|bool|\w+_t|qm_\w+|"
                       r"(?:[\w:]+(?:<[^<>]*>)?[\s*&]+)+[\w#]*\s*(?:[\[=].*)?)\s*", re.S)
OUTER = re.compile(r"\b(?:namespace|extern)\b[^()=]*$|^[^()=]*\b(?:class|struct|union)\b[^()=]*$")

# What a head may have in front of its name or of its braces, and hides neither.
HEAD = re.compile(r"\b(?:alignas|_Alignas)\s*\([^()]*\)|\btemplate\s*<[^<>]*>")
# A second branch of the preprocessor.
BRANCH = re.compile(r"(?<=\n)[ \t]*#[ \t]*(?:else|elif)\b(?:(?!\n[ \t]*#[ \t]*if).)*?"
                    r"(?=\n[ \t]*#[ \t]*(?:else|elif|endif)\b)", re.S)
# A lambda that is a variable's value: its name.
LAMBDA = re.compile(r"(\w+)\s*=\s*\[[^\]]*\]\s*(?:\([^{}]*\))?[^(){}=;]*$")
VALUE = re.compile(r"=\s*(?:\([^()]*\))?$|\b(?:struct|enum|union)\b[^()]*$")


def blanked(pattern, text):
    """TEXT with "" and as many lines for what PATTERN matches, a blank for a comment."""
    return pattern.sub(lambda m: (" " if m[0][0] == "/" else '""') + "\n" * m[0].count("\n"), text)


def without_braces(m):
    """The lines of a second branch, empty where it opens or closes braces that the first one does
    as well."""
    return m[0] if m[0].count("{") == m[0].count("}") else re.sub(r"[^\n]", "", m[0])


def parameter_lists(text):
    """(name, line, parameters) of what has too many of them: functions, prototypes, lambdas and
    pointers to functions, wherever they stand.  It is told by its parentheses alone, which hold a
    parameter between any two commas."""
    text = blanked(TEXT, text).replace("\\\n", " \n")
    opened = []
    for m in re.finditer(r"[()]", text):
        if m[0] == "(":
            opened.append(m.end())
        elif opened:
            at = opened.pop()
            flat, held = text[at:m.start()], 1
            while held:
                flat, held = re.subn(r"[(\[{][^()\[\]{}]*[)\]}]", "[", flat)
            parts = flat.split(",")
            if len(parts) > PARAMETERS and all(map(PARAMETER.fullmatch, parts)):
                name = re.search(r"(\w+|\])\s*\)?\s*$", text[:at - 1])
                if name:  # in a row of a list macro they are a library's
                    yield name[1].replace("]", "lambda"), text.count("\n", 0, at) + 1, len(parts)


def functions(path, text):
    """(name, first line, last line) of each function; (None, line, line) of a brace outside of
    functions that is of none of a function, a type, an initialiser or a namespace."""
    text = BRANCH.sub(without_braces, blanked(TEXT, text))
    text = blanked(BLANK, text)
    inside, start, first, is_cpp = [], 0, 0, path.endswith((".cpp", ".hpp", ".cu"))
    for m in re.finditer(r"[{};]", text):
        at, head = m.start(), text[start:m.start()].replace('""', " ").strip()
        head = HEAD.sub(" ", head)
        if m[0] == "{":
            kind = "inner" if inside and inside[-1] != "outer" else \
                "outer" if OUTER.search(head) and (is_cpp or head.startswith("extern")) else \
                "function" if is_cpp and LAMBDA.search(head) else \
                "inner" if VALUE.search(head) or (is_cpp and "(" not in head) else "function"
            if kind == "function":
                first, value = at, is_cpp and LAMBDA.search(head)
                found = value[1] if value else function_of(head)
                if not found:
                    yield None, text.count("\n", 0, at) + 1, 0
            inside.append(kind)
        elif m[0] == "}" and inside and inside.pop() == "function" and found:
            yield found, text.count("\n", 0, first) + 1, text.count("\n", 0, at) + 1
        if not inside or inside[-1] == "outer":
            start = at + 1
    if inside:
        yield None, text.count("\n") + 1, 0


def macros(path, lines):
    """As functions, of a C file: those that the bodies of macros define, or the macro itself where
    it holds statements, and no list alone."""
    first = None
    for i, line in enumerate(lines):
        if first is None and re.match(r"\s*#\s*define\b.*\\$", line):
            first = i + 1
        elif first is not None and not line.endswith("\\"):
            body = "\n".join(x.rstrip("\\") for x in lines[first:i + 1])
            found = [(name, first + a, first + b) for name, a, b in functions(path, body) if name]
            if not found and ";" in blanked(TEXT, body):
                found = [(re.search(r"define\s+(\w+)", lines[first - 1])[1], first + 1, i + 1)]
            yield from found
            first = None


def function_of(head):
    """The name of the function whose definition begins with HEAD, or None."""
    head = re.sub(r"\)\s*:\s.*$", ")", head, flags=re.S)  # a constructor's members
    end, depth = head.rfind(")"), 0
    for at in range(end, -1, -1):
        depth += (head[at] == ")") - (head[at] == "(")
        if depth == 0:
            name = re.search(r"(\w+|operator\W+)\s*(?:\([^()]*\)\s*)?$", head[:at])
            return name[1] if name else None
    return None


def check(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    lines = text.removesuffix("\n").split("\n")
    if not text.endswith("\n"):
        yield f"{path}:{len(lines)}: no line's end at the end of the file"
    if len(lines) > FILE and path not in LONG_FILES:
        yield f"{path}:1: {len(lines)} lines, at most {FILE}"
    for i, line in enumerate(lines, 1):
        if line != line.rstrip():
            yield f"{path}:{i}: blanks at the end of the line"
        line = line.expandtabs(8)
        if not path.endswith(".py"):  # backslashes stand in one column beyond the text
            line = line.rstrip("\\").rstrip()
        if not path.endswith(C_LIKE + (".py",)):
            line = line if COMMENT.match(line) else LONG_STRING.sub('""', line)
        if len(line) > LINE and not (path.endswith(C_LIKE + (".py",)) and is_table_row(line)):
            yield f"{path}:{i}: {len(line)} columns, at most {LINE}"
    yield from check_line_1(path, lines)
    found, counted = [], []
    if path.endswith(C_LIKE):
        found, counted = [*functions(path, text), *macros(path, lines)], parameter_lists(text)
    elif path.endswith(".py"):
        found, counted = python_functions(text), python_parameters(text)
    elif path.endswith(BASH):
        lines = without_long_quotes(without_here_documents(lines))
        found = bash_functions(lines)
        yield from check_negations(path, lines) if not path.endswith(".sh") else ()
    for function, first, last in found:
        if function is None:
            yield f"{path}:{first}: a brace of no function, type or initialiser known here"
        if last - first + 1 > FUNCTION:
            yield f"{path}:{first}: {function} has {last - first + 1} lines, at most {FUNCTION}"
    for function, line, parameters in counted:
        if parameters > PARAMETERS:
            yield f"{path}:{line}: {function} has {parameters} parameters, at most {PARAMETERS}"


def without_here_documents(lines):
    """The lines of a bash file, but empty where a here-document stands."""
    end, kept = None, []
    for i, line in enumerate(lines):
        kept.append("" if end else line)
        m = re.search(r"""(?<!<)<<-?\s*(['"]?)([A-Za-z_]\w*)\1""", kept[-1])
        if end and line.strip() == end:
            end = None
        elif m and m[2] in map(str.strip, lines[i + 1:]):
            end = m[2]
    return kept


# What ends or holds a quotation of bash, outside of "..." and within.
CODE = re.compile(r"""\\.|(?<![^\s;(])#[^\n]*|\$'(?:\\.|[^'\\])*'|'[^']*'|[()"]""", re.S)
DOUBLE = re.compile(r"""\\.|\$\(|["]""", re.S)


def quotes(text):
    """(start, end) of each quotation of a bash text; of "..." the parts outside of a $(...)."""
    closing, start, at = [], 0, 0  # what closes the quotations and parentheses that are open
    while m := (DOUBLE if closing[-1:] == ['"'] else CODE).search(text, at):
        at, last, is_double = m.end(), m[0][-1], closing[-1:] == ['"']
        if m[0][0] in "\\#":
            continue
        if last == "'":
            yield m.span()
        elif is_double and last in '("':
            yield start, at
        if closing and closing[-1] == last:
            closing.pop()
            start = at
        elif last in '("':
            closing.append(")" if last == "(" else last)
            start = m.start()


def without_long_quotes(lines):
    """The lines of a bash file, with _ for a quotation that runs over several of them."""
    text, at, kept = "\n".join(lines), 0, ""
    for start, end in quotes(text):
        if "\n" in text[start:end]:
            kept += text[at:start] + "_" + re.sub(r"[^\n]", "", text[start:end])
            at = end
    return (kept + text[at:]).split("\n")


def bash_functions(lines):
    """As functions, of a bash or bats file: from NAME() {, function NAME { or @test "..." { to the
    brace in the same column, which may open on the next line."""
    name = None
    for i, line in enumerate(lines, 1):
        line = re.sub(r"""\s#[^'"]*$""", "", line).rstrip()
        m = re.match(r"""(\s*)(?:(?:function +)?([\w:-]+) *\(\)|function +([\w:-]+)"""
                     r"""|@test (["'].*["'])) *([{(].*)?$""", line)
        opened = m and (m[5] or (lines + [""])[i].strip())
        if name is not None and re.match(end, line):
            yield name, first, i
            name = None
        elif opened and opened[0] in "{(" and name is None and \
                not re.search(r"^(?:\{.*\s\}|\(.+\))\s*(?:[|<>&].*)?$", opened):  # on one line
            name, first = m[2] or m[3] or m[4], i
            end = m[1] + ("}" if opened[0] == "{" else r"\)") + r"(?!\w)"
    if name is not None:
        yield name, first, len(lines)


def python_functions(text):
    """As functions, of a Python file.  One of a single return statement may be of any length."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            is_table = len(node.body) == 1 and isinstance(node.body[0], ast.Return)
            yield node.name, node.lineno, node.lineno if is_table else node.end_lineno


def python_parameters(text):
    """As parameter_lists, of a Python file; self is a parameter."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            a = node.args
            count = len(a.posonlyargs + a.args + a.kwonlyargs) + bool(a.vararg) + bool(a.kwarg)
            yield getattr(node, "name", "lambda"), node.lineno, count


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


# A negation where a command begins; and what lets it fail or decide behind it.
NEGATION = re.compile(r"(?:^|[;{&(]|\b(?:do|then|else)|(?:^|;;)\s*[\w*?|.-]+\))\s*!(?= )")
HEEDED = re.compile(r"[^;]*?(?:\|\|\s*(?:return 1|\{|$)|&&\s*$|;\s*(?:then|do)\b)")


def check_negations(path, lines):
    """bash lets "! COMMAND" fail without an end of the test, unless it is the test's last line."""
    for i, line in enumerate(joined(lines), 1):
        code = re.sub(QUOTED, "_", line).rstrip()
        if any(not HEEDED.match(code, m.end()) for m in NEGATION.finditer(code)):
            yield f"{path}:{i}: '! ...' alone cannot fail a test, expected || return 1 behind it"


def check_line_1(path, lines):
    mark = '"""' if path.endswith(".py") else "# " if path.endswith(BASH) else "/* "
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
