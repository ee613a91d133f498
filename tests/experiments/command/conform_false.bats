#!/usr/bin/env bats
# conform_false.bats - Tests that qualm conform refuses numbers which another number of the same
# recording could hide, and that it reads what results/CONFORM.md allows.

load ../../support/conform_common

setup() {
    needs_hdf5
    X=$BATS_TEST_TMPDIR/x.h5
}

# Lines of Python that make a step of a class of bitsandbytes at rate 0, from two gradients; its
# square roots are not said, so its states have a tolerance.
bnb='
def bnb(name, optimizer, grads, state1, state2=None, p0=(1.0, 1.0), decay=0.0, **more):
    g = f.create_group(name)
    g.attrs.update({"T": 1, "optimizer": optimizer, "quantizer": "cpu32", "lr": 0.0, "beta1": 0.5,
                    "beta2": 0.5, "weight_decay": decay, "eps": 1e-8, **more})
    g["p0"] = np.float32(p0)
    for key, x in ("params", p0), ("grads", grads), ("state1", state1), ("state2", state2):
        if x is not None:
            g[key] = np.float32([x])
'

@test "conform: a large number of a float32 state of bitsandbytes does not hide another" {
    judged EQUAL "$bnb"'
bnb("adamw", "AdamW32bit", [1e4, 1.0], [5e3, 0.5], [5e7, 0.5])
bnb("rmsprop", "RMSprop32bit", [1e4, 1.0], [5e7, 0.5])
bnb("sgd", "SGD32bit", [1e4, 1.0], [1e4, 1.0])' source_repo bitsandbytes
    judged NEAR "$bnb"'
bnb("adamw", "AdamW32bit", [1e4, 1.0], [5e3, 0.5], [5e7, 0.5 + 2.0 ** -23])
bnb("cancels", "SGD32bit", [1e4, -0.125], [10000.125, 2.0 ** -25], decay=0.125)
' source_repo bitsandbytes
    judged DIFFERS "$bnb"'
for i, x in enumerate((0.5 + 2.0 ** -20, 1.0, -0.5)):
    bnb("adamw%d" % i, "AdamW32bit", [1e4, 1.0], [5e3, 0.5], [5e7, x])
    bnb("rmsprop%d" % i, "RMSprop32bit", [1e4, 1.0], [5e7, x])
    bnb("sgd%d" % i, "SGD32bit", [1e4, 1.0], [1e4, 2 * x])
bnb("cancels", "SGD32bit", [1e4, -0.125], [10000.125, 2.0 ** -20], decay=0.125)
' source_repo bitsandbytes
}

# Below 4096 elements the 8-bit classes are the 32-bit ones: the update of LARS, of norm 2^6, is cut
# to max_unorm times the norm of the parameter.
@test "conform: LAMB8bit and LARS8bit of few elements limit their update, by default too" {
    local norm='
def norm(name, optimizer, param, quantizer="native", state2=None, **more):
    bnb(name, optimizer, [64.0], [64.0], state2, [1.0], **{"lr": 0.5, "eps": 0.0, **more})
    g = f[name]
    g.attrs["quantizer"] = quantizer
    del g["params"]
    g["params"] = np.float32([[param]])
'
    judged EQUAL "$bnb$norm"'
norm("lars", "LARS8bit", 0.5, max_unorm=1.0); norm("default", "LARS8bit", 0.99)
norm("cpu32", "LARS8bit", 0.5, "cpu32", max_unorm=1.0)
norm("none", "LARS8bit", -31.0, max_unorm=0.0)
norm("lamb", "LAMB8bit", 0.5, state2=[4096.0], beta1=0.0, beta2=0.0)
norm("half", "LAMB8bit", 0.75, state2=[4096.0], beta1=0.0, beta2=0.0, max_unorm=0.5)
' source_repo bitsandbytes
    judged DIFFERS "$bnb$norm"'
norm("lars", "LARS8bit", -31.0, max_unorm=1.0); norm("default", "LARS8bit", -31.0)
norm("half", "LAMB8bit", 0.5, state2=[4096.0], beta1=0.0, beta2=0.0, max_unorm=0.5)
' source_repo bitsandbytes
    judged skipped "$bnb$norm"'
norm("lars", "LARS8bit", 0.5, "cuda_hostemu")' source_repo bitsandbytes
}

# Lines of Python that make a first step of torchao from 1 by a gradient of 1, whose corrections are
# 1/2 and 1/4: to 1/2.
ao='
def bits(x): return (np.asarray(x, "f4").view("u4") >> 16).astype("u2")
def ao(name, dtype="float32", first="p0", **more):
    g = f.create_group(name)
    g.attrs.update({"T": 1, "dtype": dtype, "is_adamw": 1, "state_class": "Tensor", "lr": 0.5,
                    "beta1": 0.5, "beta2": 0.75, "eps": 0.0, "weight_decay": 0.0})
    g[first], g["params"] = np.ones(1, "f4"), np.full((1, 1), 0.5, "f4")
    g["grads"] = np.ones((1, 1), "f4")
    g["m"], g["v"] = np.full((1, 1), 0.5, "f4"), np.full((1, 1), 0.25, "f4")
    for key, x in more.items():
        if key in g:
            del g[key]
        g[key] = x
'

@test "conform: torchao's corrections are 1 - beta^t, whichever name they have" {
    local name
    for name in bias_correction eager_bias_correction; do
        judged EQUAL "$ao"'
ao("there", '$name'1=np.float32([0.5]), '$name'2=np.float32([0.25]))' source_repo pytorch/ao
        judged DIFFERS "$ao"'
ao("first", '$name'1=np.float32([0.5001]), '$name'2=np.float32([0.25]))
ao("second", '$name'1=np.float32([0.5]), '$name'2=np.float32([0.5]))
ao("none", '$name'1=np.float32([0.5]), '$name'2=np.float32([np.nan]))' source_repo pytorch/ao
    done
}

@test "conform: bfloat16 numbers are read as bits and as values, under any name of the start" {
    judged EQUAL "$ao"'
ao("values", "bfloat16"); ao("param0", first="param0"); ao("params0", "bfloat16", "params0")
ao("bits", "bfloat16", p0=bits([1.0]), params=bits([[0.5]]), m=bits([[0.5]]), v=bits([[0.25]]))
' source_repo pytorch/ao
    judged UNREADABLE "$ao"'
ao("start", "bfloat16", p0=np.float32([1.0 + 2.0 ** -9]))
ao("end", "bfloat16", params=np.float32([[0.5 + 2.0 ** -10]]))' source_repo pytorch/ao
    [[ $("$QUALM" conform "$X") == *"which bfloat16 does not have"* ]]
}

# Lines of Python that make a first step of adafactor8bit 0.4.6, with float32 states of squares.
a8='
def a8(name, grads, params=None, shape=None, dtype="float32", p0=1.0, hyper={}, **states):
    g = f.create_group(name)
    h = {"lr": 0.5, "beta1": np.nan, "beta2": np.nan, "beta2_decay": -0.8, "eps": [1e-30, 1e-3],
         "weight_decay": 0.0, "d": 1.0, "maximize": 0, "relative_step": 0, "scale_parameter": 0,
         "scale_weight_decay": 0, "factored": 1, "min_8bit_size": 1,
         "quantize": int(any(key.endswith("_q") for key in states)),
         "block_size": 1024, "m_block_size": 64, "m_quant_type": "d4", "v_quant_type": "fp32",
         "bias_correction": np.nan, "enable_fira_for_adafactor": 0, "fira_margin": 0.01, **hyper}
    n = len(grads)
    g.attrs.update({"kind": "optimizer", "version": "v046", "shape": shape or [n], "steps": 1,
                    "dtype": dtype, **{"hp_" + k: x for k, x in h.items()}})
    g["p0"], g["grads"] = np.full(n, p0, "f4"), np.float32([grads])
    g["params"] = np.float32([[0.5] * n if params is None else params])
    for key, x in states.items():
        g["state/" + key] = x if isinstance(x, np.ndarray) else np.float32([x])
'

@test "conform: a large or infinite number of a state of adafactor8bit does not hide another" {
    judged EQUAL "$a8"'
a8("variance", [1e4, 1.0], variance=[1e8, 1.0])
a8("rows", [2.0, 2.0, 1.0, 1.0], np.full(4, 0.5), [2, 2], row_var=[4.0, 1.0], col_var=[2.5, 2.5])
a8("inf", [np.inf, 1.0], [np.nan] * 2, variance=[np.inf, 1.0])' system adafactor8bit
    judged NEAR "$a8"'
a8("variance", [1e4, 1.0], variance=[1e8, 1.0 + 2.0 ** -22])
a8("inf", [np.inf, 1.0], [np.nan] * 2, variance=[np.inf, 1.0 + 2.0 ** -22])' system adafactor8bit
    judged DIFFERS "$a8"'
for i, x in enumerate((1.0 + 2.0 ** -18, 1.05, 2.0, -1.0)):
    a8("variance%d" % i, [1e4, 1.0], variance=[1e8, x])
    a8("inf%d" % i, [np.inf, 1.0], [np.nan] * 2, variance=[np.inf, x])
    a8("rows%d" % i, [1e4, 1e4, 1.0, 1.0], np.full(4, 0.5), [2, 2], row_var=[1e8, x],
       col_var=[5e7, 5e7])' system adafactor8bit
}

# Lines of Python that make three steps of APOLLO of 0.4.6, along gradients whose channels are zero
# or of any size from 1e-6 to 1e12, the last of them `last_size` times as large, from parameters p0
# that decay; wrong: what of the last step is not what it makes.  Sums are of doubles, states of
# float32.
apollo='
def apollo(name, seed, wrong="", T=3, rank=3, last_size=1.0, p0=0.0, decay=0.0):
    r = np.random.default_rng(seed)
    shape = (14, 6) if seed % 2 else (6, 14)
    n, of_all = 84, seed % 4 > 1
    zero = np.arange(14) >= r.integers(3, 13)
    size = np.where(zero, 0.0, 10.0 ** r.uniform(-6, 12, 14))
    turn = np.transpose if shape[0] < shape[1] else np.asarray
    g = np.float32(r.standard_normal((T, 14, 6)) * size[:, None])
    g[-1] *= np.float32(last_size)
    P = np.float32(r.standard_normal((6, rank)) / rank ** 0.5)
    p, m, v, last, out = np.full((14, 6), p0, "f4"), np.zeros((14, rank), "f4"), 0.0, 0.0, []
    for t in range(1, T + 1):
        b, x = t ** -0.8, np.float64(g[t - 1]) @ P
        m, v = np.float32(0.9 * m + 0.1 * x), np.float32((1 - b) * v + b * x * x)
        w, axis = m / (np.sqrt(np.float64(v)) + 1e-6), None if of_all else 1
        norm = lambda x: np.sqrt((np.float64(x) ** 2).sum(axis, keepdims=True))
        u = norm(w) / (norm(x) + 1e-8) * g[t - 1]
        top = np.linalg.norm(u)
        limit = max(top / (last + 1e-8), 1.01) / 1.01 if t > 1 else 1.0
        last = np.float32(top / limit)
        step = 0.01 * u / max(top / n ** 0.5, 1.0) / limit
        k = r.choice(np.flatnonzero(~zero))
        if t == T and wrong == "step":
            step[k] *= 2.0
        elif t == T and wrong == "noise":
            step[k] *= 1.0 + 0.1 * r.uniform(-1.0, 1.0, 6)
        elif t == T and wrong == "norm":
            last *= 2.0
        elif t == T and wrong == "previous":
            last = out[-1][3]
        elif t == T and wrong == "decay":
            step[k] += 0.002 * decay * p[k]
        elif t == T and wrong in ("v", "m"):
            {"v": v, "m": m}[wrong][zero, 0] = 1e-12
        p = np.float32(p * (1.0 - 0.01 * decay) - step)
        out.append((turn(p), turn(m), turn(v), last))
    a8(name, np.zeros(n), shape=shape, p0=p0, hyper={"lr": 0.01, "beta1": 0.9, "relative_step": 1,
       "weight_decay": decay,
       "factored": 0, "apollo_rank": rank, "apollo_scale": 1.0, "apollo_scale_front": 0,
       "apollo_scale_type": "tensor" if of_all else "channel", "apollo_update_proj_gap": 200,
       "apollo_eps": 1e-6, "enable_fira_for_apollo": 1, "m_quant_type": "fp32"})
    h, P = f[name], turn(P)
    del h["grads"], h["params"]
    h.attrs["steps"] = T
    h["grads"], h["proj"] = np.float32([turn(x) for x in g]), P[None]
    h["proj_index_per_step"] = np.zeros(T, "i8")
    for key, x in zip(("params", "state/m_low", "state/v_low", "state/scaled_grad_norm_prev"),
                      zip(*out)):
        h[key] = np.float32(x)
'

@test "conform: channels of zeros or of any size of APOLLO do not hide another, nor the norm" {
    long 2
    judged NEAR "$a8$apollo"'
for i in range(16): apollo("true%d" % i, i)' system adafactor8bit
    judged DIFFERS "$a8$apollo"'
for i in range(16):
    for wrong in "step", "noise", "norm", "v", "m":
        apollo("%s%d" % (wrong, i), i, wrong)' system adafactor8bit
}

@test "conform: tiny last gradients of APOLLO do not hide its norm nor the decay" {
    judged NEAR "$a8$apollo"'
for i in range(8):
    apollo("tiny%d" % i, i, last_size=1e-30)
    apollo("subnormal%d" % i, i, last_size=1e-44, p0=1.0, decay=0.1)' system adafactor8bit
    judged DIFFERS "$a8$apollo"'
for i in range(8):
    apollo("previous%d" % i, i, "previous", last_size=1e-30)
    apollo("doubled%d" % i, i, "previous", last_size=1e-44, p0=1.0, decay=0.1)
    apollo("decay%d" % i, i, "decay", last_size=1e-44, p0=1.0, decay=0.1)' system adafactor8bit
}

# Without a second moment the steps are lr times the gradients.
@test "conform: a large step of adafactor8bit does not hide another" {
    local sgd='
def sgd(name, params, dtype="float32"):
    a8(name, [2.0 ** 13, 2.0 ** -10], params, dtype=dtype, p0=0.0,
       hyper={"beta2_decay": np.nan, "d": 1e9, "eps": [np.nan, 1e-3]})
'
    judged EQUAL "$a8$sgd"'
sgd("one", [-2.0 ** 12, -2.0 ** -11]); sgd("bf16", [-2.0 ** 12, -2.0 ** -11], "bfloat16")
' system adafactor8bit
    judged DIFFERS "$a8$sgd"'
for i, x in enumerate((-2.0 ** -10, 0.0, 2.0 ** -11, -0.5078125 * 2.0 ** -10)):
    sgd("one%d" % i, [-2.0 ** 12, x]); sgd("bf16%d" % i, [-2.0 ** 12, x], "bfloat16")
' system adafactor8bit
}

# 1 - lr weight_decay + lr is 1: what the recording may be off by is of the step and of the decay.
@test "conform: a decay that cancels the step of adafactor8bit leaves its error" {
    local cancel='
def cancel(name, off):
    a8(name, [-1.0, -1.0], [1.0 - off] * 2, hyper={"beta2_decay": np.nan, "weight_decay": 1.0,
       "eps": [np.nan, 1e-3]})
'
    judged EQUAL "$a8$cancel"'cancel("made", 0.0)' system adafactor8bit
    judged NEAR "$a8$cancel"'cancel("near", 2.0 ** -18)' system adafactor8bit
    judged DIFFERS "$a8$cancel"'cancel("more", 2.0 ** -16)' system adafactor8bit
}

# Of the first of two numbers U - M is 2^-t, which in step 16 is all rounding, and so is the norm of
# the step, of the other one not.
@test "conform: a parameter of adafactor8bit whose confidence cancels may be any, another not" {
    local came='
def came(name, k=0, by=1.0, T=16):
    a8(name, [1.0, 1.0], hyper={"beta1": 0.5, "beta3": 0.0, "beta2_decay": 0.0})
    u = np.array([[1.0, (-1.0) ** t] for t in range(T)])
    m, p, last, old = [], [], np.zeros(2), np.ones(2)
    for t in range(T):
        last = 0.5 * last + 0.5 * u[t]
        step = 0.5 * last / abs(u[t] - last)
        step[k] *= by if t == T - 1 else 1.0
        old = np.float32(old - step)
        m.append(last); p.append(old)
    g, m, c = f[name], np.float32(m), np.float32((u - m) ** 2)
    del g["grads"], g["params"]
    g.attrs["steps"], g.attrs["shape"] = T, [1, 2]
    g["grads"], g["params"] = np.float32(u), np.float32(p)
    one = np.ones((T, 2), "f4")
    for key, x in {"m": m, "row_var": one[:, :1], "col_var": one, "conf_col": c,
                   "conf_row": c.mean(1, keepdims=True)}.items():
        g["state/" + key] = x
'
    judged EQUAL "$a8$came"'came("before", T=12)' system adafactor8bit
    judged skipped "$a8$came"'came("made"); came("any", by=10.0)' system adafactor8bit
    judged DIFFERS "$a8$came"'
came("before", 0, 1.5, 12); came("early", 1, 1.1, 5)' system adafactor8bit
}

# A moment of one NaN, whose block of 64 ends in padding: packages divide 0 by its scale.
@test "conform: padding of d4 and d8 is the top code where the scale is NaN" {
    local nan='
def nan(name, kind, code, pad):
    q = np.full((1, 64 if kind == "d8" else 32), pad, "u1")
    q[0, 0] = code
    a8(name, [np.nan], [np.nan], hyper={"beta1": 0.5, "m_quant_type": kind}, variance=[np.nan],
       m_q=q, m_scale=[np.nan])
'
    judged EQUAL "$a8$nan"'nan("d8", "d8", 0xff, 0xff); nan("d4", "d4", 0xff, 0xff)
' system adafactor8bit
    judged DIFFERS "$a8$nan"'
nan("d8", "d8", 0xff, 0x7f); nan("d4", "d4", 0xff, 0x77); nan("zero", "d8", 0xff, 0)
' system adafactor8bit
    [[ $("$QUALM" conform "$X") == *"padding: got 0x0f, want 0x07"* ]]
}

@test "conform: adafactor8bit in bfloat16 is read as values, from param0" {
    judged EQUAL "$a8"'
def bits(x): return (np.asarray(x, "f4").view("u4") >> 16).astype("u2")
for key in ("p0", "param0"):
    a8("of_" + key, [1.0], dtype="bfloat16", variance=[1.0])
    if key != "p0":
        f["of_" + key].move("p0", key)
a8("bits", [1.0], dtype="bfloat16", variance=[1.0])
for key in ("p0", "params", "grads"):
    x = f["bits"][key][()]
    del f["bits"][key]
    f["bits"][key] = bits(x)' system adafactor8bit
    judged UNREADABLE "$a8"'a8("start", [1.0], dtype="bfloat16", p0=1.0 + 2.0 ** -9)
' system adafactor8bit
}

# A step of 2^-24 from 1 is less than the share of the parameter that CAME's float32 may be off by.
@test "conform: a step that its tolerance may hide is skipped, with the reason" {
    local small='
def small(name, to, p0=1.0, dtype="f32", **more):
    p0, to = np.full(2, p0, "f4"), np.full((1, 2), to, "f4")
    run(name, {"optimizer": "CAME", "dtype": dtype, "lr": 2.0 ** -24, "betas": [0.0, 0.0, 0.0],
               "eps": [0.0, 0.0], "shape": [2], **more}, p0, np.ones((1, 2), "f4"), to,
        exp_avg=np.ones((1, 2), "f4"), exp_avg_sq=np.ones((1, 2), "f4"))
'
    judged EQUAL "$small"'small("made", 1.0 - 2.0 ** -24)' executed CAME.py
    judged skipped "$small"'small("not_made", 1.0); small("double", 1.0 - 2.0 ** -23)
' executed CAME.py
    [[ $("$QUALM" conform "$X") == *"step 1: the tolerance is as large as the step"* ]]
    judged DIFFERS "$small"'
small("far", 1.0 - 2.0 ** -16); small("seen", 0.0, 0.0); small("state", 1.0)
del f["state"]["state_exp_avg"]
f["state"]["state_exp_avg"] = np.full((1, 2), 2.0, "f4")' executed CAME.py
}

@test "conform: the same of adafactor8bit, torch and bitsandbytes" {
    local small='
def small(name, to, dtype="float32"):
    a8(name, [1.0], [to], dtype=dtype, hyper={"lr": 2.0 ** -23}, variance=[1.0])
'
    judged EQUAL "$a8$small"'small("made", 1.0 - 2.0 ** -23)' system adafactor8bit
    judged skipped "$a8$small"'small("not_made", 1.0)' system adafactor8bit
    judged EQUAL "$bnb"'
bnb("made", "SGD32bit", [1.0], [1.0], None, [1.0 - 2.0 ** -23], lr=2.0 ** -23)
del f["made"]["p0"]
f["made"]["p0"] = np.ones(1, "f4")' source_repo bitsandbytes
    judged skipped "$bnb"'
bnb("not_made", "SGD32bit", [1.0], [1.0], None, [1.0], lr=2.0 ** -23)' source_repo bitsandbytes
}

# Updates g / max(|g|, 1): of one number in 64 it is 1, of the others `small`.  1 / 16 is the edge
# between codes 0 and 1 of eighths, where the package's root decides for all of them alike.
edge='
def edge(name, code, small=1.0 / 16.0, kind="uf4", top=15, n=4096):
    g = np.full(n, small, "f4")
    g[::64] = 1.0
    q = np.where(np.arange(n) % 64 == 0, top, code).astype("u1")
    a8(name, g, 1.0 - 0.5 * g, hyper={"beta1": 0.5, "beta2": 0.0, "factored": 0, "d": 1e9,
       "momentum_only_1d": 1, "m_quant_type": kind, "eps": [1.0, 1e-3], "bias_correction": 1},
       variance=[g * g], m_q=q[None, ::2] * 16 + q[None, 1::2] if top == 15 else q[None],
       m_scale=np.full((1, n // 64), 0.5, "f4"))
'

@test "conform: codes of one number at an edge may all be off, those of a wrong rounding not" {
    made "$a8$edge"'edge("low", 8); edge("high", 9)' system adafactor8bit
    run -0 "$QUALM" conform "$X"
    [[ $output == *"4032 of 4096 codes off, each within the error"* ]]
    judged DIFFERS "$a8$edge"'edge("wrong", 9, 3.0 / 64.0); edge("two", 10)' system adafactor8bit
}

# d8 gives the code 0x7f of zero to no other number, so that the next codes on either side are two
# apart.  A number is off by a share of its own terms, which leaves no doubt about its sign here.
@test "conform: a small code of d4 or d8 is on the side of zero on which its number is" {
    judged EQUAL "$a8$edge"'edge("plus", 0x80, 2.0 ** -22, "d8", 0xff)' system adafactor8bit
    judged DIFFERS "$a8$edge"'edge("beyond", 0x7d, 2.0 ** -22, "d8", 0xff)
edge("minus", 0x7e, 2.0 ** -22, "d8", 0xff); edge("zero", 0x7f, 2.0 ** -22, "d8", 0xff)
edge("large", 0x7e, 2.0 ** -10, "d8", 0xff); edge("above", 0x82, 2.0 ** -22, "d8", 0xff)
' system adafactor8bit
}

# p = 1 - 0.125, to the bit, whatever an ulp of bfloat16 or a share of the step would hide; the sign
# of NaN is 0.
@test "conform: a bfloat16 parameter of Lion is judged by its roundings" {
    local lion='
def lion(name, param, grad=1.0, average=None, **more):
    g = f.create_group(name)
    g.attrs.update({"steps": 1, "optimizer": "Lion", "dtype": "bf16", "shape": [1], "lr": 0.125,
                    "betas": [0.5, 0.5], "weight_decay": 0.0, **more})
    average = 0.5 * grad if average is None else average
    for key, x in ("p0", 1.0), ("grads", grad), ("params", param), ("state_exp_avg", average):
        g[key] = np.float32([x] if key == "p0" else [[x]])
'
    judged EQUAL "$lion"'
lion("taken", 0.875); lion("nan", 1.0, np.nan); lion("decay", 0.375, weight_decay=4.0)
' executed lion_pytorch
    judged DIFFERS "$lion"'
lion("ulp", 0.875 + 2.0 ** -8); lion("rate", 0.875, lr=0.13)
lion("decay", 0.875, weight_decay=0.25); lion("sign", 0.875, -1.0); lion("nan", 0.875, np.nan)
' executed lion_pytorch
}

# The first number has a sum of 0, of terms that cancel, and the last one a large parameter.
@test "conform: a float64 number of Lion is judged by its own size" {
    local lion='
def lion(name, k=0, by=0.0, average=0.0):
    g = f.create_group(name)
    g.attrs.update({"steps": 2, "optimizer": "Lion", "dtype": "f64", "shape": [3], "lr": 0.125,
                    "betas": [0.75, 0.5], "weight_decay": 0.5})
    grads = np.array([[1.0, 1.0, 1.0], [-1.5, 1.0, 1.0]])
    p, m, params, moments = np.array([0.75, 1.0, 1e9]), np.zeros(3), [], []
    g["p0"] = p
    for t in range(2):
        p = (1.0 - 0.0625) * p - 0.125 * np.sign(0.75 * m + 0.25 * grads[t])
        m = 0.5 * m + 0.5 * grads[t]
        if t == 1:
            p[k] *= 1.0 + by
            m[k] *= 1.0 + average
        params.append(p)
        moments.append(m)
    g["grads"], g["params"], g["state_exp_avg"] = grads, params, moments
'
    judged EQUAL "$lion"'lion("made")' executed lion_pytorch
    judged NEAR "$lion"'
for k in range(3): lion("near%d" % k, k, 2.0 ** -52, 2.0 ** -52)
lion("open", 0, 0.1)' executed lion_pytorch
    judged DIFFERS "$lion"'
for k in range(3):
    lion("average%d" % k, k, 0.0, 2.0 ** -48)
lion("param", 1, 2.0 ** -49); lion("large", 2, 2.0 ** -49)' executed lion_pytorch
}

# Where CAME's beta1 is 0 its confidence is a difference of equal numbers, to 0.2.5: nothing of the
# step is certain.
@test "conform: adafactor8bit: a confidence of nothing but rounding is skipped, not accepted" {
    judged skipped '
g = f.create_group("came")
hp = dict(lr=1e-3, beta1=0.0, beta2=0.999, beta3=0.999, beta2_decay=-0.8, weight_decay=0.0, d=1.0,
          maximize=0, relative_step=0, scale_parameter=0, scale_weight_decay=0, factored=1,
          block_size=2048, m_block_size=128, enable_fira_for_adafactor=0, fira_margin=0.01,
          min_8bit_size=4096, quantize=0)
g.attrs.update({"hp_" + k: v for k, v in hp.items()})
g.attrs.update({"hp_eps": [1e-30, 1e-3], "kind": "optimizer", "steps": 1, "version": "v022",
                "shape": [2, 2], "dtype": "float32"})
x = np.float32([1, 2, 3, 4])
for k, v in (("p0", x), ("grads", [x]), ("params", [1.5 * x]), ("state/m", [x])):
    g[k] = np.float32(v)
for k, v in (("row_var", [[2.5], [12.5]]), ("col_var", [[5, 10]])):
    g["state/" + k] = np.float32([v])
for k, v in (("conf_row", [[0], [0]]), ("conf_col", [[0, 0]])):
    g["state/" + k] = np.float32([v])
' system adafactor8bit
}

# Three steps of normal gradients, then one of gradients near 1e-42, of which a momentum takes in
# next to nothing: what is wrong with it is wrong with what it keeps.
@test "conform: subnormal gradients do not hide the momentum that is kept, nor its step" {
    local names edit last
    names="opt_v046_vector_subnormal_after_normal opt_v046_came_subnormal_after_normal
        opt_v046_adam_subnormal_after_normal"
    for last in $names; do
        for edit in 'q = g["state/m_q"][()]; q[3, :256] += 1; g["state/m_q"][...] = q' \
            'q = g["state/m_q"][()]; q[3, 77] += 1; g["state/m_q"][...] = q' \
            'q = g["state/m_q"][()]; q[3, 256:] -= 1; g["state/m_q"][...] = q' \
            's = g["state/m_scale"][()]; s[3, 1] *= np.float32(1.001); g["state/m_scale"][...] = s' \
            'p = g["params"][()]; p[3] += 0.01 * (p[3] - p[2]); g["params"][...] = p'; do
            broken adafactor8bit_limits "$last" opt_v046_adamw_denormal_009_0 "$edit"
            run "$QUALM" conform "$X"
            [[ $output == *"DIFFERS    $last "* && $output == *" 1 DIFFERS, 0 skipped"* ]]
        done
    done
    for last in subnormal_after_normal_vector subnormal_after_normal_matrix; do
        for edit in 'm = g["state_exp_avg"][()]; m[3] *= np.float32(1.0001)
g["state_exp_avg"][...] = m' \
            'm = g["state_exp_avg"][()]; m[3] = m[2]; g["state_exp_avg"][...] = m' \
            'p = g["params"][()]; p[3] += 0.01 * (p[3] - p[2]); g["params"][...] = p'; do
            broken came_limits "$last" 032_0_came_drop "$edit"
            run "$QUALM" conform "$X"
            [[ $output == *"DIFFERS    $last "* && $output == *" 1 DIFFERS, 0 skipped"* ]]
        done
    done
}

# The infinite power of a quotient near 1 may be 0, 1 or infinite, but the codes of a block say
# which: no number is above the maximum of its block.
@test "conform: the scale of a COAT group of one magnitude is that of its codes" {
    local one=optim/expand_scalar_constant2 other=optim/expand_partial state
    broken coat $one $other ''
    run "$QUALM" conform "$X"
    [[ $output == *" 0 DIFFERS, 0 skipped, 0 UNREADABLE"* ]]
    for state in m v; do
        broken coat $one $other "s, k = g['state/${state}_scale'], g['state/${state}_codes'][()]
k &= 127
at = np.flatnonzero((k[:, 0] == 126) & np.isinf(g['state/${state}_expand'][:, 0]))[-1]
x = s[()]; assert x[at, 0] == np.float32(1 / 448); x[at] = 0; s[...] = x"
        run "$QUALM" conform "$X"
        [[ $output == *"DIFFERS    $one "*"cannot be beside the scale 0"* ]]
        [[ $output == *" 1 DIFFERS, 0 skipped, 0 UNREADABLE"* ]]
    done
}

@test "conform: a flat p0 of Muon takes the attribute shape, and without it is no matrix" {
    local names flat='p = g["p0"][()]; del g["p0"]; g["p0"] = p.ravel()'
    names=$("$PYTHON" -c "import h5py
print(*['optim/' + n for n in h5py.File('$ROOT/tests/golden/muon8bit.h5')['optim']][:2])")
    broken muon8bit ${names% *} ${names#* } "$flat; g.attrs['shape'] = p.shape"
    run "$QUALM" conform "$X"
    [[ $output == *" 0 DIFFERS, 0 skipped, 0 UNREADABLE"* ]]
    broken muon8bit ${names% *} ${names#* } "$flat"'
if "shape" in g.attrs: del g.attrs["shape"]'
    run "$QUALM" conform "$X"
    [[ $output == *"UNREADABLE ${names% *} "*"p0 has 1 dimensions"*"expected a matrix"* ]]
}

@test "conform: the momentum that APOLLO resets before 0.2.6 has no part of the old one" {
    local edit name other=opt_v025_apollo_huge_047_s105
    for edit in codes:'q = g["state/m_low_q"][()]; q[2, 7] ^= 1; g["state/m_low_q"][...] = q' \
        codes:'q = g["state/m_low_q"][()]; q[2, :40] ^= 16; g["state/m_low_q"][...] = q' \
        values:'m = g["state/m_low"][()]; m[2] *= np.float32(1.01); g["state/m_low"][...] = m' \
        values:'m = g["state/m_low"][()]; m[2] = 0; g["state/m_low"][...] = m'; do
        name=opt_v025_apollo_reset_${edit%%:*}
        broken adafactor8bit_limits "$name" $other "${edit#*:}"
        run "$QUALM" conform "$X"
        [[ $output == *"DIFFERS    $name "* && $output == *" 1 DIFFERS, 0 skipped"* ]]
    done
}

# The moments of a repeated gradient move together: a projected number near 0 says nothing of the
# adapted norm but its sign.
@test "conform: a step of APOLLO that is one percent too long differs, of a repeated gradient too" {
    local name factor
    for name in opt_v022_apollo_repeat opt_v046_apollo_repeat; do
        for factor in 1.003 1.01 0.99; do
            broken adafactor8bit_limits $name opt_v025_apollo_huge_047_s105 "
p = g['params'][()].reshape(2, -1)
p[1] = p[0] + (p[1] - p[0]) * np.float32($factor)
g['params'][...] = p.reshape(g['params'].shape)"
            run "$QUALM" conform "$X"
            [[ $output == *"DIFFERS    $name "* && $output == *" 1 DIFFERS, 0 skipped"* ]]
        done
    done
}

@test "conform: a projection of APOLLO lasts as long as its gap says; float32 draws nothing" {
    broken adafactor8bit_limits opt_v046_apollo_repeat opt_v025_apollo_huge_047_s105 \
        "g.attrs['hp_apollo_update_proj_gap'] = 1"
    run "$QUALM" conform "$X"
    [[ $output == *"step 2: the old projection, and one lasts 1"*" 1 DIFFERS, 0 skipped"* ]]
    broken adafactor8bit_limits opt_v046_apollo_repeat opt_v025_apollo_huge_047_s105 \
        "g.attrs['hp_stochastic_round_writeback'] = 1"
    run "$QUALM" conform "$X"
    [[ $output == *"NEAR       opt_v046_apollo_repeat "*" 0 DIFFERS, 0 skipped, 0 UNREADABLE"* ]]
}
