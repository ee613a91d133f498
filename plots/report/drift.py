"""drift.py - Draws the SQNR of states over updates, of cells that follow recorded gradients."""
import alike
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
    NaN where it has no point; an infinite value counts)."""
    x = np.unique(np.concatenate([steps[row] for rows in groups for row in rows]))
    out = []
    for rows in groups:
        y = np.full((len(rows), len(x)), np.nan)
        for k, row in enumerate(rows):
            y[k, np.searchsorted(x, steps[row])] = sqnr[row]
        out.append(common.median(y))
    return x, np.array(out)


def alike_series(found, steps, sqnr):
    """(Alike, {label: (updates, curves)}) of {label: {unit: rows}}: curves of the compared labels
    are of the same units in the same order, those of another one of its own.  Of an update that all
    of them have, a unit that lacks a value in one of them is in none."""
    same = alike.Alike({label: {*groups} for label, groups in found.items()})
    order = [unit for groups in found.values() for unit in groups if unit in same.common]
    order = [*dict.fromkeys(order)]
    series = {label: values([groups[unit] for unit in order] if label in same.inside
                            else [*groups.values()], steps, sqnr)
              for label, groups in found.items()}
    inside = [series[label] for label in same.inside]
    for at in set.intersection(*({*x.tolist()} for x, _ in inside)):
        columns = [(y, np.searchsorted(x, at)) for x, y in inside]
        missing = np.any([np.isnan(y[:, k]) for y, k in columns], axis=0)
        for y, k in columns:
            y[missing, k] = np.nan
    return same, series


def shown(y):
    """y where it is finite; NaN elsewhere, which is not drawn."""
    return np.where(np.isfinite(y), y, np.nan)


def quartiles(y):
    """The quartiles of values, of those that are there; NaN where there are none or one is no
    finite number."""
    y = y[~np.isnan(y)]
    return shown(np.quantile(y, [0.25, 0.75], method="nearest")) if len(y) else [np.nan] * 2


def panel(series, looks, words, apart):
    """series: {label: (updates, curves)}; apart: labels of other traces, with hollow markers;
    returns the figure and {label: median at the last update that all others have}, and that
    update.  A line in the look of the curve joins its end to the bar of its quartiles."""
    fig, ax = campaign.panel(width=3.8, height=3.0)
    ends, last = {}, min(x[-1] for label, (x, _) in series.items() if label not in apart)
    longest = max(x[-1] for x, _ in series.values())
    for k, (label, (x, y)) in enumerate(series.items()):
        style, middle = looks[label], common.median(y)
        if label in apart:
            style = dict(style, markerfacecolor="#ffffff")
        else:
            ends[label] = middle[np.searchsorted(x, last)]
        middle = shown(middle)
        low, high = quartiles(y[:, -1])
        beside = longest * (1.05 + 0.04 * k)
        ax.vlines(beside, low, high, color=style["color"], linewidth=1.6)
        ax.plot([x[-1], beside], [middle[-1]] * 2, markevery=[1],
                **dict(style, markersize=4, linewidth=0.6))
        ax.plot(x, middle, label=label, markevery=max(1, len(x) // 16),
                **dict(style, markersize=4, linewidth=1.1))
    ticks = [t for t in ax.get_xticks() if 0 <= t <= longest]
    ax.set_xticks(ticks if len(ticks) > 1 else [0, longest])
    ax.set_xlabel("updates", fontsize=8)
    ax.set_ylabel(words, fontsize=8)
    return fig, ends, last


def said(ends, last):
    """What is highest and lowest at an update, in words; "" where no median is a number."""
    ends = {label: y for label, y in ends.items() if not np.isnan(y)}
    if not ends:
        return ""
    most, least = max(ends, key=ends.get), min(ends, key=ends.get)
    high, low = common.unlike(ends[most], ends[least])
    if high == low and len(ends) > 1:
        return f"after {last:g} update{'s' * (last != 1)} all have {high} dB"
    return f"after {last:g} update{'s' * (last != 1)} {most} has {high} dB" \
        + f", {least} {low} dB" * (most != least)


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


def same_told(same, heads):
    """The sentence on states that are the same whatever is compared, same: [(state, coupling)],
    beside panels of these heads; a coupling is named where another one of the state is drawn."""
    said = [f"{state}, {coupling}," if any(head.startswith(state) for head in heads) else state
            for state, coupling in same]
    return "".join(f" The {words} is the same in all of them and is left out."
                   for words in dict.fromkeys(said))


def draw(c, out):
    if any(name not in c.f for name in ("/curves/step", "/cells", "/axes")):
        return
    cells, axes = common.table(c.f, "/cells"), common.table(c.f, "/axes")
    owner = common.dataset(c.f, "/curves/cell")[...]
    steps, names = common.curves(c.f, "/curves/step"), [*varying(axes)]
    label_of = np.array([" + ".join(axes[a][i] for a in names) or str(cells["variant"][i])
                         for i in owner])
    open_ = cells["coupling"] != "closed"
    lost = campaign.lost_cells(cells, axes, open_)
    large = (cells["n"][owner] >= LEAST) & open_[owner] & (cells["status"][owner] == "ok")
    unit = units(cells, axes, owner[large], c.f["/metrics"][...])
    panels, answers, found, same, legend, floats, told = [], [], set(), [], {}, {}, {}
    looks = encode.looks({label: [q for i in owner[large & (label_of == label)]
                                  for q in encode.of_cell(cells, i)]
                          for label in campaign.in_order(label_of[large])})
    for track, state in TRACKS:
        if f"/curves/{track}" not in c.f:
            continue
        sqnr = common.curves(c.f, "/curves/" + track)
        drawn = np.array([len(s) > 1 and (~np.isnan(s)).any() for s in sqnr], dtype=bool) & large
        plain = drawn & campaign.is_plain(cells, track.replace("sqnr", "coded"))[owner]
        floats[state] = len({*owner[plain].tolist()})
        drawn &= ~plain
        labels = campaign.in_order(label_of[drawn])
        for coupling in campaign.in_order(cells["coupling"][owner[drawn]]):
            of = {}
            for label in labels:
                groups = {}
                for row in np.flatnonzero(drawn & (cells["coupling"][owner] == coupling)
                                          & (label_of == label)):
                    groups.setdefault(unit[owner[row]], []).append(row)
                if groups:
                    of[label] = groups
            each, series = alike_series(of, steps, sqnr)
            if len(series) > 1 and len({y[:, -1].tobytes() for _, y in series.values()}) == 1:
                same.append((state, coupling))
                continue
            found |= each.common.union(*(of[label] for label in each.apart))
            legend.update({label: dict(campaign.note(label, inline.swatch(looks[label])),
                                       look=looks[label]) for label in series})
            fig, ends, last = panel(series, looks, f"SQNR of the {state} (dB)", each.apart)
            answer = said(ends, last) or "no median is a number"
            answers.append((coupling != "global", f"{state}, {coupling}: {answer}"))
            head = f"{state}, {WORDS.get(coupling, coupling)}"
            told[f"{state}, {coupling}"] = each.told("traces", "medians")
            panels.append((fig, head, f"{head}. {answer}"))
    if panels:
        small = len(set(owner[cells["n"][owner] < LEAST].tolist()))
        left = [f"{small} cells of tensors below {LEAST} elements"] * (small > 0) \
            + [f"{n} cells whose {state} is {campaign.SMALL}" for state, n in floats.items() if n]
        title = min(answers, key=lambda a: a[0])[1]  # the error of the whole run, if there is one
        rest = [a for _, a in answers if a != title][:4]
        title = title[0].upper() + title[1:] + campaign.lost_title(lost)
        out.figure(NAME, panels, (title, MENU),
                   f"Median over {counted(found)}; bars beside the curves: the quartiles at "
                   "the end, with a marker at the median there (to the right of the last update)"
                   + f"; left out: {', '.join(left)}" * bool(left) + "." + same_told(
                       same, [head for _, head, _ in panels])
                   + alike.together(told)
                   + campaign.lost_told(lost, " They have no curve.")
                   + (f" Other panels: {'; '.join(rest)}." if rest else ""),
                   [*legend.values()], wide=len(panels) == 1)
