--- The losses of accelhost.nn and its distances, rows of layers.lua with the options that `make compare` draws:
--
--   fn      the function of accelhost.nn.functional; rows without one are drawn as layers are
--   like    the function whose inputs (scripts/compare/losses.py) fit; default: its own there, or two tensors
--   values  option -> values among which options of the class and of the function are drawn; reduction is always drawn
local accelhost = require "accelhost"
local inputs = require "spec.cases.inputs"
local nn, long, rows = accelhost.nn, inputs.long, inputs.rows
local logits, classes, chances, weights = inputs.logits, inputs.classes, inputs.chances, inputs.weights
local mixed, other, signs = inputs.mixed, inputs.other, inputs.signs

return {
  {"CosineSimilarity", {}, {mixed, other}, options = {dim = 0, eps = 9},
    cases = {{"", "3,4", "3,4"}, {"0, 0.1", "3,4", "3,4"}}},
  {"PairwiseDistance", {}, {logits, chances}, options = {p = 1},
    cases = {{"", "3,4", "3,4"}, {"1, {keepdim = true}", "3,4", "3,4"}}},
  {"CrossEntropyLoss", {}, {logits, classes}, fn = "cross_entropy", values = {label_smoothing = {0.1, 0.5, 1}},
    options = {weight = weights, ignore_index = 3}, train = {label_smoothing = 0.1}},
  {"NLLLoss", {}, {logits, classes},
    fn = "nll_loss", like = "cross_entropy", options = {weight = weights, ignore_index = 3}},
  {"MSELoss", {}, {logits, chances}, fn = "mse_loss"},
  {"L1Loss", {}, {logits, chances}, fn = "l1_loss"},
  {"SmoothL1Loss", {}, {logits, chances}, fn = "smooth_l1_loss", values = {beta = {0.5, 0, 2}}},
  {"HuberLoss", {}, {logits, chances}, fn = "huber_loss", values = {delta = {0.5, 2}}, options = {delta = 0.1}},
  {"BCELoss", {}, {chances, chances}, fn = "binary_cross_entropy", options = {weight = weights}},
  {"BCEWithLogitsLoss", {}, {logits, chances}, fn = "binary_cross_entropy_with_logits", like = "binary_cross_entropy",
    options = {weight = weights, pos_weight = weights}},
  {"KLDivLoss", {}, {logits, chances},
    fn = "kl_div", values = {log_target = {true, false}, reduction = {"mean", "sum", "none", "batchmean"}}},
  {"MarginRankingLoss", {}, {mixed, other, signs}, fn = "margin_ranking_loss", values = {margin = {0.5, 1}},
    cases = {{"", "5", "5", "sign 5"}, {"0.5, {reduction = 'sum'}", "5", "5", "sign 5"}}},
  {"HingeEmbeddingLoss", {}, {logits, signs}, fn = "hinge_embedding_loss",
    cases = {{"", "3,4", "sign 3,4"}, {"0.3, {reduction = 'none'}", "3,4", "sign 3,4"}}},
  {"SoftMarginLoss", {}, {logits, signs},
    fn = "soft_margin_loss", like = "hinge_embedding_loss", cases = {{"", "3,4", "sign 3,4"}}},
  {"CosineEmbeddingLoss", {}, {mixed, mixed + signs * 0.5, signs:select(1, 0)},
    fn = "cosine_embedding_loss", values = {margin = {0.3}},
    options = {margin = 0.2},
    cases = {
      {"", "3,4", "3,4", "sign 3"}, {"0.2, {reduction = 'none'}", "3,4", "3,4", "sign 3"}, {"", "4", "4", "sign "},
    }},
  {"MultiMarginLoss", {}, {logits, classes}, fn = "multi_margin_loss", values = {p = {1, 2}, margin = {0.5}},
    options = {p = 2, weight = weights},
    make = function(o) return nn.MultiMarginLoss {weight = accelhost.ones({8}, o)} end,
    cases = {{"", "3,4", "int 4 3"}, {"2, 0.5", "3,4", "int 4 3"}, {"{reduction = 'none'}", "4", "int 4 "}}},
  {"MultiLabelMarginLoss", {}, {logits, classes:unsqueeze(1):tile(1, 8)}, fn = "multilabel_margin_loss"},
  {"MultiLabelSoftMarginLoss", {}, {logits, chances}, fn = "multilabel_soft_margin_loss",
    options = {weight = weights},
    cases = {{"", "3,4", "rand 3,4"}, {"{reduction = 'none'}", "2,3,4", "rand 2,3,4"}}},
  {"TripletMarginLoss", {}, {mixed, other, other + 0.5},
    fn = "triplet_margin_loss", values = {margin = {0.5, 3}, p = {1, 2, 3}, eps = {1e-3}, swap = {true}},
    options = {margin = 3}, train = {swap = true},
    cases = {{"", "3,4", "3,4", "3,4"}, {"2, 1, {swap = true, reduction = 'none'}", "3,4", "3,4", "3,4"}}},
  {"TripletMarginWithDistanceLoss", {}, {mixed, other, other + 0.5},
    drawn = false, options = {distance_function = function(a, b) return (a - b):abs():amax(-1) end, margin = 3},
    cases = {{"{swap = true, margin = 3}", "3,4", "3,4", "3,4"}}},
  {"PoissonNLLLoss", {}, {logits, mixed:abs() * 5},
    fn = "poisson_nll_loss", values = {log_input = {false}, full = {true}, eps = {0.1}},
    options = {eps = {log_input = false, eps = 0.3}},
    train = {full = true},
    cases = {
      {"", "3,4", "int 5 3,4"}, {"false, true", "rand 3,4", "int 5 3,4"},
      {"false, {eps = 0.1, reduction = 'sum'}", "rand 3,4", "int 5 3,4"},
    }},
  {"GaussianNLLLoss", {}, {logits, chances, chances},
    fn = "gaussian_nll_loss", values = {full = {true}, eps = {1e-3, 0.5}},
    options = {eps = 0.6}, train = {full = true},
    cases = {
      {"", "3,4", "3,4", "rand 3,4"}, {"{full = true, eps = 0.5}", "3,4", "3,4", "rand 3", first_only = true},
      {"{reduction = 'none'}", "3,4", "3,4", "rand 3,1"},
    }},
  {"CTCLoss", {}, {rows:log_softmax(-1), long {{1, 3}, {1, 3}, {1, 2}, {3, 3}}, {2, 2, 2, 2}, {1, 2, 2, 2}},
    fn = "ctc_loss", values = {zero_infinity = {true}},
    options = {blank = {zero_infinity = true, blank = 2}},
    train_inputs = {accelhost.linspace(-1, 1, 40):view(5, 2, 4):sin(), long {{1, 2, 2}, {3, 1, 0}}, long {5, 4},
      long {3, 2}}},
}
