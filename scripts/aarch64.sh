#!/bin/sh
# Compile the program for aarch64 and run its tests by qemu. Print missing commands, and the packages that have them.
# usage: aarch64.sh root                 make SYSROOT, by mmdebstrap: Debian's libraries for arm64 (300 MB)
#        aarch64.sh build [TARGET...]    compile into build-aarch64
#        aarch64.sh test [PATTERN]       compile, run the self-tests and the specs as test.sh does
#   SYSROOT: the root of an arm64 system; default: build-aarch64-root
#   SUITE: Debian's release in a new root; default: bookworm
#   CC: the compiler; default: aarch64-linux-gnu-gcc
#   TEST_JOBS, SKIP_SELFTEST, SKIP_SPECS, SPECS, EXCLUDE, LANE: as for test.sh; by default one job at a time
set -eu
cd "$(dirname "$0")/.."
sysroot=${SYSROOT:-build-aarch64-root}
build="build-aarch64"

fail() {
    echo "aarch64: $1" >&2
    exit 1
}

# need COMMAND PACKAGE: fail where neither COMMAND nor COMMAND-static is installed
need() {
    command -v "$1" >/dev/null 2>&1 || command -v "$1-static" >/dev/null 2>&1 ||
        fail "no $1; install it with: apt-get install $2"
}

make_root() {
    need mmdebstrap mmdebstrap
    # The libraries of a build and of the specs.
    packages=$(scripts/install-deps.sh --list apt build test | tr ' ' '\n' | grep -vxE 'gcc|g\+\+|make|pkg-config')
    packages=$(echo "$packages" | paste -s -d ,),libgomp1,libstdc++6
    echo "aarch64: making $sysroot"
    mmdebstrap --architectures=arm64 --variant=extract --skip=check/qemu --include="$packages" "${SUITE:-bookworm}" \
        "$sysroot"
    # qemu-user opens a path below its root where it exists there, /tmp and /dev too.
    for folder in "$sysroot"/*; do
        case ${folder##*/} in usr | lib) ;; *) rm -rf "$folder" ;; esac
    done
}

compile() {
    need aarch64-linux-gnu-gcc 'gcc-aarch64-linux-gnu g++-aarch64-linux-gnu'
    need qemu-aarch64 qemu-user-static
    [ -d "$sysroot/usr/include" ] || make_root
    sysroot=$(cd "$sysroot" && pwd)
    # qemu-user ignores one system call.
    shim=$build/spec/support/emulated_calls.o
    mkdir -p "${shim%/*}"
    aarch64-linux-gnu-gcc --sysroot="$sysroot" -D_GNU_SOURCE -std=c11 -O1 -c -o "$shim" spec/support/emulated_calls.c
    LDFLAGS="-Wl,--wrap=madvise $PWD/$shim" make --no-print-directory TARGET=aarch64-linux-gnu \
        SYSROOT="$sysroot" NVCC= MPI_FLAGS= ${CC:+"CC=$CC"} "$@"
}

case ${1:-test} in
root) make_root ;;
build)
    shift
    compile "${@:-program}"
    ;;
test)
    targets=
    for name in accelhost selftest accelhost-image.so accelhost-plot.so accelhost-sqlite.so accelhost-regex.so \
        accelhost-edit.so accelhost-far.so accelhost-old.so without_calls plugin-headers; do
        targets="$targets $build/$name"
    done
    # shellcheck disable=SC2086
    compile $targets
    export QEMU_LD_PREFIX="$sysroot"
    # qemu-user 7 keeps a record of each page that is mapped: 8 GB for the segments of a job.
    qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static)
    version=$("$qemu" --version | sed -n 's/.* version \([0-9]*\).*/\1/p')
    [ "$version" -ge 8 ] || echo "aarch64: qemu $version needs 8 GB for a job; qemu 8 or newer needs 0.3" >&2
    # The program starts itself, so the kernel must start qemu.
    "$build/accelhost" --version >/dev/null 2>&1 ||
        fail "the kernel does not start qemu; install: apt-get install binfmt-support qemu-user-static"
    export TEST_JOBS="${TEST_JOBS:-1}" ACCELHOST_TEST_SLOWNESS="${ACCELHOST_TEST_SLOWNESS:-10}"
    exec nice -n 10 scripts/test.sh "$build" "${2:-}"
    ;;
*) fail "expected root, build or test, got '$1'" ;;
esac
