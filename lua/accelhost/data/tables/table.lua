--- Data sets by columns, with the words of Hugging Face's datasets: data.Table and data.load_dataset.
--
--   local reviews = data.Table{text = {"fine", "bad", "good"}, label = {1, 0, 1}}
--   print(reviews:filter(function(row) return row.label == 1 end).num_rows)  --> 2
--
-- Numbers are stored in tensors and texts in one buffer, so that a column of a million sentences costs its bytes. A
-- table never changes: each method returns another one, which shares the columns.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local column = require "accelhost.data.tables.column"
local dataset = require "accelhost.data.sets.dataset"

local fail, describe, signature = arguments.fail, arguments.describe, arguments.signature
local sets = {}

---@field column_names string[] in order
---@field num_rows integer
---@field computes boolean? do its batches run a function, which a loader's worker can do?
local Table = dataset.Dataset:extend "Table"
sets.Table = Table

local read = signature("Table", {"columns: table", {"column_names: list"}})

-- Set the fields; `at` is the rows' places in the columns, nil for all.
local function fill(self, names, columns, at)
  self.column_names, self._columns, self._at = names, columns, at
  self.num_rows = at and #at or names[1] and columns[names[1]]:len() or 0
end

--- A data set of columns: each a tensor [n, ...] or a table of values, by name.
--
--   local set = data.Table({text = {"fine", "bad"}, label = {1, 0}}, {"text", "label"})
--   print(#set, set:get(0).text, set:get(1).label)  --> 2  fine  0
---@param columns table<string, userdata|any[]>
---@param column_names? string[] their order, default sorted
function Table:init(...)
  local given, names = read(...)
  names = names or arguments.sorted_keys(given)
  local columns = {}
  for _, name in ipairs(names) do
    local values = given[name]
    if C.is_tensor(values) and values:dim() > 0 then
      columns[name] = column.of_tensor(values:detach())
    elseif type(values) == "table" and getmetatable(values) == nil then
      columns[name] = column.of_list(values)
    else
      fail("Table: column '%s': expected a tensor or a table of values, got %s", tostring(name), describe(values))
    end
    if columns[name]:len() ~= columns[names[1]]:len() then
      fail("Table: column '%s' has %d rows, column '%s' %d", tostring(name), columns[name]:len(), names[1],
        columns[names[1]]:len())
    end
  end
  for _, name in ipairs(arguments.sorted_keys(given)) do
    if not columns[name] then fail("Table: column '%s' is missing in column_names", tostring(name)) end
  end
  fill(self, names, columns)
end

--- Make a table of existing columns, as the methods do.
---@param columns table<string, table>
---@param at? integer[]
---@param format? table how rows are given (data/tables/table_format.lua)
---@return Table
function sets.of(names, columns, at, format)
  local made = Table:_blank()
  fill(made, names, columns, at)
  made._format, made.computes = format, format and format.computes
  return made
end

-- The column of a name.
local function column_of(self, what, name)
  local found = type(name) == "string" and self._columns[name]
  if not found then
    fail("%s: there is no column %s (there are: %s)%s", what, describe(name), table.concat(self.column_names, ", "),
      type(name) == "string" and arguments.did_you_mean(name, self.column_names) or "")
  end
  return found
end

sets.column_of = column_of

-- The places of rows from 0 in the columns; without `indices` those of all.
local function places(self, what, indices)
  local at, result = self._at, {}
  for k = 1, indices and #indices or self.num_rows do
    local i = indices and indices[k] or k - 1
    if type(i) ~= "number" or i % 1 ~= 0 or i < 0 or i >= self.num_rows then
      fail("%s: index %s is out of range (0 to %d)", what, tostring(i), self.num_rows - 1)
    end
    result[k] = at and at[i + 1] or i
  end
  return result
end

sets.places = places

function Table:len() return self.num_rows end

function Table:extra_repr()
  return ("columns=[%s], num_rows=%d"):format(table.concat(self.column_names, ", "), self.num_rows)
end

--- Row i, counted from 0: a table of its values by column; set[i] is the same. A whole number, true or false and a text
--- are Lua's, a value of more than one element is a tensor, and a value that a row of JSON has not is nil.
--
--   data.Table({label = {3, 4}})[1].label  --> 4
---@return table<string, any>
function Table:get(i)
  if type(i) ~= "number" or i % 1 ~= 0 or i < 0 or i >= self.num_rows then
    fail("Table: index %s is out of range (0 to %d)", tostring(i), self.num_rows - 1)
  end
  local place, row = self._at and self._at[i + 1] or i, {}
  if self._format then return self._format:row(self, place) end
  for _, name in ipairs(self.column_names) do row[name] = self._columns[name]:get(place) end
  return row
end

--- The rows of these indices as a loader collates them: by column a tensor, or a table of texts.
---@return table<string, any>
function Table:rows(indices)
  local at, batch = places(self, "Table", indices), {}
  if self._format then return self._format:rows(self, at) end
  for _, name in ipairs(self.column_names) do batch[name] = column.batch(self._columns[name], at) end
  return batch
end

--- A column: a tensor, or a table of texts or other values.
--
--   data.Table{label = {3, 4}}:column("label")  --> tensor([3, 4])
---@return userdata|any[]
function Table:column(name)
  return column_of(self, "column", name):take(places(self, "column"))
end

--- Return the kind of each column: a dtype, "string", "mixed" (JSON values of several kinds) or "list".
--
--   print(data.Table{label = {3, 4}}:features().label)  --> int64
---@return table<string, string>
function Table:features()
  local kinds = {}
  for _, name in ipairs(self.column_names) do kinds[name] = self._columns[name].kind end
  return kinds
end

local function names_without(self, what, removed)
  local names, is_removed = {}, {}
  for _, name in ipairs(type(removed) == "table" and removed or {removed}) do
    column_of(self, what, name)
    is_removed[name] = true
  end
  for _, name in ipairs(self.column_names) do
    if not is_removed[name] then names[#names + 1] = name end
  end
  return names
end

sets.names_without = names_without

--- Without some columns.
--
--   print(data.Table{a = {1}, b = {2}}:remove_columns("a"))  --> Table(columns=[b], num_rows=1)
---@return Table
function Table:remove_columns(column_names)
  return sets.of(names_without(self, "remove_columns", column_names), self._columns, self._at, self._format)
end

--- With some columns only, in this order.
---@return Table
function Table:select_columns(column_names)
  local names = type(column_names) == "table" and arguments.copy(column_names) or {column_names}
  for _, name in ipairs(names) do column_of(self, "select_columns", name) end
  return sets.of(names, self._columns, self._at, self._format)
end

--- With another name for a column.
--
--   print(data.Table{a = {1}}:rename_column("a", "labels").column_names[1])  --> labels
---@return Table
function Table:rename_column(original_column_name, new_column_name)
  local found = column_of(self, "rename_column", original_column_name)
  arguments.check("rename_column", "new_column_name", "string", new_column_name)
  local names, columns = {}, {}
  for i, name in ipairs(self.column_names) do
    if name == new_column_name then fail("rename_column: there is a column '%s' already", name) end
    names[i] = name == original_column_name and new_column_name or name
    columns[names[i]] = name == original_column_name and found or self._columns[name]
  end
  return sets.of(names, columns, self._at, self._format)
end

--- Return the distinct values of a column, in the order of their first rows.
--
--   data.Table{label = {3, 4, 3}}:unique("label")  --> {3, 4}
---@return any[]
function Table:unique(name)
  local found, seen, values = column_of(self, "unique", name), {}, {}
  for _, place in ipairs(places(self, "unique")) do
    local value = found:get(place)
    if value ~= nil and value == value and not seen[value] then
      seen[value] = true
      values[#values + 1] = value
    end
  end
  return values
end

require "accelhost.data.tables.table_order"(sets)
require "accelhost.data.tables.table_map"(sets)
require "accelhost.data.tables.table_format"(sets)

return sets
