--- Rarely used parts of nn.init: parameters as identities, sparse, truncated and orthogonal ones.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local warn = require "accelhost.util.warn"
local no_grad = require("accelhost.nn.skip").no_grad

local fail = arguments.fail
local init = {}

local function uniform(tensor, low, high, generator) return tensor:uniform_(low, high, {generator = generator}) end
local function normal(tensor, mean, std, generator) return tensor:normal_(mean, std, {generator = generator}) end

--- The identity matrix.
--
--   nn.init.eye_(accelhost.empty(2, 2))  --> tensor([[1., 0.],
--   -->         [0., 1.]])
init.eye_ = arguments.checked("eye_", {"tensor: tensor"}, function(tensor)
  if tensor:dim() ~= 2 then fail("eye_: expected 2 dims, got %d", tensor:dim()) end
  return no_grad(function()
    tensor:zero_()
    for i = 0, math.min(tensor:size(0), tensor:size(1)) - 1 do tensor[{i, i}] = 1 end
    return tensor
  end, tensor)
end)

--- The convolution that returns its input, as far as there are channels: [out, in, ...] with 3 to 5 dims.
--
--   nn.init.dirac_(conv.weight, {groups = 2})
---@param groups integer? default 1: each group of outputs on its own
---@return Tensor
init.dirac_ = arguments.checked("dirac_", {"tensor: tensor", {"groups: count", 1}}, function(tensor, groups)
  local dims = tensor:dim()
  if dims < 3 or dims > 5 then fail("dirac_: expected 3 to 5 dims, got %d", dims) end
  local sizes = tensor:shape()
  if sizes[1] % groups ~= 0 then
    fail("dirac_: expected groups to divide the %d outputs, got %d", sizes[1], groups)
  end
  return no_grad(function()
    tensor:zero_()
    local each = sizes[1] / groups
    for group = 0, groups - 1 do
      for channel = 0, math.min(each, sizes[2]) - 1 do
        local at = {group * each + channel, channel}
        for d = 3, dims do at[d] = math.floor(sizes[d] / 2) end
        tensor[at] = 1
      end
    end
    return tensor
  end, tensor)
end)

--- N(0, std^2) with a share of zeros in each column of a matrix (Martens, 2010). A generator draws the zeros' places
--- too, which PyTorch always draws from the global one.
--
--   nn.init.sparse_(accelhost.empty(4, 2), 0.5):count_nonzero()  --> tensor(4)
init.sparse_ = arguments.checked("sparse_", {
  "tensor: tensor", "sparsity: probability", {"std: nonnegative", 0.01}, {"generator: generator"},
}, function(tensor, sparsity, std, generator)
  if tensor:dim() ~= 2 then fail("sparse_: expected 2 dims, got %d", tensor:dim()) end
  return no_grad(function()
    local rows = tensor:size(0)
    local zeros = math.ceil(sparsity * rows)
    normal(tensor, 0, std, generator)
    for column = 0, tensor:size(1) - 1 do
      local chosen = C.randperm(rows, {generator = generator, device = tensor.device}):narrow(0, 0, zeros)
      tensor:select(1, column):index_fill_(0, chosen, 0)
    end
    return tensor
  end, tensor)
end)

local function normal_cdf(x)
  return (1 + C.tensor(x / math.sqrt(2), {dtype = "float64", device = "cpu"}):erf():item()) / 2
end

-- Normal draws; those outside [a, b] are drawn again, all together, until none is left.
local function redraw_normal(tensor, mean, std, a, b, generator)
  local low, high = C.full_like(tensor:detach(), a), C.full_like(tensor:detach(), b)
  normal(tensor, mean, std, generator)
  while true do
    local outside = tensor:lt(low):logical_or_(tensor:gt(high))
    if not outside:any():item() then return end
    tensor:copy_(C.where(outside, normal(C.empty_like(tensor), mean, std, generator), tensor))
  end
end

-- Uniform draws over [a, b], each accepted with its density over the largest one there.
local function accept_uniform(tensor, mean, std, a, b, generator)
  local peak = -0.5 * ((math.max(a, math.min(mean, b)) - mean) / std) ^ 2
  local candidates, pending = C.empty_like(tensor), nil
  repeat
    if pending then
      uniform(candidates, a, b, generator)
      tensor:copy_(C.where(pending, candidates, tensor))
    else
      candidates:copy_(uniform(tensor, a, b, generator))
    end
    local density = candidates:sub_(mean):div_(std):pow_(2):mul_(-0.5):sub_(peak)
    local rejected = uniform(C.empty_like(tensor), 0, 1, generator):log_():gt(density)
    pending = pending and pending:logical_and(rejected) or rejected
  until not pending:any():item()
end

--- N(mean, std^2) restricted to [a, b]: by rejection of normal draws, or of uniform ones where most would miss.
--
--   nn.init.trunc_normal_(accelhost.empty(100)):abs():le(2):all()  --> tensor(true)
init.trunc_normal_ = arguments.checked("trunc_normal_", {
  "tensor: tensor", {"mean: number", 0}, {"std: positive", 1}, {"a: number", -2}, {"b: number", 2},
  {"generator: generator"},
}, function(tensor, mean, std, a, b, generator)
  if mean < a - 2 * std or mean > b + 2 * std then
    warn("trunc_normal_: mean is more than 2 std from [a, b]; the distribution of values may be incorrect")
  end
  if tensor.device == "meta" then return tensor end -- no values to accept or to draw again
  return no_grad(function()
    local inside = normal_cdf((b - mean) / std) - normal_cdf((a - mean) / std)
    local draw = inside > 0.3 and redraw_normal or accept_uniform
    draw(tensor, mean, std, a, b, generator)
    return tensor
  end, tensor)
end)

--- A (semi-)orthogonal matrix, rows by the rest: Gram-Schmidt, run twice, of a normal sample.
--
--   nn.init.orthogonal_(accelhost.empty(1, 2)):norm():round()  --> tensor(1.)
init.orthogonal_ = arguments.checked("orthogonal_", {
  "tensor: tensor", {"gain: number", 1}, {"generator: generator"},
}, function(tensor, gain, generator)
  if tensor:dim() < 2 then fail("orthogonal_: expected at least 2 dims, got %d", tensor:dim()) end
  if tensor:numel() == 0 then return tensor end
  return no_grad(function()
    local rows = tensor:size(0)
    local cols = tensor:numel() / rows
    local flat = normal(tensor:new_empty {rows, cols}, 0, 1, generator)
    local vectors = (rows < cols and flat or flat:transpose(0, 1)):to("float64"):contiguous()
    for i = 0, vectors:size(0) - 1 do
      local v = vectors[i]
      for _ = 1, i > 0 and 2 or 0 do
        local basis = vectors:narrow(0, 0, i)
        v:sub_(basis:transpose(0, 1):matmul(basis:matmul(v)))
      end
      v:div_(v:mul(v):sum():sqrt())
    end
    local q = rows < cols and vectors or vectors:transpose(0, 1)
    tensor:copy_(q:reshape(tensor:shape()):to(tensor.dtype))
    return tensor:mul_(gain)
  end, tensor)
end)

return init
