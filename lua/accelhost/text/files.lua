--- The files of a tokenizer's folder.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local checkpoint_folder = require "accelhost.util.checkpoint_folder"
local refuse_pointer = require "accelhost.util.git_lfs"
local tokenizers = require "accelhost.text.tokenizer"

local fail = arguments.fail
local files = {}

local function contents(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read "*a"
  file:close()
  refuse_pointer("from_pretrained", path, text)
  return text
end

local function decoded(path, text)
  local fine, value = pcall(C.json.decode, text)
  if not fine then fail("from_pretrained: '%s': %s", path, (tostring(value):gsub("^.-: ", "", 1))) end
  return value
end

local function object(path)
  local text = contents(path)
  local value = text and decoded(path, text) or {}
  if type(value) ~= "table" then fail("from_pretrained: '%s': expected an object", path) end
  return value
end

-- Return the remedy where a folder has the file of another library alone.
local function sentencepiece_hint(folder)
  for _, name in ipairs {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model"} do
    if C.data.look(folder .. "/" .. name) == "file" then
      return ("; %s is of SentencePiece, which is not read: fetch tokenizer.json, or have transformers write it "
        .. "(AutoTokenizer.from_pretrained(...).save_pretrained(...))"):format(name)
    end
  end
  return ""
end

-- The tokens of a text file, a line each, with their places as ids.
local function numbered_lines(text)
  local vocabulary, id = {}, 0
  for line in (text:gsub("\n$", "") .. "\n"):gmatch "(.-)\r?\n" do
    vocabulary[line] = id
    id = id + 1
  end
  return vocabulary
end

local function special(id, content, path)
  if not id then fail("from_pretrained: '%s' has no '%s'", path, content) end
  return {
    id = id, content = content, special = true, normalized = false, single_word = false, lstrip = false,
    rstrip = false,
  }
end

-- tokenizer.json of a BERT that has its vocabulary only.
local function bert(path, text, config, names)
  local vocabulary = numbered_lines(text)
  local added, cls, sep = {}, names.cls_token, names.sep_token
  for _, role in ipairs {"pad_token", "unk_token", "cls_token", "sep_token", "mask_token"} do
    added[#added + 1] = special(vocabulary[names[role]], names[role], path)
  end
  local strip_accents = config.strip_accents
  return C.json.encode {
    version = "1.0", added_tokens = added,
    normalizer = {
      type = "BertNormalizer", clean_text = true, handle_chinese_chars = config.tokenize_chinese_chars ~= false,
      strip_accents = strip_accents, lowercase = config.do_lower_case ~= false,
    },
    pre_tokenizer = {type = "BertPreTokenizer"},
    post_processor = {
      type = "BertProcessing", sep = {sep, vocabulary[sep]}, cls = {cls, vocabulary[cls]},
    },
    decoder = {type = "WordPiece", prefix = "##", cleanup = true},
    model = {
      type = "WordPiece", unk_token = names.unk_token, continuing_subword_prefix = "##",
      max_input_chars_per_word = 100, vocab = vocabulary,
    },
  }
end

-- The id of a token in the text of a vocabulary.
local function id_in(text, token)
  local _, at = text:find(C.json.encode(token), 1, true)
  return at and tonumber(text:match("^%s*:%s*(%d+)", at + 1))
end

-- tokenizer.json of a GPT-2 that has its vocabulary and merges only. The vocabulary is inserted as text: parsing
-- and writing 50,000 tokens would be most of the time.
local function gpt2(path, text, merges, config, names)
  local list, added, seen = {}, {}, {}
  for line in merges:gmatch "[^\r\n]+" do
    if not line:find "^#version" then list[#list + 1] = line end
  end
  for _, role in ipairs(tokenizers.roles) do
    local name = names[role]
    if name and not seen[name] then
      seen[name] = true
      added[#added + 1] = special(id_in(text, name), name, path)
    end
  end
  local prefix = config.add_prefix_space == true
  local rest = C.json.encode {
    version = "1.0", added_tokens = #added > 0 and added or C.json.array {},
    pre_tokenizer = {type = "ByteLevel", add_prefix_space = prefix, trim_offsets = true, use_regex = true},
    post_processor = {type = "ByteLevel", add_prefix_space = true, trim_offsets = false, use_regex = true},
    decoder = {type = "ByteLevel", add_prefix_space = true, trim_offsets = true, use_regex = true},
  }
  local merges_text = C.json.encode(#list > 0 and list or C.json.array {})
  return ('%s, "model": {"type": "BPE", "vocab": %s, "merges": %s}}'):format(rest:sub(1, -2), text, merges_text)
end

local roberta = {
  bos_token = "<s>", eos_token = "</s>", unk_token = "<unk>", sep_token = "</s>", pad_token = "<pad>",
  cls_token = "<s>", mask_token = "<mask>",
}
local defaults = {
  bert = {
    unk_token = "[UNK]", sep_token = "[SEP]", pad_token = "[PAD]", cls_token = "[CLS]", mask_token = "[MASK]",
  },
  gpt2 = {unk_token = "<|endoftext|>", bos_token = "<|endoftext|>", eos_token = "<|endoftext|>"},
  roberta = roberta,
  mpnet = {
    bos_token = "<s>", eos_token = "</s>", unk_token = "[UNK]", sep_token = "</s>", pad_token = "<pad>",
    cls_token = "<s>", mask_token = "<mask>",
  },
  gpt_neox = {
    unk_token = "<|endoftext|>", bos_token = "<|endoftext|>", eos_token = "<|endoftext|>", pad_token = "<|padding|>",
  },
  llama = {unk_token = "<unk>", bos_token = "<s>", eos_token = "</s>"},
  qwen2 = {unk_token = "<|endoftext|>", eos_token = "<|endoftext|>", pad_token = "<|endoftext|>"},
  gemma = {
    unk_token = "<unk>", bos_token = "<bos>", eos_token = "<eos>", pad_token = "<pad>", mask_token = "<mask>",
  },
  t5 = {eos_token = "</s>", unk_token = "<unk>", pad_token = "<pad>"},
}

-- The defaults of the special tokens that transformers' classes have, by the class, and by the type of the model where
-- the folder names no class.
local defaults_of_class = {
  Bert = defaults.bert, DistilBert = defaults.bert, Electra = defaults.bert, Roberta = roberta, XLMRoberta = roberta,
  MPNet = defaults.mpnet, GPT2 = defaults.gpt2, GPTNeoX = defaults.gpt_neox, Llama = defaults.llama,
  Qwen2 = defaults.qwen2, Gemma = defaults.gemma, T5 = defaults.t5,
}
local defaults_of_type = {
  bert = defaults.bert, distilbert = defaults.bert, electra = defaults.bert, roberta = roberta,
  ["xlm-roberta"] = roberta, mpnet = defaults.mpnet, gpt2 = defaults.gpt2, gpt_neox = defaults.gpt_neox,
  llama = defaults.llama, qwen2 = defaults.qwen2, qwen3 = defaults.qwen2, gemma2 = defaults.gemma,
  gemma3_text = defaults.gemma, t5 = defaults.t5,
}

-- Return the names of special tokens: those in the files, else the defaults of a kind.
local function special_names(config, map, kind)
  local names = {}
  for _, role in ipairs(tokenizers.roles) do
    local token = config[role]
    if token == nil or token == C.json.null then token = map[role] end
    if type(token) == "table" then token = token.content end
    names[role] = type(token) == "string" and token or kind and kind[role] or nil
  end
  return names
end

-- Models without token_type_ids, by the beginning of their tokenizer's class.
local untyped = {
  "GPT2", "GPTNeoX", "Roberta", "Camembert", "DistilBert", "Bart", "Llama", "CodeGen", "Whisper", "CLIP", "T5", "MT5",
  "XLMRoberta", "Gemma", "Qwen", "MBart", "Pegasus", "Nllb", "BigBird", "Cohere", "XGLM", "Phi", "Bloom",
  "MPNet",
}

-- Tokenizers that pad on the left, by the beginning of their class.
local left_padded = {"Llama", "Gemma", "Cohere"}

local function is_class(config, beginnings)
  for _, name in ipairs(type(config.tokenizer_class) == "string" and beginnings or {}) do
    if config.tokenizer_class:sub(1, #name) == name then return true end
  end
  return false
end

-- Does the tokenizer of a folder that does not define it pad on the left? transformers 5 reads the folders of some
-- types of models by its general class, whatever the folder names; without a name it chooses the class by the type.
local function pads_left(folder, config)
  local kind = object(folder .. "/config.json").model_type
  if type(config.tokenizer_class) ~= "string" then return type(kind) == "string" and kind:find "^gemma" ~= nil end
  if kind == "mistral" or kind == "phi3" then return false end
  return is_class(config, left_padded)
end

local function input_names(folder, config, json)
  if type(config.model_input_names) == "table" then return config.model_input_names end
  local typed = not (json:find '"BPE"' or json:find '"Unigram"')
  if type(config.tokenizer_class) == "string" then
    typed = not is_class(config, untyped)
  elseif typed then
    typed = object(folder .. "/config.json").model_type ~= "mpnet" -- the other types of models with WordPiece have them
  end
  return typed and {"input_ids", "token_type_ids", "attention_mask"} or {"input_ids", "attention_mask"}
end

-- The description of a tokenizer, and the names of its special tokens.
local function describe(folder, config, map)
  local json = contents(folder .. "/tokenizer.json")
  if json then return json, special_names(config, map), "tokenizer.json" end
  local lines = contents(folder .. "/vocab.txt")
  if lines then
    local names = special_names(config, map, defaults.bert)
    return bert(folder .. "/vocab.txt", lines, config, names), names, "vocab.txt"
  end
  local vocabulary, merges = contents(folder .. "/vocab.json"), contents(folder .. "/merges.txt")
  if not (vocabulary and merges) then
    fail("from_pretrained: '%s' has no tokenizer.json, no vocab.txt, and no vocab.json with merges.txt%s", folder,
      sentencepiece_hint(folder))
  end
  local names = special_names(config, map, defaults.gpt2)
  return gpt2(folder .. "/vocab.json", vocabulary, merges, config, names), names, "vocab.json"
end

-- Chat templates as a string, or by name, which the file has as a list of {name, template}.
local function named_templates(templates)
  if type(templates) ~= "table" or type(templates[1]) ~= "table" then return templates end
  local named = {}
  for _, item in ipairs(templates) do
    if type(item.name) == "string" and type(item.template) == "string" then named[item.name] = item.template end
  end
  return named
end

-- Contents of the configuration's added tokens that the tokenizer does not have, by id: runs of special ones and of
-- others, each {special = ..., content, ...}.
local function missing_tokens(config, known)
  local list, runs = {}, {}
  for id, token in pairs(type(config.added_tokens_decoder) == "table" and config.added_tokens_decoder or {}) do
    if type(token) == "table" and type(token.content) == "string" and tonumber(id) and not known(token.content) then
      list[#list + 1] = {tonumber(id), token}
    end
  end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  for _, item in ipairs(list) do
    local is_special, run = item[2].special == true, runs[#runs]
    if not run or run.special ~= is_special then
      run = {special = is_special}
      runs[#runs + 1] = run
    end
    run[#run + 1] = item[2].content
  end
  return runs
end

-- Add the tokens that only the configuration has: its added tokens, then those with a role.
local function add_missing(tokenizer, config)
  local function known(content) return tokenizer._c:id(content) ~= nil end
  for _, run in ipairs(missing_tokens(config, known)) do
    local is_special = run.special
    run.special = nil
    tokenizer:add_tokens(run, is_special)
  end
  local roles = {}
  for _, role in ipairs(tokenizers.roles) do
    if tokenizer[role] and not known(tokenizer[role]) then roles[role] = tokenizer[role] end
  end
  if next(roles) then tokenizer:add_special_tokens(roles) end
end

-- Set the special tokens that the folder's files do not mention to the defaults of the tokenizer's class, if the
-- tokenizer has them: the first published folders of BERT, RoBERTa, GPT-2 and T5 have no special_tokens_map.json.
local function add_defaults(tokenizer, folder, config, map)
  local kind
  if type(config.tokenizer_class) == "string" then
    kind = defaults_of_class[config.tokenizer_class:match "^(.-)Tokenizer"]
  else
    kind = defaults_of_type[object(folder .. "/config.json").model_type]
  end
  for role, content in pairs(kind or {}) do
    if config[role] == nil and map[role] == nil and tokenizer._c:id(content) then tokenizer[role] = content end
  end
end

--- The tokenizer of a folder.
---@param own table options that win over the folder's
---@return Tokenizer
function files.load(folder, own)
  checkpoint_folder("from_pretrained", folder)
  local config, map = object(folder .. "/tokenizer_config.json"), object(folder .. "/special_tokens_map.json")
  if own.do_lower_case ~= nil then config.do_lower_case = own.do_lower_case end
  local json, settings, file = describe(folder, config, map)
  local limit = own.model_max_length or config.model_max_length
  settings.model_max_length = type(limit) == "number" and limit <= 1e20 and limit or nil
  settings.padding_side = own.padding_side or config.padding_side or pads_left(folder, config) and "left" or nil
  settings.truncation_side = own.truncation_side or config.truncation_side
  settings.clean_up_tokenization_spaces = config.clean_up_tokenization_spaces
  settings.model_input_names = input_names(folder, config, json)
  settings.chat_template = contents(folder .. "/chat_template.jinja") or named_templates(config.chat_template)
  for name, value in pairs(settings) do
    if value == C.json.null then settings[name] = nil end
  end
  local fine, made = pcall(tokenizers.Tokenizer, json, settings)
  if not fine then
    fail("from_pretrained: '%s/%s': %s", folder, file, (tostring(made):gsub("^.-Tokenizer: ", "", 1)))
  end
  if file == "tokenizer.json" then
    add_missing(made, config)
    add_defaults(made, folder, config, map)
  end
  return made
end

local function write(path, text)
  local file, reason = io.open(path, "wb")
  if not file then fail("save_pretrained: cannot write '%s': %s", path, reason) end
  local fine, why = file:write(text)
  local closed = file:close()
  if not (fine and closed) then fail("save_pretrained: cannot write '%s': %s", path, tostring(why)) end
end

--- Write a tokenizer's files.
---@param tokenizer Tokenizer
---@param folder string made when it is not there
function files.save(tokenizer, folder)
  local made, reason = C.io.make_folder(folder)
  if not made then fail("save_pretrained: cannot make the folder '%s': %s", folder, tostring(reason)) end
  local map, config = {}, {
    tokenizer_class = "PreTrainedTokenizerFast", padding_side = tokenizer.padding_side,
    truncation_side = tokenizer.truncation_side, model_input_names = tokenizer.model_input_names,
    clean_up_tokenization_spaces = tokenizer.clean_up_tokenization_spaces,
    model_max_length = tokenizer.model_max_length <= 1e20 and tokenizer.model_max_length or 1e30,
  }
  for _, role in ipairs(tokenizers.roles) do map[role], config[role] = tokenizer[role], tokenizer[role] end
  local template = tokenizer.chat_template
  if type(template) == "string" then
    write(folder .. "/chat_template.jinja", template)
  elseif template then
    config.chat_template = {}
    for _, name in ipairs(arguments.sorted_keys(template)) do
      table.insert(config.chat_template, {name = name, template = template[name]})
    end
  end
  write(folder .. "/tokenizer.json", tokenizer._json)
  write(folder .. "/tokenizer_config.json", C.json.encode(config, 2))
  write(folder .. "/special_tokens_map.json", next(map) and C.json.encode(map, 2) or "{}")
end

return files
