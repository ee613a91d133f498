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
known = {**both, "betas": (0.5, 0.75), "eps": 0.125, "amsgrad": False}
for name, more in (("lr_none", {"lr": None}), ("eps_text", {"eps": "abc"}),
                   ("one_beta", {"betas": (0.5,)}), ("max_text", {"maximize": "no"}),
                   ("known", {}), ("no_eps", {"eps": ...})):
    group = {k: v for k, v in {**known, **more}.items() if v is not ...}
    save(f"{name}.pt", lambda shape, i: {"step": 7, "exp_avg": t(*shape),
                                         "exp_avg_sq": t(*shape)}, group)
save("sparse.pt", lambda shape, i: {"step": 7, "exp_avg": t(*shape), "exp_avg_sq": t(*shape)},
     {"lr": 0.5, "betas": (0.5, 0.75), "eps": 0.125, "maximize": False})
save("muon.pt", lambda shape, i: {"momentum_buffer": t(*shape)},
     {**both, "momentum": 0.5, "nesterov": True, "eps": 1e-7, "ns_steps": 5})
adam = {**both, "betas": (0.5, 0.75), "eps": 0.125, "decoupled_weight_decay": True,
        "maximize": False, "foreach": None, "capturable": False, "differentiable": False}
for name, more, step in (("nadam", {"momentum_decay": 0.004}, 7), ("radam", {}, 7),
                         ("adam", {"amsgrad": False}, 7), ("beta", {"betas": (1.5, 0.75)}, 7),
                         ("eps_nan", {"eps": float("nan")}, 7), ("early", {}, -3),
                         ("half", {}, 2.5)):
    save(f"{name}.pt", lambda shape, i: {"step": step, "exp_avg": t(*shape),
                                         "exp_avg_sq": t(*shape)}, {**adam, **more})
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

@test "SGD without momentum is no parameter that was never updated; decays that differ are refused" {
    cat >more.py <<'P'
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from torch_pickle import Tensor, write
x = {k: np.full(4, k + 1, "f4") for k in range(6)}
x[4][1], x[5][2] = np.nan, -1
t = {k: Tensor(k, v) for k, v in x.items()}
sgd = {"lr": 0.5, "dampening": 0, "nesterov": False, "weight_decay": 0}
write("mixed.pt", {"model": {"w": t[0], "v": t[1]}, "optimizer": {
    "state": {0: {"momentum_buffer": t[2]}},
    "param_groups": [{"params": [0], "param_names": ["w"], "momentum": 0.5, **sgd},
                     {"params": [1], "param_names": ["v"], "momentum": 0, **sgd}]}}, x)
for name, decoupled in (("apart", True), ("l2", False)):
    write(name + ".pt", {"model": {"w": t[0]}, "optimizer": {
        "state": {0: {"step": 3, "exp_avg": t[2], "exp_avg_sq": t[3], "mu_product": 0.5}},
        "param_groups": [{"params": [0], "param_names": ["w"], "lr": 0.5, "betas": (0.5, 0.75),
                          "eps": 0.125, "weight_decay": 0.25, "momentum_decay": 0.004,
                          "decoupled_weight_decay": decoupled, "maximize": False}]}}, x)
write("odd.pt", {"model": {"w": t[0]}, "optimizer": {
    "state": {0: {"step": 3, "exp_avg": t[4], "exp_avg_sq": t[5]}},
    "param_groups": [{"params": [0], "param_names": ["w"], "lr": 0.5, "betas": (0.5, 0.75),
                      "eps": 0.125, "weight_decay": 0, "amsgrad": False}]}}, x)
write("numbers.pt", {"state": {0: {"step": 3, "exp_avg": t[2], "exp_avg_sq": t[3]}},
                     "param_groups": [{"params": [0], "lr": 0.5, "betas": (0.5, 0.75),
                                       "eps": 0.125, "weight_decay": 0, "amsgrad": False}]}, x)
P
    "$PYTHON" more.py "$ROOT/tests/support"
    run -0 "$QUALM" state show mixed.pt
    [[ $output != *"never updated"* && $output == *"sgdm_f32,lr=0.5,momentum=0"* ]]
    [[ $output == *"momentum_buffer: not in the file, whose options leave it out: zeros (1 tensor)"* ]]
    fails_with 3 "'w': weight_decay is decoupled, in nadam_f32 an L2 term" \
        state show apart.pt --as nadam_f32
    fails_with 3 "'w': weight_decay is an L2 term, in adamw_f32 decoupled" \
        state show l2.pt --as adamw_f32
    run -0 recipes l2.pt
    [[ $output == *nadam_f32* ]]
    fails_with 3 "whose states are whose; left out: names of the parameters" state show numbers.pt
    run -0 "$QUALM" state convert odd.pt odd.h5 --recipe adamw4_ao,min_numel=0,whole_blocks=0
    [[ $output == *"exp_avg: has 1 numbers that are not finite; what shares a scale with them is "* ]]
    [[ $output == *"exp_avg_sq: has 1 numbers below 0, where such a state has none"* ]]
    fails_with 2 "is a state file, which names its recipes itself" state show odd.h5 --as adamw_f32
}

@test "what import wrote as .safetensors has the hyper-parameters that the next update needs" {
    "$QUALM" import -q "$ROOT/tests/experiments/readers/checkpoints/zip.pt" -o a.safetensors >/dev/null
    "$QUALM" import -q "$ROOT/tests/experiments/readers/checkpoints/zip.pt" -o a.h5 >/dev/null
    for ending in safetensors h5; do
        json_value "sorted(r['sqnr'] for r in d['rows'])" analyze a.$ending \
            --recipe adamw4_ao,min_numel=0,whole_blocks=0 >$ending
    done
    cmp safetensors h5
}

converted() { "$QUALM" state convert "$1.pt" x.h5 --recipe adamw4_ao --as adamw_f32 2>&1; }

@test "a relative of Adam whose states --as takes for another rule's is named" {
    for name in nadam radam; do
        run -0 converted $name
        [[ "$output" == *"options are those of $name; its states are taken as those of adamw "* ]]
        rm x.h5
    done
    run -0 converted adam
    [[ "$output" != *"options are those of"* ]]
}

@test "SparseAdam is nobody's without --as, and hyper-parameters that no rule takes are refused" {
    fails_with 3 "sparse.pt: the file does not say whose states 'w' has" state show sparse.pt
    run -0 --separate-stderr "$QUALM" state show sparse.pt --as adam_f32
    [[ "$output" == *" adam_f32,lr=0.5,beta1=0.5,beta2=0.75,eps=0.125"* ]]
    fails_with 3 "beta.pt: w: beta1 and beta2 must be in [0, 1)" \
        state convert beta.pt x.h5 --recipe adamw4_ao --as adamw_f32
    fails_with 3 "eps_nan.pt: w: eps: expected a finite number" \
        state show eps_nan.pt --as adamw_f32
    [ ! -e x.h5 ]
}

@test "analyze --recipe refuses a checkpoint with a hyper-parameter or step out of its range" {
    run -3 "$QUALM" analyze beta.pt --recipe adamw8_bnb,min_numel=0
    [[ "$output" == *"w: beta1 is 1.5, expected a finite number from 0 to below 1"* ]]
    run -3 "$QUALM" analyze eps_nan.pt --recipe adamw8_bnb,min_numel=0
    [[ "$output" == *"w: eps is nan, expected a finite number of at least 0"* ]]
    for name in early half; do
        run -3 "$QUALM" analyze $name.pt --recipe adamw8_bnb,min_numel=0
        [[ "$output" == *"w: step "*", expected a whole number of at least 0"* ]]
    done
    run -0 "$QUALM" analyze adam.pt --recipe adamw8_bnb,min_numel=0
}

@test "an option of a group that is no number is refused, one that is missing is said" {
    for what in "lr_none:lr of its param_group is no number" "eps_text:eps of its" \
        "one_beta:betas of its param_group is no pair" "max_text:maximize of its"; do
        fails_with 3 "${what%%:*}.pt: 'w': ${what#*:}" \
            state convert "${what%%:*}.pt" x.h5 --recipe adamw4_ao --as adamw_f32
        [ ! -e x.h5 ]
        # they are parameters all the same
        [ "$("$QUALM" size --shapes "${what%%:*}.pt" -V adamw_f32 -q | sed -n 2,3p)" = \
            "$("$QUALM" size --shapes known.pt -V adamw_f32 -q | sed -n 2,3p)" ]
    done
    run -0 "$QUALM" state convert no_eps.pt x.h5 --recipe adamw4_ao --as adamw_f32
    [[ "$output" == *"the file does not say eps: that of adamw_f32"* ]]
    run -0 "$QUALM" state convert known.pt x.h5 --recipe adamw4_ao --as adamw_f32
    [[ "$output" != *"does not say"* ]]
}
