#!/usr/bin/env bats
# damage.bats - Tests that damaged, grown or unproven files are refused or remarked in one line.

load ../../support/cli_common

setup() { dir=$(mktemp -d); cd "$dir"; }

teardown() { rm -rf "$dir"; }

# one_line CODE TEXT COMMAND...: as fails_with, and stderr is one line; 10 s and 1 GiB are enough
one_line() {
    local code=$1 text=$2 status=0
    shift 2
    (ulimit -v 8388608 && exec timeout 10 "$QUALM" "$@") >out 2>err || status=$?
    if [ "$status" -ne "$code" ] || [ "$(wc -l <err)" -ne 1 ] || ! grep -qF -- "$text" err; then
        echo "qualm $*: exit code $status, expected $code and one line with: $text"
        cat err
        return 1
    fi
}

# campaign: makes c.run, whose cells are done
campaign() {
    printf '%s\n' 'variant: adamw4_ao' 'source: dist:gauss' 'n: 1024' 'seed: 1..6' >c.yaml
    "$QUALM" run -q -k -w 1 -o c.h5 c.yaml
    mv c.h5 whole.h5
}

@test "a sparse giant in a campaign's folder is refused at once" {
    campaign
    for file in 1of1.jsonl suite.yaml 1of1.0001.h5 campaign.json; do
        cp -r c.run s.run
        truncate -s 60G "s.run/$file"
        one_line 3 "s.run/$file: is damaged" merge s.run -o s.h5
        case $file in
        1of1.jsonl | campaign.json) one_line 3 "$file: is damaged" status s.run ;;
        *) "$QUALM" status s.run >out ;; # reads neither
        esac
        case $file in
        1of1.0001.h5) # its cells are run again
            timeout 20 "$QUALM" run -o s.h5 s.run >out 2>err
            grep -q "6 cells are run again" err
            [ "$("$QUALM" digest s.h5 | cut -c1-64)" = "$("$QUALM" digest whole.h5 | cut -c1-64)" ]
            ;;
        *) one_line 3 "$file: is damaged" run -q -o s.h5 s.run ;;
        esac
        rm -rf s.run s.h5
    done
}

@test "merge says that it healed a damaged ledger" {
    campaign
    "$QUALM" merge c.run -o a.h5 2>err >out
    ! grep -q damaged err
    sed -i '3s/"ok"/"oK"/' c.run/1of1.jsonl
    "$QUALM" merge c.run -o b.h5 2>err >out
    grep -q "1 damaged lines in the ledgers: 1 cells were read back from their segments$" err
    [ "$("$QUALM" digest a.h5 | cut -c1-64)" = "$("$QUALM" digest b.h5 | cut -c1-64)" ]
}
