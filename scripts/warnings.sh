#!/bin/sh
# Run a compiler and keep the warnings that it prints in FILE, which `make check` reports; FILE is absent without any.
# usage: warnings.sh FILE COMMAND...
set -u
file=$1
shift
"$@" 2>"$file"
code=$?
[ ! -s "$file" ] || cat "$file" >&2
if [ $code != 0 ] || [ ! -s "$file" ]; then rm -f "$file"; fi
exit $code
