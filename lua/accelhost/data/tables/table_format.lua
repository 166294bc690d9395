--- The formats of a table's rows: Lua's values, tensors, or the results of a function that is called at each access.
local C = require "accelhost._C"
local RowStream = require("accelhost.data.tables.row_stream").RowStream
local RowTables = require "accelhost.data.tables.row_tables"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local collate = require "accelhost.data.collate"
local column = require "accelhost.data.tables.column"

local fail, describe, signature = arguments.fail, arguments.describe, arguments.signature

-- A format has row(table, place), one row by column, and rows(table, places), a batch of them; names of columns that
-- are not there any more are passed over.

-- The columns that a format is for, and the others, where they are given too.
local function parts_of(format, set)
  local chosen, others, wanted = {}, {}, nil
  if format.columns then
    wanted = {}
    for _, name in ipairs(format.columns) do wanted[name] = true end
  end
  for _, name in ipairs(set.column_names) do
    if not wanted or wanted[name] then
      chosen[#chosen + 1] = name
    elseif format.all then
      others[#others + 1] = name
    end
  end
  return chosen, others
end

local TensorFormat = class.new "TensorFormat"

function TensorFormat:init(columns, all) self.columns, self.all = columns, all end

local function in_dtype(values)
  if C.is_tensor(values) and values.dtype == "float64" then return values:to {dtype = "float32"} end
  if C.is_tensor(values) and values.dtype == "int32" then return values:to {dtype = "int64"} end
  return values
end

function TensorFormat:rows(set, places)
  local batch = {}
  local chosen, others = parts_of(self, set)
  for _, name in ipairs(chosen) do batch[name] = in_dtype(column.batch(set._columns[name], places)) end
  for _, name in ipairs(others) do batch[name] = column.batch(set._columns[name], places) end
  return batch
end

function TensorFormat:row(set, place)
  local row = {}
  local chosen, others = parts_of(self, set)
  for _, name in ipairs(chosen) do
    local values = set._columns[name]:take {place}
    row[name] = C.is_tensor(values) and in_dtype(values):select(0, 0) or values[1]
  end
  for _, name in ipairs(others) do row[name] = set._columns[name]:get(place) end
  return row
end

local Transform = class.new "Transform"
Transform.computes = true

function Transform:init(fn, columns, all) self.fn, self.columns, self.all = fn, columns, all end

-- Return the columns that fn makes of the rows at these places.
local function transformed(self, set, places)
  local batch = {}
  local chosen, others = parts_of(self, set)
  for _, name in ipairs(chosen) do batch[name] = set._columns[name]:take(places) end
  local made = self.fn(batch)
  if type(made) ~= "table" and type(made) ~= "userdata" or C.is_tensor(made) then
    fail("set_transform: transform: expected a table of columns by name, got %s", describe(made))
  end
  local result = {}
  for name, values in pairs(made) do
    local count = C.is_tensor(values) and values:dim() > 0 and values:size(0) or type(values) == "table" and #values
    if count ~= #places then
      fail("set_transform: transform: column '%s': expected %d values, one for each row, got %s", tostring(name),
        #places, count and tostring(count) or describe(values))
    end
    result[name] = values
  end
  for _, name in ipairs(others) do result[name] = result[name] or set._columns[name]:take(places) end
  return result
end

function Transform:rows(set, places)
  local batch = transformed(self, set, places)
  for name, values in pairs(batch) do
    if not C.is_tensor(values) and type(values[1]) ~= "string" then batch[name] = collate.values(values) end
  end
  return batch
end

function Transform:row(set, place)
  local row = {}
  for name, values in pairs(transformed(self, set, {place})) do
    if C.is_tensor(values) then
      values = values:select(0, 0)
      row[name] = values:dim() == 0 and values:item() or values
    else
      row[name] = values[1]
    end
  end
  return row
end

local read_format = signature("with_format", {
  {"type: 'accelhost'"}, {"columns: string|list"}, {"output_all_columns: flag", false},
})
local read_transform = signature("with_transform", {
  {"transform: callable"}, {"columns: string|list"}, {"output_all_columns: flag", false},
})

local read_parts = signature("to_iterable_dataset", {{"num_shards: count", 1}})

local function checked(sets, set, what, columns)
  columns = type(columns) == "string" and {columns} or columns
  for _, name in ipairs(columns or {}) do sets.column_of(set, what, name) end
  return columns
end

--- Add the methods of this subject to the Table class.
return function(sets)
  local Table = sets.Table

  local function format_of(self, ...)
    local type, columns, all = ...
    columns = checked(sets, self, "with_format", columns)
    if not type then
      if columns then fail("with_format: columns are for type 'accelhost'; select_columns chooses them for good") end
      return nil
    end
    return TensorFormat(columns, all)
  end

  local function transform_of(self, ...)
    local fn, columns, all = ...
    columns = checked(sets, self, "with_transform", columns)
    return fn and Transform(fn, columns, all) or nil
  end

  local function formatted(self, format) return sets.of(self.column_names, self._columns, self._at, format) end

  local function format_in_place(self, format) self._format, self.computes = format, format and format.computes end

  --- The table with rows as tensors, or as Lua's values again. With "accelhost" get(i), a loader and map's fn return
  --- numbers as tensors: whole ones int64, others float32 (as Hugging Face's "torch" has them); texts stay texts. The
  --- result of column(name) is unchanged, and results of select, shuffle and their like have the table's format.
  --
  --   local set = data.Table{x = {0.5, 1}, text = {"a", "b"}}:with_format("accelhost", {columns = "x"})
  --   print(set[0].x, set[0].text)  --> tensor(0.5000)  nil
  ---@param type? string "accelhost", or nil for Lua's values
  ---@param columns? string|string[] return these only, default all
  ---@param output_all_columns? boolean return the others too, as Lua's values (default false)
  ---@return Table
  function Table:with_format(...) return formatted(self, format_of(self, read_format(...))) end

  --- with_format in place.
  --
  --   local set = data.Table{x = {1}}
  --   set:set_format("accelhost")
  --   print(set[0].x)  --> tensor(1)
  ---@param columns? string|string[]
  function Table:set_format(...) format_in_place(self, format_of(self, read_format(...))) end

  --- Rows as Lua's values again.
  --
  --   local set = data.Table{x = {1}}:with_format("accelhost")
  --   set:reset_format()
  --   print(set[0].x)  --> 1
  function Table:reset_format() self:set_format() end

  --- The table with rows that a function makes on access, a lazy map: fn(batch) gets columns, numbers as
  --- tensors, and returns columns of as many values. A loader calls it for a whole batch, in its workers if it has
  --- some; get(i) for a batch of one row.
  --
  --   local set = data.Table{text = {"deep", "sea"}}:with_transform(function(batch)
  --     return {length = {#batch.text[1]}}
  --   end)
  --   print(set[1].length)  --> 3
  ---@param transform? fun(batch: table<string, any>): table nil for none
  ---@param columns? string|string[] fn gets these only, default all
  ---@param output_all_columns? boolean return the others too, unchanged (default false)
  ---@return Table
  function Table:with_transform(...) return formatted(self, transform_of(self, read_transform(...))) end

  --- with_transform in place.
  --
  --   local set = data.Table{n = {1, 2}}
  --   set:set_transform(function(batch) return {n = batch.n * 10} end)
  --   print(set[1].n)  --> 20
  ---@param transform? fun(batch: table<string, any>): table
  ---@param columns? string|string[]
  function Table:set_transform(...) format_in_place(self, transform_of(self, read_transform(...))) end

  --- The rows one after the other: a stream with lazy map, filter and a shuffle by buffer. Its parts are read in a
  --- drawn order when it is shuffled, and processes take whole ones where their number allows it.
  --
  --   local set = data.Table{n = {1, 2, 3}}:to_iterable_dataset{num_shards = 2}
  --   for row in set:shard(2, 1):iter() do print(row.n) end  --> 3
  ---@param num_shards? integer parts, default 1
  ---@return RowStream
  function Table:to_iterable_dataset(...)
    local parts = read_parts(...)
    if parts > math.max(1, self.num_rows) then
      fail("to_iterable_dataset: num_shards: expected at most %d, one for each row, got %d", self.num_rows, parts)
    end
    return RowStream(RowTables(self, parts))
  end
end
