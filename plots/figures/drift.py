"""drift.py - Draws the SQNR of states over the recorded gradients of real runs.

Reads drift.h5 (first moment) and drift_second.h5 (second), a figure each: curves step and
state0_sqnr, state1_sqnr.  Lines are medians over traces; the bars beside them go from the lower to
the upper quartile at the last update (values of a trace, not interpolated).
"""
import common
import numpy as np

FIGURES = [  # file, axis of the lines, track, state, figure
    ("drift", "exp_avg", "state0_sqnr", "first moment", "drift"),
    ("drift_second", "exp_avg_sq", "state1_sqnr", "second moment", "drift_second")]
PANELS = [("local", "error of one step"), ("global", "error of the whole run")]
LEAST = 16  # elements; smaller tensors have values that a table holds exactly


def draw(ax, rows, style, label, steps, sqnr, place):
    """Draws one format from the curves `rows`, its bar at place 0, 1, ...; returns the last update."""
    x = np.unique(np.concatenate([steps[row] for row in rows]))
    y = np.full((len(rows), len(x)), np.nan)
    for k, row in enumerate(rows):
        y[k, np.searchsorted(x, steps[row])] = sqnr[row]
    low, high = np.nanquantile(y[:, -1], [0.25, 0.75], method="nearest")
    middle, beside = common.median(y), x[-1] * (1.06 + 0.04 * place)
    ax.vlines(beside, low, high, color=style["color"], linewidth=1.6)
    ax.plot(beside, middle[-1], color=style["color"], marker=style["marker"])
    ax.plot(x, middle, label=label, **style)
    return x[-1]


def figure(f, axis, track, state, out, name):
    """Draws the figure of one file, a panel per coupling."""
    cells, labels = common.table(f, "/cells"), common.table(f, "/axes")[axis]
    owner = common.dataset(f, "/curves/cell")[...]
    steps, sqnr = common.curves(f, "/curves/step"), common.curves(f, "/curves/" + track)
    fig, grid = common.figure(1, 2, width=6.4, height=3.8, sharey=True)
    large = cells["n"][owner] >= LEAST
    last = 0
    series = list(dict.fromkeys(labels.tolist()))
    for ax, (coupling, title) in zip(grid, PANELS):
        for k, key in enumerate(series):
            rows = np.flatnonzero(large & (cells["coupling"][owner] == coupling) &
                                  (labels[owner] == key))
            style = common.format_look(key) if axis == "exp_avg" else common.look(k)
            label = common.format_name(key) if axis == "exp_avg" else key
            if len(rows):
                last = draw(ax, rows, style, label, steps, sqnr, k)
        ax.set_xticks([x for x in ax.get_xticks() if 0 <= x <= last])
        ax.set_title(f"{coupling}: {title}", loc="left")
        ax.set_xlabel("updates")
    grid[0].set_ylabel(f"SQNR of the {state} (dB)")
    common.legend(fig, *grid[0].get_legend_handles_labels())
    traces = len({(cells["source"][i], cells["tensor"][i]) for i in owner[large]})
    fig.suptitle(f"What does requantizing the {state} after every update add?\n"
                 f"Median of {traces} real gradient traces; bars: quartiles at the end")
    common.save(fig, out, name)


def main():
    args = common.arguments("drift of requantized averages on real gradients")
    for stem, axis, track, state, name in FIGURES:
        f = common.results(args, stem + ".h5", needed=False)
        if f and common.has(f, "/curves"):
            with f:
                figure(f, axis, track, state, args.out, name)


main()
