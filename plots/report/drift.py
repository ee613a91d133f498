"""drift.py - Draws the SQNR of states over updates, of cells that follow recorded gradients."""
import campaign
import common
import encode
import inline
import numpy as np
from cells import varying

NAME, MENU = "drift", "Drift"
TRACKS = (("state0_sqnr", "first state"), ("state1_sqnr", "second state"))
WORDS = {"local": "local: error of one step", "global": "global: error of the whole run"}
LEAST = 16  # elements; smaller tensors have values that a table holds exactly


def values(rows, steps, sqnr):
    """(updates, the curves `rows` as [row, update], NaN where a curve has no point)."""
    x = np.unique(np.concatenate([steps[row] for row in rows]))
    y = np.full((len(rows), len(x)), np.nan)
    for k, row in enumerate(rows):
        y[k, np.searchsorted(x, steps[row])] = sqnr[row]
    return x, np.where(np.isfinite(y), y, np.nan)


def panel(series, looks, words):
    """series: {label: (updates, curves)}; returns the figure and {label: median at the end}."""
    fig, ax = campaign.panel(width=3.8, height=3.0)
    ends = {}
    for k, (label, (x, y)) in enumerate(series.items()):
        style, middle = looks[label], common.median(y)
        low, high = np.nanquantile(y[:, -1], [0.25, 0.75], method="nearest")
        beside = x[-1] + (x[-1] - x[0]) * (0.05 + 0.04 * k)
        ax.vlines(beside, low, high, color=style["color"], linewidth=1.6)
        ax.plot(beside, middle[-1], color=style["color"], marker=style["marker"], markersize=4)
        ax.plot(x, middle, label=label, **dict(style, markersize=4, linewidth=1.1))
        ends[label] = middle[-1]
        last = x[-1]
    ax.set_xticks([t for t in ax.get_xticks() if 0 <= t <= last])
    ax.set_xlabel("updates", fontsize=8)
    ax.set_ylabel(words, fontsize=8)
    return fig, ends, last


def draw(c, out):
    if any(name not in c.f for name in ("/curves/step", "/cells", "/axes")):
        return
    cells, axes = common.table(c.f, "/cells"), common.table(c.f, "/axes")
    owner = common.dataset(c.f, "/curves/cell")[...]
    steps, names = common.curves(c.f, "/curves/step"), [*varying(axes)]
    label_of = np.array(["; ".join(axes[a][i] for a in names) or str(cells["variant"][i])
                         for i in owner])
    large = (cells["n"][owner] >= LEAST) & (cells["coupling"][owner] != "closed")
    panels, title, tensors, alike, legend, floats = [], "", set(), "", [], 0
    for track, state in TRACKS:
        if f"/curves/{track}" not in c.f:
            continue
        sqnr = common.curves(c.f, "/curves/" + track)
        drawn = np.array([len(s) > 1 and np.isfinite(s).any() for s in sqnr], dtype=bool) & large
        plain = drawn & campaign.is_plain(cells, track.replace("sqnr", "coded"))[owner]
        floats += int(plain.sum())
        drawn &= ~plain
        labels = campaign.in_order(label_of[drawn])
        looks = encode.looks({label: [q for i in owner[drawn & (label_of == label)]
                                      for q in encode.of_recipe(str(cells["recipe"][i]))]
                              for label in labels})
        for coupling in campaign.in_order(cells["coupling"][owner[drawn]]):
            series = {}
            for label in labels:
                rows = np.flatnonzero(drawn & (cells["coupling"][owner] == coupling)
                                      & (label_of == label))
                if len(rows):
                    series[label] = values(rows, steps, sqnr)
                    tensors |= {(cells["source"][i], cells["tensor"][i]) for i in owner[rows]}
            if len(series) > 1 and len({y[:, -1].tobytes() for _, y in series.values()}) == 1:
                alike = f" The {state} is the same in all of them and is left out."
                continue
            legend = [dict(campaign.note(label, inline.swatch(looks[label])), look=looks[label])
                      for label in series]
            fig, ends, last = panel(series, looks, f"SQNR of the {state} (dB)")
            most, least = max(ends, key=ends.get), min(ends, key=ends.get)
            answer = f"After {last:g} updates {most} has {ends[most]:.3g} dB" + (
                f", {least} {ends[least]:.3g} dB" if most != least else "")
            if coupling == "global" or not title:
                title = answer
            head = f"{state}, {WORDS.get(coupling, coupling)}"
            panels.append((fig, head, f"{head}. {answer}"))
    if panels:
        small = len(set(owner[cells["n"][owner] < LEAST].tolist()))
        out.figure(NAME, panels, (title, MENU), f"Median over {len(tensors)} recorded traces; bars "
                   "beside the curves: the quartiles at the end"
                   + (f"; {small} curves of tensors below {LEAST} elements are left out" if small
                      else "") + (f"; left out: {floats} curves that are {campaign.SMALL}."
                                  if floats else ".") + alike, legend, wide=len(panels) == 1)
