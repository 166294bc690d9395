--- accelhost: tensors, functions of tensors, and the namespaces of everything else.
--
--   local accelhost = require "accelhost"
--   local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data
--
-- Everything about a tensor counts from 0, as in PyTorch (dims, indices, labels); Lua tables count from 1
-- (`t:shape()[1]` is the size of dim 0).

-- Submodules and ops are looked up on first use, so a script loads only those that it uses.
local C = require "accelhost._C"
local functions = require "accelhost.functions"
local namespace = require "accelhost.util.namespace"
local tensor = require "accelhost.tensor"
rawset(_G, "pairs", require "accelhost.util.pairs")
rawset(_G, "print", require "accelhost.util.print")
require "accelhost.util.words"

local accelhost = {
  _VERSION = C.system.version,
  __version__ = C.system.version,

  tensor = C.tensor,
  from_string = tensor.from_string,
  to_string = C.to_string,
  is_tensor = C.is_tensor,

  promote_types = C.dtype.promote_types,
  result_type = C.dtype.result_type,
  can_cast = C.dtype.can_cast,
  finfo = C.dtype.finfo,
  iinfo = C.dtype.iinfo,
  get_default_dtype = C.dtype.get_default_dtype,
  set_default_dtype = C.dtype.set_default_dtype,

  no_grad = C.autograd.no_grad,
  enable_grad = C.autograd.enable_grad,
  set_grad_enabled = C.autograd.set_grad_enabled,
  is_grad_enabled = C.autograd.is_grad_enabled,

  manual_seed = C.random.manual_seed,
  seed = C.random.seed,
  initial_seed = C.random.initial_seed,
  get_rng_state = C.random.get_rng_state,
  set_rng_state = C.random.set_rng_state,
  Generator = C.random.Generator,

  get_float32_matmul_precision = C.precision.get_float32_matmul_precision,
  set_float32_matmul_precision = C.precision.set_float32_matmul_precision,

  set_default_device = C.device.set_default_device,
  get_default_device = C.device.get_default_device,
  device_count = C.device.device_count,
  synchronize = C.device.synchronize,

  set_num_threads = C.system.set_num_threads,
  get_num_threads = C.system.get_num_threads,
  memory_stats = C.system.memory_stats,
  empty_cache = C.system.empty_cache,
  time = C.system.time,
}

--- The same as no_grad: run a function without recording gradients, and return its results. PyTorch's saves version
--- counters beyond that, which cost nothing here, so its results may be used in training afterwards.
--
--   accelhost.inference_mode(function() return net(x) end).requires_grad  --> false
---@param fn function
---@param ... any its arguments
---@return any ... the results of fn
accelhost.inference_mode = C.autograd.no_grad

--- An item of an index that adds a dim of size 1 there, as Python's None.
--
--   t[accelhost.newaxis]:shape()[1]              --> 1
--   t[{ {}, accelhost.newaxis, 0 }]:shape()[2]   --> 1
accelhost.newaxis = C.newaxis

--- The name of a dtype, for options called `dtype` and for t:to(): accelhost.float32 is the text "float32". float,
--- double, half, long, int and short are the names float32, float64, float16, int64, int32 and int16.
--
-- int8, int16, uint16, uint32 and uint64 are dtypes of data: their tensors are created, loaded, saved, printed,
-- indexed, compared, joined, converted and copied between ranks; arithmetic refuses them and names the conversion
-- (x:to "int64"). item and tolist raise for an int64 or uint64 beyond 2^53, which no Lua number holds exactly.
--
--   accelhost.zeros(2, {dtype = accelhost.int64})  --> tensor([0, 0])
--   accelhost.long                                 --> int64
---@names float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool float double half
---@names long int short
for name, dtype in pairs {
  float32 = "float32", float64 = "float64", float16 = "float16", bfloat16 = "bfloat16", int64 = "int64",
  int32 = "int32", int16 = "int16", int8 = "int8", uint8 = "uint8", uint16 = "uint16", uint32 = "uint32",
  uint64 = "uint64", bool = "bool", float = "float32", double = "float64", half = "float16",
  long = "int64", int = "int32", short = "int16",
} do
  accelhost[name] = dtype
end

--- The order of a tensor's elements in memory, for the option called memory_format: accelhost.channels_last is the
--- text "channels_last". contiguous, clone, to, the casts (float, half, ...), empty and the makers of a likeness
--- (zeros_like, ...) accept it, and is_contiguous asks for it.
--
-- channels_last keeps the channels of a 4-d tensor (N, C, H, W) together, as N, H, W, C. It never changes a value, a
-- shape or a stride: convolutions, pooling and batch normalisation choose that order for their results by themselves
-- where it is faster, so that no script needs it. An op that has no kernel for it, a view, and reading values in Lua
-- restore row-major order. channels_last_3d is accepted for 5-d tensors, which stay row-major.
-- contiguous_format is row-major; preserve_format, the default, keeps the present order.
--
--   local image = accelhost.rand(1, 3, 4, 4):contiguous {memory_format = accelhost.channels_last}
--   image:is_contiguous {memory_format = "channels_last"}  --> true
---@names channels_last channels_last_3d contiguous_format preserve_format
for _, format in ipairs {"channels_last", "channels_last_3d", "contiguous_format", "preserve_format"} do
  accelhost[format] = format
end

local lazy = {
  amp = {"accelhost.amp"},
  backends = {"accelhost.backends"},
  cuda = {"accelhost.cuda"},
  nn = {"accelhost.nn"},
  fft = {"accelhost.fft"},
  linalg = {"accelhost.linalg"},
  optim = {"accelhost.optim"},
  track = {"accelhost.track"},
  data = {"accelhost.data"},
  autograd = {"accelhost.autograd"},
  special = {"accelhost.special"},
  Accelerator = {"accelhost.accelerator"},
  distributed = {"accelhost.distributed"},
  distributions = {"accelhost.distributions"},
  profiler = {"accelhost.profiler"},
  logging = {"accelhost.logging"},
  progress = {"accelhost.util.progress"},
  enumerate = {"accelhost.util.enumerate"},
  display = {"accelhost.display", "display"},
  input = {"accelhost.display", "input"},
  plot = {"accelhost.plot.figure"},
  parse_args = {"accelhost.util.options", "parse"},
  args = {"accelhost.util.args"},
  report = {"accelhost.track.trial", "report"},
  json = {"accelhost.util.json"},
  sweep = {"accelhost.sweep"},
  text = {"accelhost.text"},
  metrics = {"accelhost.metrics"},
  models = {"accelhost.models"},
  peft = {"accelhost.peft"},
}
namespace.add(lazy, "accelhost.accelerator.options.configuration", {
  "GradientAccumulationPlugin", "DataLoaderConfiguration", "ProjectConfiguration", "DistributedDataParallelKwargs",
})
lazy.FullyShardedDataParallelPlugin = {"accelhost.accelerator.options.fsdp_plugin"}
namespace.add(lazy, "accelhost.accelerator.options.handlers", {
  "InitProcessGroupKwargs", "AutocastKwargs", "GradScalerKwargs", "ProfileKwargs",
  "TERecipeKwargs", "FP8RecipeKwargs",
})
namespace.add(lazy, "accelhost.accelerator.utils", {"set_seed", "find_executable_batch_size"})
namespace.add(lazy, "accelhost.trainer.callbacks", {
  "TrainerCallback", "TrainerControl", "EarlyStoppingCallback", "ProgressCallback", "PrinterCallback",
  "DefaultFlowCallback",
})
namespace.add(lazy, "accelhost.trainer.batches", {"default_data_collator"})
lazy.Trainer = {"accelhost.trainer"}
lazy.TrainingArguments = {"accelhost.trainer.arguments"}
lazy.TrainerState = {"accelhost.trainer.state"}
lazy.LocalSGD = {"accelhost.accelerator.utils.local_sgd"}
lazy.utils = {"accelhost.accelerator.utils"}
namespace.add(lazy, "accelhost.launcher", {"launcher", "notebook_launcher", "debug_launcher"})
namespace.add(lazy, "accelhost.accelerator.process.state", {"PartialState", "AcceleratorState"})
namespace.add(lazy, "accelhost.checkpoint.model", {"load_checkpoint_in_model"})
namespace.add(lazy, "accelhost.isinstance", {"isinstance", "Tensor"})
namespace.add(lazy, "accelhost.device", {"device"})
namespace.add(lazy, "accelhost.io", {"save", "load", "sha256"})
namespace.add(lazy, "accelhost.amp.autocast", {
  "autocast", "is_autocast_enabled", "get_autocast_dtype", "is_autocast_cache_enabled", "set_autocast_enabled",
  "set_autocast_dtype", "set_autocast_cache_enabled", "clear_autocast_cache",
})
namespace.add(lazy, "accelhost.printing", {"set_printoptions", "get_printoptions"})
namespace.add(lazy, "accelhost.tensor", {"split", "chunk", "unbind", "norm"})
functions.install(lazy)

-- Names of accelhost.linalg that accelhost has too, tensors as methods but for the last ones.
local matrix_methods = {
  "inverse", "det", "logdet", "slogdet", "cholesky_solve", "cholesky_inverse", "svd", "pinverse",
  "matrix_power", "matrix_exp", "lu_solve", "orgqr",
}
namespace.add(lazy, "accelhost.linalg.aliases", matrix_methods)
namespace.add(lazy, "accelhost.linalg.aliases", {"chain_matmul", "lu_unpack"})
namespace.add(functions.methods, "accelhost.linalg.aliases", matrix_methods)

local function is_function(name)
  local info = C.op_info(name)
  return info and info["function"]
end

-- The in-place form of a function is one too: accelhost.relu_(x).
local function is_inplace(name)
  local base = name:match "^(.*)_$"
  return base and is_function(base) and C[name] ~= nil
end

-- Names of PyTorch in errors are answered as by `accelhost help`.
namespace.explain = function(title, name)
  return require("accelhost.docs.answers").missing(title, name)
end

--- The default accelerator, configured by how the script was launched; made when it is first used.
--
--   accelhost.accelerator.num_processes  --> 1
---@names accelerator
return namespace.new("accelhost", accelhost, lazy, {
  refused = {
    version = "accelhost.__version__ is the text of the version",
    skip_first_batches = "accelerator:skip_first_batches, or the method of a loader",
    Module = "nn.Module", Linear = "nn.Linear",
  },
  find = function(name)
    if name == "accelerator" then return accelhost.Accelerator() end
    return (is_function(name) or is_inplace(name)) and C[name] or nil
  end,
  names = function()
    local list = {"accelerator"}
    for name in pairs(C) do
      if is_function(name) then list[#list + 1] = name end
    end
    return list
  end,
})
