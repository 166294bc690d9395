#!/bin/sh
# Run a compiler and keep the warnings that it prints in FILE, which `make check` reports; FILE is absent without any.
# usage: warnings.sh FILE COMMAND...
set -u
file=$1
shift
text=$("$@" 2>&1)
code=$?
if [ -n "$text" ]; then
    printf '%s\n' "$text" >&2
    [ $code != 0 ] || printf '%s\n' "$text" >"$file"
fi
if [ -e "$file" ] && { [ $code != 0 ] || [ -z "$text" ]; }; then rm -f "$file"; fi
exit $code
