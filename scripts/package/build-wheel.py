#!/usr/bin/env python3
"""Pack the program for pip, uv and pipx, and as a tar file. usage: build-wheel.py BUILD
-> BUILD/accelhost-VERSION-py3-none-manylinux_2_N_MACHINE.whl, BUILD/accelhost-VERSION-MACHINE.tar.gz

The wheel has no Python code: its files are installed below the environment's prefix as `make install` does below
PREFIX, so bin/accelhost is the program itself. $TARGET, $SYSROOT: as in the Makefile; $SOURCE_DATE_EPOCH: the time of
the files."""

import base64
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

WHEEL = """Wheel-Version: 1.0
Generator: accelhost
Root-Is-Purelib: false
Tag: {tag}
"""
METADATA = """Metadata-Version: 2.4
Name: accelhost
Version: {version}
Summary: Train neural networks in Lua, in one process or in many
License-Expression: MIT
License-File: LICENSE
Requires-Python: >=3.7
Classifier: Environment :: Console
Classifier: Intended Audience :: Science/Research
Classifier: Operating System :: POSIX :: Linux
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Description-Content-Type: text/markdown

{readme}"""


def epoch():
    """Return the time of the files: $SOURCE_DATE_EPOCH, that of the last commit, or, without git, now."""
    try:
        asked = subprocess.run(["git", "log", "-1", "--format=%ct"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               text=True, check=False).stdout.strip()
    except FileNotFoundError:
        asked = ""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or asked or time.time())


class Wheel:
    """A zip file that records the hash of each file."""

    def __init__(self, path, info):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.info, self.record = info, []
        self.time = time.gmtime(epoch())[:6]

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, self.time)
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}\n")

    def close(self):
        name = f"{self.info}/RECORD"
        self.add(name, "".join([*self.record, f"{name},,\n"]).encode())
        self.zip.close()


def files_of(root):
    return [path for path in sorted(root.rglob("*")) if path.is_file()]


def write_wheel(root, path, version, tag):
    wheel = Wheel(path, f"accelhost-{version}.dist-info")
    for file in files_of(root):
        name = f"accelhost-{version}.data/data/{file.relative_to(root)}"
        wheel.add(name, file.read_bytes(), file.stat().st_mode & 0o777)
    readme = pathlib.Path("README.md").read_text()
    wheel.add(f"{wheel.info}/licenses/LICENSE", pathlib.Path("LICENSE").read_bytes())
    wheel.add(f"{wheel.info}/WHEEL", WHEEL.format(tag=tag).encode())
    wheel.add(f"{wheel.info}/METADATA", METADATA.format(version=version, readme=readme).encode())
    wheel.close()


def write_tar(root, path, name):
    def with_epoch(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = epoch()
        return entry

    with tarfile.open(path, "w:gz") as tar:
        for file in files_of(root):
            tar.add(file, f"{name}/{file.relative_to(root)}", filter=with_epoch)


def main(build):
    os.chdir(pathlib.Path(__file__).parent / "../..")
    version = re.search(r'AH_VERSION "(.*)"', pathlib.Path("host/base/status/version.h").read_text())[1]
    machine = os.environ.get("TARGET", "").split("-")[0] or platform.machine()
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder, "accelhost")
        root.mkdir()
        glibc = subprocess.run([sys.executable, "scripts/package/relocatable.py", build, root], check=True,
                               stdout=subprocess.PIPE, text=True).stdout.strip().replace(".", "_")
        tag = f"py3-none-manylinux_{glibc}_{machine}"
        wheel = pathlib.Path(build, f"accelhost-{version}-{tag}.whl")
        write_wheel(root, wheel, version, tag)
        name = f"accelhost-{version}-{machine}"
        write_tar(root, pathlib.Path(build, name + ".tar.gz"), name)
    print(wheel)
    print(pathlib.Path(build, name + ".tar.gz"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: build-wheel.py BUILD")
    main(sys.argv[1])
