--- Labels of models that predict each next token.
local C = require "accelhost._C"

local labels = {}

--- The class number that losses leave out.
labels.IGNORED = -100

--- Shift labels to the left, so that each token has the label of its successor; the last token of a row, which has
--- none, gets -100. Shifting the labels and not the logits spares a copy of the logits and one of their gradient.
---@param of Tensor [..., tokens], integers
---@return Tensor # [..., tokens] of the same dtype, int64 for uint8
function labels.next_tokens(of)
  local before, after = {}, {}
  for d = 1, of:dim() do before[d], after[d] = 0, 0 end
  before[#before], after[#after] = -1, 1
  if of.dtype == "uint8" then of = of:to "int64" end
  return C.constant_pad(of, before, after, labels.IGNORED)
end

return labels
