"""budget.py - Draws the error budget of a gap as a waterfall of its parts."""
import campaign
import common
import forest
import inline
import numpy as np

NAME, MENU = "budget", "Error budget"


ALL, REST = "all", "rest"  # the whole gap; what the parts leave of it


def largest(b, at, parts):
    """The part of the rows `at` of a bar whose 95 % interval lies above 0 and above those of the
    other parts; None where no part is told apart so."""
    ends = {str(b["part"][i]): (b["lo95"][i], b["hi95"][i]) for i in np.flatnonzero(at)
            if b["part"][i] in parts}
    for part, (low, _) in ends.items():
        if low > 0 and all(low > high for other, (_, high) in ends.items() if other != part):
            return part
    return None


def answer(b, parts, plain):
    """Which part is the largest of a bar how often, in words: of bars whose whole gap is above 0
    and whose largest part is told apart, by 95 % intervals; parts without the rest where there are
    several, bars without the (problem, label) of plain."""
    first, bars, none, open_ = dict.fromkeys(parts, 0), 0, 0, 0
    keys = dict.fromkeys(zip(b["problem"].tolist(), b["label"].tolist()))
    for key in [key for key in keys if key not in plain]:
        at = (b["problem"] == key[0]) & (b["label"] == key[1]) & np.isfinite(b["mean"])
        gap = b["lo95"][at & (b["part"] == ALL)]
        if np.isin(b["part"][at], parts).sum() < 2:
            continue
        if not (len(gap) and gap[0] > 0):
            none += 1
            continue
        part = largest(b, at, parts)
        bars += 1
        if part:
            first[part] += 1
        else:
            open_ += 1
    said = [f"{part} in {n}" for part, n in sorted(first.items(), key=lambda x: -x[1]) if n]
    behind = f"; {none} more {'have' if none > 1 else 'has'} no sure gap" if none else ""
    if said:
        return f"The largest part of the gap is {', '.join(said)} of {bars} cases" \
            + f", not told apart in {open_}" * bool(open_) + behind
    if bars:
        return f"No part is surely the largest of the gap in {bars} " \
            f"case{'s' * (bars > 1)}{behind}"
    if none:
        return "No variant is surely behind its twin"
    return campaign.ALL_PLAIN.format("variant") if plain.issuperset(keys) else \
        "No gap that is compared has two parts with a finite mean"


def below_zero(b, parts):
    """{(problem, label)} of bars with a negative part, and these parts in words."""
    at = np.isin(b["part"], parts) & (b["mean"] < 0)
    keys = list(zip(b["problem"][at].tolist(), b["label"][at].tolist()))
    return set(keys), [f"{part} of {label} on {campaign.readable(problem)} "
                       f"({common.digits(mean, 2)})" for part, (problem, label), mean in
                       zip(b["part"][at], keys, b["mean"][at])]


def draw_panel(b, labels, parts, unit):
    """Draws the bars of one problem; the parts of a bar lie one below the other where one of them
    is negative, so that none covers another."""
    fig, ax = campaign.panel(height=0.7 + 0.2 * len(labels))
    apart = {label for _, label in below_zero(b, parts)[0]}
    ax.axvline(0, color=inline.SOFT, linewidth=0.7, zorder=1)
    for y, label in enumerate(labels):
        at = 0.0
        for k, part in enumerate(parts):
            row = np.flatnonzero((b["label"] == label) & (b["part"] == part))
            if not len(row) or not np.isfinite(b["mean"][row[0]]):
                continue
            i = row[0]
            above = y - 0.22 + 0.44 * k / max(1, len(parts) - 1)
            lane, height = (above, 0.62 / len(parts)) if label in apart else (y, 0.62)
            ax.barh(lane, b["mean"][i], left=at, height=height, color=inline.PARTS[k % 5],
                    linewidth=0, zorder=2)
            ends = [at + b["lo95"][i], at + b["hi95"][i]]
            ax.plot(ends, [above, above], color=inline.SOFT, linewidth=0.7, zorder=3)
            at += b["mean"][i]
        total = np.flatnonzero((b["label"] == label) & (b["part"] == ALL))
        if len(total) and np.isfinite(b["mean"][total[0]]):
            ax.plot([b["mean"][total[0]]] * 2, [y - 0.42, y + 0.42], color="#000000", linewidth=1.2,
                    zorder=4)
    ax.set_yticks(range(len(labels)), labels, fontsize=common.fit(6.5, labels, forest.WIDEST))
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(unit, fontsize=7)
    return fig


def diverged(c, b):
    """({(problem, label)} of bars of which some run diverged, {label on problem: (diverged,
    runs)}): runs of the variant, and of it without a part."""
    runs, bars, found = common.table(c.f, "/protocol/runs"), set(), {}
    of = runs["lr_scale"] == c.one
    cells = common.table(c.f, "/cells")
    if "role" in cells:  # the budget is of runs at the twin's rate
        of &= cells["role"][runs["cell"]] != "own"
    for problem, label in dict.fromkeys(zip(b["problem"].tolist(), b["label"].tolist())):
        at = of & (runs["problem"] == problem)
        at &= (runs["label"] == label) | np.char.startswith(runs["label"], f"{label} without ")
        k = int(np.sum(runs["status"][at] == "diverged"))
        found[f"{label} on {campaign.readable(problem)}"] = k, int(at.sum())
        bars |= {(problem, label)} if k else set()
    return bars, found


def draw(c, out):
    b = c.table("budget")
    if b is None or not len(b["part"]):
        return
    bars, lost = diverged(c, b)
    at = [key not in bars for key in zip(b["problem"].tolist(), b["label"].tolist())]
    b = {name: column[np.array(at, bool)] for name, column in b.items()}
    if not any(at):
        return
    parts, panels = [part for part in campaign.in_order(b["part"]) if part != ALL], []
    for problem in [p for p in c.problems if p in b["problem"]]:
        one = {name: column[b["problem"] == problem] for name, column in b.items()}
        finite = set(one["label"][np.isfinite(one["mean"])].tolist())
        labels = [label for label in c.labels if label in finite]
        if labels:
            name = campaign.readable(problem)
            panels.append((draw_panel(one, labels, parts, "gap (log10), part by part"), name,
                           f"Error budget on {name}; the table /protocol/budget has the numbers"))
    negative = below_zero(b, parts)[1]
    compared = [part for part in parts if part != REST]
    said = answer(b, compared if len(compared) > 1 else parts, c.plain)  # one: against the rest
    if bars:
        said = said.replace("No variant is", "No variant whose runs all ended is")
    if panels:
        legend = [campaign.note(part, inline.block(inline.PARTS[k % 5]))
                  for k, part in enumerate(parts)]
        out.figure(NAME, panels, (said + campaign.lost_title(lost), MENU),
                   c.same_rate() + "A bar is how much smaller the mean gap becomes when that "
                   "part of the variant alone is at full precision; rest is what they leave (to the right where any of "
                   "several parts alone costs as much, to the left where they cost only together). "
                   "Bars follow one another; each is a trimmed mean of its own, so that the last may end "
                   "short of the whole gap, the upright line, or beyond it; thin lines are "
                   "95 % intervals. The title has a part as the largest where the intervals of the "
                   "whole gap and of the part lie above 0 and the part's above those of the other "
                   "parts" + (", the rest not counted." if len(compared) > 1 else ".")
                   + (f" Negative: {', '.join(negative[:4])}"
                      + f" and {len(negative) - 4} more" * (len(negative) > 4) + ". Such a "
                      "part, but for the rest, makes the gap smaller where it is in codes; it goes "
                      "back to the left from the end of the part before it, and the parts of its "
                      "bar lie one below the other."
                      if negative else "")
                   + campaign.lost_told(lost, " Such bars are left out: the gap 1000 of a run that "
                                        "diverged cannot be divided.") + c.plain_told(), legend)
