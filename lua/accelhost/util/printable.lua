--- Texts and numbers from outside as a person may be shown them.
local C = require "accelhost._C"

local printable = {}

--- A text in UTF-8, with question marks for the bytes of one that is not.
---@return string
function printable.utf8(text)
  if text:find "[\128-\255]" and not C.events.is_utf8(text) then text = text:gsub("[\128-\255]", "?") end
  return text
end

--- Return a text in one line, with question marks for bytes that are no character of UTF-8, or would move a terminal's
--- cursor.
function printable.text(text)
  return (printable.utf8(text):gsub("%c", "?"):gsub("\194[\128-\159]", "?"))
end

local entities = {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;"}

--- Return printable.text of a text, escaped for HTML and SVG.
function printable.markup(text) return (printable.text(text):gsub("[&<>\"']", entities)) end

--- Return a message of several lines, with question marks as in printable.text, but for line feeds and tabs.
function printable.message(text)
  return (printable.utf8(text):gsub("[%z\1-\8\11-\31\127]", "?"):gsub("\194[\128-\159]", "?"))
end

--- A number as short as it may be with some digits: 0.001, 1e-6, nan.
---@param value number
---@param digits integer
function printable.number(value, digits)
  if value ~= value then return "nan" end
  return (("%%.%dg"):format(digits):format(value):gsub("e([+-])0*(%d)", function(sign, power)
    return "e" .. (sign == "-" and "-" or "") .. power
  end))
end

return printable
