-- accelhost generate, with small random models and tokenizers of characters.
local accelhost = require "accelhost"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local run = require "spec.support.run"
local json, models, text = accelhost.json, accelhost.models, accelhost.text

local leave
local function generate(words, options) return run.host({"generate", unpack(words)}, options) end

-- A model that writes the letters of the alphabet in their order: each letter's embedding is its own feature, and the
-- head's row of the next letter.
local LETTERS = "abcdefghijklmnopqrstuvwxyz"
local function save_alphabet(path, template)
  local tokenizer = text.character_tokenizer(LETTERS .. "<>: ")
  tokenizer.chat_template = template
  local count = #tokenizer
  local model = models.LlamaForCausalLM {vocab_size = count, hidden_size = 2 * math.ceil(count / 2),
    intermediate_size = 4, num_hidden_layers = 1, num_attention_heads = 1, eos_token_id = json.null}
  accelhost.no_grad(function()
    for _, parameter in ipairs(model:parameters()) do parameter:zero_() end
    model.model.norm.weight:fill_(1)
    for i = 0, count - 1 do model.model.embed_tokens.weight[i][i] = 1 end
    local ids = tokenizer:encode(LETTERS)
    for i = 1, #LETTERS do model.lm_head.weight[ids[i % #LETTERS + 1]][ids[i]] = 1 end
  end)
  model:save_pretrained(path)
  tokenizer:save_pretrained(path)
  return model, tokenizer
end

describe("accelhost generate", function()
  before_each(function()
    leave = folder.enter()
    save_alphabet("m", "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}")
  end)
  after_each(function() leave() end)

  local function writes(wanted, words, options)
    local result = generate(words, options)
    assert.equal(wanted, result.stdout)
    assert.matches("^prompt: %d+ tokens, %S+ tokens/s; text: %d+ tokens, %S+[ %w/]*\n$", result.stderr)
    assert.equal(0, result.code)
  end

  it("continues the prompt, or standard input, token by token", function()
    writes("defg\n", {"m", "--prompt", "abc", "--max_new_tokens", "4"})
    writes("abcde\n", {"m", "--prompt=abc", "--max-new-tokens=2", "--echo"})
    writes("opq\n", {"--max_new_tokens", "3", "m"}, {stdin = "mn\n"})
    writes("bcd\n", {"m", "--prompt", "a", "--max_new_tokens", "3", "--no_stream"})
  end)

  it("has the options of generation", function()
    writes("bcdef\n", {"m", "--prompt", "a", "--stop_strings", "ef", "--stop_strings", "zz"})
    writes("bc\nbc\n", {"m", "--prompt", "a", "--max_new_tokens", "2", "--num_return_sequences", "2", "--top_k", "1"})
    writes("bcd\n", {"m", "--prompt", "a", "--max_new_tokens", "3", "--num_beams", "2"})
    writes("bcd\n", {"m", "--prompt", "a", "--max_new_tokens", "3", "--assistant", "m"})
    local one, other = {}, {}
    for i, seed in ipairs {"1", "1", "2"} do
      local result = generate {"m", "--prompt", "a", "--temperature", "9", "--max_new_tokens", "20", "--seed", seed}
      if i == 1 then one = result.stdout else other[i] = result.stdout end
    end
    assert.equal(one, other[2])
    assert.are_not.equal(one, other[3])
  end)

  it("reads generation_config.json, and ends at its tokens", function()
    local _, tokenizer = save_alphabet("e")
    local ids = tokenizer:encode "z"
    models.GenerationConfig {eos_token_id = ids[1]}:save_pretrained "e"
    writes("wxyz\n", {"e", "--prompt", "v"})
  end)

  it("answers by the chat template, line by line", function()
    writes("bc\n", {"m", "--chat", "--prompt", "a", "--max_new_tokens", "2", "--system", "x"})
    writes("bc\nyz\n", {"m", "--chat", "--max_new_tokens", "2"}, {stdin = "a\nx\n"})
  end)

  it("loads weights in a dtype, and an adapter", function()
    writes("bc\n", {"m", "--prompt", "a", "--max_new_tokens", "2", "--dtype", "bfloat16"})
    local peft = accelhost.peft
    local model = peft.get_peft_model(models.AutoModelForCausalLM.from_pretrained "m",
      peft.LoraConfig {r = 1, target_modules = {"q_proj"}})
    model:save_pretrained "adapter"
    writes("bc\n", {"m", "--prompt", "a", "--max_new_tokens", "2", "--adapter", "adapter"})
    writes("bc\n", {"adapter", "--prompt", "a", "--max_new_tokens", "2"})
    local config = json.decode(files.read "adapter/adapter_config.json")
    for _, base in ipairs {"gone", json.null} do
      config.base_model_name_or_path = base
      files.write("adapter/adapter_config.json", json.encode(config))
      local result = generate {"adapter", "--prompt", "a"}
      assert.equal(1, result.code)
      assert.equal(("accelhost generate: MODEL: 'adapter/adapter_config.json': base_model_name_or_path: expected the "
        .. "folder of the base model, got %s; accelhost generate BASE --adapter FOLDER\n"):format(
        base == "gone" and "'gone', which is no folder" or "none"), result.stderr)
    end
  end)

  it("inserts virtual tokens in front of the prompt", function()
    local peft = accelhost.peft
    for _, config in ipairs {peft.PrefixTuningConfig {num_virtual_tokens = 2, init_weights = "zero"},
      peft.PromptTuningConfig {num_virtual_tokens = 2}} do
      local model = peft.get_peft_model(models.AutoModelForCausalLM.from_pretrained "m", config)
      accelhost.no_grad(function()
        for _, vectors in ipairs(model.prompt_encoder:parameters()) do vectors:zero_() end
      end)
      model:save_pretrained "virtual"
      writes("bc\n", {"m", "--prompt", "a", "--max_new_tokens", "2", "--adapter", "virtual"})
    end
  end)

  it("writes the text of a T5 for the prompt", function()
    accelhost.manual_seed(3)
    local tokenizer = text.character_tokenizer(LETTERS)
    tokenizer:add_special_tokens {pad_token = "<pad>", eos_token = "</s>"}
    local model = models.T5ForConditionalGeneration {vocab_size = #tokenizer, d_model = 16, d_kv = 4, d_ff = 16,
      num_layers = 1, num_heads = 4, pad_token_id = tokenizer.pad_token_id, eos_token_id = tokenizer.eos_token_id,
      decoder_start_token_id = tokenizer.pad_token_id}:eval()
    model:save_pretrained "t5"
    tokenizer:save_pretrained "t5"
    local ids = tokenizer("abc", {return_token_type_ids = false}).input_ids
    local wanted = model:generate(ids, {max_new_tokens = 6, min_new_tokens = 6})[0]
    wanted = tokenizer:decode(wanted, {skip_special_tokens = true}) .. "\n"
    assert.is_true(#wanted > 3, wanted)
    for _, more in ipairs {"--stream", "--no_stream"} do
      writes(wanted, {"t5", "--prompt", "abc", "--max_new_tokens", "6", "--min_new_tokens", "6", more})
    end
  end)

  it("reports errors in one line", function()
    accelhost.utils.makedirs "none"
    accelhost.utils.makedirs "other"
    files.write("other/config.json", '{"model_type": "rwkv"}')
    save_alphabet "t"
    os.remove "t/tokenizer.json"
    local rows = {
      {{"nowhere"}, 1, "'nowhere' is no folder"}, {{"none"}, 1, "'none' has no config.json"},
      {{"other"}, 1, "unknown model_type 'rwkv'"}, {{"t", "--prompt", "a"}, 1, "'t' has no tokenizer.json"},
      {{"m", "--prompt", ""}, 1, "the prompt has no tokens"},
      {{"m", "--chat", "--prompt", "a", "--adapter", "gone"}, 1, "gone"},
      {{}, 2, "expected the folder of a model\nTry 'accelhost generate --help'."},
      {{"m", "--temprature", "1"}, 2, "unknown option '--temprature' (did you mean '--temperature'?)\n"},
      {{"m", "--top_p", "2"}, 2, "--top_p: expected a number above 0, at most 1, got '2'\n"},
      {{"m", "--num_beams", "x"}, 2, "--num_beams: expected an integer, got 'x'\n"},
      {{"m", "more"}, 2, "unexpected argument 'more'\n"}, {{"m", "--seed"}, 2, "--seed expects a value\n"},
    }
    for _, row in ipairs(rows) do
      local result = generate(row[1])
      assert.equal(row[2], result.code, result.stderr)
      assert.truthy(result.stderr:find("accelhost generate: ", 1, true) == 1, result.stderr)
      assert.truthy(result.stderr:find(row[3], 1, true), result.stderr)
      assert.equal(row[2], select(2, result.stderr:gsub("\n", "")))
    end
    local plain = generate {"t", "--help"}
    assert.equal(0, plain.code)
    assert.matches("^usage: accelhost generate MODEL", plain.stdout)
  end)

  it("refuses --chat without a chat template", function()
    save_alphabet "p"
    local result = generate {"p", "--chat", "--prompt", "a"}
    assert.equal(1, result.code)
    assert.equal("accelhost generate: the tokenizer in 'p' has no chat template; leave --chat out\n", result.stderr)
  end)

  it("lists every option of generation that a word can set", function()
    local help = generate({"--help"}).stdout
    for _, row in ipairs(require("accelhost.models.common.generation_config").rows) do
      local kind = row[3][3]
      if kind and not ("use_cache bos_token_id decoder_start_token_id"):find(row[1], 1, true) then
        assert.truthy(help:find("\n  %-%-" .. row[1] .. "[ \n]"), row[1])
      end
    end
    for line in help:gmatch "[^\n]+" do assert.is_true(#line <= 105, line) end
  end)

  it("ends the text at Ctrl-C, with code 130", function()
    local result = run.program {"timeout", "--preserve-status", "-s", "INT", "2", run.path, "generate", "m", "--prompt",
      "a", "--max_new_tokens", "1000000"}
    assert.matches("^bcdef", result.stdout)
    assert.matches("^prompt: 1 tokens", result.stderr)
    assert.equal(130, result.code)
  end)
end)
