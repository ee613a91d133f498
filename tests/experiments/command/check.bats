#!/usr/bin/env bats
# check.bats - Tests qualm check on the command line.
load ../../support/cli_common

one=4097/planted/default/t1/forced

@test "one variant, one case: a table, the seed, exit code 0" {
    run -0 "$QUALM" check adamw4_ao --case "$one" -q
    [[ $output == *"adamw4_ao"*"passed"* ]]
    [[ $output == *"seed 20240501"* ]]
}

@test "every variant passes" {
    local share=${QM_TEST_SHARE:-1} names
    names=$(qualm list variants --names)
    mapfile -t some < <(QM_TEST_SHARE=$((share < 10 ? share : 10)) drawn $names)
    [ "$(json_value 'd["passed"]' check --quick -q "${some[@]}")" = True ]
    variants=$(json_value 'len(d)' list variants)
    [ "$variants" -ge 9 ]
    [ "$(json_value 'len(d["variants"]) + len(d["skipped"])' check --case "$one")" = "$variants" ]
}

@test "a zero has one sign on any number of threads, also where a product is fused" {
    local settings=lr=0.31+beta1=0.26+beta2=0.77+eps=1+weight_decay=0.00016
    run -0 "$QUALM" check adamw4_lpmm_fused --seed 31 -q \
        --case "258x259/planted/$settings/t1/forced/s2^0/podd/godd/warm"
}

@test "infinities beside unknown numbers, and a minimum that no element is, are judged rightly" {
    run -0 "$QUALM" check lamb_bnb -q \
        --case "39x23x1/outlier/default/t1022/forced/g2^-17/s2^127/godd/warm/fresh"
    run -0 "$QUALM" check adamw8_coat -q --case \
        "2x2x2x1x1x2x2/sparse/lr=0.054+beta1=0+weight_decay=1+maximize=0/t2/forced/gfirst"
}

@test "projections of tensor 2^32 - 1, whose chain of seeds starts at 0, are judged rightly" {
    run -0 "$QUALM" check apollo_f32 -q --case 37x4/small/default/t9/forced/tensor4294967295
}

@test "a block with an infinity is judged: what it stores, its codes and its values" {
    cd "$BATS_TEST_TMPDIR"
    for of in adamw8_coat adamw4_2_solo; do
        "$QUALM" check --template "$of" >"$of.c"
    done
    sed 's|alpha = powf(quantile_of(n, x) / top|alpha = isinf(top) ? 0.5f : powf(quantile_of(n, x) / top|' \
        adamw4_2_solo.c >inf.c
    ! cmp -s adamw4_2_solo.c inf.c || return 1
    for file in adamw4_2_solo adamw8_coat; do
        run -0 "$QUALM" check --kernel "$file.c" -q --case 4097/nonfinite/default/t1/forced
    done
    sed 's|^    number\[0\] = powf(most / c, k) / top;|    if (isinf(most)) k = 1.0f / 16.0f;\n&|' \
        adamw8_coat.c >one.c
    ! cmp -s adamw8_coat.c one.c || return 1
    run -1 "$QUALM" check --kernel one.c -q --no-shrink --case 4097/nonfinite/default/t1/forced
    [[ "$output" == *"a block's exponent, is 0x1p-4 = 0.0625, want 0x0p+0 = 0"* ]]
    run -1 "$QUALM" check --kernel inf.c -q --no-shrink --case 4097/nonfinite/default/t1/forced
    [[ "$output" == *"a block's alpha, is 0x1p-1 = 0.5, want 0x0p+0 = 0"* ]]
}

@test "eigenvalues of a factor whose vectors are not known are not below 0" {
    cd "$BATS_TEST_TMPDIR"
    "$QUALM" check --template shampoo_adamw_f32 >vectors.c
    sed 's|values\[f->value + k\] = (float)sum;|values[f->value + k] = k < n / 2 ? (float)sum : -1e30f;|' \
        vectors.c >low.c
    ! cmp -s vectors.c low.c || return 1
    local one=97x101/normal/stat_gap=1+root_gap=1/t1/forced
    run -0 "$QUALM" check --kernel vectors.c -q --case "$one"
    run -1 "$QUALM" check --kernel low.c -q --no-shrink --case "$one"
    [[ "$output" == *"eigenvalues"*"is -0x1.93e594p+99 = -1e+30"* ]]
}

@test "an average of two equal numbers is that number, whatever a sum in double says" {
    run -0 "$QUALM" check adamw4_qm -q --case \
        "6x5461x1x1x1/edges/extreme+beta1=0.5+beta2=0.5/t282223789587/own/tensor38/schedule"
}

@test "every case judges some outputs" {
    expression='all(v["judged"] > 10000 and v["worst_ratio"] <= 1 for v in d["variants"])'
    [ "$(json_value "$expression" check --case 61x67/normal/default/t1/forced)" = True ]
    expression='min(v["equal"] for v in d["variants"])'
    [ "$(json_value "$expression" check adamw4_lpmm ema4_uniform --case "$one")" -gt 4000 ]
}

@test "the error of parameter and states is related to float32's" {
    part=(--case 61x67/normal/default/t1/forced -q)
    run -0 "$QUALM" check adamw_f32 adamw4_ao "${part[@]}"
    [[ ${lines[0]} == *"RMSE/f32  of states"* ]]
    expression='[v["rmse"]["parameter"]["ratio"] for v in d["variants"]]'
    [ "$(json_value "$expression" check adamw_f32 adamw4_ao "${part[@]}")" = "[1.0, 1.0]" ]
    expression='d["variants"][0]["rmse"]["exp_avg"]["ratio"] > 1e5'
    [ "$(json_value "$expression" check adamw4_ao "${part[@]}")" = True ]
    expression='d["variants"][0]["rmse"]["parameter"]["ratio"]'
    [ "$(json_value "$expression" check adamw4_ao --case 61x67/planted/wd/t1/forced)" = None ]
}

@test "codes that a ladder misplaces are counted apart" {
    [ "$(json_value 'd["variants"][0]["deviations"]' check ema4_nf4a8 --case "$one")" -gt 10 ]
    [ "$(json_value 'd["variants"][0]["deviations"]' check ema4_nf4 --case "$one")" = 0 ]
}

@test "recipes with overrides, as several words or one list" {
    run -0 "$QUALM" check adamw4_ao,exp_avg.round=mid,exp_avg_sq.norm=rank1 ema4_nf4 -q \
        --case 61x67/exact/exact/t1/forced
    [ "$(grep -c passed <<<"$output")" = 2 ]
}

@test "--specials judges NaN, Inf, zeros, denormals and overflow of each variant" {
    long 3
    [ "$(json_value 'd["passed"]' check --specials)" = True ]
    [ "$(json_value 'len(d["specials"])' check --specials)" = \
        $((5 * $(json_value 'len(d)' list variants))) ]
    expression='{s["special"]: s["parameters_not_finite"] for s in d["specials"]}'
    [ "$(json_value "$expression" check --specials adamw_f32)" = \
        "{'nan': 1, 'inf': 1, 'zeros': 0, 'denormal': 0, 'huge': 0}" ]
}

@test "the seed is printed and changes the draws; the same seed gives the same text" {
    a=$(qualm check adamw4_ao --case "$one" --seed 7 -q)
    [[ $a == *"seed 7"* ]]
    [ "$a" = "$(qualm check adamw4_ao --case "$one" --seed 7 -q)" ]
    [ "$(json_value 'd["seed"]' check adamw4_ao --case "$one" --seed 7)" = 7 ]
    [ "${a%seed*}" != "$(qualm check adamw4_ao --case "$one" --seed 8 -q | sed '/^seed/d')" ]
}

@test "--list-cases: hardly any comes twice, each can be run alone" {
    run -0 "$QUALM" check --list-cases
    [ "${#lines[@]}" -gt 250 ]
    # Drawn cases are independent; a small one may come twice.
    [ "$(sort -u <<<"$output" | wc -l)" -ge $((${#lines[@]} * 99 / 100)) ]
    for k in 0 40 170 250; do
        qualm check adamw8_bnb --case "${lines[k]}" -q >/dev/null
    done
    [ "$(json_value 'len(d)' check --list-cases)" = "${#lines[@]}" ]
}

@test "factors beyond order 256 are drawn; a case that is judged with a smaller order says so" {
    "$QUALM" check --list-cases shampoo4_adamw >"$BATS_TEST_TMPDIR/cases"
    [ "$(grep -cE "^([1-4]x(2[5-9]|3[0-9])[0-9]|(2[5-9]|3[0-9])[0-9]x[1-4])/.*max_order=320" "$BATS_TEST_TMPDIR/cases")" \
        -ge 1 ]
    run -0 "$QUALM" check shampoo4_adamw --case 200x200/normal/max_order=1200/t1/forced
    [[ $output == *"the case is judged with max_order=16, not 1200, for a judge's time"* ]]
    run -0 "$QUALM" check shampoo4_adamw --case 9x9/normal/max_order=1200/t1/forced
    [[ $output != *"the case is judged with"* ]]
}

@test "--json: stdout is JSON alone" {
    json_on_stdout check adamw4_ao --case "$one" --json
}

@test "cases that cannot be judged are skipped with a reason; exit code 77 if all are" {
    local nest='ema4_nf4,exp_avg=dyn:8s/block:64/mids/mid/nest:256/maxskip'
    command -v "${CXX:-c++}" >/dev/null || skip "backend emu wants a C++ compiler"
    fails_with 77 "nested scales have no kernel" check --backend emu "$nest"
    run -0 "$QUALM" check --backend emu "$nest" ema4_nf4 -q --case "$one"
    [[ $output == *"skipped ema4_nf4,exp_avg=dyn:8s/"* && $output == *"passed"* ]]
}

@test "an unknown variant, class or case is refused with the nearest name" {
    fails_with 4 "did you mean 'adamw4_ao'?" check adamw4_oa
    fails_with 4 "did you mean 'planted'?" check adamw4_ao --case 4097/plantde/default/t1/forced
    fails_with 2 "SHAPE/CLASS" check adamw4_ao --case 4097
    fails_with 2 "first step" check adamw4_ao --case 4097/planted/default/t0/forced
    fails_with 2 "whole number" check --seed x
    fails_with 2 "takes both signs" check adamw4_ao,exp_avg=lin:4u/block:128/bisect/mid
}
