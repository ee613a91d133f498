"""encode.py - Says how a format looks: its map is its colour, its norm its marker, in every
figure; draws bars and exact values."""
import math

import common
import numpy as np

EXACT = 20 * 23 * math.log10(2)  # dB of an error of one unit in the last place of a float32
NORMS = {"block": "o", "tensor": "s", "row": "^", "col": "v", "rank1": "D"}


def words(quantizer):
    """(map without its bits, bits and sign, norm without its size) of "nf4:4s/block:128/..."."""
    parts = quantizer.split("/")
    name, _, form = parts[0].partition(":")
    return name, form, parts[1].partition(":")[0] if len(parts) > 1 else ""


def colour(quantizer):
    """The palette's number of a format's map."""
    name, form, _ = words(quantizer)
    wide = f"{name}:{form[:1]}"
    return common.MAPS.get(wide, common.MAPS.get(name, sum(name.encode()) % len(common.PALETTE)))


def of_recipe(recipe):
    """The quantizers that a recipe's text names; float32 where it says so."""
    found = [word.partition("=")[2] for word in recipe.split(",") if "/" in word.partition("=")[2]]
    plain = recipe.endswith("=f32") or recipe.partition(",")[0].endswith("_f32")
    return found or (["f32"] if plain else [])


def of_cell(cells, row):
    """Those of the recipe in a row of /cells; where it names none, that of the cell's slot, which
    the variant has by itself."""
    own = str(cells["quantizer"][row]) if "quantizer" in cells else ""
    return of_recipe(str(cells["recipe"][row])) or ([own] if "/" in own else [])


def apart(quantizers):
    """{quantizer: number of the palette}: a map that common.MAPS does not name leaves its colour to
    one that common.MAPS names, and to an earlier one, while the palette has others."""
    taken, out, late = {}, {}, []
    for q in quantizers:
        name, form, _ = words(q)
        kind = next((k for k in (f"{name}:{form[:1]}", name) if k in common.MAPS), None)
        if kind:
            out[q] = taken.setdefault(kind, common.MAPS[kind])
        else:
            late.append((q, name))
    for q, name in late:
        if name not in taken:
            free = [k for k in range(len(common.PALETTE)) if k not in taken.values()]
            own = colour(q)
            taken[name] = own if own in free or not free else free[0]
        out[q] = taken[name]
    return out


def only(found):
    """The one member of a set, or None."""
    return next(iter(found)) if len(found) == 1 else None


def markers(quantizers):
    """{label: marker} of {label: its quantizers}: each has its own while there are some, the norm's
    where no earlier one has it."""
    out = {}
    for label, found in quantizers.items():
        norm = only({words(q)[2] for q in found})
        free = [m for m in (NORMS.get(norm), *common.MARKERS) if m and m not in out.values()]
        out[label] = (free or [common.MARKERS[len(out) % len(common.MARKERS)]])[0]
    return out


def lines(look):
    """{label: line} of {label: its look}: each has its own while there are some, then one that no
    other of its colour has."""
    out = {}
    for label, style in look.items():
        every = (style["linestyle"], *common.LINES)
        alike = [out[other] for other in out if look[other]["color"] == style["color"]]
        free = [s for s in every if s not in out.values()] + [s for s in every if s not in alike]
        out[label] = (free or [style["linestyle"]])[0]
    return out


def differ(wanted):
    """{label: look} of {label: the look wanted}: the first label that wants a colour and marker, or
    a marker and line, has them; each of the others gets the next pair that nobody wants."""
    out, late = {}, []
    for label, look in wanted.items():
        pairs = [((x["color"], x["marker"]), (x["marker"], x["linestyle"])) for x in out.values()]
        if any((look["color"], look["marker"]) == hue or (look["marker"], look["linestyle"]) == form
               for hue, form in pairs):
            late.append(label)
        else:
            out[label] = look
    for label in late:
        look = wanted[label]
        taken = {(x["marker"], x["linestyle"]) for x in out.values()}
        hues = {(x["color"], x["marker"]) for x in out.values()}
        markers = [look["marker"], *common.MARKERS]
        free = [(m, line) for line in common.LINES for m in markers
                if (m, line) not in taken and (look["color"], m) not in hues]
        free = free or [(m, line) for line in common.LINES for m in markers
                        if (look["color"], m, line) not in
                        {(x["color"], x["marker"], x["linestyle"]) for x in out.values()}]
        marker, line = (free or [(look["marker"], look["linestyle"])])[0]
        out[label] = dict(look, marker=marker, linestyle=line)
    return {label: out[label] for label in wanted}


def looks(quantizers):
    """{label: look} of {label: its quantizers, in order}; two labels never look the same, without
    colour either as far as markers and lines go.

    Where maps differ, colour and line say the map, else the order; where norms differ, the marker
    says the norm, else it goes with the colour."""
    hue = apart(dict.fromkeys(q for found in quantizers.values() for q in found))
    maps = {label: only({hue[q] for q in found}) for label, found in quantizers.items()}
    norms = {label: only({words(q)[2] for q in found}) for label, found in quantizers.items()}
    by_map = len(set(maps.values()) - {None}) > 1
    by_norm = len(set(norms.values()) - {None, ""}) > 1
    unused = [k for k in range(len(common.PALETTE)) if k not in maps.values()] or [7]
    wanted = {}
    for k, label in enumerate(quantizers):
        number = k
        if by_map:
            number = maps[label]
            if number is None:
                number = unused.pop(0) if len(unused) > 1 else unused[0]
        look = common.look(number)
        marker = NORMS.get(norms[label], "X") if by_norm and norms[label] else look["marker"]
        wanted[label] = dict(look, marker=marker)
    return differ(wanted)


def bars(low, mid, high):
    """(middle, lengths of the two bars) for drawing: an end among exact values has no bar, nor one
    that is infinite; a middle that is has no point."""
    low, mid, high = (np.asarray(x, dtype=float) for x in (low, mid, high))
    mid = np.where(np.isfinite(mid), mid, np.nan)
    return mid, [np.where(np.isfinite(low), mid - low, 0.0),
                 np.where((high < EXACT) & np.isfinite(high), high - mid, 0.0)]


def mark_exact(ax, points):
    """Marks values that are exact above all others: points [(x, group, look)], each in its look,
    with the word above each group."""
    if not points:
        return
    low, high = ax.get_ylim()
    y, groups = high + 0.04 * (high - low), {}
    for x, group, style in points:
        ax.plot([x], [y], color=style["color"], marker=style["marker"], linestyle="none",
                markersize=4)
        groups.setdefault(group, []).append(x)
    for found in groups.values():
        ax.text(0.5 * (min(found) + max(found)), y + 0.03 * (high - low), "exact", fontsize=6,
                ha="center", va="bottom")
    ax.set_ylim(low, high + 0.14 * (high - low))
