"""lr.py - Draws the final gap over the learning rate, of the variants and of their twins."""
import campaign
import common
import curves
import inline
import numpy as np

NAME, MENU = "lr", "Learning rate"


def measured(y):
    """y without what stands for runs that diverged."""
    return np.where(y < curves.LOST_GAP, y, np.nan)


def line(ax, x, y, low, high, style, mark, alpha):
    """Draws medians and quartiles; a median of runs half of which diverged is none, a quartile
    above it has no upper end."""
    order = np.argsort(x)
    x, y, low, high = x[order], measured(y[order]), measured(low[order]), high[order]
    if alpha and np.isfinite(y).any():
        top = np.where(np.isfinite(y), np.minimum(high, curves.LOST_GAP), np.nan)
        mark(ax.fill_between(x, low, top, color=style["color"], alpha=alpha, linewidth=0))
    if np.isfinite(y).any():
        mark(ax.plot(x, y, **style)[0])


def crosses(c, ax, s, labels):
    """Marks the rates without a median: a cross at the upper edge, side by side."""
    for k, label in enumerate(labels):
        at = (s["label"] == label) & (s["gap_median"] >= curves.LOST_GAP)
        if not at.any():
            continue
        ax.plot(s["lr_scale"][at], np.full(np.sum(at), 0.985 - 0.035 * (k % 10)), marker="x",
                color=c.line(label)["color"], markersize=3.6, linestyle="none", clip_on=False,
                transform=ax.get_xaxis_transform(), zorder=4)


def draw_panel(c, s):
    fig, ax = campaign.panel()
    labels = [label for label in c.labels if label in s["label"]]
    twins = {}
    for label in labels:
        at = s["label"] == label
        twins.setdefault(s["twin_median"][at].tobytes(), at)
    for at in twins.values():
        line(ax, s["lr_scale"][at], s["twin_median"][at], s["twin_q25"][at], s["twin_q75"][at],
             dict(campaign.TWIN, linewidth=4 if len(twins) == 1 else 2, solid_capstyle="round",
                  zorder=1), lambda a: a, 0)
    for label in labels:
        at = s["label"] == label
        style = c.line(label)
        line(ax, s["lr_scale"][at], s["gap_median"][at], s["gap_q25"][at], s["gap_q75"][at],
             dict(style, zorder=3),
             lambda a: c.series(a, label), 0 if c.crowded() else max(0.05, 0.3 / len(labels)))
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ticks = np.unique(s["lr_scale"])
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ends = np.concatenate([measured(s[name]) for name in
                           ("gap_median", "gap_q25", "gap_q75", "twin_median")])
    ends = ends[np.isfinite(ends) & (ends > 0)]
    if len(ends):
        room = max((ends.max() / ends.min()) ** 0.06, 1.05)
        above = (s["gap_median"] >= curves.LOST_GAP).any()
        ax.set_ylim(ends.min() / room, ends.max() * room ** (6 if above else 1))
    else:
        ax.set_yticks([])
    crosses(c, ax, s, labels)
    curves.few_decades(ax.yaxis)
    ax.minorticks_off()
    ax.set_xlabel("times the problem's learning rate", fontsize=7)
    ax.set_ylabel("final normalised gap", fontsize=7)
    return fig


def best_rates(s, plain):
    """The scale with the smallest finite median gap of each (problem, label), that of its twin, and
    whether one of them is the first or last that ran; but for those in plain and those that ran at
    one rate alone."""
    found = {}
    for key in dict.fromkeys(zip(s["problem"].tolist(), s["label"].tolist())):
        if key in plain:
            continue
        at = (s["problem"] == key[0]) & (s["label"] == key[1])
        ends = [np.where(s[name][at] < curves.LOST_GAP, s[name][at], np.inf)
                for name in ("gap_median", "twin_median")]
        ran = [np.isfinite(y) for y in ends]
        if (ran[0] & ran[1]).sum() > 1:  # of a single rate any is the best
            scale = s["lr_scale"][at]
            best = [scale[np.argmin(y)] for y in ends]
            found[key] = *best, any(rate in (scale.min(), scale.max()) for rate in best)
    return found


def answer(found):
    """How many pairs of variant and problem are best at their twin's best rate, in words."""
    if not found:
        return "No variant that is compared has a finite gap at more than one rate"
    same = sum(own == twin for own, twin, _ in found.values())
    open_ = sum(is_end for *_, is_end in found.values())
    (problem, label), (own, twin, _) = max(found.items(),
                                           key=lambda item: abs(np.log(item[1][0] / item[1][1])))
    apart = f"; furthest: {label} on {campaign.brief(problem)}, best at " \
            f"{common.digits(own / twin, 2)} times its twin's" if own != twin else ""
    return f"Of the rates that ran the twin's best is the variant's best {same} times of " \
           f"{len(found)}{apart}" + f"; in {open_} a best rate is the first or last that ran, and " \
           "a better one may lie beyond" * bool(open_)


def draw(c, out):
    s = c.table("sensitivity")
    if s is None or len(np.unique(s["lr_scale"])) < 2:
        return
    panels = []
    for problem in [p for p in c.problems if p in s["problem"]]:
        one = {name: column[s["problem"] == problem] for name, column in s.items()}
        name = campaign.readable(problem)
        panels.append((draw_panel(c, one), name, f"Final gap over learning rates on {name}"))
    lost = c.lost(all_rates=True)
    cross = {"color": inline.SOFT, "marker": "X", "linewidth": 0}
    legend = [campaign.note("double-precision twin", inline.swatch(campaign.TWIN))] + c.legend()
    if (s["gap_median"] >= curves.LOST_GAP).any():
        legend.append(dict(campaign.note("half or more of the runs diverged", inline.swatch(cross)),
                           look={"color": inline.SOFT, "marker": "x", "linestyle": "none"}))
    title = campaign.ALL_PLAIN.format("variant") if c.all_plain() \
        else answer(best_rates(s, c.plain)) + campaign.lost_title(lost)
    out.figure(NAME, panels, (title, MENU),
               "Median over seeds of the normalised gap after the last update, bands from the lower "
               "to the upper quartile. Nothing is tuned: every variant runs at the twin's rates."
               + campaign.lost_told(lost, " Where half or more did there is no median, and a cross "
                                          "at the upper edge; a quartile among them has no end.")
               + c.plain_told(),
               legend)
