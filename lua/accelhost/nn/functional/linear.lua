--- Products with weights other than the op `linear`.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autocast = require "accelhost.util.autocast"

local fail, shape_text, signature = arguments.fail, arguments.shape_text, arguments.signature
local F = {}

local read_bilinear = signature("bilinear", {"input1: tensor", "input2: tensor", "weight: tensor", {"bias: tensor"}})
--- x1^T W[o] x2 + b[o] for every row of input1 [..., in1] and input2 [..., in2], with weight [out, in1, in2].
--
--   F.bilinear(x, y, accelhost.ones(5, 4, 2)):size(1)  --> 5
function F.bilinear(...)
  local x1, x2, weight, bias = read_bilinear(...)
  local fits = weight:dim() == 3 and x1:dim() > 0 and x1:dim() == x2:dim() and x1:size(-1) == weight:size(1) and
    x2:size(-1) == weight:size(2)
  local sizes = x1:shape()
  for d = 1, fits and #sizes - 1 or 0 do fits = fits and sizes[d] == x2:size(d - 1) end
  if not fits then
    fail("bilinear: inputs %s and %s do not fit weight %s: expected (..., in1) and (..., in2) for (out, in1, in2)",
      shape_text(x1), shape_text(x2), shape_text(weight))
  end
  local out, in1, in2 = unpack(weight:shape())
  sizes[#sizes] = out
  x1, x2 = x1:reshape(-1, in1), x2:reshape(-1, in2)
  -- [N, 1, in1] x [out, in1, in2] -> [out, N, in2], times x2, summed over in2.
  local products = C.matmul(x1:unsqueeze(0), weight) * x2:unsqueeze(0)
  local y = products:sum(-1, {dtype = products.dtype}):transpose(0, 1)
  return (bias and y + bias or y):reshape(sizes)
end

autocast(F, "none", "bilinear", "widest")

return F
