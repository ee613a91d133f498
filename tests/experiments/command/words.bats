#!/usr/bin/env bats
# words.bats - Every word that commands print is one that `qualm show` explains.

load ../../support/cli_common

@test "show: every key of the JSON that commands print, and every one in the sources" {
    long 6
    cd "$BATS_TEST_TMPDIR"
    cat >mine.yaml <<'Y'
variant: adamw4_ao
exp_avg.map: [dyn, nf4]
source: dist:gauss
n: 256
summary: [{name: sqnr, by: exp_avg.map, value: [sqnr, collapse]}]
Y
    cat >paired.yaml <<'Y'
protocol: paired
coupling: closed
variant: [adamw8_bnb, adamw4_ao]
source: "problem:quad:n=64"
seed: 1..6
steps: 20
Y
    "$PYTHON" "$ROOT/tests/support/json_words.py" "$ROOT" "$QUALM"
}

@test "show: a blank is also an underscore, and keys that say what of a value are taken apart" {
    [[ $(qualm show bits_at_1024x1024) == *"bits of optimizer state"* ]]
    run -0 "$QUALM" show sqnr_median_hi95
    [[ $output == *sqnr*median*hi95* ]]
    fails_with 4 "nothing is named 'qqqq_lo95'" show qqqq_lo95
    [[ $(qualm show decade) == *"a factor of 10"* ]]
}

@test "show: the words of a failing check, of titles and of a verdict" {
    long 4
    cd "$BATS_TEST_TMPDIR"
    qualm check --template lion8_bnb >bad.c
    sed -i '/float x = /s/beta1/beta2/' bad.c
    ! cmp -s bad.c <(qualm check --template lion8_bnb) || return 1
    "$QUALM" check --kernel bad.c --no-shrink >said 2>&1 || true
    grep -q '^failed by part' said
    words=$(grep -E '^failed by (part|first|class|setting|fallback)' said |
        sed 's/^failed by [a-z]* *//; s/, and .*//' | tr ',' '\n' | awk '{print $1}')
    [ "$(wc -w <<<"$words")" -ge 12 ]
    for word in $words float64 contracted uncontracted t12; do
        qualm show "$word" >/dev/null || { echo "$word"; return 1; }
    done
}

@test "show: words of figures and of check; bins of coverage as they are printed" {
    for word in machinery repetition number "write outside" "floating mode" "rule of CUDA" \
        "pairs of bins" "not judged" δ "Benjamini and Hochberg" Benjamini-Hochberg \
        "best of the set" "own twin" "loss above the floor" "rank 5" "sides two>64" \
        "class lastmax" "step 2..15" "lr tiny"; do
        qualm show "$word" >/dev/null || { echo "$word"; return 1; }
    done
    [[ $(qualm show "sides two>64") == *"bin of the coordinate sides"* ]]
    fails_with 4 "nothing is named" show "sides three"
    bins=$(qualm check --quick adamw4_ao 2>&1 | sed -n 's/^coverage.*; never: \([^;]*\);.*/\1/p' |
        sed 's/, /\n/g')
    [ "$(wc -l <<<"$bins")" -ge 3 ]
    while read -r bin; do
        qualm show "$bin" >/dev/null || { echo "$bin"; return 1; }
    done <<<"$bins"
}

@test "every word of the glossary stands somewhere else in the tree as well" {
    long 2
    stale() { "$PYTHON" "$ROOT/tests/support/glossary_words.py" "$ROOT" "$@"; }
    stale
    local n=$BATS_TEST_NUMBER
    cd "$BATS_TEST_TMPDIR"
    { cat "$ROOT/experiments/README.md"; echo "| loss, of$n rows, key_$n | A. |"; } >a.md
    run -1 stale a.md
    [ "$output" = "stand nowhere but in the glossary: key_$n, of$n rows" ]
}

@test "show: every key of a suite, and a slot with an axis" {
    keys=$(sed -n '/define PLAIN_KEY_LIST/,/^static/s/^ *X(\([a-z_]*\),.*/\1/p' \
        "$ROOT/experiments/suite/suite.c"
        sed -n '/axis_keys\[\] = {/,/};/p;/"stat", *"versus"/p' "$ROOT/experiments/suite/suite.c" \
            "$ROOT/experiments/suite/suite_tables.c" | grep -o '"[a-z_]*"' | tr -d '"')
    [ "$(wc -w <<<"$keys")" -ge 33 ]
    for key in $keys exp_avg.norm exp_avg_sq.map; do
        qualm show "$key" >/dev/null || { echo "$key"; return 1; }
    done
    fails_with 4 "nothing is named" show exp_avg.nom
}

@test "a system's name, with bits or in capitals, finds its variants, and others' names of maps" {
    near() { fails_with 4 "no variant '$1'; did you mean $2" size --shapes gpt2 --variant "$1"; }
    near lamb "'lamb_bnb' or 'lamb_bnb_cpu'?"
    near lars "'lars_bnb' or 'lars_bnb_cpu'?"
    near adam8bit "'adam8_ao', 'adam8_bnb' or 'adam8_bnb_default'?"
    near LION-8bit "'lion8_bnb', 'lion8_ecc8', 'lion8_ecc16' or one of 5 more?"
    near shampoo "'shampoo4_sgd', 'shampoo4_adamw', 'shampoo_sgd_f32' or 'shampoo_adamw_f32'?"
    for name in adafactor came sgd muon adagrad rmsprop ademamix AdamW; do
        near $name "'"
    done
    near adamw4_oa "'adamw4_ao'?"
    fails_with 4 "nothing is named 'lamb'; did you mean 'lamb_bnb' or 'lamb_bnb_cpu'?" show lamb
    fails_with 4 "no template 'lamb'; did you mean" check --template lamb
    for words in "gen lamb --out x.npz" "check lamb" "shrink lamb" \
        "state make x.h5 --shapes 3x3 --recipe lamb"; do
        fails_with 4 "did you mean 'lamb_bnb' or 'lamb_bnb_cpu'?" $words
    done
    map() { fails_with 4 "$2" size --shapes gpt2 --variant "adamw4_ao,exp_avg.map=$1"; }
    map int4 "no map 'int4'; did you mean 'int:4s'? (MAP:BITS, then s, signed, or u)"
    map int8 "no map 'int8'; did you mean 'int:8s'?"
    map uint8 "did you mean 'lint:8u' or 'lin0:8u'?"
    map fp8 "did you mean 'e4m3:8s' or 'fp52:8s'?"
    map FP8_E4M3 "did you mean 'e4m3:8s'?"
    map bf16 "a slot without codes is SLOT=f32"
    map NF4 "did you mean 'nf4', 'nf4s' or 'nf4a8'?"
    for map in int:4s int:8s lint:8u lin0:8u e4m3:8s fp52:8s; do
        qualm show "$map" >/dev/null
    done
    fails_with 4 "as a map 'fp8' is 'e4m3:8s' or 'fp52:8s'" prove fp8:8s
    fails_with 4 "did you mean 'int:4s'?" list maps int4
}

@test "what names nothing is answered by the names, or by a command that lists them" {
    no() { fails_with 4 "$2" size --shapes gpt2 --variant "adamw4_ao,$1"; }
    no exp_avg.block=64 "no axis 'block'; it is a word of axis norm: SLOT.norm=block:64"
    no exp_avg.stoch=1 "no axis 'stoch'; it is a word of axis round: SLOT.round=stoch"
    no exp_avg.zzzz=64 "no axis 'zzzz'; there are map, norm, curve, search, round"
    no param=zzzz "no param 'zzzz'; there are f32, bf16, f16, e4m3"
    no zzzz=1 "no recipe key 'zzzz'; \`qualm list hypers\` shows them"
    fails_with 4 "no word 'zzzz'; \`qualm list axes\` shows them" analyze x -Q nf4:4s/zzzz
    fails_with 4 "no kind 'zzzz'; there are variants, maps" list zzzz nf4
    for list in hypers axes; do
        qualm list $list >/dev/null
    done
}

@test "show: names in result files, arguments of problems and options of commands" {
    long 3
    cd "$BATS_TEST_TMPDIR"
    printf '%s\n' 'variant: adamw4_ao' 'exp_avg.map: [dyn, nf4]' 'source: dist:gauss' 'n: 256' \
        'summary: [{name: sqnr, by: exp_avg.map, value: [sqnr, collapse]}]' >mine.yaml
    printf '%s\n' 'protocol: paired' 'coupling: closed' 'variant: [adamw8_bnb, adamw4_ao]' \
        'source: "problem:quad:n=64"' 'seed: 1..6' 'steps: 20' 'lr_scale: [0.5, 1]' >paired.yaml
    "$QUALM" run -q -o mine.h5 mine.yaml >/dev/null
    "$QUALM" run -q -o paired.h5 paired.yaml >/dev/null
    "$QUALM" state make -q --recipe adamw8_bnb --shapes 64x64 --steps 1 state.h5 >/dev/null
    "$QUALM" analyze -q "$ROOT/experiments/data/samples/checkpoint.pt" --tensor exp_avg \
        -Q nf4:4s/block:64/bisect/mid/hi -o analyze.h5 >/dev/null
    "$QUALM" analyze -q "$ROOT/experiments/data/gpt_austen.h5" --tensor ln_f --recipe adamw4_ao \
        -o update.h5 >/dev/null 2>&1 || true
    "$PYTHON" "$ROOT/tests/support/file_words.py" "$ROOT" "$QUALM" *.h5
    for word in SE "within SE of theory" sd tau lost first min max wins above below between linear \
        fast true false "start ulp"; do
        qualm show "$word" >/dev/null || { echo "$word"; return 1; }
    done
}

@test "show: parts of a budget, statistics and legends; a word of several senses tells each" {
    for word in rest "first-moment codes" "second-moment codes" p05 p95 std intm4 \
        "normalised gap" "double-precision twin"; do
        qualm show "$word" >/dev/null || { echo "$word"; return 1; }
    done
    [[ $(qualm show far) == *"2^31 + 7"*"/protocol/verdicts"*"far off"* ]]
    [[ $(qualm show unit) == *recip*"Key of expect"*tensor* ]]
    [[ $(qualm show sum) == *"sum of its values"*ledger* ]]
    [[ $(qualm show low) == */decades*analyze* ]]
}

@test "show: every kind of qualm list, by its plural and as it is printed; words of several senses" {
    local kind kinds
    kinds=$("$QUALM" list --names zzzz zzzz 2>&1 | sed 's/.*there are //; s/,//g; s/ and / /')
    [ "$(wc -w <<<"$kinds")" -ge 18 ]
    for kind in $kinds; do
        run -0 "$QUALM" show "$kind"
        [[ $output == *"told by"*"qualm list $kind"* ]] || { echo "$kind: $output"; return 1; }
    done
    [[ $(qualm show chaos) == *"rounding alone"* ]]
    [[ $(qualm show text) == *"HDF5"*"holds"* ]]
    [[ $(qualm show version) == *"/provenance"*"this program's"* ]]
    [[ $(qualm show file) == *"backends"*"source file that defines"* ]]
    [[ $(qualm show differ) == *"compare"*"conform"*"DIFFERS"* ]]
}

@test "misspelt keys, options, archives and norms, drawn: the answer names what is near" {
    cd "$BATS_TEST_TMPDIR"
    "$PYTHON" - "$ROOT" "$QUALM" "${QM_TEST_SEED:-$RANDOM}" <<'END'
import random, re, subprocess, sys
root, qualm, seed = sys.argv[1:]
draw = random.Random(int(seed))
print("seed", seed)
def said(*words):
    run = subprocess.run([qualm, *words], capture_output=True, text=True)
    assert run.returncode in (2, 4), (words, run)
    return run.stderr
def swapped(word):  # two neighbours that are not equal
    at = draw.choice([k for k in range(1, len(word) - 1) if word[k] != word[k + 1]])
    return word[:at] + word[at + 1] + word[at] + word[at + 2:]
for _ in range(6):
    slot = draw.choice(["exp_avg", "exp_avg_sq"])
    axis = draw.choice(["map", "norm", "round"])
    open("x.yaml", "w").write(f"variant: adamw4_ao\n{swapped(slot)}.{axis}: [nf4, dyn]\n"
                              "source: dist:gauss\n")
    text = said("run", "x.yaml")
    assert re.search(rf"no key '\w+\.{axis}'; did you mean 'exp_avg(_sq)?\.{axis}'\?", text), text
for _ in range(6):
    command = draw.choice(["analyze", "run", "check", "report", "size", "plot"])
    usage = subprocess.run([qualm, command, "--help"], capture_output=True, text=True).stdout
    name = draw.choice([n for n in re.findall(r"--([a-z-]{5,})", usage)
                        if len(set(n)) > 3])
    wrong = swapped(name)
    text = said(command, f"--{wrong}")
    assert f"unrecognized option '--{wrong}'; did you mean '--" in text, (command, name, text)
assert "did you mean '--tensor'?" in said("analyze", "--tensr", "x", "f")
assert "unrecognized option '--qqqqqqqq'\n" in said("analyze", "--qqqqqqqq", "f")
for _ in range(8):
    norm = draw.choice(["block", "divblock", "rowblock", "rank1block", "logblock"])
    word = f"{norm}{draw.choice(['', ' ', '-', '_', '='])}"
    n = draw.choice([8, 64, 128, 2048])
    for words in (("size", "--shapes", "gpt2", "--variant", f"adamw4_ao,exp_avg.norm={word}{n}"),
                  ("show", f"nf4:4s/{word}{n}/bisect/mid")):
        text = said(*words)
        assert f"'{word}{n}'; did you mean '{norm}:{n}'?" in text or \
            f"'{norm}{n}'; did you mean '{norm}:{n}'?" in text, (words, text)
open("y.yaml", "w").write('variant: adamw4_ao\nexp_avg.norm: ["block 64"]\nsource: dist:gauss\n')
assert "no norm 'block 64'; did you mean 'block:64'?" in said("run", "y.yaml")
END
    printf '%s\n' 'protocol: paired' 'coupling: closed' 'variant: [adamw8_bnb, adamw4_ao]' \
        'source: "problem:quad:n=64"' 'seed: 1..6' 'steps: 5' >p.yaml
    "$QUALM" run -q -o p.h5 p.yaml >/dev/null
    fails_with 4 "no archive 'baselin'; did you mean 'baseline'?" report p.h5 --against baselin
    fails_with 4 "no archive 'zzzzzzzz': expected" report p.h5 --against zzzzzzzz
}

@test "a recipe that sets one key twice is refused; keys of one slot may follow each other" {
    fails_with 2 "recipe 'adamw4_ao,lr=1,lr=2': sets lr twice" show adamw4_ao,lr=1,lr=2
    "$QUALM" show adamw4_ao,exp_avg.map=nf4,exp_avg.norm=block:64,exp_avg_sq.norm=block:64 \
        >/dev/null
}
