"""codebooks.py - Draws the 4-bit codebooks and their decision boundaries on the number line.

Reads momentum_format.h5 and second_moment.h5: /codebooks.
"""
import common
import numpy as np

SIGNED = [("int:4s", "arith", "uniform int4"), ("nf4:4s", "bisect", "NF4"),
          ("nf4a8:4s", "argmin", "0.2.4 table,\nnearest"),
          ("nf4a8:4s", "ladder", "0.2.4 table,\nits ladder"), ("dyn:4s", "bisect", "dynamic 4-bit")]
UNSIGNED = [("lin:4u", "bisect", "linear\nwithout zero"), ("lint:4u", "arith", "linear\nwith zero"),
            ("dyn:4u", "bisect", "dynamic\nwith zero")]
ZERO = 6e-4  # where the axis shows 0


def pick(book, map_name, search):
    """The rows of one table, in stored order: by position."""
    mask = (book["map"] == map_name) & (book["search"] == search)
    return {name: column[mask] for name, column in book.items()}


def draw_row(ax, y, rows, marker):
    """Draws one table: a marker per value, a tick per boundary."""
    value, edge = rows["value"], rows["edge"]
    ax.hlines(y, min(value), max(value), color="#999999", linewidth=0.8, zorder=1)
    ax.vlines(edge[~np.isnan(edge)], y - 0.28, y + 0.28, color="#333333", linewidth=0.9, zorder=2)
    ax.plot(value, np.full(len(value), y), linestyle="none", marker=marker, markersize=4,
            color=common.PALETTE[1], zorder=3)


def hatch(ax, y, low, high):
    ax.fill_betweenx([y - 0.4, y + 0.4], low, high, facecolor="#f6c9a8", linewidth=0.6,
                     edgecolor=common.PALETTE[2], hatch="////", zorder=0)


def draw_signed(ax, book):
    names = [(m, s, text) for m, s, text in SIGNED if len(pick(book, m, s)["value"])]
    for y, (map_name, search, _) in enumerate(names):
        rows = pick(book, map_name, search)
        used = rows["value"] >= -1.01
        draw_row(ax, y, {name: column[used] for name, column in rows.items()}, "o")
        if not used.all():
            ax.plot(rows["value"][~used], [y] * np.sum(~used), linestyle="none", marker="o",
                    markersize=4, color=common.PALETTE[1], fillstyle="none")
            ax.text(rows["value"][~used][0], y + 0.46, "never used", ha="center", va="center",
                    fontsize=7)
        for k, (middle, edge) in enumerate(zip(rows["midpoint"][:-1], rows["edge"][:-1])):
            if used[k] and abs(edge - middle) > 1e-6:      # not the rounding of a boundary
                hatch(ax, y, *sorted((middle, edge)))
                ax.text(max(middle, edge) + 0.012, y - 0.42,
                        f"({min(middle, edge):.4f}, {max(middle, edge):.4f}] decodes to "
                        f"{rows['value'][k + (edge < middle)]:g}, nearest is "
                        f"{rows['value'][k + (edge > middle)]:.3f}", va="center", fontsize=7,
                        bbox={"facecolor": "white", "linewidth": 0, "pad": 0.8}, zorder=4)
    ax.set_yticks(range(len(names)), [text for _, _, text in names])
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlim(-1.21, 1.05)
    ax.set_xlabel("value / maximum of the block")
    ax.set_title("First moment: the whole range; hatched: not the nearest value", loc="left")


def draw_unsigned(ax, book):
    names = [(m, s, text) for m, s, text in UNSIGNED if len(pick(book, m, s)["value"])]
    for y, (map_name, search, _) in enumerate(names):
        rows = pick(book, map_name, search)
        if rows["value"][0] == 0.0:
            hatch(ax, y, ZERO, rows["edge"][0])
        shown = dict(rows, value=np.where(rows["value"] == 0.0, ZERO, rows["value"]))
        draw_row(ax, y, shown, "o")
    ax.set_yticks(range(len(names)), [text for _, _, text in names])
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xscale("log")
    ax.set_xlim(ZERO * 0.85, 1.15)
    ax.set_xticks([ZERO, 1e-3, 1e-2, 1e-1, 1], ["0", "0.001", "0.01", "0.1", "1"])
    ax.set_xlabel("value / maximum of the block (logarithmic; 0 at the left end)")
    ax.set_title("Second moment: small values, hatched where they decode to 0", loc="left")


def main():
    args = common.arguments("the codebooks and their decision boundaries")
    with common.results(args, "momentum_format.h5") as f:
        first = common.table(f, "/codebooks")
    with common.results(args, "second_moment.h5") as f:
        second = common.table(f, "/codebooks")
    fig, (top, bottom) = common.figure(2, 1, height=5.6, gridspec_kw={"height_ratios": (5, 3)})
    draw_signed(top, first)
    draw_unsigned(bottom, second)
    for ax in (top, bottom):
        ax.grid(False)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
    shapes = (("o", 4, common.PALETTE[1]), ("|", 9, "#333333"))
    handles = [common.plt.Line2D([], [], linestyle="none", marker=m, markersize=size, color=colour)
               for m, size, colour in shapes]
    common.legend(fig, handles, ["value of a code", "boundary between two codes"])
    fig.suptitle("Where do 4-bit codebooks put their 16 values, and where do they decide?")
    common.save(fig, args.out, "codebooks")


common.guarded(main)
