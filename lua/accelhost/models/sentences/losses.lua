--- Losses of sentence-transformers: each is made with a model and called with a list of features, one for each column
--- of the texts, and, where it needs them, labels.
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local distributed = require "accelhost.distributed"
local Module = require("accelhost.nn.module").Module

local fail = arguments.fail
local losses = {}

-- Return the embeddings of each column.
local function embed(self, columns, least, most)
  if type(columns) ~= "table" or #columns < least or #columns > (most or math.huge) then
    fail("%s: expected a list of the features of %d%s columns of texts, got %s", self._name, least,
      most and "" or " or more", type(columns) == "table" and #columns or arguments.describe(columns))
  end
  local found = {}
  for i, features in ipairs(columns) do found[i] = self.model(features).sentence_embedding end
  return found
end

local function unit(x) return F.normalize(x, {dim = 1}) end

local scores = {
  cos_sim = function(a, b) return unit(a):matmul(unit(b):t()) end,
  dot_score = function(a, b) return a:matmul(b:t()) end,
}

--- Cross entropy of each anchor's similarities: its positive against the positives of the other anchors and all
--- negatives. Columns: anchors, positives and any number of negatives.
--
--   | local loss_of = models.MultipleNegativesRankingLoss(model)
--   | loss_of{model:tokenize(questions), model:tokenize(answers)}:backward()
---@param model SentenceTransformer
---@param scale? number factor of the similarities (default 20)
---@param similarity_fct? string "cos_sim" (the default) or "dot_score"
---@param gather_across_devices? boolean compare anchors with the positives and negatives of all processes, which have
--- equal numbers of texts; needs an accelerator or init_process_group
local MultipleNegatives = Module:extend "MultipleNegativesRankingLoss"
losses.MultipleNegativesRankingLoss = MultipleNegatives

local set_ranking = arguments.signature("MultipleNegativesRankingLoss",
  {"model: any", {"scale: number", 20}, {"similarity_fct: 'cos_sim'|'dot_score'", "cos_sim"},
    {"gather_across_devices: flag", false}})

function MultipleNegatives:init(...)
  self.model, self.scale, self.similarity_fct, self.gather_across_devices = set_ranking(...)
end

---@param columns table[] features of anchors, positives, negatives
---@param labels? Tensor ignored
---@return Tensor
function MultipleNegatives:forward(columns, labels) -- luacheck: ignore 212
  local vectors = embed(self, columns, 2)
  local anchors = table.remove(vectors, 1)
  local targets = C.arange(anchors:size(0), {device = anchors.device})
  if self.gather_across_devices then
    for i, column in ipairs(vectors) do vectors[i] = C.cat(distributed.nn.all_gather(column), 0) end
    targets = targets + distributed.get_rank() * anchors:size(0)
  end
  local similarity = scores[self.similarity_fct](anchors, C.cat(vectors, 0)) * self.scale
  return F.cross_entropy(similarity, targets)
end

--- Mean squared error of the cosine of two columns' embeddings.
--
--   | models.CosineSimilarityLoss(model)({model:tokenize(first), model:tokenize(second)}, accelhost.tensor{1, 0.3})
---@param model SentenceTransformer
local Cosine = Module:extend "CosineSimilarityLoss"
losses.CosineSimilarityLoss = Cosine

function Cosine:init(model) self.model = model end

---@param columns table[] features of both columns
---@param labels Tensor [texts]
---@return Tensor
function Cosine:forward(columns, labels)
  local vectors = embed(self, columns, 2, 2)
  return F.mse_loss(F.cosine_similarity(vectors[1], vectors[2]), labels:reshape(-1):to(vectors[1].dtype))
end

local distances = {
  euclidean = function(a, b) return (a - b):norm(2, 1) end,
  manhattan = function(a, b) return (a - b):abs():sum(1) end,
  cosine = function(a, b) return (unit(a) * unit(b)):sum(1) * -1 + 1 end,
}

--- Mean of max(0, margin + the distance to the positive - the distance to the negative). Columns: anchors, positives,
--- negatives.
--
--   | models.TripletLoss(model, {triplet_margin = 1}){anchors, positives, negatives}
---@param model SentenceTransformer
---@param distance_metric? string "euclidean" (the default), "manhattan" or "cosine"
local Triplet = Module:extend "TripletLoss"
losses.TripletLoss = Triplet

local set_triplet = arguments.signature("TripletLoss",
  {"model: any", {"distance_metric: 'euclidean'|'manhattan'|'cosine'", "euclidean"}, {"triplet_margin: number", 5}})

function Triplet:init(...)
  self.model, self.distance_metric, self.triplet_margin = set_triplet(...)
end

---@param columns table[] features of anchors, positives, negatives
---@param labels? Tensor ignored
---@return Tensor
function Triplet:forward(columns, labels) -- luacheck: ignore 212
  local vectors = embed(self, columns, 3, 3)
  local distance = distances[self.distance_metric]
  local difference = distance(vectors[1], vectors[2]) - distance(vectors[1], vectors[3])
  return C.relu(difference + self.triplet_margin):mean()
end

return losses
