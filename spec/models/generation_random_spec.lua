-- Random combinations of generation's options against transformers: scripts/fixtures/generation_random.py.
local accelhost = require "accelhost"
local arguments = require "accelhost.util.arguments"
local check = require "spec.support.check"
local tensors = require "spec.support.tensors"
local models = accelhost.models

local expected = require("spec.support.fixtures").load "models/generation_random"
local ids, left = tensors.long(expected.ids), tensors.long(expected.left)

local loaded = setmetatable({}, {__index = function(self, name)
  local Auto = name:find "^t5" and models.AutoModelForSeq2SeqLM or models.AutoModelForCausalLM
  self[name] = Auto.from_pretrained("spec/fixtures/models/" .. name, {dtype = "float64"})
  return self[name]
end})

-- A tokenizer whose tokens are pieces of one to three letters.
local vocabulary = {}
for i, piece in ipairs(expected.pieces) do vocabulary[piece] = i - 1 end
local tokenizer = accelhost.text.Tokenizer(('{"model": {"type": "BPE", "vocab": %s, "merges": []}, "decoder": '
  .. '{"type": "ByteLevel"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}}'):format(
  accelhost.json.encode(vocabulary)))

local function generate(case, more)
  local o = {pad_token_id = 0, tokenizer = tokenizer, return_dict_in_generate = true, output_scores = true}
  for _, source in ipairs {case.options, more or {}} do
    for name, value in pairs(source) do o[name] = value end
  end
  local rows = o.rows or ids:size(0)
  if o.left then o.attention_mask = left:narrow(0, 0, rows) end
  if o.assistant then o.assistant_model = loaded[o.assistant] end
  o.rows, o.left, o.assistant = nil, nil, nil
  local found = loaded[case.model]:generate(ids:narrow(0, 0, rows), o)
  local first = case.model:find "^t5" and 1 or ids:size(1)
  return found.sequences:narrow(1, first, found.sequences:size(1) - first):tolist(), found
end

local function text_of(options)
  local parts = {}
  for _, name in ipairs(arguments.sorted_keys(options)) do
    parts[#parts + 1] = name .. " = " .. accelhost.json.encode(options[name])
  end
  return table.concat(parts, ", ")
end

local counts, windowed = {}, {["decoders/mistral"] = true, ["decoders/gemma3"] = true}
for _, case in ipairs(expected.cases) do
  for name in pairs(case.options) do counts[name] = (counts[name] or 0) + 1 end
  if case.options.left and windowed[case.model] then counts.left_window = (counts.left_window or 0) + 1 end
end

describe("generate writes transformers' tokens with a combination of options:", function()
  for _, case in ipairs(expected.cases) do
    it(case.model .. ": " .. text_of(case.options), function()
      local tokens, found = generate(case)
      assert.same(case.tokens, tokens)
      if case.scores then check.near(case.scores, found.sequences_scores, 1e-6) end
      if not case.options.assistant and not case.options.prompt_lookup_num_tokens then
        assert.same(tokens, (generate(case, {use_cache = case.options.use_cache == false})))
      end
    end)
  end

  it("each option in two combinations at least", function()
    for _, name in ipairs {
      "assistant", "bad_words_ids", "begin_suppress_tokens", "early_stopping", "eos_token_id", "forced_bos_token_id",
      "forced_eos_token_id", "left", "left_window", "length_penalty", "min_new_tokens", "no_repeat_ngram_size",
      "num_beams", "num_return_sequences", "prompt_lookup_num_tokens", "repetition_penalty", "rows", "stop_strings",
      "suppress_tokens", "use_cache",
    } do
      assert.is_true((counts[name] or 0) >= 2, ("%s: %d"):format(name, counts[name] or 0))
    end
  end)
end)
