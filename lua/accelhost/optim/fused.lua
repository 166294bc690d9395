--- Steps that are one pass in C over all parameters of a group (host/optim/step.c), and the state that they need.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local host_updates = require "accelhost.util.host_updates"
local warn = require "accelhost.util.warn"

local fail, describe = arguments.fail, arguments.describe
local native = C.optim

--- Add the fused step to the Optimizer class.
return function(Optimizer)
  --- Make the class of an optimizer whose step is the kind of the same name in host/optim/kinds.def.
  --
  --   local SGD = Optimizer:define_fused("SGD", {{"lr: nonnegative|tensor", 1e-3}, {"momentum: nonnegative", 0}})
  --
  -- A class overrides init_state(state, param, group) where the state does not begin as a step counter of 0 and tensors
  -- of zeros. It returns true when the state holds nothing yet and no step is counted.
  ---@param name string
  ---@param options table[] as of define
  ---@return Optimizer class
  function Optimizer.define_fused(parent, name, options)
    local made = parent:define(name, options)
    made._kind = name
    native.set_options(name, made._option_kinds)
    return made
  end

  --- Have state tensors in pinned memory of the host, from which a step copies them to the device block by block.
  ---@param device string
  function Optimizer:_offload_state(device)
    if not native.offloads(device) then
      fail("Accelerator: offload_optimizer_device: it is for CUDA devices, not for %s", device)
    end
    if not self._kind then
      fail("%s: its state cannot be offloaded, since its step is written in Lua: offload_optimizer_device is for SGD, "
        .. "AdamW and the other fused optimizers", self._name)
    end
    self._offloads = true
  end

  -- A tensor of the CPU in pinned memory; nil, with a warning, where there is none.
  local function pinned(self, value, param)
    if self._pinning_failed then return nil end
    local fine, copy = pcall(value.pin_memory, value, param.device)
    if fine then return copy end
    self._pinning_failed = true
    warn(("%s: optimizer state stays on %s: %s"):format(self._name, param.device, copy))
    return nil
  end

  --- A state tensor in the parameter's dtype, on its device, or offloaded.
  function Optimizer:_placed(value, param)
    local offloads = self._offloads == true and param.device ~= "cpu"
    if native.state_fits(value, param) and value:is_pinned() == offloads then return value end
    return offloads and pinned(self, value:to {dtype = param.dtype, device = "cpu"}, param)
      or value:to {dtype = param.dtype, device = param.device}
  end

  --- A fresh state tensor for a parameter.
  function Optimizer:_zeros_like(param)
    local offloads = self._offloads and param.device ~= "cpu"
    return offloads and pinned(self, C.zeros(param:shape(), {dtype = param.dtype, device = "cpu"}), param)
      or C.zeros_like(param)
  end

  --- A number of the state, such as a step counter: a tensor of one element on the CPU.
  function Optimizer._new_scalar(value)
    return C.tensor(value, {dtype = "float32", device = "cpu"})
  end

  --- Make the state that a step with the group's options needs and `state` lacks.
  function Optimizer:init_state(state, param, group)
    local names, counts = native.needed(self._kind, group)
    if counts then state.step = state.step or self._new_scalar(0) end
    for _, name in ipairs(names) do state[name] = state[name] or self:_zeros_like(param) end
  end

  -- State of another dtype or device follows its parameter, which was moved since (net:to "float64").
  local function cast_state(self, state, param, place)
    local names, scalars = native.states(self._kind)
    for _, name in ipairs(names) do
      local value = state[name]
      if value ~= nil and not C.is_tensor(value) then
        fail("%s: state '%s' of parameter %d: expected a tensor, got %s", self._name, name, place, describe(value))
      end
      if value ~= nil and not native.state_fits(value, param) then state[name] = self:_placed(value, param) end
    end
    scalars[#scalars + 1] = "step"
    for _, name in ipairs(scalars) do
      local value = state[name]
      if type(value) == "number" then
        state[name] = self._new_scalar(value)
      elseif value ~= nil and not C.is_tensor(value) then
        fail("%s: state '%s' of parameter %d: expected a number or a tensor, got %s", self._name, name, place,
          describe(value))
      end
    end
  end

  local function make_state(self, group, missing)
    local fresh = {}
    for _, i in ipairs(missing) do
      local param = group.params[i]
      local state = self.state[param] or {}
      if type(state) ~= "table" then
        fail("%s: the state of parameter %d: expected a table, got %s", self._name, i, describe(state))
      end
      self.state[param] = state
      cast_state(self, state, param, i)
      fresh[i] = self:init_state(state, param, group)
    end
    return fresh
  end

  -- In a captured step: the scalars of this one are set again before each replay.
  -- `_unless` is a GradScaler's tensor, by which the device leaves it out.
  local function step_captured(self)
    for _, group in ipairs(self.param_groups) do
      local missing, redo, undo = native.step(self._kind, group, group.params, self.state, nil, true, self._unless)
      if missing then
        fail("%s:step: the state of parameter %d is made by its first step, which cannot be captured in a graph",
          self._name, missing[1])
      end
      host_updates.add(redo, undo)
    end
    host_updates.add(function() self._step_count = self._step_count + 1 end,
      function() self._step_count = self._step_count - 1 end)
    self._unless = nil
  end

  --- Update all parameters that have a gradient.
  ---@param closure function? computes the loss again (and its gradients) first
  ---@return any loss the result of closure
  function Optimizer:step(closure)
    local loss = closure ~= nil and self:_run_closure(closure) or nil
    host_updates.settle()
    self._step_count = self._step_count + 1
    if host_updates.is_recording() then
      step_captured(self)
      return loss
    end
    local kind, groups = self._kind, self.param_groups
    for g = 1, #groups do
      local group = groups[g]
      local missing = native.step(kind, group, group.params, self.state)
      if missing then native.step(kind, group, group.params, self.state, make_state(self, group, missing)) end
    end
    return loss
  end
end
