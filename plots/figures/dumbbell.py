"""dumbbell.py - Compares uniform 4-bit integers with NF4, tensor by tensor.

Reads momentum_format.h5: sqnr of /metrics at block size 128; one row per tensor, by class, within a
class in the order of the gain.
"""
import common
import numpy as np

BLOCK = "block:128"
PAIR = ("int4", "nf4")


def pairs(cells, axes, values):
    """{class: [(tensor, source, left, right)]}, by rising right - left; classes in the file's order."""
    found = {}
    ok = (axes["exp_avg.norm"] == BLOCK) & (cells["status"] == "ok")
    ends = [{(cells["source"][i], cells["tensor"][i]): i
             for i in np.flatnonzero(ok & (axes["exp_avg"] == key))} for key in PAIR]
    for name, i in ends[0].items():
        if name in ends[1]:
            row = (name[1], name[0], values[i], values[ends[1][name]])
            found.setdefault(str(cells["class"][i]), []).append(row)
    for rows in found.values():
        rows.sort(key=lambda row: row[3] - row[2])
    return found


def halves(found):
    """The classes in two columns of about the same height."""
    total = sum(len(rows) + 1 for rows in found.values())
    left, right, height = [], [], 0
    for name, rows in found.items():
        (left if 2 * height + len(rows) + 1 <= total + 2 else right).append((name, rows))
        height += len(rows) + 1
    return left, right


def short(source):
    """gpt_austen.h5:gpt_austen_b95/s000400 as gpt_austen_b95 400."""
    run, _, step = source.split(":")[-1].partition("/s")
    return f"{run} {step.lstrip('0')}"


def draw(ax, part):
    y, ticks, labels = 0, [], []
    for name, rows in part:
        ax.text(-0.02, y, name, transform=ax.get_yaxis_transform(), fontsize=7, fontweight="bold",
                ha="right", va="center")
        for tensor, source, left, right in rows:
            y += 1
            ax.plot([left, right], [y, y], color="#888888", linewidth=1.2, zorder=1)
            for key, x in zip(PAIR, (left, right)):
                style = common.format_look(key)
                ax.plot(x, y, marker=style["marker"], color=style["color"], markersize=4,
                        linestyle="none", zorder=2)
            ticks.append(y)
            labels.append(f"{tensor}  {short(source)}")
        y += 1
    ax.set_yticks(ticks, labels, fontsize=6)
    ax.set_ylim(y - 0.3, -0.7)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("SQNR of the state (dB)")
    return y


def main():
    args = common.arguments("uniform against NF4, tensor by tensor")
    with common.results(args, "momentum_format.h5") as f:
        cells, axes = common.table(f, "/cells"), common.table(f, "/axes")
        found = pairs(cells, axes, common.table(f, "/metrics")["sqnr"])
    if not found:
        common.skip(f"no tensor with both formats at {BLOCK} in momentum_format.h5")
    parts = [part for part in halves(found) if part]
    rows = max(sum(len(rows) + 1 for _, rows in part) for part in parts)
    fig, grid = common.figure(1, len(parts), width=7.2, height=1.2 + 0.145 * rows, sharex=True,
                              squeeze=False)
    for ax, part in zip(grid[0], parts):
        draw(ax, part)
    handles = [common.plt.Line2D([], [], **dict(common.format_look(key), linestyle="none"))
               for key in PAIR]
    common.legend(fig, handles, [common.format_name(key) for key in PAIR])
    fig.suptitle("Does NF4 beat uniform 4-bit integers on every real momentum?\n"
                 "Blocks of 128; a row is a tensor, its run and its step")
    common.save(fig, args.out, "dumbbell")


main()
