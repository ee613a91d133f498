"""dumbbell.py - Compares two series of cells that do not train, tensor by tensor.

The two are the first value of the axis and the one that gains most over it with no more bits,
or, where none surely gains, loses most; a row is a
tensor, by class, within a class in the order of the gain.
"""
import alike
import campaign
import numpy as np
from cells import DRAWN, Cells, others, wins

NAME, MENU = "dumbbell", "Tensor by tensor"
LEAST, NAMED = 6, 70  # tensors of a figure; of one whose rows have names


def short(key):
    """gpt_austen.h5:gpt_austen_b95/s000400 as gpt_austen_b95 400; dist:student:5 as student:5 and
    its seed."""
    source, tensor, seed = key
    if source.startswith(DRAWN):
        return f"{tensor}  {source.partition(':')[2]}  seed {seed}".strip()
    run, _, step = source.split(":")[-1].partition("/s")
    return f"{tensor}  {run} {step.lstrip('0')}"


def panel(grid, words, found):
    first, best, gains = found
    left, right = (grid.by_tensor(grid.at(name)) for name in (first, best))
    classes = list(dict.fromkeys(grid.kind[key] for key in gains))
    known = [x for side in (left, right) for x in (side[key] for key in gains) if np.isfinite(x)]
    beyond = 0.06 * np.ptp(known or [1.0, 0.0])  # how far off infinite values are drawn
    exact, none = max(known, default=0.0) + beyond, min(known, default=0.0) - beyond
    height = 1.0 + min(len(gains) + len(classes), 90) * 0.105
    fig, ax = campaign.panel(width=4.4, height=height)
    y, ticks, labels = 0, [], []
    for name in classes:
        ax.text(-0.02, y, name, transform=ax.get_yaxis_transform(), fontsize=6.5,
                fontweight="bold", ha="right", va="center")
        for key in sorted((k for k in gains if grid.kind[k] == name), key=gains.get):
            y += 1
            ends = [x if np.isfinite(x) else exact if x > 0 else none
                    for x in (left[key], right[key])]
            ax.plot(ends, [y, y], color="#7f7f7f", linewidth=1, zorder=1)
            if exact in ends:
                ax.text(exact, y, "  exact", fontsize=5.5, va="center")
            if none in ends:
                ax.text(none, y, "-Inf  ", fontsize=5.5, va="center", ha="right")
            for label, x in zip((first, best), ends):
                style = grid.looks[label]
                ax.plot(x, y, marker=style["marker"], color=style["color"], markersize=3.2,
                        linestyle="none", zorder=2, label=label if y == 1 else None)
            ticks.append(y)
            labels.append(short(key))
        y += 1
    ax.set_yticks(ticks if len(ticks) <= NAMED else [], labels if len(ticks) <= NAMED else [],
                  fontsize=5.5)
    ax.set_ylim(y - 0.3, -0.7)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(words, fontsize=8)
    ax.legend(fontsize=7, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1,
              ncol=2 if len(first) + len(best) < 30 else 1,
              handlelength=1)
    return fig


def draw(c, out):
    table, panels, title, of, notes, grids, most, told = Cells(c), [], "", "", [], [], 0, {}
    for head, words, grid in table.grids():
        found = grid.best()
        if not found or len(found[2]) < LEAST:
            continue
        where = f"{head}: {words}" if head else words
        of = of if title else where
        title = title or grid.answer()
        grids.append(grid)
        told[where] = grid.alike_told(are_medians=False)
        d = np.array([*found[2].values()])
        most = max(most, len(d))
        notes.append(f"{head + ', ' if head else ''}{words}: {found[1]} against {found[0]}"
                     f"{grid.where()}, {wins(d)} of {len(d)} higher.")
        panels.append((panel(grid, words, found), head, notes[-1]))
    if panels:
        title += others(grids, 0) + campaign.lost_title(table.lost)
        out.figure(NAME, panels, (title, MENU), f"The title is of {of}. " * (len(panels) > 1)
                   + " ".join(notes[:4]) + " A row is a tensor, its run "
                   "and its step, by class; brackets hold the median with 95 % (below six: the range)"
                   + (f"; panels of more than {NAMED} rows name the classes alone"
                      if most > NAMED else "") + table.omitted() + alike.together(told), wide=True)
