"""record_adafactor8bit.py - Records fresh runs of releases of adafactor8bit for compare.py.

A release is a folder of its own (pip install --target), for they exclude each other.  Every case is
one tensor of one optimizer with drawn arguments on the PyTorch path; what the package holds after
each step is recorded as tests/golden/README.md lays out adafactor8bit_real.h5, and `qualm conform`
replays each step from the recorded state before it.
"""
import importlib
import importlib.metadata
import io
import logging
import os
import sys

KINDS_02 = ("adafactor", "came", "apollo")
KINDS_04 = ("adafactor", "came", "adamw", "rmsprop", "sgd", "apollo")
CLASSES = ("normal", "small", "tiny", "huge", "outlier", "sparse", "zero_rows", "zeros",
           "decades", "spike", "nan", "inf", "turn", "repeat", "constant")


def number(release):
    return tuple(int(x) for x in release.split(".")[:3])


def load(release, folder):
    """The package of this release, and the release that its metadata name."""
    for name in [m for m in sys.modules if m.split(".")[0] == "adafactor8bit"]:
        del sys.modules[name]
    if not os.path.isdir(os.path.join(folder, "adafactor8bit")):
        raise ImportError("%s holds no adafactor8bit" % folder)
    found = list(importlib.metadata.distributions(name="adafactor8bit", path=[folder]))
    logging.getLogger("adafactor8bit").setLevel(logging.ERROR)
    sys.path.insert(0, folder)
    try:
        module = importlib.import_module("adafactor8bit.optimizer")
    finally:
        sys.path.remove(folder)
    logging.getLogger(module.__name__).setLevel(logging.ERROR)
    if not os.path.abspath(module.__file__).startswith(os.path.abspath(folder) + os.sep):
        raise ImportError("adafactor8bit comes from %s, not from %s" % (module.__file__, folder))
    return module, found[0].version if found else ""


# ---- what is drawn -------------------------------------------------------------------------------

def pick(rng, *values):
    return values[int(rng.integers(0, len(values)))]


def shape_of(rng, kind):
    """Vectors and matrices below and above the 4,096 elements from which states have codes; a
    dimension may be 1, and matrices may come in a batch."""
    rank = int(rng.integers(2, 4)) if kind == "apollo" else int(rng.integers(1, 5))
    most = pick(rng, 90, 4095, 7000, 12000)
    if kind == "apollo":
        most = min(most, 7000)
    shape = [1] * rank
    for _ in range(200):
        k = int(rng.integers(0, rank))
        n = 1
        for i, x in enumerate(shape):
            n *= x if i != k else 1
        shape[k] = max(1, int(rng.integers(1, 2 + max(1, most // n) ** pick(rng, 0.5, 1.0))))
        size = n * shape[k]
        if most // 3 <= size <= most:
            break
    return tuple(shape)


def gradients(np, rng, kind, steps, shape):
    g = rng.standard_normal((steps,) + shape)
    if kind == "small":
        g = g * 1e-3
    elif kind == "tiny":
        g = g * 2.0 ** -40
    elif kind == "huge":
        g = g * 2.0 ** 32
    elif kind == "outlier":
        g = np.where(rng.random(g.shape) < 1.0 / 700, 1e4 * g, g)
    elif kind == "sparse":
        g = np.where(rng.random(g.shape) < 0.92, 0.0, g)
    elif kind == "zero_rows":
        g.reshape(steps, shape[0], -1)[:, ::3] = 0.0
    elif kind == "zeros":
        g[rng.random(steps) < 0.5] = 0.0
    elif kind == "decades":
        g = g * 10.0 ** rng.uniform(-4.0, 2.0, g.shape)
    elif kind == "spike":
        g[steps // 2] *= 1e3
    elif kind == "turn":
        g[-1] *= 10.0 ** rng.uniform(-45.0, 15.0)
    elif kind == "repeat":
        g[1:] = g[:1]
    elif kind == "constant":
        g[...] = rng.standard_normal()
    elif kind in ("nan", "inf"):
        at = int(rng.integers(0, g[0].size))
        g.reshape(steps, -1)[steps // 2, at] = float(kind)
    return g.astype(np.float32)


def arguments_of(rng, release, kind):
    """Arguments of Adafactor8Bit; what a release lacks is not among them."""
    is_04 = release >= (0, 4)
    h = {
        "lr": float("%.2g" % 10.0 ** rng.uniform(-4.0, -1.0)),
        "beta1": pick(rng, 0.9, 0.9, 0.8, None), "beta2": pick(rng, None, 0.999, 0.95),
        "beta2_decay": pick(rng, -0.8, -0.5),
        "eps": (pick(rng, None, 1e-30, 1e-8, 1e-4), pick(rng, 1e-3, 1e-2)),
        "weight_decay": pick(rng, 0.0, 0.01, 0.1), "d": pick(rng, 1.0, 1.0, 2.0),
        "maximize": pick(rng, False, False, True), "relative_step": pick(rng, True, False),
        "scale_parameter": pick(rng, True, False), "scale_weight_decay": pick(rng, True, False),
        "factored": pick(rng, True, True, False), "quantize": pick(rng, True, True, True, False),
        "min_8bit_size": pick(rng, 4096, 4096, 1),
        "block_size": pick(rng, 2048, 2048, 1024), "m_block_size": pick(rng, 128, 64, 256),
        "fira_margin": pick(rng, 0.01, 0.1),
        "enable_fira_for_adafactor": pick(rng, False, False, True), "use_cuda_kernel": False,
    }
    if kind == "came":
        h.update(beta1=pick(rng, 0.9, 0.8), beta3=pick(rng, 0.9999, 0.9), factored=True)
        if release >= (0, 2, 6):
            h["eps_came"] = pick(rng, 1e-8, 1e-16)
    if kind == "apollo":
        h.update(apollo_rank=pick(rng, 2, 5, 16), apollo_update_proj_gap=pick(rng, 200, 3, 1),
                 apollo_scale_type=pick(rng, "channel", "tensor"),
                 apollo_eps=pick(rng, 1e-8, 1e-6), apollo_factorize=pick(rng, False, False, True))
        if release >= (0, 2, 6):
            h.update(apollo_scale=pick(rng, 1.0, 4.0), apollo_scale_front=pick(rng, False, True))
    if is_04:
        h.update(m_quant_type=pick(rng, "uf8", "uf8", "uf4", "d4", "d8", "fp32"),
                 v_quant_type=pick(rng, "al8", "al8", "al8", "al16", "fp32"),
                 d=pick(rng, 1.0, 1.0, 2.0, 0.5, 0.0),
                 bias_correction=pick(rng, None, None, True, False))
        if kind == "came":
            h["c_quant_type"] = pick(rng, None, None, "al8", "fp32")
        if kind == "apollo":
            h["enable_fira_for_apollo"] = pick(rng, True, True, False)
        if kind == "adamw":
            h.update(beta1=pick(rng, 0.9, 0.8), beta2=pick(rng, 0.999, 0.95), factored=False)
        if kind == "rmsprop":
            h.update(beta1=None, beta2=pick(rng, 0.99, 0.9), factored=False)
        if kind == "sgd":
            h.update(beta2=None, beta2_decay=None, relative_step=False, factored=False)
    return h


def widened(rng, release, kind, h):
    """The same arguments, some of them from the whole domain."""
    which = int(rng.integers(0, 6))
    if which < 3 and h["beta1"] is not None:
        h["beta1"] = float(pick(rng, 0.0, 1e-30, 1e-9, 1e-4, 0.01, 0.3, 0.5, 0.51, 0.99, 0.99999))
    if which in (1, 3) and h.get("beta2") is not None:
        h["beta2"] = float(pick(rng, 0.0, 1e-9, 0.3, 0.5, 0.9999999))
    if which in (0, 4):
        h["eps"] = (pick(rng, 0.0, 1e-20, 1.0, 1e-38), h["eps"][1])
    if which == 5:
        h["lr"] = float("%.3g" % 10.0 ** rng.uniform(-8.0, 1.0))
        h["eps"] = (h["eps"][0], pick(rng, 0.0, 1e-8, 10.0))
    if "beta3" in h and which in (2, 4):
        h["beta3"] = float(pick(rng, 0.0, 1e-6, 0.3, 0.5, 0.999))
    if "apollo_eps" in h and which == 3:
        h["apollo_eps"] = pick(rng, 0.0, 1e-30, 1e-2)


def extreme(np, rng, g):
    """The gradients g with numbers whose squares overflow or vanish, or with few bits."""
    which, at = int(rng.integers(0, 8)), int(rng.integers(0, g[0].size))
    wide = g.astype(np.float64)
    flat = wide.reshape(len(wide), -1)
    if which == 0:
        flat[:, at] = 10.0 ** rng.uniform(18.0, 38.0)
    elif which == 1:
        flat *= 10.0 ** rng.uniform(-44.0, -30.0)
    elif which == 2:
        flat *= 10.0 ** rng.uniform(15.0, 20.0)
    elif which == 3:
        flat[:] = np.round(4.0 * flat) / 4.0
    elif which == 4:
        flat[:, : 1 + at] *= 10.0 ** rng.uniform(8.0, 20.0)
    with np.errstate(over="ignore"):
        return wide.astype(np.float32)


# ---- a run ---------------------------------------------------------------------------------------

def attribute(value):
    """A hyper-parameter as the golden files store it: None is NaN, a flag 0 or 1."""
    if isinstance(value, tuple):
        return [attribute(x) for x in value]
    if isinstance(value, str):
        return value
    return float("nan") if value is None else int(value) if isinstance(value, bool) else value


def bits_of(np, tensor, is_bf16):
    x = np.array(tensor.detach().float().numpy())
    return (x.view(np.uint32) >> 16).astype(np.uint16) if is_bf16 else x


def projection(module, release, torch, state, shape):
    """The matrix of this step, as the package has drawn it, in the layout of the release."""
    rows, cols = shape[0], 1
    for x in shape[1:]:
        cols *= x
    rank = int(state["apollo_rank"])
    size = (rank, cols) if rows >= cols else (rows, rank)
    drawn = module.stable_randn(size, seed=state["current_proj_seed"], device=torch.device("cpu"),
                                dtype=torch.float32)
    drawn = drawn / rank ** 0.5
    return drawn.T.contiguous() if release >= (0, 4) else drawn


def reloaded(torch, module, optimizer, p, h):
    """Another optimizer that goes on from the state dictionary, saved to a file and loaded
    again."""
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    other = module.Adafactor8Bit([p], **h)
    other.load_state_dict(torch.load(file, weights_only=False))
    return other


def record(c, make_case, module, release, kind, steps, turn):
    """turn: how many cases of this kind were before; what it decides is not drawn, so that a seed
    draws the same cases as before that was varied."""
    torch, np, rng = c.torch, c.np, c.rng
    h, shape, grad_kind = arguments_of(rng, release, kind), shape_of(rng, kind), pick(rng, *CLASSES)
    if release >= (0, 4):
        h["momentum_only_1d"] = (None, True, None, False)[turn % 4]
    is_wide = turn % 2 == 1
    if is_wide:
        widened(rng, release, kind, h)
    is_bf16 = pick(rng, 0, 0, 0, 1) == 1 and grad_kind not in ("tiny", "huge")
    if h["eps"][0] is None and release >= (0, 4):  # steps of 0.4 take None for 1e-30
        h["eps"] = (1e-30, h["eps"][1])
    start = torch.from_numpy(rng.standard_normal(shape).astype(np.float32))
    grads = torch.from_numpy(gradients(np, rng, grad_kind, steps, shape))
    if is_wide:
        grads = torch.from_numpy(extreme(np, rng, grads.numpy()))
    if is_bf16:
        start, grads = start.bfloat16(), grads.bfloat16()
    p = torch.nn.Parameter(start.clone())
    optimizer = module.Adafactor8Bit([p], **h)
    reload_at = (None, 1, steps - 1)[turn % 3]  # before this step, counted from 0
    if release < (0, 4, 6) and (is_bf16 or (release >= (0, 4) and h["beta1"] is not None)):
        reload_at = None  # see variants/README.md, "State dictionaries"
    case = make_case("opt_v%s_%s_%s" % ("".join(str(x) for x in release), kind, grad_kind),
                     kind="optimizer", version="v%s" % "".join(str(x) for x in release),
                     shape=list(shape), steps=steps, grad_kind=grad_kind,
                     dtype="bfloat16" if is_bf16 else "float32",
                     reloaded_at=-1 if reload_at is None else reload_at,
                     **{"hp_" + k: "none" if k == "c_quant_type" and v is None else attribute(v)
                        for k, v in h.items()})
    case.data["p0"] = bits_of(np, start, is_bf16)
    case.data["grads"] = np.array(grads.float().numpy())
    seeds = []
    for t in range(steps):
        if t == reload_at:
            optimizer = reloaded(torch, module, optimizer, p, h)
        p.grad = grads[t].clone()
        optimizer.step()
        case.add("params", bits_of(np, p, is_bf16))
        state = optimizer.state[p]
        for name, value in state.items():
            if name != "step" and not name.startswith("apollo") and torch.is_tensor(value):
                stored = value.numpy()
                case.add("state/" + name, np.array(
                    stored.view(np.uint16) if stored.dtype == np.int16 else stored))
        if "current_proj_seed" in state:
            seed = int(state["current_proj_seed"])
            if seed not in seeds:
                seeds.append(seed)
                case.add("proj", projection(module, release, torch, state, shape).numpy())
            case.add("proj_index_per_step", seeds.index(seed))
    for name in [k for k, v in case.data.items() if k.startswith("state/") and len(v) != steps]:
        del case.data[name]  # made by the second step and never read
    return case


def cases(release):
    """A generator of cases of one release, for compare.py."""
    kinds = KINDS_04 if number(release) >= (0, 4) else KINDS_02

    def run(c, make_case, folder):
        module, said = load(release, folder)
        if said != release:
            raise ImportError("%s holds release %s" % (folder, said or "unknown"))
        for i in range(4 * c.cases * len(kinds)):
            case = record(c, make_case, module, number(release), kinds[i % len(kinds)], 5,
                          i // len(kinds))
            case.name = "%s_%03d" % (case.name, i)
            yield case
    return run
