--- Output at the prompt that is longer than the terminal: shown by a pager.

-- $PAGER as git and man run it; a short text would end less at once.
local PROGRAM = [[
p=$PAGER; [ "$p" ] || { command -v less > /dev/null && p=less || p=more; }
LESS="${LESS:-FRX}" eval "$p" < %s]]

local function quoted(path) return "'" .. path:gsub("'", "'\\''") .. "'" end

local function page(text)
  local path = os.tmpname()
  local file = io.open(path, "w")
  local fine = file and file:write(text)
  if file then file:close() end
  if fine then
    io.stdout:flush()
    fine = os.execute(PROGRAM:format(quoted(path))) == 0
  end
  os.remove(path)
  return fine
end

--- Run `fn`, and show all that it writes by e.write at once: in a pager if it has more lines than the terminal.
---@param e {write: (fun(text: string)), rows: (fun(): integer)?}
---@param ... any its arguments
---@return any # the result of fn
return function(e, fn, ...)
  if not e.rows then return fn(...) end
  local write, parts = e.write, {}
  e.write = function(text) parts[#parts + 1] = text end
  local fine, result = pcall(fn, ...)
  e.write = write
  local text = table.concat(parts)
  local _, lines = text:gsub("\n", "")
  if lines < e.rows() or not page(text) then write(text) end
  if not fine then error(result, 0) end
  return result
end
