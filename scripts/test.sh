#!/bin/sh
# Run the C self-tests and all specs of a build; the last line is "N passed, N failed, N skipped".
# usage: test.sh BUILD [pattern]
#   pattern: part of a spec's path, else of a sentence; self-tests take it as part of a name
#   HOST_FLAGS: options of the host (--jit off); SKIP_SELFTEST=1: specs only; SKIP_SPECS=1: self-tests only;
#   ACCELHOST_TEST_DEVICE: the device on which the specs of tensors run again (far, whose memory the host cannot read)
#   ACCELHOST_TEST_SLOWNESS: how many times as long as usual a program that a spec starts may take
#   DEVICE_ONLY=1: only the specs on that device; a device cuda is the simulated GPU where that was built, on which a
#   part of them runs in any case
#   SPECS: folders instead of spec; EXCLUDE: pattern of spec files to leave out
#   LANE: unit (specs that start no process, and the self-tests), jobs (specs that do) or devices (specs of devices, and
#   the specs of tensors again on the far device and the simulated GPU); default: all (test-lane.sh)
set -u
# Specs interrupt what they start, which ignores that when this runs in the background of a shell.
if [ -z "${SIGNALS_ARE_DEFAULT:-}" ] && env --default-signal=INT true 2>/dev/null; then
    SIGNALS_ARE_DEFAULT=1 exec env --default-signal=INT,QUIT "$0" "$@"
fi
cd "$(dirname "$0")/.." || exit 2
build=$1
pattern=${2:-}
host=$build/accelhost
ACCELHOST_BINARY=$(cd "$build" && pwd)/accelhost
export ACCELHOST_BINARY
# Many processes share few processors here: waiting threads must not spin.
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-1000}"
# A spec that fails on unseeded numbers fails again.
export ACCELHOST_SEED="${ACCELHOST_SEED:-67280421310721}"
results=$(mktemp)
log=$(mktemp)
selflog=$(mktemp)
times=$(mktemp)
lane=${LANE:-all}
unset LANE
# These run beside the rest, from the beginning of the self-tests on: two lanes of about the same length.
beside="spec/parity spec/examples${SIGNALS_ARE_DEFAULT:+ spec/distributed}"
background=
# shellcheck disable=SC2046
trap '[ -z "$background" ] || kill "$background" $(ps -o pid= --ppid "$background")
    rm -f "$results" "$log" "$selflog" "$times"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
passed=0 failed=0 skipped=0
device=${ACCELHOST_TEST_DEVICE:-far}
case ${DEVICE_ONLY:-}:$lane in ?*:* | :jobs | :devices) SKIP_SELFTEST=1 ;; esac
unset ACCELHOST_TEST_DEVICE

# count TEXT: add the numbers of "N passed, N failed[, N skipped]"; fails when TEXT is something else
count() {
    counts=$(echo "$1" | sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed\(, \([0-9]*\) skipped\)\{0,1\}$/\1 \2 \4/p')
    [ -n "$counts" ] || return 1
    # shellcheck disable=SC2086
    set -- $counts
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + ${3:-0}))
}

# run_selftests: their failures, and a line with their counts
run_selftests() {
    # shellcheck disable=SC2086
    "$build/selftest" $pattern >"$selflog" 2>&1
    code=$?
    sed '$d' "$selflog"
    last=$(tail -n 1 "$selflog")
    if ! count "$last"; then
        echo "$last"
        echo "FAILED the self-tests ended with status $code"
        failed=$((failed + 1))
    elif [ $code -ne 0 ] && [ "$failed" = 0 ]; then
        echo "FAILED the self-tests passed but ended with status $code"
        failed=$((failed + 1))
    else
        echo "self-tests: $last"
    fi
}

# run_specs WHAT SPEC...: one run of the host over these files, if there are any; its result is appended to $results
run_specs() {
    what=$1
    shift
    [ $# -gt 0 ] || return 0
    tally=$(mktemp)
    # shellcheck disable=SC2086
    ${polite:-} "$host" run ${HOST_FLAGS:-} scripts/busted.lua --tally="$tally" --times="$times" ${filter:+"$filter"} \
        ${EXCLUDE:+"--exclude-pattern=$EXCLUDE"} "$@"
    echo "$?|$(cat "$tally")|$what" >>"$results"
    rm -f "$tally"
}

# What a kernel leaves unwritten, or finds out of range, is to show.
strictly() {
    export ACCELHOST_CUDA_ALLOCATOR=poison ACCELHOST_CUDA_CHECKS=now
}

# run_on_devices SPEC...: those of them that run on the test device, and a minute of them on the simulated GPU
run_on_devices() {
    far=$(scripts/device-specs.sh "$device" "$@")
    if [ -n "$far" ]; then
        echo "again on device $device:"
        # shellcheck disable=SC2086
        (
            export ACCELHOST_TEST_DEVICE="$device"
            strictly
            run_specs "the specs on device $device" $far
        )
    fi
    some=$(scripts/device-specs.sh some "$@")
    if [ -n "$some" ] && [ "$device" = far ] && [ -f "$build/accelhost-cudasim.so" ]; then
        echo "again on the simulated GPU:"
        # shellcheck disable=SC2086
        (
            export ACCELHOST_TEST_DEVICE=cuda ACCELHOST_CUDA=sim
            strictly
            run_specs "the specs on the simulated GPU" $some
        )
    fi
}

# run_background SPEC...: what runs beside the specs of run_foreground, or beside the self-tests. A shell ignores
# interrupts in what it runs in the background; specs need them.
run_background() {
    polite="${SIGNALS_ARE_DEFAULT:+env --default-signal=INT,QUIT}"
    case $lane in
    unit) run_specs "the specs" "$@" ;;
    all | jobs)
        for folder in $beside; do
            # shellcheck disable=SC2046
            run_specs "$folder" $(printf '%s\n' "$@" | grep "^$folder/")
        done
        ;;
    esac
    # shellcheck disable=SC2086
    case $lane in all | devices) run_on_devices $every ;; esac
}

# run_foreground SPEC...: the specs of the lane that run_background leaves
run_foreground() {
    [ "$lane" != unit ] || return 0
    rest=$(printf '%s\n' "$@")
    for folder in $beside; do rest=$(echo "$rest" | grep -v "^$folder/"); done
    # shellcheck disable=SC2086
    run_specs "the specs" $rest
}

# count_specs STATUS TALLY WHAT: what a run gave
count_specs() {
    before=$failed
    if ! count "$2"; then
        echo "FAILED $3 ended with status $1 while ${2:-it began}"
        failed=$((failed + 1))
    elif [ "$1" -ne 0 ] && [ "$failed" = "$before" ]; then
        echo "FAILED $3 passed but ended with status $1"
        failed=$((failed + 1))
    fi
}

if [ -z "${SKIP_SPECS:-}" ]; then
    filter=''
    # shellcheck disable=SC2086
    every=$(scripts/test-lane.sh all ${SPECS:-spec}) specs=$(scripts/test-lane.sh "$lane" ${SPECS:-spec})
    # shellcheck disable=SC2086
    if [ -n "$pattern" ] && echo "$every" | grep -qF -- "$pattern"; then
        # test-needs.sh builds the self-tests for the same patterns.
        grep -qF -- "$pattern" spec/host/*.c || SKIP_SELFTEST=1
        every=$(echo "$every" | grep -F -- "$pattern")
        specs=$(echo "$specs" | grep -F -- "$pattern")
    elif [ -n "$pattern" ]; then
        filter="--filter=$pattern"
    elif [ -z "${SPECS:-}" ] && [ -z "${DEVICE_ONLY:-}" ]; then
        run_background $specs >"$log" 2>&1 &
        background=$!
    fi
    [ -n "${SKIP_SELFTEST:-}" ] || run_selftests
    # shellcheck disable=SC2086
    if [ -n "$background" ]; then
        run_foreground $specs
        wait "$background"
        background=
        cat "$log"
    else
        [ -n "${DEVICE_ONLY:-}" ] || run_specs "the specs" $specs
        case $lane in all | devices) run_on_devices $every ;; esac
    fi
    while IFS='|' read -r code said what; do count_specs "$code" "$said" "$what"; done <"$results"
elif [ -z "${SKIP_SELFTEST:-}" ]; then
    run_selftests
fi

if [ $((passed + failed + skipped)) = 0 ]; then
    echo "FAILED no test matches '$pattern'"
    failed=1
fi
if [ -n "${DEVICE_ONLY:-}" ] && [ "$passed" = 0 ]; then
    echo "FAILED nothing passed on device $device, so nothing was tried there"
    failed=$((failed + 1))
fi
if [ "$(wc -l <"$times")" -gt 1 ]; then
    echo "the slowest spec files, in seconds:"
    LC_ALL=C sort -rn "$times" | head -n 10
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
