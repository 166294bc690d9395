--- One captured graph of a compiled step: its arguments, its gradients, the host's part of it, and its replay.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local averaging = require "accelhost.averaging"
local class = require "accelhost.util.class"
local host_updates = require "accelhost.util.host_updates"
local signature = require "accelhost.accelerator.training.step_signature"

local fail = arguments.fail

---@field _accelerator Accelerator
---@field _graph userdata
---@field _inputs table the graph's own arguments (step_signature.lua)
---@field _flat boolean are they tensors, without tables?
---@field _parameters table[] whose gradients the step may make
---@field _before (boolean|integer|table)[] had they gradients at its beginning (which)? 0: it replaces them
---@field _after table the gradients of its end; false: none
---@field _recorded table the host's part (util/host_updates.lua)
---@field _outputs table[] the tensors among its results
---@field _values table its results
---@field _precision integer
local CapturedStep = class.new "CapturedStep"

-- The parameters whose gradients the step may make: those of prepared models and optimizers.
local function parameters_of(accelerator)
  local list, known = {}, {}
  local function add(parameters)
    for _, parameter in ipairs(parameters) do
      if not known[parameter] then
        known[parameter] = true
        list[#list + 1] = parameter
      end
    end
  end
  for _, handle in ipairs(averaging.of(accelerator)) do add(handle.reducer:parameters()) end
  for _, optimizer in pairs(accelerator._prepared.optimizers) do
    for _, group in ipairs(optimizer.param_groups) do add(group.params) end
  end
  return list
end

local function gradients_of(parameters)
  local gradients = {}
  for i = 1, #parameters do gradients[i] = parameters[i].grad or false end
  return gradients
end

local function set_gradients(parameters, gradients)
  for i = 1, #parameters do
    local gradient = gradients[i] or nil
    if parameters[i].grad ~= gradient then parameters[i].grad = gradient end
  end
end

-- A result without its history, in which the graph leaves other values each time.
local function detached(value, tensors)
  if C.is_tensor(value) then
    local plain = value:detach()
    tensors[#tensors + 1] = plain
    return plain
  end
  if type(value) ~= "table" or getmetatable(value) ~= nil then return value end
  local copy = {}
  for key, item in next, value do copy[key] = detached(item, tensors) end
  return copy
end

local function results(count, fine, ...)
  return fine, {n = count - 1, ...}
end

local function record(fn, arguments_)
  local function pack_results(recorded, ...)
    return recorded, results(select("#", ...), ...)
  end
  return pack_results(host_updates.record(fn, unpack(arguments_, 1, arguments_.n)))
end

-- The results of the step, or raise its error, with the graph closed.
local function run(self, fn, accelerator)
  local graph, gradients = self._graph, gradients_of(self._parameters)
  C.comm.carry() -- separate collectives that were begun outside from those within
  graph:begin()
  local recorded, fine, values = record(fn, self._inputs.values)
  local carried, lost = true, nil
  if fine then carried, lost = pcall(C.comm.carry) end
  if not carried then fine, values = false, {lost} end
  local outputs, plain = {}, {n = fine and values.n or 0}
  for i = 1, plain.n do plain[i] = detached(values[i], outputs) end
  local ended, problem = pcall(graph.finish, graph, fine, outputs)
  if not (fine and ended) then
    if accelerator.device ~= "cpu" then -- nothing was done; on the CPU the step has run up to its error
      host_updates.undo(recorded)
      set_gradients(self._parameters, gradients)
    end
    graph:close()
    error(fine and problem or values[1], 0)
  end
  self._recorded, self._values, self._outputs = recorded, plain, outputs
end

-- Leaves of models and optimizers that were not prepared.
local function add_leaves(self)
  local leaves, first = self._graph:leaves()
  local known = {}
  for _, parameter in ipairs(self._parameters) do known[parameter] = true end
  for i, leaf in ipairs(leaves) do
    if not known[leaf] then
      self._parameters[#self._parameters + 1] = leaf
      self._before[#self._parameters] = first[i]
    end
  end
end

--- Capture a step with these arguments. On the CPU it runs meanwhile; elsewhere replay() runs it.
---@param given table the arguments (step_signature.of)
function CapturedStep:init(accelerator, fn, given)
  accelerator._loss_scaler:end_window()
  self._accelerator = accelerator
  self._graph = C.graph.new(accelerator.device)
  self._parameters = parameters_of(accelerator)
  self._inputs = signature.inputs(given)
  self._flat = #self._inputs.tensors == given.n and #given == given.n
  self._before = {}
  for i, gradient in ipairs(gradients_of(self._parameters)) do self._before[i] = gradient ~= false end
  signature.fill(self._inputs, given)
  run(self, fn, accelerator)
  collectgarbage() -- views of the inputs that the function has dropped
  self._graph:inputs(self._inputs.tensors)
  add_leaves(self)
  self._precision = C.precision.state()
  self._after = gradients_of(self._parameters)
end

--- Pass the tensors of a call to the next replay, if the arguments are tensors like those of the capture.
---@return boolean # false: nothing was changed; try fill
function CapturedStep:fill_flat(...)
  return self._flat and self._graph:fill(self._inputs.tensors, ...)
end

--- Copy the tensors of a call into the graph's.
function CapturedStep:fill(given)
  self._graph:own(self._inputs.tensors)
  signature.fill(self._inputs, given)
end

--- Compare a call's arguments with those of the capture: the first difference and a remedy, or nil.
---@return string? difference, string? remedy
function CapturedStep:difference(given)
  return signature.difference(self._inputs, given)
end

--- Is there a gradient where there was one at the capture's beginning? The place of the first parameter that differs.
---@return integer? place
function CapturedStep:changed_gradient()
  return C.graph.gradients(self._parameters, self._before)
end

--- Raise unless gradients are there as at the capture: a graph's works add to them, or do not.
function CapturedStep:check_gradients()
  local place = self:changed_gradient()
  if place then
    fail("compile: a parameter of shape %s had %s gradient when the step was captured and has %s now; call zero_grad "
      .. "within the step, or between any two calls", arguments.shape_text(self._parameters[place]),
      self._before[place] and "a" or "no", self._before[place] and "none" or "one")
  end
end

-- Products and convolutions were chosen at the capture.
local function check_precision(self)
  if C.precision.state() ~= self._precision then
    fail("compile: accelhost.backends or set_float32_matmul_precision were changed since the step was captured; set "
      .. "them back, or call reset() to capture again")
  end
end

-- Let the graph's next replay use the host's numbers of the next step.
local function revise(self)
  self._graph:revise(true)
  local fine, problem = pcall(host_updates.replay, self._recorded)
  local ended, other = pcall(self._graph.revise, self._graph, false)
  if not fine or not ended then error(fine and other or problem, 0) end
end

--- Run the captured work again, with the host's numbers of this step.
---@return any # the results of the step
function CapturedStep:replay()
  check_precision(self)
  self._accelerator._loss_scaler:end_window()
  self._graph:advance()
  revise(self)
  return self:run()
end

--- Run the captured work with the numbers that it has.
---@return any # the results of the step
function CapturedStep:run()
  self._graph:replay(self._outputs)
  host_updates.mark_replayed(self._recorded)
  if C.graph.gradients(self._parameters, self._after) then set_gradients(self._parameters, self._after) end
  return self:values()
end

--- The results.
function CapturedStep:values()
  return unpack(self._values, 1, self._values.n)
end

function CapturedStep:close() self._graph:close() end

return CapturedStep
