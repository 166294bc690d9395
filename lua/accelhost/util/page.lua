--- A page of text for the terminal: wrapped at its width, columns aligned, headings bold where it can show that.
local C = require "accelhost._C"
local class = require "accelhost.util.class"
local columns_of = require("accelhost.util.columns").of

---@field lines string[]
local Page = class.new "Page"

---@param width? integer columns; by default the terminal's
function Page:init(width)
  local terminal, columns = C.comm.is_terminal(1)
  columns = width or terminal and columns > 0 and columns or tonumber(os.getenv "COLUMNS") or 80
  self.lines, self.limit, self.terminal = {}, math.max(40, math.min(columns, 100)), terminal
end

--- The text as a heading shows it.
function Page:bold(text)
  return self.terminal and "\27[1m" .. text .. "\27[0m" or text
end

--- Add a line unchanged.
---@param text? string
function Page:line(text)
  self.lines[#self.lines + 1] = text or ""
end

--- Words from column `indent` on; `head` is printed in that room before the first line.
---@param head? string
function Page:wrap(text, indent, head)
  local line = head or ""
  line = line .. (" "):rep(indent - columns_of(line))
  local used, empty = math.max(indent, columns_of(line)), true
  for word in text:gmatch "%S+" do
    local columns = columns_of(word)
    if not empty and used + 1 + columns > self.limit then
      self:line(line)
      line, used, empty = (" "):rep(indent), indent, true
    end
    line = line .. (empty and "" or " ") .. word
    used = used + columns + (empty and 0 or 1)
    empty = false
  end
  self:line((line:gsub("%s+$", "")))
end

--- Rows {left, right}, the right ones aligned.
---@param rows string[][]
function Page:rows(rows, indent)
  local most = 0
  for _, row in ipairs(rows) do most = math.max(most, columns_of(row[1])) end
  local column = indent + math.min(most, math.floor(self.limit / 2.5)) + 2
  for _, row in ipairs(rows) do
    local head = (" "):rep(indent) .. row[1]
    if columns_of(head) + 2 > column then
      self:line(head)
      if row[2] ~= "" then self:wrap(row[2], column) end
    else
      self:wrap(row[2], column, head)
    end
  end
end

--- Paragraphs and code.
---@param parts table[] of the reader
function Page:parts(parts, indent)
  for i, part in ipairs(parts) do
    local item = part.text and part.text:find "^[%-%*] "
    if i > 1 and not item then self:line() end
    if part.text then
      self:wrap(part.text, indent + (item and 2 or 0), (" "):rep(indent))
    else
      for _, line in ipairs(part.code) do self:line((" "):rep(indent + 2) .. line:gsub("^| ?", "")) end
    end
  end
end

--- Write a heading, after an empty line.
function Page:heading(text)
  self:line()
  self:line("  " .. self:bold(text))
end

return Page
