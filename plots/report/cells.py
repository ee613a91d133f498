"""cells.py - Cells that do not train, by the axes of any suite: places, series, panels, answers."""
import copy
import itertools
import math
from collections import Counter

import alike
import campaign
import common
import encode
import numpy as np
from encode import EXACT

METRICS = (("sqnr", "SQNR of the state (dB)"), ("step_sqnr", "SQNR of the update (dB)"))
WHOLE = (("sqnr", "SQNR of the next update (dB)"),)  # of coupling update, which has no other
BLOCKS, USUAL = "block:", 128
MOST = 12  # panels of a figure
ENOUGH = 6  # values of which two have the median between them with 95 %
TIE = 0.005  # dB that are 0 in the hundredths that are printed: two such values are equal
SEEDS = ("seed", "rounding_seed")
DRAWN = ("dist:", "problem:")  # sources whose data a seed draws
pair = None  # two labels that are compared, instead of the first and the best


def interval(values):
    """The median, and what order statistics hold it with 95 %; the range of fewer than ENOUGH."""
    x = np.sort(values)
    n, tail, k = len(x), 0.0, 0
    while n >= ENOUGH:
        tail += math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
                         - n * math.log(2.0))  # P(Bin(n, 1/2) = k)
        if tail > 0.025:
            break
        k += 1
    low = max(k - 1, 0)
    return np.median(x), x[low], x[n - 1 - low]


def has_median(found):
    """Whether fewer than half of the values of {tensor: value} are exact, as where each element has
    a scale of its own: else there is no median to show."""
    x = np.array([*found.values()])
    return 2 * int(np.sum(x >= EXACT)) < len(x)


def is_nothing(x):
    """Whether a difference is 0 in the hundredths that are printed."""
    return abs(x) < TIE


def side(low, high):
    """1 where an interval lies above 0, -1 where below, as its ends are printed; else 0."""
    near = low if low > 0.0 else min(high, 0.0)
    return 0 if is_nothing(near) else int(near > 0.0) - int(near < 0.0)


def sure(gains):
    """The median of {tensor: gain} where its interval leaves out 0 as printed; else 0."""
    mid, low, high = interval([*gains.values()])
    return float(mid) if side(low, high) else 0.0


def wins(gains):
    """How many of the gains are above 0 as printed."""
    return sum(side(x, x) > 0 for x in gains)


def ties_told(d=()):
    """What a caption says of differences that are no win, with how many of `d` there are."""
    n = sum(is_nothing(x) for x in d)
    return f"values that differ by less than {TIE} dB, 0 as printed, are equal and count for " \
        "neither" + f" ({n} of {len(d)} here)" * bool(n)


def equal_told(d, unit):
    """What a title says of two formats whose differences d are 0 to the bit, or as printed; else
    ""."""
    mid, low, high = interval(d)
    n = len(d)
    what = "tensors" if n != 1 else "tensor"
    if not d.any():
        return f"are the same to the bit on {n} of {n} {what}"
    if not is_nothing(mid) or not (low > 0.0 or high < 0.0 or all(map(is_nothing, (low, high)))):
        return ""
    return f"are equal within {TIE} {unit} on {sum(map(is_nothing, d))} of {n} {what}"


def denies(grid, first, best, said):
    """Whether what is said of `first` and `best` (1: best is above, -1 and 0: nothing is
    surely above first, and with -1 best is surely below it) is not so in another panel."""
    gains, there = grid.gains(first, best), grid.said()
    above = there and there[0] == first and there[2] > 0.0
    return bool(said <= 0.0 and above) or \
        bool(said != 0.0 and gains and np.sign(sure(gains)) != said)


def others(grids, k, heads=()):
    """What a title from panel k adds: its distribution, where these are panels, and in how many of
    the others that compare it is not so; heads: the panels' names."""
    said = grids[k].said()
    there = [g for i, g in enumerate(grids) if i != k and g.said()]
    apart = [g for g in there if denies(g, *said)] if said else []
    turned = [g for g in apart if said[2] and sure(g.gains(*said[:2]) or {0: 0.0}) * said[2] < 0.0]
    of = f" ({grids[k].source})" * bool(grids[k].source)
    where = f"in {len(apart)} of {len(there)} other panels"
    if len(there) == 1 and apart and len(grids) == len(heads):
        where = "for " + heads[grids.index(apart[0])].removesuffix(" (dB)")
    return of + (f"; {'the reverse' if turned == apart else 'not so'} {where}" if apart else "")


def nearest(values):
    """The median; of two in the middle of which one is infinite, the one nearer to 0."""
    found = sorted(values)
    low, high = found[(len(found) - 1) // 2], found[len(found) // 2]
    return float(0.5 * (low + high) if np.isfinite([low, high]).all() else min(low, high, key=abs))


def median(found):
    """That of {tensor: value}, exact ones included, as in the printed table."""
    return np.median([*found.values()])


def measured(unit, mid, low, high, n=ENOUGH):
    """A median of n differences with its interval in words, or their range where they are too few
    for one, without digits below a hundredth."""
    if np.isinf(mid):
        return "(which is exact)"
    small = [0.0 if is_nothing(x) else x for x in (mid, low, high)]
    mid, low, high = (common.digits(x, 2) for x in small)
    return f"by {mid} {unit}" + (f" [{low}, {high}]" if n >= ENOUGH else
                                 f" (from {low} to {high})" if n > 1 else "")


def varying(axes):
    """The axes with several values that are compared; their values in the file's order."""
    skip = ("source", "slot", "coupling", *SEEDS)
    found = {name: campaign.in_order(column) for name, column in axes.items() if name not in skip}
    return {name: values for name, values in found.items() if len(values) > 1}


def is_block(value):
    return value.startswith(BLOCKS) and value[len(BLOCKS):].isdigit()


def norm_axis(found):
    """The axis whose values are all norms, or None."""
    for name, values in found.items():
        if all(is_block(v) for v in values) or name.endswith(".norm"):
            return name
    return None


def are_apart(axes):
    """Whether sources are panels: several distributions, a median over which says nothing."""
    names = {*map(str, axes.get("source", ()))}
    return len(names) > 1 and all(name.startswith("dist:") for name in names)


def split(axes):
    """(horizontal axis or None, axis of the series or None, axes of the panels, axes of which each
    tensor has the values of all: those but one where a pair of values of that one is compared)."""
    found = varying(axes)
    x = norm_axis(found)
    others = [name for name in found if name != x]
    maps = [name for name in others if name.endswith(".map")]
    series = (maps or others or [None])[-1]
    if pair and not {*pair} <= {*found.get(series, ())}:
        chosen = next((name for name, values in found.items() if {*pair} <= {*values}), series)
        return None, chosen, [], [name for name in found if name != chosen]
    return x, series, ["source"] * are_apart(axes) + [o for o in others if o != series], []


def units(cells, axes, rows, results):
    """{row: its unit}, a tensor (source, tensor, seed).

    The rule of every count of tensors: on recorded data seeds draw nothing but the rounding, so
    that those of one tensor are one unit, whose value is the median over them.  A distribution or a
    problem draws its data by the seed: each seed is a unit, but for seeds of equal results, to the
    bit, which are one."""
    found, same = {}, {}
    others = [column for name, column in axes.items() if name not in ("source", *SEEDS)]
    for i in rows:
        source, seed = str(cells["source"][i]), str(cells["seed"][i])
        found[i] = (source, str(cells["tensor"][i]),
                    seed if source.startswith(DRAWN) else "")
        key = tuple(column[i] for column in others)
        if source.startswith(DRAWN):
            same.setdefault(found[i], {}).setdefault(key, set()).add(hash(results[i].tobytes()))
    first = {}
    for unit, one in same.items():
        what = frozenset((key, frozenset(values)) for key, values in one.items())
        same[unit] = first.setdefault((*unit[:2], what), unit)
    return {i: same.get(unit, unit) for i, unit in found.items()}


class Grid:
    """The values of one metric in some rows, by horizontal place and series; +Inf is an exact cell.
    without: rows whose value is no number.  names: what is compared, values of `axis`: the series,
    or the places where there is one series."""

    def __init__(self, table, metric, keep, split_axes):
        cells, axes, unit, only = table
        x, series, _, self.blocks = split_axes
        rows = np.flatnonzero(keep & ~np.isnan(metric))
        self.without = int(np.sum(keep & np.isnan(metric)))
        self.x, self.series, self.value, self.bits = x, series, {}, {}
        self.kind, weighed, quantizers, by_place = {}, {}, {}, {}
        self.once = np.isin(cells["coupling"][rows], ("oneshot", "update")).all()
        for i in rows:
            label = axes[series][i] if series else only or str(cells["variant"][i])
            at = axes[x][i] if x else label
            key = (*unit[i], *(str(axes[name][i]) for name in self.blocks))
            self.value.setdefault((at, label), {}).setdefault(key, []).append(metric[i])
            self.kind[self.tensor(key)] = str(cells["class"][i])
            weighed.setdefault((at, label), {}).setdefault(key, []).append(
                (float(cells["bits"][i] * cells["n"][i]), float(cells["n"][i])))
            for found, name in ((quantizers, label), (by_place, at)):
                found.setdefault(name, []).append(str(cells["quantizer"][i]))
        self.value = {key: {tensor: float(np.median(x)) for tensor, x in found.items()}
                      for key, found in self.value.items()}
        self.compare_alike(weighed)
        self.slots = 2 if (cells["coupling"][rows] == "update").all() else 1
        self.places = list(dict.fromkeys(k[0] for k in self.value))
        if x:
            self.places.sort(key=lambda v: int(v[len(BLOCKS):]) if is_block(v) else 1 << 62)
        self.labels = list(dict.fromkeys(k[1] for k in self.value))
        self.look = encode.looks(quantizers)
        self.quantizers = {name: by_place[name] for name in self.places}
        alone = bool(x) and len(self.labels) == 1
        self.names, self.axis = (self.places, x) if alone else (self.labels, series)
        self.looks = encode.looks(self.quantizers) if alone else self.look

    def compare_alike(self, weighed):
        """Keeps of each format the tensors that all compared ones have (alike.py); bits are those
        of the tensors that are kept.  weighed: {format: {tensor: [(bits, elements)]}}."""
        self.alike = alike.Alike({key: {*found} for key, found in self.value.items()})
        for key in self.alike.inside:
            self.value[key] = {tensor: x for tensor, x in self.value[key].items()
                               if tensor in self.alike.common}
        for key, found in self.value.items():
            rows = [row for tensor in found for row in weighed[key][tensor]]
            self.bits[key] = sum(row[0] for row in rows) / max(sum(row[1] for row in rows), 1.0)

    def is_apart(self, key):
        """Whether a (place, series) is not compared by its median."""
        return key in self.alike.apart

    def format(self, key):
        """A (place, series) in words."""
        place, label = key
        return label if not self.x else \
            f"{label} in {place.replace(BLOCKS, 'blocks of ')}" if len(self.labels) > 1 else place

    def alike_told(self, are_medians=True):
        """What the caption says of the tensors that some formats lack; without medians, of pairs of
        values: a format is set apart from none."""
        told = copy.copy(self.alike)
        told.apart, told.lacking = ({self.format(key): k for key, k in found.items()}
                                    for found in (told.apart, told.lacking))
        if not are_medians:
            told.apart = {}
            return told.told("tensors", "values")
        return told.told("tensors", "medians")

    def place(self):
        """The place at which series are compared: blocks of 128, else the middle one, or the next
        to it at which two series have a median; None: none."""
        if not self.x or self.names is self.places:
            return None
        usual, n = f"{BLOCKS}{USUAL}", len(self.places)
        k = self.places.index(usual) if usual in self.places else n // 2
        there = [p for p in sorted(range(n), key=lambda i: abs(i - k))
                 if sum(bool(found) and has_median(found) for found in (
                     self.value.get((self.places[p], label), {}) for label in self.labels)) > 1]
        return self.places[(there or [k])[0]]

    def where(self):
        """The place of comparison in words."""
        place = self.place()
        other = self.axis and "." in self.axis \
            and self.axis.partition(".")[0] != (self.x or "").partition(".")[0]  # another state
        if place is None:
            return f" (median over values of {', '.join(self.blocks)})" if self.blocks else ""
        return f" at blocks of {place[len(BLOCKS):]}" if is_block(place) and not other \
            else f" at {self.x} {place}"

    def key(self, name, place=None):
        """(place, series) of one of the names, at the place of comparison or another one."""
        return (name, self.labels[0]) if self.names is self.places else \
            (place or self.place() or name, name)

    def at(self, name, place=None):
        """{tensor: value} of one of the names at the place of comparison or another one."""
        return self.value.get(self.key(name, place), {})

    def middles(self):
        """{name: its median at the place of comparison} of those that have one."""
        return {name: median(self.at(name)) for name in self.names if has_median(self.at(name))}

    def gains(self, a, b, place=None):
        """{tensor: value of b - value of a}; 0 where both are exact.  Of a tensor with several
        blocks it is the median over them: they are not independent."""
        left, right = self.at(a, place), self.at(b, place)
        found = {}
        for key in [key for key in left if key in right]:
            gain = right[key] - left[key] if right[key] != left[key] else 0.0
            found.setdefault(self.tensor(key), []).append(gain)
        return {key: nearest(gains) for key, gains in found.items()}

    def tensor(self, key):
        """The tensor of a key of self.value, without the block."""
        return key[:len(key) - len(self.blocks)]

    def by_tensor(self, values):
        """{tensor: value} of {tensor and block: value}, the median over blocks."""
        found = {}
        for key, value in values.items():
            found.setdefault(self.tensor(key), []).append(value)
        return {key: float(np.median(values)) for key, values in found.items()}

    def exact(self):
        """(How many values are exact, how many points have no median because of them)."""
        found = self.value.values()
        return (sum(x >= EXACT for one in found for x in one.values()),
                sum(not has_median(one) for one in found))

    def below(self):
        """{series: its least median} of those whose error is larger than what it is of."""
        out = {}
        for (_, label), found in self.value.items():
            if median(found) < min(0.0, out.get(label, 0.0)):
                out[label] = median(found)
        return out

    def more_bits(self, a, b):
        """By how many bits b has more than a; 0 for what scales of other norms cost a little."""
        more = self.bits[self.key(b)] - self.bits[self.key(a)]
        return more if abs(more) > 0.3 * self.slots else 0.0

    def rivals(self):
        """(first name, {name: its gains}) of those with no more bits than the first; of all where
        there are none.  All gains are over the same tensors: a format that is set apart is a rival
        where there is no other."""
        there = self.middles()
        if not there:
            return None, {}
        first = next(iter(there))
        found = {b: gains for b in there if b != first and (gains := self.gains(first, b))}
        found = {b: gains for b, gains in found.items() if not self.is_apart(self.key(b))} or found
        both = set.intersection(*map(set, found.values())) if found else set()
        found = {b: {key: gains[key] for key in gains if key in both} for b, gains in found.items()
                 } if both else dict([*found.items()][:1])
        equal = {b: gains for b, gains in found.items() if self.more_bits(first, b) <= 0.0}
        return first, equal or found

    def best(self):
        """(first series, the one it is compared with, its gains) or None: the one that gains most,
        of those that surely gain if there are any; where some but not all surely lose and none
        gains, the one that loses most."""
        if pair:
            gains = self.gains(*pair)
            return (*pair, gains) if gains else None
        first, found = self.rivals()
        if not found:
            return None
        ends = {b: interval([*gains.values()]) for b, gains in found.items()}
        above = {b: mid for b, (mid, low, high) in ends.items() if side(low, high) > 0}
        below = {b: mid for b, (mid, low, high) in ends.items() if side(low, high) < 0}
        best = min(below, key=below.get) if below and not above and len(below) < len(ends) else \
            max(above or ends, key=lambda b: ends[b][0])
        return first, best, found[best]

    def effect(self):
        """How far the compared series is above the first one; 0 where that is not sure."""
        found = self.best()
        return sure(found[2]) if found else 0.0

    def said(self):
        """(first series, the compared one, the side of the answer); None: no answer."""
        found = self.best()
        return (*found[:2], float(np.sign(sure(found[2])))) if found else None

    def elsewhere(self):
        """At which places, of those that the answer is not about, it is another one, in words."""
        found, out = self.best(), []
        if not found or self.place() is None:
            return ""
        here = np.sign(sure(found[2]))
        for place in [place for place in self.places if place != self.place()]:
            gains = self.gains(*found[:2], place)
            there = np.sign(sure(gains)) if gains else here
            if there > here if here == 0.0 else there != here:
                d = np.array([*gains.values()]) * (here or 1.0)
                out.append(f"{place.removeprefix(BLOCKS)}: {wins(d)} of {len(d)}")
        more = f" and {len(out) - 3} more" * (len(out) > 3)
        return f"; not so at {', '.join(out[:3])}{more}" if out else ""

    def answer(self, unit="dB"):
        """The best of the names against the first one, in words, and where that is not so; "" where
        nothing is compared."""
        return self.alone(unit) + self.elsewhere()

    def alone(self, unit):
        """The answer at the place of comparison."""
        found = self.best()
        if not found:
            return ""
        first, best, gains = found
        d = np.array([*gains.values()])
        mid, low, high = interval(d)
        won, n = wins(d), len(d)
        more = self.more_bits(first, best)
        cost = common.unlike(*(self.bits[self.key(name)] for name in (first, best)))
        bits = abs(self.bits[self.key(best)] - self.bits[self.key(first)])
        equal = "" if more > 0.0 else "with no more bits " if more < 0.0 else \
            "of equal bits " if bits < 0.005 else "of about equal bits "
        where = self.where()
        axis = f"{self.axis}: " if self.axis and self.axis != "variant" else ""
        what = "tensors" if n != 1 else "tensor"
        same = equal_told(d, unit)
        if same:
            return (f"{axis}{first} and {best} {same}{where}"
                    + f", with {cost[0]} bits and {cost[1]}" * (bits >= 0.005))
        if side(low, high) < 0:
            rivals = {} if pair else self.rivals()[1]
            others = [x for b, x in rivals.items() if b != best]
            all_below = all(side(*interval([*x.values()])[1:]) < 0 for x in others)
            which = "the others" if len(rivals) == len(self.middles()) - 1 else \
                "those with no more bits"
            rest = f", the best of {which}," if others and all_below else ""
            axis += "" if all_below else f"{equal}nothing is surely above {first}; "
            return (f"{axis}{first} beats {best}{rest} on {wins(-d)} of {n} {what} "
                    f"{measured(unit, -mid, -high, -low, n)}{where}"
                    + f", with {cost[0]} bits to {cost[1]}" * (bits >= 0.005))
        if side(low, high) == 0:
            return (f"{axis}{equal}nothing is surely above {first}{where}; {best} on "
                    f"{won} of {n} {what} {measured(unit, mid, low, high, n)}"
                    + f", with {cost[1]} bits to {cost[0]}" * (bits >= 0.005))
        return (f"{axis}{best} beats {first} on {won} of {n} {what} "
                f"{measured(unit, mid, low, high, n)}{where}"
                + f", with {cost[1]} bits to {cost[0]}" * (bits >= 0.005))

    def one(self, found):
        """The median of the values of one format in words."""
        found = self.by_tensor(found)
        n = len(found)
        if not has_median(found):
            return f"half or more of {n} tensors are exact, without a median"
        mid, low, high = (common.digits(x) for x in interval([*found.values()]))
        return f"the median of {n} tensors is {mid} dB [{low}, {high}]" if n > 1 else \
            f"one tensor, {mid} dB"

    def why(self):
        """Why there is no answer, in words."""
        if len(self.names) < 2:
            return f"{self.names[0]}, alone: {self.one(self.at(self.names[0]))}"
        if len(self.middles()) < 2:
            return "Nothing to compare: half or more of the values are exact, without a median"
        return f"Nothing to compare: no tensor has values of two of {', '.join(self.names[:4])}"


class Cells:
    """The cells of a file that do not train; grids(): one Grid for each panel."""

    def __init__(self, c):
        self.there = all(name in c.f for name in ("/cells", "/axes", "/metrics"))
        self.there &= "/search" not in c.f  # frontier.py draws these, where each label is a format
        if not self.there:
            return
        self.cells, self.axes = common.table(c.f, "/cells"), common.table(c.f, "/axes")
        self.metrics = common.table(c.f, "/metrics")
        self.open = self.cells["coupling"] != "closed"
        self.rows = self.open & (self.cells["status"] == "ok")
        self.left_out = int(np.sum(self.open & ~np.isin(self.cells["status"], ("ok", "diverged"))))
        self.lost = campaign.lost_cells(self.cells, self.axes, self.open)
        plain = self.rows & campaign.is_plain(self.cells)
        self.plain = int(np.sum(plain))
        self.rows &= ~plain
        every = varying({name: column[self.open] for name, column in self.axes.items()})
        first = np.flatnonzero(self.rows)[:1] if not self.values() else []
        self.only = "; ".join(str(self.axes[name][i]) for i in first for name in every)
        self.units = units(self.cells, self.axes, np.flatnonzero(self.rows),
                           c.f["/metrics"][...])

    def reasons(self):
        """Why cells have no values, in words."""
        found = Counter((str(self.cells["status"][i]), str(self.cells["reason"][i]))
                        for i in np.flatnonzero(self.open & (self.cells["status"] != "ok")))
        return alike.named([f"{n} {status}" + f" ({reason})" * bool(reason)
                            for (status, reason), n in found.items()])

    def tensors(self):
        """In words: how many a panel has at most, as `units` counts them."""
        units = {*self.units.values()}
        apart = are_apart({"source": [unit[0] for unit in units]})
        n = max(Counter(unit[0] if apart else "" for unit in units).values(), default=0)
        return f"{n} tensor{'s' * (n != 1)}"

    def seeds(self):
        """What the caption says of seeds, where there are several."""
        found, of = {}, {}
        for i, unit in self.units.items():
            draw = tuple(int(self.cells[name][i]) for name in SEEDS if name in self.cells)
            found.setdefault(unit, set()).add(draw)
            of.setdefault(unit[:2], set()).add(unit)
        drawn = max((len(x) for x in of.values()), default=1)
        most = max((len(x) for x in found.values()), default=1)
        if drawn > 1:
            return f" Each seed of a {'distribution' if self.of('dist:') else 'problem'} is a " \
                "tensor of its own" + ", seeds of equal results are one" * (most > 1) + "."
        return f" A tensor counts once: its value is the median over its {most} seeds." \
            if most > 1 else ""

    def of(self, kind):
        """Whether a source that is drawn is of this kind."""
        return any(unit[0].startswith(kind) for unit in self.units.values())

    def grids(self):
        """(head, words of the metric, Grid) of each slot, value of the panels' axes and metric."""
        if not self.there:
            return
        parts = split({name: column[self.rows] for name, column in self.axes.items()})
        couplings = campaign.in_order(self.cells["coupling"][self.rows])
        shown, self.beyond, self.without, self.exact, self.below = 0, 0, 0, (0, 0), {}
        choices = [campaign.in_order(self.axes[name]) for name in parts[2]]
        for slot in campaign.in_order(self.cells["slot"][self.rows]):
            for coupling, *values in itertools.product(couplings, *choices):
                if shown >= MOST:
                    self.beyond += 1
                    continue
                keep = self.rows & (self.cells["slot"] == slot)
                keep &= self.cells["coupling"] == coupling
                for name, value in zip(parts[2], values):
                    keep &= self.axes[name] == value
                head = [*([slot] if slot else []), *([coupling] if len(couplings) > 1 else []),
                        *values]
                for name, words in WHOLE if coupling == "update" else METRICS:
                    table = self.cells, self.axes, self.units, self.only
                    grid = Grid(table, self.metrics[name], keep, parts)
                    grid.source = dict(zip(parts[2], values)).get("source", "")
                    if grid.value:
                        shown += 1
                        self.without += grid.without
                        self.exact = tuple(map(sum, zip(self.exact, grid.exact())))
                        self.below.update({(*head, words, label): x
                                           for label, x in grid.below().items()})
                        yield ", ".join(map(str, head)), words, grid

    def values(self):
        """{axis: its values} of which a pair may be compared."""
        return varying({name: column[self.rows] for name, column in self.axes.items()}) \
            if self.there else {}

    def omitted(self):
        """What the caption says of cells and panels that are not drawn."""
        left = [f"{self.left_out} cells were skipped or failed"] * (self.left_out > 0) \
            + [f"{self.beyond} combinations of axes after the first {MOST} panels"] \
            * (self.beyond > 0) \
            + [f"{self.without} values that are undefined, as the error of an update whose other "
               "state was not recorded"] * (self.without > 0) \
            + [f"{self.plain} cells that are {campaign.SMALL}"] * (self.plain > 0)
        out = (f"; left out: {', '.join(left)}." if left else ".") + self.seeds() \
            + campaign.lost_told(self.lost, " They are in no number here.")
        low = [f"{key[-1]} ({', '.join(key[:-1]).removesuffix(' (dB)')}: {common.digits(x, 2)} dB)"
               for key, x in self.below.items()]
        if low:
            out += " Below 0 dB, an error larger than the value itself, as where a second moment " \
                f"is decoded to 0: {', '.join(low[:4])}" \
                + f" and {len(low) - 4} more" * (len(low) > 4) + "."
        return out

    def origin(self):
        return alike.origin([x for x in self.units.values() if not x[0].startswith(DRAWN)])

    def medians(self):
        """What the caption says of exact values and of points that have no median for them."""
        (values, points), out = self.exact, ""
        if values:
            out = f"; {values} value{'s are' if values > 1 else ' is'}"
            out += " exact to float32's last place (as where each element has a scale of its " \
                "own): such values count in medians, and an end of a bar among them is not drawn"
        if points:
            out += f"; {points} points have" if points > 1 else "; 1 point has"
            out += " no median, for at least half of the values are exact: marked exact, above " \
                "the others"
        return out
