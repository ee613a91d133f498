"""changing_files.py - Changes files while commands read them.

Usage: changing_files.py QUALM DIR DRAWS SEED

Each draw copies a file of one container, starts a command over it, and after a drawn delay cuts or
grows the copy, or overwrites a part of it.  The command either ends with 0 and exactly the values
that the file had before (or after, where it was opened later), or with 3 and one line that names
the file; nothing is left behind.
"""
import collections
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import h5py
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support")]
import torch_files  # noqa: E402
import torch_pickle  # noqa: E402

N = 1 << 22  # elements: 16 MiB
NAME = "w/exp_avg"


def write_safetensors(path, x):
    head = ('{"%s":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}'
            % (NAME, x.size, x.nbytes)).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head + x.tobytes())


def write_folder(path, x):
    """A checkpoint of torch.distributed.checkpoint with one shard."""
    os.mkdir(path)
    shard = os.path.join(path, "x.distcp")
    torch_pickle.write(shard, torch_pickle.Tensor(0, x), {0: x})
    with open(os.path.join(path, ".metadata"), "wb") as f:
        f.write(torch_files.metadata(length=os.path.getsize(shard), size=x.shape, chunk=x.shape))


def write_index(path, x):
    os.mkdir(path)
    write_safetensors(os.path.join(path, "x.safetensors"), x)
    with open(os.path.join(path, "m.index.json"), "w", encoding="ascii") as f:
        f.write('{"weight_map": {"%s": "x.safetensors"}}' % NAME)


def write_hdf5(path, x, **how):
    with h5py.File(path, "w") as f:
        f.create_dataset(NAME, data=x, **how)


def containers(work, qualm, x):
    """{container: (path, the file of it that is changed)}"""
    paths = {"npy": "a.npy", "npz": "a.npz", "npz deflated": "d.npz", "safetensors":
             "a.safetensors", "h5": "a.h5", "h5 chunked": "c.h5", "h5 gzip": "g.h5", "pt": "a.pt",
             "dcp": "dcp", "index.json": "shards", "own h5": "own.h5"}
    paths = {k: os.path.join(work, v) for k, v in paths.items()}
    np.save(paths["npy"], x)
    np.savez(paths["npz"], exp_avg=x)
    np.savez_compressed(paths["npz deflated"], exp_avg=x)
    write_safetensors(paths["safetensors"], x)
    write_hdf5(paths["h5"], x)
    write_hdf5(paths["h5 chunked"], x, chunks=(1 << 16,))
    write_hdf5(paths["h5 gzip"], x, chunks=(1 << 16,), compression=1)
    torch_pickle.write(paths["pt"], {NAME: torch_pickle.Tensor(0, x)}, {0: x})
    write_folder(paths["dcp"], x)
    write_index(paths["index.json"], x)
    subprocess.run([qualm, "import", paths["safetensors"], "-o", paths["own h5"]], check=True,
                   capture_output=True)
    inner = {"dcp": "x.distcp", "index.json": "x.safetensors"}
    return {k: (v, inner.get(k, "")) for k, v in paths.items()}


def change(path, r):
    """Changes a file in one of five ways; returns what was done."""
    size = os.path.getsize(path)
    before = os.stat(path)
    kind = r.choice(["cut", "cut", "overwrite", "append", "replace", "set back"])
    if kind == "cut":
        to = r.choice([0, 4096, size // 3, size // 2, size - 1])
        os.truncate(path, to)
        return f"cut to {to}"
    with open(path, "r+b") as f:
        if kind == "append":
            f.seek(0, 2)
            f.write(b"x" * 64)
            return kind
        at = r.randrange(size // 8, size - 70000)
        f.seek(at)
        if kind in ("overwrite", "set back"):
            f.write(b"\x3c" * 65536)
            f.flush()
            if kind == "set back":
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            return f"{kind} at {at}"
        was = f.read(4096)
        f.seek(at)
        f.write(was[::-1])
    return f"replace at {at}"


def commands(container, path, work):
    out = os.path.join(work, "out.")
    yield ["import", path, "-o", out + "npz"]
    yield ["import", path, "-o", out + "safetensors"]
    yield ["import", path, "-o", out + "h5"]
    yield ["analyze", path, "-V", "adamw4_ao", "--slot", "exp_avg", "-o", out + "h5"]
    if "h5" in container:
        yield ["digest", path]


def values(path):
    if path.endswith(".npz"):
        with np.load(path) as z:
            return z[z.files[0]]
    if path.endswith(".h5"):
        with h5py.File(path) as f:
            found = []
            f.visititems(lambda _, d: found.append(d) if isinstance(d, h5py.Dataset) else None)
            return next(d for d in found if d.shape == (N,))[()]
    with open(path, "rb") as f:
        data = f.read()
    return np.frombuffer(data, "<f4", offset=len(data) - 4 * N)


def analyzed(path):
    """The rows of an analysis, without the time that each took."""
    with h5py.File(path) as f:
        table = f["analyze/rows"] if "analyze/rows" in f else next(
            d for d in f["analyze"].values() if d.dtype.names)
        rows = table[()]
    return [(k, rows[k].tobytes()) for k in rows.dtype.names if "second" not in k]


def await_open(p, path):
    """Waits until a process has opened a file, or has ended."""
    folder = f"/proc/{p.pid}/fd"
    while p.poll() is None:
        try:
            if any(os.readlink(os.path.join(folder, fd)) == path for fd in os.listdir(folder)):
                return
        except OSError:  # closed meanwhile
            continue


def change_while_open(p, copy, changed, r):
    """Changes a file a moment after a command has opened it; in half of the draws the command, with
    all of its processes, is stopped meanwhile."""
    await_open(p, os.path.realpath(copy))
    time.sleep(r.choice([0, r.uniform(0, 0.004), r.uniform(0, 0.03), r.uniform(0, 0.2)]))
    is_stopped = r.random() < 0.5 and p.poll() is None
    if is_stopped:
        os.killpg(p.pid, signal.SIGSTOP)
    done = change(changed, r)
    if is_stopped:
        os.killpg(p.pid, signal.SIGCONT)
    return done


class Case:
    def __init__(self, qualm, work, stored, x):
        self.qualm, self.work, self.x = qualm, work, x
        self.stored = stored
        self.told = {}  # what digest and analyze say of a file that nobody changes

    def call(self, words, copy=None, changed=None, r=None):
        p = subprocess.Popen([self.qualm, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             cwd=self.work, env={**os.environ, "TMPDIR": self.work},
                             start_new_session=True)
        done = change_while_open(p, copy, changed, r) if copy else None
        out, err = p.communicate(timeout=60)
        return p.returncode, out, err.decode(errors="replace"), done

    def result(self, words, out):
        if words[0] == "import":
            return values(words[-1]).tobytes()
        return out.split()[0] if words[0] == "digest" else analyzed(words[-1])

    def is_of_the_changed(self, words, found):
        """Whether the file, as it is now, gives this result."""
        code, out, _, _ = self.call(words)
        return code == 0 and self.result(words, out) == found

    def draw(self, container, r):
        path, inner = self.stored[container]
        copy = os.path.join(self.work, "copy" + os.path.splitext(path)[1])
        (shutil.copytree if inner else shutil.copy)(path, copy)
        words = r.choice(list(commands(container, copy, self.work)))
        key = (container, words[0])
        result = words[-1] if "-o" in words else None
        if key not in self.told:
            code, out, err, _ = self.call(words)
            if code != 0:
                sys.exit(f"{key}: {code} {err}")
            self.told[key] = self.result(words, out)
            if words[0] == "import" and self.told[key] != self.x.tobytes():
                sys.exit(f"{key}: other values than were stored")
            if result:
                os.unlink(result)
        want = self.told[key]
        before = set(os.listdir(self.work))
        index = {"dcp": ".metadata", "index.json": "m.index.json"}.get(container, "")
        code, out, err, done = self.call(words, os.path.join(copy, index) if index else copy,
                                         os.path.join(copy, inner) if inner else copy, r)
        fault = None
        found = self.result(words, out) if code == 0 else want
        if found != want and not self.is_of_the_changed(words, found):
            fault = "other values"
        elif code == 3 and (err.count("\n") != 1 or "copy" not in err):
            fault = "not one line that names it"
        elif code not in (0, 3):
            fault = f"code {code}"
        left = set(os.listdir(self.work)) - before
        if left - ({os.path.basename(result)} if result and code == 0 else set()):
            fault = fault or f"left behind: {sorted(left)}"
        for name in left:
            os.unlink(os.path.join(self.work, name))
        (shutil.rmtree if inner else os.unlink)(copy)
        return code, fault and f"{container}, {' '.join(words[:1])}, {done}: {fault}: {err!r}"


def main():
    qualm, work, draws, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    qualm = os.path.abspath(qualm)
    r = random.Random(seed)
    x = np.random.default_rng(seed).standard_normal(N, dtype=np.float32)
    stored = containers(work, qualm, x)
    case, counts, faults = Case(qualm, work, stored, x), collections.Counter(), []
    names = list(stored)
    r.shuffle(names)
    for i in range(draws):
        name = names[i % len(names)]
        code, fault = case.draw(name, r)
        counts[name, "fault" if fault else code] += 1
        if fault:
            faults.append(fault)
    print(f"seed {seed}, {draws} draws:", ", ".join(
        f"{name}: " + " ".join(f"{n} x {code}" for (of, code), n in counts.items() if of == name)
        for name in sorted(set(name for name, _ in counts))))
    if faults:
        sys.exit("\n".join(faults[:40]))


if __name__ == "__main__":
    main()
