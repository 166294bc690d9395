-- Generation against transformers: every option with several families and each logits processor; then properties that
-- have no fixture.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local tensors = require "spec.support.tensors"
local processors = require "accelhost.models.generation.processors"
local config = require "accelhost.models.common.generation_config"
local models = accelhost.models

local folder = "spec/fixtures/models/"
local expected = require("spec.support.fixtures").load "models/generation"
local prompt, mask = tensors.long(expected.ids), tensors.long(expected.mask)
local FIRST = prompt:size(1)

local loaded = setmetatable({}, {__index = function(self, key)
  local name, dtype = key:match "^(%S+) (%S+)$"
  self[key] = models.AutoModelForCausalLM.from_pretrained(folder .. name, {dtype = dtype})
  return self[key]
end})

-- The options of a case as generate accepts them, and the prompt.
local function call(options, more)
  local o, ids = {max_new_tokens = expected.new, pad_token_id = 0}, prompt
  for name, value in pairs(options) do o[name] = value end
  for name, value in pairs(more or {}) do o[name] = value end
  if o.mask then o.attention_mask = mask end
  if o.row then ids = prompt:narrow(0, 0, 1) end
  o.mask, o.row = nil, nil
  return ids, o
end

local function written(model, options, more)
  local ids, o = call(options, more)
  local found = model:generate(ids, o)
  return found:narrow(1, FIRST, found:size(1) - FIRST):tolist()
end

local names = {}
for name in pairs(expected.models) do names[#names + 1] = name end
table.sort(names)

local function sorted(cases)
  local list = {}
  for name in pairs(cases) do list[#list + 1] = name end
  table.sort(list)
  return list
end

for _, name in ipairs(names) do
  local numbers = expected.models[name]
  describe("generate with " .. name, function()
    for _, case in ipairs(sorted(numbers.searches)) do
      it("writes transformers' tokens: " .. case, function()
        assert.same(numbers.searches[case], written(loaded[name .. " float64"], expected.searches[case]))
      end)
    end

    for _, case in ipairs(sorted(numbers.samples)) do
      it("draws transformers' tokens with the same seed: " .. case, function()
        accelhost.manual_seed(7)
        assert.same(numbers.samples[case],
          written(loaded[name .. " float32"], expected.samples[case], {do_sample = true}))
      end)
    end

    it("returns the scores and parents of beams", function()
      local ids, o = call(expected.searches.beams_several, {return_dict_in_generate = true, output_scores = true})
      local found = loaded[name .. " float64"]:generate(ids, o)
      check.near(numbers.sequences_scores, found.sequences_scores, 1e-5)
      assert.same(numbers.beam_indices, found.beam_indices:tolist())
    end)

    it("returns the scores and logits of each step", function()
      local ids, o = call(expected.searches.penalty, {return_dict_in_generate = true, output_scores = true,
        output_logits = true})
      local found = loaded[name .. " float64"]:generate(ids, o)
      for step, rows in ipairs(numbers.scores) do
        for row, values in ipairs(rows) do
          for i, value in ipairs(values) do
            local at = 6 * (i - 1)
            check.near(value, found.scores[step][row - 1][at]:item(), 1e-4)
            check.near(numbers.plain_logits[step][row][i], found.logits[step][row - 1][at]:item(), 1e-4)
          end
        end
      end
    end)
  end)
end

describe("A logits processor changes random scores as transformers' does:", function()
  local given = expected.processors
  local ids, scores = tensors.long(given.ids), accelhost.tensor(given.scores)

  local function changed(options, tokens)
    local o = {eos = {2, 7}, last = 13, num_beams = 1, do_sample = true}
    for _, row in ipairs(config.rows) do o[row[1]] = row[2] end
    o.top_k, o.do_sample = 0, true
    for name, value in pairs(options) do o[name] = value end
    local place = {first = 8, padding = o.padding and tensors.long(o.padding):unsqueeze(1)}
    local list = processors.list(o, place)
    assert.equal(1, #list)
    return processors.apply(list, tokens or ids, scores)
  end

  local function near(wanted, found)
    for i, row in ipairs(wanted) do
      for j, value in ipairs(row) do
        local other = found[i - 1][j - 1]:item()
        assert(value == other or math.abs(value - other) < 1e-5, ("[%d][%d]: expected %g, got %g"):format(i, j, value,
          other))
      end
    end
  end

  for _, name in ipairs(sorted(given.cases)) do
    it(name, function() near(given.cases[name].scores, changed(given.cases[name].options)) end)
  end

  it("forced_bos_token_id", function()
    near(given.forced_bos, changed({forced_bos_token_id = 6}, tensors.long(given.first)))
  end)
end)

-- Properties.

local function llama(options)
  local o = {vocab_size = 37, hidden_size = 16, intermediate_size = 24, num_hidden_layers = 2, num_attention_heads = 4,
    num_key_value_heads = 2, max_position_embeddings = 64, eos_token_id = 2}
  for name, value in pairs(options or {}) do o[name] = value end
  return models.LlamaForCausalLM(o):to("float64"):eval()
end

local function wide(model)
  accelhost.no_grad(function()
    for _, parameter in ipairs(model:parameters()) do
      if parameter:dim() > 1 then parameter:mul_(15) end
    end
  end)
  return model
end

local one = prompt:narrow(0, 0, 1)

describe("Assisted generation", function()
  for _, name in ipairs(names) do
    it("writes the tokens of greedy search, by another model and by lookup: " .. name, function()
      local model = loaded[name .. " float64"]
      local wanted = model:generate(one, {max_new_tokens = 30, pad_token_id = 0}):tolist()
      for _, more in ipairs {
        {assistant_model = loaded["decoders/llama float64"]}, {assistant_model = model, num_assistant_tokens = 5},
        {assistant_model = model, assistant_confidence_threshold = 0}, {prompt_lookup_num_tokens = 4},
        {prompt_lookup_num_tokens = 1, max_matching_ngram_size = 1},
      } do
        more.max_new_tokens, more.pad_token_id = 30, 0
        assert.same(wanted, model:generate(one, more):tolist())
      end
    end)
  end

  it("obeys processors, and ends at the end of the text", function()
    local model = loaded["gpt2 float32"]
    for _, more in ipairs {{repetition_penalty = 1.5}, {eos_token_id = {2, 7, 9}}, {no_repeat_ngram_size = 2},
      {min_new_tokens = 20, eos_token_id = {2, 7, 9}}} do
      more.max_new_tokens, more.pad_token_id = 30, 0
      local wanted = model:generate(one, more):tolist()
      more.prompt_lookup_num_tokens = 3
      assert.same(wanted, model:generate(one, more):tolist())
      more.prompt_lookup_num_tokens, more.assistant_model = nil, loaded["decoders/llama float32"]
      assert.same(wanted, model:generate(one, more):tolist())
    end
  end)

  it("draws second tokens with the model's probabilities", function()
    local model, draft, counts = loaded["decoders/llama float64"], loaded["decoders/qwen2 float64"], {}
    local prompt_of = one:narrow(1, 0, 3)
    accelhost.manual_seed(1)
    local found, TRIALS, LIKELIEST = {}, 800, 3
    for _ = 1, TRIALS do
      local ids = model:generate(prompt_of, {do_sample = true, max_new_tokens = 2, min_new_tokens = 2,
        top_k = LIKELIEST, assistant_model = draft, num_assistant_tokens = 3, assistant_confidence_threshold = 0})
      local key = ids[0][3]:item() .. " " .. ids[0][4]:item()
      counts[key] = (counts[key] or 0) + 1
    end
    local function distribution(ids)
      local scores = model(ids).logits:select(1, -1):detach()
      scores[0][2] = -math.huge
      local least = accelhost.topk(scores, LIKELIEST, 1):select(1, LIKELIEST - 1):item()
      return scores:masked_fill(scores:lt(least), -math.huge):softmax(-1)[0]
    end
    local first = distribution(prompt_of)
    for token = 0, 36 do
      local p = first[token]:item()
      if p > 0 then
        local second = distribution(accelhost.cat({prompt_of, tensors.long {{token}}}, 1))
        for after = 0, 36 do
          local both = p * second[after]:item()
          local share = (counts[token .. " " .. after] or 0) / TRIALS
          found[#found + 1] = math.abs(share - both)
        end
      end
    end
    assert.is_true(math.max(unpack(found)) < 0.05, tostring(math.max(unpack(found))))
  end)

  it("refuses several texts, another vocabulary, beams, and no cache", function()
    local model = loaded["decoders/llama float64"]
    local rows = {
      {{}, prompt, "assisted generation continues one text, got 2"},
      {{num_beams = 2}, one, "prompt_lookup_num_tokens: not with num_beams"},
      {{use_cache = false}, one, "assisted generation requires use_cache"},
      {{assistant_model = wide(llama {vocab_size = 36})}, one, "expected a vocabulary of 37 tokens, got 36"},
    }
    for _, row in ipairs(rows) do
      row[1].prompt_lookup_num_tokens = 2
      check.raises(row[3], function() model:generate(row[2], row[1]) end)
    end
  end)
end)

describe("The cache of a window", function()
  it("has the last tokens only, and the text is the same", function()
    for _, name in ipairs {"decoders/mistral", "decoders/gemma3"} do
      local model = loaded[name .. " float64"]
      local o = {max_new_tokens = 40, min_new_tokens = 40, return_dict_in_generate = true, pad_token_id = 0}
      for _, more in ipairs {{}, {attention_mask = mask}, {num_beams = 3}} do
        for key, value in pairs(o) do more[key] = value end
        local with = model:generate(prompt, more)
        more.use_cache = false
        assert.same(model:generate(prompt, more).sequences:tolist(), with.sequences:tolist())
        local last = with.past_key_values[1]
        assert.equal(model.config.sliding_window, last[1]:size(2))
        assert.equal(47, last.seen)
      end
    end
  end)

  it("is continued by several tokens at once", function()
    local model = loaded["decoders/mistral float64"]
    accelhost.manual_seed(3)
    local ids = accelhost.randint(3, 37, {2, 30})
    local whole = model {input_ids = ids, use_cache = false}.logits
    accelhost.no_grad(function()
      local past
      for _, piece in ipairs {{0, 12}, {12, 3}, {15, 1}, {16, 9}, {25, 1}, {26, 4}} do
        local output = model {input_ids = ids:narrow(1, piece[1], piece[2]), past_key_values = past}
        past = output.past_key_values
        check.near(check.flat(whole:narrow(1, piece[1], piece[2])), output.logits, 1e-10)
      end
    end)
  end)
end)

describe("A prefix", function()
  it("is continued from the keys and values of an earlier call", function()
    for _, name in ipairs(names) do
      local model = loaded[name .. " float64"]
      local o = {max_new_tokens = 6, min_new_tokens = 6, return_dict_in_generate = true, pad_token_id = 0}
      local first = model:generate(prompt, o)
      local longer = accelhost.cat({first.sequences, prompt:narrow(1, 0, 4)}, 1)
      local wanted = model:generate(longer, o).sequences:tolist()
      o.past_key_values = first.past_key_values
      local calls, before = 0, nil
      local handle = model:register_forward_pre_hook(function(_, given)
        calls = calls + 1
        before = before or given[1].input_ids:size(1)
      end)
      assert.same(wanted, model:generate(longer, o).sequences:tolist())
      handle:remove()
      assert.equal(6, calls)
      if name ~= "decoders/phi3" then assert.equal(5, before) end -- its longer angles are others
      assert.same(wanted, model:generate(longer, o).sequences:tolist())
    end
  end)

  it("of equal rows, or of several texts, is computed once", function()
    local model, seen = loaded["decoders/llama float64"], {}
    local handle = model:register_forward_pre_hook(function(_, given) seen[#seen + 1] = given[1].input_ids:size(0) end)
    local same = accelhost.cat({one, one, one})
    model:generate(same, {max_new_tokens = 2, do_sample = true, num_return_sequences = 2})
    assert.same({1, 6}, seen)
    seen = {}
    model:generate(one, {max_new_tokens = 2, num_beams = 4})
    handle:remove()
    assert.same({1, 4}, seen)
  end)

  it("refuses keys and values of another text", function()
    local model = loaded["decoders/llama float64"]
    local past = model(prompt).past_key_values
    check.raises("past_key_values: they are of 8 tokens; expected more in input_ids, got 8", function()
      model:generate(prompt, {past_key_values = past})
    end)
    check.raises("past_key_values: they are of 2 texts, the input of 1", function()
      model:generate(one, {past_key_values = past})
    end)
  end)
end)

describe("generate", function()
  local model = loaded["decoders/llama float64"]

  it("draws from a generator, and leaves the default one as it was", function()
    local function draw(seed)
      local generator = accelhost.Generator():manual_seed(seed)
      local before = accelhost.get_rng_state():tolist()
      local ids = model:generate(prompt, {do_sample = true, max_new_tokens = 9, generator = generator}):tolist()
      assert.same(before, accelhost.get_rng_state():tolist())
      return ids, model:generate(prompt, {do_sample = true, max_new_tokens = 9, generator = generator}):tolist()
    end
    local first, second = draw(4)
    accelhost.manual_seed(4)
    assert.same(first, model:generate(prompt, {do_sample = true, max_new_tokens = 9}):tolist())
    assert.same(second, model:generate(prompt, {do_sample = true, max_new_tokens = 9}):tolist())
    assert.are_not.same(first, second)
  end)

  it("calls the caller's processors and criteria", function()
    local function only(_, scores)
      return accelhost.full_like(scores, -math.huge):index_fill(1, tensors.long {5}, 0)
    end
    local ids = model:generate(prompt, {logits_processor = {only}, max_new_tokens = 9, stopping_criteria = {
      function(tokens) return tokens:size(1) >= 11 end,
    }})
    assert.same({5, 5, 5}, ids[1]:narrow(0, 8, 3):tolist())
    assert.equal(11, ids:size(1))
    check.raises("logits_processor: expected scores (2, 37), got nil", function()
      model:generate(prompt, {logits_processor = {function() end}})
    end)
    check.raises("stopping_criteria: expected true, false or a bool for each of 2 rows, got nil", function()
      model:generate(prompt, {stopping_criteria = {function() end}})
    end)
  end)

  it("writes allowed tokens only", function()
    local rows = {}
    local ids = model:generate(prompt, {max_new_tokens = 5, prefix_allowed_tokens_fn = function(row, tokens)
      rows[row] = tokens:size(0)
      return {20 + row, 30 + row}
    end})
    for row = 0, 1 do
      for _, id in ipairs(ids[row]:narrow(0, 8, 5):tolist()) do assert.is_true(id == 20 + row or id == 30 + row) end
      assert.equal(12, rows[row])
    end
  end)

  it("subtracts penalties of written tokens", function()
    local function most(o)
      o.max_new_tokens, o.min_new_tokens, o.pad_token_id = 30, 30, 0
      local counts, top = {}, 0
      for _, id in ipairs(model:generate(one, o)[0]:narrow(0, 8, 30):tolist()) do
        counts[id] = (counts[id] or 0) + 1
        top = math.max(top, counts[id])
      end
      return top
    end
    assert.equal(1, most {presence_penalty = 1000})
    assert.is_true(most {frequency_penalty = 1000} <= 2)
    assert.is_true(most {} > 2)
  end)

  it("ends after a time", function()
    local ids = model:generate(prompt, {max_time = 1e-9, max_new_tokens = 30, min_new_tokens = 30})
    assert.equal(9, ids:size(1))
  end)

  it("warns of prompts that are padded on the right", function()
    local text, stderr = "", io.stderr
    io.stderr = {write = function(_, ...) text = text .. table.concat {...} end} -- luacheck: ignore
    local fine, message = pcall(model.generate, model, prompt, {attention_mask = mask:flip(1), max_new_tokens = 1})
    io.stderr = stderr -- luacheck: ignore
    assert(fine, message)
    assert.matches("^warning: generate: prompts are padded on the right", text)
  end)

  local refusals = {
    {"more texts than beams", {num_beams = 2, num_return_sequences = 3},
      "expected at most num_beams, which is 2, got 3"},
    {"a streamer of beams", {num_beams = 2, streamer = print}, "streamer: beams have no next token"},
    {"stop strings alone", {stop_strings = "x"}, "stop_strings: expected the option tokenizer too"},
    {"an option that is not implemented", {guidance_scale = 2}, "guidance_scale = number 2 is not implemented"},
    {"a wrong value", {early_stopping = "often"}, "early_stopping: expected true, false or \"never\", got 'often'"},
    {"tokens outside of the vocabulary", {bad_words_ids = {{99}}}, "token 99 is outside of the vocabulary of 37"},
    {"a wrong configuration", {generation_config = {top_p = 2}},
      "generation_config: top_p: expected a number above 0, at most 1, got number 2"},
  }
  for _, row in ipairs(refusals) do
    it("refuses " .. row[1], function() check.raises(row[3], function() model:generate(prompt, row[2]) end) end)
  end
end)

describe("GenerationConfig", function()
  local temporary, files = require "spec.support.folder", require "spec.support.files"
  local leave
  before_each(function() leave = temporary.enter() end)
  after_each(function() leave() end)
  local root = require("lfs").currentdir() .. "/" .. folder

  it("is read with a checkpoint, used by generate, and written with it", function()
    accelhost.utils.makedirs "made"
    files.write("made/config.json", files.read(root .. "decoders/llama/config.json"))
    files.write("made/model.safetensors", files.read(root .. "decoders/llama/model.safetensors"))
    files.write("made/generation_config.json", accelhost.json.encode {
      max_new_tokens = 3, eos_token_id = {5, 6}, top_k = accelhost.json.null, cache_implementation = "hybrid",
    })
    local model = models.LlamaForCausalLM.from_pretrained "made"
    assert.equal("GenerationConfig", model.generation_config._name)
    assert.is_nil(model.generation_config.top_k)
    assert.equal(11, model:generate(prompt, {min_new_tokens = 3}):size(1))
    assert.equal(10, model:generate(prompt, {min_new_tokens = 2, generation_config = {max_new_tokens = 2}}):size(1))
    assert.equal(9, model:generate(prompt, {max_new_tokens = 1, generation_config = {max_new_tokens = 2}}):size(1))
    model:save_pretrained "again"
    assert.same({max_new_tokens = 3, eos_token_id = {5, 6}, cache_implementation = "hybrid"},
      models.GenerationConfig.from_pretrained("again"):to_dict())
    models.GenerationConfig {num_beams = 2}:save_pretrained "again"
    assert.same({num_beams = 2}, accelhost.json.decode(files.read "again/generation_config.json"))
  end)

  it("refuses wrong values, unknown names, and a folder without one", function()
    check.raises("GenerationConfig: num_beams: expected a positive integer, got number 0", function()
      models.GenerationConfig {num_beams = 0}
    end)
    check.raises("unknown option 'num_beam' (did you mean 'num_beams'?)", function()
      models.GenerationConfig {num_beam = 2}
    end)
    check.raises("'.' has no generation_config.json", function() models.GenerationConfig.from_pretrained "." end)
    check.raises("penalty_alpha = number 0.6 is not implemented", function()
      models.GenerationConfig {penalty_alpha = 0.6}
    end)
  end)
end)

describe("Texts of a tokenizer", function()
  local text = accelhost.text
  local words = "Grüße, Welt! 日本語 über Ω\nzwei Zeilen 🌊"
  local tokenizer = text.character_tokenizer(words)

  -- A tokenizer of bytes: characters of several bytes are several tokens.
  local function byte_tokenizer()
    local vocabulary, id = {}, 0
    for byte = 0, 255 do
      local code = byte
      if byte < 33 or byte > 126 and byte < 161 or byte == 173 then
        code, id = 256 + id, id + 1
      end
      vocabulary[code < 128 and string.char(code) or string.char(192 + math.floor(code / 64), 128 + code % 64)] = byte
    end
    local json = '{"model": {"type": "BPE", "vocab": %s, "merges": []}, "decoder": {"type": "ByteLevel"}, '
      .. '"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}}'
    return text.Tokenizer(json:format(accelhost.json.encode(vocabulary)))
  end

  local function streamed(tokens, options)
    local parts, streamer = {}, text.TextStreamer(options and options.tokenizer or tokenizer, options and options[1])
    function streamer.on_finalized_text(_, part, ends) parts[#parts + 1] = part .. (ends and "|" or "") end
    streamer:put(tensors.long {{tokens[1]}})
    for i = 2, #tokens do streamer:put(tensors.long {tokens[i]}) end
    streamer:finish()
    return parts
  end

  it("are streamed as whole characters", function()
    local own = byte_tokenizer()
    local ids = own:encode(words)
    assert.is_true(#ids > 45)
    local parts = streamed(ids, {tokenizer = own})
    assert.equal(words .. "|", table.concat(parts))
    for _, part in ipairs(parts) do assert.is_nil(part:find "\239\191\189") end
    assert.equal(words .. "|", table.concat(streamed(tokenizer:encode(words))))
    assert.equal(words:sub(2) .. "|", table.concat(streamed(tokenizer:encode(words), {{skip_prompt = true}})))
  end)

  it("write an incomplete character in the end", function()
    local own = byte_tokenizer()
    local ids = own:encode "aü"
    assert.equal("a\239\191\189|", table.concat(streamed({ids[1], ids[2]}, {tokenizer = own})))
  end)

  it("end at a stop string", function()
    accelhost.manual_seed(2)
    local own = byte_tokenizer()
    local model = wide(models.LlamaForCausalLM {vocab_size = 256, hidden_size = 16, intermediate_size = 24,
      num_hidden_layers = 1, num_attention_heads = 2, eos_token_id = accelhost.json.null}:to "float64":eval())
    local ids = own("ab", {return_attention_mask = false}).input_ids
    local full = model:generate(ids, {max_new_tokens = 30})[0]:tolist()
    local stop = own:decode {full[12], full[13]}
    local o = {max_new_tokens = 30, stop_strings = {"zzzz", stop}, tokenizer = own}
    local found = model:generate(ids, o)[0]:tolist()
    assert.is_true(#found <= 13 and own:decode(found):sub(-#stop) == stop)
    local streamed_ids = {}
    model:generate(ids, {max_new_tokens = 4, streamer = function(tokens)
      streamed_ids[#streamed_ids + 1] = tokens:item()
    end})
    assert.same({full[3], full[4], full[5], full[6]}, streamed_ids)
  end)
end)

describe("A captured step", function()
  local captured = require "accelhost.models.generation.captured"
  local graphs = require("accelhost._C").graph

  -- The number of captures while a function runs.
  local function captures(fn, ...)
    local new, count = graphs.new, 0
    graphs.new = function(...)
      count = count + 1
      return new(...)
    end
    local results = {pcall(fn, ...)}
    graphs.new = new
    assert(results[1], results[2])
    return count, unpack(results, 2)
  end

  -- Tokens and scores without captures.
  local function plainly(fn)
    local new = captured.new
    captured.new = function() end
    local results = {pcall(fn)}
    captured.new = new
    assert(results[1], results[2])
    return unpack(results, 2)
  end

  for _, name in ipairs {"gpt2", "decoders/llama", "decoders/gpt_neox", "decoders/qwen3"} do
    it("writes the same tokens and scores in longer and longer buffers: " .. name, function()
      local model = loaded[name .. " float64"]
      local new = name == "gpt2" and 38 or 300
      local o = {max_new_tokens = new, min_new_tokens = new, pad_token_id = 0, return_dict_in_generate = true,
        output_scores = true, output_logits = true, repetition_penalty = 1.1}
      local wanted = plainly(function() return model:generate(prompt, o) end)
      local count, found = captures(model.generate, model, prompt, o)
      assert.equal(name == "gpt2" and 1 or 3, count)
      assert.same(wanted.sequences:tolist(), found.sequences:tolist())
      for step, scores in ipairs(wanted.scores) do
        check.near(check.flat(scores:nan_to_num(0, 0, 0)), found.scores[step]:nan_to_num(0, 0, 0), 1e-5)
        check.near(check.flat(wanted.logits[step]), found.logits[step], 1e-5)
      end
      for layer, entry in ipairs(wanted.past_key_values) do
        check.near(check.flat(entry[1]), found.past_key_values[layer][1], 1e-10)
        check.near(check.flat(entry[2]), found.past_key_values[layer][2], 1e-10)
      end
    end)
  end

  it("is not used where hooks, masks, short windows, beams or a script's forward are", function()
    local model = loaded["decoders/llama float32"]
    local o = {max_new_tokens = 20, min_new_tokens = 20, pad_token_id = 0}
    local function with(more)
      for key, value in pairs(o) do more[key] = value end
      return more
    end
    assert.equal(1, (captures(model.generate, model, prompt, o)))
    assert.equal(0, (captures(model.generate, model, prompt, with {attention_mask = mask})))
    assert.equal(0, (captures(model.generate, model, prompt, with {num_beams = 2})))
    assert.equal(0, (captures(model.generate, model, prompt, with {use_cache = false})))
    local windowed = loaded["decoders/mistral float32"]
    assert.equal(0, (captures(windowed.generate, windowed, prompt, o)))
    local calls = 0
    local handle = model.model.layers[1]:register_forward_hook(function() calls = calls + 1 end)
    assert.equal(0, (captures(model.generate, model, prompt, o)))
    handle:remove()
    assert.equal(20, calls)
    local Own = models.LlamaForCausalLM:extend "Own"
    function Own:forward(...)
      calls = calls + 1
      return models.LlamaForCausalLM.forward(self, ...)
    end
    local own = Own(model.config):eval()
    assert.equal(0, (captures(own.generate, own, prompt, o)))
    assert.equal(40, calls)
  end)

  it("is used in bfloat16, and for adapters", function()
    local model = models.AutoModelForCausalLM.from_pretrained(folder .. "decoders/llama", {dtype = "bfloat16"})
    local o = {max_new_tokens = 20, min_new_tokens = 20, pad_token_id = 0}
    local wanted = plainly(function() return model:generate(prompt, o) end):tolist()
    local count, found = captures(model.generate, model, prompt, o)
    assert.equal(1, count)
    assert.same(wanted, found:tolist())
    local peft = accelhost.peft
    local base = models.AutoModelForCausalLM.from_pretrained(folder .. "decoders/qwen3", {dtype = "float64"})
    local adapted = peft.get_peft_model(base, peft.LoraConfig {target_modules = "all-linear",
      init_lora_weights = false}):eval()
    wanted = plainly(function() return adapted:generate(prompt, o) end):tolist()
    count, found = captures(adapted.generate, adapted, prompt, o)
    assert.equal(1, count)
    assert.same(wanted, found:tolist())
  end)
end)
