--- accelhost.Accelerator: the same script in one process and in many.
--
--   local accelerator = accelhost.Accelerator{gradient_accumulation_steps = 4}
--   model, optimizer, loader = accelerator:prepare(model, optimizer, loader)
--   for inputs, labels in loader do
--     accelerator:accumulate(model, function()
--       accelerator:backward(F.cross_entropy(model(inputs), labels % 2))
--       optimizer:step()
--       optimizer:zero_grad()
--     end)
--   end
--
-- A gradient is the mean over the global batch: sum(w g) / sum(w) over ranks and micro-steps, where w is 1 unless
-- `backward` is given a weight. A plain loss:backward() on a prepared model averages over the ranks too, and adds up
-- over micro-steps, as with PyTorch's DDP.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local averaging = require "accelhost.accelerator.averaging"
local class = require "accelhost.util.class"
local collectives = require "accelhost.accelerator.collectives"
local protect = require "accelhost.util.protect"
local split = require "accelhost.accelerator.split"
local warn = require "accelhost.util.warn"
local wrappers = require "accelhost.accelerator.wrappers"
local comm = C.comm

---@class Accelerator
---@field device string where models and batches go: the default device
---@field process_index integer this process's rank, from 0
---@field num_processes integer
---@field local_process_index integer
---@field is_main_process boolean rank 0
---@field is_local_main_process boolean
---@field is_last_process boolean
---@field sync_gradients boolean whether the current micro-step ends an accumulation window
---@field gradient_accumulation_steps integer
---@field step_scheduler_with_optimizer boolean
---@field split_batches boolean
---@field even_batches boolean
---@field device_placement boolean
---@field mixed_precision string "no"
local Accelerator = class.strict(class.new "Accelerator")

function Accelerator:__tostring()
  return ("Accelerator(process %d of %d, %s)"):format(self.process_index, self.num_processes, self.device)
end

-- A misspelt setting must not become a field that nobody reads.
function Accelerator:__newindex(name)
  local known = {}
  for field in pairs(self) do
    if not field:find "^_" then known[#known + 1] = field end
  end
  arguments.fail("Accelerator has no field '%s' to be set%s", tostring(name),
    arguments.did_you_mean(tostring(name), known))
end

local read_options = arguments.signature("Accelerator", {
  {"device_placement: flag", true}, {"split_batches: flag", false}, {"mixed_precision: 'no'", "no"},
  {"gradient_accumulation_steps: count", 1}, {"cpu: flag", false}, {"even_batches: flag", true},
  {"step_scheduler_with_optimizer: flag", true}, {"bucket_cap_mb: positive"},
})

--- An accelerator, configured by how the script was launched.
--
--   accelhost.Accelerator{gradient_accumulation_steps = 4}.num_processes  --> 1
---@param device_placement? boolean default true: models and batches go to the accelerator's device
---@param split_batches? boolean default false: a loader's batch size is that of all processes together
---@param mixed_precision? string "no"
---@param gradient_accumulation_steps? integer default 1
---@param cpu? boolean use the CPU whatever the default device
---@param even_batches? boolean default true: fill up the last round, so that all processes have equally many
---@param step_scheduler_with_optimizer? boolean default true: a prepared scheduler steps when the optimizer does
---@param bucket_cap_mb? number size of the pieces in which gradients are averaged
function Accelerator:init(...)
  local device_placement, split_batches, precision, steps, cpu, even_batches, step_scheduler, bucket_cap_mb =
    read_options(...)
  local rank, size = comm.rank(), comm.size()
  for name, value in pairs {
    device = cpu and "cpu" or C.device.get_default_device(),
    process_index = rank,
    num_processes = size,
    local_process_index = comm.local_rank(),
    is_main_process = rank == 0,
    is_local_main_process = comm.local_rank() == 0,
    is_last_process = rank == size - 1,
    sync_gradients = true,
    gradient_accumulation_steps = steps,
    mixed_precision = precision,
    step_scheduler_with_optimizer = step_scheduler,
    split_batches = split_batches,
    even_batches = even_batches,
    device_placement = device_placement,
    _bucket_cap_mb = bucket_cap_mb or false,
    _trigger = false,
  } do
    rawset(self, name, value)
  end
  self:_forget()
end

-- What prepare and accumulate remember, as in the beginning. References are weak: a script that drops its objects needs
-- to tell nobody.
function Accelerator:_forget()
  for name, value in pairs {
    _step = 0,             -- micro-steps since the last window ended
    _micro_step = false,   -- number of the one that accumulate began, false while it is not used
    _window_loader = false,
    _window_epoch = false,
    _window_size = false,  -- samples in the window's first batch
    _loaders = setmetatable({}, {__mode = "k"}),   -- prepared loader -> true
    _prepared = setmetatable({}, {__mode = "kv"}), -- object -> what prepare returned for it
  } do
    rawset(self, name, value)
  end
end

-- Prepare.

-- kind -> what makes the object ready and gives what the script is to use
local prepare_kind = {}

--- A model: its parameters and gradients move into arenas.
function prepare_kind.model(self, model)
  if self.device_placement then model:to {device = self.device} end
  averaging.add(model, self, {bucket_cap_mb = self._bucket_cap_mb or nil})
  return model
end

--- A loader: this rank's share of it.
function prepare_kind.loader(self, loader)
  local sharded = loader:shard {
    rank = self.process_index, size = self.num_processes,
    split_batches = self.split_batches, even_batches = self.even_batches,
    synchronize = collectives.broadcast_bytes,
    device = self.device_placement and self.device ~= "cpu" and self.device or nil,
  }
  self._loaders[sharded] = true
  return sharded
end

--- An optimizer that waits for the end of a window.
function prepare_kind.optimizer(self, optimizer)
  return wrappers.optimizer(self, optimizer)
end

--- A scheduler that waits with it.
function prepare_kind.scheduler(self, scheduler)
  return wrappers.scheduler(self, scheduler)
end

local marks = {_is_module = "model", _is_loader = "loader", _is_optimizer = "optimizer", _is_scheduler = "scheduler"}

local function kind_of(object)
  if type(object) ~= "table" and type(object) ~= "userdata" or C.is_tensor(object) then return nil end
  local meta = getmetatable(object)
  if type(meta) ~= "table" then return nil end
  for mark, kind in pairs(marks) do
    if meta[mark] == true then return kind end
  end
end

-- A model whose parameters changed since it was prepared is prepared anew.
local function forget_stale(self, model)
  averaging.remove(function(handle)
    local stale = handle.accelerator == self and handle:belongs_to(model) and handle:is_stale()
    if stale then self._prepared[model] = nil end
    return stale
  end)
end

--- Make models, optimizers, loaders and schedulers ready for this job; they come back in the same order. Parameters
--- and buffers take rank 0's values, loaders give this rank's share. Other values pass through. A collective.
---@param ... any
---@return any ...
function Accelerator:prepare(...)
  local count = select("#", ...)
  if count == 0 then arguments.fail("prepare: expected models, optimizers, loaders or schedulers, got nothing") end
  local results = {...}
  -- Schedulers last: they follow the optimizers.
  for _, round in ipairs {{model = true, loader = true, optimizer = true}, {scheduler = true}} do
    for i = 1, count do
      local object = select(i, ...)
      local kind = kind_of(object)
      if kind and round[kind] then
        if kind == "model" then forget_stale(self, object) end
        if not self._prepared[object] then
          local result = prepare_kind[kind](self, object)
          self._prepared[object] = result
          self._prepared[result] = result
        end
        results[i] = self._prepared[object]
      end
    end
  end
  return unpack(results, 1, count)
end

--- The model as it was before prepare: the same object, since prepare wraps nothing around it.
function Accelerator:unwrap_model(model) -- luacheck: ignore self
  return model
end

--- Let go of everything that prepare was given: models keep their values and gradients, which are averaged no more.
--
--   model, optimizer = accelerator:free_memory(model, optimizer)
---@param ... any the script's own references
---@return nil ... # one nil for each of them
function Accelerator:free_memory(...)
  averaging.remove(function(handle) return handle.accelerator == self end)
  self:_forget()
  self.sync_gradients = true
  collectgarbage()
  C.system.empty_cache()
  return unpack({}, 1, select("#", ...))
end

--- The same as free_memory.
Accelerator.clear = Accelerator.free_memory

-- Backward and accumulation.

-- The prepared loader whose pass is the innermost one; at most one loader is active.
local function active_loader(self)
  for loader in pairs(self._loaders) do
    if loader.active then return loader end
  end
end

-- A mean over batches of unequal sizes is no mean over samples: say it, once, unless the script weighs them.
local function check_sizes(self)
  if self.num_processes == 1 and not self._micro_step then return end
  local loader = active_loader(self)
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

--- Differentiate `loss` and, in a step that synchronises, average the gradients over all processes. A collective in
--- such a step.
---@param loss userdata a scalar
---@param options? {weight?: number, retain_graph?: boolean} weight: of this micro-step in the mean, e.g. its tokens
function Accelerator:backward(...)
  local loss, weight, retain_graph = read_backward(...)
  if not weight then check_sizes(self) end
  weight = weight or 1
  if weight ~= 1 then loss = loss * weight end
  averaging.backward(self, loss, weight, {retain_graph = retain_graph})
end

-- A window that a break left open ends with the pass it was in.
local function check_window(self, loader)
  if self._step > 0 and loader and loader == self._window_loader and loader.epoch ~= self._window_epoch then
    warn("accumulate: a new pass began inside an accumulation window; the gradients of the open window are dropped")
    self._step = 0
    for _, handle in ipairs(averaging.of(self)) do handle:drop_window() end
  end
  self._window_loader, self._window_epoch = loader or false, loader and loader.epoch or false
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
  local loader = active_loader(self)
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
---@param model table
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
---@param parameters userdata[]
---@param max_norm number
---@param norm_type? number|table default 2; or {norm_type = ...}
---@return userdata? # the norm before
function Accelerator:clip_grad_norm_(...)
  if self.sync_gradients then return require "accelhost.nn.utils".clip_grad_norm_(...) end
end

--- Clamp every gradient element to [-value, value]; in a step that does not synchronise, nothing.
---@param parameters userdata[]
---@param clip_value number
function Accelerator:clip_grad_value_(...)
  if self.sync_gradients then require "accelhost.nn.utils".clip_grad_value_(...) end
end

-- Collectives.

--- Concatenate every process's tensor on dim 0, on every process; tables are walked, scalars become length 1.
---@param ... userdata|table
---@return any ...
function Accelerator:gather(...) -- luacheck: ignore self
  return collectives.map(collectives.gather, ...)
end

--- gather, without the samples that were repeated to fill the last round of the active loader.
---@param ... userdata|table
---@return any ...
function Accelerator:gather_for_metrics(...)
  local loader = active_loader(self)
  local keep = loader and loader.end_of_dataloader and loader.remainder
  if not keep or keep <= 0 then return self:gather(...) end
  return collectives.map(function(tensor)
    local all = collectives.gather(tensor)
    return all:size(0) > keep and all:narrow(0, 0, keep) or all
  end, ...)
end

--- Combine every process's tensor: "sum", "mean", "max", "min" or "product"; on every process.
---@param value userdata|table
---@param reduction? string default "sum"
---@return any
function Accelerator:reduce(value, reduction) -- luacheck: ignore self
  return (collectives.map(function(tensor) return collectives.reduce(tensor, reduction or "sum") end, value))
end

--- Pad every process's tensor to the longest along a dim.
---@param value userdata|table
---@param options? {dim?: integer, pad_index?: number, pad_first?: boolean}
---@return any
function Accelerator:pad_across_processes(value, options) -- luacheck: ignore self
  options = options or {}
  arguments.check_names("pad_across_processes", options, {"dim", "pad_index", "pad_first"})
  return (collectives.map(function(tensor) return collectives.pad(tensor, options) end, value))
end

--- Wait until every process is here.
function Accelerator:wait_for_everyone() -- luacheck: ignore self
  comm.barrier()
end

--- print, on the local main process only.
function Accelerator:print(...)
  if self.is_local_main_process then print(...) end
end

--- Raise a flag on this process; check_trigger then answers true on all.
function Accelerator:set_trigger()
  self._trigger = true
end

--- Did any process raise its flag since the last check? Lowers it. A collective.
---@return boolean
function Accelerator:check_trigger()
  local flag = C.full({1}, self._trigger and 1 or 0, {device = "cpu"})
  self._trigger = false
  return collectives.reduce(flag, "sum"):item() >= 1
end

--- This process's part of a list, a tensor, or a table of fields that are such, all of one length: contiguous, the
--- first (n mod processes) get one more.
---@param items table|userdata
---@param options? {apply_padding?: boolean} give all processes equally many: repeat the last item of all
---@return table|userdata
function Accelerator:split_between_processes(items, options)
  return split(items, self.process_index, self.num_processes, options or {})
end

--- Run fn on the main process first, then on the others.
---@param fn function
---@return any # what fn returns
function Accelerator:main_process_first(fn)
  arguments.check("main_process_first", "fn", "callable", fn)
  if not self.is_main_process then comm.barrier() end
  return protect(function(fine)
    if self.is_main_process and fine then comm.barrier() end
  end, fn)
end

return class.guard(Accelerator)
