# figures_common.bash - Shared by the tests of figures: a folder DIR, and suites that run into it.
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

# suite NAME LINE...: runs the suite of these lines at untuned rates, into DIR/NAME.h5; its tables
# are DIR/NAME.txt, what it says DIR/NAME.err
suite() {
    local name=$1
    shift
    printf '%s\n' "$@" >"$DIR/$name.yaml"
    "$QUALM" run --rates none -o "$DIR/$name.h5" "$DIR/$name.yaml" >"$DIR/$name.txt" \
        2>"$DIR/$name.err"
}
