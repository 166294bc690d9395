#!/bin/sh
# Build the plugin's kernels for the card of this machine with nvcc, if the existing ones do not run on it or the driver
# would have to compile them; requires no make.
# usage: images.sh BUILD CAPABILITY      CAPABILITY: as printed by nvidia-smi, 9.0
set -eu
cd "$(dirname "$0")/../.."
build=$1
arch=$(echo "$2" | tr -d .)
# One op on the card: the kernel's image is loaded and launched.
launch() { "$build/accelhost" -e 'require("accelhost").ones({2}, {device = "cuda"}):add(1):sum():item()' 2>&1; }
if reason=$(launch); then
    case $("$build/accelhost" -e 'print(require("accelhost._C").device.describe("cuda", -1))') in *"sm_$arch "*)
        echo "the kernels of this build support sm_$arch"
        exit 0
        ;;
    esac
    reason="the driver would compile the kernels for sm_$arch"
    failed=0
else
    reason=$(echo "$reason" | head -1)
    failed=1
fi
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
cc=$(command -v cc || command -v gcc || true)
if [ ! -x "$nvcc" ] || [ -z "$cc" ]; then
    echo "no nvcc or no C compiler here: $reason"
    exit $failed
fi
folder=$build/images
mkdir -p "$folder"
# shellcheck disable=SC2016
for source in host/cuda/kernels/*/*.cu; do echo "$source"; done | xargs -P "$(nproc)" -I FILE sh -c '
    name=$(basename FILE .cu)
    "$1" -std=c++17 -O3 -fmad=false -diag-suppress 186 -Ihost -gencode "arch=compute_$2,code=[sm_$2,compute_$2]" \
        -fatbin -o "$3/$name.fatbin" FILE' sh "$nvcc" "$arch" "$folder"
version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
scripts/cuda/images.sh "sm_$arch" "$version" "${version%%.*}.0" "$folder"/*.fatbin >"$folder/images.S"
"$cc" -c -o "$folder/images.o" "$folder/images.S"
find "$build/host/cuda" -name '*.o' ! -name images.o ! -name '*.nv.o' | LC_ALL=C sort |
    xargs sh -c '"$0" "$@" -ldl -lpthread -lrt' "$cc" -shared -o "$folder/plugin.so" "$folder/images.o"
mv -f "$folder/plugin.so" "$build/accelhost-cuda.so"
reason=$(launch) || { echo "the kernels built here do not run: $(echo "$reason" | head -1)"; exit 1; }
echo "the kernels were built here for sm_$arch by CUDA $version"
