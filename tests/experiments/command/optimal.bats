#!/usr/bin/env bats
# optimal.bats - Tests qualm optimal, and the column of measured errors against theory.
load ../../support/cli_common

@test "optimal: the published codebook for blocks of 64 with -1, 0 and 1 kept" {
    got=$(json_value '" ".join("%.7f" % x for x in d["codebook"])' optimal --block 64 --zero)
    want="-1.0000000 -0.7535689 -0.5792681 -0.4386720 -0.3168191 -0.2060291 -0.1015641 0.0000000"
    want+=" 0.0887642 0.1794526 0.2742485 0.3759495 0.4885909 0.6187701 0.7790818 1.0000000"
    [ "$got" = "$want" ]
}

@test "optimal: nf4 is 0.160 dB from the best with both ends, and no map beats it" {
    [ "$(json_value '"%.3f" % [m["below_optimum_db"] for m in d["maps"] if m["map"] == "nf4:4s"][0]' \
        optimal --bits 4 --block 128 --dist gauss)" = 0.160 ]
    [ "$(json_value 'len(d["maps"]) >= 15 and min(m["below_optimum_db"] for m in d["maps"]) > 0' \
        optimal)" = True ]
}

@test "optimal: Lloyd-Max and the rate-distortion function of N(0, 1)" {
    [ "$(json_value '"%.4f" % d["sqnr_db"]' optimal --block 0)" = 20.2223 ]
    [ "$(json_value '"%.4f" % d["references"][1]["db"]' optimal --block 0)" = 24.0824 ]
}

@test "optimal --ema: steady states under stochastic rounding, dead zones of nearest rounding" {
    [ "$(json_value '"%.3f" % [m["dead_zone_at_0"] for m in d["running_averages"] if m["map"] == "nf4:4s"][0]' \
        optimal --ema 0.9)" = 0.455 ]
    # e / (1 - beta^2 (1 + e)) of the NMSE e of one rounding
    [ "$(json_value \
        'all(abs(10 ** (-m["steady_state_db"] / 10) * (1 - 0.81 * (1 + e)) / e - 1) < 1e-9
        for m in d["running_averages"] for e in [10 ** (-m["stochastic_db"] / 10)])' \
        optimal --ema 0.9 --block 64)" = True ]
    fails_with 2 "between 0 and 1" optimal --ema 1
}

@test "optimal: text for people, JSON for programs" {
    run -0 "$QUALM" optimal --bits 8 --dist chi2 --block 256
    [[ $output == *"codebook"* && $output == *"dyn:8u"* && $output == *"Lloyd-Max"* ]]
    json_on_stdout optimal --dist laplace --metric mae --json
}

@test "optimal: refused arguments" {
    fails_with 2 "--block: expected 0 or a whole number from 2" optimal -B 1
    fails_with 2 "--ends and --free exclude each other" optimal --ends --free
    fails_with 2 "--rates is given twice, 'none' and 'x.json'" run smoke --rates none -r x.json
    fails_with 2 "whole number from 2 to 8" optimal --bits 9
    fails_with 4 "did you mean 'gauss'" optimal --dist gaus
    fails_with 2 "no theory covers sparse" optimal --dist sparse
    fails_with 2 "no theory covers foo; gauss, laplace" optimal --dist foo
    fails_with 2 "infinite" optimal --dist student:2
    fails_with 2 "ends must be held" optimal --metric mae --free
    fails_with 4 "metric" optimal --metric median
}

@test "run: tables over distributions have the distance from theory, other tables do not" {
    dir=$(mktemp -d)
    cat >"$dir/a.yaml" <<'Y'
variant: ema4_uniform
source: ["dist:gauss", "dist:sparse"]
exp_avg: ["nf4:4s/block:64", "dyn:8s/block:64/bisect/stoch"]
n: 65536
summary:
  - {name: a, by: source, across: exp_avg, value: sqnr}
  - {name: b, by: source, value: sqnr, stat: max}
  - {name: c, by: source, value: collapse}
Y
    run -0 "$QUALM" run -q -o "$dir/a.h5" "$dir/a.yaml"
    [ "$(grep -c "within SE of theory" <<<"$output")" -eq 2 ]
    grep -qE '^dist:sparse .* -$' <<<"$output"
    "$PYTHON" - "$dir/a.h5" <<'P'
import h5py, sys
f = h5py.File(sys.argv[1])
a, c = f["/summary/a"], f["/summary/c"]
assert "theory_se" not in c.dtype.names
gauss = a["source"] == b"dist:gauss"
assert (a["theory_se"][gauss] < 4).all() and (a["theory_n"][gauss] == 1).all()
assert (a["theory_n"][~gauss] == 0).all()
P
    rm -r "$dir"
}
