#!/bin/sh
# Print the lines of each top folder at two commits. Files of both commits (a renamed file is one) are listed apart from
# new and removed files, so that changes of old code can be distinguished from growth; `moved` are lines of new files
# that are lines of removed files too (of 10 characters or more), as where a file was divided. Counted are text files
# without fixtures and generated files.
# usage: account.sh OLD [NEW]      NEW: default HEAD
set -eu
old=$1 new=${2:-HEAD}
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# count_lines REV: lines "path count"
count_lines() {
    git grep -I -c '' "$1" -- . ':!spec/fixtures' ':!*/generated/*' | sed -E 's/^[^:]*:(.*):([0-9]+)$/\1\t\2/'
}
# changes FILTER OPTION...: the difference of files in these states; a file is renamed if two fifths of it are the same
changes() {
    filter=$1
    shift
    git diff -M40% -l0 --diff-filter="$filter" "$@" "$old" "$new" -- . ':!spec/fixtures' ':!*/generated/*'
}

count_lines "$old" >"$scratch/old"
count_lines "$new" >"$scratch/new"
changes R --name-status | cut -f 2,3 >"$scratch/renamed"
# With -z a renamed file is "added removed", its old name and its new name, each ended by a zero byte.
changes MR -z --numstat | tr '\n\0' ' \n' >"$scratch/changed"
changes D | sed -n '/^-[^-]/p' >"$scratch/lost"
changes A -U0 | sed -n '/^+/p' >"$scratch/found"

awk -F '\t' -v OFS='\t' '
    function folder(path) { return path ~ /\// ? substr(path, 1, index(path, "/") - 1) : "(root)" }
    FILENAME ~ /renamed$/ { name_of[$1] = $2; next }
    FILENAME ~ /old$/ { path = $1 in name_of ? name_of[$1] : $1; before[path] = $2; place[path] = $1; next }
    FILENAME ~ /new$/ { after[$1] = $2; next }
    FILENAME ~ /changed$/ && NF == 3 && $3 != "" { added[$3] = $1; removed[$3] = $2; next }
    FILENAME ~ /changed$/ && NF == 3 { names = 2; plus_here = $1; minus_here = $2; next }
    FILENAME ~ /changed$/ { if (names && --names == 0) { added[$1] = plus_here; removed[$1] = minus_here }; next }
    { line = substr($0, 2); sub(/^[ ]+/, "", line) }
    FILENAME ~ /lost$/ { if (length(line) >= 10) lost[line]++; next }
    /^\+\+\+ b\// { here = folder(substr($0, 7)); next }
    lost[line] > 0 { lost[line]--; moved[here]++ }
    END {
        for (path in before) {
            f = folder(path in after ? path : place[path]); folders[f] = 1
            if (!(path in after)) { gone[f] += before[path]; continue }
            both[f]++; was[f] += before[path]; is[f] += after[path]
            plus[f] += added[path]; minus[f] += removed[path]
        }
        for (path in after) if (!(path in before)) { f = folder(path); folders[f] = 1; fresh[f] += after[path] }
        for (f in folders)
            print f, was[f] + gone[f], is[f] + fresh[f], both[f] + 0, was[f] + 0, is[f] + 0, plus[f] + 0, minus[f] + 0,
                  fresh[f] + 0, moved[f] + 0, gone[f] + 0
    }' "$scratch/renamed" "$scratch/old" "$scratch/new" "$scratch/changed" "$scratch/lost" "$scratch/found" | sort |
    awk -F '\t' '
        function row() {
            printf "%-9s%9s%9s  |%6s%8s%8s%8s%8s  |%8s%8s%8s\n", $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11
        }
        BEGIN {
            printf "%-9s%18s  |%38s  |%24s\n", "", "all lines", "files of both commits", "lines of other files"
            $0 = "folder\tbefore\tafter\tfiles\tbefore\tafter\tadded\tremoved\tnew\tmoved\tremoved"; row()
        }
        { row(); for (i = 2; i <= NF; i++) sum[i] += $i }
        END { line = "all"; for (i = 2; i <= 11; i++) line = line "\t" sum[i]; $0 = line; row() }'
