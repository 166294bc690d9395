#!/bin/sh
# Run the specs of devices (scripts/device-specs.sh) on a real card; fails if there is none, or no spec ran.
# usage: test.sh BUILD [pattern]
set -eu
cd "$(dirname "$0")/../.."
build=$1
fail() {
    echo "test-gpu: $1" >&2
    exit 1
}
[ -z "${ACCELHOST_CUDA:-}" ] ||
    fail "ACCELHOST_CUDA=$ACCELHOST_CUDA is no card; make test-sim is for the simulator"
card=$("$build/accelhost" -e 'local C = require("accelhost._C").device
    local missing = C.missing "cuda"
    print(missing and "none: " .. missing or C.describe("cuda", 0))')
case $card in none:*) fail "there is no card to test on: ${card#none: }" ;; esac
echo "$card"
ACCELHOST_TEST_DEVICE=cuda DEVICE_ONLY=1 exec scripts/test.sh "$build" "${2:-}"
