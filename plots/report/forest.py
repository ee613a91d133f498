"""forest.py - Draws the gap of every variant on every problem, with intervals and verdict."""
import campaign
import inline
import numpy as np

NAME, MENU, TITLE = "gap", "Gaps", "Gap to the double-precision twin"
SHAPES = {"equivalent": ("o", True), "better": ("<", False), "worse": (">", False),
          "undecided": ("D", True), "too few": ("X", True),
          "not quantized": ("P", True), "same results": ("s", True)}
BEND = 8  # the axis is logarithmic if gaps exceed BEND deltas
LINEAR = 0.6  # the linear part, in decades to either side
ROOM = 0.11  # the least distance of two labels, in widths of the axis


def limits(v, wide):
    """Lowest and highest end of any interval, zero included."""
    ends = np.concatenate([v["lo95"], v["hi95"], v["mean"], -2 * wide, 2 * wide])
    ends = ends[np.isfinite(ends)]
    return ends.min() * 1.15, ends.max() * 1.15


def ticks(delta, low, high, place):
    """Ticks of an axis that is linear within delta: 0 and the ends of the linear part, then powers
    of ten, then halves of them, as far as labels have room; place(x) is in widths of the axis."""
    powers = [10.0 ** k for k in range(-6, 7)]
    found = []
    for x in (0.0, delta, *powers[::-1], *(5 * p for p in powers[::-1])):
        for t in dict.fromkeys((x, -x)):
            is_shown = low <= t <= high and not 0 < x < delta
            if is_shown and all(abs(place(t) - place(f)) > ROOM for f in found):
                found.append(t)
    return sorted(found)


def axis(ax, v, low, high):
    """Sets an axis that is linear within delta and, if gaps exceed BEND deltas, logarithmic beyond;
    returns what its label says of that."""
    bent = ""
    delta = np.nanmax(v["delta"]) if np.isfinite(v["delta"]).any() else 0
    ax.set_xlim(low, high)
    if max(-low, high) > BEND * delta > 0:
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


def mark(c, ax, v, i, label, y):
    """Draws row i of v at height y: intervals, and the mean with the verdict's shape."""
    colour = c.look(label)["color"]
    shape, hollow = SHAPES.get(v["verdict"][i], ("o", True))
    if not np.isfinite(v["mean"][i]):
        ax.text(0, y, " " + v["verdict"][i], fontsize=6, va="center", color=inline.SOFT)
        return
    for ends, width in ((("lo95", "hi95"), 0.9), (("lo90", "hi90"), 2.4)):
        ends = [v[end][i] for end in ends]
        if np.isfinite(ends).all():  # a single pair has no interval
            c.series(ax.plot(ends, [y, y], color=colour, linewidth=width, solid_capstyle="butt",
                             zorder=3)[0], label)
    c.series(ax.plot([v["mean"][i]], [y], color=colour, marker=shape, markersize=4.2,
                     markerfacecolor="#ffffff" if hollow else colour, linestyle="none",
                     zorder=4)[0], label)


def shapes(v):
    """The legend's entries: the verdicts that occur, and the zone of equality."""
    out = [campaign.note(word, inline.swatch({"color": "#000000", "marker": shape,
                                              "hollow": hollow, "linewidth": 0}))
           for word, (shape, hollow) in SHAPES.items() if word in v["verdict"]]
    return out + [campaign.note("within \u00b1\u03b4: counts as equal", inline.block(inline.ZONE))]


def answer(v):
    """How many comparisons with the twin were judged how, in words."""
    words, n = v["verdict"].tolist(), len(v["verdict"])
    said = [f"{words.count(word)} {word}" for word in SHAPES if word in words]
    sure = v["verdict"] == "worse"
    if not sure.any():
        return f"Of {n} comparisons with float64 {', '.join(said)}"
    worst = np.argmax(np.where(sure, v["mean"], -np.inf))
    equal = np.flatnonzero(sure & (v["mean"] == v["mean"][worst]))  # no one of several stands out
    on = dict.fromkeys(campaign.readable(p).split()[0] for p in v["problem"][equal].tolist())
    whose = v["label"][worst] if len(equal) == 1 else f"{len(equal)} variants"
    most = f"; the largest of those worse: {whose} on {', '.join(on)}, " \
        f"{v['mean'][worst]:+.2g} decades"
    return f"Of {n} comparisons with float64 {', '.join(said)}{most}"


def draw_panel(c, v, low, high, labels):
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
    ax.set_yticks(range(len(labels)), labels, fontsize=6.5)
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
    caption = (f"At {c.verdict_rate()}. Trimmed mean over paired seeds with its 95 % (thin) and "
               "90 % (thick) interval; to the right is worse. Equivalent: the 90 % interval lies "
               "within \u00b1\u03b4; better or worse: the 95 % interval excludes 0, also less the "
               "gap of float32 states, and the false discovery rate over all of them stays at 5 %; "
               "else undecided.")
    out.figure(NAME, panels, (answer(v), MENU), caption, legend)

