#!/bin/sh
# List the files of an installation: a line "MODE SOURCE TARGET" per file, the target below PREFIX.
# usage: files.sh BUILD
set -eu
build=$1

each() { # MODE FOLDER FILE...: those of the files that are there
    mode=$1 folder=$2
    shift 2
    for file in "$@"; do
        [ ! -f "$file" ] || echo "$mode $file $folder/${file##*/}"
    done
}

each 755 bin "$build/accelhost"
each 755 lib/accelhost "$build/accelhost-image.so"
each 755 lib/accelhost "$build/accelhost-plot.so"
each 755 lib/accelhost "$build/accelhost-sqlite.so"
each 755 lib/accelhost "$build/accelhost-regex.so"
each 755 lib/accelhost "$build/accelhost-edit.so"
each 755 lib/accelhost "$build/accelhost-jupyter.so"
each 755 lib/accelhost "$build/accelhost-mpi.so"
each 755 lib/accelhost "$build/accelhost-cuda.so"
# The headers that a device's plugin includes; one is made by the build.
while read -r header; do
    source=host/$header
    [ -f "$source" ] || source=$build/$header
    echo "644 $source include/accelhost/$header"
done <"$build/plugin-headers"
each 644 share/man/man1 "$build"/docs/man/*.1
each 644 share/bash-completion/completions "$build/docs/completion/bash/accelhost"
each 644 share/zsh/site-functions "$build/docs/completion/zsh/_accelhost"
each 644 share/fish/vendor_completions.d "$build/docs/completion/fish/accelhost.fish"
for file in $(cd "$build/docs" 2>/dev/null && find types -name '*.lua' | LC_ALL=C sort); do
    echo "644 $build/docs/$file share/accelhost/$file"
done
# Batch scripts of Slurm name their interpreter, so they are executable.
for file in $(find examples -type f | LC_ALL=C sort); do
    case $file in *.sbatch) mode=755 ;; *) mode=644 ;; esac
    echo "$mode $file share/accelhost/$file"
done
each 644 share/doc/accelhost "$build/docs/index.html" README.md LICENSE CHANGELOG.md
