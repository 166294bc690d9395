--- Losses that ask for a margin: of rankings, pairs, triplets and classes.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autocast = require "accelhost.util.autocast"
local distance = require "accelhost.nn.functional.distance"
local reduction = require "accelhost.nn.functional.reduction"

local fail, shape_text, checked, named = arguments.fail, arguments.shape_text, arguments.checked, arguments.named
local reduce, reduction_row = reduction.reduce, reduction.row
local F = {}

local function above(x) return C.relu(x) end

--- max(0, margin - target (input1 - input2)); a target of 1 wants the first to be larger, -1 the second.
--
--   F.margin_ranking_loss(a, b, accelhost.ones(3))  --> tensor(3.)
F.margin_ranking_loss = checked("margin_ranking_loss", {
  "input1: tensor", "input2: tensor", "target: tensor", {"margin: number", 0}, reduction_row,
}, function(x1, x2, target, margin, how)
  if x1:dim() ~= x2:dim() or x1:dim() ~= target:dim() then
    fail("margin_ranking_loss: expected input1, input2 and target of one number of dims, got %s, %s and %s",
      shape_text(x1), shape_text(x2), shape_text(target))
  end
  local missed = margin - target * (x1 - x2)
  return reduce(above(missed:is_floating_point() and missed or missed:to "float32"), how)
end)

--- x where the target is 1, max(0, margin - x) where it is -1: x is a distance.
--
--   F.hinge_embedding_loss(a, accelhost.ones(3))  --> tensor(2.)
F.hinge_embedding_loss = checked("hinge_embedding_loss", {
  "input: tensor", "target: tensor", {"margin: number", 1}, reduction_row,
}, function(input, target, margin, how)
  local apart = C.where(target:ne(1), above(margin - input), 0)
  return reduce(apart + C.where(target:ne(-1), input, 0), how)
end)

--- log(1 + exp(-target x)), targets 1 and -1.
--
--   F.soft_margin_loss(accelhost.zeros(2), accelhost.ones(2))  --> tensor(0.6931)
F.soft_margin_loss = checked("soft_margin_loss", {
  "input: tensor", "target: tensor", reduction_row,
}, function(input, target, how)
  local product = target * input
  local loss = reduce(C.softplus(product, -1, 40), how)
  product:free()
  return -loss
end)

--- 1 - cos where the target is 1, max(0, cos - margin) where it is -1; vectors are along the last dim of [N, D] or [D],
--- targets are [N] or 0-dim.
--
--   F.cosine_embedding_loss(t, t, accelhost.ones(2))  --> tensor(0.)
---@return userdata # [N] or 0-dim, or reduced
F.cosine_embedding_loss = checked("cosine_embedding_loss", {
  "input1: tensor", "input2: tensor", "target: tensor", {"margin: number", 0}, reduction_row,
}, function(x1, x2, target, margin, how)
  local dims = target:dim()
  if dims > 1 or x1:dim() ~= dims + 1 or x2:dim() ~= dims + 1 then
    fail("cosine_embedding_loss: expected a target (N,) with inputs (N, D), or () with (D,), got %s with %s and %s",
      shape_text(target), shape_text(x1), shape_text(x2))
  end
  if not C.same_shape(x1, x2) then
    fail("cosine_embedding_loss: input1 %s and input2 %s differ in shape", shape_text(x1), shape_text(x2))
  end
  if dims == 1 and target:size(0) ~= x1:size(0) then
    fail("cosine_embedding_loss: expected a target of %d numbers, one for each row, got %s", x1:size(0),
      shape_text(target))
  end
  local along = dims
  local lengths = (((x1 * x1):sum(along) + 1e-12) * ((x2 * x2):sum(along) + 1e-12)):sqrt()
  local cosine = (x1 * x2):sum(along) / lengths
  local loss = C.where(target:eq(1), 1 - cosine, 0) + C.where(target:eq(-1), above(cosine - margin), 0)
  return reduce(loss, how)
end)

--- max(0, margin + d(anchor, positive) - d(anchor, negative)); with swap the smaller distance to the negative counts.
local function triplet(measure, anchor, positive, negative, margin, swap, how)
  local near, far = measure(anchor, positive), measure(anchor, negative)
  if swap then far = C.minimum(far, measure(positive, negative)) end
  return reduce(above(margin + near - far), how)
end

--- max(0, margin + |anchor - positive|_p - |anchor - negative|_p) over the last dim; with swap, where the positive is
-- closer to the negative than the anchor is, that distance counts (Balntas et al., 2016).
--
--   F.triplet_margin_loss(t, t, t + 10)  --> tensor(0.)
---@return userdata # [N] or 0-dim, or reduced
F.triplet_margin_loss = checked("triplet_margin_loss", {
  "anchor: tensor", "positive: tensor", "negative: tensor", {"margin: positive", 1}, {"p: number", 2},
  {"eps: number", 1e-6}, {"swap: flag", false}, reduction_row,
}, function(anchor, positive, negative, margin, p, eps, swap, how)
  if anchor:dim() ~= positive:dim() or anchor:dim() ~= negative:dim() then
    fail("triplet_margin_loss: expected anchor, positive and negative of one number of dims, got %s, %s and %s",
      shape_text(anchor), shape_text(positive), shape_text(negative))
  end
  local function measure(a, b) return distance.pairwise_distance(a, b, p, eps) end
  return triplet(measure, anchor, positive, negative, margin, swap, how)
end)

--- triplet_margin_loss with any function of two tensors as distance; F.pairwise_distance where none is given.
--
--   F.triplet_margin_with_distance_loss(t, t, t + 10)  --> tensor(0.)
F.triplet_margin_with_distance_loss = checked("triplet_margin_with_distance_loss", {
  "anchor: tensor", "positive: tensor", "negative: tensor", {"distance_function: callable"}, {"margin: positive", 1},
  {"swap: flag", false}, reduction_row,
}, function(anchor, positive, negative, measure, margin, swap, how)
  return triplet(measure or distance.pairwise_distance, anchor, positive, negative, margin, swap, how)
end)

-- Inputs [N, C], [C] or of one number, as [N, C]. The target of one row of classes may be [1].
local function rows_of(what, input, target, target_dims)
  if input:dim() == 0 and target:dim() == 0 then
    input = input:reshape(1)
    if target_dims == 2 then target = target:reshape(1) end
  end
  if target_dims == 1 and input:dim() < 2 and target:dim() == 1 and target:size(0) == 1 then
    return input:reshape(1, -1), target
  end
  local dims = input:dim()
  if dims < 1 or dims > 2 or target:dim() ~= dims + target_dims - 2 then
    fail("%s: expected an input (N, C) or (C,) and a target (N%s), got %s and %s", what,
      target_dims == 2 and ", C) or (C,"  or ",", shape_text(input), shape_text(target))
  end
  return dims == 1 and input:unsqueeze(0) or input, dims == 1 and target:unsqueeze(0) or target
end

local function check_classes(what, y, least, count)
  if y:numel() == 0 then return end
  local low, high = y:min():item(), y:max():item()
  if low < least or high >= count then
    fail("%s: target %d is outside %d..%d", what, low < least and low or high, least, count - 1)
  end
end

--- The sum over the other classes j of weight[y] max(0, margin - x[y] + x[j])^p over the number of classes, for inputs
-- [N, C] or [C] and classes y [N], [1] or 0-dim, counted from 0; p is 1 or 2.
--
--   F.multi_margin_loss(accelhost.zeros(2, 4), labels)  --> tensor(0.7500)
---@return userdata # [N] or 0-dim, or reduced
F.multi_margin_loss = named("multi_margin_loss", {
  "input: tensor", "target: tensor", {"p: number", 1}, {"margin: number", 1}, {"weight: tensor"}, reduction_row,
}, function(what, input, target, p, margin, weight, how)
  if p ~= 1 and p ~= 2 then fail("multi_margin_loss: p: expected 1 or 2, got %s", p) end
  if weight and (weight:dim() ~= 1 or weight:size(0) ~= (input:dim() > 0 and input:size(-1) or 1)) then
    fail("multi_margin_loss: weight: expected one number for each class of input %s, got shape %s", shape_text(input),
      shape_text(weight))
  end
  local x, y = rows_of(what, input, target, 1)
  check_classes(what, y, 0, x:size(1))
  y = y:unsqueeze(1)
  local missed = above(margin - x:gather(1, y) + x)
  if p == 2 then missed = missed * missed end
  if weight then missed = missed * weight:index_select(0, y:view(-1)):unsqueeze(1) end
  local others = C.ones_like(x):scatter_(1, y, 0)
  local loss = (missed * others):sum(1) / x:size(1)
  return reduce(target:dim() == 0 and loss:squeeze(0) or loss, how)
end)

--- The sum over the labels y and the other classes j of max(0, 1 - x[y] + x[j]) over the number of classes; a target
-- lists the labels of its row, counted from 0, up to the first -1.
--
--   local result = F.multilabel_margin_loss(accelhost.zeros(1, 3), accelhost.tensor({{1, -1, -1}}, {dtype = "int64"}))
--   print(result)  --> tensor(0.6667)
---@return userdata # [N] or 0-dim, or reduced
F.multilabel_margin_loss = named("multilabel_margin_loss", {
  "input: tensor", "target: tensor", reduction_row,
}, function(what, input, target, how)
  if not C.same_shape(input, target) then
    fail("multilabel_margin_loss: expected a target of the input's shape %s, got %s", shape_text(input),
      shape_text(target))
  end
  local x, y = rows_of(what, input, target, 2)
  check_classes(what, y, -1, x:size(1))
  local listed = y:lt(0):long():cumsum(1):eq(0)
  y = y:long():clamp_min(0)
  local is_label = C.zeros_like(y):scatter_add_(1, y, listed:long()):gt(0)
  local missed = above(1 - x:gather(1, y):unsqueeze(2) + x:unsqueeze(1)) -- [N, labels, classes]
  local counts = listed:unsqueeze(2):logical_and(is_label:logical_not():unsqueeze(1))
  local loss = (missed * counts):sum {1, 2} / x:size(1)
  return reduce(input:dim() < 2 and loss:squeeze(0) or loss, how)
end)

--- The mean over the classes (the last dim) of the binary cross entropy of logits.
--
--   F.multilabel_soft_margin_loss(accelhost.zeros(2, 3), accelhost.ones(2, 3))  --> tensor(0.6931)
F.multilabel_soft_margin_loss = checked("multilabel_soft_margin_loss", {
  "input: tensor", "target: tensor", {"weight: tensor"}, reduction_row,
}, function(input, target, weight, how)
  local loss = target * C.softplus(-input) + (1 - target) * C.softplus(input)
  if weight then loss = loss * weight end
  return reduce(loss:mean(-1), how)
end)

autocast(F, "float32", "margin_ranking_loss hinge_embedding_loss soft_margin_loss cosine_embedding_loss"
  .. " triplet_margin_loss multi_margin_loss multilabel_margin_loss")

return F
