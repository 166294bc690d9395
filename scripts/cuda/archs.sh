#!/bin/sh
# Print the architectures that `make` compiles the CUDA kernels for: those of the NVIDIA cards of this machine. Prints
# nothing where there is no NVIDIA driver, and DEFAULT where the driver does not list its cards, or nvcc does not know
# all of them.
# usage: archs.sh NVCC DEFAULT
set -u
nvcc=$1
default=$2

has_driver() {
    [ -e /proc/driver/nvidia/version ] && return 0
    { ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | grep -q 'libcuda\.so\.1 '
}

[ -n "$nvcc" ] && has_driver || exit 0
cards=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d '. ' | sort -nu)
known=$("$nvcc" --list-gpu-code 2>/dev/null)
[ -n "$cards" ] || cards=none
for card in $cards; do
    echo "$known" | grep -qx "sm_$card" || { echo "$default"; exit 0; }
done
# shellcheck disable=SC2086
echo $cards
