#!/usr/bin/env bats
# interrupt.bats - A signal ends every command at once, with 75, and leaves nothing half made.

load ../../support/cli_common

setup() {
    dir=$(mktemp -d)
    cd "$dir"
    mkdir tmp
    export TMPDIR=$dir/tmp
    printf '%s\n' 'variant: adamw4_ao' 'source: dist:gauss' 'n: 256' >s.yaml
}

teardown() { rm -rf "$dir"; }

# until_caught PID - Waits until the program catches SIGTERM, or has ended: before its main a signal
# is the system's business.
until_caught() {
    local key value name
    while [ -e "/proc/$1/status" ]; do
        while read -r key value; do
            case $key in
                Name:) name=$value ;;
                State:) [[ $value != Z* ]] || return 0 ;;
                SigCgt:)
                    [ "$name" != "${QUALM##*/}" ] || (((0x$value & 0x4000) == 0)) || return 0
                    ;;
            esac
        done 2>/dev/null <"/proc/$1/status" || true
        sleep 0.01
    done
}

# interrupted SIGNAL SECONDS WORDS... - The command ends with 75, or with 0 where it was done first;
# what it said has one line, and no temporary file or folder is left.
interrupted() {
    local number=$1 wait=$2 code=0 pid
    shift 2
    env --default-signal=INT "$QUALM" "$@" >out 2>err <&0 3>&- &
    pid=$!
    until_caught $pid
    sleep "$wait"
    kill -"$number" $pid 2>/dev/null || true
    wait $pid || code=$?
    echo "qualm $*, $number after $wait s: exit code $code: $(tail -n 1 err)"
    [ $code = 75 ] || [ $code = 0 ]
    [ -z "$(ls tmp)" ]
    [ -z "$(find . -name '*.part')" ]
    stopped=$code
}

@test "what waits for a file without an end is ended by SIGTERM and SIGINT" {
    long 5
    mkfifo pipe
    for file in pipe /proc/kmsg; do
        [ -p $file ] || head -c 0 $file 2>/dev/null || continue # root alone may open kmsg
        for words in "run $file" "plan $file" "tune $file" "size --shapes $file" "status $file" \
            "search --space $file" "import $file -o o.npz" "conform $file" "digest $file"; do
            "$QUALM" $words >out 2>err </dev/null 3>&- &
            pid=$! code=0
            until_caught $pid
            sleep 0.3
            kill -TERM $pid 2>/dev/null || true
            for _ in $(seq 20); do kill -0 $pid 2>/dev/null && sleep 0.1; done
            if kill -0 $pid 2>/dev/null; then
                kill -KILL $pid
                echo "qualm $words goes on after SIGTERM"
                false
            fi
            wait $pid || code=$?
            echo "qualm $words: exit code $code: $(cat err)"
            [[ $code = [234] || $code = 75 ]]
            [ "$(wc -l <err)" = 1 ]
        done
    done
    sleep 3 >pipe 3>&- &
    interrupted INT 0.3 verify - <pipe
    [ "$stopped" = 75 ]
}

@test "a pipe or a device that falls silent is refused after 8 s" {
    long 6
    mkfifo silent
    (head -c 10 s.yaml && exec sleep 60) >silent 2>/dev/null 3>&- &
    for words in "run silent" "plan /dev/ptmx"; do
        timeout 30 "$QUALM" $words >out 2>err </dev/null 3>&- && false || [ $? = 3 ]
        grep -q "a pipe or a device that gave nothing in 8 s, expected a text" err
        [ "$(wc -l <err)" = 1 ]
    done
    kill %% || true
}

@test "a suite from a pipe runs as one from a file" {
    qualm run -q <(cat s.yaml) -o a.h5
    qualm run -q s.yaml -o b.h5
    [ "$(qualm digest a.h5 | cut -c1-64)" = "$(qualm digest b.h5 | cut -c1-64)" ]
}

@test "writing commands leave no temporary file and no folder, whenever they are interrupted" {
    long 6
    sed 's/adamw4_ao/[adamw4_ao, adamw8_ao]/' s.yaml >r.yaml # of one variant there is no figure
    qualm run -q r.yaml -o r.h5
    qualm plot -q r.h5 -o r.svg
    qualm state make -q --recipe adamw_f32 --shapes 2048x2048 --steps 1 s.safetensors
    some=0
    for wait in 0.2 0.4 0.9; do
        for words in "state make --recipe adamw4_ao --shapes 2048x2048 --steps 30 o.h5" \
            "state convert --recipe adamw4_ao s.safetensors o.safetensors" \
            "import s.safetensors -o o.npz" "gen adamw4_ao -o o.npz" \
            "report r.h5 -o o.html" "plot r.h5 -o o.svg" "check adamw4_ao" \
            "run s.yaml -o o.h5"; do
            interrupted TERM $wait $words
            some=$((some + (stopped == 75)))
        done
        interrupted INT $wait state make --recipe adamw4_ao --shapes 2048x2048 --steps 30 o.h5
    done
    [ $some -ge 5 ]
}

@test "what killed processes left of outputs and figures is removed, nothing of a living one" {
    long 4
    sh -c 'echo $$' >dead
    dead=$(cat dead)
    if kill -0 "$dead" 2>/dev/null; then skip "process $dead is another one by now"; fi
    : | tee o.h5.{$dead,$$,7x,07}.part "o.h5.$dead.part.part" "xo.h5.$dead.part" >o.svg.$dead.part
    echo 'exp_avg.map: [dyn, nf4]' >>s.yaml
    qualm run -q s.yaml -o o.h5
    [ "$(ls ./*.part | LC_ALL=C sort)" = "$(printf './%s\n' o.h5.{$$,7x,07}.part \
        "o.h5.$dead.part.part" "xo.h5.$dead.part" "o.svg.$dead.part" | LC_ALL=C sort)" ]
    "$PYTHON" -c 'import matplotlib, h5py' 2>/dev/null || skip "no matplotlib"
    mkdir -p tmp/qualm-plots-{$dead,$$,x}-abcdef/in tmp/qualm-plots-$dead-abcdefg tmp/qualm-abcdef
    mkdir tmp/qualm-{plots,report}-$dead-locked
    exec 8<tmp/qualm-plots-$dead-locked
    flock -n 8
    kept=(qualm-abcdef "qualm-plots-$$-abcdef" "qualm-plots-$dead-abcdefg" qualm-plots-x-abcdef)
    qualm plot -q o.h5 -o o.svg >/dev/null
    [ "$(ls tmp | LC_ALL=C sort)" = "$(printf '%s\n' "${kept[@]}" \
        qualm-{plots,report}-$dead-locked | LC_ALL=C sort)" ]
    exec 8<&-
    qualm report -q o.h5 -o o.html >/dev/null
    [ "$(ls tmp | LC_ALL=C sort)" = "$(printf '%s\n' "${kept[@]}" | LC_ALL=C sort)" ]
}

@test "a command that was killed leaves nothing once it was repeated" {
    long 2
    for words in "state make --recipe adamw4_ao --shapes 2048x2048 --steps 100 o.h5" \
        "run s.yaml -o o.h5"; do
        "$QUALM" $words >/dev/null 2>&1 </dev/null 3>&- &
        pid=$!
        for _ in $(seq 200); do
            [ ! -e "o.h5.$pid.part" ] || break
            sleep 0.01
        done
        kill -KILL $pid
        wait $pid || true
    done
    [ -n "$(find . -name 'o.h5.*.part')" ]
    qualm run -q s.yaml -o o.h5
    [ -z "$(find . -name 'o.h5.*.part')" ]
}
