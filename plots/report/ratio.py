"""ratio.py - Draws the loss of closed runs as its ratio to the double-precision twin's."""
import campaign
import common
import inline
import numpy as np
from curves import at_end, band, edges, few_decades, look_of, lost_told, of_the_same, \
    select, stacked, thinned, together, with_curves

NAME, MENU = "ratio", "Ratio to the twin"


def ratios(rows, curves, x):
    """loss / twin's loss as [row, update]; NaN where either is missing or not positive."""
    steps, loss, twin = curves
    top, bottom = stacked(loss, steps, rows, x), stacked(twin, steps, rows, x)
    good = np.isfinite(bottom) & (bottom > 0) & (top > 0)
    return np.where(good, top / np.where(good, bottom, 1.0), np.nan)


def end_ratios(rows, curves):
    """loss / twin's loss of each row at the last update: +Inf where the run diverged, NaN where the
    twin did, or has no loss above 0."""
    steps, loss, twin = curves
    top = at_end(loss, steps, rows, rows["status"] == "diverged")
    bottom = at_end(twin, steps, rows, rows["twin_lost"])
    good = np.isfinite(bottom) & (bottom > 0) & (top > 0)
    return np.where(good, top / np.where(good, bottom, 1.0), np.nan)


def furthest(ends):
    """(labels, problems, ratio) of the ratio that is furthest from 1, of ends: {(problem, label):
    median ratio}; several where the printed numbers are the same.  None where there is none."""
    ends = {key: end for key, end in ends.items() if np.isfinite(end) and end > 0}
    if not ends:
        return None
    first = max(ends, key=lambda key: abs(np.log(ends[key])))
    same = [key for key in ends if common.digits(ends[key]) == common.digits(ends[first])]
    return (list(dict.fromkeys(label for _, label in same)),
            list(dict.fromkeys(problem for problem, _ in same)), ends[first])


def draw_panel(c, rows, curves):
    """Draws one problem; returns the figure and {label: median ratio at the last update}."""
    fig, ax = campaign.panel(width=3.6, height=2.7)
    x = thinned(np.unique(np.concatenate([curves[0][k] for k in rows["curve"]])))
    ax.axhline(1.0, solid_capstyle="round", zorder=1, **campaign.TWIN)
    ends, last = {}, end_ratios(rows, curves)
    for label in campaign.in_order(rows["label"]):
        y = ratios(rows["curve"][rows["label"] == label], curves, x)
        k = c.place[label]
        band(ax, x, y, look_of(c, rows, label), lambda a: c.series(a, label),
             0 if c.crowded() else max(0.06, 0.3 / len(c.labels)), markevery=(3 * k % 16, 16),
             zorder=3)
        if not rows["apart"][rows["label"] == label].any():
            ends[label] = float(common.median(last[rows["label"] == label, None])[0])
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
    rows, told = of_the_same(rows)
    panels, found = [], {}
    for problem in campaign.in_order(rows["problem"]):
        name = campaign.readable(problem)
        fig, ends = draw_panel(c, select(rows, rows["problem"] == problem), curves)
        panels.append((fig, name, f"Loss over that of the double-precision twin on {name}"))
        found.update({(name, label): end for label, end in ends.items()
                      if (problem, label) not in c.plain})
    if not panels:
        return
    seeds, median_of = campaign.medians(rows)
    title, worst = campaign.ALL_PLAIN.format("variant"), furthest(found)
    if worst:
        title = f"Furthest from its twin at the end: {together(worst[0])} on " \
            f"{', '.join(map(campaign.brief, worst[1]))}, {common.digits(worst[2])} times the twin's loss"
    elif found:
        title = "Nothing that is compared has a median ratio at the end: half or more of the " \
            "runs or all twins diverged, or the twin has no loss above 0"
    title += campaign.lost_title(c.lost()) * bool(found)
    spread = f", bands {edges(seeds)[1]}" if seeds > 1 and not c.crowded() else ""
    out.figure(NAME, panels, (title, MENU),
               f"{median_of}{spread}, at "
               f"{c.rate()}; above 1 is worse than float64 with the same start, data and noise. "
               "A line ends where half of the seeds have diverged." + told + lost_told(rows, c)
               + " A run whose twin diverged has no ratio." * bool(rows["twin_lost"].any())
               + c.plain_told(),
               [campaign.note("the twin itself", inline.swatch(campaign.TWIN))] + c.legend())
