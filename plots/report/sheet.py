"""sheet.py - Puts all panels of one figure on one sheet, with title, legend and caption."""
import os

import campaign
import common
import inline

TITLE_CHARACTERS, CAPTION_CHARACTERS = 11.2, 17.5  # an inch of text, sizes 10 and 7
HEAD_CHARACTERS = 11  # an inch of a panel of text, size 8, beside the labels of its axis
LEGEND_HANDLE, LEGEND_CHARACTERS = 0.75, 15.5  # inches; an inch of text, size 7
CAPTION_LINE, LEGEND_LINE = 0.135, 0.16  # inches


class Sizes:
    """An Output that notes the panels of a figure and closes them."""

    page, folder = False, None

    def __init__(self, note=""):
        self.found, self.note = None, note

    def figure(self, name, panels, titles, caption, legend=(), wide=False):
        sizes = [tuple(fig.get_size_inches()) for fig, _, _ in panels]
        for fig, _, _ in panels:
            common.plt.close(fig)
        self.found = {"name": name, "sizes": sizes, "heads": [head for _, head, _ in panels],
                      "title": titles[0], "caption": caption + self.note, "legend": list(legend)}


class Second(Sizes):
    """An Output for the second pass, whose panels lie on one sheet."""

    def figure(self, name, panels, titles, caption, legend=(), wide=False):
        for (_, head, _), ax in zip(panels, self.axes):
            if head:
                wide = int(self.width * HEAD_CHARACTERS)
                lines = common.broken(head, wide) or [head]
                ax.set_title("\n".join(lines), fontsize=common.fit(8, lines, wide), loc="left")


def names(figures, c, stage=lambda k, n: None):
    """The figures that the file has, with their titles."""
    out = []
    for k, figure in enumerate(figures):
        common.progress(figure.NAME)
        stage(k, len(figures))
        first = Sizes()
        figure.draw(c, first)
        if first.found:
            out.append((figure.NAME, first.found["title"]))
    return out


def draw(figure, c, stage=lambda k: None):
    """(one figure with all panels that `figure` draws of c, its title); None, "" where the file
    lacks its table."""
    first = Sizes(c.label_axes())
    figure.draw(c, first)
    plan = first.found
    if not plan:
        return None, ""
    stage(2)
    n = len(plan["sizes"])
    wide = max(w for w, _ in plan["sizes"])
    columns = min(n, 3 if wide <= 3.9 else 2)
    columns = 2 if n == 4 else columns
    lines = -(-n // columns)
    heights = [max(h for _, h in plan["sizes"][k * columns:(k + 1) * columns])
               for k in range(lines)]
    width = max(5.2, wide * columns)
    title = common.broken(plan["title"], int(width * TITLE_CHARACTERS))
    caption = common.broken(plan["caption"].strip(), int(width * CAPTION_CHARACTERS))
    longest = max((len(item["label"]) for item in plan["legend"]), default=1)
    each = max(1, min(3 if width > 6 else 2,
                      int(width / (LEGEND_HANDLE + longest / LEGEND_CHARACTERS))))
    below = CAPTION_LINE * len(caption) + 0.08
    keys = LEGEND_LINE * -(-len(plan["legend"]) // each) + 0.08 * bool(plan["legend"])
    height = sum(heights) + 0.2 * len(title) + below + keys
    fig, grid = common.figure(lines, columns, width=width, height=height, squeeze=False,
                              height_ratios=heights)
    axes = list(grid.flat)
    for ax in axes[n:]:
        ax.set_axis_off()
    for ax in axes:
        ax.tick_params(labelsize=7)
    second = Second()
    second.axes, second.width = axes[:n], width / columns
    campaign.prepared = axes[:n]
    figure.draw(c, second)
    campaign.prepared = None
    fig.suptitle("\n".join(title), x=0.01, ha="left", fontsize=10, fontweight="bold")
    low = (below + keys) / height
    fig.get_layout_engine().set(rect=(0, low, 1, 1 - low))
    fig.text(0.01, 0.05 / height, "\n".join(caption), fontsize=7, va="bottom", color="#404040")
    if plan["legend"]:
        fig.legend([handle(item) for item in plan["legend"]],
                   [item["label"] for item in plan["legend"]], ncol=each, fontsize=7,
                   loc="lower center", bbox_to_anchor=(0.5, below / height), borderaxespad=0)
    return fig, plan["title"]


def handle(item):
    """A legend's line; series below 0 are no variants: their colour stands in their swatch."""
    if "look" in item:
        return common.plt.Line2D([], [], **item["look"])
    for colour, variable in inline.VARIABLES.items():
        if f"var({variable})" in item["swatch"] and variable not in ("--paper", "--c0"):
            return common.plt.Line2D([], [], color=colour, linewidth=4)
    shape = next((m for m, path in inline.SHAPES.items() if path in item["swatch"]), "o")
    hollow = 'fill="none"' in item["swatch"]
    return common.plt.Line2D([], [], color="#000000", marker=shape, linestyle="none",
                             markerfacecolor="#ffffff" if hollow else "#000000")


def save(fig, path):
    """Writes a figure by the ending of its path, whole or not at all."""
    ending = os.path.splitext(path)[1][1:]
    metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None},
                "pdf": {"CreationDate": None, "Creator": None, "Producer": None}}
    if ending not in metadata:
        common.fail(f"{path}: expected an ending .pdf, .svg or .png", 2)
    to = os.path.realpath(path)  # a link stays, its target is replaced
    folder = os.path.dirname(path) or "."
    if os.path.exists(to) and not os.path.isfile(to):
        common.fail(f"'{to}': expected the name of a file to write")
    if not os.path.isdir(os.path.dirname(to)):
        common.fail(f"{path}: cannot be written in the folder {folder}: No such file or directory")
    part = f"{to}.part"
    try:
        fig.savefig(part, format=ending, metadata=metadata[ending])
        os.replace(part, to)
    except OSError as error:
        if os.path.exists(part):
            os.remove(part)
        common.fail(f"{path}: cannot be written: {error.strerror or 'the disk is at fault'}")
    print(path)
