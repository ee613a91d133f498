"""draw.py - What compare.py draws: gradients, shapes, hyper-parameters.

Every second case is one of use: classes of gradients and hyper-parameters that people take.  The
others are drawn from the whole domain that a package accepts: gradients and parameters from
subnormal numbers to those whose squares overflow, zeros, NaN and infinities, few-bit numbers
that make ties of bfloat16; betas from 0 to 1 - 2^-24, eps from 0, decay that shrinks nothing.
"""
CLASSES = ("normal", "decades", "sparse", "outlier", "tiny")
WIDE_CLASSES = ("normal", "decades", "subnormal", "huge", "one_huge", "huge_block", "ties", "zeros",
                "cancel", "nan", "inf", "spike", "edge", "turn")


def pick(rng, *values):
    return values[int(rng.integers(0, len(values)))]


def gradients(np, rng, kind, steps, shape):
    """Gradients that float32 represents; those of CLASSES are rounded to float16."""
    g = rng.standard_normal((steps,) + shape)
    flat = g.reshape(steps, -1)
    at = int(rng.integers(0, flat.shape[1]))
    if kind == "decades":
        g = g * 10.0 ** rng.uniform(-4.0, 2.0, g.shape)
    elif kind == "sparse":
        g = np.where(rng.random(g.shape) < 0.7, 0.0, g)
    elif kind == "outlier":
        g = np.where(rng.random(g.shape) < 0.01, 1000.0 * g, g)
    elif kind == "tiny":
        g = 1e-5 * g
    elif kind == "subnormal":
        g = g * 10.0 ** rng.uniform(-45.0, -36.0)
    elif kind == "huge":
        g = g * 10.0 ** rng.uniform(17.0, 37.5)
    elif kind == "one_huge":
        flat[:, at] = 10.0 ** rng.uniform(18.5, 38.0)
    elif kind == "huge_block":
        flat[:, : 1 + at] *= 10.0 ** rng.uniform(10.0, 20.0)
    elif kind == "ties":
        g = np.round(4.0 * g) * 2.0 ** float(rng.integers(-12, 4))
    elif kind == "zeros":
        g[rng.random(steps) < 0.6] = 0.0
    elif kind == "cancel":
        g[1:] = np.where(rng.random(g[1:].shape) < 0.5, -g[:1], g[:1])
    elif kind in ("nan", "inf"):
        flat[steps // 2, at] = float(kind)
    elif kind == "spike":
        g[steps // 2] *= 10.0 ** rng.uniform(3.0, 20.0)
    elif kind == "edge":
        g = g * 10.0 ** rng.uniform(-44.0, 38.0, g.shape)
    elif kind == "turn":
        g[-1] *= 10.0 ** rng.uniform(-45.0, 30.0)
    with np.errstate(over="ignore"):
        return g.astype(np.float16 if kind in CLASSES else np.float32)


def small_shape(rng):
    rank = int(rng.integers(0, 4))
    return tuple(int(x) for x in rng.integers(1, (300, 60, 20, 9)[rank], rank))


def rate(rng):
    return float("%.2g" % 10.0 ** rng.uniform(-4.0, -1.0))


def beta(rng):
    """An average's weight of the past, over the whole of [0, 1)."""
    return float("%.7g" % pick(rng, 0.0, 1e-30, 10.0 ** rng.uniform(-9.0, -1.0),
                               rng.uniform(0.0, 1.0), 0.5, 1.0 - 10.0 ** rng.uniform(-7.0, -1.0)))


def size(rng, low, high):
    """0 or a number between the powers of ten."""
    return pick(rng, 0.0, *[float("%.3g" % 10.0 ** rng.uniform(low, high))] * 3)


def widened(rng, h):
    """The same hyper-parameters, from the whole domain; what is no number stays."""
    wide = dict(h)
    for name in h:
        if name == "lr":
            wide[name] = float("%.3g" % 10.0 ** rng.uniform(-8.0, 2.0))
        elif name == "betas":
            wide[name] = tuple(beta(rng) for _ in h[name])
        elif name in ("alpha", "momentum"):
            wide[name] = beta(rng) if not name == "momentum" or h[name] else 0.0
        elif name == "eps" and not isinstance(h[name], tuple):
            wide[name] = size(rng, -20.0, 0.0)
        elif name in ("weight_decay", "lr_decay"):
            wide[name] = size(rng, -4.0, 0.5)
        elif name in ("initial_accumulator_value", "dampening") and h[name]:
            wide[name] = float("%.3g" % rng.uniform(0.0, 1.0))
        elif name == "momentum_decay":
            wide[name] = size(rng, -5.0, 1.0)
        elif name in ("d", "clip_threshold"):
            wide[name] = float("%.3g" % 10.0 ** rng.uniform(0.0 if name == "d" else -3.0, 3.0))
        elif name == "beta2_decay":
            wide[name] = -float("%.3g" % rng.uniform(0.05, 1.0))
    if wide.get("momentum") == 0.0 and "nesterov" in wide:  # torch refuses the two together
        wide["nesterov"] = False
    return wide


def draw_adam(rng):
    return {"lr": rate(rng),
            "betas": (pick(rng, 0.9, 0.8, 0.95, 0.0), pick(rng, 0.999, 0.95, 0.99)),
            "eps": pick(rng, 1e-8, 1e-6, 1e-3), "weight_decay": pick(rng, 0.0, 0.01, 0.1)}


def draw_adamw(rng):
    h = draw_adam(rng)
    h.update(amsgrad=pick(rng, False, False, True), maximize=pick(rng, False, False, True))
    return h


def draw_sgd(rng):
    h = {"lr": rate(rng), "momentum": pick(rng, 0.0, 0.9, 0.5),
         "weight_decay": pick(rng, 0.0, 0.05), "dampening": pick(rng, 0.0, 0.1),
         "maximize": pick(rng, False, True)}
    h["nesterov"] = h["momentum"] > 0 and h["dampening"] == 0 and pick(rng, False, True)
    return h


def draw_rmsprop(rng):
    return {"lr": rate(rng), "alpha": pick(rng, 0.99, 0.9), "eps": pick(rng, 1e-8, 1e-4),
            "weight_decay": pick(rng, 0.0, 0.05), "momentum": pick(rng, 0.0, 0.9),
            "centered": pick(rng, False, True)}


def draw_adagrad(rng):
    return {"lr": rate(rng), "lr_decay": pick(rng, 0.0, 0.01), "weight_decay": pick(rng, 0.0, 0.05),
            "initial_accumulator_value": pick(rng, 0.0, 0.1), "eps": pick(rng, 1e-10, 1e-5)}


def draw_nadam(rng):
    h = draw_adam(rng)
    h.update(momentum_decay=pick(rng, 4e-3, 0.1), decoupled_weight_decay=pick(rng, False, True))
    return h


def draw_radam(rng):
    h = draw_adam(rng)
    h.update(decoupled_weight_decay=pick(rng, False, True))
    return h


def draw_adafactor(rng):
    return {"lr": rate(rng), "beta2_decay": pick(rng, -0.8, -0.5), "d": pick(rng, 1.0, 2.0),
            "eps": (None, 1e-3), "weight_decay": pick(rng, 0.0, 0.05)}


def draw_came(rng):
    return {"lr": rate(rng), "eps": (1e-30, 1e-16), "clip_threshold": pick(rng, 1.0, 0.5),
            "betas": (0.9, 0.999, 0.9999), "weight_decay": pick(rng, 0.0, 0.01)}


def draw_lion(rng):
    return {"lr": rate(rng), "betas": (pick(rng, 0.9, 0.95), pick(rng, 0.99, 0.98)),
            "weight_decay": pick(rng, 0.0, 0.01, 0.1)}
