#!/bin/sh
# gpu-checks of a bundle: unpacks files.tar.xz, in its folder or where there is space, and runs scripts/gpu/checks.sh
# there.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tree=$here/tree
if [ ! -f "$tree/build-folder" ] || [ -n "$(find "$here/files.tar.xz" -newer "$tree/build-folder")" ]; then
    { mkdir -p "$tree" && [ -w "$tree" ]; } 2>/dev/null || tree=$(mktemp -d)/tree
    if command -v xz >/dev/null; then
        xz -dc "$here/files.tar.xz"
    else
        LD_LIBRARY_PATH=$here/unpack "$here/unpack/xz" -dc "$here/files.tar.xz"
    fi | tar -x -C "$(dirname "$tree")"
    touch "$tree/build-folder"
fi
build=$(cat "$tree/build-folder")
LUA_PATH="$tree/modules/?.lua;$tree/modules/?/init.lua;;"
LUA_CPATH="$tree/modules/?.so;;"
export LUA_PATH LUA_CPATH
"$tree/$build/accelhost" --version || { echo "gpu-checks: the program does not run on this system" >&2; exit 1; }
results=${OUT:-$here/results}
mkdir -p "$results"
exec "$tree/scripts/gpu/checks.sh" "$build" "$(cd "$results" && pwd)"
