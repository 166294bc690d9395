--- A terminal in a table: the contents of its lines after some bytes. Knows the output of our programs: text, end of
--- line, carriage return, cursor up, erase to the end of the line or of the screen; wraps, and rewraps when it gets
--- another width, as terminals do.
local columns_of = require("accelhost.util.columns").of

local screen = {}
screen.__index = screen

--- One of some columns, as high as it must be.
---@param width integer
---@return table
function screen.new(width)
  -- A line: its characters, and whether it continues on the next one.
  return setmetatable({width = width, lines = {{}}, row = 1, column = 0, unknown = {}}, screen)
end

local function line_at(self, row)
  for i = #self.lines + 1, row do self.lines[i] = {} end
  return self.lines[row]
end

local function put(self, character)
  local wide = columns_of(character)
  if self.column + wide > self.width then
    line_at(self, self.row).goes_on = true
    self.row, self.column = self.row + 1, 0
  end
  local line = line_at(self, self.row)
  for i = #line + 1, self.column do line[i] = " " end
  line[self.column + 1] = character
  for i = 2, wide do line[self.column + i] = "" end
  self.column = self.column + wide
end

local commands = {}

function commands.A(self, count) self.row = math.max(1, self.row - (tonumber(count) or 1)) end

function commands.K(self)
  local line = line_at(self, self.row)
  for i = #line, self.column + 1, -1 do line[i] = nil end
  line.goes_on = nil
end

function commands.J(self)
  commands.K(self)
  for i = #self.lines, self.row + 1, -1 do self.lines[i] = nil end
end

function commands.m() end

--- Process bytes.
---@param bytes string
function screen:feed(bytes)
  local at = 1
  while at <= #bytes do
    local count, letter, after = bytes:match("^\27%[([%d;?]*)(%a)()", at)
    if letter then
      if commands[letter] then commands[letter](self, count) else self.unknown[#self.unknown + 1] = count .. letter end
      at = after
    else
      local character = bytes:match("^[^\128-\191][\128-\191]*", at) or bytes:sub(at, at)
      if character == "\n" then
        self.row, self.column = self.row + 1, 0
        line_at(self, self.row)
      elseif character == "\r" then
        self.column = 0
      else
        put(self, character)
      end
      at = at + #character
    end
  end
end

--- Another width: long lines are rewrapped, the cursor stays below the same text.
---@param width integer
function screen:resize(width)
  local whole, cursor = {}, 1
  for row, line in ipairs(self.lines) do
    local before = self.lines[row - 1]
    if not (before and before.goes_on) then whole[#whole + 1] = {} end
    for _, character in ipairs(line) do table.insert(whole[#whole], character) end
    if row == self.row then cursor = #whole end
  end
  self.width, self.lines = width, {}
  for i, line in ipairs(whole) do
    if i == cursor then self.row = #self.lines + 1 end
    local row = {}
    for _, character in ipairs(line) do
      if #row == width then
        row.goes_on = true
        self.lines[#self.lines + 1] = row
        row = {}
      end
      row[#row + 1] = character
    end
    self.lines[#self.lines + 1] = row
  end
end

--- Return the visible text, without blanks at the ends.
---@return string
function screen:text()
  local lines = {}
  for i, line in ipairs(self.lines) do lines[i] = (table.concat(line):gsub("%s+$", "")) end
  return (table.concat(lines, "\n"):gsub("\n+$", "")) .. "\n"
end

--- A stream for functions that write to files.
---@return table
function screen:stream()
  return {
    write = function(stream, ...)
      for _, bytes in ipairs {...} do self:feed(bytes) end
      return stream
    end,
    flush = function() end,
  }
end

return screen
