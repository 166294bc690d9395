#!/bin/sh
# A Debian package of a portable build, for the Debian or Ubuntu that it is built on.
# usage: build-deb.sh BUILD      -> BUILD/accelhost_VERSION_ARCHITECTURE.deb
# $DEBEMAIL and $DEBFULLNAME: the maintainer, $SOURCE_DATE_EPOCH: the time in the package.
set -eu
cd "$(dirname "$0")/../.."
build=$1
version=$(sed -n 's/^.define AH_VERSION "\(.*\)"/\1/p' host/base/status/version.h)
architecture=$(dpkg --print-architecture)
maintainer="${DEBFULLNAME:-accelhost contributors} <${DEBEMAIL:-contributors@accelhost.invalid}>"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/debian/accelhost
scripts/package/install.sh install "$build" "$root" /usr >/dev/null
doc=$root/usr/share/doc/accelhost
rm "$root/usr/share/accelhost/manifest" "$doc/LICENSE"
plugins=$(cd "$work" && find debian/accelhost/usr/lib/accelhost -name '*.so')
for file in debian/accelhost/usr/bin/accelhost $plugins; do
    strip --strip-unneeded --remove-section=.comment --remove-section=.note "$work/$file"
done

{
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\n'
    sed -n "s/^Copyright (c) /Copyright: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y) /p" LICENSE
    printf 'License: Expat\n\nLicense: Expat\n'
    sed -n '/^Permission/,$p' LICENSE | sed 's/^$/./; s/^/ /'
} >"$doc/copyright"
{
    printf 'accelhost (%s) unstable; urgency=medium\n\n  * What is new stands in CHANGELOG.md.\n\n' "$version"
    printf ' -- %s  %s\n' "$maintainer" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"
} | gzip -9n >"$doc/changelog.gz"
gzip -9n "$root"/usr/share/man/man*/* 2>/dev/null || true
mkdir -p "$root/usr/share/lintian/overrides"
cp scripts/package/lintian-overrides "$root/usr/share/lintian/overrides/accelhost"

# The libraries, those that are loaded lazily included; of OpenBLAS the build that the program's own path names (see
# BLAS_DIR in the Makefile). A plugin that cannot be opened is reported when it is used, so cairo, which depends on
# fonts and X11, ZeroMQ and Open MPI are optional.
mkdir "$root/DEBIAN"
printf 'Source: accelhost\n\nPackage: accelhost\nArchitecture: any\n' >"$work/debian/control"
cp "$build/libraries.so" "$work/libraries.so"
needed=libraries.so wanted=
for plugin in $plugins; do
    case $plugin in
    */accelhost-plot.so | */accelhost-jupyter.so | */accelhost-mpi.so) wanted="$wanted -e$plugin" ;;
    *) needed="$needed $plugin" ;;
    esac
done
# shellcheck disable=SC2086
(cd "$work" && dpkg-shlibdeps -O debian/accelhost/usr/bin/accelhost $needed ${wanted:+-dRecommends $wanted}) |
    sed 's/\blibopenblas0\b/libopenblas0-openmp/' >"$work/libraries"
libraries() { sed -n "s/^shlibs:$1=//p" "$work/libraries"; }
cat >"$root/DEBIAN/control" <<END
Package: accelhost
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -k -s --exclude=DEBIAN "$root" | cut -f1)
Depends: $(libraries Depends)
Recommends: $(libraries Recommends | sed 's/$/, /')curl
Suggests: gcc, pkg-config
Section: science
Priority: optional
Description: train neural networks in Lua, in one process or many
 One program that embeds LuaJIT and brings tensors, automatic derivatives,
 layers, optimizers and data loaders with the names, defaults and random
 numbers of PyTorch, and an accelerator that spreads a script over processes.
 .
 The kernels for the processor's vector instructions (SSE4.2, AVX2 or AVX-512)
 are chosen when the program starts.
END
(cd "$root" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zxz --build "$root" "$build/accelhost_${version}_$architecture.deb" >/dev/null
echo "$build/accelhost_${version}_$architecture.deb"
