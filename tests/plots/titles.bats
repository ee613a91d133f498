#!/usr/bin/env bats
# titles.bats - No median and no title has tensors that are not quantized, and each title answers.
# Run it from the root of the repository.

load ../support/figures_common

# title FILE FIGURE [OPTION...]: its title
title() {
    local file=$1 figure=$2
    shift 2
    json_value 'd["title"]' plot "$DIR/$file.h5" --what "$figure" "$@" -o "$DIR/x.png"
}

# told FILE: titles and captions of all figures of the file, "NAME: TITLE | CAPTION"
told() {
    PYTHONPATH=plots/figures:plots/report "$PYTHON" - "$DIR/$1.h5" <<'EOF'
import sys
sys.argv[0] = "draw.py"
import campaign, common, sheet
import budget, curves, drift, lr, points, ratio, shares
for figure in (drift, points, curves, ratio, shares, lr, budget):
    found = sheet.Sizes()
    figure.draw(campaign.Campaign(sys.argv[1]), found)
    if found.found:
        print(f"{figure.NAME}: {found.found['title']} | {found.found['caption']}")
EOF
}

@test "drift and points: medians are of quantized tensors, each state by its own codes" {
    long 4
    # the momentum of every tensor has codes, the second moment of small ones is float32
    suite second 'variant: "adamw4_lpmm,min_numel=0,exp_avg_sq.min_numel=128"' \
        'exp_avg_sq.norm: ["block:128", rank1]' 'source: "trace:*"' 'coupling: global'
    export DRIFT=$(title second drift) POINTS=$(title second points) TOLD=$(told second)
    PYTHONPATH=plots/figures "$PYTHON" - "$DIR/second.h5" <<'EOF'
import os, sys, common
import numpy as np
f = common.load(sys.argv[1])
cells, axes = common.table(f, "/cells"), common.table(f, "/axes")
ok, sqnr = cells["status"] == "ok", common.table(f, "/metrics")["state1_sqnr"]
coded = ok & (cells["n"] >= 128)
assert set(cells["slot"]) == {"exp_avg_sq"}  # the state that the axis varies
assert (cells["state0_coded"][ok] == 1).all()
for name in ("state1_coded", "asked_coded"):
    assert (cells[name][coded] == 1).all() and (cells[name][ok & ~coded] == 0).all()
left, right = (sqnr[coded & (axes["exp_avg_sq.norm"] == v)] for v in ("block:128", "rank1"))
assert len(left) > 6 and (sqnr[ok & ~coded & (cells["n"] > 1)] > 100).all()
want = f"rank1 has {np.median(right):.3g} dB, block:128 {np.median(left):.3g} dB"
assert want in os.environ["DRIFT"], (want, os.environ["DRIFT"])
gain = right - left
assert f"rank1 on {(gain > 0).sum()} of {len(gain)} tensors by {np.median(gain):.2g} dB" in \
    os.environ["POINTS"], os.environ["POINTS"]
small = int((ok & ~coded).sum())
large = int((ok & ~coded & (cells["n"] >= 16)).sum())
told = os.environ["TOLD"]
assert f"{small} cells that are not quantized (too small, or not in whole blocks)" in told, told
assert f"{large} cells whose second state is not quantized (too small, or not in whole blocks)" in \
    told, told
EOF
}

@test "points: an axis of one state shows that state, an axis of norms alone has an answer" {
    long 4
    suite matrices 'variant: "adamw4_lpmm,min_numel=0"' 'min_rank: 2' \
        'exp_avg_sq.norm: ["block:128", rank1]' 'source: "trace:*"' 'coupling: global'
    title matrices points >"$DIR/title"
    grep -Eq '^exp_avg_sq.norm: rank1 beats block:128 on [0-9]+ of [0-9]+ tensors by [0-9.]+ dB \[' \
        "$DIR/title"
    suite sizes 'variant: adamw4_ao' 'exp_avg_sq.norm: ["block:64", "block:1024"]' \
        'source: "states:*"' 'min_numel: 2048'
    [[ $(title sizes points) == "exp_avg_sq.norm: block:64 beats block:1024 on "*" bits to "* ]]
    suite one 'variant: adamw4_ao' 'slot: [exp_avg, exp_avg_sq]' 'exp_avg.norm: ["block:64", rank1]' \
        'min_rank: 2' 'source: "states:cancer_mlp*"'
    [[ $(title one points) == "exp_avg.norm: "* ]]
    suite row 'variant: adamw4_ao' 'exp_avg.norm: [row, col]' 'source: "dist:gauss"' 'n: 1'
    [[ $(title row points) == "row, alone: one tensor, "*" dB" ]] # col wants two dimensions
}

@test "--pair takes two different values of any axis; other axes are blocks" {
    long 6
    suite two 'variant: "adamw4_lpmm,min_numel=0"' 'exp_avg_sq.map: [lin, dyn]' 'min_rank: 2' \
        'exp_avg_sq.norm: ["block:64", "block:128", rank1]' 'source: "states:*"'
    export PAIR=$(title two points --pair block:128,rank1)
    PYTHONPATH=plots/figures "$PYTHON" - "$DIR/two.h5" <<'EOF'
import os, sys, common
import numpy as np
f = common.load(sys.argv[1])
cells, axes = common.table(f, "/cells"), common.table(f, "/axes")
sqnr, found = common.table(f, "/metrics")["sqnr"], {}
for i in np.flatnonzero(cells["status"] == "ok"):
    key = cells["source"][i], cells["tensor"][i]
    found.setdefault(key, {})[axes["exp_avg_sq.map"][i], axes["exp_avg_sq.norm"][i]] = sqnr[i]
gains = [np.median([x[m, "rank1"] - x[m, "block:128"] for m in ("lin", "dyn")])
         for x in found.values()]
said = f"rank1 beats block:128 on {sum(g > 0 for g in gains)} of {len(gains)} tensors " \
    f"by {np.median(gains):.2g} dB ["
title = os.environ["PAIR"]
assert said in title and title.endswith("(median over values of exp_avg_sq.map), with 4.51 bits to 4.25"), (said, title)
EOF
    [[ $(title two dumbbell --pair block:128,rank1) == "$PAIR" ]]
    [[ $(title two points --pair lin,dyn) == "exp_avg_sq.map: "*" at blocks of 128"* ]]
    for pair in lin,lin lin,rank1 lin lin,dyn,lin; do
        fails_with 2 "two different values of exp_avg_sq.norm: block:64, block:128, rank1; or of exp_avg_sq.map: lin, dyn" \
            plot "$DIR/two.h5" --pair $pair -o "$DIR/x.png" ||
            fails_with 2 "two different values of exp_avg_sq.map: lin, dyn; or of exp_avg_sq.norm: block:64, block:128, rank1" \
                plot "$DIR/two.h5" --pair $pair -o "$DIR/x.png"
    done
    # drift comes first without --pair, and takes none
    suite trace 'variant: "adamw4_lpmm,min_numel=0"' 'exp_avg.map: [lin, dyn]' \
        'source: "trace:cancer_mlp*"' 'coupling: global'
    [ "$(json_value 'd["name"]' plot "$DIR/trace.h5" -o "$DIR/x.png")" = drift ]
    [ "$(json_value 'd["name"]' plot "$DIR/trace.h5" --pair lin,dyn -o "$DIR/x.png")" = points ]
}

@test "distributions are panels of their own; a suite that trains has no --pair" {
    cd "$DIR"
    printf '%s\n' 'variant: adamw4_ao' 'exp_avg.map: [nf4, "intm:4s"]' \
        'exp_avg.norm: ["block:64", "block:256"]' 'source: ["dist:gauss", "dist:student:3"]' \
        'coupling: oneshot' 'slot: exp_avg' 'n: 4096' 'seed: 1..6' >dist.yaml
    "$QUALM" run -q dist.yaml -o dist.h5 >/dev/null
    run -0 "$QUALM" plot dist.h5 --what points -o dist.svg
    [[ $output == *"on 6 of 6 tensors"* ]]
    for words in "exp_avg, dist:gauss: SQNR" "exp_avg, dist:student:3: SQNR" \
        "the median over at most 6 tensors"; do
        grep -q "$words" dist.svg
    done
    fails_with 2 "expected two different values of exp_avg.map" plot dist.h5 \
        --pair dist:gauss,dist:student:3
    printf '%s\n' 'protocol: paired' 'variant: [adamw4_ao, adamw8_ao, adamw_f32]' \
        'source: "problem:nqm:n=64"' 'coupling: closed' 'seed: 1..2' 'steps: 5' >trains.yaml
    "$QUALM" run -q trains.yaml -o trains.h5 >/dev/null
    fails_with 2 "an axis of cells that do not train; the file has none" plot trains.h5 \
        --pair adamw4_ao,adamw8_ao
}

@test "plot refuses a missing folder and what is no file; a link stays, its target is replaced" {
    suite link 'variant: "adamw4_ao,min_numel=0,whole_blocks=0"' 'exp_avg.map: [dyn, nf4]' \
        'source: "dist:gauss"' 'coupling: oneshot' 'n: 512' 'slot: exp_avg'
    fails_with 3 "none/x.png: cannot be written in the folder $DIR/none: No such file" \
        plot "$DIR/link.h5" -o "$DIR/none/x.png"
    [ ! -e "$DIR/none" ]
    ln -s /dev/full "$DIR/full.png"
    fails_with 3 "'/dev/full': expected the name of a file to write" \
        plot "$DIR/link.h5" -o "$DIR/full.png"
    ln -s real.png "$DIR/to.png"
    "$QUALM" plot -q "$DIR/link.h5" -o "$DIR/to.png"
    [ -L "$DIR/to.png" ] && [ -L "$DIR/full.png" ] && [ -s "$DIR/real.png" ]
}

@test "every example of plot --help draws a figure of what its comment line makes" {
    long 4
    mkdir "$DIR/examples"
    cd "$DIR/examples"
    "$QUALM" plot --help | sed -n '/^Examples:/,/^Exit codes/p' >help
    local made example
    made=$(sed -n 's/^  # after: qualm //p' help)
    eval "\"$QUALM\" $made -q" >/dev/null
    sed -n ':a; /\\$/ { N; s/\\\n *//; ba }; s/^  qualm \(plot .*\)/\1/p' help >examples
    [ "$(wc -l <examples)" -ge 4 ]
    while read -r example; do
        eval "\"$QUALM\" ${example%%  #*}" </dev/null
    done <examples
}

@test "where nothing is quantized all titles say so; where some is, no title counts the rest" {
    long 5
    for protocol in paired ''; do
        suite none ${protocol:+"protocol: $protocol"} 'variant: adamw4_ao' \
            'exp_avg.map: [dyn, nf4]' 'source: "problem:mlp:batch=16"' 'coupling: closed' \
            'steps: 20' 'seed: 1..6'
        told none >"$DIR/told"
        grep -q '^ratio: Not quantized: no variant has codes' "$DIR/told"
        grep -q '^loss: Not quantized: no variant has codes' "$DIR/told"
    done
    suite none 'protocol: paired' 'variant: adamw4_ao' 'exp_avg.map: [dyn, nf4]' 'budget: 1' \
        'source: "problem:mlp:batch=16"' 'coupling: closed' 'steps: 20' 'seed: 1..6' \
        'lr_scale: [0.5, 1]'
    told none >"$DIR/told"
    [ "$(grep -c ': Not quantized: no variant has codes' "$DIR/told")" = "$(wc -l <"$DIR/told")" ]
    [ "$(wc -l <"$DIR/told")" -ge 4 ]
    suite some 'protocol: paired' \
        'variant: ["adamw4_ao", {all: "adamw4_ao,min_numel=0,whole_blocks=0"}]' \
        'source: "problem:mlp:batch=16"' 'coupling: closed' 'steps: 20' 'seed: 1..6'
    told some >"$DIR/told"
    for figure in loss ratio shares; do
        grep -q "^$figure: .*| .*In no title because not quantized.*: adamw4_ao on mlp" "$DIR/told"
        ! grep -q "^$figure: [^|]*adamw4_ao" "$DIR/told" || return 1
    done
}

@test "plot names the reason and the cure where a file has no figure" {
    long 4
    "$QUALM" analyze -q experiments/data/samples/checkpoint.pt -o "$DIR/a.h5" >/dev/null
    for words in --list "-o $DIR/x.png" "--what points -o $DIR/x.png"; do
        fails_with 4 '`qualm run SUITE --data FILE`' plot "$DIR/a.h5" $words
    done
    suite small 'variant: adamw4_lpmm' 'exp_avg.map: [lin, dyn]' 'coupling: global' \
        'source: "trace:cancer_mlp*"'
    fails_with 4 "cells are not quantized (too small" plot --list "$DIR/small.h5"
}
