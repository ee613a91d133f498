"""alike.py - Says over which tensors, traces or runs the formats of a panel are compared: the same.

The rule of all figures: where a title, a line or a point compares formats by a median or a mean, it
is over what all of them have.  While that is less than half of what the panel has, the format with
the fewest is set apart, unless two are left: it is drawn hollow over its own, no title
compares it with the others, and the caption names it.
"""
MOST = 4  # formats that a caption names


class Alike:
    """found: {format: the set of what it has a value of}.  common: what the compared ones all have;
    apart: the formats that are not compared, with how many they have; lacking: how many of all,
    `of`, each compared format lacks, without those that lack none."""

    def __init__(self, found):
        union, inside = set().union(*found.values()), [name for name in found if found[name]]
        apart = []
        while True:
            self.common = set.intersection(*(found[name] for name in inside)) if inside else set()
            if 2 * len(self.common) >= len(union) or \
                    len(inside) <= (2 if self.common else 1):
                break
            least = min(reversed(inside), key=lambda name: len(found[name]))
            inside.remove(least)
            apart.append(least)
        self.of, self.inside = len(union), inside
        self.apart = {name: len(found[name]) for name in found if name in apart}
        self.lacking = {name: len(union) - len(found[name]) for name in inside
                        if len(found[name]) < len(union)}

    def told(self, what, of_values="values", drawn="hollow"):
        """The sentence of a caption; "" where all have all.  what: what is compared, in plural."""
        if not self.lacking and not self.apart:
            return ""
        n = len(self.common)
        said = f"{of_values[0].upper()}{of_values[1:]} that are compared are over " \
            + (f"the {n} {what} that there are" if n == self.of else
               f"{n} of {self.of} {what}, those that all of them have")
        if self.lacking:
            said += " (skipped, failed or undefined: " + named(
                [f"{name} lacks {k}" for name, k in self.lacking.items()]) + ")"
        if self.apart:
            said += f"; {drawn}, over what they have (else skipped, failed or undefined), not " \
                "compared with the others: " + named([f"{name} ({k} {what})" for name, k in
                                                      self.apart.items()])
        return f" {said}."


def named(said):
    """The first of some texts, and how many more there are."""
    return ", ".join(said[:MOST]) + f" and {len(said) - MOST} more" * (len(said) > MOST)


def together(sentences):
    """Those of several panels, {head: sentence}, each once."""
    there = {head: said for head, said in sentences.items() if said}
    if len({*there.values()}) <= 1 and len(there) == len(sentences):
        return next(iter(there.values()), "")
    heads = {}
    for head, said in there.items():
        heads.setdefault(said, []).append(head)
    return "".join(f" {named(of)}: {said.strip()}" for said, of in [*heads.items()][:MOST])


def origin(units):
    """The sentence on the unit of intervals over recorded tensors, [(source, tensor, ...)]; "" for
    none.  A source is a run at a step, FILE:RUN/sSTEP."""
    runs = {source.rpartition("/s")[0] or source for source, *_ in units}
    return f" Intervals take tensors as independent of each other; {len({*units})} of them come " \
        f"from {len(runs)} recorded run{'s' * (len(runs) != 1)}, and the interval is not one " \
        "over models." if runs else ""
