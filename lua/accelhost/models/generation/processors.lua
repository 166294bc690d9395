--- Logits processors: changes of the scores of the next token, in the order and with the numbers of transformers.
--
-- A processor is a function(ids [rows, tokens], scores [rows, words]) that returns the new scores. A maker of this file
-- returns one for the options of a call, nil where they change nothing.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local processors = {}
local NONE = -math.huge

local function ids_like(list, scores) return C.tensor(list, {dtype = "int64", device = scores.device}) end

local function without(scores, list) return scores:index_fill(1, ids_like(list, scores), NONE) end

local function only(scores, list) return C.full_like(scores, NONE):index_fill(1, ids_like(list, scores), 0) end

-- Sequences of tokens with numbers that are added to the scores of their last tokens.

local function ends_with(row, sequence)
  local first = #row - #sequence + 1
  if first < 0 then return false end
  for i = 1, #sequence - 1 do
    if row[first + i] ~= sequence[i] then return false end
  end
  return true
end

local function bias(pairs_of)
  local single, longer = {}, {}
  for _, pair in ipairs(pairs_of) do
    local list = #pair[1] == 1 and single or longer
    list[#list + 1] = pair
  end
  return function(ids, scores)
    local words = scores:size(1)
    for _, pair in ipairs(pairs_of) do
      for _, token in ipairs(pair[1]) do
        if token >= words then
          arguments.fail("generate: token %d is outside of the vocabulary of %d", token, words)
        end
      end
    end
    local added = C.zeros_like(scores)
    for _, pair in ipairs(single) do added:select(1, pair[1][1]):fill_(pair[2]) end
    for i, row in ipairs(#longer > 0 and ids:tolist() or {}) do
      for _, pair in ipairs(longer) do
        if ends_with(row, pair[1]) then added[i - 1]:select(0, pair[1][#pair[1]]):add_(pair[2]) end
      end
    end
    return scores + added
  end
end

local function sequence_bias(o) return o.sequence_bias and bias(o.sequence_bias) end

local function bad_words(o)
  if not o.bad_words_ids then return nil end
  local list = {}
  for _, sequence in ipairs(o.bad_words_ids) do
    local is_end = false
    for _, id in ipairs(o.eos) do is_end = is_end or #sequence == 1 and sequence[1] == id end
    if not is_end then list[#list + 1] = {sequence, NONE} end
  end
  return #list > 0 and bias(list)
end

-- Penalties.

-- Return ids with the first token of each text in place of the padding before it.
local function without_padding(ids, padding)
  if not padding then return ids end
  local places = C.arange(ids:size(1), {device = ids.device}):unsqueeze(0)
  return C.where(places:lt(padding), ids:gather(1, padding), ids)
end

-- Scores of tokens of prompt and text are divided by the penalty, or multiplied where they are below 0.
local function repetition(o, place)
  local penalty = o.repetition_penalty
  if penalty == 1 then return nil end
  return function(ids, scores)
    ids = without_padding(ids, place.padding)
    local found = scores:gather(1, ids)
    return scores:scatter(1, ids, C.where(found:lt(0), found * penalty, found / penalty))
  end
end

local function occurrences(o, place)
  local once, each = o.presence_penalty, o.frequency_penalty
  if once == 0 and each == 0 then return nil end
  return function(ids, scores)
    local written = ids:narrow(1, place.first, ids:size(1) - place.first)
    local counts = C.zeros_like(scores):scatter_add(1, written, C.ones_like(written):to(scores.dtype))
    return scores - counts * each - counts:gt(0):to(scores.dtype) * once
  end
end

local function key_of(row, first, last)
  return table.concat(row, ",", first, last)
end

local function no_repeat(o)
  local size = o.no_repeat_ngram_size
  if size == 0 then return nil end
  return function(ids, scores)
    if ids:size(1) + 1 < size then return scores end
    scores = scores:clone()
    for i, row in ipairs(ids:tolist()) do
      local ending, list = key_of(row, #row - size + 2, #row), {}
      for at = 1, #row - size + 1 do
        if key_of(row, at, at + size - 2) == ending then list[#list + 1] = row[at + size - 1] end
      end
      if #list > 0 then scores[i - 1]:index_fill_(0, ids_like(list, scores), NONE) end
    end
    return scores
  end
end

-- The end of the text, its first and its last token.

local function least_length(least)
  return function(o)
    if o[least] == 0 or o[least] == nil or #o.eos == 0 then return nil end
    return o[least]
  end
end

local min_length, min_new = least_length "min_length", least_length "min_new_tokens"

local function at_least(o)
  local least = min_length(o)
  return least and function(ids, scores) return ids:size(1) < least and without(scores, o.eos) or scores end
end

local function at_least_new(o, place)
  local least = min_new(o)
  return least and function(ids, scores)
    return ids:size(1) - place.first < least and without(scores, o.eos) or scores
  end
end

local function forced_first(o)
  local id = o.forced_bos_token_id
  return id and function(ids, scores) return ids:size(1) == 1 and only(scores, {id}) or scores end
end

local function forced_last(o)
  local list = o.forced_eos_token_id
  if not list then return nil end
  if type(list) == "number" then list = {list} end
  return function(ids, scores) return ids:size(1) == o.last - 1 and only(scores, list) or scores end
end

local function remove_invalid(o)
  return o.remove_invalid_values and function(_, scores)
    local most = C.dtype.finfo(scores.dtype).max
    return C.nan_to_num(scores, 0, most, -most)
  end
end

local function decay(o, place)
  local values = o.exponential_decay_length_penalty
  if not values or #o.eos == 0 then return nil end
  local start, factor = values[1] + place.first, values[2]
  return function(ids, scores)
    local after = ids:size(1) - start
    if after <= 0 then return scores end
    local list = ids_like(o.eos, scores)
    local ends = scores:index_select(1, list)
    local more = (ends:abs() * (factor ^ after - 1)):masked_fill(C.isfinite(ends):logical_not(), 0)
    return scores:index_copy(1, list, ends + more)
  end
end

local function suppress(o)
  return o.suppress_tokens and function(_, scores) return without(scores, o.suppress_tokens) end
end

local function suppress_first(o, place)
  local list = o.begin_suppress_tokens
  if not list then return nil end
  local begin = place.first
  if begin == 1 and o.forced_bos_token_id then begin = 2 end
  return function(ids, scores) return ids:size(1) == begin and without(scores, list) or scores end
end

-- Processors of sampling. They keep a number of the likeliest tokens.

local function temperature(o)
  return o.temperature ~= 1 and function(_, scores) return scores / o.temperature end
end

local function below_top(scores, count)
  count = math.min(count, scores:size(1))
  return scores:lt((C.topk(scores, count, 1)):narrow(1, count - 1, 1))
end

local function top_k(o, place)
  if o.top_k == 0 then return nil end
  local count = math.max(o.top_k, place.least)
  return function(_, scores) return scores:masked_fill(below_top(scores, count), NONE) end
end

local function top_p(o, place)
  if o.top_p >= 1 then return nil end
  return function(_, scores)
    local sorted, order = C.sort(scores, 1, false)
    local away = C.softmax(sorted, -1):cumsum(-1):le(1 - o.top_p)
    away:narrow(1, away:size(1) - place.least, place.least):fill_(false)
    return scores:masked_fill(away:scatter(1, order, away), NONE)
  end
end

local function min_p(o, place)
  return o.min_p and function(_, scores)
    local p = C.softmax(scores, -1)
    local away = p:lt(p:amax(-1, true) * o.min_p)
    return scores:masked_fill(away:logical_and(below_top(scores, place.least)), NONE)
  end
end

local function typical_p(o, place)
  if o.typical_p >= 1 then return nil end
  return function(_, scores)
    local logs = C.log_softmax(scores, -1)
    local entropy = C.nansum(logs * logs:exp(), -1, true):neg()
    local sorted, order = C.sort((logs:neg() - entropy):abs(), 1, false)
    local mass = C.softmax(scores:gather(1, order), -1):cumsum(-1)
    local last = mass:lt(o.typical_p):sum(1):clamp_max(scores:size(1) - 1):unsqueeze(1)
    local away = sorted:gt(sorted:gather(1, last))
    away:narrow(1, 0, place.least):fill_(false)
    return scores:masked_fill(away:scatter(1, order, away), NONE)
  end
end

local function epsilon(o, place)
  local least = o.epsilon_cutoff
  return least > 0 and least < 1 and function(_, scores)
    return scores:masked_fill(C.softmax(scores, -1):lt(least):logical_and(below_top(scores, place.least)), NONE)
  end
end

local function eta(o, place)
  local least = o.eta_cutoff
  return least > 0 and least < 1 and function(_, scores)
    local logs = C.log_softmax(scores, -1)
    local p = logs:exp()
    local entropy = (p * logs:clamp_min(-3.4028234663852886e38)):sum(-1, true):neg()
    local limit = (entropy:neg():exp() * math.sqrt(least)):clamp_max(least)
    return scores:masked_fill(p:lt(limit):logical_and(below_top(scores, place.least)), NONE)
  end
end

local function renormalize(o)
  return o.renormalize_logits and function(_, scores) return C.log_softmax(scores, -1) end
end

local function allowed(o)
  local tokens_of = o.prefix_allowed_tokens_fn
  return tokens_of and function(ids, scores)
    local open = C.full_like(scores, NONE)
    local beams = math.max(o.num_beams, o.num_return_sequences)
    for i = 0, ids:size(0) - 1 do
      local list = tokens_of(math.floor(i / beams), ids[i])
      if type(list) ~= "table" or #list == 0 then
        arguments.fail("generate: prefix_allowed_tokens_fn: expected a list of tokens, got %s",
          arguments.describe(list))
      end
      open[i]:index_fill_(0, ids_like(list, scores), 0)
    end
    return scores + open
  end
end

local for_all = {
  sequence_bias, repetition, occurrences, no_repeat, bad_words, at_least, at_least_new, allowed, forced_first,
  forced_last, remove_invalid, decay, suppress, suppress_first,
}
local for_samples = {temperature, top_k, top_p, min_p, typical_p, epsilon, eta}

local function own(given)
  return function(ids, scores)
    local changed = given(ids, scores)
    if not C.is_tensor(changed) or not C.same_shape(changed, scores) then
      arguments.fail("generate: logits_processor: expected scores %s, got %s", arguments.shape_text(scores),
        C.is_tensor(changed) and arguments.shape_text(changed) or arguments.describe(changed))
    end
    return changed
  end
end

--- Return the processors of a call in their order.
---@param o table all options; o.eos: the tokens that end a text; o.last: most tokens of prompt and text
---@param place {first: integer, padding: Tensor?} tokens of the prompt; with padding on the left, its length by row
---@return fun(ids: Tensor, scores: Tensor): Tensor[]
function processors.list(o, place)
  place.least = o.num_beams > 1 and math.max(2, #o.eos + 1) or 1
  local list = {}
  local function add(makers)
    for _, make in ipairs(makers) do list[#list + 1] = make(o, place) or nil end
  end
  add(for_all)
  for _, given in ipairs(o.logits_processor or {}) do list[#list + 1] = own(given) end
  if o.do_sample then add(for_samples) end
  add {renormalize}
  return list
end

--- Apply processors to scores.
---@param list function[] of `list`
---@param ids Tensor
---@param scores Tensor
---@return Tensor
function processors.apply(list, ids, scores)
  for _, process in ipairs(list) do scores = process(ids, scores) end
  return scores
end

return processors
