"""shares.py - Draws the share of targets reached over updates, and profiles of the delay."""
import alike
import campaign
import inline
import numpy as np

NAME, MENU = "shares", "Time to target"
LOST = " They have the targets that they reached before; twins that diverged are in no share, " \
    "nor in a profile where both did."


def draw_panel(c, rows, x_label, base, apart):
    """base: of the logarithmic axis; apart: labels that are hollow."""
    fig, ax = campaign.panel(height=2.7)
    rows = {name: column[rows["tau"] > 0] for name, column in rows.items()}
    for label in [n for n in campaign.in_order(rows["label"]) if n.startswith(campaign.TWINS)]:
        at = rows["label"] == label
        ax.plot(rows["tau"][at], rows["share"][at], drawstyle="steps-post", zorder=1,
                **campaign.TWIN)
    for label in [name for name in c.labels if name in rows["label"]]:
        at = rows["label"] == label
        x, y = rows["tau"][at], rows["share"][at]
        order = np.argsort(x, kind="stable")
        style = dict(c.line(label), **{"markerfacecolor": "#ffffff"} if label in apart else {})
        c.series(ax.plot(x[order], y[order], drawstyle="steps-post",
                         markevery=(3 * c.place[label] % 16 / 100, 0.16), **style)[0], label)
    ax.set_xscale("log", base=base)
    if base == 2:
        ax.set_xlim(0.93, max(2, rows["tau"].max() * 1.05))
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    ax.minorticks_off()
    ax.set_ylim(-0.02, 1.02)
    ax.set_xlabel(x_label, fontsize=7)
    ax.set_ylabel("share", fontsize=7)
    return fig


def reached(c, ecdf):
    """The share of targets that each variant reached at all, the twins' under their own names."""
    return {label: float(ecdf["share"][ecdf["label"] == label].max())
            for label in campaign.in_order(ecdf["label"])
            if label in c.labels or label.startswith(campaign.TWINS)}


def same_runs(c):
    """Alike of the runs, problem, seed, instance and whether its rate was tuned, of each label: a
    share is of all targets of a label's runs, so that only labels of the same runs are compared;
    the others are apart."""
    rows, found, tuned = c.rows, {}, c.tuned()
    instance = rows.get("instance", np.zeros(len(rows["seed"]), int)).tolist()
    at = np.isin(rows["status"], ("ok", "diverged", "elsewhere")) & (rows["lr_scale"] == c.one)
    for i in np.flatnonzero(at):
        problem, label = str(rows["problem"][i]), str(rows["label"][i])
        run = problem, int(rows["seed"][i]), instance[i], tuned.get((problem, label))
        found.setdefault(label, set()).add(run)
    groups = {}
    for label, runs in found.items():
        groups.setdefault(frozenset(runs), []).append(label)
    kept = max(groups, key=lambda runs: (len(groups[runs]), len(runs)), default=frozenset())
    same = alike.Alike({label: found[label] for label in groups.get(kept, ())})
    same.of = len(set().union(*found.values()))
    same.apart = {label: len(found[label]) for label in found if label not in groups[kept]}
    return same


def answer(c, ecdf, same):
    """Which variants reached most and fewest of the targets, in words, of those of the same
    runs."""
    share = {label: x for label, x in reached(c, ecdf).items() if label not in same.apart}
    plain = {label for _, label in c.plain}  # the targets of all problems are in one share
    own = {label: x for label, x in share.items() if label in c.labels and label not in plain}
    twins = {label: x for label, x in share.items() if label not in c.labels}
    twins = twins if len(same.common) == same.of else {}  # theirs are of all runs
    if not own:
        return campaign.ALL_PLAIN.format("variant") if c.all_plain() else \
            "Every variant is not quantized on some problem" if plain & set(share) else \
            "No run that is compared has targets"
    most, least = max(own, key=own.get), min(own, key=own.get)
    said = f"Of all targets {campaign.shown(most)} reached {100 * own[most]:.3g} %"
    if len(own) > 1:
        said += f", {campaign.shown(least)} {100 * own[least]:.3g} %" \
            if own[least] < own[most] else ", as every variant did"
    if len(twins) == 1:  # with several, each is the twin of some of the variants
        return said + f"; float64 {100 * max(twins.values()):.3g} %"
    return said + "".join(f"; {label} {100 * x:.3g} %" for label, x in twins.items())


def draw(c, out):
    panels, same = [], same_runs(c)
    ecdf, profiles = c.table("ecdf"), c.table("profiles")
    if ecdf is not None and len(ecdf["tau"]):
        panels.append((draw_panel(c, ecdf, "updates", 10, same.apart),
                       "Targets reached by that many updates (ECDF)",
                       "Empirical distribution of the updates to 51 targets per problem"))
    kinds = {"classical": ("times the updates of the best", "Profile against the best of the set"),
             "twin": ("times the updates of its own twin", "Profile against the own twin")}
    for kind, (x_label, title) in kinds.items():
        at = profiles is not None and profiles["kind"] == kind
        if np.any(at):
            one = {name: column[at] for name, column in profiles.items()}
            panels.append((draw_panel(c, one, x_label, 2, same.apart), title, title))
    if panels:
        has = ecdf is not None and len(ecdf["tau"])
        title = answer(c, ecdf, same) if has else "The file has no targets, profiles alone"
        title += campaign.lost_title(c.lost())
        out.figure(NAME, panels, (title, MENU),
                   c.same_rate() + "51 targets per problem, evenly on the logarithm, down to what "
                   "half the twins reach; what never got there counts as infinitely late. A share over updates is of "
                   "all targets of all runs; that of a profile leaves out the targets that both the "
                   "variant and its reference, the best or the twin, missed. Higher and further left is "
                   "better. Profiles against the best depend on who else is in the set, those "
                   "against the own twin do not."
                   + same.told("runs", "shares", "hollow")
                   + " Runs at a rate that was tuned and runs at one that was not count as "
                   "different runs." * bool(c.uneven())
                   + campaign.lost_told(c.lost(), LOST) + c.plain_told(),
                   [campaign.note("double-precision twin", inline.swatch(campaign.TWIN))]
                   + c.legend())
