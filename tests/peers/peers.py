#!/usr/bin/env python3
"""peers.py - Times other packages' optimizers for `qualm gpu-check --peers COMMAND`.

Each peer steps one large tensor and many small ones, of the sizes that gpu-check measures, in the
way it measures them (experiments/gpu/bench.h): CUDA events around a step after a warm-up, the
L2 cache read full of other data before each round, two sets of tensors in turn, rounds until they
agree. It prints JSON:

    {"torch": "2.15.0", "rows": [{"peer", "version", "recipe", "tensors", "elements", "seconds",
     "least_seconds", "rounds"}, ...], "skipped": [{"peer", "reason"}, ...]}

version: the release that is installed, as its metadata say; recipe: the variant here that does the
same as this release; seconds: median of a step; elements: of each tensor.
A peer that cannot be imported or does not run is skipped by name. Needs nothing but Python and, to
time anything, torch. gpu-check asks for the peers' names (--names: an array of texts) and then runs
this program once for each (--name), so that none takes the others' time or memory. --device cpu
times the same steps by the host's clock: a trial of a machine without a GPU, no figure to publish.

`qualm bench --peers COMMAND` asks for single steps instead, to time its own between them: with
--serve --name NAME --threads T the program prints {"version", "recipe"} after a warm-up, or
{"skipped": the reason}, and then {"seconds"} of one step of the large tensor for each line of its
input. The CPU has two more peers (--device cpu --names), one of them torch's form of the bench's
yardstick.

Exit code 0; 77 where nothing could be timed; 2 for a command line that cannot be read.

    python3 tests/peers/peers.py
    python3 tests/peers/peers.py --device cpu --size 1048576 --rounds 5
    python3 tests/peers/peers.py --size 16777216 --rounds 100 --only torchao
"""
import argparse
import gc
import importlib
import importlib.metadata
import json
import sys
import time

WARM, TURNS = 3, 2


def adamw_fused(torch, module, params):
    return torch.optim.AdamW(params, lr=1e-3, fused=True)


def adamw_foreach(torch, module, params):
    return torch.optim.AdamW(params, lr=1e-3, foreach=True)


class Yardstick:
    """a += s*b in place, by torch."""

    def __init__(self, torch, module, params):
        self.torch, self.params = torch, params

    def step(self):
        with self.torch.no_grad():
            for p in self.params:
                p.add_(p.grad, alpha=1e-3)


def named(name, **arguments):
    """The optimizer class of that name in a module."""
    return lambda torch, module, params: getattr(module, name)(params, **arguments)


# Peer, package, modules that may hold it, the equivalent recipe (by release, where releases
# differ), the constructor.
PEERS = [
    ("torch AdamW(fused=True)", "torch", ["torch"], "adamw_f32", adamw_fused),
    ("bitsandbytes AdamW8bit", "bitsandbytes", ["bitsandbytes.optim"], "adamw8_bnb_cuda",
     named("AdamW8bit", lr=1e-3)),
    # torch.compile compiles their step when it first runs, in the warm-up.
    ("torchao AdamW8bit", "torchao", ["torchao.optim", "torchao.prototype.low_bit_optim"],
     "adamw8_ao", named("AdamW8bit", lr=1e-3)),
    ("torchao AdamW4bit", "torchao", ["torchao.optim", "torchao.prototype.low_bit_optim"],
     "adamw4_ao", named("AdamW4bit", lr=1e-3)),
    ("adafactor8bit Adafactor8Bit", "adafactor8bit", ["adafactor8bit"],
     {"0.2.2": "adafactor8_022", "0.2.4": "adafactor8_024", "0.2.5": "adafactor8_025",
      "0.2.6": "adafactor8_026", "0.4.3": "adafactor8_046", "0.4.4": "adafactor8_046",
      "0.4.5": "adafactor8_046", "0.4.6": "adafactor8_046"},
     named("Adafactor8Bit", lr=1e-2, beta1=0.9)),
]

# On a CPU alone.
CPU_PEERS = [
    ("torch AdamW(foreach=True)", "torch", ["torch"], "adamw_f32", adamw_foreach),
    ("torch a.add_(b, alpha=s)", "torch", ["torch"], "a += s*b", Yardstick),
]


class Skip(Exception):
    """Why a peer is not timed."""


def first_line(error):
    text = str(error).strip().splitlines()
    return "%s: %s" % (type(error).__name__, text[0] if text else "no reason given")


def median(x):
    n = len(x)
    return x[n // 2] if n % 2 else 0.5 * (x[n // 2 - 1] + x[n // 2])


def is_enough(seconds, rounds):
    """Whether there are at least `rounds`, and the middle half lies within 2 % of the median or
    there are four times as many."""
    n = len(seconds)
    if n < rounds:
        return False
    x = sorted(seconds)
    return n >= 4 * rounds or x[(3 * n - 1) // 4] - x[n // 4] <= 0.02 * median(x)


class Cuda:
    """Times by events of the GPU's stream."""
    name = "cuda"

    def __init__(self, torch, flush_bytes):
        self.torch = torch
        self.buffer = torch.zeros(flush_bytes, dtype=torch.uint8, device="cuda")
        self.start, self.stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def flush(self):
        """Reads the buffer: what it evicts is written back before the clock starts, and what it
        leaves in the cache needs no writing."""
        self.buffer.sum()

    def seconds(self, step):
        self.start.record()
        step()
        self.stop.record()
        self.stop.synchronize()
        return 1e-3 * self.start.elapsed_time(self.stop)

    def empty(self):
        self.torch.cuda.empty_cache()


class Cpu:
    """Times by the host's clock."""
    name = "cpu"

    def __init__(self, torch, flush_bytes):
        self.buffer = torch.zeros(flush_bytes, dtype=torch.uint8, device="cpu")

    def flush(self):
        self.buffer.sum()

    def seconds(self, step):
        start = time.perf_counter()
        step()
        return time.perf_counter() - start

    def empty(self):
        pass


def time_steps(clock, steps, rounds):
    """The seconds of each round; steps: the functions that take turns."""
    done = 0

    def one():
        nonlocal done
        clock.flush()
        seconds = clock.seconds(steps[done % len(steps)])
        done += 1
        return seconds

    for _ in range(WARM):
        one()
    seconds = []
    while not is_enough(seconds, rounds):
        seconds.append(one())
    return seconds


def tensors_of(torch, device, count, shape):
    """Makes parameters with gradients."""
    params = []
    for _ in range(count):
        p = torch.nn.Parameter(torch.randn(shape, device=device))
        p.grad = torch.randn(shape, device=device)
        params.append(p)
    return params


def release_of(package):
    """The installed release: of its metadata, or as the package itself says."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        said = getattr(sys.modules.get(package), "__version__", None)
    if said is None:
        raise Skip("%s does not say which release it is" % package)
    return str(said)


def recipe_of(package, release, recipes):
    """The variant that does the same as this release."""
    if isinstance(recipes, str):
        return recipes
    if release not in recipes:
        raise Skip("no variant here is timed against %s %s (%s are)" %
                   (package, release, ", ".join(sorted(recipes))))
    return recipes[release]


def module_of(package, modules):
    """The first of the modules that can be imported, and the package's release."""
    for name in modules:
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            reason = first_line(error)
        except Exception as error:  # a package that breaks while it is imported
            raise Skip("import %s: %s" % (name, first_line(error)))
        else:
            return module, release_of(package)
    raise Skip(reason)


def time_peer(torch, peer, sizes, clock, rounds):
    """Measures a peer: one row per size (tensors, shape)."""
    name, package, modules, recipe, make = peer
    module, version = module_of(package, modules)
    recipe = recipe_of(package, version, recipe)
    rows = []
    for count, shape in sizes:
        try:
            sets = [make(torch, module, tensors_of(torch, clock.name, count, shape))
                    for _ in range(TURNS)]
            seconds = time_steps(clock, [s.step for s in sets], rounds)
        except Exception as error:  # any error of the peer's code
            raise Skip("%d tensors: %s" % (count, first_line(error)))
        sets = None
        gc.collect()
        clock.empty()
        elements = 1
        for d in shape:
            elements *= d
        rows.append({"peer": name, "version": version, "recipe": recipe, "tensors": count,
                     "elements": elements, "seconds": median(sorted(seconds)),
                     "least_seconds": min(seconds), "rounds": len(seconds)})
    return rows


def serve(torch, peer, shape, clock):
    """Warms up, says what it times, and then times one step for each line of the input."""
    name, package, modules, recipe, make = peer
    module, version = module_of(package, modules)
    recipe = recipe_of(package, version, recipe)
    try:
        step = make(torch, module, tensors_of(torch, clock.name, 1, shape)).step
        for _ in range(WARM):
            clock.seconds(step)
    except Exception as error:  # any error of the peer's code
        raise Skip(first_line(error))
    print(json.dumps({"version": version, "recipe": recipe}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"seconds": clock.seconds(step)}), flush=True)


def positive(text):
    n = int(text)
    if n < 1:
        raise ValueError
    return n


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=positive, default=1 << 27, metavar="N",
                        help="elements of the large tensor, in rows of --columns (default 2^27)")
    parser.add_argument("--columns", type=positive, default=4096, metavar="N", help="default 4096")
    parser.add_argument("--tensors", type=positive, default=100, metavar="N",
                        help="how many small ones (default 100)")
    parser.add_argument("--small", type=positive, default=16384, metavar="N",
                        help="elements of each (default 16384)")
    parser.add_argument("--rounds", type=positive, default=30, metavar="N",
                        help="timed steps, at least (default 30; at most four times as many)")
    parser.add_argument("--flush", type=positive, default=1 << 27, metavar="BYTES",
                        help="read before each round (default 2^27)")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="default cuda")
    parser.add_argument("--only", metavar="TEXT", help="peers whose name holds this")
    parser.add_argument("--name", metavar="NAME", help="the peer of this name alone")
    parser.add_argument("--names", action="store_true", help="print the names, time nothing")
    parser.add_argument("--serve", action="store_true",
                        help="time a step of --name for each line of the input")
    parser.add_argument("--threads", type=positive, metavar="N",
                        help="of torch, on a CPU (default: torch's)")
    return parser.parse_args()


def main():
    a = arguments()
    peers = [p for p in PEERS + CPU_PEERS * (a.device == "cpu")
             if (not a.only or a.only in p[0]) and a.name in (None, p[0])]
    if a.name and not peers:
        print("peers: no peer is named '%s' (--names lists them)" % a.name, file=sys.stderr)
        return 2
    if a.serve and not a.name:
        print("peers: --serve takes --name NAME", file=sys.stderr)
        return 2
    if a.names:
        print(json.dumps([p[0] for p in peers]))
        return 0
    out = {"torch": "", "device": a.device, "rows": [], "skipped": []}
    sizes = [(1, (a.size // a.columns, a.columns)), (a.tensors, (a.small,))]
    reason = None
    try:
        import torch
        out["torch"] = str(torch.__version__)
        if a.device == "cuda" and not torch.cuda.is_available():
            reason = "torch sees no GPU"
        else:
            clock = (Cuda if a.device == "cuda" else Cpu)(torch, a.flush)
            if a.threads:
                torch.set_num_threads(a.threads)
    except Exception as error:
        reason = first_line(error)
    for peer in peers:
        try:
            if reason:
                raise Skip(reason)
            if a.serve:
                return serve(torch, peer, sizes[0][1], clock) or 0
            out["rows"] += time_peer(torch, peer, sizes, clock, a.rounds)
        except Skip as why:
            out["skipped"].append({"peer": peer[0], "reason": str(why)})
            if a.serve:
                print(json.dumps({"skipped": str(why)}), flush=True)
                return 77
            print("peers: skipped %s: %s" % (peer[0], why), file=sys.stderr)
    print(json.dumps(out, indent=1))
    return 0 if out["rows"] else 77


if __name__ == "__main__":
    sys.exit(main())
