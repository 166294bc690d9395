--- The loss of connectionist temporal classification.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autocast = require "accelhost.util.autocast"
local reduction = require "accelhost.nn.functional.reduction"

local fail, shape_text = arguments.fail, arguments.shape_text
local F = {}

-- One length for each of `count` sequences, as int64 where `like` is.
local function lengths_of(name, lengths, count, like)
  if type(lengths) == "number" then lengths = {lengths} end
  local options = {dtype = "int64", device = like.device}
  local tensor = C.is_tensor(lengths) and lengths:to "int64":to(like.device) or C.tensor(lengths, options)
  if tensor:numel() ~= count or tensor:dim() > 1 then
    fail("ctc_loss: %s: expected %d lengths, got %s", name, count,
      C.is_tensor(lengths) and shape_text(lengths) or #lengths .. " numbers")
  end
  return tensor:reshape(count)
end

-- Targets that follow each other in one row, as rows of the longest one's length.
local function rows_of(targets, lengths)
  local starts, longest, total = {}, 0, 0
  for n, length in ipairs(lengths) do
    starts[n], longest, total = total, math.max(longest, length), total + math.max(length, 0)
  end
  if total ~= targets:size(0) then
    fail("ctc_loss: targets: expected the %d labels that target_lengths add up to, got %d", total, targets:size(0))
  end
  if longest == 0 then return targets:new_zeros {#lengths, 0} end
  local places = {}
  for n, length in ipairs(lengths) do
    for k = 0, longest - 1 do places[#places + 1] = k < length and starts[n] + k or 0 end
  end
  local index = C.tensor(places, {dtype = "int64", device = targets.device})
  return targets:index_select(0, index):view(#lengths, longest)
end

local read = arguments.signature("ctc_loss", {
  "log_probs: tensor", "targets: tensor", "input_lengths: tensor|sizes", "target_lengths: tensor|sizes",
  {"blank: integer", 0}, reduction.row, {"zero_infinity: flag", false},
})

--- Connectionist temporal classification (Graves et al., 2006): -log of the probability of all alignments of a target
-- with the steps of a sequence. log_probs is [T, N, C] or [T, C], as of log_softmax; targets are classes other
-- than `blank`, [N, S] padded, or all of them in one row; lengths are tensors or tables of N integers. "mean" divides
-- each loss by its target's length first. A sequence too short for its target costs inf, or 0 with zero_infinity.
-- Gradients are PyTorch's, which assume that log_probs is the result of log_softmax.
---@return userdata # [N] (0-dim for [T, C]), or reduced
function F.ctc_loss(...)
  local log_probs, targets, input_lengths, target_lengths, blank, how, zero_infinity = read(...)
  local dims = log_probs:dim()
  if dims ~= 2 and dims ~= 3 then
    fail("ctc_loss: log_probs: expected shape (T, N, C) or (T, C), got %s", shape_text(log_probs))
  end
  if targets:is_floating_point() or targets:dim() < 1 or targets:dim() > 2 then
    fail("ctc_loss: targets: expected integers (N, S) or one row of them, got %s %s", targets.dtype,
      shape_text(targets))
  end
  local x = dims == 3 and log_probs or log_probs:unsqueeze(1)
  local count = x:size(1)
  input_lengths = lengths_of("input_lengths", input_lengths, count, x)
  target_lengths = lengths_of("target_lengths", target_lengths, count, x)
  targets = targets:to "int64"
  if targets:dim() == 1 then targets = rows_of(targets, target_lengths:tolist()) end
  local loss = C.ctc(x, targets, input_lengths, target_lengths, blank, zero_infinity)
  if how == "mean" then return (loss / target_lengths:clamp_min(1):to(loss.dtype)):mean() end
  return reduction.reduce(dims == 3 and loss or loss:squeeze(0), how)
end

autocast(F, "float32", "ctc_loss", "own")

return F
