--- Backward and accumulation over micro-steps, and gradient clipping.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local averaging = require "accelhost.averaging"
local class = require "accelhost.util.class"
local later = require "accelhost.util.later"
local sharded = later "accelhost.accelerator.training.sharding"
local kind_of = require "accelhost.accelerator.process.kinds"
local protect = require "accelhost.util.protect"
local warn = require "accelhost.util.warn"

---@part Accelerator
---@field synchronises boolean does the current micro-step end a window, but for virtual shards?
---@field step integer micro-steps since the last window ended
---@field micro_step integer|false number of the one that accumulate began, false while it is not used
---@field joining Joining|false while join_uneven_inputs runs
local Gradients = class.new "Gradients"

function Gradients:init(accelerator)
  self.accelerator = accelerator
  self:reset()
end

--- Begin as if nothing was accumulated.
function Gradients:reset()
  self.synchronises, self.joining, self.step, self.micro_step = true, false, 0, false
  self.window_loader, self.window_epoch = false, false
end

-- Return the weight of a batch whose weight the script does not set: nil outside windows where all processes have as
-- many samples, else the samples as a share of a full batch, so that the mean over processes and micro-steps is one
-- over samples.
local function weight_of(self)
  local loader = self.accelerator._prepared:active_loader()
  local size = loader and loader.batch_length
  if size and (self.micro_step or loader.uneven) then return size / (loader.partition:full_length() or 1) end
  return (self.micro_step or self.accelerator._batch_proportions) and 1 or nil
end

-- A window that a break left open ends with the pass it was in.
local function check_window(self, loader)
  if not self.accelerator._accumulation.sync_with_dataloader then return end
  if self.step > 0 and loader and loader == self.window_loader and loader.epoch ~= self.window_epoch then
    warn("accumulate: a new pass began inside an accumulation window; the gradients of the open window are dropped")
    self.step = 0
    for _, handle in ipairs(averaging.of(self.accelerator)) do handle:drop_window() end
  end
  self.window_loader, self.window_epoch = loader or false, loader and loader.epoch or false
end

-- Set even_batches of the prepared loaders; returns a function that restores it.
local function set_even(self, even)
  local before = {}
  for loader in pairs(even ~= nil and self.accelerator._prepared.loaders or {}) do
    local partition = loader.partition
    if before[partition] == nil then before[partition] = partition:exchange_even_batches(even) end
  end
  return function()
    for partition, was in pairs(before) do partition:exchange_even_batches(was) end
  end
end

-- Join the remaining collectives of the others, then broadcast the weights of a rank that ran the most steps.
local function join(self, models)
  averaging.shadow(self.accelerator, self.joining)
  for _, model in ipairs(models) do averaging.find(self.accelerator, model):take_over(self.joining.speaker) end
end

--- Differentiate `loss` and, in a step that synchronises, average the gradients over all processes. A collective in
--- such a step. The gradient is sum(weight g) / sum(weight) over the processes and the micro-steps of a window of
--- accumulate, however many there are in it; the division by gradient_accumulation_steps, as in Accelerate, is
--- included. Without a weight a batch of a prepared loader counts by its samples: the loss is treated as their mean,
--- and
--- the gradient is that of the mean over all samples, whatever each process's share. {weight = 1} has batches count
--- the same. Outside of a window losses add up as with PyTorch, unless they have weights or batches differ in size.
--
--   accelerator:backward(loss)
--   accelerator:backward((w * 2):sum(), {weight = 16})       -- counts as 16 samples in the mean of a window
---@param loss userdata a scalar
---@param weight? number of this micro-step in the mean, such as its samples or tokens; default: the batch's samples
--- as a share of a full batch, 1 for a batch of no prepared loader
---@param retain_graph? boolean keep the graph for another backward
Gradients.backward = arguments.method("backward", {
  "loss: tensor", {"weight: nonnegative"}, {"retain_graph: flag", false},
}, function(self, loss, weight, retain_graph)
  weight = weight or weight_of(self)
  if weight and weight ~= 1 then loss = loss * weight end
  averaging.backward(self.accelerator, self.accelerator._loss_scaler:scale(loss), weight, {retain_graph = retain_graph})
  if self.accelerator.mixed_precision == "fp8" then self.accelerator._precision.fp8:end_backward() end
end)

--- One micro-step: synchronises at every gradient_accumulation_steps-th one and at a loader's last batch. With a
--- function, runs it and returns its results; without, the following statements up to the next call are the micro-step.
--
--   accelerator:accumulate(model)
--   accelerator:accumulate(model, function() accelerator:backward(loss) end)
---@param ... table|function the models, then the function
---@return any # the results of the function
function Gradients:accumulate(...)
  local accelerator, count = self.accelerator, select("#", ...)
  for i = 1, count do
    local given = select(i, ...)
    if kind_of(given) ~= "model" and not (i == count and type(given) == "function") then
      arguments.fail("accumulate: argument %d: expected a model (the last one may be a function), got %s", i,
        arguments.describe(given))
    end
  end
  local fn = count > 0 and select(count, ...) or nil
  local loader = accelerator._prepared:active_loader()
  check_window(self, loader)
  if not accelerator._virtual_shards or accelerator._virtual_shards:round_begins() then
    self.step = self.step + 1
    self.micro_step = (self.micro_step or 0) + 1
  end
  local last = loader ~= nil and loader.end_of_dataloader and accelerator._accumulation.sync_with_dataloader
  self.synchronises = last or self.step % accelerator.gradient_accumulation_steps == 0
  if accelerator.sync_gradients then self.step = 0 end
  if type(fn) == "function" then return fn(unpack({...}, 1, count - 1)) end
end

--- Run fn without averaging a model's gradients: they add up in this process until the next synchronising
--- backward. Prepared optimizers step as ever.
--
--   accelerator:no_sync(model, function() accelerator:backward(loss) end)
---@return any # the results of fn
function Gradients:no_sync(model, fn)
  if kind_of(model) ~= "model" or type(fn) ~= "function" then
    arguments.fail("no_sync: expected a model and a function, got %s and %s", arguments.describe(model),
      arguments.describe(fn))
  end
  if self.accelerator._virtual_shards then
    arguments.fail "no_sync: with virtual_shards gradients add up over steps by accumulate"
  end
  local handle = averaging.find(self.accelerator, model)
  if not handle then return fn() end
  handle.suppressed = handle.suppressed + 1
  return protect(function() handle.suppressed = handle.suppressed - 1 end, fn)
end

--- Have the next backward average a model's gradients, also those that have added up, although it is within no_sync
--- or an accumulation window.
--
--   accelerator:no_sync(model, function()
--     accelerator:backward(loss, {retain_graph = true})
--     accelerator:trigger_sync_in_backward(model)
--     accelerator:backward(loss)
--   end)
function Gradients:trigger_sync_in_backward(model)
  if kind_of(model) ~= "model" then
    arguments.fail("trigger_sync_in_backward: expected a model, got %s", arguments.describe(model))
  end
  if self.accelerator._virtual_shards then
    arguments.fail "trigger_sync_in_backward: with virtual_shards gradients are averaged at a batch's last shard only"
  end
  local handle = averaging.find(self.accelerator, model)
  if handle then handle.triggered = true end
end

--- Run fn, a loop with a backward in each step, on processes that have different numbers of steps: one that has
--- completed fn contributes nothing to the averages of the others, so a gradient is the mean over the
--- processes that still train. At the end all have the weights of one that trained last. Other collectives in fn
--- (gather, reduce) are not matched. A collective.
--
--   local uneven = accelerator:prepare(loader)
--   accelerator:join_uneven_inputs({model}, function()
--     for x, y in uneven do accelerator:backward(F.cross_entropy(model(x), y % 2)) end
--   end, {even_batches = false})
---@param joinables Module[] the models that are trained
---@param even_batches? boolean of the prepared loaders of sets with get(i) or shard(n, i), while fn runs
---@return any # the results of fn
Gradients.join_uneven_inputs = arguments.method("join_uneven_inputs", {
  "joinables: modules", "fn: function", {"even_batches: flag"},
}, function(self, models, fn, even)
  if C.recovery.is_on() then
    arguments.fail("join_uneven_inputs: with live recovery all processes iterate over equally many batches: "
      .. "leave it out")
  end
  if self.accelerator._virtual_shards then
    arguments.fail("join_uneven_inputs: with virtual_shards all processes iterate over equally many batches: "
      .. "leave it out")
  end
  if self.accelerator.mixed_precision == "fp8" then
    arguments.fail("join_uneven_inputs: with mixed_precision = 'fp8' each update of the scales is a collective: "
      .. "leave even_batches on")
  end
  for _, model in ipairs(models) do
    if not averaging.find(self.accelerator, model) and self.accelerator.num_processes > 1 then
      arguments.fail("join_uneven_inputs: %s is not prepared", arguments.describe(model))
    end
  end
  if self.accelerator.sharding ~= "none" then
    arguments.fail("join_uneven_inputs: with sharding = '%s' a step needs every process; leave even_batches on",
      self.accelerator.sharding)
  end
  local restore = set_even(self, even)
  local before = self.joining
  self.joining = require "accelhost.averaging.joining"(C.comm.world(), {count = #averaging.of(self.accelerator)})
  return protect(function(fine)
    if fine and self.accelerator.num_processes > 1 then join(self, models) end
    self.joining = before
    restore()
  end, fn)
end)

--- Scale the gradients so that their norm is at most max_norm; in a step that does not synchronise, nothing. With
--- sharding it is the norm over the shards of all processes, and a collective.
--
--   accelerator:backward(loss)
--   accelerator:clip_grad_norm_({w}, 1.0)  --> tensor(7.4833)
---@param parameters userdata[]
---@param max_norm number
---@param norm_type? number|table default 2; or {norm_type = ...}
---@return userdata? the norm before
function Gradients:clip_grad_norm_(...)
  if not self.accelerator.sync_gradients then return end
  self.accelerator._loss_scaler:unscale_for((...))
  if self.accelerator.sharding ~= "none" and sharded.concerns((...)) then return sharded.clip_grad_norm_(...) end
  return require "accelhost.nn.utils".clip_grad_norm_(...)
end

--- Clamp every gradient element to [-clip_value, clip_value]; in a step that does not synchronise, nothing.
--
--   accelerator:backward(loss)
--   accelerator:clip_grad_value_({w}, 3)
--   w.grad  --> tensor([2., 3., 3.])
---@param parameters userdata[]
---@param clip_value number
function Gradients:clip_grad_value_(...)
  if not self.accelerator.sync_gradients then return end
  self.accelerator._loss_scaler:unscale_for((...))
  if self.accelerator.sharding ~= "none" and sharded.concerns((...)) then return sharded.clip_grad_value_(...) end
  require "accelhost.nn.utils".clip_grad_value_(...)
end

return Gradients
