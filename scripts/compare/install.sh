#!/bin/sh
# usage: install.sh DIR
# Installs the newest PyTorch of the Python registry into DIR, for $PYTHON (python3), and nothing outside DIR; does
# nothing where DIR already holds one that imports. The registry's build links the libraries of a GPU, so they come
# along; the compiler of GPU kernels (triton) and the bindings (cuda-bindings), which a CPU never loads, stay away.
set -eu
dir=${1:?usage: install.sh DIR}
python=${PYTHON:-python3}

imports() {
  PYTHONPATH=$dir "$python" -W ignore -c 'import torch; print("PyTorch " + torch.__version__)' 2>/dev/null
}

pip_install() {
  "$python" -m pip install -qq --no-warn-conflicts --root-user-action=ignore --no-compile --target "$dir" "$@"
}

imports && exit 0
echo "installing PyTorch into $dir (about 4 GB)"
rm -rf "$dir"
pip_install --no-deps torch
PYTHONPATH=$dir "$python" -c '
import importlib.metadata as metadata
for requirement in metadata.requires("torch"):
    if "extra ==" not in requirement and not requirement.startswith(("triton", "cuda-bindings")):
        print(requirement)' > "$dir/requirements.txt"
pip_install -r "$dir/requirements.txt"
imports || { echo "install.sh: PyTorch does not import:"; PYTHONPATH=$dir "$python" -c 'import torch'; exit 1; }
