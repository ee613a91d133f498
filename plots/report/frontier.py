"""frontier.py - Draws the error of cells that do not train against the bits of an element."""
import campaign
import numpy as np
from cells import BLOCKS, Cells, interval

NAME, MENU, TITLE = "frontier", "Bits", "Error against bits"


def points_of(grid):
    """[(bits, median, low, high, label, place)], by rising bits."""
    return sorted((grid.bits[key], *interval(np.array([*found.values()])), key[1], key[0])
                  for key, found in grid.value.items())


def front(points):
    """The points that none with as few bits exceeds."""
    out = []
    for p in points:
        if not out or p[1] > out[-1][1]:
            if out and out[-1][0] == p[0]:
                out.pop()
            out.append(p)
    return out


def panel(grid, words, points, best):
    fig, ax = campaign.panel(width=4.6, height=3.0)
    for label in grid.labels:
        style = grid.look[label]
        bits, mid, low, high = (np.array([p[k] for p in points if p[4] == label])
                                for k in range(4))
        ax.errorbar(bits, mid, yerr=[mid - low, high - mid], color=style["color"],
                    marker=style["marker"], linestyle="none", markersize=4, elinewidth=1,
                    label=label)
    ax.step([p[0] for p in best], [p[1] for p in best], where="post", color="#7f7f7f", linewidth=1,
            zorder=1)
    low, high = points[0][0], points[-1][0]
    if high > 2.5 * low:
        ax.set_xscale("log", base=2)
        ax.set_xticks([b for b in (2, 3, 4, 5, 6, 8, 12, 16, 32) if low * 0.9 <= b <= high * 1.1])
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    ax.minorticks_off()
    ax.set_xlabel("bits per element, scales included", fontsize=8)
    ax.set_ylabel(words, fontsize=8)
    floor, roof = ax.get_ylim()
    ax.set_ylim(floor, roof + (roof - floor) * 0.06 * (1 + -(-len(grid.labels) // 3)))
    ax.legend(fontsize=6, ncol=3, loc="upper center")
    return fig


def draw(c, out):
    table, panels, title, left_out = Cells(c), [], "", 0
    for head, words, grid in table.grids():
        points = points_of(grid)
        if not grid.once:
            continue
        if points[-1][0] < 1.02 * points[0][0] or len(points) < 3:
            left_out += 1
            continue
        best = front(points)
        least = best[0]
        size = f" in {least[5].replace(BLOCKS, 'blocks of ')}" if grid.x else ""
        answer = (f"At {least[0]:.3g} bits {least[4]}{size} has {least[1]:.3g} dB; "
                  f"{best[-1][4]} reaches {best[-1][1]:.3g} dB with {best[-1][0]:.3g}")
        title = title or answer
        head = f"{head}: {words}" if head else words
        panels.append((panel(grid, words, points, best), head, f"{head}. {answer}"))
    if panels:
        out.figure(NAME, panels, (title, MENU), "A point is the median over at most "
                   f"{table.tensors()} tensors, its bar holds the median with 95 %; the grey line "
                   "is what no other point with as few bits exceeds"
                   + (f"; {left_out} comparisons at equal bits have no panel" if left_out else "")
                   + table.omitted(), wide=len(panels) == 1)
