#!/usr/bin/env bats
# state_relatives.bats - Tests state on checkpoints of Adafactor and of RMSprop's forms.
load ../../support/cli_common

setup() {
    cd "$BATS_TEST_TMPDIR"
    "$PYTHON" - "$ROOT/tests/support" <<'P'
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from torch_pickle import Tensor, write
rng, x = np.random.default_rng(3), {}

def t(*shape):
    x[len(x)] = rng.standard_normal(shape).astype("f4") ** 2 + 1
    return Tensor(len(x) - 1, x[len(x) - 1])

def save(name, states, options):
    x.clear()
    model = {"w": t(4, 6), "v": t(1, 5), "b": t(3)}
    state = {i: states(p.x.shape, i) for i, p in enumerate(model.values())}
    groups = [{"params": [0, 1, 2], "param_names": [*model], **options}]
    write(name, {"model": model, "optimizer": {"state": state, "param_groups": groups}}, x)

def adafactor(shape, i):
    if len(shape) < 2:
        return {"step": 7, "variance": t(*shape)}
    return {"step": 7, "row_var": t(shape[0], 1), "col_var": t(1, shape[1])}

def transformers(shape, i):
    if len(shape) < 2:
        return {"step": 7, "exp_avg_sq": t(*shape), "RMS": 1.5}
    return {"step": 7, "exp_avg_sq_row": t(shape[0]), "exp_avg_sq_col": t(shape[1]), "RMS": 1.5}

both = {"lr": 0.5, "weight_decay": 0.25}
save("torch.pt", adafactor, {**both, "eps": (None, 0.125), "d": 2.0, "beta2_decay": -0.75,
                             "maximize": True, "foreach": None})
save("eps.pt", adafactor, {**both, "eps": (0.0625, 0.125), "d": 2.0, "beta2_decay": -0.75,
                           "maximize": False})
save("hf.pt", transformers, {**both, "eps": (0.0625, 0.125), "clip_threshold": 2.0,
                             "decay_rate": -0.75, "beta1": None, "scale_parameter": False,
                             "relative_step": False, "warmup_init": False})
for name, momentum, centered in (("m", 0.5, False), ("c", 0, True), ("mc", 0.5, True),
                                 ("none", 0, False)):
    def rmsprop(shape, i):
        found = {"step": 7, "square_avg": t(*shape)}
        found |= {"momentum_buffer": t(*shape)} if momentum else {}
        return found | ({"grad_avg": t(*shape)} if centered else {})
    save(f"rms_{name}.pt", rmsprop, {**both, "alpha": 0.75, "eps": 0.125, "momentum": momentum,
                                     "centered": centered, "maximize": False})
save("sgd.pt", lambda shape, i: {"momentum_buffer": t(*shape)},
     {**both, "momentum": 0.5, "dampening": 0, "nesterov": False, "maximize": False})
save("muon.pt", lambda shape, i: {"momentum_buffer": t(*shape)},
     {**both, "momentum": 0.5, "nesterov": True, "eps": 1e-7, "ns_steps": 5})
P
}

recipes() {
    json_value "sorted({t['recipe'] for t in d['tensors']}), {t['step'] for t in d['tensors']}" \
        state show "$1"
}

@test "Adafactor of PyTorch and of transformers is read with its hyper-parameters" {
    run -0 recipes torch.pt
    same=weight_decay=0.25,clip=2,beta2_decay=-0.75
    [ "$output" = "['adafactor_torch,lr=0.5,eps2=0.125,$same,maximize=1'] {7}" ]
    run -0 recipes eps.pt
    [ "$output" = "['adafactor_torch,lr=0.5,eps1=0.0625,eps2=0.125,$same'] {7}" ]
    run -0 recipes hf.pt
    [ "$output" = "['adafactor_hf,lr=0.5,eps1=0.0625,eps2=0.125,$same,relative_step=0,scale_parameter=0'] {7}" ]
    for name in torch hf; do
        "$QUALM" state step $name.pt $name.h5 --steps 1 -q
        "$QUALM" state convert $name.pt $name.safetensors --recipe adafactor_$name -q
    done
}

@test "a factor has PyTorch's numbers" {
    "$QUALM" state convert eps.pt eps.h5 --recipe adafactor_torch,eps1=0.0625 -q
    "$QUALM" import -q eps.pt -o eps.npz >/dev/null
    "$PYTHON" - <<'P'
import h5py
import numpy as np
f, z, found = h5py.File("eps.h5"), np.load("eps.npz"), []
f.visititems(lambda name, o: found.append(o[...].ravel()) if isinstance(o, h5py.Dataset) else None)
for key in ("w/row_var", "w/col_var", "v/row_var", "v/col_var", "b/variance"):
    assert any(x.dtype == "f4" and np.array_equal(x, z[key].ravel()) for x in found), key
P
}

@test "RMSprop without momentum or centering is read, and its absent states are zeros" {
    same=beta2=0.75,eps=0.125,weight_decay=0.25
    local -A want=([m]="momentum=0.5,centered=0" [c]="momentum=0" [mc]="momentum=0.5")
    for name in m c mc; do
        run -0 recipes rms_$name.pt
        [ "$output" = "['rmsprop_full_f32,lr=0.5,$same,${want[$name]}'] {7}" ]
    done
    run -0 recipes rms_none.pt
    [ "$output" = "['rmsprop_f32,lr=0.5,$same'] {7}" ]
    run -0 "$QUALM" state show rms_m.pt
    [[ $output == *"grad_avg: not in the file, whose options leave it out: zeros (3 tensors)"* ]]
    run -0 "$QUALM" state show rms_mc.pt
    [[ $output != *"not in the file"* ]]
}

@test "where no state of the file is one of the recipe, steps count from 0; else that is said" {
    run -0 "$QUALM" state convert rms_none.pt a.h5 --recipe adamw_f32
    [[ $output == *"steps: counted from 0, for no state of the file is one of adamw (3 tensors)"* ]]
    run -0 recipes a.h5
    [[ $output == *"{0}" ]]
    "$QUALM" state convert -q sgd.pt b.h5 --recipe adamw_f32
    run -0 recipes b.h5
    [[ $output == *"{0}" ]]
    "$QUALM" state make --recipe lion_f32 --shapes 8 --steps 5 c.h5 -q
    run -0 "$QUALM" state convert c.h5 d.h5 --recipe adamw_f32
    [[ $output == *"exp_avg_sq: not in the file, starts anew; the count of steps stays, so that a "* ]]
    run -0 recipes d.h5
    [[ $output == *"{5}" ]]
}

@test "analyze --recipe names whose momentum it is, and what it measures" {
    fails_with 4 "made by rmsprop_full, the variant's rule is rmsprop_bnb, of family rmsprop" \
        analyze rms_m.pt --recipe rmsprop8_bnb
    fails_with 4 "the run was made by muon" analyze muon.pt --recipe sgdm_f32
    fails_with 4 "the run was made by sgdm, the variant's rule is momentum_bnb" \
        analyze sgd.pt --recipe sgdm8_bnb
    fails_with 4 "(a parameter with momentum: exp_avg, state1 or momentum_buffer), of which" \
        analyze rms_none.pt --recipe rmsprop8_bnb
}
