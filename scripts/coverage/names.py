"""Write generated/names.json: what PyTorch offers a CPU training script, by namespace. usage: names.py

The lists are PyTorch's own: what its documentation sources add a text to, the __all__ of its modules, and the public
classes and functions of those that have none."""

import inspect
import json
import os
import re

import torch
import torch._torch_docs as torch_docs
import torch.distributed
import torch.optim.swa_utils
import torch.utils.checkpoint
import torch.utils.data

# Of torch itself: functions without a text in the sources above but a page in the documentation.
TORCH = """
autocast clamp_max clamp_min compile detach enable_grad fill finfo fork get_default_device get_rng_state iinfo
index_fill index_put inference_mode initial_seed is_storage is_tensor load lobpcg manual_seed masked_fill
masked_scatter no_grad relu rms_norm rsub save scalar_tensor seed set_default_device set_default_dtype
set_grad_enabled set_printoptions set_rng_state softmax log_softmax split use_deterministic_algorithms vmap
Generator Size device dtype""".split()


def documented(module, call):
    return set(re.findall(call + r'\(\s*(?:torch\.|")(\w+)', inspect.getsource(module)))


def public(module):
    """The functions and classes that a module without __all__ defines."""
    return {name for name, value in vars(module).items()
            if not name.startswith("_") and callable(value) and not inspect.ismodule(value)
            and str(getattr(value, "__module__", "torch")).startswith("torch")
            and not name.startswith(("boolean_dispatch", "has_torch_function", "handle_torch_function", "assert_",
                                     "Broadcasting", "Tensor", "Optional", "Callable", "DType"))}


def called(module):
    """Of a module's __all__ what can be called."""
    return {name for name in module.__all__ if callable(getattr(module, name)) and not name.startswith("_")}


def spaces():
    torch_names = documented(torch_docs, "add_docstr") | set(torch.functional.__all__) | set(TORCH)
    tensor = {name for name in dir(torch.Tensor) if not name.startswith("_")}
    utils, distributed = torch.nn.utils, torch.distributed
    return [
        ("torch", {name for name in torch_names if not name.endswith("_") and not name.startswith("_")}),
        ("torch.Tensor", tensor),
        ("torch.linalg", public(torch.linalg)),
        ("torch.special", called(torch.special)),
        ("torch.fft", called(torch.fft) - {"Tensor"}),
        ("torch.autograd", called(torch.autograd)),
        ("torch.nn", {name for name, value in vars(torch.nn).items() if inspect.isclass(value)} | {"Module"}),
        ("torch.nn.Module", {name for name in dir(torch.nn.Module) if not name.startswith("_")}),
        ("torch.nn.functional", public(torch.nn.functional)),
        ("torch.nn.init", {name for name in torch.nn.init.__all__ if name.endswith("_") or name == "calculate_gain"}),
        ("torch.nn.utils", called(utils)),
        ("torch.nn.utils.rnn", called(utils.rnn)),
        ("torch.nn.utils.parametrize", called(utils.parametrize)),
        ("torch.nn.utils.parametrizations", called(utils.parametrizations)),
        ("torch.optim", called(torch.optim)),
        ("torch.optim.lr_scheduler", called(torch.optim.lr_scheduler)),
        ("torch.optim.swa_utils", called(torch.optim.swa_utils)),
        ("torch.distributed", called(distributed.distributed_c10d) | {"is_available", "is_torchelastic_launched"}),
        ("torch.utils.checkpoint", public(torch.utils.checkpoint)),
        ("torch.utils.data", {name for name in called(torch.utils.data) if "Pipe" not in name and "pipe" not in name}),
    ]


def main():
    rows = ["  " + json.dumps([space, sorted(names)]) for space, names in spaces()]
    version = torch.__version__.split("+")[0]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "generated", "names.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"made_by": "scripts/coverage/names.py", "version": "%s", "spaces": [\n%s\n]}\n' %
                   (version, ",\n".join(rows)))


main()
