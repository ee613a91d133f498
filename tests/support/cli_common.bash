# cli_common.bash - Functions shared by the command-line tests.
#
# QUALM may name another program to test.

bats_require_minimum_version 1.5.0

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
QUALM=${QUALM:-$ROOT/qualm}
PYTHON=/usr/bin/python3

qualm() { "$QUALM" "$@"; }

# drawn WORD...: one in QM_TEST_SHARE of the words, by QM_TEST_SEED, as tests/support/drawn.h does
drawn() {
    local share=${QM_TEST_SHARE:-1} i=${QM_TEST_SEED:-0} word
    [ "$share" -le $# ] || share=$# # of few words one is taken
    for word in "$@"; do
        [ $((i++ % share)) -ne 0 ] || echo "$word"
    done
}

# long N: the test runs at one commit in N, by its own name and QM_TEST_SEED, as drawn() does; every
# time where every entry is taken
long() {
    [ "${QM_TEST_SHARE:-1}" != 1 ] || return 0
    local sum
    sum=$(cksum <<<"$BATS_TEST_DESCRIPTION")
    [ $(((${sum%% *} + ${QM_TEST_SEED:-0}) % $1)) -eq 0 ] ||
        skip "long: runs at one commit in $1, and in make check-long"
}

# json_on_stdout COMMAND...: stdout alone is valid JSON
json_on_stdout() { "$QUALM" "$@" 2>/dev/null | "$PYTHON" -m json.tool >/dev/null; }

# json_value EXPRESSION COMMAND...: prints a Python expression of d, the parsed output
json_value() {
    local expression=$1
    shift
    "$QUALM" "$@" --json 2>/dev/null |
        "$PYTHON" -c "import json, sys; d = json.load(sys.stdin); print($expression)"
}

# fails_with CODE TEXT COMMAND...: the exit code is CODE, and stderr contains TEXT
fails_with() {
    local code=$1 text=$2
    shift 2
    local message status=0
    message=$("$QUALM" "$@" 2>&1 >/dev/null) || status=$?
    if [ "$status" -ne "$code" ] || [[ $message != *"$text"* ]]; then
        echo "qualm $*: exit code $status, expected $code; message: $message; expected: $text"
        return 1
    fi
}

# write_npy FILE ROWS COLS [EXPRESSION of k]: writes a float32 file, by default of both signs
write_npy() {
    "$PYTHON" - "$@" <<'EOF'
import math, struct, sys
path, rows, cols = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
expression = sys.argv[4] if len(sys.argv) > 4 else "math.sin(k * k) * (1 + k % 7)"
n = rows * cols
shape = "(%d, %d)" % (rows, cols) if rows != 1 else "(%d,)" % cols
head = "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }" % shape
head = head.ljust(117) + "\n"
value = eval("lambda k: " + expression)
with open(path, "wb") as f:
    f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
    f.write(struct.pack("<%df" % n, *[value(k) for k in range(n)]))
EOF
}

needs_nvrtc() {
    "$QUALM" doctor --json | grep -q '"nvrtc": "no NVRTC' && skip "no NVRTC"
    return 0
}

# Writes NAME.pt for each line "NAME MODEL=KEY:SHAPE,... OPTIMIZER@SHAPE,...;SHAPE,..." of stdin; a
# shape is a text of digits, "-" that of a scalar, ";" parts the groups of an
# optimizer, of which one called adamw has second moments and steps too.
write_models() {
    "$PYTHON" /dev/fd/3 "$ROOT/tests/support" 3<<'P'
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from torch_pickle import Tensor, write
for line in sys.stdin:
    name, *items = line.split()
    x, saved = {}, {}
    def tensor(shape):
        x[len(x)] = np.full([int(c) for c in shape if c != "-"], len(x), "f4")
        return Tensor(len(x) - 1, x[len(x) - 1])
    for item in items:
        if "=" in item:
            key, tensors = item.split("=")
            saved[key] = {k: tensor(s) for k, s in (t.split(":") for t in tensors.split(","))}
            continue
        key, groups = item.split("@")
        state, ids = {}, []
        for group in groups.split(";"):
            shapes = group.split(",")
            ids.append({"params": list(range(len(state), len(state) + len(shapes))), "lr": 0.5})
            if key == "adamw":
                ids[-1].update(betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
            for shape in shapes:
                state[len(state)] = {"exp_avg": tensor(shape)}
                if key == "adamw":
                    state[len(state) - 1]["exp_avg_sq"] = tensor(shape)
                    state[len(state) - 1]["step"] = 7
        saved[key] = {"state": state, "param_groups": ids}
    write(name + ".pt", saved, x)
P
}
