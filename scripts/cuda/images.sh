#!/bin/sh
# The compiled kernels as assembly that carries them, with the table of host/cuda/driver/api/images.h.
# usage: images.sh "sm_80 sm_90" 13.0 13.0 [FATBIN...] > images.S      the architectures, the version of CUDA that
# compiled for them ("": there are no images) and the oldest version whose drivers load them
set -eu
number() { echo "${1:-0.0}" | awk -F. '{ print $1 * 1000 + $2 * 10 }'; }
for_what=${2:+for $1 by CUDA $2}
toolkit=$(number "$2")
driver=$(number "${2:+$3}")
shift 3
echo '.section .rodata'
n=0
for image in "$@"; do
    name=${image##*/}
    printf '.balign 64\n.Limage%d: .incbin "%s"\n.Lname%d: .asciz "%s"\n' $n "$image" $n "${name%%.*}"
    n=$((n + 1))
done
printf '.globl ah_cuda_images_for\nah_cuda_images_for: .asciz "%s"\n' "$for_what"
printf '.balign 4\n.globl ah_cuda_images_toolkit\nah_cuda_images_toolkit: .long %d\n' "$toolkit"
printf '.globl ah_cuda_images_driver\nah_cuda_images_driver: .long %d\n' "$driver"
printf '.section .data.rel.ro, "aw"\n.balign 8\n.globl ah_cuda_images\nah_cuda_images:\n'
i=0
while [ $i -lt $n ]; do
    printf '.quad .Lname%d, .Limage%d\n' $i $i
    i=$((i + 1))
done
printf '.quad 0, 0\n.section .note.GNU-stack, "", @progbits\n'
