#!/bin/sh
# The compiled kernels as assembly that carries them, with the table of host/cuda/images.h.
# usage: images.sh "WHAT THEY ARE FOR" [FATBIN...] > images.S
set -eu
for_what=$1
shift
echo '.section .rodata'
n=0
for image in "$@"; do
    name=${image##*/}
    printf '.balign 64\n.Limage%d: .incbin "%s"\n.Lname%d: .asciz "%s"\n' $n "$image" $n "${name%%.*}"
    n=$((n + 1))
done
printf '.globl ah_cuda_images_for\nah_cuda_images_for: .asciz "%s"\n' "$for_what"
printf '.section .data.rel.ro, "aw"\n.balign 8\n.globl ah_cuda_images\nah_cuda_images:\n'
i=0
while [ $i -lt $n ]; do
    printf '.quad .Lname%d, .Limage%d\n' $i $i
    i=$((i + 1))
done
printf '.quad 0, 0\n.section .note.GNU-stack, "", @progbits\n'
