#!/bin/sh
# CUDA 12's compiler as a library, and the headers that kernels include, from PyPI into FOLDER/nvidia.
# usage: wheels.sh FOLDER
set -eu
folder=$1
stamp=$folder/nvrtc-12.9.86
[ ! -e "$stamp" ] || exit 0
rm -rf "$folder"
python3 -m pip install --quiet --root-user-action ignore --no-deps --target "$folder" nvidia-cuda-nvrtc-cu12==12.9.86 \
    nvidia-nvfatbin-cu12==12.9.82 nvidia-cuda-runtime-cu12==12.9.79
touch "$stamp"
