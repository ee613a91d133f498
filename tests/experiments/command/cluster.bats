#!/usr/bin/env bats
# cluster.bats - Tests that Slurm (on one machine) and Open MPI give the results of one process.
#
# Tests are skipped with a reason if a package is missing or the user is not root.

load ../../support/cli_common
load ../../support/slurm

setup_file() {
    export CLUSTER=$(mktemp -d)
    chmod 755 "$CLUSTER"
    cat >"$CLUSTER/mix.yaml" <<'Y'
variant: [adamw_f32, adamw4_ao]
source: [dist:gauss, "problem:quad:n=64", "empty:sleep:100"]
coupling: [oneshot, closed]
seed: [1, 2, 3, 4, 5, 6, 7, 8]
n: 512
steps: 12
exp_avg.min_numel: 0
Y
    "$QUALM" run -q -w 0 -o "$CLUSTER/ref.h5" "$CLUSTER/mix.yaml"
    if [ -z "$(slurm_missing)" ]; then
        mkdir "$CLUSTER/slurm"
        slurm_start "$CLUSTER/slurm" >"$CLUSTER/slurm.said" 2>&1 || true
        export SLURM_CONF="$CLUSTER/slurm/slurm.conf"
    fi
}

teardown_file() {
    [ ! -d "$CLUSTER/slurm" ] || slurm_stop "$CLUSTER/slurm"
    rm -rf "$CLUSTER"
}

need_slurm() {
    local why
    why=$(slurm_missing)
    [ -z "$why" ] || skip "$why"
    if ! sinfo -h >/dev/null 2>&1; then
        cat "$CLUSTER/slurm.said"
        return 1
    fi
}

need_mpirun() {
    command -v mpirun >/dev/null || skip "no mpirun: apt-get install openmpi-bin"
    mpirun="mpirun -n 4 --oversubscribe --allow-run-as-root"
}

digest_of() { "$QUALM" digest "$1" | cut -c1-64; }

same() { [ "$(digest_of "$1")" = "$(digest_of "$CLUSTER/ref.h5")" ]; }

# until COMMAND: repeats it until it succeeds, for at most 30 s
until_true() {
    for _ in $(seq 300); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.1
    done
    squeue || true
    return 1
}

running() { [ -n "$(squeue -h -t R -j "$1")" ]; }
pending() { [ -n "$(squeue -h -t PD -j "$1")" ]; }
gone() { [ -z "$(squeue -h -u root)" ]; }
# A requeued job waits for two minutes by default.  It must not start at once: slurmd refuses to
# start a job ("Job credential revoked") in the second in which it ended it, and the job is lost.
hurry() {
    until_true pending "$1"
    sleep 2
    until_true scontrol update JobId="$1" StartTime=now
}

# kills a worker of a campaign, found by the suite it was started on
kill_a_worker() {
    local pid
    pid=$(pgrep -f "campaign-worker $1/suite.yaml" | head -1)
    [ -n "$pid" ] && kill -9 "$pid"
}

@test "submit --dry-run writes scripts that bash can read, and submits nothing" {
    run "$QUALM" submit --slurm "$CLUSTER/mix.yaml" --tasks 5 --cpus 2 --time 10:00 \
        -p all --sbatch=--nice --dry-run -o "$CLUSTER/dry.h5"
    [ "$status" -eq 0 ]
    bash -n "$CLUSTER/dry.run/array.sh"
    bash -n "$CLUSTER/dry.run/merge.sh"
    for line in --array=1-5 --cpus-per-task=2 --time=10:00 --partition=all --nice --requeue \
        --signal=B:USR1@120; do
        grep -q "^#SBATCH $line" "$CLUSTER/dry.run/array.sh"
    done
    fails_with 2 "--slurm" submit "$CLUSTER/mix.yaml"
    # the cost of a suite sets the number of tasks: a small suite has one
    [ "$(json_value 'd["tasks"]' submit --slurm --dry-run "$CLUSTER/mix.yaml" \
        -o "$CLUSTER/dry.h5")" = 1 ]
}

@test "submit: the merge job has the same account; an array without a merge job is reported" {
    mkdir "$CLUSTER/fake"
    cat >"$CLUSTER/fake/sbatch" <<'F'
#!/bin/bash
case "$*" in *merge.sh*) echo "sbatch: error: no" >&2; exit 1 ;; esac
echo "4711;here"
F
    chmod +x "$CLUSTER/fake/sbatch"
    PATH="$CLUSTER/fake:$PATH" fails_with 3 "but job 4711 runs: qualm merge" submit --slurm \
        "$CLUSTER/mix.yaml" --sbatch=--account=p1 --sbatch='-q fast' --sbatch=--mem=1G \
        -o "$CLUSTER/f.h5"
    for script in array merge; do
        grep -qx "#SBATCH --account=p1" "$CLUSTER/f.run/$script.sh"
        grep -qx "#SBATCH -q fast" "$CLUSTER/f.run/$script.sh"
    done
    grep -q mem=1G "$CLUSTER/f.run/array.sh"
    ! grep -q mem=1G "$CLUSTER/f.run/merge.sh" || return 1
}

@test "Slurm: an array, a killed worker, a requeued task, a merge job" {
    need_slurm
    job=$(json_value 'd["job"]' submit --slurm "$CLUSTER/mix.yaml" --tasks 3 -o "$CLUSTER/a.h5")
    until_true running "${job}_2"
    until_true kill_a_worker "$CLUSTER/a.run"
    scontrol requeue "${job}_2"
    hurry "${job}_2"
    until_true gone
    cat "$CLUSTER"/a.run/slurm-*.out
    same "$CLUSTER/a.h5"
    [ "$(ls "$CLUSTER/a.run" | grep -c 'of3.jsonl')" -eq 3 ]
    # the requeued task started twice
    [ "$(grep -c session "$CLUSTER/a.run/2of3.jsonl")" -ge 2 ]
}

@test "Slurm: names with spaces, quotes and percent signs" {
    place="$CLUSTER/it's \"a\" 100%j [1]"
    mkdir "$place"
    printf 'variant: adamw_f32\nsource: empty\nseed: [1, 2]\n' >"$place/my 'su\"ite.yaml"
    run "$QUALM" submit --slurm --dry-run "$place/my 'su\"ite.yaml" --tasks 2 -o "$place/o p.h5"
    [ "$status" -eq 0 ]
    grep -qF "job-name=\"qualm-my 'su\\\"ite\"" "$place/o p.run/array.sh"
    grep -qF "it's \\\"a\\\" 100%%j [1]/o p.run/slurm-%a.out\"" "$place/o p.run/array.sh"
    need_slurm
    "$QUALM" submit --slurm "$place/my 'su\"ite.yaml" --tasks 2 -o "$place/o p.h5"
    squeue -h -o %j | grep -F "qualm-my 'su\"ite"
    until_true gone
    ls "$place/o p.run"
    for file in slurm-1.out slurm-2.out slurm-merge.out; do [ -f "$place/o p.run/$file" ]; done
    [ -s "$place/o p.h5" ]
}

@test "Slurm: the signal before the time limit makes a task finish its cell and queue again" {
    need_slurm
    job=$(json_value 'd["job"]' submit --slurm "$CLUSTER/mix.yaml" --tasks 2 -o "$CLUSTER/b.h5")
    until_true running "${job}_1"
    until_true test -s "$CLUSTER/b.run/1of2.journal"
    scancel --batch --signal=USR1 "${job}_1" # as --signal=B:USR1@120 does
    hurry "${job}_1"
    until_true gone
    cat "$CLUSTER"/b.run/slurm-*.out
    same "$CLUSTER/b.h5"
    [ "$(grep -c session "$CLUSTER/b.run/1of2.jsonl")" -eq 2 ]
}

@test "srun: every rank takes its shard from the environment" {
    need_slurm
    srun -n 3 "$QUALM" run -q -o "$CLUSTER/c.h5" "$CLUSTER/mix.yaml"
    [ "$(ls "$CLUSTER/c.run" | grep -c 'of3.jsonl')" -eq 3 ]
    "$QUALM" merge -q "$CLUSTER/c.run"
    same "$CLUSTER/c.h5"
}

@test "mpirun: four ranks, a killed worker, no MPI linked" {
    need_mpirun
    $mpirun "$QUALM" run -q -o "$CLUSTER/d.h5" "$CLUSTER/mix.yaml" &
    pid=$!
    until_true kill_a_worker "$CLUSTER/d.run"
    wait $pid
    [ "$(ls "$CLUSTER/d.run" | grep -c 'of4.jsonl')" -eq 4 ]
    "$QUALM" merge -q "$CLUSTER/d.run"
    same "$CLUSTER/d.h5"
}

# The program that distributes cells over MPI; it is built at the first use.
mpi_program() {
    local program
    need_mpirun
    command -v mpicc >/dev/null || skip "no mpicc: apt-get install libopenmpi-dev"
    program=$(dirname "$(readlink -f "$QUALM")")/qualm-mpi
    program=${program#"$ROOT"/}
    (cd "$ROOT" && make -s INSTALL=0 MPI=1 "$program")
    mpi="$ROOT/$program"
}

@test "make MPI=1: rank 0 distributes cells to three ranks, a worker is killed, one result file" {
    mpi_program
    $mpirun "$mpi" run -q --keep -o "$CLUSTER/e.h5" "$CLUSTER/mix.yaml" &
    pid=$!
    until_true kill_a_worker "$CLUSTER/e.run"
    wait $pid
    same "$CLUSTER/e.h5"
    [ "$(ls "$CLUSTER/e.run" | grep -c 'of4.jsonl')" -eq 3 ]
    # no rank had all cells
    for ledger in "$CLUSTER"/e.run/*.jsonl; do
        n=$(grep -c '"cell":' "$ledger")
        [ "$n" -gt 0 ] && [ "$n" -lt 90 ]
    done
}

@test "make MPI=1: a killed rank ends all ranks, and the same command resumes" {
    mpi_program
    $mpirun "$mpi" run -q -o "$CLUSTER/f.h5" "$CLUSTER/mix.yaml" 2>"$CLUSTER/f.said" &
    pid=$!
    until_true test -s "$CLUSTER/f.run/3of4.journal"
    rank=$(pgrep -f "^$mpi run -q -o $CLUSTER/f.h5" | tail -1)
    kill -9 "$rank"
    code=0
    wait $pid || code=$?
    [ "$code" -ne 0 ]
    [ ! -e "$CLUSTER/f.h5" ]
    $mpirun "$mpi" run -q -o "$CLUSTER/f.h5" "$CLUSTER/mix.yaml"
    same "$CLUSTER/f.h5"
    "$mpi" run -q -w 0 -o "$CLUSTER/g.h5" "$CLUSTER/mix.yaml" # a single process needs no mpirun
    same "$CLUSTER/g.h5"
}
