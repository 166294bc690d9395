#!/bin/sh
# The specs of devices on the card within a time, one process a file, several at once; the most important ones first.
# usage: specs.sh BUILD SECONDS FOLDER [PATH...]    FOLDER: gets a log of each file; PATH: which specs, default all
# The last line: "N passed, N failed, N skipped, N files not ended". The environment defines the device "cuda".
set -eu
cd "$(dirname "$0")/../.."
build=$1 seconds=$2 folder=$3
shift 3
mkdir -p "$folder"
end=$(($(date +%s) + seconds))
ACCELHOST_BINARY=$(cd "$build" && pwd)/accelhost
export ACCELHOST_BINARY ACCELHOST_TEST_DEVICE=cuda ACCELHOST_CUDA_ALLOCATOR=poison ACCELHOST_CUDA_CHECKS=now
export OMP_NUM_THREADS=2
jobs=$((($(nproc) + 1) / 2))
[ "$jobs" -le 6 ] || jobs=6
# shellcheck disable=SC2016
scripts/device-specs.sh cuda "$@" | xargs -P "$jobs" -I FILE sh -c '
    rest=$(($1 - $(date +%s)))
    log=$2/$(echo FILE | tr / - | sed "s/_spec.lua$//")
    [ "$rest" -gt 2 ] || { touch "$log.left"; exit 0; }
    timeout -k 5 "$rest" "$ACCELHOST_BINARY" run scripts/busted.lua --tally="$log.tally" FILE >"$log.log" 2>&1
    code=$?
    case $code in
    124 | 137) rm -f "$log.tally" && touch "$log.left" ;;
    *) grep -q passed "$log.tally" || {
        echo "FAILED FILE ended with status $code" >>"$log.log"
        echo "0 passed, 1 failed" >"$log.tally"
    } ;;
    esac' sh "$end" "$folder" || true
grep -h '^FAILED' "$folder"/*.log 2>/dev/null || true
left=$(find "$folder" -name '*.left' | wc -l)
cat "$folder"/*.tally 2>/dev/null | awk -v left="$left" '
    { passed += $1; failed += $3; skipped += $5 }
    END { printf "%d passed, %d failed, %d skipped, %d files not ended\n", passed, failed, skipped, left }'
