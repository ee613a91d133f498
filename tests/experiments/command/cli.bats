#!/usr/bin/env bats
# cli.bats - Tests the program, list, show, doctor, size, analyze and completion.
load ../../support/cli_common

# Every command there is, from the program's own usage.
commands() {
    local all
    all=$(qualm --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
    [ "$(wc -w <<<"$all")" -ge 11 ] && echo "$all"
}

# ---- the program ----

@test "no command: usage on stderr, exit code 2" {
    run -2 "$QUALM"
    [[ $output == *"Usage: qualm COMMAND"* ]]
    [ -z "$("$QUALM" 2>/dev/null)" ]
}

@test "--help and help: commands, examples, exit codes, on stdout" {
    run -0 "$QUALM" --help
    [[ $output == *"Examples:"* && $output == *"Exit codes:"* ]]
    [ "$(grep -c '^  qualm ' <<<"$output")" -ge 5 ]
    [ "$(qualm help)" = "$output" ]
    commands >/dev/null
}

@test "every command has --help with examples, the same as help COMMAND" {
    all=$(commands)
    for c in $all; do
        run -0 "$QUALM" "$c" --help
        [[ $output == *"Examples:"* && $output == *"qualm $c"* ]] || { echo "$c: $output"; false; }
        [ "$(qualm help "$c")" = "$output" ]
    done
}

@test "every command refuses an unknown option with exit code 2" {
    all=$(commands)
    for c in $all; do
        fails_with 2 "no-such-option" "$c" --no-such-option
    done
}

# Reads "LETTER OPTION COMMAND" and prints letters of two options and options of two letters, the
# plural counting as the singular.
two_meanings() {
    awk '{ long = $2; sub(/s$/, "", long) }
        ($1 in option) && option[$1] != long { print "-" $1 ": --" option[$1] ", --" long, $3 }
        (long in letter) && letter[long] != $1 { print "--" long ": -" letter[long] ", -" $1, $3 }
        { option[$1] = long; letter[long] = $1 }'
}

@test "a letter is one option's in all commands, and an option has one letter" {
    local all pairs
    all=$("$QUALM" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p')
    pairs=$(for c in $all; do
        qualm "$c" --help | sed -nE "s/^ *-(.), --([a-z-]+).*/\1 \2 $c/p"
    done)
    [ "$(cut -d' ' -f1 <<<"$pairs" | sort -u | wc -l)" -ge 20 ]
    [ "$(cut -d' ' -f3 <<<"$pairs" | sort -u | wc -l)" = "$(wc -w <<<"$all")" ]
    [ -z "$(two_meanings <<<"$pairs")" ] || { two_meanings <<<"$pairs"; false; }
    [ "$(two_meanings <<<"$pairs"$'\n''R retry-failed x')" = "-R: --recipe, --retry-failed x" ]
    [ "$(two_meanings <<<"$pairs"$'\n''D dry-run x')" = "--dry-run: -n, -D x" ]
}

@test "an option that names a file or a folder is refused with an empty name, in every command" {
    cd "$BATS_TEST_TMPDIR"
    found=0
    for command in $("$QUALM" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p'); do
        for option in $("$QUALM" "$command" --help |
            grep -oE -e '--[a-z-]+=(FILE|FOLDER|DIR)([ ,]|$)' | sed 's/=.*//' | sort -u); do
            fails_with 2 "$option is empty, expected a f" "$command" "$option" ""
            found=$((found + 1))
        done
    done
    [ "$found" -ge 20 ]
    [ -z "$(ls -A)" ]
}

@test "no line of any help is wider than 80 columns" {
    all=$(commands)
    for c in $all; do
        [ -z "$(qualm help "$c" | grep -E '^.{81}')" ]
    done
    [ -z "$(qualm --help | grep -E '^.{89}')" ]
}

@test "--version" {
    run -0 "$QUALM" --version
    [[ $output =~ ^qualm\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
}

@test "an unknown command suggests the nearest, exit code 4" {
    fails_with 4 "did you mean 'list'?" lits
    fails_with 4 "did you mean 'analyze'?" help analyse
    fails_with 4 "qualm --help" xyzzyxyzzy
}

@test "an option before the command, exit code 2" {
    fails_with 2 "before a command" --json list
}

@test "output to a full device is an error" {
    [ -e /dev/full ] || skip "no /dev/full"
    run -3 sh -c '"$0" list > /dev/full' "$QUALM"
    [[ $output == *"cannot write"* ]]
}

@test "a closed pipe is no error" {
    run -0 bash -c 'set -o pipefail; "$0" list | head -n 1 >/dev/null' "$QUALM"
    [ -z "$output" ]
}

@test "no colour in pipes, and none with NO_COLOR on a terminal" {
    [ -z "$(TERM=xterm qualm list | grep $'\033')" ]
    script -qec true /dev/null </dev/null >/dev/null 2>&1 \
        || skip "script(1) cannot make a terminal here"
    script -qec "env TERM=xterm NO_COLOR= $QUALM list variants" /dev/null </dev/null \
        | grep -q $'\033'
    run script -qec "env TERM=xterm NO_COLOR=1 $QUALM list variants" /dev/null </dev/null
    [[ $output != *$'\033'* ]]
    run script -qec "env TERM=dumb $QUALM list variants" /dev/null </dev/null
    [[ $output != *$'\033'* ]]
}

# ---- list ----

@test "list: every kind alone, in singular and plural" {
    for k in variants maps searches norms rounds units scales curves packs rules problems \
        distributions metrics outcomes suites commands words; do
        run -0 "$QUALM" list "$k"
        [ "${#lines[@]}" -ge 2 ]
    done
    [ "$(qualm list variant)" = "$(qualm list variants)" ]
    [ "$(qualm list search)" = "$(qualm list searches)" ]
}

@test "list: sections of all kinds" {
    run -0 "$QUALM" list
    for k in variants maps searches norms rounds units scales curves packs rules problems \
        distributions metrics outcomes suites words; do
        [[ $output == *"$k ("* ]]
    done
}

@test "show: every word of the glossary, of case names and of the program's own tables" {
    local word known
    known=$(qualm list words --names)
    for word in coupling oneshot closed min_numel planted BOUNDARY bootstrap equivalent undecided \
        'not quantized' 'worst/bound' 'RMSE/f32' wd0 sodd hung busy collapse sqnr; do
        run -0 "$QUALM" show "$word"
        [[ $output == *"$word"* ]]
    done
    [ "$(wc -l <<<"$known")" -gt 180 ]
    run -0 "$QUALM" list axes
    [[ $output == *maps* && $output == *packs* && $output == *bisect* ]]
}

@test "show: every command" {
    local name
    while read -r name; do
        run -0 "$QUALM" show "$name"
        [[ $output == *"qualm $name --help"* && $output == *"experiments/command/"* ]]
        [ -f "$ROOT/experiments/command/${name/-/_}.c" ]
    done < <("$QUALM" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p' | tee "$BATS_TEST_TMPDIR/names")
    [ "$(wc -l <"$BATS_TEST_TMPDIR/names")" -gt 30 ]
}

@test "show: every column of every table, and every figure" {
    long 2
    local word
    while IFS= read -r word; do
        "$QUALM" show -- "$word" >/dev/null || { echo "show does not know '$word'"; false; }
    done < <("$PYTHON" - "$ROOT" <<'P'
import glob, re, sys
words = set()
for path in glob.glob(sys.argv[1] + "/experiments/**/*.c", recursive=True):
    text = open(path).read()
    for head in re.findall(r"heads\[[^\]]*\]\s*=\s*\{(.*?)\};", text, re.S):
        words |= set(re.findall(r'"([^"]+)"', head))
    words |= set(re.findall(r'heads\[n\+\+\] = "([^"]+)"', text))
for path in glob.glob(sys.argv[1] + "/plots/report/*.py"):
    words |= set(re.findall(r'^NAME, MENU, TITLE = "([^"]+)"', open(path).read(), re.M))
assert len(words) > 100
print("\n".join(sorted(words)))
P
    )
}

@test "list: the suites of the tree, and the columns other than metrics that summaries may name" {
    [ "$(qualm list suites --names)" = \
      "$(cd "$ROOT"/experiments/suites && ls -- *.yaml | sed 's/\.yaml$//' | LC_ALL=C sort)" ]
    run -0 "$QUALM" list suites '^ablation_momentum$'
    [[ $output == *"the format of the first moment"* ]]
    [[ $(qualm list outcomes --names) == *log_gap* ]]
    run -0 "$QUALM" show log_gap
    [[ $output == *"log10 of gap / twin_gap"* && $output == *experiments/lockstep/lockstep.h* ]]
}

@test "list: a first word that is no kind filters all kinds" {
    run -0 "$QUALM" list nf4
    [[ $output == *"maps ("* && $output == *"variants ("* && $output == *"ema4_nf4"* ]]
}

@test "list: filters are regular expressions without case" {
    [ "$(qualm list variants '^ADAMW_F32$' --names)" = adamw_f32 ]
    [ "$(qualm list variants --names | wc -l)" = "$(ls "$ROOT"/variants/*/*.c \
        | grep -vc variants/native)" ]
}

@test "list: without a match, exit code 4 and a suggestion" {
    fails_with 4 "did you mean 'nf4'?" list maps nf5
    fails_with 4 "did you mean 'variants'?" list varaints
    fails_with 4 "did you mean 'metrics'?" list metrisc sqnr
    fails_with 4 "no name matches" list qqqqqqqqqqqqqqqqqqqq
    fails_with 2 "too many" list a b c
}

@test "list --json: an array of objects; every file it names exists" {
    json_on_stdout list --json
    [ "$(json_value 'type(d).__name__' list)" = list ]
    [ "$(json_value 'all({"kind", "name", "summary", "file"} <= set(o) for o in d)' list)" = True ]
    for f in $(json_value '" ".join(sorted({o["file"] for o in d}))' list); do
        [ -e "$ROOT/$f" ] || { echo "no $f"; false; }
    done
}

@test "list variants: bits per parameter as the variant's file says" {
    [ "$(json_value '[o["bits_at_1024x1024"] for o in d if o["name"] == "adamw_f32"][0]' list \
        variants)" = 64.0 ]
}

# ---- show ----

@test "show: every listed name" {
    mapfile -t names < <(qualm list --names | sort -u)
    while read -r name; do
        qualm show -- "$name" >/dev/null || { echo "$name"; false; }
    done < <(drawn "${names[@]}")
    names=$(qualm list variants --names)
    for name in $(drawn $names); do
        json_on_stdout show "$name" --json
    done
}

@test "show: a kind of names ends in its members, or in the command that lists them" {
    [[ $(qualm show norm | tail -n 4) == *members*rank1block* ]]
    [[ $(qualm show map) == *"qualm list maps"*members*nf4* ]]
    [[ $(qualm show variant) == *"qualm list variants"* ]]
    [[ $(qualm show sqnr) == *"signal-to-noise ratio of what is decoded"* ]]
}

@test "show: a variant's slots, words and files" {
    run -0 "$QUALM" show adamw4_lpmm
    for word in arXiv:2309.01507 variants/lpmm/adamw4_lpmm.c rank1 core/quant/norm.h exp_avg_sq \
        8.3125 beta1; do
        [[ $output == *"$word"* ]] || { echo "no $word"; false; }
    done
}

@test "show: bits of state agree with the variant's own figure" {
    names=$(qualm list variants --names)
    for v in $(drawn $names); do
        shown=$(json_value 'd[0]["state_bits_per_param_at_1024x1024"]' show "$v")
        listed=$(json_value '[o["bits_at_1024x1024"] for o in d if o["name"] == "'"$v"'"][0]' list \
            variants)
        [ "$shown" = "$listed" ] || { echo "$v: $shown and $listed"; false; }
    done
}

@test "show: a quantizer's canonical form, codebook and boundaries" {
    [ "$(json_value 'd[0]["name"]' show lin:4u/mid/bisect/block:128)" = \
        lin:4u/block:128/bisect/mid/lo ]
    [ "$(json_value 'len(d[0]["codebook"]), len(d[0]["decision_boundaries"])' show \
        lin:4u/block:128/bisect/mid)" = "16 15" ]
    [ "$(json_value 'd[0]["codebook"] == [(k + 1) / 16 for k in range(16)]' show \
        lin:4u/block:128/bisect/mid)" = True ]
    [ "$(json_value 'd[0]["bits_per_element_at_1024x1024"]' show \
        lin:4u/block:128/bisect/mid)" = 4.25 ]
    [ "$(json_value 'd[0]["bits_per_element_at_1024x1024"]' show f32)" = 32.0 ]
    [ "$(json_value 'sorted({w["axis"] for w in d[0]["words"]})' show lin:4u/block:128/bisect/mid)" = \
        "['curve', 'map', 'norm', 'pack', 'round', 'scale', 'search', 'unit']" ]
}

@test "show: recipes, words with arguments" {
    run -0 "$QUALM" show adamw4_ao,exp_avg.map=nf4
    [[ $output == *"nf4:4s/block:128"* ]]
    run -0 "$QUALM" show adamw4_ao,param=bf16/near
    run -0 "$QUALM" show block:128
    [[ $output == *"core/quant/norm.h"* && $output == *adamw4_ao* ]]
    run -0 "$QUALM" show student:5
    [[ $output == *"distribution"* ]]
}

@test "show: a problem's arguments with range and meaning, and its floor" {
    run -0 "$QUALM" show quad
    [[ $output =~ layout\ +sorted\ +"sorted|shuffled|dct"\ +eigenvectors ]]
    [[ $output =~ floor\ at\ defaults\ +0 ]]
    for name in $("$QUALM" list problems --names); do
        "$QUALM" show "$name" --json | "$PYTHON" -c '
import json, sys
d = next(x for x in json.load(sys.stdin) if x["kind"] == "problem")
a = d["arguments"]
assert ",".join(x["argument"] + "=" + x["default"] for x in a) == d["args"], d
assert all(x["meaning"] and x["takes"] for x in a), a
assert "floor" in d or d["floor_at_defaults"] >= 0'
    done
    [[ $("$QUALM" show mlp) =~ floor\ at\ defaults\ +0.005 ]] # sigma^2 / 2, sigma = 0.1
    [[ $("$QUALM" show ema) == *"there is no loss"* ]]
}

@test "show: unknown names suggest the nearest, exit code 4" {
    fails_with 4 "did you mean 'adamw4_lpmm'?" show adamw4_lpm
    fails_with 4 "did you mean 'sqnr'?" show sqnrr
    fails_with 4 "bisect" show dyn:4s/block:128/bisec/mid
    fails_with 4 "qualm list" show qqqqqqqqqqqqqqqqqqqq
    fails_with 2 "ladder" show dyn:4s/block:128/ladder/stoch
    fails_with 2 "NAME" show
    fails_with 2 "one NAME" show nf4 dyn
    fails_with 4 "no width '9s'; map nf4 has nf4:4s" show nf4:9s
    "$QUALM" show nf4:4s >/dev/null
    "$QUALM" show block:128 >/dev/null
}

@test "an error with --json is JSON as well" {
    run -4 bash -c '"$0" show qqqqqqqqqqqqqqqqqqqq --json 2>/dev/null' "$QUALM"
    [ "$("$PYTHON" -c 'import json, sys; print(json.loads(sys.argv[1])["code"])' "$output")" = 4 ]
}

# ---- doctor ----

@test "doctor: every part is listed, and all parts pass" {
    run -0 "$QUALM" doctor
    for word in compiler libc "instruction set in use" rounding "as expected" hdf5 gsl libyaml \
        jansson driver nvrtc curand python3 "decimal point"; do
        [[ $output == *"$word"* ]] || { echo "no $word"; false; }
    done
    json_on_stdout doctor --json
}

@test "doctor: QM_ISA lowers the instruction set" {
    [ "$(QM_ISA=sse2 json_value 'd["machine"]["instruction_set_in_use"]' doctor)" = sse2 ]
}

@test "doctor: floating point without contraction, flushing and the like" {
    [ "$(json_value '[k for k, v in d["floating_point"].items() if v is True]' doctor)" = "[]" ]
}

@test "doctor takes no words" {
    fails_with 2 "unexpected" doctor now
}

# ---- size ----

@test "size: totals of the known models" {
    [ "$(json_value 'd["params"]' size --shapes gpt2)" = 124439808 ]
    [ "$(json_value 'd["params"]' size --shapes llama7b)" = 6738415616 ]
    [ "$(json_value 'd["params"]' size --shapes vit_h)" = 632045800 ]
}

@test "size: float32 AdamW costs eight bytes per parameter" {
    [ "$(json_value 'd["variants"][0]["state_bytes"]' size --shapes gpt2 \
        --variant adamw_f32)" = 995518464 ]
    [ "$(json_value 'd["variants"][0]["vs_adamw_f32"], d["variants"][0]["share_kept_in_f32"]' size \
        --shapes gpt2 --variant adamw_f32)" = "1.0 1.0" ]
}

@test "size: text files, small tensors stay in float32" {
    # 64 x 128 = 8192 elements: two times 4096 bytes of codes and 64 scales of 4 bytes;
    # 300 elements stay: 2400 bytes
    printf '# comment\nw 64x128\n\nb 300 # another\n' >"$BATS_TEST_TMPDIR/m.txt"
    [ "$(json_value 'd["variants"][0]["state_bytes"]' size --shapes "$BATS_TEST_TMPDIR/m.txt" \
        --variant adamw4_lpmm_group)" = $((2 * (4096 + 256) + 2400)) ]
    [ "$(json_value 'd["tensors"], d["params"]' size --shapes "$BATS_TEST_TMPDIR/m.txt" \
        --variant adamw4_ao)" = "2 8492" ]
    [ "$(json_value 'd["params"]' size --shapes "$BATS_TEST_TMPDIR/m.txt" --tensor '^b$')" = 300 ]
}

@test "size: torchao's tables, adafactor8bit's whole blocks" {
    # a small tensor has neither: two float32 moments
    printf 'w 64x128\nb 300\n' >"$BATS_TEST_TMPDIR/m.txt"
    bytes() {
        json_value 'd["variants"][0]["state_bytes"]' size -S "$BATS_TEST_TMPDIR/m.txt" -V "$1"
    }
    [ "$(bytes adamw8_ao)" = $((2 * (8192 + 4 * 32 + 4 * 256) + 2400)) ]
    [ "$(bytes adamw4_ao)" = $((2 * (4096 + 4 * 64 + 4 * 16) + 2400)) ]
    [ "$(bytes adamw_fp8_ao)" = $((2 * (8192 + 4 * 32) + 2400)) ]
    # a moment in blocks of 256 and two factors of a block of 2048 with two numbers; 300 moments and
    # second moments in float32
    [ "$(bytes adafactor8_046)" = $((8192 + 4 * 32 + 2 * (2048 + 8) + 2400)) ]
}

@test "size: APOLLO of adafactor8bit 0.4.3 and CAME, as their state dictionaries were counted" {
    while read -r shape apollo came; do
        printf 'w %s\n' "$shape" >"$BATS_TEST_TMPDIR/m.txt"
        [ "$(json_value 'd["variants"][0]["state_bytes"], d["variants"][1]["state_bytes"]' size \
            -S "$BATS_TEST_TMPDIR/m.txt" -V apollo8_043,came_f32)" = "$apollo $came" ]
    done <<'END'
300x200 217232 244004
64x64 37252 17412
5x7 14340 240
5000 11368 40004
3x40x50 1040244 26164
END
    # its RMS is a number of the parameter's type: 2 bytes of bfloat16
    printf 'w 4x3\n' >"$BATS_TEST_TMPDIR/m.txt"
    [ "$(json_value 'd["variants"][0]["state_bytes"]' size -S "$BATS_TEST_TMPDIR/m.txt" \
        -V came_f32)" = 108 ]
    [ "$(json_value 'd["variants"][0]["state_bytes"]' size -S "$BATS_TEST_TMPDIR/m.txt" \
        -V came_f32,param=bf16/near)" = 106 ]
    # transformers' Adafactor has the RMS of float32 parameters beside its factors
    [ "$(json_value '[v["state_bytes"] for v in d["variants"]]' size -S "$BATS_TEST_TMPDIR/m.txt" \
        -V adafactor_hf,adafactor_hf,param=bf16/near)" = "[32, 32]" ]
    # NAdam's product of momenta is a float32 number
    [ "$(json_value 'd["variants"][0]["state_bytes"]' size -S "$BATS_TEST_TMPDIR/m.txt" \
        -V nadam_f32)" = 100 ]
    # the norm of the update that LAMB and LARS of bitsandbytes keep
    [ "$(json_value '[v["state_bytes"] for v in d["variants"]]' size -S "$BATS_TEST_TMPDIR/m.txt" \
        -V lamb_bnb_cpu,lamb_bnb,lars_bnb_cpu,lars_bnb)" = "[100, 100, 52, 52]" ]
}

@test "size: tensor files" {
    write_npy "$BATS_TEST_TMPDIR/m.npy" 30 7
    [ "$(json_value 'd["params"]' size --shapes "$BATS_TEST_TMPDIR/m.npy")" = 210 ]
}

@test "size: recipes with overrides in a list" {
    [ "$(json_value 'len(d["variants"])' size -S gpt2 \
        -V adamw4_ao,exp_avg.norm=block:64,lr=1,adamw8_ao)" = 2 ]
}

@test "size: errors name the line, the nearest name, the missing option" {
    printf 'w 64x128\nb 3 00\n' >"$BATS_TEST_TMPDIR/bad.txt"
    fails_with 3 "bad.txt:2:" size --shapes "$BATS_TEST_TMPDIR/bad.txt"
    fails_with 4 "did you mean 'llama7b'?" size --shapes llama7
    fails_with 4 "did you mean 'adamw4_ao'?" size --shapes gpt2 --variant adamw4_oa
    fails_with 3 "No such file" size --shapes "$BATS_TEST_TMPDIR/none.txt"
    fails_with 4 "no tensor matches" size --shapes gpt2 --tensor qqqq
    fails_with 2 "--shapes" size
    fails_with 2 "name is missing" size --shapes gpt2 --variant adamw4_ao,,adamw8_ao
}

# ---- analyze ----

@test "analyze: a row per quantizer, the same numbers from any number of threads" {
    write_npy "$BATS_TEST_TMPDIR/x.npy" 700 500
    for t in 1 2 5; do
        qualm analyze "$BATS_TEST_TMPDIR/x.npy" -Q nf4:4s/block:64/bisect/mid \
            -Q dyn:8s/rank1/bisect/mid -Q dyn:4s/block:128/bisect/stoch --full --json \
            --threads $t >"$BATS_TEST_TMPDIR/$t.json"
    done
    cmp "$BATS_TEST_TMPDIR/1.json" "$BATS_TEST_TMPDIR/2.json"
    cmp "$BATS_TEST_TMPDIR/1.json" "$BATS_TEST_TMPDIR/5.json"
    [ "$("$PYTHON" -c 'import json, sys; d = json.load(open(sys.argv[1]))
print(len(d["rows"]), d["rows"][0]["n"])' "$BATS_TEST_TMPDIR/1.json")" = "3 350000" ]
}

@test "analyze: an even codebook on evenly spread values has the error of its half steps" {
    # values k/1000 of [0, 1]; linear 8-bit codes with one scale: |error| <= 1/512
    write_npy "$BATS_TEST_TMPDIR/v.npy" 1 1001 "k / 1000"
    [ "$(json_value '0.0018 < d["rows"][0]["max_abs"] < 0.0040' analyze "$BATS_TEST_TMPDIR/v.npy" \
        -Q lin:8u/tensor/bisect/mid)" = True ]
    [ "$(json_value 'd["rows"][0]["nmse"]' analyze "$BATS_TEST_TMPDIR/v.npy" \
        -Q lin:8u/tensor/bisect/mid)" != 0.0 ]
}

@test "analyze: variants take the slot of the tensor's name, or --slot" {
    write_npy "$BATS_TEST_TMPDIR/h.0.exp_avg.npy" 64 128
    write_npy "$BATS_TEST_TMPDIR/h.0.exp_avg_sq.npy" 64 128 "1e-4 * (1 + k % 97)"
    [ "$(json_value '[r["slot"] for r in d["rows"]]' analyze "$BATS_TEST_TMPDIR"/h.0.*.npy \
        --variant adamw4_ao)" = "['exp_avg', 'exp_avg_sq']" ]
    write_npy "$BATS_TEST_TMPDIR/m.npy" 64 128
    [ "$(json_value 'd["rows"][0]["slot"]' analyze "$BATS_TEST_TMPDIR/m.npy" --variant adamw4_ao \
        --slot exp_avg)" = exp_avg ]
    fails_with 4 "--slot" analyze "$BATS_TEST_TMPDIR/m.npy" --variant adamw4_ao
}

@test "analyze: what is skipped for one reason is one line, each tensor with --verbose" {
    cd "$ROOT/experiments/data/samples"
    run -0 --separate-stderr qualm analyze checkpoint.pt -V adamw4_ao,min_numel=0,whole_blocks=0
    [[ $output == *$'\nskipped\ntensor '*"0.weight/param and 7 more "*"its name ends in no slot"* ]]
    [ "$(sed -n '/^skipped/,$p' <<<"$output" | wc -l)" = 3 ]
    run -0 --separate-stderr qualm analyze -v checkpoint.pt -V adamw4_ao,min_numel=0,whole_blocks=0
    [ "$(sed -n '/^skipped/,$p' <<<"$output" | wc -l)" = 10 ]
}

@test "analyze: reasons for what is skipped, counts of NaN and Inf" {
    write_npy "$BATS_TEST_TMPDIR/x.npy" 64 128 \
        "float('nan') if k == 3 else float('inf') if k == 4 else k - 50"
    [ "$(json_value '[(r["nan"], r["inf"]) for r in d["rows"]]' analyze "$BATS_TEST_TMPDIR/x.npy" \
        -Q dyn:4s/block:128/bisect/mid -Q lin:4u/block:128/bisect/mid)" = "[(1, 1)]" ]
    [[ $(json_value 'd["skipped"][0]["reason"]' analyze "$BATS_TEST_TMPDIR/x.npy" \
        -Q dyn:4s/block:128/bisect/mid -Q lin:4u/block:128/bisect/mid) == *negative* ]]
    write_npy "$BATS_TEST_TMPDIR/small.exp_avg.npy" 4 8
    fails_with 4 "float32" analyze "$BATS_TEST_TMPDIR/small.exp_avg.npy" --variant adamw4_ao
    write_npy "$BATS_TEST_TMPDIR/empty.npy" 0 8
    fails_with 4 "no elements" analyze "$BATS_TEST_TMPDIR/empty.npy" -Q dyn:4s/block:128/bisect/mid
}

@test "analyze --recipe: the next update under whole recipes, in text, JSON and HDF5" {
    local s=experiments/data/digits_cnn.h5 filter='adamw/s000150/(conv3|fc1).weight'
    run -0 "$QUALM" analyze $s --tensor "$filter" -R adamw4_ao,adamw8_bnb \
        -o "$BATS_TEST_TMPDIR/n.h5"
    [[ $output == *"next update: SQNR"*"adamw8_bnb"*"2 of 2"* ]]
    [ "$(json_value '[(r["recipe"], r["tensors"], r["models"]) for r in d["summary"]]' analyze $s \
        --tensor "$filter" -R adamw4_ao,adamw8_bnb)" = \
        "[('adamw4_ao', 2, 1), ('adamw8_bnb', 2, 1)]" ]
    [ "$(json_value '[r["gradient"] for r in d["rows"]]' analyze $s \
        --tensor "$filter" -R adamw4_ao)" = "['recorded', 'recorded']" ]
    "$PYTHON" -c "import h5py, sys; f = h5py.File(sys.argv[1])['next_update']
assert len(f['rows']) == 4 and len(f['summary']) == 2, list(f)" "$BATS_TEST_TMPDIR/n.h5"
    fails_with 2 "no --variant" analyze $s -R adamw4_ao -V adamw4_ao
    fails_with 4 "the run was made by lion" analyze $s --tensor lion -R adamw4_ao
    fails_with 4 "no recorded state" analyze $s --tensor nothing -R adamw4_ao
    fails_with 4 "did you mean" analyze $s -R adamw4_a0
}

@test "analyze: --metrics chooses the columns" {
    write_npy "$BATS_TEST_TMPDIR/x.npy" 64 128
    run -0 "$QUALM" analyze "$BATS_TEST_TMPDIR/x.npy" -Q dyn:4s/block:128/bisect/mid \
        --metrics sqnr,bias
    [[ ${lines[0]} == *sqnr*bias* && ${lines[0]} != *nmse* ]]
}

@test "analyze --out: an HDF5 file with the same rows" {
    write_npy "$BATS_TEST_TMPDIR/x.npy" 64 128
    qualm analyze "$BATS_TEST_TMPDIR/x.npy" -Q dyn:4s/block:128/bisect/mid --full \
        --out "$BATS_TEST_TMPDIR/r.h5" -q --json >"$BATS_TEST_TMPDIR/r.json"
    "$PYTHON" -c 'import h5py' 2>/dev/null || skip "no h5py"
    "$PYTHON" - "$BATS_TEST_TMPDIR" <<'EOF'
import h5py, json, sys
row = json.load(open(sys.argv[1] + "/r.json"))["rows"][0]
f = h5py.File(sys.argv[1] + "/r.h5")
t = f["/analyze/rows"]
assert t.shape == (1,) and t["nmse"][0] == row["nmse"] and t["n"][0] == 8192
assert f["/analyze/decades/count"][0].sum() == 8192 - row["zero"]
EOF
}

@test "analyze: typos, missing files and arguments" {
    write_npy "$BATS_TEST_TMPDIR/x.npy" 64 128
    x=$BATS_TEST_TMPDIR/x.npy
    fails_with 4 "did you mean 'sqnr'?" analyze "$x" --metrics sqnrr
    fails_with 4 "did you mean 'exp_avg_sq'?" analyze "$x" --slot exp_avg_sqq
    fails_with 4 "did you mean 'adamw4_ao'?" analyze "$x" --variant adamw4_oa
    fails_with 4 "bisect" analyze "$x" --quantizer dyn:4s/block:128/bisec/mid
    fails_with 4 "no tensor matches" analyze "$x" --tensor qqqq
    fails_with 3 "none.npy" analyze "$BATS_TEST_TMPDIR/none.npy"
    fails_with 2 "FILE" analyze
    fails_with 2 "whole number" analyze "$x" --threads 0
    printf 'not a tensor file at all' >"$BATS_TEST_TMPDIR/t.npy"
    fails_with 3 "t.npy" analyze "$BATS_TEST_TMPDIR/t.npy"
}

# ---- completion ----

# complete WORD...: prints what bash offers for the last word
complete_words() {
    bash -c 'source <("$0" completion bash); COMP_WORDS=("$0" "$@"); COMP_CWORD=$#
        _qualm; printf "%s\n" "${COMPREPLY[@]}"' "$QUALM" "$@"
}

@test "completion: commands, options, kinds, names" {
    [ "$(complete_words doc)" = doctor ]
    [ "$(complete_words help anal)" = analyze ]
    [ "$(complete_words analyze --quant)" = --quantizer ]
    [ "$(complete_words list variab)" = "" ]
    [ "$(complete_words list vari)" = variants ]
    [ "$(complete_words show adamw4_lpmm_g)" = adamw4_lpmm_group ]
    [ "$(complete_words size --shapes lla)" = llama7b ]
    [ "$(complete_words analyze --metrics sqn)" = sqnr ]
    [ "$(complete_words bench --step adamw4_lpmm_g)" = adamw4_lpmm_group ]
}

@test "completion: other shells are refused" {
    fails_with 2 "bash" completion zsh
    fails_with 2 "bash" completion
}

@test "control characters of a name do not reach the terminal" {
    run --separate-stderr "$QUALM" show $'a\xc2\x9bb\xe2\x80\xae\x1b[2J'
    [ "$status" = 4 ]
    [[ $stderr == *"a??b????[2J"* ]]
    local bad='[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]'
    ! LC_ALL=C grep -qP "$bad" <<<"$stderr" || return 1
}

@test "a filter that is no regular expression is a usage error with the reason, for every option" {
    for words in "analyze x.npy --tensor" "import x.npy -o y.npz --tensor" \
        "size --shapes gpt2 --tensor" "search x.h5 --tensor" "conform x.h5 --case" \
        "mutate --only" "bench --step" "list"; do
        fails_with 2 "'a(' is no regular expression: Unmatched ( or" $words "a("
    done
    fails_with 2 "'[' is no regular expression: " list variants "["
    [[ $(qualm size --help) == *.pth* ]]
}
