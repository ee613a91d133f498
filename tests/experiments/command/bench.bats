#!/usr/bin/env bats
# bench.bats - Tests `qualm bench`: the rows that it times, and ratios that follow from samples.
load ../../support/cli_common

setup_file() {
    export DIR=$(mktemp -d)
    "$QUALM" bench --quick --size 1 --rounds 3 --threads 2 --step '^adamw4_ao$' --json \
        --out "$DIR/steps.h5" >"$DIR/steps.json" 2>"$DIR/notes"
}

teardown_file() { rm -rf "$DIR"; }

# of_steps EXPRESSION: evaluates it with d, the rows of the run above
of_steps() {
    "$PYTHON" -c "import json, sys; d = json.load(open(sys.argv[1]))['steps']; print($1)" \
        "$DIR/steps.json"
}

# names COMMAND...: prints the names of the steps on one thread
names() { json_value "*[r['step'] for r in d['steps'] if r['threads'] == 1]" "$@"; }

@test "a filtered run times the chosen rows, adamw_f32 and both yardsticks" {
    [ "$(of_steps "*[(r['step'], r['threads']) for r in d]")" = \
        "('adamw4_ao', 1) ('adamw_f32', 1) ('a += s*b', 1) ('registers', 1)`
        ` ('adamw4_ao', 2) ('adamw_f32', 2) ('a += s*b', 2) ('registers', 2)" ]
    [ "$("$PYTHON" -c "import json, sys; print(*json.load(open(sys.argv[1])))" \
        "$DIR/steps.json")" = steps ]
}

@test "rows are ratios to their yardsticks: 1 for adamw_f32 and the yardsticks" {
    [ "$(of_steps "all(r['to_adamw_f32'] == 1 for r in d if r['step'] == 'adamw_f32')")" = True ]
    [ "$(of_steps "all(r['of_yardstick'] == 1 for r in d if r['step'] == 'a += s*b')")" = True ]
    [ "$(of_steps "d[6]['scaling'], d[7]['scaling_registers']")" = "1.0 1.0" ]
    [ "$(of_steps "all('scaling' not in r and 'speedup' not in r for r in d[:4])")" = True ]
}

@test "the row registers has operations per second and no figure that needs memory" {
    [ "$(of_steps "*[r['ops_per_s'] > 1e7 for r in d if r['step'] == 'registers']")" = "True True" ]
    [ "$(of_steps "d[7]['bytes_moved'], d[7]['to_adamw_f32'], d[7]['of_yardstick']")" = \
        "0.0 None None" ]
    [ "$(of_steps "'params_per_s' in d[7] or 'ops_per_s' in d[0]")" = False ]
    run -0 --separate-stderr qualm bench --quick --size 1 --rounds 1 --step adamw_f32
    [ "$(grep -c '^registers (Gop/s)  *[12] .* -  *-  *-' <<<"$output")" -eq 2 ]
}

@test "the file's ratios follow from its raw samples" {
    "$PYTHON" -c "import h5py" 2>/dev/null || skip "missing package: python3-h5py"
    "$PYTHON" - "$DIR/steps.h5" "$DIR/steps.json" <<'EOF'
import h5py, json, sys
import numpy as np
f, d = h5py.File(sys.argv[1]), json.load(open(sys.argv[2]))["steps"]
names = f["/bench/steps"]["step"].astype(str).tolist()
assert names == 2 * ["adamw4_ao", "adamw_f32", "a += s*b", "registers"], names
t = f["/timing/step_seconds"][...].reshape(2, 4, 3)       # half, row, round
assert (t > 0).all()
speedup = t[0] / t[1]
def same(name, want, key):
    stored = f["/timing/" + name][...].reshape(2, 4)
    assert np.isnan(stored[0]).all(), name
    assert np.allclose(stored[1], np.median(want, axis=1), rtol=1e-12), (name, stored)
    assert np.allclose(stored[1], [r[key] for r in d[4:]], rtol=1e-12), name
same("step_speedup", speedup, "speedup")
same("step_scaling", speedup / speedup[2], "scaling")
same("step_scaling_registers", speedup / speedup[3], "scaling_registers")
rate = f["/timing/step_rate"][...].reshape(2, 4)
work = np.array([1, 1, 1, 48]) * 2.0**20                  # parameters, or operations
assert np.allclose(rate, work / np.median(t, axis=2), rtol=1e-12)
assert np.isnan(f["/timing/step_of_yardstick"][...].reshape(2, 4)[:, 3]).all()
EOF
}

@test "--step takes a regular expression without case, also for rules over whole tensors" {
    [ "$(names bench --quick --size 1 --rounds 1 --step '^ADAMW4_AO$|^lion8_bnb$')" = \
        "adamw4_ao adamw_f32 lion8_bnb a += s*b registers" ]
    [ "$(names bench --size 1 --rounds 1 --step '^adafactor8_022')" = \
        "adamw_f32 adafactor8_022 adafactor8_022_torch`
        ` a += s*b registers" ]
}

@test "--step that matches nothing: the nearest name, exit code 4, and no file" {
    fails_with 4 "no variant 'adamw4_oa'; did you mean 'adamw4_ao'?" bench --step adamw4_oa \
        --out "$DIR/none.h5"
    [ -z "$(ls "$DIR" | grep none)" ]
    fails_with 4 "qualm list variants" bench --step xyzzyxyzzy
    fails_with 4 "--quick leaves them out" bench --quick --step '^came8'
    fails_with 2 "--only searches" bench --only searches --step adamw4_ao
}

@test "--only runs one part; unknown parts and bad numbers are refused" {
    [ "$(json_value "*d" bench --quick --size 1 --rounds 1 --only searches)" = searches ]
    [ "$(json_value "*d" bench --quick --size 1 --rounds 1 --only steps --only searches \
        --step adamw4_ao)" = "steps searches" ]
    fails_with 2 "expected steps, searches, analyze or peers" bench --only nothing
    fails_with 2 "--rounds: expected a whole number from 1 to 101, got '0'" bench --rounds 0
    fails_with 2 "takes no argument" bench adamw4_ao
}

@test "steps that do not fit into the memory are refused before they are begun" {
    run "$QUALM" bench --only steps --millions 4096
    echo "$output"
    [ "$status" -eq 2 ]
    [[ $output == *"steps of 4096 million parameters do not fit"*"at most --millions "[1-9]* ]]
    [ "$(wc -l <<<"$output")" -eq 1 ]
}

# A program that times peers: "true" sleeps for a step, the others break off in some way.
peers_program() {
    cat >"$BATS_TEST_TMPDIR/peers.py" <<'P'
import json, sys, time
word = dict(zip(sys.argv[1:], sys.argv[2:]))
if "--names" in sys.argv:
    print(json.dumps(["true", "yard", "ends", "lies", "words", "strange", "absent", "it's"]))
    sys.exit()
name = word["--name"]
assert "--serve" in sys.argv and word["--device"] == "cpu" and word["--columns"] == "1024"
if name == "absent":
    print(json.dumps({"skipped": "not installed"}))
    sys.exit(77)
recipe = {"yard": "a += s*b", "strange": "adamw_f33"}.get(name, "adamw_f32")
print(json.dumps({"version": "1." + word["--threads"], "recipe": recipe}), flush=True)
for k, line in enumerate(sys.stdin):
    if name == "ends" and k == 1:
        sys.exit()
    start = time.perf_counter()
    time.sleep(0.004 if word["--threads"] == "1" else 0.002)
    spent = 9 if name == "lies" else time.perf_counter() - start
    print("so fast" if name == "words" else json.dumps({"seconds": spent}), flush=True)
P
    echo "$PYTHON $BATS_TEST_TMPDIR/peers.py"
}

@test "peers are timed in turn with ours; what breaks off is named, and nothing else lost" {
    qualm bench --only peers --peers "$(peers_program)" --millions 1 --rounds 3 --threads 2 \
        --json -o "$BATS_TEST_TMPDIR/p.h5" >"$BATS_TEST_TMPDIR/p.json"
    "$PYTHON" - "$BATS_TEST_TMPDIR/p.json" <<'P'
import json, sys
rows = json.load(open(sys.argv[1]))["peers"]
timed = [r for r in rows if "skipped" not in r]
assert [(r["peer"], r["recipe"], r["threads"]) for r in timed] == [
    (p, of, t) for p, of in (("true", "adamw_f32"), ("yard", "a += s*b"), ("it's", "adamw_f32"))
    for t in (1, 2)], timed
for r in timed:
    assert r["ratio_least"] <= r["ratio"] <= r["ratio_greatest"]
    assert 2**20 / r["their_params_per_s"] >= (0.004 if r["threads"] == 1 else 0.002)
why = {r["peer"]: r["skipped"] for r in rows if "skipped" in r}
assert [*why] == ["ends", "lies", "words", "strange", "absent"], why
assert "ended" in why["ends"] and "a step of 9 s" in why["lies"] and "JSON" in why["words"], why
assert "adamw_f33" in why["strange"] and why["absent"] == "not installed", why
P
    "$PYTHON" -c "import h5py" 2>/dev/null || skip "missing package: python3-h5py"
    "$PYTHON" - "$BATS_TEST_TMPDIR/p.h5" "$BATS_TEST_TMPDIR/p.json" <<'P'
import h5py, json, sys
import numpy as np
f, rows = h5py.File(sys.argv[1]), json.load(open(sys.argv[2]))["peers"]
t = f["/bench/peers"]
theirs, ours = (f[f"/timing/peers_{of}seconds"][...].reshape(16, 3) for of in ("", "own_"))
ratio = theirs / ours
want = np.stack([ratio.min(1), np.median(ratio, 1), ratio.max(1)])
got = np.stack([f["/timing/peers_ratio" + end][...] for end in ("_least", "", "_greatest")])
assert np.allclose(got, want, rtol=1e-12, equal_nan=True)
assert np.isnan(got[1]).sum() == 10 and (t["skipped"].astype(str) == "").sum() == 6
timed = [r["ratio"] for r in rows if "skipped" not in r]
assert np.allclose(got[1][~np.isnan(got[1])], timed, rtol=1e-12)
P
}

@test "peers: --step chooses by name; no program, no such program and none that matches" {
    local program=$(peers_program)
    [ "$(json_value "*[r['peer'] for r in d['peers']]" bench --only peers --peers "$program" \
        --millions 1 --rounds 1 --step '^true$|absent')" = "true true absent" ]
    fails_with 4 "matches no peer" bench --only peers --peers "$program" --step none
    fails_with 2 "--only peers: by which program? --peers COMMAND says it" bench --only peers
    fails_with 2 "--peers: --only leaves peers out" bench --only searches --peers true
    fails_with 3 "--peers: " bench --only peers --peers ./nothing
    fails_with 3 "expected an array of names" bench --only peers --peers 'sh -c "echo {}"'
}
