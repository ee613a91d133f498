#!/usr/bin/env bats
# conform_runs.bats - Tests what qualm conform accepts of runs that are true, and of altered ones.

load ../../support/conform_common

conform() { run "-$1" "$QUALM" conform -v "$BATS_TEST_TMPDIR/x.h5"; }

# altered SYSTEM GROUP OTHER: each line "RC|EDIT|TEXT" of stdin, an edit of group g, of which
# conform says TEXT
altered() {
    local rc edit says
    while IFS='|' read -r rc edit says; do
        broken "$1" "$2" "$3" "$edit"
        conform "$rc"
        [[ $output == *"$says"* ]] || {
            echo "$edit: $output"
            return 1
        }
    done
}

# ---- Lion 8-bit

# torch 2 multiplies a bfloat16 parameter by the float32 decay factor, torch 1 by a rounded one.
@test "conform: 16-bit Lion is replayed by the PyTorch of its recording" {
    needs_hdf5
    made '
def bits(x): return (np.asarray(x, "f4").view("u4") + 0x8000 >> 16).astype("u2")
def value(b): return (b.astype("u4") << 16).view("f4")
p = value(bits(1 + np.arange(64) / 128))
keep = np.array([0.9869], "f4")
for name, factor in ("float32", keep), ("rounded", value(bits(keep))):
    new = bits(p * factor)
    g = f.create_group(name)
    g.attrs.update({"steps": 1, "lr": 0.01, "initial_lr": 0.01, "beta1": 0.9, "beta2": 0.99,
                    "weight_decay": 0.0131, "dtype": "bf16", "shape": [64]})
    g["params0"], g["params"], g["grads"] = bits(p), new[None], np.zeros((1, 64), "u2")
    g["exp_avg"], g["lr"] = np.zeros((1, 64), "f4"), [0.01]
    g["decay_factor"] = [0.0131]
f.attrs["torch"] = "2.15.0"' system lion8bit
    conform 1
    [[ $output == *"EQUAL      float32"*"[lion8_unfused "* && $output == *"DIFFERS    rounded"* ]]
    "$PYTHON" -c "import h5py; h5py.File('$BATS_TEST_TMPDIR/x.h5', 'a').attrs['torch'] = '1.13.1'"
    conform 1
    [[ $output == *"EQUAL      rounded"*"[lion8_cpu "* && $output == *"DIFFERS    float32"* ]]
}

@test "conform: a zero of another sign is near, a decay factor an ulp off is not" {
    needs_hdf5
    altered lion8bit class_zero_nowd_f32 class_f32_1 <<'E'
0|g["exp_avg"][...] = -g["exp_avg"][()]|NEAR       class_zero_nowd_f32
1|g["decay_factor"][-1] = 1e-17|DIFFERS    class_zero_nowd_f32
E
}

# ---- FlashOptim, SOLO

@test "conform: FlashOptim's and SOLO's lr_per_step is followed" {
    needs_hdf5
    altered flashoptim adamw_f32_f32_0B_q8_50 lion_flip <<'E'
0|g["lr_per_step"] = np.full(g.attrs["steps"], g.attrs["lr"])|EQUAL      adamw_f32
1|g["lr_per_step"] = np.full(g.attrs["steps"], 3 * g.attrs["lr"])|DIFFERS    adamw_f32
3|g["lr_per_step"] = np.full(2, 1e-3)|UNREADABLE adamw_f32
E
    altered solo optim/adabelief_4_2 quant_de/b2_signed_gauss <<'E'
0|g["lr_per_step"] = np.full(5, g.attrs["lr"])|NEAR       optim/adabelief
1|g["lr_per_step"] = np.full(5, 3 * g.attrs["lr"])|DIFFERS    optim/adabelief
3|g["lr_per_step"] = np.full(2, 1e-3)|UNREADABLE optim/adabelief
E
}

@test "conform: SOLO's momenta, formats, quantizers and block sizes are compared" {
    needs_hdf5
    altered solo optim/adabelief_4_2 quant_de/b2_signed_gauss <<'E'
1|s = g["state/m_scale"]; s[-1, 0] = s[-1, 0] * np.float32(1 + 1e-6)|scale[0]
1|s = g["state/m_codes"]; s[-1, 7] = s[-1, 7] ^ 1|m[7]
3|g.attrs["param_dtype"] = "banana"|'banana', expected one of float32, bfloat16, float16
3|g.attrs["quantizer_v"] = "banana"|quantizer 'banana'
3|g.attrs["quantile"] = 1.5|quantile
E
    altered solo quant_de/b2_signed_gauss quant_qema/b2_all_zero <<'E'
1|g.attrs["block_size"] = 64|block_size: blocks of 128 here
3|g.attrs["quantizer"] = "banana"|quantizer 'banana'
E
}

# Lines of Python that make a step of SOLO without quantized states: numbers are float32, rounded to
# the parameter's type where they are stored.
solo_step='
np.seterr(all="ignore")
def step(name, optimizer, dtype, p, g, lr, wd, off=0.0):
    f4, b1, b2, eps = np.float32, 0.9, 0.999, 1e-8
    p0, coupled = p.astype("f4"), optimizer == "AdamQ"
    x = g + p0 * f4(wd) if coupled else g
    m, v = x * f4(1 - b1), np.square(x) * f4(1 - b2)
    q = p0 if coupled else p0 * f4(1 - lr * wd)
    den = np.sqrt(v) / f4(np.sqrt(1 - b2)) + f4(eps)
    q = q + f4(-lr / (1 - b1)) * (m / den) + f4(off)
    c = f.create_group("optim/" + name)
    c.attrs.update({"steps": 1, "lr": lr, "weight_decay": wd, "eps": eps, "betas": [b1, b2],
                    "optimizer": optimizer, "bits": [4, 2], "block_sizes_asked": [128, 128],
                    "quantizer_m": "none", "quantizer_v": "none", "param_dtype": dtype})
    c["p0"], c["grads"], c["params"] = p0, g[None], q.astype(p.dtype).astype("f4")[None]
    c["state/m"], c["state/v"] = (x.astype(p.dtype).astype("f4")[None] for x in (m, v))
'

@test "conform: SOLO in float16; AdamQ adds 0 times a parameter that is NaN" {
    needs_hdf5
    made "$solo_step"'
r = np.random.default_rng(3)
x, g = r.normal(size=40).astype("f4"), r.normal(size=40).astype("f4")
step("half", "AdamWQ", "float16", x.astype("f2"), g.astype("f2").astype("f4"), 0.01, 0.1)
step("single", "AdamWQ", "float32", x, g, 0.01, 0.1)
x[3] = np.nan
step("nan", "AdamQ", "float32", x, g, 0.01, 0.0)' system SOLO
    conform 0
    [[ $output != *"skipped  "* && $output == *"optim/nan"*"[adam_solo"* ]]
    "$PYTHON" -c "import h5py; m = h5py.File('$BATS_TEST_TMPDIR/x.h5', 'a')['optim/nan/state/m']
m[0, 3] = 0.5"
    conform 1
    [[ $output == *"DIFFERS    optim/nan"* ]]
}

# lr weight_decay = 0.7 takes off what the step of 0.7 adds, whose rounding remains.
@test "conform: the error of a step counts where a decay cancels it" {
    needs_hdf5
    local off rc
    while read -r off rc; do
        made "$solo_step
x, g = np.ones(4, 'f4'), np.full(4, -0.5, 'f4')
step('cancels', 'AdamWQ', 'float32', x, g, 0.7, 1.0, $off)" system SOLO
        conform "$rc"
    done <<E
3e-7 0
2e-6 1
E
    while read -r off rc; do
        made "
g = np.array([[-1.0]])
run('cancels', {'optimizer': 'AdamW', 'dtype': 'f64', 'lr': 0.7, 'impl': 'single',
    'betas': [0.9, 0.999], 'eps': 0.0, 'weight_decay': 1.0}, np.ones(1), g,
    np.array([[1.0 + $off]]), exp_avg=(1 - 0.9) * g, exp_avg_sq=(1 - 0.999) * g * g)"
        conform "$rc"
    done <<E
1e-13 0
1e-12 1
E
}

@test "conform: SOLO's quantile 0 is the least element of a block" {
    needs_hdf5
    made '
r = np.random.default_rng(4)
x, u = np.exp(r.normal(size=256)).astype("f4"), r.random(256).astype("f4")
b = x.reshape(2, 128)
scale = b.max(1)
alpha = (b.min(1) / scale) ** np.float32(1 / 3)
k = np.log2(b / scale[:, None]) / np.log2(alpha)[:, None] + (u.reshape(2, 128) - np.float32(0.5))
codes = np.clip(np.rint(k), 0, 3)
c = f.create_group("quant_qema/least")
c.attrs.update({"bits": 2, "signed": 0, "quantizer": "qema", "block_size_asked": 128,
                "quantile": 0.0})
c["x"], c["rand"], c["scale"], c["alpha"] = x, u, scale, alpha
c["codes"] = codes.astype("u1").reshape(-1)
c["dequant"] = (alpha[:, None] ** codes.astype("f4") * scale[:, None]).reshape(-1)' system SOLO
    conform 0
    "$PYTHON" -c "import h5py
h5py.File('$BATS_TEST_TMPDIR/x.h5', 'a')['quant_qema/least'].attrs['quantile'] = 0.01"
    conform 1
    [[ $output == *"alpha[0]"* ]]
}

# ---- torch.optim

@test "conform: how a run was recorded is one of the known words" {
    needs_hdf5
    read -r a b <<<"$(pair torch215_adamw "f[n].attrs['optimizer'] == 'AdamW'")"
    altered torch215_adamw "$a" "$b" <<'E'
3|g.attrs["impl"] = "banana"|'banana', expected one of single, foreach, fused
3|g.attrs["sqrt"] = "banana"|'banana', expected one of ieee, installed
3|g.attrs["device"] = "banana"|'banana', expected one of cpu, cuda
E
}

# std::max(old, v) of the scalar tail keeps the old number where v is NaN; four doubles a vector.
@test "conform: the fused AMSGrad in float64 keeps its maximum beside NaN in the tail only" {
    needs_hdf5
    local at rc
    while read -r at rc; do
        made "
nan, b1, b2 = np.nan, 0.9, 0.999
g = np.ones((2, 6)); g[1, $at] = nan
m1, v1 = (1 - b1) * g[0], (1 - b2) * g[0]
p1 = 1.0 - 0.1 * (m1 / (1 - b1)) / (np.sqrt(v1) / np.sqrt(1 - b2) + 1e-8)
m2, v2 = b1 * m1 + (1 - b1) * g[1], b2 * v1 + (1 - b2) * g[1] ** 2
p2 = p1 - 0.1 * (m2 / (1 - b1 ** 2)) / (np.sqrt(v2) / np.sqrt(1 - b2 ** 2) + 1e-8)
top = np.where(np.isnan(v2), v1, v2)
run('tail', {'optimizer': 'Adam', 'dtype': 'f64', 'lr': 0.1, 'impl': 'fused', 'amsgrad': 1,
    'betas': [b1, b2], 'eps': 1e-8, 'weight_decay': 0.0}, np.ones(6), g, np.array([p1, p2]),
    exp_avg=np.array([m1, m2]), exp_avg_sq=np.array([v1, v2]),
    max_exp_avg_sq=np.array([v1, top]))"
        conform "$rc"
    done <<E
5 0
4 0
3 1
E
}

# lr / (1 - beta1) and 1 - lr weight_decay of a float32 tensor lr are float32.
@test "conform: a rate that is a tensor" {
    needs_hdf5
    made '
f4 = np.float32
lr, b1, b2, wd = f4(0.01), 0.9, 0.999, 0.3
r = np.random.default_rng(5)
p, g = r.normal(size=64).astype("f4"), r.normal(size=64).astype("f4")
m, v = f4(1 - b1) * g, f4(1 - b2) * g * g
den = np.sqrt(v) / f4(np.sqrt(1 - b2)) + f4(1e-8)
c = -float(lr / f4(1 - b1))
new = p * (f4(1) - lr * f4(wd)) + f4(c) * m / den
a = {"optimizer": "AdamW", "dtype": "f32", "lr": float(lr), "impl": "single", "betas": [b1, b2],
     "eps": 1e-8, "weight_decay": wd}
run("tensor", {**a, "tensor_lr": 1}, p, g[None], new[None], exp_avg=m[None], exp_avg_sq=v[None])
run("number", a, p, g[None], new[None], exp_avg=m[None], exp_avg_sq=v[None])
run("nadam", {**a, "optimizer": "NAdam", "tensor_lr": 1}, p, g[None], new[None], exp_avg=m[None],
    exp_avg_sq=v[None], mu_product=np.ones(1))'
    conform 1
    [[ $output == *"EQUAL      tensor"* && $output == *"DIFFERS    number"* ]]
    [[ $output == *"skipped    nadam "*tensor_lr* ]]
}

# ---- Adafactor, CAME

@test "conform: Adafactor's count of steps and RMS are compared" {
    long 2
    needs_hdf5
    read -r a b <<<"$(pair adafactor "'torch' in f[n].attrs['optimizer']")"
    altered adafactor "$a" "$b" <<'E'
1|g["state_step"][-1] += 1|state_step[
3|g.attrs["impl"] = "banana"|'banana', expected one of
E
    read -r a b <<<"$(pair adafactor "'hf' in f[n].attrs['optimizer']")"
    altered adafactor "$a" "$b" <<'E'
1|g["state_RMS"][-1] *= 1.01|state_RMS[
3|x = g["state_RMS"][:-1]; del g["state_RMS"]; g["state_RMS"] = x|state_RMS holds
3|del g["state_RMS"]|no dataset state_RMS
E
    read -r a b <<<"$(pair came "'state_RMS' in f[n]")"
    altered came "$a" "$b" <<<'1|g["state_RMS"][-1] *= 1.01|state_RMS['
}

@test "conform: a sum of squares next to bfloat16's largest number may overflow there" {
    needs_hdf5
    made '
def bits(x): return (np.asarray(x, "f4").view("u4") >> 16).astype("u2")
for name, g in ("next", 181.0 * 2.0 ** 56), ("below", 2.0 ** 63):
    run(name, {"optimizer": "Adafactor(torch)", "dtype": "bf16", "lr": 0.0, "shape": [2, 2],
        "ndim": 2, "impl": "foreach", "sqrt": "installed"}, bits(np.ones((2, 2))),
        np.full((1, 2, 2), g, "f4"), bits(np.ones((1, 2, 2))),
        row_var=bits(np.full((1, 2), g * g)), col_var=bits(np.full((1, 2), g * g)))'
    conform 0
    [[ $output == *"skipped    next"*"roundings"* && $output != *"skipped    below"* ]]
}

# The momentum 0.9999 M - 0.0001 U is 1e-4 of its terms, so 4 % of it are rounding errors, and of
# the parameter, which is -M once lr weight_decay = 1 has taken the old one away.
@test "conform: CAME's bfloat16 parameters where decay and momentum cancel" {
    needs_hdf5
    local by rc
    while read -r by rc; do
        made "
def bits(x): return (np.asarray(x, 'f4').view('u4') + 0x8000 >> 16).astype('u2')
f4, b1, b2 = np.float32, 0.9999, 0.5
v1 = f4(0.5); v2 = v1 * f4(0.5) + f4(0.5)
m1 = f4(1 - b1) * f4(1); m2 = m1 * f4(b1) + f4(1 - b1) * f4(-1)
run('ties', {'optimizer': 'CAME', 'dtype': 'bf16', 'lr': 1.0, 'weight_decay': 1.0,
    'betas': [b1, b2, 0.9], 'eps': [1e-30, 1e-16], 'clip_threshold': 1.0, 'sqrt': 'installed'},
    bits([0.0]), np.array([[1.0], [-1.0]], 'f4'), bits([[-m1], [-m2 * f4($by)]]),
    exp_avg=np.array([[m1], [m2]]), exp_avg_sq=np.array([[v1], [v2]]))" executed CAME.py
        conform "$rc"
    done <<E
1.0 0
1.02 0
1.2 1
E
}

# ---- bitsandbytes, adafactor8bit

@test "conform: parameters of bitsandbytes that do not move, however small their steps: DIFFERS" {
    needs_hdf5
    read -r a b <<<"$(pair bitsandbytes "f[n].attrs.get('quantizer') == 'default' and \
        'absmax1' in f[n]")"
    altered bitsandbytes "$a" "$b" <<'E'
1|g["params"][...] = np.broadcast_to(g["p0"][()], g["params"].shape)|parameter
1|p = g["params"]; d = p[-1] - p[-2]; p[-1] = p[-2] + d * np.float32(1 + 1e-3)|parameter
3|g.attrs["sqrt"] = "banana"|'banana', expected one of
E
}

# The numbers of these codes are not next to an edge.
@test "conform: a code of adafactor8bit's second moment off by one, and a short state" {
    needs_hdf5
    altered adafactor8bit opt_v026_came_d3 opt_v021_fira_tall <<'E'
1|q = g["state/row_var_q"]; q[-1, 0] ^= 1|further away than its error
1|q = g["state/col_var_q"]; q[-1, 1] ^= 1|further away than its error
3|q = g["state/row_var_q"]; x = q[:, :1]; del g["state/row_var_q"]; g["state/row_var_q"] = x|codes
3|g.attrs["dtype"] = "banana"|'banana', expected one of float32, bfloat16
E
}

@test "conform: a parameter that nothing moves is where it was, whatever a recording says" {
    local to rc
    while read -r to rc; do
        made "
z = np.zeros((2, 2))
run('still', {'optimizer': 'AdamW', 'dtype': 'bf16', 'lr': 0.01, 'impl': 'single',
    'betas': [0.9, 0.999], 'eps': 1e-8, 'weight_decay': 0.0}, np.array([1.5, 1.5]), z,
    np.array([[1.5, 1.5], [1.5, $to]]), exp_avg=z, exp_avg_sq=z)"
        run "-$rc" "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
    done <<'E'
1.5 0
1000 1
E
}

# What a recipe refuses is no difference: a beta of 1 is replayed, a rate below 0 skipped.
@test "conform: CAME in bfloat16 with beta1 or beta2 1, and rates that a rule refuses" {
    needs_hdf5
    X=$BATS_TEST_TMPDIR/x.h5
    local came='
def bits(x): return (np.asarray(x, "f4").view("u4") + 0x8000 >> 16).astype("u2")
def came(name, b1, b2, m, v, p):
    run(name, {"optimizer": "CAME", "dtype": "bf16", "lr": 1.0, "weight_decay": 0.0,
        "betas": [b1, b2, 0.5], "eps": [1e-30, 1e-16], "clip_threshold": 1.0, "sqrt": "installed"},
        bits([1.0]), np.float32([[2.0]]), bits([[p]]), exp_avg=np.float32([[m]]),
        exp_avg_sq=np.float32([[v]]))
'
    judged EQUAL "$came"'came("beta1", 1.0, 0.5, 0.0, 2.0, 1.0)
came("beta1_0", 0.0, 0.5, 1.0, 2.0, 0.0)' executed CAME.py
    judged DIFFERS "$came"'came("beta1", 1.0, 0.5, 0.0, 2.0, 0.0)' executed CAME.py
    judged skipped '
run("rate", {"optimizer": "Adagrad", "dtype": "f32", "lr": 1.0, "eps": 0.0, "weight_decay": 0.0},
    np.zeros(1, "f4"), np.float32([[2.0]]), np.float32([[1.0]]), sum=np.float32([[4.0]]))
f["rate"]["lr_per_step"] = [-1.0]'
    [[ $("$QUALM" conform "$X") == *"must not be negative"* ]]
}
