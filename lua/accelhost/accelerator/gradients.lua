--- Backward and accumulation: over micro-steps, with clipping of what comes out.
local arguments = require "accelhost.util.arguments"
local averaging = require "accelhost.accelerator.averaging"
local kind_of = require "accelhost.accelerator.kinds"
local protect = require "accelhost.util.protect"
local warn = require "accelhost.util.warn"

-- A mean over batches of unequal sizes is no mean over samples: say it, once, unless the script weighs them.
local function check_sizes(self)
  if self.num_processes == 1 and not self._micro_step then return end
  local loader = self:_active_loader()
  local size = loader and loader.batch_length
  if not size then return end
  local first = self._window_size
  if not self._micro_step or not first then
    self._window_size, first = size, size
  end
  if loader.uneven or size ~= first then
    warn(("backward: batches of unequal sizes (%s) count the same in the mean; pass {weight = samples in the batch}")
      :format(loader.uneven and "over the processes" or ("%d and %d samples"):format(first, size)))
  end
end

local read_backward = arguments.signature("backward",
  {"loss: tensor", {"weight: nonnegative"}, {"retain_graph: flag", false}})

-- A window that a break left open ends with the pass it was in.
local function check_window(self, loader)
  if self._step > 0 and loader and loader == self._window_loader and loader.epoch ~= self._window_epoch then
    warn("accumulate: a new pass began inside an accumulation window; the gradients of the open window are dropped")
    self._step = 0
    for _, handle in ipairs(averaging.of(self)) do handle:drop_window() end
  end
  self._window_loader, self._window_epoch = loader or false, loader and loader.epoch or false
end

--- Give the Accelerator class backward, accumulate, no_sync and clipping.
---@param Accelerator table
---@return fun(self: Accelerator) begin
return function(Accelerator)
  --- Differentiate `loss` and, in a step that synchronises, average the gradients over all processes. A collective in
  --- such a step. What Accelerate divides by gradient_accumulation_steps is divided here too, by the weights.
  --
  --   accelerator:backward(loss)
  --   accelerator:backward((w * 2):sum(), {weight = 16})       -- counts as 16 samples in the mean of a window
  ---@param loss userdata a scalar
  ---@param weight? number of this micro-step in the mean, such as its samples or tokens; default 1
  ---@param retain_graph? boolean keep the graph for another backward
  function Accelerator:backward(...)
    local loss, weight, retain_graph = read_backward(...)
    if not weight then check_sizes(self) end
    weight = weight or 1
    if weight ~= 1 then loss = loss * weight end
    averaging.backward(self, loss, weight, {retain_graph = retain_graph})
  end

  --- One micro-step: synchronises at every gradient_accumulation_steps-th one and at a loader's last batch. With a
  --- function, runs it and returns what it returns; without, the following statements up to the next call are the
  --- micro-step.
  --
  --   accelerator:accumulate(model)
  --   accelerator:accumulate(model, function() accelerator:backward(loss) end)
  ---@param ... table|function the models, then the function
  ---@return any # what the function returns
  function Accelerator:accumulate(...)
    local count = select("#", ...)
    for i = 1, count do
      local given = select(i, ...)
      if kind_of(given) ~= "model" and not (i == count and type(given) == "function") then
        arguments.fail("accumulate: argument %d: expected a model (the last one may be a function), got %s", i,
          arguments.describe(given))
      end
    end
    local fn = count > 0 and select(count, ...) or nil
    local loader = self:_active_loader()
    check_window(self, loader)
    if self._step == 0 then self._window_size = false end
    self._step = self._step + 1
    self._micro_step = (self._micro_step or 0) + 1
    local last = loader ~= nil and loader.end_of_dataloader
    self.sync_gradients = last or self._step % self.gradient_accumulation_steps == 0
    if self.sync_gradients then self._step = 0 end
    if type(fn) == "function" then return fn(unpack({...}, 1, count - 1)) end
  end

  --- Run fn without averaging gradients: they add up in this process until the next synchronising backward.
  --
  --   accelerator:no_sync(model, function() accelerator:backward(loss) end)
  ---@param model Module
  ---@param fn function
  ---@return any # what fn returns
  function Accelerator:no_sync(model, fn) -- luacheck: ignore model
    if type(fn) ~= "function" then
      arguments.fail("no_sync: expected a model and a function, got %s", arguments.describe(fn))
    end
    local before = self.sync_gradients
    self.sync_gradients = false
    return protect(function() self.sync_gradients = before end, fn)
  end

  --- Scale the gradients so that their norm is at most max_norm; in a step that does not synchronise, nothing.
  --
  --   accelerator:backward(loss)
  --   accelerator:clip_grad_norm_({w}, 1.0)  --> tensor(7.4833)
  ---@param parameters userdata[]
  ---@param max_norm number
  ---@param norm_type? number|table default 2; or {norm_type = ...}
  ---@return userdata? the norm before
  function Accelerator:clip_grad_norm_(...)
    if self.sync_gradients then return require "accelhost.nn.utils".clip_grad_norm_(...) end
  end

  --- Clamp every gradient element to [-clip_value, clip_value]; in a step that does not synchronise, nothing.
  --
  --   accelerator:backward(loss)
  --   accelerator:clip_grad_value_({w}, 3)
  --   w.grad  --> tensor([2., 3., 3.])
  ---@param parameters userdata[]
  ---@param clip_value number
  function Accelerator:clip_grad_value_(...)
    if self.sync_gradients then require "accelhost.nn.utils".clip_grad_value_(...) end
  end

  return function(self)
    self.sync_gradients = true
    self._step = 0             -- micro-steps since the last window ended
    self._micro_step = false   -- number of the one that accumulate began, false while it is not used
    self._window_loader = false
    self._window_epoch = false
    self._window_size = false  -- samples in the window's first batch
  end
end
