#!/bin/sh
# Print registers, shared memory and spills of every CUDA kernel, one line for each kernel and architecture, as reported
# by ptxas, and write names and spills to the list host/cuda/generated/kernels.txt; exit code 1 if one spills.
# usage: usage.sh [FILE.cu...]    CUDA_ARCHS="80 90", NVCC=nvcc
set -eu
cd "$(dirname "$0")/../.."
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
[ -x "$nvcc" ] || { echo "usage: nvcc is not here" >&2; exit 2; }
list=host/cuda/generated/kernels.txt kept=$list
[ $# -gt 0 ] || { kept=/dev/null; set -- host/cuda/kernels/*/*.cu; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
spilled=0
{ printf '%-28s %-24s %5s %9s %11s %6s\n' kernel file arch registers shared spills
for file in "$@"; do
    for arch in ${CUDA_ARCHS:-80 90}; do
        "$nvcc" -std=c++17 -fmad=false -diag-suppress 186 -Ihost -arch="sm_$arch" -Xptxas -v -cubin \
            -o "$scratch/cubin" "$file" 2>"$scratch/log" || { cat "$scratch/log" >&2; exit 2; }
        awk -v file="${file##*/}" -v arch="$arch" '
            /Compiling entry function/ { split($0, part, "\047"); name = part[2] }
            /bytes spill stores/ {
                spills = 0
                for (i = 1; i < NF; i++) if ($i == "bytes" && $(i + 1) == "spill") spills += $(i - 1)
            }
            /Used [0-9]+ registers/ {
                shared = 0
                for (i = 1; i < NF; i++) {
                    if ($i == "Used") registers = $(i + 1)
                    if ($i == "bytes" && $(i + 1) ~ /^smem/) shared = $(i - 1)
                }
                printf "%-28s %-24s %5s %9d %11d %6d\n", name, file, arch, registers, shared, spills
                if (spills > 0) bad = 1
            }
            END { exit bad }' "$scratch/log" || spilled=1
    done
done; } >"$scratch/lines"
cat "$scratch/lines"
if [ -z "${CUDA_ARCHS:-}" ]; then
    {
        printf '%s\n' 'Written by scripts/cuda/usage.sh (make cuda-usage): it prints registers and shared memory too.' \
            'The CUDA kernels that ptxas compiled, by file; bytes of spills, stored and loaded, follow the name.' ''
        awk -f scripts/cuda/usage.awk "$scratch/lines" "$kept" | LC_ALL=C sort | awk '
            $1 != file { if (file) print line; file = $1; line = file ":" }
            length(line " " $2) > 120 { print line; line = "   " }
            { line = line " " $2 }
            END { print line }'
    } >"$scratch/list"
    cp "$scratch/list" "$list"
fi
exit $spilled
