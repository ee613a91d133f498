#!/bin/sh
# bundle.sh - The program of a bundle (make bundle): starts qualm.bin, or says in one line what the
# system lacks for it: a glibc as new, or /proc, by which the loader finds the bundle's libraries.
fail() {
    echo "qualm: $*" >&2
    exit 3
}
self=$0
if [ -L "$self" ]; then
    command -v readlink >/dev/null || fail "$self is a link, and there is no readlink in PATH:" \
        "start the file that it points to"
    self=$(readlink -f "$self")
fi
case $self in
*/*) here=${self%/*} ;;
*) here=. ;;
esac
[ -x "$here/qualm.bin" ] || fail "there is no $here/qualm.bin beside this script"
[ -e /proc/self/exe ] || fail "/proc is not mounted: without it the bundle's libraries are not" \
    "found, and no process can be watched"
have=$(getconf GNU_LIBC_VERSION 2>/dev/null) # without getconf the loader says what it lacks
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
