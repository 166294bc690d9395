--- A tokenizer whose tokens are the characters of a text.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local Tokenizer = require("accelhost.text.tokenizer").Tokenizer

local characters = {}
local bytes = {type = "ByteLevel", add_prefix_space = false, trim_offsets = true, use_regex = true}

local function utf8_of(code)
  if code < 0x80 then return string.char(code) end
  return string.char(0xC0 + math.floor(code / 64), 0x80 + code % 64)
end

-- The character for each byte in byte-level vocabularies: printable ones unchanged, the others from U+0100 on.
local written, others = {}, 0
for byte = 0, 255 do
  local plain = byte >= 0x21 and byte <= 0x7E or byte >= 0xA1 and byte <= 0xAC or byte >= 0xAE
  written[string.char(byte)] = utf8_of(plain and byte or 256 + others)
  if not plain then others = others + 1 end
end

-- The characters of a text, sorted.
local function found_in(text)
  local seen, list = {}, {}
  local function see(c)
    if not seen[c] then
      seen[c] = true
      list[#list + 1] = c
    end
  end
  for byte = 0, 127 do
    local c = string.char(byte)
    if text:find(c, 1, true) then see(c) end
  end
  for c in text:gmatch "[\194-\244][\128-\191]+" do see(c) end
  table.sort(list)
  return list
end

local read = arguments.signature("character_tokenizer", {"text: string"})

--- A tokenizer that has the characters of a text (UTF-8) as its tokens, in their order: a byte-level BPE that joins
--- bytes to these characters and to nothing more, so that transformers reads the files of save_pretrained. A character
--- that is not in the text has no token and is left out.
--
--   local tokenizer = accelhost.text.character_tokenizer "to be or not to be"
--   print(tokenizer.vocab_size, tokenizer:decode(tokenizer:encode "robot"))  --> 7  robot
---@return Tokenizer
function characters.character_tokenizer(...)
  local text = read(...)
  if text == "" then arguments.fail "character_tokenizer: text: it is empty" end
  local vocabulary, merges, known, count = {}, {}, {}, 0
  local function add(token)
    if not vocabulary[token] then
      vocabulary[token], count = count, count + 1
    end
  end
  local list = found_in(text)
  for _, c in ipairs(list) do add((c:gsub(".", written))) end
  for _, c in ipairs(list) do
    local left = written[c:sub(1, 1)]
    for i = 2, #c do
      local right = written[c:sub(i, i)]
      add(left)
      add(right)
      local merge = left .. " " .. right
      if not known[merge] then merges[#merges + 1], known[merge] = merge, true end
      left = left .. right
      add(left)
    end
  end
  return Tokenizer({
    version = "1.0", added_tokens = C.json.array {}, pre_tokenizer = bytes, post_processor = bytes, decoder = bytes,
    model = {type = "BPE", vocab = vocabulary, merges = #merges > 0 and merges or C.json.array {}},
  }, {model_input_names = {"input_ids", "attention_mask"}})
end

return characters
