#!/usr/bin/env bats
# rewritten.bats - Every command says in one line that another program wrote a file again.

load ../../support/cli_common

setup() {
    dir=$(mktemp -d)
    cd "$dir"
}

teardown() { rm -rf "$dir"; }

# rewrite FROM TO: copies TO_KIND.h5 without the checksum line, by what became of the digest
rewrite() {
    "$PYTHON" - "$1" "$2" <<'P'
import h5py, numpy, shutil, sys

def padded(a, d): a.create("digest", d + bytes(40), dtype="S104")
def spaced(a, d):
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(70), kind.set_strpad(h5py.h5t.STR_SPACEPAD)
    del a["digest"]
    space = h5py.h5s.create(h5py.h5s.SCALAR)
    h5py.h5a.create(a._id, b"digest", kind, space).write(numpy.array(d.ljust(70), "S70"), kind)

kinds = {
    "same": lambda a, d: None,
    "padded": padded,
    "spaced": spaced,
    "long": lambda a, d: a.create("digest", d.decode(), dtype=h5py.string_dtype()),
    "gone": lambda a, d: a.pop("digest"),
    "other": lambda a, d: a.create("digest", "0" * 64, dtype=h5py.string_dtype()),
    "number": lambda a, d: a.create("digest", 7),
}
for kind, change in kinds.items():
    to = f"{sys.argv[2]}_{kind}.h5"
    shutil.copy(sys.argv[1], to)
    with h5py.File(to, "r+") as f:
        f.attrs["x"] = 1  # HDF5 cuts what follows its own end
        del f.attrs["x"]
        a = f["provenance"].attrs
        change(a, bytes(a["digest"]))
P
}

# noted FILE COMMAND...: one line of stderr names the file, and says what its name stands for
noted() {
    local file=$1 said
    shift
    "$QUALM" "$@" >out 2>err || [ $? -eq 1 ] || { cat err; return 1; }
    case $file in
    *_gone.h5) said="carries no digest" ;;
    *_other.h5 | *_number.h5) said="carries another digest than it has" ;;
    *) said="its digest is right, which covers all but /provenance and /timing" ;;
    esac
    if [ "$(grep -cE "checksum|digest" err)" != 1 ] || ! grep -qF "$file: " err ||
        ! grep -qF "$said" err; then
        echo "qualm $*, expected a note '$said', got:"
        cat err
        return 1
    fi
}

KINDS="same padded spaced long gone other number"

@test "rewritten: results, in every command that reads them" {
    long 6
    printf '%s\n' 'variant: [adamw4_ao, adamw8_bnb]' 'source: "problem:quad"' 'coupling: closed' \
        'protocol: paired' 'seed: 1..3' 'steps: 20' 'lr_scale: [0.5, 1]' 'budget: 1' >s.yaml
    "$QUALM" run -q -o a.h5 s.yaml
    "$QUALM" digest a.h5 | cut -d' ' -f1 >whole
    rewrite a.h5 b
    for kind in $KINDS; do
        file=b_$kind.h5
        noted "$file" digest "$file"
        [ "$(cut -d' ' -f1 out)" = "$(cat whole)" ]
        noted "$file" compare a.h5 "$file"
    done
    for kind in $(drawn $KINDS); do
        file=b_$kind.h5
        noted "$file" report --no-figures -o p.html "$file"
        noted "$file" report --no-figures --against "$file" -o p.html a.h5
        noted "$file" run --against "$file" -o c.h5 s.yaml
        noted "$file" plot -o p.png "$file"
        noted "$file" plot --list "$file"
    done
}

@test "rewritten: states, in every command that reads them" {
    "$QUALM" state make -q --recipe adamw4_ao,exp_avg.min_numel=0 --shapes 24x40,9 --steps 1 a.h5
    rewrite a.h5 b
    printf '%s\n' 'variant: adamw4_ao' 'source: "states:*"' 'coupling: oneshot' 'slot: exp_avg' \
        >s.yaml
    for kind in $KINDS; do
        file=b_$kind.h5
        noted "$file" analyze "$file" --tensor param -Q "nf4:4s/block:128/bisect/mid/hi"
        noted "$file" import "$file" -o o.npz
        noted "$file" size -S "$file" --variant adamw4_ao
        noted "$file" state show "$file"
    done
    for kind in $(drawn $KINDS); do
        file=b_$kind.h5
        noted "$file" state convert "$file" o.safetensors
        noted "$file" state step --steps 1 "$file" o.safetensors
        noted "$file" run --workers 0 --data "$file" -o o.h5 s.yaml
    done
}

@test "rewritten: golden vectors, which kernels write their answers into" {
    "$QUALM" gen -q adamw_f32 --cases normal --setting default --shape 3x5 --first-step 1 --steps 1 \
        -o g.h5
    rewrite g.h5 b
    status=0
    "$QUALM" verify b_other.h5 2>err || status=$?
    [ "$status" = 4 ] # no answers; what was changed is judged case by case
    ! grep -E "checksum|digest" err || return 1
    noted b_other.h5 digest b_other.h5
}

@test "rewritten: another program's HDF5 file has no digest, and nothing is said" {
    "$PYTHON" -c '
import h5py, numpy
h5py.File("f.h5", "w")["exp_avg"] = numpy.ones((8, 128), "f4")'
    "$QUALM" import f.h5 -o o.npz 2>err
    "$QUALM" size -S f.h5 --variant adamw4_ao 2>>err
    ! grep -E "checksum|digest" err || return 1
}
