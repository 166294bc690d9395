#!/bin/sh
# Run checks.sh from a checkout, with the first available of: an existing build, a build with the system's packages, the
# bundle of make gpu-bundle.
# usage: here.sh [RESULTS]
set -eu
cd "$(dirname "$0")/../.."
results=${1:-${OUT:-results}}
mkdir -p "$results"
results=$(cd "$results" && pwd)
runs() { "$1/accelhost" --version >/dev/null 2>&1 && [ -f "$1/accelhost-cuda.so" ]; }

if ! runs build && command -v make >/dev/null; then
    if timeout 60 scripts/install-deps.sh build test >"$results/install.log" 2>&1; then
        timeout 400 make -j"$(nproc)" all >"$results/make.log" 2>&1 || tail -n 3 "$results/make.log"
    else
        echo "the system's packages cannot be had: $(tail -n 1 "$results/install.log")"
    fi
fi
if runs build && { [ -d /usr/share/lua/5.1/busted ] || [ -d /usr/local/share/lua/5.1/busted ]; }; then
    exec scripts/gpu/checks.sh build "$results"
fi
for bundle in build-gpu/bundle bundle ../bundle; do
    [ ! -x $bundle/gpu-checks ] || OUT=$results exec $bundle/gpu-checks
done
echo "gpu-checks: no build, no packages to make one, and no bundle (make gpu-bundle makes one elsewhere)" >&2
exit 1
