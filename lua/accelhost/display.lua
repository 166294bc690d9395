--- Values for the reader: shown by a front end that can (a notebook), else printed. And text from the reader.
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

local module = {}

--- The front end, set by a notebook's kernel: show(display, value, options), update(display, value, options),
--- input(prompt, password), figures(): may a training draw its curves? Nil elsewhere.
---@type table?
module.front_end = nil

--- Objects that have changed since they were shown; a front end calls their show() when its cell ends.
---@type table<table, boolean>
module.pending = setmetatable({}, {__mode = "k"})

---@class Display
local Display = class.new "Display"

local kinds = {image = true, table = true, text = true}

local function options_of(what, options)
  if options == nil then return {} end
  if type(options) == "string" then options = {as = options} end
  arguments.check(what, "options", "table", options)
  for key in pairs(options) do
    if key ~= "as" then arguments.fail("%s: unknown option '%s' (known: as)", what, tostring(key)) end
  end
  if options.as ~= nil and not kinds[options.as] then
    arguments.fail("%s: as: expected 'image', 'table' or 'text', got %s", what, arguments.describe(options.as))
  end
  return options
end

local function print_value(value)
  local own = module.bundle_of(value)
  local text = own and own["text/plain"] or require "accelhost.repl.show"(value)
  io.write(text, "\n")
end

--- Show another value in the same place; where there is no notebook it is printed.
---@param options? string|table as for accelhost.display
function Display:update(value, options)
  options = options_of("update", options)
  if module.front_end then module.front_end.update(self, value, options) else print_value(value) end
end

--- The value's own presentation: the result of its method `_repr_mimebundle`, a table of MIME types and texts (pictures
--- as bytes); nil without one.
---@return table?
function module.bundle_of(value)
  local has_fields = type(value) == "table" and getmetatable(value) ~= nil or class.of(value)
  if not has_fields then return nil end
  -- Namespaces raise an error for a name that they do not have.
  local fine, method = pcall(function() return value._repr_mimebundle end)
  if not fine or type(method) ~= "function" then return nil end
  local bundle = method(value)
  if type(bundle) ~= "table" then
    arguments.fail("_repr_mimebundle: expected a table of MIME types, got %s", arguments.describe(bundle))
  end
  return bundle
end

--- Show a value: in a notebook as the front end can (tensors as tables, images, figures, HTML), elsewhere as text. A
--- class decides by a method `_repr_mimebundle(self)`, which returns {["text/html"] = "<b>...</b>"}: MIME types and
--- their texts, pictures as bytes.
--
--   local shown = accelhost.display("a text")
--   shown:update("another one")              -- in the same place
---@param options? string|table "image": a tensor of values from 0 to 1 as a picture; "table"; "text"; or {as = ...}
---@return Display # its method update(value) shows another value in the same place
function module.display(value, options)
  options = options_of("display", options)
  local shown = Display()
  if module.front_end then module.front_end.show(shown, value, options) else print_value(value) end
  return shown
end

--- Ask the reader for a line: in a notebook by its input field, elsewhere from stdin. Nil at the end of the input.
--
--   | local name = accelhost.input "Name: "
---@param prompt? string
---@param password? boolean|table true or {password = true}: hide the typed text in a notebook
---@return string?
function module.input(prompt, password)
  if prompt ~= nil then arguments.check("input", "prompt", "string", prompt) end
  if type(password) == "table" then password = password.password end
  if module.front_end then return module.front_end.input(prompt or "", password == true) end
  io.write(prompt or "")
  io.stdout:flush()
  return (io.read "*l")
end

return module
