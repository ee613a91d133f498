#!/usr/bin/env bats
# conform_limits.bats - Tests qualm conform where numbers are few, huge or tiny, and where an
# attribute says what the data are not.

load ../../support/conform_common

setup() {
    needs_hdf5
    X=$BATS_TEST_TMPDIR/x.h5
}

# Lines of Python that make a first step of torch's Adafactor from a gradient of 2, whose update is
# 1: the parameter loses lr max(eps2, RMS).
adafactor='
def adafactor(name, p, rms, lr=0.5, eps2=0.0, off=1.0):
    p, g = np.array(p, "f4"), np.full((1, len(p)), 2.0, "f4")
    want = p.astype("f8") - max(eps2, rms) * lr
    run(name, {"optimizer": "Adafactor(torch)", "dtype": "f32", "lr": lr, "beta2_decay": -0.8,
        "d": 1.0, "eps": [np.nan, eps2], "weight_decay": 0.0}, p, g,
        (off * want).astype("f4")[None], variance=g * g)
'

@test "conform: torch's norm of one number is its size; squares of several overflow and vanish" {
    judged EQUAL "$adafactor"'
adafactor("huge", [2.0 ** 100], 2.0 ** 100)
adafactor("tiny", [2.0 ** -100], 2.0 ** -100)
adafactor("two_tiny", [2.0 ** -100] * 2, 0.0)
adafactor("two_huge", [2.0 ** 100] * 2, np.inf)'
    judged DIFFERS "$adafactor"'
adafactor("huge", [2.0 ** 100], 2.0 ** 100, off=1.001)
adafactor("huge_as_of_squares", [2.0 ** 100], np.inf)
adafactor("tiny", [2.0 ** -100], 0.0)
adafactor("two_tiny", [2.0 ** -100] * 2, 2.0 ** -100)'
}

# The norm of LARS on a CPU is torch's; the default back end adds up squares.
@test "conform: LARS of one element whose square overflows" {
    local lars='
def lars(quantizer, param):
    g = f.create_group(quantizer)
    g.attrs.update({"T": 1, "optimizer": "LARS", "quantizer": quantizer, "lr": 0.5, "beta1": 0.9,
                    "weight_decay": 0.0, "max_unorm": 1.0, "eps": 0.0, "sqrt": "installed"})
    g["p0"], g["params"] = np.ones(1, "f4"), np.full((1, 1), param, "f4")
    g["grads"] = g["state1"] = np.full((1, 1), 2.0 ** 100, "f4")
'
    judged EQUAL "$lars"'lars("cpu32", 0.5); lars("default32", 1.0)' source_repo bitsandbytes
    judged DIFFERS "$lars"'lars("cpu32", 1.0); lars("default32", 0.5)' source_repo bitsandbytes
}

# torch.maximum makes NaN of nothing but ones, which torchao's rounding carries over to +0 unless
# the draw is 0xffff.
@test "conform: torchao's stochastic rounding makes 0 of the NaN of a maximum, nothing else" {
    local nan='
def nan(name, bits, draw, amsgrad=1, g=np.nan):
    c = f.create_group(name)
    c.attrs.update({"T": 1, "dtype": "bfloat16", "is_adamw": 1, "bf16_stochastic_round": 1,
                    "state_class": "Tensor", "amsgrad": amsgrad, "lr": 0.5, "beta1": 0.0,
                    "beta2": 0.0, "eps": 0.0, "weight_decay": 0.0, "sqrt": "ieee"})
    c["p0"], c["params"] = np.uint16([0x3f80]), np.uint16([[bits]])
    c["rand16"], c["grads"] = np.array([[draw]]), np.array([[g]], "f4")
    for k in ("m", "v", "vmax")[: 2 + amsgrad]:
        c[k] = c["grads"][()]
'
    judged NEAR "$nan"'nan("carried", 0, 0xfffe)' source_repo pytorch/ao
    judged EQUAL "$nan"'
nan("stays", 0xffff, 0xffff); nan("plain", 0x7fc0, 0, 0); nan("number", 0x3f00, 0, g=1.0)
' source_repo pytorch/ao
    judged DIFFERS "$nan"'
nan("draw", 0, 0xffff); nan("plain", 0, 0, 0); nan("number", 0, 0, g=1.0)
nan("sign", 0x8000, 0); nan("infinity", 0x7f80, 0)' source_repo pytorch/ao
}

# A first step from 1 to 0.5 and a part of an ulp, 2^-8, which is rounded up where the draw is less
# than 2^16 times that part.  The neighbour may pass only where an error of the step decides that.
@test "conform: a parameter that torchao rounded stochastically is the one of its draw" {
    local drawn='
def drawn(name, bits, draw, part, sqrt="installed"):
    c = f.create_group(name)
    c.attrs.update({"T": 1, "dtype": "bfloat16", "is_adamw": 1, "bf16_stochastic_round": 1,
                    "state_class": "Tensor", "amsgrad": 0, "lr": 0.25, "beta1": 0.0,
                    "beta2": 0.0, "eps": 0.0, "weight_decay": 1.0 - part * 2.0 ** -6,
                    "sqrt": sqrt})
    c["p0"], c["params"] = np.uint16([0x3f80]), np.uint16([[bits]])
    c["rand16"], c["grads"] = np.array([[draw]]), np.array([[1.0]], "f4")
    c["m"] = c["v"] = np.ones((1, 1), "f4")
'
    judged EQUAL "$drawn"'
drawn("up", 0x3f01, 0x7000, 0.5); drawn("down", 0x3f00, 0x9000, 0.5)
drawn("at", 0x3f00, 0x8000, 0.5); drawn("ieee", 0x3f00, 0x8000, 0.5, "ieee")
' source_repo pytorch/ao
    judged NEAR "$drawn"'
drawn("below", 0x3f00, 0x7fff, 0.5); drawn("at", 0x3f01, 0x8000, 0.5)' source_repo pytorch/ao
    judged DIFFERS "$drawn"'
drawn("up", 0x3f00, 0x7000, 0.5); drawn("down", 0x3f01, 0x9000, 0.5)
drawn("far", 0x3f02, 0x8000, 0.5); drawn("ieee", 0x3f01, 0x8000, 0.5, "ieee")
drawn("none", 0x3f00, 0x8000, 1.0)' source_repo pytorch/ao
}

# Every class of these has its gradient and its parameter in the dtype.
@test "conform: numbers that the dtype of their case does not have are UNREADABLE" {
    local sgd='
def sgd(name, dtype, rule="SGD", **odd):
    x = {"param0": [1.0], "grads": [[0.5]], "params": [[0.5]]}
    x.update(odd)
    run(name, {"optimizer": rule, "dtype": dtype, "lr": 1.0, "impl": "single"},
        *(np.float64(x[k]) for k in ("param0", "grads", "params")))
'
    judged EQUAL "$sgd"'sgd("bf16", "bf16"); sgd("f32", "f32")'
    judged UNREADABLE "$sgd"'
for k in ("param0", "grads", "params"):
    for dtype, x in ("bf16", 1.0 + 2.0 ** -8), ("f32", 1.0 + 2.0 ** -24):
        sgd(k + dtype, dtype, **{k: [x] if k == "param0" else [[x]]})'
    [[ $("$QUALM" conform "$X") == *"number 0 is 1.00390625, which bfloat16 does not have"* ]]
    judged UNREADABLE '
x = np.full(1, 1.0 + 2.0 ** -8)
run("lion", {"optimizer": "Lion", "dtype": "bf16", "lr": 1.0}, x, [x], [x], exp_avg=[x])
run("state", {"optimizer": "Lion", "dtype": "bf16", "lr": 1.0}, [1.0], [[0.5]], [[0.5]],
    exp_avg=[x])' executed lion_pytorch
    [ "$("$QUALM" conform "$X" | grep -c "which bfloat16 does not have")" = 2 ]
    judged UNREADABLE '
x = np.full(1, 1.0 + 2.0 ** -8)
run("came", {"optimizer": "CAME", "dtype": "bf16", "lr": 1.0}, x, [x], [x], exp_avg=[x],
    exp_avg_sq=[x])' executed CAME.py
    [[ $("$QUALM" conform "$X") == *"which bfloat16 does not have"* ]]
    made "$solo_half" system SOLO
    [[ $("$QUALM" conform "$X") == *"number 0 is 1.0002"*", which float16 does not have"* ]]
}

# A step of SOLO with rate 0, whose parameter float16 does not have.
solo_half='
c, x = f.create_group("optim/half"), np.float32([1.0 + 2.0 ** -12])
c.attrs.update({"steps": 1, "lr": 0.0, "weight_decay": 0.0, "eps": 1e-8, "betas": [0.9, 0.999],
                "optimizer": "AdamWQ", "bits": [4, 2], "block_sizes_asked": [128, 128],
                "quantizer_m": "none", "quantizer_v": "none", "param_dtype": "float16"})
c["p0"], c["grads"], c["params"] = x, np.ones((1, 1), "f4"), x[None]
c["state/m"], c["state/v"] = np.ones((1, 1), "f4"), np.ones((1, 1), "f4")
'

# ---- Adafactor

# Two steps from a gradient of 2, whose updates are 1.  A beta1 of 0 keeps a moment, the update
# times lr; None keeps none.
@test "conform: transformers' Adafactor with beta1 0 has a moment, which is compared" {
    local hf='
def hf(name, beta1, lr=0.5, **state):
    p, g = np.ones(2, "f4"), np.full((2, 2), 2.0, "f4")
    run(name, {"optimizer": "Adafactor(hf)", "dtype": "f32", "lr": lr, "beta1": beta1,
        "eps": [0.0, 1e-3], "relative_step": 0, "scale_parameter": 0, "weight_decay": 0.0}, p, g,
        np.float32([[0.5] * 2, [0.0] * 2]), exp_avg_sq=g * g, RMS=np.float32([1.0, 0.5]), **state)
'
    judged EQUAL "$hf"'
hf("zero", 0.0, exp_avg=np.full((2, 2), 0.5, "f4")); hf("none", np.nan)' executed adafactor.py
    judged DIFFERS "$hf"'
hf("first", 0.0, exp_avg=np.float32([[0.51, 0.5], [0.5, 0.5]]))
hf("second", 0.0, exp_avg=np.float32([[0.5, 0.5], [0.5, 0.0]]))' executed adafactor.py
    judged UNREADABLE "$hf"'hf("missing", 0.0)' executed adafactor.py
    judged UNREADABLE "$hf"'hf("no_rate", np.nan, np.nan)' executed adafactor.py
}

# The squares 2^-140 and 2^-20 of a first step; the first vanishes in bfloat16, where its reciprocal
# root and the norm of the update are infinite, and infinity / infinity is NaN.
@test "conform: a second moment of Adafactor that vanishes in bfloat16 stops the step there" {
    local small='
def bits(x): return (np.asarray(x, "f4").view("u4") >> 16).astype("u2")
def small(name, params, g=2.0 ** -70):
    g = np.float32([[g, 2.0 ** -10]])
    run(name, {"optimizer": "Adafactor(torch)", "dtype": "bf16", "lr": 0.5, "eps": [1e-30, 1e-3]},
        bits([1.0, 1.0]), g, bits([params]), variance=bits(np.where(g < 2.0 ** -67, 0.0, g * g)))
'
    judged NEAR "$small"'small("vanishes", [np.nan, 1.0])'
    judged DIFFERS "$small"'
small("finite", [0.5, 0.5]); small("first", [1.0, 1.0]); small("second", [np.nan, 0.5])
small("both", [np.nan, np.nan]); small("no_need", [np.nan, 1.0], 2.0 ** -60)'
}

@test "conform: Adafactor and CAME without a learning rate are UNREADABLE" {
    judged UNREADABLE "$adafactor"'adafactor("huge", [1.0], 1.0); del f["huge"].attrs["lr"]'
    judged UNREADABLE '
run("came", {"optimizer": "CAME", "dtype": "f32"}, [1.0], [[1.0]], [[1.0]], exp_avg=[[1.0]],
    exp_avg_sq=[[1.0]])' executed CAME.py
    [[ $("$QUALM" conform "$X") == *"attribute lr"* ]]
}

# Three numbers of 4 in a block: log2 of them is from 1 to 2, and their code 255.  Two numbers that
# are an ulp apart have their own span in place of that 1.
@test "conform: adafactor8bit: codes of padding and the ends of a block of equal numbers" {
    local flat='
def flat(name, code=255, span=1.0, low=1.0, padding=0):
    g = f.create_group(name)
    h = {"lr": 0.5, "beta1": np.nan, "beta2": np.nan, "beta2_decay": -0.8, "eps": [1e-30, 1e-3],
         "weight_decay": 0.0, "d": 1.0, "maximize": 0, "relative_step": 0, "scale_parameter": 0,
         "scale_weight_decay": 0, "factored": 1, "quantize": 1, "min_8bit_size": 1,
         "block_size": 1024, "m_block_size": 64, "m_quant_type": "uf8", "v_quant_type": "al8",
         "bias_correction": np.nan, "enable_fira_for_adafactor": 0, "fira_margin": 0.01}
    g.attrs.update({"kind": "optimizer", "version": "v046", "shape": [3], "steps": 1,
                    "dtype": "float32", **{"hp_" + k: x for k, x in h.items()}})
    q = np.full((1, 1, 1024), padding, "u1")
    q[0, 0, :3] = code
    g["state/variance_q"], g["state/variance_scale"] = q, np.float32([[span]])
    g["state/variance_min_log"] = np.float32([[low]])
    g["p0"], g["grads"] = np.ones(3, "f4"), np.full((1, 3), 2.0, "f4")
    g["params"] = np.full((1, 3), 0.5, "f4")
'
    judged EQUAL "$flat"'flat("as_it_is")' system adafactor8bit
    judged NEAR "$flat"'flat("least", 1, 2.0 ** -20, 2.0)' system adafactor8bit
    judged DIFFERS "$flat"'
flat("padding", padding=1); flat("half", 255, 0.5, 1.5); flat("end", 1, 2.0 ** -20, 1.999)
flat("span", 1, 0.25, 2.0); flat("no_span", 255, 0.0, 1.0)' system adafactor8bit
}

# ---- bounds

# Old and new terms of the moment cancel, 1/2 M - 1/2 G = 0 here, so all of it is rounding: in
# bfloat16 up to 2^-6 of the old one, 1.  The step goes along the recorded moment, over 1 - 1/4.
@test "conform: a step along a bfloat16 moment that cancels to 0 here goes along the recorded one" {
    local cancels='
def bits(x): return (np.asarray(x, "f4").view("u4") >> 16).astype("u2")
def cancels(name, m, p):
    run(name, {"optimizer": "AdamW", "dtype": "bf16", "lr": 1.0, "betas": [0.5, 0.0], "eps": 0.0,
               "weight_decay": 0.0, "impl": "single", "sqrt": "installed"}, bits([0.0]),
        np.float32([[2.0], [-1.0]]), bits([[-1.0], [p]]), exp_avg=bits([[1.0], [m]]),
        exp_avg_sq=bits([[4.0], [1.0]]))
'
    judged NEAR "$cancels"'
cancels("moment", 2.0 ** -7, -1.0 - 2.0 ** -7); cancels("below", -2.0 ** -7, -1.0 + 3 * 2.0 ** -8)'
    judged DIFFERS "$cancels"'
cancels("state", 2.0 ** -5, -1.0 - 2.0 ** -5); cancels("step", 2.0 ** -7, -1.0 - 2.0 ** -3)'
}

# The L2 term takes the gradient away, so nothing of the second moment is certain; but the divisor
# is eps, which is.
@test "conform: a second moment that cancels leaves a step bounded where eps is not small" {
    local cancels='
def cancels(name, dtype, param, eps=2.0, rule="RAdam"):
    states = {"exp_avg": [[0.0]], "exp_avg_sq": [[0.0]]}
    if rule == "RMSprop":
        states = {"square_avg": [[0.0]]}
    run(name, {"optimizer": rule, "dtype": dtype, "lr": 1.0, "betas": [0.9, 0.999], "alpha": 0.99,
        "eps": eps, "weight_decay": 0.125, "impl": "single", "sqrt": "installed"},
        [1.0], [[-0.125]], [[param]], **states)
'
    local rule
    for rule in RAdam Adam RMSprop; do
        judged EQUAL "$cancels
cancels('f64', 'f64', 1.0, 2.0, '$rule'); cancels('bf16', 'bf16', 1.0, 2.0, '$rule')"
        judged DIFFERS "$cancels
cancels('f64', 'f64', 1.0 + 1e-9, 2.0, '$rule'); cancels('bf16', 'bf16', 1.5, 2.0, '$rule')"
    done
}

# Before start_prec_step the gradient is used: recorded is that, what roots make of it, or NaN.
@test "conform: Shampoo's preconditioned gradient before start_prec_step is compared" {
    local edit got
    while read -r got edit; do
        broken shampoo4bit optim/adamw4 optim/partitioned "
a, x = g.attrs, g['preconditioned_grad'][()]
a['start_prec_step'] = 100
$edit
del g['preconditioned_grad']
g['preconditioned_grad'] = x"
        "$QUALM" conform --case optim/adamw4 "$X" > "$BATS_TEST_TMPDIR/out" || true
        grep -q "preconditioned gradient" "$BATS_TEST_TMPDIR/out" && said=1 || said=0
        [ "$said" = "$got" ] || { cat "$BATS_TEST_TMPDIR/out"; false; }
    done <<'L'
0 pass
0 x[:] = g['grads'][()]
0 x[:] = np.nan
1 x[2, 3, 1] += 1.0
1 x[3] = 0.0
L
}

# The roots are still the identity, so the preconditioned gradient is the gradient, and grafting
# makes it 0: the squares of its numbers vanish in float32.
@test "conform: Shampoo's grafting of a gradient whose squares vanish" {
    local graft='
def graft(name, g, momentum):
    c, one = f.create_group("optim/" + name), np.eye(2, dtype="f4")[None]
    c.attrs.update({"steps": 1, "optimizer": "ShampooSGD", "lr": 1.0, "weight_decay": 0.0,
        "momentum": 0.5, "nesterov": 0, "start_prec_step": 1, "stat_compute_steps": 100,
        "prec_compute_steps": 100, "stat_decay": 0.95, "matrix_eps": 1e-6, "prec_maxorder": 1200,
        "prec_bits": 32, "min_lowbit_size": 1, "quan_blocksize": 64, "rect_t1": 1, "rect_t2": 4,
        "inv_root_mode": 0, "shape": [2, 2]})
    x, m = np.full((1, 2, 2), g, "f4"), np.full((1, 2, 2), momentum, "f4")
    c["p0"], c["grads"], c["preconditioned_grad"], c["params"] = 0.0 * x[0], x, x, -m
    c["state/momentum"] = m
    for i in "01":
        c["state/stat" + i] = c["state/root" + i] = one
        c["state/stat%s_eigenvalues" % i] = np.full((1, 2), 1e-6, "f4")
        c["state/root%s_lowbit" % i] = [0]
'
    judged NEAR "$graft"'graft("vanishes", 1e-30, 0.0)' system "4-bit Shampoo"
    judged EQUAL "$graft"'graft("does_not", 0.5, 0.5)' system "4-bit Shampoo"
    judged DIFFERS "$graft"'
graft("vanishes", 1e-30, 1e-30); graft("does_not", 0.5, 0.501)' system "4-bit Shampoo"
}

# Lines of Python that make a first step of CAME of adafactor8bit 0.2.4 by float32 operations in the
# order of the package, whose states are float32; g: a row that fills the matrix.  params, conf:
# what is put in place of its own.
came='
def came(name, g, beta1=0.9, params=None, conf=None):
    one = np.float32
    g = np.outer((1, -1, 1, 1), g).astype("f4")
    h = {"lr": 0.5, "beta1": beta1, "beta2": np.nan, "beta3": 0.9999, "beta2_decay": -0.8,
         "eps": [np.nan, 1e-3], "weight_decay": 0.0, "d": 1.0, "maximize": 0, "relative_step": 1,
         "scale_parameter": 0, "scale_weight_decay": 1, "factored": 1, "quantize": 1,
         "min_8bit_size": 4096, "block_size": 2048, "m_block_size": 128,
         "enable_fira_for_adafactor": 0, "fira_margin": 0.01}
    c = f.create_group(name)
    c.attrs.update({"kind": "optimizer", "version": "v024", "shape": g.shape, "steps": 1,
                    "dtype": "float32", **{"hp_" + k: x for k, x in h.items()}})
    def mean(x, axis): return (x.sum(axis=axis, dtype="f4") / one(x.shape[axis])).astype("f4")
    least, floor = one(2.0 ** -23), one(2.0 ** -46)
    square, m = g * g, (g * one(1.0 - beta1)).astype("f4")
    r, k = mean(square, 1), mean(square, 0)
    by = 1 / np.sqrt(np.maximum(r, floor)) * np.sqrt(max(mean(r, 0), least))
    w = 1 / np.sqrt(np.maximum(k, floor))
    by2, w2, gm, mm = by * by, w * w, g * m, m * m
    def left(x): return (x * w2).sum(1, dtype="f4") / one(x.shape[1])
    def right(x): return (x * by2[:, None]).sum(0, dtype="f4") / one(x.shape[0])
    row = by2 * np.maximum(left(square) - 2 * left(gm) + left(mm), 0) * one(1.0 - 0.9999)
    col = w2 * np.maximum(right(square) - 2 * right(gm) + right(mm), 0) * one(1.0 - 0.9999)
    a, b = np.maximum(r * row, floor), np.maximum(k * col, floor)
    u = m * (1 / np.sqrt(a) * np.sqrt(max(mean(a, 0), least)))[:, None] * (1 / np.sqrt(b))
    rms = np.sqrt((u.astype("f8") ** 2).mean())
    p = np.zeros_like(g) - one(0.5 / max(rms, 1.0)) * u
    c["p0"], c["grads"] = np.zeros_like(g), g[None]
    c["params"] = p[None] if params is None else params(p)[None]
    for key, x in ("m", m), ("row_var", r[:, None]), ("col_var", k[None]), ("conf_row",
            (row if conf is None else conf(row))[:, None]), ("conf_col", col[None]):
        c["state/" + key] = np.float32(x)[None]
'

# Of g^2 = 1.2 counts of 2^-149 and M = g / 2, g^2 - 2 g M + M^2 is 1 - 2 + 0, which the package
# takes off the other elements.
@test "conform: squares of CAME that are few counts of 2^-149, or none, are judged by what is known" {
    judged NEAR "$came"'
for i, scale in enumerate((1e-19, 4e-20, 3e-21, 1e-21, 3e-22, 6e-23, 4e-23, 1e-24, 1e-40)):
    came("few%d" % i, scale * np.array([1.0, -0.3, 0.62, 2.1, -1.27, 0.9, 0.05]))
for i, g in enumerate(([1.0, 3.0, -4.0], [1.05, 1.0, 7.0], [1.0, 1.0, 1.0, 9.0])):
    came("below%d" % i, 1.2 ** 0.5 * 2.0 ** -74.5 * np.array(g), 0.5)' system adafactor8bit
    judged EQUAL "$came"'
came("none", 1e-30 * np.array([1.0, -0.3, 0.62, 2.1, -1.27, 0.9, 0.05]))' system adafactor8bit
    judged DIFFERS "$came"'
noise = np.random.default_rng(3).standard_normal((4, 7))
for i, scale in enumerate((1e-19, 3e-21, 3e-22, 6e-23, 4e-23, 1e-24, 1e-30)):
    g = scale * np.array([1.0, -0.3, 0.62, 2.1, -1.27, 0.9, 0.05])
    came("all%d" % i, g, params=lambda p: (p + 100 * noise).astype("f4"))
    came("one%d" % i, g, params=lambda p: p + np.float32(1e-3) * (np.arange(28) == 9).reshape(4, 7))
    came("step%d" % i, g, params=lambda p: p * np.float32(1.01))
    came("conf%d" % i, g, conf=lambda x: x * np.float32(1.1) + np.float32(1e-20))' \
        system adafactor8bit
}
