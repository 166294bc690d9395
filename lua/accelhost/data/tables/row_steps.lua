--- The steps of a data.RowStream: the transformations between its source and its consumer.
--
-- A step, like a source (row_files.lua, row_tables.lua), has open(epoch, state, shuffled), which returns an
-- iterator from the beginning or from the position of `state`, shard(count, index) and, where they are known, `names`
-- and `kinds` of the columns. An iterator has next(), which returns a row or nil, skip(count), which skips rows and
-- returns the number skipped, and state(): plain values from which the same rows follow. `shuffled` returns an order of
-- a source's parts. A shard of a step whose rows depend on rows before them is every n-th row of its output, of
-- any other the step of a shard.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local column = require "accelhost.data.tables.column"
local mapped = require "accelhost.data.tables.mapped"

local native = C.data
local steps = {}

-- Skip rows by reading them, of cursors without a faster method.
local function skip_slowly(self, count)
  for done = 0, count - 1 do
    if self:next() == nil then return done end
  end
  return count
end

-- A copy of a step on another one.
local function on(step, inner)
  local other = arguments.copy(step)
  other.inner = inner
  return setmetatable(other, getmetatable(step))
end

local function shard_below(self, count, index) return on(self, self.inner:shard(count, index)) end

local function shard_behind(self, count, index) return steps.Every(self, count, index) end

-- Every n-th row.

local EveryCursor = class.new "EveryCursor"

function EveryCursor:init(inner, step, first, state)
  self.inner, self.step, self.left = inner, step, state and state.left or first
end

function EveryCursor:next()
  if self.left > 0 and self.inner:skip(self.left) < self.left then return nil end
  self.left = self.step - 1
  return self.inner:next()
end

function EveryCursor:skip(count)
  if count == 0 then return 0 end
  local wanted = self.left + (count - 1) * self.step + 1
  local done = self.inner:skip(wanted)
  local before = self.left
  self.left = self.step - 1
  if done == wanted then return count end
  return done <= before and 0 or math.floor((done - before - 1) / self.step) + 1
end

function EveryCursor:state() return {left = self.left, inner = self.inner:state()} end

local Every = class.new "Every"
steps.Every = Every

function Every:init(inner, count, index)
  self.inner, self.count, self.index, self.names, self.kinds = inner, count, index, inner.names, inner.kinds
end

Every.shard = shard_behind

function Every:open(epoch, state, shuffled)
  return EveryCursor(self.inner:open(epoch, state and state.inner, shuffled), self.count, self.index, state)
end

-- The first rows, and all but them.

local TakeCursor = class.new "TakeCursor"

function TakeCursor:init(inner, left) self.inner, self.left = inner, left end

function TakeCursor:next()
  if self.left == 0 then return nil end
  self.left = self.left - 1
  return self.inner:next()
end

function TakeCursor:skip(count)
  local done = self.inner:skip(math.min(count, self.left))
  self.left = self.left - done
  return done
end

function TakeCursor:state() return {left = self.left, inner = self.inner:state()} end

local Take = class.new "Take"
steps.Take = Take

function Take:init(inner, count)
  self.inner, self.count, self.names, self.kinds = inner, count, inner.names, inner.kinds
end

Take.shard = shard_behind

function Take:open(epoch, state)
  return TakeCursor(self.inner:open(epoch, state and state.inner), state and state.left or self.count)
end

local Skip = class.new "Skip"
steps.Skip = Skip

Skip.init = Take.init

Skip.shard = shard_behind

function Skip:open(epoch, state)
  local cursor = self.inner:open(epoch, state)
  if not state then cursor:skip(self.count) end
  return cursor
end

-- A function of each row, which returns a row, or nil to leave it out.

local EachCursor = class.new "EachCursor"

function EachCursor:init(inner, fn, exact, at, step)
  self.inner, self.fn, self.exact, self.at, self.step = inner, fn, exact, at, step
end

function EachCursor:next()
  while true do
    local row = self.inner:next()
    if row == nil then return nil end
    local at = self.at
    self.at = at + self.step
    row = self.fn(row, at)
    if row ~= nil then return row end
  end
end

function EachCursor:skip(count)
  if not self.exact then return skip_slowly(self, count) end
  local done = self.inner:skip(count)
  self.at = self.at + done * self.step
  return done
end

function EachCursor:state() return {at = self.at, inner = self.inner:state()} end

--- A step of a function of a row and, with `counts`, of its number.
local Each = class.new "Each"
steps.Each = Each

---@param fn fun(row: table, at: integer): table?
---@param options {exact?: boolean, counts?: boolean, names?: string[], kinds?: table} exact: a row for each
function Each:init(inner, fn, options)
  self.inner, self.fn, self.exact, self.counts = inner, fn, options.exact, options.counts
  self.names, self.kinds, self.first, self.step = options.names, options.kinds, 0, 1
end

function Each:shard(count, index)
  if not self.counts then return shard_below(self, count, index) end
  local other = on(self, Every(self.inner, count, index))
  other.first, other.step = self.first + index * self.step, self.step * count
  return other
end

function Each:open(epoch, state, shuffled)
  return EachCursor(self.inner:open(epoch, state and state.inner, shuffled), self.fn, self.exact,
    state and state.at or self.first, self.step)
end

-- A function of batches.

local BatchCursor = class.new "BatchCursor"

function BatchCursor:init(inner, of, state)
  self.inner, self.of, self.made, self.given = inner, of, {}, 0
  self.at = state and state.at or of.first
  if state and state.given > 0 then
    self:fill()
    self.given = state.given
  end
end

function BatchCursor:fill()
  local rows, size, indices = {}, self.of.size, {}
  self.before = {at = self.at, inner = self.inner:state()}
  for k = 1, size do
    local row = self.inner:next()
    if row == nil then break end
    rows[k], indices[k] = row, self.at
    self.at = self.at + self.of.step
  end
  self.given = 0
  if #rows == 0 or self.of.drops and #rows < size then return false end
  self.made = self.of.fn(rows, indices)
  return true
end

function BatchCursor:next()
  while self.given >= #self.made do
    if self.ended or not self:fill() then
      self.made, self.ended = {}, true
      return nil
    end
  end
  self.given = self.given + 1
  return self.made[self.given]
end

BatchCursor.skip = skip_slowly

function BatchCursor:state()
  if self.given == 0 or self.given >= #self.made then
    return {at = self.at, given = 0, inner = self.inner:state()}
  end
  return {at = self.before.at, given = self.given, inner = self.before.inner}
end

--- A step of a function of `size` rows and their numbers, which returns any number of rows.
local Batches = class.new "Batches"
steps.Batches = Batches

---@param fn fun(rows: table[], indices: integer[]): table[]
---@param options {drops?: boolean, counts?: boolean, names?: string[], kinds?: table}
function Batches:init(inner, fn, size, options)
  self.inner, self.fn, self.size, self.drops, self.counts = inner, fn, size, options.drops, options.counts
  self.names, self.kinds, self.first, self.step = options.names, options.kinds, 0, 1
end

Batches.shard = Each.shard

function Batches:open(epoch, state, shuffled)
  return BatchCursor(self.inner:open(epoch, state and state.inner, shuffled), self, state)
end

-- Shuffling by a buffer: each row that is given makes room for the next.

local ShuffleCursor = class.new "ShuffleCursor"

function ShuffleCursor:init(inner, size, seed, state)
  self.inner, self.size, self.seed = inner, size, seed
  self.buffer, self.drawn, self.ended = {}, state and state.drawn or 0, state and state.ended or false
  for i, row in ipairs(state and state.buffer or {}) do self.buffer[i] = row end
end

function ShuffleCursor:next()
  local buffer = self.buffer
  while not self.ended and #buffer <= self.size do
    local row = self.inner:next()
    if row == nil then self.ended = true else buffer[#buffer + 1] = row end
  end
  local count = #buffer
  if count == 0 then return nil end
  -- The newest row waits: one of a full buffer is drawn, and the newest row replaces it.
  local at = native.below(native.stream(self.seed, self.drawn, 0), math.min(count, self.size)) + 1
  self.drawn = self.drawn + 1
  local row = buffer[at]
  buffer[at] = buffer[count]
  buffer[count] = nil
  return row
end

ShuffleCursor.skip = skip_slowly

function ShuffleCursor:state()
  local kept = {}
  for i, row in ipairs(self.buffer) do kept[i] = row end
  return {drawn = self.drawn, ended = self.ended, buffer = kept, inner = self.inner:state()}
end

local Shuffle = class.new "Shuffle"
steps.Shuffle = Shuffle

---@param seed userdata
function Shuffle:init(inner, seed, size)
  self.inner, self.seed, self.size, self.names, self.kinds = inner, seed, size, inner.names, inner.kinds
end

Shuffle.shard = shard_below

function Shuffle:open(epoch, state, shuffled)
  local seed = native.fork_seed(self.seed, epoch)
  local function order(count)
    local list = native.shuffled(native.stream(seed, count, 1), count)
    local below = shuffled and shuffled(count)
    for i, k in ipairs(list) do list[i] = below and below[k + 1] or k + 1 end
    return list
  end
  return ShuffleCursor(self.inner:open(epoch, state and state.inner, order), self.size, seed, state)
end

-- Columns of rows.

--- The columns of a batch of rows: tensors where all values are numbers or booleans, else tables of the values. A
--- column that no row has is there when it is named.
---@param rows table[]
---@param names? string[]
---@param kinds? table<string, string>
---@return table<string, any>
function steps.columns(rows, names, kinds)
  local lists, count = {}, #rows
  for _, name in ipairs(names or {}) do lists[name] = {} end
  for i = 1, count do
    for name, value in pairs(rows[i]) do
      local list = lists[name]
      if not list then
        list = {}
        lists[name] = list
      end
      list[i] = value
    end
  end
  for name, list in pairs(lists) do lists[name] = column.values(list, count, kinds and kinds[name]) end
  return lists
end

--- Rows of columns, as fn of map returns them.
---@param columns table<string, any> tensors [n, ...] or tables
---@return table[] rows
---@return integer count
function steps.rows(columns)
  local rows = {}
  local count = mapped.each(columns, function(name, values)
    for i = 1, #values do
      rows[i] = rows[i] or {}
      rows[i][name] = values[i]
    end
  end)
  return rows, count
end

return steps
