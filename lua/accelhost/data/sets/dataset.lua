--- Data sets: `get(i)` returns sample i (from 0), `len()` the number of samples.
--
-- A data set of your own is any object with those two methods; `data.Dataset:extend "Name"` makes a class for one.
-- Sets in tensors also have `native()`, which returns columns that the loader gathers without a Lua step per sample.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local kinds = require "accelhost.util.kinds"

local fail, describe, signature, is_count = arguments.fail, arguments.describe, arguments.signature, kinds.is_count
local dataset = {}

-- Return the results of get as one value.
local function as_one(...)
  if select("#", ...) == 1 then return (...) end
  return {...}
end

local function at_position(set, i)
  local from_end = i < 0 and i + set:len() or i
  return as_one(set:get(from_end < 0 and i or from_end))
end

--- The base of data sets: get(i) returns sample i (from 0) and len() the number of samples; #set is len(). set[i] is
--- the sample as one value, a table where get returns several; set[-1] is the last one.
--
--   local Squares = data.Dataset:extend "Squares"
--   function Squares:len() return 10 end
--   function Squares:get(i) return accelhost.tensor(i), i * i end
--   select(2, Squares():get(3))  --> 9
--   Squares()[3][2]              --> 9
local Dataset = class.with_positions(class.sized "Dataset", at_position)
dataset.Dataset = Dataset

--- Sample i, counted from 0: one value or several.
function Dataset:get(i) -- luacheck: ignore i
  fail("%s has no method get(i): define function %s:get(i), which returns sample i, counted from 0", self._name,
    self._name)
end

--- Return the number of samples.
---@return integer
function Dataset:len()
  fail("%s has no method len(): define function %s:len(), which returns the number of samples", self._name, self._name)
end

--- For sets stored in tensors: the columns that the loader gathers, as {tensor [n, ...], table or false, shape of a
--- row, grid or nil} (see accelhost.data.transforms.plan), and, where sample i is not row i, a function from one to the
--- other. A set without them returns nil.
---@return table[]? columns
---@return (fun(i: integer): integer)? row_of
function Dataset:native() -- luacheck: ignore self
  return nil
end

local function check_index(set, i, count)
  if type(i) ~= "number" or i % 1 ~= 0 or i < 0 or i >= count then
    fail("%s: index %s is out of range (0 to %d)", set._name, tostring(i), count - 1)
  end
end

---@field tensors userdata[]
local TensorDataset = Dataset:extend "TensorDataset"
dataset.TensorDataset = TensorDataset

-- The samples of a whole batch at once, for data on a device: one pass over its memory for each tensor.
local function rows(self, indices)
  local batch = {}
  for i = 1, #indices do
    local index = indices[i]
    if type(index) ~= "number" or index % 1 ~= 0 then
      fail("a sampler returned %s as an index (expected an integer)", type(index) == "number" and index or type(index))
    elseif index < 0 or index >= self:len() then
      fail("index %d is out of range for a data set of %d", index, self:len())
    end
  end
  for k, tensor in ipairs(self.tensors) do
    local at = C.tensor(indices, {dtype = "int64", device = tensor.device})
    batch[k] = tensor:detach():index_select(0, at)
  end
  return unpack(batch)
end

--- Tensors of the same length: sample i is the i-th row of each.
--
--   local set = data.TensorDataset(images, labels)
---@param ... userdata [n, ...]
function TensorDataset:init(...)
  local tensors = {...}
  if #tensors == 0 then fail("TensorDataset: expected at least one tensor") end
  for i = 1, select("#", ...) do
    local tensor = tensors[i]
    if not C.is_tensor(tensor) then fail("TensorDataset: argument %d is %s, expected a tensor", i, describe(tensor)) end
    if tensor:dim() == 0 then fail("TensorDataset: argument %d has no dimension to count samples along", i) end
    if tensor:size(0) ~= tensors[1]:size(0) then
      fail("TensorDataset: sizes differ: argument 1 has %d rows, argument %d has %d", tensors[1]:size(0), i,
        tensor:size(0))
    end
  end
  self.tensors = tensors
  local here = false
  for i = 1, #tensors do here = here or tensors[i].device == "cpu" end
  if not here then self.rows = rows end
end

function TensorDataset:len() return self.tensors[1]:size(0) end

function TensorDataset:get(i)
  check_index(self, i, self:len())
  local row = {}
  for k = 1, #self.tensors do row[k] = self.tensors[k]:select(0, i) end
  return unpack(row)
end

local function row_shape(tensor)
  local shape = {}
  for d = 1, tensor:dim() - 1 do shape[d] = tensor:size(d) end
  return shape
end

function TensorDataset:native()
  local columns = {}
  for k = 1, #self.tensors do
    local tensor = self.tensors[k]
    if tensor.device ~= "cpu" or #self.tensors > 16 then return nil end
    columns[k] = {tensor:detach():contiguous(), false, row_shape(tensor)}
  end
  return columns
end

---@field samples table
local ListDataset = Dataset:extend "ListDataset"
dataset.ListDataset = ListDataset

local read_list = signature("ListDataset", {"samples: list"})

--- The items of a Lua table as samples: item i + 1 is sample i. An item that is a list is a sample of several values,
--- as a tuple is in Python. A loader makes this data set of a plain table.
--
--   local pairs_of = {{accelhost.zeros(2), 0}, {accelhost.ones(2), 1}}
--   local set = data.ListDataset(pairs_of)
--   print(select(2, set:get(1)))  --> 1
--   for _, y in data.DataLoader(pairs_of, {batch_size = 2}) do print(y) end  --> tensor([0, 1])
function ListDataset:init(...)
  self.samples = read_list(...)
end

function ListDataset:len() return #self.samples end

function ListDataset:get(i)
  check_index(self, i, #self.samples)
  local sample = self.samples[i + 1]
  if type(sample) == "table" and getmetatable(sample) == nil and sample[1] ~= nil then return unpack(sample) end
  return sample
end

--- A data set as such, a plain table of samples as a ListDataset.
--- A list of data sets is the result of random_split, which Python unpacks and Lua does not.
---@param value table
---@return table
function dataset.of(value)
  if type(value) ~= "table" or getmetatable(value) ~= nil or value[1] == nil then return value end
  if class.is(value[1], Dataset) then
    fail("expected a data set, got a list of %d data sets (of random_split: local train, test = unpack(sets))", #value)
  end
  return ListDataset(value)
end

---@field dataset table
local Subset = Dataset:extend "Subset"
dataset.Subset = Subset

local read_subset = signature("Subset", {"dataset: dataset", "indices: tensor|list|size", {"count: size"}})

--- Part of a data set: the samples of a list of indices, or a range.
--
--   print(#data.Subset(set, {4, 2, 2}))     --> 3
--   print(#data.Subset(set, 0, 4))          --> 4
---@param dataset table
---@param indices integer[]|userdata|integer counted from 0; a table, an int64 tensor, or the first index of a range
---@param count? integer with a first index: number of samples
function Subset:init(...)
  local set, indices, count = read_subset(...)
  set = dataset.of(set)
  self.dataset = set
  local total = set:len()
  if C.is_tensor(indices) then indices = C.data.slice(indices:cpu(), 0, indices:numel()) end
  if type(indices) == "number" then
    if not count then fail("Subset: a first index needs a count of samples") end
    if indices + count > total then
      fail("Subset: %d samples from %d on, but the data set has %d", count, indices, total)
    end
    self._first, self._count = indices, count
    return
  end
  if count then fail("Subset: expected no count with a table of indices, got %s", describe(count)) end
  for k = 1, #indices do
    if not is_count(indices[k], 0) or indices[k] >= total then
      fail("Subset: index %s (number %d) is out of range for a data set of %d", tostring(indices[k]), k, total)
    end
  end
  self.indices, self._count = indices, #indices
end

function Subset:len() return self._count end

--- The index in the underlying data set.
---@return integer
function Subset:index_of(i)
  check_index(self, i, self._count)
  return self.indices and self.indices[i + 1] or self._first + i
end

function Subset:get(i) return self.dataset:get(self:index_of(i)) end

function Subset:native()
  local inner = self.dataset
  if not inner.native then return nil end
  local columns, map = inner:native()
  if not columns then return nil end
  if map then return columns, function(i) return map(self:index_of(i)) end end
  return columns, function(i) return self:index_of(i) end
end

---@field datasets table[]
local ConcatDataset = Dataset:extend "ConcatDataset"
dataset.ConcatDataset = ConcatDataset

local read_concat = signature("ConcatDataset", {"datasets: datasets"})

--- Data sets one after the other.
--
--   #data.ConcatDataset{set, set}  --> 10
---@param datasets table[]
function ConcatDataset:init(...)
  local sets = arguments.copy(read_concat(...))
  if #sets == 0 then fail("ConcatDataset: datasets: expected at least one") end
  self.datasets, self._ends = sets, {}
  local total = 0
  for k = 1, #sets do
    sets[k] = dataset.of(sets[k])
    total = total + sets[k]:len()
    self._ends[k] = total
  end
end

function ConcatDataset:len() return self._ends[#self._ends] end

function ConcatDataset:get(i)
  check_index(self, i, self:len())
  local low, high = 1, #self._ends
  while low < high do
    local middle = math.floor((low + high) / 2)
    if i < self._ends[middle] then high = middle else low = middle + 1 end
  end
  return self.datasets[low]:get(i - (self._ends[low - 1] or 0))
end

---@field datasets table[]|table<string, table>
local StackDataset = Dataset:extend "StackDataset"
dataset.StackDataset = StackDataset

--- Data sets of the same length side by side: sample i is the i-th of each, as several values, or as a table with their
--- names. A sample of several values counts as a table of them.
--
--   #data.StackDataset(set, set)  --> 5
--   #data.StackDataset {image = set, caption = set}  --> 5
---@param ... table data sets, or one table of them by name
function StackDataset:init(...)
  local sets = {...}
  if #sets == 1 and type(sets[1]) == "table" and getmetatable(sets[1]) == nil then sets = sets[1] end
  local count, first
  self._names = arguments.sorted_keys(sets)
  for _, name in ipairs(self._names) do
    local set = sets[name]
    local kind = type(set)
    if kind ~= "table" and kind ~= "userdata" or C.is_tensor(set) or type(set.get) ~= "function" then
      fail("StackDataset: data set %s is %s, expected an object with get(i) and len()", tostring(name), describe(set))
    end
    first, count = first or name, count or set:len()
    if set:len() ~= count then
      fail("StackDataset: sizes differ: data set %s has %d samples, data set %s has %d", tostring(first), count,
        tostring(name), set:len())
    end
  end
  if not count then fail("StackDataset: expected at least one data set") end
  self.datasets, self._count = sets, count
end

function StackDataset:len() return self._count end

function StackDataset:get(i)
  check_index(self, i, self._count)
  local sample = {}
  -- In one order: the sets may draw random numbers.
  for _, name in ipairs(self._names) do sample[name] = as_one(self.datasets[name]:get(i)) end
  if sample[1] == nil then return sample end
  return unpack(sample, 1, #self.datasets)
end

local read_split = signature("random_split", {"dataset: dataset", "lengths: list", {"generator: generator"}})

--- Split a data set at random into parts of the given lengths, or of fractions that sum to 1. Draws one permutation, as
--- PyTorch does.
--
--   local train, valid = unpack(data.random_split(set, {0.9, 0.1}))
---@param lengths number[]
---@return Subset[]
function dataset.random_split(...)
  local set, lengths, generator = read_split(...)
  set = dataset.of(set)
  if #lengths == 0 then fail("random_split: lengths: expected at least one") end
  local total, sum, fractions = set:len(), 0, false
  for k = 1, #lengths do
    if type(lengths[k]) ~= "number" or lengths[k] < 0 then
      fail("random_split: length %d is %s", k, describe(lengths[k]))
    end
    sum = sum + lengths[k]
    fractions = fractions or lengths[k] % 1 ~= 0
  end
  if math.abs(sum - 1) <= 1e-9 and (fractions or total ~= 1) then
    local counts, left = {}, total
    for k = 1, #lengths do
      counts[k] = math.floor(total * lengths[k])
      left = left - counts[k]
    end
    for k = 0, left - 1 do counts[k % #counts + 1] = counts[k % #counts + 1] + 1 end
    lengths, sum, fractions = counts, total, false
  end
  if fractions then fail("random_split: expected whole lengths, or fractions that sum to 1 (not %s)", tostring(sum)) end
  if sum ~= total then
    fail("random_split: the lengths sum to %s, the data set has %d", tostring(sum), total)
  end
  local order = C.data.permutation(generator, total)
  local parts, first = {}, 0
  for k = 1, #lengths do
    parts[k] = Subset(set, C.data.slice(order, first, lengths[k]))
    first = first + lengths[k]
  end
  return parts
end

return dataset
