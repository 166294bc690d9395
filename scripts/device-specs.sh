#!/bin/sh
# Print the specs that run again on another device, one path a line, for test.sh, and for gpu/specs.sh on a card.
# usage: device-specs.sh DEVICE [PATH...]      PATH: folders and specs to choose from; spec without any
#   DEVICE: far; cuda, in the order of importance; some, a minute of that for the simulated GPU
set -eu
cd "$(dirname "$0")/.."
device=$1
shift
[ $# -gt 0 ] || set -- spec

# Tensors behave alike on every device, but their texts name it; images, rows of files, casts and workers' batches are
# kept on the CPU; steps captured on cards are in cuda_capture_spec, arenas of gradients in cuda_weight_gradients_spec.
folders='^spec/(ops|autograd|nn|tensor|optim|data|accelerator)/'
not='(compile|format|fp8|precision|vision|folder|worker|iterable|row_stream|slots|table)_spec'
some='^spec/(ops/(cases|elementwise|halves|create)_spec|autograd/engine_spec|optim/optimizer_spec|tensor/tensor_spec)'
# Specs of CUDA devices only: these, and all of spec/device that start programs there (spec/support/sim.lua, cards.lua).
card='^spec/(device/(card|bench)|accelerator/precision|linalg/linalg)_spec'

every=$(find "$@" -name '*_spec.lua' | LC_ALL=C sort)
of_cards() {
    echo "$every" | grep -E "$card" || true
    echo "$every" | grep '^spec/device/' | xargs -r grep -lE 'require "spec\.support\.(sim|cards)"' || true
}
of_tensors() { echo "$every" | grep -E "$folders" | grep -vE "$not"; }
case $device in
far) of_tensors ;;
some) echo "$every" | grep -E "$some" ;;
cuda)
    chosen=$(of_tensors || true && of_cards)
    for part in spec/device/card spec/device/cuda_capture spec/ops/cases spec/autograd/ spec/optim/ spec/nn/ spec/; do
        echo "$chosen" | grep "^$part"
    done | awk '!seen[$0]++'
    ;;
*)
    echo "device-specs: expected far, cuda or some, got '$device'" >&2
    exit 2
    ;;
esac || true
