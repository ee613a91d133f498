"""campaign.py - Reads a campaign's rows and labels, styles its series and writes its figures."""
import itertools
import json
import os
import shlex

import common
import encode
import inline
import numpy as np

TWINS = "float64 twin"  # first words of a rule's twins in /protocol/ecdf
MANY = 16  # with more labels, lines are thin and bands are left out


def shown(label):
    """A label of several axes as a title has it, whose own parts are set apart by semicolons."""
    return label.replace("; ", " + ")


def readable(problem):
    """quad:cond=1e4,layout=dct as quad cond=1e4, layout=dct."""
    return problem.removeprefix("problem:").replace(":", " ", 1).replace(",", ", ")


def brief(problem):
    """A problem in a title: without its arguments; a suite's own name for it as it is."""
    words = readable(problem).split()
    return " ".join(itertools.takewhile(lambda word: "=" not in word, words)) or words[0]


def in_order(names):
    return list(dict.fromkeys(names.tolist()))


# The rule of all figures: what has floats where its recipe asks for codes, because of the size or
# the shape of its tensors, says nothing of a format.  No median and no title has it beside codes.
SMALL = "not quantized (too small, or not in whole blocks)"
ALL_PLAIN = "Not quantized: no {} has codes in what is compared, all are floats"


def is_plain(cells, share="asked_coded"):
    """Which cells have no codes in what they are asked about, or in the state of `share`."""
    if "coded" not in cells:
        return np.zeros(len(cells["coupling"]), bool)
    found = cells[share if share in cells else "coded"]  # NaN: the recipe gives no codes
    return np.where(cells["coupling"] == "update", cells["coded"] < 1.0, found == 0.0)


# The rule of all figures for runs that diverged: they have no value, the gap of 1000 that stands
# for one is never drawn, title and caption say how many there are, the caption whose.


def lost_among(labels, statuses):
    """{label: (runs that diverged, runs)}, in order; skipped runs are none."""
    found = {}
    for label, status in zip(labels, statuses):
        if status != "skipped":
            k, n = found.get(label, (0, 0))
            found[label] = k + (status == "diverged"), n + 1
    return found


def lost_cells(cells, axes, keep):
    """The same of the cells in keep, named by the axes that vary, but for source and seeds."""
    skip = ("source", "slot", "seed", "rounding_seed")
    names = [a for a in axes if a not in skip and len(set(axes[a].tolist())) > 1]
    rows = np.flatnonzero(keep)
    labels = ["; ".join(axes[a][i] for a in names) or str(cells["variant"][i]) for i in rows]
    return lost_among(labels, cells["status"][rows].tolist())


def lost_count(lost):
    """(Runs that diverged, runs)."""
    return tuple(sum(x[k] for x in lost.values()) for k in range(2))


def medians(rows):
    """Over how many runs of one label the medians are, and the caption's words for it."""
    instance = rows.get("instance", np.zeros(len(rows["seed"]), int)).tolist()
    n = len(set(zip(rows["seed"].tolist(), instance)))
    what = "seeds and instances" if len(set(instance)) > 1 else "seeds"
    return n, f"Median of {n} {what}" if n > 1 else "One seed"


def lost_title(lost):
    """What a title adds: "; 36 of 72 runs diverged"; "" where none did."""
    k, n = lost_count(lost)
    return f"; {k} of {n} runs diverged" if k else ""


def lost_told(lost, how=""):
    """The sentence of a caption, and after it `how` they are treated; "" where none diverged."""
    said = [f"{label}: {k} of {n}" for label, (k, n) in lost.items() if k]
    return f" Diverged: {', '.join(said[:8])}" + f" and {len(said) - 8} more" * (len(said) > 8) \
        + f".{how}" if said else ""


class Campaign:
    """One result file.  rows: problem, label, lr_scale, cell of every closed run; labels and
    problems in the suite's order.  one: the scale at which variants are compared, 1 or the nearest
    one."""

    def __init__(self, path):
        self.path = path
        self.f = common.load(path)
        self.paired = "/protocol/runs" in self.f
        self.rows = self.protocol_rows() if self.paired else self.axis_rows()
        self.labels, self.problems = in_order(self.rows["label"]), in_order(self.rows["problem"])
        self.place = {label: k for k, label in enumerate(self.labels)}
        scales = np.unique(self.rows["lr_scale"])
        self.one = scales[np.argmin(np.abs(np.log(scales)))] if len(scales) else 1.0
        self.archive = self.pairs = None
        self.looks = encode.looks({label: self.quantizers(label) for label in self.labels})
        self.plain = self.unquantized()

    def quantizers(self, label):
        """Those of a label's recipes."""
        if "/cells" not in self.f:
            return []
        if not hasattr(self, "cells"):
            self.cells = common.table(self.f, "/cells")
        rows = self.rows["cell"][self.rows["label"] == label]
        return [q for row in sorted(set(rows.tolist())) for q in
                encode.of_cell(self.cells, row)]

    def compare(self, archive, pairs):
        """Reads the campaign of an archive and the comparison that the program stored."""
        if archive and pairs:
            self.archive = Campaign(archive)
            f = common.load(pairs, kinds=("against",))
            self.pairs = common.table(f, "/against/pairs")
            self.pairs_told = {name: common.text(f["/against"].attrs[name])
                               for name in ("rates", "advice")}

    def protocol_rows(self):
        """The runs that the suite names, without null pairs and parts of the error budget."""
        runs, cells = common.table(self.f, "/protocol/runs"), common.table(self.f, "/cells")
        role = cells["role"][runs["cell"]] if "role" in cells else None
        keep = role == "plain" if role is not None else slice(None)
        names = ("cell", "problem", "label", "lr_scale", "seed", "status", "instance", "twin_gap")
        return {name: runs[name][keep] for name in names if name in runs}

    def axis_rows(self):
        """The runs of a file without the protocol; the axes that vary, except source and seed, name
        them."""
        empty = np.array([], dtype=str)
        none = {"cell": np.array([], int), "problem": empty, "label": empty,
                "lr_scale": np.array([]), "seed": np.array([], int), "status": empty}
        if "/cells" not in self.f or "/axes" not in self.f:
            return none
        cells, axes = common.table(self.f, "/cells"), common.table(self.f, "/axes")
        closed = np.flatnonzero(cells["coupling"] == "closed")
        names = [a for a in axes if a not in ("source", "seed") and len(set(axes[a].tolist())) > 1]
        labels = ["; ".join(axes[a][i] for a in names) or cells["variant"][i] for i in closed]
        return {"cell": closed, "problem": cells["source"][closed], "seed": cells["seed"][closed],
                "label": np.array(labels, dtype=str), "lr_scale": np.ones(len(closed)),
                "status": cells["status"][closed]}

    def left_told(self):
        """What a caption says of the suite's training runs that were not made."""
        if "/cells" not in self.f:
            return ""
        cells = common.table(self.f, "/cells")
        at = (cells["coupling"] == "closed") & ~np.isin(cells["status"], ("ok", "diverged"))
        if "role" in cells:
            at &= cells["role"] == "plain"
        n, reasons = int(at.sum()), dict.fromkeys(cells["reason"][at].tolist())
        return f" {n} of the suite's training runs were not made: {'; '.join(list(reasons)[:2])}" \
            f"{' ...' * (len(reasons) > 2)}." if n else ""

    def unquantized(self):
        """{(problem, label)} of the runs that are not quantized: their verdict, where there is."""
        v = self.table("verdicts")
        if v is not None and len(v["label"]):
            at = v["verdict"] == "not quantized"
            return set(zip(v["problem"][at].tolist(), v["label"][at].tolist()))
        if not len(self.rows["cell"]):
            return set()
        at = is_plain(common.table(self.f, "/cells"))[self.rows["cell"]]
        return set(zip(self.rows["problem"][at].tolist(), self.rows["label"][at].tolist()))

    def lost(self, all_rates=False):
        """{label: (runs that diverged, runs)} at the scale `one`, or at all of them."""
        at = np.ones(len(self.rows["label"]), bool) if all_rates else \
            self.rows["lr_scale"] == self.one
        labels = self.rows["label"][at].tolist()
        if all_rates and len(np.unique(self.rows["lr_scale"])) > 1:
            labels = [f"{label} at rates times {scale:g}" for label, scale in
                      zip(labels, self.rows["lr_scale"][at].tolist())]
        return lost_among(labels, self.rows["status"][at].tolist())

    def lost_by(self):
        """{(problem, label, scale): (runs that diverged, runs)}, at the rates of the verdicts."""
        names = ("problem", "label", "lr_scale")
        found = lost_among(zip(*(self.rows[name].tolist() for name in names)),
                           self.rows["status"].tolist())
        v = self.table("verdicts")
        if v is not None and "diverged" in v:
            for *key, k in zip(*(v[name].tolist() for name in (*names, "diverged"))):
                found[tuple(key)] = int(k), max(int(k), found.get(tuple(key), (0, 0))[1])
        return found

    def without_lost(self, v, sides=("label",), by=None):
        """(v without numbers where all runs of a side diverged, {name: (diverged, runs)} of what
        its rows compare).  v has then the columns lost, how many runs of its sides diverged, and
        gone, where all of a side did.  by: as lost_by, of the second side."""
        own, lost, gone, found = self.lost_by(), [], [], {}
        for i in range(len(v["label"])):
            k, is_gone = 0, False
            for side in sides:
                key = v["problem"][i], v[side][i], v["lr_scale"][i]
                of = (by if by is not None and side != "label" else own).get(key, (0, 0))
                k, is_gone = k + of[0], is_gone or of[0] == of[1] > 0
                found[key] = of
            lost.append(k)
            gone.append(is_gone)
        v = dict(v, lost=np.array(lost, int), gone=np.array(gone, bool))
        for name in ("mean", "lo95", "hi95", "lo90", "hi90"):
            if name in v:
                v[name] = np.where(v["gone"], np.nan, v[name])
        scales = len({scale for _, _, scale in found})

        def at(scale):
            return f" at rates times {scale:g}" if scales > 1 else ""
        return v, {f"{label} on {readable(p)}" + at(scale): of
                   for (p, label, scale), of in found.items()}

    def all_plain(self):
        """Whether there are runs, and none is quantized."""
        runs = set(zip(self.rows["problem"].tolist(), self.rows["label"].tolist()))
        return bool(runs) and runs <= self.plain

    def plain_told(self):
        """What a caption says of the runs that no title counts."""
        said = [f"{label} on {readable(problem)}" for problem, label in sorted(self.plain)]
        return f" In no title because {SMALL}: {', '.join(said[:4])}" \
            + f" and {len(said) - 4} more" * (len(said) > 4) + "." if said else ""

    def versus(self, label, against, axis):
        """Two labels that differ in one axis: "exp_avg.round: stoch against mid (block:32)"."""
        a, b = label.split("; "), against.split("; ")
        unlike = [k for k in range(len(a)) if len(a) == len(b) and a[k] != b[k]]
        if len(unlike) != 1 or len(a) == 1:
            return f"{axis}: {label} against {against}" if axis and axis != "variant" \
                else f"{label} against {against}"
        k = unlike[0]
        return f"{axis}: {a[k]} against {b[k]} ({'; '.join(a[:k] + a[k + 1:])})"

    def label_axes(self):
        """The axes whose values the labels are, in words; "" where labels are variants alone."""
        if "/cells" not in self.f or "/axes" not in self.f or not len(self.rows["label"]):
            return ""
        axes, cell = common.table(self.f, "/axes"), self.rows["cell"]
        found = []
        for k in range(len(self.rows["label"][0].split("; "))):
            parts = [label.split("; ")[k:k + 1] for label in self.rows["label"].tolist()]
            found += [[a for a in axes if all(part == [value] for part, value in
                                              zip(parts, axes[a][cell].tolist()))][:1]]
        if not found or not all(found) or found == [["variant"]]:
            return ""
        return f" Labels are values of {'; '.join(name for (name,) in found)}."

    def table(self, name):
        """The rows of self.labels in a table of /protocol; None if there is no such table."""
        path = "/protocol/" + name
        if not self.paired or path not in self.f:
            return None
        rows = common.table(self.f, path)
        keep = np.isin(rows["label"], self.labels) | np.char.startswith(rows["label"], TWINS)
        return {name: column[keep] for name, column in rows.items()}

    def rate(self):
        """The scale `one` in words, for runs of a variant and its twin at the same rate."""
        is_tuned = [*self.tuned().values()]
        n, k = len(is_tuned), sum(is_tuned)
        times = "" if self.one == 1 else f"{self.one:g} times "
        tuned = f"{times}the learning rate that was tuned for the twin"
        own = times + self.own_rate()
        return own if k == 0 else tuned if k == n else \
            f"{tuned} (in {k} of {n} rows of the table Verdicts, else {own})"

    def same_rate(self):
        """The sentence on the rate of what compares runs at the same rate alone, whatever the rates
        of the verdicts."""
        best = "best against best" in self.rates() and self.one == 1
        some = "which are" if self.rates() == {"best against best"} else "of which some are"
        unlike = f", other than verdicts, {some} best against best" * best
        return f"Variant and twin both at {self.rate()}{unlike}. "

    def own_rate(self):
        """The rate of runs that nothing was tuned for, in words: the suite's, where it sets lr as a
        key or in a variant, else the problem's."""
        if "/cells" not in self.f or not len(self.rows["cell"]):
            return "the problem's own learning rate"
        at = self.rows["cell"]
        given = np.char.find(common.table(self.f, "/cells")["recipe"][at].astype(str), ",lr=") >= 0
        axes = common.table(self.f, "/axes") if "/axes" in self.f else {}
        given |= "lr" in axes
        if "variant" in axes:
            given |= np.char.find(axes["variant"][at].astype(str), ",lr=") >= 0
        if not given.any():
            return "the problem's own learning rate"
        names = in_order(self.rows["label"][given])
        return "the learning rate that the suite sets" if given.all() else \
            "the problem's own learning rate, or that which the suite sets " \
            f"({', '.join(names[:3])}{f' and {len(names) - 3} more' * (len(names) > 3)})"

    def rates(self):
        """The words of the column rates of the verdicts; older files have none."""
        v = self.table("verdicts") if self.paired else None
        return set(v["rates"].tolist()) if v is not None and "rates" in v else set()

    def tuned(self):
        """{(problem, label): whether its rate was tuned} at the scale `one`; older files have no
        word of it."""
        v = self.table("verdicts") if self.paired else None
        if v is None or "rates" not in v:
            return {}
        at = v["lr_scale"] == self.one
        return {(p, label): rates != "not tuned" for p, label, rates in
                zip(*(v[name][at].tolist() for name in ("problem", "label", "rates")))}

    def uneven(self):
        """The problems on which the rates of some labels were tuned and those of others were
        not."""
        tuned = self.tuned()
        return {p for p, label in tuned if tuned[p, label]} & \
            {p for p, label in tuned if not tuned[p, label]}

    def verdict_rate(self, v):
        """The rates at which the rows of v are judged, in words, and in how many where they differ;
        older files lack the column."""
        times = "" if self.one == 1 else f"{self.one:g} times "
        words = {"best against best": "rates of their own, variant and twin each at its tuned one "
                 "(nearest to the twin's of those that the tuning seeds cannot tell from the lowest; "
                 "no interval covers which rate was chosen)",
                 "same rate": "the learning rate that was tuned for the twin",
                 "one side tuned": "a learning rate that was tuned against one that was not"}
        kinds = v["rates"].tolist() if "rates" in v else []
        found = {kind: kinds.count(kind) for kind in (*words, *kinds) if kind in kinds}
        said = [times + words.get(kind, self.own_rate()) for kind in found]
        return "; ".join(f"{word} (in {n} of {len(kinds)} rows)" if len(found) > 1 else word
                         for word, n in zip(said, found.values())) or self.rate()

    def look(self, label):
        return self.looks.get(label, common.look(7))

    def line(self, label):
        """The look of a line in a small panel; without markers where there are many lines."""
        style = dict(self.look(label), markersize=3.2, linewidth=0.7 if self.crowded() else 1.1)
        return dict(style, marker="") if self.crowded() else style

    def series(self, artist, label):
        return inline.series(artist, self.place.get(label, 999))

    def crowded(self):
        return len(self.labels) > MANY

    def legend(self, labels=None):
        """The legend's entries of these labels."""
        return [{"label": label, "series": self.place.get(label, 999),
                 "swatch": inline.swatch(self.look(label)), "look": self.look(label)}
                for label in labels or self.labels]


TWIN = {"color": inline.TWIN, "linewidth": 4, "linestyle": "-"}


def note(label, swatch):
    """A legend entry that is no variant."""
    return {"label": label, "series": -1, "swatch": swatch}


prepared = None  # axes of a sheet, which panel() hands out one by one


def panel(width=3.4, height=2.5):
    """One small figure with one pair of axes, or the next axes of a sheet."""
    if prepared:
        ax = prepared.pop(0)
        return ax.figure, ax
    fig, ax = common.figure(width=width, height=height)
    ax.tick_params(labelsize=7)
    return fig, ax


class Output:
    """Writes figures as PNG and SVG files or, with page, as SVG for a page and its figures.json."""

    def __init__(self, folder, page, path, against=None, note=""):
        """note: a sentence that every caption ends with."""
        self.note = note
        self.folder, self.page, self.path, self.against = folder, page, path, against
        common.make_folder(folder)
        if page:
            open(os.path.join(folder, "figures.json"), "w", encoding="utf-8").close()

    def figure(self, name, panels, titles, caption, legend=(), wide=False):
        """panels: [(fig, title, description for screen readers)]; title "": none.

        titles: that of the figure and, shorter, that of its line in the menu.
        """
        files, (title, menu) = [], titles
        for k, (fig, head, label) in enumerate(panels):
            stem = f"{name}-{k}" if len(panels) > 1 else name
            if self.page:
                files.append({"file": inline.save(fig, self.folder, stem, label, wide),
                              "title": head})
            else:
                fig.suptitle(head or title)
                common.save(fig, self.folder, stem)
        if not self.page:
            if legend:
                common.save(legend_figure(legend), self.folder, name + "-legend")
            return
        command = f"qualm plot {shlex.quote(self.path)} --what {name}"
        if self.against:
            command = f"qualm report {shlex.quote(self.path)} --against " \
                      + shlex.quote(self.against)
        line = {"name": name, "title": title, "menu": menu, "caption": caption + self.note,
                "wide": wide, "command": command, "legend": list(legend), "panels": files}
        with open(os.path.join(self.folder, "figures.json"), "a", encoding="utf-8") as f:
            f.write(json.dumps(line, sort_keys=True) + "\n")


def legend_figure(legend):
    """The legend as a figure of its own, for use in a paper."""
    fig, ax = common.figure(width=6.4, height=0.3 + 0.19 * -(-len(legend) // 3))
    ax.set_axis_off()
    handles = [common.plt.Line2D([], [], **item.get("look", {"color": inline.TWIN, "linewidth": 3}))
               for item in legend]
    ax.legend(handles, [item["label"] for item in legend], ncol=3, loc="center")
    return fig
