--- Choosing and ordering the rows of a table: nothing is copied but the rows' places.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail = arguments.fail
local read_shuffle = arguments.signature("shuffle", {{"seed: size"}, {"generator: generator"}})
local read_sort = arguments.signature("sort", {"column_name: string", {"reverse: flag", false}})
local read_filter = arguments.signature("filter", {"fn: callable", {"with_indices: flag", false}})
local read_split = arguments.signature("train_test_split", {
  {"test_size: positive"}, {"train_size: positive"}, {"shuffle: flag", true}, {"seed: size"}, {"generator: generator"},
})

-- The numbers from 0 to count - 1 in a drawn order.
local function drawn(count, seed, generator)
  if seed then
    if generator then fail("shuffle: pass a seed or a generator, not both") end
    generator = C.random.Generator()
    generator:manual_seed(seed)
  end
  return C.randperm(count, {generator = generator, device = "cpu"}):tolist()
end

-- A share of the rows, or their number.
local function size_of(name, size, count, round)
  if not size then return nil end
  if size < 1 then return round(size * count) end
  if size % 1 ~= 0 or size > count then
    fail("train_test_split: %s: expected a share below 1 or at most %d rows, got %s", name, count, tostring(size))
  end
  return size
end

-- NaN is last.
local function comes_before(a, b)
  if a ~= a then return false end
  return b ~= b or a < b
end

--- Add the methods of this subject to the Table class.
return function(sets)
  local Table = sets.Table

  --- The rows of these indices, in this order.
  --
  --   data.Table{label = {3, 4, 5}}:select({2, 0}):column("label")  --> tensor([5, 3])
  ---@param indices integer[]|userdata counted from 0
  ---@return Table
  function Table:select(indices)
    if C.is_tensor(indices) then indices = indices:reshape(-1):tolist() end
    if type(indices) ~= "table" then
      fail("select: indices: expected a table or a tensor of integers, got %s", arguments.describe(indices))
    end
    return sets.of(self.column_names, self._columns, sets.places(self, "select", indices), self._format)
  end

  --- The rows in a drawn order: that of accelhost.randperm(num_rows) after manual_seed(seed), of a generator of its
  --- own; without a seed the global generator's, or `generator`'s.
  --
  --   data.Table{label = {3, 4, 5}}:shuffle{seed = 42}:column("label")
  ---@return Table
  function Table:shuffle(...)
    local seed, generator = read_shuffle(...)
    return self:select(drawn(self.num_rows, seed, generator))
  end

  --- The rows in the order of a column's values, from the least; equal ones stay in their order, NaN is last.
  --
  --   data.Table{label = {3, 5, 4}}:sort("label", {reverse = true}):column("label")  --> tensor([5, 4, 3])
  ---@param column_name string of numbers or of texts, which are compared byte by byte
  ---@param reverse? boolean from the greatest
  ---@return Table
  function Table:sort(...)
    local name, reverse = read_sort(...)
    local column, at, keys, order = sets.column_of(self, "sort", name), sets.places(self, "sort"), {}, {}
    for i, place in ipairs(at) do
      local value = column:get(place)
      if type(value) ~= "number" and type(value) ~= "string" or type(value) ~= type(keys[1] or value) then
        fail("sort: column '%s' holds %s in row %d; only numbers or texts have an order", name,
          arguments.describe(value), i - 1)
      end
      keys[i], order[i] = value, i
    end
    table.sort(order, function(a, b)
      local x, y = keys[a], keys[b]
      if comes_before(x, y) then return not reverse or y ~= y end
      if comes_before(y, x) then return reverse and x == x end
      return a < b
    end)
    for k, i in ipairs(order) do order[k] = i - 1 end
    return self:select(order)
  end

  --- The rows for which fn(row) is true; with with_indices fn(row, i), i from 0.
  --
  --   data.Table{label = {3, 4, 5}}:filter(function(row) return row.label > 3 end).num_rows  --> 2
  ---@param fn fun(row: table, i: integer?): boolean
  ---@return Table
  function Table:filter(...)
    local fn, with_indices = read_filter(...)
    local kept = {}
    for i = 0, self.num_rows - 1 do
      local keep
      if with_indices then keep = fn(self:get(i), i) else keep = fn(self:get(i)) end
      if type(keep) ~= "boolean" then
        fail("filter: fn: expected true or false for row %d, got %s", i, arguments.describe(keep))
      end
      if keep then kept[#kept + 1] = i end
    end
    return self:select(kept)
  end

  --- Return two tables, {train = Table, test = Table}. The test rows are the first of the order of shuffle for the
  --- seed, the train rows follow; without shuffle the train rows are the first.
  --
  --   local parts = data.Table{label = {3, 4, 5, 6}}:train_test_split{test_size = 0.25, seed = 1}
  --   print(#parts.train, #parts.test)  --> 3  1
  ---@param test_size? number a share of the rows below 1 (rounded up), or a number of rows; default the rest after
  --- train_size, else 0.25
  ---@param train_size? number a share (rounded down), or a number of rows; default the rest
  ---@return {train: Table, test: Table}
  function Table:train_test_split(...)
    local test_size, train_size, shuffle, seed, generator = read_split(...)
    local count = self.num_rows
    if not test_size and not train_size then test_size = 0.25 end
    local test = size_of("test_size", test_size, count, math.ceil)
    local train = size_of("train_size", train_size, count, math.floor) or count - test
    test = test or count - train
    if train + test > count then
      fail("train_test_split: %d rows to train and %d to test of %d", train, test, count)
    elseif train == 0 or test == 0 then
      fail("train_test_split: of %d rows none is left to %s", count, train == 0 and "train" or "test")
    end
    local order = {}
    if shuffle then order = drawn(count, seed, generator) end
    for i = #order + 1, count do order[i] = i - 1 end
    local function part(from, size)
      local list = {}
      for k = 1, size do list[k] = order[from + k] end
      return self:select(list)
    end
    return {train = part(shuffle and test or 0, train), test = part(shuffle and 0 or train, test)}
  end
end
