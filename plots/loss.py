"""loss.py - loss over steps with quantized states, against the double-precision twin.

Reads convergence.h5: curves step, loss, twin_loss.  Lines are medians over seeds, bands go from the
lowest seed to the highest.
"""
import common
import numpy as np

TITLES = {"quad": "ill-conditioned quadratic", "nqm": "noisy quadratic", "lowrank": "low-rank fit"}


def at_steps(curves, steps, rows, wanted):
    """Curves rows as one array [row, step], NaN where one ended early."""
    out = np.full((len(rows), len(wanted)), np.nan)
    for k, row in enumerate(rows):
        out[k, np.searchsorted(wanted, steps[row])] = curves[row]
    return out


def band(ax, x, y, style, **more):
    ax.fill_between(x, np.nanmin(y, axis=0), np.nanmax(y, axis=0), color=style["color"],
                    alpha=0.1, linewidth=0)
    for edge in (np.nanmin(y, axis=0), np.nanmax(y, axis=0)):
        ax.plot(x, edge, color=style["color"], linestyle=style["linestyle"], linewidth=0.5)
    ax.plot(x, common.median(y), **style, **more)


def draw(ax, cells, mask, curves):
    """One problem; mask: over curves."""
    owner, steps, loss, twin = curves
    rows = np.flatnonzero(mask)
    wanted = np.unique(np.concatenate([steps[row] for row in rows]))
    x, keep = wanted[wanted > 0], wanted > 0
    variants = list(dict.fromkeys(cells["variant"][owner[rows]].tolist()))
    first = rows[cells["variant"][owner[rows]] == variants[0]]
    exact = at_steps(twin, steps, first, wanted)[:, keep]
    ax.plot(x, common.median(exact), color="#bbbbbb", linewidth=4, label="double-precision twin",
            solid_capstyle="round", zorder=1)
    for k, name in enumerate(variants):
        mine = rows[cells["variant"][owner[rows]] == name]
        band(ax, x, at_steps(loss, steps, mine, wanted)[:, keep], common.look(k), label=name,
             markevery=(k % 5, 8), zorder=3)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("updates")


def main():
    args = common.arguments("loss with quantized states against the full-precision twin")
    with common.results(args, "convergence.h5") as f:
        cells = common.table(f, "/cells")
        curves = (common.dataset(f, "/curves/cell")[...], common.curves(f, "/curves/step"),
                  common.curves(f, "/curves/loss"), common.curves(f, "/curves/twin_loss"))
    sources = list(dict.fromkeys(cells["source"][curves[0]].tolist()))
    fig, grid = common.figure(1, len(sources), width=2.45 * len(sources), height=3.8, squeeze=False)
    for ax, source in zip(grid[0], sources):
        draw(ax, cells, cells["source"][curves[0]] == source, curves)
        name = source.split(":")[1]
        ax.set_title(TITLES.get(name, name), loc="left")
    grid[0, 0].set_ylabel("loss above the problem's floor")
    common.legend(fig, *grid[0, 0].get_legend_handles_labels(), columns=4)
    seeds = len(set(cells["seed"].tolist()))
    fig.suptitle(f"What does the format of the states change in the loss?\n"
                 f"Median and range of {seeds} seeds")
    common.save(fig, args.out, "loss")


main()
