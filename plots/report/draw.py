"""draw.py - Draws the figures of one result file.

    /usr/bin/python3 plots/report/draw.py results/X.h5 [--only loss,gap] [--out plots/out]

draws campaigns (loss curves first, then gaps, time to target, heat map, budget, learning rates),
and for the suites of `make run` the figures of the scripts in plots/figures/.  `qualm report` calls
it with --page, which writes SVG for its page and figures.json instead.
"""
import argparse
import glob
import os
import re
import runpy
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "figures")]

import against  # noqa: E402
import budget  # noqa: E402
import campaign  # noqa: E402
import common  # noqa: E402
import curves  # noqa: E402
import forest  # noqa: E402
import heat  # noqa: E402
import lr  # noqa: E402
import shares  # noqa: E402

FIGURES = (curves, against, forest, shares, heat, budget, lr)


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
    return parser.parse_args()


def of_suites(path):
    """The scripts of plots/figures/ whose text names this file."""
    stem = os.path.splitext(os.path.basename(path))[0]
    for script in sorted(glob.glob(os.path.join(os.path.dirname(common.__file__), "*.py"))):
        with open(script, encoding="utf-8") as f:
            text = f.read()
        if "common.arguments(" in text and re.search(rf'"{re.escape(stem)}(\.h5)?"', text):
            yield script


def draw_suites(path, out):
    """Runs the scripts of_suites finds, with a results folder that holds only this file."""
    def keep(fig, _, name):
        title = fig._suptitle.get_text() if fig._suptitle else name
        if fig._suptitle:
            fig._suptitle.remove()
            fig._suptitle = None
        head, _, rest = title.partition("\n")
        folder = os.path.dirname(path) or "."
        out.figure(name, [(fig, "", head)], (head, name.replace("_", " ")), rest,
                   wide=True,
                   command=f"/usr/bin/python3 plots/figures/{os.path.basename(script)} "
                           f"--results {folder}")
    scripts, argv = list(of_suites(path)), sys.argv
    if not scripts or not out.page:
        return
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.abspath(path), os.path.join(folder, os.path.basename(path)))
        common.redirect = keep
        for script in scripts:
            sys.argv = [script, "--results", folder, "--out", out.folder]
            try:
                runpy.run_path(script, run_name="__main__")
            except SystemExit as left:
                if left.code:
                    raise
        common.redirect, sys.argv = None, argv


def main():
    args = arguments()
    wanted = args.only.split(",") if args.only else [f.NAME for f in FIGURES]
    unknown = [name for name in wanted if name not in [f.NAME for f in FIGURES]]
    if unknown:
        common.fail(f"no figure '{unknown[0]}'; there are {', '.join(f.NAME for f in FIGURES)}")
    c = campaign.Campaign(args.file)
    c.compare(args.against, args.pairs)
    out = campaign.Output(args.out, args.page, args.file, args.against)
    suites = list(of_suites(args.file))
    for figure in FIGURES:
        if figure.NAME in wanted and (c.paired or not suites):
            figure.draw(c, out)
    if not args.only:
        draw_suites(args.file, out)


main()
