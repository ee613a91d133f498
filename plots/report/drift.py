"""drift.py - Draws the SQNR of states over updates, of cells that follow recorded gradients."""
import campaign
import common
import encode
import inline
import numpy as np
from cells import units, varying

NAME, MENU = "drift", "Drift"
TRACKS = (("state0_sqnr", "first state"), ("state1_sqnr", "second state"))
WORDS = {"local": "local: error of one step", "global": "global: error of the whole run"}
LEAST = 16  # elements; smaller tensors have values that a table holds exactly


def values(groups, steps, sqnr):
    """(updates, a curve for each of the groups of rows as [group, update]: the median of its rows,
    NaN where it has no point)."""
    x = np.unique(np.concatenate([steps[row] for rows in groups for row in rows]))
    out = []
    for rows in groups:
        y = np.full((len(rows), len(x)), np.nan)
        for k, row in enumerate(rows):
            y[k, np.searchsorted(x, steps[row])] = sqnr[row]
        out.append(common.median(np.where(np.isfinite(y), y, np.nan)))
    return x, np.array(out)


def panel(series, looks, words):
    """series: {label: (updates, curves)}; returns the figure and {label: median at the last update
    that all of them have}, and that update."""
    fig, ax = campaign.panel(width=3.8, height=3.0)
    ends, last = {}, min(x[-1] for x, _ in series.values())
    longest = max(x[-1] for x, _ in series.values())
    for k, (label, (x, y)) in enumerate(series.items()):
        style, middle = looks[label], common.median(y)
        low, high = np.nanquantile(y[:, -1], [0.25, 0.75], method="nearest")
        beside = longest * (1.05 + 0.04 * k)
        ax.vlines(beside, low, high, color=style["color"], linewidth=1.6)
        ax.plot(beside, middle[-1], color=style["color"], marker=style["marker"], markersize=4)
        ax.plot(x, middle, label=label, markevery=max(1, len(x) // 16),
                **dict(style, markersize=4, linewidth=1.1))
        ends[label] = middle[np.searchsorted(x, last)]
    ticks = [t for t in ax.get_xticks() if 0 <= t <= longest]
    ax.set_xticks(ticks if len(ticks) > 1 else [0, longest])
    ax.set_xlabel("updates", fontsize=8)
    ax.set_ylabel(words, fontsize=8)
    return fig, ends, last


def counted(found):
    """What curves are of, in words; found: units (cells.units) of recorded gradients, and those of
    problems."""
    problems = {unit for unit in found if unit[0].startswith("problem:")}
    traces = len(found) - len(problems)
    said = [f"{traces} recorded trace{'s' * (traces != 1)}"] * bool(traces)
    names = {unit[0] for unit in problems}
    said += [f"{len(problems)} run{'s' * (len(problems) != 1)} of training ({len(names)} "
             f"problem{'s' * (len(names) != 1)}, each seed a run, those of equal results one)"] \
        * bool(problems)
    return " and ".join(said)


def same_told(alike, heads):
    """The sentence on states that are the same whatever is compared, alike: [(state, coupling)],
    beside panels of these heads; a coupling is named where another one of the state is drawn."""
    said = [f"{state}, {coupling}," if any(head.startswith(state) for head in heads) else state
            for state, coupling in alike]
    return "".join(f" The {words} is the same in all of them and is left out."
                   for words in dict.fromkeys(said))


def draw(c, out):
    if any(name not in c.f for name in ("/curves/step", "/cells", "/axes")):
        return
    cells, axes = common.table(c.f, "/cells"), common.table(c.f, "/axes")
    owner = common.dataset(c.f, "/curves/cell")[...]
    steps, names = common.curves(c.f, "/curves/step"), [*varying(axes)]
    label_of = np.array(["; ".join(axes[a][i] for a in names) or str(cells["variant"][i])
                         for i in owner])
    open_ = cells["coupling"] != "closed"
    lost = campaign.lost_cells(cells, axes, open_)
    large = (cells["n"][owner] >= LEAST) & open_[owner] & (cells["status"][owner] == "ok")
    unit = units(cells, axes, owner[large], c.f["/metrics"][...])
    panels, answers, found, alike, legend, floats = [], [], set(), [], {}, 0
    looks = encode.looks({label: [q for i in owner[large & (label_of == label)]
                                  for q in encode.of_recipe(str(cells["recipe"][i]))]
                          for label in campaign.in_order(label_of[large])})
    for track, state in TRACKS:
        if f"/curves/{track}" not in c.f:
            continue
        sqnr = common.curves(c.f, "/curves/" + track)
        drawn = np.array([len(s) > 1 and np.isfinite(s).any() for s in sqnr], dtype=bool) & large
        plain = drawn & campaign.is_plain(cells, track.replace("sqnr", "coded"))[owner]
        floats += int(plain.sum())
        drawn &= ~plain
        labels = campaign.in_order(label_of[drawn])
        for coupling in campaign.in_order(cells["coupling"][owner[drawn]]):
            series = {}
            for label in labels:
                groups = {}
                for row in np.flatnonzero(drawn & (cells["coupling"][owner] == coupling)
                                          & (label_of == label)):
                    groups.setdefault(unit[owner[row]], []).append(row)
                if groups:
                    series[label] = values([*groups.values()], steps, sqnr)
                    found |= {*groups}
            if len(series) > 1 and len({y[:, -1].tobytes() for _, y in series.values()}) == 1:
                alike.append((state, coupling))
                continue
            legend.update({label: dict(campaign.note(label, inline.swatch(looks[label])),
                                       look=looks[label]) for label in series})
            fig, ends, last = panel(series, looks, f"SQNR of the {state} (dB)")
            most, least = max(ends, key=ends.get), min(ends, key=ends.get)
            answer = f"after {last:g} update{'s' * (last != 1)} {most} has {ends[most]:.3g} dB" + (
                f", {least} {ends[least]:.3g} dB" if most != least else "")
            answers.append((coupling != "global", f"{state}, {coupling}: {answer}"))
            head = f"{state}, {WORDS.get(coupling, coupling)}"
            panels.append((fig, head, f"{head}. {answer}"))
    if panels:
        small = len(set(owner[cells["n"][owner] < LEAST].tolist()))
        left = [f"{small} curves of tensors below {LEAST} elements"] * (small > 0) \
            + [f"{floats} curves that are {campaign.SMALL}"] * (floats > 0)
        title = min(answers, key=lambda a: a[0])[1]  # the error of the whole run, if there is one
        rest = [a for _, a in answers if a != title][:4]
        title = title[0].upper() + title[1:] + campaign.lost_title(lost)
        out.figure(NAME, panels, (title, MENU),
                   f"Median over {counted(found)}; bars beside the curves: the quartiles at "
                   "the end" + f"; left out: {', '.join(left)}" * bool(left) + "." + same_told(alike, [head for _, head, _ in panels])
                   + campaign.lost_told(lost, " They have no curve.")
                   + (f" Other panels: {'; '.join(rest)}." if rest else ""),
                   [*legend.values()], wide=len(panels) == 1)
