#!/bin/sh
# Print the make targets that test.sh needs for a lane and a pattern.
# usage: test-needs.sh BUILD LANE PATTERN [SIM]      LANE: as for test-lane.sh; SIM: the target of the simulated GPU
set -eu
cd "$(dirname "$0")/.."
build=$1 lane=${2:-all} pattern=$3 sim=${4:-}
targets="program $build/accelhost-far.so $build/accelhost-old.so $build/without_calls $build/plugin-headers"

# A pattern that is in no path selects sentences of any spec.
scripts/test-lane.sh all | grep -qF -- "$pattern" || pattern=
matching=$(scripts/test-lane.sh "$lane" | grep -F -- "$pattern") || true

case $lane in
all | unit)
    if [ -z "$pattern" ] || grep -qF -- "$pattern" spec/host/*.c; then targets="$targets $build/selftest"; fi
    ;;
esac
simulated='spec\.support\.(sim|cards)\b|accelhost-cuda'
case $lane:$pattern in
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
