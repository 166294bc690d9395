--- data.RowStream: rows one after the other, with the words of Hugging Face's IterableDataset.
--
--   local set = data.Table{n = {1, 2, 3, 4}}:to_iterable_dataset()
--   for row in set:filter(function(row) return row.n % 2 == 0 end):iter() do print(row.n) end  --> 2
--   --> 4
--
-- A stream never changes and holds nothing: each method returns another one, and its work is done while rows are
-- read.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local collate = require "accelhost.data.collate"
local column = require "accelhost.data.tables.column"
local IterableDataset = require("accelhost.data.iterable").IterableDataset
local steps = require "accelhost.data.tables.row_steps"
local worker = require "accelhost.data.loader.worker"

local fail, describe, method = arguments.fail, arguments.describe, arguments.method

---@field column_names string[]? in order; nil where a function of map decides
---@field epoch integer which pass is shuffled next (set_epoch)
local RowStream = IterableDataset:extend "RowStream"

--- A stream of the rows of a source, as load_dataset with streaming and Table:to_iterable_dataset make it.
---@param step table
function RowStream:init(step)
  if type(step) ~= "table" or type(step.open) ~= "function" then
    fail("RowStream: data.load_dataset(..., {streaming = true}) and Table:to_iterable_dataset() make streams")
  end
  self._step, self.column_names, self.epoch = step, step.names, 0
end

-- Another stream, behind a step.
local function behind(self, step)
  local made = RowStream(step)
  made.epoch, made._tensors = self.epoch, self._tensors
  return made
end

function RowStream:extra_repr()
  return self.column_names and ("columns=[%s]"):format(table.concat(self.column_names, ", ")) or ""
end

--- Return the kind of each column, as far as it is known: a dtype, "string" or "mixed"; nil where a function of map
--- decides.
--
--   print(data.Table{n = {1, 2}}:to_iterable_dataset():features().n)  --> int64
---@return table<string, string>?
function RowStream:features() return self._step.kinds and arguments.copy(self._step.kinds) end

-- Iteration.

local function tensor_of(value, kind)
  if type(value) == "number" then
    local dtype = kind or value % 1 == 0 and "int64" or "float32"
    return C.tensor(value, {dtype = dtype == "float64" and "float32" or dtype, device = "cpu"})
  elseif type(value) == "boolean" then
    return C.tensor(value, {dtype = "bool", device = "cpu"})
  elseif C.is_tensor(value) and value.dtype == "float64" then
    return value:to {dtype = "float32"}
  end
  return value
end

--- Iterate over the rows: a function that returns the next row, a table of its values by column, then nil. After
--- load_state_dict it continues from the position of the state. In a worker of a loader it yields that worker's shard.
--
--   for row in data.Table{n = {7}}:to_iterable_dataset():iter() do print(row.n) end  --> 7
---@return fun(): table?
---@return fun(count: integer): integer pass over rows
function RowStream:iter()
  local info, step, resume = worker.get_worker_info(), self._step, self._resume
  if info and info.num_workers > 1 then step = step:shard(info.num_workers, info.id) end
  local cursor = step:open(resume and resume.epoch or self.epoch, resume and resume.walk)
  self._resume, self._cursor, self._cursor_epoch = nil, cursor, resume and resume.epoch or self.epoch
  local kinds = step.kinds or {}
  local function following() return cursor:next() end
  local function in_tensors()
    local row = cursor:next()
    if row == nil then return nil end
    local made = {}
    for name, value in pairs(row) do made[name] = tensor_of(value, kinds[name]) end
    return made
  end
  return self._tensors and in_tensors or following, function(count) return cursor:skip(count) end
end

--- Return the position of the iterator begun last, to the row, as plain values that accelhost.save accepts: the
--- contents of a shuffle's buffer are part of it. A loader's own state_dict has the position of the loader, which reads
--- ahead.
--
--   local set = data.Table{n = {1, 2, 3}}:to_iterable_dataset()
--   set:iter()()
--   local again = data.Table{n = {1, 2, 3}}:to_iterable_dataset()
--   again:load_state_dict(set:state_dict())
--   print(again:iter()().n)  --> 2
---@return table
function RowStream:state_dict()
  local resume = self._resume
  if resume then return {epoch = resume.epoch, walk = resume.walk} end
  return {epoch = self._cursor and self._cursor_epoch or self.epoch, walk = self._cursor and self._cursor:state()}
end

--- Let the next iteration continue at the position of a state, of a stream made in the same way.
--
--   local set = data.Table{n = {1, 2, 3}}:to_iterable_dataset()
--   set:load_state_dict(set:state_dict())
---@param state table
function RowStream:load_state_dict(state)
  if type(state) ~= "table" or type(state.epoch) ~= "number" then
    fail("load_state_dict: expected a stream's state, got %s", describe(state))
  end
  self._resume, self.epoch = {epoch = state.epoch, walk = state.walk}, state.epoch
end

--- Set the epoch of the next pass: shuffled streams have another order in each. A loader that accelerator:prepare has
--- seen, or one with a seed, sets it by itself.
--
--   local set = data.Table{n = {1, 2, 3}}:to_iterable_dataset():shuffle{seed = 1}
--   set:set_epoch(2)
function RowStream:set_epoch(epoch) self.epoch = arguments.check("set_epoch", "epoch", "size", epoch) end

--- Samples as a loader collates them: columns of numbers have the dtype that is known of them.
--
--   print(data.Table{n = {1, 2}}:to_iterable_dataset():collate{{n = 1}, {n = 2}}.n)  --> tensor([1, 2])
---@param samples table[]
---@return table<string, any>
function RowStream:collate(samples)
  local kinds, batch, names = not self._tensors and self._step.kinds or {}, {}, {}
  for _, row in ipairs(samples) do
    if type(row) ~= "table" then fail("DataLoader: a row of the stream is %s", describe(row)) end
    for name in pairs(row) do names[name] = true end
  end
  for _, name in ipairs(arguments.sorted_keys(names)) do
    local values = {}
    for i, row in ipairs(samples) do
      values[i] = row[name]
      if values[i] == nil then fail("DataLoader: row %d of a batch has nothing in column '%s'", i, tostring(name)) end
    end
    batch[name] = kinds[name] and column.values(values, #values, kinds[name]) or collate.values(values)
  end
  return batch
end

-- Choosing rows.

local function check_count(what, count) return arguments.check(what, "n", "size", count) end

--- The first n rows.
--
--   for row in data.Table{n = {1, 2, 3}}:to_iterable_dataset():take(1):iter() do print(row.n) end  --> 1
---@return RowStream
function RowStream:take(n) return behind(self, steps.Take(self._step, check_count("take", n))) end

--- All but the first n rows.
--
--   for row in data.Table{n = {1, 2, 3}}:to_iterable_dataset():skip(2):iter() do print(row.n) end  --> 3
---@return RowStream
function RowStream:skip(n) return behind(self, steps.Skip(self._step, check_count("skip", n))) end

--- Return one of several shards, which together have each row once: files (or parts of a table) where their number is a
--- multiple of num_shards, else every num_shards-th row. In several processes a loader reads each process's shard by
--- itself.
--
--   local set = data.Table{n = {1, 2, 3}}:to_iterable_dataset()
--   for row in set:shard(2, 0):iter() do print(row.n) end  --> 1
--   --> 3
---@param index integer from 0
---@return RowStream
RowStream.shard = method("shard", {"num_shards: count", "index: size"}, function(self, count, index)
  if index >= count then fail("shard: index: expected 0 to %d, got %d", count - 1, index) end
  return behind(self, count == 1 and self._step or self._step:shard(count, index))
end)

--- The rows in a drawn order: each is drawn from a buffer of buffer_size rows, in which the next row replaces it, and
--- files (or parts of a table) are read in a drawn order. The order is a function of the seed and the epoch
--- (set_epoch); without a seed one is drawn now from the global generator, which has to be in the same state in all
--- processes of a job.
--
--   local set = data.Table{n = {1, 2, 3}}:to_iterable_dataset():shuffle{seed = 42, buffer_size = 2}
---@param generator? userdata to draw the seed from
---@return RowStream
RowStream.shuffle = method("shuffle", {
  {"seed: size"}, {"buffer_size: count", 1000}, {"generator: generator"},
}, function(self, seed, size, generator)
  if seed and generator then fail("shuffle: pass a seed or a generator, not both") end
  local bytes = seed and C.data.seed_bytes(seed) or C.data.draw_seed(generator)
  return behind(self, steps.Shuffle(self._step, bytes, size))
end)

-- Columns.

local function check_known(self, what, names)
  for _, name in ipairs(self.column_names and names or {}) do
    local known = false
    for _, there in ipairs(self.column_names) do known = known or there == name end
    if not known then
      fail("%s: there is no column %s (there are: %s)%s", what, describe(name), table.concat(self.column_names, ", "),
        type(name) == "string" and arguments.did_you_mean(name, self.column_names) or "")
    end
  end
end

local function list_of(what, argument, names)
  names = type(names) == "string" and {names} or names
  return arguments.check(what, argument, "list", names)
end

-- A step that renames the columns of each row; `name_of` returns a column's new name, nil to leave it out.
local function renamed(self, order, name_of)
  local names, kinds = order or self.column_names and {}, self._step.kinds and {}
  for _, name in ipairs(self.column_names or {}) do
    local new = name_of(name)
    if not order and new then names[#names + 1] = new end
    if kinds and new then kinds[new] = self._step.kinds[name] end
  end
  return behind(self, steps.Each(self._step, function(row)
    local made = {}
    for name, value in pairs(row) do
      local new = name_of(name)
      if new then made[new] = value end
    end
    return made
  end, {exact = true, names = names, kinds = kinds}))
end

local function set_of(list)
  local set = {}
  for _, name in ipairs(list) do set[name] = true end
  return set
end

--- With some columns only.
--
--   local set = data.Table{a = {1}, b = {2}}:to_iterable_dataset()
--   print(set:select_columns("b"))  --> RowStream(columns=[b])
---@return RowStream
function RowStream:select_columns(column_names)
  local names = list_of("select_columns", "column_names", column_names)
  check_known(self, "select_columns", names)
  local wanted = set_of(names)
  return renamed(self, arguments.copy(names), function(name) return wanted[name] and name or nil end)
end

--- Without some columns.
--
--   local set = data.Table{a = {1}, b = {2}}:to_iterable_dataset()
--   print(set:remove_columns("b"))  --> RowStream(columns=[a])
---@return RowStream
function RowStream:remove_columns(column_names)
  local names = list_of("remove_columns", "column_names", column_names)
  check_known(self, "remove_columns", names)
  local removed = set_of(names)
  return renamed(self, nil, function(name) return not removed[name] and name or nil end)
end

--- With another name for a column.
--
--   local set = data.Table{a = {1}, b = {2}}:to_iterable_dataset()
--   print(set:rename_column("b", "labels"))  --> RowStream(columns=[a, labels])
---@return RowStream
function RowStream:rename_column(original_column_name, new_column_name)
  check_known(self, "rename_column", {original_column_name})
  arguments.check("rename_column", "original_column_name", "string", original_column_name)
  arguments.check("rename_column", "new_column_name", "string", new_column_name)
  if self.column_names and set_of(self.column_names)[new_column_name] then
    fail("rename_column: there is a column '%s' already", new_column_name)
  end
  return renamed(self, nil, function(name) return name == original_column_name and new_column_name or name end)
end

--- Rows as tensors, or as Lua's values again: with "accelhost" numbers are tensors without dims, whole ones int64,
--- others float32 (as Hugging Face's "torch" has them), and true and false bool.
--
--   local set = data.Table{n = {1, 2}}:to_iterable_dataset():with_format("accelhost")
--   print(set:iter()().n)  --> tensor(1)
---@param type? string "accelhost", or nil for Lua's values
---@return RowStream
function RowStream:with_format(type)
  if type ~= nil and type ~= "accelhost" then
    fail("with_format: type: expected 'accelhost' or nil, got %s", describe(type))
  end
  local made = behind(self, self._step)
  made._tensors = type == "accelhost" or nil
  return made
end

require "accelhost.data.tables.row_stream_map"(RowStream)

return {RowStream = RowStream}
