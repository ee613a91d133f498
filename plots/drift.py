"""drift.py - SQNR of the momentum over the recorded gradients of real runs.

Reads drift.h5: curves step and state0_sqnr.  Lines are medians over traces, bands go from the lower
to the upper quartile (values of a trace, not interpolated).
"""
import common
import numpy as np

PANELS = [("local", "error of one step"),
          ("global", "error of the whole run")]
LEAST = 16  # elements; smaller tensors have values that a table holds exactly


def main():
    args = common.arguments("drift of requantized averages on real gradients")
    with common.results(args, "drift.h5") as f:
        cells, axes = common.table(f, "/cells"), common.table(f, "/axes")
        owner = common.dataset(f, "/curves/cell")[...]
        steps = common.curves(f, "/curves/step")
        sqnr = common.curves(f, "/curves/state0_sqnr")
    fig, grid = common.figure(1, 2, width=6.4, height=3.8, sharey=True)
    large = cells["n"][owner] >= LEAST
    for ax, (coupling, title) in zip(grid, PANELS):
        for key in common.known(axes["exp_avg"], common.FORMATS):
            rows = np.flatnonzero(large & (cells["coupling"][owner] == coupling) &
                                  (axes["exp_avg"][owner] == key))
            if len(rows) == 0:
                continue
            x = np.unique(np.concatenate([steps[row] for row in rows]))
            y = np.full((len(rows), len(x)), np.nan)
            for k, row in enumerate(rows):
                y[k, np.searchsorted(x, steps[row])] = sqnr[row]
            style = common.format_look(key)
            low, high = np.nanquantile(y, [0.25, 0.75], axis=0, method="nearest")
            ax.fill_between(x, low, high, color=style["color"], alpha=0.1, linewidth=0)
            ax.plot(x, common.median(y), label=common.format_name(key), **style)
        ax.set_title(f"{coupling}: {title}", loc="left")
        ax.set_xlabel("updates")
    grid[0].set_ylabel("SQNR of the momentum (dB)")
    common.legend(fig, *grid[0].get_legend_handles_labels())
    traces = len({(cells["source"][i], cells["tensor"][i]) for i in owner[large]})
    fig.suptitle(f"What does requantizing after every update add?\n"
                 f"Median and quartiles of {traces} real gradient traces")
    common.save(fig, args.out, "drift")


main()
