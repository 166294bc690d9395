--- Dropout of whole channels, and SELU's. Each accepts the option `generator`, from which the mask is then drawn.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail, signature = arguments.fail, arguments.signature
local F = {}

--- `unbatched`: the number of dims of an input whose first dim is the channel; otherwise the second is.
local function channel_dropout(what, low, high, unbatched)
  local read = signature(what,
    {"input: tensor", {"p: probability", 0.5}, {"training: flag", true}, {"inplace: flag", false},
      {"generator: generator"}})
  return function(...)
    local input, p, training, inplace, generator = read(...)
    if input:dim() < low or input:dim() > high then
      fail("%s: expected an input of %d or %d dims, got %d", what, low, high, input:dim())
    end
    if not training or p == 0 then return input end
    local sizes = input:shape()
    for d = input:dim() == unbatched and 2 or 3, input:dim() do sizes[d] = 1 end
    local keep = p == 1 and input:new_zeros(sizes)
      or input:new_empty(sizes):bernoulli_(1 - p, {generator = generator}):div_(1 - p)
    return inplace and input:mul_(keep) or input * keep
  end
end

--- Zero whole channels of [N, C, L] or [C, L].
--
--   F.dropout1d(images[0], {training = false}):size(-1)  --> 28
F.dropout1d = channel_dropout("dropout1d", 2, 3, 2)
--- Zero whole channels of [N, C, H, W]. As in PyTorch, three dims are [N, C, L].
--
--   F.dropout2d(images, 0.5):size(-1)  --> 28
F.dropout2d = channel_dropout("dropout2d", 3, 4)

--- Zero whole channels of [N, C, D, H, W] or [C, D, H, W].
--
--   F.dropout3d(images:unsqueeze(2), 0.5):size(-1)  --> 28
F.dropout3d = channel_dropout("dropout3d", 4, 5, 4)

-- The value that replaces dropped elements: SELU's for minus infinity.
local DROPPED = -1.7580993408473766

--- Dropout that keeps the mean and the variance of SELU's outputs: dropped elements become -1.758, and all are scaled
-- and moved (Klambauer et al., 2017). `noise_of` returns the random numbers, one number for each element or channel.
--
--   F.alpha_dropout(a)  --> tensor([1., 2., 3.])
local function alpha_dropout(what, noise_of)
  local read = signature(what,
    {"input: tensor", {"p: probability", 0.5}, {"training: flag", false}, {"inplace: flag", false},
      {"generator: generator"}})
  return function(...)
    local input, p, training, inplace, generator = read(...)
    if not training or p == 0 or input:numel() == 0 then return input end
    local scale, shift
    if p == 1 then
      scale, shift = input:new_zeros {}, input:new_zeros {}
    else
      local a = 1 / math.sqrt((DROPPED * DROPPED * p + 1) * (1 - p))
      local kept = noise_of(input):bernoulli_(1 - p, {generator = generator})
      scale, shift = kept * a, (kept - 1) * (-DROPPED * a) - DROPPED * a * p
    end
    if inplace then return input:mul_(scale):add_(shift) end
    return input * scale + shift
  end
end

--- Alpha dropout of single elements, off unless training = true.
F.alpha_dropout = alpha_dropout("alpha_dropout", function(input) return C.empty_like(input) end)

--- Alpha dropout of whole channels of [N, C, ...], off unless training = true.
--
--   F.feature_alpha_dropout(images):size(-1)  --> 28
F.feature_alpha_dropout = alpha_dropout("feature_alpha_dropout", function(input)
  if input:dim() < 2 then fail("feature_alpha_dropout: expected an input of at least 2 dims, got %d", input:dim()) end
  local sizes = input:shape()
  for d = 3, #sizes do sizes[d] = 1 end
  return input:new_empty(sizes)
end)

return F
