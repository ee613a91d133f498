#!/usr/bin/env bats
# install.bats - Installs the program in a folder of the test and runs it from elsewhere.
load ../../support/cli_common

setup_file() {
    ROOT=$(cd "$(dirname "$BATS_TEST_FILENAME")/../../.." && pwd)
    export D=$BATS_FILE_TMPDIR/dest
    make -C "$ROOT" install DESTDIR="$D" PREFIX=/usr INSTALL=0 BUILD="${BUILD:-build/gcc}" \
        >"$BATS_FILE_TMPDIR/log" 2>&1 || { cat "$BATS_FILE_TMPDIR/log"; return 1; }
    mkdir "$BATS_FILE_TMPDIR/elsewhere"
}

setup() {
    cd "$BATS_FILE_TMPDIR/elsewhere"
    Q=$D/usr/bin/qualm
}

@test "an installed qualm lists the suites that the tree has" {
    [ "$("$Q" list suites --names)" = "$(cd "$ROOT" && ./qualm list suites --names)" ]
    "$Q" list suites --json | grep -q "$D/usr/share/qualm/experiments/suites/smoke.yaml"
}

@test "suites give the digests of the tree, in one process and in workers" {
    "$Q" run smoke --out here.h5 -q
    "$Q" run rank1 --size small --workers 2 --out states.h5 -q
    (cd "$ROOT" && ./qualm run smoke --out "$BATS_TEST_TMPDIR/smoke.h5" -q &&
        ./qualm run rank1 --size small -w 0 --out "$BATS_TEST_TMPDIR/rank1.h5" -q)
    digest() { "$Q" digest "$1" | cut -d' ' -f1; }
    [ "$(digest here.h5)" = "$(digest "$BATS_TEST_TMPDIR/smoke.h5")" ]
    [ "$(digest states.h5)" = "$(digest "$BATS_TEST_TMPDIR/rank1.h5")" ]
}

@test "the baseline is found, and a page is written without the tree" {
    long 2
    printf '%s\n' 'protocol: paired' 'coupling: closed' 'variant: [adamw4_ao]' \
        'source: "problem:quad:n=256"' 'seed: 1..6' 'steps: 20' >mini.yaml
    "$Q" run mini.yaml --against baseline --out mini.h5 -q
    [ -s mini.html ]
}

@test "a suite that is not there is one line, from any folder" {
    fails_with 4 "no file and no suite 'smoek'; did you mean 'smoke'?" run smoek
    QUALM=$Q fails_with 4 "no file and no suite 'smoek'; did you mean 'smoke'?" run smoek
}

@test "QUALM_SHARE names another folder of files" {
    mkdir -p "$BATS_TEST_TMPDIR/share/experiments/suites"
    cp "$ROOT/experiments/suites/smoke.yaml" "$BATS_TEST_TMPDIR/share/experiments/suites/mine.yaml"
    run -0 env QUALM_SHARE="$BATS_TEST_TMPDIR/share" "$Q" list suites --names
    [ "$output" = mine ]
    QUALM_SHARE=/nonexistent QUALM=$Q fails_with 2 "QUALM_SHARE: '/nonexistent' is not a folder" \
        list suites
    run -0 --separate-stderr env QUALM_SHARE="$BATS_TEST_TMPDIR" "$Q" list suites --names
    [[ "$stderr" == *"has no folder experiments: files that ship with the program are taken "* ]]
}

@test "headers, data, scripts, completion and manual pages are installed" {
    for f in include/qualm/kernel_abi.h share/qualm/results/baseline.h5 \
        share/qualm/plots/figures/block_size.py share/qualm/experiments/suites/claims/collapse.yaml \
        share/qualm/variants/native/adamw4_ao.c share/bash-completion/completions/qualm; do
        [ -s "$D/usr/$f" ] || { echo "no $f"; return 1; }
    done
    cc -fsyntax-only -x c - <<<"#include \"$D/usr/include/qualm/kernel_abi.h\""
    command -v help2man >/dev/null || skip "no help2man (Debian's package help2man)"
    for c in $("$Q" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p'); do
        grep -q "qualm-$c" "$D/usr/share/man/man1/qualm-$c.1" || { echo "no page of $c"; return 1; }
    done
}

@test "an installed plot script draws an installed program's results" {
    long 4
    mkdir -p results
    "$Q" run theory --size small --out results/theory.h5 -q
    "$PYTHON" "$D/usr/share/qualm/plots/figures/block_size.py" --results results --out out
    [ -s out/block_size.png ]
}

@test "every file that an installed text links to is installed" {
    "$PYTHON" - "$D/usr/share/qualm" <<'P'
import glob, os, re, sys
texts = glob.glob(sys.argv[1] + "/**/*.md", recursive=True)
links = [(t, os.path.join(os.path.dirname(t), m)) for t in texts
         for m in re.findall(r"\]\(([^)#:]+)[)#]", open(t, encoding="utf-8").read())]
assert len(texts) > 20 and len(links) > 60, (len(texts), len(links))
dead = [(t, f) for t, f in links if not os.path.exists(f)]
assert not dead, dead
P
}

@test "commands that installed texts name are there, and make is said to be the tree's" {
    grep -q 'whose `make` is the source tree' "$D/usr/share/qualm/README.md"
    "$PYTHON" - "$D/usr/share/qualm" "$Q" "$ROOT/Makefile" <<'P'
import glob, re, subprocess, sys
texts = glob.glob(sys.argv[1] + "/**/*.md", recursive=True)
targets = set(re.findall(r"^([a-z][\w-]*(?: [a-z][\w-]*)*):", open(sys.argv[3]).read(), re.M))
targets = {t for line in targets for t in line.split()}
help_of = {}
def options(command):
    if command not in help_of:
        r = subprocess.run([sys.argv[2]] + command.split() + ["--help"], capture_output=True,
                           text=True)
        help_of[command] = r.stdout if r.returncode == 0 else None
    return help_of[command]
commands = set(re.findall(r"^  ([a-z-]+) ", options("").split("Commands:")[1], re.M))
assert len(commands) > 20 and len(targets) > 20
bad, seen = [], 0
for t in texts:
    for line in open(t, encoding="utf-8"):
        for quoted in re.findall(r"`([^`]+)`", line) + ([line] if line.startswith("    ") else []):
            for command, rest in re.findall(r"(?:^|\s)\.?/?qualm ([a-z-]+)([^|;&#)]*)", quoted):
                seen += 1
                if command not in commands:
                    bad.append((t, "qualm " + command))
                    continue
                bad += [(t, command, o) for o in re.findall(r"(?<=\s)--[a-z-]+", rest)
                        if o not in options(command)]
            made = re.findall(r"(?:^\s*|&& )make ([a-z][a-z-]*)(?=\s|$)", quoted)
            bad += [(t, "make " + m) for m in made if m not in targets]
assert seen > 100, seen
assert not bad, bad
P
}

@test "an installed text that has golden vectors replayed says that the source tree has them" {
    [ ! -e "$D/usr/share/qualm/tests/golden/adamw.h5" ]
    "$Q" conform --help >help.md
    texts=$(grep -rl --include='*.md' 'tests/golden/\*\.h5' "$D/usr/share/qualm" help.md)
    [ "$(wc -l <<<"$texts")" -ge 5 ]
    [ -z "$(xargs grep -L 'source tree' <<<"$texts")" ] ||
        { xargs grep -L 'source tree' <<<"$texts"; false; }
}

@test "uninstall leaves nothing" {
    make -C "$ROOT" uninstall DESTDIR="$D" PREFIX=/usr >/dev/null
    [ -z "$(find "$D" -type f)" ]
}

@test "a prefix of odd characters; an older install's files go, a user's stay" {
    long 3
    mkdir "$BATS_TEST_TMPDIR/a"
    echo precious >"$BATS_TEST_TMPDIR/a/file"
    place="$BATS_TEST_TMPDIR/a [b] \\\\c *"
    make -C "$ROOT" install DESTDIR= PREFIX="$place" >/dev/null
    share=$place/share/qualm
    "$place/bin/qualm" list suites --names | grep -qx smoke
    echo old >"$share/experiments/suites/dropped.yaml"
    echo share/qualm/experiments/suites/dropped.yaml >>"$share/MANIFEST"
    cp "$share/experiments/suites/smoke.yaml" "$share/experiments/suites/own.yaml"
    make -C "$ROOT" install DESTDIR= PREFIX="$place" >/dev/null
    [ ! -e "$share/experiments/suites/dropped.yaml" ]
    [ -e "$share/experiments/suites/smoke.yaml" ]
    "$place/bin/qualm" list suites --names | grep -qx own
    "$place/bin/qualm" run rank1 --size small --out "$BATS_TEST_TMPDIR/rank1.h5" -q
    make -C "$ROOT" uninstall DESTDIR= PREFIX="$place" >/dev/null
    [ "$(find "$place" -type f)" = "$share/experiments/suites/own.yaml" ]
    run make -C "$ROOT" uninstall DESTDIR= PREFIX="$place"
    [ "$status" -ne 0 ]
    [[ $output == *"no list of installed files"* ]]
    [ "$(cat "$BATS_TEST_TMPDIR/a/file")" = precious ]
}

@test "make man quotes the folder and the names of its pages" {
    command -v help2man >/dev/null || skip "no help2man (Debian's package help2man)"
    run make -n -C "$ROOT" man MAN="$BATS_TEST_TMPDIR"
    [[ $output == *'"%s/%s"'*'"$PWD"'* ]]
}

@test "an empty folder of suites in the current folder hides nothing" {
    mkdir -p experiments/suites
    [ "$("$ROOT/qualm" list suites --names | wc -l)" -gt 20 ]
}

@test "make dist packs a tree that knows its version and commit without git" {
    long 4
    command -v xz >/dev/null || skip "no xz (Debian's package xz-utils)"
    git -C "$ROOT" rev-parse HEAD >/dev/null 2>&1 || skip "this tree is not a git clone"
    XZ_OPT=-0 make -C "$ROOT" dist >/dev/null
    tar -xJf "$ROOT"/build/qualm-*.tar.xz -C "$BATS_TEST_TMPDIR"
    cd "$BATS_TEST_TMPDIR"/qualm-*
    [ "$(cat .commit)" = "$(git -C "$ROOT" describe --always --abbrev=12 --exclude='*')" ]
    [ -f Makefile ] && [ -f tests/run.sh ] && [ -f core/README.md ]
    make -n qualm INSTALL=0 | grep -q "QM_COMMIT='\"$(cat .commit)\"'"
}
