--- Dropout of whole channels.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail, signature = arguments.fail, arguments.signature
local F = {}

--- `unbatched`: the number of dims of an input whose first dim is the channel; otherwise the second is.
local function channel_dropout(what, low, high, unbatched)
  local read = signature(what,
      {"input: tensor", {"p: probability", 0.5}, {"training: flag", true}, {"inplace: flag", false}})
  return function(...)
    local input, p, training, inplace = read(...)
    if input:dim() < low or input:dim() > high then
      fail("%s: expected an input of %d or %d dims, got %d", what, low, high, input:dim())
    end
    if not training or p == 0 then return input end
    local sizes = input:shape()
    for d = input:dim() == unbatched and 2 or 3, input:dim() do sizes[d] = 1 end
    local keep = C.dropout(input:new_ones(sizes), p, true)
    return inplace and input:mul_(keep) or input * keep
  end
end

--- Zero whole channels of [N, C, L] or [C, L].
F.dropout1d = channel_dropout("dropout1d", 2, 3, 2)
--- Zero whole channels of [N, C, H, W]. As in PyTorch, three dims are [N, C, L].
F.dropout2d = channel_dropout("dropout2d", 3, 4)

return F
