--- Constraints between parameters: Lua expressions that a trial's parameters must satisfy, such as "width >= heads".
--
-- Names are those of the space ("optim.lr"), constants too. A constraint that names a parameter which a trial does not
-- have (its `when` does not hold) does not apply to that trial. Expressions call no functions.
local arguments = require "accelhost.util.arguments"
local nest = require "accelhost.util.params".nest

local fail, describe = arguments.fail, arguments.describe
local constraints = {}

local words = {["and"] = true, ["or"] = true, ["not"] = true, ["true"] = true, ["false"] = true}

-- The names in an expression. Without escapes and long brackets a string ends where the next quote of its kind is.
local function names_of(text)
  local bare, names = text:gsub("'[^']*'", "0"):gsub('"[^"]*"', "0"), {}
  if text:find "[\\%[]" or bare:find "[:{};]" or bare:find "%f[%w_]function%f[^%w_]"
    or bare:find "[^%w_%.]%s*%.%s*[%a_]" then
    fail("constraints: '%s': expected an expression of parameters, numbers and operators", text)
  end
  for name in bare:gmatch "%f[%w_%.]([%a_][%w_%.]*)" do
    if not words[name] then names[#names + 1] = name end
  end
  return names
end

local function compile(text)
  if type(text) ~= "string" then
    fail("constraints: expected strings such as 'width >= 2 * heads', got %s", describe(text))
  end
  local chunk, message = loadstring("return " .. text, "=constraint")
  if chunk then return chunk end
  local hint = text:find("!=", 1, true) and " (unequal is ~= in Lua)" or ""
  fail("constraints: '%s': %s%s", text, message:gsub("^constraint:%d+: ", ""), hint)
end

--- Read the constraints of a definition.
---@param list string[]
---@param known string[] the names of the space's parameters and constants
---@return table[] # {text, names, chunk}
function constraints.read(list, known)
  local rows, is_known = {}, {}
  for _, name in ipairs(known) do is_known[name] = true end
  for i, text in ipairs(list) do
    local row = {chunk = compile(text), text = text, names = names_of(text)}
    for _, name in ipairs(row.names) do
      if not is_known[name] then
        fail("constraints: '%s': the space has no parameter '%s'%s", text, name, arguments.did_you_mean(name, known))
      end
    end
    if #row.names == 0 then fail("constraints: '%s' names no parameter", text) end
    rows[i] = row
  end
  return rows
end

--- Does a constraint hold for these values?
---@param row table of constraints.read
---@param values table<string, any> nested as the definition nests them
---@return boolean
function constraints.holds(row, values)
  local fine, result = pcall(setfenv(row.chunk, values))
  if not fine then fail("constraints: '%s': %s", row.text, (tostring(result):gsub("^constraint:%d+: ", ""))) end
  if type(result) ~= "boolean" then
    fail("constraints: '%s': expected a comparison, got the value %s", row.text, tostring(result))
  end
  return result
end

--- Return the text of the first constraint that settings break, nil when they satisfy all that apply to them.
---@param rows table[] of constraints.read
---@param settings table<string, any> by dotted names, constants too
---@return string?
function constraints.violation(rows, settings)
  local values
  for _, row in ipairs(rows) do
    local applies = true
    for _, name in ipairs(row.names) do applies = applies and settings[name] ~= nil end
    if applies then
      values = values or nest(settings)
      if not constraints.holds(row, values) then return row.text end
    end
  end
end

return constraints
