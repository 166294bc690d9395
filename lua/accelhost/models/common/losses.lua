--- The losses of models with heads.
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local inputs = require "accelhost.models.common.inputs"
local shifting = require "accelhost.util.labels"

local losses = {}

--- Mean cross entropy of tokens; labels of -100 are left out.
---@param what string the class, for messages
---@param logits Tensor [batch, tokens, classes]
---@param labels Tensor [batch, tokens]
---@return Tensor
function losses.of_tokens(what, logits, labels)
  inputs.expect(what, "labels", labels, logits:size(0), logits:size(1))
  local rows = logits:flatten(0, 1)
  local loss = F.cross_entropy(rows, labels:reshape(-1))
  rows:free() -- where they are a copy, their gradient is written over them
  return loss
end

-- The labels of the tokens before; there has to be one.
local function next_labels(what, labels, batch, tokens)
  inputs.expect(what, "labels", labels, batch, tokens)
  if tokens < 2 then arguments.fail("%s: labels: one token has no next one", what) end
  return shifting.next_tokens(labels)
end

--- Mean cross entropy of each next token, in chunks of tokens, without the logits of all.
---@param states Tensor [batch, tokens, width]
---@param head Linear
---@param labels Tensor [batch, tokens]: the input ids themselves
---@return Tensor
function losses.of_next_tokens_of(what, states, head, labels)
  labels = next_labels(what, labels, states:size(0), states:size(1))
  return F.linear_cross_entropy(states:flatten(0, 1), head.weight, labels:reshape(-1), {linear_bias = head.bias})
end

--- Mean cross entropy of each next token.
---@param logits Tensor [batch, tokens, classes]
---@param labels Tensor [batch, tokens]: the input ids themselves
---@return Tensor
function losses.of_next_tokens(what, logits, labels)
  return losses.of_tokens(what, logits, next_labels(what, labels, logits:size(0), logits:size(1)))
end

--- Mean cross entropy of the begin and of the end of answers; positions beyond the texts are left out.
---@param begins Tensor [batch, tokens] logits
---@param ends Tensor
---@param first Tensor [batch] or [batch, 1]
---@param last Tensor
---@return Tensor
function losses.of_spans(begins, ends, first, last)
  local tokens = begins:size(1)
  local function loss(logits, places)
    return F.cross_entropy(logits, places:reshape(-1):clamp(0, tokens), {ignore_index = tokens})
  end
  return (loss(begins, first) + loss(ends, last)) / 2
end

--- Mean binary cross entropy of tokens that are no padding.
---@param logits Tensor [batch, tokens]
---@param labels Tensor [batch, tokens]
---@param mask Tensor? [batch, tokens]
---@return Tensor
function losses.of_flags(what, logits, labels, mask)
  inputs.expect(what, "labels", labels, logits:size(0), logits:size(1))
  labels = labels:to(logits.dtype)
  if not mask then return F.binary_cross_entropy_with_logits(logits, labels) end
  local kept = mask:ne(0):to(logits.dtype)
  return F.binary_cross_entropy_with_logits(logits, labels, {weight = kept, reduction = "sum"}) / kept:sum()
end

local function squeezed(logits, labels, count)
  if count == 1 then return F.mse_loss(logits:reshape(-1), labels:reshape(-1)) end
  return F.mse_loss(logits, labels)
end

local by_type = {
  regression = squeezed,
  single_label_classification = function(logits, labels) return F.cross_entropy(logits, labels:reshape(-1)) end,
  multi_label_classification = function(logits, labels) return F.binary_cross_entropy_with_logits(logits, labels) end,
}

--- The loss of texts: by config.problem_type, or by the number and the dtype of the labels.
---@param model PreTrainedModel
---@param logits Tensor [batch, num_labels]
---@param labels Tensor
---@return Tensor
function losses.of_texts(model, logits, labels)
  local config = model.config
  local kind, count = config.problem_type, config.num_labels
  if kind == nil then
    kind = count == 1 and "regression"
      or labels:is_floating_point() and "multi_label_classification" or "single_label_classification"
  end
  local loss = by_type[kind]
  if not loss then
    arguments.fail("%s: problem_type: expected one of %s, got %s", model._name,
      table.concat(arguments.sorted_keys(by_type), ", "), arguments.describe(kind))
  end
  if kind == "single_label_classification" then
    if labels:numel() ~= logits:size(0) then inputs.expect(model._name, "labels", labels, logits:size(0)) end
  else
    if not labels:is_floating_point() then labels = labels:to(logits.dtype) end
    if count > 1 then inputs.expect(model._name, "labels", labels, logits:size(0), count) end
  end
  return loss(logits, labels, count)
end

return losses
