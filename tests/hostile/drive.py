"""drive.py - Opens hostile files with every command that opens files.

    /usr/bin/python3 tests/hostile/drive.py QUALM FOLDER [PART OF [COMMAND]]

FOLDER is from make_files.py.  Every call must end within 10 s and 1 GiB with a documented exit
code, one line on stderr where it fails (notes aside), no control character on stdout or stderr, no
word of a sanitizer, of HDF5 or of Python, the same exit code of a page without figures, and
nothing left in the folder for temporary files, nor a part of an output.  PART OF: only the calls
whose number is PART modulo OF.  Prints
each fault, with the CPU seconds of the call; exit code 1 when there is one.
"""
import os
import re
import resource
import subprocess
import sys
import time

CODES = {0, 1, 2, 3, 4, 75, 77}
SECONDS, BYTES = 10, 1 << 30
ANALYZE = ["--slot", "exp_avg", "--quantizer", "nf4:4s/block:128/bisect/mid/hi"]
PYTHON = re.compile(r"\b[A-Za-z]*(Error|Exception|Warning)\b|h5py")  # names of exceptions
PAIRED = "variant: adamw4_ao\nsource: \"problem:quad\"\ncoupling: closed\nprotocol: paired\n" \
    "seed: 1..2\nsteps: 10\n"
SUITE = "variant: adamw4_ao\nexp_avg.map: [dyn, nf4]\nsource: \"states:*\"\ncoupling: oneshot\n" \
    "slot: exp_avg\n"


def commands(file, good, work):
    """name: words, for one file; good is a whole result file."""
    yield "analyze", ["analyze", file, *ANALYZE]
    yield "digest", ["digest", file]
    yield "compare", ["compare", good, file]
    yield "compare2", ["compare", file, good]
    yield "report", ["report", "--no-figures", "-o", os.path.join(work, "page.html"), file]
    if file.endswith(".h5"):
        page = ["-o", os.path.join(work, "page.html")]
        yield "figures", ["report", *page, file]
        yield "list", ["plot", "--list", file]
        yield "plot", ["plot", "-o", os.path.join(work, "figure.png"), file]
        yield "tables", ["report", "--no-figures", "--markdown", "-", "--latex",
                         os.path.join(work, "page.tex"), *page, file]
        yield "archive", ["report", "--no-figures", "--archive",
                          os.path.join(work, "archive.h5"), *page, file]
        yield "against", ["report", "--no-figures", "--against", file, *page, file]
    yield "verify", ["verify", file]
    yield "conform", ["conform", file]
    yield "state", ["state", "show", file]
    yield "convert", ["state", "convert", file, os.path.join(work, "out.h5")]
    yield "import", ["import", file, "-o", os.path.join(work, "out.npz")]
    yield "step", ["state", "step", "--steps", "1", file, os.path.join(work, "out.safetensors")]
    yield "recipe", ["state", "convert", "--recipe", "adamw4_ao", "--as", "adamw_f32", file,
                     os.path.join(work, "out.safetensors")]
    yield "size", ["size", "--shapes", file, "--variant", "adamw4_ao"]
    yield "update", ["analyze", file, "--recipe", "adamw4_ao", "--json"]
    yield "stdin", ["verify", "-"]
    yield "data", ["run", "-q", "--workers", "0", "--data", file, "-o",
                   os.path.join(work, "data.h5"), os.path.join(work, "data.yaml")]
    yield "beside", ["run", "-q", "--workers", "0", "--against", file, "-o",
                     os.path.join(work, "beside.h5"), os.path.join(work, "beside.yaml")]
    yield "suite", ["plan", file]
    yield "merge", ["merge", file]
    yield "status", ["status", file]
    yield "gpu", ["gpu-check", "--beside", file, good]


def faults(run, seconds, peak, left):
    out, err = run.stdout, run.stderr.decode("utf8", "replace")
    if run.returncode not in CODES:
        yield f"exit code {run.returncode}"
    alone = os.getloadavg()[0] < 1.5 * os.cpu_count()  # else the wait is for other programs
    if seconds > SECONDS and (alone or run.cpu > SECONDS / 2):
        yield f"{seconds:.1f} s"
    if peak > BYTES:
        yield f"{peak >> 20} MiB"
    words = [os.path.basename(x) for x in run.args]
    if words[0] == "report" and "--against" not in words and words[-1].startswith("result_"):
        whole = run.returncode == 4 and "run a suite with protocol: paired" in err
        if run.returncode not in (0, 3) and not whole:
            yield f"exit code {run.returncode} for a damaged result, expected 3"
    lines = [x for x in err.split("\n") if x]
    said = [x for x in lines if x.startswith("qualm ")]
    if run.returncode in (2, 3) and len(said) != 1:
        yield f"{len(said)} lines of failure"
    if PYTHON.search(err):
        yield f"Python's word {PYTHON.search(err).group()!r}"
    if any("HDF5-DIAG" in x or "Sanitizer" in x or "runtime error" in x or
           "Traceback" in x for x in lines):
        yield "diagnostics of a library"
    if len(lines) > 12:
        yield f"{len(lines)} lines on stderr"
    text = out.decode("utf8", "replace") + err
    control = re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    if control:
        yield f"control character {control.group()!r}"
    if left:
        yield f"left {left}"


def limit():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def call(qualm, words, work, tmp, stdin=subprocess.DEVNULL):
    """The finished process, its seconds and the peak of its largest process in bytes."""
    start = time.monotonic()
    env = {**os.environ, "TMPDIR": tmp, "OMP_NUM_THREADS": "2"}
    with open(os.path.join(work, "out"), "w+b") as out, \
            open(os.path.join(work, "err"), "w+b") as err:
        p = subprocess.Popen([qualm, *words], stdout=out, stderr=err, stdin=stdin, cwd=work,
                             env=env, preexec_fn=limit, start_new_session=True)
        while True:
            pid, status, usage = os.wait4(p.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() - start > 9 * SECONDS:
                os.killpg(p.pid, 9)
            time.sleep(0.002)
        p.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        done = subprocess.CompletedProcess(words, p.returncode, out.read(1 << 20),
                                           err.read(1 << 20))
    done.cpu = usage.ru_utime + usage.ru_stime
    return done, time.monotonic() - start, usage.ru_maxrss << 10


def main():
    qualm, folder = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    part, of = (int(x) for x in sys.argv[3:5]) if len(sys.argv) > 4 else (0, 1)
    only = sys.argv[5] if len(sys.argv) > 5 else None
    work, tmp = os.path.join(folder, "work"), os.path.join(folder, "tmp")
    os.makedirs(work, exist_ok=True)
    os.makedirs(tmp, exist_ok=True)
    good = os.path.join(folder, "seeds", "results.h5")
    with open(os.path.join(work, "data.yaml"), "w") as f:
        f.write(SUITE)
    files = sorted(x for x in os.listdir(folder) if not os.path.isdir(os.path.join(folder, x)))
    with open(os.path.join(work, "beside.yaml"), "w") as f:
        f.write(PAIRED)
    number = bad = ran = 0
    pages = {}  # exit code of the page without figures, by file
    codes, slowest, largest = {}, (0, ""), (0, "")
    for file in files:
        for name, words in commands(os.path.join(folder, file), good, work):
            number += 1
            if number % of != part or (only and only != name):
                continue
            path = os.path.join(folder, file)
            with open(path if words[-1] == "-" and os.path.isfile(path) else os.devnull) as stdin:
                run, seconds, peak = call(qualm, words, work, tmp, stdin)
            ran += 1
            codes[run.returncode] = codes.get(run.returncode, 0) + 1
            slowest, largest = max(slowest, (seconds, f"{name} {file}")), max(
                largest, (peak, f"{name} {file}"))
            parts = [x for x in os.listdir(work) if ".part" in x]
            found = [*faults(run, seconds, peak, os.listdir(tmp) + parts)]
            if name == "report":
                pages[file] = run.returncode
            if name in ("figures", "plot") and file.startswith("result_") and \
                    run.returncode != pages.get(file, run.returncode) and run.returncode != 4:
                found.append(f"exit code {run.returncode}, without figures {pages[file]}")
            for fault in found:
                bad += 1
                print(f"{name} {file}: {fault}, {run.cpu:.1f} s of CPU: {run.stderr[-300:]!r}",
                      flush=True)
            for x in parts:
                os.remove(os.path.join(work, x))
            for x in os.listdir(tmp):
                subprocess.run(["rm", "-rf", os.path.join(tmp, x)], check=True)
    print(f"{ran} calls over {len(files)} files, exit codes {dict(sorted(codes.items()))}; slowest "
          f"{slowest[0]:.1f} s ({slowest[1]}), largest {largest[0] >> 20} MiB ({largest[1]}); "
          f"{bad} faults")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
