#!/bin/sh
# A table of the resident memory (MiB) of training steps of five nets, and of PyTorch's: the peak of the process, and
# its growth since the library was loaded.
#
# usage: peak.sh PYTHON [STEPS]       ACCELHOST_BINARY: another program than build/accelhost
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=$1 steps=${2:-6}
binary=${ACCELHOST_BINARY:-$here/../../build/accelhost}
export OMP_NUM_THREADS=2 PYTHONDONTWRITEBYTECODE=1

numbers() { # COMMAND: prints the peak and the growth
    "$@" | awk '{v[$1] = $2} END {printf "%.0f %.0f", v["peak_mb"], v["peak_mb"] - v["base_mb"]}'
}

echo "| net | accelhost: peak | growth | PyTorch: peak | growth | ratio of growths |"
echo "| --- | --- | --- | --- | --- | --- |"
for net in mnist_cnn resnet18_32 bert_tiny char_gpt gpt; do
    own=$(numbers "$binary" "$here/ours/peak.lua" $net "$steps")
    peer=$(numbers "$python" "$here/peers/peak.py" $net "$steps")
    echo "$net $own $peer" | awk '{printf "| %s | %s | %s | %s | %s | %.2f |\n", $1, $2, $3, $4, $5, $3 / $5}'
done
