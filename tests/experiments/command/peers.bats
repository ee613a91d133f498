#!/usr/bin/env bats
# peers.bats - Tests the timing of other packages' optimizers (tests/peers), without torch and with
# a fake one.

load ../../support/cli_common

PEERS="$ROOT/tests/peers/peers.py"

setup() {
    export PYTHONDONTWRITEBYTECODE=1 FAKE_LOG=$BATS_TEST_TMPDIR/log
}

# value EXPRESSION: evaluates it with d, the output, and s, the lines of the log
value() {
    "$PYTHON" -c "import json, os, sys; d = json.load(open('$BATS_TEST_TMPDIR/out'))
s = (open('$FAKE_LOG').read() if os.path.exists('$FAKE_LOG') else '').split('\n')[:-1]; print(($1))"
}

fake() { PYTHONPATH=$ROOT/tests/peers/fake:$BATS_TEST_TMPDIR "$PYTHON" "$PEERS" "$@" \
    > "$BATS_TEST_TMPDIR/out"; }

@test "peers: --help, and a command line that cannot be read" {
    run -0 "$PYTHON" "$PEERS" --help
    [[ $output == *"--rounds N"* && $output == *"cache read full"* ]]
    run -2 "$PYTHON" "$PEERS" --rounds 0
}

@test "peers: without torch, and without a GPU, every peer is skipped by name" {
    cd "$BATS_TEST_TMPDIR"
    echo 'raise ImportError("No module named torch")' > torch.py
    PYTHONPATH=. run -77 --separate-stderr "$PYTHON" "$PEERS"
    [ "$(grep -c '"reason": "ImportError: No module named torch"' <<< "$output")" = 5 ]
    [[ $stderr == *"skipped bitsandbytes AdamW8bit: ImportError"* ]]
    rm torch.py
    FAKE_NO_GPU=1 PYTHONPATH=$ROOT/tests/peers/fake run -77 "$PYTHON" "$PEERS"
    [[ $output == *'"reason": "torch sees no GPU"'* ]]
}

@test "peers: a warm-up, a cache flush outside the events, alternating sets, medians" {
    FAKE_SECONDS="9 9 9 1.00 1.01 1.02 9 9 9 2" fake --size 8192 --tensors 3 --small 10 --rounds 3 \
        --flush 77
    [ "$(value 'len(d["rows"]), [r["tensors"] for r in d["rows"]]')" = "(2, [1, 3])" ]
    [ "$(value 'd["rows"][0]["elements"], d["rows"][0]["rounds"]')" = "(8192, 3)" ]
    [ "$(value 'round(d["rows"][0]["seconds"], 9), round(d["rows"][0]["least_seconds"], 9)')" = \
        "(1.01, 1.0)" ]
    [ "$(value 'round(d["rows"][1]["seconds"], 9)')" = 2.0 ]
    [ "$(value 'd["rows"][0]["recipe"], d["rows"][0]["version"]')" = "('adamw_f32', 'fake')" ]
    # one round: flush, record, a step of the current set, record, wait
    [ "$(value 's[:5]')" = \
        "['flush 77', 'record', 'step 0: 1 of (2, 4096)', 'record', 'synchronize']" ]
    [ "$(value '[x[5] for x in s if x[:4] == "step"]')" = \
        "['0', '1', '0', '1', '0', '1', '2', '3', '2', '3', '2', '3']" ]
}

@test "peers: --serve warms up, says what it times, and steps once for each line" {
    fake --serve --name "torch AdamW(fused=True)" --device cpu --threads 3 --size 8192 \
        --columns 1024 <<<$'step\nstep'
    [ "$(head -1 "$BATS_TEST_TMPDIR/out")" = '{"version": "fake", "recipe": "adamw_f32"}' ]
    [ "$(grep -c '^{"seconds": [0-9.e-]*}$' "$BATS_TEST_TMPDIR/out")" = 2 ]
    [ "$(cat "$FAKE_LOG")" = "threads 3`
        `$(printf '\nstep 0: 1 of (8, 1024)%.0s' 1 2 3 4 5)" ]
    local code=0
    fake --serve --name "torchao AdamW8bit" --device cpu <<<step || code=$?
    [ $code = 77 ]
    [[ $(cat "$BATS_TEST_TMPDIR/out") == '{"skipped": "ModuleNotFoundError: '* ]]
    run -2 "$PYTHON" "$PEERS" --serve --device cpu
}

@test "peers: --names lists them, --name times one alone" {
    run -0 "$PYTHON" "$PEERS" --names
    [[ $output == '["torch AdamW(fused=True)", '*'"adafactor8bit Adafactor8Bit"]' ]]
    fake --name "torch AdamW(fused=True)" --size 4096 --rounds 2 2>/dev/null
    [ "$(value 'len(d["rows"]), len(d["skipped"])')" = "(2, 0)" ]
    run -2 "$PYTHON" "$PEERS" --name nobody
    [[ $output == *"no peer is named 'nobody'"* ]]
}

@test "peers: --device cpu runs with torch itself, or with the fake where that is missing" {
    if "$PYTHON" -c 'import torch' 2>/dev/null; then
        "$PYTHON" "$PEERS" --device cpu --size 8192 --small 64 --rounds 2 --flush 4096 --only torch \
            > "$BATS_TEST_TMPDIR/out"
    else
        echo "# torch is missing: a fake one took its place" >&3
        FAKE_NO_GPU=1 fake --device cpu --size 8192 --small 64 --rounds 2 --flush 4096 --only fused
    fi
    [ "$(value 'd["device"], [r["tensors"] for r in d["rows"]][:2]')" = "('cpu', [1, 100])" ]
    # seconds of the host's clock, not those of a GPU's events
    [ "$(value 'all(0 < r["least_seconds"] <= r["seconds"] < 100 for r in d["rows"])')" = True ]
    [ "$(value 'min(r["rounds"] for r in d["rows"]) >= 2')" = True ]
}

@test "peers: up to four times as many rounds if the times do not agree" {
    FAKE_SECONDS="9 9 9 1 2 3 4 2.5 2.51 2.5 2.52 2.5 2.5 2.5" fake --size 4096 --rounds 4
    # times 1 2 3 4, then about 2.5: the middle half converges
    [ "$(value 'd["rows"][0]["rounds"]')" = 8 ]
    many=$("$PYTHON" -c 'print("9 9 9 " + "1 2 " * 8 + "9 9 9 1 1 1 1")')
    FAKE_SECONDS=$many fake --size 4096 --rounds 4
    [ "$(value '[r["rounds"] for r in d["rows"]]')" = "[16, 4]" ]
    [ "$(value 'd["rows"][0]["seconds"]')" = 1.5 ]
}

@test "peers: an installed package is timed, a failing one is skipped with its reason" {
    mkdir "$BATS_TEST_TMPDIR/bitsandbytes" "$BATS_TEST_TMPDIR/torchao"
    printf '__version__ = "0.50"\n' > "$BATS_TEST_TMPDIR/bitsandbytes/__init__.py"
    printf 'import torch\nclass AdamW8bit:\n    def __init__(self, params, lr): pass\n    def step(self): torch.fake_step("bnb")\n' \
        > "$BATS_TEST_TMPDIR/bitsandbytes/optim.py"
    printf '' > "$BATS_TEST_TMPDIR/torchao/__init__.py"
    mkdir "$BATS_TEST_TMPDIR/torchao-0.18.0.dist-info"
    printf 'Metadata-Version: 2.1\nName: torchao\nVersion: 0.18.0\n' \
        > "$BATS_TEST_TMPDIR/torchao-0.18.0.dist-info/METADATA"
    printf 'class AdamW8bit:\n    def __init__(self, params, lr): raise RuntimeError("out of memory\\nmore")\n' \
        > "$BATS_TEST_TMPDIR/torchao/optim.py"
    fake --size 4096 --rounds 2 2>/dev/null
    [ "$(value '[(r["peer"], r["version"], r["recipe"]) for r in d["rows"]][2:]')" = \
        "[('bitsandbytes AdamW8bit', '0.50', 'adamw8_bnb_cuda'), ('bitsandbytes AdamW8bit', '0.50', 'adamw8_bnb_cuda')]" ]
    [ "$(value 'd["skipped"][0]')" = \
        "{'peer': 'torchao AdamW8bit', 'reason': '1 tensors: RuntimeError: out of memory'}" ]
    [[ "$(value 'd["skipped"][1]["reason"]')" == "1 tensors: AttributeError: "*AdamW4bit* ]]
    [[ "$(value 'd["skipped"][2]["reason"]')" == \
        "ModuleNotFoundError: No module named 'adafactor8bit'" ]]
}

# package NAME RELEASE: its metadata and an Adafactor8Bit
package() {
    mkdir "$BATS_TEST_TMPDIR/$1" "$BATS_TEST_TMPDIR/$1-$2.dist-info"
    printf 'Metadata-Version: 2.1\nName: %s\nVersion: %s\n' "$1" "$2" \
        > "$BATS_TEST_TMPDIR/$1-$2.dist-info/METADATA"
    printf 'import torch\n__version__ = "0.0"\nclass Adafactor8Bit:\n    def __init__(self, params, lr, beta1): pass\n    def step(self): torch.fake_step("a")\n' \
        > "$BATS_TEST_TMPDIR/$1/__init__.py"
}

@test "peers: a release is named by its metadata, and measured by its own variant or not at all" {
    package adafactor8bit 0.2.6
    fake --size 4096 --rounds 2 --only adafactor8bit
    [ "$(value 'd["rows"][0]["version"], d["rows"][0]["recipe"]')" = "('0.2.6', 'adafactor8_026')" ]
    cd "$BATS_TEST_TMPDIR"
    mv adafactor8bit-0.2.6.dist-info adafactor8bit-9.1.dist-info
    sed -i 's/0.2.6/9.1/' adafactor8bit-9.1.dist-info/METADATA
    run -77 fake --size 4096 --rounds 2 --only adafactor8bit
    [ "$(value 'd["skipped"][0]["reason"]')" = \
        "no variant here is timed against adafactor8bit 9.1 (0.2.2, 0.2.4, 0.2.5, 0.2.6, 0.4.3, 0.4.4, 0.4.5, 0.4.6 are)" ]
    sed -i 's/9.1/0.4.6/' adafactor8bit-9.1.dist-info/METADATA
    fake --size 4096 --rounds 2 --only adafactor8bit
    [ "$(value 'd["rows"][0]["version"], d["rows"][0]["recipe"]')" = "('0.4.6', 'adafactor8_046')" ]
}

# ---- compare.py ----

COMPARE="$ROOT/tests/peers/compare.py"

# compare ARGUMENTS: with a torch that has SGD alone, $FAKE_STEP times its step
compare() { PYTHONPATH=$ROOT/tests/peers/fake_optim "$PYTHON" "$COMPARE" --qualm "$QUALM" "$@"; }

needs_hdf5() { "$PYTHON" -c 'import h5py, numpy' 2> /dev/null || skip "python3 has no h5py"; }

@test "compare: --help, and a command line that cannot be read" {
    run -0 "$PYTHON" "$COMPARE" --help
    [[ $output == *"NEAR (within the tolerance"* && $output == *"77: no package could be run"* ]]
    run -2 "$PYTHON" "$COMPARE" --cases 0
}

@test "compare: an equal package, a package that differs, one that is not installed" {
    needs_hdf5
    run -0 --separate-stderr compare --seed 7 --only torch.optim --json
    printf '%s' "$output" > "$BATS_TEST_TMPDIR/out"
    keys='["release", "device", "verdict", "differs"]'
    [ "$(value "d['seed'], [tuple(r[k] for k in $keys) for r in d['systems']]")" = \
        "(7, [('2.99', 'cpu', 'equal', 0), ('2.99', 'cuda', 'skipped', 0)])" ]
    [ "$(value "d['systems'][0]['equal'] > 3")" = True ]
    FAKE_STEP=1.5 run -1 --separate-stderr compare --seed 7 --only torch.optim
    [[ $output == *"torch.optim"*"2.99"*"differs"* ]]
    [[ $output == *"DIFFERS torch.optim 2.99: 000_sgd"* ]]
    run -77 --separate-stderr compare --seed 7 --only torchao
    [[ $output == *"torchao is not installed"* ]]
}

@test "compare: a drawn seed is printed and makes the same inputs again" {
    needs_hdf5
    compare --only torch.optim --keep "$BATS_TEST_TMPDIR/a" > "$BATS_TEST_TMPDIR/first"
    seed=$(sed -n 's/^seed //p' "$BATS_TEST_TMPDIR/first")
    compare --only torch.optim --keep "$BATS_TEST_TMPDIR/b" --seed "$seed" |
        diff "$BATS_TEST_TMPDIR/first" -
    compare --only torch.optim --keep "$BATS_TEST_TMPDIR/c" --seed $((seed + 1)) > /dev/null
    cmp "$BATS_TEST_TMPDIR/a/torch-optim-cpu.h5" "$BATS_TEST_TMPDIR/b/torch-optim-cpu.h5"
    run -1 cmp -s "$BATS_TEST_TMPDIR/a/torch-optim-cpu.h5" "$BATS_TEST_TMPDIR/c/torch-optim-cpu.h5"
}

@test "compare: the installed packages, where make peers has brought them" {
    [ -x "$ROOT/build/peers/bin/python" ] || skip "build/peers is missing: make peers"
    run "$ROOT/build/peers/bin/python" "$COMPARE" --qualm "$QUALM" --seed 3 --cases 2 \
        --only torch.optim
    [ "$status" = 0 ]
    [[ $output == *"torch.optim"*"2."*" cpu "* && $output != *DIFFERS* ]]
}

@test "compare: a release of adafactor8bit is sought in its folder" {
    needs_hdf5
    folder=$BATS_TEST_TMPDIR/r
    run -77 --separate-stderr compare --only "adafactor8bit 0.2.4" --releases "$folder"
    [[ $output == *"adafactor8bit==0.2.4 in $folder is not installed"* ]]
    mkdir -p "$folder/0.2.4"
    run -77 --separate-stderr compare --only "adafactor8bit 0.2.4" --releases "$folder"
    [[ $output == *"holds no adafactor8bit"* ]]
}

@test "compare: the releases of adafactor8bit, where make peers has brought them" {
    [ -d "$ROOT/build/peers/adafactor8bit" ] || skip "build/peers has no adafactor8bit: make peers"
    run "$ROOT/build/peers/bin/python" "$COMPARE" --qualm "$QUALM" --seed 3 --cases 1 \
        --only "adafactor8bit 0.4.6"
    [ "$status" = 0 ]
    [[ $output == *" 0.4.6 "*"cpu"*" near"* && $output != *DIFFERS* ]]
}

@test "conform: 77 where every case of a file was skipped" {
    needs_hdf5
    "$PYTHON" -c "import h5py
with h5py.File('$BATS_TEST_TMPDIR/x.h5', 'w') as f:
    f.attrs['executed'] = 'nobody.py'
    f.create_group('a').attrs['optimizer'] = 'Nobody'"
    run -77 --separate-stderr qualm conform "$BATS_TEST_TMPDIR/x.h5"
    [[ $stderr == *"every case was skipped"* ]]
    run -77 --separate-stderr qualm conform "$BATS_TEST_TMPDIR/x.h5" "$ROOT/tests/golden/sgd.h5"
}
