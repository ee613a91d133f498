"""nqm_fair_rates.py - AdamW with NF4 momentum on the noisy quadratic model, at fair rates, in
NumPy.

A program of its own: it shares no code, no draws and no tables with Qualm.  Curvatures are 1 / i,
gradients h x + noise of variance h / 32 (arXiv:1907.04164), the momentum is stored in blocks of 128
as NF4 (arXiv:2305.14314).  For float64 it finds the learning rate with the lowest mean gap over the
last eighth of the steps among 10^(k / 8) times 10^-2.5, for nearest and stochastic rounding the one
nearest to float64's of those that eight seeds cannot tell apart from the lowest, and prints, for
fresh seeds, the mean of log10 (gap / float64's gap), each at its best rate, and its standard error:
after the last step, and of the late gaps.

    nqm_fair_rates.py N STEPS SEEDS
"""
import json
import sys

import numpy as np

NF4 = np.array([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
                -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
                0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
                0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
                0.7229568362236023, 1.0])


def stored(m, how, rng):
    """The momentum as NF4 keeps it; the last axis is cut into blocks of 128."""
    if how == "float64":
        return m
    blocks = m.reshape(*m.shape[:-1], -1, 128)
    scale = np.abs(blocks).max(axis=-1, keepdims=True)
    unit = blocks / np.where(scale > 0, scale, 1)
    high = np.clip(np.searchsorted(NF4, unit), 1, 15)
    low, top = NF4[high - 1], NF4[high]
    share = (unit - low) / (top - low)
    up = rng.random(unit.shape) < share if how == "stochastic" else share > 0.5
    return (np.where(up, top, low) * scale).reshape(m.shape)


def gaps(how, lr, n, steps, seeds, first):
    """The gaps of some seeds after the last step, and their means over the last eighth."""
    h = 1 / np.arange(1, n + 1)
    rng = [np.random.default_rng([first + s, 1]) for s in range(seeds)]
    draw = np.random.default_rng([first, 2])
    x = np.array([r.standard_normal(n) for r in rng])
    m, v = np.zeros_like(x), np.zeros_like(x)
    start, late, gap = (h * x * x).sum(axis=1), [], None
    for t in range(1, steps + 1):
        noise = np.array([r.standard_normal(n) for r in rng])
        g = h * x + np.sqrt(h / 32) * noise
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        x = x - lr * (m / (1 - 0.9 ** t)) / (np.sqrt(v / (1 - 0.999 ** t)) + 1e-8)
        m = stored(m, how, draw)
        gap = (h * x * x).sum(axis=1) / start
        if 8 * t > 7 * steps:
            late.append(gap)
    return gap, np.mean(late, axis=0)


def best_rate(how, n, steps, near):
    """The index k of a rate: goes from rate to rate while a neighbour is better, with eight seeds
    apart from those judged.  Of what these cannot tell apart from the lowest (Student's t, 95 %,
    differences of the same seed) it takes what is nearest to `near`, float64's; None: the lowest.
    """
    score = {}

    def at(k):
        if k not in score:
            score[k] = np.log10(gaps(how, 10 ** (k / 8 - 2.5), n, steps, 8, 9001)[1])
        return score[k].mean()

    best = 4 if near is None else near
    while min(at(best - 1), at(best + 1)) < at(best):
        best += 1 if at(best + 1) < at(best - 1) else -1
    if near is None:
        return best
    off = {k: score[k] - score[best] for k in score}
    same = [k for k, d in off.items() if d.mean() <= 2.3646 * d.std(ddof=1) / np.sqrt(8)]
    return min(same, key=lambda k: (abs(k - near), at(k)))


def main():
    n, steps, seeds = (int(word) for word in sys.argv[1:])
    twin = best_rate("float64", n, steps, None)
    rates = {how: 10 ** (best_rate(how, n, steps, twin) / 8) for how in ("nearest", "stochastic")}
    rates["float64"] = 10 ** (twin / 8)
    ends = {how: gaps(how, rate * 10 ** -2.5, n, steps, seeds, 1) for how, rate in rates.items()}
    out = {"rates": rates}
    for how in ("nearest", "stochastic"):
        d = [np.log10(a / b) for a, b in zip(ends[how], ends["float64"])]
        out[how] = {name: [x.mean(), x.std(ddof=1) / np.sqrt(seeds)]
                    for name, x in zip(("last", "late"), d)}
    print(json.dumps(out))


main()
