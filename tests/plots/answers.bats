#!/usr/bin/env bats
# answers.bats - Titles of loss and ratio where runs diverged or are equal; rates in captions.
# Run it from the root of the repository.

load ../support/cli_common

setup_file() {
    export DIR=$(mktemp -d)
}

teardown_file() { rm -rf "$DIR"; }

setup() {
    for module in h5py matplotlib; do
        "$PYTHON" -c "import $module" 2>/dev/null || skip "python3-$module is missing"
    done
}

# suite NAME LINE...: runs the suite of these lines, into DIR/NAME.h5; its tables are DIR/NAME.txt
suite() {
    local name=$1
    shift
    printf '%s\n' "$@" >"$DIR/$name.yaml"
    "$QUALM" run -q -o "$DIR/$name.h5" "$DIR/$name.yaml" --rates none >"$DIR/$name.txt"
}

# told FILE FIGURE: "TITLE | CAPTION"
told() {
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - "$DIR/$1.h5" "$2" <<'END'
import importlib, sys
path, name = sys.argv[1:]
sys.argv[0] = "draw.py"
import campaign, sheet
found = sheet.Sizes()
importlib.import_module({"gap": "forest", "loss": "curves"}.get(name, name)).draw(
    campaign.Campaign(path), found)
print(f"{found.found['title']} | {found.found['caption']}")
END
}

four="adamw4_ao,min_numel=0,whole_blocks=0"

@test "loss and ratio: where all runs diverged nobody is lowest and nothing is furthest" {
    suite gone 'protocol: paired' 'coupling: closed' "variant: [{n: \"$four\"}]" \
        'source: ["problem:rosen"]' 'lr: [1000]' 'seed: 1..6' 'steps: 50'
    [[ $(told gone loss) == "Nobody is lowest at the end: half or more of the runs diverged; 6 of 6 runs diverged | "*"Diverged: n: 6 of 6."*"Of their twins 6 of 6 diverged."* ]]
    [[ $(told gone ratio) == "Nothing that is compared has a median ratio at the end: "*"; 6 of 6 runs diverged | "* ]]
    # with a problem on which runs end: it alone has a winner
    suite half 'protocol: paired' 'coupling: closed' 'variant: [{n: "sgd8_046,min_numel=0,whole_blocks=0"}]' \
        'source: ["problem:rosen", "problem:lowrank"]' 'seed: 1..6' 'steps: 100'
    PYTHONPATH=plots/figures "$PYTHON" - "$DIR/half.h5" <<'END'
import sys, common
runs = common.table(common.load(sys.argv[1]), "/protocol/runs")
at = runs["problem"] == "rosen"
assert (runs["status"][at] == "diverged").all() and (runs["twin_gap"][at] == 1000).all()
assert (runs["status"][~at] == "ok").any(), runs["status"]
END
    [[ $(told half loss) == "Lowest at the end: "*" on 1 of 2 problems, nobody on 1 (half or more of the runs diverged); "* ]]
    [[ $(told half ratio) == "Furthest from its twin at the end: n on lowrank, "* ]]
}

@test "loss: of runs that are equal to the bit all are named, or how many they are" {
    suite tie 'protocol: paired' 'coupling: closed' 'source: ["problem:heavy"]' 'seed: 1..6' \
        "variant: [{first: \"$four\"}, {second: \"$four\"}]" 'steps: 80'
    [[ $(told tie loss) == "Lowest at the end: first and second on 1 of 1 problem | "* ]]
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - <<'END'
import curves
assert curves.together(["a"]) == "a" and curves.together(["", "a"]) == "float64 and a"
assert curves.together(["a", "b", "c"]) == "a, b and c"
assert curves.together(["a", "b", "c", "d"]) == "4 equal ones"
assert curves.answer([["a"], [], ["a"]], True) == "Lowest at the end: a on 2 of 3 problems, " \
    "nobody on 1 (half or more of the runs diverged)"
assert curves.answer([[]], False) == "Nobody is lowest at the end: no median loss above 0"
END
}

@test "footer and captions name the rate that the suite sets, as a key or in a variant" {
    local lines=('protocol: paired' 'coupling: closed' 'source: "problem:nqm"' 'seed: 1..6'
        'steps: 20')
    suite own "${lines[@]}" "variant: \"$four\""
    suite key "${lines[@]}" "variant: \"$four\"" 'lr: 0.123'
    suite one "${lines[@]}" "variant: [{a: \"$four\"}, {b: \"$four,lr=0.123\"}]"
    grep -q "^1 of 1 verdicts: at the problem's own rate; nothing was tuned" "$DIR/own.txt"
    grep -q "^1 of 1 verdicts: at the rate that the suite sets (lr); nothing was tuned" "$DIR/key.txt"
    grep -q "^1 of 2 verdicts: at the problem's own rate; nothing was tuned" "$DIR/one.txt"
    grep -q "^1 of 2 verdicts: at the rate that the suite sets (lr); nothing was tuned" "$DIR/one.txt"
    for figure in loss ratio gap; do
        [[ $(told own $figure | tr A a) == *"at the problem's own learning rate"* ]]
        [[ $(told key $figure | tr A a) == *"at the learning rate that the suite sets"* ]]
        [[ $(told one $figure | tr A a) == *"at the problem's own learning rate, or that which the suite sets (b)"* ]]
    done
}
