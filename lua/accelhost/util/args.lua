--- accelhost.args: the arguments of a script, typed by its defaults.
---
---   local args = accelhost.args{lr = 0.1, epochs = 3, hidden = {32, 64}, optimizer = {name = "sgd", nesterov = false}}
---   print(args.lr, args.optimizer.name)
---
--- Values are from the defaults, then from a file (`accelhost launch --params best.yaml train.lua`) or a sweep, then
--- from the command line: `--lr 0.01`, `--hidden 128,128`, `--optimizer.name adamw`, `--optimizer.nesterov` and
--- `--no_optimizer.nesterov` or `--optimizer.nesterov=false`. accelhost.parse_args does the same with help and bounds.
local arguments = require "accelhost.util.arguments"
local options = require "accelhost.util.options"
local params = require "accelhost.util.params"

local args = {}

local scalars = {number = true, string = true, boolean = true}

local function is_list(value) return type(value) == "table" and #value > 0 end

local function check_list(name, list)
  for i, item in ipairs(list) do
    if not scalars[type(item)] or type(item) ~= type(list[1]) then
      arguments.fail("args: %s: a list holds values of one kind, item %d is %s", name, i, arguments.describe(item))
    end
  end
end

local function add_rows(rows, prefix, defaults)
  for _, key in ipairs(arguments.sorted_keys(defaults)) do
    local name, value = prefix .. tostring(key), defaults[key]
    if type(key) ~= "string" or not key:find "^[%a_][%w_]*$" then
      arguments.fail("args: expected names with defaults, got %s", arguments.describe(key))
    elseif scalars[type(value)] then
      rows[#rows + 1] = {name, value, negatable = type(value) == "boolean"}
    elseif is_list(value) then
      check_list(name, value)
      rows[#rows + 1] = {name, value, type = "list"}
    elseif type(value) == "table" and getmetatable(value) == nil and next(value) ~= nil then
      add_rows(rows, name .. ".", value)
    else
      arguments.fail("args: %s: expected a number, text, boolean, list or table of such, got %s", name,
        arguments.describe(value))
    end
  end
  return rows
end

--- Read the arguments of the script.
--
--   local known = accelhost.args({lr = 0.1, hidden = {32, 64}}, {"--hidden", "8,8"})
--   print(known.lr, #known.hidden, known.hidden[1])  --> 0.1  2  8
---@names args
---@param defaults table<string, any> numbers, texts, booleans, lists of these, and tables of such by name
---@param words? string[] default: the script's own arguments
---@return table<string, any>
function args.read(defaults, words)
  arguments.check("args", "defaults", "table", defaults)
  return params.nest(options.parse(add_rows({}, "", defaults), words))
end

return args.read
