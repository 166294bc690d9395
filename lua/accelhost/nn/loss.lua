--- Losses: each calls the function of the same meaning in nn.functional.
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local distance = require "accelhost.nn.distance"
local Module = require("accelhost.nn.module").Module

local loss = {}

-- A loss class: its options become fields (tensors among them buffers, as in PyTorch); its call is F[fn] of an input
-- and a target with them. Returns the class and a function that adds the options of an object to a table.
local function class(name, fn, parameters)
  local Class, names = Module:extend(name), nil
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
  local function add_options(self, options)
    names = names or arguments.signatures[name].names
    for i = 1, #names do options[names[i]] = self[names[i]] end
    return options
  end
  function Class:forward(input, target) return F[fn](input, target, add_options(self, {})) end
  loss[name] = Class
  return Class, add_options
end

local reduction = {"reduction: 'none'|'mean'|'sum'", "mean"}

--- The cross entropy between logits and classes: F.cross_entropy with its options. Input [N, C, ...]; target class
--- numbers [N, ...] (from 0) or probabilities [N, C, ...]. `weight` [C] is a buffer.
--
--   nn.CrossEntropyLoss()(accelhost.zeros(2, 3), labels)  --> tensor(1.0986)
class("CrossEntropyLoss", "cross_entropy", {
  {"weight: tensor"}, {"ignore_index: integer", -100}, reduction, {"label_smoothing: probability", 0},
})

--- The negative log likelihood of classes, from log probabilities [N, C, ...]: F.nll_loss with its options.
--
--   nn.NLLLoss()(accelhost.zeros(2, 3), labels)  --> tensor(0.)
class("NLLLoss", "nll_loss", {{"weight: tensor"}, {"ignore_index: integer", -100}, reduction})

--- The squared distance, element by element; `reduction`: its "mean" or "sum", or all elements ("none").
--
--   nn.MSELoss()(a, b)  --> tensor(9.)
class("MSELoss", "mse_loss", {reduction})

--- The absolute distance, element by element.
--
--   nn.L1Loss()(a, b)  --> tensor(3.)
class("L1Loss", "l1_loss", {reduction})

--- The absolute distance less beta / 2, but quadratic where it is below `beta`: F.smooth_l1_loss.
--
--   nn.SmoothL1Loss()(a, b)  --> tensor(2.5000)
class("SmoothL1Loss", "smooth_l1_loss", {reduction, {"beta: nonnegative", 1}})

--- delta times the absolute distance less delta^2 / 2, but quadratic where it is below `delta`: F.huber_loss.
--
--   nn.HuberLoss()(a, b)  --> tensor(2.5000)
class("HuberLoss", "huber_loss", {reduction, {"delta: positive", 1}})

--- The binary cross entropy of probabilities; the input is in [0, 1]. BCEWithLogitsLoss is safer.
--
--   nn.BCELoss()(accelhost.full({2}, 0.5), accelhost.ones(2))  --> tensor(0.6931)
class("BCELoss", "binary_cross_entropy", {{"weight: tensor"}, reduction})

--- The binary cross entropy of sigmoid(input), without overflow; `pos_weight` weighs the part of target 1.
--
--   nn.BCEWithLogitsLoss()(accelhost.zeros(2), accelhost.ones(2))  --> tensor(0.6931)
class("BCEWithLogitsLoss", "binary_cross_entropy_with_logits", {{"weight: tensor"}, reduction, {"pos_weight: tensor"}})

--- target (log target - input): the divergence of distributions, the input as logarithms. "batchmean" divides the sum
--- by the batch size, which is the mathematical one.
--
--   nn.KLDivLoss("sum")(accelhost.zeros(2), accelhost.ones(2))  --> tensor(0.)
class("KLDivLoss", "kl_div", {
  {"reduction: 'none'|'mean'|'sum'|'batchmean'", "mean"}, {"log_target: flag", false},
})

--- Define a loss whose call is F[fn] of its `inputs` inputs and its options.
local function simple(name, fn, parameters, inputs)
  local Class, add_options = class(name, fn, parameters)
  function Class:forward(...)
    local call, given, options = F[fn], select("#", ...), {}
    if given > inputs then arguments.fail("%s: expected %d arguments, got %d", name, inputs, given) end
    for i = 1, inputs do options[arguments.signatures[fn][i].name] = (select(i, ...)) end
    return call(add_options(self, options))
  end
end

--- max(0, -target (input1 - input2) + margin), with target 1 or -1: which of two inputs should be the larger.
--
--   nn.MarginRankingLoss()(a, b, accelhost.ones(3))  --> tensor(3.)
simple("MarginRankingLoss", "margin_ranking_loss", {{"margin: number", 0}, reduction}, 3)
--- The input where the target is 1, max(0, margin - input) where it is -1.
--
--   nn.HingeEmbeddingLoss()(a, accelhost.ones(3))  --> tensor(2.)
simple("HingeEmbeddingLoss", "hinge_embedding_loss", {{"margin: number", 1}, reduction}, 2)
--- log(1 + exp(-target input)), with target 1 or -1.
--
--   nn.SoftMarginLoss()(accelhost.zeros(2), accelhost.ones(2))  --> tensor(0.6931)
simple("SoftMarginLoss", "soft_margin_loss", {reduction}, 2)
--- 1 - cos of two vectors where the target is 1, max(0, cos - margin) where it is -1.
--
--   nn.CosineEmbeddingLoss()(t, t, accelhost.ones(2))  --> tensor(0.)
simple("CosineEmbeddingLoss", "cosine_embedding_loss", {{"margin: number", 0}, reduction}, 3)
--- The mean over wrong classes of max(0, margin - right + wrong)^p: input [N, C], target [N] (classes from 0).
--
--   nn.MultiMarginLoss()(accelhost.zeros(2, 4), labels)  --> tensor(0.7500)
simple("MultiMarginLoss", "multi_margin_loss",
  {{"p: number", 1}, {"margin: number", 1}, {"weight: tensor"}, reduction}, 2)

local set_multi_margin = loss.MultiMarginLoss.init

function loss.MultiMarginLoss:init(...)
  set_multi_margin(self, ...)
  if self.p ~= 1 and self.p ~= 2 then
    arguments.fail("MultiMarginLoss: p: expected 1 or 2, got %g", self.p)
  elseif self.weight and self.weight:dim() ~= 1 then
    arguments.fail("MultiMarginLoss: weight: expected a tensor of 1 dim, got %s", arguments.describe(self.weight))
  end
end

--- The margin loss with several classes for a sample: the target [N, C] has class numbers, -1 behind the last one.
--
--   local targets = accelhost.tensor({{1, -1, -1}}, {dtype = "int64"})
--   nn.MultiLabelMarginLoss()(accelhost.zeros(1, 3), targets)  --> tensor(0.6667)
simple("MultiLabelMarginLoss", "multilabel_margin_loss", {reduction}, 2)
--- The binary cross entropy of sigmoid(input) with a target for each class, averaged over the classes: [N, C] both.
--
--   nn.MultiLabelSoftMarginLoss()(accelhost.zeros(2, 3), accelhost.ones(2, 3))  --> tensor(0.6931)
simple("MultiLabelSoftMarginLoss", "multilabel_soft_margin_loss", {{"weight: tensor"}, reduction}, 2)
--- max(0, |anchor - positive| - |anchor - negative| + margin): the anchor should be nearer to the positive.
--
--   nn.TripletMarginLoss()(t, t, t + 10)  --> tensor(0.)
simple("TripletMarginLoss", "triplet_margin_loss",
  {{"margin: positive", 1}, {"p: number", 2}, {"eps: number", 1e-6}, {"swap: flag", false}, reduction}, 3)
--- TripletMarginLoss with a distance of your own, fn(x, y); without one the Euclidean.
--
--   nn.TripletMarginWithDistanceLoss()(t, t, t + 10)  --> tensor(0.)
simple("TripletMarginWithDistanceLoss", "triplet_margin_with_distance_loss",
  {{"distance_function: callable"}, {"margin: positive", 1}, {"swap: flag", false}, reduction}, 3)
--- exp(input) - target input (log_input = false: input - target log(input + eps)): counts of a Poisson distribution.
--
--   nn.PoissonNLLLoss()(accelhost.zeros(2), accelhost.ones(2))  --> tensor(1.)
simple("PoissonNLLLoss", "poisson_nll_loss",
  {{"log_input: flag", true}, {"full: flag", false}, {"eps: number", 1e-8}, reduction}, 2)
--- (log(var) + (input - target)^2 / var) / 2, with the variance as the third argument, at least eps.
--
--   nn.GaussianNLLLoss()(a, b, accelhost.ones(3))  --> tensor(4.5000)
simple("GaussianNLLLoss", "gaussian_nll_loss", {{"full: flag", false}, {"eps: positive", 1e-6}, reduction}, 3)
--- Connectionist temporal classification (Graves et al., 2006): F.ctc_loss with its options, called with log
--- probabilities, targets and the lengths of both.
--
--   local scores = accelhost.zeros(4, 1, 3):log_softmax(-1)
--   local targets = accelhost.tensor({{1, 2}}, {dtype = "int64"})
--   nn.CTCLoss()(scores, targets, {4}, {2})  --> tensor(...)
simple("CTCLoss", "ctc_loss", {{"blank: integer", 0}, reduction, {"zero_infinity: flag", false}}, 4)

return loss
