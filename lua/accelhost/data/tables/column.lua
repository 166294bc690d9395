--- The columns of a data.Table: a tensor, packed texts, or a table of values.
--
-- A column has len(), get(i) (i from 0), take(indices): the values at a table of indices, as a tensor where the column
-- is one, and `kind`, a dtype, "string", "mixed" or "list".
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local collate = require "accelhost.data.collate"
local json = require "accelhost.util.json"

local column = {}

local TensorColumn = class.new "TensorColumn"

function TensorColumn:init(tensor) self.tensor, self.kind = tensor, tensor.dtype end

function TensorColumn:len() return self.tensor:size(0) end

function TensorColumn:get(i)
  local value = self.tensor:select(0, i)
  -- A whole number beyond 2^53 stays a tensor, in which it is exact.
  if value:dim() > 0 or self.kind == "int64" and value:abs():gt(2 ^ 53):item() then return value end
  return value:item()
end

function TensorColumn:take(indices)
  return self.tensor:index_select(0, C.tensor(indices, {dtype = "int64", device = self.tensor.device}))
end

local function listed(self, indices)
  local values = {}
  for k = 1, #indices do values[k] = self:get(indices[k]) end
  return values
end

local TextColumn = class.new "TextColumn"

function TextColumn:init(texts, kind) self.texts, self.kind, self._count = texts, kind or "string", texts:len() end

function TextColumn:len() return self._count end

function TextColumn:get(i)
  local text, is_json = self.texts:get(i)
  if text == nil then return self.kind == "string" and "" or nil end
  if is_json and self.kind == "mixed" then return json.decode(text) end
  return text
end

TextColumn.take = listed

local ListColumn = class.new "ListColumn"

function ListColumn:init(list, count) self.list, self.kind, self._count = list, "list", count end

function ListColumn:len() return self._count end

function ListColumn:get(i) return self.list[i + 1] end

ListColumn.take = listed

-- Some rows of a column, in an order.
local PlacedColumn = class.new "PlacedColumn"

function PlacedColumn:init(inner, at) self.inner, self.at, self.kind = inner, at, inner.kind end

function PlacedColumn:len() return #self.at end

function PlacedColumn:get(i) return self.inner:get(self.at[i + 1]) end

function PlacedColumn:take(indices)
  local places = {}
  for k = 1, #indices do places[k] = self.at[indices[k] + 1] end
  return self.inner:take(places)
end

-- Return the kind of all values of a list: "string", "int64", "float64", "bool", "tensor", else nil.
local function kind_of(list, count)
  local kind
  for i = 1, count do
    local value, this = list[i], type(list[i])
    if this == "number" then
      this = value % 1 == 0 and math.abs(value) <= 2 ^ 53 and "int64" or "float64"
    elseif this == "boolean" then
      this = "bool"
    elseif C.is_tensor(value) then
      this = "tensor"
    elseif this ~= "string" then
      return nil
    end
    if kind and kind ~= this then
      local numbers = (kind == "int64" or kind == "float64") and (this == "int64" or this == "float64")
      if not numbers then return nil end
      this = "float64"
    end
    kind = this
  end
  return kind
end

local function same_shape(list, count)
  local first = list[1]
  local shape = arguments.shape_text(first)
  for i = 2, count do
    local item = list[i]
    if item.dtype ~= first.dtype or item.device ~= first.device or arguments.shape_text(item) ~= shape then
      return false
    end
  end
  return true
end

local numeric = {bool = "boolean", float32 = "number", float64 = "number", int32 = "number", int64 = "number"}

-- Can all values be elements of a tensor of this dtype?
local function fits(list, count, dtype)
  local wanted = numeric[dtype]
  for i = 1, count do
    if type(list[i]) ~= wanted then return false end
  end
  return count > 0
end

--- Values as a batch has them: a tensor where all are numbers, booleans or tensors of one shape, else the table.
---@param list any[]
---@param count integer where the list may have holes
---@param kind? string their kind, where it is known: a dtype
function column.values(list, count, kind)
  if kind and numeric[kind] and fits(list, count, kind) then return C.tensor(list, {dtype = kind, device = "cpu"}) end
  kind = kind_of(list, count)
  if kind == "tensor" then return same_shape(list, count) and C.stack(list, 0) or list end
  if not kind or kind == "string" then return list end
  return C.tensor(list, {dtype = kind, device = "cpu"})
end

--- The rows of a column at these places.
---@param at integer[] from 0
---@return table
function column.at(inner, at) return PlacedColumn(inner, at) end

--- The column of a table of values: a tensor of numbers, of booleans or of tensors of one shape, packed strings, else
--- the values unchanged.
---@param list any[]
---@param count? integer where the list may have holes
---@return table
function column.of_list(list, count)
  count = count or #list
  local kind = kind_of(list, count)
  if kind == "string" then return TextColumn(C.data.texts(list)) end
  if kind == "tensor" and same_shape(list, count) then return TensorColumn(C.stack(list, 0):detach()) end
  if kind and kind ~= "tensor" then return TensorColumn(C.tensor(list, {dtype = kind, device = "cpu"})) end
  return ListColumn(list, count)
end

--- The column of a tensor's rows.
---@param tensor userdata [n, ...]
---@return table
function column.of_tensor(tensor) return TensorColumn(tensor) end

--- The types that a column of a file can be declared with.
column.types = {"bool", "float32", "float64", "int32", "int64", "string"}

--- Return the column of a file's values: texts of kind "string" or "mixed", or a tensor.
---@param values userdata
---@return table
function column.of_file(values, kind)
  return C.is_tensor(values) and TensorColumn(values) or TextColumn(values, kind)
end

--- Return the values of a column for a batch: the result of take, a table collated as by a loader.
---@param self table a column
function column.batch(self, indices)
  local values = self:take(indices)
  if C.is_tensor(values) or self.kind == "string" then return values end
  for k = 1, #indices do
    if values[k] == nil then arguments.fail("DataLoader: row %d has a column without a value", indices[k]) end
  end
  return collate.values(values)
end

return column
