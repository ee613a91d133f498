"""dumbbell.py - Compares two series of cells that do not train, tensor by tensor.

The two are the first value of the axis and the one that gains most over it with no more bits,
or, where none surely gains, loses most; a row is a
tensor, by class, within a class in the order of the gain.
"""
import alike
import campaign
import numpy as np
from cells import DRAWN, EXACT, Cells, interval, is_nothing, others, side, ties_told, wins

NAME, MENU = "dumbbell", "Tensor by tensor"
LEAST, NAMED = 6, 100  # tensors of a panel; of the largest of a figure whose rows have names


def short(key):
    """gpt_austen.h5:gpt_austen_b95/s000400 as gpt_austen_b95 400; dist:student:5 as student:5 and
    its seed."""
    source, tensor, seed = key
    if source.startswith(DRAWN):
        return f"{tensor}  {source.partition(':')[2]}  seed {seed}".strip()
    run, _, step = source.split(":")[-1].partition("/s")
    return f"{tensor}  {run} {step.lstrip('0')}"


def is_drawn(x):
    """Whether a value has a place of its own on the axis."""
    return np.isfinite(x) and x < EXACT


def pair_told(grid, found):
    """How many tensors are higher in which of the two, in the order of the title."""
    first, best, gains = found
    d = np.array([*gains.values()])
    if side(*interval(d)[1:]) < 0:  # the title says that the first one is above
        first, best, d = best, first, -d
    equal = sum(map(is_nothing, d))
    return f"{best} against {first}{grid.where()}, {wins(d)} of {len(d)} higher" \
        + f" and {equal} equal" * bool(equal)


def exact_told(values):
    """What the caption says of values that have no place of their own on the axis."""
    out = ""
    if any(x >= EXACT for x in values):
        out = "; exact: no error, or one below float32's last place (a ratio of more than " \
            f"{EXACT:.0f} dB), drawn to the right of all others"
    if any(x == -np.inf for x in values):
        out += "; -Inf: nothing of the value is left"
    return out


def panel(grid, words, found, is_named):
    first, best, gains = found
    left, right = (grid.by_tensor(grid.at(name)) for name in (first, best))
    classes = list(dict.fromkeys(grid.kind[key] for key in gains))
    known = [x for values in (left, right) for x in (values[key] for key in gains) if is_drawn(x)]
    beyond = 0.06 * np.ptp(known or [1.0, 0.0])  # how far off infinite values are drawn
    exact, none = max(known, default=0.0) + beyond, min(known, default=0.0) - beyond
    height = 1.0 + min(len(gains) + len(classes), 110) * 0.105
    fig, ax = campaign.panel(width=4.4, height=height)
    y, ticks, labels = 0, [], []
    for name in classes:
        ax.text(-0.02, y, name, transform=ax.get_yaxis_transform(), fontsize=6.5,
                fontweight="bold", ha="right", va="center")
        for key in sorted((k for k in gains if grid.kind[k] == name), key=gains.get):
            y += 1
            ends = [x if is_drawn(x) else exact if x > 0 else none
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
    ax.set_yticks(ticks if is_named else [], labels if is_named else [], fontsize=5.5)
    ax.set_ylim(y - 0.3, -0.7)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(words, fontsize=8)
    ax.legend(fontsize=7, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1,
              ncol=2 if len(first) + len(best) < 30 else 1,
              handlelength=1)
    return fig


def draw(c, out):
    table, panels, notes, told, values = Cells(c), [], [], {}, []
    shown = [(head, words, grid, found) for head, words, grid in table.grids()
             if (found := grid.best()) and len(found[2]) >= LEAST]
    if not shown:
        return
    most = max(len(found[2]) for *_, found in shown)
    for head, words, grid, found in shown:
        told[f"{head}: {words}" if head else words] = grid.alike_told(are_medians=False)
        for name in found[:2]:
            values += [x for key, x in grid.by_tensor(grid.at(name)).items() if key in found[2]]
        notes.append(f"{head + ', ' if head else ''}{words}: {pair_told(grid, found)}.")
        panels.append((panel(grid, words, found, most <= NAMED), head, notes[-1]))
    grids = [grid for *_, grid, _ in shown]
    title = next(filter(None, (grid.answer() for grid in grids)), "")
    title += others(grids, 0, [*told]) + campaign.lost_title(table.lost)
    out.figure(NAME, panels, (title, MENU),
               f"The title is of {next(iter(told))}. " * (len(panels) > 1)
               + " ".join(notes[:4]) + f" {len(notes) - 4} panels more." * (len(notes) > 4)
               + " A row is a tensor, its run and its step,"
               " by class; brackets hold the median with 95 % (below six: the range); "
               + ties_told() + exact_told(values)
               + (f"; with more than {NAMED} rows in a panel the classes alone have names"
                  if most > NAMED else "") + table.omitted() + table.origin()
               + alike.together(told), wide=True)
