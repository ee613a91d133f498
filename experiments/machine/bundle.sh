#!/bin/sh
# bundle.sh - The program of a bundle (make bundle): starts qualm.bin, or says in one line that the
# system's glibc is too old for it.
here=$(dirname "$(readlink -f "$0")")
have=$(getconf GNU_LIBC_VERSION 2>/dev/null)
have=${have#glibc }
case $have in
[0-9]*.[0-9]*)
    major=${have%%.*} minor=${have#*.}
    minor=${minor%%.*}
    if [ "$major" -lt @MAJOR@ ] || { [ "$major" -eq @MAJOR@ ] && [ "$minor" -lt @MINOR@ ]; }; then
        echo "qualm: this bundle needs glibc @MAJOR@.@MINOR@ or newer, this system has $have:" \
            "build it here from source (make), or bundle it on a system as old" >&2
        exit 3
    fi
    ;;
esac
exec "$here/qualm.bin" "$@"
