--- The rows of a data.Table as the source of a data.RowStream, in parts.
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

local Cursor = class.new "RowTableCursor"

function Cursor:init(source, parts, state)
  self.table, self.parts, self.step = source.table, parts, source.step
  self.part, self.given, self.left = state and state.part or 1, state and state.given or 0,
    state and state.left or source.first
end

-- To the row that is `left` rows on: its number, nil behind the last.
local function go(self)
  while true do
    local part = self.parts[self.part]
    if not part then return nil end
    local there = part[2] - part[1] - self.given
    if self.left < there then
      self.given, self.left = self.given + self.left, 0
      return part[1] + self.given
    end
    self.left, self.part, self.given = self.left - there, self.part + 1, 0
  end
end

function Cursor:next()
  local at = go(self)
  if not at then return nil end
  self.left = self.step
  return self.table:get(at)
end

function Cursor:skip(count)
  for done = 0, count - 1 do
    if not go(self) then return done end
    self.left = self.step
  end
  return count
end

function Cursor:state() return {part = self.part, given = self.given, left = self.left} end

local RowTables = class.new "RowTables"

---@param set Table
---@param num_shards integer parts of about the same size
function RowTables:init(set, num_shards)
  self.table, self.parts, self.names, self.kinds = set, {}, set.column_names, set:features()
  self.step, self.first = 1, 0
  local from = 0
  for i = 1, num_shards do
    local to = from + math.floor(set.num_rows / num_shards) + (i <= set.num_rows % num_shards and 1 or 0)
    self.parts[i] = {from, to}
    from = to
  end
end

--- The rows of one of several shards: parts, where their number is a multiple, else every n-th row.
---@param index integer from 0
---@return RowTables
function RowTables:shard(count, index)
  local other = setmetatable(arguments.copy(self), getmetatable(self))
  if self.step == 1 and #self.parts % count == 0 then
    other.parts = {}
    for i = index + 1, #self.parts, count do other.parts[#other.parts + 1] = self.parts[i] end
  else
    other.step, other.first = self.step * count, self.first + index * self.step
  end
  return other
end

--- Open a cursor over the rows.
---@param state? table
---@param shuffled? fun(count: integer): integer[]
---@return table
function RowTables:open(epoch, state, shuffled) -- luacheck: ignore epoch
  local parts = self.parts
  if shuffled and #parts > 1 then
    local drawn = shuffled(#parts)
    for i, k in ipairs(drawn) do drawn[i] = self.parts[k] end
    parts = drawn
  end
  return Cursor(self, parts, state)
end

return RowTables
