#!/bin/bash
# run.sh - Runs every test program and every bats file, two at a time, and adds up their counts.
# `make test` calls it from the top of the tree with BUILD set; the last line is the sum.  ONLY
# names parts of paths: then only the tests that affected_tests.py finds for them run.
set -u
logs=$BUILD/logs
rm -rf "$logs"
mkdir -p "$logs"
export QM_SHARED=${QM_SHARED:-../shared} OMP_WAIT_POLICY=passive
export MALLOC_PERTURB_=85 # memory that nobody wrote is not zero
# Of long tables one entry in 32 is taken, other ones at each commit; with ONLY, all of them.
# tests/support/drawn.h says how.
export QM_TEST_SHARE=${QM_TEST_SHARE:-$([ -n "${ONLY:-}" ] && echo 1 || echo 32)}
commit=$(git rev-parse --short=7 HEAD 2>/dev/null || echo 1)
export QM_TEST_SEED=${QM_TEST_SEED:-$((16#$commit))}
[ "$QM_TEST_SHARE" = 1 ] ||
    echo "of long tables one entry in $QM_TEST_SHARE is drawn: QM_TEST_SEED=$QM_TEST_SEED"
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0}
[ -d "$QM_SHARED/data" ] ||
    echo "skipping the full golden and real data: not present, the shipped selection is tested"

one() { # a test program or a .bats file
    local name log start=$SECONDS
    name=${1#"$BUILD"/}
    name=${name#tests/}
    name=${name//\//.}
    log=$logs/$name.log
    if [[ $1 == *.bats ]]; then bats --tap --timing "$1"; else timeout 600 "$1"; fi >"$log" 2>&1
    echo "exit $? seconds $((SECONDS - start))" >>"$log"
    times >"$log.times" # of this shell, and of what it ran
    sed -n '2s/^/processor time, user and system: /p' "$log.times" >>"$log"
    rm "$log.times"
}
export -f one
export logs BUILD

# The tests to run, one a line: a test program in $BUILD or a .bats file.  Those that take longest
# come first, so that none runs alone at the end.
every() {
    find tests -name '*.bats' | sort -r
    find tests -name 'test_*.c' | sort | sed "s#\(.*\)\.c\$#$BUILD/\1#"
}
if [ -n "${ONLY:-}" ]; then
    read -ra words <<<"$ONLY"
    list=$(/usr/bin/python3 tests/style/affected_tests.py "$BUILD" "${words[@]}") || exit 4
    [ -n "$list" ] || { echo "no test concerns $ONLY" >&2; exit 4; }
    mapfile -t chosen < <(printf '%s' "${list:+$list$'\n'}")
    linked=$(/usr/bin/python3 tests/style/affected_tests.py --linked "$BUILD" "${words[@]}" | wc -l)
    echo "ONLY=$ONLY: ${#chosen[@]} tests concern it; it is linked into $linked," \
        "which make test runs"
    printf '    %s\n' "${chosen[@]}"
else
    mapfile -t chosen < <(every)
fi
[ "${SAN:-0}" = 1 ] && mapfile -t chosen < <(printf '%s\n' "${chosen[@]}" | grep -v '\.bats$')
[ "${chosen[*]:-}" ] ||
    { echo "only bats tests concern $ONLY, which SAN=1 leaves out" >&2; exit 4; }
printf '%s\n' "${chosen[@]}" | xargs -P 2 -I{} bash -c 'one "$1"' _ {}

passed=0 failed=0 skipped=0 failures=
for log in "$logs"/*.log; do
    name=$(basename "$log" .log)
    read -r code seconds < <(awk '/^exit [0-9]+ seconds/ {c = $2; s = $4} END {print c, s}' "$log")
    if [[ $name == *.bats ]]; then
        s=$(grep -cE '^ok .*# skip' "$log")
        p=$(($(grep -cE '^ok ' "$log") - s))
        f=$(grep -cE '^not ok ' "$log")
        reasons='s/^ok [0-9]+ (.*) # skip ?(.*)/\1: \2/p'
    else
        p=$(sed -nE 's/^\[  PASSED  \] ([0-9]+) test.*/\1/p' "$log" | tail -1)
        f=$(sed -nE 's/^\[  FAILED  \] ([0-9]+) test.*/\1/p' "$log" | tail -1)
        s=$(sed -nE 's/^\[  SKIPPED \] ([0-9]+) test.*/\1/p' "$log" | tail -1)
        p=${p:-0} f=${f:-0} s=${s:-0}
        reasons='s/^skipped: (.*)/\1/p'
    fi
    [ "$code" != 0 ] && [ "$f" = 0 ] && f=1
    [ "$code" = 0 ] && [ $((p + f + s)) = 0 ] && f=1 # a program that tested nothing
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    printf '%-52s %4d passed %3d failed %3d skipped %5s s\n' "$name" "$p" "$f" "$s" "$seconds"
    sed -nE "$reasons" "$log" | sed 's/^/    skipped: /'
    [ "$f" != 0 ] || continue
    sed 's/^/    | /' "$log" | tail -n 60
    # The lines that name what failed stand once more at the end, which a log that is cut shows.
    what='^not ok |^\[ *(ERROR|LINE) *\]|^\[  FAILED  \] [a-z]'
    failures+="$name"$'\n'$(grep -E -A12 "$what" "$log" | grep -vE '^(ok |--)' | head -n 40 |
        cut -c1-200 | sed 's/^/    | /')$'\n'
done
[ "${SAN:-0}" = 1 ] && echo "bats tests are left out under SAN=1: they run the same functions"
[ -z "$failures" ] || printf 'what failed (QM_TEST_SEED=%s):\n%s' "$QM_TEST_SEED" "$failures"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
