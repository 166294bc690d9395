#!/bin/sh
# Build a commit in addition to the working tree's build and measure both in one run of the bench.
# usage: gate.sh BUILD COMMIT [options of run.lua]
set -eu
cd "$(dirname "$0")/../.."
build=$1 commit=$(git rev-parse --short "$2^{commit}")
shift 2
tree=$build/gate/$commit
if [ ! -x "$tree/build/accelhost" ]; then
    rm -rf "$tree"
    mkdir -p "$tree"
    git archive "$commit" | tar -x -C "$tree"
    make -C "$tree" --no-print-directory NVCC= build/accelhost
fi
make --no-print-directory NVCC= "$build/accelhost"
exec "$build/accelhost" scripts/bench/run.lua --host "$build/accelhost" --against "$tree/build/accelhost" \
    --json "$build/bench-gate.json" "$@"
