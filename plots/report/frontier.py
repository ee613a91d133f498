"""frontier.py - Draws the error of cells that do not train against the bits of an element."""
import alike
import campaign
import common
import encode
import numpy as np
from cells import BLOCKS, Cells, has_median, interval
from encode import bars, mark_exact
from matplotlib.transforms import offset_copy

NAME, MENU = "frontier", "Bits"


WIDE, HANDLE = 80, 8  # characters of a legend's line, and what a marker takes of it
SAME = 5  # decimals of bits that are told apart
BESIDE = 6  # typographic points from the first to the last format of the same bits


def points_of(grid):
    """[(bits, median, low, high, label, place)], by rising bits."""
    return sorted((round(grid.bits[key], SAME), *interval([*found.values()]), key[1], key[0])
                  for key, found in grid.value.items() if has_median(found))


def exact_of(grid):
    """[(bits, label, place)] of the formats without a median, as most values are exact, by rising
    bits."""
    return sorted((round(grid.bits[key], SAME), key[1], key[0])
                  for key, found in grid.value.items() if found and not has_median(found))


def front(points, exact):
    """The points that none with as few bits exceeds, an exact one neither."""
    out = []
    for p in points:
        if exact and p[0] >= exact[0][0]:
            break
        if not out or p[1] > out[-1][1]:
            if out and out[-1][0] == p[0]:
                out.pop()
            out.append(p)
    return out


def panel(grid, words, points, exact, best):
    """Draws one panel: where norms are an axis beside the series, the marker is the norm's, and a
    thin line in the look of a series joins its points."""
    fig, ax = campaign.panel(width=4.6, height=3.0)
    by_place = encode.markers(grid.quantizers) if grid.x and len(grid.labels) > 1 else {}
    at = [p[0] for p in points]
    for i, (bits, mid, low, high, label, place) in enumerate(points):
        last = max(at.count(bits) - 1, 1)
        beside = (at[:i].count(bits) / last - 0.5) * (at.count(bits) > 1)  # of equal bits
        style, marker = grid.look[label], by_place.get(place, grid.look[label]["marker"])
        middle, ends = bars([low], [mid], [high])
        hollow = grid.is_apart((place, label))
        ax.errorbar([bits], middle, yerr=ends, color=style["color"], marker=marker,
                    linestyle="none", markersize=4, elinewidth=1,
                    transform=offset_copy(ax.transData, fig, BESIDE * beside, units="points"),
                    markerfacecolor="#ffffff" if hollow else style["color"])
    line = encode.lines(grid.look)
    for label in grid.labels if by_place else ():
        mine = [p for p in points if p[4] == label and not grid.is_apart((p[5], p[4]))]
        style = grid.look[label]
        ax.plot([p[0] for p in mine], [p[1] if np.isfinite(p[1]) else np.nan for p in mine],
                color=style["color"], linestyle=line[label], linewidth=0.8)
    ends = [(exact[0][0], best[-1][1])] if best and exact else []  # where an exact one takes over
    ax.step(*zip(*[p[:2] for p in best] + ends, strict=True) if best else ((), ()), where="post",
            color="#7f7f7f", linewidth=1, zorder=1)
    mark_exact(ax, [(bits, 0, dict(grid.look[label], marker=by_place.get(
        place, grid.look[label]["marker"]))) for bits, label, place in exact])
    every = [p[0] for p in (*points, *exact)]
    low, high = min(every), max(every)
    if high > 2.5 * low:
        ax.set_xscale("log", base=2)
        ax.set_xticks([b for b in (2, 3, 4, 5, 6, 8, 12, 16, 32) if low * 0.9 <= b <= high * 1.1])
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    ax.minorticks_off()
    ax.set_xlabel("bits per element, scales included", fontsize=8)
    ax.set_ylabel(words, fontsize=8)
    legend(ax, legend_keys(grid, {p[4] for p in points} | {p[1] for p in exact}, by_place))
    return fig


def legend(ax, keys):
    """Draws the legend above the points, in as many columns as fit; long names are broken."""
    for key in keys:
        key.set_label("\n".join(common.broken(key.get_label(), WIDE)))
    lines = [key.get_label().split("\n") for key in keys]
    longest = max(len(line) for found in lines for line in found)
    columns = max(1, min(3, (WIDE + HANDLE) // (longest + HANDLE)))
    rows = [max(len(found) for found in lines[k::-(-len(keys) // columns)])
            for k in range(-(-len(keys) // columns))]
    floor, roof = ax.get_ylim()
    ax.set_ylim(floor, roof + (roof - floor) * 0.06 * (1 + sum(rows)))
    ax.legend(handles=keys, fontsize=6, ncol=columns, loc="upper center")


def legend_keys(grid, labels, by_place):
    """The legend's entries: the series, by their line where markers are norms, and the norms."""
    line, lines = common.plt.Line2D, encode.lines(grid.look)
    style = {"markersize": 4, "linewidth": 0.8}
    out = [line([], [], label=label, **dict(grid.look[label], **style, **(
        {"marker": "", "linestyle": lines[label]} if by_place else {"linestyle": "none"})))
        for label in grid.labels if label in labels]
    return out + [line([], [], label=place, color="#7f7f7f", marker=marker,
                       linestyle="none", markersize=4) for place, marker in by_place.items()]


def said(grid, best, exact):
    """What the least and the most bits of the frontier reach, in words."""
    whole = [grid.format((place, label)) for bits, label, place in exact if bits == exact[0][0]]
    if whole and not best:
        return f"{alike.named(whole)} {'are' if len(whole) > 1 else 'is'} exact with the " \
            f"fewest bits, {common.digits(exact[0][0])}"
    least, most = best[0], best[-1]
    if whole:
        return f"at {common.digits(least[0])} bits {grid.format((least[5], least[4]))} has " \
            f"{common.digits(least[1])} dB; {alike.named(whole)} " \
            f"{'are' if len(whole) > 1 else 'is'} exact with {common.digits(exact[0][0])}"
    low, high = (grid.format((p[5], p[4])) for p in (least, most))
    if least is most:
        return f"{high} has the most, {common.digits(most[1])} dB, with the fewest bits, " \
            f"{common.digits(most[0])}"
    bits, dB = common.unlike(least[0], most[0], 3, 7), common.unlike(least[1], most[1])
    return f"at {bits[0]} bits {low} has {dB[0]} dB; {high} reaches {dB[1]} dB with {bits[1]}"


def search_panel(rows):
    """The compositions of a search, grey; its frontier, a line; registered variants, with names."""
    fig, ax = campaign.panel(width=4.6, height=3.0)
    is_known = np.isfinite(rows["report"])
    for kind, size in (("searched", 6), ("frontier", 16)):
        found = is_known & (rows["kind"] == kind)
        ax.scatter(rows["bits"][found], rows["report"][found], s=size, color="#7f7f7f",
                   zorder=2 if kind == "frontier" else 1, label=f"{kind}, {np.sum(found)}")
    best = np.flatnonzero(is_known & (rows["kind"] == "frontier"))
    best = best[np.argsort(rows["bits"][best])]
    ax.step(rows["bits"][best], rows["report"][best], where="post", color="#7f7f7f", linewidth=1)
    variants = np.flatnonzero(is_known & (rows["kind"] == "variant"))
    looks = encode.looks({str(rows["label"][i]): [] for i in variants})
    for i in variants:
        look = looks[str(rows["label"][i])]
        ax.plot(rows["bits"][i], rows["report"][i], color=look["color"], marker=look["marker"],
                linestyle="none", markersize=5, label=str(rows["label"][i]), zorder=3)
    ax.set_xlabel("bits per element, scales included", fontsize=8)
    ax.set_ylabel("SQNR of the next update, held out (dB)", fontsize=8)
    floor, roof = ax.get_ylim()
    ax.set_ylim(floor, roof + (roof - floor) * 0.4)
    ax.legend(fontsize=6, ncol=3, loc="upper center")
    return fig, best


def draw_search(c, out):
    rows = common.table(c.f, "/search/compositions")
    tensors = common.table(c.f, "/search/tensors")["half"]
    fig, best = search_panel(rows)
    variants = np.flatnonzero((rows["kind"] == "variant") & np.isfinite(rows["report"]))
    top = best[-1]
    answer = (f"{rows['label'][top]} has {rows['report'][top]:.3g} dB "
              f"at {rows['bits'][top]:.4g} bits")
    if len(variants):
        rival = variants[np.argmax(rows["report"][variants])]
        answer += (f"; of registered variants {rows['label'][rival]} "
                   f"{rows['report'][rival]:.3g} dB at {rows['bits'][rival]:.4g}")
    out.figure(NAME, [(fig, "report", answer)], (answer, MENU), "A point is the location over "
               f"models on {np.sum(tensors == 'report')} held-out tensors; frontier: what no "
               f"composition with as few bits exceeds on the {np.sum(tensors == 'search')} "
               "searched ones.",
               wide=True)


def draw(c, out):
    if "/search/compositions" in c.f:
        draw_search(c, out)
        return
    table, panels, answers, left_out, told = Cells(c), [], [], 0, {}
    for head, words, grid in table.grids():
        points, exact = points_of(grid), exact_of(grid)
        if not grid.once:
            continue
        inside = [p for p in points if not grid.is_apart((p[5], p[4]))]
        if len(points) < 3 or len(inside) < 2 or points[-1][0] < 1.02 * points[0][0]:
            left_out += 1
            continue
        among = [p for p in exact if not grid.is_apart((p[2], p[1]))]
        best = front(inside, among)
        answer = said(grid, best, among)
        head = f"{head}: {words}" if head else words
        answers.append((head.removesuffix(" (dB)"), answer))
        told[head] = grid.alike_told()
        panels.append((panel(grid, words, points, exact, best), head, f"{head}. {answer}"))
    if panels:
        title = ": ".join(answers[0]) if len(panels) > 1 else answers[0][1]
        title = title[0].upper() + title[1:] if len(panels) == 1 else title
        title += campaign.lost_title(table.lost)
        out.figure(NAME, panels, (title, MENU), "A point is the median over at most "
                   f"{table.tensors()}, its bar holds the median with 95 %; the grey line "
                   "is what no other point with as few bits exceeds; those of the same bits stand side by "
                   "side. Bits are those of all "
                   "elements together, so that large tensors decide; in the median each tensor "
                   "counts as one" + table.medians()
                   + (f"; {left_out} comparisons at equal bits have no panel" if left_out else "")
                   + table.omitted() + table.origin() + alike.together(told), wide=len(panels) == 1)
