"""inline.py - Writes a figure as SVG for the inside of a page.

Colours become the CSS variables of experiments/report/page.css, so that one drawing suits light and
dark; texts stay texts; artists with the gid "series:K" get the classes "s" and "sK".
"""
import io
import os
import re

import common
import matplotlib

# Colours that no variant has: parts of the waterfall (Paul Tol's "muted"); the twin, the zone that
# counts as equal, the zone of chaos alone, auxiliary lines.
PARTS = ("#332288", "#44aa99", "#ddcc77", "#cc6677", "#aa4499")
TWIN, ZONE, NULL, SOFT = "#c4c4c4", "#e3efe6", "#dcdcec", "#5a5a5a"

VARIABLES = {"#ffffff": "--paper", "#d9d9d9": "--line", TWIN: "--twin", ZONE: "--zone",
             NULL: "--null", SOFT: "--soft"}
VARIABLES.update({colour.lower(): f"--c{k}" for k, colour in enumerate(common.PALETTE)})
VARIABLES.update({colour: f"--p{k}" for k, colour in enumerate(PARTS)})


def variable(colour):
    """A colour in CSS: the page's variable where it has one."""
    name = VARIABLES.get(colour.lower())
    return f"var({name})" if name else colour


def series(artist, k):
    """Marks an artist as one of series k; returns it."""
    artist.set_gid(f"series:{k}")
    return artist


def short(match):
    """A number with at most two decimals."""
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".")


def tag(text):
    """Rewrites colours, fonts and numbers of one tag; texts between tags are not touched."""
    text = re.sub(r"#[0-9a-f]{6}", lambda m: variable(m[0]), text)
    text = re.sub(r"font: (bold )?([\d.]+)px [^;\"]*",
                  lambda m: ("font-weight: bold; " if m[1] else "") + f"font-size: {m[2]}px", text)
    return re.sub(r"-?\d+\.\d{3,}(?![\d%])", short, text)


def themed(text, prefix):
    """Turns matplotlib's SVG into one for a page; prefix makes its ids unique there."""
    text = text[text.index("<svg"):]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r'\1 role="img"', text, count=1)
    text = re.sub(r' xmlns(:xlink)?="[^"]*"| version="1.1"', "", text)
    text = text.replace("xlink:href", "href")
    text = re.sub(r' id="series:(\d+)"', r' class="s s\1"', text)
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    text = re.sub(r' id="([^"]*)"',
                  lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "", text)
    text = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", text)
    text = re.sub(r"<[^>]*>", lambda m: tag(m[0]), text)
    return re.sub(r"\n\s*", "\n", text)


def save(fig, folder, name, label, wide=False):
    """Writes folder/name.svg and returns its name.  label: the description for screen readers;
    wide: never shown much larger than drawn."""
    common.freeze(fig)
    part = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        fig.savefig(part, format="svg", transparent=True,
                    metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    common.plt.close(fig)
    text = themed(part.getvalue(), name).replace(
        'role="img"', f'role="img" aria-label="{escape(label)}"', 1)
    if wide:
        size = 110 * fig.get_figwidth()
        style = f"max-width: {size:.0f}px; min-width: {0.72 * size:.0f}px"
        text = text.replace("<svg", f'<svg style="{style}"', 1)
    path = os.path.join(folder, name + ".svg")
    try:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
    except OSError as error:
        common.fail(f"{path}: cannot be written: {error.strerror}")
    return name + ".svg"


def escape(text):
    """Escapes text for an attribute."""
    for sign, code in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(sign, code)
    return text


# ---- swatches of the legend ---------------------------------------------------------------------

DASHES = {"-": "", "--": "3.7 1.6", "-.": "6.4 1.6 1 1.6", ":": "1 1.65"}
SHAPES = {"o": "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z", "s": "M-3-3h6v6h-6z",
          "^": "M0-3.4l3.4 6h-6.8z", "D": "M0-4l4 4-4 4-4-4z", "v": "M0 3.4l3.4-6h-6.8z", "<": "M-3.6 0l6-3.4v6.8z",
          ">": "M3.6 0l-6-3.4v6.8z", "*": "M0-4.5l1.2 3.1 3.3.2-2.6 2 .9 3.2-2.8-1.8-2.8 1.8.9-3.2"
          "-2.6-2 3.3-.2z", "P": "M-1.3-3.8h2.6v2.5h2.5v2.6h-2.5v2.5h-2.6v-2.5h-2.5v-2.6h2.5z",
          "X": "M-3.6-2l1.6-1.6 2 2 2-2 1.6 1.6-2 2 2 2-1.6 1.6-2-2-2 2-1.6-1.6 2-2z"}


def swatch(style):
    """A line with its marker, in a style of common.look, optionally with linewidth and hollow."""
    colour, dash = variable(style["color"]), style.get("linestyle", "-")
    width = style.get("linewidth", 1.4)
    dash = DASHES[dash] if isinstance(dash, str) else " ".join(map(str, dash[1]))
    dash = " ".join(f"{float(d) * width:.1f}" for d in dash.split())
    out = '<svg viewBox="0 0 34 12" aria-hidden="true">'
    if width:
        out += f'<path d="M1 6H33" fill="none" stroke="{colour}" stroke-width="{width}"'
        out += f' stroke-dasharray="{dash}"/>' if dash else "/>"
    if style.get("marker"):
        fill = "none" if style.get("hollow") else colour
        out += (f'<path d="{SHAPES[style["marker"]]}" transform="translate(17 6)" fill="{fill}" '
                f'stroke="{colour}"/>')
    return out + "</svg>"


def block(colour):
    """A filled swatch."""
    return ('<svg viewBox="0 0 34 12" aria-hidden="true"><path d="M6 1h22v10h-22z" '
            f'fill="{variable(colour)}"/></svg>')
