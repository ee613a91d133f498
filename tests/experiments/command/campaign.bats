#!/usr/bin/env bats
# campaign.bats - Tests campaigns: resuming, kills, damage, limits, shards.
#
# The reference is always the file that one process writes without a campaign.  QM_KILLS is the
# number of kills in the test of kills (10; `make check-long`: 200), QM_CELLS the number of cells in
# the test of many cells (1000; 100,000).

load ../../support/cli_common

setup() {
    dir=$(mktemp -d)
    # mix.yaml has real metrics, curves and skips, and 60 cells of measurable duration
    cat >"$dir/mix.yaml" <<'Y'
variant: [adamw_f32, adamw4_ao, ema4_nf4]
source: [dist:gauss, "problem:quad:n=64", "empty:sleep:3"]
coupling: [oneshot, closed]
seed: [1, 2, 3, 4, 5]
n: 512
steps: 12
exp_avg.min_numel: 0
summary:
  - {name: s, by: source, across: variant, value: sqnr}
Y
    cat >"$dir/bad.yaml" <<Y
variant: adamw_f32
source: [empty, "empty:crash:$dir/on", "empty:exit:$dir/on", "empty:hang:$dir/on",
         "empty:eat:$dir/on", "empty:error:$dir/on"]
seed: [1, 2]
Y
}

teardown() {
    rm -rf "$dir"
}

digest_of() { "$QUALM" digest "$1" | cut -c1-64; }

# the undisturbed file of mix.yaml
reference() {
    "$QUALM" run -q --workers 0 -o "$dir/ref.h5" "$dir/mix.yaml" >/dev/null
    digest_of "$dir/ref.h5"
}

done_cells() { json_value 'd[0]["done"]' status "$1" || true; }

@test "a campaign with 1 or 2 workers writes the file of one process" {
    want=$(reference)
    [ ${#want} -eq 64 ]
    for w in 1 2; do
        "$QUALM" run -q -w $w -o "$dir/c$w.h5" "$dir/mix.yaml" >"$dir/out$w"
        [ "$(digest_of "$dir/c$w.h5")" = "$want" ]
        [ ! -e "$dir/c$w.run" ] # no folder is left to resume
    done
    cmp "$dir/out1" "$dir/out2"
    grep -q "s: median of sqnr" "$dir/out1"
}

@test "1, 2 and 7 shards, run in any order, merge into the same file" {
    long 2
    want=$(reference)
    for n in 1 2 7; do
        for i in $(seq "$n" -1 1); do
            "$QUALM" run -q -k -w 1 --shard "$i/$n" -o "$dir/s$n.h5" "$dir/mix.yaml" >/dev/null
        done
        rm -f "$dir/s$n.h5"
        "$QUALM" merge -q "$dir/s$n.run" >/dev/null
        [ "$(digest_of "$dir/s$n.h5")" = "$want" ]
    done
}

@test "paired comparisons: workers share twins, the protocol adds cells" {
    long 2
    cat >"$dir/pair.yaml" <<'Y'
variant: [adamw4_ao, adamw8_bnb]
source: ["problem:quad:n=64", "problem:lowrank"]
coupling: closed
protocol: paired
seed: 1..6
steps: 20
lr_scale: [0.5, 1]
exp_avg.min_numel: 0
exp_avg_sq.min_numel: 0
Y
    "$QUALM" run -q -w 0 -t 2 -o "$dir/p0.h5" "$dir/pair.yaml" >"$dir/out0"
    "$QUALM" run -q -w 2 -o "$dir/p1.h5" "$dir/pair.yaml" >"$dir/out1"
    for i in 3 1 2; do
        "$QUALM" run -q -w 1 --shard "$i/3" -o "$dir/p2.h5" "$dir/pair.yaml" >/dev/null
    done
    "$QUALM" merge -q "$dir/p2.run" >"$dir/out2"
    cmp "$dir/out0" "$dir/out1"
    cmp "$dir/out0" "$dir/out2"
    grep -q verdict "$dir/out0"
    for k in 1 2; do
        [ "$(digest_of "$dir/p$k.h5")" = "$(digest_of "$dir/p0.h5")" ]
    done
}

@test "the number of shards may change, and folders of two machines merge" {
    want=$(reference)
    "$QUALM" run -q -k -w 1 --shard 2/3 -o "$dir/a.h5" "$dir/mix.yaml"
    had=$(done_cells "$dir/a.run")
    [ "$had" -gt 0 ]
    "$QUALM" run -q -w 2 -o "$dir/a.h5" "$dir/mix.yaml" >/dev/null
    [ "$(digest_of "$dir/a.h5")" = "$want" ]
    mkdir "$dir/x" "$dir/y"
    "$QUALM" run -q -w 1 --shard 1/2 -o "$dir/x/m.h5" "$dir/mix.yaml"
    "$QUALM" run -q -w 1 --shard 2/2 -o "$dir/y/m.h5" "$dir/mix.yaml"
    fails_with 4 "cells are not there yet" merge "$dir/x/m.run" -o "$dir/m.h5"
    [ ! -e "$dir/m.h5" ]
    fails_with 3 "2of2.jsonl" merge "$dir/x/m.run" "$dir/y/2of2.jsonl" -o "$dir/m.h5"
    "$QUALM" merge -q "$dir/x/m.run" "$dir/y/m.run/2of2.jsonl" -o "$dir/m.h5" >/dev/null
    [ "$(digest_of "$dir/m.h5")" = "$want" ]
    "$QUALM" run -q -k -w 1 --shard 1/2 -o "$dir/other.h5" "$dir/bad.yaml"
    fails_with 2 "different campaigns" merge "$dir/x/m.run" "$dir/other.run" -o "$dir/m2.h5"
}

@test "a crash, an exit, a timeout, too much memory: outcomes that --retry-failed runs again" {
    long 3
    touch "$dir/on"
    run "$QUALM" run -w 2 -T 3 -M 300 -o "$dir/bad.h5" "$dir/bad.yaml"
    [ "$status" -eq 1 ]
    for why in "died by SIGSEGV" "left with exit code 9" "no result within 3 s" \
        "more than 300 MiB of memory" "the cell was told to fail"; do
        [[ "$output" == *"2 cells failed: $why"* ]]
    done
    [ "$(json_value '[d[0]["done"], d[0]["ok"], d[0]["failed"]]' status \
        "$dir/bad.run")" = "[12, 2, 10]" ]
    "$PYTHON" - "$dir/bad.h5" <<'P'
import h5py, sys
c = h5py.File(sys.argv[1])["cells"][:]
assert list(c["status"]).count(b"failed") == 10 and list(c["status"]).count(b"ok") == 2
assert all((r["reason"] != b"") == (r["status"] == b"failed") for r in c)
P
    rm "$dir/on"
    run "$QUALM" run -w 2 -o "$dir/bad.h5" "$dir/bad.yaml" # failed cells count as done
    [ "$status" -eq 1 ]
    run "$QUALM" run -w 2 --retry-failed -o "$dir/bad.h5" "$dir/bad.yaml"
    [ "$status" -eq 0 ]
    "$QUALM" run -q -w 0 -o "$dir/ref.h5" "$dir/bad.yaml"
    [ "$(digest_of "$dir/bad.h5")" = "$(digest_of "$dir/ref.h5")" ]
}

@test "SIGTERM, SIGUSR1, SIGINT: running cells finish, exit code 75, the same command resumes" {
    want=$(reference)
    for signal in TERM USR1 INT; do
        out="$dir/sig$signal.h5"
        "$QUALM" run -q -w 2 -o "$out" "$dir/mix.yaml" >/dev/null &
        pid=$!
        for _ in $(seq 500); do # on a busy machine it may not listen yet
            [ -e "${out%.h5}.run/campaign.json" ] && break
            sleep 0.01
        done
        # it may have ended already; the next test stops one that cannot end
        kill -$signal $pid || true
        code=0
        wait $pid || code=$?
        [ "$code" -eq 75 ] || [ "$code" -eq 0 ]
        [ "$code" -eq 0 ] || [ ! -e "$out" ]
        had=$(done_cells "${out%.h5}.run")
        "$QUALM" run -w 2 -o "$out" "$dir/mix.yaml" >/dev/null 2>"$dir/err"
        [ "$(digest_of "$out")" = "$want" ]
    done
}

@test "a signal saves finished cells while a long cell is running" {
    printf 'variant: adamw_f32\nsource: ["empty:hang:%s/on", empty]\nseed: [1, 2, 3]\n' "$dir" \
        >"$dir/long.yaml"
    touch "$dir/on"
    "$QUALM" run -q -w 4 -o "$dir/long.h5" "$dir/long.yaml" &
    pid=$!
    for _ in $(seq 100); do
        [ "$(done_cells "$dir/long.run")" = 3 ] && break
        sleep 0.1
    done
    kill -USR1 $pid
    sleep 0.3
    kill -0 $pid # it waits for the cells
    [ "$(done_cells "$dir/long.run")" = 3 ]
    kill -USR1 $pid # it stops waiting
    code=0
    wait $pid || code=$?
    [ "$code" -eq 75 ]
    [ "$(done_cells "$dir/long.run")" = 3 ]
}

@test "a folder whose name is a pattern is taken literally" {
    want=$(reference)
    mkdir "$dir/ab.run"
    touch "$dir/ab.run/1of1.jsonl"
    for name in 'a*' 'a[b]' 'a\b' 'a b'; do
        "$QUALM" run -q -w 1 --shard 1/2 -o "$dir/$name.h5" "$dir/mix.yaml"
        [ "$(done_cells "$dir/$name.run")" -gt 0 ]
        "$QUALM" run -q -w 2 -o "$dir/$name.h5" "$dir/mix.yaml" >/dev/null
        [ "$(digest_of "$dir/$name.h5")" = "$want" ]
        [ ! -e "$dir/$name.run" ]
    done
    [ -e "$dir/ab.run/1of1.jsonl" ]
}

@test "a path that is too long is an error and is not cut off" {
    long=$dir/$(printf '%0200d/' 1 2 3 4 5 6)
    mkdir -p "$long"
    cp "$dir/mix.yaml" "$long"
    for command in "run -w 0 -o $long/x.h5 $dir/mix.yaml" "run -w 1 -o $long $dir/mix.yaml" \
        "run $long/mix.yaml" "run $long" "status $long" "merge $long" "plan $long/mix.yaml" \
        "submit --slurm --dry-run -o $long/x.h5 $dir/mix.yaml"; do
        fails_with 2 "bytes, at most" $command
    done
}

@test "kill -9 of the runner and of workers at random moments loses no finished cell" {
    long 3
    want=$(reference)
    kills=${QM_KILLS:-10} n=0
    RANDOM=${QM_SEED:-20261120}
    while [ "$n" -lt "$kills" ]; do
        out="$dir/k$n.h5" folder="$dir/k$n.run" before=0 ended=0
        while [ "$ended" = 0 ]; do
            "$QUALM" run -q -w 2 -o "$out" "$dir/mix.yaml" >/dev/null 2>"$dir/err" &
            pid=$!
            sleep "0.$(printf %03d $((RANDOM % 350)))"
            if [ $((RANDOM % 2)) = 0 ]; then
                kill -9 $pid 2>/dev/null || true
                n=$((n + 1))
            else
                victim=$(pgrep -P $pid -f campaign-worker | head -1)
                [ -z "$victim" ] || { kill -9 "$victim" 2>/dev/null && n=$((n + 1)); } || true
            fi
            code=0
            wait $pid || code=$?
            if [ "$code" = 0 ]; then
                ended=1
            elif [ "$code" != 137 ]; then
                cat "$dir/err"
                false
            fi
            # the ledger's count of done cells never decreases
            if [ -e "$folder/campaign.json" ]; then
                now=$(done_cells "$folder")
                [ "${now:-0}" -ge "$before" ]
                before=${now:-0}
            fi
        done
        [ "$(digest_of "$out")" = "$want" ]
        [ ! -e "$folder" ]
    done
}

@test "the journal of a killed runner names its running cells" {
    "$QUALM" run -q -w 2 -o "$dir/j.h5" "$dir/mix.yaml" >/dev/null 2>&1 &
    pid=$!
    for _ in $(seq 200); do
        [ -s "$dir/j.run/1of1.journal" ] && break
        sleep 0.01
    done
    kill -9 $pid 2>/dev/null || skip "the run ended before it could be killed: a loaded machine"
    wait $pid || true
    [ -s "$dir/j.run/1of1.journal" ]
    printf 'half a record' >>"$dir/j.run/1of1.journal"
    run "$QUALM" run -w 2 -o "$dir/j.h5" "$dir/mix.yaml"
    [ "$status" -eq 0 ]
    [[ "$output" == *"cells were found in the journal"* ]]
    [ "$(digest_of "$dir/j.h5")" = "$(reference)" ]
}

@test "no worker outlives its runner" {
    printf 'variant: adamw_f32\nsource: "empty:hang:%s"\n' "$dir" >"$dir/hang.yaml"
    "$QUALM" run -q -w 2 -o "$dir/h.h5" "$dir/hang.yaml" &
    pid=$!
    for _ in $(seq 100); do
        child=$(pgrep -P $pid -f campaign-worker | head -1) && [ -n "$child" ] && break
        sleep 0.05
    done
    kill -9 $pid
    wait $pid || true
    for _ in $(seq 100); do
        kill -0 "$child" 2>/dev/null || break
        sleep 0.05
    done
    ! kill -0 "$child" 2>/dev/null || return 1
}

@test "after a flipped bit in a segment or a damaged ledger line those cells run again" {
    want=$(reference)
    "$QUALM" run -q -k -w 1 --shard 1/2 -o "$dir/d.h5" "$dir/mix.yaml"
    "$QUALM" run -q -k -w 1 --shard 2/2 -o "$dir/d.h5" "$dir/mix.yaml"
    had=$(done_cells "$dir/d.run")
    [ "$had" = 90 ]
    "$PYTHON" - "$dir/d.run/1of2.0001.h5" <<'P'
import sys
b = bytearray(open(sys.argv[1], "rb").read())
b[len(b) // 2] ^= 16
open(sys.argv[1], "wb").write(b)
P
    fails_with 3 "1of2.0001.h5: is damaged" merge "$dir/d.run"
    # a line without its end, and a line that is no JSON
    truncate -s -20 "$dir/d.run/2of2.jsonl"
    sed -i '4s/.*/{"cell": 3, "id/' "$dir/d.run/2of2.jsonl"
    run "$QUALM" run -w 2 -o "$dir/d.h5" "$dir/mix.yaml"
    [ "$status" -eq 0 ]
    [[ "$output" == *"1of2.0001.h5: is damaged"* ]]
    [[ "$output" == *"damaged lines: 1"* ]]
    [ "$(digest_of "$dir/d.h5")" = "$want" ]
}

@test "a named pipe in a campaign's folder is refused, or its cells run again; nothing waits" {
    want=$(reference)
    for name in campaign.json lock 1of2.jsonl 1of2.journal suite.yaml 1of2.0001.h5; do
        rm -rf "$dir/p.run"
        "$QUALM" run -q -k -w 1 --shard 1/2 -o "$dir/p.h5" "$dir/mix.yaml"
        rm -f "$dir/p.run/$name"
        mkfifo "$dir/p.run/$name"
        code=0
        said=$(timeout 20 "$QUALM" run -w 1 --shard 1/2 -o "$dir/p.h5" "$dir/mix.yaml" \
            2>&1 >/dev/null) || code=$?
        echo "$name: $code: $said"
        case $name in
            suite.yaml) [ "$code" -eq 0 ] && [[ "$said" == *"suite.yaml: was damaged"* ]] ;;
            *.h5) [ "$code" -eq 0 ] && [[ "$said" == *"0001.h5: is damaged"* ]] ;;
            *) [ "$code" -eq 3 ] && [[ "$said" == *"$name: is not a plain file" ]] ;;
        esac
        timeout 10 "$QUALM" status "$dir/p.run" >/dev/null || [ $? -ne 124 ]
    done
    # runs the segment's cells again
    timeout 20 "$QUALM" run -q -w 2 -o "$dir/p.h5" "$dir/mix.yaml" >/dev/null
    [ "$(digest_of "$dir/p.h5")" = "$want" ]
}

# A ledger that lost single bits says so in status, and its campaign ends with the same digest
# without running a cell again: what a line said is read back from its segment.
@test "flipped bits of a ledger heal from the segments, those of its keys too" {
    want=$(reference)
    "$QUALM" run -q -k -w 1 -o "$dir/d.h5" "$dir/mix.yaml" >/dev/null
    cp "$dir/d.run/1of1.jsonl" "$dir/whole"
    for seed in 1 2 3 4 5 6 sum; do
        "$PYTHON" - "$dir/whole" "$dir/d.run/1of1.jsonl" $seed <<'P'
import random, sys
b, seed = bytearray(open(sys.argv[1], "rb").read()), sys.argv[3]
r = random.Random(seed)
at = b.index(b'"sum"', b.index(b'"cell":2')) + 1 if seed == "sum" else r.randrange(len(b))
b[at] ^= 1 << (0 if seed == "sum" else r.randrange(8))
open(sys.argv[2], "wb").write(b)
print("byte", at, "of", len(b))
P
        rm -f "$dir/e.h5"
        "$QUALM" merge "$dir/d.run" -o "$dir/e.h5" >/dev/null 2>"$dir/err"
        [ $seed != sum ] || grep -q "damaged lines: 1" "$dir/err"
        [ "$(digest_of "$dir/e.h5")" = "$want" ]
    done
    # one line is gone: status says so, and counts its cell
    sed '4s/"cell"/"call"/' "$dir/whole" >"$dir/d.run/1of1.jsonl"
    "$QUALM" status --json "$dir/d.run" | tee "$dir/status"
    grep -q '"damaged_lines": 1' "$dir/status"
    grep -q '"healed_cells": 1' "$dir/status"
}

@test "a changed suite.yaml does not change the meaning of cells; cells that do not exist" {
    want=$(reference)
    "$QUALM" run -q -k -w 1 --shard 1/2 -o "$dir/y.h5" "$dir/mix.yaml"
    sed -i 's/n: \["512"\]/n: ["513"]/' "$dir/y.run/suite.yaml"
    sed -i '3s/"cell":[0-9]*/"cell":900/' "$dir/y.run/1of2.jsonl"
    fails_with 3 "suite.yaml: is damaged" merge "$dir/y.run"
    run "$QUALM" run -w 2 -o "$dir/y.h5" "$dir/mix.yaml"
    [ "$status" -eq 0 ]
    [[ "$output" == *"suite.yaml: was damaged or gone"* ]]
    [[ "$output" == *"damaged lines: 1"* ]]
    [ "$(digest_of "$dir/y.h5")" = "$want" ]
}

@test "two runners on one shard, and a changed suite under an old ledger" {
    printf 'variant: adamw_f32\nsource: "empty:hang:%s/on"\n' "$dir" >"$dir/hang.yaml"
    touch "$dir/on"
    "$QUALM" run -q -w 1 -o "$dir/h.h5" "$dir/hang.yaml" &
    pid=$!
    for _ in $(seq 100); do
        [ "$(json_value 'd[0]["running"]' status "$dir/h.run" || true)" = 1 ] && break
        sleep 0.05
    done
    fails_with 3 "another run is at work" run -w 1 -o "$dir/h.h5" "$dir/hang.yaml"
    fails_with 3 "another run is at work" run -w 1 --fresh -o "$dir/h.h5" "$dir/hang.yaml"
    kill -9 $pid
    wait $pid || true
    printf 'seed: [1, 2]\n' >>"$dir/hang.yaml"
    fails_with 2 "was begun with another suite" run -w 1 -o "$dir/h.h5" "$dir/hang.yaml"
    [ -e "$dir/h.run/campaign.json" ]
    rm "$dir/on"
    "$QUALM" run -q -w 1 --fresh -o "$dir/h.h5" "$dir/hang.yaml"
    [ -s "$dir/h.h5" ]
}

@test "a full disk or a read-only folder: one line, no cell is lost" {
    want=$(reference)
    # a limit on the size of files replaces a full disk where mounting is not allowed
    mkdir "$dir/disk"
    mounted=0
    if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=300k none "$dir/disk" 2>/dev/null; then
        mounted=1
    fi
    code=0
    if [ $mounted = 1 ]; then
        "$QUALM" run -q -w 2 -o "$dir/disk/f.h5" "$dir/mix.yaml" >/dev/null 2>"$dir/err" || code=$?
    else
        (ulimit -f 120; trap '' XFSZ
         "$QUALM" run -q -w 2 -o "$dir/disk/f.h5" "$dir/mix.yaml" >/dev/null 2>"$dir/err") ||
            code=$?
    fi
    cat "$dir/err"
    [ "$code" -eq 3 ]
    [ "$(wc -l <"$dir/err")" -eq 1 ]
    grep -q "cannot be written" "$dir/err"
    [ $mounted = 0 ] || mount -o remount,size=20m "$dir/disk"
    code=0
    "$QUALM" run -q -w 2 -o "$dir/disk/f.h5" "$dir/mix.yaml" >/dev/null || code=$?
    got=$(digest_of "$dir/disk/f.h5")
    [ $mounted = 0 ] || umount "$dir/disk"
    [ "$code" -eq 0 ]
    [ "$got" = "$want" ]
    if [ "$(id -u)" != 0 ]; then
        mkdir -m 555 "$dir/closed"
        fails_with 3 "cannot be" run -w 1 -o "$dir/closed/c.h5" "$dir/mix.yaml"
    fi
    fails_with 3 "such/c.h5: cannot be written in the folder $dir/no/such: No such file" \
        run -w 1 -o "$dir/no/such/c.h5" "$dir/mix.yaml"
    fails_with 3 "cannot be made" run -w 1 --shard 1/2 -o "$dir/no/such/c.h5" "$dir/mix.yaml"
    fails_with 2 "--out is empty" run -w 1 -o "" "$dir/mix.yaml"
    ln -s /dev/null "$dir/null.h5" # refused before the first cell
    fails_with 3 "name of a file to write" run -w 1 -o "$dir/null.h5" "$dir/mix.yaml"
    [ ! -e "$dir/null.run" ]
}

@test "no file takes the descriptor of a closed standard stream" {
    want=$(reference)
    code=0
    "$QUALM" run -k -w 2 -o "$dir/o.h5" "$dir/mix.yaml" <&- >&- 2>&- || code=$?
    [ "$code" -eq 3 ] # the tables could not be printed
    [ "$(digest_of "$dir/o.h5")" = "$want" ]
    printf 'variant: adamw_f32\nsource: "empty:hang:%s/on"\n' "$dir" >"$dir/hang.yaml"
    touch "$dir/on"
    "$QUALM" run -w 1 -o "$dir/h.h5" "$dir/hang.yaml" 2>&- &
    pid=$!
    for _ in $(seq 100); do
        [ -s "$dir/h.run/1of1.jsonl" ] && [ -n "$(pgrep -P $pid -f campaign-worker)" ] && break
        sleep 0.05
    done
    sleep 0.2
    kill -INT $pid # it prints that it waits
    sleep 0.2
    kill -INT $pid
    wait $pid || true
    cat "$dir/h.run/1of1.jsonl"
    [ -s "$dir/h.run/1of1.jsonl" ]
    [ "$(grep -cv '^{.*}$' "$dir/h.run/1of1.jsonl")" = 0 ]
}

@test "too few descriptors or too small files: one line, and the same command resumes" {
    for limit in "-n 8" "-f 0"; do
        code=0
        said=$( (ulimit $limit; "$QUALM" run -q -w 1 -o "$dir/l.h5" "$dir/mix.yaml" 3>&-) 2>&1 \
            >/dev/null) || code=$?
        echo "$said"
        [ "$code" -eq 3 ]
        [[ "$said" =~ ^[^$'\n']*("Too many open files"|"File too large")$ ]]
    done
    "$QUALM" run -q -w 1 -o "$dir/l.h5" "$dir/mix.yaml" >/dev/null
    [ "$(digest_of "$dir/l.h5")" = "$(reference)" ]
}

@test "the launcher's environment gives the shard; the rank of a batch script does not" {
    want=$(reference)
    for i in 0 1 2; do
        OMPI_COMM_WORLD_RANK=$i OMPI_COMM_WORLD_SIZE=3 \
            "$QUALM" run -q -o "$dir/e.h5" "$dir/mix.yaml"
    done
    "$QUALM" merge -q "$dir/e.run" >/dev/null
    [ "$(digest_of "$dir/e.h5")" = "$want" ]
    for i in 10 12; do # an array --array=10-12:2 of two tasks, two ranks each
        for rank in 0 1; do
            SLURM_ARRAY_TASK_ID=$i SLURM_ARRAY_TASK_MIN=10 SLURM_ARRAY_TASK_STEP=2 \
                SLURM_ARRAY_TASK_COUNT=2 SLURM_PROCID=$rank SLURM_STEP_NUM_TASKS=2 \
                "$QUALM" run -q -o "$dir/f.h5" "$dir/mix.yaml"
        done
    done
    [ "$(ls "$dir/f.run" | grep -c jsonl)" -eq 4 ]
    "$QUALM" merge -q "$dir/f.run" >/dev/null
    [ "$(digest_of "$dir/f.h5")" = "$want" ]
    SLURM_PROCID=0 SLURM_NTASKS=4 "$QUALM" run -q -w 1 -o "$dir/g.h5" "$dir/mix.yaml" >/dev/null
    [ "$(digest_of "$dir/g.h5")" = "$want" ]
}

@test "plan and status: figures, reasons, JSON" {
    run "$QUALM" plan "$dir/mix.yaml" --shards 3
    [ "$status" -eq 0 ]
    [[ "$output" == *"closed needs a problem"* ]]
    [ "$(json_value 'd[0]["cells"]' plan "$dir/mix.yaml")" = 90 ]
    [ "$(json_value 'sum(s["cells"] for s in d[0]["shards"])' plan \
        --shards 7 "$dir/mix.yaml")" = 90 ]
    [ "$(json_value 'len(d[0]["list"])' plan --cells "$dir/mix.yaml")" = 90 ]
    json_on_stdout plan --json "$dir/mix.yaml"
    fails_with 4 "no campaign" status "$dir"
    for command in status merge; do
        fails_with 3 "nothere.h5: No such file or directory" $command "$dir/nothere.h5"
        fails_with 3 "mix.yaml: is a file, expected the folder of a campaign" $command "$dir/mix.yaml"
    done
    fails_with 4 "no file and no suite 'a?b'" plan $'a\nb' # the error is one line
    "$QUALM" run -q -w 1 --shard 1/2 -o "$dir/p.h5" "$dir/mix.yaml"
    run "$QUALM" status "$dir/p.run"
    [ "$status" -eq 75 ]
    "$QUALM" run -q -w 1 --shard 2/2 -o "$dir/p.h5" "$dir/mix.yaml"
    run "$QUALM" status "$dir/p.run"
    [ "$status" -eq 0 ]
    fails_with 2 "is no shard" run --shard 3/2 "$dir/mix.yaml"
    fails_with 2 "no campaign" run -w 0 --shard 1/2 "$dir/mix.yaml"
}

@test "a range of 100,000 seeds is read back from its plan within seconds" {
    printf 'variant: adamw_f32\nsource: empty\nseed: 1..100000\n' >"$dir/many.yaml"
    "$QUALM" submit -q --slurm --dry-run -o "$dir/many.h5" "$dir/many.yaml" >/dev/null
    # comparing each seed with each would take 15 s
    timeout 10 "$QUALM" plan "$dir/many.run/suite.yaml" >"$dir/out"
    grep -q "cells .* 100000" "$dir/out"
    sed 's/100000/1000000/; $a n: 1..9' "$dir/many.yaml" >"$dir/more.yaml"
    run bash -c "ulimit -v 1500000; '$QUALM' plan '$dir/more.yaml'"
    [ "$status" -eq 3 ]
    [[ "$output" == *"out of memory: 9000000 cells" ]]
}

@test "2000 empty cells take less than 2 ms each" {
    printf 'variant: adamw_f32\nsource: empty\nseed: [%s]\nn: [%s]\n' \
        "$(seq -s, 1 40)" "$(seq -s, 1 50)" >"$dir/null.yaml"
    start=$(date +%s%N)
    "$QUALM" run -q -w 2 -o "$dir/null.h5" "$dir/null.yaml"
    ms=$((($(date +%s%N) - start) / 1000000))
    echo "2000 cells: $ms ms"
    [ "$ms" -le 4000 ]
}

@test "many empty cells: planned, run as 3 shards, merged and read within the time limits" {
    cells=${QM_CELLS:-1000}
    printf 'variant: adamw_f32\nsource: empty\nseed: 1..%d\nn: 1..%d\n' $((cells / 100)) 100 \
        >"$dir/m.yaml"
    now() { echo $(($(date +%s%N) / 1000000)); }
    "$QUALM" run -q -w 0 -o "$dir/one.h5" "$dir/m.yaml"
    start=$(now)
    [ "$(json_value 'd[0]["cells"]' plan --shards 3 "$dir/m.yaml")" = "$cells" ]
    planned=$(now)
    for i in 1 2 3; do
        "$QUALM" run -q -k -w 2 --shard "$i/3" -o "$dir/m.h5" "$dir/m.yaml"
    done
    ran=$(now)
    rm -f "$dir/m.h5" # the last shard may have written it
    "$QUALM" merge -q "$dir/m.run"
    merged=$(now)
    want=$(digest_of "$dir/one.h5")
    [ ${#want} -eq 64 ]
    [ "$(digest_of "$dir/m.h5")" = "$want" ]
    column=$("$PYTHON" - "$dir/m.h5" "$cells" <<'P'
import h5py, sys, time
h5py.File(sys.argv[1]).close()  # leaves out the start of the library
start = time.perf_counter()
seed = h5py.File(sys.argv[1])["cells"]["seed"]
took = time.perf_counter() - start
assert len(seed) == int(sys.argv[2]) and len(set(seed)) == int(sys.argv[2]) // 100
print(round(1e6 * took))
P
    )
    # 100,000 cells may take 300 s, 2 ms per cell, 0.1 s per column; twice that on shared machines
    echo "# $cells cells: planned $((planned - start)) ms, run $((ran - planned)) ms" \
        "($((1000 * (ran - planned) / cells)) us a cell), merged $((merged - ran)) ms, column $column us" >&3
    [ $((merged - start)) -le $((6 * cells)) ]
    [ $((ran - planned)) -le $((4 * cells)) ]
    [ "$column" -le 200000 ]
}
