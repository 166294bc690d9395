#!/bin/sh
# The dispatcher of files that are built once per level of x86-64 (host/base/numeric/level.h): of each of their
# functions f there are f.v2, f.v3 and f.v4, and f itself, which jumps to the address in its slot. Prints assembly.
# usage: levels.sh "v2 v3 v4" <names of functions, each on a line
set -eu
levels=$1
first=${levels%% *}
names=$(cat)

# quads LEVEL: the addresses of that level
quads() { echo "$names" | sed "s/.*/        .hidden &.$1\n        .quad &.$1/"; }

cat <<END
        .section .note.GNU-stack, "", @progbits
        .text
END
for name in $names; do
    printf '        .globl %s\n        .type %s, @function\n        .balign 8\n%s:\n        jmp *at_%s(%%rip)\n' \
        "$name" "$name" "$name" "$name"
done
cat <<END
        .data
        .balign 64
        .globl ah_level_slots
        .hidden ah_level_slots
ah_level_slots:
END
for name in $names; do
    printf 'at_%s:\n        .quad %s.%s\n' "$name" "$name" "$first"
done
cat <<END
        .section .data.rel.ro, "aw"
        .balign 64
END
for level in $levels; do
    printf '        .globl ah_level_%s\n        .hidden ah_level_%s\nah_level_%s:\n' "$level" "$level" "$level"
    quads "$level"
done
cat <<END
        .section .rodata
        .balign 8
        .globl ah_level_bytes
        .hidden ah_level_bytes
ah_level_bytes:
        .quad 8 * $(echo "$names" | grep -c .)
END
