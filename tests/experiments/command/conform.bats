#!/usr/bin/env bats
# conform.bats - Tests what qualm conform asks of a file, and which variant it says it judged.

load ../../support/cli_common

needs_hdf5() { "$PYTHON" -c "import h5py, numpy" 2> /dev/null || skip "python3 has no h5py"; }

# broken SYSTEM GROUP EDIT: a copy of two groups of a golden file, the first of them edited by a
# line of Python on group g; the second stays as it is.
broken() {
    "$PYTHON" - "$ROOT/tests/golden/$1.h5" "$2" "$3" "$4" "$BATS_TEST_TMPDIR/x.h5" <<'P'
import sys, h5py, numpy as np
source, name, other, edit, path = sys.argv[1:]
def put(old, new):
    for key, value in old.attrs.items():
        new.attrs[key] = value
    for key in old:
        if isinstance(old[key], h5py.Group):
            put(old[key], new.create_group(key))
        else:
            new[key] = old[key][()]
with h5py.File(source) as f, h5py.File(path, "w") as out:
    for key, value in f.attrs.items():
        out.attrs[key] = value
    for n in (name, other):
        put(f[n], out.create_group(n))
    g = out[name]
    exec(edit)
P
}

# a run and another of the same file
pair() {
    "$PYTHON" -c "import h5py
f = h5py.File('$ROOT/tests/golden/$1.h5')
runs = [n for n in f if isinstance(f[n], h5py.Group) and 'grads' in f[n] and 'params' in f[n]
        and $2]
print(runs[0], runs[1])"
}

@test "conform: what is missing, mistyped or out of range is named, with 3" {
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

@test "conform: lr_per_step is followed, or said to be unread" {
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
