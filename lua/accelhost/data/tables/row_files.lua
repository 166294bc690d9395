--- Files of rows read block by block: the source of a data.RowStream from load_dataset.
--
-- The kinds of the columns are inferred from the first rows of the first file, once, so that every process that reads a
-- shard uses the same. A shard is a part of the files where their number is a multiple of that of the shards, else
-- every n-th row of all files, which each reader parses and makes no rows of.
---@param options table of load_dataset
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

local fail = arguments.fail

-- Rows of a block, and those that the columns' kinds are guessed from.
local BLOCK, GUESSED = 1000, 10000

---@field names string[] of the columns
---@field kinds table<string, string> the kind of each: a dtype, "string" or "mixed"
local RowFiles = class.new "RowFiles"

-- Return the format in which C reads a file.
local function format_of(options, path)
  if options.path == "json" then return {kind = "json"} end
  if options.path == "text" then return {kind = options.sample_by or "line"} end
  local lower = path:lower():gsub("%.gz$", "")
  local delimiter = options.delimiter or (lower:find "%.tsv$" or lower:find "%.tab$") and "\t" or ","
  local quote, header = options.quote, options.header
  if quote == nil then quote = delimiter ~= "\t" and '"' end
  if header == nil then header = not options.column_names end
  return {
    kind = "csv", delimiter = delimiter, quote = quote or nil, header = header, named = options.column_names ~= nil,
  }
end

-- Return the result of a C function; raise an error when it is nil and the text of a problem.
local function reading(path, result, problem)
  if result == nil then fail("load_dataset: '%s': %s", path, problem) end
  return result
end

--- Open a file of rows.
---@return userdata
function RowFiles.open_file(options, path)
  return reading(path, C.data.row_file(path, format_of(options, path)))
end

--- Read rows of a file into a table of C's; return their number.
---@param rows userdata
---@param file userdata
---@param number integer number of the file
---@param most? integer
---@return integer
function RowFiles.add(rows, file, path, number, most)
  return reading(path, rows:add(file, number, most))
end

--- Return the names and kinds of a table's columns: those of `features`, else inferred ones.
---@param rows userdata
---@param path string the first file
---@return string[] names
---@return table<string, string> kinds
function RowFiles.describe(options, rows, path)
  local names, kinds = rows:names(), {}
  for i, name in ipairs(names) do
    kinds[name] = options.path == "text" and "string" or options.features and options.features[name]
      or rows:guess(i - 1)
  end
  for _, name in ipairs(arguments.sorted_keys(options.features or {})) do
    if not kinds[name] then
      fail("load_dataset: features: '%s' has no column '%s' (it has: %s)", path, tostring(name),
        table.concat(names, ", "))
    end
  end
  return names, kinds
end

--- Report which value does not fit its column.
---@param advice? string
function RowFiles.misfit(paths, names, advice, text, line, number, column)
  fail("load_dataset: '%s': line %d: column '%s': %s%s", paths[number + 1], line, names[column + 1], text, advice or "")
end

--- An empty table of C's with the columns that the caller has named.
---@param options table
---@return userdata
function RowFiles.table(options)
  local rows = C.data.table()
  for _, name in ipairs(options.column_names or {}) do rows:name(tostring(name)) end
  return rows
end

function RowFiles:init(options, paths)
  local rows, file = RowFiles.table(options), RowFiles.open_file(options, paths[1])
  while rows:len() < GUESSED and RowFiles.add(rows, file, paths[1], 0, GUESSED - rows:len()) > 0 do end
  file:close()
  if options.path == "json" then
    local there = {}
    for _, name in ipairs(rows:names()) do there[name] = true end
    for _, name in ipairs(arguments.sorted_keys(options.features or {})) do
      if not there[name] then rows:name(name) end
    end
  end
  self.options, self.paths = options, paths
  self.names, self.kinds = RowFiles.describe(options, rows, paths[1])
  self.files = {} -- numbers of the files to read
  for i = 1, #paths do self.files[i] = i end
  self.step, self.first = 1, 0
end

--- The rows of one of several shards, which together are all.
---@param index integer from 0
---@return RowFiles
function RowFiles:shard(count, index)
  local other = arguments.copy(self)
  setmetatable(other, getmetatable(self))
  if self.step == 1 and #self.files % count == 0 then
    other.files = {}
    for i = index + 1, #self.files, count do other.files[#other.files + 1] = self.files[i] end
  else
    other.step, other.first = self.step * count, self.first + index * self.step
  end
  return other
end

---@class RowFilesCursor
local Cursor = class.new "RowFilesCursor"

function Cursor:init(source, order, state)
  self.source, self.order = source, order
  self.part, self.before, self.given = state and state.part or 1, state and state.before or 0, 0
  self.rows, self.place = {}, state and {state.offset, state.line, state.state} or nil
  self.skipped = state and state.given or 0 -- rows of the block that were given before
end

-- A table for the blocks, with the columns in their order.
local function blank(source)
  local rows = C.data.table()
  for _, name in ipairs(source.names) do rows:name(name) end
  return rows
end

local function open(self)
  local source, number = self.source, self.order[self.part]
  if not number then return false end
  local path = source.paths[number]
  self.path, self.number = path, number - 1
  self.file = RowFiles.open_file(source.options, path)
  if self.place then reading(path, self.file:seek(unpack(self.place))) end
  return true
end

-- The columns that the first rows do not have.
local function check_columns(self)
  local names, known = self.table:names(), self.source.names
  if #names > #known then
    local line = self.table:met(#known)
    fail("load_dataset: '%s': line %d: column '%s' is not in the first rows, which define a stream's columns; "
      .. "features = {%s = \"string\"} or another type adds it", self.path, line, names[#known + 1], names[#known + 1])
  end
end

-- The next block with rows of this shard: false at the end.
local function fill(self)
  local source = self.source
  self.table = self.table or blank(source)
  while true do
    if not self.file and not open(self) then return false end
    self.place = {self.file:place()}
    self.table:clear()
    local count = RowFiles.add(self.table, self.file, self.path, self.number, BLOCK)
    if count > 0 then
      local first = (source.first - self.before) % source.step
      check_columns(self)
      local kinds = {}
      for i, name in ipairs(source.names) do kinds[i] = source.kinds[name] end
      local rows, text, line, number, column = self.table:rows(kinds, first, source.step)
      if not rows then
        RowFiles.misfit(source.paths, source.names, "; features = {...} sets a column's type", text, line, number,
          column)
      end
      self.block, self.count, self.given = rows, count, self.skipped
      self.skipped = 0
      if self.given < #rows then return true end
      self.before = self.before + count
    else
      self.file:close()
      self.file, self.place, self.part = nil, nil, self.part + 1
    end
  end
end

function Cursor:next()
  local block = self.block
  if not block or self.given >= #block then
    if block then self.before = self.before + self.count end
    self.block = nil
    if self.ended or not fill(self) then
      self.ended = true
      return nil
    end
    block = self.block
  end
  local at = self.given + 1
  self.given = at
  return block[at]
end

--- Skip rows; return the number skipped.
function Cursor:skip(count)
  local done = 0
  while done < count do
    if self.block and self.given < #self.block then
      local now = math.min(count - done, #self.block - self.given)
      self.given, done = self.given + now, done + now
    elseif self:next() then
      done = done + 1
    else
      break
    end
  end
  return done
end

function Cursor:state()
  local place = self.place or {0, 0, 0}
  return {
    part = self.part, before = self.before, given = self.block and self.given or self.skipped,
    offset = place[1], line = place[2], state = place[3],
  }
end

--- Open a cursor over the rows, from the beginning or from the position of `state`.
---@param state? table
---@param shuffled? fun(count: integer): integer[] an order of this many files, from 1
---@return table
function RowFiles:open(epoch, state, shuffled) -- luacheck: ignore epoch
  local order = self.files
  if shuffled and #order > 1 then
    local drawn = shuffled(#order)
    for i, k in ipairs(drawn) do drawn[i] = self.files[k] end
    order = drawn
  end
  return Cursor(self, order, state)
end

return RowFiles
