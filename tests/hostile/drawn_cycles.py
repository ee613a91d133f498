"""drawn_cycles.py - Containers of a pickle hold each other many times: import ends soon.

    drawn_cycles.py QUALM COUNT SEED

A pickle has 1 to 12 lists and dictionaries; each is filled with 0 to 200,000 references to any of
them, under keys that are whole numbers, floats, short and long texts, the names of an optimizer's
parts among them.  Import of each has to end within 10 s of its own processor time, with exit code 0
or 3 and at most one line beside what it leaves out.
"""
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
import zipfile

WORDS = ["state", "param_groups", "params", "model", "exp_avg", "optimizer", "x" * 1100, "a.b"]


def text(word):
    return b"X" + struct.pack("<I", len(word)) + word.encode()


def draw_key(r, i):
    kind = r.random()
    if kind < 0.3:
        return text(r.choice(WORDS))
    if kind < 0.5:
        return b"G" + struct.pack(">d", i + 0.5)
    return b"J" + struct.pack("<i", i) if kind < 0.8 else text(f"k{i}")


def draw_pickle(r):
    """Opcodes: containers are made and memoized, then filled from the memo; the last is given."""
    n = r.randint(1, 12)
    is_dict = [r.random() < 0.5 for _ in range(n)]
    out = [b"\x80\x02"]
    for i in range(n):
        out.append((b"}" if is_dict[i] else b"]") + b"r" + struct.pack("<I", i))
    for i in range(n):
        out.append(b"j" + struct.pack("<I", i))
        size = int(10 ** r.uniform(0, 5.3)) if r.random() < 0.8 else r.randint(0, 3)
        near = r.randrange(n)
        keys = r.random()
        for k in range(size):
            to = near if r.random() < 0.7 else r.randrange(n)
            value = b"j" + struct.pack("<I", to)
            key = draw_key(r, k) if keys < 0.5 else b"J" + struct.pack("<i", k)
            out.append(key + value + b"s" if is_dict[i] else value + b"a")
    return b"".join(out) + b"."


def main():
    qualm, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    failed, slowest = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for i in range(count):
            r = random.Random(f"{seed}/{i}")
            path = f"{folder}/c.pt"
            with zipfile.ZipFile(path, "w") as z:
                z.writestr("archive/data.pkl", draw_pickle(r))
                z.writestr("archive/byteorder", "little")
                z.writestr("archive/version", "3\n")
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            run = subprocess.run([qualm, "import", path, "--out", f"{folder}/o.npz"],
                                 capture_output=True, text=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            slowest = max(slowest, took)
            lines = [s for s in run.stderr.splitlines() if "left out: " not in s]
            if took > 10 or run.returncode not in (0, 3, 4) or len(lines) > 1:
                failed += 1
                print(f"case {seed}/{i}: {took:.1f} s, exit {run.returncode}: {run.stderr.strip()}")
            if os.path.exists(f"{folder}/o.npz"):
                os.remove(f"{folder}/o.npz")
    print(f"drawn_cycles: {count} drawn, {failed} failed, slowest {slowest:.1f} s, seed {seed}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
