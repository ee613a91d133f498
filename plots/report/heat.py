"""heat.py - Draws the gap of every variant on every problem as a heat map."""
import campaign
import common
import forest
import matplotlib
import numpy as np

NAME, MENU = "heat", "Heat map"
SIGNS = {"equivalent": "=", "better": "\u25c0", "worse": "\u25b6", "undecided": "?",
         "too few": "\u00b7", "not quantized": "\u2205"}
# Blue is better, orange is worse: apart with any of the common colour deficiencies.
COLOURS = matplotlib.colors.LinearSegmentedColormap.from_list(
    "gap", ["#08519c", "#6baed6", "#f1f1ef", "#fdae6b", "#a63603"])


def shade(value, norm):
    """The cell's colour and the colour of its text; neither is a variable of the page."""
    colour = COLOURS(norm(value))
    light = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]
    return matplotlib.colors.to_hex(colour), "#111111" if light > 0.5 else "#fefefe"


def draw(c, out):
    v = c.table("verdicts")
    if v is None or not len(v["label"]):
        return
    v = {name: column[v["lr_scale"] == c.one] for name, column in v.items()}
    v, lost = c.without_lost(v)
    problems = [p for p in c.problems if p in v["problem"]]
    labels = [label for label in c.labels if label in v["label"]]
    values = v["mean"][np.isfinite(v["mean"])]
    if not len(values):
        return
    delta, most = np.nanmax(v["delta"]), np.abs(values).max()
    norm = matplotlib.colors.SymLogNorm(linthresh=max(delta, 1e-12), vmin=-max(most, 2 * delta),
                                        vmax=max(most, 2 * delta))
    fig, ax = campaign.panel(width=1.5 + 0.62 * len(problems), height=0.95 + 0.2 * len(labels))
    marks = forest.marks(v)
    for i in range(len(v["label"])):
        x, y = problems.index(v["problem"][i]), labels.index(v["label"][i])
        finite = np.isfinite(v["mean"][i])
        back, ink = shade(v["mean"][i], norm) if finite else ("none", "#7f7f7f")
        cell = ax.add_patch(matplotlib.patches.Rectangle((x - 0.48, y - 0.46), 0.96, 0.92,
                                                         facecolor=back, edgecolor="#111111",
                                                         linewidth=0.9 * (v["mean"][i] < 0)))
        text = f"{'+' * (v['mean'][i] >= 0)}{common.digits(v['mean'][i], 2)} " if finite else \
            "diverged " if v["gone"][i] else ""
        text = ax.text(x, y, text + SIGNS.get(v["verdict"][i], "") + marks[i],
                       fontsize=6, ha="center",
                       va="center", color=ink)
        c.series(cell, v["label"][i])
        c.series(text, v["label"][i])
    ax.set_xlim(-0.5, len(problems) - 0.5)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    names = [campaign.readable(p).replace(" ", "\n", 1).replace(", ", "\n") for p in problems]
    ax.set_xticks(range(len(problems)), names, fontsize=6)
    ax.set_yticks(range(len(labels)), labels, fontsize=7)
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.grid(visible=False)
    for side in ax.spines.values():
        side.set_visible(False)
    out.figure(NAME, [(fig, "", "Heat map of the gaps; the first table has the numbers")],
               (forest.answer(v) + campaign.lost_title(lost), MENU),
               f"log10 of the gap over the twin's gap, {forest.mean_over(v).rstrip(',')}, at "
               f"{c.verdict_rate(v)}: blue and framed is lower than the twin's, orange is higher, certain or not. "
               f"{forest.GAP}. Signs: "
               + ", ".join(f"{sign} {word}" for word, sign in SIGNS.items() if word in v["verdict"])
               + "." + forest.judged_told(v) + forest.marks_told(v, forest.named(v))
               + forest.fewer_told(v, forest.named(v)) + forest.lost_told(lost)
               + c.left_told(), wide=True)
