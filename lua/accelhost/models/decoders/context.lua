--- The context of a decoder's call: earlier tokens, masks, and which results are requested.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local attention = require "accelhost.models.common.attention"
local inputs = require "accelhost.models.common.inputs"
local recompute = require "accelhost.recompute"

local fail = arguments.fail
local context = {}

--- The inputs that every decoder accepts.
context.inputs = {
  input_ids = "tensor", attention_mask = "tensor", token_type_ids = "tensor", position_ids = "tensor",
  inputs_embeds = "tensor", past_key_values = "list", use_cache = "flag", output_hidden_states = "flag",
  output_attentions = "flag",
}

--- Return the texts of rows that hold several, one after the other: a text begins where a position is not that of the
--- token before, plus 1. nil where each row is one text, and in calls with a mask or with earlier tokens.
---@param how table of `settings`
---@param positions Tensor? position_ids, [batch, tokens] or [tokens]
---@param past integer
---@return {numbers: Tensor, bounds: Tensor?, longest: integer?}? numbers of texts [batch, tokens], and where texts
--- begin and end in the flattened batch; on a device, and in a step that is captured, which reads no values, the
--- numbers alone
function context.texts(how, positions, past)
  if not positions or how.kept or past > 0 or how.tokens < 2 then return nil end
  local rows, tokens = how.rows, how.tokens
  positions = positions:view(-1, tokens):expand(rows, tokens)
  local begins = positions:narrow(1, 1, tokens - 1):sub(positions:narrow(1, 0, tokens - 1)):ne(1)
  local is_read, several = false, true
  if how.device == "cpu" then is_read, several = pcall(begins.item, begins:any()) end
  if is_read and not several then return nil end
  begins = C.cat({C.ones({rows, 1}, {dtype = "bool", device = how.device}), begins}, 1)
  if not is_read then return {numbers = begins:to("int64"):cumsum(1)} end
  local first = begins:flatten():nonzero():flatten()
  local bounds = C.cat({first, C.tensor({rows * tokens}, {dtype = "int64", device = how.device})})
  return {
    numbers = begins:to("int64"):cumsum(1), bounds = bounds, longest = bounds:diff():max():item(),
  }
end

--- Return the keys that each query may see: it and those before it, without padding; with a window, of these the last
--- ones. A query that would see none sees itself.
---@param kept Tensor? [batch, past + tokens] bool, nil: there is no padding
---@param past integer
---@param o? {window: integer?, used: integer?, texts: table?} used: number of keys of earlier tokens, the last ones,
--- that are there (default all); texts: the result of `texts`, a query sees the keys in its text
---@return {mask: Tensor?, causal: boolean?, window: integer?, texts: table?} as attention.attend accepts them
function context.visible(kept, tokens, past, device, o)
  local window, used, texts = o and o.window, o and o.used, o and o.texts
  if window and window >= past + tokens then window = nil end
  if texts then return {causal = true, window = window, texts = texts} end
  if not kept and past == 0 then return {causal = tokens > 1, window = window} end
  if not kept and tokens == 1 then return {window = window} end
  local count = (used or past) + tokens
  local first = past + tokens - count
  local own = C.arange(past, past + tokens, {device = device}):view(tokens, 1)
  local keys = C.arange(first, past + tokens, {device = device}):view(1, count)
  local mask = keys:le(own)
  if window then mask = mask:logical_and(keys:gt(own - window)) end
  if kept then
    if first > 0 then kept = kept:narrow(1, first, count) end
    mask = mask:logical_and(kept:reshape(-1, 1, 1, count))
    mask = mask:logical_or(keys:eq(own):logical_and(mask:any(-1, true):logical_not()))
  end
  return {mask = mask}
end

--- Return the keys in a buffer of fixed size that the token at the entry's place may see.
---@param entry table of cache.fixed
---@param window? integer
---@return {mask: Tensor} as attention.attend accepts them
function context.visible_at(entry, window)
  local keys, position = C.arange(entry[1]:size(2), {device = entry[1].device}), entry.position
  local mask = keys:le(position)
  if window then mask = mask:logical_and(keys:gt(position - window)) end
  return {mask = mask:view(1, 1, 1, -1)}
end

--- Return the settings of a call that every layer reads.
---@param model table
---@param given table inputs by name
---@param past integer tokens of earlier calls
---@param most integer number of the model's positions
---@return {rows: integer, tokens: integer, kept: Tensor?, device: string, keeps: boolean, wants_weights: boolean}
function context.settings(model, given, past, most)
  local config, what = model.config, model._name
  local function asked(name)
    if given[name] ~= nil then return given[name] end
    return config[name]
  end
  local rows, tokens = inputs.sizes(what, given, most, past)
  if given.attention_mask then inputs.expect(what, "attention_mask", given.attention_mask, rows, past + tokens) end
  local keeps = given.use_cache
  if keeps == nil then keeps = config.use_cache and not model.training end
  if keeps and model.training and model._recompute then
    fail("%s: use_cache: layers that are computed again keep no keys and values; see gradient_checkpointing_disable",
      what)
  end
  return {
    rows = rows, tokens = tokens, kept = attention.kept(given.attention_mask), keeps = keeps,
    device = (given.input_ids or given.inputs_embeds).device, wants_weights = asked "output_attentions",
    wants_states = asked "output_hidden_states",
  }
end

--- Call the layers of a model one after the other.
---@param model table
---@param layers table each called with (x, how, past, late), which returns x, its keys and values, its weights
---@param how table of `settings`
---@param before? table keys and values of earlier calls
---@param late? table passed to the layers
---@return Tensor x
---@return table results past_key_values, hidden_states and attentions, those that are requested
function context.run(model, layers, x, how, before, late)
  local states, attentions = how.wants_states and {} or nil, how.wants_weights and {} or nil
  local presents = how.keeps and {} or nil
  for i, layer in ipairs(layers) do
    if states then states[i] = x end
    local present, weights
    x, present, weights = recompute.layer(model, layer, x, how, before and before[i], late)
    if presents then presents[i] = present end
    if attentions then attentions[i] = weights end
  end
  return x, {past_key_values = presents, hidden_states = states, attentions = attentions}
end

--- Return a model's outputs: the results of `run`, with its last states.
---@param results table
---@return table
function context.outputs(x, results)
  local states = results.hidden_states
  if states then states[#states + 1] = x end
  results.last_hidden_state = x
  return results
end

return context
