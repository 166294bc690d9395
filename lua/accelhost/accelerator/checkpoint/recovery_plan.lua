--- The tensors of a run's state, for live recovery (recovery.lua): their list, in an order that all processes share,
--- and the properties with which another process creates them.
--
-- A plan holds the tensors themselves, which are published in place. It is rebuilt when one of them has changed; a
-- buffer that a script has replaced by one of the same properties is adopted.
local C = require "accelhost._C"
local Parallel = require "accelhost.averaging.parallel"
local arguments = require "accelhost.util.arguments"
local contents = require "accelhost.checkpoint.contents"
local module = require "accelhost.nn.module"
local nn_utils = require "accelhost.nn.utils"
local run_state = require "accelhost.accelerator.checkpoint.run_state"
local serialize = require "accelhost.util.serialize"

---@class RecoveryPlan
---@field objects table the result of run_state.objects
---@field alike userdata[] with the same values on all processes
---@field own userdata[] of this process
---@field strided {list: userdata[], place: integer, tensor: userdata}[] those that are published as a copy
---@field others string[][] of each model: the keys of its state that are neither parameters nor buffers
---@field simple table[] of each optimizer: is its state tensors by name, which are in the plan?
---@field fixed userdata the description of all this, as bytes
---@field note table further published values, made by their owner
---@field loaders table<DataLoader, true> those of objects
local Plan = {}
Plan.__index = Plan

-- Add a tensor: record its place in the lists, and the entry from which another process makes one like it.
local function add(self, tensor, alike)
  local list = alike and self.alike or self.own
  list[#list + 1] = tensor
  self.place_of[tensor] = {list = list, place = #list}
  if not tensor:is_contiguous() then
    self.strided[#self.strided + 1] = {list = list, place = #list, tensor = tensor}
  end
  return {dtype = tensor.dtype, shape = tensor:shape(), alike = alike}
end

-- Add parameters and buffers, a further name of one as an alias of the first, and the keys of the state's other
-- entries, which may be made whenever the state is asked for.
local function add_state(self, model)
  local entries, others, first, members = {}, {}, {}, {}
  for _, list in ipairs {model:parameters(), model:buffers()} do
    for _, tensor in ipairs(list) do members[tensor] = true end
  end
  for name, value in nn_utils.state_pairs(model:state_dict {keep_vars = true}) do
    if not members[value] then
      others[#others + 1] = name
    else
      local entry = first[value] and {same = first[value]} or add(self, value, Parallel.of(value) ~= nil)
      first[value] = first[value] or name
      entry.name = name
      entries[#entries + 1] = entry
    end
  end
  return entries, others
end

local function add_buffers(self, model)
  local entries, buffers = {}, contents.transient_buffers(model)
  for i, name in ipairs(arguments.sorted_keys(buffers)) do
    entries[i] = add(self, buffers[name], false)
    entries[i].name = name
  end
  return entries
end

-- Record the places of buffers; `uses`: the number of places of each.
local function watch_buffers(self, model)
  local watched = self.buffers
  for _, part in ipairs(model:modules()) do
    for _, name in ipairs(part._buffers) do
      local tensor = part._fields[name] or false
      watched[#watched + 1] = {fields = part._fields, name = name, tensor = tensor}
      if tensor then self.uses[tensor] = (self.uses[tensor] or 0) + 1 end
    end
  end
end

local function all_tensors(state)
  for _, value in next, state do
    if not C.is_tensor(value) then return false end
  end
  return true
end

-- Add an optimizer's state of each parameter, by its number; false where that is more than tensors by name.
local function add_optimizer(self, optimizer)
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
  self.watched[#self.watched + 1] = watch
  if not simple then
    watch.tensors = {}
    return false
  end
  for _, entry in ipairs(entries) do
    local made = add(self, entry.tensor, entry.alike)
    entry.tensor, entry.dtype, entry.shape = nil, made.dtype, made.shape
  end
  return entries
end

--- Make the plan of the objects that an accelerator has prepared.
---@return RecoveryPlan
function Plan.make(accelerator)
  local self = setmetatable({
    objects = run_state.objects(accelerator), changes = module.changes(), places = accelerator._prepared.places,
    prepared = accelerator._prepared.count, registered = #run_state.registered(accelerator), alike = {},
    own = {}, strided = {}, others = {}, watched = {}, buffers = {}, place_of = {}, uses = {},
    note = {others = {}, optimizers = {}}, loaders = {},
  }, Plan)
  for _, loader in ipairs(self.objects.loaders) do self.loaders[loader] = true end
  local layout = {models = {}, buffers = {}, optimizers = {}}
  for i, model in ipairs(self.objects.models) do
    layout.models[i], self.others[i] = add_state(self, model)
    layout.buffers[i] = add_buffers(self, model)
    watch_buffers(self, model)
  end
  for i, optimizer in ipairs(self.objects.optimizers) do
    layout.optimizers[i] = add_optimizer(self, accelerator._prepared.optimizers[optimizer])
  end
  self.simple = layout.optimizers
  self.fixed = serialize.pack("live recovery", "plan", {layout = layout, counts = contents.counts(self.objects)})
  return self
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

-- Let the plan hold the tensor that is now in a buffer's place, if it is like the one before.
local function adopt_tensor(self, watch, now)
  local before = watch.tensor
  local at = before and now and self.uses[before] == 1 and self.place_of[before]
  if not at or before.dtype ~= now.dtype or not C.same_shape(before, now) or self.uses[now]
    or not (before:is_contiguous() and now:is_contiguous()) then
    return false
  end
  at.list[at.place], watch.tensor = now, now
  self.uses[before], self.uses[now], self.place_of[before], self.place_of[now] = nil, 1, nil, at
  return true
end

--- Does the plan still describe the accelerator's objects?
function Plan:is_current(accelerator)
  if self.changes ~= module.changes() or self.places ~= accelerator._prepared.places
    or self.prepared ~= accelerator._prepared.count or self.registered ~= #run_state.registered(accelerator) then
    return false
  end
  for i = 1, #self.buffers do
    local watch = self.buffers[i]
    local now = watch.fields[watch.name] or false
    if now ~= watch.tensor and not adopt_tensor(self, watch, now) then return false end
  end
  for i = 1, #self.watched do
    if not is_same(self.watched[i]) then return false end
  end
  return true
end

--- The tensors to be published.
---@return userdata[] alike
---@return userdata[] own
function Plan:tensors()
  for _, entry in ipairs(self.strided) do entry.list[entry.place] = entry.tensor:detach():contiguous() end
  return self.alike, self.own
end

-- In another process.

-- Make a tensor for a published entry, in the list in which it is filled.
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

--- The states of models and optimizers, by the names of a checkpoint's files, with tensors that are still to be filled:
--- those of `alike` and `own`, in the order of the plan that was made into `layout`.
---@param layout table
---@param note {others: table[], optimizers: table[]}
---@return table<string, table> values
---@return {alike: userdata[], own: userdata[]} lists
function Plan.values(accelerator, layout, note)
  local values, lists = {}, {alike = {}, own = {}}
  local optimizers = accelerator._prepared:list "optimizer"
  for i, entries in ipairs(layout.models) do
    local state = make_named(entries, lists)
    for name, value in pairs(note.others[i]) do state[name] = value end
    values[contents.numbered("model", i)] = state
    values[contents.numbered("buffers", i)] = make_named(layout.buffers[i], lists)
  end
  for i, entries in ipairs(layout.optimizers) do
    values[contents.numbered("optimizer", i)] = entries
      and make_optimizer(entries, note.optimizers[i], accelerator._prepared.optimizers[optimizers[i]], lists)
      or note.optimizers[i]
  end
  return values, lists
end

return Plan
