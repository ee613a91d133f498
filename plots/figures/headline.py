"""headline.py - Draws the two answers of `make run`: formats of the momentum, scales of v.

Reads momentum_format.h5 (sqnr of /metrics against the block size, by format) and rank1.h5
(step_sqnr by scales).  A line is the median over tensors, its band the middle half of them.
"""
import common
import numpy as np

FORMATS = ("int4", "intm4", "nf4", "dyn4")
SCALES = ("block 64", "block 128", "rank-1")


def by_tensor(cells, rows, values):
    """{(source, tensor): value} of the given rows."""
    return {(cells["source"][i], cells["tensor"][i]): values[i] for i in np.flatnonzero(rows)}


def quartiles(values):
    """The lower quartile, the median and the upper quartile."""
    return tuple(np.quantile(np.array(list(values)), (0.25, 0.5, 0.75)))


def gains(left, right):
    """right - left of the tensors that both have."""
    return np.array([right[key] - left[key] for key in left if key in right])


def blocks_of(axes):
    sizes = {int(word.split(":")[1]) for word in axes["exp_avg.norm"].tolist()}
    return sorted(sizes)


def draw_formats(ax, f):
    cells, axes = common.table(f, "/cells"), common.table(f, "/axes")
    sqnr, ok = common.table(f, "/metrics")["sqnr"], cells["status"] == "ok"
    sizes = blocks_of(axes)
    found = {}
    for key in FORMATS:
        for size in sizes:
            rows = ok & (axes["exp_avg"] == key) & (axes["exp_avg.norm"] == f"block:{size}")
            found[key, size] = by_tensor(cells, rows, sqnr)
    for key in FORMATS:
        low, mid, high = zip(*(quartiles(found[key, size].values()) for size in sizes))
        style = common.format_look(key)
        ax.plot(sizes, mid, label=common.format_name(key), **style)
        ax.fill_between(sizes, low, high, color=style["color"], alpha=0.13, linewidth=0)
    gain = {size: gains(found["int4", size], found["nf4", size]) for size in sizes}
    middle = [np.median(g) for g in gain.values()]
    wins = [int(np.sum(g > 0)) for g in gain.values()]
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.minorticks_off()
    ax.set_xlabel("elements per scale (block size)")
    ax.set_ylabel("SQNR of the momentum (dB)")
    n = len(next(iter(gain.values())))
    ax.set_title(f"Momentum: NF4 beats uniform int4 by {min(middle):.1f} to\n"
                 f"{max(middle):.1f} dB, on {min(wins)} or more of {n} tensors", loc="left")


def draw_scales(ax, f):
    cells, axes = common.table(f, "/cells"), common.table(f, "/axes")
    step, ok = common.table(f, "/metrics")["step_sqnr"], cells["status"] == "ok"
    found = {key: by_tensor(cells, ok & (axes["exp_avg_sq"] == key), step) for key in SCALES}
    for source in found["rank-1"]:
        ax.plot(range(3), [found[key].get(source, np.nan) for key in SCALES], color="#bbbbbb",
                linewidth=0.7, zorder=1)
    for k, key in enumerate(SCALES):
        low, mid, high = quartiles(found[key].values())
        ax.plot([k, k], [low, high], color=common.PALETTE[1], linewidth=5, alpha=0.35,
                solid_capstyle="butt")
        ax.plot(k, mid, marker="o", color=common.PALETTE[1], markersize=7)
    gain = gains(found["block 128"], found["rank-1"])
    ax.set_xlim(-0.4, 2.4)
    ax.set_xticks(range(3), ["a scale per\n64 elements", "a scale per\n128 elements",
                             "rank-1: one per\nrow and column"])
    ax.set_ylabel("SQNR of the next update (dB)")
    ax.set_title(f"Second moment, 4 bits: rank-1 scales gain\n{np.median(gain):.1f} dB in the "
                 f"update, on {int(np.sum(gain > 0))} of {len(gain)} matrices", loc="left")


def main():
    args = common.arguments("the answers of make run in one figure")
    with common.results(args, "momentum_format.h5") as f, common.results(args, "rank1.h5") as g:
        fig, (left, right) = common.figure(1, 2, width=8.2, height=3.5)
        draw_formats(left, f)
        draw_scales(right, g)
    common.legend(fig, *left.get_legend_handles_labels(), columns=4)
    common.save(fig, args.out, "headline")


common.guarded(main)
