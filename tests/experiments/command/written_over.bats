#!/usr/bin/env bats
# written_over.bats - Tests that no command writes its output over a file that it reads.

load ../../support/cli_common

setup_file() {
    export DIR=$(mktemp -d)
    cd "$DIR"
    cat >one.yaml <<'Y'
variant: adamw4_ao
source: "dist:gauss"
coupling: oneshot
slot: exp_avg
Y
    "$QUALM" run -q one.yaml -o one.h5
    "$QUALM" check --template adamw4_ao >k.c
    ln -s one.yaml link.yaml
    ln one.h5 hard.h5
}

teardown_file() { rm -rf "$DIR"; }

@test "an output that is one of the inputs is refused, under whatever name, and stays as it was" {
    cd "$DIR"
    cp one.yaml was.yaml && cp one.h5 was.h5 && cp k.c was.c
    local over="over a file that this command reads"
    fails_with 2 "$over" run one.yaml -o one.yaml
    fails_with 2 "$over" run one.yaml --out=link.yaml
    fails_with 2 "$over" run one.yaml --data one.h5 --out hard.h5
    fails_with 2 "$over" run one.yaml --against one.h5 -oone.h5
    fails_with 2 "$over" analyze one.h5 -Q nf4:4s/block:64 -o ./one.h5
    fails_with 2 "$over" check --kernel k.c --quick --junit k.c
    fails_with 2 "$over" plot one.h5 -o one.h5
    fails_with 2 "$over" import one.h5 --out hard.h5
    cmp one.yaml was.yaml && cmp one.h5 was.h5 && cmp k.c was.c
}

@test "an output that a command derives from the suite's name is not written over its data" {
    cd "$DIR"
    mkdir -p results && cp one.h5 results/one.h5
    fails_with 2 "over a file that this command reads" run one.yaml --data results/one.h5
    cmp one.h5 results/one.h5
}

@test "an output that is there, and is not read, is replaced" {
    cd "$DIR"
    cp k.c again.h5
    "$QUALM" run -q one.yaml -o again.h5
    "$QUALM" digest again.h5
}
