--- The distributions of a search space: the values that a parameter of a sweep may have.
--
-- A distribution is a table of `kind` ("float", "int" or "categorical") and the fields of the kind: `low`, `high`,
-- `log`, `step`, or `choices`; `when` names the condition under which the parameter exists.
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local json = require "accelhost.util.json"
local kinds = require "accelhost.util.kinds"

local fail, describe = arguments.fail, arguments.describe

local distributions = {}

---@field kind "float"|"int"|"categorical"
---@field low? number
---@field high? number
---@field log? boolean
---@field step? number
---@field choices? any[]
---@field when? table<string, any>
local Distribution = class.new "Distribution"

--- Is a value a distribution?
function distributions.is(value) return class.is(value, Distribution) end

local names = {"step", "when"}

local is_finite = kinds.is_finite

local function check_range(what, low, high, log)
  if not is_finite(low) then fail("%s: low: expected a number, got %s", what, describe(low)) end
  if not is_finite(high) then fail("%s: high: expected a number, got %s", what, describe(high)) end
  if low > high then fail("%s: the range from %.12g to %.12g is empty", what, low, high) end
  if log and low <= 0 then fail("%s: a logarithm needs a range above 0, got one from %.12g", what, low) end
end

-- The last value that steps from `low` reach.
local function last_of(low, high, step)
  return low + math.floor((high - low) / step + 1e-9) * step
end

local function make(what, kind, low, high, log, options)
  check_range(what, low, high, log)
  arguments.check_names(what, options, names)
  local step = options.step
  if kind == "int" and (low % 1 ~= 0 or high % 1 ~= 0) then
    fail("%s: expected whole numbers, got %.12g and %.12g", what, low, high)
  end
  if step ~= nil then
    if not is_finite(step) or step <= 0 then fail("%s: step: expected a number above 0, got %s", what,
      describe(step)) end
    if kind == "int" and step % 1 ~= 0 then fail("%s: step: expected a whole number, got %.12g", what, step) end
    high = last_of(low, high, step)
  end
  local self = Distribution()
  self.kind, self.low, self.high, self.log, self.step, self.when = kind, low, high, log, step, options.when
  return self
end

--- A real number between two, all alike likely.
--
--   local sweep = accelhost.sweep
--   sweep.uniform(0, 0.5).high           --> 0.5
--   sweep.uniform(0, 1, {step = 0.25})   -- 0, 0.25, 0.5, 0.75 or 1
---@param high number included
---@param options? table step: only low, low + step, ...; when: see sweep.choice
---@return Distribution
function distributions.uniform(low, high, options) return make("uniform", "float", low, high, false, options or {}) end

--- A real number between two above 0 whose logarithm is uniform: for learning rates and the like.
--
--   accelhost.sweep.log_uniform(1e-5, 1e-1).log  --> true
---@param low number above 0
---@param options? table step, when
---@return Distribution
function distributions.log_uniform(low, high, options)
  return make("log_uniform", "float", low, high, true, options or {})
end

--- A whole number between two.
--
--   accelhost.sweep.int(1, 8).kind  --> int
---@param low integer
---@param high integer included
---@param options? table step, when
---@return Distribution
function distributions.int(low, high, options) return make("int", "int", low, high, false, options or {}) end

--- sweep.int under its name in Weights & Biases.
---@param low integer
---@param high integer
---@param options? table step, when
---@return Distribution
function distributions.int_uniform(low, high, options)
  return make("int_uniform", "int", low, high, false, options or {})
end

--- A whole number between two above 0 whose logarithm is uniform: for widths and batch sizes.
--
--   accelhost.sweep.log_int(16, 1024).log  --> true
---@param low integer at least 1
---@param high integer
---@param options? table step, when
---@return Distribution
function distributions.log_int(low, high, options) return make("log_int", "int", low, high, true, options or {}) end

--- A real number in steps of q: low, low + q, ... up to high.
--
--   accelhost.sweep.quniform(0, 1, 0.1).step  --> 0.1
---@param q number
---@param options? table when
---@return Distribution
function distributions.quniform(low, high, q, options)
  return make("quniform", "float", low, high, false, {step = q, when = options and options.when})
end

--- A real number above 0 in steps of q whose logarithm is uniform.
--
--   accelhost.sweep.qlog_uniform(0.1, 10, 0.1).log  --> true
---@param q number
---@param options? table when
---@return Distribution
function distributions.qlog_uniform(low, high, q, options)
  return make("qlog_uniform", "float", low, high, true, {step = q, when = options and options.when})
end

local scalars = {number = true, string = true, boolean = true}

-- A choice as one text, by which two are compared.
local function text_of(what, value)
  local fine, text = pcall(json.encode, value)
  if not fine or (type(value) == "number" and not is_finite(value)) then
    fail("%s: a choice is a number, text, boolean or a table of them, got %s", what, describe(value))
  end
  return text
end

--- One of several values: numbers, texts, booleans, or tables of them.
--
--   local sweep = accelhost.sweep
--   local space = {
--     optimizer = sweep.choice{"adamw", "sgd"},
--     momentum = sweep.uniform(0, 0.99, {when = {optimizer = "sgd"}}),   -- only there with SGD
--   }
--
-- `when = {name = value}` or `when = {name = {value, value}}`: the parameter is there when another one, a choice too,
-- has one of these values. Names are those in the same table, else full ones ("optim.name").
---@param values any[]
---@param options? table when
---@return Distribution
function distributions.choice(values, options)
  options = options or {}
  arguments.check("choice", "values", "list", values)
  arguments.check_names("choice", options, {"when"})
  if #values == 0 then fail "choice: expected at least one value, got none" end
  local self, seen = Distribution(), {}
  for i, value in ipairs(values) do
    local text = text_of("choice", value)
    if seen[text] then fail("choice: %s is repeated", text) end
    seen[text] = i
  end
  self.kind, self.choices, self.when = "categorical", values, options.when
  return self
end

--- sweep.choice under its name in Optuna.
---@param values any[]
---@param options? table when
---@return Distribution
function distributions.categorical(values, options) return distributions.choice(values, options) end

--- Return the choices for samplers: the values themselves, or texts for them when some are tables.
---@param choices any[]
function distributions.labels(choices)
  local plain = true
  for _, value in ipairs(choices) do plain = plain and scalars[type(value)] ~= nil end
  if plain then return choices end
  local labels = {}
  for i, value in ipairs(choices) do labels[i] = text_of("choice", value) end
  return labels
end

return distributions
