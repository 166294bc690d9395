--- Writing on: one token after the other, from the scores of a model with a language head.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail, describe = arguments.fail, arguments.describe
local generation = {}

local function is_count(value, least) return type(value) == "number" and value >= least and value % 1 == 0 end
local function is_positive(value) return type(value) == "number" and value > 0 end
local function is_flag(value) return type(value) == "boolean" end

local function is_ids(value)
  if type(value) == "number" then return is_count(value, 0) end
  if type(value) ~= "table" or getmetatable(value) ~= nil then return false end
  for _, id in ipairs(value) do
    if not is_count(id, 0) then return false end
  end
  return #value > 0
end

-- name -> the expected values in words, and the function that checks one.
local kinds = {
  max_new_tokens = {"a positive integer", function(value) return is_count(value, 1) end},
  max_length = {"a positive integer", function(value) return is_count(value, 1) end},
  min_new_tokens = {"a number of tokens", function(value) return is_count(value, 0) end},
  do_sample = {"true or false", is_flag},
  temperature = {"a number above 0", is_positive},
  top_k = {"a number of tokens (0: all)", function(value) return is_count(value, 0) end},
  top_p = {"a number above 0, at most 1", function(value) return is_positive(value) and value <= 1 end},
  repetition_penalty = {"a number above 0", is_positive},
  eos_token_id = {"a token's number or several", is_ids},
  pad_token_id = {"a token's number", function(value) return is_count(value, 0) end},
  num_return_sequences = {"a positive integer", function(value) return is_count(value, 1) end},
  use_cache = {"true or false", is_flag},
  on_token = {"a function", function(value) return type(value) == "function" end},
}

local defaults = {
  min_new_tokens = 0, do_sample = false, temperature = 1, top_k = 50, top_p = 1, repetition_penalty = 1,
  num_return_sequences = 1, use_cache = true,
}

local refused = {
  num_beams = "beams are not searched: set do_sample or use greedy search",
  generator = "samples are drawn from the default generator: accelhost.manual_seed",
  streamer = "on_token is called with each column of tokens",
}

local names = arguments.sorted_keys(kinds)

local function check(name, value)
  local kind = kinds[name]
  if not kind then
    if refused[name] then fail("generate: %s: %s", name, refused[name]) end
    fail("generate: unknown option '%s' (known: %s)%s", tostring(name), table.concat(names, ", "),
      arguments.did_you_mean(tostring(name), names))
  end
  if not kind[2](value) then fail("generate: %s: expected %s, got %s", name, kind[1], describe(value)) end
end

-- Options by name: those passed, else the checkpoint's, else the defaults. Also the batch, which may be in one table
-- with the options.
local function read(model, first, options)
  local batch, o = {}, {}
  for _, source in ipairs {defaults, model.config, model.generation_config or {}} do
    for _, name in ipairs(names) do
      local value = source[name]
      if value ~= nil and kinds[name][2](value) then o[name] = value end
    end
  end
  o.use_cache = true
  if C.is_tensor(first) then
    batch.input_ids = first
  elseif type(first) ~= "table" then
    fail("generate: expected input_ids or a table with them, got %s", describe(first))
  end
  local length, count
  for _, source in ipairs {C.is_tensor(first) and {} or first, options or {}} do
    if type(source) ~= "table" then fail("generate: expected a table of options, got %s", describe(source)) end
    for name, value in pairs(source) do
      if name == "input_ids" or name == "attention_mask" or name == "token_type_ids" then
        if not C.is_tensor(value) then fail("generate: %s: expected a tensor, got %s", name, describe(value)) end
        batch[name] = value
      else
        check(name, value)
        o[name] = value
        if name == "max_length" then length = value end
        if name == "max_new_tokens" then count = value end
      end
    end
  end
  -- An option of the call overrides a checkpoint's equivalent one.
  if length and not count then o.max_new_tokens = nil end
  return batch, o
end

local function set_limits(model, batch, o)
  local ids = batch.input_ids
  if not ids or ids:dim() ~= 2 or ids:size(0) < 1 or ids:size(1) < 1 then
    fail("generate: input_ids: expected shape (batch, tokens) with a token at least, got %s",
      ids and arguments.shape_text(ids) or "nil")
  end
  local tokens = ids:size(1)
  local last = o.max_new_tokens and tokens + o.max_new_tokens or o.max_length or tokens + 20
  if last <= tokens then fail("generate: max_length %d leaves nothing to write after %d tokens", last, tokens) end
  local most = model.has_any_length and math.huge or model.config.n_positions
  if last > most then
    fail("generate: %d tokens are more than the model's %d positions; lower max_new_tokens", last, most)
  end
  o.last = last
  local eos = o.eos_token_id
  o.eos = type(eos) == "number" and {eos} or eos or {}
  o.pad = o.pad_token_id or o.eos[1] or 0
  if not o.do_sample and o.num_return_sequences > 1 then
    fail("generate: num_return_sequences: without do_sample all %d would be the same", o.num_return_sequences)
  end
end

-- Scores of tokens that are there already, divided (multiplied where they are below 0) by the penalty.
local function penalise(scores, ids, penalty)
  local found = scores:gather(1, ids)
  found = C.where(found:lt(0), found * penalty, found / penalty)
  return scores:scatter(1, ids, found)
end

-- All but the k likeliest away.
local function keep_top_k(scores, k)
  local least = C.topk(scores, math.min(k, scores:size(1)), 1)
  least = least:narrow(1, least:size(1) - 1, 1)
  return scores:masked_fill(scores:lt(least), -math.huge)
end

-- All but the likeliest that have a share p together away; the first stays.
local function keep_top_p(scores, p)
  local sorted, order = C.sort(scores, 1, false)
  local away = C.softmax(sorted, -1):cumsum(-1):le(1 - p)
  away:narrow(1, away:size(1) - 1, 1):fill_(false)
  return scores:masked_fill(away:scatter(1, order, away), -math.huge)
end

-- The next tokens [batch, 1] by the scores [batch, words] of the last ones.
local function choose(scores, ids, o, written)
  if o.repetition_penalty ~= 1 then scores = penalise(scores, ids, o.repetition_penalty) end
  if written < o.min_new_tokens and #o.eos > 0 then
    scores = scores:index_fill(1, C.tensor(o.eos, {dtype = "int64", device = scores.device}), -math.huge)
  end
  if not o.do_sample then return scores:argmax(-1, true) end
  if o.temperature ~= 1 then scores = scores / o.temperature end
  if o.top_k > 0 then scores = keep_top_k(scores, o.top_k) end
  if o.top_p < 1 then scores = keep_top_p(scores, o.top_p) end
  return C.multinomial(C.softmax(scores, -1), 1)
end

-- Tokens count from 0 in each row, padding not.
local function positions(mask)
  return (mask:cumsum(-1) - 1):clamp_min(0)
end

local function is_end(tokens, eos)
  local ended = tokens:eq(eos[1])
  for i = 2, #eos do ended = ended:logical_or(tokens:eq(eos[i])) end
  return ended
end

-- The inputs of a step: all tokens, or, with cached keys and values, the last one.
local function step_inputs(ids, mask, past, o)
  local given = {input_ids = ids, attention_mask = mask, past_key_values = past, use_cache = o.use_cache}
  if mask then given.position_ids = positions(mask) end
  if past then
    local last = ids:size(1) - 1
    given.input_ids = ids:narrow(1, last, 1)
    if mask then given.position_ids = given.position_ids:narrow(1, last, 1) end
  end
  given.logits_to_keep = 1
  return given
end

-- A mask is carried only where something is hidden.
local function hidden(mask, ids)
  if not mask then return nil end
  if not C.same_shape(mask, ids) then
    fail("generate: attention_mask: expected shape %s, got %s", arguments.shape_text(ids), arguments.shape_text(mask))
  end
  mask = mask:ne(0)
  return not mask:all():item() and mask:to "int64" or nil
end

local function write(model, batch, o)
  local ids, mask = batch.input_ids, hidden(batch.attention_mask, batch.input_ids)
  if o.num_return_sequences > 1 then
    ids = ids:repeat_interleave(o.num_return_sequences, 0)
    mask = mask and mask:repeat_interleave(o.num_return_sequences, 0)
  end
  local first, past = ids:size(1), nil
  local open = C.ones({ids:size(0), 1}, {dtype = "bool", device = ids.device})
  while ids:size(1) < o.last do
    if past and model:_is_past_stale(ids:size(1)) then past = nil end
    local output = model(step_inputs(ids, mask, past, o))
    past = output.past_key_values
    local scores = output.logits:select(1, -1):to "float32"
    local tokens = choose(scores, ids, o, ids:size(1) - first):to(ids.dtype)
    if #o.eos > 0 then tokens = C.where(open, tokens, C.full_like(tokens, o.pad)) end
    ids = C.cat({ids, tokens}, 1)
    if mask then mask = C.cat({mask, C.ones_like(tokens):to "int64"}, 1) end
    if o.on_token then o.on_token(tokens) end
    if #o.eos > 0 then
      open = open:logical_and(is_end(tokens, o.eos):logical_not())
      if not open:any():item() then break end
    end
  end
  return ids
end

--- The methods of models that continue texts; their forward accepts past_key_values, use_cache and logits_to_keep.
---@class GenerationMixin
local GenerationMixin = {}

--- Must the keys and values of earlier tokens be computed again when the text has this number of tokens?
---@param tokens integer
---@return boolean
function GenerationMixin:_is_past_stale(tokens) return false end -- luacheck: ignore 212

--- Continue texts, token by token. Returns the ids [batch, tokens], which begin with the prompts. Finished rows
--- continue with pad_token_id. Prompts of different lengths are padded on the left and require their attention_mask. A
--- model in training mode applies dropout while it generates: call model:eval() before.
--
--   local config = {vocab_size = 9, n_positions = 8, n_embd = 8, n_layer = 1, n_head = 2, eos_token_id = 0}
--   local model = accelhost.models.GPT2LMHeadModel(config):eval()
--   local ids = model:generate(accelhost.arange(2):view(1, 2), {max_new_tokens = 3, do_sample = true, top_k = 4})
---@param input_ids Tensor|table [batch, tokens], or a table with them, attention_mask, and options
---@param options? table max_new_tokens (default: until max_length, else 20), max_length, min_new_tokens, do_sample
--- (default false: the likeliest token), temperature (1), top_k (50), top_p (1), repetition_penalty (1),
--- eos_token_id, pad_token_id (the first eos_token_id), num_return_sequences (1), use_cache (true) and on_token,
--- called with each column of tokens [batch, 1]
---@return Tensor
---@names generate
function GenerationMixin:generate(input_ids, options)
  local batch, o = read(self, input_ids, options)
  set_limits(self, batch, o)
  return C.autograd.no_grad(write, self, batch, o)
end

--- Add the methods of models that continue texts to a class.
---@param cls table
function generation.mix_into(cls)
  for name, method in pairs(GenerationMixin) do cls[name] = method end
end

return generation
