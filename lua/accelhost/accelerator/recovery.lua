--- Live recovery (`launch --recover live`): at every boundary a process publishes what another one needs to go on in
--- its place, and one that replaces it takes that (host/comm/recover.h).
--
-- A boundary is where a script's training loop asks a prepared loader for a batch and no accumulation window is open:
-- the place that a checkpoint would go back to. What all processes have alike (parameters, the optimizers' states) is
-- published in shares, straight from the tensors; buffers whole by each; all else is a note of plain data. Which
-- tensors there are is a plan, made anew when something in it is no longer what it was.
local C = require "accelhost._C"
local Parallel = require "accelhost.averaging.parallel"
local arguments = require "accelhost.util.arguments"
local contents = require "accelhost.checkpoint.contents"
local hooks = require "accelhost.optim.hooks"
local module = require "accelhost.nn.module"
local nn_utils = require "accelhost.nn.utils"
local passes = require "accelhost.data.passes"
local random = require "accelhost.checkpoint.random"
local run_state = require "accelhost.accelerator.run_state"
local travel = require "accelhost.util.travel"

local fail = arguments.fail
local recovery = {}

local owner -- the accelerator whose loops have boundaries
local plan
local held = false  -- load_state is not where the run goes on
local ready = false -- the script has come to where it does

local updates = 0 -- optimizers' steps in this process
local counts = false
local trained = setmetatable({}, {__mode = "k"}) -- loaders of whose batches a step was made
local seen = setmetatable({}, {__mode = "k"})    -- loader -> updates when it was asked for a batch last

-- What else belongs to a run's state: objects with state_dict and load_state_dict.
local parts = {}

-- Plans.

-- A tensor's place in the lists, and what another process is to know to make one like it.
local function add(to, tensor, alike)
  local list = alike and to.alike or to.own
  list[#list + 1] = tensor:detach()
  if not tensor:is_contiguous() then to.strided[#to.strided + 1] = {list = list, place = #list, tensor = tensor} end
  return {dtype = tensor.dtype, shape = tensor:shape(), alike = alike}
end

-- The tensors of a state dict; a further name of one stands for the first. Keys of other values are told apart.
local function add_state(to, state)
  local entries, others, first = {}, {}, {}
  for name, value in nn_utils.state_pairs(state) do
    local entry
    if not C.is_tensor(value) then
      others[#others + 1] = name
    elseif first[value] then
      entry = {same = first[value]}
    else
      first[value] = name
      entry = add(to, value, Parallel.of(value) ~= nil)
    end
    if entry then
      entry.name = name
      entries[#entries + 1] = entry
    end
  end
  return entries, others
end

local function add_buffers(to, model)
  local entries, buffers = {}, contents.transient_buffers(model)
  for i, name in ipairs(arguments.sorted_keys(buffers)) do
    entries[i] = add(to, buffers[name], false)
    entries[i].name = name
  end
  return entries
end

local function all_tensors(state)
  for _, value in next, state do
    if not C.is_tensor(value) then return false end
  end
  return true
end

-- What an optimizer keeps of each parameter, by its number; nil where that is more than tensors by name.
local function add_optimizer(to, optimizer)
  local watch = {optimizer = optimizer, state = optimizer.state, counts = {}, params = {}, states = {}, sizes = {},
    tables = {}, keys = {}, tensors = {}}
  local entries, simple = {}, true
  for g, group in ipairs(optimizer.param_groups) do
    watch.counts[g] = #group.params
    for _, param in ipairs(group.params) do
      local state, id = optimizer.state[param], #watch.params
      local keys = state and arguments.sorted_keys(state) or {}
      watch.params[id + 1], watch.states[id + 1], watch.sizes[id + 1] = param, state or false, #keys
      simple = simple and (not state or all_tensors(state))
      for _, key in ipairs(simple and keys or {}) do
        local n = #watch.tensors + 1
        watch.tables[n], watch.keys[n], watch.tensors[n] = state, key, state[key]
        entries[#entries + 1] = {id = id, key = key, tensor = state[key], alike = Parallel.of(param) ~= nil}
      end
    end
  end
  to.watched[#to.watched + 1] = watch
  if not simple then
    watch.tensors = {}
    return nil
  end
  for _, entry in ipairs(entries) do
    local made = add(to, entry.tensor, entry.alike)
    entry.tensor, entry.dtype, entry.shape = nil, made.dtype, made.shape
  end
  return entries
end

local function make_plan(self)
  local new = {
    objects = run_state.objects(self), changes = module.changes(), places = self._places,
    prepared = self._prepared_count, registered = #self._registered, alike = {}, own = {}, strided = {}, watched = {},
    others = {},
  }
  local layout = {models = {}, buffers = {}, optimizers = {}}
  for i, model in ipairs(new.objects.models) do
    layout.models[i], new.others[i] = add_state(new, model:state_dict {keep_vars = true})
    layout.buffers[i] = add_buffers(new, model)
  end
  for i, optimizer in ipairs(new.objects.optimizers) do
    layout.optimizers[i] = add_optimizer(new, self._optimizers[optimizer]) or false
  end
  new.layout, new.simple = travel.pack(layout), layout.optimizers
  return new
end

local function is_same(watch)
  local optimizer, state = watch.optimizer, watch.optimizer.state
  if state ~= watch.state or #optimizer.param_groups ~= #watch.counts then return false end
  for g, group in ipairs(optimizer.param_groups) do
    if #group.params ~= watch.counts[g] then return false end
  end
  local params, states, sizes = watch.params, watch.states, watch.sizes
  for i = 1, #params do
    local now, count = state[params[i]] or false, 0
    if now ~= states[i] then return false end
    if now then
      for _ in next, now do count = count + 1 end
    end
    if count ~= sizes[i] then return false end
  end
  local tables, keys, tensors = watch.tables, watch.keys, watch.tensors
  for i = 1, #tensors do
    if tables[i][keys[i]] ~= tensors[i] then return false end
  end
  return true
end

local function is_current(self)
  if not plan or plan.changes ~= module.changes() or plan.places ~= self._places
    or plan.prepared ~= self._prepared_count or plan.registered ~= #self._registered then
    return false
  end
  for _, watch in ipairs(plan.watched) do
    if not is_same(watch) then return false end
  end
  return true
end

-- Notes.

local function states_of(list, of)
  local states = {}
  for i, object in ipairs(list) do states[i] = of(object) end
  return states
end

local function state_dict(object) return object:state_dict() end

local function is_under_way(loader)
  local pass = loader._current
  return pass ~= nil and not pass.ended and not pass.last
end

-- The options of an optimizer's groups.
local function options_of(optimizer)
  local groups = {}
  for g, group in ipairs(optimizer.param_groups) do
    groups[g] = {}
    for name, value in pairs(group) do
      if name ~= "params" then groups[g][name] = arguments.copy(value) end
    end
  end
  return groups
end

-- What of a model's state is no tensor.
local function others_of(model, names)
  local others = {}
  if #names == 0 then return others end
  local state = model:state_dict()
  for _, name in ipairs(names) do others[name] = state[name] end
  return others
end

local function generators() return {devices = random.capture(), lua = C.random.lua_state()} end

local function make_note(self)
  local list, others, optimizers = plan.objects, {}, {}
  for i, model in ipairs(list.models) do others[i] = others_of(model, plan.others[i]) end
  for i, optimizer in ipairs(list.optimizers) do
    optimizers[i] = plan.simple[i] and options_of(self._optimizers[optimizer]) or optimizer:state_dict()
  end
  return {
    layout = plan.layout, counts = contents.counts(list), others = others, optimizers = optimizers,
    schedulers = states_of(list.schedulers, state_dict), scalers = states_of(list.scalers, state_dict),
    registered = states_of(list.registered, contents.state_of), loaders = states_of(list.loaders, state_dict),
    accelerator = run_state.own(self), windows = run_state.windows(self), parts = states_of(parts, state_dict),
    iteration = self.project_configuration.iteration, under_way = states_of(list.loaders, is_under_way),
    generators = self._shards and self._shards:outside(generators) or generators(),
  }
end

-- Boundaries.

local function publish(self)
  if owner and owner ~= self then fail "live recovery: the loops of one accelerator can be recovered, here are two" end
  owner = self
  if not is_current(self) then plan = make_plan(self) end
  for _, entry in ipairs(plan.strided) do entry.list[entry.place] = entry.tensor:detach():contiguous() end
  C.recovery.publish(plan.alike, plan.own, travel.pack(make_note(self)))
end

-- Is this a request of a training loop? Its batch before was trained with; a pass that begins follows one of which a
-- batch was, or is the first of all.
local function is_training(loader, pass)
  local before = seen[loader]
  seen[loader] = updates
  if not pass then return trained[loader] or not plan end
  trained[loader] = trained[loader] or before ~= updates
  return before ~= updates
end

-- What is not the same on all processes, or is in no state, cannot be brought back.
local function check(self)
  local hook = self.ddp_handler.comm_hook
  if self.sharding ~= "none" then
    fail("live recovery: takes states that all processes have, and with sharding = '%s' they have parts", self.sharding)
  elseif self.device ~= "cpu" then
    fail("live recovery: is for models on the CPU, and this process's device is %s", self.device)
  elseif hook == "power_sgd" or hook == "batched_power_sgd" then
    fail("live recovery: comm_hook = '%s' keeps errors that are part of no state", hook)
  end
end

--- What a prepared loader calls when it is asked for a batch.
---@param accelerator Accelerator
---@return fun(loader: DataLoader, pass?: Pass)
function recovery.hook(accelerator)
  check(accelerator)
  if not counts then
    counts = true
    hooks.register_optimizer_step_post_hook(function() updates = updates + 1 end)
  end
  return function(loader, pass)
    if pass and pass.ended or not is_training(loader, pass) then return end
    if not ready then
      if not pass then return end
      fail("launch --recover live: call accelerator:load_state() before the loop: there a process that takes a killed "
        .. "one's place goes on (it gives false when there is nothing to go on from)")
    end
    if pass and pass.last then return end -- what follows the loop is done once more with its last step
    if accelerator.sync_gradients and passes.is_outermost(loader) then publish(accelerator) end
  end
end

--- Have the state of an object published as each process has it.
---@param object {state_dict: function, load_state_dict: function}
function recovery.attach(object) parts[#parts + 1] = object end

--- Forget what `attach` was given.
---@param object table
function recovery.detach(object)
  for i = #parts, 1, -1 do
    if parts[i] == object then table.remove(parts, i) end
  end
end

-- Taking.

-- Tensors for what was published, in the lists in which they are filled.
local function make(entry, lists)
  local tensor = C.empty(entry.shape, {dtype = entry.dtype, device = "cpu"})
  local list = entry.alike and lists.alike or lists.own
  list[#list + 1] = tensor
  return tensor
end

local function make_named(entries, lists)
  local state = {}
  for _, entry in ipairs(entries) do
    state[entry.name] = entry.same and state[entry.same] or make(entry, lists)
  end
  return state
end

local function make_optimizer(entries, groups, optimizer, lists)
  local saved, id = {state = {}, param_groups = groups}, 0
  for g, group in ipairs(optimizer.param_groups) do
    if groups[g] then groups[g].params = {} end
    for i in ipairs(group.params) do
      if groups[g] then groups[g].params[i] = id end
      id = id + 1
    end
  end
  for _, entry in ipairs(entries) do
    local state = saved.state[entry.id] or {}
    saved.state[entry.id], state[entry.key] = state, make(entry, lists)
  end
  return saved
end

-- What a checkpoint's files would hold, by their names. The order is that of the plan.
local function make_values(self, note, lists)
  local layout, values = travel.unpack(note.layout), {accelerator = note.accelerator, loaders = note.loaders}
  local optimizers = self:_prepared_list "optimizer"
  for i, entries in ipairs(layout.models) do
    local state = make_named(entries, lists)
    for name, value in pairs(note.others[i]) do state[name] = value end
    values[contents.numbered("model", i)] = state
    values[contents.numbered("buffers", i)] = make_named(layout.buffers[i], lists)
  end
  for i, entries in ipairs(layout.optimizers) do
    values[contents.numbered("optimizer", i)] = entries
      and make_optimizer(entries, note.optimizers[i], self._optimizers[optimizers[i]], lists) or note.optimizers[i]
  end
  for i, state in ipairs(note.schedulers) do values[contents.numbered("scheduler", i)] = state end
  for i, state in ipairs(note.scalers) do values[contents.numbered("scaler", i)] = state end
  for i, state in ipairs(note.registered) do values[("custom_checkpoint_%d"):format(i - 1)] = state end
  values["gradients_" .. C.comm.rank()] = note.windows
  return values
end

local function apply(self, note, values, list, purge_step)
  local size = C.comm.size()
  local own, windows = contents.restore(function(name) return values[name] end, {world_size = size}, list,
    C.comm.rank(), size)
  run_state.set_own(self, own, purge_step)
  run_state.set_windows(self, windows)
  self.project_configuration.iteration = note.iteration
  -- The others are in the middle of the pass: what they agreed on when it began is agreed.
  for i, loader in ipairs(list.loaders) do
    if loader._resume then loader._resume.live = note.under_way[i] end
  end
  for i, part in ipairs(parts) do part:load_state_dict(note.parts[i]) end
  random.restore(note.generators.devices)
  if note.generators.lua then C.random.set_lua_state(note.generators.lua) end
  if self._shards then self._shards:reset() end
end

--- load_state is not where the run goes on, but `go_on`, where the Trainer's loop begins.
---@param accelerator Accelerator
function recovery.hold(accelerator)
  check(accelerator)
  held = true
end

--- There.
---@param accelerator Accelerator
function recovery.go_on(accelerator)
  held = false
  recovery.take(accelerator)
  held = true
end

--- In the place of a killed process: go on where it published its state last. Makes no collective, since the others
--- make none there.
---@param accelerator Accelerator
---@param purge_step? integer|false as load_state has it
---@return boolean # false where this process replaces none, or one that had no step behind it
function recovery.take(accelerator, purge_step)
  if held then return false end
  ready = true
  local step = C.recovery.find()
  if not step then return false end
  local note, list = travel.unpack(C.recovery.note()), run_state.objects(accelerator)
  contents.check_counts(("step %d"):format(step), {objects = note.counts}, list)
  local lists = {alike = {}, own = {}}
  local values = make_values(accelerator, note, lists)
  C.recovery.restore(lists.alike, lists.own)
  C.recovery.take()
  apply(accelerator, note, values, list, purge_step)
  return true
end

return recovery
