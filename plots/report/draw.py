"""draw.py - Draws the figures of one result file, whatever its suite.

    /usr/bin/python3 plots/report/draw.py results/X.h5 [--only loss,gap] [--out plots/out]
    /usr/bin/python3 plots/report/draw.py results/X.h5 --plot a.pdf [--plot a.png] [--what NAME]

The first form draws every figure whose tables the file has, a file for each panel; `qualm report`
calls it with --page, which writes SVG for its page and figures.json instead.  The second form is
`qualm plot`: one figure on one sheet, by default the first that --list names.
"""
import argparse
import difflib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "figures")]

import against  # noqa: E402
import budget  # noqa: E402
import campaign  # noqa: E402
import cells  # noqa: E402
import common  # noqa: E402
import contrasts  # noqa: E402
import curves  # noqa: E402
import drift  # noqa: E402
import dumbbell  # noqa: E402
import forest  # noqa: E402
import frontier  # noqa: E402
import heat  # noqa: E402
import lr  # noqa: E402
import points  # noqa: E402
import prediction  # noqa: E402
import ratio  # noqa: E402
import shares  # noqa: E402
import sheet  # noqa: E402
import sweep  # noqa: E402

FIGURES = (drift, points, dumbbell, frontier, curves, ratio, against, sweep, contrasts, forest,
           shares, heat, budget, lr, prediction)
PAIRED = (points, dumbbell)  # those that --pair is for
FIRST = (prediction, drift, points, sweep, contrasts, forest, ratio, curves)
LISTED = (*FIRST, *(f for f in FIGURES if f not in FIRST))  # plot takes the first without --what


def arguments():
    parser = argparse.ArgumentParser(description="the figures of one result file")
    parser.add_argument("file", metavar="FILE.h5")
    parser.add_argument("--out", default="plots/out", metavar="DIR",
                        help="folder for the figures (default %(default)s)")
    parser.add_argument("--only", metavar="NAMES", help="of these, with commas: "
                        + ",".join(f.NAME for f in FIGURES))
    parser.add_argument("--page", action="store_true", help="SVG for the inside of a page")
    parser.add_argument("--against", metavar="FILE.h5", help="an archive, drawn behind it")
    parser.add_argument("--pairs", metavar="FILE.h5",
                        help="its comparison, as qualm report makes it")
    parser.add_argument("--plot", metavar="FILE", action="append",
                        help="one figure, as .pdf, .svg or .png; may be repeated")
    parser.add_argument("--what", metavar="NAME", help="which one")
    parser.add_argument("--pair", metavar="A,B", help="compare value B with value A")
    parser.add_argument("--list", action="store_true", help="which figures the file has")
    return parser.parse_args()


def known(names):
    """Ends the script where a name is no figure."""
    there = [f.NAME for f in FIGURES]
    for name in names:
        if name not in there:
            near = difflib.get_close_matches(name, there, 1)
            common.fail(f"no figure '{name}'; " + (f"did you mean '{near[0]}'?" if near else
                                                   f"there are {', '.join(there)}"), 2)


def nothing(c, args):
    """Ends the script where there is nothing to draw, with the reason and the cure."""
    there = [name for name, _ in sheet.names(LISTED, c)]
    what = f"figure {args.what}" if args.what else "any figure"
    table = cells.Cells(c)
    if there:
        why = f"it has {', '.join(there)}"
    elif common.text(c.f.attrs["kind"]) == "analyze":
        why = "it is of `qualm analyze`; `qualm run SUITE --data FILE` measures FILE's tensors " \
              "by the axes of a suite, and its results can be drawn"
    elif table.there and table.rows.any():
        why = "the values of its cells are undefined" if not table.values() and not args.what else \
            "its cells do not make one"
    elif table.there and table.plain:
        why = f"its {table.plain} cells are {campaign.SMALL}"
    elif table.there and table.open.any():
        why = f"no cell has values: {table.reasons()}"
    elif prediction.TABLE in c.f:
        why = "none of its correlations is defined: its recipes are too few, or alike"
    else:
        why = f"it is of kind {common.text(c.f.attrs['kind'])}; figures are of `qualm run`, " \
              "`qualm search` and `qualm predict`"
    common.fail(f"{args.file}: has no tables of {what}; {why}", 4)


STAGES = 4  # of a figure: the file is read, panels are planned, drawn, laid out


def stage(k, n=STAGES):
    """Says on stdout how far a figure is, as K/N."""
    print(f"{k}/{n}", flush=True)


def plot(c, args):
    """Draws one figure, or lists them."""
    if args.list:
        found = sheet.names(LISTED, c, stage)
        for name, title in found:
            print(f"{name}\t{common.plain(title)}")
        return None if found else nothing(c, args)
    known([args.what] if args.what else [])
    stage(1)
    if args.what == against.NAME:
        common.fail(f"{args.file}: figure against compares with an archive: `qualm report "
                    f"{args.file} --against baseline` draws it on its page", 4)
    if args.pair and args.what not in (None, *(f.NAME for f in PAIRED)):
        common.fail(f"figure {args.what} takes no --pair; the suite says what is compared, as in "
                    "`contrast: {variant: {pairs: [[B, A]]}}`" if args.what == contrasts.NAME else
                    f"figure {args.what} takes no --pair; those that do are "
                    + ", ".join(f.NAME for f in PAIRED), 2)
    if args.pair:
        pair, there = args.pair.split(","), cells.Cells(c).values()
        if len(set(pair)) != 2 or len(pair) != 2 or \
                not any({*pair} <= {*values} for values in there.values()):
            of = "; or of ".join(f"{axis}: {', '.join(values)}" for axis, values in there.items())
            none = "an axis of cells that do not train; the file has none (of a suite that " \
                "trains, `contrast: {variant: {pairs: [[B, A]]}}` says the pairs)"
            common.fail(f"--pair '{args.pair}': expected two different values of "
                        + (of or none), 2)
        cells.pair = pair
    for figure in [f for f in (PAIRED if args.pair else LISTED) if args.what in (None, f.NAME)]:
        common.progress(figure.NAME)
        fig, title = sheet.draw(figure, c, stage)
        if fig:
            stage(3)
            common.freeze(fig)
            stage(4)
            print(f"{figure.NAME}\t{common.plain(title)}")
            for path in args.plot:
                sheet.save(fig, path)
            return None
    return nothing(c, args)


def main():
    args = arguments()
    wanted = args.only.split(",") if args.only else [f.NAME for f in FIGURES]
    known(wanted)
    c = campaign.Campaign(args.file)
    c.compare(args.against, args.pairs)
    if args.plot or args.list:
        plot(c, args)
        return
    out = campaign.Output(args.out, args.page, args.file, args.against, c.label_axes())
    chosen = [figure for figure in FIGURES if figure.NAME in wanted]
    for k, figure in enumerate(chosen, 1):
        common.progress(figure.NAME)
        figure.draw(c, out)
        if args.page:
            print(f"{k}/{len(chosen)}", flush=True)


common.guarded(main)
