--- Lengths, distances and angles of vectors.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autocast = require "accelhost.util.autocast"
local autograd = require "accelhost.autograd"

local checked = arguments.checked
local F = {}

--- input / max(|input|_p, eps) along a dim.
--
--   F.normalize(accelhost.tensor{3, 4}, {dim = 0})  --> tensor([0.6000, 0.8000])
F.normalize = checked("normalize", {
  "input: tensor", {"p: number", 2}, {"dim: integer", 1}, {"eps: number", 1e-12},
}, function(input, p, dim, eps)
  return input / C.norm(input, p, dim, true):clamp_min(eps)
end)

-- Return x over its norm, which counts as at least eps; the gradient is that of the norm itself.
local function unit(x, dim, eps)
  local length = C.norm(x, 2, dim, true):clone()
  C.autograd.no_grad(function() length:clamp_min_(eps) end)
  return x / length
end

--- x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along a dim of the shape that both broadcast to.
--
--   F.cosine_similarity(t, t)  --> tensor([1.0000, 1.0000])
F.cosine_similarity = checked("cosine_similarity", {
  "x1: tensor", "x2: tensor", {"dim: integer", 1}, {"eps: number", 1e-8},
}, function(x1, x2, dim, eps)
  if not C.same_shape(x1, x2) then
    local shape = (x1:detach() + x2:detach()):shape()
    x1, x2 = x1:expand(shape), x2:expand(shape)
  end
  local a, b = unit(x1, dim, eps), unit(x2, dim, eps)
  local product = a * b
  a:free()
  b:free()
  local result = product:sum(dim)
  product:free()
  return result
end)

--- |x1 - x2 + eps|_p over the last dim.
--
--   F.pairwise_distance(accelhost.zeros(1, 2), accelhost.tensor{{3, 4}}):round()  --> tensor([5.])
F.pairwise_distance = checked("pairwise_distance", {
  "x1: tensor", "x2: tensor", {"p: number", 2}, {"eps: number", 1e-6}, {"keepdim: flag", false},
}, function(x1, x2, p, eps, keepdim)
  local difference = x1 - x2
  difference = difference:is_floating_point() and difference:add_(eps) or difference + eps
  local distance = C.norm(difference, p, -1, keepdim)
  difference:free()
  return distance
end)

-- The same by ops that have derivatives.
local function pair_distances(input, p)
  local count = input:size(0)
  local above = C.triu(C.ones({count, count}, {dtype = "bool", device = input.device}), 1)
  local places = C.arange(count, {device = input.device})
  local function rows(list) return input:index_select(0, C.masked_select(list:expand(count, count), above)) end
  return C.norm(rows(places:unsqueeze(1)) - rows(places), p, 1)
end

local Pdist = autograd.Function:extend "pdist"

function Pdist.forward(ctx, input, p)
  ctx:save_for_backward(input)
  local distances = C.pair_distances(input, p)
  ctx.distances, ctx.p = distances:detach(), p
  return distances
end

function Pdist.backward(ctx, grad)
  local input = ctx.saved_tensors[1]
  if not C.autograd.is_grad_enabled() then return C.pair_distances_backward(grad, input, ctx.distances, ctx.p) end
  return C.autograd.grad({pair_distances(input, ctx.p)}, {input}, {grad_outputs = {grad}, create_graph = true})[1]
end

--- The distances |x_i - x_j|_p of all pairs of rows i < j of [N, D], in the order (0, 1), (0, 2), ...
--
--   F.pdist(accelhost.tensor{{0, 0}, {3, 4}})  --> tensor([5.])
---@return userdata # [N (N - 1) / 2]
F.pdist = checked("pdist", {"input: tensor", {"p: nonnegative", 2}}, function(input, p)
  if not (input.requires_grad and C.autograd.is_grad_enabled()) then return C.pair_distances(input, p) end
  return (Pdist.apply(input, p))
end)

autocast(F, "none", "cosine_similarity pdist", "float32")

return F
