#!/bin/sh
# Build the plugin's kernels for the card that is here, where they are not built for it yet and nvcc is there; needs no
# make. usage: images.sh BUILD CAPABILITY      CAPABILITY: as nvidia-smi tells it, 9.0
set -eu
cd "$(dirname "$0")/../.."
build=$1
arch=$(echo "$2" | tr -d .)
told=$("$build/accelhost" -e 'print(require("accelhost._C").device.describe("cuda", -1))')
case $told in *"sm_$arch "*)
    echo "the kernels came along for sm_$arch"
    exit 0
    ;;
esac
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
cc=$(command -v cc || command -v gcc || true)
if [ ! -x "$nvcc" ] || [ -z "$cc" ]; then
    echo "no nvcc or no C compiler here: the driver makes the kernels for sm_$arch of the PTX that came along"
    exit 0
fi
folder=$build/images
mkdir -p "$folder"
# shellcheck disable=SC2016
for source in host/cuda/kernels/*.cu; do echo "$source"; done | xargs -P "$(nproc)" -I FILE sh -c '
    name=$(basename FILE .cu)
    "$1" -std=c++17 -O3 -fmad=false -diag-suppress 186 -Ihost -gencode "arch=compute_$2,code=[sm_$2,compute_$2]" \
        -fatbin -o "$3/$name.fatbin" FILE' sh "$nvcc" "$arch" "$folder"
version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
scripts/cuda/images.sh "for sm_$arch by CUDA $version" "$folder"/*.fatbin >"$folder/images.S"
"$cc" -c -o "$folder/images.o" "$folder/images.S"
set --
for object in "$build"/host/cuda/*.o; do
    case $object in */images.o) ;; *) set -- "$@" "$object" ;; esac
done
"$cc" -shared -o "$folder/plugin.so" "$@" "$folder/images.o" -ldl -lpthread -lrt
mv -f "$folder/plugin.so" "$build/accelhost-cuda.so"
echo "the kernels were built here for sm_$arch by CUDA $version"
