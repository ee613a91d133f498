"""prediction.py - Draws errors without training against outcomes of training, a panel a problem."""
import campaign
import common
import numpy as np

NAME, MENU = "prediction", "Prediction"
TABLE, ALL = "/prediction/correlations", "all"
MOST = 12  # panels


def best(rows):
    """The measured error with the largest correlation over all problems, or on the only one."""
    at = rows["problem"] == ALL if ALL in rows["problem"] else rows["problem"] != ""
    at &= rows["error"] != "bits"
    rho = np.where(at & np.isfinite(rows["rho"]), rows["rho"], -np.inf)
    return int(np.argmax(rho)) if np.isfinite(rho).any() else None


def words(rows, i):
    """One correlation with its interval."""
    return f"{rows['rho'][i]:.2f} [{rows['lo95'][i]:.2f}, {rows['hi95'][i]:.2f}]"


def answer(rows, i):
    where = "over all problems" if rows["problem"][i] == ALL else f"on {rows['problem'][i]}"
    said = {"predicts": "orders recipes as training does",
            "reversed": "orders recipes the other way than training"}
    said = said.get(rows["verdict"][i], "leaves open how training orders recipes")
    return f"{rows['error'][i]} {said} " \
           f"{where}: rank correlation {words(rows, i)} over {rows['n'][i]} recipes"


def panel(p, error):
    fig, ax = campaign.panel(width=3.0, height=2.5)
    ends = np.array([p["d"] - p["lo95"], p["hi95"] - p["d"]])
    ax.axhline(0, color="#888888", linewidth=0.7, zorder=1)
    lost = p["diverged"] > 0
    if lost.any():
        ax.plot(p["measured"][lost], np.full(lost.sum(), 0.985), marker="x", markersize=3.6,
                linestyle="none", color=common.PALETTE[1], transform=ax.get_xaxis_transform())
    p, ends = {k: x[~lost] for k, x in p.items()}, ends[:, ~lost]
    ax.errorbar(p["measured"], p["d"], np.where(np.isfinite(ends), np.maximum(ends, 0), 0),
                fmt="o", markersize=2.8, linewidth=0.8, color=common.PALETTE[1], zorder=3)
    bent = np.abs(p["d"]).max(initial=0.0) > 1.0
    if bent:
        ax.set_yscale("symlog", linthresh=0.1)
    ax.set_xlabel(error + " (dB)" * error.endswith("sqnr"), fontsize=7)
    ax.set_ylabel("log10 (gap / twin's gap)" + ", linear within \u00b10.1" * bent, fontsize=7)
    return fig


def draw(c, out):
    if TABLE not in c.f:
        return
    rows, points = common.table(c.f, TABLE), common.table(c.f, "/prediction/points")
    if "diverged" not in points:  # older files
        points["diverged"] = np.zeros(len(points["d"]), int)
    chosen = best(rows)
    if chosen is None:
        return
    error, panels = rows["error"][chosen], []
    mine = rows["error"] == error
    for i in np.flatnonzero(mine & (rows["problem"] != ALL))[:MOST]:
        at = (points["error"] == error) & (points["problem"] == rows["problem"][i])
        at &= np.isfinite(points["measured"])
        name = campaign.readable(rows["problem"][i])
        if not at.any():
            continue
        head = f"{name}: {words(rows, i)}" if np.isfinite(rows["rho"][i]) else name
        panels.append((panel({k: v[at] for k, v in points.items()}, error), head,
                       f"{rows['n'][i]} recipes on {name}; {rows['verdict'][i]}"))
    others = [f"{rows['error'][i]} {words(rows, i)}" for i in range(len(rows["error"]))
              if rows["problem"][i] == rows["problem"][chosen] and i != chosen
              and np.isfinite(rows["rho"][i])]
    right, pairs = rows["right"][chosen], rows["pairs"][chosen]
    told = f" Of {pairs:.0f} pairs of recipes that training tells apart the error orders " \
           f"{100 * right / pairs:.0f} % likewise." if pairs > 0 else ""
    at = (points["error"] == error) & (points["diverged"] > 0)
    lost = {f"{label} on {campaign.readable(problem)}": int(k) for label, problem, k in
            zip(*(points[name][at].tolist() for name in ("label", "problem", "diverged")))}
    said = f" Crosses at the upper edge: recipes with runs that diverged, which have no gap and " \
        f"rank by the gap 1000: {', '.join(f'{k} {n}' for k, n in [*lost.items()][:8])}" \
        + f" and {len(lost) - 8} more" * (len(lost) > 8) + "." if lost else ""
    title = answer(rows, chosen) + (f"; {sum(lost.values())} runs diverged" if lost else "")
    out.figure(NAME, panels, (title, MENU),
               "A point is a recipe: the median error over tensors, and its gap after training with "
               "the 95 % interval; brackets hold rank correlations with theirs." + told + said
               + (f" Other errors: {', '.join(others)}." if others else ""))
