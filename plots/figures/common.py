"""common.py - Reads result files, sets the style and saves figures reproducibly, for all scripts.

A script draws numbers that the C program stored.  It selects and sorts them, down to medians and
extremes over tensors or seeds, and computes no other numbers.  Called as

    /usr/bin/python3 plots/figures/NAME.py [--results results] [--out plots/out]

it writes NAME.png and NAME.svg, or prints one line that names the missing result file.

    import common
    args = common.arguments("what the plot shows")
    with common.results(args, "theory.h5") as f:
        cells, metrics = common.table(f, "/cells"), common.table(f, "/metrics")
        fig, ax = common.figure()
        ...
        common.save(fig, args.out, "name")
"""
import argparse
import os
import re
import resource
import signal
import sys
import textwrap

import h5py
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

SCHEMA, VERSION = "qualm-results", 1

# What a script may take: seconds of CPU time for a file and for each figure, the same for each MiB
# of the file, seconds of the clock in all, MiB beyond what it has before it opens a file, and links
# of a file.
FIGURE_SECONDS, MIB_SECONDS, CLOCK_SECONDS, MEMORY_MIB, LINKS = 9, 3, 3600, 640, 250000

# Okabe and Ito's palette: distinct with any of the common colour deficiencies.  Black first; grey
# stands in for yellow, which is too light on white.
PALETTE = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))

STYLE = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 9,
    "axes.linewidth": 0.8,
    "axes.prop_cycle": matplotlib.cycler(color=PALETTE),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "font.family": "DejaVu Sans",
    "figure.titlesize": 10,
    "font.size": 9,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 3,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "savefig.dpi": 200,
    "svg.fonttype": "path",
    "svg.hashsalt": "qualm",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


def script():
    """The script's name in messages: plots/figures/NAME, or plots/report/draw."""
    stem = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    return f"plots/{'report' if stem == 'draw' else 'figures'}/{stem}"


def fail(message, code=3):
    """Ends the script with one line on stderr and the C program's exit code: 2 for a wrong option,
    3 for a bad file, 4 where nothing matches."""
    sys.exit(say(message, code))


def say(message, code):
    """Prints the line and returns the code."""
    print(f"{script()}: {plain(message)}", file=sys.stderr)
    return code


CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(value):
    """A text of a file as one line without control characters."""
    return CONTROL.sub("?", value)


def note(reason):
    """Prints one line on stderr: the reason why a figure is not drawn."""
    print(f"{script()}: skipped: {reason}", file=sys.stderr)


def skip(reason):
    """Prints the reason as note does and ends the script with exit code 0: nothing to draw."""
    note(reason)
    sys.exit(0)


# ---- limits -------------------------------------------------------------------------------------


def progress(name=None):
    """Grants a script that guarded() runs the CPU time of one more figure, of this name."""
    global drawing
    drawing = f"the figure '{name}'" if name else drawing
    used = resource.getrusage(resource.RUSAGE_SELF)
    mib = os.path.getsize(reading) >> 20 if os.path.isfile(reading) else 0
    seconds = number("QM_FIGURE_SECONDS", FIGURE_SECONDS + MIB_SECONDS * min(mib, 1000)) + \
        int(used.ru_utime + used.ru_stime) + 1
    if confined:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))


confined = False
reading = ""  # the file that was opened last
drawing = ""  # the figure that is drawn, in words


def number(name, otherwise):
    """A whole number above 0 of the environment; another word there ends the script."""
    word = os.environ.get(name, "")
    if word and not re.fullmatch("[1-9][0-9]{0,6}", word):
        fail(f"{name} is '{plain(word)}', expected a whole number from 1 to 9999999", 2)
    return int(word) if word else otherwise


def confine():
    """Limits this process.  HDF5's library may crash, loop or ask for any amount on a damaged
    file."""
    global confined
    confined = True
    with open("/proc/self/statm", encoding="ascii") as f:
        data = int(f.read().split()[5]) * resource.getpagesize()
    memory = data + (2 * number("QM_READER_MEMORY", MEMORY_MIB // 2) << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(CLOCK_SECONDS)
    progress()


def run(main):
    """Runs main; returns the script's exit code.  An exception is one line: the tables of a file
    that fit no script raise any of them.  Its words are Python's: QM_TRACEBACK=1 shows them."""
    code = 0
    try:
        confine()
        main()
    except SystemExit as end:
        code = end.code or 0
    except MemoryError:
        code = say(f"{reading}: drawing it needs more memory than the script may take; "
                   "QM_READER_MEMORY sets another limit", 3)
    except Exception:  # noqa: B902
        if os.environ.get("QM_TRACEBACK") == "1":
            raise
        code = say(f"{reading}: cannot be drawn: its tables do not fit {drawing or 'the figures'}; "
                   "expected those of results/README.md", 3)
    return code


def guarded(main):
    """Runs main in a process of its own with limits, and ends the script with its exit code, or
    with 3 and one line where that process was ended."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1  # of a traceback that was asked for
        try:
            code = run(main)
            sys.stdout.flush()
        except BrokenPipeError:
            code = 3
        finally:
            if sys.exc_info()[0]:
                sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
            os._exit(code)
    try:
        status = os.waitpid(pid, 0)[1]
    except KeyboardInterrupt:
        os.kill(pid, signal.SIGKILL)
        sys.exit(75)
    if os.WIFSIGNALED(status):
        number_ = os.WTERMSIG(status)
        why = "took too long; QM_FIGURE_SECONDS sets another limit" \
            if number_ in (signal.SIGXCPU, signal.SIGALRM) \
            else f"was ended by signal {number_}: the file is damaged, or made to do harm"
        fail(f"{' '.join(sys.argv[1:2])}: the process that draws {why}")
    sys.exit(os.WEXITSTATUS(status))


def arguments(description):
    """Parses the command line: folders .results and .out; .out is created if absent."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--results", default="results", metavar="DIR",
                        help="folder of result files (default %(default)s)")
    parser.add_argument("--out", default="plots/out", metavar="DIR",
                        help="folder for the .png and .svg (default %(default)s)")
    args = parser.parse_args()
    make_folder(args.out)
    return args


def make_folder(path):
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        fail(f"{path}: {error.strerror}")


# ---- reading ------------------------------------------------------------------------------------


def text(value):
    """A text attribute or dataset as str, whatever type h5py returns."""
    if isinstance(value, h5py.Dataset):
        value = value[()]
    return plain(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))


def foreign(f):
    """Ends the script where something in an open file leads out of it, or where it has no end."""
    seen = [0]

    def link(name, info):
        seen[0] += 1
        if info.type != h5py.h5l.TYPE_HARD or seen[0] > LINKS:
            return name
    bad = f.id.links.visit(link, info=True)

    def storage(name, thing):
        if isinstance(thing, h5py.Dataset) and (thing.external or thing.is_virtual):
            return name
    outside = bad or f.visititems(storage)
    if outside:
        name = outside.decode("utf-8", "replace") if isinstance(outside, bytes) else outside
        fail(f"{f.filename}: '{name[:200]}' leads out of the file, or is one link of too many")


def load(path, kinds=None):
    """Opens a file whose schema version this module knows and whose kind is one of kinds, if
    given."""
    global reading
    reading = path
    progress()
    if os.path.exists(path) and not os.path.isfile(path):
        fail(f"{path}: is not a regular file")
    try:
        f = h5py.File(path, "r")
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "is it HDF5, and whole?"
        fail(f"{path}: cannot be read: {reason}")
    foreign(f)
    if text(f.attrs.get("schema", "")) != SCHEMA:
        fail(f"{path}: is no result file (attribute 'schema' is not '{SCHEMA}')")
    version = int(f.attrs.get("schema_version", 0))
    if version != VERSION:
        fail(f"{path}: has schema version {version}; this script reads version {VERSION}")
    kind = text(f.attrs.get("kind", ""))
    if kinds and kind not in kinds:
        fail(f"{path}: holds results of `{kind}`; expected {' or '.join(kinds)}")
    return f


def results(args, name, kind="run", needed=True):
    """Opens args.results/name.  If there is no such file, prints one line and ends the script, or
    returns None when the file is not needed."""
    path = os.path.join(args.results, name)
    if os.path.exists(path):
        return load(path, kinds=(kind,))
    missing = f"{path} is not there (make run writes it)"
    if needed:
        skip(missing)
    note(missing)
    return None


def has(f, path):
    """Whether f holds path; prints one line if it does not."""
    if path not in f:
        note(f"{f.filename} holds no {path}")
    return path in f


def dataset(f, path):
    """f[path]; ends the script with one line if it is absent."""
    if path not in f:
        fail(f"{f.filename}: no {path} in it")
    return f[path]


def table(f, path):
    """A table as {column: numpy array}; text columns become arrays of str."""
    rows = dataset(f, path)
    if rows.dtype.names is None:
        fail(f"{f.filename}: {path} is not a table")
    rows = rows[...]
    out = {}
    for name in rows.dtype.names:
        column = rows[name]
        if column.dtype.kind == "S":  # np.char.decode makes floats of no rows
            column = np.char.decode(column, "utf-8", "replace") if len(column) else \
                np.array([], dtype=str)
            if CONTROL.search("".join(set(column.tolist()))):
                column = np.array([plain(x) for x in column.tolist()])
        out[name] = column
    return out


def columns(f, path):
    """{column: (unit, description)} of a table, in order."""
    d = dataset(f, path)
    words = zip(d.attrs["column_units"], d.attrs["column_text"])
    return {name: (text(u), text(t)) for name, (u, t) in zip(d.dtype.names, words)}


def unit(f, path, column=None):
    """The unit of an array, or of one column of a table."""
    return text(dataset(f, path).attrs["unit"]) if column is None else columns(f, path)[column][0]


def label(name, unit_text):
    """An axis label: "name (unit)", or the name alone for pure numbers and texts."""
    return name if unit_text in ("", "1") else f"{name} ({unit_text})"


def curves(f, path):
    """Ragged curves as a list of numpy arrays, one per curve."""
    value = dataset(f, path + "/value")[...]
    ends = zip(dataset(f, path + "/offset")[...], dataset(f, path + "/length")[...])
    return [value[at:at + n] for at, n in ends]


def known(present, wanted):
    """The names in present: first those of wanted, in its order, then the others, sorted."""
    names = set(present.tolist())
    return [w for w in wanted if w in names] + sorted(names - set(wanted))


# ---- drawing ------------------------------------------------------------------------------------


# Numbers of the palette, by the map of a format.
MAPS = {"int": 0, "nf4": 1, "nf4a8": 2, "dyn": 3, "dyn:8": 4, "lin": 5, "intm": 6, "f32": 7}

# The formats of the momentum by their label in the suites: the name in legends, and the number of
# their look, which is the same in all figures.
FORMATS = {"int4": ("uniform int4", MAPS["int"]), "nf4": ("NF4", MAPS["nf4"]),
           "intm4": ("uniform, 16 levels", MAPS["intm"]),
           "nf4a8 nearest": ("0.2.4 table, nearest", MAPS["nf4a8"]),
           "nf4a8 ladder": ("0.2.4 table, its ladder", 5),
           "f32": ("float32", MAPS["f32"]), "nf4 stoch": ("NF4, stochastic rounding", 5),
           "dyn4": ("dynamic 4-bit", MAPS["dyn"]), "dyn8": ("dynamic 8-bit", MAPS["dyn:8"])}


def format_name(key):
    """The name of a format in a legend."""
    return FORMATS.get(key, (key,))[0]


def format_look(key):
    """Its colour, marker and line."""
    return look(FORMATS[key][1] if key in FORMATS else 6)


def digits(x, n=3):
    """x with n significant digits for a text, without an exponent between 1e-5 and 1e7."""
    if not np.isfinite(x):
        return "undefined" if np.isnan(x) else "Inf" if x > 0 else "-Inf"
    short, _, power = f"{x:.{n}g}".partition("e")
    if not power:
        return "0" if float(short) == 0.0 else short
    if -5 <= int(power) < 7:
        return f"{float(f'{x:.{n}g}'):.{max(0, n - 1 - int(power))}f}".rstrip("0").rstrip(".") \
            if int(power) < 0 else f"{float(f'{x:.{n}g}'):.0f}"
    return f"{short}e{int(power)}"


def unlike(a, b, n=3, most=6):
    """The texts of two numbers, with as many digits, n to most, as make them differ; with n where
    none do."""
    enough = [k for k in range(n, most + 1) if digits(a, k) != digits(b, k)]
    return digits(a, (enough or [n])[0]), digits(b, (enough or [n])[0])


def median(rows):
    """The median of each column without NaN, of an even number of rows the mean of the two in the
    middle; NaN for a column of NaN."""
    ordered = np.sort(np.asarray(rows, dtype=float), axis=0)      # NaN comes last
    count = np.sum(~np.isnan(ordered), axis=0)
    low, high = (np.take_along_axis(ordered, np.maximum(at, 0)[None], axis=0)[0]
                 for at in ((count - 1) // 2, np.minimum(count // 2, len(ordered) - 1)))
    return np.where(low == high, low, 0.5 * low + 0.5 * high)  # two infinities have no mean


def look(i):
    """Colour, marker and line of series i; any two of the first 56 differ without colour, too."""
    return {"color": PALETTE[i % len(PALETTE)], "marker": MARKERS[i % len(MARKERS)],
            "linestyle": LINES[i % len(LINES)]}


def figure(rows=1, cols=1, width=6.4, height=4.0, **options):
    """plt.subplots in the house style; width and height in inches, of the whole figure."""
    plt.rcdefaults()
    plt.rcParams.update(STYLE)
    return plt.subplots(rows, cols, figsize=(width, height), **options)


def legend(fig, handles, labels, columns=3):
    """Draws one legend for the whole figure below all panels, in as much room as it needs."""
    lines = -(-len(labels) // columns)
    height = (0.19 * lines + 0.06) / fig.get_figheight()
    fig.get_layout_engine().set(rect=(0, height, 1, 1 - height))
    fig.legend(handles, labels, loc="lower center", ncol=columns, borderaxespad=0.2)


def fit(size, texts, most):
    """The size of a font in which the longest of the texts is as wide as `most` letters of that
    size, or nearly half of it where that is more."""
    return size * max(0.45, min(1.0, most / max(map(len, texts), default=1)))


POWER = re.compile(r"\$(\\mathdefault\{)?-?10\^\{[^$]*\}\$")  # of ten, as ticks have it


def literal(fig):
    """A dollar sign in a label is one: no formula begins there, but for powers of ten at axes."""
    for text in fig.findobj(matplotlib.text.Text):
        if "$" in text.get_text() and not POWER.fullmatch(text.get_text()):
            text.set_parse_math(False)
    for ax in fig.axes:
        for axis in (ax.xaxis, ax.yaxis):
            names = getattr(axis.get_major_formatter(), "seq", ())  # of a FixedFormatter
            if not all(map(POWER.fullmatch, names)):
                for tick in axis.get_major_ticks():
                    tick.label1.set_parse_math(False)


def extent(text, fig):
    """Left and right end of a text, in pixels of the figure."""
    box = text.get_window_extent(fig.canvas.get_renderer())
    return box.x0, box.x1


LONG = 40  # characters of a word, a recipe's name, that is broken at its commas


def broken(text, most):
    """The lines of a text, of at most `most` characters: a text of long words, which are broken
    behind their commas, a tenth less, for names take more room than prose."""
    if max(map(len, text.split()), default=0) <= LONG:
        return textwrap.wrap(text, most, break_long_words=False)
    lines = textwrap.wrap(re.sub(r",(?=\S)", ",\0 ", text), int(0.9 * most))
    return [line.replace("\0 ", "").rstrip("\0") for line in lines]


def wrap(fig):
    """Breaks labels below the axes of which one reaches beyond the figure, behind the comma or at
    the space next to their middle; returns whether there was one."""
    labels = [ax.xaxis.label for ax in fig.axes]
    beyond = {label.get_text() for label in labels
              if extent(label, fig)[0] < 0 or extent(label, fig)[1] > fig.bbox.width}
    for text in beyond:
        spaces = [m.end() - 1 for m in re.finditer(", ", text)] or \
            [m.start() for m in re.finditer(" ", text)]
        at = min(spaces, key=lambda k: abs(2 * k - len(text)), default=None)
        for label in labels:
            if label.get_text() == text and at is not None:
                label.set_text(text[:at] + "\n" + text[at + 1:])
    return bool(beyond)


def shrink(fig):
    """Gives headings of axes that reach beyond the figure the size at which they do not; returns
    whether there was one."""
    beyond = 0
    for ax in fig.axes:
        for text in (ax.title, ax._left_title, ax._right_title):
            left, right = extent(text, fig)
            if text.get_text() and right > fig.bbox.width:
                text.set_fontsize(text.get_fontsize() * (fig.bbox.width - left) / (right - left))
                beyond += 1
    return beyond > 0


def thin_out(fig):
    """Hides numbers of ticks below the axes that others of more importance would overlap: 0 comes
    first, then the ends, then the rest from outside."""
    for ax in fig.axes:
        low, high = sorted(ax.get_xlim())
        shown = []
        ticks = [t for t in ax.xaxis.get_major_ticks()
                 if re.fullmatch("[-\u2212+0-9.e]+", t.label1.get_text())
                 and t.label1.get_visible() and low <= t.get_loc() <= high]
        places = ax.transData.transform([(t.get_loc(), 0) for t in ticks])[:, 0] if ticks else []
        middle = np.mean(places) if len(places) else 0.0
        for k in sorted(range(len(ticks)), key=lambda k: (ticks[k].get_loc() != 0,
                                                          -abs(places[k] - middle))):
            left, right = extent(ticks[k].label1, fig)
            if any(left < r + 1 and l < right + 1 for l, r in shown):
                ticks[k].label1.set_visible(False)
            else:
                shown.append((left, right))


def freeze(fig):
    """Fixes the layout of fig at positions of five digits.  The constraint solver orders its
    variables by their addresses, so its last bits, and with them an SVG's digits, would change from
    run to run."""
    literal(fig)
    fig.draw_without_rendering()
    if wrap(fig) | shrink(fig):
        fig.draw_without_rendering()
    thin_out(fig)
    fig.set_layout_engine("none")
    for ax in fig.axes:
        bounds = ax.get_position(original=True).bounds
        ax.set_position([round(float(v), 5) for v in bounds])
    for title in (fig._suptitle, fig._supxlabel, fig._supylabel):
        if title is not None:
            title.set_position([round(float(v), 5) for v in title.get_position()])


def save(fig, folder, name):
    """Writes folder/name.png (200 dpi) and .svg without dates and versions; closes the figure."""
    freeze(fig)
    for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
        path = os.path.join(folder, f"{name}.{suffix}")
        part = f"{path}.part"
        try:
            fig.savefig(part, format=suffix, metadata=metadata)
            os.replace(part, path)
        except OSError as error:
            if os.path.exists(part):
                os.remove(part)
            fail(f"{path}: cannot be written: {error.strerror or 'the disk is at fault'}")
        print(path)
    plt.close(fig)
