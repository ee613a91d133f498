"""ratio.py - Draws the loss of closed runs as its ratio to the double-precision twin's."""
import campaign
import common
import inline
import numpy as np
from curves import band, edges, few_decades, select, stacked, thinned, with_curves

NAME, MENU = "ratio", "Ratio to the twin"


def ratios(rows, curves, x):
    """loss / twin's loss as [row, update]; NaN where either is missing or not positive."""
    steps, loss, twin = curves
    top, bottom = stacked(loss, steps, rows, x), stacked(twin, steps, rows, x)
    good = np.isfinite(bottom) & (bottom > 0) & (top > 0)
    return np.where(good, top / np.where(good, bottom, 1.0), np.nan)


def draw_panel(c, rows, curves):
    """Draws one problem; returns the figure and {label: median ratio at the last update}."""
    fig, ax = campaign.panel(width=3.6, height=2.7)
    x = thinned(np.unique(np.concatenate([curves[0][k] for k in rows["curve"]])))
    ax.axhline(1.0, solid_capstyle="round", zorder=1, **campaign.TWIN)
    ends = {}
    for label in campaign.in_order(rows["label"]):
        y = ratios(rows["curve"][rows["label"] == label], curves, x)
        k = c.place[label]
        band(ax, x, y, c.line(label), lambda a: c.series(a, label),
             0 if c.crowded() else max(0.06, 0.3 / len(c.labels)), markevery=(3 * k % 16, 16),
             zorder=3)
        ends[label] = float(common.median(y)[-1])
    ax.set_xscale("log")
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    ax.set_ylim(max(low, 1e-3), min(high, 1e3))
    few_decades(ax.yaxis)
    ax.minorticks_off()
    ax.set_xlabel("updates", fontsize=7)
    ax.set_ylabel("loss / twin's loss", fontsize=7)
    return fig, ends


def draw(c, out):
    if "/curves/loss" not in c.f or "/curves/twin_loss" not in c.f or not len(c.rows["cell"]):
        return
    rows, curves = with_curves(c, ("step", "loss", "twin_loss"))
    panels, worst = [], None
    for problem in campaign.in_order(rows["problem"]):
        name = campaign.readable(problem)
        fig, ends = draw_panel(c, select(rows, rows["problem"] == problem), curves)
        panels.append((fig, name, f"Loss over that of the double-precision twin on {name}"))
        for label, end in ends.items():
            if (problem, label) in c.plain:
                continue
            apart = abs(np.log(end)) if np.isfinite(end) and end > 0 else -1.0
            if worst is not None and apart == worst[0] and name.split()[0] == worst[3]:
                worst = (apart, f"{worst[1]} and {label}", end, worst[3])
            elif worst is None or apart > worst[0]:
                worst = (apart, label, end, name.split()[0])
    if not panels:
        return
    seeds = len(set(rows["seed"].tolist()))
    lost = campaign.lost_title(c.lost())
    title = f"Furthest from its twin at the end: {worst[1]} on {worst[3]}, {worst[2]:.3g} times " \
            f"the twin's loss{lost}" if worst and worst[0] >= 0 else \
            "No run that is compared has a loss at the end, or its twin has none above 0" + lost \
            if worst else campaign.ALL_PLAIN.format("variant")
    spread = f", bands {edges(seeds)[1]}" if seeds > 1 and not c.crowded() else ""
    out.figure(NAME, panels, (title, MENU),
               f"{'Median of ' + str(seeds) + ' seeds' if seeds > 1 else 'One seed'}{spread}, at "
               f"{c.rate()}; above 1 is worse than float64 with the same start, data and noise. "
               "A line ends where half of the seeds have diverged." + campaign.lost_told(c.lost(), " No number of the title is of them.")
               + c.plain_told(),
               [campaign.note("the twin itself", inline.swatch(campaign.TWIN))] + c.legend())
