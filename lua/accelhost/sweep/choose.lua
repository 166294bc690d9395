--- Samplers and pruners by name: loaded on first use, made from a name, a name with options, or an existing object.
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

local choose = {}

local function read_table(what, given)
  local options, name = {}, given[1] or given.name
  for key, value in pairs(given) do
    if key ~= 1 and not (key == "name" and given[1] == nil) then options[key] = value end
  end
  if type(name) ~= "string" then
    arguments.fail("%s: expected its name first, as in {\"name\", option = value}, got %s", what,
      arguments.describe(name))
  end
  return name, options
end

--- Make a chooser.
---@param what string "sampler" or "pruner", for messages
---@param base string the module of the class that all of them extend
---@param files table<string, string> name -> module
---@param presets? table<string, table> name -> options of the name
---@return {names: (fun(): string[]), new: (fun(given: any, seed: integer?): table)}
function choose.new(what, base, files, presets)
  local chooser = {}

  --- All names, sorted.
  function chooser.names() return arguments.sorted_keys(files) end

  --- Make one of a name, of {name, option = value} or of an object that is one already.
  ---@param seed? integer for those that draw random numbers and were given none
  ---@return table
  function chooser.new(given, seed)
    if class.is(given, require(base)) then return given end
    local name, options = given, {}
    if type(given) == "table" and not class.of(given) then name, options = read_table(what, given) end
    if type(name) ~= "string" then
      arguments.fail("%s: expected a name or {\"name\", option = value}, got %s", what, arguments.describe(given))
    end
    local names = chooser.names()
    if not files[name] then
      arguments.fail("there is no %s '%s' (known: %s)%s", what, name, table.concat(names, ", "),
        arguments.did_you_mean(name, names))
    end
    local cls = require(files[name])
    local all = {seed = cls.takes_seed ~= false and seed or nil}
    for key, value in pairs(presets and presets[name] or {}) do all[key] = value end
    for key, value in pairs(options) do all[key] = value end
    if next(all) == nil then return cls() end
    return cls(all)
  end

  return chooser
end

return choose
