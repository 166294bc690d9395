--- Activation checkpointing: the intermediate results of a function are dropped and computed again in the backward
--- pass.
--
-- C replaces the piece of graph that the function made by one node (autograd/engine/segment.c); here is the function
-- that this node calls. The second run finds the random streams and autocast as the first did, and leaves them as it
-- found them.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local pack = require "accelhost.util.pack"
local protect = require "accelhost.util.protect"

local fail = arguments.fail
local recompute = {}

-- The generators that may be drawn from: the processor's, the default device's, those of the arguments' devices.
local function random_states(given)
  local states = {cpu = C.random.get_rng_state()}
  local function add(device)
    if not states[device] then states[device] = C.random.get_rng_state(device) end
  end
  add(C.device.get_default_device())
  for i = 1, given.n do
    if C.is_tensor(given[i]) then add(given[i].device) end
  end
  return states
end

local function set_random_states(states)
  for device, state in pairs(states) do C.random.set_rng_state(state, device) end
end

local function versions_of(given)
  local versions = {}
  for i = 1, given.n do
    if C.is_tensor(given[i]) then versions[i] = given[i]._version end
  end
  return versions
end

local function check_versions(given, versions)
  for i = 1, given.n do
    local version = versions[i]
    if version and given[i]._version ~= version then
      fail("backward of checkpoint: argument %d was changed in place after it was passed (version %d then, %d now)", i,
        version, given[i]._version)
    end
  end
end

-- The tensors among the results, in order; those that require grad may then change their history.
local function result_tensors(results)
  local tensors = {}
  for i = 1, results.n do
    if C.is_tensor(results[i]) then tensors[#tensors + 1] = results[i] end
  end
  return tensors
end

local function direct(fn, ...) return fn(...) end

--- Run fn(...) so that backward runs it again.
---@param options {preserve_rng_state: boolean?, context_fn: (fun(): function, function)?}
---@param fn fun(...): ...
---@return any # the results of fn
function recompute.run(options, fn, ...)
  if not C.autograd.is_grad_enabled() then return fn(...) end
  local given, around, around_again = pack(...), direct, direct
  if options.context_fn then around, around_again = options.context_fn() end
  local keeps = options.preserve_rng_state ~= false
  local versions, states = versions_of(given), keeps and random_states(given) or {}
  local autocast = C.autocast.capture()
  local mark = C.autograd.next_sequence()
  local results = pack(around(fn, ...))
  C.autograd.record_checkpoint(function()
    check_versions(given, versions)
    local now = keeps and random_states(given) or {}
    set_random_states(states)
    return result_tensors(pack(protect(function() set_random_states(now) end, C.autocast.run_as, autocast,
      around_again, fn, unpack(given, 1, given.n))))
  end, result_tensors(results), mark)
  return unpack(results, 1, results.n)
end

--- Call a layer of a part of a model, and where the part is training with `_recompute` (options) set, so that backward
--- runs it again.
---@param part Module
---@param layer Module
---@return any # the results of the layer
function recompute.layer(part, layer, ...)
  local options = part.training and part._recompute
  if options then return recompute.run(options, layer, ...) end
  return layer(...)
end

-- Options.

local kinds = {preserve_rng_state = "flag", context_fn = "callable"}

-- PyTorch's other options: {the one supported value, the reason against others}.
local fixed = {
  use_reentrant = {false, "the graph is kept whole, with the same gradients"},
  determinism_check = {"default", "the results of the second run are always compared with the first ones"},
  debug = {false, "accelhost.profiler shows the ops of both runs"},
  early_stop = {false, "the second run is always whole"},
}

local names = {}
for name in pairs(kinds) do names[#names + 1] = name end
for name in pairs(fixed) do names[#names + 1] = name end
table.sort(names)

--- Raise unless these are options of a checkpoint.
---@param options table
---@return table options
function recompute.check(what, options)
  arguments.check_names(what, options, names)
  for _, name in ipairs(names) do
    local value, only = options[name], fixed[name]
    if value ~= nil and only and value ~= only[1] then
      fail("%s: %s: only %s is supported: %s", what, name, tostring(only[1]), only[2])
    elseif value ~= nil and kinds[name] then
      arguments.check(what, name, kinds[name], value)
    end
  end
  return options
end

--- Is this table meant as options? One name of an option in it suffices; any other table is an argument of the
--- function.
function recompute.is_options(value)
  if not arguments.is_options(value) then return false end
  for _, name in ipairs(names) do
    if value[name] ~= nil then return true end
  end
  return false
end

return recompute
