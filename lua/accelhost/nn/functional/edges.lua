--- The parts of a convolution's padding: zeros on both sides, which the op pads itself, and an explicit padding of its
--- input.
local edges = {}

--- `padding` is "same", "valid" or a table of numbers; `kernel` and `dilation` are tables, one number for each dim.
---@param padding string|integer[]
---@param kernel integer[]
---@param dilation integer[]
---@param zeros boolean are the edges zeros?
---@return integer[] pads for the convolution
---@return integer[]? edges as for F.pad, where the convolution cannot make them
function edges.place(padding, kernel, dilation, zeros)
  local dims, symmetric, pads, around = #kernel, true, {}, {}
  for d = 1, dims do
    local total = 0
    if padding == "same" then
      total = dilation[d] * (kernel[d] - 1)
    elseif type(padding) == "table" then
      total = 2 * padding[d]
    end
    symmetric = symmetric and total % 2 == 0
    local before = math.floor(total / 2)
    pads[d] = before
    around[2 * (dims - d) + 1], around[2 * (dims - d) + 2] = before, total - before
  end
  if symmetric and zeros then return pads, nil end
  for d = 1, dims do pads[d] = 0 end
  return pads, around
end

return edges
