"""check_layers.py - Checks that the folders form layers: link symbols go one way between them.

    /usr/bin/python3 tests/style/check_layers.py [--graph] BUILD       (BUILD: build/gcc)

Folder A depends on folder B where an object of A uses a symbol that an object of B defines.  A
cycle of folders is an error; the symbols that close it are printed.  So is a symbol of the core
outside core/base that the oracle uses, because the oracle shares no code with what it judges.
--graph prints each folder with the folders that it depends on, lowest first.
"""
import os
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


def main():
    build = sys.argv[-1]
    graph = folder_graph(build)
    order, cycle = lowest_first(graph)
    if "--graph" in sys.argv:
        for folder in order:
            print(f"{folder}: {' '.join(sorted(graph[folder])) or 'nothing'}")
    errors = [f"cycle: {a} -> {b}\n    " + "\n    ".join(graph[a][b][:5])
              for a in cycle for b in cycle if b in graph[a]]
    errors += [f"the oracle uses the core: {line}" for a in graph if a.split("/")[0] == "oracle"
               for b in graph[a] if b.split("/")[0] != "oracle" and b != "core/base"
               for line in graph[a][b]]
    print("\n".join(errors + [f"check-layers: {len(graph)} folders, "
                              + (f"{len(errors)} errors" if errors else "no cycle")]))
    sys.exit(bool(errors))


if __name__ == "__main__":
    main()
