#!/usr/bin/env bats
# conform.bats - Tests what qualm conform asks of a file, and which variant it says it judged.

load ../../support/conform_common

@test "conform: what is missing, mistyped or out of range is named, with 3" {
    long 7
    needs_hdf5
    local system rate start
    for system in torchao018_compiled bnb_small torch215_adamw adafactor8bit_043plus came; do
        rate=lr start=p0
        case $system in
        adafactor8bit*) rate=hp_lr ;;
        torch215* | came) start=param0 ;;
        esac
        read -r a b <<<"$(pair $system "'$rate' in f[n].attrs")"
        while IFS='|' read -r edit says; do
            broken $system "$a" "$b" "$edit"
            run -3 --separate-stderr "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
            [[ $output == *"UNREADABLE $a"*"$says"* ]]
            [[ $output != *"UNREADABLE $b"* ]]
            [[ $stderr == "qualm conform: $BATS_TEST_TMPDIR/x.h5: "*" UNREADABLE, first $a: "* ]]
            [[ $stderr != *$'\n'* ]]
        done <<E
del g["grads"]|no dataset grads
del g["params"]|no dataset params
del g["$start"]|no dataset $start
g.attrs["$rate"] = "0.001"|attribute $rate of $a is a text
g.attrs["$rate"] = np.array([1e-3, 2e-3])|attribute $rate of $a is a list
g.attrs["$rate"] = -1.0|attribute $rate of $a is -1
E
    done
}

@test "conform: with --quiet and --json too stderr says what failed" {
    needs_hdf5
    read -r a b <<<"$(pair came "'param0' in f[n]")"
    broken came "$a" "$b" 'del g["grads"]'
    for option in --quiet --json; do
        run -3 --separate-stderr "$QUALM" conform $option "$BATS_TEST_TMPDIR/x.h5"
        [[ $stderr == "qualm conform: $BATS_TEST_TMPDIR/x.h5: 1 case is UNREADABLE, first $a: "* ]]
    done
    [[ $(json_value 'd["files"][0]["error"]' conform "$BATS_TEST_TMPDIR/x.h5") == *UNREADABLE* ]]
    run -4 --separate-stderr "$QUALM" conform -q -c nothing "$BATS_TEST_TMPDIR/x.h5"
    [ "$stderr" = "qualm conform: no case matches 'nothing'" ]
}

@test "conform: lr_per_step is followed, or said to be unread" {
    long 2
    needs_hdf5
    local system
    for system in torchao018_compiled bnb_small torch215_adamw; do
        plain="'lr' in f[n].attrs and not f[n].attrs.get('lr_decay', 0) and 'adafactor' not in n"
        read -r a b <<<"$(pair $system "$plain")"
        steps='int(g.attrs["T" if "T" in g.attrs else "steps"])'
        broken $system "$a" "$b" "g['lr_per_step'] = np.full($steps, g.attrs['lr'])"
        run -0 "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
        broken $system "$a" "$b" "g['lr_per_step'] = np.full($steps, 3 * g.attrs['lr'] + 1)"
        run -1 "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
        broken $system "$a" "$b" "g['lr_per_step'] = np.full($steps + 1, g.attrs['lr'])"
        run -3 "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
    done
    read -r a b <<<"$(pair came "True")"
    broken came "$a" "$b" "g['lr_per_step'] = np.ones(int(g.attrs['steps']))"
    run "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
    [[ $output == *"skipped    $a "*lr_per_step* ]]
}

@test "conform: runs of bitsandbytes' 8-bit classes are judged by the registered variant" {
    needs_hdf5
    cd "$ROOT/tests/golden"
    run -0 "$QUALM" conform -v bnb_small.h5 bitsandbytes.h5
    for variant in adagrad8_bnb adam8_bnb adamw8_bnb lion8_bnb rmsprop8_bnb sgdm8_bnb ademamix8_bnb \
        adam8_bnb_default lion8_bnb_default rmsprop8_bnb_default ademamix8_bnb_default \
        adamw8_bnb_cuda lion8_bnb_cuda; do
        grep -Eq "^(EQUAL|NEAR) .*\[$variant[;,]" <<<"$output"
    done
}

@test "conform: one wrong code of a moment of gradients, one scale off by 1e-5: DIFFERS" {
    needs_hdf5
    for edit in "m = g['state/m_q']; m[-1, 7] = int(m[-1, 7]) ^ 1" \
        "s = g['state/m_scale']; s[-1] = s[-1] * np.float32(1 + 1e-5)"; do
        broken adafactor8bit_043plus opt_v046_sgd_m_uf8 opt_v046_apollo "$edit"
        run -1 "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
        [[ $output == *"DIFFERS    opt_v046_sgd_m_uf8"* ]]
        [[ $output != *"DIFFERS    opt_v046_apollo"* ]]
    done
}

@test "conform: Adam with decoupled_weight_decay is AdamW; other classes have no such option" {
    needs_hdf5
    run -0 "$QUALM" conform -v -c '^adamw?_decoupled$' "$ROOT/tests/golden/torch215_limits.h5"
    [ "$(grep -c '^EQUAL .*\[adamw;' <<<"$output")" = 2 ]
    broken torch215_limits adam_decoupled adamw_decoupled \
        "g.attrs['optimizer'] = 'SGD'"
    run -0 "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
    [[ $output == *"optimizer 'SGD' with decoupled_weight_decay is not replayed"* ]]
}

@test "conform: every state of a class must be there, and the count of steps is compared" {
    long 2
    needs_hdf5
    local edit says
    read -r a b <<<"$(pair torch215_adamw "'state_max_exp_avg_sq' in f[n]")"
    while IFS='|' read -r edit says; do
        broken torch215_adamw "$a" "$b" "$edit"
        run -3 "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
        [[ $output == *"UNREADABLE $a"*"no dataset $says"* ]]
    done <<'E'
del g["state_exp_avg"]|state_exp_avg in
g.move("state_exp_avg_sq", "state_exp_avg_sqr")|state_exp_avg_sq in
del g["state_max_exp_avg_sq"]|state_max_exp_avg_sq in
E
    broken torch215_adamw "$a" "$b" 'g["state_step"][-1] += 5'
    run -1 "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
    [[ $output == *"DIFFERS    $a "*state_step* ]]
    read -r a b <<<"$(pair torch215_limits "'state_mu_product' in f[n]")"
    broken torch215_limits "$a" "$b" 'del g["state_mu_product"]'
    run -3 "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
    [[ $output == *"no dataset state_mu_product in"* ]]
    for by in 2 np.nan 'np.float32(1 + 2e-7)'; do
        broken torch215_limits "$a" "$b" "m = g['state_mu_product']; m[-1] = m[-1] * $by"
        run -1 "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
        [[ $output == *"DIFFERS    $a "*state_mu_product* ]]
    done
}

@test "conform: adafactor8bit's al8 codes without their least logarithms are unreadable" {
    needs_hdf5
    read -r a b <<<"$(pair adafactor8bit_limits \
        "'state' in f[n] and 'variance_min_log' in f[n]['state']")"
    broken adafactor8bit_limits "$a" "$b" 'del g["state/variance_min_log"]'
    run -3 "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
    [[ $output == *"UNREADABLE $a "*state/variance_min_log* ]]
}

@test "conform: betas that were tensors, float16, other classes: what is replayed is said" {
    needs_hdf5
    local edit says
    read -r a b <<<"$(pair torch215_limits "True")"
    while IFS='|' read -r edit says; do
        broken torch215_limits "$a" "$b" "$edit"
        run "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
        [[ $output == *"skipped    $a "*"$says"* ]]
    done <<'E'
g.attrs["tensor_betas"] = 1|betas that are tensors
g.attrs["dtype"] = "f16"|f32, f64 or bf16, not 'f16'
g.attrs["optimizer"] = "LBFGS"|'LBFGS' is not replayed; AdamW
E
}

# The kernel's decay 1 - lr weight_decay is one rounding of the exact number: -2.08e-17 of 7e10.
@test "conform: the fused AdamW decays by a number that is rounded once" {
    needs_hdf5
    made '
for impl, keep in ("fused", -2.0816681711721685e-17), ("single", 0.0):
    for n in 8, 3:
        p0, g = np.full(n, 7e10, "f4"), np.zeros((1, n), "f4")
        run("%s_%d" % (impl, n), {"optimizer": "AdamW", "dtype": "f32", "lr": 0.01, "impl": impl,
            "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 100.0}, p0, g,
            (p0 * np.float32(keep))[None], exp_avg=g, exp_avg_sq=g)'
    run -0 "$QUALM" conform -v "$BATS_TEST_TMPDIR/x.h5"
    [[ $output == *"4 EQUAL, 0 NEAR, 0 DIFFERS"* ]]
    [[ $output == *"[adamw_fused;"* && $output == *"[adamw_tail;"* ]]
}

# 0.999 m0 + 0.001 g is a rounding error, g + weight_decay p as well.
@test "conform: float64 averages and L2 terms that cancel are near, other errors are not" {
    needs_hdf5
    local off rc
    while read -r off rc; do
        made "
b, g, off = 0.999, np.array([[1.0], [-0.999]]), $off
m = np.array([[1e-3], [1e-3 + (1 - b) * (g[1, 0] - 1e-3) + off]])
v = np.array([[1e-3], [b * 1e-3 + (1 - b) * g[1, 0] ** 2]])
run('cancels', {'optimizer': 'AdamW', 'dtype': 'f64', 'lr': 0.0, 'impl': 'single',
    'betas': [b, b], 'eps': 1e-8, 'weight_decay': 0.0}, np.ones(1), g, np.ones((2, 1)),
    exp_avg=m, exp_avg_sq=v)
run('l2', {'optimizer': 'SGD', 'dtype': 'f64', 'lr': 0.0, 'impl': 'single', 'momentum': 0.5,
    'weight_decay': 0.1}, np.full(1, 3.0), np.array([[-0.3]]), np.full((1, 1), 3.0),
    momentum_buffer=np.array([[off]]))"
        run "-$rc" "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
        [ "$rc" = 0 ] || [[ $output == *"DIFFERS    cancels"*"DIFFERS    l2"* ]]
    done <<E
0.0 0
1e-15 1
E
}

@test "conform: torch's NaN where this side has an infinity or 0 / 0, in float64" {
    needs_hdf5
    local eps rc
    while read -r eps rc; do
        made "
inf, nan = np.inf, np.nan
run('lerp', {'optimizer': 'AdamW', 'dtype': 'f64', 'lr': 0.0, 'impl': 'single',
    'betas': [0.9, 0.5], 'eps': 1e-8, 'weight_decay': 0.0}, np.ones(1), np.array([[-inf], [1.0]]),
    np.array([[nan], [nan]]), exp_avg=np.array([[-inf], [nan]]),
    exp_avg_sq=np.array([[inf], [inf]]))
run('radam', {'optimizer': 'RAdam', 'dtype': 'f64', 'lr': 0.1, 'impl': 'foreach',
    'betas': [0.9, 0.999], 'eps': $eps, 'weight_decay': 0.0}, np.ones(1), np.zeros((1, 1)),
    np.full((1, 1), nan), exp_avg=np.zeros((1, 1)), exp_avg_sq=np.zeros((1, 1)))"
        run "-$rc" "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
        [[ $output != *"DIFFERS    lerp"* ]]
    done <<E
0.0 0
1e-8 1
E
}

@test "conform: bfloat16 L2 terms that cancel the gradient, for rules without a moment" {
    needs_hdf5
    made '
def bits(x): return (np.asarray(x, "f4").view("u4") >> 16).astype("u2")
# g + 0.05 p is 0 there, and here what rounding 0.05 to bfloat16 took off
p, g = 1.0, -0.050048828125
for name, state in ("Adagrad", "sum"), ("RMSprop", "square_avg"):
    run(name, {"optimizer": name, "dtype": "bf16", "lr": 1.0, "impl": "single", "eps": 1e-10,
        "weight_decay": 0.05}, bits([p]), np.array([[g]]), bits([[p]]), **{state: bits([[0.0]])})'
    run -0 "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
    [[ $output == *"NEAR       Adagrad"*"NEAR       RMSprop"* ]]
}

@test "conform: one code of bitsandbytes' 8-bit states off by one: DIFFERS" {
    needs_hdf5
    read -r a b <<<"$(pair bitsandbytes "f[n].attrs.get('quantizer') == 'native' and \
        'absmax1' in f[n]")"
    broken bitsandbytes "$a" "$b" "s = g['state1']; x = s[()]; x[-1, 3] ^= 1; s[...] = x"
    run -1 "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
    [[ $output == *"DIFFERS    $a"* ]]
}

@test "conform: a number of CAME's states off by 64 ulp: DIFFERS; Lion's by one" {
    needs_hdf5
    read -r a b <<<"$(pair came "f[n].attrs['dtype'] == 'f32' and 'state_exp_avg_row' not in f[n]")"
    broken came "$a" "$b" "s = g['state_exp_avg']; x = s[()]; y = x.reshape(-1)
y[abs(y[:x[0].size]).argmin()] *= np.float32(1 + 1e-4); s[...] = x"
    run -1 "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
    [[ $output == *"DIFFERS    $a"* ]]
    made '
m, g, p = np.float32(1e-3) * np.float32(0.5), np.float32(1e-3), np.float32(1.0)
for name, ulp in ("exact", 0), ("off", 1):
    run(name, {"optimizer": "Lion", "dtype": "f32", "lr": 0.5, "sqrt": "installed",
        "betas": [0.5, 0.5], "weight_decay": 0.0}, np.array([p]), np.array([[g]]),
        np.array([[np.float32(0.5)]]), exp_avg=np.array([[m]]).view("i4").__add__(ulp).view("f4"))'
    run -1 "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
    [[ $output == *"EQUAL      exact"*"DIFFERS    off"* ]]
}

# beta2^5 of torch's vector library is an ulp off where 1 - beta2^t has no digits left.
@test "conform: torchao's powers, which may be an ulp off, are found where they were not recorded" {
    needs_hdf5
    read -r a b <<<"$(pair torchao018_limits "f[n].attrs.get('T', 0) > 1")"
    broken torchao018_limits "$a" "$b" "[g.pop(k) for k in list(g) if 'bias_correction' in k]"
    run -0 "$QUALM" conform "$BATS_TEST_TMPDIR/x.h5"
}
