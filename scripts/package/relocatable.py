"""Make a folder with the program, its plugins, its files and all shared libraries beyond glibc and the compiler's own,
that runs wherever it is copied. usage: relocatable.py BUILD FOLDER

The layout is that of `make install`, with the libraries in lib/accelhost/lib. The libraries that the program loads
lazily (OpenBLAS, oneDNN) are those of BUILD/libraries.so. Not included: the plugin of MPI, whose library must be the
one of the machine. Needs patchelf. $TARGET and $SYSROOT: as in the Makefile. Prints the newest version of glibc that
a file requires."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

# Libraries of every Linux with glibc, as PEP 600 lists them; C++'s must be as new as a driver's libraries require.
SYSTEM = re.compile(r"(libc|libm|libdl|libpthread|librt|libresolv|libgcc_s|libstdc\+\+|ld-linux[\w-]*)\.so")
LIBRARIES = "lib/accelhost/lib"
TARGET, SYSROOT = os.environ.get("TARGET", ""), os.environ.get("SYSROOT", "")


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def tool(name):
    return f"{TARGET}-{name}" if TARGET else name


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def needs(path):
    """Return the names of the libraries that a file needs, and the folders that it names for them."""
    text = output(tool("objdump"), "-p", str(path))
    folders = re.findall(r"^ +(?:RPATH|RUNPATH) +(.*)$", text, re.M)
    return re.findall(r"^ +NEEDED +(\S+)$", text, re.M), [f for line in folders for f in line.split(":")]


def system_folders():
    """Return the folders in which the dynamic linker of the target searches."""
    multiarch = TARGET or output("gcc", "-print-multiarch").strip()
    places = ("/lib", "/usr/lib", "/lib64", "/usr/lib64")
    return [f"{SYSROOT}{place}/{sub}" for sub in (multiarch, "") for place in places]


def find(name, named, folders):
    for folder in [SYSROOT + f for f in named if f.startswith("/")] + folders:
        path = pathlib.Path(folder, name)
        if path.is_file():
            return path
    sys.exit(f"relocatable: no {name} in {' '.join(folders)}")


def closure(files):
    """Return {name: path} of the libraries of these files, and of their libraries."""
    folders, found, left = system_folders(), {}, list(files)
    while left:
        names, named = needs(left.pop())
        for name in names:
            if not SYSTEM.match(name) and name not in found:
                found[name] = find(name, named, folders)
                left.append(found[name])
    return found


def copy_licenses(libraries, folder):
    """Copy the copyright files of the Debian packages of these libraries."""
    folder.mkdir(parents=True)
    patterns = ["*/" + path.resolve().name for path in libraries]
    try:
        asked = subprocess.run(["dpkg", "-S", *patterns], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               check=False).stdout
    except FileNotFoundError:
        asked = ""
    for package in {line.split(":")[0] for line in asked.splitlines()}:
        source = pathlib.Path(f"{SYSROOT}/usr/share/doc/{package}/copyright")
        if source.is_file():
            shutil.copyfile(source, folder / package)


def glibc_of(files):
    versions = {(0, 0)}
    for path in files:
        for version in re.findall(r"GLIBC_(\d+)\.(\d+)", output(tool("objdump"), "-T", str(path))):
            versions.add((int(version[0]), int(version[1])))
    return max(versions)


def main(build, folder):
    root = pathlib.Path(folder)
    output("scripts/package/install.sh", "install", build, "", str(root.resolve()))
    (root / "share/accelhost/manifest").unlink()
    (root / "lib/accelhost/accelhost-mpi.so").unlink(missing_ok=True)
    # Its prefix would be this folder; ${pcfiledir} is that of the file.
    package = root / "share/pkgconfig/accelhost.pc"
    package.write_text(re.sub(r"^prefix=.*", "prefix=${pcfiledir}/../..", package.read_text()))

    own = [path for path in sorted(root.rglob("*")) if path.is_file() and is_elf(path)]
    libraries = closure([*own, pathlib.Path(build, "libraries.so")])
    (root / LIBRARIES).mkdir()
    copies = []
    for name, path in sorted(libraries.items()):
        copies.append(root / LIBRARIES / name)
        shutil.copyfile(path, copies[-1])
        copies[-1].chmod(0o755)
    copy_licenses(libraries.values(), root / "share/doc/accelhost/licenses")

    # RPATH precedes LD_LIBRARY_PATH, where another build of OpenBLAS would start a second thread pool.
    for path in own + copies:
        output(tool("strip"), "--strip-unneeded", str(path))
        rpath = os.path.join("$ORIGIN", os.path.relpath(root / LIBRARIES, path.parent)).rstrip("/.")
        output("patchelf", "--force-rpath", "--set-rpath", rpath, str(path))
    print("%d.%d" % glibc_of(own + copies))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: relocatable.py BUILD FOLDER")
    main(*sys.argv[1:])
