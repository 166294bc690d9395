#!/bin/sh
# Write a C file that holds the given Lua sources as a table of (module name, text, length).
# usage: embed.sh lua/accelhost/init.lua ...
set -eu
echo '#include "bind/embedded.h"'
n=0
for file in "$@"; do
    printf '__asm__(".section .rodata\\n.global ah_lua_%d, ah_lua_%d_end\\nah_lua_%d:\\n"\n' "$n" "$n" "$n"
    printf '        ".incbin \\"%s\\"\\nah_lua_%d_end:\\n.byte 0\\n.previous");\n' "$file" "$n"
    printf 'extern const char ah_lua_%d[], ah_lua_%d_end[];\n' "$n" "$n"
    n=$((n + 1))
done
echo 'const struct ah_embedded ah_embedded[] = {'
n=0
for file in "$@"; do
    module=$(printf '%s' "$file" | sed -e 's,^lua/,,' -e 's,\.lua$,,' -e 's,/init$,,' -e 's,/,.,g')
    path=$(printf '%s' "$file" | sed -e 's,^lua/,,')
    printf '    {"%s", "%s", ah_lua_%d, ah_lua_%d_end},\n' "$module" "$path" "$n" "$n"
    n=$((n + 1))
done
echo '    {0, 0, 0, 0},'
echo '};'
