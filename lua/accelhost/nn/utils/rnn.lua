--- accelhost.nn.utils.rnn: sequences of unequal lengths in one batch.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

local fail, describe, shape_text = arguments.fail, arguments.describe, arguments.shape_text

local rnn = {}

--- Sequences of a batch, step by step, the longest first: step t has the first batch_sizes[t] of them.
--
--   nn.utils.rnn.pack_sequence{a, accelhost.tensor{9}}.batch_sizes  --> tensor([2, 1, 1])
---@field data Tensor [sum of batch_sizes, ...]
---@field batch_sizes Tensor int64 [steps], on the CPU
---@field sorted_indices Tensor? index of the sequence at each position
---@field unsorted_indices Tensor? the place of each sequence
local PackedSequence = class.new "PackedSequence"
rnn.PackedSequence = PackedSequence

function PackedSequence:init(data, batch_sizes, sorted_indices, unsorted_indices)
  arguments.check("PackedSequence", "data", "tensor", data)
  arguments.check("PackedSequence", "batch_sizes", "tensor", batch_sizes)
  self.data, self.batch_sizes = data, batch_sizes
  self.sorted_indices, self.unsorted_indices = sorted_indices, unsorted_indices
end

function PackedSequence:__tostring()
  return ("PackedSequence(data=%s, batch_sizes=%s)"):format(tostring(self.data), tostring(self.batch_sizes))
end

--- The same with its data converted, as tensor:to does.
---@return PackedSequence
function PackedSequence:to(...)
  return PackedSequence(self.data:to(...), self.batch_sizes, self.sorted_indices, self.unsorted_indices)
end

--- Is this a PackedSequence?
--
--   nn.utils.rnn.is_packed(a)  --> false
function rnn.is_packed(value)
  return type(value) == "table" and getmetatable(value) == PackedSequence
end

-- An int64 tensor of a list, on `device` (default: the CPU).
local function int64(list, device) return C.tensor(list, {dtype = "int64", device = device or "cpu"}) end

-- Lengths as a Lua table, each within 1..steps.
local function lengths_of(what, lengths, count, steps)
  local list = C.is_tensor(lengths) and lengths:tolist() or lengths
  if type(list) ~= "table" or #list ~= count then
    fail("%s: expected %d lengths, one for each sequence, got %s", what, count,
      type(list) == "table" and #list or describe(lengths))
  end
  for i, length in ipairs(list) do
    if type(length) ~= "number" or length % 1 ~= 0 or length < 1 or length > steps then
      fail("%s: length %d is %s, expected an integer from 1 to %d", what, i - 1, describe(length), steps)
    end
  end
  return list
end

--- Pack padded sequences.
--
--   nn.utils.rnn.pack_padded_sequence(x:t(), {4, 2}).batch_sizes  --> tensor([2, 2, 1, 1])
---@param input Tensor [steps, batch, ...], with batch_first [batch, steps, ...]
---@param lengths Tensor a tensor or a table of integers; falling unless enforce_sorted is false
---@return PackedSequence
rnn.pack_padded_sequence = arguments.named("pack_padded_sequence", {
  "input: tensor", "lengths: tensor|list", {"batch_first: flag", false}, {"enforce_sorted: flag", true},
}, function(what, input, lengths, batch_first, enforce_sorted)
  if input:dim() < 2 then
    fail("pack_padded_sequence: expected an input of at least 2 dims, got %s", shape_text(input))
  end
  if batch_first then input = input:transpose(0, 1) end
  local steps, batch = input:size(0), input:size(1)
  lengths = lengths_of(what, lengths, batch, steps)
  local order, place = {}, {}
  for i = 1, batch do order[i] = i end
  if enforce_sorted then
    for i = 2, batch do
      if lengths[i] > lengths[i - 1] then
        fail("pack_padded_sequence: the lengths do not fall: %d after %d (enforce_sorted = false sorts them)",
          lengths[i], lengths[i - 1])
      end
    end
  else
    table.sort(order, function(a, b)
      if lengths[a] ~= lengths[b] then return lengths[a] > lengths[b] end
      return a < b
    end)
  end
  local rows, sizes = {}, {}
  for t = 1, lengths[order[1]] do
    local count = 0
    while count < batch and lengths[order[count + 1]] >= t do
      count = count + 1
      rows[#rows + 1] = (t - 1) * batch + order[count] - 1
    end
    sizes[t] = count
  end
  local data = input:flatten(0, 1):index_select(0, int64(rows, input.device))
  if enforce_sorted then return PackedSequence(data, int64(sizes)) end
  local sorted = {}
  for i, sequence in ipairs(order) do sorted[i], place[sequence] = sequence - 1, i - 1 end
  return PackedSequence(data, int64(sizes), int64(sorted, input.device), int64(place, input.device))
end)

--- The inverse of pack_padded_sequence.
--
--   local padded, lengths = nn.utils.rnn.pad_packed_sequence(nn.utils.rnn.pack_sequence{a, accelhost.tensor{9}})
--   lengths  --> tensor([3, 1])
---@param sequence PackedSequence
---@return Tensor padded [steps, batch, ...], with batch_first [batch, steps, ...]
---@return Tensor lengths int64 [batch]
rnn.pad_packed_sequence = arguments.checked("pad_packed_sequence", {
  "sequence: any", {"batch_first: flag", false}, {"padding_value: number", 0}, {"total_length: count"},
}, function(sequence, batch_first, padding_value, total_length)
  if not rnn.is_packed(sequence) then
    fail("pad_packed_sequence: sequence: expected a PackedSequence, got %s", describe(sequence))
  end
  local sizes, data = sequence.batch_sizes:tolist(), sequence.data
  local batch, steps = sizes[1], total_length or #sizes
  if steps < #sizes then
    fail("pad_packed_sequence: total_length %d is less than the longest sequence, %d", steps, #sizes)
  end
  local place = sequence.unsorted_indices and sequence.unsorted_indices:tolist()
  local rows, lengths, first, padding = {}, {}, 0, data:size(0)
  for i = 1, batch do lengths[i] = 0 end
  for t = 1, steps do
    for i = 1, batch do
      local at = place and place[i] or i - 1
      local there = at < (sizes[t] or 0)
      rows[#rows + 1] = there and first + at or padding
      if there then lengths[i] = t end
    end
    first = first + (sizes[t] or 0)
  end
  local shape = data:shape()
  shape[1] = 1
  local with_padding = C.cat({data, C.full(shape, padding_value, {dtype = data.dtype, device = data.device})}, 0)
  table.remove(shape, 1)
  local padded = with_padding:index_select(0, int64(rows, data.device)):reshape(steps, batch, unpack(shape))
  return batch_first and padded:transpose(0, 1) or padded, int64(lengths)
end)

--- Tensors [length, ...] of unequal lengths as one, the shorter ones filled up.
--
--   nn.utils.rnn.pad_sequence({a, accelhost.tensor{9}}, {batch_first = true})[1]  --> tensor([9., 0., 0.])
---@return Tensor [longest, count, ...], with batch_first [count, longest, ...]
rnn.pad_sequence = arguments.checked("pad_sequence", {
  "sequences: list", {"batch_first: flag", false}, {"padding_value: number", 0},
  {"padding_side: 'right'|'left'", "right"},
}, function(sequences, batch_first, padding_value, side)
  local longest = 0
  if #sequences == 0 then fail "pad_sequence: expected at least one sequence" end
  for i, sequence in ipairs(sequences) do
    if not C.is_tensor(sequence) or sequence:dim() == 0 then
      fail("pad_sequence: sequence %d: expected a tensor of at least 1 dim, got %s", i, describe(sequence))
    end
    longest = math.max(longest, sequence:size(0))
  end
  local padded = {}
  for i, sequence in ipairs(sequences) do
    local shape = sequence:shape()
    shape[1] = longest - shape[1]
    local fill = C.full(shape, padding_value, {dtype = sequence.dtype, device = sequence.device})
    padded[i] = C.cat(side == "right" and {sequence, fill} or {fill, sequence}, 0)
  end
  return C.stack(padded, batch_first and 0 or 1)
end)

--- Pack tensors [length, ...] of unequal lengths.
--
--   nn.utils.rnn.pack_sequence{a, accelhost.tensor{9}}.data  --> tensor([1., 9., 2., 3.])
---@return PackedSequence
rnn.pack_sequence = arguments.checked("pack_sequence", {
  "sequences: list", {"enforce_sorted: flag", true},
}, function(sequences, enforce_sorted)
  local lengths = {}
  for i, sequence in ipairs(sequences) do lengths[i] = C.is_tensor(sequence) and sequence:size(0) or 0 end
  return rnn.pack_padded_sequence(rnn.pad_sequence(sequences), lengths, {enforce_sorted = enforce_sorted})
end)

--- The tensors that pad_sequence was given.
--
--   nn.utils.rnn.unpad_sequence(x, {4, 2}, {batch_first = true})[2]  --> tensor([-5.,  6.])
---@return Tensor[]
rnn.unpad_sequence = arguments.named("unpad_sequence", {
  "padded_sequences: tensor", "lengths: tensor|list", {"batch_first: flag", false},
}, function(what, padded, lengths, batch_first)
  if not batch_first then padded = padded:transpose(0, 1) end
  lengths = lengths_of(what, lengths, padded:size(0), padded:size(1))
  local list = {}
  for i, length in ipairs(lengths) do list[i] = padded:select(0, i - 1):narrow(0, 0, length) end
  return list
end)

--- The tensors that pack_sequence was given.
--
--   local list = nn.utils.rnn.unpack_sequence(nn.utils.rnn.pack_sequence{accelhost.ones(2), accelhost.ones(1)})
--   list[2]  --> tensor([1.])
---@param packed_sequences PackedSequence
---@return Tensor[]
rnn.unpack_sequence = arguments.checked("unpack_sequence", {"packed_sequences: any"}, function(packed)
  if not rnn.is_packed(packed) then
    fail("unpack_sequence: packed_sequences: expected a PackedSequence, got %s", describe(packed))
  end
  local padded, lengths = rnn.pad_packed_sequence(packed, {batch_first = true})
  return rnn.unpad_sequence(padded, lengths, {batch_first = true})
end)

--- The permutation that undoes another.
--
--   nn.utils.rnn.invert_permutation(accelhost.tensor({2, 0, 1}, {dtype = "int64"}))  --> tensor([1, 2, 0])
---@param permutation userdata int64 [n], each of 0..n-1 once
---@return userdata
rnn.invert_permutation = arguments.checked("invert_permutation", {"permutation: tensor"}, function(permutation)
  local places = C.arange(permutation:size(0), {dtype = "int64", device = permutation.device})
  return C.empty_like(permutation):scatter_(0, permutation, places)
end)

return rnn
