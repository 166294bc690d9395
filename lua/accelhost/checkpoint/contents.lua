--- The contents of a checkpoint: the states of the prepared and registered objects, saved to files and loaded.
--
-- Written by rank 0: model[_I].safetensors, buffers[_I].safetensors (those that are not persistent), optimizer[_I],
-- scheduler[_I], scaler, fp8[_I], custom_checkpoint_I, loaders, accelerator. By every rank: random_states_RANK, and
-- gradients_RANK while an accumulation window is open; with sharded states, when asked for, optimizer[_I]_rank_RANK in
-- place of optimizer[_I]; custom_checkpoint_I_rank_RANK of an object that differs by process. States without tensors
-- are JSON.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local nn_utils = require "accelhost.nn.utils"
local random = require "accelhost.checkpoint.random"
local stored = require "accelhost.checkpoint.stored"

local fail, describe = arguments.fail, arguments.describe

local contents = {}

--- "model", "model_1", ...: Accelerate's names.
---@param i integer from 1
function contents.numbered(name, i)
  return i == 1 and name or ("%s_%d"):format(name, i - 1)
end
local numbered = contents.numbered

--- Buffers that a model does not count among its state.
---@return table<string, userdata>
function contents.transient_buffers(model)
  local state, buffers = model:state_dict(), {}
  for name, buffer in model:named_buffers() do
    if state[name] == nil then buffers[name] = buffer end
  end
  return buffers
end

--- The state of an object that a script registered.
function contents.state_of(object)
  if C.random.is_generator(object) then return {generator = object:get_state()} end
  return object:state_dict()
end

--- Can it be registered?
function contents.has_state(object)
  if C.random.is_generator(object) then return true end
  local kind = type(object)
  if kind ~= "table" and kind ~= "userdata" or C.is_tensor(object) then return false end
  local function method(name)
    local fine, value = pcall(function() return object[name] end)
    return fine and type(value) == "function"
  end
  return method "state_dict" and method "load_state_dict"
end

local function set_state(object, state)
  if C.random.is_generator(object) then return object:set_state(state.generator:clone()) end
  object:load_state_dict(state)
end

-- Files of rank 0.

local kinds = {} -- the order in which they are written and read

local function kind(name, write, read) kinds[#kinds + 1] = {name = name, write = write, read = read} end

-- A kind of which each object has a file with its state.
local function simple(name, file, field, write, read)
  kind(name, function(objects, add)
    for i, object in ipairs(objects[field]) do add(numbered(file, i), write(object)) end
  end, function(objects, get)
    for i, object in ipairs(objects[field]) do read(object, get(numbered(file, i))) end
  end)
end

kind("model", function(objects, _, files, what, copied)
  for i, state in ipairs(objects.weights) do
    files[#files + 1] = stored.state(what, numbered("model", i), state, nn_utils.state_pairs(state), copied)
  end
end, function(objects, get)
  for i, model in ipairs(objects.models) do
    local state = get(numbered("model", i))
    if model._load_checkpoint_state then model:_load_checkpoint_state(state) else model:load_state_dict(state) end
  end
end)

kind("buffer", function(objects, add)
  for i, model in ipairs(objects.models) do
    local buffers = contents.transient_buffers(model)
    if next(buffers) ~= nil then add(numbered("buffers", i), buffers) end
  end
end, function(objects, get)
  for i, model in ipairs(objects.models) do
    local saved = get(numbered("buffers", i), true) or {}
    for name, buffer in pairs(contents.transient_buffers(model)) do
      local value = saved[name]
      if value ~= nil then
        if not C.same_shape(value, buffer) then
          fail("load_state: buffer %s has shape %s, the saved one %s", name, arguments.shape_text(buffer),
            arguments.shape_text(value))
        end
        C.autograd.no_grad(buffer.copy_, buffer, value)
      end
    end
  end
end)

--- Load a saved state into an optimizer. load_state_dict casts floating state to its parameter's dtype, as PyTorch
--- does; states of another dtype are restored.
function contents.load_optimizer(optimizer, saved)
  optimizer:load_state_dict(saved)
  local id = 0
  for _, group in ipairs(optimizer.param_groups) do
    for _, param in ipairs(group.params) do
      local values, state = saved.state[id] or saved.state[tostring(id)], optimizer.state[param]
      for name, value in pairs(values and state or {}) do
        local was = values[name]
        if C.is_tensor(value) and C.is_tensor(was) and was.dtype ~= value.dtype then
          state[name] = was:to {device = value.device}:clone()
        end
      end
      id = id + 1
    end
  end
end

-- A rank's part of an optimizer's state, where a checkpoint has them so.
local function part_of(name, rank) return ("%s_rank_%d"):format(name, rank) end

kind("optimizer", function(objects, add)
  for i, state in ipairs(objects.optimizer_states) do
    if state then add(numbered("optimizer", i), state) end
  end
end, function(objects, get, _, ranks)
  for i, optimizer in ipairs(objects.optimizers) do
    local name = numbered("optimizer", i)
    local state = get(name, get(part_of(name, 0), true) ~= nil)
    if state then
      optimizer:load_saved(state)
    else
      local parts = {}
      for rank = 0, ranks - 1 do parts[rank + 1] = get(part_of(name, rank)) end
      optimizer:load_parts(parts)
    end
  end
end)
simple("scheduler", "scheduler", "schedulers", function(scheduler) return scheduler:state_dict() end,
  function(scheduler, state) scheduler:load_state_dict(state) end)
simple("scaler", "scaler", "scalers", function(scaler) return scaler:state_dict() end,
  function(scaler, state) scaler:load_state_dict(state) end)

-- A state that was saved in another precision has none: scales are as at the beginning of a run then.
kind("FP8 scales", function(objects, add)
  for i, scales in ipairs(objects.fp8_scales) do add(numbered("fp8", i), scales:state_dict()) end
end, function(objects, get)
  for i, scales in ipairs(objects.fp8_scales) do
    local state = get(numbered("fp8", i), true)
    if state then scales:load_state_dict(state) end
  end
end)

local function registered_name(i) return ("custom_checkpoint_%d"):format(i - 1) end

kind("registered object", function(objects, add)
  for i, object in ipairs(objects.registered) do add(registered_name(i), contents.state_of(object)) end
end, function(objects, get, _, _, rank)
  for i, object in ipairs(objects.registered) do
    local own = objects.per_process[object] and get(part_of(registered_name(i), rank), true)
    set_state(object, own or get(registered_name(i)))
  end
end)

kind("loader", function(objects, add)
  local states = {}
  for i, loader in ipairs(objects.loaders) do states[i] = loader:state_dict() end
  add("loaders", states)
end, function(objects, get, own)
  local states = get "loaders"
  for i, loader in ipairs(objects.loaders) do
    -- The seed of a pass without a random order is each process's own.
    if own and own.seeds then states[i].seed = own.seeds[i] or nil end
    loader:load_state_dict(states[i])
  end
end)

local counted = {"models", "optimizers", "schedulers", "scalers", "registered", "loaders"}

--- Count the objects of each kind, for the manifest.
---@return table<string, integer>
function contents.counts(objects)
  local counts = {}
  for _, field in ipairs(counted) do counts[field] = #objects[field] end
  return counts
end

--- Raise unless a checkpoint holds as many objects of each kind as there are here.
function contents.check_counts(folder, facts, objects)
  for _, field in ipairs(counted) do
    local there = facts.objects[field] or 0
    if there ~= #objects[field] then
      fail("load_state: '%s' holds %d %s, here are %d %s: prepare and register the same objects as when it was saved",
        folder, there, field == "registered" and "registered objects" or field, #objects[field],
        field == "registered" and "registered" or "prepared")
    end
  end
end

--- The files that rank 0 writes.
---@param objects table {models, weights, optimizers, optimizer_states, optimizer_parts, schedulers, scalers,
--- fp8_scales, registered, loaders, accelerator}
---@param copied boolean
function contents.shared_files(what, objects, copied)
  local files = {}
  local function add(name, value) files[#files + 1] = stored.file(what, name, value, copied) end
  for _, each in ipairs(kinds) do each.write(objects, add, files, what, copied) end
  add("accelerator", objects.accelerator)
  return files
end

--- The files that a rank writes for itself.
---@param copied boolean
function contents.own_files(what, objects, rank, copied)
  local seeds = {}
  for i, loader in ipairs(objects.loaders) do seeds[i] = loader:state_dict().seed or false end
  local states = {generators = random.capture(), lua = random.capture_lua(), seeds = seeds}
  local files = {stored.file(what, "random_states_" .. rank, states, copied)}
  if objects.windows then
    files[2] = stored.file(what, "gradients_" .. rank, objects.windows, copied)
  end
  for i, object in ipairs(rank > 0 and objects.registered or {}) do
    if objects.per_process[object] then
      files[#files + 1] = stored.file(what, part_of(registered_name(i), rank), contents.state_of(object), copied)
    end
  end
  for i, part in ipairs(objects.optimizer_parts) do
    files[#files + 1] = stored.file(what, part_of(numbered("optimizer", i), rank), part, copied)
  end
  return files
end

--- A function that reads files of a checkpoint and raises about missing ones.
---@param facts table its manifest
---@return fun(name: string, may_be_missing?: boolean): any
function contents.getter(folder, facts)
  return function(name, may_be_missing)
    local value = stored.read(folder, facts.files, name)
    if value == nil and not may_be_missing then
      fail("load_state: '%s' has no file for %s", folder, describe(name))
    end
    return value
  end
end

--- Load the states of a checkpoint into the objects; generators last, so that nothing draws after them.
---@param get fun(name: string, may_be_missing?: boolean): any reads the file of this name
---@param facts table its manifest
---@return table accelerator the state of the accelerator, table windows of each rank that resumes here, table? common
--- rank 0's, where this rank did not exist
function contents.restore(get, facts, objects, rank, size)
  local own = get("random_states_" .. rank, true)
  for _, each in ipairs(kinds) do
    each.read(objects, get, facts.world_size == size and own or nil, facts.world_size, rank)
  end
  local windows = {}
  for there = rank, facts.world_size - 1, size do windows[#windows + 1] = get("gradients_" .. there, true) end
  local common = rank >= facts.world_size and get("gradients_0", true) or nil
  return get "accelerator", windows, common
end

--- Set the random generators of this rank: its own of the checkpoint, else rank 0's where all ranks had the same.
---@return boolean # was there a state for it?
function contents.restore_random(folder, facts, rank)
  local get = contents.getter(folder, facts)
  local own = get("random_states_" .. rank, rank >= facts.world_size)
  if not own then
    local first = get "random_states_0"
    for there = 1, facts.world_size - 1 do
      if not random.same(first.generators, get("random_states_" .. there).generators) then return false end
    end
    own = first
  end
  random.restore(own.generators)
  if own.lua then random.restore_lua(own.lua) end
  return true
end

return contents
