--- HTML from Lua: all external data is escaped by `text` or an attribute of `tag`, and used nowhere else.
local json = require "accelhost.util.json"
local printable = require "accelhost.util.printable"

local markup = {}

--- A text as HTML shows it.
function markup.text(text) return printable.markup(tostring(text)) end

--- Several lines of text, for <pre>.
function markup.lines(text)
  local lines = {}
  for line in (text:gsub("\r", "") .. "\n"):gmatch "(.-)\n" do lines[#lines + 1] = markup.text(line) end
  return table.concat(lines, "\n")
end

local void = {input = true, br = true}

--- An element. Attributes whose value is false or nil are left out; true is one without a value.
---@param attributes? table<string, any>
---@param ... string HTML
function markup.tag(name, attributes, ...)
  local names, parts = {}, {}
  for key, value in pairs(attributes or {}) do
    if value then names[#names + 1] = key end
  end
  table.sort(names)
  for i, key in ipairs(names) do
    local value = attributes[key]
    parts[i] = value == true and " " .. key or (' %s="%s"'):format(key, markup.text(value))
  end
  local head = "<" .. name .. table.concat(parts) .. ">"
  return void[name] and head or head .. table.concat({...}) .. "</" .. name .. ">"
end

--- A value as JSON that is safe inside a <script> element.
function markup.json(value)
  return (json.encode(value):gsub("[<>&]", {["<"] = "\\u003c", [">"] = "\\u003e", ["&"] = "\\u0026"}))
end

--- A relative or absolute path as the address of a link. A colon is no part of it, so that no path names a scheme.
function markup.address(path)
  return (path:gsub("[^%w/._~-]", function(byte) return ("%%%02X"):format(byte:byte()) end))
end

return markup
