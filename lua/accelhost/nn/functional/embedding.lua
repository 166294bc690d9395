--- Embeddings: rows of a table by number, and sums, means and maxima of bags of them.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail, shape_text, signature, named = arguments.fail, arguments.shape_text, arguments.signature, arguments.named
local F = {}

-- The rows that are used are cut to the length max_norm, in the table itself.
local function renorm(weight, input, max_norm, norm_type)
  if input:numel() == 0 then return end
  C.autograd.no_grad(function()
    local used = C.unique(input:reshape(-1))
    local rows = weight:index_select(0, used)
    local lengths = C.norm(rows, norm_type, 1, true)
    weight:index_copy_(0, used, rows * C.where(lengths:gt(max_norm), max_norm / (lengths + 1e-7), 1))
  end)
end

-- The same rows, with gradients divided by the number of uses of a row in the batch.
local function scaled_by_frequency(rows, input)
  local flat = input:reshape(-1):long()
  local times = C.bincount(flat):index_select(0, flat):reshape(input:shape()):unsqueeze(-1)
  local constant = rows:detach()
  return constant + (rows - constant) / times
end

local function refuse_sparse(what, sparse)
  if sparse then fail("%s: sparse: there are no sparse tensors here; gradients are dense", what) end
end

--- Rows of weight [rows, width] by number (from 0): [..., width] for integers of any shape. The row padding_idx gets no
-- gradient. With max_norm the rows that are used are first cut to that norm_type-norm, in weight itself. sparse = true
-- is refused.
F.embedding = named("embedding", {
  "input: tensor", "weight: tensor", {"padding_idx: integer"}, {"max_norm: positive"}, {"norm_type: number", 2},
  {"scale_grad_by_freq: flag", false}, {"sparse: flag", false},
}, function(what, input, weight, padding_idx, max_norm, norm_type, by_frequency, sparse)
  refuse_sparse(what, sparse)
  if max_norm then renorm(weight, input, max_norm, norm_type) end
  local rows = C.embedding(input, weight, padding_idx)
  return by_frequency and scaled_by_frequency(rows, input) or rows
end)

-- Return the begin and end of each bag in a row of numbers, from 0.
local function bags_of(input, offsets, include_last)
  if not offsets or offsets:dim() ~= 1 then
    fail("embedding_bag: a one-dimensional input needs offsets of one dim%s", offsets and ", got "
      .. shape_text(offsets) or "")
  end
  local starts, total = offsets:tolist(), input:size(0)
  if include_last and #starts == 0 then fail("embedding_bag: include_last_offset needs at least one offset") end
  if #starts > 0 and starts[1] ~= 0 then fail("embedding_bag: offsets: expected 0 as the first, got %d", starts[1]) end
  if not include_last then starts[#starts + 1] = total end
  for i = 2, #starts do
    if starts[i] < starts[i - 1] or starts[i] > total then
      fail("embedding_bag: offsets: expected rising numbers up to %d, got %d after %d", total, starts[i], starts[i - 1])
    end
  end
  return starts
end

-- The elements [B, longest] of bags as positions in the input, and which of them are none.
local function padded_bags(starts, device)
  local longest, places, absent = 1, {}, {}
  for b = 1, #starts - 1 do longest = math.max(longest, starts[b + 1] - starts[b]) end
  for b = 1, #starts - 1 do
    for k = 0, longest - 1 do
      local inside = starts[b] + k < starts[b + 1]
      places[#places + 1], absent[#absent + 1] = inside and starts[b] + k or 0, not inside
    end
  end
  local function table_of(list, dtype)
    return C.tensor(list, {dtype = dtype, device = device}):reshape(#starts - 1, longest)
  end
  return table_of(places, "int64"), table_of(absent, "bool")
end

-- rows [B, L, width], `absent` [B, L]: the largest of each bag, 0 where there is none.
local function largest(rows, absent)
  local none = absent:logical_not():any(1, true)
  local values = C.max_dim(rows:masked_fill(absent:unsqueeze(-1), -math.huge), 1)
  return values:masked_fill(none:logical_not(), 0)
end

-- Sums of rows [L, width] by bag, and the number of rows of each bag, without the rows where `absent` [L] is true.
local function summed(rows, absent, starts)
  local bag, count = {}, #starts - 1
  for b = 1, count do
    for _ = starts[b], starts[b + 1] - 1 do bag[#bag + 1] = b - 1 end
  end
  rows, absent = rows:narrow(0, 0, #bag), absent:narrow(0, 0, #bag)
  bag = C.tensor(bag, {dtype = "int64", device = rows.device})
  local sums = rows:new_zeros({count, rows:size(1)}):index_add(0, bag, rows:masked_fill(absent:unsqueeze(-1), 0))
  return sums, rows:new_zeros({count}):index_add(0, bag, absent:logical_not():to(rows.dtype))
end

-- Sums or means of bags, without the rows that are summed.
local function folded(input, weight, starts, mode, weights, padding_idx)
  local options, flat = {dtype = "int64", device = input.device}, input:reshape(-1)
  local bounds = starts and C.tensor(starts, options) or C.arange(input:size(0) + 1, options) * input:size(1)
  local sums = C.bag_sum(flat, weight, bounds, weights and weights:reshape(-1), padding_idx)
  if mode == "sum" then return sums end
  local counts = math.max(input:size(-1), 1) -- of each bag where bags are the rows of the input
  if starts or padding_idx then
    counts = C.bag_sum(flat, weight:new_ones({weight:size(0), 1}), bounds, nil, padding_idx):clamp_min(1)
  end
  local means = sums / counts
  sums:free()
  return means
end

local read_bag = signature("embedding_bag", {
  "input: tensor", "weight: tensor", {"offsets: tensor"}, {"max_norm: positive"}, {"norm_type: number", 2},
  {"scale_grad_by_freq: flag", false}, {"mode: 'sum'|'mean'|'max'", "mean"}, {"sparse: flag", false},
  {"per_sample_weights: tensor"}, {"include_last_offset: flag", false}, {"padding_idx: integer"},
})

local function check_bag(input, offsets, by_frequency, mode, sparse, weights)
  refuse_sparse("embedding_bag", sparse)
  if input:dim() ~= 1 and input:dim() ~= 2 then
    fail("embedding_bag: expected an input (B, L) or (L,), got %s", shape_text(input))
  end
  if input:dim() == 2 and offsets then
    fail("embedding_bag: offsets: expected none for an input (B, L), whose rows are the bags")
  end
  if by_frequency and mode == "max" then fail("embedding_bag: scale_grad_by_freq does not go with mode 'max'") end
  if weights and mode ~= "sum" then fail("embedding_bag: per_sample_weights need mode 'sum', got '%s'", mode) end
  if weights and not C.same_shape(weights, input) then
    fail("embedding_bag: per_sample_weights: expected the input's shape %s, got %s", shape_text(input),
      shape_text(weights))
  end
end

--- The sum, mean or maximum of bags of rows of weight [rows, width]: every row of input [B, L] is a bag, or every part
-- of input [L] between two `offsets` (the last ends at the end, or at the last offset with include_last_offset).
-- Rows padding_idx do not count; the result of an empty bag is zeros. per_sample_weights scale the rows of a sum.
---@return userdata # [B, width]
function F.embedding_bag(...)
  local input, weight, offsets, max_norm, norm_type, by_frequency, mode, sparse, weights, include_last, padding_idx =
    read_bag(...)
  check_bag(input, offsets, by_frequency, mode, sparse, weights)
  local starts = input:dim() == 1 and bags_of(input, offsets, include_last)
  if padding_idx and padding_idx < 0 then padding_idx = padding_idx + weight:size(0) end
  if mode ~= "max" and not by_frequency then
    if max_norm then renorm(weight, input, max_norm, norm_type) end
    return folded(input, weight, starts, mode, weights, padding_idx)
  end
  local rows = F.embedding(input, weight, padding_idx, max_norm, norm_type, by_frequency)
  local absent = C.eq(input, padding_idx or -1)
  if weights then rows = rows * weights:unsqueeze(-1) end
  if mode == "max" then
    if not starts then return largest(rows, absent) end
    local places, outside = padded_bags(starts, input.device)
    local flat = places:view(-1)
    local bags = rows:index_select(0, flat):view(places:size(0), places:size(1), rows:size(1))
    return largest(bags, absent:index_select(0, flat):view(places:shape()):logical_or(outside))
  end
  local sums, counts
  if starts then
    sums, counts = summed(rows, absent, starts)
  else
    sums = (padding_idx and rows:masked_fill(absent:unsqueeze(-1), 0) or rows):sum(1)
    counts = absent:logical_not():sum(1):to(rows.dtype)
  end
  return mode == "sum" and sums or sums / counts:clamp_min(1):unsqueeze(-1)
end

return F
