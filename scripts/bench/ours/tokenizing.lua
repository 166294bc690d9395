--- Tokenizing, into padded tensors: 10,000 lines of SST-2 as a batch, or tinyshakespeare as one text.
--
-- usage: accelhost tokenizing.lua DATA MODEL TEXT      MODEL: minilm, tokenizers/gpt2, llama3, unigram;
-- TEXT: sst2, tinyshakespeare. llama3 is GPT-2's vocabulary with the pattern of Llama 3, unigram the texts of minilm's
-- vocab.txt with scores by their place.
-- Prints the median time of seven calls; the first, which remembers no words, is none of them.
local accelhost = require "accelhost"
local now = require("accelhost._C").system.now

local root, folder, what = arg[1], arg[2], arg[3]
local function read(path)
  local file = assert(io.open(root .. "/" .. path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

local texts = {}
if what == "sst2" then
  for line in read "sst2/train.tsv":gmatch "([^\n]*)\n" do
    texts[#texts + 1] = line
    if #texts == 10001 then break end
  end
  table.remove(texts, 1)
else
  texts[1] = read "tinyshakespeare/input.txt"
end

local json, pattern = accelhost.json, [[(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}]]
  .. [[| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+]]
local made = {}

function made.llama3()
  local merges = {}
  for line in read "tokenizers/gpt2/merges.txt":gmatch "[^\r\n]+" do
    if not line:find "^#version" then merges[#merges + 1] = line end
  end
  local split = {type = "Split", pattern = {Regex = pattern}, behavior = "Isolated", invert = false}
  local bytes = {type = "ByteLevel", add_prefix_space = false, use_regex = false, trim_offsets = true}
  return {
    pre_tokenizer = {type = "Sequence", pretokenizers = {split, bytes}},
    model = {
      type = "BPE", vocab = json.decode(read "tokenizers/gpt2/vocab.json"), merges = merges, ignore_merges = true,
    },
  }
end

function made.unigram()
  local vocabulary = {}
  for line in read "minilm/vocab.txt":gmatch "[^\n]+" do
    local text = line:find "^##" and line:sub(3) or "\226\150\129" .. line
    vocabulary[#vocabulary + 1] = {text, -math.log(#vocabulary + 1)}
  end
  return {
    pre_tokenizer = {type = "Metaspace", replacement = "\226\150\129", prepend_scheme = "always", split = true},
    model = {type = "Unigram", unk_id = 0, vocab = vocabulary},
  }
end

local tokenizer = made[folder] and accelhost.text.Tokenizer(json.encode(made[folder]()), {pad_token = "!"})
  or accelhost.text.AutoTokenizer.from_pretrained(root .. "/" .. folder)
if folder == "unigram" then tokenizer.pad_token = "\226\150\129!" end
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
local times = {}
for i = 0, 7 do
  local begin = now()
  tokenizer(texts, {padding = true})
  if i > 0 then times[i] = now() - begin end
end
table.sort(times)
print("call_ms", times[4] * 1e3)
