"""codebooks.py - the 4-bit codebooks on the number line, with their decision boundaries.

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
    """The rows of one table, sorted as they are stored: by position."""
    mask = (book["map"] == map_name) & (book["search"] == search)
    return {name: column[mask] for name, column in book.items()}


def draw_row(ax, y, rows, colour, marker):
    """One table: a dot per value, a tick per boundary, hatched where codes are not the nearest."""
    value, edge = rows["value"], rows["edge"]
    ax.hlines(y, min(value), max(value), color="#999999", linewidth=0.8, zorder=1)
    ax.vlines(edge[~np.isnan(edge)], y - 0.3, y + 0.3, color="#444444", linewidth=0.9, zorder=2)
    ax.plot(value, np.full(len(value), y), linestyle="none", marker=marker, color=colour, zorder=3)


def draw_signed(ax, book):
    names = [(m, s, text) for m, s, text in SIGNED if len(pick(book, m, s)["value"])]
    for y, (map_name, search, _) in enumerate(names):
        rows = pick(book, map_name, search)
        in_range = rows["value"] >= -1.01
        near = {name: column[in_range] for name, column in rows.items()}
        draw_row(ax, y, near, common.PALETTE[1], "o")
        ax.plot(rows["value"][~in_range], [y] * np.sum(~in_range), linestyle="none", marker="o",
                color=common.PALETTE[1], fillstyle="none")
        for low, high in zip(rows["midpoint"][:-1], rows["edge"][:-1]):
            ax.fill_betweenx([y - 0.42, y + 0.42], *sorted((low, high)), facecolor="#f6c9a8",
                             edgecolor=common.PALETTE[2], hatch="////", linewidth=0.6, zorder=0)
    ax.set_yticks(range(len(names)), [text for _, _, text in names])
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlim(-1.19, 1.05)
    ax.set_xlabel("value / maximum of the block")
    ax.set_title("First moment: the whole range", loc="left")


def draw_unsigned(ax, book):
    names = [(m, s, text) for m, s, text in UNSIGNED if len(pick(book, m, s)["value"])]
    for y, (map_name, search, _) in enumerate(names):
        rows = pick(book, map_name, search)
        if rows["value"][0] == 0.0:
            ax.fill_betweenx([y - 0.42, y + 0.42], ZERO, rows["edge"][0], facecolor="#f6c9a8",
                             edgecolor=common.PALETTE[2], hatch="////", linewidth=0.6, zorder=0)
        shown = dict(rows, value=np.where(rows["value"] == 0.0, ZERO, rows["value"]))
        draw_row(ax, y, shown, common.PALETTE[1], "s")
    ax.set_yticks(range(len(names)), [text for _, _, text in names])
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xscale("log")
    ax.set_xlim(ZERO * 0.85, 1.15)
    ax.set_xticks([ZERO, 1e-3, 1e-2, 1e-1, 1], ["0", "0.001", "0.01", "0.1", "1"])
    ax.set_xlabel("value / maximum of the block (logarithmic, 0 at the left end)")
    ax.set_title("Second moment: small values, hatched where they decode to 0", loc="left")


def main():
    args = common.arguments("the codebooks and their decision boundaries")
    with common.results(args, "momentum_format.h5") as f:
        first = common.table(f, "/codebooks")
    with common.results(args, "second_moment.h5") as f:
        second = common.table(f, "/codebooks")
    fig, (top, bottom) = common.figure(2, 1, height=5.4, height_ratios=(5, 3))
    draw_signed(top, first)
    draw_unsigned(bottom, second)
    for ax in (top, bottom):
        ax.grid(False)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
    fig.suptitle("Where do 4-bit codebooks put their 16 values, and where do they decide?")
    common.save(fig, args.out, "codebooks")


main()
