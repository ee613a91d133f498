"""loss.py - Draws the loss over steps with quantized states and of the double-precision twin.

Reads convergence.h5 (whole variants), momentum_convergence.h5 (AdamW, only the momentum quantized)
and momentum_sgdm.h5 (SGD with momentum), a figure each: curves step, loss, twin_loss.  Lines are
medians over seeds, bands go from the lowest seed to the highest; both end where all diverged.
"""
import common
import numpy as np

FIGURES = [  # file, axis of the lines, title, figure
    ("convergence", "variant", "What do quantized states change in the loss of AdamW?", "loss"),
    ("momentum_convergence", "exp_avg",
     "What does the format of the momentum alone change in the loss of AdamW?", "loss_momentum"),
    ("momentum_sgdm", "momentum_buffer",
     "What does the format of the momentum change in the loss of SGD?", "loss_sgdm")]
TITLES = {"quad": "ill-conditioned quadratic", "nqm": "noisy quadratic", "lowrank": "low-rank fit"}


def at_steps(curves, steps, rows, wanted):
    """The curves `rows` as one array [row, step]; NaN after the end of a curve."""
    out = np.full((len(rows), len(wanted)), np.nan)
    for k, row in enumerate(rows):
        out[k, np.searchsorted(wanted, steps[row])] = curves[row]
    return out


def band(ax, x, y, style, **more):
    y = np.where(np.isfinite(y), y, np.nan)
    alive = ~np.isnan(y).all(axis=0)
    x, y = x[alive], y[:, alive]
    ax.fill_between(x, np.nanmin(y, axis=0), np.nanmax(y, axis=0), color=style["color"],
                    alpha=0.1, linewidth=0)
    for edge in (np.nanmin(y, axis=0), np.nanmax(y, axis=0)):
        ax.plot(x, edge, color=style["color"], linestyle=style["linestyle"], linewidth=0.5)
    ax.plot(x, common.median(y), **style, **more)


def draw(ax, mask, labels, curves):
    """Draws one problem: the curves in mask; labels: one per curve, in the suite's order."""
    steps, loss, twin = curves
    rows = np.flatnonzero(mask)
    wanted = np.unique(np.concatenate([steps[row] for row in rows]))
    x, keep = wanted[wanted > 0], wanted > 0
    series = list(dict.fromkeys(labels[rows].tolist()))
    first = rows[labels[rows] == series[0]]
    exact = at_steps(twin, steps, first, wanted)[:, keep]
    ax.plot(x, common.median(exact), color="#c4c4c4", linewidth=4, label="double-precision twin",
            solid_capstyle="round", zorder=1)
    for k, name in enumerate(series):
        style = common.format_look(name) if name in common.FORMATS else common.look(k)
        mine = rows[labels[rows] == name]
        band(ax, x, at_steps(loss, steps, mine, wanted)[:, keep], style,
             label=common.format_name(name), markevery=(k % 7 * 0.02, 0.14), zorder=3)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("updates")


def figure(f, axis, question, out, name):
    """Draws the figure of one file, a panel per problem."""
    cells, labels = common.table(f, "/cells"), common.table(f, "/axes")[axis]
    owner = common.dataset(f, "/curves/cell")[...]
    curves = [common.curves(f, "/curves/" + track) for track in ("step", "loss", "twin_loss")]
    sources = list(dict.fromkeys(cells["source"][owner].tolist()))
    fig, grid = common.figure(1, len(sources), width=max(6, 2.45 * len(sources)),
                              height=3.9, squeeze=False)
    for ax, source in zip(grid[0], sources):
        draw(ax, cells["source"][owner] == source, labels[owner], curves)
        problem = source.split(":")[1]
        ax.set_title(TITLES.get(problem, problem), loc="left")
    grid[0, 0].set_ylabel("loss above the problem's floor")
    common.legend(fig, *grid[0, 0].get_legend_handles_labels(), columns=4)
    fig.suptitle(f"{question}\nMedian and range of {len(set(cells['seed'].tolist()))} seeds")
    common.save(fig, out, name)


def main():
    args = common.arguments("loss with quantized states against the double-precision twin")
    for stem, axis, question, name in FIGURES:
        f = common.results(args, stem + ".h5", needed=False)
        if f and common.has(f, "/curves"):
            with f:
                figure(f, axis, question, args.out, name)


main()
