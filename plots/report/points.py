"""points.py - Draws a metric of cells that do not train: medians with intervals, by axis values.

A point is the median over tensors, its bar the order statistics that hold the median with at
least 95 %; below six tensors it is the range.  Where half or more of the values are exact, the
marker stands above all others, with the word.  The block size is the horizontal axis where it
varies, else the values themselves; maps are series, other axes panels.
"""
import alike
import campaign
import common
import numpy as np
from cells import BLOCKS, Cells, has_median, interval, is_block, others, ties_told
from encode import bars, mark_exact

NAME, MENU = "points", "Values"
UPRIGHT, MOST = 12, 48  # names on the horizontal axis: more stand upright; so many are shown


def panel(grid, words):
    fig, ax = campaign.panel(width=4.6, height=3.0)
    lines, exact = grid.x and all(map(is_block, grid.places)), []
    for k, label in enumerate(grid.labels):
        style = grid.look[label]
        shift = (k - (len(grid.labels) - 1) / 2) * 0.4 / len(grid.labels)
        points = {False: [], True: []}  # whether they are set apart
        for at, place in enumerate(grid.places):
            found = grid.by_tensor(grid.value.get((place, label), {}))
            x = at + (shift if grid.x else 0)
            if found and has_median(found):
                points[grid.is_apart((place, label))].append((x, *interval([*found.values()])))
            elif found:
                exact.append((x, at, style))
        for hollow, rows in points.items():
            at, mid, low, high = np.array(rows, dtype=float).reshape(-1, 4).T
            mid, ends = bars(low, mid, high)
            named = label if not hollow or not points[False] else None
            if rows:
                ax.errorbar(at, mid, yerr=ends, color=style["color"], marker=style["marker"],
                            linestyle=style["linestyle"] if lines and not hollow else "none",
                            markersize=4, linewidth=1, elinewidth=1.4, label=named,
                            markerfacecolor="#ffffff" if hollow else style["color"])
    if not ax.containers:  # all are exact
        ax.set_yticks([])
    mark_exact(ax, exact)
    names = [v.removeprefix(BLOCKS) if lines else v for v in grid.places]
    turn, step = 30 if not grid.x and sum(map(len, names)) > 40 else 0, 1
    if len(names) > UPRIGHT:  # one above the other would not fit
        turn, step = 90, -(-len(names) // MOST)
    ax.set_xticks(range(0, len(names), step), names[::step], rotation=turn,
                  ha="right" if turn == 30 else "center",
                  fontsize=5.5 if turn == 90 else common.fit(7, names, 36))
    ax.set_xlabel("elements per scale (block size)" if lines else grid.x or grid.series or "")
    ax.set_xlim(-0.5, len(names) - 0.5)
    ax.set_ylabel(words, fontsize=8)
    if grid.x and len(grid.labels) > 1:
        low, high = ax.get_ylim()
        ax.set_ylim(low, high + (high - low) * 0.06 * (1 + -(-len(grid.labels) // 3)))
        ax.legend(fontsize=6, ncol=3, loc="upper center")
    return fig


def draw(c, out):
    table = Cells(c)
    panels, answers, effects, grids, beside, why = [], [], [], [], False, ""
    told = {}
    for head, words, grid in table.grids():
        answer = grid.answer()
        head = f"{head}: {words}" if head else words
        panels.append((panel(grid, words), head, f"{head}. {answer or grid.why()}"))
        why, told[head] = why or grid.why(), grid.alike_told()
        answers.append((head, answer))
        effects.append(abs(grid.effect()))
        grids.append(grid)
        beside |= bool(grid.x) and len(grid.labels) > 1
    if not panels:
        return
    k = next((k for k, (_, a) in enumerate(answers) if a), 0)
    title = answers[k][1] or why
    if not effects[0] and max(effects) > 0.0:  # the first panel decides nothing, another one does
        k = int(np.argmax(effects))
        title = ": ".join(answers[k])
    rest = [f"{head}: {a}." for i, (head, a) in enumerate(answers) if a and i != k]
    any_win = any(answer for _, answer in answers)
    title += others(grids, k, [head for head, _ in answers]) + campaign.lost_title(table.lost)
    out.figure(NAME, panels, (title, MENU),
               f"The title is of {answers[k][0]}. " * (len(panels) > 1)
               + " ".join(rest[:4]) + f" {len(rest) - 4} panels more." * (len(rest) > 4)
               + f" A point is the median over at most {table.tensors()},"
               " its bar, and brackets, hold the median with 95 % (below six tensors: the range)"
               + "; markers at one place stand side by side so as not to overlap" * beside
               + table.medians() + "; " * any_win + ties_told() * any_win
               + table.omitted() + table.origin() + alike.together(told), wide=len(panels) == 1)
