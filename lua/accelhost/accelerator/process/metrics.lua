--- Gather and reduce the values of the processes.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local collectives = require "accelhost.accelerator.process.collectives"
local objects = require "accelhost.accelerator.process.objects"
local passes = require "accelhost.data.loader.passes"

local read_padding = arguments.signature("pad_across_processes",
  {"value: any", {"dim: integer", 0}, {"pad_index: number", 0}, {"pad_first: flag", false}})

-- Return the options at the end of the arguments, and the number of values before them.
local function options_of(what, ...)
  local count = select("#", ...)
  local last = count > 1 and select(count, ...)
  if last and arguments.is_options(last) and next(last) ~= nil then
    for name in pairs(last) do
      if name ~= "batch" and name ~= "use_gather_object" then return {}, count end
    end
    if last.use_gather_object ~= nil then
      arguments.check(what, "use_gather_object", "flag", last.use_gather_object)
    end
    return last, count - 1
  end
  return {}, count
end

-- Return the batch's length and its number of valid rows; nil when all are valid.
local function rows_of(self, batch)
  local rows
  if batch ~= nil then
    rows = passes.batch_of(batch)
    if not rows then
      arguments.fail("gather_for_metrics: batch: expected a value that a loader has yielded, got %s",
        arguments.describe(batch))
    end
  else
    local loader = self._prepared:active_loader()
    rows = loader and {length = loader.batch_length, valid = loader.valid_length}
  end
  return rows and rows.valid < rows.length and rows or nil
end

-- Has a value nothing but tensors in it?
local function is_tensors(value)
  if C.is_tensor(value) then return true end
  if type(value) ~= "table" then return false end
  for _, item in pairs(value) do
    if not is_tensors(item) then return false end
  end
  return next(value) ~= nil
end

-- Return the number of valid rows among `count`.
local function valid_of(count, rows)
  if not rows then return count end
  if count == 1 and rows.length ~= 1 then return math.min(1, rows.valid) end
  if count == rows.length or rows.valid == 0 then return math.min(count, rows.valid) end
  arguments.fail("gather_for_metrics: of this batch %d of %d rows count: expected a value for each row, got %d; gather "
    .. "accepts any number", rows.valid, rows.length, count)
end

-- The rows of a tensor that count.
local function kept(tensor, rows)
  if tensor:dim() == 0 then tensor = tensor:reshape(1) end
  local valid = valid_of(tensor:size(0), rows)
  return valid < tensor:size(0) and tensor:narrow(0, 0, valid) or tensor
end

-- The items of a list, or the rows of a tensor, that count.
local function list_of(what, value, rows)
  local list = {}
  if value == nil then arguments.fail("%s: expected a tensor, a list or another value, got nil", what) end
  if C.is_tensor(value) then
    for i, row in ipairs(kept(value, rows):detach():to({device = "cpu"}):unbind(0)) do list[i] = row end
  elseif type(value) == "table" and (value[1] ~= nil or next(value) == nil) then
    for i = 1, valid_of(#value, rows) do list[i] = value[i] end
  elseif valid_of(1, rows) == 1 then
    list[1] = value
  end
  return list
end

-- Methods of the Accelerator class.
local Accelerator = {}

--- Concatenate every process's tensor on dim 0, on every process; tables are traversed, scalars become length 1. The
--- sizes of dim 0 may differ, the others not. A collective.
--
--   accelerator:gather(a)              --> tensor([1., 2., 3.])
--   local losses, hits = accelerator:gather(a:sum(), b)
---@param ... userdata|table
---@return any ... one for each argument
function Accelerator:gather(...) -- luacheck: ignore self
  return collectives.map("gather", collectives.gather, ...)
end

--- The same as gather, without the rows that repeat others to fill a batch up: of n samples n are returned in a pass,
--- so that an accuracy is the data set's. The rows that count are those of the batch of the innermost `for` over a
--- prepared loader, or the one that `batch` names by a value of it. A scalar counts once for each process with a row
--- that counts. Where a value contains something else than tensors, and with use_gather_object, lists (and the rows
--- of tensors) are concatenated to one list. A collective.
--
--   local test, seen = accelerator:prepare(loader), 0
--   for x, y in test do seen = seen + accelerator:gather_for_metrics(y):size(0) end
--   print(seen)  --> 5
---@param ... userdata|table values, then perhaps options: {batch = any, use_gather_object = boolean}
---@return any ... one for each value
function Accelerator:gather_for_metrics(...)
  local options, count = options_of("gather_for_metrics", ...)
  if count == 0 then arguments.fail "gather_for_metrics: expected values, got nothing" end
  local rows = rows_of(self, options.batch)
  local results = {...}
  for i = 1, count do
    local value = results[i]
    if options.use_gather_object or not is_tensors(value) then
      results[i] = objects.concatenated("gather_for_metrics", list_of("gather_for_metrics", value, rows))
    else
      results[i] = collectives.map("gather_for_metrics", function(tensor)
        return collectives.gather(kept(tensor, rows))
      end, value)
    end
  end
  return unpack(results, 1, count)
end

--- Return this process's rows of gather_for_metrics, without a collective: for sums of one's own that
--- are reduced at the end of a pass.
--
--   for x, y in accelerator:prepare(loader) do assert(accelerator:keep_for_metrics(y):size(0) == y:size(0)) end
---@param ... userdata|table tensors, lists of values or tables of them, then perhaps options: {batch = any}
---@return any ... one for each value
function Accelerator:keep_for_metrics(...)
  local options, count = options_of("keep_for_metrics", ...)
  if count == 0 then arguments.fail "keep_for_metrics: expected values, got nothing" end
  local rows, results = rows_of(self, options.batch), {...}
  for i = 1, count do
    local value = results[i]
    if is_tensors(value) then
      results[i] = collectives.map("keep_for_metrics", function(tensor) return kept(tensor, rows) end, value)
    else
      results[i] = list_of("keep_for_metrics", value, rows)
    end
  end
  return unpack(results, 1, count)
end

--- Combine every process's tensor, on every process; tables are traversed. A collective.
--
--   accelerator:reduce(a, "mean")  --> tensor([1., 2., 3.])
---@param value userdata|table
---@param reduction? string default "sum"; or "mean", "max", "min", "product"
---@return any # of the value's form
function Accelerator:reduce(value, reduction) -- luacheck: ignore self
  return (collectives.map("reduce", function(tensor)
    return collectives.reduce(tensor, reduction or "sum")
  end, value))
end

--- Pad every process's tensor to the longest of all along a dim, for operations that need equal sizes; tables are
--- traversed. A collective.
--
--   accelerator:pad_across_processes(t, {dim = 1, pad_index = -1}):shape()  --> {2, 3}
---@param value userdata|table
---@param dim? integer from 0, or from the end
---@param pad_index? number the value of the new elements
---@param pad_first? boolean pad before the elements, not behind them
---@return any # of the value's form
function Accelerator:pad_across_processes(...) -- luacheck: ignore self
  local value, dim, pad_index, pad_first = read_padding(...)
  local options = {dim = dim, pad_index = pad_index, pad_first = pad_first}
  return (collectives.map("pad_across_processes", function(tensor)
    return collectives.pad(tensor, options)
  end, value))
end

return Accelerator
