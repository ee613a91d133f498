#!/usr/bin/env bats
# options.bats - Options that contradict each other, that another one needs, and whole numbers.

load ../../support/cli_common

@test "options that have no effect together are refused, and the line names both" {
    cd "$BATS_TEST_TMPDIR"
    alone() { fails_with 2 "$1 and takes no $2" "${@:3}"; }
    alone "convert runs no step" --steps state convert a.h5 b.h5 --steps 7
    alone "show prints what a file holds" --recipe state show a.h5 -R adamw4_ao
    alone "make reads no file" --as state make a.h5 -R adamw4_ao -S 4 --as adamw_f32
    alone "step goes on by the file's own seed" --seed state step a.h5 b.h5 --seed 2
    alone "--search looks for inputs of its own" --specials check adamw4_ao --specials --search
    alone "--specials has cases of its own" --case check adamw4_ao --specials --case 1x40/unit
    alone "--list-cases prints cases" --search check --list-cases --search
    alone "--case judges one case" --draws check adamw4_ao --case 1x40/unit --draws 3
    alone "--list draws nothing" --out plot a.h5 --list -o x.png
    alone "--list draws nothing" --what plot a.h5 --list --what points
    alone "--list judges nothing" --runs mutate --list --runs 5
    alone "--export writes one kernel" --list mutate --export x --list
    alone "--full prints every metric" --metrics analyze a.h5 --full -m sqnr
    fails_with 2 "--seed has no effect" analyze a.h5 -Q nf4:4s/block:64/bisect/mid/hi --seed 3
    "$QUALM" check adamw4_ao --list-cases --draws 2 --quick | grep -q / # both are listed
}

@test "an option that needs --kernel is named as it was given; numbers are whole and decimal" {
    for words in "--memory-limit 100" "--time-limit 3" "--as adamw4_ao" "--allow-refused 3"; do
        fails_with 2 "${words%% *} needs --kernel FILE" check adamw4_ao $words
    done
    for number in 0x10 1.5 " 3" +3 1e3 99999999999999999999; do
        fails_with 2 "--allow-refused is '$number'" check --kernel k.c --allow-refused "$number"
        fails_with 2 "--intervals is '$number'" prove bisect --map nf4 --intervals "$number"
        fails_with 2 "--threads is '$number'" run smoke --threads "$number"
        for command in "check adamw4_ao" "shrink --kernel k.c" "analyze a.h5" mutate gen \
            "state make"; do
            # shellcheck disable=SC2086
            fails_with 2 "--seed is '$number', expected a whole number from" \
                $command --seed "$number"
        done
    done
}
