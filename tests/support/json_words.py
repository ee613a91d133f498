"""json_words.py - Asks `qualm show` for every key of the JSON that commands print.

Usage: json_words.py ROOT QUALM, in a folder with mine.yaml and paired.yaml.  Keys are those of the
commands below, the slots of every rule, and what the sources give to json_pack.
"""
import glob, json, re, subprocess, sys
root, qualm = sys.argv[1:]
sample = root + "/experiments/data/samples/checkpoint.pt"
commands = f"""run mine.yaml --out mine.h5
run paired.yaml --out paired.h5
plan mine.yaml --cells
compare mine.h5 mine.h5 --all
compare paired.h5 paired.h5
digest mine.h5
list
show nf4
show came8_046
show quad
show ema
show gauss
show dyn:4s/block:128/bisect/mid
analyze {sample} -V adamw4_ao
analyze {sample} -f -Q nf4:4s/block:64/bisect/mid
size --shapes gpt2 -V adamw4_ao,adamw_f32
import {sample} -o x.npz
state make --recipe adamw4_ao --shapes 64x64,300 a.safetensors
state convert a.safetensors b.h5 --recipe adamw8_bnb
optimal --bits 4 --block 128 --dist gauss
check adamw8_bnb --quick
check --specials adamw4_ao
gen adamw4_ao -o g.npz
verify g.npz
conform {root}/tests/golden/sgd.h5
doctor
report mine.h5 -o r.html
show nothing_of_this_name""".split("\n")
words, plain = {}, re.compile(r"[A-Za-z_]\w*")


def collect(v, of):
    for k, item in v.items() if isinstance(v, dict) else ():
        if plain.fullmatch(k):
            words.setdefault(k, of)
        if k not in ("hyper", "left_out", "joined"):  # what is below has names of the file's
            collect(item, of)
    for item in v[:50] if isinstance(v, list) else ():
        collect(item, of)


for c in commands:
    run = subprocess.run([qualm, *c.split(), "--json"], capture_output=True, text=True)
    before = len(words)
    collect(json.loads(run.stdout), c)
    assert len(words) > before or not c.startswith(("run", "check", "doctor")), c
for rule in subprocess.run([qualm, "list", "rules", "--names"], capture_output=True,
                           text=True).stdout.split():
    for meaning in json.loads(subprocess.check_output([qualm, "show", rule, "--json"])):
        words |= {s["slot"]: rule for s in meaning.get("slots", [])}
for path in glob.glob(root + "/experiments/**/*.c", recursive=True):
    for call in re.findall(r'json_pack\(\s*"[^"]*"(.*?)\);', open(path).read(), re.S):
        for k in re.findall(r'(?<=[,\s])"([A-Za-z_]\w*)"(?=\s*[,)])', call):
            words.setdefault(k, path)
assert len(words) > 500, len(words)
bad = [f"{k} ({of})" for k, of in sorted(words.items())
       if subprocess.run([qualm, "show", "--", k], capture_output=True).returncode]
assert not bad, "show does not know: " + ", ".join(bad)
