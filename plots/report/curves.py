"""curves.py - Draws the loss over updates of the variants and their double-precision twins."""
import alike
import campaign
import common
import inline
import matplotlib
import numpy as np

NAME, MENU = "loss", "Loss curves"
POINTS = 120  # of a drawn curve, evenly spaced in log(update)
LOG_DECADES = 1.0  # of the axis above the largest loss of a twin
CEILING = 1e300  # stands for Inf at the upper edge of a band
LOST_GAP = 1000.0  # of a run that diverged
MOST = 3  # labels that a title names out of a tie


def thinned(steps):
    """At most POINTS of the steps > 0, including the last one."""
    steps = steps[steps > 0]
    if len(steps) <= POINTS:
        return steps
    wanted = np.geomspace(steps[0], steps[-1], POINTS)
    return np.unique(steps[np.minimum(np.searchsorted(steps, wanted), len(steps) - 1)])


def stacked(curves, steps, rows, x):
    """The curves `rows` at the steps x as [row, x]: +Inf after the end of a curve (it diverged) and
    where it is not finite, -Inf where it is at most 0 (no logarithm), NaN where it has no point."""
    out = np.full((len(rows), len(x)), np.nan)
    for k, row in enumerate(rows):
        at = np.searchsorted(steps[row], x)
        inside = at < len(steps[row])
        inside[inside] = steps[row][at[inside]] == x[inside]
        y = curves[row][at[inside]]
        out[k, inside] = np.where(np.isfinite(y), np.where(y > 0, y, -np.inf), np.inf)
        out[k, x > steps[row][-1]] = np.inf
    return out


def drawn(y):
    """y where it is finite, so that a logarithmic axis can show it; NaN elsewhere."""
    return np.where(np.isfinite(y), y, np.nan)


def order(values, share):
    """The order statistic at `share` of each column, without NaN; NaN for a column of NaN."""
    ordered = np.sort(values, axis=0)
    count = np.sum(~np.isnan(ordered), axis=0)
    at = np.clip(np.round(share * (count - 1)).astype(int), 0, None)
    return np.take_along_axis(ordered, at[None], axis=0)[0]


def edges(n):
    """The shares of n seeds between which the band lies, and the caption's words for them."""
    return ((0.25, 0.75), "from the lower to the upper quartile") if n >= 8 else \
        ((0, 1), "from the lowest to the highest seed")


def band(ax, x, values, style, mark, alpha, **more):
    """Draws the median, and a band of opacity alpha between two order statistics."""
    middle = drawn(common.median(values))
    alive = np.isfinite(middle)  # elsewhere half of the seeds have diverged
    if not alive.any():
        return
    x, values, middle = x[alive], values[:, alive], middle[alive]
    (low, high), _ = edges(len(values))
    if alpha and len(values) > 1:
        upper = np.minimum(order(values, high), CEILING)
        mark(ax.fill_between(x, drawn(order(values, low)), upper, color=style["color"], alpha=alpha,
                             linewidth=0))
    mark(ax.plot(x, middle, **style, **more)[0])


def with_curves(c, tracks):
    """The rows of c at the scale c.one that have a curve, number rows["curve"][k], and the curves
    of these tracks, the first of which is step.  Runs in another basin than most twins are left
    out: one median must not mix their losses."""
    owner = common.dataset(c.f, "/curves/cell")[...]
    curves = [common.curves(c.f, "/curves/" + track) for track in tracks]
    where = {cell: k for k, cell in enumerate(owner.tolist())}
    rows = dict(c.rows, curve=np.array([where.get(cell, -1) for cell in c.rows["cell"]], dtype=int))
    has = np.array([k >= 0 and len(curves[0][k]) > 1 for k in rows["curve"]], dtype=bool)
    has &= (rows["lr_scale"] == c.one) & (rows["status"] != "elsewhere")
    rows["twin_lost"] = twin_lost(c)
    return select(rows, has), curves


def twin_lost(c):
    """Of which rows of c the twin diverged: its gap is the 1000 that stands for that."""
    gap = common.table(c.f, "/metrics").get("twin_gap") if "/metrics" in c.f else None
    return np.zeros(len(c.rows["cell"]), bool) if gap is None else gap[c.rows["cell"]] >= LOST_GAP


def of_the_same(rows):
    """(rows of the runs, seed and instance, that all compared labels of a problem have; what a
    caption says of the others).  The rows have then a column apart (alike.py)."""
    instance = rows.get("instance", np.zeros(len(rows["seed"]), int)).tolist()
    runs = [*zip(rows["seed"].tolist(), instance)]
    keep, apart, told = np.ones(len(runs), bool), np.zeros(len(runs), bool), {}
    for problem in campaign.in_order(rows["problem"]):
        at, found = np.flatnonzero(rows["problem"] == problem), {}
        for i in at:
            found.setdefault(str(rows["label"][i]), set()).add(runs[i])
        same = alike.Alike(found)
        told[campaign.readable(problem)] = same.told("runs", "medians")
        for i in at:
            apart[i] = rows["label"][i] in same.apart
            keep[i] = apart[i] or runs[i] in same.common
    return select(dict(rows, apart=apart), keep), alike.together(told)


def look_of(c, rows, label):
    """The look of a label's line; hollow where it is set apart."""
    style = c.line(label)
    return dict(style, markerfacecolor="#ffffff") if rows["apart"][rows["label"] == label].any() \
        else style


def select(rows, mask):
    return {name: column[mask] for name, column in rows.items()}


def draw_archive(ax, c, problem, seeds):
    """Draws thin lines behind: medians over these seeds of the archived variants that were paired
    on this problem."""
    partners = set(c.pairs["archive"][c.pairs["problem"] == problem].tolist())
    rows, (steps, loss) = c.archived
    rows = select(rows, (rows["problem"] == problem) & np.isin(rows["seed"], list(seeds)))
    for label in [name for name in campaign.in_order(rows["label"]) if name in partners]:
        mine = rows["curve"][rows["label"] == label]
        x = thinned(np.unique(np.concatenate([steps[k] for k in mine])))
        ax.plot(x, drawn(common.median(stacked(loss, steps, mine, x))), color=inline.SOFT,
                linewidth=0.5, alpha=0.6, zorder=2)


def own_twins(rows, twin):
    """The twins that differ, one per rule and hyper-parameters: each a list of curves over
    seeds."""
    found = {}
    for label in campaign.in_order(rows["label"]):
        mine = rows["curve"][rows["label"] == label]
        found.setdefault(twin[mine[0]].tobytes(), mine)
    return list(found.values())


def at_end(curves, steps, rows, lost):
    """The curves of these rows at the last update of any of them; +Inf where the run diverged."""
    last = np.array([max(steps[k][-1] for k in rows["curve"])])
    return np.where(lost, np.inf, stacked(curves, steps, rows["curve"], last)[:, 0])


def lowest(rows, curves, plain):
    """The labels whose median loss at the last update is the smallest, several where it is equal,
    "" for the twin's; none where no median is finite, as where all runs diverged.  plain:
    {(problem, label)} that are not counted."""
    steps, loss = curves[:2]
    ends, found = at_end(loss, steps, rows, rows["status"] == "diverged"), {}
    for label in campaign.in_order(rows["label"][~rows["apart"]]):
        if (rows["problem"][0], label) not in plain:
            found[label] = common.median(ends[rows["label"] == label, None])[0]
    if len(curves) > 2:
        ends = at_end(curves[2], steps, rows, rows["twin_lost"])
        found[""] = min(common.median(ends[np.isin(rows["curve"], mine), None])[0]
                        for mine in own_twins(rows, curves[2]))
    found = {label: y for label, y in found.items() if np.isfinite(y)}
    return [label for label in found if found[label] == min(found.values())]


def together(labels):
    """Labels as one, in words: "a, b and c", or how many they are; "" is the twin's."""
    names = ["float64" if label == "" else label for label in labels]
    if len(names) > MOST:
        return f"{len(names)} equal ones"
    return " and ".join([", ".join(names[:-1])] * (len(names) > 1) + names[-1:])


def answer(winners, is_lost):
    """Who ended lowest on how many problems, in words; winners: what `lowest` returns of each, or
    None where rates are uneven; is_lost: whether any run diverged."""
    uneven, winners = winners.count(None), [labels for labels in winners if labels is not None]
    told = f"; {uneven} not compared, where rates of some were tuned and of others not" \
        * bool(uneven)
    return (among(winners, is_lost) + told if winners else
            "Nobody is compared: rates of some were tuned and of others not")


def among(winners, is_lost):
    """The same where rates are even."""
    names, n = [together(labels) for labels in winners if labels], len(winners)
    why = "half or more of the runs diverged" if is_lost else "no median loss above 0"
    if not names:
        return f"Nobody is lowest at the end: {why}"
    said = [f"{name} on {names.count(name)}" for name in sorted(set(names), key=names.index)]
    none = f", nobody on {n - len(names)} ({why})" * (len(names) < n)
    return f"Lowest at the end: {', '.join(said)} of {n} problem{'s' * (n != 1)}{none}"


def draw_panel(c, rows, curves):
    """Draws one problem."""
    steps, loss = curves[:2]
    fig, ax = campaign.panel()
    if c.archived:
        problem, other = rows["problem"][0], c.archived[0]
        shared = np.isin(rows["seed"], other["seed"][other["problem"] == problem])
        rows = select(rows, shared) if shared.any() else rows
        draw_archive(ax, c, problem, set(rows["seed"].tolist()))
    x = thinned(np.unique(np.concatenate([steps[k] for k in rows["curve"]])))
    twins = own_twins(rows, curves[2]) if len(curves) > 2 else []
    exact = [stacked(curves[2], steps, mine, x) for mine in twins]
    thick = dict(campaign.TWIN, linewidth=4 if len(twins) == 1 else 2, solid_capstyle="round")
    for values in exact:
        band(ax, x, values, thick, lambda a: a, 0, zorder=1)
    for label in campaign.in_order(rows["label"]):
        k = c.place[label]
        mine = rows["curve"][rows["label"] == label]
        style = look_of(c, rows, label)
        band(ax, x, stacked(loss, steps, mine, x), style, lambda a: c.series(a, label),
             0 if c.crowded() else max(0.05, 0.3 / len(c.labels)), markevery=(3 * k % 16, 16),
             zorder=3)
    scale(ax, np.concatenate(exact) if exact else np.array(np.nan))
    return fig


def scale(ax, exact):
    """Sets logarithmic axes; their ceiling keeps a diverging variant from flattening all others."""
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("updates", fontsize=7)
    ax.set_ylabel("loss above the floor", fontsize=7)
    exact = exact[np.isfinite(exact)]
    if len(exact):
        low, high = ax.get_ylim()
        ax.set_ylim(low, min(high, exact.max() * 10 ** LOG_DECADES))
    few_decades(ax.yaxis)
    ax.minorticks_off()


def few_decades(axis):
    """Sets ticks at 1, 2 and 5 where powers of ten alone would be too few, with digits enough to
    tell them apart."""
    low, high = axis.get_view_interval()
    powers = np.floor(np.log10(high)) - np.ceil(np.log10(low)) + 1 if low > 0 else 2
    if high < 30 * low or powers < 2:
        axis.set_major_locator(matplotlib.ticker.LogLocator(10, subs=(1, 2, 5)))
        digits = 6 if high > 1.001 * low else \
            min(15, 2 + int(np.ceil(np.log10(high / max(high - low, 1e-15 * high)))))
        axis.set_major_formatter(lambda y, _: f"{y:.{digits}g}")


def lost_told(rows, c):
    """What a caption says of the runs and twins that diverged."""
    k, n = int(rows["twin_lost"].sum()), len(rows["twin_lost"])
    return campaign.lost_told(c.lost(), " In a median such a run stands above all others.") \
        + f" Of their twins {k} of {n} diverged." * (k > 0)


def draw(c, out):
    if "/curves/loss" not in c.f or not len(c.rows["cell"]):
        return
    has_twin = "/curves/twin_loss" in c.f  # an archive keeps none
    rows, curves = with_curves(c, ("step", "loss", "twin_loss")[:2 + has_twin])
    rows, told = of_the_same(rows)
    c.archived = None
    if c.pairs is not None and "/curves/loss" in c.archive.f:
        c.archived = with_curves(c.archive, ("step", "loss"))
    panels, winners = [], []
    for problem in campaign.in_order(rows["problem"]):
        name = campaign.readable(problem)
        one = select(rows, rows["problem"] == problem)
        if any((problem, label) not in c.plain for label in one["label"].tolist()):
            winners.append(None if problem in c.uneven() else lowest(one, curves, c.plain))
        panels.append((draw_panel(c, one, curves), name, f"Loss over updates on {name}"))
    if not panels:
        return
    seeds, median_of = campaign.medians(rows)
    beside = "Beside an archive: the seeds that both have. " if c.archived else ""
    apart = np.sum((c.rows["status"] == "elsewhere") & (c.rows["lr_scale"] == c.one))
    basins = ""
    if apart > 0:
        basins = f"{apart} runs that ended in another basin than most twins are left out. "
    spread = f"Bands go {edges(seeds)[1]}. " if seeds > 1 and not c.crowded() else ""
    twin = ("The thick grey line is the double-precision twin (one per rule) with the same start, "
            "data and noise. " if has_twin else "")
    caption = (f"{median_of}, at {c.rate()}. {twin}{spread}{beside}{basins}A line ends where half "
               "of the seeds have diverged." + told + lost_told(rows, c) + c.plain_told())
    legend = [campaign.note("double-precision twin", inline.swatch(campaign.TWIN))] * has_twin
    if c.archived:
        line = {"color": inline.SOFT, "linewidth": 0.6}
        legend.append(campaign.note(f"{len(set(c.pairs['archive'].tolist()))} archived variants",
                                    inline.swatch(line)))
    legend += c.legend()
    title = campaign.ALL_PLAIN.format("variant") if c.all_plain() else \
        answer(winners, campaign.lost_count(c.lost())[0] > 0)
    if c.archived:  # whose lines are behind, and are not compared by this figure
        title = title.replace("Lowest at the end:", "Lowest at the end of the variants here:")
    title += campaign.lost_title(c.lost())
    out.figure(NAME, panels, (title, MENU), caption, legend)
