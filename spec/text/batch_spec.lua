-- Calling a tokenizer: tensors and tables, padding, truncation, tokens that are added, files, refusals.
local accelhost = require "accelhost"
local text, json = accelhost.text, accelhost.json

local vocabulary = {
  ["[PAD]"] = 0, ["[UNK]"] = 1, ["[CLS]"] = 2, ["[SEP]"] = 3, the = 4, deep = 5, ["##er"] = 6, sea = 7, ["##s"] = 8,
  ["."] = 9, wide = 10, ["'"] = 11, s = 12,
}
local function special(content, id)
  return {id = id, content = content, special = true, normalized = false}
end
local function description()
  return {
    normalizer = {type = "BertNormalizer"}, pre_tokenizer = {type = "BertPreTokenizer"},
    post_processor = {type = "BertProcessing", sep = {"[SEP]", 3}, cls = {"[CLS]", 2}},
    decoder = {type = "WordPiece"}, model = {type = "WordPiece", vocab = vocabulary},
    added_tokens = {special("[PAD]", 0), special("[UNK]", 1), special("[CLS]", 2), special("[SEP]", 3)},
  }
end
local names = {pad_token = "[PAD]", unk_token = "[UNK]", cls_token = "[CLS]", sep_token = "[SEP]"}
local function new(more)
  local config = {}
  for name, value in pairs(names) do config[name] = value end
  for name, value in pairs(more or {}) do config[name] = value end
  return text.Tokenizer(description(), config)
end

local function refused(words, run)
  assert.error_matches(run, words, 1, true)
end

describe("a call of a tokenizer", function()
  it("returns int64 tensors, a row for each text", function()
    local batch = new()({"The deeper seas.", "sea"}, {padding = true})
    assert.equal("int64", batch.input_ids.dtype)
    assert.same({{2, 4, 5, 6, 7, 8, 9, 3}, {2, 7, 3, 0, 0, 0, 0, 0}}, batch.input_ids:tolist())
    assert.same({{1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 0, 0, 0, 0, 0}}, batch.attention_mask:tolist())
    assert.same({2, 8}, batch.token_type_ids:shape())
  end)

  it("returns a row for one text, and with return_tensors = false a table", function()
    assert.same({{2, 7, 3}}, new()("sea").input_ids:tolist())
    assert.same({2, 7, 3}, new()("sea", {return_tensors = false}).input_ids)
    assert.same({{2, 7, 3}, {2, 3}}, new()({"sea", ""}, {return_tensors = false}).input_ids)
  end)

  it("pads on either side, to a length, to a multiple", function()
    local tokenizer = new()
    local longest = tokenizer({"the deeper", "sea"}, {padding = "longest", padding_side = "left"})
    assert.same({{2, 4, 5, 6, 3}, {0, 0, 2, 7, 3}}, longest.input_ids:tolist())
    assert.same({{1, 1, 1, 1, 1}, {0, 0, 1, 1, 1}}, longest.attention_mask:tolist())
    assert.same({{2, 7, 3, 0, 0, 0}}, tokenizer("sea", {padding = "max_length", max_length = 6}).input_ids:tolist())
    assert.same({1, 8}, tokenizer("the deeper", {padding = true, pad_to_multiple_of = 8}).input_ids:shape())
    tokenizer.padding_side = "left"
    assert.same({{0, 2, 7, 3}}, tokenizer("sea", {padding = "max_length", max_length = 4}).input_ids:tolist())
  end)

  it("cuts to max_length, or to the model's maximum", function()
    local tokenizer = new{model_max_length = 4}
    assert.same({{2, 4, 5, 3}}, tokenizer("the deeper seas", {truncation = true}).input_ids:tolist())
    assert.same({{2, 4, 3}}, tokenizer("the deeper seas", {max_length = 3}).input_ids:tolist())
    tokenizer.truncation_side = "left"
    assert.same({{2, 7, 8, 3}}, tokenizer("the deeper seas", {truncation = true}).input_ids:tolist())
    assert.same({1, 7}, tokenizer("the deeper seas", {truncation = false}).input_ids:shape())
    assert.same({{2, 3}}, tokenizer("sea", {max_length = 2}).input_ids:tolist())
  end)

  it("joins pairs, the second of type 1", function()
    local batch = new()({"the sea", "sea"}, {"deep", "wide sea"}, {padding = true})
    assert.same({{2, 4, 7, 3, 5, 3}, {2, 7, 3, 10, 7, 3}}, batch.input_ids:tolist())
    assert.same({{0, 0, 0, 0, 1, 1}, {0, 0, 0, 1, 1, 1}}, batch.token_type_ids:tolist())
  end)

  it("returns the requested tensors in addition to the ids", function()
    local batch = new()({"Seas", "x é"}, {padding = true, return_offsets_mapping = true, return_length = true,
      return_special_tokens_mask = true, return_token_type_ids = false, return_attention_mask = false})
    assert.same({{{0, 0}, {0, 3}, {3, 4}, {0, 0}}, {{0, 0}, {0, 1}, {2, 3}, {0, 0}}}, batch.offset_mapping:tolist())
    assert.same({{1, 0, 0, 1}, {1, 0, 0, 1}}, batch.special_tokens_mask:tolist())
    assert.same({4, 4}, batch.length:tolist())
    assert.is_nil(batch.token_type_ids)
    assert.same({-1, 0, 0, -1}, batch:word_ids(0))
    assert.same({"[CLS]", "sea", "##s", "[SEP]"}, batch:tokens(0))
    local found = {}
    for name in pairs(batch) do found[#found + 1] = name end
    assert.same({"input_ids", "length", "offset_mapping", "special_tokens_mask"}, found)
  end)

  it("has the same bits in one thread and in several", function()
    local texts, tokenizer = {}, new()
    for i = 1, 3000 do texts[i] = ("the deeper sea's wide "):rep(i % 7) .. i end
    local threads = accelhost.get_num_threads()
    accelhost.set_num_threads(1)
    local alone = tokenizer(texts, {padding = true}).input_ids
    accelhost.set_num_threads(2)
    local together = tokenizer(texts, {padding = true}).input_ids
    accelhost.set_num_threads(threads)
    assert.is_true(alone:equal(together))
  end)

  it("decodes invalid UTF-8 as U+FFFD, one for each longest valid prefix of a character", function()
    local tokenizer = text.Tokenizer{model = {type = "WordPiece", vocab = {["[UNK]"] = 0, ["\239\191\189"] = 1,
      a = 2}, continuing_subword_prefix = ""}, pre_tokenizer = {type = "WhitespaceSplit"}}
    assert.same({2, 1, 2}, tokenizer:encode "a\255a")
    assert.same({1, 2}, tokenizer:encode "\226\130a")
    assert.same({1, 1, 1}, tokenizer:encode "\237\160\128")
    assert.same({1, 1}, tokenizer:encode "\192\128")
  end)

  it("makes further rows of the overflow, and reports their texts", function()
    local tokenizer = new()
    local batch = tokenizer({"the deep sea . s", "sea", "wide wide sea"}, {truncation = true, max_length = 4,
      stride = 1, return_overflowing_tokens = true, padding = true, return_length = true})
    assert.same({{2, 4, 5, 3}, {2, 5, 7, 3}, {2, 7, 9, 3}, {2, 9, 12, 3}, {2, 7, 3, 0}, {2, 10, 10, 3}, {2, 10, 7, 3}},
      batch.input_ids:tolist())
    assert.same({0, 0, 0, 0, 1, 2, 2}, batch.overflow_to_sample_mapping:tolist())
    assert.same({4, 4, 4, 4, 4, 4, 4}, batch.length:tolist())
    assert.same({-1, 3, 4, -1}, batch:word_ids(3))
    assert.same({"[CLS]", "deep", "sea", "[SEP]"}, batch:tokens(1))
    assert.same({{2, 4, 5, 3}, {2, 7, 3}}, tokenizer("the deep sea", {truncation = true, max_length = 4,
      return_overflowing_tokens = true, return_tensors = false}).input_ids)
    assert.same({0}, tokenizer("sea", {return_overflowing_tokens = true}).overflow_to_sample_mapping:tolist())
  end)

  it("refuses wrong arguments, by name", function()
    local tokenizer = new()
    refused("no tensor: set padding = true", function() tokenizer{"sea", "the sea"} end)
    refused("text: expected a string or a table of values, got number 3", function() tokenizer(3) end)
    refused("text 1 is number 3, expected a string", function() tokenizer{"sea", 3} end)
    refused("pairs are two tables", function() tokenizer{{"sea", "deep"}} end)
    refused("expected 2 texts", function() tokenizer({"sea", "deep"}, {"sea"}) end)
    local words = {is_split_into_words = true}
    refused("text: expected a list of words, or a list of such lists, with is_split_into_words, got 'sea'", function()
      tokenizer("sea", words)
    end)
    refused("text 1 is 'sea', expected a list of words", function() tokenizer({{"sea"}, "sea"}, words) end)
    refused("word 1 of text 0 is number 3, expected a string", function() tokenizer({"sea", 3}, words) end)
    refused("text_pair: expected 1 lists of words, as many as in text, got 2", function()
      tokenizer({{"sea"}}, {{"sea"}, {"deep"}}, words)
    end)
    refused("unknown option 'pading'", function() tokenizer("sea", {pading = true}) end)
    refused("stride: expected less than the 2 tokens that stay of a text, got 2", function()
      tokenizer("the deep sea", {truncation = true, max_length = 4, stride = 2, return_overflowing_tokens = true})
    end)
    refused("no multiple of pad_to_multiple_of", function()
      tokenizer("sea", {padding = true, truncation = true, max_length = 6, pad_to_multiple_of = 4})
    end)
    refused("only_second needs a second text", function()
      tokenizer("the deep sea", {truncation = "only_second", max_length = 3})
    end)
    tokenizer.pad_token = nil
    refused("there is no pad_token", function() tokenizer("sea", {padding = true}) end)
    refused("there is no text 1", function() tokenizer("sea"):word_ids(1) end)
    refused("has no field or method 'pad_tokn'", function() return tokenizer.pad_tokn end)
  end)
end)

describe("a tokenizer", function()
  it("turns ids into texts again", function()
    local tokenizer = new()
    local ids = tokenizer:encode "The deeper sea's."
    assert.equal("[CLS] the deeper sea ' s. [SEP]", tokenizer:decode(ids))
    assert.equal("the deeper sea's.", tokenizer:decode(ids, {skip_special_tokens = true,
      clean_up_tokenization_spaces = true}))
    assert.same({"sea", ""}, tokenizer:batch_decode(accelhost.tensor({{7, 0}, {0, 3}}, {dtype = "int64"}), true))
    assert.equal("sea", tokenizer:decode(7))
    assert.equal("sea", tokenizer:decode{7, 999999, -1})
    refused("item 1 is 'sea'", function() tokenizer:decode{"sea"} end)
    refused("expected an id", function() tokenizer:decode(1e300) end)
  end)

  it("knows tokens and ids", function()
    local tokenizer = new()
    assert.equal(13, tokenizer.vocab_size)
    assert.equal(13, #tokenizer)
    assert.equal(0, tokenizer.pad_token_id)
    assert.is_nil(tokenizer.mask_token_id)
    assert.equal(1, tokenizer:convert_tokens_to_ids "unheard")
    assert.same({7, 1}, tokenizer:convert_tokens_to_ids{"sea", "unheard"})
    assert.same({"sea", "##s"}, tokenizer:convert_ids_to_tokens{7, 8})
    assert.same({"deep", "##er"}, tokenizer:tokenize "deeper")
    assert.equal(2, tokenizer:num_special_tokens_to_add())
    assert.equal(3, tokenizer:num_special_tokens_to_add(true))
    refused("there is no token 99", function() tokenizer:convert_ids_to_tokens{99} end)
  end)

  it("appends new tokens after the others", function()
    local tokenizer = new()
    assert.equal(2, tokenizer:add_tokens{"Blue", "sea", "ocean"})
    assert.equal(15, #tokenizer)
    assert.equal(13, tokenizer.vocab_size)
    assert.same({2, 13, 7, 14, 3}, tokenizer:encode "bluesea OCEAN")
    assert.equal(1, tokenizer:add_special_tokens{mask_token = "[MASK]"})
    assert.equal(15, tokenizer.mask_token_id)
    assert.equal("sea", tokenizer:decode({7, 15}, true))
  end)

  it("is the same when it is written and read again", function()
    local folder = os.tmpname()
    os.remove(folder)
    local tokenizer = new{model_max_length = 77, padding_side = "left"}
    tokenizer:add_tokens "ocean"
    tokenizer:save_pretrained(folder)
    local again = text.AutoTokenizer.from_pretrained(folder)
    assert.same(tokenizer:encode "the deep ocean's", again:encode "the deep ocean's")
    assert.equal(77, again.model_max_length)
    assert.equal("left", again.padding_side)
    assert.equal("[SEP]", again.sep_token)
    assert.equal(tostring(tokenizer), tostring(again))
    os.execute("rm -r " .. folder)
  end)
end)

describe("AutoTokenizer", function()
  local folder
  local function write(name, contents)
    local file = assert(io.open(folder .. "/" .. name, "wb"))
    file:write(contents)
    file:close()
  end
  before_each(function()
    folder = os.tmpname()
    os.remove(folder)
    os.execute("mkdir " .. folder)
  end)
  after_each(function() os.execute("rm -r " .. folder) end)

  it("makes a BERT of vocab.txt", function()
    write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsea\nSea\n##s\n")
    local tokenizer = text.AutoTokenizer.from_pretrained(folder)
    assert.same({2, 5, 7, 3}, tokenizer:encode "Seas")
    assert.equal(4, tokenizer.mask_token_id)
    write("tokenizer_config.json", '{"do_lower_case": false, "model_max_length": 1e30}')
    tokenizer = text.AutoTokenizer.from_pretrained(folder)
    assert.same({2, 6, 7, 3}, tokenizer:encode "Seas")
    assert.equal(math.huge, tokenizer.model_max_length)
  end)

  it("makes a GPT-2 of vocab.json and merges.txt", function()
    write("vocab.json", '{"<|endoftext|>": 0, "s": 1, "e": 2, "a": 3, "se": 4, "sea": 5, "\196\160": 6, '
      .. '"\196\160sea": 7}')
    write("merges.txt", "#version: 0.2\ns e\nse a\n\196\160 sea\n")
    local tokenizer = text.AutoTokenizer.from_pretrained(folder)
    assert.same({5, 7, 6, 7, 0}, tokenizer:encode "sea sea  sea<|endoftext|>")
    assert.equal("sea sea", tokenizer:decode{5, 7})
    assert.same({"input_ids", "attention_mask"}, tokenizer.model_input_names)
    assert.equal(0, tokenizer.eos_token_id)
  end)

  it("adds the tokens that only the configuration has, and knows on which side a model pads", function()
    write("tokenizer.json", '{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}')
    write("tokenizer_config.json", [[{"tokenizer_class": "LlamaTokenizer", "pad_token": "<pad>",
      "bos_token": {"content": "<s>"}, "added_tokens_decoder": {"3": {"content": "<x>"},
      "2": {"content": "<s>", "special": true}, "0": {"content": "a"}}}]])
    local tokenizer = text.AutoTokenizer.from_pretrained(folder)
    assert.equal("left", tokenizer.padding_side)
    assert.same({2, 3, 4}, {tokenizer.bos_token_id, tokenizer:convert_tokens_to_ids "<x>", tokenizer.pad_token_id})
    assert.same({"input_ids", "attention_mask"}, tokenizer.model_input_names)
    assert.same({2, 0, 3, 1}, tokenizer:encode "<s>a<x>b")
    assert.equal("a <x>", tokenizer:decode({2, 0, 3}, true))
  end)

  it("reports which file is wrong, and how", function()
    refused("has no tokenizer.json, no vocab.txt", function() text.AutoTokenizer.from_pretrained(folder) end)
    write("spiece.model", "x")
    refused("merges.txt; spiece.model is of SentencePiece, which is not read: fetch tokenizer.json", function()
      text.AutoTokenizer.from_pretrained(folder)
    end)
    write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\n")
    refused("/tokenizer.json' is a Git LFS pointer, not the file: run git lfs pull", function()
      text.AutoTokenizer.from_pretrained(folder)
    end)
    write("tokenizer.json", '{"model": ')
    refused("tokenizer.json': line 1: no JSON", function() text.AutoTokenizer.from_pretrained(folder) end)
    write("tokenizer.json", '{"model": {"type": "WordLevel"}}')
    refused("model: 'WordLevel' is not supported", function() text.AutoTokenizer.from_pretrained(folder) end)
    os.remove(folder .. "/tokenizer.json")
    write("vocab.txt", "sea\n")
    refused("vocab.txt' has no '[PAD]'", function() text.AutoTokenizer.from_pretrained(folder) end)
    os.remove(folder .. "/vocab.txt")
    write("vocab.json", '{"<|endoftext|>": 0, "s": ')
    write("merges.txt", "s e\n")
    refused("vocab.json': line 1: no JSON", function() text.AutoTokenizer.from_pretrained(folder) end)
    write("vocab.json", '{"s": 0}')
    refused("vocab.json' has no '<|endoftext|>'", function() text.AutoTokenizer.from_pretrained(folder) end)
  end)
end)

describe("a tokenizer.json", function()
  local function with(section, value)
    local sections = description()
    sections[section] = value
    return function() text.Tokenizer(json.encode(sections)) end
  end

  it("is refused by the name of the unsupported part", function()
    refused("normalizer: 'ByteLevel' is not supported (known: BertNormalizer,",
      with("normalizer", {type = "ByteLevel"}))
    refused("pre_tokenizer: 'FixedLength' is not supported", with("pre_tokenizer", {type = "FixedLength"}))
    refused("post_processor: 'Other' is not supported", with("post_processor", {type = "Other"}))
    refused("decoder: 'CTC' is not supported", with("decoder", {type = "CTC"}))
    refused("dropout is not supported", with("model", {type = "BPE", vocab = vocabulary, merges = json.array{},
      dropout = 0.1}))
    refused("behavior: 'Other' is not supported", with("pre_tokenizer", {type = "Punctuation", behavior = "Other"}))
    local function pattern(expression)
      return {type = "Split", pattern = {Regex = expression}, behavior = "Isolated"}
    end
    refused("pattern '[[a]]': '[[' is not supported", with("pre_tokenizer", pattern "[[a]]"))
    refused("pattern '\\h': '\\h' is not supported", with("pre_tokenizer", pattern "\\h"))
    refused("end_of_word_suffix is not supported", with("model", {type = "BPE", vocab = vocabulary,
      merges = json.array{}, end_of_word_suffix = "</w>"}))
  end)

  it("is refused when its parts do not fit", function()
    refused("unk_token: '[UNK]' is not in the vocabulary", with("model", {type = "WordPiece", vocab = {a = 0}}))
    refused("is not in 0 to", with("model", {type = "WordPiece", vocab = {a = -1}}))
    refused("expected an id", with("model", {type = "WordPiece", vocab = {a = "x"}}))
    refused("are not in the vocabulary", with("model", {type = "BPE", vocab = {a = 0, b = 1}, merges = {"a b"}}))
    refused("merges: expected two texts, got ab", with("model", {type = "BPE", vocab = {a = 0}, merges = {"ab"}}))
    refused("nothing may follow ByteLevel", with("pre_tokenizer", {type = "Sequence",
      pretokenizers = {{type = "ByteLevel"}, {type = "Whitespace"}}}))
    refused("special_tokens has no ids for 'X'", with("post_processor", {type = "TemplateProcessing",
      single = {{SpecialToken = {id = "X", type_id = 0}}}, pair = json.array{}}))
    refused("expected each text once", with("post_processor", {type = "TemplateProcessing",
      single = {{Sequence = {id = "A", type_id = 0}}, {Sequence = {id = "A", type_id = 0}}}, pair = json.array{}}))
    refused("replacement: expected one character", with("pre_tokenizer", {type = "Metaspace", replacement = "ab"}))
    refused("pattern: expected a String or a Regex", with("normalizer", {type = "Replace", content = "a"}))
    refused("content: expected a text", with("normalizer", {type = "Replace", pattern = {String = "a"}}))
    refused("decoder: start: expected a whole number", with("decoder", {type = "Strip", content = " ", start = -1}))
    refused("precompiled_charsmap: character 1 is not base64", with("normalizer", {type = "Precompiled",
      precompiled_charsmap = "A!"}))
    refused("precompiled_charsmap: a trie of 4294967295 bytes in 4 bytes", with("normalizer", {type = "Precompiled",
      precompiled_charsmap = "/////w=="}))
    refused("vocab: item 1: expected a text and a score", with("model", {type = "Unigram", vocab = {{"a", 0}, {"b"}}}))
    refused("unk_id: expected the place of a text", with("model", {type = "Unigram", vocab = {{"a", 0}}, unk_id = 1}))
    refused("Tokenizer: added_tokens: expected an id and a content", with("added_tokens", {{content = "x"}}))
  end)
end)
