#!/bin/sh
# The rows of results/sharding.md: the GPT of sharding.lua with every `sharding`, in turn, in 4 and in 2 processes.
#
# usage: sharding.sh [ROUNDS [STEPS]]       ACCELHOST_BINARY: another program than build/accelhost; SMALL=1: a small GPT
#
# A line for each: the median over the rounds of the largest process's peak (MiB) and of its processor time of a step
# (seconds).
set -u
here=$(cd "$(dirname "$0")" && pwd)
rounds=${1:-3} steps=${2:-3}
binary=${ACCELHOST_BINARY:-$here/../../build/accelhost}
export OMP_NUM_THREADS=1
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT

largest() { # TEXT BEFORE, TEXT BEHIND: of the numbers between
    sed -n "s/.*$1 \([0-9. ]*\) $2.*/\1/p" | tr ' ' '\n' | sort -n | tail -1
}

median() { # PROCESSES KIND FIELD
    grep "^$1 $2 " "$lines" | cut -d' ' -f"$3" | sort -n |
        awk '{v[NR] = $1} END {print NR ? v[int((NR + 1) / 2)] : "-"}'
}

kinds="none optimizer gradients full"
for processes in 4 2; do
    round=0
    while [ $round -lt "$rounds" ]; do
        round=$((round + 1))
        for kind in $kinds; do
            said=$("$binary" launch --num_processes $processes "$here/sharding.lua" $kind "$steps") || exit 1
            echo "$processes $kind $(echo "$said" | largest 'peak Pss' MiB) $(echo "$said" | largest 'of a step' s)"
        done
    done
done >"$lines"
for kind in $kinds; do
    echo "| $kind | $(median 4 $kind 3) | $(median 4 $kind 4) | $(median 2 $kind 3) | $(median 2 $kind 4) |"
done
