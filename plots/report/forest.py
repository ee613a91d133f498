"""forest.py - Draws the gap of every variant on every problem, with intervals and verdict."""
import alike
import campaign
import common
import inline
import numpy as np

NAME, MENU = "gap", "Gaps"
WIDEST = 26  # letters of a label at full size
LEAST_PAIRS = 6  # different pairs of an interval
SHAPES = {"equivalent": ("o", True), "better": ("<", False), "worse": (">", False),
          "undecided": ("D", True), "too few": ("X", True),
          "not quantized": ("P", True), "same results": ("s", True), "uneven rates": ("*", True)}
BEND = 8  # the axis is logarithmic if gaps exceed BEND deltas
LINEAR = 0.6  # the linear part, in decades to either side
ROOM = 0.11  # the least distance of two labels, in widths of the axis
APART, OTHER, LOST, HANGS = "*", "\u2020", "\u2021", "\u00a7"  # marks of a row
GAP = "A gap is the loss above the problem's floor over that at the start, a decade a factor of 10"


def is_apart(v):
    """Which rows' float32 states are not equivalent to the twin either: their verdicts say nothing
    of the format.  Older files lack the column; there the 95 % interval decides."""
    if "null_apart" in v:
        return v["null_apart"] == 1
    if "null_lo" not in v:
        return np.zeros(len(v["verdict"]), bool)
    return (v["n"] >= LEAST_PAIRS) & ((v["null_lo"] < -v["delta"]) | (v["null_hi"] > v["delta"]))


def lost_of(v):
    """How many runs of each row diverged (campaign.without_lost); 0 where nobody asked."""
    return v.get("lost", np.zeros(len(v["verdict"]), int))


def is_other(v):
    """Which rows have another verdict at the same learning rate."""
    return v["same_verdict"] != v["verdict"] if "same_verdict" in v \
        else np.zeros(len(v["verdict"]), bool)


def by_outcomes(v):
    """Of every row what other outcomes than the last loss say, in words: "late: undecided"; ""
    where they have too few pairs or say the same."""
    found = [[] for _ in v["verdict"]]
    for word in ("late", "area"):
        for said, other, own in zip(found, v.get(f"verdict_{word}", v["verdict"]), v["verdict"]):
            if other not in (own, "too few"):
                said.append(f"{word}: {other}")
    return [", ".join(said) for said in found]


def marks(v, apart=None):
    """The marks of every row: " *" where float32 is apart too, " \u2020" where the same rate gives
    another verdict, " \u00a7" where another outcome does, " \u2021" where runs diverged."""
    apart = is_apart(v) if apart is None else apart
    found = [APART * bool(a) + OTHER * bool(o) + HANGS * bool(h) + LOST * bool(k)
             for a, o, h, k in zip(apart, is_other(v), by_outcomes(v), lost_of(v))]
    return [" " * bool(mark) + mark for mark in found]


def lost_told(lost):
    """What the caption says of runs that diverged."""
    return campaign.lost_told(lost, f" {LOST} In the mean and the interval of such a row the gap "
                              "1000 stands for that of a run that diverged, and a pair of which "
                              "both did is left out; where all did nothing is drawn but the "
                              "verdict.")


def marks_told(v, names, apart=None):
    """What the caption says of the marks that rows of these names have."""
    apart, other = is_apart(v) if apart is None else apart, is_other(v)
    at = [f"{name}: {word}" for name, word, o in zip(names, v.get("same_verdict", names), other)
          if o]
    hang = [f"{name}: {words}" for name, words in zip(names, by_outcomes(v)) if words]
    return f" {APART} float32 is apart too: float32 states are not equivalent to the twin " \
        "either, and no title counts the verdict." * bool(apart.any()) \
        + (f" {OTHER} another verdict at the same rate, the twin's ({'; '.join(at[:4])}"
           + f" and {len(at) - 4} more" * (len(at) > 4) + ")." if at else "") \
        + (f" {HANGS} another verdict over the last eighth of the steps (late) or over the "
           f"logarithm of the step (area) ({'; '.join(hang[:4])}"
           + f" and {len(hang) - 4} more" * (len(hang) > 4) + ")." if hang else "")


def mean_over(v):
    """What a mean is and over how many paired runs, in words."""
    n, instances = v["n"][v["n"] > 0], v.get("instances", np.array([1]))
    if not len(n):
        return "trimmed mean over no pairs"
    low, high = int(n.min()), int(n.max())
    runs = str(low) if low == high else f"{low} to {high}"
    if not (instances > 1).any():
        return f"trimmed mean over {runs} paired run{'s' * (high != 1)}"
    pooled = " (of a problem without a data seed over all runs)" * bool((instances == 1).any())
    return f"trimmed mean over {int(instances.max())} instances of the trimmed mean over the " \
        f"seeds of each{pooled}, {runs} paired runs in all,"


def has_fewer(v):
    """Which rows have fewer paired runs than another one of their problem."""
    most = {}
    if "n" not in v:
        return np.zeros(len(v["verdict"]), bool)
    for problem, n in zip(v["problem"].tolist(), v["n"].tolist()):
        most[problem] = max(n, most.get(problem, 0))
    return np.array([0 < n < most[p] for p, n in zip(v["problem"].tolist(), v["n"].tolist())], bool)


def fewer_told(v, names):
    """What the caption says of rows of fewer paired runs than others of their problem."""
    rows = zip(names, v["n"].tolist(), has_fewer(v))
    said = [f"{name} ({n})" for name, n, is_so in rows if is_so]
    return " Of fewer pairs than others of the problem, and no title's largest: " \
        f"{alike.named(said)}." if said else ""


def interval_told(v):
    """What the bars of a figure are, in words: a single pair of runs has no interval."""
    has = np.isfinite(v["lo95"]) & np.isfinite(v["hi95"])
    there = np.isfinite(v["mean"])
    if not (has & there).any():
        return "without an interval, which a single pair does not have"
    return "with its 95 % (thin) and 90 % (thick) interval" \
        + " where there is more than one pair" * bool((there & ~has).any())


def limits(v, wide):
    """Lowest and highest end of any interval, zero included."""
    ends = np.concatenate([v["lo95"], v["hi95"], v["mean"], -2 * wide, 2 * wide])
    ends = ends[np.isfinite(ends)] if np.isfinite(ends).any() else np.array([-0.05, 0.05])
    return ends.min() * 1.15, ends.max() * 1.15


def ticks(delta, low, high, place):
    """Ticks of an axis that is linear within delta: 0 and the ends of the linear part, those of the
    axis, then powers of ten, then halves of them, as far as labels have room; place(x) is in widths
    of the axis."""
    powers = [10.0 ** k for k in range(-6, 7)]
    found = []
    for x in (0.0, delta, None, *powers[::-1], *(5 * p for p in powers[::-1])):
        for t in (low, high) if x is None else dict.fromkeys((x, -x)):
            x = abs(t)
            is_shown = low <= t <= high and not 0 < x < delta
            if is_shown and all(abs(place(t) - place(f)) > ROOM for f in found):
                found.append(t)
    return sorted(found)


def beyond(x):
    """The next of 1, 2 and 5 times a power of ten that is at least |x|, with the sign of x."""
    if x == 0.0:
        return x
    power = 10.0 ** np.floor(np.log10(abs(x)))
    return float(np.sign(x) * next(k * power for k in (1, 2, 5, 10)
                                   if k * power >= abs(x) * (1 - 1e-9)))


def axis(ax, v, low, high):
    """Sets an axis that is linear within delta and, if gaps exceed BEND deltas, logarithmic beyond;
    returns what its label says of that."""
    bent = ""
    delta = np.nanmax(v["delta"]) if np.isfinite(v["delta"]).any() else 0
    ax.set_xlim(low, high)
    if max(-low, high) > BEND * delta > 0:
        low, high = beyond(low), beyond(high)  # no value lies beyond the last label
        ax.set_xscale("symlog", linthresh=delta, linscale=LINEAR)
        ax.set_xlim(low, high)
        bent = f", linear within \u00b1{delta:.2g}"
        bend = ax.xaxis.get_transform().transform
        ends = bend(np.array([low, high]))
        ax.set_xticks(ticks(delta, low, high, lambda x: (bend(np.array([x]))[0] - ends[0])
                            / (ends[1] - ends[0])))
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:.2g}")
    ax.minorticks_off()
    return bent


def gone_word(v, i):
    """What stands in the place of a number that row i does not have."""
    word, is_gone = str(v["verdict"][i]), "gone" in v and v["gone"][i]
    return f"diverged: {word}" if is_gone and word != "too few" else \
        "diverged" if is_gone else word


def mark(c, ax, v, i, label, y):
    """Draws row i of v at height y: intervals, and the mean with the verdict's shape."""
    colour = c.look(label)["color"]
    shape, hollow = SHAPES.get(v["verdict"][i], ("o", True))
    if not np.isfinite(v["mean"][i]):
        ax.text(0, y, " " + gone_word(v, i), fontsize=6, va="center", color=inline.SOFT)
        return
    for ends, width in ((("lo95", "hi95"), 0.9), (("lo90", "hi90"), 2.4)):
        ends = [v[end][i] for end in ends]
        if np.isfinite(ends).all():  # a single pair has no interval
            c.series(ax.plot(ends, [y, y], color=colour, linewidth=width, solid_capstyle="butt",
                             zorder=3)[0], label)
    c.series(ax.plot([v["mean"][i]], [y], color=colour, marker=shape, markersize=4.2,
                     markerfacecolor="#ffffff" if hollow else colour, linestyle="none",
                     zorder=4)[0], label)


def margin(v):
    """The margin of equivalence with its value, which may differ between problems."""
    found = np.unique(v["delta"][np.isfinite(v["delta"])]) if "delta" in v else np.array([])
    ends = dict.fromkeys(common.digits(x) for x in (found[[0, -1]] if len(found) else found))
    return "\u00b1\u03b4" + f" (\u03b4: {' to '.join(ends)})" * bool(ends)


def judged_told(v, contrasts=False):
    """What the caption says of how a verdict is reached (experiments/protocol/README.md); a
    contrast has no float32 states beside it."""
    far, beyond = ("no pair is far off, over 8 robust standard deviations from the median", "") \
        if contrasts else \
        ("no more pairs are far off, over 8 robust standard deviations from the median, than with "
         "float32 states", ", that of the difference to float32 states at the same seeds does so "
         "too (where six pairs have it)")
    return f" Equivalent: the 90 % interval lies within {margin(v)}, and {far}. Better or worse: " \
        f"the 95 % interval lies on one side of 0{beyond}, and the test passes Benjamini and " \
        "Hochberg's correction at 5 %. Else undecided." \
        + f" Too few: fewer than {LEAST_PAIRS} different pairs." * bool("too few" in v["verdict"]) \
        + " Uneven rates: the learning rate of one side was tuned and that of the other was not, " \
        "so that what differs may be the rate; nothing is decided." \
        * bool("uneven rates" in v["verdict"])


def shapes(v):
    """The legend's entries: the verdicts that occur, and the zone of equality."""
    out = [campaign.note(word, inline.swatch({"color": "#000000", "marker": shape,
                                              "hollow": hollow, "linewidth": 0}))
           for word, (shape, hollow) in SHAPES.items() if word in v["verdict"]]
    return out + [campaign.note("within \u00b1\u03b4: counts as equal", inline.block(inline.ZONE))]


def answer(v):
    """How many comparisons with the twin were judged how, in words."""
    apart, n = is_apart(v), len(v["verdict"])
    words = v["verdict"][~apart].tolist()
    said = [f"{words.count(word)} {word}" for word in SHAPES if word in words]
    said += [f"{int(apart.sum())} where float32 is apart too"] * bool(apart.any())
    sure = (v["verdict"] == "worse") & ~apart & np.isfinite(v["mean"]) & (lost_of(v) == 0)
    sure &= ~has_fewer(v)
    if not sure.any():
        return f"Of {n} comparisons with float64 {', '.join(said)}"
    worst = np.argmax(np.where(sure, v["mean"], -np.inf))
    shown = [common.digits(x, 2) for x in v["mean"].tolist()]
    equal = np.flatnonzero(sure & (np.array(shown) == shown[worst]))  # no one of several stands out
    on = dict.fromkeys(campaign.brief(p) for p in v["problem"][equal].tolist())
    whose = dict.fromkeys(v["label"][equal].tolist())
    whose = next(iter(whose)) if len(whose) == 1 else f"{len(whose)} variants"
    most = f"; the largest of those worse: {whose} on {', '.join(on)}, " \
        f"+{shown[worst]} decades"
    return f"Of {n} comparisons with float64 {', '.join(said)}{most}"


def named(v):
    """The rows' labels and problems in words."""
    return [f"{campaign.shown(label)} on {campaign.readable(p)}"
            for label, p in zip(v["label"].tolist(), v["problem"].tolist())]


def draw_panel(c, v, low, high, labels):
    """v: the rows of one problem."""
    fig, ax = campaign.panel(height=0.65 + 0.155 * len(labels))
    delta = np.nanmax(v["delta"]) if len(v["delta"]) else 0
    ax.axvspan(-delta, delta, color=inline.ZONE, linewidth=0, zorder=0)
    null = np.isfinite(v["null_lo"]) & np.isfinite(v["null_hi"])
    if null.any():
        ax.axvspan(v["null_lo"][null].min(), v["null_hi"][null].max(), color=inline.NULL,
                   linewidth=0, zorder=1)
    ax.axvline(0, color=inline.SOFT, linewidth=0.7, zorder=1)
    for i in range(len(v["label"])):
        mark(c, ax, v, i, v["label"][i], labels.index(v["label"][i]))
    bent = axis(ax, v, low, high)
    mark_of = dict(zip(v["label"].tolist(), marks(v)))
    ax.set_yticks(range(len(labels)), [label + mark_of[label] for label in labels],
                  fontsize=common.fit(6.5, labels, WIDEST))
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("log10 (gap / twin's gap)" + bent, fontsize=7)
    return fig


def draw(c, out):
    v = c.table("verdicts")
    if v is None or not len(v["label"]):
        return
    v = {name: column[v["lr_scale"] == c.one] for name, column in v.items()}
    v, lost = c.without_lost(v)
    low, high = limits(v, v["delta"])
    panels = []
    for problem in [p for p in c.problems if p in v["problem"]]:
        one = {name: column[v["problem"] == problem] for name, column in v.items()}
        labels = [label for label in c.labels if label in one["label"]]
        name = campaign.readable(problem)
        panels.append((draw_panel(c, one, low, high, labels), name,
                       f"Gaps with intervals on {name}; the table Verdicts has the numbers"))
    if not panels:
        return
    legend = shapes(v) + [campaign.note("float32 states: rounding and chaos alone",
                                        inline.block(inline.NULL))]
    caption = (f"At {c.verdict_rate(v)}. {GAP}. Shown: {mean_over(v)} {interval_told(v)}; to the "
               "right is worse." + judged_told(v) + marks_told(v, named(v))
               + fewer_told(v, named(v))
               + lost_told(lost) + c.left_told())
    out.figure(NAME, panels, (answer(v) + campaign.lost_title(lost), MENU), caption, legend)

