--- Language heads: logits of each next token, and their loss.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local context = require "accelhost.models.decoders.context"
local fused = require "accelhost.nn.fused"
local inputs = require "accelhost.models.common.inputs"
local losses = require "accelhost.models.common.losses"
local Linear = require("accelhost.nn.linear").Linear

local fail = arguments.fail
local language_head = {}

local known = arguments.copy(context.inputs)
known.labels, known.logits_to_keep, known.skip_logits = "tensor", "number", "flag"

--- Compute a model with a language head, which is its field `lm_head`.
---@param model table
---@param base table the model without the head
---@param batch Tensor|table
---@param more? table further inputs by name
---@param cap? number bound of the logits: cap tanh(logits / cap)
---@return table # logits, loss, past_key_values, hidden_states, attentions
function language_head.forward(model, base, batch, more, cap)
  local what, given = model._name, inputs.read(model._name, known, batch, more)
  local labels, keep, skips = given.labels, given.logits_to_keep or 0, given.skip_logits
  given.labels, given.logits_to_keep, given.skip_logits = nil, nil, nil
  if skips and not labels then fail("%s: skip_logits: expected labels, without which there is no loss", what) end
  local output = base(given)
  local x = output.last_hidden_state
  if keep < 0 or keep > x:size(1) or keep % 1 ~= 0 then
    fail("%s: logits_to_keep: expected 0 (all) to %d, got %s", what, x:size(1), tostring(keep))
  end
  if keep > 0 then x = x:narrow(1, x:size(1) - keep, keep) end
  local logits, loss
  if skips and not cap and fused.is_plain(model.lm_head, Linear) then
    loss = losses.of_next_tokens_of(what, x, model.lm_head, labels)
  else
    logits = model.lm_head(x)
    if cap then logits = C.tanh(logits / cap) * cap end
    loss = labels and losses.of_next_tokens(what, logits, labels)
    if skips then
      logits:free() -- the loss alone holds them then
      logits = nil
    end
  end
  return {
    logits = logits, loss = loss, past_key_values = output.past_key_values, hidden_states = output.hidden_states,
    attentions = output.attentions,
  }
end

return language_head
