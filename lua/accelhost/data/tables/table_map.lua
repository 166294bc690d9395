--- Computing columns of a table from its rows.
local arguments = require "accelhost.util.arguments"
local column = require "accelhost.data.tables.column"
local mapped = require "accelhost.data.tables.mapped"

local fail, describe = arguments.fail, arguments.describe
local read_map = arguments.signature("map", {
  "fn: callable", {"with_indices: flag", false}, {"batched: flag", false}, {"batch_size: count", 1000},
  {"remove_columns: string|list"}, {"input_columns: string|list"},
})

-- The results of fn, gathered by name.
local Gathered = {}
Gathered.__index = Gathered

function Gathered:add(name, value, at)
  if type(name) ~= "string" then fail("map: fn: a column's name is a string, got %s", describe(name)) end
  self.lists[name] = self.lists[name] or {}
  self.lists[name][at] = value
end

function Gathered:row(result)
  mapped.check(result)
  self.count = self.count + 1
  for name, value in pairs(result) do self:add(name, value, self.count) end
end

function Gathered:batch(result)
  self.count = self.count + mapped.each(result, function(name, values)
    for k = 1, #values do self:add(name, values[k], self.count + k) end
  end)
end

-- The arguments of fn: the row or batch, or the columns that it asks for.
local function arguments_of(names, row)
  if not names then return row end
  local values = {}
  for k, name in ipairs(names) do values[k] = row[name] end
  return unpack(values, 1, #names)
end

local function call(fn, names, row, with_indices, at)
  if not with_indices then return fn(arguments_of(names, row)) end
  if not names then return fn(row, at) end
  local values = {arguments_of(names, row)}
  values[#names + 1] = at
  return fn(unpack(values, 1, #names + 1))
end

local function run_batches(self, fn, names, with_indices, size, gathered)
  for from = 0, self.num_rows - 1, size do
    local indices = {}
    for i = from, math.min(from + size, self.num_rows) - 1 do indices[#indices + 1] = i end
    local part, batch = self:select(indices), {}
    for _, name in ipairs(self.column_names) do batch[name] = part:column(name) end
    gathered:batch(call(fn, names, batch, with_indices, indices))
  end
end

local function run_rows(self, fn, names, with_indices, gathered)
  for i = 0, self.num_rows - 1 do gathered:row(call(fn, names, self:get(i), with_indices, i)) end
end

--- Add the methods of this subject to the Table class.
return function(sets)
  local Table = sets.Table

  --- The table with columns that fn computes, instead of those of the same name or after the others (sorted). fn(row)
  --- returns a table of values by name; with batched fn(batch) gets columns of batch_size rows, numbers as tensors, and
  --- returns columns, which may have another number of rows where all others are removed. New columns are tensors where
  --- all values are numbers, booleans or tensors of one shape.
  --
  --   local set = data.Table{text = {"deep", "blue sea"}}
  --   set = set:map(function(row) return {length = #row.text} end)
  --   print(set:column("length"))  --> tensor([4, 8])
  ---@param fn fun(row: table, ...: any): table
  ---@param with_indices? boolean fn gets the row's number (from 0) too, a table of them with batched
  ---@param remove_columns? string|string[] columns that the result has not, unless fn returns them
  ---@param input_columns? string|string[] fn gets the values of these, instead of the row
  ---@return Table
  function Table:map(...)
    local fn, with_indices, batched, batch_size, removed, inputs = read_map(...)
    local names = sets.names_without(self, "map", removed or {})
    inputs = type(inputs) == "string" and {inputs} or inputs
    for _, name in ipairs(inputs or {}) do sets.column_of(self, "map", name) end
    local gathered = setmetatable({lists = {}, count = 0}, Gathered)
    if batched then
      run_batches(self, fn, inputs, with_indices, batch_size, gathered)
    else
      run_rows(self, fn, inputs, with_indices, gathered)
    end
    local columns, at = {}, self._at and sets.places(self, "map")
    for _, name in ipairs(names) do
      if not gathered.lists[name] then
        if gathered.count ~= self.num_rows then
          fail("map: fn returned %d rows for %d, which column '%s' does not fit; remove_columns removes it",
            gathered.count, self.num_rows, name)
        end
        columns[name] = at and column.at(self._columns[name], at) or self._columns[name]
      end
    end
    local known = {}
    for _, name in ipairs(names) do known[name] = true end
    for _, name in ipairs(arguments.sorted_keys(gathered.lists)) do
      columns[name] = column.of_list(gathered.lists[name], gathered.count)
      if not known[name] then names[#names + 1] = name end
    end
    return sets.of(names, columns)
  end
end
