#!/usr/bin/env bats
# record.bats - Tests the recorder of training runs, and what the reader of traces refuses.
#
# QM_TORCH_PYTHON is a Python with torch (python3 else); without torch the merging and the refusals
# are tested on parts that NumPy writes.

load ../../support/cli_common

HERE=$ROOT/tests/experiments/record

setup() { dir=$(mktemp -d); }

teardown() { rm -rf "$dir"; }

trace_suite() {
    printf '%s\n' 'variant: adamw4_ao' 'exp_avg.min_numel: 0' 'source: "trace:*"' \
        'coupling: global' >"$dir/suite.yaml"
}

@test "parts of drawn ranks are merged to the bit, and qualm replays the file" {
    trace_suite
    local seed=${QM_TEST_SEED:-1}
    for i in 0 1 2 3 4 5; do
        echo "seed $((seed + i))"
        mkdir "$dir/$i"
        "$PYTHON" "$HERE/merge_drawn.py" merged "$dir/$i" $((seed + i)) 2>/dev/null
    done
    qualm import -q "$dir/0/run.safetensors" --out "$dir/all.npz" >/dev/null
    run "$QUALM" run "$dir/suite.yaml" --data "$dir/0/run.safetensors" --out "$dir/x.h5"
    [ "$status" -eq 0 ]
    [[ $output == *" cells, 0 skipped"* ]]
}

@test "damaged recordings are refused with what mends them" {
    "$PYTHON" "$HERE/merge_drawn.py" refused "$dir"
}

@test "a trace that lacks something essential is refused with the line to add, in every format" {
    trace_suite
    mkdir "$dir/run" "$dir/lacking"
    "$PYTHON" "$HERE/merge_drawn.py" merged "$dir/run" 3 2>/dev/null
    "$PYTHON" "$HERE/merge_drawn.py" lacking "$dir/run/run.safetensors" "$dir/lacking" >"$dir/list"
    [ "$(wc -l <"$dir/list")" -eq 15 ]
    while IFS='|' read -r file key add; do
        fails_with 3 "$key" run "$dir/suite.yaml" --data "$file" --out "$dir/out.h5"
        fails_with 3 "$add" run "$dir/suite.yaml" --data "$file" --out "$dir/out.h5"
    done <"$dir/list"
    [ ! -e "$dir/out.h5" ]
}

needs_torch() {
    python=${QM_TORCH_PYTHON:-$PYTHON}
    "$python" -c "import torch, numpy; torch.optim.Optimizer.register_step_pre_hook" 2>/dev/null ||
        skip "torch 2 is not installed; QM_TORCH_PYTHON names a Python that has it"
}

@test "states, gradients, resumed runs and shards of two ranks are what the run had" {
    needs_torch
    "$python" "$HERE/recorded_run.py" "$dir" $((20000 + $$ % 20000)) 2>"$dir/err" ||
        { cat "$dir/err"; false; }
}

@test "the example of experiments/record/README.md runs as pasted" {
    needs_torch
    cp -r "$ROOT/experiments/record" "$dir/record"
    cd "$dir"
    mkdir -p experiments results
    mv record experiments/record
    ln -s "$QUALM" qualm
    "$PYTHON" - experiments/record/README.md <<'P'
import re, sys
blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", open(sys.argv[1]).read(), re.M)
for name, block in zip(("train.py", "pasted.sh"), blocks):
    open(name, "w").write("\n".join(line[4:] for line in block.split("\n")))
P
    # a link to a venv's python3 would lose the venv
    sed -i "s|python3 train.py|$python train.py|" pasted.sh
    QUALM_SHARE=$ROOT bash -e pasted.sh >out 2>&1 || { cat out; false; }
    grep -q "run/s000050/2.weight/exp_avg" out
    [ -s results/run.h5 ]
}
