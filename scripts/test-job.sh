#!/bin/sh
# Run the self-tests, or spec files in one process; print their output in one piece and append a line with the result,
# STATUS|COUNTS|NAME, to FOLDER/results.
# usage: test-job.sh BUILD FOLDER DEVICE [SPEC...]
#   DEVICE: self-tests, cpu, or the default device of the specs' tensors; SIMULATE=1: cuda is the simulated GPU
#   PATTERN: part of the names of self-tests; FILTER: part of sentences; HOST_FLAGS: options of the host
set -u
build=$1 folder=$2 device=$3
shift 3
log=$(mktemp "$folder/log.XXXXXX")

# Print the log while no other job prints; `flock` is missing on few systems, where lines may mix.
print_log() {
    if command -v flock >/dev/null; then flock "$folder" cat "$log"; else cat "$log"; fi
    rm -f "$log"
}

if [ "$device" = self-tests ]; then
    # shellcheck disable=SC2086
    "$build/selftest" ${PATTERN:-} >"$log" 2>&1
    code=$?
    counts=$(tail -n 1 "$log")
    sed -i "\$s/^\([0-9]* passed\)/self-tests: \1/" "$log"
    echo "$code|$counts|the self-tests" >>"$folder/results"
    print_log
    exit 0
fi

name=$1
[ $# -eq 1 ] || name="the specs $1 to $(eval "echo \${$#}")"
if [ "$device" != cpu ]; then
    # Show elements that a kernel leaves unwritten, or finds out of range.
    export ACCELHOST_TEST_DEVICE="$device" ACCELHOST_CUDA_ALLOCATOR=poison ACCELHOST_CUDA_CHECKS=now
    [ "$device" != cuda ] || [ -z "${SIMULATE:-}" ] || export ACCELHOST_CUDA=sim
    name="$name on device $device"
fi
# shellcheck disable=SC2086
"$build/accelhost" run ${HOST_FLAGS:-} scripts/busted.lua --tally="$log.tally" --times="$folder/times" \
    ${FILTER:+"--filter=$FILTER"} "$@" >"$log" 2>&1
code=$?
echo "$code|$(cat "$log.tally")|$name" >>"$folder/results"
rm -f "$log.tally"
print_log
