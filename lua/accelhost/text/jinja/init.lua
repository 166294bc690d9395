--- Jinja templates: the part of the language that chat templates use, with the text of jinja2.
--
-- A template is data: it sees only its values, and its steps and its text are bounded. Parts of the language that this
-- module does not have are errors that name them.
local evaluate = require "accelhost.text.jinja.evaluate"
local lexer = require "accelhost.text.jinja.lexer"
local parser = require "accelhost.text.jinja.parser"
local values = require "accelhost.text.jinja.values"

local jinja = {}

local LONGEST = 2 ^ 20
local parsed = setmetatable({}, {__mode = "v"})

local function render(source, variables)
  if #source > LONGEST then lexer.fail(0, "%d bytes, expected at most %d", #source, LONGEST) end
  local nodes = parsed[source] or parser.parse(source)
  parsed[source] = nodes
  local names = {}
  for name, value in pairs(variables) do names[name] = values.import(value) end
  return evaluate.render(nodes, names)
end

--- The text of a template.
---@param variables table<string, any> Lua values; a table with a first item is a list
---@return string? text nil: it has an error
---@return string? message with the line, or that of raise_exception
function jinja.render(source, variables)
  local fine, text = pcall(render, source, variables)
  if fine then return text end
  if type(text) ~= "table" or not text.message then return nil, tostring(text) end
  return nil, text.line > 0 and ("line %d: %s"):format(text.line, text.message) or text.message
end

return jinja
