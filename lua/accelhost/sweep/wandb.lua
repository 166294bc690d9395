--- Definitions in YAML: the keys of accelhost.sweep.definition, and those of Weights & Biases for the same.
local arguments = require "accelhost.util.arguments"
local distributions = require "accelhost.sweep.distributions"
local json = require "accelhost.util.json"

local fail, describe = arguments.fail, arguments.describe

local wandb = {}

-- The names of their keys here.
local renamed = {program = "script", run_cap = "trials", parameters = "space", description = false, project = false,
  entity = false, controller = false}

local methods = {grid = "grid", random = "random", bayes = "tpe"}

-- distribution -> how its entry becomes one of ours
local makers = {}

makers.constant = function(_, entry) return entry.value end

makers.categorical = function(_, entry, options) return distributions.choice(entry.values, options) end

makers.uniform = function(_, entry, options) return distributions.uniform(entry.min, entry.max, options) end

makers.int_uniform = function(_, entry, options) return distributions.int(entry.min, entry.max, options) end

makers.q_uniform = function(_, entry, options)
  return distributions.quniform(entry.min, entry.max, entry.q or 1, options)
end

makers.log_uniform_values = function(_, entry, options)
  return distributions.log_uniform(entry.min, entry.max, options)
end

makers.q_log_uniform_values = function(_, entry, options)
  return distributions.qlog_uniform(entry.min, entry.max, entry.q or 1, options)
end

-- Ours, which have no other word there.
makers.log_int = function(_, entry, options) return distributions.log_int(entry.min, entry.max, options) end

local refused = {
  log_uniform = "has logarithms as bounds in W&B: write log_uniform_values with the bounds themselves",
  q_log_uniform = "has logarithms as bounds in W&B: write q_log_uniform_values with the bounds themselves",
  inv_log_uniform = "is not here: log_uniform_values is",
  inv_log_uniform_values = "is not here: log_uniform_values is",
  normal = "is not here: samplers learn the location of good values from a range, such as uniform from mu - 2 sigma to "
    .. "mu + 2 sigma",
  q_normal = "is not here: q_uniform over a range is",
  log_normal = "is not here: log_uniform_values over a range is",
  q_log_normal = "is not here: q_log_uniform_values over a range is",
  categorical_w_probabilities = "is not here: samplers learn which values are good (categorical)",
  beta = "is not here: uniform is", q_beta = "is not here: q_uniform is",
}

local entry_names = {"distribution", "value", "values", "min", "max", "q", "parameters", "when"}

-- Bounds that are whole and written without a point mean whole numbers.
local function guess(entry, reals)
  if entry.values ~= nil then return "categorical" end
  if entry.value ~= nil then return "constant" end
  local written = reals[entry] or {}
  local min, max = entry.min, entry.max
  local whole = type(min) == "number" and type(max) == "number" and min % 1 == 0 and max % 1 == 0
    and not written.min and not written.max
  return whole and (entry.q and "q_uniform" or "int_uniform") or entry.q and "q_uniform" or "uniform"
end

local read_parameters

local function read_entry(name, entry, reals)
  if type(entry) ~= "table" or entry[1] ~= nil then
    fail("parameters: %s: expected {values: [...]}, {value: ...} or {min: ..., max: ...}, got %s", name,
      type(entry) == "table" and "a list" or describe(entry))
  end
  if entry.probabilities ~= nil then fail("parameters: %s: 'probabilities' %s", name,
    refused.categorical_w_probabilities) end
  if entry.mu ~= nil or entry.sigma ~= nil then fail("parameters: %s: normal %s", name, refused.normal) end
  arguments.check_names("parameters: " .. name, entry, entry_names)
  if entry.parameters ~= nil then return read_parameters(name .. ".", entry.parameters, reals) end
  local word = entry.distribution or guess(entry, reals)
  if refused[word] then fail("parameters: %s: %s %s", name, word, refused[word]) end
  local make = makers[word]
  if not make then
    fail("parameters: %s: there is no distribution %s%s", name, describe(word),
      arguments.did_you_mean(tostring(word), arguments.sorted_keys(makers)))
  end
  if word == "constant" and entry.value == nil or word == "categorical" and entry.values == nil then
    fail("parameters: %s: %s needs '%s'", name, word, word == "constant" and "value" or "values")
  end
  local fine, result = pcall(make, name, entry, entry.when and {when = entry.when} or nil)
  if not fine then fail("parameters: %s: %s", name, (tostring(result):gsub("^[^\n]-:%d+: ", ""))) end
  return result
end

function read_parameters(prefix, entries, reals)
  if type(entries) ~= "table" or entries[1] ~= nil then
    fail("parameters: expected names with their values, got %s", describe(entries))
  end
  local space = {}
  for _, name in ipairs(arguments.sorted_keys(entries)) do
    space[name] = read_entry(prefix .. tostring(name), entries[name], reals)
  end
  return space
end

-- Hyperband's bracket: s halvings from max_iter down, or everything from min_iter up.
local function read_termination(entry)
  arguments.check_names("early_terminate", entry, {"type", "min_iter", "max_iter", "s", "eta", "strict"})
  if entry.type ~= "hyperband" then
    fail("early_terminate: type: expected hyperband, got %s", describe(entry.type))
  end
  local eta = entry.eta or 3
  local least = entry.min_iter
  if not least then
    if not entry.max_iter or not entry.s then fail "early_terminate: expected min_iter, or max_iter and s" end
    least = math.max(1, math.floor(entry.max_iter / eta ^ entry.s))
  end
  return {name = "asha", min_resource = least, max_resource = entry.max_iter, reduction_factor = eta}
end

local function read_key(result, given, key, note)
  local value, name = given[key], renamed[key]
  if key == "command" then
    note "command: left out; trials run by this program, with 'arguments' after the script"
  elseif key == "method" then
    if not methods[value] then
      fail("method: expected grid, random or bayes, got %s (other samplers: 'sampler')", describe(value))
    end
    if given.sampler == nil then result.sampler = methods[value] end
  elseif key == "early_terminate" then
    local pruner = read_termination(value)
    result.pruner = pruner
    note(("early_terminate: hyperband is the pruner asha here (min_resource %g, reduction_factor %g), which pauses "
      .. "trials and resumes them from their checkpoints"):format(pruner.min_resource, pruner.reduction_factor))
  elseif name ~= false then
    result[name or key] = value
  end
end

--- The table of accelhost.sweep.definition for a decoded YAML file.
---@param reals table which numbers are written as reals (accelhost._C.yaml)
---@param note fun(text: string) called with each ignored key, and the reason
function wandb.read(given, reals, note)
  if type(given) ~= "table" or given[1] ~= nil then fail("expected keys and values, got %s", describe(given)) end
  local result = {}
  for _, key in ipairs(arguments.sorted_keys(given)) do
    if given[key] ~= json.null then read_key(result, given, key, note) end
  end
  if result.space ~= nil then result.space = read_parameters("", result.space, reals) end
  return result
end

return wandb
