--- The units of a sharded model, parameters that are gathered and released together: a number for each parameter.
--
-- A unit is the parameters of one module that are in no unit within it; the others are the root's, unit 0. A tied
-- parameter is of the first unit that has it.
local arguments = require "accelhost.util.arguments"
local floating = require("accelhost.nn.parameter").floating

local fail, describe = arguments.fail, arguments.describe

local units = {}

local function has_parameters(module) return #module:parameters() > 0 end

-- The outermost modules for which `picks` is true.
local function outermost(model, picks)
  local found = {}
  local function visit(module, name)
    for child_name, child in module:named_children() do
      local path = name == "" and child_name or name .. "." .. child_name
      if picks(child, path) then
        found[#found + 1] = child
      else
        visit(child, path)
      end
    end
  end
  visit(model, "")
  return found
end

-- Items of arrays of modules that are several of one class, as a transformer's layers are.
local function repeated(model)
  local wanted = {}
  for _, module in ipairs(model:modules()) do
    if module._is_array then
      local count = {}
      for i = 1, #module do
        local item = module[i]
        if item._name and has_parameters(item) and next(item:children()) ~= nil then
          count[item._name] = (count[item._name] or 0) + 1
        end
      end
      for i = 1, #module do wanted[module[i]] = (count[module[i]._name] or 0) > 1 end
    end
  end
  return outermost(model, function(module) return wanted[module] == true end)
end

-- Paths ("layers.0") or names of classes ("Block"); each has to be there.
local function named(model, names, what)
  local wanted, met = {}, {}
  for i, name in ipairs(names) do
    if type(name) ~= "string" then
      fail("%s: item %d: expected the name of a module or of a class, got %s", what, i, describe(name))
    end
    wanted[name] = true
  end
  local list = outermost(model, function(module, path)
    local name = wanted[path] and path or wanted[module._name] and module._name
    if name then met[name] = true end
    return name ~= nil and name ~= false
  end)
  for _, name in ipairs(names) do
    if not met[name] then fail("%s: the model has no module and no class '%s' (outside of other units)", what, name) end
  end
  return list
end

-- Choose units by Accelerate's policy of sizes: from within, each module with at least `least` parameters that are in
-- no unit yet.
local function by_size(model, least)
  local found, taken = {}, {}
  local function visit(module)
    for _, child in ipairs(module:children()) do
      visit(child)
      local count = 0
      for _, parameter in ipairs(child:parameters()) do
        if not taken[parameter] then count = count + parameter:numel() end
      end
      if count >= least and not child._is_array then
        found[#found + 1] = child
        for _, parameter in ipairs(child:parameters()) do taken[parameter] = true end
      end
    end
  end
  visit(model)
  return found
end

local function choose(model, how, what)
  if how == nil or how == "blocks" then return repeated(model) end
  if how == "none" then return {} end
  if type(how) == "string" then return named(model, {how}, what) end
  if type(how) == "number" and how >= 1 then return by_size(model, how) end
  if type(how) == "function" then
    return outermost(model, function(module, path) return how(module, path) == true and has_parameters(module) end)
  end
  if type(how) == "table" and getmetatable(how) == nil and #how > 0 then return named(model, how, what) end
  fail("%s: expected 'blocks', 'none', names of modules or classes, a function of a module and its path, or the least "
    .. "number of parameters of a unit, got %s", what, describe(how))
end

--- The modules of the units, from 1 on.
---@param model table
---@param how any as of units.of
---@return table[]
function units.modules(model, how, what) return choose(model, how, what) end

--- A number for each parameter: those of one unit have the same.
---@param model table
---@param how any nil or "blocks": repeated blocks; "none"; a name or names; fun(module, path): boolean; a number
---@param what string the argument, for messages
function units.of(model, how, what)
  local unit_of, numbers = {}, {}
  for number, module in ipairs(choose(model, how, what)) do
    for _, parameter in ipairs(module:parameters()) do unit_of[parameter] = unit_of[parameter] or number end
  end
  for i, parameter in ipairs(floating(model:parameters())) do numbers[i] = unit_of[parameter] or 0 end
  return numbers
end

return units
