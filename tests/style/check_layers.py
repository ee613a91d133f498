"""check_layers.py - Checks that the folders form layers: symbols and headers go one way.

    /usr/bin/python3 tests/style/check_layers.py [--graph] [--prefix] BUILD       (BUILD: build/gcc)

Folder A depends on folder B where an object of A uses a symbol that an object of B defines, or
where the compiler read a header of B for a source of A, however many headers lie between: the .d
files that it wrote say so; sources that are not compiled here (kernels, C++) are preprocessed.  A
header that a source of A includes counts behind any #if, too.
A cycle of folders is an error.  Only edges of cycles are printed, the edge with the fewest symbols
and headers first, which is mostly the one that closes it.  Two headers do not count there, because
they are the interfaces of registries, which call those that include them: oracle.h and variant.h.
An error is also what goes up:

    core                  uses core (and variants, their registry); core/base uses core/base alone
    variants              use core and variants; variants/native only core/abi
    oracle                uses oracle and core/base, because it shares no code with what it judges
    oracle/codebook, metric, theory     use nothing of the other folders of oracle
    all of them           use no header of tests/

With --prefix a link symbol of C or C++ without the prefix qm_ is an error too, but main and the
names of NAMED, which compilers and linkers expect; those of kernels (.cu) and of what is not
compiled here (MPI's file where there is no MPI) are not looked at.
--graph prints each folder with the folders that it depends on, lowest first.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict

import link_symbols

TOPS = ("core", "oracle", "variants", "experiments")
REGISTRIES = ("oracle/oracle.h", "core/recipe/variant.h")
# Link symbols that compilers, sanitizers and linkers name: GCC's locks of OpenMP, what the emulator
# defines for instrumented code (__tsan_, __ubsan_handle_) and for wrapped calls (__wrap_).
NAMED = (".gomp_critical_user_", "__tsan_", "__ubsan_handle_", "__wrap_", "__odr_asan.",
         "DW.ref.__", "std::")
NOT_C = (".cu", ".cpp", ".hpp")
INCLUDED = (".", "core/abi", "core/emu")


def dependencies(build):
    """{folder: {folder it depends on: ["user -> definer: symbol" or "user reads header"]}}"""
    defined, used = link_symbols.program(build)
    graph = defaultdict(lambda: defaultdict(list))
    for file, symbols in sorted(used.items()):
        graph[os.path.dirname(file)]
        for symbol in sorted(symbols & defined.keys()):
            user, definer = os.path.dirname(file), os.path.dirname(defined[symbol])
            if user != definer:
                graph[user][definer].append(f"{file} -> {defined[symbol]}: {symbol}")
    reads = defaultdict(set)
    for source, header in sorted(headers_read(build)):
        if header.split("/")[0] in (*TOPS, "tests"):
            reads[os.path.dirname(source), os.path.dirname(header)].add((source, header))
    for (user, definer), pairs in reads.items():
        graph[user], graph[definer]
        if user != definer:
            graph[user][definer] += [f"{s} reads {h}" for s, h in sorted(pairs)]
    return graph


def layered(graph):
    """The graph of what must not form a cycle: without the headers that registries declare."""
    return {a: {b: kept for b, lines in to.items()
                if (kept := [x for x in lines if x.split(" reads ")[-1] not in REGISTRIES])}
            for a, to in graph.items()}


def headers_read(build):
    """(source, header) of the tree, for each source that the compiler reads or could read, and for
    each #include that stands in one, behind any #if."""
    compiled = set()
    for path in (p for top in TOPS for p in glob.glob(top + "/**", recursive=True)
                 if p.endswith(NOT_C + (".c", ".h"))):
        with open(path, encoding="utf-8") as f:
            names = re.findall(r"^\s*#\s*include\s*[\"<]([^\">]+)", f.read(), re.M)
        spelled = {os.path.normpath(os.path.join(d, n)) for d in (os.path.dirname(path), ".")
                   for n in names}
        yield from ((path, h) for h in spelled if os.path.exists(h))
    for path in link_symbols.objects(build):
        if os.path.exists(path[:-2] + ".d"):
            source, *headers = link_symbols.prerequisites(path[:-2] + ".d")
            compiled.add(source)
            yield from ((source, h) for h in headers)
    alone = [p for top in TOPS for p in glob.glob(top + "/**", recursive=True)
             if p.endswith(NOT_C + (".c", ".h")) and p not in compiled]
    for kind in ("c", "c++"):
        chosen = [p for p in alone if p.endswith(NOT_C) == (kind == "c++")]
        if chosen:
            yield from preprocessed(build, kind, chosen)


def preprocessed(build, kind, paths):
    """What the preprocessor reads for sources that have no .d file; what it misses is not read."""
    run = subprocess.run(["cc", "-x", kind, "-M", "-MG", f"-I{build}/gen",
                          *(f"-I{d}" for d in INCLUDED), *paths],
                         capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit("check-layers: the preprocessor failed\n" + run.stderr)
    rules = run.stdout.replace("\\\n", " ").splitlines()
    for path, rule in zip(paths, rules, strict=True):
        for header in list(link_symbols.of_the_tree(rule.split(": ", 1)[-1]))[1:]:
            if os.path.exists(header):
                yield path, header


def components(graph):
    """The sets of folders that reach each other, those of more than one folder."""
    reach = {}
    for folder in graph:
        seen, todo = set(), [folder]
        while todo:
            new = set(graph.get(todo.pop(), ())) - seen
            seen |= new
            todo += new
        reach[folder] = seen
    return {frozenset(b for b in reach[a] if a in reach.get(b, ())) for a in graph
            if a in reach[a]}


def lowest_first(graph):
    """The folders, each after what it depends on; folders of a cycle count as one."""
    group = {f: c for c in components(graph) for f in c}
    order, left = [], set(graph)
    while left:
        free = sorted(f for f in left if not (set(graph[f]) & left) - group.get(f, {f})
                      and not any((set(graph[g]) & left) - group[f] for g in group.get(f, ())))
        order += free
        left -= set(free)
    return order


def without_prefix(build):
    """The link symbols whose names say nothing of the project; OpenMP and compilers name some."""
    defined, _ = link_symbols.program(build)
    found = {*defined.items(), *cpp_symbols()}
    return [f"no prefix qm_: {file} defines {symbol}" for symbol, file in sorted(found)
            if not symbol.startswith(("qm_", *NAMED)) and symbol != "main"]


def cpp_symbols():
    """(symbol, file) of the C++ sources, which are compiled only where a user's kernel is."""
    paths = [p for top in TOPS for p in sorted(glob.glob(top + "/**/*.cpp", recursive=True))]
    if paths and not shutil.which("c++"):
        print("check-layers: the symbols of C++ are left out: no C++ compiler")
    elif paths:
        with tempfile.TemporaryDirectory() as folder:
            root = os.getcwd()
            subprocess.run(["c++", "-std=c++17", "-w", *(f"-I{root}/{d}" for d in INCLUDED), "-c",
                            *(os.path.join(root, p) for p in paths)], cwd=folder, check=True)
            for path in paths:
                out = subprocess.run(["nm", "-C", "-g", "--defined-only", os.path.join(
                    folder, os.path.basename(path)[:-len("cpp")] + "o")],
                    capture_output=True, text=True, check=True).stdout
                yield from ((words[2].split("(")[0], path) for line in out.splitlines()
                            if (words := line.split(None, 2))[1] in "TDBRWVu")


def may_use(user, definer):
    """Whether a folder may know the other one, whatever else it knows."""
    top, other = user.split("/")[0], definer.split("/")[0]
    if user == definer or top not in TOPS:
        return True
    if other not in TOPS:
        return False
    if user in ("core/base", "core/abi"):
        return False
    if user == "variants/native":
        return definer == "core/abi"
    if user in ("oracle/codebook", "oracle/metric", "oracle/theory"):
        return definer == "core/base"
    if top == "oracle":
        return other == "oracle" or definer == "core/base"
    return top == "experiments" or other in ("core", "variants")


def main():
    build = sys.argv[-1]
    everything = dependencies(build)
    graph = layered(everything)
    if "--graph" in sys.argv:
        for folder in lowest_first(graph):
            print(f"{folder}: {' '.join(sorted(graph[folder])) or 'nothing'}")
    errors = []
    for cycle in sorted(components(graph), key=sorted):
        edges = sorted((len(graph[a][b]), a, b) for a in cycle for b in cycle if b in graph[a])
        errors.append(f"cycle of {len(cycle)} folders, edges of fewest symbols and headers first:\n"
                      + "\n".join("\n    ".join([f"  {a} -> {b}, {n}", *graph[a][b][:5]])
                                  for n, a, b in edges))
    errors += [f"goes up: {line}" for a in sorted(everything) for b in sorted(everything[a])
               if not may_use(a, b) for line in everything[a][b]]
    errors += without_prefix(build) if "--prefix" in sys.argv else []
    print("\n".join(errors + [f"check-layers: {len(graph)} folders, "
                              + (f"{len(errors)} errors" if errors else "no cycle")]))
    sys.exit(bool(errors))


if __name__ == "__main__":
    main()
