#!/bin/sh
# Compile the program for aarch64 and run its tests by qemu. Print missing commands, and the packages that have them.
# usage: aarch64.sh root                 make SYSROOT, by mmdebstrap: Debian's libraries for arm64 (300 MB)
#        aarch64.sh qemu                 extract Debian 13's qemu-user into build-aarch64-qemu
#        aarch64.sh build [TARGET...]    compile into build-aarch64
#        aarch64.sh test [PATTERN]       compile, run the self-tests and the specs as test.sh does, except for those
#                                        that qemu-user cannot run, which are listed below
#        aarch64.sh wheel [OPTION...]    make the wheel and the .tar.gz in build-aarch64-wheel; options are make's
#        aarch64.sh run COMMAND...       run a command of this machine that starts programs of aarch64, with the
#                                        libraries of SYSROOT
#   SYSROOT: the root of an arm64 system; default: build-aarch64-root
#   QEMU: a qemu-aarch64 that test and run use in place of the one that the kernel starts, in a user namespace (Linux
#   6.7 or newer); default: that of build-aarch64-qemu, where it is
#   SUITE, PACKAGES: Debian's release and packages in a new root; default: bookworm, those of a build and of the specs
#   CC: the compiler; default: aarch64-linux-gnu-gcc
#   TEST_JOBS, SKIP_SELFTEST, SKIP_SPECS, SPECS, EXCLUDE, LANE: as for test.sh; by default one job at a time
set -eu
cd "$(dirname "$0")/.."
sysroot=${SYSROOT:-build-aarch64-root}
build="build-aarch64"
own_qemu="build-aarch64-qemu/usr/bin/qemu-aarch64"

# The tests beyond the limits of qemu-user (10.0): self-tests by name and spec files, each with the reason.
left_out() {
    cat <<'END'
a_control_block_that_cannot_be_mapped_is_not_called_a_foreign_one    RLIMIT_AS does not limit the program's mappings
memory_of_models_that_are_gone_serves_models_of_other_sizes    MADV_REMOVE returns no memory
END
}

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
    packages=${PACKAGES:-}
    if [ -z "$packages" ]; then
        packages=$(scripts/install-deps.sh --list apt build test | tr ' ' '\n' | grep -vxE 'gcc|g\+\+|make|pkg-config')
        packages=$(echo "$packages" | paste -s -d ,),libgomp1,libstdc++6
    fi
    echo "aarch64: making $sysroot"
    mmdebstrap --architectures=arm64 --variant=extract --skip=check/qemu --include="$packages" "${SUITE:-bookworm}" \
        "$sysroot"
    # qemu-user opens a path below its root where it exists there, /tmp and /dev too.
    for folder in "$sysroot"/*; do
        case ${folder##*/} in usr | lib) ;; *) rm -rf "$folder" ;; esac
    done
    # From Debian 13 on, libc6 alone has no /lib.
    [ -e "$sysroot/lib" ] || ln -s usr/lib "$sysroot/lib"
}

# qemu 10 is linked statically and runs on any Debian.
extract_qemu() {
    need mmdebstrap mmdebstrap
    mmdebstrap --variant=extract --include=qemu-user trixie "${own_qemu%/usr/bin/*}"
}

# within COMMAND...: run it in a user namespace, where the kernel starts QEMU for programs of aarch64
within() {
    magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
    mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
    # shellcheck disable=SC2016
    exec unshare --user --map-root-user --mount sh -c '
        mount -t binfmt_misc none /proc/sys/fs/binfmt_misc || exit 1
        printf %s "$1" >/proc/sys/fs/binfmt_misc/register || exit 1
        shift
        exec "$@"' sh ":qemu-aarch64:M::$magic:$mask:$QEMU:PF" "$@"
}

# emulated COMMAND...: become the command, in which programs of aarch64 start
emulated() {
    export QEMU_LD_PREFIX="$sysroot"
    [ -n "${QEMU:-}" ] || [ ! -x "$own_qemu" ] || QEMU=$PWD/$own_qemu
    [ -z "${QEMU:-}" ] || within nice -n 10 "$@"
    # qemu-user 7 keeps a record of each page that is mapped: 8 GB for the segments of a job.
    qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static)
    version=$("$qemu" --version | sed -n 's/.* version \([0-9]*\).*/\1/p')
    [ "$version" -ge 8 ] ||
        echo "aarch64: qemu $version needs 8 GB for a job; qemu 8 or newer needs 0.3: scripts/aarch64.sh qemu" >&2
    # The program starts itself, so the kernel must start qemu.
    "$sysroot/lib/ld-linux-aarch64.so.1" --version >/dev/null 2>&1 ||
        fail "the kernel does not start qemu; install: apt-get install binfmt-support qemu-user-static"
    exec nice -n 10 "$@"
}

# prepare: see to the compiler, qemu and SYSROOT
prepare() {
    need aarch64-linux-gnu-gcc 'gcc-aarch64-linux-gnu g++-aarch64-linux-gnu'
    need qemu-aarch64 qemu-user-static
    [ -d "$sysroot/usr/include" ] || make_root
    sysroot=$(cd "$sysroot" && pwd)
}

cross_make() {
    make --no-print-directory TARGET=aarch64-linux-gnu SYSROOT="$sysroot" NVCC= MPI_FLAGS= ${CC:+"CC=$CC"} "$@"
}

compile() {
    prepare
    # qemu-user ignores one system call.
    shim=$build/spec/support/emulated_calls.o
    mkdir -p "${shim%/*}"
    aarch64-linux-gnu-gcc --sysroot="$sysroot" -D_GNU_SOURCE -std=c11 -O1 -c -o "$shim" spec/support/emulated_calls.c
    LDFLAGS="-Wl,--wrap=madvise $PWD/$shim" cross_make "$@"
}

case ${1:-test} in
root) make_root ;;
qemu) extract_qemu ;;
build)
    shift
    compile "${@:-program}"
    ;;
wheel)
    shift
    prepare
    cross_make BUILD="$build-wheel" wheel "$@"
    ;;
run)
    shift
    sysroot=$(cd "$sysroot" && pwd)
    emulated "$@"
    ;;
test)
    targets=
    for name in accelhost selftest accelhost-image.so accelhost-plot.so accelhost-sqlite.so accelhost-regex.so \
        accelhost-edit.so accelhost-far.so accelhost-old.so without_calls large_pages.so plugin-headers; do
        targets="$targets $build/$name"
    done
    # shellcheck disable=SC2086
    compile $targets
    LEAVE_OUT=$(left_out | sed -n 's/^\([a-z]\w*\) .*/\1/p' | grep -v ^spec/ | paste -s -d ' ')
    without=$(left_out | sed -n 's/^\(spec\/[^ ]*\).*/\1/p' | paste -s -d '|' | sed 's/|/\\|/g')
    export LEAVE_OUT EXCLUDE="${EXCLUDE:-}${EXCLUDE:+${without:+\\|}}$without"
    export TEST_JOBS="${TEST_JOBS:-1}" ACCELHOST_TEST_SLOWNESS="${ACCELHOST_TEST_SLOWNESS:-10}"
    emulated scripts/test.sh "$build" "${2:-}"
    ;;
*) fail "expected root, qemu, build, test, wheel or run, got '$1'" ;;
esac
