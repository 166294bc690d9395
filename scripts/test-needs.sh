#!/bin/sh
# Print the make targets that test.sh needs for a suite and a pattern.
# usage: test-needs.sh BUILD SUITE PATTERN [SIM]      SUITE: as for test-suite.sh; SIM: the target of the simulated GPU
set -eu
cd "$(dirname "$0")/.."
build=$1 suite=${2:-all} pattern=$3 sim=${4:-}
targets="program $build/accelhost-far.so $build/accelhost-old.so $build/without_calls $build/large_pages.so
    $build/plugin-headers"

# A pattern that is in no path selects sentences of any spec.
scripts/test-suite.sh all | grep -qF -- "$pattern" || pattern=
matching=$(scripts/test-suite.sh "$suite" | grep -F -- "$pattern") || true

case $suite in
all | unit)
    if [ -z "$pattern" ] || grep -qF -- "$pattern" spec/host/*.c; then targets="$targets $build/selftest"; fi
    ;;
esac
simulated='spec\.support\.(sim|cards)\b|accelhost-cuda'
case $suite:$pattern in
unit:*) ;;
jobs:) targets="$targets $build/accelhost-cuda.so" ;;
all: | devices:) targets="$targets $build/accelhost-cuda.so $sim" ;;
*)
    # shellcheck disable=SC2086
    [ -z "$matching" ] || ! grep -qE "$simulated" $matching /dev/null ||
        targets="$targets $build/accelhost-cuda.so $sim"
    ;;
esac
echo "$targets"
