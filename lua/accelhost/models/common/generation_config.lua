--- The options of generation: one table for generate, GenerationConfig, generation_config.json and the options of
--- `accelhost generate`. Names, defaults and meanings are those of transformers.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

local fail, describe, null = arguments.fail, arguments.describe, C.json.null
local config = {}

local function is_number(value) return type(value) == "number" and value == value end
local function is_count(value, least) return is_number(value) and value >= least and value % 1 == 0 end

local function is_list(value, check)
  if type(value) ~= "table" or getmetatable(value) ~= nil or #value == 0 then return false end
  for _, item in ipairs(value) do
    if not check(item) then return false end
  end
  return true
end

local function is_id(value) return is_count(value, 0) end
local function is_ids(value) return is_list(value, is_id) end
local function is_text(value) return type(value) == "string" and value ~= "" end

local function is_bias(value)
  return type(value) == "table" and is_ids(value[1]) and is_number(value[2]) and #value == 2
end

-- The values of an option: in words, the check, and the type of the command's option (nil: the command has none).
local count = {"a positive integer", function(value) return is_count(value, 1) end, "integer"}
local number_of = {"a number of tokens", is_id, "integer"}
local flag = {"true or false", function(value) return type(value) == "boolean" end, "flag"}
local positive = {"a number above 0", function(value) return is_number(value) and value > 0 end, "number"}
local number = {"a number", is_number, "number"}
local share = {"a number above 0, at most 1", function(value)
  return is_number(value) and value > 0 and value <= 1
end, "number"}
local fraction = {"a number from 0 to 1", function(value)
  return is_number(value) and value >= 0 and value <= 1
end, "number"}
local id = {"a token's number", is_id, "integer"}
local one_or_more_ids = {"a token's number or several", function(value) return is_id(value) or is_ids(value) end, "ids"}
local ids = {"tokens' numbers", is_ids, "ids"}
local texts = {"a text or several", function(value) return is_text(value) or is_list(value, is_text) end, "texts"}

--- The options that generation_config.json may have too: name, default, values, help.
config.rows = {
  {"max_new_tokens", nil, count, "most tokens to write (default: until max_length, else 20)"},
  {"max_length", nil, count, "most tokens of prompt and text together"},
  {"min_new_tokens", nil, number_of, "tokens before which the text may not end"},
  {"min_length", 0, number_of, "tokens of prompt and text before which the text may not end"},
  {"max_time", nil, positive, "seconds after which no further token is written"},
  {"stop_strings", nil, texts, "texts that end the output"},
  {"do_sample", false, flag, "draw tokens; else the likeliest ones are written"},
  {"num_beams", 1, count, "number of beams of beam search (1: none)"},
  {"early_stopping", false, {"true, false or \"never\"", function(value)
    return type(value) == "boolean" or value == "never"
  end}, "end beam search at num_beams complete texts; \"never\": when no better one can follow"},
  {"length_penalty", 1, number, "exponent of the length by which the scores of beams are divided"},
  {"temperature", 1, positive, "divisor of the scores: below 1 safer, above 1 more random"},
  {"top_k", 50, {"a number of tokens (0: all)", is_id, "integer"}, "draw from this number of tokens (0: all)"},
  {"top_p", 1, share, "draw from the likeliest tokens with this total probability"},
  {"min_p", nil, fraction, "draw from tokens with this part of the likeliest one's probability"},
  {"typical_p", 1, share, "draw from the most typical tokens with this total probability"},
  {"epsilon_cutoff", 0, fraction, "draw from tokens with this probability"},
  {"eta_cutoff", 0, fraction, "the same, less where the distribution is wide"},
  {"repetition_penalty", 1, positive, "above 1: tokens of prompt and text are less likely"},
  {"presence_penalty", 0, number, "subtracted from the scores of written tokens"},
  {"frequency_penalty", 0, number, "subtracted from the scores of written tokens, for each occurrence"},
  {"no_repeat_ngram_size", 0, number_of, "no sequence of this number of tokens occurs twice (0: any may)"},
  {"bad_words_ids", nil, {"lists of tokens' numbers", function(value) return is_list(value, is_ids) end},
    "sequences of tokens that are not written"},
  {"sequence_bias", nil, {"pairs of tokens' numbers and a number", function(value) return is_list(value, is_bias) end},
    "pairs {sequence of tokens, number added to the score of its last one}"},
  {"suppress_tokens", nil, ids, "tokens that are not written"},
  {"begin_suppress_tokens", nil, ids, "tokens that are not written first"},
  {"forced_bos_token_id", nil, id, "token after a prompt of one token"},
  {"forced_eos_token_id", nil, one_or_more_ids, "token at max_length"},
  {"exponential_decay_length_penalty", nil, {"a number of tokens and a factor", function(value)
    return type(value) == "table" and #value == 2 and is_id(value[1]) and is_number(value[2])
  end}, "{number of tokens, factor by which the end becomes likelier with each token after them}"},
  {"remove_invalid_values", false, flag, "replace scores that are no finite numbers"},
  {"renormalize_logits", false, flag, "normalise the scores again after all changes"},
  {"num_return_sequences", 1, count, "texts for each prompt"},
  {"use_cache", true, flag, "keep keys and values of earlier tokens"},
  {"eos_token_id", nil, one_or_more_ids, "tokens that end a text"},
  {"pad_token_id", nil, id, "token after the end of a text in a batch"},
  {"bos_token_id", nil, id, "token that begins a text"},
  {"decoder_start_token_id", nil, id, "first token of a decoder with an encoder"},
  {"return_dict_in_generate", false, {flag[1], flag[2]}, "return a table, not the tokens alone"},
  {"output_scores", false, {flag[1], flag[2]}, "the table has the scores of each step, after all changes"},
  {"output_logits", false, {flag[1], flag[2]}, "the table has the model's scores of each step"},
  {"num_assistant_tokens", 20, count, "most tokens that an assistant model proposes at once"},
  {"assistant_confidence_threshold", 0.4, fraction, "an assistant model stops proposing below this probability"},
  {"prompt_lookup_num_tokens", nil, count, "number of tokens proposed from earlier in the text"},
  {"max_matching_ngram_size", 2, count, "most tokens by which a proposal from earlier in the text is found"},
}

-- Entries of files that change the tokens and are not implemented -> the values with which they do not.
local neutral = {
  guidance_scale = {1}, watermarking_config = {}, token_healing = {false}, encoder_repetition_penalty = {1},
  encoder_no_repeat_ngram_size = {0}, penalty_alpha = {0}, dola_layers = {}, num_beam_groups = {1},
  diversity_penalty = {0}, constraints = {}, force_words_ids = {}, top_h = {}, output_attentions = {false},
  output_hidden_states = {false},
}

config.by_name, config.names = {}, {}
for i, row in ipairs(config.rows) do config.by_name[row[1]], config.names[i] = row, row[1] end

--- Raise unless an option has a value of its kind.
function config.check(what, name, value)
  local row = config.by_name[name]
  if row and not row[3][2](value) then fail("%s: %s: expected %s, got %s", what, name, row[3][1], describe(value)) end
end

--- Raise for an entry that is not implemented and changes the tokens.
function config.refuse(what, name, value)
  local fine = neutral[name] == nil
  for _, same in ipairs(neutral[name] or {}) do fine = fine or value == same end
  if not fine then fail("%s: %s = %s is not implemented", what, name, describe(value)) end
end

--- Options of generation by name, as generation_config.json has them. Options that are not set have the default of
--- generate. Other entries are kept, and written again.
--
--   local options = accelhost.models.GenerationConfig{max_new_tokens = 9, do_sample = true}
--   options.max_new_tokens  --> 9
local GenerationConfig = class.new "GenerationConfig"
config.GenerationConfig = GenerationConfig

local function set(self, values)
  for name, value in pairs(values) do
    if value ~= null then self[name] = value end
  end
end

---@param values? table
function GenerationConfig:init(values)
  values = values or {}
  if not arguments.is_options(values) then
    fail("GenerationConfig: expected a table of options, got %s", describe(values))
  end
  for name, value in pairs(values) do config.refuse("GenerationConfig", name, value) end
  for _, name in ipairs(arguments.sorted_keys(values)) do
    if not config.by_name[name] and neutral[name] == nil and name:sub(1, 1) ~= "_" then
      fail("GenerationConfig: unknown option '%s'%s", name, arguments.did_you_mean(name, config.names))
    end
  end
  for name, value in pairs(values) do config.check("GenerationConfig", name, value) end
  set(self, values)
end

--- Return the options that are set, as stored in generation_config.json.
--
--   accelhost.models.GenerationConfig{top_k = 5}:to_dict().top_k  --> 5
---@return table
function GenerationConfig:to_dict()
  local values = {}
  for name, value in next, self do values[name] = value end
  return values
end

--- Read generation_config.json of a folder.
---@return GenerationConfig
function GenerationConfig.from_pretrained(path)
  arguments.check("GenerationConfig.from_pretrained", "path", "string", path)
  local values = config.read_file("GenerationConfig.from_pretrained", path)
  if not values then fail("GenerationConfig.from_pretrained: '%s' has no generation_config.json", path) end
  return values
end

--- Write generation_config.json into a folder that exists.
function GenerationConfig:save_pretrained(folder)
  arguments.check("GenerationConfig.save_pretrained", "folder", "string", folder)
  C.io.write_text(folder .. "/generation_config.json", C.json.encode(self:to_dict(), 2) .. "\n")
end

--- Return the options of a folder's generation_config.json, nil without one. They are checked when they are used.
---@return GenerationConfig?
function config.read_file(what, folder)
  local values = require("accelhost.models.common.config").read_object(what, folder .. "/generation_config.json")
  if not values then return nil end
  local made = GenerationConfig()
  set(made, values)
  return made
end

return config
