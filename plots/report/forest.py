"""forest.py - Draws the gap of every variant on every problem, with intervals and verdict."""
import campaign
import inline
import numpy as np

NAME, MENU, TITLE = "gap", "Gaps", "Gap to the double-precision twin"
SHAPES = {"equivalent": ("o", True), "better": ("<", False), "worse": (">", False),
          "undecided": ("D", True), "too few": ("X", True),
          "not quantized": ("P", True)}
BEND = 8  # the axis is logarithmic if gaps exceed BEND deltas


def limits(v, wide):
    """Lowest and highest end of any interval, zero included."""
    ends = np.concatenate([v["lo95"], v["hi95"], v["mean"], -2 * wide, 2 * wide])
    ends = ends[np.isfinite(ends)]
    return ends.min() * 1.15, ends.max() * 1.15


def axis(ax, v, low, high):
    """Sets an axis that is linear within delta and, if gaps exceed BEND deltas, logarithmic beyond;
    returns what its label says of that."""
    bent = ""
    delta = np.nanmax(v["delta"]) if np.isfinite(v["delta"]).any() else 0
    if max(-low, high) > BEND * delta > 0:
        ax.set_xscale("symlog", linthresh=delta, linscale=0.6)
        bent = f", linear within \u00b1{delta:.2g}"
        powers = 10.0 ** np.arange(-6, 7)
        inside = [p for p in powers if 2 * delta < p <= max(-low, high)]
        ax.set_xticks([-p for p in inside[::-1] if -p >= low] + [0] +
                      [p for p in inside if p <= high])
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        ax.set_xticks([t for t in (-delta, delta) if low < t < high], minor=True)
    else:
        ax.minorticks_off()
    ax.set_xlim(low, high)
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
    worst = np.argmax(np.where(np.isfinite(v["mean"]), v["mean"], -np.inf))
    most = f"; the largest gap: {v['label'][worst]} on " \
           f"{campaign.readable(v['problem'][worst]).split()[0]}, {v['mean'][worst]:+.2g} decades" \
        if np.isfinite(v["mean"][worst]) else ""
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

