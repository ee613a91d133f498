#!/usr/bin/env bats
# ci.bats - Runs the steps of judge-kernel.yml locally, and builds the Containerfile where it can.

load ../../support/cli_common

setup() { dir=$(mktemp -d); }

teardown() { rm -rf "$dir"; }

# step NAME: the shell lines of a step of the workflow
step() {
    "$PYTHON" - "$ROOT/tests/examples/ci/judge-kernel.yml" "$1" <<'P'
import re, sys
text = open(sys.argv[1], encoding="utf-8").read()
found = re.search(r"- name: %s\n +run: \|\n((?:          .*\n)+)" % re.escape(sys.argv[2]), text)
print(re.sub(r"(?m)^          ", "", found[1]), end="")
P
}

@test "the GitHub Action: its step judges a right kernel, and fails with a wrong one" {
    long 4
    mkdir "$dir/qualm"
    # stands for the step before it, which clones and builds
    ln -s "$QUALM" "$dir/qualm/qualm"
    [[ $(step "build qualm") == *"make -C qualm qualm"* ]]
    cd "$dir"
    export KERNEL=kernel.c
    "$QUALM" check --template adamw4_ao >kernel.c
    step judge >judge.sh
    bash -e judge.sh
    "$PYTHON" - <<'P'
import xml.etree.ElementTree as E
cases = list(E.parse("judged.xml").iter("testcase"))
assert len(cases) > 10 and not any(c.find("failure") is not None for c in cases)
P
    sed -i 's/y - value\[k\] >=/y - value[k] >/' kernel.c
    run -1 bash -e judge.sh
    grep -q "<failure" judged.xml
}

@test "the Action is YAML that names a runner, a trigger and an artifact" {
    "$PYTHON" -c "import yaml" 2>/dev/null || skip "no python3-yaml"
    "$PYTHON" - "$ROOT/tests/examples/ci/judge-kernel.yml" <<'P'
import sys, yaml
job = yaml.safe_load(open(sys.argv[1]))["jobs"]["judge"]
assert job["runs-on"] and [s for s in job["steps"] if s.get("with", {}).get("path") == "judged.xml"]
P
}

@test "the Containerfile builds, and its qualm runs" {
    for engine in podman docker; do
        command -v $engine >/dev/null && $engine info >/dev/null 2>&1 && break
        engine=
    done
    [ -n "$engine" ] || skip "no podman, and no docker with a daemon"
    $engine pull -q debian:12-slim >/dev/null 2>&1 || skip "$engine cannot fetch debian:12-slim"
    $engine build -q -f "$ROOT/Containerfile" -t qualm-test "$ROOT" >/dev/null
    run -0 $engine run --rm qualm-test list variants
    [[ $output == *adamw4_ao* ]]
}

@test "the bootstrap names packages that Debian 12, Ubuntu 22.04 and Ubuntu 24.04 all have" {
    # what make would install, without installing it
    run make -C "$ROOT" setup INSTALL=0
    [ "$status" -eq 0 ] || [[ $output == *"missing Debian or Ubuntu packages:"* ]]
    [[ $(cat "$ROOT/Containerfile") == *"make setup && make qualm"* ]]
}
