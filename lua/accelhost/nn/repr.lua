--- Values as PyTorch prints them in the tree of a module: True, None, 1e-05, (3, 3).
local repr = {}

--- A float as Python writes it: the shortest digits that read back to the same number, with a point or an exponent.
---@param value number
function repr.float(value)
  if value ~= value then return "nan" end
  if value == math.huge then return "inf" end
  if value == -math.huge then return "-inf" end
  local text
  for digits = 1, 17 do
    text = ("%." .. digits .. "g"):format(value)
    if tonumber(text) == value then break end
  end
  local size = math.abs(value)
  if size ~= 0 and (size < 1e-4 or size >= 1e16) then return text end
  if text:find("e", 1, true) then text = ("%.0f"):format(value) end
  return text:find(".", 1, true) and text or text .. ".0"
end

--- An integer, a boolean, nil, a string, or a table of these as a tuple. Numbers with a fraction print as floats.
function repr.value(value)
  if value == nil then return "None" end
  if value == true then return "True" end
  if value == false then return "False" end
  if type(value) == "number" then
    return value == math.floor(value) and math.abs(value) < 1e15 and ("%d"):format(value) or repr.float(value)
  end
  if type(value) == "table" then
    local parts = {}
    for i = 1, #value do parts[i] = repr.value(value[i]) end
    return "(" .. table.concat(parts, ", ") .. (#parts == 1 and ",)" or ")")
  end
  return tostring(value)
end

--- "a=1, b=True" from alternating names and texts.
---@param ... string
function repr.join(...)
  local given, parts = {...}, {}
  for i = 1, #given, 2 do parts[#parts + 1] = given[i] .. "=" .. given[i + 1] end
  return table.concat(parts, ", ")
end

return repr
