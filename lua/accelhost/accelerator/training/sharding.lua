--- The steps of an accelerator that differ when the states of its models are sharded.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local averaging = require "accelhost.averaging"
local clipping = require "accelhost.sharding.clipping"
local collectives = require "accelhost.accelerator.process.collectives"
local hooks = require "accelhost.optim.hooks"
local states = require "accelhost.sharding.states"
local stepping = require "accelhost.sharding.stepping"
local units = require "accelhost.sharding.units"

local shard_of = averaging.shard_of
local sharded = {}

--- The units of a model, nil where there are none.
---@return integer[]?
function sharded.units(accelerator, model)
  if accelerator.sharding ~= "gradients" and accelerator.sharding ~= "full" then return nil end
  return units.of(model, accelerator._shard_units, "Accelerator: shard_units")
end

-- Are the model's parameters whole only while they are used? On devices with sharding = "full".
local function is_split(accelerator, handle)
  local first = handle and handle.reducer:parameters()[1]
  return first ~= nil and first.device ~= "cpu" and accelerator.sharding == "full" and accelerator.num_processes > 1
end

--- Have a model's units released after their forward.
---@param handle Parallel
function sharded.release_units(accelerator, model, handle)
  if not is_split(accelerator, handle) then return end
  local reducer, removers = handle.reducer, {}
  for number, module in ipairs(units.modules(model, accelerator._shard_units, "Accelerator: shard_units")) do
    removers[number] = module:register_forward_hook(function() reducer:release(number) end)
  end
  handle.removers = removers
end

--- A model's state_dict; of one whose parameters are whole only while they are used, a copy on the CPU and a
--- collective.
---@return table<string, Tensor>
function sharded.model_state(accelerator, model)
  local handle = averaging.find(accelerator, model)
  if not is_split(accelerator, handle) then return model:state_dict() end
  handle.reducer:make_whole()
  local state = model:state_dict()
  for name, value in pairs(state) do
    if C.is_tensor(value) then state[name] = value:cpu() end
  end
  handle.reducer:release()
  return state
end

-- Refuse a step of whole parameters, which would read a shard of the gradients as all of them.
local function check_step(optimizer)
  for _, group in ipairs(optimizer.param_groups) do
    for i, parameter in ipairs(group.params) do
      local shard = shard_of(parameter)
      if shard and shard.kind ~= "optimizer" then
        arguments.fail("%s:step: parameter %d is of a model that was prepared with sharding = '%s': pass the optimizer "
          .. "to accelerator:prepare, and step the object it returns", optimizer._name, i, shard.kind)
      end
    end
  end
end

local watching = false

--- A model is sharded: from now on optimizers that were not prepared must not step it. The memory of its parameters
--- is returned to the system.
function sharded.begin()
  collectgarbage()
  C.system.empty_cache()
  if watching then return end
  watching = true
  hooks.register_optimizer_step_pre_hook(check_step)
end

--- The shards that an optimizer's parameters are in.
---@return Shard[]
function sharded.shards(optimizer) return stepping.shards(optimizer, shard_of) end

--- Step an optimizer. A collective.
---@param shards Shard[]
---@param report fun(skipped: boolean?)
---@param closure? function
function sharded.step(accelerator, optimizer, shards, report, closure)
  accelerator._loss_scaler:unscale_ahead(optimizer)
  return stepping.step(optimizer, shard_of, shards, closure, function()
    return accelerator._loss_scaler:step(optimizer, report, nil)
  end)
end

--- Unscale an optimizer's gradients, of which every process has its shard, or all; they overflowed if they did on any
--- process. A collective.
---@param scaler GradScaler
function sharded.unscale(scaler, optimizer)
  for _, shard in ipairs(stepping.shards(optimizer, shard_of)) do shard:check_means "unscale_gradients" end
  stepping.over_pieces(optimizer, shard_of, function(shard) return shard.slices end, scaler.unscale_, scaler, optimizer)
  scaler:_agree(optimizer, function(overflow) return collectives.agree(overflow, false) end)
end

--- Cut the state that an optimizer has of whole parameters.
function sharded.cut(optimizer) states.cut(optimizer, shard_of) end

--- An optimizer's state, whole: on all processes, or on one. A collective.
---@param only? integer
---@return table?
function sharded.state_dict(optimizer, only) return states.whole(optimizer, shard_of, only) end

--- This process's part of an optimizer's state, and a state of such parts.
---@return table
function sharded.own_state(optimizer) return states.own(optimizer, shard_of, stepping.over_pieces) end

---@param parts table[] of all ranks of the job that saved them
---@return table # state_dict
function sharded.together(optimizer, parts) return states.together(optimizer, parts) end

--- Are gradients of any of these parameters shared out?
function sharded.concerns(parameters) return clipping.concerns(parameters, shard_of) end

function sharded.clip_grad_norm_(...) return clipping.clip_grad_norm_(shard_of, ...) end

function sharded.clip_grad_value_(...) return clipping.clip_grad_value_(shard_of, ...) end

return sharded
