"""block_size.py - Draws SQNR against block size: samples as points, quadrature as lines.

Reads theory.h5: sqnr and theory_sqnr of /metrics.
"""
import common
import numpy as np

LAWS = {"dist:gauss": "normal", "dist:laplace": "Laplace",
        "dist:student:3": "Student, 3 degrees of freedom", "dist:uniform": "uniform"}


def main():
    args = common.arguments("SQNR against block size")
    with common.results(args, "theory.h5") as f:
        cells, axes = common.table(f, "/cells"), common.table(f, "/axes")
        metrics = common.table(f, "/metrics")
    ok = cells["status"] == "ok"
    block = np.array([int(word.split(":")[1]) for word in axes["exp_avg.norm"]])
    sources = common.known(axes["source"], LAWS)
    formats = [key for key in common.known(axes["exp_avg"], common.FORMATS) if key != "dyn8"]
    rows = (len(sources) + 1) // 2
    fig, grid = common.figure(rows, 2, width=6.4, height=0.9 + 2.2 * rows, sharex=True, sharey=True,
                              squeeze=False)
    for ax, source in zip(grid.flat, sources):
        for key in formats:
            mask = ok & (axes["source"] == source) & (axes["exp_avg"] == key)
            order = np.flatnonzero(mask)[np.argsort(block[mask])]
            style = common.format_look(key)
            ax.plot(block[order], metrics["theory_sqnr"][order], color=style["color"],
                    linestyle=style["linestyle"])
            ax.plot(block[order], metrics["sqnr"][order], color=style["color"], linestyle="none",
                    marker=style["marker"], markersize=4.5)
            ax.plot([], [], label=common.format_name(key), **style)
        ax.set_title(LAWS.get(source, source), loc="left")
        ax.set_xscale("log", base=2)
        ax.set_xticks(sorted(set(block.tolist())), sorted(set(block.tolist())))
        ax.minorticks_off()
    for ax in grid.flat[len(sources):]:
        ax.set_visible(False)
    grid[0, 0].yaxis.set_major_locator(common.plt.MultipleLocator(4))
    for ax in grid[:, 0]:
        ax.set_ylabel("SQNR (dB)")
    for ax in grid[-1]:
        ax.set_xlabel("elements per block")
    common.legend(fig, *grid[0, 0].get_legend_handles_labels())
    fig.suptitle(f"Do 4-bit formats lose what theory says?\n"
                 f"Points: {max(cells['n'])} samples; lines: order statistics and quadrature")
    common.save(fig, args.out, "block_size")


common.guarded(main)
