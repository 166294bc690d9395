--- Preparing: models, loaders, optimizers and schedulers are made ready for a job, and released.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local averaging = require "accelhost.averaging"
local class = require "accelhost.util.class"
local collectives = require "accelhost.accelerator.process.collectives"
local kind_of = require "accelhost.accelerator.process.kinds"
local later = require "accelhost.util.later"
local objects = later "accelhost.accelerator.process.objects"
local sharding = later "accelhost.accelerator.training.sharding"
local passes = require "accelhost.data.loader.passes"
local wrappers = require "accelhost.accelerator.training.wrappers"
local DistributedSampler = require("accelhost.data.sampler").DistributedSampler

---@part Accelerator
---@field places table<table, {kind: string, place: integer}> of the results of prepare
---@field count integer number of objects that were prepared
---@field loaders table<DataLoader, true> the prepared ones
---@field optimizers table<table, Optimizer> prepared optimizer -> the one that was given
---@field results table<table, table> object -> the result of prepare for it
local Prepared = class.new "Prepared"

function Prepared:init(accelerator)
  self.accelerator = accelerator
  self:reset()
end

--- Forget all objects. References are weak: a script may drop its objects without notice.
function Prepared:reset()
  self.places, self.count = setmetatable({}, {__mode = "k"}), 0
  self.loaders, self.optimizers = setmetatable({}, {__mode = "k"}), setmetatable({}, {__mode = "k"})
  self.results = setmetatable({}, {__mode = "kv"})
end

-- kind -> function that prepares the object and returns the script's object
local prepare_kind = {}

-- The backward of a second model would see the first one's step, in the last shard of a round only.
local function check_single(accelerator)
  if #averaging.of(accelerator) == 0 then return end
  collectgarbage()
  averaging.remove(function(handle) return handle.accelerator == accelerator and handle:abandoned() end)
  if #averaging.of(accelerator) > 0 then
    arguments.fail "prepare: virtual_shards is for one model that is trained; combine several in one module"
  end
end

-- Lazy layers have no parameters to average yet.
local function check_sizes(model)
  for name, module in model:named_modules() do
    if module.has_uninitialized_params and module.has_uninitialized_params() then
      arguments.fail("prepare: %s has no sizes yet: call the model with one batch before prepare",
        name == "" and "the " .. module._name or ("'%s' (%s)"):format(name, module._name))
    end
  end
end

-- Store quantised weights once for the ranks of a machine, with rank 0's values. A rank that replaces another one could
-- not take part.
local function share_constants(model)
  if C.comm.size() == 1 or C.recovery.is_on() then return end
  local list, states, offsets = {}, {}, {}
  for _, module in ipairs(model:modules()) do
    if module._constants then
      for _, tensor in ipairs(module:_constants()) do list[#list + 1] = tensor end
      states[#states + 1], offsets[#offsets + 1] = module.quant_state, module.quant_state.offset or 0
    end
  end
  if #list == 0 or not C.comm.share_constants(list) then return end
  local numbers = C.tensor(offsets, {dtype = "float64", device = "cpu"})
  C.comm.world():broadcast(numbers, 0)
  for i, state in ipairs(states) do state.offset = state.offset and numbers[i - 1]:item() end
  C.system.empty_cache()
end

--- A model: its parameters and gradients move into arenas.
function prepare_kind.model(accelerator, model, placed, evaluation)
  check_sizes(model)
  if placed then model:to {device = accelerator.device} end
  accelerator._precision:cast_forward(model, evaluation)
  if not evaluation then
    local kwargs = accelerator.ddp_handler
    if accelerator._virtual_shards then check_single(accelerator) end
    local handle = averaging.add(model, accelerator, {
      bucket_cap_mb = kwargs.bucket_cap_mb, broadcast_buffers = kwargs.broadcast_buffers,
      virtual_shards = accelerator._virtual_shards or nil, sharding = accelerator.sharding,
      units = sharding.units(accelerator, model),
    })
    share_constants(model)
    if accelerator.sharding ~= "none" then
      sharding.begin()
      sharding.release_units(accelerator, model, handle)
    end
    if kwargs.comm_hook ~= "no" and C.comm.size() > 1 then
      require("accelhost.accelerator.training.comm_hooks").install(handle, kwargs)
    end
  end
  return model
end

-- Rank 0's state of the global generator on every process.
local function broadcast_generator()
  C.random.set_rng_state(collectives.broadcast_bytes(C.random.get_rng_state()))
end

-- Is its order this process's sampler shard already?
local function is_sampler_shard(loader, size)
  return size > 1 and loader.sampler ~= nil and class.is(loader.sampler, DistributedSampler)
    and loader.sampler.num_replicas == size
end

-- The seed of the orders of all passes: rank 0's.
local function agreed_seed(accelerator)
  local config = accelerator.dataloader_config
  if not config.use_seedable_sampler then return nil end
  return config.data_seed or objects.broadcast("prepare", C.random.initial_seed(), 0)
end

--- A loader: this rank's batches of it. One that another accelerator has prepared is that already.
function prepare_kind.loader(accelerator, loader, placed)
  if loader._sharded then
    accelerator._prepared.loaders[loader] = true
    return loader
  end
  local rng, several = accelerator._rng_types, accelerator.num_processes > 1
  local sharded = loader:shard {
    rank = accelerator.process_index, size = accelerator.num_processes,
    split_batches = accelerator.split_batches, even_batches = accelerator.even_batches,
    synchronize = (rng.generator or accelerator._virtual_shards) and collectives.broadcast_bytes or nil,
    before_pass = rng.torch and several and broadcast_generator or nil,
    before_batch = C.recovery.is_on() and accelerator._recovery:hook() or nil,
    device = placed and accelerator.device ~= "cpu" and accelerator.device or nil,
    non_blocking = accelerator.non_blocking,
    dispatch = accelerator.dispatch_batches and several
      and function(parts) return objects.scatter("DataLoader", parts) end or nil,
    agree = several and collectives.agree or nil,
    already_sharded = is_sampler_shard(loader, accelerator.num_processes) or nil, seed = agreed_seed(accelerator),
    shards = accelerator._virtual_shards or nil, share = several and accelerator._batch_proportions or nil,
  }
  accelerator._prepared.loaders[sharded] = true
  return sharded
end

--- An optimizer that waits for the end of a window.
function prepare_kind.optimizer(accelerator, optimizer)
  if accelerator.offload_optimizer_device == "cpu" and accelerator.device ~= "cpu" then
    optimizer:_offload_state(accelerator.device)
  end
  local prepared = wrappers.optimizer(accelerator, optimizer)
  accelerator._prepared.optimizers[prepared] = optimizer
  return prepared
end

--- A scheduler that waits with it.
function prepare_kind.scheduler(accelerator, scheduler)
  local tied, all = {}, {}
  for prepared, inner in pairs(accelerator._prepared.optimizers) do
    all[#all + 1] = prepared
    if scheduler.optimizer == inner or scheduler.optimizer == prepared then tied[#tied + 1] = prepared end
  end
  return wrappers.scheduler(accelerator, scheduler, #tied > 0 and tied or all)
end

-- A model whose parameters changed since it was prepared is prepared again.
local function forget_stale(accelerator, model)
  averaging.remove(function(handle)
    local stale = handle.accelerator == accelerator and handle:belongs_to(model) and handle:is_stale()
    if stale and handle.shard then
      arguments.fail("prepare: the model's parameters changed since it was prepared with sharding = '%s', and the "
        .. "optimizer's state is cut as they were: call free_memory first and create a new optimizer",
        accelerator.sharding)
    end
    if stale then accelerator._prepared.results[model] = nil end
    return stale
  end)
end

-- Return a flag for each object: is it moved to the device?
local function placements(self, list, count)
  arguments.check("prepare", "device_placement", "list", list)
  if #list ~= count then
    arguments.fail("prepare: device_placement: expected one for each of the %d objects, got %d", count, #list)
  end
  local placed = {}
  for i, flag in ipairs(list) do
    if type(flag) ~= "boolean" then
      arguments.fail("prepare: device_placement: item %d: expected true or false, got %s", i, arguments.describe(flag))
    end
    placed[i] = flag
  end
  return placed
end

-- Refuse a table of objects: it would be returned with its objects unprepared.
local function check_table(value, place)
  if type(value) ~= "table" or getmetatable(value) ~= nil then return end
  for _, item in pairs(value) do
    if kind_of(item) then
      arguments.fail("prepare: argument %d is a table that holds %s: pass the objects themselves (unpack)", place,
        arguments.describe(item))
    end
  end
end

-- Prepare one object; return the first result when it is prepared again.
local function one(self, kind, object, placed, ...)
  local accelerator = self.accelerator
  if kind == "model" then forget_stale(accelerator, object) end
  if not self.results[object] then
    if placed == nil then placed = accelerator.device_placement end
    local result = prepare_kind[kind](accelerator, object, placed, ...)
    self.results[object], self.results[result] = result, result
    self.count = self.count + 1
    self.places[result] = {kind = kind, place = self.count}
  end
  return self.results[object]
end

--- Make models, optimizers, loaders and schedulers ready for this job; they are returned in the same order. Parameters
--- and buffers get rank 0's values, loaders yield this rank's batches. Other values pass through. A collective.
--
--   net, optimizer, loader, scheduler = accelerator:prepare(net, optimizer, loader, scheduler)
---@param ... any models, optimizers, loaders and schedulers, then perhaps {device_placement = {true, ...}}, one for
--- each
---@return any ... the same objects, made ready, in the same order
function Prepared:prepare(...)
  local count, placed = select("#", ...), {}
  local last = count > 1 and select(count, ...)
  if last and arguments.is_options(last) and last.device_placement ~= nil then
    arguments.check_names("prepare", last, {"device_placement"})
    count, placed = count - 1, placements(self, last.device_placement, count - 1)
  end
  if count == 0 then arguments.fail("prepare: expected models, optimizers, loaders or schedulers, got nothing") end
  local results = {...}
  -- Schedulers last: they follow the optimizers.
  for _, round in ipairs {{model = true, loader = true, optimizer = true}, {scheduler = true}} do
    for i = 1, count do
      local kind = kind_of(results[i])
      if not kind then check_table(results[i], i) end
      if kind and round[kind] then results[i] = one(self, kind, results[i], placed[i]) end
    end
  end
  return unpack(results, 1, count)
end

local function single(kind, method, options, prepare)
  local read = arguments.signature(method, {kind .. ": any", unpack(options)})
  return function(self, ...)
    local values = {read(...)}
    if kind_of(values[1]) ~= kind then
      arguments.fail("%s: expected a %s, got %s", method, kind, arguments.describe(values[1]))
    end
    return prepare(self, unpack(values, 1, #options + 1))
  end
end

local prepare_model = single("model", "prepare_model",
  {{"device_placement: flag"}, {"evaluation_mode: flag", false}}, function(self, model, placed, evaluation)
    return one(self, "model", model, placed, evaluation)
  end)

--- Prepare one model.
--
--   net = accelerator:prepare_model(net, {evaluation_mode = true})
---@param model Module
---@param device_placement? boolean in place of the accelerator's
---@param evaluation_mode? boolean it will not be trained: nothing is averaged, each process keeps its values
---@return Module
function Prepared:prepare_model(...) return prepare_model(self, ...) end

local prepare_loader = single("loader", "prepare_data_loader", {{"device_placement: flag"}},
  function(self, loader, placed) return one(self, "loader", loader, placed) end)

--- Prepare one loader.
--
--   loader = accelerator:prepare_data_loader(loader)
---@param loader DataLoader
---@param device_placement? boolean in place of the accelerator's
---@return DataLoader
function Prepared:prepare_data_loader(...) return prepare_loader(self, ...) end

local prepare_optimizer = single("optimizer", "prepare_optimizer", {{"device_placement: flag"}},
  function(self, optimizer) return one(self, "optimizer", optimizer) end)

--- Prepare one optimizer. Its state is where the parameters are, so device_placement changes nothing.
--
--   optimizer = accelerator:prepare_optimizer(optimizer)
---@param optimizer Optimizer
---@param device_placement? boolean
---@return Optimizer
function Prepared:prepare_optimizer(...) return prepare_optimizer(self, ...) end

local prepare_scheduler = single("scheduler", "prepare_scheduler", {},
  function(self, scheduler) return one(self, "scheduler", scheduler) end)

--- Prepare one scheduler: it steps with its prepared optimizer, or with all of them when its own is not prepared.
--
--   scheduler = accelerator:prepare_scheduler(scheduler)
---@param scheduler LRScheduler
---@return LRScheduler
function Prepared:prepare_scheduler(...) return prepare_scheduler(self, ...) end

--- Return the same prepared loader without the first batches of each pass, for the pass in which a run resumes.
--
--   #accelerator:skip_first_batches(accelerator:prepare(loader), 1)  --> 2
---@param num_batches? integer of this process, default 0
---@return DataLoader
function Prepared:skip_first_batches(loader, num_batches)
  if kind_of(loader) ~= "loader" then
    arguments.fail("skip_first_batches: expected a loader, got %s", arguments.describe(loader))
  end
  local rest = loader:skip_first_batches(num_batches or 0)
  if self.loaders[loader] then self.loaders[rest] = true end
  return rest
end

--- A model's state dict, the same on every process. A collective with sharding = "full" on devices, where it is a copy
--- on the CPU.
--
--   accelhost.save(accelerator:get_state_dict(net), os.tmpname())
---@param unwrap? boolean no difference here: prepare wraps nothing around a model
---@return table<string, Tensor>
Prepared.get_state_dict = arguments.method("get_state_dict", {
  "model: module", {"unwrap: flag", true},
}, function(self, model)
  if self.accelerator.sharding == "full" then return sharding.model_state(self.accelerator, model) end
  return model:state_dict()
end)

--- Return the model as it was before prepare: the same object, since prepare wraps nothing around it. With
--- mixed_precision its forward still runs under autocast and returns float32, unless keep_fp32_wrapper is false.
--
--   accelerator:unwrap_model(net) == net  --> true
---@param keep_fp32_wrapper? boolean false: the forward is the model's own again
---@return Module
Prepared.unwrap_model = arguments.method("unwrap_model", {
  "model: module", {"keep_fp32_wrapper: flag", true},
}, function(self, model, keep)
  if not keep then self.accelerator._precision:restore_forward(model) end
  return model
end)

--- Let go of everything that prepare was given: models keep their values and gradients, which are averaged no more.
--
--   model, optimizer = accelerator:free_memory(model, optimizer)
---@param ... any the script's own references
---@return nil one for each of them
function Prepared:free_memory(...)
  averaging.make_whole(self.accelerator)
  averaging.remove(function(handle) return handle.accelerator == self.accelerator end)
  self.accelerator:_reset_parts()
  collectgarbage()
  C.system.empty_cache()
  return unpack({}, 1, select("#", ...))
end

--- The same as free_memory.
--
--   accelerator:clear()
Prepared.clear = Prepared.free_memory

--- Return the prepared loader whose pass is the innermost one, nil when that is another's or there is none. `surely`:
--- even where it makes no difference whether the pass was left.
---@param surely? boolean
---@return DataLoader?
function Prepared:active_loader(surely)
  local pass = passes.top()
  if pass and (surely or passes.matters()) then pass = passes.innermost() end
  return pass and self.loaders[pass.loader] and pass.loader or nil
end

--- Return the objects of a kind that were prepared and are still in use, in the order in which they were prepared.
function Prepared:list(kind)
  local list = {}
  for object, entry in pairs(self.places) do
    if entry.kind == kind then list[#list + 1] = object end
  end
  if #list > 1 then
    -- The collector may not have been at those that were dropped.
    list = {}
    collectgarbage()
    for object, entry in pairs(self.places) do
      if entry.kind == kind then list[#list + 1] = object end
    end
  end
  table.sort(list, function(a, b) return self.places[a].place < self.places[b].place end)
  return list
end

return Prepared
