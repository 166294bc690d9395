--- Preparing: models, loaders, optimizers and schedulers are made ready for a job, and let go of.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local averaging = require "accelhost.averaging"
local class = require "accelhost.util.class"
local collectives = require "accelhost.accelerator.process.collectives"
local kind_of = require "accelhost.accelerator.process.kinds"
local later = require "accelhost.util.later"
local objects = later "accelhost.accelerator.process.objects"
local recovery = later "accelhost.accelerator.checkpoint.recovery"
local sharding = later "accelhost.accelerator.training.sharding"
local passes = require "accelhost.data.loader.passes"
local wrappers = require "accelhost.accelerator.training.wrappers"
local DistributedSampler = require("accelhost.data.sampler").DistributedSampler

-- kind -> function that prepares the object and returns what the script is to use
local prepare_kind = {}

-- The backward of a second model would see the first one's step, in the last shard of a round only.
local function check_single(self)
  if #averaging.of(self) == 0 then return end
  collectgarbage()
  averaging.remove(function(handle) return handle.accelerator == self and handle:abandoned() end)
  if #averaging.of(self) > 0 then
    arguments.fail "prepare: virtual_shards is for one model that is trained; put several into one module"
  end
end

--- A model: its parameters and gradients move into arenas.
function prepare_kind.model(self, model, placed, evaluation)
  if placed then model:to {device = self.device} end
  self:_cast_forward(model)
  if not evaluation then
    local kwargs = self.ddp_handler
    if self._shards then check_single(self) end
    local handle = averaging.add(model, self, {
      bucket_cap_mb = kwargs.bucket_cap_mb, broadcast_buffers = kwargs.broadcast_buffers,
      shards = self._shards or nil, sharding = self.sharding, units = sharding.units(self, model),
    })
    if self.sharding ~= "none" then sharding.begin() end
    if kwargs.comm_hook ~= "no" and C.comm.size() > 1 then
      require("accelhost.accelerator.training.comm_hooks").install(handle, kwargs)
    end
  end
  return model
end

-- Rank 0's state of the global generator on every process.
local function share_generator()
  C.random.set_rng_state(collectives.broadcast_bytes(C.random.get_rng_state()))
end

-- Is its order this process's share already?
local function is_share(loader, size)
  return size > 1 and loader.sampler ~= nil and class.is(loader.sampler, DistributedSampler)
    and loader.sampler.num_replicas == size
end

-- The seed of the orders of all passes: rank 0's.
local function agreed_seed(self)
  local config = self.dataloader_config
  if not config.use_seedable_sampler then return nil end
  return config.data_seed or objects.broadcast("prepare", C.random.initial_seed(), 0)
end

--- A loader: this rank's share of it. One that another accelerator has prepared is that already.
function prepare_kind.loader(self, loader, placed)
  if loader._sharded then
    self._loaders[loader] = true
    return loader
  end
  local rng, several = self._rng_types, self.num_processes > 1
  local sharded = loader:shard {
    rank = self.process_index, size = self.num_processes,
    split_batches = self.split_batches, even_batches = self.even_batches,
    synchronize = (rng.generator or self._shards) and collectives.broadcast_bytes or nil,
    before_pass = rng.torch and several and share_generator or nil,
    before_batch = C.recovery.is_on() and recovery.hook(self) or nil,
    device = placed and self.device ~= "cpu" and self.device or nil, non_blocking = self.non_blocking,
    dispatch = self.dispatch_batches and several and function(parts) return objects.scatter("DataLoader", parts) end
      or nil,
    agree = several and collectives.agree or nil,
    already_sharded = is_share(loader, self.num_processes) or nil, seed = agreed_seed(self),
    shards = self._shards or nil, share = several and self._share or nil,
  }
  self._loaders[sharded] = true
  return sharded
end

--- An optimizer that waits for the end of a window.
function prepare_kind.optimizer(self, optimizer)
  local prepared = wrappers.optimizer(self, optimizer)
  self._optimizers[prepared] = optimizer
  return prepared
end

--- A scheduler that waits with it.
function prepare_kind.scheduler(self, scheduler)
  local tied, all = {}, {}
  for prepared, inner in pairs(self._optimizers) do
    all[#all + 1] = prepared
    if scheduler.optimizer == inner or scheduler.optimizer == prepared then tied[#tied + 1] = prepared end
  end
  return wrappers.scheduler(self, scheduler, #tied > 0 and tied or all)
end

-- A model whose parameters changed since it was prepared is prepared again.
local function forget_stale(self, model)
  averaging.remove(function(handle)
    local stale = handle.accelerator == self and handle:belongs_to(model) and handle:is_stale()
    if stale and handle.share then
      arguments.fail("prepare: the model's parameters changed since it was prepared with sharding = '%s', and the "
        .. "optimizer's state is cut as they were: call free_memory first and create a new optimizer", self.sharding)
    end
    if stale then self._prepared[model] = nil end
    return stale
  end)
end

local read_unwrap = arguments.signature("unwrap_model", {"model: module", {"keep_fp32_wrapper: flag", true}})
local read_state = arguments.signature("get_state_dict", {"model: module", {"unwrap: flag", true}})

-- Which of the objects go to the device.
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

-- A table of objects would pass through as it is, and nobody would prepare them.
local function check_table(value, place)
  if type(value) ~= "table" or getmetatable(value) ~= nil then return end
  for _, item in pairs(value) do
    if kind_of(item) then
      arguments.fail("prepare: argument %d is a table that holds %s: give the objects themselves (unpack)", place,
        arguments.describe(item))
    end
  end
end

-- One object made ready: what it became the first time, when it is prepared again.
local function one(self, kind, object, placed, ...)
  if kind == "model" then forget_stale(self, object) end
  if not self._prepared[object] then
    if placed == nil then placed = self.device_placement end
    local result = prepare_kind[kind](self, object, placed, ...)
    self._prepared[object] = result
    self._prepared[result] = result
    self._prepared_count = self._prepared_count + 1
    self._places[result] = {kind = kind, place = self._prepared_count}
  end
  return self._prepared[object]
end

--- Give the Accelerator class prepare, its forms for one object, and free_memory.
---@param Accelerator table
---@return fun(self: Accelerator) begin
return function(Accelerator)
  --- Make models, optimizers, loaders and schedulers ready for this job; they come back in the same order. Parameters
  --- and buffers take rank 0's values, loaders give this rank's share. Other values pass through. A collective.
  --
  --   net, optimizer, loader, scheduler = accelerator:prepare(net, optimizer, loader, scheduler)
  ---@param ... any models, optimizers, loaders and schedulers, then perhaps {device_placement = {true, ...}}, one for
  --- each
  ---@return any ... the same objects, made ready, in the same order
  function Accelerator:prepare(...)
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
  function Accelerator:prepare_model(...) return prepare_model(self, ...) end

  local prepare_loader = single("loader", "prepare_data_loader", {{"device_placement: flag"}},
    function(self, loader, placed) return one(self, "loader", loader, placed) end)

  --- Prepare one loader.
  --
  --   loader = accelerator:prepare_data_loader(loader)
  ---@param loader DataLoader
  ---@param device_placement? boolean in place of the accelerator's
  ---@return DataLoader
  function Accelerator:prepare_data_loader(...) return prepare_loader(self, ...) end

  local prepare_optimizer = single("optimizer", "prepare_optimizer", {{"device_placement: flag"}},
    function(self, optimizer) return one(self, "optimizer", optimizer) end)

  --- Prepare one optimizer. Its state is where the parameters are, so device_placement changes nothing.
  --
  --   optimizer = accelerator:prepare_optimizer(optimizer)
  ---@param optimizer Optimizer
  ---@param device_placement? boolean
  ---@return Optimizer
  function Accelerator:prepare_optimizer(...) return prepare_optimizer(self, ...) end

  local prepare_scheduler = single("scheduler", "prepare_scheduler", {},
    function(self, scheduler) return one(self, "scheduler", scheduler) end)

  --- Prepare one scheduler: it steps with its prepared optimizer, or with all of them when its own is not prepared.
  --
  --   scheduler = accelerator:prepare_scheduler(scheduler)
  ---@param scheduler LRScheduler
  ---@return LRScheduler
  function Accelerator:prepare_scheduler(...) return prepare_scheduler(self, ...) end

  --- The same prepared loader without the first batches of each pass, for the pass that a run goes on in.
  --
  --   #accelerator:skip_first_batches(accelerator:prepare(loader), 1)  --> 2
  ---@param loader DataLoader
  ---@param num_batches? integer of this process, default 0
  ---@return DataLoader
  function Accelerator:skip_first_batches(loader, num_batches)
    if kind_of(loader) ~= "loader" then
      arguments.fail("skip_first_batches: expected a loader, got %s", arguments.describe(loader))
    end
    local rest = loader:skip_first_batches(num_batches or 0)
    if self._loaders[loader] then self._loaders[rest] = true end
    return rest
  end

  --- A model's state dict, the same on every process.
  --
  --   accelhost.save(accelerator:get_state_dict(net), os.tmpname())
  ---@param model Module
  ---@param unwrap? boolean no difference here: prepare wraps nothing around a model
  ---@return table<string, Tensor>
  function Accelerator:get_state_dict(...) -- luacheck: ignore self
    local model = read_state(...)
    return model:state_dict()
  end

  --- The model as it was before prepare: the same object, since prepare wraps nothing around it. With mixed_precision
  --- its forward goes on to run under autocast and to give float32, unless keep_fp32_wrapper is false.
  --
  --   accelerator:unwrap_model(net) == net  --> true
  ---@param model Module
  ---@param keep_fp32_wrapper? boolean false: the forward is the model's own again
  ---@return Module
  function Accelerator:unwrap_model(...)
    local model, keep = read_unwrap(...)
    if not keep then self:_restore_forward(model) end
    return model
  end

  --- Let go of everything that prepare was given: models keep their values and gradients, which are averaged no more.
  --
  --   model, optimizer = accelerator:free_memory(model, optimizer)
  ---@param ... any the script's own references
  ---@return nil one for each of them
  function Accelerator:free_memory(...)
    averaging.remove(function(handle) return handle.accelerator == self end)
    self:_begin()
    collectgarbage()
    C.system.empty_cache()
    return unpack({}, 1, select("#", ...))
  end

  --- The same as free_memory.
  --
  --   accelerator:clear()
  Accelerator.clear = Accelerator.free_memory

  -- The prepared loader whose pass is the innermost one, nil when that is another's or there is none. `surely`: even
  -- where it makes no difference whether the pass was left.
  function Accelerator:_active_loader(surely)
    local pass = passes.top()
    if pass and (surely or passes.matters()) then pass = passes.innermost() end
    return pass and self._loaders[pass.loader] and pass.loader or nil
  end

  -- Return the objects of a kind that were prepared and are still in use, in the order in which they were prepared.
  function Accelerator:_prepared_list(kind)
    local list = {}
    for object, entry in pairs(self._places) do
      if entry.kind == kind then list[#list + 1] = object end
    end
    if #list > 1 then
      -- The collector may not have been at those that were dropped.
      list = {}
      collectgarbage()
      for object, entry in pairs(self._places) do
        if entry.kind == kind then list[#list + 1] = object end
      end
    end
    table.sort(list, function(a, b) return self._places[a].place < self._places[b].place end)
    return list
  end

  -- References are weak: a script may drop its objects without notice.
  return function(self)
    self._places = setmetatable({}, {__mode = "k"})     -- what prepare returned -> {kind =, place =}
    self._prepared_count = 0
    self._loaders = setmetatable({}, {__mode = "k"})    -- prepared loader -> true
    self._optimizers = setmetatable({}, {__mode = "k"}) -- prepared optimizer -> the one that was given
    self._prepared = setmetatable({}, {__mode = "kv"})  -- object -> what prepare returned for it
  end
end
