#!/usr/bin/env bats
# run.bats - Tests qualm run: files, exit codes, JSON, interruption.
# Run it from the root of the repository.

setup() {
    qualm="${QUALM:-./qualm}"
    dir="$(mktemp -d)"
    suite="$dir/small.yaml"
    printf '%s\n' 'variant: [ema4_nf4, ema4_uniform]' 'source: dist:gauss' 'n: 4096' \
        'seed: [1, 2]' 'summary:' \
        '  - {name: sqnr, by: seed, across: variant, value: sqnr}' >"$suite"
}

teardown() { rm -rf "$dir"; }

@test "a suite by name: tables on stdout, one file" {
    run "$qualm" run -q -o "$dir/out.h5" smoke
    [ "$status" -eq 0 ]
    [[ "$output" == *"sqnr: median of sqnr"* ]]
    [ -s "$dir/out.h5" ]
    [ "$(ls "$dir" | wc -l)" -eq 2 ]
}

@test "several suites: one file each in a folder" {
    cp "$suite" "$dir/other.yaml"
    run "$qualm" run -q -o "$dir/all/" "$suite" "$dir/other.yaml"
    [ "$status" -eq 0 ]
    [ -s "$dir/all/small.h5" ]
    [ -s "$dir/all/other.h5" ]
    run "$qualm" run -q -o "$dir/one.h5" "$suite" "$dir/other.yaml"
    [ "$status" -eq 2 ]
}

@test "the file does not depend on the number of threads" {
    SOURCE_DATE_EPOCH=0 "$qualm" run -q -t 1 -o "$dir/a.h5" "$suite" >/dev/null
    SOURCE_DATE_EPOCH=0 "$qualm" run -q -t 3 -o "$dir/b.h5" "$suite" >/dev/null
    a="$("$qualm" digest "$dir/a.h5")"
    b="$("$qualm" digest "$dir/b.h5")"
    [ "${a%% *}" = "${b%% *}" ]
    [ "${#a}" -ge 64 ]
    both="$("$qualm" digest "$dir/a.h5" "$dir/b.h5")"
    [ "$both" = "$a"$'\n'"$b" ]
    [ "${a##* }" = "$dir/a.h5" ]
}

@test "--json prints one document only" {
    run "$qualm" run -q --json -o "$dir/out.h5" "$suite"
    [ "$status" -eq 0 ]
    echo "$output" | /usr/bin/python3 -c '
import json, sys
d = json.load(sys.stdin)[0]
assert d["cells"] == 4 and d["ok"] == 4 and d["skipped"] == 0, d
rows = d["summary"]["sqnr"]
assert len(rows) == 4 and all(15 < r["sqnr_median"] < 25 for r in rows), rows'
}

@test "a median has the interval of its order statistics beside it, in text, JSON and file" {
    cat >"$dir/medians.yaml" <<'Y'
variant: ema4_uniform
source: ["dist:gauss", "dist:student:3"]
n: 512
seed: 1..12
coupling: oneshot
slot: exp_avg
summary:
  - {name: both, by: source, value: sqnr, stat: [median, max]}
  - {name: few, by: [source, seed], value: sqnr}
Y
    run "$qualm" run -q -o "$dir/medians.h5" "$dir/medians.yaml"
    [ "$status" -eq 0 ]
    [[ "$output" == *"both: median of sqnr, max of sqnr [95 % interval of a median]"* ]]
    [[ "$output" == *"few: median of sqnr"$'\n'* ]]
    "$qualm" run -q --json -o "$dir/medians.h5" "$dir/medians.yaml" >"$dir/medians.json"
    /usr/bin/python3 - "$dir/medians.json" "$dir/medians.h5" <<'P'
import json, sys
import h5py, numpy as np
d = json.load(open(sys.argv[1]))[0]["summary"]
with h5py.File(sys.argv[2]) as f:
    stored = f["summary/both"][()]
    cells, values = f["cells"][()], f["metrics"][()]["sqnr"]
rows = d["both"]
assert len(rows) == 2 and len(values) == 24
for i, r in enumerate(rows):  # P(Bin(12, 1/2) < 3) = 0.0193, < 4 = 0.073: ranks 3 and 10
    x = np.sort(values[12 * i:12 * i + 12])
    assert (r["sqnr_median_lo95"], r["sqnr_median_hi95"]) == (x[2], x[9]), (r, x)
    assert (stored[i]["sqnr_median_lo95"], stored[i]["sqnr_median_hi95"]) == (x[2], x[9])
    assert "sqnr_max_lo95" not in r and r["sqnr_max"] == x[11]
assert all(r["sqnr_median_lo95"] is None for r in d["few"]) and len(d["few"]) == 24
P
}

@test "--dry-run lists the cells and writes nothing" {
    run "$qualm" run --dry-run "$suite"
    [ "$status" -eq 0 ]
    [ "$(echo "$output" | grep -c ema4)" -eq 4 ]
    [ ! -e results/small.h5 ]
}

@test "errors in a suite name file and line: exit code 2" {
    printf 'sedd: 3\n' >>"$suite"
    run "$qualm" run -o "$dir/out.h5" "$suite"
    [ "$status" -eq 2 ]
    [[ "$output" == *"small.yaml:7:"*"did you mean 'seed'"* ]]
    [ ! -e "$dir/out.h5" ]
    run "$qualm" run
    [ "$status" -eq 2 ]
    run "$qualm" run --threads 0 "$suite"
    [ "$status" -eq 2 ]
}

@test "ranges: alone and in lists; one that is none names file and line" {
    for seeds in '[1..3, 7, 9..10]' '[1, 2, 3, 7, 9, 10]'; do
        printf 'variant: [ema4_nf4, ema4_uniform]\nsource: dist:gauss\nseed: %s\n' "$seeds" >"$suite"
        run -0 "$qualm" run --dry-run "$suite"
        [ "$(echo "$output" | grep -c ema4)" -eq 12 ]
        [ -z "${first:-}" ] || [ "$output" = "$first" ]
        first=$output
    done
    for seeds in 4..1 1..1e9 1..1000000000 1..4x 99999999999999999999..3 '[2, 3..1]'; do
        sed -i "3s/.*/seed: $seeds/" "$suite"
        run "$qualm" run --dry-run "$suite"
        [ "$status" -eq 2 ]
        [[ "$output" == *"small.yaml:3:"*"expected FROM..TO of whole numbers"* ]]
    done
    sed -i '3s/.*/seed: [1..4, 3]/' "$suite"
    run "$qualm" run --dry-run "$suite"
    [ "$status" -eq 2 ]
    [[ "$output" == *"'seed' lists '3' twice"* ]]
}

@test "files that cannot be read or written: exit code 3" {
    run "$qualm" run "$dir/none.yaml"
    [ "$status" -eq 3 ]
    run "$qualm" run -o "$dir/no/such/folder/out.h5" "$suite"
    [ "$status" -eq 3 ]
}

@test "no match: exit code 4" {
    run "$qualm" run momentum_formatt
    [ "$status" -eq 4 ]
    [[ "$output" == *"did you mean 'momentum_format'"* ]]
    printf 'coupling: closed\n' >>"$suite"
    run "$qualm" run -o "$dir/out.h5" "$suite"
    [ "$status" -eq 4 ]
    [[ "$output" == *"every cell was skipped: closed needs"* ]]
    printf 'variant: ema4_nf4\nsource: "states:*"\ndata: "%s/*.h5x"\n' "$dir" >"$suite"
    run "$qualm" run -o "$dir/out.h5" "$suite"
    [ "$status" -eq 4 ]
}

@test "an interrupted run of one process: exit code 75 and no file" {
    printf '%s\n' 'variant: adamw4_ao' 'source: problem:quad' 'coupling: closed' \
        'steps: 100000000' 'every: 1000000' >"$suite"
    "$qualm" run -q --workers 0 -o "$dir/out.h5" "$suite" &
    pid=$!
    sleep 1
    kill -INT "$pid"
    code=0
    wait "$pid" || code=$?
    [ "$code" -eq 75 ]
    [ "$(ls "$dir")" = small.yaml ]
}

@test "--time-limit holds in one process and makes a small run a campaign" {
    printf '%s\n' 'variant: adamw4_ao' 'source: problem:quad' 'coupling: closed' \
        'steps: 100000000' 'every: 1000000' >"$suite"
    run "$qualm" run -q --workers 0 -T 1 -o "$dir/out.h5" "$suite"
    [ "$status" -eq 75 ]
    [[ "$output" == *"a cell failed: no result within 1 s; nothing is written, --workers keeps"* ]]
    [ "$(ls "$dir")" = small.yaml ]
    printf '%s\n' 'variant: adamw4_ao' 'source: problem:quad' 'coupling: closed' \
        'steps: [10, 30000000]' 'every: 1000000' >"$suite"
    run "$qualm" run -T 1 -o "$dir/out.h5" "$suite" # workers keep it: the other cell has a result
    [ "$status" -eq 1 ]
    [[ "$output" == *"1 cell failed: no result within 1 s"*"2 cells, 0 skipped"* ]]
}

@test "options without effect are refused beside --workers 0 and --dry-run" {
    for words in "--shard 1/2" --retry-failed "--memory-limit 100" --keep --fresh; do
        run "$qualm" run -w 0 $words -o "$dir/out.h5" "$suite"
        [ "$status" -eq 2 ]
        [[ "$output" == *"--workers 0 is no campaign and takes no ${words%% *}"* ]]
        run "$qualm" run -n $words "$suite"
        [ "$status" -eq 2 ]
        [[ "$output" == *"--dry-run runs nothing and takes no ${words%% *}"* ]]
    done
    for words in "--out x.h5" "--workers 2" "--time-limit 3" "--threads 2" "--against baseline" \
        --headline; do
        run "$qualm" run -n $words "$suite"
        [ "$status" -eq 2 ]
        [[ "$output" == *"--dry-run runs nothing and takes no ${words%% *}"* ]]
    done
}

@test "--help explains the keys" {
    run "$qualm" run --help
    [ "$status" -eq 0 ]
    for word in coupling states:GLOB summary oneshot "Exit codes"; do
        [[ "$output" == *"$word"* ]]
    done
}

@test "a configuration of low-bit-optimizers becomes a variant" {
    printf 'TAG: x\nQUANT:\n  M:\n    BITS: 5\n' >"$dir/five.yml"
    run "$qualm" run -n --json --lpmm-config "$dir/five.yml" "$suite"
    [ "$status" -eq 0 ]
    [[ "$output" == *"five.yml:1: TAG is ignored"* ]]
    [[ "$output" == *"adamw4_lpmm_group,exp_avg=de:5s/block:128/bisect/mid/byte/nantop"* ]]
    [[ "$output" == *"ema4_nf4"* ]]
    run "$qualm" run -n --lpmm-config "$dir/five.yml" # without a suite, two built-in suites run
    [ "$status" -eq 0 ]
    [[ "$output" == *"problem:lowrank"* ]]
    [[ "$output" == *"states:"* || "$output" == *"oneshot"* ]]
    run "$qualm" show "$dir/five.yml"
    [ "$status" -eq 0 ]
    [[ "$output" == *"de:5s/block:128"* ]]
    printf 'QUANT:\n  M:\n    BITZ: 5\n' >"$dir/five.yml"
    run "$qualm" run -n --lpmm-config "$dir/five.yml" "$suite"
    [ "$status" -eq 2 ]
    [[ "$output" == *"five.yml:3: no key 'QUANT.M.BITZ'"* ]]
}

@test "problems wrap problems; closed runs refuse prescribed gradients; misspelt arguments" {
    printf '%s\n' 'variant: adamw4_ao' 'coupling: [closed, global]' 'steps: 5' 'source:' \
        '  - "problem:spike:at=3,base=heavy:nu=1.5,base=mclm:T=4,C=8"' '  - "problem:ema"' \
        '  - "problem:heavy:base=quad"' >"$dir/wrap.yaml"
    run "$qualm" run --json -o "$dir/wrap.h5" "$dir/wrap.yaml"
    [ "$status" -eq 0 ]
    [[ $output == *'"ok": 5'* && $output == *'"skipped": 1'* ]]
    [[ $output == *"problem ema prescribes its gradients and has no loss; take local or global"* ]]
    sed -i 's/base=quad"/base=quad:n=0"/' "$dir/wrap.yaml"
    run "$qualm" plan "$dir/wrap.yaml"
    [ "$status" -eq 2 ]
    [[ $output == *"wrap.yaml:7: quad: n is 0, expected a whole number from 1"* ]]
    sed -i 's/base=quad:n=0/base=nqn/' "$dir/wrap.yaml"
    for command in plan run; do
        run "$qualm" $command "$dir/wrap.yaml"
        [ "$status" -eq 2 ]
        [ "$output" = \
            "qualm $command: $dir/wrap.yaml:7: heavy: base: no problem 'nqn'; did you mean 'nqm'?" ]
    done
    sed -i 's/base=nqn/base=quad:nn=4/' "$dir/wrap.yaml"
    run "$qualm" plan "$dir/wrap.yaml"
    [ "$status" -eq 2 ]
    local there="there are n, cond, lambda_max, layout, rows, start"
    [[ "$output" == *"wrap.yaml:7: quad: no argument 'nn'; $there" ]]
}

@test "plan: a cell costs at most 300 bytes, controls and values of axes included" {
    cat >"$dir/peak.py" <<'P'
import os, sys
pid = os.fork()
if pid == 0:
    os.dup2(os.open(sys.argv[1] + ".out", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 1)
    os.execv(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(pid, 0)
print(usage.ru_maxrss * 1024)
sys.exit(os.waitstatus_to_exitcode(status))
P
    for protocol in paired plain; do
        for seeds in 1 250000; do
            printf '%s\n' 'variant: adamw4_ao' 'source: "problem:quad"' 'coupling: closed' \
                'exp_avg.map: [dyn, nf4]' 'steps: 10' "seed: 1..$seeds" >"$dir/c.yaml"
            [ $protocol = plain ] || echo 'protocol: paired' >>"$dir/c.yaml"
            run /usr/bin/python3 "$dir/peak.py" "$dir/p" "$qualm" plan --json "$dir/c.yaml"
            [ "$status" -eq 0 ]
            eval "peak_$seeds=$output"
        done
        cells=$(grep -o '"cells": [0-9]*' "$dir/p.out" | head -1 | tr -dc 0-9)
        [ "$cells" -eq $([ $protocol = paired ] && echo 1000000 || echo 500000) ]
        echo "$protocol: $((peak_250000 - peak_1)) bytes for $cells cells"
        [ $((peak_250000 - peak_1)) -le $((300 * cells)) ]
    done
    # the limit of cells counts controls
    printf '%s\n' 'variant: adamw4_ao' 'source: "problem:quad"' 'coupling: closed' 'steps: 10' \
        'seed: 1..1000000' 'instance: 1..9' 'protocol: paired' >"$dir/c.yaml"
    if [ "${QM_TEST_SHARE:-}" = 1 ]; then
        run "$qualm" plan "$dir/c.yaml"
        [ "$status" -eq 2 ]
        [[ $output == *"more than 10 million cells with the controls"* ]]
    fi
}

@test "damaged data are one line, whether the suite has a title or not" {
    cp experiments/data/cancer_tabular.h5 "$dir/d.h5"
    /usr/bin/python3 -c 'import sys
b = bytearray(open(sys.argv[1], "rb").read())
for k in range(1, 21):
    b[len(b) * k // 22] ^= 255
open(sys.argv[1], "wb").write(b)' "$dir/d.h5"
    for title in "" "title: about"; do
        printf '%s\n' "$title" "variant: adamw4_ao" "source: states:*" "coupling: oneshot" \
            "slot: exp_avg" >"$dir/mine.yaml"
        run "$qualm" run --data "$dir/d.h5" "$dir/mine.yaml" --workers 0 --out "$dir/r.h5"
        [ "$status" -eq 3 ]
        [[ "$output" == "qualm run: $dir/d.h5: "* && "$output" != *$'\n'* ]]
        [ ! -e "$dir/r.h5" ]
    done
}

@test "an unknown slot names near ones; a search that cannot serve a map names those that can" {
    printf "%s\n" "variant: sgdm8_bnb" "momentum_buffer.map: [dyn, int]" "source: dist:gauss" \
        "coupling: oneshot" "slot: momentum_bufer" >"$BATS_TEST_TMPDIR/s.yaml"
    run "$qualm" run "$BATS_TEST_TMPDIR/s.yaml" --dry-run
    [ "$status" -eq 2 ]
    [[ $output == *"s.yaml:5: no rule has a slot 'momentum_bufer'; did you mean \
'momentum_buffer'"* ]]
    sed -i 's/bufer/buffer/' "$BATS_TEST_TMPDIR/s.yaml"
    [[ $("$qualm" run "$BATS_TEST_TMPDIR/s.yaml" --dry-run 2>&1) == *"map int is in units of its \
own; set search to one of scan, bisect, arith, mids, argmin, lower"* ]]
    sed -i '3i momentum_buffer.search: bisect' "$BATS_TEST_TMPDIR/s.yaml"
    [[ $("$qualm" run "$BATS_TEST_TMPDIR/s.yaml" --dry-run 2>&1) != *"units of its own"* ]]
}

# Both maxima of an all-zero row are 0 there, and 0 / 0 is NaN.
@test "a tensor that a format decodes to NaN counts, with an SQNR of -Inf" {
    cat >"$dir/nan.yaml" <<'Y'
variant: "adamw4_lpmm,min_numel=0,whole_blocks=0"
exp_avg.map: nf4
exp_avg.norm: ["block:128", rowcol]
source: "states:gpt*"
coupling: oneshot
slot: exp_avg
summary: [{name: s, by: [exp_avg.norm], value: sqnr}]
Y
    "$qualm" run -q "$dir/nan.yaml" -o "$dir/nan.h5" --json >"$dir/nan.json"
    /usr/bin/python3 - "$dir" <<'P'
import h5py, json, sys, numpy as np
f = h5py.File(sys.argv[1] + "/nan.h5")["metrics"][:]
bad = f["nan_got"] > f["nan_want"]
assert bad.sum() == 2 and np.all(f["sqnr"][bad] == -np.inf) and np.all(f["nmse"][bad] == np.inf)
assert np.all(np.isfinite(f["sqnr"][~bad & (f["count"] > 0)]))
table = json.load(open(sys.argv[1] + "/nan.json"))[0]["summary"]
assert [row["n"] for row in table["s"]] == [26, 14]
P
    bats_require_minimum_version 1.5.0
    run -0 --separate-stderr "$qualm" analyze experiments/data/gpt_austen.h5 \
        -j --recipe adamw4_lpmm,exp_avg.norm=rowcol,min_numel=0
    [ "$(/usr/bin/python3 -c "import json,sys; print(json.load(sys.stdin)['summary'][0]['not_finite'])" <<<"$output")" = 2 ]
}

@test "two suites of one name are not written over one another" {
    printf 'variant: adamw4_ao\nsource: "states:gpt*"\ncoupling: oneshot\n' >"$dir/two.yaml"
    run -2 "$qualm" run -q "$dir/two.yaml" "$dir/two.yaml" -o "$dir/out/"
    [[ "$output" == *"out/two.h5: two files would be written under this name, expected one"* ]]
}

@test "keys that set the same are refused: of two axes, of a variant and an axis, within a recipe" {
    local rest='source: "states:gpt*"\ncoupling: oneshot\nslot: exp_avg\n'
    printf 'variant: adamw4_ao\nexp_avg.map: [dyn, nf4]\n' >"$dir/a.yaml"
    printf 'exp_avg: ["nf4:4s/block:64", "dyn:4s/block:64"]\n'"$rest" >>"$dir/a.yaml"
    run -2 "$qualm" plan "$dir/a.yaml"
    [[ "$output" == *"a.yaml:3: 'exp_avg' lists formats, of which 'exp_avg.map' sets a part anew"* ]]
    sed -i 's/\["nf4:4s.*/[{one: "nf4:4s\/block:64"}, {two: "nf4:4s\/block:128"}]/' "$dir/a.yaml"
    run -0 "$qualm" plan "$dir/a.yaml"
    for own in exp_avg.map=dyn exp_avg=dyn:4s/block:64; do
        printf 'variant: {mine: "adamw4_ao,%s"}\nexp_avg.map: nf4\n'"$rest" "$own" >"$dir/b.yaml"
        run -2 "$qualm" plan "$dir/b.yaml"
        [[ "$output" == *"'mine' sets ${own%%=*}, and the suite's 'exp_avg.map' sets it anew"* ]]
    done
    run -2 "$qualm" show adamw4_ao,exp_avg.map=dyn,exp_avg=nf4:4s/block:64
    [[ "$output" == *"exp_avg would undo exp_avg.map before it"* ]]
    run -2 "$qualm" show adamw4_ao,exp_avg.min_numel=9999,min_numel=0
    [[ "$output" == *"min_numel would undo exp_avg.min_numel before it"* ]]
    run -0 "$qualm" show \
        adamw4_ao,min_numel=0,exp_avg.min_numel=9999,exp_avg=nf4:4s/block:64,exp_avg.map=dyn
}

@test "an option that takes one value is refused a second one" {
    run -2 "$qualm" check --kernel a.c --kernel b.c
    [[ "$output" == *"--kernel is given twice, 'a.c' and 'b.c'"* ]]
    run -2 "$qualm" size --shapes gpt2 --shapes llama7b
    [[ "$output" == *"--shapes is given twice, 'gpt2' and 'llama7b'"* ]]
    run -0 "$qualm" size --shapes gpt2 -V adamw4_ao -V adamw8_ao
    [[ "$output" == *adamw4_ao*adamw8_ao* ]]
}

@test "states that min_numel leaves out are said to be there" {
    printf 'variant: adamw4_ao\nsource: "states:gpt*"\ncoupling: oneshot\nslot: exp_avg\n' \
        >"$dir/m.yaml"
    echo 'min_numel: 99999999' >>"$dir/m.yaml"
    run -4 "$qualm" run "$dir/m.yaml" -o "$dir/m.h5"
    [[ "$output" == *"min_numel 99999999 and min_rank 0 leave out the "*" that match 'gpt*'"* ]]
}
