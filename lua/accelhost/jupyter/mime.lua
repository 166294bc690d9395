--- Values as bundles of MIME types: text for every value, and richer types for some.
local display = require "accelhost.display"
local show = require "accelhost.repl.show"
local text = require "accelhost.jupyter.text"

local mime = {}

local COLUMNS = 100

local binary = {["image/png"] = true, ["image/jpeg"] = true, ["image/gif"] = true, ["application/pdf"] = true}

-- A bundle as the protocol carries it: pictures in base64, texts in UTF-8.
local function encoded(bundle)
  local data = {}
  for kind, value in pairs(bundle) do
    if binary[kind] then data[kind] = text.base64(value)
    elseif type(value) == "string" then data[kind] = text.utf8(value)
    else data[kind] = value end
  end
  return data
end

--- Return the bundle of a value and its metadata. A presentation that fails leaves the text.
---@param options? {as: string?}
---@return table # MIME type -> text, or a table for a type of JSON
---@return table # MIME type -> {width =, height =}
function mime.bundle(value, options)
  local as, metadata = options and options.as, {}
  local own = display.bundle_of(value)
  local bundle = {}
  for kind, shown in pairs(own or {}) do bundle[kind] = shown end
  if bundle["text/plain"] == nil then bundle["text/plain"] = show(value, COLUMNS) end
  if not own and as ~= "text" then
    local rich = require "accelhost.jupyter.rich"
    local fine, more, sizes = pcall(rich.of, value, as)
    if not fine and as then error(more, 0) end
    for kind, shown in pairs(fine and more or {}) do bundle[kind] = shown end
    metadata = fine and sizes or metadata
  end
  return encoded(bundle), metadata
end

--- Return the bundle of several values and its metadata: of one its own, of others their texts.
---@return table
---@return table
function mime.of_values(count, ...)
  if count == 1 then return mime.bundle((...)) end
  local parts = {}
  for i = 1, count do parts[i] = show((select(i, ...)), COLUMNS) end
  local joined = table.concat(parts, "\t")
  if joined:find "\n" then joined = table.concat(parts, "\n") end
  return {["text/plain"] = text.utf8(joined)}, {}
end

mime.columns = COLUMNS

return mime
