#!/usr/bin/env bats
# prove.bats - Tests qualm prove on the command line.
load ../../support/cli_common

setup() { cd "$BATS_TEST_TMPDIR"; }

# kernel FILE [SED]: writes a right nearest-code routine for nf4, altered by SED
kernel() {
    cat >right.c <<'C'
static const float value[16] = {
    -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
    -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
    0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
    0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f};
void qm_nearest(const float *y, long n, unsigned char *code)
{
    for (long i = 0; i < n; i++) {
        int k = 0;
        while (k < 15 && y[i] > ((double)value[k] + value[k + 1]) / 2)
            k++;
        code[i] = k;
    }
}
C
    sed "${2:-}" right.c >"$1"
}

@test "the tree of bitsandbytes on NF4: four floats, six ties down; as defined, so exit code 0" {
    long 4
    run -0 "$QUALM" prove nf4:4s/ladder/mid -q
    [[ $output == *"not nearest, as defined"* ]]
    [[ $output == *"0x1.ec90c6p-4"* && $output == *"-0x1.38a4ep-1"* ]]
    [ "$(json_value '[d["passed"], p["wrong"], p["ties"], p["ties_go"], p["floats"]]
        if (p := d["proofs"][0]) else 0' prove nf4:4s/ladder/mid)" = \
        "[True, 4, 6, 'down', 4294967296]" ]
}

@test "a search with --map over a range: equal for one thread and two" {
    a=$(json_value 'd["proofs"][0]["wrong_intervals"]' prove bisect --map nf4 --nan top \
        --range 0.4:0.9 -t 1)
    [[ $a == *"'from': '0.501663446'"*"'from': '0.861478448'"* ]]
    [ "$(json_value 'd["proofs"][0]["wrong_intervals"]' prove bisect --map nf4 --nan top \
        --range 0.4:0.9 -t 2)" = "$a" ]
}

@test "the 0.2.4 thresholds against the real NF4" {
    expression='[p["wrong"], p["intervals"], p["against"]] if (p := d["proofs"][0]) else 0'
    [ "$(json_value "$expression" prove ema4_nf4a8 --against nf4 --range -0.9:-0.62)" = \
        "[1139695, 1, 'nf4']" ]
}

@test "all registered routines, each once, as defined" {
    run -0 "$QUALM" prove --all --range 0.1:0.11 -q
    [ "$(grep -c nearest <<<"$output")" -ge 30 ]
    [ "$(cut -d' ' -f1 <<<"$output" | sort | uniq -d)" = "" ]
    [[ $output != *WRONG* ]]
}

@test "a kernel is proved; its ties and NaN are held to the options" {
    kernel good.c
    run -0 "$QUALM" prove good.c --map nf4 --round mid --range 0.05:0.5 -q
    [[ $output == *"nearest, of those run"* ]]
    run -1 "$QUALM" prove good.c --map nf4 --round near --range 0.05:0.5 -q
    [[ $output == *"WRONG: not as defined"* ]]
    kernel moved.c 's/0.16093020141124725f/0.1609303f/'
    run -1 "$QUALM" prove moved.c --map nf4 --range 0.1:0.3 -q
    [[ $output == *"WRONG: not nearest"*"0.120255254"* ]]
}

@test "a kernel that crashes, hangs, writes out of bounds or gives no code: exit code 1" {
    mkdir own # other tests run at the same time
    export TMPDIR=$PWD/own
    kernel crash.c 's/int k = 0;/int k = 0; if (y[i] == 0.25f) *(volatile int *)0 = 1;/'
    run -1 "$QUALM" prove crash.c --map nf4 --range 0.1:0.3 -q
    [[ $output == *"WRONG: crashed: SIGSEGV among the floats from bits 0x3e"* ]]
    kernel hang.c 's/int k = 0;/int k = 0; while (y[i] == 0.25f);/'
    run -1 "$QUALM" prove hang.c --map nf4 --range 0.25:0.3 --limit 1 -q
    [[ $output == *"WRONG: hung: no answer within"* ]]
    kernel outside.c 's/i < n; i++/i < (n + 15) \/ 16 * 16; i++/'
    run -1 "$QUALM" prove outside.c --map nf4 --range 0.1:0.3 -q
    [[ $output == *"wrote outside its buffer"* ]]
    kernel none.c 's/code\[i\] = k;/code[i] = y[i] == 0.25f ? 99 : k;/'
    run -1 "$QUALM" prove none.c --map nf4 --range 0.1:0.3 -q
    [[ $output == *"gives no code"* ]]
    kernel leaves.c 's/int k = 0;/int k = 0; if (y[i] == 0.25f) exit(3);/;1i #include <stdlib.h>'
    run -1 "$QUALM" prove leaves.c --map nf4 --range 0.1:0.3 -q
    [[ $output == *"WRONG: left: it called exit(3)"* ]]
    [ -z "$(ls own)" ]
}

@test "quantizers that cannot be proved are refused with the reason" {
    fails_with 2 "belong to a SEARCH or KERNEL, of which none is named" prove --map nf4
    echo 'int x' >syntax.c
    fails_with 2 "does not compile" prove syntax.c --map nf4
    fails_with 3 "No such file" prove missing.c --map nf4
    kernel good.c
    fails_with 2 "wants --map" prove good.c
    echo 'int other;' >empty_source.c
    fails_with 2 "qm_nearest" prove empty_source.c --map nf4
    fails_with 4 "no map" prove good.c --map nf5
    fails_with 2 "ties go" prove good.c --map nf4 --round stoch
    fails_with 2 "wants its width and sign" prove bisect --map dyn
    fails_with 4 "no map" prove bisect --map nf5
    fails_with 2 "not a function of the value" prove nf4:4s/scan/stoch
    fails_with 2 "expected LO:HI" prove bisect --range 3
    fails_with 2 "evenly spaced" prove arith --map nf4
}

@test "a whole step: every code and gradient for given maxima; 8 bits need --long" {
    run -0 "$QUALM" prove step:ema4_nf4a8 --scales "1;1e-3;0x1p-130" -q
    [ "$(grep -c 'proved.*1048576' <<<"$output")" = 3 ]
    fails_with 2 "say --long" prove step:adamw8_ao
    fails_with 2 "--scales: expected" prove step:ema4_nf4 --scales 1,-1
    fails_with 77 "no codes to enumerate" prove step:adamw_f32
}

@test "stochastic rounding: exact for bfloat16, within float32 for quantizers; power is stated" {
    long 3
    expression='[p["largest_deviation"], p["evaluations"], p["mean_bias_ulp"], p["sequential_test"]]
        if (p := d["proofs"][0]) else 0'
    [ "$(json_value "$expression" prove stoch:bf16)" = "['0/65536', 17179869184, 0.0, 'unbiased']" ]
    run -0 "$QUALM" prove stoch:nf4:4s stoch:lint:8s/arith/dither stoch:e4m3 --bias 0.01 \
        --alpha 1e-3 -q
    [ "$(grep -c 'unbiased' <<<"$output")" = 3 ]
    [[ $output == *"/2^32"*"0.999"* ]]
    fails_with 2 "draws nothing" prove stoch:nf4:4s/scan/near
}

@test "a proof says on which backend it ran" {
    long 4
    for backend in cpu emu; do
        says='[p["backend"] for p in d["proofs"]]'
        run json_value "$says" prove nf4:4s/scan/mid --backend $backend --range 0.7:0.701
        [ "$output" = "['$backend']" ]
        run -0 "$QUALM" prove nf4:4s/scan/mid nf4:4s/ladder/mid --backend $backend --range 0.7:0.701
        [ "${lines[-1]}" = "backend $backend" ]
    done
    run -0 "$QUALM" prove nf4:4s/scan/mid --range 0.7:0.701
    [[ $output == *backend*cpu* ]]
}
