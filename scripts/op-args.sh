#!/bin/sh
# The arguments of an op schema by name: prints, for every op, forward, kernel and rule of the op table, a struct that
# overlays the values of a call. One that several rows share has the parameters at the same position in all of them.
# usage: op-args.sh "CC"
set -eu
cd "$(dirname "$0")/../host"
{
    printf '#define OP(name, forward, kernel, signature, flags) op name forward kernel signature\n'
    printf '#define RULE(name, column, saves) rule name column\n'
    printf '#include "ops/schema/table.def"\n#include "autograd/graph/rules.def"\n'
} | $1 -E -P -I. -x c - | awk '
    function attach(key, op) {
        if (key == "none" || (key, op) in attached)
            return
        attached[key, op] = 1
        if (!(key in rows))
            order[keys++] = key
        rows[key] = rows[key] " " op
    }
    $1 == "op" {
        text = $0
        gsub(/"[ ]*"/, "", text)
        match(text, /"[^"]*"/)
        count[$2] = split(substr(text, RSTART + 1, RLENGTH - 2), part, ",")
        for (i = 1; i <= count[$2]; i++) {
            gsub(/^ +|:.*/, "", part[i])
            param[$2, i] = part[i]
        }
        attach($2, $2)
        attach($3, $2)
        attach($4, $2)
    }
    $1 == "rule" { attach($3, $2) }
    END {
        print "/* Made by scripts/op-args.sh from the op table. */"
        for (k = 0; k < keys; k++) {
            n = split(rows[order[k]], op, " ")
            fields = ""
            for (i = 1; i <= count[op[1]]; i++) {
                field = param[op[1], i]
                for (j = 2; j <= n; j++)
                    if (param[op[j], i] != field)
                        field = "differs" i
                fields = fields " " field ","
            }
            sub(/,$/, "", fields)
            if (fields != "")
                print "struct ah_args_" order[k] " { struct ah_value" fields "; } __attribute__((may_alias));"
        }
    }'
