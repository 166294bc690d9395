--- Communication hooks of prepared models, by Accelerate's names: those of accelhost.distributed, called with
--- gradients that are already weighted.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local comm_hook = require "accelhost.distributed.comm_hook"
local default_hooks = require "accelhost.distributed.default_hooks"
local groups = require "accelhost.distributed.groups"
local power_sgd = require "accelhost.distributed.power_sgd"
local comm = C.comm

local comm_hooks = {}

local function thin(hook)
  return function(group, options)
    options.process_group = group
    return power_sgd.PowerSGDState(options), hook
  end
end

-- name -> function of the processes and the state's options that returns state and hook
local kinds = {
  fp16 = function(group) return group, default_hooks.fp16_compress_hook end,
  bf16 = function(group) return group, default_hooks.bf16_compress_hook end,
  power_sgd = thin(power_sgd.powerSGD_hook),
  batched_power_sgd = thin(power_sgd.batched_powerSGD_hook),
}

local wrappers = {fp16 = default_hooks.fp16_compress_wrapper, bf16 = default_hooks.bf16_compress_wrapper}

-- Hooks compute the plain mean over the processes. With each bucket times (processes / sum of weights) before, that is
-- the weighted mean; the weights are exchanged with the first bucket.
local function weigher(handle)
  local factor
  return function(bucket)
    if bucket:index() == 0 then
      local sum = C.tensor({handle.total}, {dtype = "float64", device = "cpu"})
      comm.all_reduce(sum, "sum")
      sum = sum:item()
      factor = sum > 0 and comm.size() / sum or 1
    end
    if factor ~= 1 then bucket:buffer():mul_(factor) end
  end
end

--- Install the hook of a DistributedDataParallelKwargs.
---@param handle Parallel
---@param kwargs DistributedDataParallelKwargs
function comm_hooks.install(handle, kwargs)
  local state, hook = kinds[kwargs.comm_hook](groups.of_job(), arguments.copy(kwargs.comm_state_option or {}))
  local wrap = wrappers[kwargs.comm_wrapper]
  comm_hook.install(handle.reducer, state, wrap and wrap(hook) or hook, weigher(handle))
end

return comm_hooks
