#!/bin/sh
# Install the Debian packages that are missing. Says what it does; says nothing when there is nothing to do.
# usage: install-deps.sh [build|test|check|bench|mpi ...]      (default: build)
set -eu

packages() {
    case $1 in
    build) echo gcc libc6-dev make pkg-config libluajit-5.1-dev libopenblas-openmp-dev libdnnl-dev libjansson-dev \
        zlib1g-dev ;;
    test) echo lua-busted ;;
    check) echo lua-check ;;
    bench) echo python3-torch libtcmalloc-minimal4 ;;
    mpi) echo libopenmpi-dev openmpi-bin ;;
    *)
        echo "install-deps: unknown group '$1' (known: build test check bench mpi)" >&2
        exit 2
        ;;
    esac
}

wanted=
for group in "${@:-build}"; do
    names=$(packages "$group")
    wanted="$wanted $names"
done

if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-query >/dev/null 2>&1; then
    # Another system: trust what is there, name the libraries when something is not.
    missing=
    case " $* " in *" build "* | "  ")
        for name in luajit jansson zlib; do
            pkg-config --exists "$name" 2>/dev/null || missing="$missing $name"
        done ;;
    esac
    case " $* " in *" test "*) command -v busted >/dev/null 2>&1 || missing="$missing busted" ;; esac
    case " $* " in *" check "*) command -v luacheck >/dev/null 2>&1 || missing="$missing luacheck" ;; esac
    [ -z "$missing" ] && exit 0
    echo "install-deps: this is not a Debian system; not found:$missing" >&2
    echo "Install with this system's package manager what Debian calls:$wanted" >&2
    echo "(LuaJIT 2.1 with its static library, OpenBLAS built for OpenMP, oneDNN, jansson, zlib)" >&2
    exit 1
fi

# shellcheck disable=SC2086
installed=$(dpkg-query -W -f '${binary:Package} ${db:Status-Status}\n' $wanted 2>/dev/null |
    sed -n 's/\(:[a-z0-9]*\)\{0,1\} installed$//p') || true
missing=
for name in $wanted; do
    case "
$installed
" in *"
$name
"*) ;; *) missing="$missing $name" ;; esac
done
[ -z "$missing" ] && exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "install-deps: neither root nor sudo; have an administrator run: apt-get install$missing" >&2
        exit 1
    fi
    as_root="sudo"
fi
run() {
    echo "+ $*"
    "$@"
}
echo "install-deps: missing:$missing"
install="$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends"
# Package lists may be absent or old (a fresh container has none): refresh them once, only where needed.
# shellcheck disable=SC2086
run $as_root apt-get update -q || echo "install-deps: could not refresh the package lists, trying with the old ones" >&2
# shellcheck disable=SC2086
run $install $missing
