--- Functions of rows and batches of a data.RowStream.
local arguments = require "accelhost.util.arguments"
local column = require "accelhost.data.tables.column"
local steps = require "accelhost.data.tables.row_steps"

local fail, describe = arguments.fail, arguments.describe

local read_map = arguments.signature("map", {
  "fn: callable", {"with_indices: flag", false}, {"batched: flag", false}, {"batch_size: count", 1000},
  {"remove_columns: string|list"}, {"input_columns: string|list"}, {"drop_last_batch: flag", false},
  {"features: table"},
})
local read_filter = arguments.signature("filter", {
  "fn: callable", {"with_indices: flag", false}, {"input_columns: string|list"}, {"batched: flag", false},
  {"batch_size: count", 1000},
})

-- Return the function that calls fn with a row or batch, or with the columns `names`, and with its indices if asked
-- for.
local function caller(fn, names, with_indices)
  if not names then
    if with_indices then return fn end
    return function(row) return fn(row) end
  end
  local count = #names
  return function(row, at)
    local values = {}
    for k = 1, count do values[k] = row[names[k]] end
    if with_indices then values[count + 1] = at end
    return fn(unpack(values, 1, with_indices and count + 1 or count))
  end
end

-- Join a row, without the columns that are removed, with the result of fn.
local function joined(row, result, removed)
  local made = {}
  for name, value in pairs(row) do
    if not removed[name] then made[name] = value end
  end
  for name, value in pairs(result) do made[name] = value end
  return made
end

local function row_step(self, call, removed, options)
  return steps.Each(self._step, function(row, at)
    local result = call(row, at)
    if type(result) ~= "table" and type(result) ~= "userdata" then
      fail("map: fn: expected a table of values by column, got %s", describe(result))
    end
    return joined(row, result, removed)
  end, options)
end

local function batch_step(self, call, removed, size, options)
  local inner = self._step
  return steps.Batches(inner, function(rows, indices)
    local made, count = steps.rows(call(steps.columns(rows, inner.names, inner.kinds), indices))
    if count ~= #rows then
      for name in pairs(rows[1]) do
        if not removed[name] and (not made[1] or made[1][name] == nil) then
          fail("map: fn returned %d rows for %d, which column '%s' does not fit; remove_columns removes it", count,
            #rows, name)
        end
      end
      return made
    end
    for i = 1, count do made[i] = joined(rows[i], made[i], removed) end
    return made
  end, size, options)
end

local function known_kinds(features)
  for _, name in ipairs(arguments.sorted_keys(features or {})) do
    local known = false
    for _, word in ipairs(column.types) do known = known or word == features[name] end
    if not known then
      fail("map: features: column '%s': unknown type %s (known: %s)", tostring(name), describe(features[name]),
        table.concat(column.types, ", "))
    end
  end
  return features
end

local function list_of(names)
  return type(names) == "string" and {names} or names
end

--- Add the methods of this subject to the RowStream class.
---@param RowStream table
return function(RowStream)
  local function behind(self, step)
    local made = self:with_format(self._tensors and "accelhost" or nil)
    made._step, made.column_names = step, step.names
    return made
  end

  --- The rows with columns that fn computes, during iteration. fn(row) returns a table of values by name; with
  --- batched fn(batch) gets columns of batch_size rows, numbers as tensors, and returns columns, which may have another
  --- number of rows where all others are removed.
  --
  --   local set = data.Table{text = {"deep", "blue sea"}}:to_iterable_dataset()
  --   set = set:map(function(row) return {length = #row.text} end, {remove_columns = "text"})
  --   for row in set:iter() do print(row.length) end  --> 4
  --   --> 8
  ---@param fn fun(row: table, ...: any): table
  ---@param with_indices? boolean fn gets the row's number (from 0) too, a table of them with batched
  ---@param remove_columns? string|string[] columns that the result has not, unless fn returns them
  ---@param input_columns? string|string[] fn gets the values of these, instead of the row
  ---@param drop_last_batch? boolean leave out a last batch that is not full
  ---@param features? table<string, string> the types of the result's columns, as of load_dataset: a loader makes
  --- tensors of that dtype, instead of int64 for whole numbers and float32 for others
  ---@return RowStream
  function RowStream:map(...)
    local fn, with_indices, batched, size, remove_columns, inputs, drops, features = read_map(...)
    local removed = {}
    for _, name in ipairs(list_of(remove_columns) or {}) do removed[name] = true end
    local call = caller(fn, list_of(inputs), with_indices)
    local options = {counts = with_indices, exact = true, drops = drops, kinds = known_kinds(features)}
    return behind(self, batched and batch_step(self, call, removed, size, options)
      or row_step(self, call, removed, options))
  end

  --- The rows for which fn returns true (not false or nil), during iteration; with batched fn(batch) returns a table
  --- of true and false, or a tensor of bool.
  --
  --   local set = data.Table{n = {1, 2, 3}}:to_iterable_dataset():filter(function(row) return row.n > 2 end)
  --   for row in set:iter() do print(row.n) end  --> 3
  ---@param fn fun(row: table, ...: any): any
  ---@param with_indices? boolean fn gets the row's number (from 0) too
  ---@param input_columns? string|string[] fn gets the values of these, instead of the row
  ---@return RowStream
  function RowStream:filter(...)
    local fn, with_indices, inputs, batched, size = read_filter(...)
    local call, inner = caller(fn, list_of(inputs), with_indices), self._step
    local options = {counts = with_indices, names = inner.names, kinds = inner.kinds}
    if not batched then
      return behind(self, steps.Each(inner, function(row, at) return call(row, at) and row or nil end, options))
    end
    return behind(self, steps.Batches(inner, function(rows, indices)
      local kept, keep = {}, call(steps.columns(rows, inner.names, inner.kinds), indices)
      if type(keep) == "userdata" then keep = keep:tolist() end
      if type(keep) ~= "table" or #keep ~= #rows then
        fail("filter: fn: expected %d times true or false, got %s", #rows, describe(keep))
      end
      for i, row in ipairs(rows) do
        if keep[i] then kept[#kept + 1] = row end
      end
      return kept
    end, size, options))
  end
end
