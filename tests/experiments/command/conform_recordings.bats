#!/usr/bin/env bats
# conform_recordings.bats - Tests what qualm conform makes of recordings of lpmm, COAT, MicroAdam,
# Fira, Muon and Shampoo: what must be there, what is judged, and how far a number may be off.

load ../../support/conform_common

setup() {
    needs_hdf5
    X=$BATS_TEST_TMPDIR/x.h5
}

# edited FILE GROUP LINE...: copies of one group of a golden file, each edited by a line of Python
# on g, its attributes a and the file's attributes r; how each is judged, one word a line.
edited() {
    PYTHONPATH=$ROOT/tests/support "$PYTHON" - "$X" "$ROOT/tests/golden/$1.h5" "${@:2}" << 'P'
import sys, h5py, numpy as np
from golden_copy import copy
path, source, name, *edits = sys.argv[1:]
with h5py.File(source) as f, h5py.File(path, "w") as out:
    for key, value in f.attrs.items():
        out.attrs[key] = value
    for i, edit in enumerate(edits):
        g = out.create_group("%s~%03d" % (name, i))
        copy(f[name], g)
        a, r = g.attrs, out.attrs
        def put(key, value):
            del g[key]
            g[key] = value
        exec(edit)
P
    "$QUALM" conform -v "$X" | awk '/~[0-9]/ { print $1 }'
}

# is WORD FILE GROUP LINE...: all are judged so
is() {
    local want=$1 got; shift
    got=$(edited "$@")
    [ "$(sort -u <<< "$got")" = "$want" ] && [ "$(wc -l <<< "$got")" = $(($# - 2)) ] ||
        { printf '%s\n' "$@" "is" "$got" "not $want" && false; }
}

@test "conform: a state or an attribute of a run that is missing or short is UNREADABLE" {
    long 3
    local name key edits
    for name in adamw_libdefault/1d adamw_default_yml/conv factor/tall fused/zero_rows_fma; do
        edits=()
        for key in $("$PYTHON" -c "import h5py
g = h5py.File('$ROOT/tests/golden/lpmm.h5')['$name']
print(*[k for k in g if not k.endswith('_last')])"); do
            edits+=("del g['$key']" "put('$key', g['$key'][()].reshape(-1)[:-1])")
        done
        for key in T lr beta1 beta2 eps weight_decay kept_steps M_bits M_quant_type; do
            edits+=("del a['$key']")
        done
        is UNREADABLE lpmm $name "${edits[@]}" \
            "[g.__delitem__(k) for k in list(g) if k[:4] in ('p0_m', 'p0_v')]"
    done
    edits=()
    for key in stat0_codes stat0_absmax stat0_eigenvalues root1_{codes,absmax,diag,lowbit}; do
        edits+=("del g['state/$key']" "put('state/$key', g['state/$key'][1:])")
    done
    is UNREADABLE shampoo4bit optim/adamw4 "${edits[@]}"
    edits=()
    for key in lr betas eps weight_decay expansion group_size; do
        edits+=("del a['$key']")
    done
    is UNREADABLE coat optim/expand_zero_rows "${edits[@]}" "del g['state/v_expand']"
    is UNREADABLE microadam optim/alpha "del a['betas']" "del g['state/min']" \
        "put('state/value', g['state/value'][1:])"
}

# lack WORD FILE GROUP NAME...: copies without one of the attributes are judged so
lack() {
    local edits=() name
    for name in "${@:4}"; do edits+=("del a['$name']"); done
    is "$1" "$2" "$3" "${edits[@]}"
}

@test "conform: no required attribute has a default" {
    long 2
    lack UNREADABLE apollo norank_adamw_f32 lr
    lack UNREADABLE fira rms_mom_f32 lr
    lack UNREADABLE flashoptim adamw_bf16_bf16_3B_q8_50 lr algo
    lack UNREADABLE lion8bit class_b11_f32 lr initial_lr beta1
    lack UNREADABLE lion8bit q8step_bf16_50_gauss lr weight_decay_factor beta1
    lack UNREADABLE shampoo4bit optim/adamw4 min_lowbit_size stat_decay matrix_eps \
        start_prec_step inv_root_mode weight_decay
    lack UNREADABLE solo optim/adabelief_4_2 betas bits block_sizes_asked
    lack UNREADABLE adafactor8bit_043plus opt_v046_sgd_m_uf8 \
        hp_{lr,beta1,beta2,beta2_decay,eps,d,factored} \
        hp_{scale_parameter,relative_step,block_size,m_block_size,fira_margin}
}

@test "conform: an attribute of another type or length has no default; flags may be truth values" {
    is UNREADABLE apollo norank_adamw_f32 "a['betas'] = 'none'" "a['betas'] = 0.9" \
        "a['eps'] = 'none'" "a['rank'] = 'none'"
    is UNREADABLE torch215_adamw adam_l2_single_ieee_f32 "a['betas'] = 'none'" "a['betas'] = 0.9"
    is UNREADABLE shampoo4bit optim/adamw4 "a['betas'] = 0.9"
    is EQUAL sgd nesterov_f32 "a['nesterov'] = True" "a['maximize'] = False"
    is DIFFERS sgd nesterov_f32 "a['nesterov'] = False"
}

@test "conform: lpmm, COAT, MicroAdam and Shampoo follow lr_per_step" {
    long 4
    local file name steps
    while read -r file name steps; do
        is "$(edited $file $name pass)" $file $name \
            "g['lr_per_step'] = np.full(int(a['$steps']), a['lr'])"
        is DIFFERS $file $name "g['lr_per_step'] = np.full(int(a['$steps']), 3 * a['lr'] + 1)"
        is UNREADABLE $file $name "g['lr_per_step'] = np.full(int(a['$steps']) + 1, a['lr'])"
    done << 'E'
lpmm adamw_libdefault/1d T
lpmm fused/zero_rows_fma T
coat optim/expand_zero_rows steps
microadam optim/alpha steps
shampoo4bit optim/adamw4 steps
E
}

@test "conform: runs of lpmm, COAT and MicroAdam are judged by registered variants" {
    long 2
    run -0 "$QUALM" conform -v "$ROOT"/tests/golden/{lpmm,coat,microadam}.h5
    for variant in adamw4_lpmm adamw4_lpmm_group adamw8_lpmm adamw4_lpmm_factor adamw4_lpmm_fused \
        sgdm4_lpmm adamw8_coat adamw8_coat_plain microadam4; do
        grep -Eq "^(EQUAL|NEAR) .*\[$variant[;,]" <<< "$output"
    done
}

@test "conform: a NaN does not enter the scale of plain COAT" {
    local nan="i = int(np.argmin(abs(g['x'][()].reshape(-1)[:128])))
for k, v in (('x', np.nan), ('m_codes', 127), ('v_codes', 127), ('m_dequant', np.nan),
             ('v_dequant', np.nan)):
    y = g[k][()]; y.reshape(-1)[i] = v; put(k, y)"
    is EQUAL coat quant_plain/gauss "$nan"
    is DIFFERS coat quant_plain/gauss "$nan
s = g['m_scale'][()]; s.reshape(-1)[0] = np.nan; put('m_scale', s)"
}

@test "conform: COAT: no other scale under an infinite exponent, no code off by one" {
    is DIFFERS coat optim/expand_scalar_constant2 \
        "s = g['state/v_scale'][()]; s[1:] = 7; put('state/v_scale', s)"
    is DIFFERS coat optim/expand_partial \
        "s = g['state/v_codes'][()]; s.reshape(-1)[7] ^= 1; put('state/v_codes', s)"
}

@test "conform: MicroAdam: one bit of a parameter in a whole vector DIFFERS" {
    is DIFFERS microadam optim/alpha "p = g['params'][()]; p[1, 3] ^= 1; put('params', p)"
    is NEAR microadam optim/small pass
}

@test "conform: MicroAdam: indices are integers of any width, within their block" {
    local put="put('state/index', i" i="i = g['state/index'][()].astype('i8')"
    is EQUAL microadam optim/alpha "$i; $put"{,'.astype("u2")','.astype(">i4")'}")"
    is DIFFERS microadam optim/alpha "$i; i[0, 0, 0] "{'+= 1','= -1','= 1 << 40'}"; $put)"
}

@test "conform: Shampoo: scales of an eigenvector that give it another length, or a sign" {
    for by in 1.5 -1; do
        is DIFFERS shampoo4bit optim/adamw4 \
            "s = g['state/stat0_absmax'][()]; s[2] *= $by; put('state/stat0_absmax', s)"
    done
}

@test "conform: Shampoo: whole steps are judged of unequal pieces, where orders say what has codes" {
    local judged
    is NEAR shampoo4bit optim/partitioned pass "a['min_lowbit_size'] = 10**9"
    judged=$("$QUALM" conform --json "$X" | "$PYTHON" -c "import json, sys
print(*[c['compared'] for f in json.load(sys.stdin)['files'] for c in f['cases']])")
    # moment and parameter of every step
    "$PYTHON" -c "import h5py
n = h5py.File('$ROOT/tests/golden/shampoo4bit.h5')['optim/partitioned/params'].size
with_them, without = map(int, '$judged'.split())
assert with_them - without == 2 * n, (with_them, without, n)"
}

# made LINE: a step of lpmm's AdamW of 64 float32 parameters between 2 and 3, by a line of Python on
# the numbers before it; root: what the package's square root is off by, in ulp.
made() {
    "$PYTHON" - "$X" "$1" << 'P'
import sys, h5py, numpy as np
path, edit = sys.argv[1:]
f32, n, lr, root, version, more, sqrt = np.float32, 64, 0.1, 1, "2.15.0", {}, None
rng = np.random.default_rng(5)
p0 = rng.uniform(2, 3, n).astype(f32)
g = rng.normal(size=n).astype(f32)
after = lambda p: p
exec(edit)
w1, w2 = f32(1 - 0.9), f32(1 - 0.999)
m = w1 * g
v = (np.float64(w2 * g) * g).astype(f32)
s = np.sqrt(v)
for _ in range(root):
    s = np.nextafter(s, f32(9e9))
den = s / f32(np.sqrt(1 - 0.999)) + f32(1e-8)
p = after(p0 * f32(1) + (f32(-lr / (1 - 0.9)) * m) / den)
with h5py.File(path, "w") as f:
    f.attrs["system"], f.attrs["torch_version"] = "lpmm", version
    c = f.create_group("x")
    for k, x in dict(T=1, lr=lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, n_params=1,
                     kept_steps=[1], shape_p0=[n], **more).items():
        c.attrs[k] = x
    if sqrt:
        c.attrs["sqrt"] = sqrt
    c["p0_init"], c["p0_grads"], c["p0_params"] = p0, g[None], p[None]
    c["p0_v_fp32"] = v[None]
    if "M_bits" in more: # 0 / 0 has code 255
        c["p0_m_codes"], c["p0_m_scale"] = np.full((1, n), 255), np.zeros((1, 1), f32)
    else:
        c["p0_m_fp32"] = m[None]
P
    "$QUALM" conform "$X" | awk 'NR == 2 { print $1 }'
}

# The parameters follow from the factors, so that nothing but the factors is wrong.
@test "conform: Muon: a factor that is longer, or whose numbers are exchanged, DIFFERS" {
    local with='
o, q = g["ns_output"][...], g["p0"][...]
new = np.empty_like(o)
for t, rate in enumerate(np.float32(g["lr_per_step"][...])):
    x = np.ascontiguousarray(factor(o[t]), np.float32)
    u = x.view(np.uint32)
    new[t] = (((u + 0x7fff + ((u >> 16) & 1)) >> 16) << 16).view(np.float32)
    step = rate * np.float32(np.sqrt(8 / 20)) * new[t]
    u = step.view(np.uint32)
    step = (((u + 0x7fff + ((u >> 16) & 1)) >> 16) << 16).view(np.float32)
    q = (q * (np.float32(1) - rate * np.float32(a["weight_decay"])) - step).astype(np.float32)
    g["params"][t] = q
g["ns_output"][...] = new'
    is EQUAL muon_limits optim/rates "factor = lambda o: o$with"
    is DIFFERS muon_limits optim/rates "factor = lambda o: o * 1.05$with" \
        "factor = lambda o: o * 0$with" "factor = lambda o: o[:, ::-1]$with" \
        "factor = lambda o: np.where(np.arange(20) % 2, o, o * 0.9)$with"
}

@test "conform: lpmm: a root that is an ulp off is within the step, an ulp of a parameter is not" {
    long 2
    [ "$(made "root = 0")" = EQUAL ]
    [ "$(made "lr = 3.0")" = NEAR ]
    [ "$(made "lr = 3.0; root = 9")" = DIFFERS ]
    [ "$(made "lr = 3.0; sqrt = 'ieee'")" = DIFFERS ]
    [ "$(made "lr = 3.0; version = '1.13.0a0'")" = DIFFERS ]
    [ "$(made "lr = 1e-12; after = lambda p: p0")" = EQUAL ]
    [ "$(made "lr = 1e-12; after = lambda p: np.nextafter(p, f32(9))")" = DIFFERS ]
    local small="p0 *= f32(1e-3); lr = 1e-7; after = lambda p: p0"
    [ "$(made "$small")" = DIFFERS ]
    [ "$(made "$small + (p - p0) * f32(1.01)")" = DIFFERS ]
}

@test "conform: lpmm: code 255 of a table of 64 entries is the top code" {
    local six="g *= 0; root = 0
more = dict(M_bits=6, M_signed=1, M_group_size=128, M_quant_type='power-1', M_scale_type='tensor',
            M_round_type='real-nearest')"
    [ "$(made "$six")" = EQUAL ]
}

@test "conform: tables of lpmm are those of the release that made the recording" {
    local version
    for version in 2.15.0 1.13.0a0; do
        "$PYTHON" - "$X" $version << 'P'
import sys, h5py, numpy as np
k, step = np.arange(16), np.float64(np.float32(2) / np.float32(15))
with h5py.File(sys.argv[1], "w") as f:
    f.attrs["system"], f.attrs["torch_version"] = "lpmm", sys.argv[2]
    g = f.create_group("maps/x")
    g["qmap"] = np.where(k < 8, step * k - 1, 1 - step * (15 - k)).astype("f4")
    for key, value in dict(bits=4, signed=1, quant_type="power-1").items():
        g.attrs[key] = value
P
        run "$QUALM" conform "$X"
        [ "$status" = "$([ $version = 2.15.0 ] && echo 0 || echo 1)" ]
    done
    is DIFFERS lpmm maps/power-1_b4_signed "r['torch_version'] = '2.15.0'"
}

# fira RANK LINE: a step of FiraAdamW whose gradient has that rank, in float32, edited by a line.
fira() {
    "$PYTHON" - "$X" "$1" "$2" << 'P'
import sys, h5py, numpy as np
path, rank, edit = sys.argv[1], int(sys.argv[2]), sys.argv[3]
f32, rng, shrink, size_by = np.float32, np.random.default_rng(3), 1.0, 1.0
exec(edit)
g = sum(np.outer(rng.normal(size=12), rng.normal(size=7)) for _ in range(rank)).astype(f32)
g *= f32(shrink)
proj = np.linalg.svd(g.astype(np.float64))[2][:2].astype(f32)
norm = lambda x, **k: np.sqrt((x * x).sum(dtype=f32, **k), dtype=f32)
low = g @ proj.T
m, v = f32(0.1) * low, f32(1 - 0.999) * low * low
adapted = m / (np.sqrt(v) + f32(1e-6))
ratio = norm(adapted, axis=1, keepdims=True) / (norm(low, axis=1, keepdims=True) + f32(1e-8))
rest = (g - low @ proj) * ratio
p0 = rng.normal(size=g.shape).astype(f32)
p = p0 - f32(1e-2 * np.sqrt(1 - 0.999) / (1 - 0.9)) * (adapted @ proj + rest)
size = norm(rest) * f32(size_by)
with h5py.File(path, "w") as f:
    f.attrs["executed"] = "optimizer_torch/fira_adamw.py"
    c = f.create_group("x")
    for k, x in dict(steps=1, dtype="f32", shape=g.shape, ndim=2, optimizer="FiraAdamW", rank=2,
                     update_proj_gap=200, alpha=1.0, proj_type="std", lr=1e-2, betas=[0.9, 0.999],
                     eps=1e-6, weight_decay=0.0, correct_bias=1).items():
        c.attrs[k] = x
    c["param0"], c["grads"], c["params"] = p0.ravel(), g.reshape(1, -1), p.reshape(1, -1)
    c["proj"], c["proj_step"] = proj[None], np.array([0])
    c["state_exp_avg"], c["state_exp_avg_sq"] = m.reshape(1, -1), v.reshape(1, -1)
    c["state_scaling_grad_norm"] = np.array([[size]])
P
    "$QUALM" conform "$X" | awk 'NR == 2 { print $1 }'
}

@test "conform: Fira: the residual of a gradient of low rank is rounding, that of another is not" {
    [ "$(fira 5 pass)" = NEAR ]
    [ "$(fira 1 pass)" = NEAR ]
    [ "$(fira 2 pass)" = NEAR ]
    [ "$(fira 5 "shrink = 1e-30")" = NEAR ]
    [ "$(fira 5 "size_by = 1.001")" = DIFFERS ]
    [ "$(fira 2 "size_by = 1e4")" = DIFFERS ]
}

# fira_rms RANK LINE: two steps of FiraRMSProp, centered and with momentum: a gradient of that rank,
# then its opposite, so that averages and momentum cancel; sums in an order that a line chooses.
fira_rms() {
    "$PYTHON" - "$X" "$1" "$2" << 'P'
import sys, h5py, numpy as np
path, rank, edit = sys.argv[1], int(sys.argv[2]), sys.argv[3]
f32, rng, order = np.float32, np.random.default_rng(3), slice(None)
by = dict(params=1.0, square_avg=1.0, momentum_buffer=1.0, grad_avg=1.0, scaling_grad_norm=1.0)
exec(edit)
g = sum(np.outer(rng.normal(size=12), rng.normal(size=7)) for _ in range(rank)).astype(f32)
proj = np.linalg.svd(g.astype(np.float64))[2][:2].astype(f32)
norm = lambda x, **k: np.sqrt((x * x).sum(dtype=f32, **k), dtype=f32)
p = p0 = rng.normal(size=g.shape).astype(f32)
grads, kept, v, a, m, last = [], {k: [] for k in by}, f32(0), f32(0), f32(0), None
for x in g, f32(-0.9) * g:
    low = np.ascontiguousarray(x[:, order]) @ np.ascontiguousarray(proj[:, order]).T
    v, a = f32(0.9) * v + f32(0.1) * low * low, f32(0.9) * a + f32(0.1) * low
    m = f32(0.9) * m + low / (np.sqrt(v - a * a) + f32(1e-6))
    ratio = norm(m, axis=1, keepdims=True) / (norm(low, axis=1, keepdims=True) + f32(1e-8))
    rest = (x - low @ proj) * ratio
    size = norm(rest)
    if last is not None:
        limiter = max(size / (last + f32(1e-8)), f32(1.01)) / f32(1.01)
        rest, size = rest / limiter, size / limiter
    last, p = size, p - f32(1e-2) * (m @ proj + rest)
    grads.append(x.ravel())
    for k, y in dict(params=p, square_avg=v, momentum_buffer=m, grad_avg=a,
                     scaling_grad_norm=size).items():
        kept[k].append(np.array(y).ravel())
with h5py.File(path, "w") as f:
    f.attrs["executed"] = "optimizer_torch/fira_rmsprop.py"
    c = f.create_group("x")
    for k, x in dict(steps=2, dtype="f32", shape=g.shape, ndim=2, optimizer="FiraRMSProp", rank=2,
                     update_proj_gap=200, alpha=1.0, proj_type="std", lr=1e-2, beta=0.9,
                     momentum=0.9, centered=1, eps=1e-6, weight_decay=0.0).items():
        c.attrs[k] = x
    c["param0"], c["grads"], c["proj"], c["proj_step"] = p0.ravel(), grads, proj[None], [0]
    for k, x in kept.items():
        x = np.array(x, f32)
        x[1, np.abs(x[1]).argmax()] *= f32(by[k])
        c[k if k == "params" else "state_" + k] = x
P
    "$QUALM" conform "$X" | awk 'NR == 2 { print $1 }'
}

@test "conform: FiraRMSProp: what cancels in its sums is rounding, nothing else" {
    long 4
    local rank order name want
    for rank in 1 2 5; do
        want=NEAR
        [ $rank != 1 ] || want=skipped # all of the second step is rounding
        for order in "pass" "order = slice(None, None, -1)" "order = [3, 0, 6, 1, 5, 2, 4]"; do
            [ "$(fira_rms $rank "$order")" = $want ]
        done
    done
    for name in params square_avg momentum_buffer; do
        [ "$(fira_rms 5 "by['$name'] = 1.001")" = DIFFERS ]
        [ "$(fira_rms 2 "by['$name'] = 1.001")" = DIFFERS ]
    done
    [ "$(fira_rms 5 "by['scaling_grad_norm'] = 1.001")" = DIFFERS ]
    [ "$(fira_rms 2 "by['scaling_grad_norm'] = 1.1")" = NEAR ] # of rank 2 it is rounding,
    [ "$(fira_rms 5 "by['grad_avg'] = 1.1")" = NEAR ]          # and so is this average
    [ "$(fira_rms 5 "by['grad_avg'] = 1000.0")" = DIFFERS ]
}

# A run without a limiter, as its first step is, has no norm whose error would hide that of a step.
@test "conform: APOLLO: a parameter off by a hundredth of the largest step DIFFERS" {
    local t off edits=()
    for t in 0 1 7; do
        for off in 0.01 -0.01; do
            edits+=("p = g['params'][()]; x = p[$t].reshape(-1)
d = x - (p[$t - 1] if $t else g['param0'][()]).reshape(-1)
x[abs(d).argmax()] += $off * d[abs(d).argmax()]; put('params', p); del g['proj_seed']")
        done
    done
    is DIFFERS apollo mini_tall_f32 "${edits[@]}"
    local alone="a['steps'], a['disable_nl'] = 1, 1; del g['proj_seed'], g['state_scaled_grad_norm']
[put(k, g[k][:1]) for k in ('grads', 'params', 'state_exp_avg', 'state_exp_avg_sq')]"
    is NEAR apollo mini_tall_f32 "$alone"
    is DIFFERS apollo mini_tall_f32 "$alone
p = g['params'][()]; d = (p - g['param0'][()]).ravel(); p.ravel()[abs(d).argmax()] += 0.01 * max(d)
put('params', p)"
}

@test "conform: what no replay reads of a run is named, whatever system it is of" {
    long 3
    local file
    cd "$BATS_TEST_TMPDIR" || return 1
    for file in bitsandbytes apollo fira torchao018_compiled coat muon8bit microadam; do
        cp "$ROOT/tests/golden/$file.h5" x.h5
        "$PYTHON" - <<'PY'
import h5py
with h5py.File("x.h5", "r+") as f:
    runs = []
    f.visititems(lambda name, o: runs.append(name)
                 if isinstance(o, h5py.Group) and "grads" in o else None)
    for i, name in enumerate(runs):
        f[name].attrs["cautious"] = i % 2 # no flag is off everywhere
        f[name]["other"] = 1.0
PY
        run -0 "$QUALM" conform x.h5 --json
        "$PYTHON" -c '
import json, sys
cases = [c for f in json.load(sys.stdin)["files"] for c in f["cases"]]
runs = [c["text"] for c in cases if "cautious" in c["text"]]
assert runs, cases
assert all("not read: attribute" in t for t in runs), runs' <<<"$output"
        cp "$ROOT/tests/golden/$file.h5" x.h5
        [[ $("$QUALM" conform x.h5 -v) != *cautious* ]]
    done
}

# A seed draws the run of each system; the start may be empty, or too large to be there.
@test "conform: an empty start, a shape of another size, half a step are UNREADABLE" {
    long 3
    PYTHONPATH=$ROOT/tests/support "$PYTHON" - "$ROOT/tests/golden" "$X" "${QM_TEST_SEED:-1}" << 'P'
import glob, random, sys, h5py, numpy as np
from golden_copy import copy
folder, path, seed = sys.argv[1:]
draw = random.Random(int(seed))
starts = ("p0", "param0", "params0")
def runs(f):
    found = []
    f.visititems(lambda name, g: found.append(name) if isinstance(g, h5py.Group) and
                 any(key in g for key in starts) else None)
    return found
for i, source in enumerate(sorted(glob.glob(folder + "/*.h5"))):
    with h5py.File(source) as f, h5py.File(path.replace("x.h5", "x%02d.h5" % i), "w") as out:
        for key, value in f.attrs.items():
            out.attrs[key] = value
        for k in range(5 if runs(f) else 0):
            name = draw.choice(runs(f))
            parent, _, last = name.rpartition("/")
            g = out.create_group("%s%s~%d" % (parent + "/" if parent else "", last, k))
            copy(f[name], g)
            key = next(key for key in starts if key in g)
            old, n = g[key], g[key].size
            whole = [a for a in ("steps", "T") if a in g.attrs]
            if k == 4 and whole:
                g.attrs[whole[0]] = g.attrs[whole[0]] + draw.choice((0.5, 1e-9, -0.25))
            elif k < 2 or "shape" not in g.attrs:
                del g[key]
                kind = old.dtype
                size = (0,) if k % 2 == 0 else (draw.randrange(2 ** 28 + 1, 2 ** 40),)
                g.create_dataset(key, size, kind, chunks=(4096,) if size[0] else None)
            else:
                g.attrs["shape"] = draw.choice(([n + 1], [-n], [n, 2], [0, n], [n + 0.5],
                    [2 ** 40, 2 ** 24, n], [1] * 9 + [n]))
P
    "$QUALM" conform -v "$BATS_TEST_TMPDIR"/x[0-9]*.h5 > "$BATS_TEST_TMPDIR/out" || true
    local judged='^(EQUAL|NEAR|DIFFERS|skipped)'
    # A projection has no steps.
    ! grep -E "$judged" "$BATS_TEST_TMPDIR/out" | grep -v '~4/proj ' || return 1
    [ "$(grep -c '^UNREADABLE' "$BATS_TEST_TMPDIR/out")" -ge 80 ]
}

@test "conform: a group that is linked into itself is read once" {
    local system
    for system in lpmm:factor/tall solo:optim/adabelief_4_2; do
        local file=$ROOT/tests/golden/${system%%:*}.h5
        PYTHONPATH=$ROOT/tests/support "$PYTHON" - "$file" "${system#*:}" "$X" << 'P'
import sys, h5py
from golden_copy import copy
source, name, path = sys.argv[1:]
with h5py.File(source) as f, h5py.File(path, "w") as out:
    for key, value in f.attrs.items():
        out.attrs[key] = value
    g = out.create_group(name)
    copy(f[name], g)
    g["again"] = g
P
        run -0 --separate-stderr timeout 20 "$QUALM" conform -v "$X"
        [[ $output == *"not read: "* ]]
    done
}

# The seed draws a dataset of each file; those of `inputs` are shared by links.
@test "conform: a dataset that is one value longer makes its case UNREADABLE, or is not read" {
    long 4
    "$PYTHON" - "$QUALM" "$ROOT/tests/golden" "$X" "${QM_TEST_SEED:-1}" << 'P'
import glob, random, shutil, subprocess, sys, h5py, numpy as np
qualm, folder, path, seed = sys.argv[1:]
draw = random.Random(int(seed))
said, bad = 0, []
for source in sorted(glob.glob(folder + "/*.h5")):
    shutil.copy(source, path)
    with h5py.File(path, "a") as f:
        names = []
        f.visititems(lambda name, d: names.append(name) if isinstance(d, h5py.Dataset) and d.size
                     and d.dtype.kind in "fiu" and not name.startswith("inputs/") else None)
        name = draw.choice(sorted(names))
        old, attributes = f[name][...].reshape(-1), dict(f[name].attrs)
        del f[name]
        new = f.create_dataset(name, data=np.append(old, old[:1]).astype(old.dtype))
        for key, value in attributes.items():
            new.attrs[key] = value
    out = subprocess.run([qualm, "conform", path], capture_output=True, text=True).stdout
    lines = [line for line in out.splitlines() if len(line.split()) > 1 and
             (name + "/").startswith(line.split()[1] + "/")]
    if any(line.startswith(("UNREADABLE", "DIFFERS", "skipped")) or "not read" in line
           for line in lines) or not lines and "UNREADABLE" in out:
        said += 1
    else:
        bad.append((source, name, lines))
print(seed, said, bad)
sys.exit(said < 25 or len(bad) > 0)
P
}

@test "conform: a case of a path too long for a name is UNREADABLE and the others are judged" {
    local file group
    for file in torchao/cls_adamw8bit_small lpmm/adamw_default_8b flashoptim/adam_l2_bf16 \
        sgd/damp_f32 apollo/chan_wide_f32 muon8bit/optim/below_min; do
        group=${file#*/}
        PYTHONPATH=$ROOT/tests/support "$PYTHON" - "$X" "$ROOT/tests/golden/${file%%/*}.h5" \
            "$group" << 'P'
import sys, h5py
from golden_copy import copy
path, source, name = sys.argv[1:]
with h5py.File(source) as f, h5py.File(path, "w") as out:
    for key, value in f.attrs.items():
        out.attrs[key] = value
    copy(f[name], out.create_group(name))
    copy(f[name], out.create_group(name + "x" * 251))
P
        run -3 "$QUALM" conform -v "$X"
        [ "$(grep -c '^UNREADABLE [^ ]*member 2 .*more than 250 characters' <<< "$output")" = 1 ]
        grep -Eq "^(EQUAL|NEAR) +$group[/ ]" <<< "$output" || { echo "$output" && false; }
    done
}

# A Muon of bitsandbytes' form, written from results/CONFORM.md and oracle/README.md in NumPy.
@test "conform: a Muon of another number of iterations differs or is skipped, never near" {
    "$PYTHON" - "$QUALM" "$X" "${QM_TEST_SEED:-1}" << 'P'
import subprocess, sys, collections, h5py, numpy as np
qualm, path, seed = sys.argv[1:]
triples = [(7.892582874424408, -20.38301394587957, 13.555306149406924),
           (3.911484868135431, -2.5464635929060884, 0.4268988319673074),
           (3.760657955697423, -2.512819018216563, 0.4323647349070073),
           (3.160399673686287, -2.149649518898498, 0.3996366907664389),
           (2.1910971618617303, -1.441662010214663, 0.328146487623155)]
def bf(x):
    b = np.atleast_1d(np.asarray(x, np.float32)).view(np.uint32)
    return ((b + 0x7fff + (b >> 16 & 1)) & np.uint32(0xffff0000)).view(np.float32)
def factor(u, count):
    x = bf(u / max(bf(np.sqrt((u.astype(float) ** 2).sum()))[0], bf(1e-7)[0]))
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for a, b, c in (triples + triples[-1:])[:count]:
        gram = bf(x.astype(float) @ x.T.astype(float))
        twice = bf(b * gram.astype(float) + c * (gram.astype(float) @ gram.astype(float)))
        x = bf(a * x.astype(float) + twice.astype(float) @ x.astype(float))
    return x.T if tall else x
rng = np.random.default_rng(int(seed))
seen = {4: collections.Counter(), 5: collections.Counter(), 6: collections.Counter()}
shapes = [tuple(int(v) for v in rng.choice([1, 2, 3, 5, 17, 32, 70], 2)) for _ in range(40)]
for count in seen:
    draw = np.random.default_rng(int(seed) + 1)
    with h5py.File(path, "w") as out:
        out.attrs.update({"system": "Muon 8-bit", "torch_version": "2.15.0"})
        for k, shape in enumerate(shapes):
            g = draw.standard_normal(shape).astype(np.float32)
            p = draw.standard_normal(shape).astype(np.float32)
            o = factor(bf(g), count)
            h = out.create_group("optim/%d" % k)
            h.attrs.update({"steps": 1, "lr": 0.01, "weight_decay": 0.0, "scheme": "float32",
                            "adjust_lr": "none", "nesterov": 0, "param_dtype": "float32",
                            "momentum": 0.5, "shape": shape})
            h["p0"], h["grads"], h["state/momentum"] = p, g.reshape(1, -1), g.reshape(1, -1)
            h["ns_input"], h["ns_output"] = bf(g).reshape(1, -1), o.reshape(1, -1)
            h["params"] = (p - 0.01 * o.astype(float)).astype(np.float32).reshape(1, -1)
    said = subprocess.run([qualm, "conform", path], capture_output=True, text=True).stdout
    for line in said.splitlines():
        if " optim/" in line:
            seen[count][line.split()[0]] += 1
print(seed, {k: dict(v) for k, v in seen.items()})
right, few, more = seen[5], seen[4], seen[6]
bad = right["DIFFERS"] or right["UNREADABLE"] or right["EQUAL"] + right["NEAR"] < 36
for wrong in few, more:
    bad = bad or wrong["NEAR"] or wrong["UNREADABLE"] or wrong["DIFFERS"] < 20
sys.exit(bool(bad))
P
}
