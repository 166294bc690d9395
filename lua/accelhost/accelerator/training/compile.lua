--- accelerator:compile: a step that the device does as one graph.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local averaging = require "accelhost.averaging"
local class = require "accelhost.util.class"
local signature = require "accelhost.accelerator.training.step_signature"
local host_updates = require "accelhost.util.host_updates"

local fail = arguments.fail

--- The result of accelerator:compile: call it as the function.
---@class CompiledStep
---@field captured boolean is there a graph?
local CompiledStep = class.new "CompiledStep"

function CompiledStep:init(accelerator, fn, warmup)
  self._accelerator, self._fn, self._warmup, self._calls = accelerator, fn, warmup, 0
  self._eager = accelerator.device == "cpu"
  self.captured = false
end

function CompiledStep:extra_repr()
  return self._eager and "as it is" or self.captured and "captured" or ("after %d of %d calls"):format(self._calls,
    self._warmup)
end

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

-- Products and convolutions were chosen at the capture.
local function check_precision(wanted)
  if C.precision.state() ~= wanted then
    fail("compile: accelhost.backends or set_float32_matmul_precision were changed since the step was captured; set "
      .. "them back, or call reset() to capture again")
  end
end

local function gradients_of(parameters)
  local gradients = {}
  for i = 1, #parameters do gradients[i] = parameters[i].grad or false end
  return gradients
end

-- A graph begins with gradients, or without: its works add to them, or do not.
local function check_gradients(parameters, before)
  for i = 1, #parameters do
    if (parameters[i].grad ~= nil) ~= before[i] then
      fail("compile: a parameter of shape %s had %s gradient when the step was captured and has %s now; call zero_grad "
        .. "within the step, or between any two calls", arguments.shape_text(parameters[i]),
        before[i] and "a" or "no", before[i] and "none" or "one")
    end
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

local function set_gradients(parameters, gradients)
  for i = 1, #parameters do
    local gradient = gradients[i] or nil
    if parameters[i].grad ~= gradient then parameters[i].grad = gradient end
  end
end

local function record(self, arguments_)
  local function keep(recorded, ...)
    return recorded, results(select("#", ...), ...)
  end
  return keep(host_updates.record(self._fn, unpack(arguments_, 1, arguments_.n)))
end

-- A graph holds works of devices: averages of gradients too, where the devices make them by themselves.
local function check_processes(accelerator)
  local kind = accelerator.device:match "^%a+"
  if accelerator.num_processes > 1 and C.comm.backend(kind) == C.comm.backend "cpu" then
    fail("compile: gradients of several processes go through the host's memory here, by %s and not by a library of the "
      .. "devices, which needs one for each process; a graph holds works of the device alone", C.comm.backend "cpu")
  end
end

local function capture(self, ...)
  check_processes(self._accelerator)
  self._accelerator._loss_scaler:end_window()
  local graph = C.graph.new(self._accelerator.device)
  self._parameters = parameters_of(self._accelerator)
  local given = signature.of(self._accelerator.device, ...)
  local inputs = signature.inputs(given)
  local before, present = gradients_of(self._parameters), {}
  for i = 1, #before do present[i] = before[i] ~= false end
  signature.fill(inputs, given)
  C.comm.carry() -- separate collectives that were begun outside from those within
  graph:begin()
  local recorded, fine, values = record(self, inputs.values)
  local carried, lost = true, nil
  if fine then carried, lost = pcall(C.comm.carry) end
  if not carried then fine, values = false, {lost} end
  local ended, problem = pcall(graph.finish, graph, fine)
  if not (fine and ended) then
    host_updates.undo(recorded)
    set_gradients(self._parameters, before)
    graph:close()
    error(fine and problem or values[1], 0)
  end
  self._outputs, self._precision = {}, C.precision.state()
  self._graph, self._inputs, self._recorded, self._before = graph, inputs, recorded, present
  self._values = {n = values.n}
  for i = 1, values.n do self._values[i] = detached(values[i], self._outputs) end
  self._after = gradients_of(self._parameters)
  self.captured = true
end

-- Let the graph's next replay use the host's numbers of the next step.
local function revise(self)
  self._graph:revise(true)
  local fine, problem = pcall(host_updates.replay, self._recorded)
  local ended, other = pcall(self._graph.revise, self._graph, false)
  if not fine or not ended then error(fine and other or problem, 0) end
end

local function replay(self)
  self._graph:replay(self._outputs)
  host_updates.mark_replayed(self._recorded)
  set_gradients(self._parameters, self._after)
  return unpack(self._values, 1, self._values.n)
end

function CompiledStep:__call(...)
  if self._eager then return self._fn(...) end
  if host_updates.is_recording() then
    fail "compile: a compiled step cannot be called within another; call its function"
  end
  if self.captured then
    local given = signature.of(self._accelerator.device, ...)
    signature.check(self._inputs, given)
    check_gradients(self._parameters, self._before)
    check_precision(self._precision)
    signature.fill(self._inputs, given)
    self._accelerator._loss_scaler:end_window()
    revise(self)
    return replay(self)
  end
  self._calls = self._calls + 1
  -- A step that a scaler left out has made no state of the optimizer.
  if self._calls <= self._warmup or self._accelerator.optimizer_step_was_skipped then return self._fn(...) end
  capture(self, ...)
  return replay(self)
end

--- Forget the graph: the next calls run the function, then capture it again.
--
--   local step = accelerator:compile(function(input) return net(input):sum() end)
--   step(x)
--   step:reset()
function CompiledStep:reset()
  host_updates.settle()
  if self._graph then self._graph:close() end
  self._graph, self._inputs, self._recorded, self._values, self._outputs, self._after = nil, nil, nil, nil, nil, nil
  self._calls, self.captured = 0, false
end

local read = arguments.signature("compile", {"step_fn: callable", {"warmup: count", 2}})

-- Methods of the Accelerator class.
local Accelerator = {}

--- Make a training step that a GPU runs as one CUDA graph: the first `warmup` calls run the function as it is, the
--- next one captures its work on the device, and from then on a call replays that work, without running the function.
--- That saves the host's time for each op, which dominates in small models.
--
-- A call copies its tensors into those of the graph, so shapes, dtypes and all other arguments have to stay the same
-- (drop_last = true for loaders); a change is an error that names the argument. Results are the graph's tensors,
-- without history, and the next call overwrites them, as PyTorch's: read them, or clone them, before. Optimizers,
-- schedulers, clipping and random numbers compute as without a graph, to the bit. Other things in Lua (counters,
-- prints, hooks, numbers that change) happen at the capture only.
--
-- Within the function values cannot be read (item, tolist, print; ops whose shape depends on values) and tensors
-- cannot be copied from the CPU. It is refused in accumulation windows. Of several processes, which all have to call
-- it, the averages and other collectives that it makes are captured with it, by NCCL; where processes share a GPU it
-- is refused. Tensors that it uses from outside have to live on; after one was replaced it needs reset(). The
-- switches of accelhost.backends are those of the capture; other ones are refused. On the CPU the function runs as it
-- is at every call.
--
-- In fp16 the device leaves out a step whose gradients overflowed. The host asks whether it did before the next call,
-- or when a script reads a value that depends on it (optimizer_step_was_skipped, the scale, the state of prepared
-- optimizers and schedulers), and waits for the step then. There may be one update of the scale in a call, and after
-- `warmup` calls the function runs as it is until a step was not left out.
--
--   local step = accelerator:compile(function(inputs, labels)
--     local loss = F.cross_entropy(model(inputs), labels % 2)
--     accelerator:backward(loss)
--     optimizer:step()
--     optimizer:zero_grad()
--     return loss
--   end)
--   for inputs, labels in loader do step(inputs, labels) end
---@param step_fn function
---@param warmup? integer calls before the capture, at least 1; default 2
---@return CompiledStep
function Accelerator:compile(...)
  local fn, warmup = read(...)
  if self.device ~= "cpu" then
    check_processes(self)
    if self.gradient_accumulation_steps > 1 then
      fail("compile: gradient_accumulation_steps is %d, and a graph has no accumulation windows; loop over the "
        .. "micro-steps within the function", self.gradient_accumulation_steps)
    end
  end
  return CompiledStep(self, fn, warmup)
end

return Accelerator
