"""check_layers.py - Checks that the folders form layers: link symbols go one way between them.

    /usr/bin/python3 tests/style/check_layers.py [--graph] BUILD       (BUILD: build/gcc)

Folder A depends on folder B where an object of A uses a symbol that an object of B defines.  A
cycle of folders is an error; the symbols that close it are printed, the edge with the fewest
symbols first, which is mostly the one that closes it.  So is a symbol or a header that goes up:
core, oracle and variants know nothing of experiments, core nothing of the oracle, and the oracle of
the core only core/base, because it shares no code with what it judges.
--graph prints each folder with the folders that it depends on, lowest first.
"""
import os
import re
import sys
from collections import defaultdict

import link_symbols


def folder_graph(build):
    """{folder: {folder it depends on: ["user -> definer: symbol", ...]}}"""
    defined, used = link_symbols.program(build)
    graph = defaultdict(lambda: defaultdict(list))
    for file, symbols in sorted(used.items()):
        graph[os.path.dirname(file)]
        for symbol in sorted(symbols & defined.keys()):
            user, definer = os.path.dirname(file), os.path.dirname(defined[symbol])
            if user != definer:
                graph[user][definer].append(f"{file} -> {defined[symbol]}: {symbol}")
    return graph


def lowest_first(graph):
    """(order, cycle): the folders so that each comes after its dependencies; the rest is a cycle."""
    order, left = [], {f: set(to) for f, to in graph.items()}
    while True:
        free = sorted(f for f, to in left.items() if not to - set(order))
        if not free:
            return order, strip_users(left)
        order += free
        for f in free:
            del left[f]


def strip_users(left):
    """Leaves out folders that only depend on a cycle: nobody in what is left depends on them."""
    while True:
        wanted = set().union(*left.values()) if left else set()
        users = [f for f in left if f not in wanted]
        if not users:
            return sorted(left)
        for f in users:
            del left[f]


def may_use(user, definer):
    """Whether a folder may know the other one, whatever else it knows."""
    top, other = user.split("/")[0], definer.split("/")[0]
    if top == "oracle":
        return other == "oracle" or definer == "core/base"
    return top not in ("core", "variants") or other in ("core", "variants")


def included():
    """(file, header) of every #include in the library and the oracle, headers by path."""
    for top in ("core", "oracle", "variants"):
        for folder, _, files in os.walk(top):
            for name in sorted(f for f in files if f.endswith((".c", ".h", ".cu"))):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as f:
                    for header in re.findall(r'^#include "(\w+/[^"]+)"', f.read(), re.M):
                        yield path, header


def main():
    build = sys.argv[-1]
    graph = folder_graph(build)
    order, cycle = lowest_first(graph)
    if "--graph" in sys.argv:
        for folder in order:
            print(f"{folder}: {' '.join(sorted(graph[folder])) or 'nothing'}")
    edges = sorted((len(graph[a][b]), a, b) for a in cycle for b in cycle if b in graph[a])
    errors = [f"cycle: {a} -> {b}\n    " + "\n    ".join(graph[a][b][:5]) for _, a, b in edges]
    errors += [f"symbol goes up: {line}" for a in graph for b in graph[a] if not may_use(a, b)
               for line in graph[a][b]]
    errors += [f"header goes up: {file} includes {header}" for file, header in included()
               if not may_use(os.path.dirname(file), os.path.dirname(header))]
    print("\n".join(errors + [f"check-layers: {len(graph)} folders, "
                              + (f"{len(errors)} errors" if errors else "no cycle")]))
    sys.exit(bool(errors))


if __name__ == "__main__":
    main()
