#!/bin/sh
# Run the C self-tests and all specs of a build; the last line is "N passed, N failed, N skipped".
# usage: test.sh BUILD [pattern]
#   pattern: part of a spec's path, else of a sentence; for self-tests it is part of a name
#   TEST_JOBS: number of processes that run specs at once; default: two more than there are processors, at most 8, since
#   many specs wait
#   HOST_FLAGS: options of the host (--jit off); SKIP_SELFTEST=1: specs only; SKIP_SPECS=1: self-tests only;
#   ACCELHOST_TEST_DEVICE: the device on which the specs of tensors run again (far, whose memory the host cannot read)
#   ACCELHOST_TEST_SLOWNESS: factor on the usual time limit of a program that a spec starts
#   DEVICE_ONLY=1: only the specs on that device, in one process; a device cuda is the simulated GPU where that was
#   built, on which a part of them runs in any case
#   SPECS: folders instead of spec; EXCLUDE: pattern of spec files to leave out; LEAVE_OUT: names of self-tests to leave
#   out, separated by blanks
#   SUITE: unit (specs that start no process, and the self-tests), jobs (specs that do) or devices (specs of devices,
#   and the specs of tensors again on the far device and the simulated GPU); default: all (test-suite.sh)
set -u
# Specs interrupt their child processes, which ignore that when this runs in the background of a shell.
if [ -z "${SIGNALS_ARE_DEFAULT:-}" ] && env --default-signal=INT true 2>/dev/null; then
    SIGNALS_ARE_DEFAULT=1 exec env --default-signal=INT,QUIT "$0" "$@"
fi
cd "$(dirname "$0")/.." || exit 2
build=$1
PATTERN=${2:-} FILTER=
ACCELHOST_BINARY=$(cd "$build" && pwd)/accelhost
export ACCELHOST_BINARY PATTERN FILTER
# A spec that fails on unseeded numbers fails again.
export ACCELHOST_SEED="${ACCELHOST_SEED:-67280421310721}"
suite=${SUITE:-all}
unset SUITE
passed=0 failed=0 skipped=0
device=${ACCELHOST_TEST_DEVICE:-far}
unset ACCELHOST_TEST_DEVICE
case ${DEVICE_ONLY:-}:$suite in ?*:* | :jobs | :devices) SKIP_SELFTEST=1 ;; esac
workers=${TEST_JOBS:-$(($(nproc) + 2))}
[ -n "${TEST_JOBS:-}" ] || [ "$workers" -le 8 ] || workers=8
folder=$(mktemp -d)
touch "$folder/results" "$folder/times"
pool=

# end_tree PROCESS: end it and all its descendants, itself first, so that it starts no more of them
end_tree() {
    children=$(ps -o pid= --ppid "$1")
    kill "$1" 2>/dev/null
    for child in $children; do end_tree "$child"; done
}
trap '[ -z "$pool" ] || end_tree "$pool"; rm -rf "$folder"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The longest jobs, of 10 to 60 seconds, which begin first.
longest='examples/smoke parity/parity distributed/elastic device/cuda_nccl distributed/sharding distributed/launch
    distributed/machines models/encoders jupyter/protocol distributed/recover cli/repl jupyter/jupyter cli/gpu_scripts
    distributed/processes device/cuda_attention_wide cli/order memory/steady distributed/hosts_cases cli/install
    surface/arguments cli/help distributed/hosts_training device/cuda_sharding'

# in_batches DEVICE SIZE: of the spec files on stdin, lines of DEVICE and SIZE of them
in_batches() { xargs -r -n "$2" echo "$1"; }

# plan_specs SPEC...: the longest of these specs, then those that start no process
plan_specs() {
    printf '%s\n' "$@" >"$folder/specs"
    for name in $longest; do echo "spec/${name}_spec.lua"; done | grep -xFf "$folder/specs" >"$folder/first"
    in_batches cpu 1 <"$folder/first"
    scripts/test-suite.sh unit "$@" >"$folder/unit"
    grep -vxFf "$folder/first" "$folder/unit" | in_batches cpu 25
}

# plan_others: the other specs. A runner starts in 0.1 s: up to three are a job where there are many for each worker.
# Specs of devices, whose files leave contexts of devices behind, are separate jobs.
plan_others() {
    cat "$folder/first" "$folder/unit" | grep -vxFf - "$folder/specs" >"$folder/others"
    each=$(($(wc -l <"$folder/others") / workers / 10))
    [ "$each" -ge 1 ] || each=1
    [ "$each" -le 3 ] || each=3
    grep '^spec/device/' "$folder/others" | in_batches cpu 1
    grep -v '^spec/device/' "$folder/others" | in_batches cpu "$each"
}

# plan_devices SPEC...: jobs of those that run on the test device, and of a minute of them on the simulated GPU
plan_devices() {
    scripts/device-specs.sh "$device" "$@" | in_batches "$device" "$([ -n "${DEVICE_ONLY:-}" ] && echo 1000 || echo 25)"
    if [ "$device" = far ] && [ -f "$build/accelhost-cudasim.so" ]; then
        scripts/device-specs.sh some "$@" | in_batches cuda 25
    fi
}

# plan: the jobs of this run, one a line: the arguments of test-job.sh from DEVICE on. The longest begin first, so that
# no processor is idle at the end.
plan() {
    [ -n "${SKIP_SELFTEST:-}" ] || echo self-tests
    [ -z "${SKIP_SPECS:-}" ] || return 0
    with_specs=
    [ -z "$specs" ] || [ -n "${DEVICE_ONLY:-}" ] || with_specs=yes
    # shellcheck disable=SC2086
    [ -z "$with_specs" ] || plan_specs $specs
    # shellcheck disable=SC2086
    case $suite in all | devices) [ -z "$every" ] || plan_devices $every ;; esac
    [ -z "$with_specs" ] || plan_others
}

# count TEXT: add the numbers of "N passed, N failed[, N skipped]"; fails when TEXT is something else
count() {
    counts=$(echo "$1" | sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed\(, \([0-9]*\) skipped\)\{0,1\}$/\1 \2 \4/p')
    [ -n "$counts" ] || return 1
    # shellcheck disable=SC2086
    set -- $counts
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + ${3:-0}))
}

# count_job STATUS COUNTS NAME: add the result of a job
count_job() {
    before=$failed
    if ! count "$2"; then
        echo "FAILED $3 ended with status $1 while ${2:-it began}"
        failed=$((failed + 1))
    elif [ "$1" -ne 0 ] && [ "$failed" = "$before" ]; then
        echo "FAILED $3 passed but ended with status $1"
        failed=$((failed + 1))
    fi
}

# shellcheck disable=SC2086
every=$(scripts/test-suite.sh all ${SPECS:-spec}) specs=$(scripts/test-suite.sh "$suite" ${SPECS:-spec})
if [ -n "${EXCLUDE:-}" ]; then
    every=$(echo "$every" | grep -v -- "$EXCLUDE") specs=$(echo "$specs" | grep -v -- "$EXCLUDE")
fi
if [ -n "$PATTERN" ] && echo "$every" | grep -qF -- "$PATTERN"; then
    # test-needs.sh builds the self-tests for the same patterns.
    grep -qF -- "$PATTERN" spec/host/*.c || SKIP_SELFTEST=1
    every=$(echo "$every" | grep -F -- "$PATTERN")
    specs=$(echo "$specs" | grep -F -- "$PATTERN")
elif [ -n "$PATTERN" ]; then
    FILTER=$PATTERN
fi
[ "$device" != far ] || export SIMULATE=1
plan >"$folder/plan"
# A shell ignores interrupts in background processes; specs need them.
if [ -n "${SIGNALS_ARE_DEFAULT:-}" ]; then
    env --default-signal=INT,QUIT xargs -P "$workers" -L 1 scripts/test-job.sh "$build" "$folder" <"$folder/plan" &
    pool=$!
    wait "$pool"
    pool=
else
    xargs -P "$workers" -L 1 scripts/test-job.sh "$build" "$folder" <"$folder/plan"
fi
while IFS='|' read -r code counts name; do count_job "$code" "$counts" "$name"; done <"$folder/results"
if [ "$(wc -l <"$folder/results")" != "$(wc -l <"$folder/plan")" ]; then
    echo "FAILED $(wc -l <"$folder/plan") jobs were planned, and $(wc -l <"$folder/results") ended"
    failed=$((failed + 1))
fi
if [ $((passed + failed + skipped)) = 0 ]; then
    echo "FAILED no test matches '$PATTERN'"
    failed=1
fi
if [ -n "${DEVICE_ONLY:-}" ] && [ "$passed" = 0 ]; then
    echo "FAILED nothing passed on device $device, so nothing was tried there"
    failed=$((failed + 1))
fi
if [ "$(wc -l <"$folder/times")" -gt 1 ]; then
    echo "the slowest spec files, in seconds, and their CPU seconds:"
    LC_ALL=C sort -rn "$folder/times" | head -n 10
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
