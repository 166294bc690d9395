--- accelhost.Accelerator: the same script in one process and in many.
--
--   local accelerator = accelhost.Accelerator{gradient_accumulation_steps = 4}
--   local model, optimizer, loader = accelerator:prepare(Net(), optimizer, loader)
--   for images, labels in loader do
--     accelerator:accumulate(model, function()
--       accelerator:backward(F.cross_entropy(model(images), labels))
--       optimizer:step()
--       optimizer:zero_grad()
--     end)
--   end
--
-- A gradient is the mean over the global batch: sum(w g) / sum(w) over ranks and micro-steps, where w is 1 unless
-- `backward` is given a weight.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local collectives = require "accelhost.accelerator.collectives"
local parallel = require "accelhost.accelerator.parallel"
local wrappers = require "accelhost.accelerator.wrappers"
local warn = require "accelhost.util.warn"
local comm = C.comm

---@class Accelerator
---@field device string "cpu"
---@field process_index integer this process's rank, from 0
---@field num_processes integer
---@field local_process_index integer
---@field is_main_process boolean rank 0
---@field is_local_main_process boolean
---@field is_last_process boolean
---@field sync_gradients boolean whether the current micro-step ends an accumulation window
---@field gradient_accumulation_steps integer
local Accelerator = {}
Accelerator.__index = Accelerator

function Accelerator:__tostring()
  return ("Accelerator(process %d of %d, %s)"):format(self.process_index, self.num_processes, self.device)
end

local known_options = {
  "gradient_accumulation_steps", "mixed_precision", "split_batches", "even_batches", "step_scheduler_with_optimizer",
  "bucket_cap_mb", "device_placement", "cpu",
}

local function new(_, options)
  options = options or {}
  if type(options) ~= "table" then
    arguments.fail("Accelerator: expected a table of options, got %s", arguments.describe(options))
  end
  arguments.check_names("Accelerator", options, known_options)
  local steps = options.gradient_accumulation_steps or 1
  if type(steps) ~= "number" or steps < 1 or steps % 1 ~= 0 then
    arguments.fail("Accelerator: gradient_accumulation_steps: expected an integer of at least 1, got %s",
      tostring(steps))
  end
  local precision = options.mixed_precision or "no"
  if precision ~= "no" then
    arguments.fail("Accelerator: mixed_precision: only 'no' is available, got '%s'", tostring(precision))
  end
  local rank, size = comm.rank(), comm.size()
  return setmetatable({
    device = "cpu",
    process_index = rank,
    num_processes = size,
    local_process_index = comm.local_rank(),
    is_main_process = rank == 0,
    is_local_main_process = comm.local_rank() == 0,
    is_last_process = rank == size - 1,
    sync_gradients = true,
    gradient_accumulation_steps = steps,
    mixed_precision = precision,
    step_scheduler_with_optimizer = options.step_scheduler_with_optimizer ~= false,
    _split_batches = options.split_batches or false,
    _even_batches = options.even_batches ~= false,
    _bucket_cap_mb = options.bucket_cap_mb,
    _step = 0,            -- micro-steps since the last window ended
    _micro_step = nil,    -- number of the one that accumulate began, nil while it is not used
    _parallels = {},      -- one per prepared model
    _optimizers = {},
    _schedulers = {},
    _loaders = {},
    _prepared = setmetatable({}, {__mode = "k"}), -- object -> what prepare returned for it
  }, Accelerator)
end

-- Prepare.

local function prepare_model(self, model)
  local handle = parallel.new(model, {bucket_cap_mb = self._bucket_cap_mb})
  self._parallels[#self._parallels + 1] = handle
  return model
end

-- A model whose parameters changed since it was prepared is prepared anew.
local function refresh_model(self, model)
  for i, handle in ipairs(self._parallels) do
    if handle.model == model and handle:is_stale() then
      handle:close()
      table.remove(self._parallels, i)
      self._prepared[model] = nil
      return
    end
  end
end

local function prepare_loader(self, loader)
  local sharded = loader:shard {
    rank = self.process_index, size = self.num_processes,
    split_batches = self._split_batches, even_batches = self._even_batches,
  }
  sharded.synchronize = collectives.broadcast_bytes
  self._loaders[#self._loaders + 1] = sharded
  return sharded
end

local function prepare_optimizer(self, optimizer)
  local wrapped = wrappers.optimizer(self, optimizer)
  self._optimizers[#self._optimizers + 1] = wrapped
  return wrapped
end

local function prepare_scheduler(self, scheduler)
  local wrapped = wrappers.scheduler(self, scheduler)
  self._schedulers[#self._schedulers + 1] = wrapped
  return wrapped
end

local function kind_of(object)
  if type(object) ~= "table" and type(object) ~= "userdata" or C.is_tensor(object) then return nil end
  local class = getmetatable(object)
  if type(class) == "table" and class._is_module then return "model" end
  if object.shard and object.dataset then return "loader" end
  if object.param_groups then return "optimizer" end
  if object.optimizer and object.step then return "scheduler" end
  return nil
end

local prepare_kind = {
  model = prepare_model, loader = prepare_loader, optimizer = prepare_optimizer, scheduler = prepare_scheduler,
}

--- Make models, optimizers, loaders and schedulers ready for this job; they come back in the same order. Parameters
--- and buffers take rank 0's values, loaders give this rank's share. Other values pass through. A collective.
---@param ... any
---@return any ...
function Accelerator:prepare(...)
  local count = select("#", ...)
  local results = {...}
  -- Schedulers last: they follow the optimizers.
  for _, round in ipairs {{model = true, loader = true, optimizer = true}, {scheduler = true}} do
    for i = 1, count do
      local object = select(i, ...)
      local kind = kind_of(object)
      if kind and round[kind] then
        if kind == "model" then refresh_model(self, object) end
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

-- Backward and accumulation.

local function active_loader(self)
  for i = #self._loaders, 1, -1 do
    if self._loaders[i].active then return self._loaders[i] end
  end
end

-- Which models the loss depended on: on any process when they are to agree, else on this one.
local function reached_models(handles, agree)
  local reached = {}
  for i, handle in ipairs(handles) do reached[i] = handle:was_reached() and 1 or 0 end
  if agree and comm.size() > 1 then
    local all = C.tensor(reached, {device = "cpu"})
    comm.all_reduce(all, "max")
    reached = all:tolist()
  end
  return reached
end

-- Several models: one that the loss does not depend on keeps its gradients and its window as they are.
local function finish_several(handles, sync)
  local reached = reached_models(handles, sync)
  for i, handle in ipairs(handles) do
    if reached[i] == 0 then
      handle:skip()
    elseif sync then
      handle:begin_average()
      handle:finish_average()
    end
  end
end

--- Differentiate `loss` and, in a step that synchronises, average the gradients over all processes. A collective in
--- such a step.
---@param loss userdata a scalar
---@param options? {weight?: number, retain_graph?: boolean} weight: of this micro-step in the mean, e.g. its tokens
function Accelerator:backward(loss, options)
  if not C.is_tensor(loss) then
    arguments.fail("backward: loss: expected a tensor, got %s", arguments.describe(loss))
  end
  options = options or {}
  arguments.check_names("backward", options, {"weight", "retain_graph"})
  local weight = options.weight or 1
  if weight ~= 1 then loss = loss * weight end
  local sync, handles = self.sync_gradients, self._parallels
  for _, handle in ipairs(handles) do handle:begin_backward(weight, self._micro_step) end
  local only = #handles == 1 and handles[1]
  if only and sync then only:begin_average() end
  C.autograd.backward(loss, nil, {retain_graph = options.retain_graph})
  if #handles > 1 then
    finish_several(handles, sync)
  elseif only and sync then
    only:finish_average()
  end
end

-- A window that a break left open ends with the pass it was in.
local function check_window(self, loader)
  if self._step > 0 and loader and loader == self._window_loader and loader.epoch ~= self._window_epoch then
    warn("accumulate: a new pass began inside an accumulation window; the gradients of the open window are dropped")
    self._step = 0
    for _, handle in ipairs(self._parallels) do handle:drop_window() end
  end
  self._window_loader, self._window_epoch = loader, loader and loader.epoch
end

--- One micro-step: synchronises at every gradient_accumulation_steps-th one and at a loader's last batch. With a
--- function, runs it and returns what it returns; without, the following statements up to the next call are the
--- micro-step.
--
--   accelerator:accumulate(model)
--   accelerator:accumulate(generator, critic, function() ... end)
---@param ... table|function the models, then the function
---@return any # what the function returns
function Accelerator:accumulate(...)
  local count = select("#", ...)
  local fn = count > 0 and select(count, ...) or nil
  local loader = active_loader(self)
  check_window(self, loader)
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
  local results = {pcall(fn)}
  self.sync_gradients = before
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2, table.maxn(results))
end

--- Scale the gradients so that their norm is at most max_norm; in a step that does not synchronise, nothing.
---@param parameters userdata[]
---@param max_norm number
---@param norm_type? number default 2
---@return userdata? # the norm before
function Accelerator:clip_grad_norm_(parameters, max_norm, norm_type)
  if not self.sync_gradients then return nil end
  return require "accelhost.nn.utils".clip_grad_norm_(parameters, max_norm, {norm_type = norm_type})
end

--- Clamp every gradient element to [-value, value]; in a step that does not synchronise, nothing.
function Accelerator:clip_grad_value_(parameters, value)
  if not self.sync_gradients then return end
  require "accelhost.nn.utils".clip_grad_value_(parameters, value)
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

-- This process's part of a list or tensor; padded: its last item repeated up to the length of the longest part.
local function part_of(self, items, padded)
  local tensor = C.is_tensor(items)
  local total = tensor and items:size(0) or #items
  local base, extra = math.floor(total / self.num_processes), total % self.num_processes
  local first = self.process_index * base + math.min(self.process_index, extra)
  local length = base + (self.process_index < extra and 1 or 0)
  local missing = padded and total > 0 and base + (extra > 0 and 1 or 0) - length or 0
  if tensor then
    local part = items:narrow(0, first, length)
    return missing > 0 and C.cat({part, items:narrow(0, total - 1, 1)}, 0) or part
  end
  local part = {}
  for i = 1, length do part[i] = items[first + i] end
  for i = length + 1, length + missing do part[i] = items[total] end
  return part
end

--- This process's part of a list, a tensor, or a table of fields that are such, all of one length: contiguous, the
--- first (n mod processes) get one more.
---@param items table|userdata
---@param options? {apply_padding?: boolean} give all processes equally many: repeat the last item of all
---@return table|userdata
function Accelerator:split_between_processes(items, options)
  options = options or {}
  arguments.check_names("split_between_processes", options, {"apply_padding"})
  local padded = options.apply_padding
  if type(items) ~= "table" and not C.is_tensor(items) then
    arguments.fail("split_between_processes: expected a table or a tensor, got %s", arguments.describe(items))
  end
  if C.is_tensor(items) or #items > 0 or next(items) == nil then return part_of(self, items, padded) end
  local parts, length, first = {}, nil, nil
  for _, name in ipairs(arguments.sorted_keys(items)) do
    local field = items[name]
    if type(field) ~= "table" and not C.is_tensor(field) then
      arguments.fail("split_between_processes: field '%s': expected a table or a tensor, got %s", tostring(name),
        arguments.describe(field))
    end
    if length and #field ~= length then
      arguments.fail("split_between_processes: field '%s' has %d items, '%s' has %d", tostring(first), length,
        tostring(name), #field)
    end
    length, first = #field, first or name
    parts[name] = part_of(self, field, padded)
  end
  return parts
end

--- Run fn on the main process first, then on the others.
---@param fn function
---@return any # what fn returns
function Accelerator:main_process_first(fn)
  if not self.is_main_process then comm.barrier() end
  local results = {pcall(fn)}
  if self.is_main_process and results[1] then comm.barrier() end
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2, table.maxn(results))
end

return setmetatable(Accelerator, {__call = new})
