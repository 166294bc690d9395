#!/bin/sh
# Build the fuzz targets of spec/fuzz with clang and run each a bounded number of times.
# usage: fuzz.sh RUNS [target ...]
# A target names its sources in lines "sources: ...", where TENSORS means the files of tensors, WRITER those that write
# files and COMM those of groups over several hosts without the mesh, and host/base/status/status.c includes the
# sources that it needs; seeds are in NAME.seeds. A line "sanitizer: thread" builds it for ThreadSanitizer instead of
# AddressSanitizer and UndefinedBehaviorSanitizer.
set -eu
cd "$(dirname "$0")/.."
runs=$1
shift
if ! command -v clang >/dev/null 2>&1; then
    echo "fuzz: needs clang (Debian: apt-get install clang libclang-rt-dev)" >&2
    exit 1
fi
mkdir -p build-fuzz
tensors="host/tensor/tensor.c host/tensor/transpose.c host/tensor/device.c host/tensor/cpu_memory.c host/tensor/rng.c"
tensors="$tensors host/base/memory/alloc.c host/base/memory/region.c host/base/numeric/dtype.c"
tensors="$tensors host/base/numeric/half.c"
tensors="$tensors host/base/process/entropy.c host/base/process/plugin.c host/base/process/program.c"
tensors="$tensors host/base/status/nearest.c host/base/status/status.c"
tensors="$tensors host/base/trace/counters.c host/base/trace/memory_log.c host/base/trace/time.c"
tensors="$tensors host/base/trace/trace.c"
writer="host/io/writer.c host/base/numeric/sha256.c host/base/numeric/sha256_blocks.c"
comm=$(ls host/comm/*/*.c | grep -v mesh.c)
if [ $# = 0 ]; then
    # shellcheck disable=SC2046
    set -- $(basename -a -s .c spec/fuzz/*.c)
fi

scripts/op-args.sh clang >build-fuzz/op_args.h.new
cmp -s build-fuzz/op_args.h.new build-fuzz/op_args.h || mv build-fuzz/op_args.h.new build-fuzz/op_args.h
rm -f build-fuzz/op_args.h.new

# is_new TARGET SOURCE...: TARGET is there, and newer than its sources, all headers and this script
is_new() {
    target=$1
    shift
    files=$(for word in "$@"; do case $word in -*) ;; *) echo "$word" ;; esac; done)
    # shellcheck disable=SC2086
    [ -x "$target" ] && [ -z "$(find $files scripts/fuzz.sh -newer "$target")" ] &&
        [ -z "$(find host spec \( -name '*.h' -o -name '*.def' \) -newer "$target")" ]
}

for name in "$@"; do
    sources=$(sed -n 's/^.*sources: *\([^*]*\).*/\1/p' "spec/fuzz/$name.c")
    sources=$(echo "$sources" | sed "s|TENSORS|$tensors|; s|WRITER|$writer|; s|COMM|$(echo $comm)|")
    sources=$(echo "$sources" | sed "s|host/base/status/status.c|host/base/status/printable.c &|")
    sources=$(echo "$sources" | sed "s|host/base/numeric/sha256_blocks.c|& host/base/numeric/sha256_$(uname -m).c|")
    sanitizer=$(sed -n 's/^.*sanitizer: *\([a-z]*\).*/\1/p' "spec/fuzz/$name.c")
    coverage=
    if [ "$sanitizer" = thread ]; then
        # Counters of coverage are no atomics: only the target's own thread has some.
        coverage="-fsanitize-coverage-allowlist=build-fuzz/coverage.txt"
        printf 'src:spec/fuzz/*\nfun:*\n' >build-fuzz/coverage.txt
    fi
    echo "fuzz: $name, $runs inputs"
    # shellcheck disable=SC2046,SC2086
    is_new "build-fuzz/$name" "spec/fuzz/$name.c" $sources ||
        clang -std=c11 -g -O1 -D_GNU_SOURCE -Ihost -Ibuild-fuzz $(pkg-config --cflags luajit) -Wno-unknown-pragmas \
        -fsanitize=fuzzer,"${sanitizer:-address,undefined}" -fno-sanitize-recover=undefined $coverage \
        -o "build-fuzz/$name" "spec/fuzz/$name.c" $sources $(pkg-config --libs luajit) -lz -ljansson -lyaml -lm \
        -lpthread
    mkdir -p "build-fuzz/$name.corpus"
    seeds=
    [ -d "spec/fuzz/$name.seeds" ] && seeds="spec/fuzz/$name.seeds"
    # shellcheck disable=SC2086
    "build-fuzz/$name" -runs="$runs" -max_len=4096 -rss_limit_mb=2048 -timeout=60 -verbosity=0 \
        -artifact_prefix="build-fuzz/$name-" "build-fuzz/$name.corpus" $seeds >"build-fuzz/$name.log" 2>&1 || {
        cat "build-fuzz/$name.log"
        exit 1
    }
done
echo "fuzz: nothing found"
