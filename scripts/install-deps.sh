#!/bin/sh
# Install missing packages with apt; with another package manager print the packages' names there. Prints its actions;
# prints nothing when there is nothing to do.
# usage: install-deps.sh [--list MANAGER] [build|test|check|package|wheel|bench|mpi ...]      (default: build)
#        install-deps.sh bench-new
#   --list: the packages in the words of apt, dnf, pacman or apk, and nothing else
#   bench-new: the newest PyTorch, transformers, tokenizers, peft of PyPI in build/bench-env for `make bench`
set -eu

fail() {
    echo "install-deps: $2" >&2
    exit "$1"
}

if [ "${1:-}" = bench-new ]; then
    cd "$(dirname "$0")/.."
    [ -x build/bench-env/bin/python3 ] || python3 -m venv build/bench-env
    exec build/bench-env/bin/python3 -m pip install --upgrade torch transformers tokenizers peft numpy
fi

# One line per group and package manager. A ? marks optional packages (oneDNN: convolutions are slower; libpng and
# libjpeg: no image files are read; cairo: no plots as PNG; SQLite: no sweeps; PCRE2: no tokenizers
# with unusual patterns; libedit: no editing at the prompt; ZeroMQ: no notebooks; a C++ compiler: no simulated GPU).
packages() {
    case $1:$2 in
    apt:build) echo gcc libc6-dev make pkg-config libluajit-5.1-dev libopenblas-openmp-dev '?libdnnl-dev' \
        libjansson-dev libyaml-dev zlib1g-dev '?libpng-dev' '?libjpeg-dev' '?libcairo2-dev' \
        '?libsqlite3-dev' '?libpcre2-dev' '?libedit-dev' '?libzmq3-dev' ;;
    dnf:build) echo gcc make pkgconf-pkg-config luajit-devel openblas-devel '?onednn-devel' jansson-devel \
        libyaml-devel zlib-devel '?libpng-devel' '?libjpeg-turbo-devel' '?cairo-devel' '?sqlite-devel' \
        '?pcre2-devel' '?libedit-devel' '?zeromq-devel' ;;
    pacman:build) echo gcc make pkgconf luajit openblas '?onednn' jansson libyaml zlib '?libpng' '?libjpeg-turbo' \
        '?cairo' '?sqlite' '?pcre2' '?libedit' '?zeromq' ;;
    apk:build) echo build-base linux-headers pkgconf luajit-dev openblas-dev jansson-dev yaml-dev zlib-dev \
        '?libpng-dev' '?libjpeg-turbo-dev' '?cairo-dev' '?sqlite-dev' '?pcre2-dev' \
        '?libedit-dev' '?zeromq-dev' ;;
    apt:test) echo lua-busted '?g++' ;;
    apt:check) echo lua-check ;;
    apt:package) echo dpkg-dev debootstrap lintian ;;
    apt:wheel) echo patchelf binutils python3 ;;
    apt:bench) echo python3-torch libtcmalloc-minimal4 ;;
    apt:mpi) echo libopenmpi-dev openmpi-bin ;;
    dnf:mpi) echo openmpi-devel ;;
    pacman:mpi) echo openmpi ;;
    apk:mpi) echo openmpi-dev ;;
    dnf:test) echo luarocks '?gcc-c++' ;;
    pacman:test | apk:test | dnf:check | pacman:check | apk:check) echo luarocks ;;
    *:package | *:wheel | *:bench) fail 2 "'$2' is for Debian and Ubuntu" ;;
    *) fail 2 "unknown group '$2' (known: build test check package wheel bench mpi)" ;;
    esac
}

manager=
if [ "${1:-}" = --list ]; then
    case ${2:-} in
    apt | dnf | pacman | apk) manager=$2 list=yes ;;
    *) fail 2 "--list: expected apt, dnf, pacman or apk, got '${2:-}'" ;;
    esac
    shift 2
else
    list=
    [ "$(uname -s)" = Linux ] || fail 1 "accelhost runs on Linux only; this is $(uname -s)"
    for name in apt-get dnf pacman apk; do
        [ -n "$manager" ] || ! command -v $name >/dev/null 2>&1 || manager=${name%-get}
    done
fi

# names GROUP...: the packages of all groups, each on a line
names() {
    for group in "${@:-build}"; do
        # A separate substitution, so that its failure is seen.
        of_group=$(packages "${manager:-apt}" "$group")
        # shellcheck disable=SC2086
        printf '%s\n' $of_group
    done
}
wanted=$(names "$@")
if [ -n "$list" ]; then
    echo "$wanted" | sed 's/^?//' | tr '\n' ' ' | sed 's/ $//'
    echo
    exit 0
fi

has_command() { command -v "$1" >/dev/null 2>&1; }
# shellcheck disable=SC2144
has_file() { [ -e "$1" ]; }

# Another package manager: search for the files themselves, and print the command that installs them.
if [ "$manager" != apt ]; then
    missing=
    case " ${*:-build} " in *" build "*)
        for name in luajit yaml-0.1 jansson zlib; do
            pkg-config --exists $name 2>/dev/null || missing="$missing $name"
        done
        for name in gcc make pkg-config; do has_command $name || missing="$missing $name"; done
        cblas=
        for header in /usr/include/cblas.h /usr/include/*/cblas.h; do has_file "$header" && cblas=yes; done
        [ -n "$cblas" ] || missing="$missing openblas"
        ;;
    esac
    rocks=
    case " $* " in *" test "*) has_command busted || rocks="$rocks busted" ;; esac
    case " $* " in *" check "*) has_command luacheck || rocks="$rocks luacheck" ;; esac
    [ -n "$missing$rocks" ] || exit 0
    echo "install-deps: not found:$missing$rocks" >&2
    wanted=$(echo "$wanted" | tr -d '?' | tr '\n' ' ')
    case $manager in
    dnf) echo "install them with: dnf install $wanted" >&2 ;;
    pacman) echo "install them with: pacman -S --needed $wanted" >&2 ;;
    apk) echo "install them with: apk add $wanted" >&2 ;;
    *) echo "install with this system's package manager what Debian calls: $wanted" >&2 ;;
    esac
    [ -z "$rocks" ] || echo "and with LuaRocks for Lua 5.1:$rocks" >&2
    exit 1
fi

# missing NAME...: those of these packages that are not installed
missing() {
    installed=$(dpkg-query -W -f '${binary:Package} ${db:Status-Status}\n' "$@" 2>/dev/null |
        sed -n 's/\(:[a-z0-9]*\)\{0,1\} installed$//p') || true
    for name in "$@"; do
        echo "$installed" | grep -qxF -- "$name" || echo "$name"
    done
}

# shellcheck disable=SC2046
needed=$(missing $(echo "$wanted" | grep -v '^?'))
# shellcheck disable=SC2046
useful=$(missing $(echo "$wanted" | sed -n 's/^?//p'))
# Unavailable packages are requested once, when the rest is installed.
if [ -z "$needed" ]; then
    for name in $useful; do
        apt-cache show "$name" >/dev/null 2>&1 && needed=$name
    done
    [ -n "$needed" ] || exit 0
    useful=
fi

as_root=
if [ "$(id -u)" != 0 ]; then
    # shellcheck disable=SC2086,SC2116
    has_command sudo ||
        fail 1 "neither root nor sudo; have an administrator run: apt-get install $(echo $needed $useful)"
    as_root="sudo"
fi
run() {
    echo "+ $*"
    "$@"
}
install="$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends"
# shellcheck disable=SC2086
echo "install-deps: missing:" $needed $useful
# Package lists may be absent or old (a fresh container has none): refresh them once, only where needed.
# shellcheck disable=SC2086
run $as_root apt-get update -q || echo "install-deps: could not refresh the package lists, trying with the old ones" >&2
# shellcheck disable=SC2086
run $install $needed
for name in $useful; do
    # shellcheck disable=SC2086
    run $install "$name" || echo "install-deps: no $name here; continuing without it" >&2
done
