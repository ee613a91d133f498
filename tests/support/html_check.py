"""html_check.py - Checks that a page of `qualm report` is well-formed and complete.

    html_check.py PAGE.html FILE.h5

Tags must balance, ids differ, references have a target, no resource lies outside the page, and
every table and array of the file is on it.  Prints one line per fault; exit code 1 if there is any.
"""
import html.parser
import re
import sys
import xml.dom.minidom

import h5py

VOID = {"meta", "link", "br", "img", "hr", "input"}
LOADS = {"src", "srcset", "data", "poster", "action", "formaction", "background"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.wrong, self.ids, self.refs, self.text = [], [], [], [], []
        self.figures, self.commands, self.section = {}, {}, ""

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [attrs["id"]] if "id" in attrs else []
        if tag == "section":
            self.section = attrs.get("id", "")
        if tag == "svg" and self.section.startswith("figure-") and attrs.get("role") == "img":
            self.figures[self.section] = self.figures.get(self.section, 0) + 1
            if not attrs.get("aria-label"):
                self.wrong.append(f"a figure of {self.section} has no label")
        for name, value in attrs.items():
            inside = (value or "").startswith(("#", "data:"))
            if name in LOADS or (name == "href" and tag != "a" and not inside):
                self.wrong.append(f"<{tag} {name}={value!r}> loads something")
            if name == "href" and value.startswith("#") or name == "aria-labelledby":
                self.refs.append(value.lstrip("#"))
            self.refs += re.findall(r"url\(#([^)]+)\)", value or "")
            if re.search(r"url\((?!#)", value or "") or name.startswith("on"):
                self.wrong.append(f"<{tag} {name}={value!r}>")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> at {self.getpos()} closes nothing that is open")

    def handle_data(self, data):
        self.text.append(data)
        is_command = data.startswith(("qualm plot ", "qualm report "))
        if is_command and self.section.startswith("figure-"):
            self.commands[self.section] = data


def stored(path):
    """The paths of all datasets in a file."""
    found = []

    def visit(name, o):
        if isinstance(o, h5py.Dataset):
            found.append("/" + name)

    with h5py.File(path, "r") as f:
        f.visititems(visit)
    return found


def main():
    text = open(sys.argv[1], encoding="utf-8").read()
    page = Page()
    page.feed(text)
    page.close()
    wrong = page.wrong + [f"<{tag}> is left open" for tag in page.open]
    wrong += [f"id {i} twice" for i in sorted(set(page.ids)) if page.ids.count(i) > 1]
    wrong += [f"#{r} leads nowhere" for r in page.refs if r and r not in page.ids]
    words = "\n".join(page.text)
    wrong += [f"{path} is not on the page" for path in stored(sys.argv[2])
              if path not in words and not path.startswith("/provenance")]
    wrong += [f"{f} does not say how it is drawn" for f in page.figures if f not in page.commands]
    if re.search(r"https?:|//[a-z]|@import", text.replace("http-equiv", "")):
        wrong.append("names an address")
    for svg in re.findall(r"<svg .*?</svg>", text, flags=re.S):
        try:
            xml.dom.minidom.parseString(svg)
        except Exception as error:
            wrong.append(f"an SVG is no XML: {error}")
    print("\n".join(wrong) or f"{len(page.figures)} figures, {sum(page.figures.values())} panels")
    sys.exit(bool(wrong))


main()
