# slurm.bash - Starts a Slurm of one node on the loopback device, for cluster.bats.
#
# slurm_start FOLDER starts munged, slurmctld and slurmd with all their files in FOLDER, and exports
# SLURM_CONF; slurm_stop FOLDER ends them.  slurm_missing prints why Slurm cannot start, or nothing.

slurm_missing() {
    local program
    [ "$(id -u)" = 0 ] || { echo "needs root, to start Slurm's daemons"; return; }
    for program in munged mungekey slurmctld slurmd sbatch srun; do
        command -v $program >/dev/null ||
            { echo "no $program: apt-get install slurmctld slurmd munge slurm-client"; return; }
    done
}

slurm_port() {
    "$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

slurm_start() {
    local d=$1 host
    host=$(hostname -s)
    chmod 755 "$d"
    mkdir -p "$d/state" "$d/spool"
    mungekey --create --keyfile "$d/munge.key"
    munged --force --key-file="$d/munge.key" --socket="$d/munge.socket" \
        --log-file="$d/munged.log" --pid-file="$d/munged.pid" \
        --seed-file="$d/munge.seed" 2>/dev/null
    cat >"$d/slurm.conf" <<C
ClusterName=qualm
SlurmctldHost=$host(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket=$d/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$d/state
SlurmdSpoolDir=$d/spool
SlurmctldPidFile=$d/slurmctld.pid
SlurmdPidFile=$d/slurmd.pid
SlurmctldLogFile=$d/slurmctld.log
SlurmdLogFile=$d/slurmd.log
SlurmctldPort=$(slurm_port)
SlurmdPort=$(slurm_port)
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
KillWait=3
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
C
    export SLURM_CONF=$d/slurm.conf
    slurmctld -c
    slurmd
    for _ in $(seq 100); do
        sinfo -h -o %T 2>/dev/null | grep -q idle && return 0
        sleep 0.1
    done
    tail -n 5 "$d"/slurmctld.log "$d"/slurmd.log
    return 1
}

slurm_stop() {
    local d=$1 daemon pid
    scancel -u root 2>/dev/null || true
    for daemon in slurmd slurmctld munged; do
        pid=$(cat "$d/$daemon.pid" 2>/dev/null) || continue
        kill "$pid" 2>/dev/null || true
        for _ in $(seq 50); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
    done
}
