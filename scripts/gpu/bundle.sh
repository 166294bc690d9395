#!/bin/sh
# Everything that a machine with a card needs to test and measure this build, in one folder, which has at most 40 MB
# together with the tree, as both may be copied there: BUILD/bundle/gpu-checks, which unpacks files.tar.xz of the same
# folder: the tree, the program with its plugin and the plugin's objects, the libraries that a bare system lacks, and
# Busted. xz is in the folder too, for systems without it.
# usage: [XZ_PRESET=9] bundle.sh BUILD
set -eu
cd "$(dirname "$0")/../.."
build=$1
limit=40
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
tree=$stage/tree
mkdir -p "$tree/$build/lib" "$tree/modules"

# Without the scripts that write fixtures and packages, the specs that no card runs and their fixtures, and the
# program's source but for the plugin's, whose kernels may be compiled there.
unused='^(scripts/(fixtures|coverage|package)/|spec/(cli|fuzz|host|jupyter|models|peft|repl|sim|sweep|text)/'
unused=$unused'|spec/(track|trainer)/|spec/fixtures/(token|(peft|quantized|models/(encoders|vision|sentences))/)'
unused=$unused'|host/([^c]|c[^u]).*[.]c$)'
git ls-files --cached --others --exclude-standard | grep -vE "$unused" |
    while read -r file; do [ ! -f "$file" ] || echo "$file"; done |
    tar -c -T - | tar -x -C "$tree"
cp "$build/accelhost" "$build/accelhost-cuda.so" "$build/op_args.h" "$tree/$build"
(cd "$build" && find host/cuda -name '*.o' ! -name images.o ! -name '*.nv.o' | tar -c -T -) | tar -x -C "$tree/$build"
strip --strip-unneeded "$tree/$build/accelhost" "$tree/$build/accelhost-cuda.so"
find "$tree/$build/host/cuda" -name '*.o' -exec strip --strip-debug {} +

# Libraries that the loader finds beyond glibc and the compiler's own library, which every system has.
ldd "$build/accelhost" "$build/libraries.so" | sed -n 's/^[[:space:]]*\([^ ]*\) => \(\/[^ ]*\) .*/\1 \2/p' |
    while read -r name path; do
        case $name in
        libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | libgcc_s.so*) ;;
        *) cp -L "$path" "$tree/$build/lib/$name" ;;
        esac
    done

for name in busted busted.lua cliargs cliargs.lua dkjson.lua luassert mediator.lua pl say say.lua system term \
    term.lua lfs.so; do
    for folder in /usr/local/share/lua/5.1 /usr/share/lua/5.1 /usr/local/lib/lua/5.1 /usr/lib/*/lua/5.1; do
        [ ! -e "$folder/$name" ] || cp -rL "$folder/$name" "$tree/modules"
    done
done
[ -f "$tree/modules/busted/runner.lua" ] || { echo "gpu-bundle: busted is not here" >&2; exit 1; }

bundle=$build/bundle
rm -rf "$bundle"
mkdir -p "$bundle"
echo "$build" >"$tree/build-folder"
kernels=$(strings "$build/accelhost-cuda.so" | sed -n 's/^for\( sm_.* by CUDA .*\)/\1/p')
tar -C "$stage" --owner=0 --group=0 -c tree | xz --x86 --lzma2=preset="${XZ_PRESET:-9}" >"$bundle/files.tar.xz"
xz=$(command -v xz)
mkdir "$bundle/unpack"
cp -L "$xz" "$bundle/unpack/xz"
ldd "$xz" | sed -n 's/^[[:space:]]*liblzma.* => \(\/[^ ]*\) .*/\1/p' |
    xargs -r -I LIBRARY cp -L LIBRARY "$bundle/unpack"
install -m 755 scripts/gpu/start.sh "$bundle/gpu-checks"
cat >"$bundle/README" <<END
accelhost for a machine with a CUDA card: ./gpu-checks builds what must be built, runs the specs, compute-sanitizer and
the benches within 8 minutes (SECONDS_IN_ALL=480) and ends with a table of goals. Its kernels are for$kernels: those
by CUDA 13 need driver 580 or newer, those by CUDA 12 driver 550, and where they do not load nvcc builds them again. It
needs cuBLASLt and, for convolutions, cuDNN 9 (the toolkit's or those of PyTorch's packages), and glibc
2.35. Results go to \$OUT, or to results here.
END
size=$(du -sk --apparent-size "$bundle" | cut -f 1)
source=$(git ls-files -z | xargs -0r du -ckL --apparent-size -- 2>/dev/null |
    awk '$2 == "total" { n += $1 } END { print n + 0 }')
[ $((size + source)) -le $((limit * 1000)) ] || {
    echo "gpu-bundle: $bundle has $size KB and the tree $source KB, together more than $limit MB" >&2
    exit 1
}
echo "$bundle: $((size / 1000)) MB, with the tree $(((size + source) / 1000)) MB; unpacked" \
    "$(du -sm "$stage" | cut -f 1) MB"
