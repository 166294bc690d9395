--- A cell of a notebook: several lines, of which some may be commands, run one part after the other as at the prompt.
local place = require "accelhost.util.hints.place"

local cell = {}

local function is_command_line(line)
  return line:find "^%s*%%+[%a_]" ~= nil or line:find "^%s*[%?%$]" ~= nil
    or line:find "^%s*[%a_][%w_%.:]*%s*%?%??%s*$" ~= nil
end

-- "%%time" at the beginning is for the whole cell.
local function whole_command(text)
  local name, rest = text:match "^%s*%%%%([%a_]+)%s*(.*)$"
  return name and ("%%%s %s"):format(name, rest)
end

--- Divide a cell into the texts that the prompt would have read, each behind as many line ends as are above it.
---@param e Evaluate
function cell.parts(e, text)
  local whole = whole_command(text)
  if whole then return {whole} end
  local parts, current, first, number, in_command = {}, {}, 1, 0, false
  local function flush()
    local joined = table.concat(current, "\n")
    if joined:find "%S" then parts[#parts + 1] = in_command and joined or ("\n"):rep(first - 1) .. joined end
    current, in_command = {}, false
  end
  for line in (text .. "\n"):gmatch "(.-)\r?\n" do
    number = number + 1
    if in_command and e:is_complete(table.concat(current, "\n")) then flush() end
    if not in_command and is_command_line(line) and e:is_complete(table.concat(current, "\n")) then
      flush()
      in_command = true
    end
    if #current == 0 then first = number end
    current[#current + 1] = line
  end
  flush()
  return parts
end

--- Run a cell; it ends at the first part that fails.
---@param e Evaluate
---@param number integer of the cell: its chunk's name is [number]
---@return boolean # did all parts run to their ends?
function cell.run(e, text, number)
  local fine = true
  for _, part in ipairs(cell.parts(e, text)) do
    e.number = number
    fine = e:run(part)
    if not fine then break end
  end
  e.number = number + 1
  place.sources()[("=[%d]"):format(number)] = text
  return fine
end

return cell
