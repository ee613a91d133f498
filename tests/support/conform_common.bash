# conform_common.bash - Functions shared by the tests of qualm conform.
#
# They make recordings: altered ones of tests/golden, and small ones of numbers that a test
# computes.

load ../../support/cli_common

needs_hdf5() { "$PYTHON" -c "import h5py, numpy" 2> /dev/null || skip "python3 has no h5py"; }

# broken SYSTEM GROUP EDIT: a copy of two groups of a golden file, the first of them edited by a
# line of Python on group g; the second stays as it is.
broken() {
    PYTHONPATH=$ROOT/tests/support "$PYTHON" - "$ROOT/tests/golden/$1.h5" "$2" "$3" "$4" \
        "$BATS_TEST_TMPDIR/x.h5" <<'P'
import sys, h5py, numpy as np
from golden_copy import copy
source, name, other, edit, path = sys.argv[1:]
with h5py.File(source) as f, h5py.File(path, "w") as out:
    for key, value in f.attrs.items():
        out.attrs[key] = value
    for n in (name, other):
        copy(f[n], out.create_group(n))
    g = out[name]
    exec(edit)
P
}

# a run and another of the same file
pair() {
    "$PYTHON" -c "import h5py
f = h5py.File('$ROOT/tests/golden/$1.h5')
runs = [n for n in f if isinstance(f[n], h5py.Group) and 'grads' in f[n] and 'params' in f[n]
        and $2]
print(runs[0], runs[1])"
}

# made CODE [ATTRIBUTE VALUE]: a file of torch.optim, or of the system that this root attribute
# names, made by lines of Python that call run(name, attributes, param0, grads, params, states) with
# numbers in the dtype of the case, or make groups of f.
made() {
    "$PYTHON" - "$BATS_TEST_TMPDIR/x.h5" "$1" "${2:-executed}" "${3:-torch/optim/adam.py}" <<'P'
import sys, h5py, numpy as np
with h5py.File(sys.argv[1], "w") as f:
    f.attrs[sys.argv[3]] = sys.argv[4]
    f.attrs["torch_version"] = "2.15.0"
    def run(name, attributes, param0, grads, params, **states):
        g = f.create_group(name)
        n = len(param0)
        for key, value in {"steps": len(grads), "shape": [n], "ndim": 1, "sqrt": "ieee",
                           **attributes}.items():
            g.attrs[key] = value
        g["param0"], g["grads"], g["params"] = param0, grads, params
        for key, value in states.items():
            g["state_" + key] = value
    exec(sys.argv[2])
P
}

# judged WORD CODE [ATTRIBUTE VALUE]: every case of the file that CODE makes of $X is judged so
judged() {
    local got
    made "${@:2}"
    got=$("$QUALM" conform "$X" | awk '/^(EQUAL|NEAR|DIFFERS|skipped|UNREADABLE) / { print $1 }' |
        sort -u)
    [ "$got" = "$1" ] || { "$QUALM" conform "$X"; false; }
}
