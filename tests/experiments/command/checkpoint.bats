#!/usr/bin/env bats
# checkpoint.bats - Tests import, analyze, run --data, size and state on PyTorch's checkpoints.
load ../../support/cli_common

SAMPLES=$ROOT/tests/experiments/readers/checkpoints

setup() { dir=$(mktemp -d); }

teardown() { rm -rf "$dir"; }

@test "import: NumPy alone reads what torch holds, in every container" {
    long 4
    for sample in zip.pt legacy.pt tensors.pth ao4.pt bnb8.pt distributed indexed; do
        for ending in npz safetensors h5; do
            qualm import -q "$SAMPLES/$sample" --out "$dir/out.$ending" >/dev/null
            "$PYTHON" - "$SAMPLES/expected.npz" "$sample" "$dir/out.$ending" <<'P'
import json, struct, sys
import h5py
import numpy as np
path = sys.argv[3]
got = {}
if path.endswith("npz"):
    got = dict(np.load(path))
elif path.endswith("h5"):
    with h5py.File(path) as f:
        f.visititems(lambda k, v: got.update({k: v[()]}) if isinstance(v, h5py.Dataset) else None)
else:
    data = open(path, "rb").read()
    n, = struct.unpack("<Q", data[:8])
    types = {"F32": "f4", "F64": "f8", "I64": "i8", "BOOL": "?"}
    for k, e in json.loads(data[8:8 + n]).items():
        if k != "__metadata__":
            a, b = e["data_offsets"]
            got[k] = np.frombuffer(data[8 + n + a:8 + n + b], types[e["dtype"]]).reshape(e["shape"])
of = sys.argv[2] + "|"
want = {k[len(of):]: v for k, v in np.load(sys.argv[1]).items() if k.startswith(of)}
assert want and set(want) <= set(got), set(want) - set(got)
for k, v in want.items():
    assert np.array_equal(got[k], v, equal_nan=v.dtype.kind == "f"), k
P
            rm "$dir/out.$ending"
        done
    done
}

@test "import: hyper-parameters, a filter, several files, and what fails" {
    zip=$SAMPLES/zip.pt
    [ "$(json_value 'd["hyper"]["0.weight"]["lr"]' import "$zip" -o "$dir/a.npz")" = 0.25 ]
    [ "$(json_value 'len(d["tensors"])' import "$zip" --tensor 'exp_avg$' -o "$dir/a.npz")" = 2 ]
    json_on_stdout import "$zip" -o "$dir/a.h5" --json
    qualm import -q "$SAMPLES/nested.pt" "$SAMPLES/tensors.pth" -o "$dir/both.npz" >/dev/null
    fails_with 2 "stands in" import "$SAMPLES/zip.pt" "$SAMPLES/legacy.pt" -o "$dir/b.npz"
    fails_with 2 "expected an ending" import "$SAMPLES/zip.pt" -o "$dir/b.pt"
    fails_with 4 "no tensor matches" import "$SAMPLES/zip.pt" --tensor nothing -o "$dir/b.npz"
    fails_with 3 "cannot open" import "$dir/absent.pt" -o "$dir/b.npz"
    [ ! -e "$dir/b.npz" ]
}

@test "a pickle that calls a function is refused by its name, and runs nothing" {
    cd "$dir"
    "$PYTHON" - <<'P'
import os, pickle, zipfile
class Evil:
    def __reduce__(self):
        return os.system, ("touch owned",)
with zipfile.ZipFile("evil.pt", "w") as z:
    z.writestr("a/data.pkl", pickle.dumps({"w": Evil()}, 2))
P
    fails_with 3 "the pickle names 'posix.system'" import evil.pt -o a.npz
    fails_with 3 "the pickle names 'posix.system'" analyze evil.pt
    fails_with 3 "the pickle names 'posix.system'" state show evil.pt
    [ ! -e owned ] && [ ! -e a.npz ]
}

@test "shards: a missing one, an absent tensor, a path out of the folder: one line" {
    cp -r "$SAMPLES/distributed" "$SAMPLES/indexed" "$dir"
    mv "$dir/distributed/__0_0.distcp" "$dir/elsewhere"
    fails_with 3 "shard '__0_0.distcp'" import "$dir/distributed" -o "$dir/a.npz"
    head -c 20000 "$dir/elsewhere" >"$dir/distributed/__0_0.distcp"
    fails_with 3 "has 20000 bytes" import "$dir/distributed" -o "$dir/a.npz"
    index=$dir/indexed/pytorch_model.bin.index.json
    sed -i 's/"y"/"q"/' "$index"
    fails_with 3 "'q' is not in 'b.bin'" import "$dir/indexed" -o "$dir/a.npz"
    sed -i 's|b.bin|../b.bin|' "$index"
    fails_with 3 "names the file '../b.bin'" import "$index" -o "$dir/a.npz"
    rm "$index"
    fails_with 3 "is a directory" import "$dir/indexed" -o "$dir/a.npz"
}

@test "analyze, size, run and state take checkpoints; bitsandbytes' names are slots" {
    [[ $(qualm analyze "$SAMPLES/bnb8.pt" --tensor state2 -V adamw8_bnb,exp_avg_sq.min_numel=0) == \
        *"0/state2"*"exp_avg_sq"* ]]
    [[ $(qualm size --shapes "$SAMPLES/zip.pt" --variant adamw4_ao) == *"params   27"* ]]
    cat >"$dir/mine.yaml" <<'Y'
variant: adamw4_ao
source: "states:*"
coupling: oneshot
slot: exp_avg
Y
    qualm run -q --data "$SAMPLES/bnb8.pt" "$dir/mine.yaml" --out "$dir/r.h5" >/dev/null
    qualm state convert "$SAMPLES/zip.pt" "$dir/a.safetensors" --recipe adamw8_bnb >/dev/null
    qualm state convert "$SAMPLES/zip.pt" "$dir/f.safetensors" >/dev/null
    [ "$(json_value 'd["tensors"][0]["recipe"]' state show "$dir/f.safetensors")" = \
        adamw_f32,lr=0.25,beta1=0.5,beta2=0.75 ]
    [ "$(json_value 'd["digest"]' state show "$dir/f.safetensors")" = \
        "$(json_value 'd["digest"]' state show "$SAMPLES/legacy.pt")" ]
    fails_with 3 "no parameter" state show "$SAMPLES/sgd.pt"
    fails_with 3 "has no momentum_buffer, which sgdm_f32" state show "$SAMPLES/zip.pt" --as sgdm_f32
}

@test "analyze --recipe: files that lack a step, states or a gradient say so" {
    cd "$dir"
    qualm state convert -q "$SAMPLES/zip.pt" f.safetensors --recipe adamw_f32 >/dev/null
    qualm state convert -q f.safetensors f.h5 --recipe adamw_f32 >/dev/null
    qualm import -q f.h5 -o f.npz >/dev/null
    for file in f.safetensors f.h5 f.npz; do
        fails_with 4 "does not say step, which the next update needs" \
            analyze $file --recipe adamw_f32
    done
    fails_with 4 "the file's states are exp_avg, exp_avg_sq, those of rule momentum_bnb are \
momentum_buffer" analyze "$SAMPLES/zip.pt" --recipe sgdm8_bnb
    qualm state convert -q f.h5 m.h5 --recipe lion_f32 >/dev/null
    fails_with 4 "a checkpoint has no gradient, which the next update by rule lion needs; \`qualm \
analyze\` without --recipe" analyze m.h5 --recipe lion_f32
}

@test "conjugate and negative views, arrays of NumPy, lists in states; the others are left out" {
    cd "$dir"
    "$PYTHON" - "$ROOT/tests/support" <<'P'
import collections, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from torch_pickle import Tensor, write
x = np.array([1, 2, 3, -4], "f4")
def f(**signs): return Tensor(0, x[:2], **signs)
def c(**signs): return Tensor(0, x.view("c8"), **signs)
state = {"exp_avg": f(), "old": [f(neg=True), (np.array([7], "f4"), None)]}
saved = {
    "conj": c(conj=True), "neg": f(neg=True), "both": c(conj=True, neg=True),
    "odd": f(other=True), "arr": np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3)),
    "none": np.zeros((0, 2)), "objects": np.array([None]), (1, 2): f(),
    "deque": collections.deque([f()]), "step": np.float64(2.5),
    "opt": {"state": {0: state}, "param_groups": [{"params": [0]}]}}
for protocol in 2, 4, 5:
    write(f"p{protocol}.pt", saved, {0: x}, protocol)
P
    for protocol in 2 4 5; do
        said=$(qualm import p$protocol.pt -o out.npz 2>&1 >/dev/null)
        [[ $said == *"left out: odd (marks of a view other than conj and neg)"* ]]
        [[ $said == *"(key 7, no text) (a tensor where none is read); complex numbers in "*$'\n'* ]]
        [ "$(json_value 'list(d["left_out"]) == ["p'$protocol'.pt"]' import p$protocol.pt \
            -o out.npz)" = True ]
        "$PYTHON" - <<'P'
import numpy as np
z = dict(np.load("out.npz"))
want = {"conj": [[1, -2], [3, 4]], "neg": [-1, -2], "both": [[-1, 2], [-3, -4]],
        "arr": [[0, 1, 2], [3, 4, 5]], "none": np.zeros((0, 2)), "deque/0": [1, 2], "step": 2.5,
        "0/exp_avg": [1, 2], "0/old.0": [-1, -2], "0/old.1.0": [7]}
assert set(z) == set(want), set(z) ^ set(want)
for k, v in want.items():
    assert np.array_equal(z[k], v), (k, z[k])
assert z["arr"].dtype == np.int16
P
    done
    [[ $(qualm size --shapes p2.pt -V adamw4_ao 2>&1) == *"p2.pt: left out: odd"* ]]
}

@test "a tensor that is not read costs no other; shapes in a wrapper join groups" {
    local file
    for file in expand:mask quantized:q float4:a quint4x2:a; do
        run -0 "$QUALM" import "$SAMPLES/${file%:*}.pt" --out "$dir/x.npz"
        [[ $output == *"left out: ${file#*:} ("* && $output == *$'\nw '* ]]
    done
    run -0 "$QUALM" import "$SAMPLES/groups.pt" --out "$dir/x.npz"
    [[ $output != *"left out"* ]]
    for file in "0.weight/state1 .*2x3" "1.weight/state1 .*4x2" "0.bias/state1 .* 2" \
        "1.bias/state1 .* 4"; do
        grep -Eq "^$file$" <<<"$output"
    done
}

@test "import: a name that is not UTF-8 is refused, and shown without its bytes" {
    "$PYTHON" - "$BATS_TEST_TMPDIR/p.pt" <<'END'
import struct
import sys
import zipfile
text = lambda s: b"X" + struct.pack("<I", len(s)) + s
storage = b"(" + text(b"storage") + b"ctorch\nFloatStorage\n" + text(b"0") + text(b"cpu") + \
    b"K\x04tQ"
tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + \
    b"K\x00(K\x04t(K\x01t\x89ccollections\nOrderedDict\n)RtR"
with zipfile.ZipFile(sys.argv[1], "w") as z:
    z.writestr("archive/data.pkl", b"\x80\x02}" + text(b"\x9b2JA") + tensor + b"s.")
    z.writestr("archive/byteorder", "little")
    z.writestr("archive/data/0", bytes(16))
    z.writestr("archive/version", "3\n")
END
    for ending in safetensors npz h5; do
        run -3 "$QUALM" import "$BATS_TEST_TMPDIR/p.pt" --out "$BATS_TEST_TMPDIR/o.$ending"
        [[ $output == *"the name '?2JA' is not UTF-8"* ]]
        [ ! -e "$BATS_TEST_TMPDIR/o.$ending" ]
    done
}

@test "import: entries of one name, a method of zip that torch lacks, a shape beyond NumPy" {
    "$PYTHON" - "$ROOT/tests/hostile" "$dir" <<'END'
import sys
import zipfile
sys.path.insert(0, sys.argv[1])
from torch_files import archive, mapping, tensor, text
good = mapping([(text("w"), tensor())])
empty = mapping([(text("w"), tensor((0, 1 << 62), (1, 1)))])
for name, data in (("good", archive(good)),
                   ("two", archive(good, extra=[("a/data.pkl", b"N.")])),
                   ("bzip2", archive(good, method=zipfile.ZIP_BZIP2)),
                   ("empty", archive(empty))):
    open(f"{sys.argv[2]}/{name}.pt", "wb").write(data)
END
    qualm import -q "$dir/good.pt" --out "$dir/good.npz" >/dev/null
    run -3 "$QUALM" import "$dir/two.pt" --out "$dir/two.npz"
    [[ $output == *"two entries have the name 'a/data.pkl'"* ]]
    run -3 "$QUALM" import "$dir/bzip2.pt" --out "$dir/bzip2.npz"
    [[ $output == *"'a/data.pkl' is compressed by method 12 of zip, expected 0 (none) or 8"* ]]
    run -3 "$QUALM" import "$dir/empty.pt" --out "$dir/empty.npz"
    [[ $output == *"of a shape that NumPy does not load"* ]]
    [ ! -e "$dir/empty.npz" ]
    qualm import -q "$dir/empty.pt" --out "$dir/empty.safetensors" >/dev/null
}

@test "of several models that fit the optimizer's own is taken, and the others are said" {
    cd "$dir"
    "$PYTHON" - "$ROOT/tests/support" <<'P'
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from torch_pickle import Tensor, write
x = {k: np.full(2, k, "f2" if k == 4 else "f4") for k in (1, 2, 3, 4)}
x[5] = np.full(3, 5, "f4")
def optimizer(key):
    return {"state": {0: {"exp_avg": Tensor(key, x[key])}}, "param_groups": [{"params": [0]}]}
def model(key): return {"w": Tensor(key, x[key])}
files = {
    "best": {"best_model": model(1), "model": model(2), "optimizer": optimizer(3)},
    "ema": {"ema": model(1), "net": model(2), "optimizer": optimizer(3)},
    "target": {"policy_target": model(1), "policy": model(2), "optim": optimizer(3)},
    "half": {"model": model(4), "master": model(2), "optimizer": optimizer(3)},
    "gan": {"G": model(1), "optG": optimizer(3), "D": model(2), "optD": optimizer(3)},
    "actor": {"optD": optimizer(3), "D_state": model(2), "G_state": model(1), "optG": optimizer(3)},
    "late": {"A": model(1), "B": model(1), "D": model(2), "optD": optimizer(3)},
    "none": {"model": {"a": Tensor(5, x[5])}, "optimizer": optimizer(3)},
    "many": {"model": {"a": Tensor(1, x[1]), "b": Tensor(2, x[2])}, "optimizer": optimizer(3)},
}
for name, saved in files.items():
    write(name + ".pt", saved, x)
P
    qualm import late.pt -o late.npz >/dev/null 2>said
    [ "$(grep -c "would fit" said)" = 0 ]
    "$PYTHON" -c "import numpy as n; assert n.load('late.npz')['w/param'].tolist() == [2, 2]"
    for name in best ema target half; do
        qualm import $name.pt -o $name.npz >/dev/null 2>said
        grep -q "proof of the model that the optimizer trains (.* would fit as well)" said
        "$PYTHON" -c "import numpy as n; assert n.load('$name.npz')['w/param'].tolist() == [2, 2]"
    done
    for name in gan actor; do
        qualm import $name.pt -o $name.npz >/dev/null 2>said
        [ "$(grep -c "would fit" said)" = 0 ]
        "$PYTHON" -c "import numpy as n; x = n.load('$name.npz'); \
            assert x['optD/w/param'].tolist() == [2, 2] and x['optG/w/param'].tolist() == [1, 1]"
    done
    qualm import none.pt -o none.npz 2>&1 >/dev/null |
        grep -q "names of the parameters (no model in the file fits the optimizer)"
    qualm import many.pt -o many.npz 2>&1 >/dev/null | grep -q \
        "names of the parameters (the model 'model' fits the optimizer 'optimizer' in several ways;"
}

# says NAME WORDS: what import leaves out of NAME.pt has the words, or is nothing where they are "".
says() {
    qualm import "$1.pt" -o out.npz >/dev/null 2>said
    if [ -n "$2" ]; then grep -qF "$2" said; else [ "$(grep -c "left out" said)" = 0 ]; fi
}

# has NAME...: the last import wrote arrays of these names.
has() {
    "$PYTHON" -c "import sys, numpy as n; assert {*sys.argv[1:]} <= {*n.load('out.npz')}" "$@"
}

@test "a part of a model is joined only where its shapes leave one way" {
    cd "$dir"
    write_models <<'L'
scalar model=s:-,a:66,b:66,c:66 opt@66,66,-
scalar_alone model=s:-,a:66 opt@66,-
lone model=a:66,b:67,c:68 opt@67
buffer model=mask:8,e:38,w:88,b:8 opt@8,38,88
two model=a:23,b:32,c:4 opt_a@23,32 opt_b@4
L
    says scalar "names of the parameters (the model 'model' fits the optimizer 'opt' in several"
    has 0/exp_avg 2/exp_avg
    says scalar_alone "names of the parameters (no model in the file fits the optimizer)"
    has 0/exp_avg 1/exp_avg
    says lone ""
    has b/exp_avg b/param
    says buffer "names of the parameters (the model 'model' fits the optimizer 'opt' in several"
    has 0/exp_avg mask
    says two ""
    has opt_a/a/exp_avg opt_a/b/exp_avg opt_b/c/exp_avg
}

@test "no model is guessed where several fit an optimizer and no key decides" {
    cd "$dir"
    write_models <<'L'
probe backbone=0:44,1:4,2:44,3:4 probe=w:44,b:4 optimizer@44,4
part unet=0:44,1:44 vae=0:44,1:47 optimizer@44
own vae=0:44,1:47 unet=0:44,1:44 optimizer_unet@44
misfit G=0:33 D=0:44 optG@44
student student=0:44,1:44,2:44 teacher=0:44,1:44 optimizer@44,44
equal a=0:44 b=0:44 optimizer@44
own_part vae=0:44 unet=0:47,1:44 unet_optimizer@44
L
    says probe "(several models fit the optimizer 'optimizer': backbone, probe)"
    has 0/exp_avg 1/exp_avg
    says part "names of the parameters (several models fit the optimizer 'optimizer': unet, vae)"
    says own "(the model 'unet' fits the optimizer 'optimizer_unet' in several ways;"
    has 0/exp_avg
    says misfit "(the model 'G' does not fit the optimizer 'optG')"
    says student "(the model 'student' fits the optimizer 'optimizer' in several ways;"
    says equal "names of the parameters (several models fit the optimizer 'optimizer': a, b)"
    says own_part ""
    has 1/exp_avg 1/param
}

@test "a tensor that one optimizer has is no other optimizer's" {
    cd "$dir"
    write_models <<'L'
after model=w:34,b:3 opt@34,3 opt_center@3
before model=w:34,b:3 opt_center@3 opt@34,3
both model=w:34,b:3 opt1@34,3 opt2@34,3
L
    for name in after before; do
        says $name "names of the parameters (the optimizers 'opt_center' and 'opt' both fit the"
        has opt/w/exp_avg opt/b/exp_avg opt/b/param opt_center/0/exp_avg
    done
    says both "(the optimizers 'opt1' and 'opt2' both fit the tensor 'w')"
    has opt1/0/exp_avg opt2/0/exp_avg
}

@test "names that are joined by order alone are said to be, in one line" {
    cd "$dir"
    write_models <<'L'
plain model=h.0.weight:44,h.0.bias:4,h.1.weight:44,h.1.bias:4 opt@44,4,44,4
numbers model=0.weight:44,1.weight:44,2.weight:44 opt@44,44,44
groups model=w:44,v:44,b:4 opt@44,44;4
part model=e:94,h:44,g:44,b:94 opt@94,94
letters model=k:44,o:44,q:44,v:44 opt@44,44,44,44
named model=a.weight:44,b.bias:45 opt@44,45
buffer model=w:44,b:4,c:4 opt@44,4,4
loss model=w:44,mask:5 opt@5;44
extra model=w:44,b:4 opt@44,4,4
renumbered model=0.w:44,1.w:44,10.w:44,2.w:44 opt@44,44,44,44
L
    says named ""
    [ "$(grep -c joined said)" = 0 ]
    for name in plain:4:4 numbers:3:3 groups:2:3 part:2:2 letters:4:4 buffer:2:3; do
        says ${name%%:*} ""
        want="names are joined by order: $(sed 's/:/ of /' <<<"${name#*:}") parameters"
        [ "$(grep -c joined said)" = 1 ]
        grep -qF "${name%%:*}.pt: $want follow the order of the model within their param_group" said
        grep -qF "the optimizer is given model.named_parameters()" said
    done
    has w/exp_avg b/param c/exp_avg
    says letters ""
    has k/exp_avg v/param
    says loss ""
    [[ $(<said) == *"names are joined by shape: no two of 2 parameters are alike, but a buffer \
could be taken for one"* ]]
    says extra "has 3 parameters, and the model 'model' 2 tensors that may be some)"
    has 0/exp_avg 2/exp_avg w
    says renumbered "names of the parameters (the model 'model' fits the optimizer 'opt' in several"
    has 0/exp_avg 3/exp_avg
}

@test "what joins names by order alone stands in every output" {
    long 2
    cd "$dir"
    write_models <<'L'
plain model=w:44,v:44 opt@44,44
L
    want="names are joined by order: 2 of 2 parameters follow the order of the model within"
    [[ $(json_value 'd["joined"]["plain.pt"]' import plain.pt -o out.h5) == "$want"* ]]
    qualm import -q plain.pt -o out.safetensors >/dev/null
    for file in out.h5 out.safetensors; do
        [[ $(qualm analyze $file -V adamw8_bnb 2>&1 >/dev/null) == "$file: plain.pt: $want"* ]]
    done
    for words in "" "-V adamw4_ao"; do # where nothing matches the error stands alone
        run -4 "$QUALM" analyze plain.pt --tensor nothinghere $words
        [[ $output == "qualm analyze: no tensor matches 'nothinghere'"* && $output != *$'\n'* ]]
    done
    [[ $(json_value 'd["remark"]' size --shapes plain.pt -V adamw4_ao) == "$want"* ]]
    [[ $(qualm size --shapes plain.pt -V adamw4_ao 2>&1 >/dev/null) == "plain.pt: $want"* ]]
    printf "%s\n" "variant: adamw4_ao" "source: states:*" "coupling: oneshot" \
        "slot: exp_avg" >s.yaml
    [[ $(qualm run --data plain.pt s.yaml --out r.h5 2>&1 >/dev/null) == *"plain.pt: $want"* ]]
    "$PYTHON" -c 'import h5py, sys; r = h5py.File("r.h5")["suite"].attrs["data_remarks"].decode()
assert r.startswith("plain.pt: " + sys.argv[1]), r' "$want"
    qualm report -q r.h5 --out page.html >/dev/null && grep -qF "Data: plain.pt: $want" page.html
    [[ $(qualm state show plain.pt --as lion_f32 2>&1 >/dev/null) == "plain.pt: $want"* ]]
    [[ $(json_value 'd["notes"][0]["note"]' state show plain.pt --as lion_f32) == \
        "plain.pt: $want"* ]]
}

@test "AdEMAMix of bitsandbytes: blocks of each fast average, and names" {
    cd "$dir"
    "$PYTHON" - "$ROOT/tests/support" <<'P'
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from torch_pickle import Tensor, write
r = np.random.default_rng(3)
n = (20, 30)  # 600 = 2 blocks of 256 and one of 88
x = {0: r.normal(size=n).astype("f4"), 1: r.integers(0, 256, (2, *n)).astype("u1"),
     2: r.integers(0, 256, n).astype("u1"), 3: r.normal(size=256).astype("f4"),
     4: r.normal(size=(2, 3)).astype("f4"), 5: r.normal(size=3).astype("f4")}
t = {k: Tensor(k, v) for k, v in x.items()}
state = {"step": 3, "state1": t[1], "state2": t[2], "qmap1": t[3], "qmap2": t[3],
         "absmax1": t[4], "absmax2": t[5]}
saved = {"model": {"w": t[0]},
         "optimizer": {"state": {0: state}, "param_groups": [{"params": [0]}]}}
write("a.pt", saved, x)
block = np.arange(600) // 256
one = lambda codes, scales: (x[3][codes.ravel()] * scales[block]).reshape(n)
np.savez("want.npz", **{"w/state1": np.stack([one(x[1][k], x[4][k]) for k in (0, 1)]),
                        "w/state2": one(x[2], x[5]), "w/param": x[0]})
P
    qualm import -q a.pt -o a.npz >/dev/null
    "$PYTHON" -c "import numpy as n; a, w = n.load('a.npz'), n.load('want.npz'); \
        assert all(n.array_equal(a[k], w[k]) for k in w.files)"
}

@test "the flat form of an optimizer is read as states of parameters with hyper-parameters" {
    cd "$dir"
    "$PYTHON" - "$ROOT/tests/support" <<'P'
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from torch_pickle import Tensor, write
names = ["a.weight", "b.0.gain", "a.state.w"]
x = {k: np.full(2, k, "f4") for k in range(9)}
flat = {}
for i, name in enumerate(names):
    flat[f"state.{name}.exp_avg"] = Tensor(i + 3, x[i + 3])
    flat[f"state.{name}.deep.0.factor"] = Tensor(i + 6, x[i + 6])
    flat[f"param_groups.{name}.lr"] = 0.5 / (i + 1)
    flat[f"param_groups.{name}.betas"] = (0.5, 0.25 * i)
model = {name: Tensor(i, x[i]) for i, name in enumerate(names)}
lone = {"state.gate": Tensor(0, x[0]), "param_groups.x": 3, "state.b.w": Tensor(1, x[1])}
files = {"beside": {"model": model, "optim": flat}, "torchtitan": {**model, "optimizer": flat},
         "alone": flat, "one": {**model, **flat}, "inside": {"model": model, **flat},
         "no_optimizer": lone,
         "wrapped": {"m": {"module." + k: v for k, v in model.items()}, "optim": flat}}
for name, saved in files.items():
    write(name + ".pt", saved, x)
P
    for name in beside torchtitan alone one inside wrapped; do
        qualm import -q $name.pt -o out.npz >/dev/null 2>said
        [ ! -s said ]
        "$PYTHON" - $name <<'P'
import sys
import numpy as np
z = dict(np.load("out.npz"))
before = "module." * (sys.argv[1] == "wrapped")
want = {}
for i, name in enumerate(["a.weight", "b.0.gain", "a.state.w"]):
    name = before + name
    want |= {name + "/exp_avg": i + 3, name + "/deep.0.factor": i + 6}
    want |= {} if sys.argv[1] == "alone" else {name + "/param": i}
assert set(z) == set(want), set(z) ^ set(want)
assert all((z[k] == want[k]).all() for k in want)
P
        [ "$(json_value '[*d["hyper"].values()][1]' import $name.pt -o out.npz)" = \
            "{'lr': 0.25, 'beta1': 0.5, 'beta2': 0.25}" ]
    done
    run -0 "$QUALM" import no_optimizer.pt -o out.npz
    [[ $output == *"state.b.w "*"state.gate "* || $output == *"state.gate "*"state.b.w "* ]]
}

@test "names that an optimizer gives its parameters join them to the model, in any order" {
    cd "$dir"
    "$PYTHON" - "$ROOT/tests/support" <<'P'
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from torch_pickle import Tensor, write
x = {k: np.full((2, 2) if k % 2 else 2, k, "f4") for k in range(8)}
t = {k: Tensor(k, v) for k, v in x.items()}
model = {"w": t[1], "v": t[3], "b": t[2]}
optimizer = {"state": {0: {"exp_avg": t[4]}, 1: {"exp_avg": t[5]}, 2: {"exp_avg": t[7]}},
             "param_groups": [{"params": [0, 1], "param_names": ["b", "v"]},
                              {"params": [2], "param_names": ["w"]}]}
other = {k: t[1 if k == "b" else 2] for k in model}
write("a.pt", {"model": model, "optimizer": optimizer}, x)
write("two.pt", {"x": other, "y": model, "optimizer": optimizer}, x)
write("none.pt", {"model": {"u": t[1]}, "optimizer": optimizer}, x)
write("equal.pt", {"x": model, "y": dict(model), "optimizer": optimizer}, x)
P
    qualm import equal.pt -o equal.npz 2>&1 >/dev/null |
        grep -q "the parameters' own values (several models fit the optimizer 'optimizer': x, y)"
    "$PYTHON" -c "import numpy as n; z = n.load('equal.npz'); \
        assert (z['w/exp_avg'] == 7).all() and (z['y/w'] == 1).all() and 'w/param' not in z"
    for name in a two none; do
        qualm import -q $name.pt -o $name.npz >/dev/null 2>said
        [ ! -s said ]
        "$PYTHON" - $name <<'P'
import sys
import numpy as np
z = np.load(sys.argv[1] + ".npz")
want = {"w/exp_avg": 7, "v/exp_avg": 5, "b/exp_avg": 4}
want |= {} if sys.argv[1] == "none" else {"w/param": 1, "v/param": 3, "b/param": 2}
assert all((z[k] == want[k]).all() for k in want), sys.argv
P
    done
}

@test "import: names that a result cannot hold are refused clearly, or named in left out" {
    cd "$dir"
    "$PYTHON" - "$ROOT/tests/support" <<'P'
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from torch_pickle import Tensor, write
x = {k: np.full(2, k, "f4") for k in range(5)}
t = {k: Tensor(k, v) for k, v in x.items()}
keys = {"esc": "\x1b[31m", "slash": "/", "twice": "a//b", "dot": ".", "end": "a/", "lead": "/a",
        "inner": "a/./b", "taken": "provenance", "above": "v/a"}
for name, key in keys.items():
    write(name + ".pt", {"v": t[0], key: t[1]}, x)
write("left.pt", {"v": t[0], "k" * 3000: t[1], "a\0b": t[2], "a\0c": t[3],
                  "d" * 600: {"e" * 600: t[4]}}, x)
for name in ("slash", "twice", "dot"):
    optimizer = {"state": {0: {"exp_avg": t[0], "exp_avg_sq": t[0], "step": 1}},
                 "param_groups": [{"params": [0], "lr": 0.5}]}
    write(f"trained_{name}.pt", {"model": {keys[name]: t[1]}, "optimizer": optimizer}, x)
for name, key in (("nul", "a\0b"), ("long", "n" * 1100)):
    write(name + ".pt", {"state": {key: {"exp_avg": t[0]}},
                         "param_groups": [{"params": [key]}]}, x)
P
    fails_with 3 "has the control character 0x1b, which a .npz file cannot hold" \
        import esc.pt -o out.npz
    for name in slash twice dot end lead inner taken above; do
        fails_with 3 "$name.pt: an .h5 file cannot hold the name" import $name.pt -o out.h5
        [ ! -e out.h5 ]
        qualm import -q $name.pt -o $name.npz >/dev/null
        qualm import -q $name.pt -o $name.safetensors >/dev/null
    done
    "$PYTHON" -c "import numpy as n; assert {*n.load('lead.npz')} == {'v', '/a'}"
    for ending in npz h5 safetensors; do
        run -0 "$QUALM" import left.pt -o left.$ending
        for word in "(key 1, 3000 bytes, expected at most 1023)" "(key 2, a NUL after 'a')" \
            "(key 3, a NUL after 'a')" "(a name of 1201 bytes, expected at most 1023)"; do
            [[ $output == *"left out: "*"$word"* ]]
        done
    done
    for name in slash twice dot; do
        fails_with 3 "a tensor's name in a state has no empty parts" state show trained_$name.pt
    done
    fails_with 3 "a parameter's name has a NUL after 'a'" import nul.pt -o out.npz
    fails_with 3 "of a parameter has 1100 bytes, expected at most 1023" import long.pt -o out.npz
}

@test "an optimizer without a model in its file: import says that numbers stay the names" {
    cd "$dir"
    write_models <<'L'
pytorch_model model=w:44,v:45
optimizer opt@44,45
both model=w:44,v:45 opt@44,45
L
    for files in "pytorch_model.pt optimizer.pt" optimizer.pt; do
        rm -f a.h5
        # shellcheck disable=SC2086
        "$QUALM" import $files -o a.h5 >out 2>err
        [ "$(grep -c "left out: names of the parameters (no model is in the file: they" err)" = 1 ]
        grep -q "^optimizer.pt: left out" err
        "$PYTHON" -c 'import h5py; print(h5py.File("a.h5").attrs["left_out"])' |
            grep -q "optimizer.pt: names"
    done
    "$QUALM" import both.pt --tensor w -o b.h5 >out 2>err
    ! grep -q "left out: names" err || return 1
}
