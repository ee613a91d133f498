#!/usr/bin/env bats
# conform_zeros.bats - Tests that qualm conform allows nothing where nothing is rounded: elements of
# zero gradients and states, lines of zeros, averages that are the update, formats of a release.

load ../../support/conform_common

setup() {
    needs_hdf5
    X=$BATS_TEST_TMPDIR/x.h5
}

# Lines of Python that make a step of every class from a gradient of 0, at a parameter that goes
# from 1 to `param`.
zero='
def zero(name, rule, dtype, param, kept, **more):
    number = "f8" if dtype == "f64" else "f4"
    states = {key: np.zeros((1, 1), number) for key in kept.split()}
    if rule == "NAdam":
        states["mu_product"] = np.float32([0.5 * (1.0 - 0.5 * 0.96 ** 0.004)])
    run(name, {"optimizer": rule, "dtype": dtype, "lr": 0.5, "betas": [0.5, 0.5], "alpha": 0.5,
        "eps": 1e-8, "weight_decay": 0.0, "impl": "single", "sqrt": "installed",
        "momentum_decay": 0.004, **more}, np.ones(1, number), np.zeros((1, 1), number),
        np.full((1, 1), param, number), **states)
def all(dtype, param):
    for rule in "AdamW", "Adam", "NAdam", "RAdam":
        zero(rule + dtype, rule, dtype, param, "exp_avg exp_avg_sq")
    zero("Adagrad" + dtype, "Adagrad", dtype, param, "sum")
    zero("RMSprop" + dtype, "RMSprop", dtype, param, "square_avg")
    zero("buffer" + dtype, "RMSprop", dtype, param, "square_avg momentum_buffer", momentum=0.5)
    zero("foreach" + dtype, "RMSprop", dtype, param, "square_avg momentum_buffer", momentum=0.5,
         impl="foreach")
    if dtype == "f32": # in float64 the variance is 0, of which nothing is certain
        zero("centered", "RMSprop", dtype, param, "square_avg momentum_buffer grad_avg",
             momentum=0.5, centered=1)
    zero("SGD" + dtype, "SGD", dtype, param, "momentum_buffer", momentum=0.5)
'

@test "conform: an element of zero gradient and states does not move in any class of torch" {
    judged EQUAL "$zero"'all("f32", 1.0); all("f64", 1.0)'
    judged DIFFERS "$zero"'all("f32", 1.25); all("f64", 1.25)'
    judged DIFFERS "$zero"'all("f32", 1.0 + 2.0 ** -23); all("f64", 1.0 + 2.0 ** -50)'
}

# Lines of Python that find the elements of a recorded run whose gradients are always 0.
dead='
T = len(g["grads"])
still = np.flatnonzero((g["grads"][()].reshape(T, -1) == 0).all(0))
def change(key, at, by):
    x = g[key][()]
    x.reshape(T, -1)[-1, at] *= by
    g[key][...] = x
rows = np.flatnonzero((g["grads"][()] == 0).all((0, 2)))
columns = np.flatnonzero((g["grads"][()] == 0).all((0, 1)))
'

# differs FILE RUN OTHER EDIT: the run, and not the other, differs once it is edited
differs() {
    broken "$1" "$2" "$3" ""
    [[ $("$QUALM" conform "$X") == *" 0 DIFFERS, 0 skipped, 0 UNREADABLE"* ]]
    broken "$1" "$2" "$3" "$dead$4"
    run "$QUALM" conform "$X"
    [[ $output == *"DIFFERS    $2 "*" 1 DIFFERS, 0 skipped, 0 UNREADABLE"* ]]
}

@test "conform: elements and lines of zeros have no tolerance in CAME and Adafactor" {
    long 3
    local run other
    for run in came:dead_f32 came:dead_f64 adafactor:hf_dead_f32 adafactor:hf_dead_f64 \
        adafactor:torch_dead_f64; do
        other=$([ "${run%:*}" = came ] && echo beta1_0_f32 || echo hf_t3_f32)
        differs "${run%:*}" "${run#*:}" "$other" '
e = 2.0 ** (-23 if "f32" in g.attrs["dtype"] else -51)
change("params", still[0], 1 + e)'
    done
    differs came dead_f32 beta1_0_f32 'change("state_exp_avg_res_row", rows[0], 1.001)'
    differs came dead_f32 beta1_0_f32 'change("state_exp_avg_res_col", columns[0], 1.001)'
}

@test "conform: CAME of beta1 0, whose residual is 0, is judged" {
    differs came beta1_0_f32 dead_f32 '
p = g["params"][()].reshape(T, -1)
step = p[-1] - p[-2]
k = np.abs(step).argmax()
change("params", k, 1 + 1e-3 * step[k] / p[-1, k])'
    differs came beta1_0_f32 dead_f32 'change("state_exp_avg_res_row", 0, 1.001)'
}

@test "conform: a float64 CAME of zeros is judged by its decay" {
    local decay='
def decay(name, param, average=0.0):
    n = np.float64
    run(name, {"optimizer": "CAME", "dtype": "f64", "lr": 0.5, "betas": [0.5, 0.5, 0.5],
        "eps": [2.0 ** -40, 2.0 ** -40], "weight_decay": 0.25, "shape": [2, 2], "ndim": 2},
        np.ones((2, 2)), np.zeros((1, 2, 2)), np.full((1, 2, 2), param),
        exp_avg=np.full((1, 2, 2), average),
        **{key: np.full((1, 2), 2.0 ** -41) for key in ("exp_avg_sq_row", "exp_avg_sq_col",
                                                         "exp_avg_res_row", "exp_avg_res_col")})
'
    judged EQUAL "$decay"'decay("made", 0.875)' executed CAME.py
    judged DIFFERS "$decay"'
decay("not_made", 1.0); decay("off", 0.875 + 2.0 ** -40); decay("state", 0.875, 2.0 ** -1060)
' executed CAME.py
}

@test "conform: a state of adafactor8bit has codes where its release makes them, and nowhere else" {
    local names edit
    names=$(pair adafactor8bit_limits "f[n].attrs.get('version') in ('v022', 'v025', 'v026', 'v043') and 'state/m_q' in f[n]")
    for edit in 'g.attrs["hp_quantize"] = 0' 'g.attrs["hp_min_8bit_size"] = 1 << 30' \
        'g["state/m"] = g["grads"][()]; del g["state/m_q"]'; do
        broken adafactor8bit_limits ${names% *} ${names#* } "$edit"
        run "$QUALM" conform "$X"
        [[ $output == *"DIFFERS    ${names% *} "*" state/m has "* ]]
        [[ $output != *"DIFFERS    ${names#* } "* ]]
    done
    names=$(pair adafactor8bit "f[n].attrs.get('version') in ('v021', 'v022r') and
        'hp_min_8bit_size' in f[n].attrs and any(k.endswith('_q') for k in f[n]['state'])")
    broken adafactor8bit ${names% *} ${names#* } 'g.attrs["hp_min_8bit_size"] = 1 << 30'
    [[ $("$QUALM" conform "$X") == *" 0 DIFFERS, 0 skipped, 0 UNREADABLE"* ]]
}

@test "conform: the code of a momentum that is 0 to the bit has no tolerance" {
    local moment='
def moment(version, code, number=0.0):
    g = f.create_group("case" + version)
    nan, shape = np.nan, (1, 4, 8)
    for key, value in {"kind": "optimizer", "steps": 1, "version": version, "dtype": "float32",
                       "shape": [4, 8], "hp_lr": 0.5, "hp_beta1": 0.5, "hp_beta2": nan,
                       "hp_beta2_decay": -0.8, "hp_beta3": nan, "hp_eps": [2.0 ** -40, 1e-3],
                       "hp_weight_decay": 0.0, "hp_d": 1.0, "hp_maximize": 0, "hp_factored": 0,
                       "hp_relative_step": 0, "hp_scale_parameter": 0, "hp_scale_weight_decay": 0,
                       "hp_block_size": 2048, "hp_m_block_size": 32, "hp_min_8bit_size": 1,
                       "hp_quantize": 1, "hp_m_quant_type": "d8" if code else "fp32",
                       "hp_v_quant_type": "fp32", "hp_c_quant_type": "fp32",
                       "hp_enable_fira_for_adafactor": 0, "hp_fira_margin": 0.01}.items():
        g.attrs[key] = value
    def data(name, shape, first, other, dtype="f4"):
        x = np.full(shape, other, dtype)
        x.flat[0] = first
        g[name] = x
    data("p0", shape[1:], 1.0, 1.0)
    data("grads", shape, 1.0, 0.0)
    data("params", shape, 0.75, 1.0)
    data("state/variance", shape, 1.0, 2.0 ** -40)
    if code:
        data("state/m_q", (1, 32), 255, code, "u1")
        data("state/m_scale", (1, 1), 0.5, 0.5)
    else:
        data("state/m", shape, 0.5, number)
'
    judged EQUAL "$moment"'moment("v046", 127); moment("v043", 127)' system adafactor8bit
    judged DIFFERS "$moment"'moment("v046", 128); moment("v043", 126)' system adafactor8bit
    judged EQUAL "$moment"'moment("v046", 0)' system adafactor8bit
    judged DIFFERS "$moment"'moment("v046", 0, 2.0 ** -149)' system adafactor8bit
}

# Lines of Python that make a step of CAME in float64 from states of 0, with the averages of its
# residual `off` times themselves away.
came='
def came(name, beta1, off, g=((1.0, -2.0), (0.5, 3.0)), decay=0.0, param=None, **edits):
    g, p = np.array(g), np.ones((2, 2)) if param is None else np.array(param)
    def mean(x, states):
        row, col = 0.5 * x.mean(1), 0.5 * x.mean(0)
        states[0][...], states[1][...] = row, col
        return 1.0 / np.sqrt(row / row.mean())[:, None] / np.sqrt(col)
    r, c, R, C = np.zeros((4, 2))
    u = g * mean(g ** 2 + 1e-30, (r, c))
    u = u / max(1.0, np.sqrt((u ** 2).mean()))
    m = (1.0 - beta1) * u
    factor = mean(((u - m) ** 2 + 1e-16) * (1.0 + off), (R, C))
    new = p + -decay * 0.5 * p - 0.5 * factor * m
    states = dict(exp_avg=m, exp_avg_sq_row=r, exp_avg_sq_col=c, exp_avg_res_row=R,
                  exp_avg_res_col=C)
    for key, value in edits.items():
        (new if key == "params" else states[key]).flat[0] = value
    run(name, {"optimizer": "CAME", "dtype": "f64", "lr": 0.5, "betas": [beta1, 0.5, 0.5],
        "eps": [1e-30, 1e-16], "weight_decay": decay, "shape": [2, 2], "ndim": 2}, p, g[None],
        new[None], **{key: value[None] for key, value in states.items()})
'

@test "conform: the residual of a float64 CAME cancels where beta1 is small" {
    judged NEAR "$came"'came("a", 1e-4, 1e-12); came("b", 1e-6, 1e-10)' executed CAME.py
    judged DIFFERS "$came"'came("a", 1e-4, 1e-10); came("b", 0.5, 1e-12)' executed CAME.py
}

@test "conform: an element that is still decays by itself, and one of 0 not at all" {
    local step='
def step(name, param, **edits):
    came(name, 0.5, 0.0, ((0.0, -2.0), (0.5, 3.0)), 0.25, ((param, 1e3), (1.0, 1.0)), **edits)
'
    judged NEAR "$came$step"'step("zero", 0.0); step("one", 1.0)' executed CAME.py
    judged DIFFERS "$came$step"'
step("moved", 0.0, params=2.0 ** -60); step("off", 1.0, params=0.875 * (1 + 2.0 ** -49))
step("not decayed", 1.0, params=1.0)' executed CAME.py
}

@test "conform: the decay of an infinite parameter of a float64 CAME is NaN" {
    local step='
def step(name, to, decay=0.25):
    came(name, 0.5, 0.0, decay=decay, param=((np.inf, 1.0), (1.0, 1.0)), params=to)
'
    judged NEAR "$came$step"'step("nan", np.nan); step("stays", np.inf, 0.0)' executed CAME.py
    judged DIFFERS "$came$step"'step("inf", np.inf); step("nan", np.nan, 0.0)' executed CAME.py
}

@test "conform: the RMS of float64 parameters whose squares underflow is judged" {
    local rms='
def rms(name, off):
    came(name, 0.5, 0.0, param=((1e-160, 0.0), (0.0, 1e-160)))
    g = f[name]
    g["state_RMS"] = [np.sqrt(0.5) * 1e-160 * off]
'
    judged NEAR "$came$rms"'rms("of_counts", 1.0005)' executed CAME.py
    judged DIFFERS "$came$rms"'rms("off", 2.0); rms("none", 1e3)' executed CAME.py
}

@test "conform: averages of the squares of zeros alone have no tolerance" {
    long 2
    local count
    for count in 1 8 1000; do
        differs adafactor torch_dead_f64 hf_t3_f32 "
x = g['state_row_var'][()]
assert (x.reshape(T, -1)[:, rows] == 0).all() and len(rows)
x.reshape(T, -1)[-1, rows[0]] = $count * 2.0 ** -1074
g['state_row_var'][...] = x"
    done
    local zeros='
def zeros(name, count):
    n = np.full((1, 2), np.nan)
    run(name, {"optimizer": "CAME", "dtype": "f64", "lr": 0.5, "betas": [0.5, 0.5, 0.5],
        "eps": [0.0, 1e-16], "weight_decay": 0.0}, np.ones(2), np.zeros((1, 2)), n, exp_avg=n,
        exp_avg_sq=np.full((1, 2), count * 2.0 ** -1074))
'
    judged EQUAL "$zeros"'zeros("zero", 0)' executed CAME.py
    judged DIFFERS "$zeros"'zeros("one", 1); zeros("some", 1000)' executed CAME.py
}

@test "conform: a quotient of RMSprop whose square underflows is infinite in float64" {
    local tiny='
def tiny(name, param, average, **more):
    n = np.zeros((1, 1))
    run(name, {"optimizer": "RMSprop", "dtype": "f64", "lr": 0.5, "alpha": 0.5, "eps": 0.0,
        "weight_decay": 0.0, "impl": "single", "sqrt": "installed", **more}, np.ones(1),
        np.full((1, 1), 1e-170), np.full((1, 1), param), square_avg=n, **average)
average = {"grad_avg": np.full((1, 1), 5e-171)}
'
    judged EQUAL "$tiny"'
tiny("plain", -np.inf, {})
tiny("centered", -np.inf, average, centered=1)
tiny("buffer", -np.inf, {"momentum_buffer": np.full((1, 1), np.inf), **average}, centered=1,
     momentum=0.5)'
    judged DIFFERS "$tiny"'
tiny("plain", 1.0, {})
tiny("centered", np.inf, average, centered=1)
tiny("still", 1.0, average, centered=1)
tiny("buffer", -np.inf, {"momentum_buffer": np.zeros((1, 1)), **average}, centered=1,
     momentum=0.5)'
}
