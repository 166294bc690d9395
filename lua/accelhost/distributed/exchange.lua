--- All-to-all: every process sends every other a part of its data.
--
-- Parts may have any size. Where sizes are given all processes first exchange the sizes that they send and
-- expect, so that a contradiction is an error that names both on every process.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local collectives = require "accelhost.distributed.collectives"
local groups = require "accelhost.distributed.groups"
local fail, shape_text = arguments.fail, arguments.shape_text
local no_grad = C.autograd.no_grad

local exchange = {}

-- Return the sizes that every process sends to each (row by row), after comparing them with those they expect.
local function agree(what, group, given, expected, unit)
  local size = group:size()
  local own = C.tensor({given, expected}, {dtype = "int64", device = "cpu"})
  local all = own:new_empty({size, 2, size})
  group.native:collective("all_gather", all, own)
  local table_of, counts = all:tolist(), {}
  for from = 1, size do
    for to = 1, size do
      local gives, takes = table_of[from][1][to], table_of[to][2][from]
      if gives ~= takes then
        fail("%s: rank %d sends rank %d %d %s, which expects %d", what, group.ranks[from], group.ranks[to], gives,
          unit, takes)
      end
      counts[#counts + 1] = gives
    end
  end
  return counts
end

local read_single = arguments.signature("distributed.all_to_all_single", {
  "output: tensor", "input: tensor", {"output_split_sizes: list"}, {"input_split_sizes: list"}, {"group: group"},
  {"async_op: flag", false},
})

-- Sizes along dim 0, as given or equal ones.
local function read_splits(what, name, splits, tensor, size)
  local rows, sum = tensor:dim() == 0 and 1 or tensor:size(0), 0
  if not splits then
    if rows % size ~= 0 then fail("%s: dim 0 of %s does not divide by %d processes", what, shape_text(tensor), size) end
    splits = {}
    for i = 1, size do splits[i] = rows / size end
    return splits
  end
  if #splits ~= size then fail("%s: %s: expected %d sizes, got %d", what, name, size, #splits) end
  for _, count in ipairs(splits) do
    arguments.check(what, name, "size", count)
    sum = sum + count
  end
  if sum ~= rows then
    fail("%s: %s: expected sizes that add up to dim 0 of %s, got %d", what, name, shape_text(tensor), sum)
  end
  return splits
end

--- Cut dim 0 of the input into a part for each process; the output holds, in rank order, the parts that all sent to
--- this one. Parts are equal, or of the sizes that are given, on all processes or on none.
--
--   dist.all_to_all_single(accelhost.empty(4), accelhost.ones(4))
--   dist.all_to_all_single(accelhost.empty(4), accelhost.ones(4), {4}, {4})
---@param output userdata written
---@param input userdata of one dtype and one shape beyond dim 0 on all processes
---@param output_split_sizes? integer[] sizes received from each process
---@param input_split_sizes? integer[] sizes sent to each process
function exchange.all_to_all_single(...)
  local what = "distributed.all_to_all_single"
  local output, input, output_splits, input_splits, group, async = read_single(...)
  group = groups.resolve(what, group)
  if not group then return end
  local size = group:size()
  if output.dtype ~= input.dtype then
    fail("%s: expected tensors of one dtype, got %s and %s", what, output.dtype, input.dtype)
  end
  local given = read_splits(what, "input_split_sizes", input_splits, input, size)
  local expected = read_splits(what, "output_split_sizes", output_splits, output, size)
  if not output_splits and not input_splits then
    if output:numel() ~= input:numel() then
      fail("%s: output %s is not as large as input %s", what, shape_text(output), shape_text(input))
    end
    return collectives.run(group, "all_to_all", output, input, {}, async, output)
  end
  local inner = 1
  for d = 1, input:dim() - 1 do inner = inner * input:size(d) end
  local counts = agree(what, group, given, expected, "rows")
  for i = 1, #counts do counts[i] = counts[i] * inner end
  return collectives.run(group, "all_to_all_ragged", output, input, {counts = counts}, async, output)
end

local read_lists = arguments.signature("distributed.all_to_all", {
  "output_tensor_list: tensor_list", "input_tensor_list: tensor_list", {"group: group"}, {"async_op: flag", false},
})

local function numels(list)
  local counts, total = {}, 0
  for i, tensor in ipairs(list) do
    counts[i] = tensor:numel()
    total = total + counts[i]
  end
  return counts, total
end

local function check_lists(what, size, lists)
  local dtype = lists[1][2][1] and lists[1][2][1].dtype
  for _, row in ipairs(lists) do
    local name, list = row[1], row[2]
    if #list ~= size then fail("%s: %s: expected %d tensors, one for each process, got %d", what, name, size, #list) end
    for i, tensor in ipairs(list) do
      if tensor.dtype ~= dtype then
        fail("%s: %s: expected tensors of one dtype, got %s and %s", what, name, dtype, tensor.dtype)
      end
    end
  end
end

--- Send each process a tensor and receive one from each. Tensors may have any shape; a tensor that a process sends must
--- have the size that its receiver expects.
--
--   dist.all_to_all({accelhost.empty(4)}, {accelhost.ones(4)})
---@param output_tensor_list userdata[] one for each process; written
---@param input_tensor_list userdata[] one for each process
function exchange.all_to_all(...)
  local what = "distributed.all_to_all"
  local outputs, inputs, group, async = read_lists(...)
  group = groups.resolve(what, group)
  if not group then return end
  check_lists(what, group:size(), {{"output_tensor_list", outputs}, {"input_tensor_list", inputs}})
  local expected, room = numels(outputs)
  local counts = agree(what, group, (numels(inputs)), expected, "elements")
  local out = outputs[1]:new_empty({room})
  local given = collectives.joined(inputs)
  return collectives.run(group, "all_to_all_ragged", out, given, {counts = counts}, async, outputs, function()
    no_grad(function()
      local at = 0
      for _, tensor in ipairs(outputs) do
        tensor:copy_(out:narrow(0, at, tensor:numel()):reshape(tensor:shape()))
        at = at + tensor:numel()
      end
    end)
  end)
end

return exchange
