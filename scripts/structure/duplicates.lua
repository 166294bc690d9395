-- Duplicated blocks: as many equal lines of code in a row, blanks and comments aside, in host/ or in lua/.
local files = require "files"

local duplicates = {lines = 10}

-- Code lines of a file: {text, line number}; thin lines (braces, includes, else) do not count.
local function code_lines(file)
  local out = {}
  local text = file.path:find("%.lua$") and file.text:gsub("%-%-[^\n]*", "") or files.c_code(file.text)
  local i = 0
  for line in (text .. "\n"):gmatch("(.-)\n") do
    i = i + 1
    local squeezed = line:gsub("%s+", "")
    local original = file.lines[i] or ""
    if #squeezed > 3 and not squeezed:find("^#include") then out[#out + 1] = {original:gsub("%s+", ""), i} end
  end
  return out
end

--- Report each block once, at its second place.
---@param list table[] from files.all
---@param report fun(path: string, line: integer, text: string)
---@param reasons table from reasons.lua
function duplicates.check(list, report, reasons)
  local seen = {}
  for _, file in ipairs(list) do
    if file.path:find("^host/.*%.[ch]$") or file.path:find("^lua/.*%.lua$") then
      local lines, last = code_lines(file), 0
      for i = 1, #lines - duplicates.lines + 1 do
        local block = {}
        for k = i, i + duplicates.lines - 1 do block[#block + 1] = lines[k][1] end
        local key = table.concat(block, "\n")
        local first = seen[key]
        if not first then
          seen[key] = {file.path, lines[i][2], i}
        elseif i > last and not (first[1] == file.path and i - first[3] < duplicates.lines) then
          last = i + duplicates.lines
          if not reasons:take(file.path .. "~" .. first[1]) then
            report(file.path, lines[i][2], ("the same %d lines as %s:%d"):format(duplicates.lines, first[1], first[2]))
          end
        end
      end
    end
  end
end

return duplicates
