"""qualm_record.py - Records optimizer states and consecutive gradients of a PyTorch run for qualm.

    from qualm_record import Recorder
    recorder = Recorder("run.safetensors", model, optimizer, states=[100], trace=range(200, 300))
    ...                                # the training loop, unchanged: optimizer.step() is watched
    recorder.close()                   # writes run.safetensors out of run.safetensors.parts/

Updates are counted from 1.  Of update t in `states` the gradient as the optimizer gets it (after
clipping), the parameter and the optimizer's states before the update are kept; of the updates of
`trace`, which are consecutive, every gradient and learning rate, and the states before the first.

What a replay needs is read from the optimizer (betas, eps, weight decay, momentum, step, learning
rate of each update, dtypes, names, ranks); what cannot be read is asked for, never assumed.  Each
update is a file in FILE.parts/, so that an interrupted run resumes where its checkpoint does.
Ranks write their own pieces of DTensors; `python qualm_record.py merge FOLDER... --out FILE` joins
parts of other machines, and needs no torch.

The file is a .safetensors file (8 bytes of length, a header of JSON, the bytes): RUN/sNNNNNN/NAME/
{grad,param,exp_avg,exp_avg_sq}, RUN/trace/NAME/{grad,param_init,exp_avg_init,exp_avg_sq_init},
RUN/trace/lr.  Attributes are texts of "__metadata__" by the key PATH@NAME: "/RUN@beta1"."""
import glob
import json
import os
import re
import shutil
import sys

import numpy

WORDS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
SLOTS = {"exp_avg": "exp_avg", "momentum_buffer": "exp_avg", "exp_avg_sq": "exp_avg_sq"}
CALLED = {"AdamW": "adamw", "Adam": "adam", "SGD": "sgdm", "Lion": "lion"}
NEEDED = {"adamw": ["beta1", "beta2", "eps"], "adam": ["beta1", "beta2", "eps"],
          "lion": ["beta1", "beta2"], "sgdm": ["momentum", "dampening", "nesterov"]}
FLAT = 2048  # rows are cut after a multiple of so many elements, which keeps flat blocks whole


class Refused(ValueError):
    """What is missing or does not fit, and the line that mends it."""


# ---- the file format ----------------------------------------------------------------------------

def write_safetensors(path, entries, metadata):
    """entries: (name, dtype, shape, function that yields bytes); written whole or not at all."""
    header, at = {"__metadata__": metadata}, 0
    for name, dtype, shape, _ in entries:
        size = WORDS[dtype] * int(numpy.prod(shape, dtype=numpy.int64))
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    temporary = "%s.%d.tmp" % (path, os.getpid())
    try:
        with open(temporary, "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text)
            for _, _, _, pieces in entries:
                for piece in pieces():
                    f.write(piece)
            if f.tell() != 8 + len(text) + at:
                raise Refused("%s: %d bytes written, %d planned" % (path, f.tell(), at))
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def read_header(path):
    """(header, first byte of the data); Refused where the file is cut short."""
    with open(path, "rb") as f:
        length = int.from_bytes(f.read(8), "little")
        if not 2 <= length <= os.path.getsize(path) - 8:
            raise Refused("%s: a part that is no safetensors file: remove it" % path)
        return json.loads(f.read(length)), 8 + length


def read_words(path, start, entry):
    """An entry as unsigned words of its size (bfloat16 has no type in numpy)."""
    begin, end = entry["data_offsets"]
    with open(path, "rb") as f:
        f.seek(start + begin)
        raw = f.read(end - begin)
    return numpy.frombuffer(raw, "<u%d" % WORDS[entry["dtype"]]).reshape(entry["shape"])


# ---- recording ----------------------------------------------------------------------------------

class Recorder:
    """Watches optimizer.step(); see the head of this file.  Options, with their defaults in
    OPTIONS:

    states, trace: which updates.  max_bytes bounds the file: tensors that no longer fit, in the
    model's order, are left out, and the file says which.  Of tensors with more than max_elements
    elements a trace keeps the first rows.  tensors: a regular expression that names must contain.
    step: the number of the next update, for optimizers that keep none.  run: the name of the run,
    by default the file's.  name: the rule, for classes that are not known.  every_rank: each
    rank's optimizer has parameters of its own (ZeRO stage 1)."""

    OPTIONS = {"states": (), "trace": (), "max_bytes": 1 << 30, "max_elements": 1 << 16,
               "tensors": "", "step": None, "run": None, "name": None, "every_rank": False}

    def __init__(self, path, model, optimizer, **options):
        import torch
        for word in options:
            if word not in self.OPTIONS:
                raise Refused("Recorder has no option %s=; it has %s" % (
                    word, ", ".join(self.OPTIONS)))
        o = dict(self.OPTIONS, **options)
        self.torch, self.path, self.optimizer = torch, path, optimizer
        self.parts = path + ".parts"
        self.states, self.trace = sorted(set(o["states"])), list(o["trace"])
        self.rank, self.world = 0, 1
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            self.rank, self.world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self.every_rank, self.step, self.last = o["every_rank"], o["step"], None
        self._check_plan()
        kind = next((CALLED[c.__name__] for c in type(optimizer).__mro__ if c.__name__ in CALLED),
                    None)
        self.kind = o["name"] or kind
        if not self.kind:
            raise Refused("the rule of %s is not known; name=\"adamw\", \"adam\", \"lion\" or "
                          "\"sgdm\" in Recorder(...) has the recording measured as of that rule"
                          % type(optimizer).__name__)
        self.run = o["run"] or os.path.basename(path).split(".")[0] or "run"
        if "/" in self.run:
            raise Refused("run=%r: a name without '/'" % self.run)
        self.left_out = []
        self.groups = [self._hyper(g) for g in optimizer.param_groups]
        self.tensor = self._choose(model, re.compile(o["tensors"]), o["max_bytes"],
                                   o["max_elements"])
        self.hook = optimizer.register_step_pre_hook(self._before_step)

    def _check_plan(self):
        if any(b != a + 1 for a, b in zip(self.trace, self.trace[1:])):
            raise Refused("trace=...: the updates of a trace are consecutive; take "
                          "trace=range(first, last + 1)")
        if not self.states and not self.trace:
            raise Refused("nothing to record: add states=[100, 400] or trace=range(600, 700)")
        if min(self.states + self.trace) < 1:
            raise Refused("updates are counted from 1; take trace=range(1, 101) for the first 100")

    def _hyper(self, group):
        """The numbers of a parameter group that replays need."""
        for flag in ("amsgrad", "maximize"):
            if group.get(flag):
                raise Refused("%s=True is not replayed; set %s=False in the optimizer"
                              % (flag, flag))
        h = {k: float(group[k]) for k in ("eps", "momentum", "dampening") if k in group}
        if "betas" in group:
            h["beta1"], h["beta2"] = (float(b) for b in group["betas"][:2])
        if "nesterov" in group:
            h["nesterov"] = float(bool(group["nesterov"]))
        for key in NEEDED.get(self.kind, []) + ["weight_decay", "lr"]:
            if key not in h and key not in group:
                raise Refused("a parameter group of %s has no %s; add for group in optimizer."
                              "param_groups: group[\"%s\"] = ..." % (self.kind, key, key))
        if self.kind == "sgdm" and h["momentum"] == 0.0:
            raise Refused("SGD without momentum keeps no state; set momentum=0.9 in the optimizer")
        return h

    def _choose(self, model, pattern, max_bytes, max_elements):
        """The tensors that are recorded: {name: what is known of it}."""
        group_of = {id(p): i for i, g in enumerate(self.optimizer.param_groups)
                    for p in g["params"]}
        chosen, room, not_fitting, cut = {}, max_bytes, [], []
        for name, p in model.named_parameters():
            if id(p) not in group_of or not pattern.search(name):
                continue
            if getattr(p, "_fsdp_flattened", False):
                raise Refused("%s is a piece of a flat parameter of FullyShardedDataParallel, "
                              "which has no shape; wrap the model by fully_shard(model)" % name)
            shape = list(p.shape)
            width = int(numpy.prod(shape[1:], dtype=numpy.int64)) if shape else 1
            rows = shape[0] if shape else 1
            kept = rows
            if self.trace and rows * width > max_elements:
                kept = max(1, max_elements // max(width, 1))
                whole = FLAT // numpy.gcd(FLAT, max(width, 1))
                kept -= kept % int(whole) if kept >= whole else 0
                cut.append("%s (%d of %d rows)" % (name, kept, rows))
            n, word = kept * width, p.element_size()
            size = len(self.trace) * n * word + (len(self.states) + bool(self.trace)) * n * (
                2 * word + 8)
            if size > room:
                not_fitting.append(name)
                continue
            room -= size
            chosen[name] = {"p": p, "group": group_of[id(p)], "shape": shape, "rows": kept}
        if cut:
            self.left_out.append("rows of %d tensors beyond max_elements=%d: %s" % (
                len(cut), max_elements, ", ".join(cut)))
        if not_fitting:
            self.left_out.append("%d tensors beyond max_bytes=%d: %s" % (
                len(not_fitting), max_bytes, ", ".join(not_fitting)))
        if not chosen:
            raise Refused("no tensor is recorded%s" % (": " + "; ".join(self.left_out) if
                          self.left_out else "; tensors=%r matches none" % pattern.pattern))
        return chosen

    def _next_update(self):
        """The number of the update that begins now."""
        wanted = self.last is None or self.last + 1 in self.trace or self.last + 1 in self.states
        if not wanted:
            return self.last + 1
        steps = [float(s["step"]) for s in self.optimizer.state.values() if "step" in s]
        if steps:
            return int(max(steps)) + 1
        if self.last is not None:
            return self.last + 1
        if self.step is None and any(self.optimizer.state.values()):
            raise Refused("the optimizer has states and counts no steps; add step=N, the number "
                          "of its next update, to Recorder(...)")
        return self.step or 1

    def _before_step(self, optimizer, args, kwargs):
        if any(a is not None for a in args if a is not optimizer) or kwargs.get("closure"):
            raise Refused("step(closure) computes gradients after they are recorded; call the "
                          "closure first, then optimizer.step()")
        if getattr(optimizer, "grad_scale", None) is not None:
            raise Refused("gradients are still scaled; add scaler.unscale_(optimizer) before "
                          "scaler.step(optimizer)")
        t = self._next_update()
        if self.last is None:
            self._forget_from(t)
        self.last = t
        if t in self.states or t in self.trace:
            self._write_part(t)

    def _forget_from(self, t):
        """Removes this rank's parts of update t and later: the run repeats them."""
        os.makedirs(self.parts, exist_ok=True)
        for path in glob.glob(glob.escape(self.parts) + "/s*.r%03d.safetensors" % self.rank):
            if int(re.search(r"s(\d+)\.r", os.path.basename(path)).group(1)) >= t:
                os.unlink(path)

    def _local(self, x):
        """(this rank's piece as a plain tensor, its offset in the whole); None: not this rank's."""
        if not hasattr(x, "to_local"):
            return (x, [0] * x.dim()) if self.rank == 0 or self.every_rank else None
        offset = [0] * x.dim()
        for axis, placement in enumerate(x.placements):
            if placement.is_shard():
                d, parts = placement.dim, x.device_mesh.size(axis)
                if any(offset) or sum(q.is_shard() for q in x.placements) > 1:
                    raise Refused("a tensor sharded along two axes of the mesh is not recorded; "
                                  "take tensors=\"REGEX\" that leaves it out")
                at = x.device_mesh.get_local_rank(axis)
                offset[d] = min(at * -(-x.shape[d] // parts), x.shape[d])
            elif placement.is_partial():
                raise Refused("a partial DTensor has no values yet")
            elif x.device_mesh.get_local_rank(axis) != 0:
                return None
        return x.to_local(), offset

    def _take(self, x, known):
        """(dtype, bytes, shape, offset) of this rank's piece of the kept rows, or None."""
        piece = self._local(x)
        if piece is None:
            return None
        y, offset = piece[0].detach(), piece[1]
        if y.dim():
            y = y[:max(0, min(known["rows"] - offset[0], y.shape[0]))]
        torch = self.torch
        dtype = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16",
                 torch.bfloat16: "BF16"}[y.dtype]
        if y.numel() == 0:
            return None
        words = y.contiguous().cpu()
        words = words.view(torch.int16) if dtype == "BF16" else words
        return dtype, words.numpy().tobytes(), list(y.shape), offset

    def _states_of(self, name, p, t):
        """{slot: tensor} before update t; None with a reason where they are no plain numbers."""
        state = self.optimizer.state.get(p, {})
        step = state.get("step")
        if step is not None and int(float(step)) != t - 1:
            return None, "counts %d updates where others count %d" % (int(float(step)), t - 1)
        found = {}
        for key, x in state.items():
            if key not in SLOTS or x is None:
                continue
            plain = type(x) in (self.torch.Tensor, self.torch.nn.Parameter) or hasattr(
                x, "to_local")
            if not plain or not x.dtype.is_floating_point or x.shape != p.shape:
                return None, ("keeps %s in a format of its own; give the checkpoint of "
                              "torch.save(optimizer.state_dict()) to qualm instead" % key)
            found[SLOTS[key]] = x
        if not found and t == 1:  # every rule of CALLED starts from zeros
            zero = self.torch.zeros_like(p)
            found = {"exp_avg": zero} if self.kind in ("sgdm", "lion") else {
                "exp_avg": zero, "exp_avg_sq": zero}
        return (found, None) if found else (None, "has no state at update %d" % t)

    def _write_part(self, t):
        entries, offsets, skipped = [], {}, {}
        whole = t in self.states or t == self.trace[0]
        for name, known in self.tensor.items():
            p = known["p"]
            arrays, why = self._states_of(name, p, t) if whole else ({}, None)
            if p.grad is None:
                why = "has no gradient in update %d" % t
            if why:
                skipped[name] = why
                continue
            for leaf, x in [("grad", p.grad), *([("param", p)] if whole else []),
                            *arrays.items()]:
                taken = self._take(x, known)
                if taken:
                    entries.append(("%s/%s" % (name, leaf), taken[0], taken[2],
                                    lambda raw=taken[1]: [raw]))
                    offsets["%s/%s" % (name, leaf)] = taken[3]
        groups = self.optimizer.param_groups
        about = {"t": t, "run": self.run, "optimizer": self.kind, "states": self.states,
                 "trace": [self.trace[0], len(self.trace)] if self.trace else None,
                 "rank": self.rank, "world": self.world, "left_out": self.left_out,
                 "skipped": skipped, "offsets": offsets, "torch": self.torch.__version__,
                 "groups": [dict(self._hyper(g), weight_decay=float(g["weight_decay"]),
                                 lr=float(g["lr"])) for g in groups],
                 "tensors": {n: [k["group"], k["shape"], k["rows"]]
                             for n, k in self.tensor.items()}}
        write_safetensors("%s/s%06d.r%03d.safetensors" % (self.parts, t, self.rank), entries,
                          {"qualm_record": json.dumps(about)})

    def close(self):
        """Ends the watch and, on rank 0, writes the file; the parts are removed then."""
        self.hook.remove()
        if self.world > 1:
            self.torch.distributed.barrier()
        try:
            if self.rank == 0:
                merge([self.parts], self.path)
                shutil.rmtree(self.parts)
        finally:  # the other ranks wait for a merge that is refused, too
            if self.world > 1:
                self.torch.distributed.barrier()


# ---- merging ------------------------------------------------------------------------------------

class Part:
    def __init__(self, path):
        self.path = path
        self.header, self.start = read_header(path)
        text = self.header.pop("__metadata__", {}).get("qualm_record")
        if not text:
            raise Refused("%s: not a part that qualm_record.py wrote" % path)
        self.about = json.loads(text)


def load_parts(folders):
    """{update: its parts}; a part that lies in two folders counts once."""
    steps, seen = {}, {}
    for folder in folders:
        found = sorted(glob.glob(glob.escape(folder) + "/s*.r*.safetensors"))
        if not found:
            raise Refused("%s: no parts (sNNNNNN.rNNN.safetensors)" % folder)
        for path in found:
            part = Part(path)
            key = (part.about["t"], part.about["rank"])
            if key in seen:
                raise Refused("update %d of rank %d lies in %s and in %s: name one of them" % (
                    *key, os.path.dirname(seen[key]), folder))
            seen[key] = path
            steps.setdefault(key[0], []).append(part)
    return steps


def check_constant(steps):
    """The one description of all parts; Refused where a replay's numbers change on the way."""
    first = steps[min(steps)][0].about
    for t in sorted(steps):
        for part in steps[t]:
            if len(part.about["groups"]) != len(first["groups"]):
                raise Refused("there are %d parameter groups at update %d and %d at update %d: "
                              "record before or after the change" % (
                                  len(first["groups"]), first["t"], len(part.about["groups"]), t))
            for i, group in enumerate(part.about["groups"]):
                old = first["groups"][i]
                for key in group:
                    if key != "lr" and group[key] != old[key]:
                        raise Refused("%s of parameter group %d is %g at update %d and %g at "
                                      "update %d: record before or after the change" % (
                                          key, i, old[key], first["t"], group[key], t))
            for key in ("run", "optimizer", "trace", "world"):
                if part.about[key] != first[key]:
                    raise Refused("%s: %s is %s, in the first part %s: they are of two "
                                  "recordings" % (part.path, key, part.about[key], first[key]))
    return first


def joined(parts, entry, shape, t):
    """The whole array of an entry out of the ranks' pieces; Refused where elements are missing."""
    dtype, whole, known = None, None, None
    for part in parts:
        e = part.header.get(entry)
        if not e:
            continue
        words = read_words(part.path, part.start, e)
        if whole is None:
            dtype, whole = e["dtype"], numpy.zeros(shape, words.dtype)
            known = numpy.zeros(shape, "?")
        at = tuple(slice(o, o + n) for o, n in zip(part.about["offsets"][entry], e["shape"]))
        if e["dtype"] != dtype or (known[at] & (whole[at] != words)).any():
            raise Refused("update %d: ranks differ in %s; with replicas record rank 0 only "
                          "(every_rank=False)" % (t, entry))
        whole[at], known[at] = words, True
    if known is None or not known.all():
        have = sorted(p.about["rank"] for p in parts)
        lacking = sorted(set(range(parts[0].about["world"])) - set(have))
        raise Refused("update %d: %d of %d elements of %s are missing%s" % (
            t, int(numpy.prod(shape)) - (0 if known is None else int(known.sum())),
            int(numpy.prod(shape)), entry,
            "; name the folder of rank %s too: merge FOLDER... --out FILE" % lacking[0]
            if lacking else ""))
    return dtype, whole


def kept_shape(about, name):
    _, shape, rows = about["tensors"][name]
    return [rows, *shape[1:]] if shape else []


def plan_updates(steps, first):
    """(updates of `states` that were reached, updates of the trace); Refused where it has a gap."""
    states = [t for t in first["states"] if t in steps]
    missing = [t for t in first["states"] if t not in steps]
    notes = ["updates %s, which were not reached" % missing] if missing else []
    if not first["trace"]:
        return states, [], notes
    begin, n = first["trace"]
    have = [t for t in range(begin, begin + n) if t in steps]
    if not have:
        return states, [], notes + ["the trace of updates %d to %d, which were not reached" % (
            begin, begin + n - 1)]
    if have != list(range(begin, begin + len(have))):
        gap = next(t for t in range(begin, begin + n) if t not in steps)
        raise Refused("the trace lacks update %d and has later ones: resume from a checkpoint of "
                      "update %d or before, or take trace=range(%d, %d)" % (
                          gap, gap - 1, have[-1] + 1, have[-1] + 1 + n))
    if len(have) < n:
        notes.append("updates %d to %d of the trace, which were not reached" % (
            have[-1] + 1, begin + n - 1))
    return states, have, notes


def merge(folders, out):
    """Writes one file of all parts in the folders; returns what was left out, also said on
    stderr."""
    steps = load_parts(folders)
    first = check_constant(steps)
    states, trace, notes = plan_updates(steps, first)
    tensors = {}
    for part in (p for parts in steps.values() for p in parts):
        tensors.update(part.about["tensors"])
        notes += [n for n in part.about["left_out"] if n not in notes]
    first["tensors"] = tensors
    groups = [dict(g) for g in first["groups"]]
    alike = all({k: v for k, v in g.items() if k != "weight_decay"} ==
                {k: v for k, v in p.about["groups"][0].items() if k != "weight_decay"}
                for parts in steps.values() for p in parts for g in p.about["groups"])
    run_of = [first["run"] if alike else "%s.group%d" % (first["run"], i)
              for i in range(len(groups))]
    entries, metadata = [], {"format": "pt", "written_by": "qualm_record.py"}
    skipped = {}
    for parts in steps.values():
        for part in parts:
            for name, why in part.about["skipped"].items():
                skipped.setdefault(name, (why, set()))[1].add(part.about["t"])

    def add(path, entry, name, t, updates=None):
        shape = kept_shape(first, name)
        dtype = joined(steps[t], entry, shape, t)[0]
        whole = shape if updates is None else [len(updates), *shape]

        def pieces():
            for u in updates or [t]:
                d, words = joined(steps[u], entry, shape, u)
                if d != dtype:
                    raise Refused("%s is %s at update %d and %s at update %d" % (
                        entry, dtype, t, d, u))
                yield words.tobytes()
        entries.append((path, dtype, whole, pieces))

    def has(entry, t):
        return any(entry in p.header for p in steps[t])

    used = set()
    for name, (group, shape, rows) in tensors.items():
        bad = skipped.get(name, ("", set()))[1]
        places = [("%s/s%06d/%s" % (run_of[group], t, name), t, None) for t in states
                  if t not in bad]
        if trace and not bad & set(trace):
            places.append(("%s/trace/%s" % (run_of[group], name), trace[0], trace))
        for path, t, updates in places:
            used.add((group, t if updates is None else "trace"))
            add(path + "/grad", name + "/grad", name, t, updates)
            for leaf in ("param", "exp_avg", "exp_avg_sq"):
                if has("%s/%s" % (name, leaf), t):
                    add(path + "/" + leaf + ("_init" if updates else ""),
                        "%s/%s" % (name, leaf), name, t)
            metadata["/%s@weight_decay" % path] = repr(groups[group]["weight_decay"])
            if shape and rows < shape[0]:
                metadata["/%s@full_shape" % path] = json.dumps(shape)
                metadata["/%s@row_range" % path] = json.dumps([0, rows])
    notes += ["%s, which %s" % (name, why) for name, (why, _) in sorted(skipped.items())]
    describe(metadata, entries, first, groups, run_of, used, steps, trace)
    if not entries:
        raise Refused("%s: nothing was recorded: %s" % (out, "; ".join(notes) or "no update"))
    if notes:
        metadata["left_out"] = "; ".join(notes)
    write_safetensors(out, entries, metadata)
    for note in notes:
        print("qualm_record: %s: left out: %s" % (out, note), file=sys.stderr)
    return notes


def describe(metadata, entries, first, groups, run_of, used, steps, trace):
    """Adds the attributes of runs, states and traces, and the learning rates of a trace."""
    for group, place in sorted(used, key=str):
        run, h = run_of[group], groups[group]
        at = "/%s/%s" % (run, "trace" if place == "trace" else "s%06d" % place)
        metadata["/%s@optimizer" % run] = first["optimizer"]
        metadata["/%s@ranks" % run] = str(first["world"])
        metadata["/%s@torch_version" % run] = first["torch"]
        for key in h:
            if key not in ("lr", "weight_decay"):
                metadata["/%s@%s" % (run, key)] = repr(h[key])
        rates = {t: steps[t][0].about["groups"][group]["lr"] for t in steps}
        if place != "trace":
            metadata[at + "@step"], metadata[at + "@lr"] = str(place), repr(rates[place])
        elif at + "@first_step" not in metadata:
            metadata[at + "@first_step"] = str(trace[0])
            metadata[at + "@n_steps"] = str(len(trace))
            lr = numpy.array([rates[t] for t in trace], "<f8")
            entries.append((at[1:] + "/lr", "F64", [len(trace)], lambda lr=lr: [lr.tobytes()]))


def main(words):
    usage = "usage: python qualm_record.py merge FOLDER... --out FILE.safetensors"
    if words in (["--help"], ["-h"]):
        print(__doc__ + "\n\n" + usage)
        return 0
    if len(words) < 4 or words[0] != "merge" or words[-2] != "--out":
        print(usage, file=sys.stderr)
        return 2
    try:
        merge(words[1:-2], words[-1])
    except (Refused, OSError, json.JSONDecodeError) as e:
        print("qualm_record: %s" % e, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
