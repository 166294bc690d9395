--- Distances and angles of vectors as modules.
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local Module = require("accelhost.nn.module").Module

local distance = {}

--- The cosine of the angle between the vectors along a dim; F.cosine_similarity has the formula.
--
--   nn.CosineSimilarity(0)(a, a)  --> tensor(1.0000)
local CosineSimilarity = Module:extend "CosineSimilarity"
distance.CosineSimilarity = CosineSimilarity
CosineSimilarity.init = arguments.setter("CosineSimilarity", {{"dim: integer", 1}, {"eps: number", 1e-8}})

function CosineSimilarity:forward(x1, x2)
  return F.cosine_similarity(x1, x2, self.dim, self.eps)
end

--- |x1 - x2 + eps|_p over the last dim.
--
--   nn.PairwiseDistance()(accelhost.zeros(1, 2), accelhost.tensor{{3, 4}}):round()  --> tensor([5.])
local PairwiseDistance = Module:extend "PairwiseDistance"
distance.PairwiseDistance = PairwiseDistance
PairwiseDistance.init = arguments.setter("PairwiseDistance",
  {{"p: number", 2}, {"eps: number", 1e-6}, {"keepdim: flag", false}})

function PairwiseDistance:forward(x1, x2)
  return F.pairwise_distance(x1, x2, self.p, self.eps, self.keepdim)
end

return distance
