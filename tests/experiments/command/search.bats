#!/usr/bin/env bats
# search.bats - Tests qualm search: rounds, halves, frontier, resuming, what it refuses.
#
# What the program says is computed a second time here: values by `qualm analyze --recipe`, halves,
# predictions, the frontier and what each round keeps from the tables of the result file.

load ../../support/cli_common

setup() { dir=$(mktemp -d); }
teardown() { rm -rf "$dir"; }

digest_of() { "$QUALM" digest "$1" | cut -c1-64; }

# a search of a small space
space=(search -q --first 12 --least 2 --reference adamw4_ao,adamw4_lpmm
    --space exp_avg.map=nf4:4s,lint:5s,lint:3s --space exp_avg.norm=block:64,rank1
    --space exp_avg.round=mid --space exp_avg.scale=none --space exp_avg_sq.map=lin:3u,lin:4u
    --space exp_avg_sq.norm=block:128,rank1block:128 --space exp_avg_sq.round=mid
    --space exp_avg_sq.scale=none --space exp_avg_sq.format=)
data=("$ROOT/experiments/data/digits_cnn.h5" "$ROOT/experiments/data/cancer_tabular.h5")

@test "the file holds what its rounds should have measured and kept" {
    long 6
    "$QUALM" "${space[@]}" "${data[@]}" -o "$dir/a.h5" >"$dir/out"
    "$QUALM" analyze "${data[@]}" -q --json --recipe \
        "$("$PYTHON" - "$dir/a.h5" <<'P'
import h5py, sys
with h5py.File(sys.argv[1]) as f:
    print(",".join(r["recipe"].decode() for r in f["search/compositions"][()]))
P
)" >"$dir/direct.json"
    "$PYTHON" - "$dir/a.h5" "$dir/direct.json" <<'P'
import collections, h5py, json, math, sys
f = h5py.File(sys.argv[1])
all_rows = lambda name: [{k: x.decode() if isinstance(x, bytes) else x for k, x in
                          zip(f[name].dtype.names, row)} for row in f[name][()]]
entry, tensor = all_rows("search/compositions"), all_rows("search/tensors")
value = {(v["composition"], v["tensor"]): v["sqnr"] for v in all_rows("search/values")}
about = f["search"].attrs

# every value is that of the command that measures recipes
direct = {(r["tensor"], r["recipe"]): r["sqnr"] for r in json.load(open(sys.argv[2]))["rows"]}
for (e, t), x in value.items():
    assert direct[tensor[t]["tensor"], entry[e]["recipe"]] == x, (e, t)

# halves are of whole runs, and nothing but the last round has seen the second one
half = collections.defaultdict(set)
for t in tensor:
    half[t["model"]].add(t["half"])
assert all(len(h) == 1 for h in half.values()) and len(half) >= 2
last = [i for i, e in enumerate(entry) if e["round"] == "report"]
for e, t in value:
    assert tensor[t]["half"] == "search" or e in last

# counts, budget: 6 x 2 x 2 formats, one of each second's norms with no curve, as the words say
pairs = [i for i, e in enumerate(entry) if " + " in e["label"] and "f32" not in e["label"]]
assert len(pairs) == about["evaluated"] <= about["legal"] <= about["compositions"]
assert about["compositions"] == 3 * 2 * 2 * 2 * 2 * 3
assert all(e["bits"] <= about["most_bits"] for i, e in enumerate(entry) if i in pairs)

# predictions: noise adds up
def seen(i):
    return [t for t in range(len(tensor)) if (i, t) in value and tensor[t]["half"] == "search"]
single = {e["label"]: i for i, e in enumerate(entry) if e["kind"] == "single"}
order = {}
for i in pairs:
    a, b = (single[x] for x in (entry[i]["label"].split(" + ")[0] + " + f32",
                                "f32 + " + entry[i]["label"].split(" + ")[1]))
    assert seen(a) == seen(b)
    want = [-10 * math.log10(10 ** (-value[a, t] / 10) + 10 ** (-value[b, t] / 10))
            for t in seen(a)]
    by_model = collections.defaultdict(list)
    for t, x in zip(seen(a), want):
        by_model[tensor[t]["model"]].append(x)
    assert all(len(x) < 5 for x in by_model.values())  # so that nothing is trimmed
    mean = sum(sum(x) / len(x) for x in by_model.values()) / len(by_model)
    assert math.isclose(entry[i]["predicted"], mean, rel_tol=1e-9)

# each half bit keeps its best quarter from round to round
rounds = ["pairs1", "pairs2", "pairs3", "report"]
place = lambda i: rounds.index(entry[i]["round"])
bins = collections.Counter(math.ceil(entry[i]["bits"] * 2 - 1e-9) for i in pairs)
for b, n in bins.items():
    inside = [i for i in pairs if math.ceil(entry[i]["bits"] * 2 - 1e-9) == b]
    for k in (1, 2):
        n = -(-n // 4)
        assert sum(place(i) >= k for i in inside) == n

# the frontier
final = [entry[i] for i in pairs if entry[i]["round"] == "report"]
for e in final:
    beaten = any(o["bits"] <= e["bits"] and o["search"] > e["search"] for o in final)
    assert (e["kind"] == "frontier") == (not beaten), e["label"]
assert any(e["kind"] == "frontier" for e in final)
P
    # the table names the frontier and the variants
    grep -q adamw4_lpmm "$dir/out"
    grep -q "lint:5s" "$dir/out"
    [ ! -e "$dir/a.run" ]
}

@test "threads change no bit, another seed changes the halves" {
    long 4
    "$QUALM" "${space[@]}" "${data[@]}" -o "$dir/a.h5" -t 1 >/dev/null
    "$QUALM" "${space[@]}" "${data[@]}" -o "$dir/b.h5" -t 3 >/dev/null
    "$QUALM" "${space[@]}" "${data[@]}" -o "$dir/c.h5" --seed 4 >/dev/null
    [ "$(digest_of "$dir/a.h5")" = "$(digest_of "$dir/b.h5")" ]
    [ "$(digest_of "$dir/a.h5")" != "$(digest_of "$dir/c.h5")" ]
}

@test "a search that is stopped or killed goes on to the same file" {
    long 6
    "$QUALM" "${space[@]}" "${data[@]}" -o "$dir/a.h5" >/dev/null
    want=$(digest_of "$dir/a.h5")
    for signal in TERM KILL; do
        for wait in 0.1 0.4; do
            "$QUALM" "${space[@]}" "${data[@]}" -o "$dir/$signal.h5" >/dev/null 2>&1 &
            pid=$!
            sleep "$wait"
            "$PYTHON" - $pid $signal <<'P'
import os, signal, sys
try:
    os.kill(int(sys.argv[1]), getattr(signal, "SIG" + sys.argv[2]))
except ProcessLookupError:
    pass
P
            status=0
            wait $pid || status=$?
            [ "$status" -eq 75 ] || [ "$status" -eq 137 ] || [ "$status" -eq 0 ]
        done
        "$QUALM" "${space[@]}" "${data[@]}" -o "$dir/$signal.h5" >/dev/null
        [ "$(digest_of "$dir/$signal.h5")" = "$want" ]
        [ ! -e "$dir/$signal.run" ]
    done
}

@test "the budget is kept, and too small a one is said" {
    long 3
    "$QUALM" "${space[@]}" "${data[@]}" -o "$dir/a.h5" --bits 7.2 --json >"$dir/a.json"
    "$PYTHON" - "$dir/a.json" <<'P'
import json, sys
d = json.load(open(sys.argv[1]))
assert d["rows"] and all(r["bits"] <= 7.2 for r in d["rows"]) and d["bits"] == 7.2
assert {r["kind"] for r in d["references"]} == {"variant"}
assert all(r["search"]["low"] <= r["search"]["location"] <= r["search"]["high"] for r in d["rows"])
P
    fails_with 4 "no composition has at most 3 bits" search -q "${data[@]}" -o "$dir/x.h5" --bits 3
    [ ! -e "$dir/x.h5" ] && [ ! -e "$dir/x.run" ]
}

@test "given halves, one run alone, and files in both" {
    long 3
    "$QUALM" "${space[@]}" --search "${data[0]}" --report "${data[1]}" -o "$dir/a.h5" >/dev/null
    "$PYTHON" - "$dir/a.h5" <<'P'
import h5py, sys
rows = h5py.File(sys.argv[1])["search/tensors"][()]
assert {(r["file"], r["half"]) for r in rows} == {(b"digits_cnn.h5", b"search"),
                                                 (b"cancer_tabular.h5", b"report")}
P
    "$QUALM" "${space[@]}" "$ROOT/experiments/data/samples/checkpoint.pt" --min-numel 256 \
        -o "$dir/b.h5" >/dev/null
    "$PYTHON" - "$dir/b.h5" <<'P'
import h5py, sys
f = h5py.File(sys.argv[1])
said = f["search"].attrs["halves"]
assert (said.decode() if isinstance(said, bytes) else said) == "drawn, of tensors of one run"
assert {r["half"] for r in f["search/tensors"][()]} == {b"search", b"report"}
P
    fails_with 2 "no file may be in both halves" search -q --search "${data[0]}" \
        --report "${data[0]}"
}

@test "what cannot be searched costs one line" {
    one() { # CODE TEXT WORD...
        local code=$1 text=$2
        shift 2
        fails_with "$code" "$text" search -q -o "$dir/x.h5" "$@"
        [ ! -e "$dir/x.h5" ] && [ ! -e "$dir/x.run" ]
    }
    one 2 "did you mean 'nf4'" "${data[0]}" --space exp_avg.map=nf5:4s
    one 2 "there are map, norm" "${data[0]}" --space exp_avg.form=nf4:4s
    one 2 "exp_avg_sq" "${data[0]}" --space momentum.map=nf4:4s
    one 2 "expected SLOT.AXIS" "${data[0]}" --space nf4
    one 4 "none makes sense" "${data[0]}" --space exp_avg.map=lin:4u --space exp_avg.format=
    one 2 "expected a number" "${data[0]}" --bits -1
    one 2 "go together" --search "${data[0]}"
    one 4 "none.h5" "$dir/none.h5"
    one 4 "no recorded state" "${data[0]}" --min-numel 100000000
    one 4 "did you mean 'adamw4_ao'" "${data[0]}" --reference adamw4_a
    fails_with 3 "/dev/null" search -q "${data[0]}" -o /dev/null/nowhere/x.h5
}

@test "the frontier is drawn, and the suites that follow run" {
    long 4
    "$QUALM" "${space[@]}" "${data[@]}" -o "$dir/a.h5" >/dev/null
    run "$QUALM" plot "$dir/a.h5" -o "$dir/a.svg"
    [ "$status" -eq 77 ] || { [ "$status" -eq 0 ] && grep -q adamw4_lpmm "$dir/a.svg"; }
    "$QUALM" run -q -w 0 "$dir/a.traces.yaml" -o "$dir/t.h5" >"$dir/t.txt"
    grep -q adamw4_lpmm "$dir/t.txt"
    "$QUALM" run -q -n "$dir/a.training.yaml" >/dev/null
}

@test "search and submit make the folder of their results, as run and tune do" {
    long 8
    cd "$BATS_TEST_TMPDIR"
    qualm search -q --bits 6 --first 4 --seed 1 >/dev/null
    [ -s results/search.h5 ]
    fails_with 3 "cannot be made" search -q --bits 6 --first 4 -o /proc/no/such/x.h5
    mkdir other && cd other
    printf '%s\n' 'variant: adamw4_ao' 'source: dist:gauss' 'n: 64' >mine.yaml
    qualm submit -q --slurm --dry-run mine.yaml >/dev/null
    [ -d results/mine.run ]
}
