#!/usr/bin/env bats
# conform_torch.bats - Tests qualm conform on recordings of torch.optim that are made by hand: what
# rounds to bfloat16, steps that are small beside their parameters, and what is not read.

load ../../support/conform_common

setup() {
    needs_hdf5
    X=$BATS_TEST_TMPDIR/x.h5
}

# Lines of Python that make a first step of every class in bfloat16 from the gradient 2, whose
# parameters follow from the roundings of each operation; `by` is what the rate is said to be.
narrow='
def bits(x): return (np.asarray(x, "f4").view("u4") + 0x8000 >> 16).astype("u2")
mu = np.float32(0.5 * (1.0 - 0.5 * 0.96 ** 0.004))
def narrow(rule, param, lr=1.0, p0=0.0, impl="single", **states):
    n = len(states.get("variance", [[0]])[0])
    for key, value in states.items():
        states[key] = value if key == "mu_product" else bits(value)
    run(rule + impl, {"optimizer": rule, "dtype": "bf16", "lr": lr * by, "betas": [0.5, 0.5],
        "alpha": 0.75, "weight_decay": 0.0, "impl": impl, "sqrt": "installed", "d": 1.0,
        "momentum_decay": 0.004, "eps": [1e-30, 1e-3] if "(" in rule else 1e-8},
        bits([p0] * n), bits([[2.0] * n]), bits([[param] * n]), **states)
def all():
    for impl in "single", "foreach":
        for rule in "AdamW", "Adam":
            narrow(rule, -1.0, impl=impl, exp_avg=[[1.0]], exp_avg_sq=[[2.0]])
        narrow("NAdam", -1.1328125, impl=impl, exp_avg=[[1.0]], exp_avg_sq=[[2.0]],
               mu_product=np.float32([mu]))
        narrow("RAdam", -2.0, impl=impl, exp_avg=[[1.0]], exp_avg_sq=[[2.0]])
        narrow("RMSprop", -2.0, impl=impl, square_avg=[[1.0]])
        narrow("Adagrad", -1.0, impl=impl, sum=[[4.0]])
        narrow("SGD", -2.0, impl=impl)
        narrow("Adafactor(torch)", 0.5, 0.5, 1.0, impl=impl, variance=[[4.0] * 4])
'

@test "conform: a rate that is wrong by 5 % is seen in bfloat16 steps of every class of torch" {
    local by
    made "by = 1.0$narrow"'all()'
    run -0 "$QUALM" conform "$X"
    [[ $output == *" 0 DIFFERS, 0 skipped, 0 UNREADABLE"* ]]
    for by in 0.95 1.05; do
        judged DIFFERS "by = $by$narrow"'all()'
    done
}

# 2^-140 vanishes in bfloat16, where the divisor is eps alone: 2 * 2^-71 / 2^-100.
@test "conform: a second moment that vanishes in bfloat16 leaves a divisor of eps" {
    local small='
def bits(x): return (np.asarray(x, "f4").view("u4") >> 16).astype("u2")
def small(name, rule, param, **states):
    run(name, {"optimizer": rule, "dtype": "bf16", "lr": 1.0, "betas": [0.5, 0.5], "alpha": 0.5,
        "eps": 2.0 ** -100, "weight_decay": 0.0, "impl": "single", "sqrt": "installed"},
        bits([0.0]), bits([[2.0 ** -70]]), bits([[param]]),
        **{key: bits([[value]]) for key, value in states.items()})
def all(param):
    small("adamw", "AdamW", param, exp_avg=2.0 ** -71, exp_avg_sq=0.0)
    small("adam", "Adam", param, exp_avg=2.0 ** -71, exp_avg_sq=0.0)
    small("rmsprop", "RMSprop", param, square_avg=0.0)
    small("adagrad", "Adagrad", param, sum=0.0)
'
    judged EQUAL "$small"'all(-2.0 ** 30)'
    judged DIFFERS "$small"'all(-1.0)'
    judged DIFFERS "$small"'all(-2.0 ** 30 * 1.015625)'
}

# The largest parameter is 1000; the update is 1, and the RMS at most eps2.
@test "conform: float32 steps of Adafactor that are small beside the largest parameter are seen" {
    local small='
def small(name, rate, stuck=1.0):
    p = np.float32([1e-3] * 4095 + [1000.0])
    g = np.full((1, 4096), 2.0, "f4")
    run(name, {"optimizer": "Adafactor(torch)", "dtype": "f32", "lr": 1e-6 * rate, "d": 1.0,
        "beta2_decay": -0.8, "eps": [np.nan, 100.0], "weight_decay": 0.0}, p, g,
        (p - stuck * 1e-4).astype("f4")[None], variance=g * g)
'
    judged NEAR "$small"'small("true", 1.0, 1.0 + 1e-6)'
    judged DIFFERS "$small"'small("more", 1.05); small("none", 0.0); small("stuck", 1.0, 0.0)'
}

@test "conform: without attribute sqrt a root may be an ulp off, which the text says" {
    local root='
def root(name, sqrt, by):
    p = np.float32([[-1.0]]) if by == 1.0 else np.nextafter(np.float32([[-1.0]]), np.float32(by))
    run(name, {"optimizer": "Adagrad", "dtype": "f32", "lr": 1.0, "eps": 0.0, "weight_decay": 0.0,
        "impl": "single"}, np.zeros(1, "f4"), np.float32([[2.0]]), p, sum=np.float32([[4.0]]))
    f[name].attrs["sqrt"] = sqrt
    if not sqrt:
        del f[name].attrs["sqrt"]
'
    judged EQUAL "$root"'root("ieee", "ieee", 1.0); root("absent", "", 1.0)'
    judged NEAR "$root"'root("installed", "installed", -2.0); root("absent", "", -2.0)'
    [[ $("$QUALM" conform -c absent "$X") == *"attribute sqrt is absent"* ]]
    judged DIFFERS "$root"'root("ieee", "ieee", -2.0)'
}

@test "conform: RMSprop's 0 / 0 in float64 is NaN; Adafactor's rate as a tensor is skipped" {
    local zero='
def zero(name, x):
    run(name, {"optimizer": "RMSprop", "dtype": "f64", "lr": 0.5, "eps": 0.0, "momentum": 0.5,
        "centered": 1, "weight_decay": 0.0}, [1.0], [[0.0]], [[1.0 + x]], square_avg=[[0.0]],
        grad_avg=[[0.0]], momentum_buffer=[[x]])
'
    judged EQUAL "$zero"'zero("nan", np.nan)'
    judged DIFFERS "$zero"'zero("zero", 0.0)'
    judged skipped '
run("rate", {"optimizer": "Adafactor(torch)", "dtype": "f64", "lr": 0.1, "tensor_lr": 1}, [1.0],
    [[2.0]], [[0.9]], variance=[[4.0]])'
}

@test "conform: what a class does not read is named, and a maximum without amsgrad is UNREADABLE" {
    local lion='
def lion(name, **attributes):
    run(name, {"optimizer": "Lion", "dtype": "f32", "lr": 1.0, "betas": [0.5, 0.5], **attributes},
        np.zeros(1, "f4"), np.float32([[2.0]]), np.float32([[-1.0]]), exp_avg=np.float32([[1.0]]))
    f[name]["state_other"] = 1.0
'
    made "$lion"'lion("maximizes", maximize=0); lion("cautious", cautious=1)' executed lion_pytorch
    run -0 "$QUALM" conform "$X"
    [[ $output == *"EQUAL      cautious  not read: attribute cautious, dataset state_other"* ]]
    [[ $output == *"EQUAL      maximizes  not read: dataset state_other"* ]]
    judged UNREADABLE '
run("maximum", {"optimizer": "AdamW", "dtype": "f64", "lr": 1.0, "amsgrad": 0}, [0.0], [[2.0]],
    [[-1.0]], exp_avg=[[0.2]], exp_avg_sq=[[0.004]], max_exp_avg_sq=[[0.004]])'
    [[ $("$QUALM" conform "$X") == *"state_max_exp_avg_sq, but attribute amsgrad is 0"* ]]
}

# The square's average is 1 and the quotient 2, so that nothing is rounded.
@test "conform: of RMSprop the momentum alone has the tolerance of a root" {
    local rms='
def up(x, by): return np.float32([[x]]) * np.float32(1.0 + by * 2.0 ** -23)
def rms(name, v=0, b=0):
    run(name, {"optimizer": "RMSprop", "dtype": "f32", "lr": 0.5, "alpha": 0.75, "eps": 0.0,
        "momentum": 1.5, "centered": 0, "weight_decay": 0.0, "sqrt": "installed"},
        np.zeros(1, "f4"), np.float32([[2.0]]), np.float32([[-1.0]]), square_avg=up(1.0, v),
        momentum_buffer=up(2.0, b))
'
    judged EQUAL "$rms"'rms("as_it_is")'
    judged NEAR "$rms"'rms("momentum", b=1)'
    judged DIFFERS "$rms"'rms("square", v=1)'
}

@test "conform: second moments of vectors of Adafactor and CAME have no sum to be off by" {
    local square='
def square(name, by, n=4096):
    v = np.full((1, n), np.float32(4.0))
    v[0, 7] *= np.float32(by)
    run(name, {"optimizer": "Adafactor(torch)", "dtype": "f32", "lr": 1.0, "weight_decay": 0.0,
        "d": 1.0, "eps": [1e-30, 1e-3]}, np.full(n, 1.0, "f4"), np.full((1, n), 2.0, "f4"),
        np.zeros((1, n), "f4"), variance=v)
'
    judged EQUAL "$square"'square("as_it_is", 1.0)'
    judged NEAR "$square"'square("rounding", 1.0 + 2.0 ** -22)'
    judged DIFFERS "$square"'square("more", 1.0 + 2.0 ** -19)'
}

# Every element of the vector has the same norm in its step: an error of (n / 8 + 8) 2^-53.
@test "conform: a norm of many float64 numbers is off by its additions" {
    local norm='
n = 8192
def norm(name, by, rms=0.0):
    run(name, {"optimizer": "CAME", "dtype": "f64", "lr": 0.0, "weight_decay": 0.0,
        "betas": [0.5, 0.5, 0.5], "eps": [1e-30, 1e-16]}, np.ones(n),
        np.full((1, n), 1.0), np.ones((1, n)), RMS=[1.0 + rms], exp_avg=np.full((1, n), 0.5) * by,
        exp_avg_sq=np.full((1, n), 0.5))
'
    judged NEAR "$norm"'norm("lanes", 1.0 + 2.0 ** -46)' executed CAME.py
    judged DIFFERS "$norm"'norm("more", 1.0 + 2.0 ** -42)' executed CAME.py
    judged NEAR "$norm"'norm("RMS", 1.0, rms=0.9 * (n // 8) * 2.0 ** -53)' executed CAME.py
    judged DIFFERS "$norm"'norm("RMS", 1.0, rms=1.1 * (n // 8) * 2.0 ** -53)' executed CAME.py
}

@test "conform: momentum, dampening and alpha outside of [0, 1] are replayed or skipped" {
    local sgd='
def sgd(name, last):
    for dtype, t in (("f32", "f4"), ("f64", "f8")):
        run(name + dtype, {"optimizer": "SGD", "dtype": dtype, "lr": 0.5, "weight_decay": 0.0,
            "momentum": 1.5, "dampening": -1.0}, np.zeros(1, t), np.array([[2.0], [1.0]], t),
            np.array([[-1.0], [last]], t), momentum_buffer=np.array([[2.0], [5.0]], t))
'
    judged EQUAL "$sgd"'sgd("sgd", -3.5)'
    judged DIFFERS "$sgd"'sgd("sgd", -2.5)'
    judged skipped '
run("one", {"optimizer": "RMSprop", "dtype": "f32", "lr": 0.5, "alpha": 1.0, "eps": 1.0,
    "weight_decay": 0.0}, np.zeros(1, "f4"), np.float32([[2.0]]), np.float32([[-1.0]]),
    square_avg=np.float32([[0.0]]))
run("more", {"optimizer": "RMSprop", "dtype": "f64", "lr": 0.5, "alpha": 1.5, "eps": 1.0,
    "weight_decay": 0.0}, [0.0], [[2.0]], [[np.nan]], square_avg=[[-2.0]])'
    [[ $("$QUALM" conform "$X") == *"one  alpha is 1; replayed is one in [0, 1)"* ]]
}

@test "conform: the parameter at the start is read by any name, and so is not named as unread" {
    local start='
def start(name, *names):
    run(name, {"optimizer": "SGD", "dtype": "f32", "lr": 0.5, "weight_decay": 0.0},
        np.zeros(1, "f4"), np.float32([[2.0]]), np.float32([[-1.0]]))
    for n in names:
        f[name][n] = f[name]["param0"][()]
start("as_param0")
start("as_p0", "p0")
del f["as_p0"]["param0"]
start("both", "p0")
'
    made "$start"
    run -0 "$QUALM" conform "$X"
    [[ $output == *"both  not read: dataset p0"* && $output != *"as_p"*"not read"*"both"* ]]
}

# (1 - beta2) g g of torch: 1/4 of 2^1024 is finite.  NAdam by foreach corrects the root.
@test "conform: a square beyond float64 whose weighted square is not" {
    local over='
def over(name, optimizer, v, p, **more):
    run(name, {"optimizer": optimizer, "dtype": "f64", "lr": 1.0, "betas": [0.5, 0.75],
        "alpha": 0.75, "eps": 1e-8, "weight_decay": 0.0, "momentum_decay": 0.0, **more}, [0.0],
        [[2.0 ** 512]], [[p]], **({"square_avg": [[v]]} if optimizer == "RMSprop" else
                  {"exp_avg": [[2.0 ** 511]], "exp_avg_sq": [[v]]}),
        **({"mu_product": [0.25]} if optimizer == "NAdam" else {}))
def nadam(name, impl, p):
    over(name, "NAdam", 2.0 ** 1023, p, impl=impl, betas=[0.5, 0.5])
'
    judged EQUAL "$over"'
over("RMSprop", "RMSprop", 2.0 ** 1022, -2.0); nadam("single", "single", 0.0)
nadam("foreach", "foreach", -17.0 / 15.0)'
    judged NEAR "$over"'
over("AdamW", "AdamW", 2.0 ** 1022, -1.0); over("Adam", "Adam", 2.0 ** 1022, -1.0)'
    judged DIFFERS "$over"'
over("AdamW", "AdamW", np.inf, 0.0); over("Adam", "Adam", 2.0 ** 1022, 0.0)
over("RMSprop", "RMSprop", 2.0 ** 1022, -1.0); nadam("foreach", "foreach", 0.0)'
}

# 2^-1072 is 4 counts of 2^-1074, and half of it 2.
@test "conform: counts of 2^-1074 of float64 states are rounding, where anything is rounded" {
    local least='
def least(name, count, g=2.0 ** -536):
    run(name, {"optimizer": "Adam", "dtype": "f64", "lr": 1.0, "betas": [0.5, 0.5], "eps": 1.0,
        "weight_decay": 0.0}, [0.0], [[g]], [[-g]], exp_avg=[[g / 2]],
        exp_avg_sq=[[count * 2.0 ** -1074]])
def adafactor(name, count):
    run(name, {"optimizer": "Adafactor(torch)", "dtype": "f64", "lr": 0.0, "d": 1.0,
        "weight_decay": 0.0}, [1.0], [[2.0 ** -536]], [[1.0]], variance=[[count * 2.0 ** -1074]])
'
    judged EQUAL "$least"'least("made", 2); adafactor("adafactor", 4)'
    judged NEAR "$least"'least("one", 3); adafactor("adafactor", 5)'
    judged DIFFERS "$least"'least("more", 6); least("none", 1, 0.0); adafactor("adafactor", 14)'
}

# Gradients of 0 move nothing, so that the product alone is judged: from step `at` on in bfloat16,
# as load_state_dict leaves it; a step of `wrong` is off by as many of its last bits.
@test "conform: NAdam's product may be bfloat16 from a step on, as a loaded state is, and no other" {
    local loaded='
def bf16(x):
    x = np.array([x], "f4").view("u4")
    return ((x + 0x7fff + (x >> 16 & 1)) >> 16 << 16).astype("u4").view("f4")[0]
def one(name, impl, at, wrong, dtype="bf16", back=9):
    products = [np.float32(1)]
    for t in range(1, 7):
        mu = 0.9 * (1 - 0.5 * 0.96 ** (t * 0.004))
        by = np.float32(mu)
        if at <= t < back:
            by = bf16(by) if impl == "foreach" else by
            products.append(bf16(bf16(products[-1]) * by))
        else:
            products.append(products[-1] * by)
        if t in wrong:
            products[-1] = np.float32(products[-1] * (1 + wrong[t]))
    zero = np.zeros((6, 2), "u2" if dtype == "bf16" else "f4")
    run(name, {"optimizer": "NAdam", "dtype": dtype, "lr": 0.01, "betas": [0.9, 0.999],
        "eps": 1e-8, "weight_decay": 0.0, "momentum_decay": 0.004, "impl": impl}, zero[0], zero,
        zero, exp_avg=zero, exp_avg_sq=zero, mu_product=np.array(products[1:], "f4"))
def all(**how):
    for at in range(2, 7):
        for impl in "single", "foreach":
            one("%s%d" % (impl, at), impl, at, how.get("wrong", {}), how.get("dtype", "bf16"),
                how.get("back", 9))
'
    made "$loaded"'all()'
    run -0 "$QUALM" conform "$X"
    [[ $output == *"10 EQUAL, 0 NEAR, 0 DIFFERS"* ]]
    judged DIFFERS "$loaded"'all(wrong={6: 0.008})'
    judged DIFFERS "$loaded"'all(dtype="f32")'
    judged DIFFERS "$loaded"'
for at in 2, 3, 4: one("back%d" % at, "single", at, {}, back=5)'
}
