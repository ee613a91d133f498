"""against.py - Draws the variants of a file against those of an archive, pair by pair."""
import campaign
import forest
import inline
import numpy as np

NAME, MENU = "against", "Against the archive"


def draw_panel(c, v, low, high):
    """One row per archived variant, the one with the smallest mean first; one marker per variant of
    this file."""
    own = [label for label in c.labels if label in v["label"]]
    worst = {name: np.nanmin(np.append(v["mean"][v["archive"] == name], np.inf))
             for name in campaign.in_order(v["archive"])}
    rows = sorted(worst, key=lambda name: worst[name])
    fig, ax = campaign.panel(height=0.65 + 0.145 * max(4, len(rows)))
    delta = np.nanmax(v["delta"])
    ax.axvspan(-delta, delta, color=inline.ZONE, linewidth=0, zorder=0)
    ax.axvline(0, color=inline.SOFT, linewidth=0.7, zorder=1)
    for i in range(len(v["label"])):
        k = own.index(v["label"][i])
        y = rows.index(v["archive"][i]) + 0.6 * ((k + 0.5) / len(own) - 0.5)
        forest.mark(c, ax, v, i, v["label"][i], y)
    forest.axis(ax, v, low, high)
    ax.set_yticks(range(len(rows)), rows, fontsize=6)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("log10 (gap here / gap of the archived variant)", fontsize=7)
    return fig


def answer(v, rates):
    """How many pairs of a variant here and an archived one were judged how, in words."""
    apart = v["float32_apart"] == 1
    words = v["verdict"][~apart].tolist()
    said = [f"{word} in {words.count(word)}" for word in forest.SHAPES if word in words]
    said += [f"on a problem where float32 is apart too in {int(apart.sum())}"] * bool(apart.any())
    return f"Of {len(apart)} pairs with archived variants, at {rates}, those here are " \
        + ", ".join(said)


def draw(c, out):
    v = c.pairs
    if v is None or not len(v["label"]):
        return
    v = {name: column[(v["lr_scale"] == c.one) & (v["n"] > 0)] for name, column in v.items()}
    if not len(v["label"]):
        return
    v, lost = c.without_lost(v, ("label", "archive"), c.archive.lost_by())
    low, high = forest.limits(v, v["delta"])
    panels = []
    for problem in [p for p in c.problems if p in v["problem"]]:
        one = {name: column[v["problem"] == problem] for name, column in v.items()}
        name = campaign.readable(problem)
        panels.append((draw_panel(c, one, low, high), name,
                       f"Gaps against the archived variants on {name}; the table /against/pairs "
                       "has the numbers"))
    labels = [label for label in c.labels if label in v["label"]]
    rates = c.pairs_told["rates"]
    out.figure(NAME, panels, (answer(v, rates) + campaign.lost_title(lost), MENU),
               f"At {rates}. {c.pairs_told['advice']} Trimmed mean over the runs that both have, "
               "of several instances over the trimmed mean of each, with its 95 % (thin) and 90 % (thick) interval; to the left the variant here has "
               f"the smaller gap. Equivalent: the 90 % interval lies within {forest.margin(v)}; better "
               "or worse: the 95 % interval lies on one side of 0, after Benjamini and Hochberg's "
               "correction at 5 %; else undecided. Only runs with the same problem, seed, learning rate, steps and "
               "double-precision twin are paired; the table /against/apart says which archived "
               "variants are not, and what did not agree."
               + " Float32 is apart too: float32 states are not equivalent to the twin either, and "
               "the title does not count the verdict." * bool((v["float32_apart"] == 1).any())
               + campaign.lost_told(lost, " In means and "
               "intervals the gap 1000 stands for that of a run that diverged, and a pair of which "
               "both did is left out; where all of a variant did nothing is drawn but the verdict."),
               forest.shapes(v) + c.legend(labels))
