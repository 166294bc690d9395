--- Generation: a model with a language head continues texts.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local cache = require "accelhost.models.common.cache"
local config = require "accelhost.models.common.generation_config"
local later = require "accelhost.util.later"
local protect = require "accelhost.util.protect"
local warn = require "accelhost.util.warn"
local Run = require "accelhost.models.generation.run"

local search = later "accelhost.models.generation.search"
local beams = later "accelhost.models.generation.beams"
local assisted = later "accelhost.models.generation.assisted"
local fail, describe = arguments.fail, arguments.describe
local generation = {}

local function is_callable(value)
  return type(value) == "function" or type(value) == "table" and getmetatable(value) ~= nil
    and getmetatable(value).__call ~= nil
end

local function are_callable(value)
  if type(value) ~= "table" or is_callable(value) then return false end
  for _, item in ipairs(value) do
    if not is_callable(item) then return false end
  end
  return true
end

-- Options of a call alone: the expected values in words, and the check.
local kinds = {
  on_token = {"a function", is_callable},
  streamer = {"an object with the methods put and finish, or a function", function(value)
    return is_callable(value) or type(value) == "table" and value.put ~= nil
  end},
  logits_processor = {"a list of functions", are_callable}, stopping_criteria = {"a list of functions", are_callable},
  prefix_allowed_tokens_fn = {"a function", is_callable},
  generator = {"a generator", function(value) return type(value) == "userdata" and not C.is_tensor(value) end},
  assistant_model = {"a model with a language head", function(value)
    return type(value) == "table" and value.config ~= nil and value._step_inputs ~= nil
  end},
  tokenizer = {"a tokenizer", function(value) return type(value) ~= "nil" and type(value) ~= "string" end},
  past_key_values = {"keys and values of an earlier call", function(value)
    return type(value) == "table" and type(value[1]) == "table"
  end},
  generation_config = {"a GenerationConfig or a table", function(value)
    return type(value) == "table" and getmetatable(value) ~= getmetatable ""
  end},
}
local names = arguments.sorted_keys(kinds)
for _, name in ipairs(config.names) do names[#names + 1] = name end

local function check(name, value)
  local kind = kinds[name]
  if not kind and not config.by_name[name] then
    config.refuse("generate", name, value)
    fail("generate: unknown option '%s' (known: %s)%s", tostring(name), table.concat(names, ", "),
      arguments.did_you_mean(tostring(name), names))
  end
  if kind and not kind[2](value) then fail("generate: %s: expected %s, got %s", name, kind[1], describe(value)) end
  config.check("generate", name, value)
end

-- Set the options that a generation config has.
local function add_config(o, source)
  for name, value in next, source do
    config.refuse("generate: generation_config", name, value)
    if config.by_name[name] and value ~= C.json.null then
      config.check("generate: generation_config", name, value)
      o[name] = value
    end
  end
end

local tensors = {input_ids = true, attention_mask = true, token_type_ids = true}

-- Options by name: those passed, else the checkpoint's, else the defaults. Also the batch, which may be in one table
-- with the options.
local function read(model, first, options)
  local batch, o, given = {}, {}, {}
  if C.is_tensor(first) then
    batch.input_ids = first
  elseif type(first) ~= "table" then
    fail("generate: expected input_ids or a table with them, got %s", describe(first))
  end
  for _, source in ipairs {C.is_tensor(first) and {} or first, options or {}} do
    if type(source) ~= "table" then fail("generate: expected a table of options, got %s", describe(source)) end
    for name, value in pairs(source) do
      if tensors[name] or model._accepts and model._accepts[name] then
        if not C.is_tensor(value) then fail("generate: %s: expected a tensor, got %s", name, describe(value)) end
        batch[name] = value
      else
        check(name, value)
        given[name] = value
      end
    end
  end
  for _, row in ipairs(config.rows) do
    local value = rawget(model.config, row[1])
    if value == nil or not row[3][2](value) or row[1] == "use_cache" then value = row[2] end
    o[row[1]] = value
  end
  add_config(o, model.generation_config or {})
  add_config(o, given.generation_config or {})
  o.use_cache = true
  for name, value in pairs(given) do o[name] = value end
  -- An option of the call overrides a checkpoint's equivalent one.
  if given.max_length and not given.max_new_tokens then o.max_new_tokens = nil end
  return batch, o
end

local function check_ids(ids)
  if not ids or ids:dim() ~= 2 or ids:size(0) < 1 or ids:size(1) < 1 then
    fail("generate: input_ids: expected shape (batch, tokens) with a token at least, got %s",
      ids and arguments.shape_text(ids) or "nil")
  end
end

local function set_limits(model, o, tokens)
  local last = o.max_new_tokens and tokens + o.max_new_tokens or o.max_length or tokens + 20
  if last <= tokens then fail("generate: max_length %d leaves nothing to write after %d tokens", last, tokens) end
  local most = model.has_any_length and math.huge or model.config.n_positions - model:_virtual_tokens()
  if last > most then
    fail("generate: %d tokens are more than the model's %d positions; lower max_new_tokens", last, most)
  end
  o.last = last
end

local function check_combination(o)
  local count = o.num_return_sequences
  if o.num_beams > 1 and count > o.num_beams then
    fail("generate: num_return_sequences: expected at most num_beams, which is %d, got %d", o.num_beams, count)
  elseif o.num_beams > 1 and (o.streamer or o.on_token) then
    fail("generate: %s: beams have no next token", o.streamer and "streamer" or "on_token")
  elseif o.num_beams > 1 and (o.assistant_model or o.prompt_lookup_num_tokens) then
    fail("generate: %s: not with num_beams", o.assistant_model and "assistant_model" or "prompt_lookup_num_tokens")
  elseif o.num_beams == 1 and not o.do_sample and count > 1 then
    fail("generate: num_return_sequences: without do_sample all %d would be the same", count)
  end
end

-- A mask is carried only where something is hidden.
local function hidden(mask, ids)
  if not mask then return nil end
  if not C.same_shape(mask, ids) then
    fail("generate: attention_mask: expected shape %s, got %s", arguments.shape_text(ids), arguments.shape_text(mask))
  end
  mask = mask:ne(0)
  if mask:all():item() then return nil end
  if not mask:select(1, -1):all():item() then
    warn "generate: prompts are padded on the right, and continued after the padding: tokenizer.padding_side = 'left'"
  end
  return mask:to "int64"
end

local function check_past(model, o, ids)
  if not o.past_key_values then return end
  local entry = o.past_key_values[1]
  if not C.is_tensor(entry[1]) or entry[1]:dim() ~= 4 then
    fail("generate: past_key_values: expected keys and values of each layer")
  elseif entry[1]:size(0) ~= ids:size(0) then
    fail("generate: past_key_values: they are of %d texts, the input of %d", entry[1]:size(0), ids:size(0))
  elseif cache.seen(entry) - model:_virtual_tokens() >= ids:size(1) then
    fail("generate: past_key_values: they are of %d tokens; expected more in input_ids, got %d", cache.seen(entry),
      ids:size(1))
  end
end

local function write(model, batch, o)
  local start = model:_begin(batch, o)
  check_past(model, o, start.ids)
  set_limits(model, o, start.ids:size(1))
  local eos = o.eos_token_id
  o.eos = type(eos) == "number" and {eos} or eos or {}
  o.pad = o.pad_token_id or o.eos[1] or 0
  check_combination(o)
  local run = Run.new(model, o, start)
  local way = search
  if o.num_beams > 1 then way = beams elseif o.assistant_model or o.prompt_lookup_num_tokens then way = assisted end
  local result = way.run(run)
  return o.return_dict_in_generate and result or result.sequences
end

-- Write with the draws of a generator. Ops draw from the default one, which gets its state and returns it afterwards.
local function with_generator(generator, ...)
  if not generator then return write(...) end
  local random = C.random
  local saved = random.get_rng_state()
  random.set_rng_state(generator:get_state())
  return protect(function()
    generator:set_state(random.get_rng_state())
    random.set_rng_state(saved)
  end, write, ...)
end

--- The methods of models that continue texts; their forward accepts past_key_values, use_cache and logits_to_keep.
---@class GenerationMixin
local GenerationMixin = {}

--- Return the number of tokens of a text beyond which the keys and values of all its tokens are others.
---@return number
function GenerationMixin:_valid_length() return math.huge end -- luacheck: ignore 212

--- Return the number of trained tokens in front of each text, which its keys and values have and its ids have not.
---@return integer
function GenerationMixin:_virtual_tokens() return 0 end -- luacheck: ignore 212

--- Can a step of one token be captured and replayed, in texts of up to this number of tokens? Its calls may depend on
--- the place of the token by position_ids and past_key_values alone.
---@return boolean
function GenerationMixin:_is_capturable(tokens) return false end -- luacheck: ignore 212

--- Return the start of a run: ids, the first tokens; mask, nil where there is no padding; past; and more, inputs of
--- every step with a row for each text. A model with an encoder runs it here: its ids are the decoder's first tokens,
--- `more` has encoder_outputs and the mask of the encoder's tokens. The names of its inputs are in the field
--- `_accepts`.
---@param batch table<string, Tensor> inputs by name
---@param o table all options
---@return {ids: Tensor, mask: Tensor?, past: table[]?, more: table?}
function GenerationMixin:_begin(batch, o) -- luacheck: ignore 212
  local ids = batch.input_ids
  check_ids(ids)
  return {ids = ids, mask = hidden(batch.attention_mask, ids), past = o.past_key_values}
end

--- Return the inputs of a step, with the tokens under their name.
---@param given table inputs by name
---@param ids Tensor tokens that were not yet computed
---@return table
function GenerationMixin:_step_inputs(given, ids) -- luacheck: ignore 212
  given.input_ids = ids
  return given
end

--- Continue texts, token by token. Returns the ids [batch, tokens], which begin with the prompts; with
--- return_dict_in_generate a table of sequences, past_key_values, and where requested scores, logits and, of beams,
--- sequences_scores and beam_indices. Finished rows continue with pad_token_id. Prompts of different lengths are padded
--- on the left and require their attention_mask. A model in training mode applies dropout while it generates: call
--- model:eval() before.
---
--- Names, defaults and tokens are transformers', those of sampling with its random numbers too.
--
--   local config = {vocab_size = 9, n_positions = 8, n_embd = 8, n_layer = 1, n_head = 2, eos_token_id = 0}
--   local model = accelhost.models.GPT2LMHeadModel(config):eval()
--   local prompt = accelhost.arange(2):view(1, 2)
--   local ids = model:generate(prompt, {max_new_tokens = 3, do_sample = true, top_k = 4})
--   local best = model:generate(prompt, {max_new_tokens = 3, num_beams = 3, num_return_sequences = 2})
--   best:size(0)  --> 2
---@param input_ids Tensor|table [batch, tokens], or a table with them, attention_mask, and options
---@param options? table those of GenerationConfig: max_new_tokens (default: until max_length, else 20), max_length,
--- min_new_tokens, min_length, max_time (seconds), stop_strings (with tokenizer); do_sample (default false: the
--- likeliest token), temperature (1), top_k (50), top_p (1), min_p, typical_p, epsilon_cutoff, eta_cutoff; num_beams
--- (1), length_penalty (1), early_stopping (false, true or "never"); repetition_penalty (1), presence_penalty and
--- frequency_penalty (0: of written tokens), no_repeat_ngram_size, bad_words_ids, sequence_bias, suppress_tokens,
--- begin_suppress_tokens, forced_bos_token_id, forced_eos_token_id, exponential_decay_length_penalty,
--- remove_invalid_values, renormalize_logits; eos_token_id (one or several), pad_token_id (the first eos_token_id),
--- num_return_sequences (1), use_cache (true), return_dict_in_generate, output_scores, output_logits;
--- prompt_lookup_num_tokens, max_matching_ngram_size (2), num_assistant_tokens (20), assistant_confidence_threshold
--- (0.4). Those of the call alone: generation_config, generator, on_token, called with each column of tokens
--- [batch, 1], streamer (a TextStreamer, or a function of the new tokens), logits_processor and stopping_criteria
--- (lists of functions of ids and scores, which return scores, or true to end), prefix_allowed_tokens_fn,
--- assistant_model, tokenizer, past_key_values (of an earlier call whose tokens input_ids begin with)
---@return Tensor|table
---@names generate
function GenerationMixin:generate(input_ids, options)
  local batch, o = read(self, input_ids, options)
  return C.autograd.no_grad(with_generator, o.generator, self, batch, o)
end

--- Add the methods of models that continue texts to a class.
function generation.mix_into(cls)
  for name, method in pairs(GenerationMixin) do cls[name] = method end
end

return generation
