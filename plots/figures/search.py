"""search.py - Draws the speed of each search and the share of codes that differ from scan.

Reads bench.h5: /bench/searches and /timing/search_rate.
"""
import common
import numpy as np
from matplotlib.ticker import PercentFormatter

ORDER = ("scan", "argmin", "mids", "ladder", "bisect", "grid", "edges", "arith")
NAMES = {"edges": "edges (engine)"}


def main():
    args = common.arguments("cost of the search for a code")
    with common.results(args, "bench.h5", kind="bench") as f:
        if not common.has(f, "/bench/searches"):
            return
        rows = common.table(f, "/bench/searches")
        rate = common.dataset(f, "/timing/search_rate")[...]
        cpu = common.text(f["provenance"].attrs["cpu"])
        isa = common.text(f["provenance"].attrs["isa"])
    searches = common.known(rows["search"], ORDER)
    maps = list(dict.fromkeys(rows["map"].tolist()))
    fig, (left, right) = common.figure(1, 2, width=6.8, height=5.6, sharey=True,
                                       gridspec_kw={"width_ratios": (5, 3)})
    for k, name in enumerate(maps):
        mine = rows["map"] == name
        y = np.array([searches.index(s) for s in rows["search"][mine]])
        at = y + 0.09 * (k - (len(maps) - 1) / 2)
        style = dict(common.look(k), linestyle="none", markersize=4)
        left.plot(rate[mine], at, label=name, **style)
        right.plot(rows["codes_differ"][mine], at, **style)
    for ax in (left, right):
        ax.set_ylim(len(searches) - 0.5, -0.5)
        ax.grid(axis="y", visible=False)
        for y in range(len(searches) - 1):
            ax.axhline(y + 0.5, color="#d9d9d9", linewidth=0.6)
        ax.tick_params(axis="y", length=0)
    left.set_yticks(range(len(searches)), [NAMES.get(s, s) for s in searches])
    left.set_xscale("log")
    left.set_xlabel("codes per second, one thread")
    right.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    right.set_xlabel("share of codes that\ndiffer from scan")
    common.legend(fig, *left.get_legend_handles_labels(), columns=4)
    fig.suptitle(f"What does the search for a code cost, and does it find the nearest value?\n"
                 f"{cpu}, {isa}")
    common.save(fig, args.out, "search")


common.guarded(main)
