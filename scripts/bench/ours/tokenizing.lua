--- Tokenizing, into padded tensors: 10,000 lines of SST-2 as a batch, or tinyshakespeare as one text.
--
-- usage: accelhost tokenizing.lua DATA MODEL TEXT      MODEL: minilm, tokenizers/gpt2; TEXT: sst2, tinyshakespeare
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

local tokenizer = accelhost.text.AutoTokenizer.from_pretrained(root .. "/" .. folder)
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
local times = {}
for i = 0, 7 do
  local begin = now()
  tokenizer(texts, {padding = true})
  if i > 0 then times[i] = now() - begin end
end
table.sort(times)
print("call_ms", times[4] * 1e3)
