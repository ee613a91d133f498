"""sweep.py - Draws contrasts over the learning rate: where one value is ahead, and where behind."""
import campaign
import common
import contrasts
import forest
import numpy as np

NAME, MENU = "sweep", "Contrasts over the rate"


def group(problem):
    """Panel and line of a problem: what stands before the brackets, and in them."""
    name, _, rest = problem.partition(" (")
    return name, rest.rstrip(")")


def answer(v, pair):
    """On which side of the best rate the first value is ahead, counted."""
    ahead, behind = v["verdict"] == "better", v["verdict"] == "worse"
    plain = v["verdict"] == "not quantized"
    below, rest = ~plain & (v["lr_scale"] < 1), ~plain & (v["lr_scale"] >= 1)
    if plain.all():
        return f"{pair}: not quantized at any point"
    return (f"{pair}: below the best rate better at {ahead[below].sum()}, "
            f"worse at {behind[below].sum()} of {below.sum()} points; from it on better at "
            f"{ahead[rest].sum()}, worse at {behind[rest].sum()} of {rest.sum()}"
            + f", not quantized at {plain.sum()} more" * bool(plain.any()))


def panel(v, lines):
    fig, ax = campaign.panel(width=2.7, height=2.3)
    ax.axhline(0, color="#888888", linewidth=0.7, zorder=1)
    for k, name in enumerate(lines):
        at = np.array([group(p)[1] == name for p in v["problem"]])
        order = np.argsort(v["lr_scale"][at])
        x, y, a, b = (np.where(v["lost"] > 0, np.nan, v[c])[at][order] if c != "lr_scale"
                      else v[c][at][order] for c in ("lr_scale", "mean", "lo95", "hi95"))
        style = dict(common.look(k), markersize=3.2, linewidth=1.1)
        ax.fill_between(x, a, b, color=style["color"], alpha=0.15, linewidth=0)
        ax.plot(x, y, label=name or None, zorder=3, **style)
    ax.set_xscale("log", base=2)
    ticks = np.unique(v["lr_scale"])
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ax.minorticks_off()
    ax.set_xlabel("times the rate that is best for the twin", fontsize=7)
    ax.set_ylabel("log10 (gap / gap of the other)", fontsize=7)
    if any(lines):
        ax.legend(fontsize=6, frameon=False)
    return fig


def rates_told(v):
    """What a caption says of the rates of the two sides."""
    best = sorted(set(v["lr_scale"][v["rates"] == "best against best"].tolist()))
    return "Both sides at these multiples of the rate that was tuned for the twin" \
        + f"; at {', '.join(f'{x:g}' for x in best)} each at the rate tuned for it" * bool(best) \
        + "."


def draw(c, out):
    if not c.paired or "/protocol/contrasts" not in c.f:
        return
    v = common.table(c.f, "/protocol/contrasts")
    v, lost = c.without_lost(v, ("label", "against"))
    keep = np.isfinite(v["mean"]) & np.isfinite(v["lo95"]) & np.isfinite(v["hi95"])
    v = {name: column[keep] for name, column in v.items()}
    pairs = list(dict.fromkeys(zip(v["label"].tolist(), v["against"].tolist())))
    if len(np.unique(v["lr_scale"])) < 3 or len(pairs) != 1 or (v["rates"] == "not tuned").any():
        return
    names = [group(p) for p in campaign.in_order(v["problem"])]
    lines = list(dict.fromkeys(line for _, line in names))
    panels, pair = [], c.versus(*pairs[0], v["axis"][0] if "axis" in v else "")
    for name in dict.fromkeys(name for name, _ in names):
        at = np.array([group(p)[0] == name for p in v["problem"]])
        one = {key: column[at] for key, column in v.items()}
        panels.append((panel(one, lines), name, answer(one, pair)))
    out.figure(NAME, panels, (answer(v, pair) + campaign.lost_title(lost), MENU),
               "Trimmed mean over pairs of runs with its 95 % interval; above 0 is worse; each "
               f"panel has a scale of its own. {rates_told(v)}"
               + forest.judged_told(v, contrasts=True)
               + contrasts.twins_told(c, v)
               + campaign.lost_told(lost, " Points with such runs are not drawn, and where all "
                                          "of a side did not counted."))
