"""rank1.py - Compares rank-1 scales with one scale per 128 elements, tensor by tensor.

Reads rank1.h5: sqnr and step_sqnr of /metrics.  Above the diagonal rank-1 is better.
"""
import common
import numpy as np

BASE, OTHER = "block 128", "rank-1"
PANELS = [("sqnr", "second moment itself"), ("step_sqnr", "update made from it")]


def main():
    args = common.arguments("rank-1 normalization against blocks")
    with common.results(args, "rank1.h5") as f:
        cells, axes = common.table(f, "/cells"), common.table(f, "/axes")
        metrics = common.table(f, "/metrics")
    ok = cells["status"] == "ok"
    place = [{(cells["source"][i], cells["tensor"][i]): i
              for i in np.flatnonzero(ok & (axes["exp_avg_sq"] == key))} for key in (BASE, OTHER)]
    both = [(i, place[1][name]) for name, i in place[0].items() if name in place[1]]
    if not both:
        common.skip("no tensor with both normalizations in rank1.h5")
    base, other = (np.array(column) for column in zip(*both))
    classes = sorted(set(cells["class"][base].tolist()))
    fig, grid = common.figure(1, 2, width=6.4, height=4.3)
    for ax, (metric, title) in zip(grid, PANELS):
        x, y = metrics[metric][base], metrics[metric][other]
        ends = min(min(x), min(y)) - 1.5, max(max(x), max(y)) + 1.5
        ax.plot(ends, ends, color="#888888", linewidth=1, linestyle="--", zorder=1)
        for k, name in enumerate(classes):
            mine = cells["class"][base] == name
            ax.plot(x[mine], y[mine], label=name, **dict(common.look(k), linestyle="none"))
        ax.set_box_aspect(1)
        ax.set_xlim(ends)
        ax.set_ylim(ends)
        ax.set_xlabel("one scale per 128 elements (dB)")
        ax.set_ylabel("rank-1 scales (dB)")
        ax.set_title(f"SQNR of the {title}", loc="left")
    common.legend(fig, *grid[0].get_legend_handles_labels(), columns=4)
    fig.suptitle(f"Does rank-1 normalization beat blocks for a 4-bit second moment?\n"
                 f"{len(both)} real matrices and kernels; above the line rank-1 is better")
    common.save(fig, args.out, "rank1")


main()
