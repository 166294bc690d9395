--- The base of metrics: add batches, which are not stored, and compute the result from the counts.
--
-- A subclass declares its parameters and columns, and has _count(columns), which adds a batch's rows to
-- self._counts, an object with clear(), state() (a float64 tensor, one row for each thing counted) and
-- merge(state), and _result(counts, options), a table of results by name.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local WaitingBatches = require "accelhost.metrics.waiting"

local fail, describe = arguments.fail, arguments.describe

--- The base class of metrics: add_batch adds rows, compute returns the results and resets the metric.
local Metric = class.new "Metric"

-- The columns that each batch has, and those that it may have.
Metric._columns, Metric._more_columns = {"predictions", "references"}, {"sample_weight"}

-- Make a class of metrics. The last parameter of each is `accelerator`.
local function define(name, parameters)
  local made = Metric:extend(name)
  parameters[#parameters + 1] = {"accelerator: accelerator", nil,
    "each process adds its own rows and gets the number of all"}
  made._read = arguments.signature(name, parameters)
  made._options = {}
  for i, parameter in ipairs(parameters) do
    made._options[i] = (type(parameter) == "table" and parameter[1] or parameter):match "^[%w_]+"
  end
  return made
end

-- The values of the options by name.
function Metric:_named(...)
  local values, options = {self._read(...)}, {}
  for i, name in ipairs(self._options) do options[name] = values[i] end
  -- One class, or a table of them; an empty table is that of no options.
  if type(options.labels) == "number" then options.labels = {options.labels} end
  if options.labels and #options.labels == 0 then options.labels = nil end
  if self._check then self:_check(options) end
  return options
end

function Metric:init(...)
  self._given = self:_named(...)
  self:reset()
end

-- A column's tensor as a vector of int64 (classes) or float64.
local function vector(self, name, value, is_label)
  if is_label and value.dtype:find "float" then
    fail("%s: %s: expected the numbers of classes, got a %s tensor of shape %s (scores:argmax(-1) makes them)",
      self._name, name, value.dtype, arguments.shape_text(value))
  end
  if value:dim() > 1 then
    fail("%s: %s: expected one value for each row, got a tensor of shape %s (%s)", self._name, name,
      arguments.shape_text(value), "flatten() makes rows of all elements")
  end
  return value:detach():to {dtype = is_label and "int64" or "float64"}:reshape(-1)
end

-- A column as a table of numbers.
local function listed(self, name, value, is_label)
  local list = value
  if C.is_tensor(value) then
    list = vector(self, name, value, is_label):to("cpu"):tolist()
  elseif type(value) ~= "table" or getmetatable(value) ~= nil then
    fail("%s: %s: expected a tensor or a table of numbers, got %s", self._name, name, describe(value))
  else
    list = {}
    for i = 1, #value do
      local item = value[i]
      if is_label and type(item) == "boolean" then item = item and 1 or 0 end
      if type(item) ~= "number" or is_label and item % 1 ~= 0 then
        fail("%s: %s: expected %s, item %d is %s", self._name, name, is_label and "the numbers of classes" or "numbers",
          i, describe(value[i]))
      end
      list[i] = item
    end
  end
  return list
end

-- The column of a row's value.
local columns_by_row = {prediction = "predictions", reference = "references", loss = "losses", count = "counts"}

-- Is a column one of classes?
Metric._labels = {predictions = true, references = true}

-- Are all columns of the batch on one device other than the CPU?
local function is_far(batch, known)
  local place
  for _, name in ipairs(known) do
    local value = batch[name]
    local device = C.is_tensor(value) and value.device or value ~= nil and "cpu"
    if device == "cpu" or device and place and device ~= place then return false end
    place = place or device
  end
  return place ~= nil
end

-- Return the columns of a batch, tables of numbers, or copied vectors where all are on a device, and a flag: are they?
local function columns_of(self, batch)
  local known, columns = {}, {}
  for _, name in ipairs(self._columns) do known[#known + 1] = name end
  for _, name in ipairs(self._more_columns) do known[#known + 1] = name end
  arguments.check_names(self._name .. ": add_batch", batch, known)
  for _, name in ipairs(self._columns) do
    if batch[name] == nil then fail("%s: add_batch: '%s' is missing", self._name, name) end
  end
  local kept, first, far = self._given.accelerator, self._columns[1], is_far(batch, known)
  local function count(column) return far and column:numel() or #column end
  for _, name in ipairs(known) do
    local value = batch[name]
    if value ~= nil then
      local column = (far and vector or listed)(self, name, value, self._labels[name])
      if kept then column = kept:keep_for_metrics(column) end
      columns[name] = far and column:clone() or column
      if count(column) ~= count(columns[first]) then
        fail("%s: %s has %d rows, %s %d", self._name, first, count(columns[first]), name, count(column))
      end
    end
  end
  return columns, far
end

function Metric:_read_waiting()
  self._waiting:read(function(columns) self:_count(columns) end)
end

--- Count a batch's rows: tensors or tables of numbers, one value a row. Tensors on a device are read when the metric is
--- computed, so that the device is not waited for at every batch.
--
--   local metric = metrics.accuracy()
--   metric:add_batch{predictions = accelhost.tensor({1, 0}, {dtype = "int64"}), references = {1, 1}}
--   print(metric:compute().accuracy)  --> 0.5
---@param batch table {predictions =, references =, sample_weight = (optional)}; of perplexity {losses =, counts =}
function Metric:add_batch(batch)
  local columns, far = columns_of(self, batch)
  if far then self._waiting:add(columns) end
  if not far or self._waiting.is_full then self:_read_waiting() end
  if not far then self:_count(columns) end
end

--- Count one row.
--
--   local metric = metrics.accuracy()
--   metric:add{prediction = 1, reference = 1}
--   print(metric:compute().accuracy)  --> 1
---@param row table {prediction =, reference =}
function Metric:add(row)
  local batch = {}
  if type(row) ~= "table" then fail("%s: add: expected a table, got %s", self._name, describe(row)) end
  for _, name in ipairs(arguments.sorted_keys(row)) do batch[columns_by_row[name] or name] = {row[name]} end
  self:add_batch(batch)
end

--- The results by name, of all that was counted since the metric was made or computed before; the metric is empty then.
-- A batch may be given here, and any option of the metric, for this time. With an accelerator it is a collective, and
-- every process gets the same numbers.
--
--   metrics.f1():compute{predictions = {0, 1, 1}, references = {1, 1, 0}, average = "micro"}
---@param options? table a batch's columns and options of the metric
---@return table<string, any>
function Metric:compute(options)
  local batch, given, own = {}, {}, {}
  for _, name in ipairs(self._options) do given[name], own[name] = self._given[name], name ~= "accelerator" end
  if options ~= nil and type(options) ~= "table" then
    fail("%s: compute: expected a table of columns and options, got %s", self._name, describe(options))
  end
  for name, value in pairs(options or {}) do
    if own[name] then given[name] = value else batch[name] = value end
  end
  given = self:_named(given)
  if next(batch) ~= nil then self:add_batch(batch) end
  self:_read_waiting()
  local counts = self._counts
  if given.accelerator then
    local state = given.accelerator:gather(counts:state())
    counts = self:_new_counts()
    counts:merge(state)
  end
  if counts:is_empty() then fail("%s: compute: no row was added", self._name) end
  local result = self:_result(counts, given)
  self:reset()
  return result
end

--- Reset the counts.
function Metric:reset()
  self._counts, self._waiting = self:_new_counts(), WaitingBatches()
end

return {Metric = Metric, define = define}
