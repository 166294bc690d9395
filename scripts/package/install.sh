#!/bin/sh
# Install the files of files.sh below a prefix, or remove the files of the manifest there. Folders that existed before
# stay.
# usage: install.sh install BUILD DESTDIR PREFIX
#        install.sh uninstall DESTDIR PREFIX
set -eu

fail() {
    echo "install: $1" >&2
    exit 1
}

# make_folder PATH: make it and its parents, and write each new one to the manifest
make_folder() {
    [ ! -d "$1" ] || return 0
    make_folder "$(dirname "$1")"
    mkdir "$1"
    chmod 755 "$1"
    case $1 in "$root"/*) echo "folder ${1#"$root/"}" >>"$new" ;; esac
}

# add MODE SOURCE TARGET
add() {
    make_folder "$(dirname "$root/$3")"
    install -m "$1" "$2" "$root/$3"
    echo "file $3" >>"$new"
}

add_all() {
    scripts/package/files.sh "$build" >"$new.list"
    while read -r mode source target; do add "$mode" "$source" "$target"; done <"$new.list"
    # For those who compile a plugin: pkg-config --cflags accelhost, pkg-config --variable=plugindir accelhost.
    version=$(sed -n 's/^.define AH_VERSION "\(.*\)"/\1/p' host/base/status/version.h)
    printf '%s\n' "prefix=$prefix" "plugindir=\${prefix}/lib/accelhost" '' 'Name: accelhost' \
        'Description: headers of accelhost for device plugins' "Version: $version" \
        "Cflags: -I\${prefix}/include/accelhost" >"$new.list"
    add 644 "$new.list" share/pkgconfig/accelhost.pc
    make_folder "$root/lib/accelhost"
    make_folder "$root/share/accelhost"
    install -m 644 "$new" "$manifest"
}

# Files of an earlier installation go; the folders that it made stay known.
renew() {
    sed -n 's/^file //p' "$manifest" | while read -r path; do rm -f "$root/$path"; done
    sed -n '/^folder /p' "$manifest" >"$new"
}

# In reverse order, so that a folder is removed after its contents.
take_away() {
    list=$(sed -n '1!G;h;$p' "$manifest")
    rm -f "$manifest"
    echo "$list" | while read -r kind path; do
        case $kind in
        file) rm -f "$root/$path" ;;
        folder) rmdir "$root/$path" 2>/dev/null || [ ! -d "$root/$path" ] ||
            echo "install: $root/$path stays, it holds other files" ;;
        esac
    done
}

what=$1
[ "$what" = uninstall ] || build=$2
[ "$what" = uninstall ] || shift
prefix=$3 root=$2$3
case $prefix in /*) ;; *) fail "PREFIX must be a whole path, got '$prefix'" ;; esac
manifest=$root/share/accelhost/manifest
new=$(mktemp)
trap 'rm -f "$new" "$new.list"' EXIT
case $what in
install)
    [ ! -f "$manifest" ] || renew
    add_all
    echo "installed in $root; device plugins go into $root/lib/accelhost"
    ;;
uninstall)
    [ -f "$manifest" ] || fail "nothing is installed in $root (no ${manifest#"$root/"})"
    take_away
    ;;
esac
