"""decades.py - Draws the error of momentum formats against magnitude over the block's maximum.

Reads momentum_format.h5: /unit_decades of block size 128.  Points are medians over tensors and
stand in the middle of their decade.  The ladder of the 0.2.4 table is left out: it differs from the
nearest value in one cell of the highest decade only.
"""
import common
import numpy as np

BLOCK = "block:128"
LOW, HIGH = -7, -1   # decades drawn
LEAST = 20           # fewest elements of a tensor in a decade


def main():
    args = common.arguments("error against magnitude decade")
    with common.results(args, "momentum_format.h5") as f:
        cells, axes = common.table(f, "/cells"), common.table(f, "/axes")
        low = common.dataset(f, "/unit_decades/low")[...]
        shown = (low >= LOW) & (low <= HIGH)
        count = f["/unit_decades/count"][...][:, shown]
        error = f["/unit_decades/mean_rel"][...][:, shown]
        zero = f["/unit_decades/zero_share"][...][:, shown]
    of_block = (axes["exp_avg.norm"] == BLOCK) & (cells["status"] == "ok")
    if not of_block.any():
        common.skip(f"no cell of {BLOCK} in momentum_format.h5")
    few = count < LEAST
    error[few], zero[few] = np.nan, np.nan
    fig, (top, bottom) = common.figure(2, 1, width=5.2, height=5.2, sharex=True)
    formats = [key for key in common.known(axes["exp_avg"], common.FORMATS)
               if key != "nf4a8 ladder"]
    for key in formats:
        mask = of_block & (axes["exp_avg"] == key)
        style = common.format_look(key)
        middle = low[shown] + 0.5
        top.plot(middle, common.median(error[mask]), label=common.format_name(key), **style)
        bottom.plot(middle, common.median(zero[mask]), **style)
    tensors = max(np.sum(of_block & (axes["exp_avg"] == key)) for key in formats)
    top.set_yscale("log")
    top.set_ylabel("mean of |error| / |x|")
    bottom.set_ylabel("share decoded to 0")
    bottom.set_ylim(-0.04, 1.04)
    bottom.set_xticks(range(LOW, HIGH + 2), [f"$10^{{{k}}}$" for k in range(LOW, HIGH + 2)])
    bottom.set_xlabel("|x| / maximum of its block of 128")
    common.legend(fig, *top.get_legend_handles_labels())
    fig.suptitle(f"Which magnitudes does each format of the momentum lose?\n"
                 f"Median over {tensors} real tensors, per decade of magnitude")
    common.save(fig, args.out, "decades")


common.guarded(main)
