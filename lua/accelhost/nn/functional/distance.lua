--- Lengths, distances and angles of vectors.
local C = require "accelhost._C"
local signature = require("accelhost.util.arguments").signature

local F = {}

local read_normalize = signature("normalize",
  {"input: tensor", {"p: number", 2}, {"dim: integer", 1}, {"eps: number", 1e-12}})
--- input / max(|input|_p, eps) along a dim.
function F.normalize(...)
  local input, p, dim, eps = read_normalize(...)
  return input / C.norm(input, p, dim, true):clamp_min(eps)
end

-- x over its norm, which is taken for at least eps; the gradient is that of the norm itself.
local function unit(x, dim, eps)
  local length = C.norm(x, 2, dim, true):clone()
  C.autograd.no_grad(function() length:clamp_min_(eps) end)
  return x / length
end

local read_cosine = signature("cosine_similarity",
  {"x1: tensor", "x2: tensor", {"dim: integer", 1}, {"eps: number", 1e-8}})
--- x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along a dim of the shape that both broadcast to.
function F.cosine_similarity(...)
  local x1, x2, dim, eps = read_cosine(...)
  local shape = (x1:detach() + x2:detach()):shape()
  return (unit(x1:expand(shape), dim, eps) * unit(x2:expand(shape), dim, eps)):sum(dim)
end

local read_pairwise = signature("pairwise_distance",
  {"x1: tensor", "x2: tensor", {"p: number", 2}, {"eps: number", 1e-6}, {"keepdim: flag", false}})
--- |x1 - x2 + eps|_p over the last dim.
function F.pairwise_distance(...)
  local x1, x2, p, eps, keepdim = read_pairwise(...)
  return C.norm(x1 - x2 + eps, p, -1, keepdim)
end

return F
