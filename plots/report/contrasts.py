"""contrasts.py - Draws value against value on one axis, on every problem, with intervals."""
import campaign
import common
import forest
import inline
import numpy as np

NAME, MENU = "contrasts", "Contrasts"
MOST = 12  # panels
FIRST = ("better", "equivalent", "worse")
SAME = "same results"  # to the bit: the value changes nothing, and is not counted
TOLD = 2  # deciding pairs of values in the title


def answer(v, pair):
    """What the verdicts of one pair of values say, in words."""
    apart = v.get("apart", np.zeros(len(v["verdict"]), bool)) & (v["verdict"] != SAME)
    words = [word for word in v["verdict"][~apart].tolist() if word != SAME]
    if not words and not apart.any():
        return f"{pair}: {SAME} on every problem"
    said = [f"{word} on {words.count(word)}" for word in dict.fromkeys((*FIRST, *words))
            if word in words]
    said = [f"{', '.join(said)} of {len(words)} problem{'s' * (len(words) != 1)}"] * bool(words)
    said += [f"float32 is apart too on {int(apart.sum())}" + " more" * bool(words)] \
        * bool(apart.any())
    return f"{pair}: {', '.join(said)}"


def apart(c, v):
    """Which rows have a side whose float32 states are not equivalent to the twin either."""
    of = c.table("verdicts")
    if of is None or not len(of["label"]):
        return np.zeros(len(v["label"]), bool)
    names = ("problem", "label", "lr_scale")
    found = {key for key, is_so in zip(zip(*(of[name].tolist() for name in names)),
                                       forest.is_apart(of)) if is_so}
    return np.array([bool({(p, a, s), (p, b, s)} & found) for p, a, b, s in
                     zip(*(v[name].tolist() for name in ("problem", "label", "against",
                                                         "lr_scale")))], bool)


def two_twins(c, v):
    """Which rows compare runs whose float64 twins differ: rules or rates of their own."""
    twins, rows = {}, c.rows
    if "twin_gap" not in rows:
        return np.zeros(len(v["label"]), bool)
    instance = rows.get("instance", np.zeros(len(rows["seed"]), int))
    for p, label, scale, seed, i, gap in zip(*(x.tolist() for x in (
            rows["problem"], rows["label"], rows["lr_scale"], rows["seed"], instance,
            rows["twin_gap"]))):
        if np.isfinite(gap):
            twins.setdefault((p, label, scale), {})[seed, i] = gap
    found = []
    for p, a, b, scale in zip(*(v[name].tolist() for name in ("problem", "label", "against",
                                                              "lr_scale"))):
        one, two = twins.get((p, a, scale), {}), twins.get((p, b, scale), {})
        found.append(any(one[key] != two[key] for key in one.keys() & two.keys()))
    return np.array(found, bool)


def twins_told(c, v):
    """What a caption says of the rows whose sides have a twin each."""
    n = int(two_twins(c, v).sum())
    if not n:
        return ""
    where = "" if n == len(v["label"]) else f" in {n} of {len(v['label'])} rows"
    return f" The two sides have a float64 twin each{where} (another rule or rate): shown are " \
        "the gaps themselves, not what each loses against its twin."


def in_order_of_axes(c, v):
    """The pairs of values, those of the suite's first axis first: it is what the suite asks."""
    axes = list(common.table(c.f, "/axes")) if "/axes" in c.f else []
    axis = v["axis"].tolist() if "axis" in v else [""] * len(v["label"])
    pairs = dict.fromkeys(zip(v["label"].tolist(), v["against"].tolist(), axis))
    place = [axes.index(a) if a in axes else len(axes) for _, _, a in pairs]
    return [pair[:2] for _, pair in sorted(zip(place, pairs), key=lambda one: one[0])]


def title(axes, answers, decided, coded):
    """What the first pairs of the suite's first axis decide, else what the first pair says that was
    quantized on some problem (coded), or the first."""
    chosen = [k for k, n in enumerate(decided) if n and axes[k] == axes[0]] or \
        [k for k, n in enumerate(decided) if n] or \
        [k for k, n in enumerate(coded) if n] or [0]
    head = f"{axes[chosen[0]]}: "
    rest = [answers[k].removeprefix(head) for k in chosen[1:TOLD] if axes[k] == axes[chosen[0]]]
    return "; ".join([answers[chosen[0]], *rest]), chosen[:1 + len(rest)]


def unchanged(same):
    """What the caption says of pairs of values with the same results: [(pair, problems)]."""
    said = [f"{pair} on {', '.join(map(campaign.readable, problems))}" for pair, problems in same]
    return f"Same results to the bit, not counted: {'; '.join(said)}. " if said else ""


def panel(v, low, high):
    """A row for each problem."""
    problems = campaign.in_order(v["problem"])
    fig, ax = campaign.panel(width=4.2, height=0.75 + 0.2 * len(problems))
    ax.axvline(0, color=inline.SOFT, linewidth=0.7, zorder=1)
    for i in range(len(v["problem"])):
        y = problems.index(v["problem"][i])
        shape, hollow = forest.SHAPES.get(v["verdict"][i], ("o", True))
        for ends, width in ((("lo95", "hi95"), 0.9), (("lo90", "hi90"), 2.4)):
            ends = [v[end][i] for end in ends if end in v]
            if len(ends) == 2 and np.isfinite(ends).all():
                ax.plot(ends, [y, y], color="#000000", linewidth=width, solid_capstyle="butt")
        if not np.isfinite(v["mean"][i]):
            ax.text(0, y, " " + forest.gone_word(v, i), fontsize=6, va="center", color=inline.SOFT)
        ax.plot(v["mean"][i], y, color="#000000", marker=shape, markersize=4.2, linestyle="none",
                markerfacecolor="#ffffff" if hollow else "#000000", zorder=4)
    bent = forest.axis(ax, v, low, high)
    mark = dict(zip(v["problem"].tolist(), forest.marks(v, v["apart"])))
    ax.set_yticks(range(len(problems)), [campaign.readable(p) + mark[p] for p in problems],
                  fontsize=6.5)
    ax.set_ylim(len(problems) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("log10 (gap / gap of the other)" + bent, fontsize=7)
    return fig


def both_named(v):
    """Of every row which value against which, and the problem."""
    return [f"{label} against {other} on {problem}"
            for label, other, problem in zip(v["label"], v["against"], v["problem"])]


def draw(c, out):
    if not c.paired or "/protocol/contrasts" not in c.f:
        return
    v = common.table(c.f, "/protocol/contrasts")
    v = {name: column[v["lr_scale"] == c.one] for name, column in v.items()}
    v, lost = c.without_lost(v, ("label", "against"))
    keep = np.isfinite(v["mean"]) | v["gone"]
    v = {name: column[keep] for name, column in v.items()}
    if not len(v["label"]):
        return
    v["apart"] = apart(c, v)
    if "delta" not in v:
        v["delta"] = np.full(len(v["label"]), np.nan)
    ends = np.concatenate([v["lo95"], v["hi95"], v["mean"], [0.0]])
    ends = ends[np.isfinite(ends)]
    room = 0.06 * max(ends.max() - ends.min(), 1e-9)
    panels, answers, axes, decided, coded, same = [], [], [], [], [], []
    rest = ""
    for label, against in in_order_of_axes(c, v):
        at = (v["label"] == label) & (v["against"] == against)
        one = {name: column[at] for name, column in v.items()}
        if len(panels) == MOST:
            rest = f" More than {MOST} pairs of values: the others are in the table Contrasts."
            break
        pair = c.versus(label, against, one["axis"][0] if "axis" in one else "")
        answers.append(answer(one, pair))
        axes.append(one["axis"][0] if "axis" in one else "")
        decided.append(int((np.isin(one["verdict"], ("better", "worse")) & ~one["apart"]).sum()))
        coded.append((~np.isin(one["verdict"], ("not quantized", "uneven rates"))).any())
        if SAME in one["verdict"]:
            problems = one["problem"][one["verdict"] == SAME].tolist()
            same.append((f"{label} against {against}", problems))
        panels.append((panel(one, ends.min() - room, ends.max() + room), f"{label} / {against}",
                       answers[-1]))
    first, told = title(axes, answers, decided, coded)
    others = [a for k, a in enumerate(answers) if k not in told]
    others = "; ".join(others[:6]) + f"; and {len(others) - 6} pairs more" * (len(others) > 6)
    out.figure(NAME, panels, (first + campaign.lost_title(lost), MENU),
               others + ". " * bool(others) + unchanged(same)
               + f"At {c.verdict_rate(v)}: {forest.mean_over(v)} {forest.interval_told(v)}; "
               f"to the right is worse. {forest.GAP}." + forest.judged_told(v, contrasts=True)
               + forest.marks_told(v, both_named(v), v["apart"])
               + twins_told(c, v) + forest.lost_told(lost) + c.left_told() + rest,
               forest.shapes(v)[:-1])
