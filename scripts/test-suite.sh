#!/bin/sh
# Print the spec files of a suite, one path per line.
# usage: test-suite.sh SUITE [PATH...]      PATH: folders and specs to choose from; default: spec
#   devices: spec/device and spec/sim, whose programs run on the far device, the simulated GPU or a card
#   jobs: other specs that start processes, by themselves or by a module of spec/support
#   unit: the rest, which need no process but the runner's
#   all: every suite
set -eu
cd "$(dirname "$0")/.."
suite=${1:-all}
shift
[ $# -gt 0 ] || set -- spec
devices='^spec/(device|sim)/'
starts='io\.popen|os\.execute|num_workers|_launcher'
modules=$(grep -lE "$starts|spec\.support\.run\b" spec/support/*.lua | sed 's|.*/||; s|\.lua$||' | paste -sd'|' -)
starts="$starts|spec\.support\.($modules)\b"

specs=$(find "$@" -name '*_spec.lua' | LC_ALL=C sort)
# grep on no files would read the terminal, hence /dev/null.
case $suite in
all) echo "$specs" ;;
devices) echo "$specs" | grep -E "$devices" ;;
jobs) echo "$specs" | grep -vE "$devices" | xargs grep -lE "$starts" /dev/null ;;
unit) echo "$specs" | grep -vE "$devices" | xargs grep -LE "$starts" /dev/null | grep -vx /dev/null ;;
*)
    echo "test-suite: expected all, unit, jobs or devices, got '$suite'" >&2
    exit 2
    ;;
esac || true
