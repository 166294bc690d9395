--- Answers for names of PyTorch or Accelerate: the reason of an absence, or the name here.
--
-- Rows {namespaces, names, answer}. Namespaces and names are Lua patterns anchored at both ends (several names
-- are separated by blanks); the first row that fits answers. An answer that begins with "as " is another name.
local elsewhere = require "accelhost.util.hints.elsewhere"

local rows = {
  -- Under another name.
  {"torch", "concat concatenate", "as accelhost.cat"},
  {"torch", "trapz", "as accelhost.trapezoid"},
  {"torch", "row_stack", "as accelhost.vstack"},
  {"torch", "from_numpy frombuffer asarray", "as accelhost.tensor, accelhost.from_string, accelhost.load of .npy"},
  {"torch", "Size", "as a table of sizes: t:shape()"},
  {"torch.Tensor", "size", "as t:size(dim)"},
  {"torch", "get_default_device set_default_device", "as the option device of every constructor"},
  {"torch", "compile", "no compiler: ops are native code and start at once; accelerator:compile(step) captures a step "
    .. "as one graph"},
  {"torch", "vmap fork", "Python's tracing and futures; ops here are native and start at once"},
  {"torch", "is_inference is_inference_mode_enabled", "as accelhost.is_grad_enabled"},
  {"torch.autograd", "inference_mode", "as accelhost.inference_mode"},
  {"torch.autograd", "Variable NestedIOFunction grad_mode", "before PyTorch 0.4; every tensor has autograd"},
  {"torch.optim", "swap_in_optimizer_params_and_state", "of PyTorch's optimizer offload"},
  {"torch.optim", "SparseAdam", "for sparse gradients: tensors here are dense"},
  {"torch.nn.Module", "cpu cuda", "as module:to(device)"},
  {"torch.nn", "Buffer", "as module:register_buffer(name, tensor)"},
  {"torch.nn", "RNNBase RNNCellBase", "bases of RNN, LSTM and GRU, which are here"},
  {"torch.nn", "NLLLoss2d", "as nn.NLLLoss, which accepts any number of dims"},
  {"torch.nn", "Container", "deprecated in PyTorch"},
  {"torch.nn", "CrossMapLRN2d", "as nn.LocalResponseNorm"},
  {"torch.nn", "DataParallel", "as accelerator:prepare in several processes"},
  {"torch.nn.utils", "clip_grad_norm", "as nn.utils.clip_grad_norm_"},
  {"torch.utils", "make_grid save_image", "as data.make_grid and data.save_image"},
  {"torchvision.transforms", "ToPILImage PILToTensor", "images are uint8 tensors: data.read_image, data.save_image"},
  {"torchvision.transforms", "AutoAugmentPolicy", 'as a string: transforms.AutoAugment "cifar10"'},
  {"torchvision.transforms", "InterpolationMode", 'as a string: {interpolation = "bilinear"}'},
  {"torch.utils.checkpoint", "set_checkpoint_early_stop GraphExecGroup", "the second run is always whole"},
  {"torch.utils.checkpoint", "set_checkpoint_debug_enabled", "accelhost.profiler shows the ops of both runs"},
  {"torch.utils.checkpoint", "CheckpointError", "errors are texts"},
  {"torch.utils.checkpoint", "CheckpointPolicy SelectiveCheckpointContext create_selective_checkpoint_contexts",
    "a function is computed again as a whole: checkpoint its parts"},
  {"torch.utils.checkpoint", "CheckpointFunction DefaultDeviceType check_backward_validity detach_variable "
    .. "noop_context_fn [gs]et_device_states", "parts of PyTorch's implementation"},
  {"torch.utils.data", "default_convert argument_validation runtime_validation.* non_deterministic DataChunk",
    "of PyTorch's data pipes"},
  {"torch.nn.functional", "native_channel_shuffle", "as F.channel_shuffle"},
  {"torch.nn.functional", ".*_with_indices", "as the option return_indices of the pooling"},

  {"torch", "dtype", "as a name: accelhost.float32, \"float32\""},
  {"torch", "FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor ByteTensor BoolTensor CharTensor "
    .. "ShortTensor", "as accelhost.tensor(values, {dtype = \"float32\"}) or accelhost.empty(sizes, {dtype = ...})"},
  {"torch.cuda", "%u%l+%d*Tensor", "as accelhost.tensor(values, {device = \"cuda\", dtype = \"float32\"})"},
  {"torch.accelerator", "is_available", "as accelhost.cuda.is_available()"},
  {"torch.accelerator", "device_count", "as accelhost.cuda.device_count()"},
  {"torch", "fill", "as accelhost.full_like, t:fill_(value)"},
  {"torch", "range", "as accelhost.arange, without its end"},
  {"torch", "from_file", "as accelhost.load, which maps the file"},
  {"torch", "rms_norm", "as F.rms_norm"},
  {"torch.Tensor", "numpy", "as t:tolist(), accelhost.save(t, \"t.npy\")"},
  {"torch.Tensor", "is_cpu", "as t.device == \"cpu\""},
  {"torch.Tensor", "hardshrink prelu", "as F.hardshrink, F.prelu"},
  {"torch.Tensor", "qr", "as accelhost.linalg.qr"},
  {"torch.Tensor", "split_with_sizes", "as t:split(sizes)"},
  {"torch.linalg", "LinAlgError", "as the error's text, which has the index of the singular matrix"},
  {"torch.distributed", "GroupMember", "as dist.group, with WORLD and NON_GROUP_MEMBER"},
  {"torch.distributed", ".*_coalesced", "as a call for each tensor, with async_op"},
  {"torch.distributed", "shrink_group", "as dist.new_group, of the ranks that stay"},
  {"torch.distributed", "get_debug_level", "as ACCELHOST_DEBUG=comm, which logs every call; they are compared always"},
  {"torch.distributed", ".*Store", "the launcher connects the processes; others meet on their host by themselves"},
  {"torch.distributed", ".*Options Backend.* ProcessGroup.+ DebugLevel GroupName get_backend_impl record_comm "
    .. "get_pg_count supports_complex is_ucc_available is_xccl_available", "PyTorch's own machinery, and its backends"},

  -- Of Accelerate and packages used with it.
  {"accelerate", "tqdm trange", "as accelhost.progress"},
  {"accelerate", "torchrun accelerate", "as accelhost launch"},
  {"accelerate", "set_seed", "as accelhost.manual_seed"},
  {"accelerate", "gradient_state GradientState AcceleratorState PartialState", "as the fields of an Accelerator"},
  {"accelerate", "DistributedType init_distributed", "as accelerator:prepare in several processes"},
  {"accelerate", "prepare_model prepare_optimizer prepare_data_loader prepare_scheduler", "as accelerator:prepare"},
  {"torch.utils.tensorboard", "add_figure add_video add_audio add_graph add_embedding add_pr_curve.* add_mesh "
    .. "add_tensor add_custom_scalars.* add_onnx_graph add_image_with_boxes add_histogram_raw",
    "accelhost.track.SummaryWriter keeps scalars, histograms, images, texts and hyperparameters"},
  {"torch.utils.tensorboard", "SummaryWriter FileWriter RecordWriter", "as accelhost.track.SummaryWriter"},
  {"accelerate", "on_main_process on_local_main_process on_last_process on_process",
    "as if accelerator.is_main_process then ... end"},
  {"accelerate", "skip_first_batches", "as loader:skip_first_batches(count)"},
  {"accelerate", "get_logger getLogger", "as accelhost.logging.get_logger(name)"},
  {"torch.profiler", "ProfilerActivity ProfilerAction", "as strings: activities = \"cpu\", a schedule's \"record\""},
  {"torch.profiler", "tensorboard_trace_handler", "as accelhost.profiler.trace_handler(folder)"},
  {"accelerate", "GradScaler", "as accelhost.amp.GradScaler"},
  {"accelerate", "from_pretrained AutoModel.* AutoTokenizer.*", "as accelhost.models.AutoModel and "
    .. "accelhost.text.AutoTokenizer, from a folder: nothing is downloaded"},
  {"accelerate", "load_dataset", "as data.load_dataset (files of rows, with streaming too) and data.ImageFolder"},

  {".*", "adjoint", "as x.mT: of real matrices the conjugate transpose is the transpose"},

  -- Not here.
  {"torch.linalg", "polar", "the polar decomposition of a matrix; from U, S, Vh of linalg.svd it is U Vh and Vh' S Vh"},
  {".*",
    "complex is_complex conj.* is_conj resolve_.* real imag angle polar .*view_as_complex.* " ..
      ".*view_as_real.* cfloat cdouble chalf H mH stft istft isreal",
    "of a complex dtype: accelhost.fft has real and imaginary part as two tensors"},
  {"torch.linalg", "eig eigvals", "complex results; eigh and eigvalsh are here"},
  {".*",
    ".*sparse.* .*_indices crow_indices.* col_indices.* ccol_indices.* row_indices.* .*values_copy values " ..
      "indices.* indices is_coalesced coalesce hspmm smm sspaddmm SparseAdam dense_dim hsmm dsmm spmm " ..
      "saddmm",
    "sparse layouts: tensors here are dense"},
  {".*", ".*quantiz.* .*fake_quantize.* q_.* qscheme int_repr dequantize is_quantized qint.*",
    "quantised tensors: models.BitsAndBytesConfig reads a model with weights of 8 or 4 bits; "
      .. "accelhost help fine_tuning"},
  {".*", ".*_copy narrow_copy slice_inverse unsafe_.* _.* alias_copy", "forms for PyTorch's own compiler"},
  {".*", "align_as align_to names refine_names rename rename_ has_names", "named tensors, a prototype in PyTorch"},
  {".*",
    "ipu xpu mtia hpu is_ipu is_xpu is_mtia is_hpu is_maia is_mps is_vulkan is_meta is_xla is_mkldnn " ..
      "to_mkldnn get_device is_nested is_distributed is_inference",
    "devices and layouts that accelhost does not drive"},
  {"torch", "Event Stream", "streams of a GPU, which accelhost keeps to itself"},
  {".*", "record_stream", "GPU memory, which accelhost manages itself"},
  {".*", "share_memory.* is_shared share_memory", "ranks share memory through the collectives"},
  {".*", "storage storage_type typed_storage untyped_storage set_ resize resize_ resize_as resize_as_ data_ptr",
    "a tensor's memory is its own: a size that changes under a view is a source of errors"},
  {".*",
    "reinforce volatile solve symeig eig lstsq cholesky.* lu .*triangular_solve.* geqrf orgqr ormqr " ..
      "chain_matmul map_ map2_ apply_ name output_nr new svd_lowrank pca_lowrank lobpcg",
    "deprecated, or of accelhost.linalg under PyTorch's newer name"},
  {"torch.nn", "Uninitialized.*", "of the lazy layers"},
  {"torch.nn", "LinearCrossEntropyOptions", "a table: options = {batch_chunk_size = 1024}"},
  {"torch.nn.functional", "scaled_.*mm.* grouped_mm ScalingType SwizzleType conv_tbc", "of 8-bit products on GPUs"},
  {"torch.nn.Module", "T_destination call_super_init dump_patches compile register_backward_hook",
    "Python's machinery, or deprecated in PyTorch"},
  {"torch.nn.utils", "convert_.*_memory_format", "memory order is chosen by the ops"},
  {"torch.special",
    "bessel_.* modified_bessel.* scaled_modified.* spherical.* airy_ai chebyshev.* shifted_cheb.* " ..
      "hermite.* laguerre.* legendre.* zeta erfcx i0e i1 i1e gammainc.* log_ndtr",
    "special functions that no training script was seen to use"},
  {".*",
    "igamma.* igammac.* mvlgamma.* multigammaln",
    "special functions that no training script was seen to use"},
  {".*", "set_flush_denormal .*num_interop_threads use_deterministic_algorithms",
    "one thread pool; results are deterministic always"},
  {"torch", ".*_window", "windows of signal processing"},
  {".*", "register_post_accumulate_grad_hook module_load dim_order to_padded_tensor sum_to_size hash_tensor",
    "Python's machinery"},
  {".*", "histogram histogramdd segment_reduce nonzero_static frexp cauchy_ geometric_ log_normal_ matrix_sqrth "
    .. "gradient renorm renorm_ unravel_index empty_permuted", "functions that no training script was seen to use"},
  {".*", "is_storage const_data_ptr grad_dtype is_neg is_set_to layout to_dense as_subclass retains_grad type",
    "one kind of storage and layout, and no subclasses"},
  {".*", "as_strided as_strided_ as_strided_scatter empty_strided new_empty_strided",
    "views of a tensor's memory without its shape: the ops that return views are here"},
  {"torch.autograd", "variable enforce_grad_layout_policy set_multithreading_enabled",
    "PyTorch's own machinery; backward runs in one thread"},
}

-- Modules of other packages, each for all names below it that no row above answers; the longest one counts.
local export = "no export of graphs: accelhost.save writes weights as safetensors, which PyTorch and Hugging Face load"
local training = "as accelhost.Trainer, with the arguments of transformers, or a loop with accelhost.Accelerator"
local tracking = "as log_with and accelhost.track, which write TensorBoard, JSON lines and CSV files; nothing is sent "
  .. "to a server"
local searching = "as accelhost sweep, with its own samplers, pruners and reports"
local models = "accelhost.models has BERT and decoders (GPT-2, Llama, ...), accelhost.text tokenizers, "
  .. "accelhost.Trainer the Trainer"
local transforms = "no compiler: ops are native code and start at once"
local arrays = "as accelhost.tensor and t:tolist(); .npy and .npz files are read and written"
local modules = {
  {"torch", nil},
  {"torch.signal", "signal processing: accelhost.fft has the transforms, accelhost the windows (hann_window, ...)"},
  {"torch.func", "function transforms such as vmap: accelhost.autograd.functional has jacobian, hessian, vjp and jvp"},
  {"torch.jit", transforms .. ", and " .. export},
  {"torch.fx", transforms}, {"torch.compiler", transforms}, {"torch._dynamo", transforms},
  {"torch._inductor", transforms},
  {"torch.export", export}, {"torch.onnx", export}, {"torch.package", export}, {"torch.mobile", export},
  {"torch.distributed.fsdp", 'as accelhost.Accelerator{sharding = "full"}: accelhost help sharding'},
  {"torch.distributed.optim", 'as accelhost.Accelerator{sharding = "optimizer"}: accelhost help sharding'},
  {"torch.distributed.rpc", "calls of functions in other processes: accelhost.distributed sends tensors and objects"},
  {"torch.distributed.tensor", "tensor parallelism: models are replicated or sharded (accelhost help sharding)"},
  {"torch.distributed.device_mesh", "tensor parallelism: accelhost.distributed.new_group makes groups of ranks"},
  {"torch.distributed.pipelining", "pipeline parallelism: models are replicated or sharded (accelhost help sharding)"},
  {"torch.distributed.checkpoint", "as accelerator:save_state and load_state: accelhost help checkpoints"},
  {"torch.distributed.elastic", "as accelhost launch --max_restarts, --nnodes MIN:MAX and --recover live"},
  {"torch.distributed.run", "as accelhost launch"}, {"torch.distributed.launch", "as accelhost launch"},
  {"torch.distributions", "probability distributions: write the log-probabilities, as F.log_softmax(...):gather(...)"},
  {"torch.nested", "tensors of unequal rows: nn.utils.rnn pads and packs sequences"},
  {"torch.masked", "masked tensors: t:masked_fill and accelhost.where"},
  {"torch.sparse", "sparse layouts: tensors here are dense"},
  {"torch.hub", "downloads of code: accelhost.models.AutoModel.from_pretrained(folder) and accelhost.load read local "
    .. "files"},
  {"torch.utils.model_zoo", "downloads of weights: accelhost.load reads local files, those of PyTorch too"},
  {"torch.ao", "quantised tensors: models.BitsAndBytesConfig reads a model with weights of 8 or 4 bits; "
    .. "accelhost help fine_tuning"},
  {"torch.quantization", "quantised tensors: models.BitsAndBytesConfig reads a model with weights of 8 or 4 bits; "
    .. "accelhost help fine_tuning"},
  {"torch.multiprocessing", "as accelhost.launcher(fn, {num_processes = 2}), accelhost launch, and num_workers of a "
    .. "DataLoader"},
  {"torch.futures", "as async_op and wait of accelhost.distributed"},
  {"torch.accelerator", "as accelhost.cuda and accelerator.device"},
  {"torch.mps", "devices that accelhost does not drive"}, {"torch.xpu", "devices that accelhost does not drive"},
  {"torch.mtia", "devices that accelhost does not drive"}, {"torch.cpu", "as accelhost, on the device \"cpu\""},
  {"torch.random", "as accelhost.manual_seed, seed, initial_seed, get_rng_state and set_rng_state"},
  {"torch.serialization", "nothing in a file is run: accelhost.load reads tensors and plain values only, without a "
    .. "list of trusted classes"},
  {"torch.library", "as accelhost.autograd.Function, or a plugin of a device"},
  {"torch.overrides", "Python's machinery"}, {"torch.monitor", "as accelhost.track and accelhost top"},
  {"torch.testing", "as x:allclose(y) and accelhost.autograd.gradcheck"},
  {"torch.version", "as accelhost.__version__; accelhost --version and accelhost env print it"},
  {"torch.utils.benchmark", "as accelhost.profiler and accelhost.time"},
  {"torch.utils.bottleneck", "as accelhost.profiler"},
  {"torch.utils.cpp_extension", "as a plugin of a device: host/extending.md"},
  {"torch.utils.dlpack", "memory shared with other libraries: accelhost.from_string and accelhost.load copy or map"},
  {"torchvision.models", "as models.resnet18, models.vit_b_16 and models.convnext_tiny, where this one is not"},
  {"torchvision.datasets", "as data.mnist, data.CIFAR10 and data.ImageFolder"},
  {"torchvision.transforms", "as data.transforms, where this one is not"},
  {"timm", "as models.create_model and models.AutoModelForImageClassification, where this one is not"},
  {"torchvision", "as data.transforms, data.ImageFolder, data.read_image and data.save_image"},
  {"torchaudio", "sound: tensors of samples are read from .npy files or accelhost.from_string"},
  {"torchtext", "as accelhost.text and data.load_dataset"},
  {"torchmetrics", "as accelhost.metrics"}, {"evaluate", "as accelhost.metrics"}, {"sklearn", "as accelhost.metrics"},
  {"pytorch_lightning", training}, {"lightning", training}, {"fastai", training}, {"ignite", training},
  {"keras", training}, {"tensorflow", training}, {"jax", "names here are PyTorch's: accelhost help from_pytorch"},
  {"deepspeed", 'as accelhost.Accelerator{sharding = "full"}: accelhost help sharding'},
  {"horovod", "as accelhost launch and accelhost.distributed"},
  {"transformers", models}, {"peft", "as accelhost.peft"}, {"diffusers", models}, {"trl", models},
  {"bitsandbytes", models},
  {"tokenizers", "as accelhost.text.AutoTokenizer and accelhost.text.Tokenizer"},
  {"datasets", "as data.load_dataset, with data.Table and data.RowStream"},
  {"safetensors", "as accelhost.save and accelhost.load"},
  {"huggingface_hub", "downloads: from_pretrained reads local folders"},
  {"accelerate", "of Accelerate, without an equal here: accelhost help from_accelerate"},
  {"wandb", tracking .. "; accelhost sweep reads the YAML files of its sweeps"},
  {"mlflow", tracking}, {"comet_ml", tracking}, {"aim", tracking}, {"clearml", tracking}, {"neptune", tracking},
  {"tensorboardX", "as accelhost.track.SummaryWriter"}, {"tensorboard", "as accelhost.track.SummaryWriter"},
  {"optuna", searching}, {"ray", searching}, {"hyperopt", searching},
  {"numpy", arrays}, {"np", arrays}, {"pandas", "as data.load_dataset and data.Table"},
  {"matplotlib", "as accelhost plot, which draws in the terminal, as SVG or PNG"},
  {"onnx", export}, {"onnxruntime", export}, {"time", "as accelhost.time"},
}

local answers = {}

local function names_it(row, name)
  for pattern in row[2]:gmatch "%S+" do
    if pattern ~= ".*" and name:match("^" .. pattern .. "$") then return true end
  end
  return false
end

-- The row about a name itself.
local function of_name(space, name)
  for _, row in ipairs(rows) do
    local fits = space:match("^" .. row[1]:gsub("%.(%a)", "%%.%1") .. "$")
    if fits and names_it(row, name) then return row[3] end
  end
end

--- The answer for a name of a namespace, nil where none fits.
---@param space string such as "torch.nn"
---@return string?
function answers.of(space, name)
  local answer = of_name(space, name)
  if answer then return answer end
  for _, row in ipairs(modules) do
    if row[1] == space then return row[2] end
  end
end

-- The packages whose names a namespace has, by its title; of others the module of PyTorch of that name.
local spaces = {
  accelhost = {"torch"}, data = {"torch.utils.data", "torchvision.datasets"}, utils = {"torch.utils", "accelerate"},
  ["data.transforms"] = {"torchvision.transforms"},
}

--- The answer for a name that a namespace does not have, as part of an error; nil where none fits.
---@param title string of the namespace, such as "nn.functional"
---@return string?
function answers.missing(title, name)
  for _, space in ipairs(spaces[title] or {"torch." .. title}) do
    local answer = of_name(space, name)
    for _, row in ipairs(modules) do
      if not answer and row[1] == space .. "." .. name then answer = row[2] end
    end
    if answer then return (answer:gsub("^as ", "here ")) end
  end
  if title == "accelhost" then return elsewhere.sentences[name] end
end

--- The rows of a namespace, {names, answer} each; "..." means the rest of a name.
---@param space string
function answers.rows(space)
  local list = {}
  for _, row in ipairs(rows) do
    if row[1] == space then list[#list + 1] = {(row[2]:gsub("%.%*", "...")), row[3]} end
  end
  return list
end

--- List the modules of other packages that have an answer, {module, answer} each.
function answers.modules()
  local list = {}
  for _, row in ipairs(modules) do
    if row[2] then list[#list + 1] = row end
  end
  return list
end

-- The row of the longest module that a word is, or is a name of.
local function module_of(word)
  local found
  for _, row in ipairs(modules) do
    local name = row[1]
    if (word == name or word:sub(1, #name + 1) == name .. ".") and (not found or #name > #found[1]) then found = row end
  end
  return found
end

--- Is a word a name of another package, with its module: "torch.relu", "wandb.log"?
---@return boolean
function answers.is_foreign(word)
  return word:find ".%." ~= nil and module_of(word) ~= nil
end

-- Rows whose namespace is none of PyTorch's are of Accelerate and its relatives.
local function in_other_packages(name)
  for _, row in ipairs(rows) do
    if row[1] == "accelerate" and names_it(row, name) then return row[3] end
  end
end

-- "fft", "jit.script", "from_numpy": a module of PyTorch without its first part, or a name in any namespace.
local function without_package(word, name)
  local module = module_of("torch." .. word)
  if module[2] then return module[2], module[1]:gsub("^torch%.", "") end
  for _, row in ipairs(rows) do
    if names_it(row, name) then return row[3] end
  end
end

--- The answer for a name as a user types it, with its namespace or without: "torch.from_numpy", "fft".
---@param is_here? fun(module: string): boolean is a module of PyTorch, such as "nn", here?
---@return string? answer
---@return string? module the module that the answer is about, where no row is about the name itself; "Python"
function answers.find(word, is_here)
  local space, name = word:match "^(.*)%.([%w_]+)$"
  local module = module_of(word)
  if not module then
    local answer, about = without_package(word, name or word)
    if not answer and elsewhere.globals[word] then return elsewhere.globals[word], "Python" end
    return answer, about
  end
  local own = space and (of_name(space:gsub("%.v2$", ""), name) or in_other_packages(name))
  if own then return own end
  if module[2] then
    local there = module[1]:gsub("^torch%.", "")
    if is_here and is_here(there) then return nil end
    return module[2], module[1]
  end
  -- A module of PyTorch that nothing is known of: not a matter of spelling.
  local unknown = word:match "^torch%.([%w_%.]+)%.[%w_]+$"
  if unknown and not unknown:find "^%u" and is_here and not is_here(unknown) then
    return "a module without an equal here", "torch." .. unknown
  end
end

return answers
