--- Losses as modules; each calls the function of the same meaning in nn.functional.
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local distance = require "accelhost.nn.distance"
local Module = require("accelhost.nn.module").Module

local loss = {}

--- A loss class: its options become fields (tensors among them buffers, as in PyTorch) and are handed to F[name].
local function class(name, parameters, forward)
  local Class = Module:extend(name)
  local read = arguments.signature(name, parameters)
  function Class:init(...)
    local values = {read(...)}
    for i, parameter in ipairs(arguments.signatures[name]) do
      local key = parameter.name
      if key == "weight" or key == "pos_weight" then
        self:register_buffer(key, values[i])
      elseif key == "distance_function" then
        self[key] = values[i] or distance.PairwiseDistance()
      else
        self[key] = values[i]
      end
    end
  end
  Class.forward = forward
  loss[name] = Class
end

local reduction = {"reduction: 'none'|'mean'|'sum'", "mean"}

class("CrossEntropyLoss", {
  {"weight: tensor"}, {"ignore_index: integer", -100}, reduction, {"label_smoothing: probability", 0},
}, function(self, input, target)
  return F.cross_entropy(input, target, {weight = self.weight, ignore_index = self.ignore_index,
    reduction = self.reduction, label_smoothing = self.label_smoothing})
end)

class("NLLLoss", {{"weight: tensor"}, {"ignore_index: integer", -100}, reduction}, function(self, input, target)
  return F.nll_loss(input, target, {weight = self.weight, ignore_index = self.ignore_index,
    reduction = self.reduction})
end)

class("MSELoss", {reduction}, function(self, input, target)
  return F.mse_loss(input, target, {reduction = self.reduction})
end)

class("L1Loss", {reduction}, function(self, input, target)
  return F.l1_loss(input, target, {reduction = self.reduction})
end)

class("SmoothL1Loss", {reduction, {"beta: nonnegative", 1}}, function(self, input, target)
  return F.smooth_l1_loss(input, target, {reduction = self.reduction, beta = self.beta})
end)

class("HuberLoss", {reduction, {"delta: positive", 1}}, function(self, input, target)
  return F.huber_loss(input, target, {reduction = self.reduction, delta = self.delta})
end)

class("BCELoss", {{"weight: tensor"}, reduction}, function(self, input, target)
  return F.binary_cross_entropy(input, target, {weight = self.weight, reduction = self.reduction})
end)

class("BCEWithLogitsLoss", {{"weight: tensor"}, reduction, {"pos_weight: tensor"}}, function(self, input, target)
  return F.binary_cross_entropy_with_logits(input, target, {weight = self.weight, reduction = self.reduction,
    pos_weight = self.pos_weight})
end)

class("KLDivLoss", {
  {"reduction: 'none'|'mean'|'sum'|'batchmean'", "mean"}, {"log_target: flag", false},
}, function(self, input, target)
  return F.kl_div(input, target, {reduction = self.reduction, log_target = self.log_target})
end)

--- A loss whose call is F[fn] of its inputs, of which there are so many, and its options.
local function simple(name, fn, parameters, inputs)
  class(name, parameters, function(self, ...)
    local call, given, options = F[fn], select("#", ...), {}
    if given > inputs then arguments.fail("%s: expected %d arguments, got %d", name, inputs, given) end
    for i = 1, inputs do options[arguments.signatures[fn][i].name] = (select(i, ...)) end
    for _, parameter in ipairs(arguments.signatures[name]) do options[parameter.name] = self[parameter.name] end
    return call(options)
  end)
end

simple("MarginRankingLoss", "margin_ranking_loss", {{"margin: number", 0}, reduction}, 3)
simple("HingeEmbeddingLoss", "hinge_embedding_loss", {{"margin: number", 1}, reduction}, 2)
simple("SoftMarginLoss", "soft_margin_loss", {reduction}, 2)
simple("CosineEmbeddingLoss", "cosine_embedding_loss", {{"margin: number", 0}, reduction}, 3)
simple("MultiMarginLoss", "multi_margin_loss",
  {{"p: number", 1}, {"margin: number", 1}, {"weight: tensor"}, reduction}, 2)
simple("MultiLabelMarginLoss", "multilabel_margin_loss", {reduction}, 2)
simple("MultiLabelSoftMarginLoss", "multilabel_soft_margin_loss", {{"weight: tensor"}, reduction}, 2)
simple("TripletMarginLoss", "triplet_margin_loss",
  {{"margin: positive", 1}, {"p: number", 2}, {"eps: number", 1e-6}, {"swap: flag", false}, reduction}, 3)
simple("TripletMarginWithDistanceLoss", "triplet_margin_with_distance_loss",
  {{"distance_function: callable"}, {"margin: positive", 1}, {"swap: flag", false}, reduction}, 3)
simple("PoissonNLLLoss", "poisson_nll_loss",
  {{"log_input: flag", true}, {"full: flag", false}, {"eps: number", 1e-8}, reduction}, 2)
simple("GaussianNLLLoss", "gaussian_nll_loss", {{"full: flag", false}, {"eps: positive", 1e-6}, reduction}, 3)
simple("CTCLoss", "ctc_loss", {{"blank: integer", 0}, reduction, {"zero_infinity: flag", false}}, 4)

return loss
