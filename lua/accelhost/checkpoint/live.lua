--- The state of a run in memory, of which a new process takes a killed one's place: a note of what is each process's
--- own, and the tensors that all have alike, parameters and what optimizers keep of them.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local contents = require "accelhost.checkpoint.contents"
local random = require "accelhost.checkpoint.random"

local live = {}

local function is_dense(tensor) return tensor.device == "cpu" and tensor:is_contiguous() end

-- The parameters of all models, each once.
local function add_parameters(list, models)
  local seen = {}
  for _, model in ipairs(models) do
    for _, parameter in ipairs(model:parameters()) do
      if not is_dense(parameter) then
        arguments.fail("live recovery: a parameter of %s is not dense on the cpu", model._name)
      end
      if not seen[parameter] then
        seen[parameter], list[#list + 1] = true, parameter
      end
    end
  end
end

local PLACE = "\1tensor" -- marks a table that stands for a tensor of the list

-- A value without its dense tensors, which go to the list.
local function without_tensors(value, list)
  if C.is_tensor(value) then
    if not is_dense(value) then return value end
    list[#list + 1] = value
    return {[PLACE] = value.dtype, shape = value:shape()}
  end
  if type(value) ~= "table" then return value end
  local copy = {}
  for _, key in ipairs(arguments.sorted_keys(value)) do copy[key] = without_tensors(value[key], list) end
  return copy
end

-- The same with new tensors, whose values are yet to come.
local function with_tensors(value)
  if type(value) ~= "table" then return value end
  if value[PLACE] then return C.zeros(value.shape, {dtype = value[PLACE], device = "cpu"}) end
  local copy = {}
  for key, item in pairs(value) do copy[key] = with_tensors(item) end
  return copy
end

local function buffers_of(model)
  local buffers = {}
  for name, buffer in model:named_buffers() do buffers[name] = buffer end
  return buffers
end

-- Loaders whose pass goes on here: what its ranks agreed on when it began is not to be agreed on again.
local function under_way(loaders)
  local flags = {}
  for i, loader in ipairs(loaders) do flags[i] = loader:is_under_way() end
  return flags
end

--- The state now.
---@param objects table {models, optimizers, schedulers, scalers, registered, loaders, windows, accelerator}
---@return table note, userdata[] tensors
function live.capture(objects)
  local tensors, optimizers, buffers = {}, {}, {}
  add_parameters(tensors, objects.models)
  for i, optimizer in ipairs(objects.optimizers) do
    optimizers[i] = without_tensors(optimizer:state_dict(), tensors)
  end
  for i, model in ipairs(objects.models) do buffers[i] = buffers_of(model) end
  return {
    counts = contents.counts(objects), optimizers = optimizers, buffers = buffers,
    states = contents.light_states(objects), under_way = under_way(objects.loaders), windows = objects.windows,
    accelerator = objects.accelerator, generators = random.capture(), lua = random.capture_lua(),
  }, tensors
end

--- Give the objects all of a note but what its tensors hold.
---@param objects table
---@param note table
---@return userdata[] # the tensors, to be filled
function live.restore(objects, note)
  contents.check_counts("live recovery", {objects = note.counts}, objects)
  for i, optimizer in ipairs(objects.optimizers) do
    local state = with_tensors(note.optimizers[i])
    optimizer:load_state_dict(state)
    contents.keep_dtypes(optimizer, state)
  end
  for i, model in ipairs(objects.models) do
    for name, buffer in model:named_buffers() do
      C.autograd.no_grad(buffer.copy_, buffer, note.buffers[i][name])
    end
  end
  contents.restore_light(objects, note.states)
  for i, loader in ipairs(objects.loaders) do
    if note.under_way[i] then loader:is_agreed() end
  end
  local tensors = {}
  add_parameters(tensors, objects.models)
  for _, optimizer in ipairs(objects.optimizers) do without_tensors(optimizer:state_dict(), tensors) end
  return tensors
end

--- Let the random generators go on from the note; last, so that nothing draws after them.
---@param note table
function live.restore_random(note)
  random.restore(note.generators)
  if note.lua then random.restore_lua(note.lua) end
end

return live
