--- The public surface: `local accelhost = require "accelhost"`.
--
-- Everything about a tensor counts from 0 and means what it means in PyTorch (dims, indices, labels); everything
-- that is a Lua table counts from 1 (`t:shape()[1]` is the size of dim 0).
--
-- Submodules and ops are looked up on first use, so a script pays only for what it touches.
local C = require "accelhost._C"
require "accelhost.tensor"

local accelhost = {
  _VERSION = C.system.version,

  tensor = C.tensor,
  from_string = C.from_string,
  to_string = C.to_string,
  is_tensor = C.is_tensor,

  no_grad = C.autograd.no_grad,
  enable_grad = C.autograd.enable_grad,
  set_grad_enabled = C.autograd.set_grad_enabled,
  is_grad_enabled = C.autograd.is_grad_enabled,

  manual_seed = C.random.manual_seed,
  initial_seed = C.random.initial_seed,
  get_rng_state = C.random.get_rng_state,
  set_rng_state = C.random.set_rng_state,
  Generator = C.random.Generator,

  set_default_device = C.device.set_default,
  get_default_device = C.device.default,
  device_count = C.device.count,
  synchronize = C.device.synchronize,

  set_num_threads = C.system.set_num_threads,
  get_num_threads = C.system.get_num_threads,
  memory_stats = C.system.memory_stats,
  empty_cache = C.system.empty_cache,
}

-- Loaded when first asked for. The second entry picks a field of the module.
local parts = {
  nn = {"accelhost.nn"},
  optim = {"accelhost.optim"},
  data = {"accelhost.data"},
  autograd = {"accelhost.autograd"},
  Accelerator = {"accelhost.accelerator"},
  progress = {"accelhost.util.progress"},
  parse_args = {"accelhost.util.options", "parse"},
  split = {"accelhost.tensor", "split"},
  chunk = {"accelhost.tensor", "chunk"},
  unbind = {"accelhost.tensor", "unbind"},
  equal = {"accelhost.tensor", "equal"},
  allclose = {"accelhost.tensor", "allclose"},
}

-- Names with an instance behind them, made on first use.
local instances = {
  --- The default accelerator, configured by how the script was launched.
  accelerator = function() return accelhost.Accelerator() end,
}

setmetatable(accelhost, {
  __index = function(self, name)
    local value
    local part = parts[name]
    if part then
      value = require(part[1])
      if part[2] then value = value[part[2]] end
    elseif instances[name] then
      value = instances[name]()
    else
      local info = type(name) == "string" and C.op_info(name)
      if not info or not info["function"] then return nil end
      value = C[name]
    end
    rawset(self, name, value)
    return value
  end,
})

return accelhost
