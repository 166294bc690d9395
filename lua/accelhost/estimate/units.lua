--- Numbers of bytes as texts.
local units = {}

--- "12.50 MiB"; "-" for nil.
---@param bytes number|nil
function units.bytes(bytes)
  if not bytes then return "-" end
  local names, unit = {"B", "KiB", "MiB", "GiB", "TiB"}, 1
  while bytes >= 1024 and unit < #names do
    bytes, unit = bytes / 1024, unit + 1
  end
  return (unit == 1 and "%d %s" or "%.2f %s"):format(bytes, names[unit])
end

return units
