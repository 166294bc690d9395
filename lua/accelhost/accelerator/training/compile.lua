--- accelerator:compile: a step that the device does as one graph.
local C = require "accelhost._C"
local CapturedStep = require "accelhost.accelerator.training.captured_step"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local host_updates = require "accelhost.util.host_updates"
local signature = require "accelhost.accelerator.training.step_signature"
local warn = require "accelhost.util.warn"

local fail = arguments.fail

-- Graphs of one step on the CPU: calls with other arguments have a separate one.
local MOST_GRAPHS = 4

--- The result of accelerator:compile: call it as the function.
---@field captured boolean is there a graph?
local CompiledStep = class.new "CompiledStep"

-- The reason why the function runs uncaptured on the CPU; nil if it is captured.
local function plain_reason(accelerator)
  if accelerator.device ~= "cpu" then return nil end
  return accelerator.gradient_accumulation_steps > 1 and "gradient_accumulation_steps is above 1"
    or accelerator._virtual_shards and "virtual_shards are on"
    or accelerator.sharding ~= "none" and "sharding is on"
    or accelerator.mixed_precision == "fp16" and "mixed_precision is 'fp16', whose scale the host decides"
    or accelerator.mixed_precision == "fp8" and "mixed_precision is 'fp8'"
    or C.recovery.is_on() and "live recovery is on"
    or nil
end

function CompiledStep:init(accelerator, fn, warmup)
  self._accelerator, self._fn, self._warmup, self._calls = accelerator, fn, warmup, 0
  self._plain = plain_reason(accelerator)
  self._several = accelerator.device == "cpu"
  self._graphs = {}
  self.captured = false
end

function CompiledStep:extra_repr()
  return self._plain and "uncaptured" or self.captured and "captured" or ("after %d of %d calls"):format(self._calls,
    self._warmup)
end

-- A graph holds works of devices: averages of gradients too, where the devices make them by themselves.
local function check_processes(accelerator)
  local kind = accelerator.device:match "^%a+"
  if kind ~= "cpu" and accelerator.num_processes > 1 and C.comm.backend(kind) == C.comm.backend "cpu" then
    fail("compile: gradients of several processes are reduced in the host's memory here, by %s and not by a library of "
      .. "the devices, which needs one for each process; a graph holds works of the device alone", C.comm.backend "cpu")
  end
end

-- The graph for these arguments and gradients; nil if there is none.
local function graph_for(self, given)
  for _, graph in ipairs(self._graphs) do
    if not graph:difference(given) and not graph:changed_gradient() then return graph end
  end
  return nil
end

-- Capture a step, which on the CPU has run then.
local function capture(self, given)
  check_processes(self._accelerator)
  local graph = CapturedStep(self._accelerator, self._fn, given)
  self._graphs[#self._graphs + 1] = graph
  self.captured = true
  if self._several then return graph:values() end
  return graph:run()
end

-- On the CPU: a call that is unlike that of the last graph.
local function call_other(self, ...)
  local given = signature.of(self._accelerator.device, ...)
  local graph = graph_for(self, given)
  if graph then
    self._last = graph
    graph:fill(given)
    return graph:replay()
  end
  if #self._graphs < MOST_GRAPHS then
    return capture(self, given)
  end
  warn(("compile: %s; there are %d graphs for other arguments, so such calls run the function uncaptured"):format(
    self._graphs[1]:difference(given) or "other parameters have gradients than when the step was captured",
    #self._graphs))
  return self._fn(...)
end

-- One graph: a call that is unlike that of the capture is an error.
local function call_only(self, ...)
  local graph, given = self._graphs[1], signature.of(self._accelerator.device, ...)
  local difference, remedy = graph:difference(given)
  if difference then fail("compile: %s%s", difference, remedy) end
  graph:check_gradients()
  graph:fill(given)
  return graph:replay()
end

function CompiledStep:__call(...)
  if self._plain then return self._fn(...) end
  if host_updates.is_recording() then
    fail "compile: a compiled step cannot be called within another; call its function"
  end
  if self.captured then
    if not self._several then return call_only(self, ...) end
    local graph = self._last or self._graphs[1]
    if graph:changed_gradient() or not graph:fill_flat(...) then return call_other(self, ...) end
    return graph:replay()
  end
  self._calls = self._calls + 1
  -- A step that a scaler left out has made no state of the optimizer.
  if self._calls <= self._warmup or self._accelerator.optimizer_step_was_skipped then return self._fn(...) end
  return capture(self, signature.of(self._accelerator.device, ...))
end

--- Forget the graphs: the next calls run the function, then capture it again.
--
--   local step = accelerator:compile(function(input) return net(input):sum() end)
--   step(x)
--   step:reset()
function CompiledStep:reset()
  host_updates.settle()
  for _, graph in ipairs(self._graphs) do graph:close() end
  self._graphs, self._last = {}, nil
  self._calls, self.captured = 0, false
end

local read = arguments.signature("compile", {"step_fn: callable", {"warmup: count", 2}})

-- Methods of the Accelerator class.
local Accelerator = {}

--- Make a training step that is captured once and replayed: the first `warmup` calls run the function uncaptured, the
--- next one captures its work on the device as a graph, and from then on a call replays that work, without running the
--- function. A GPU runs a CUDA graph; on the CPU, C repeats the recorded kernels in memory of the graph's own. That
--- saves the host's time for each op, which dominates in small models.
--
-- A call copies its tensors into those of the graph. Results are the graph's tensors, without history, and the next
-- call overwrites them, as PyTorch's: read them, or clone them, before. Optimizers, schedulers, clipping and random
-- numbers compute as without a graph, to the bit. Other things in Lua (counters, prints, hooks, numbers that change)
-- happen at the capture only.
--
-- On a GPU shapes, dtypes and all other arguments have to stay the same (drop_last = true for loaders); a change is an
-- error that names the argument. On the CPU other arguments are captured as separate graphs, up to four, as for a
-- smaller last batch; after that such calls run the function uncaptured, with a notice. So do calls before which other
-- parameters have gradients.
--
-- Within the function values cannot be read (item, tolist, print; ops whose shape depends on values), and tensors
-- cannot be made of the script's values (accelhost.tensor of a table) or, on a GPU, copied from the CPU: make them
-- before, or pass them. Of several processes, which all have to call it, averages of gradients are captured with it: by
-- NCCL where each process has its own GPU (where they share one it is refused). Tensors that it uses from
-- outside have to live on; after one was replaced it needs reset(). The switches of accelhost.backends are those of the
-- capture; other ones are refused. An error within the capture leaves a GPU's tensors as they were; on the CPU the
-- function has run up to the error.
--
-- In accumulation windows (gradient_accumulation_steps) it is refused on a GPU; on the CPU the function runs uncaptured
-- at every call in these, with virtual_shards, sharding, fp16, fp8 and live recovery, with a notice.
--
-- In fp16 a GPU leaves out a step whose gradients overflowed. The host asks whether it did before the next call, or
-- when a script reads a value that depends on it (optimizer_step_was_skipped, the scale, the state of prepared
-- optimizers and schedulers), and waits for the step then. There may be one update of the scale in a call, and after
-- `warmup` calls the function runs uncaptured until a step was not left out.
--
--   local step = accelerator:compile(function(inputs, labels)
--     local loss = F.cross_entropy(model(inputs), labels % 2)
--     accelerator:backward(loss)
--     optimizer:step()
--     optimizer:zero_grad()
--     return loss
--   end)
--   for inputs, labels in loader do step(inputs, labels) end
---@param warmup? integer calls before the capture, at least 1; default 2
---@return CompiledStep
function Accelerator:compile(...)
  local fn, warmup = read(...)
  check_processes(self)
  if self.device ~= "cpu" and self.gradient_accumulation_steps > 1 then
    fail("compile: gradient_accumulation_steps is %d, and a graph has no accumulation windows; loop over the "
      .. "micro-steps within the function", self.gradient_accumulation_steps)
  end
  if self.device ~= "cpu" and self._fp8_recipe and self._fp8_recipe.interval > 1 then
    fail("compile: the FP8 recipe's interval is %d, and a graph computes new scales in each replay",
      self._fp8_recipe.interval)
  end
  local reason = plain_reason(self)
  if reason then warn("compile: the function runs uncaptured at each call, since " .. reason) end
  return CompiledStep(self, fn, warmup)
end

return Accelerator
