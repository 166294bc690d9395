#!/bin/sh
# Run the programs of spec/faults, each of which makes faults on purpose, counts how the runs ended and exits 0 when all
# ended as they should. usage: faults.sh BUILD [pattern [folder]]; N=: number of faults of a program (its own default
# without)
set -u
cd "$(dirname "$0")/.." || exit 2
build=$1 pattern=${2:-} folder=${3:-spec/faults}
host=$build/accelhost
ACCELHOST_BINARY=$(cd "$build" && pwd)/accelhost
export ACCELHOST_BINARY N
: "${N:=}"
failed=0 passed=0

for program in "$folder"/*.lua; do
    name=$(basename "$program" .lua)
    case $name in *"$pattern"*) ;; *) continue ;; esac
    echo "== $name"
    if "$host" "$program"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
