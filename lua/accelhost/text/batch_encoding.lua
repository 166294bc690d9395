--- A tokenizer's result for a batch of texts.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

local batch_encoding = {}

--- Tensors (or tables) of a batch by name: input_ids, attention_mask, token_type_ids and other requested ones. A
--- model that accepts tokens accepts it unchanged.
---@field input_ids userdata [texts, tokens] int64
---@field attention_mask userdata [texts, tokens] int64: 1 for tokens, 0 for padding
---@field token_type_ids userdata [texts, tokens] int64
local BatchEncoding = class.new "BatchEncoding"
batch_encoding.BatchEncoding = BatchEncoding

--- Made by a tokenizer.
---@param columns table<string, any>
---@param words? userdata which word of its text each token is part of: len() rows, get(row)
---@param ids? userdata|table
---@param tokenizer? table
function BatchEncoding:init(columns, words, ids, tokenizer)
  for name, column in pairs(columns) do self[name] = column end
  rawset(self, "_words", words)
  rawset(self, "_ids", ids)
  rawset(self, "_tokenizer", tokenizer)
end

-- The columns in one order.
local function names_of(self)
  local names = {}
  for name in next, self do
    if not name:find "^_" then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

function BatchEncoding:__pairs()
  local names, i = names_of(self), 0
  return function()
    i = i + 1
    return names[i], names[i] and rawget(self, names[i])
  end
end

function BatchEncoding:extra_repr()
  local parts = {}
  for i, name in ipairs(names_of(self)) do
    local value = rawget(self, name)
    parts[i] = name .. "=" .. (C.is_tensor(value) and arguments.shape_text(value) or "table")
  end
  return table.concat(parts, ", ")
end

--- Itself with every tensor on another device.
--
--   local tokenizer = accelhost.text.Tokenizer{model = {type = "WordPiece", vocab = {["[UNK]"] = 0, deep = 1}}}
--   print(tokenizer("deep"):to("cpu").input_ids)  --> tensor([[1]])
---@return BatchEncoding self
function BatchEncoding:to(device)
  for _, name in ipairs(names_of(self)) do
    local value = rawget(self, name)
    if C.is_tensor(value) then self[name] = value:to(device) end
  end
  return self
end

local function row_of(self, what, i, column)
  arguments.check(what, "i", "integer", i)
  local rows = rawget(self, column)
  local count = rows and (C.is_tensor(rows) and rows:size(0) or #rows) or 0
  if i < 0 or i >= count then
    arguments.fail("%s: there is no text %s (there are %d, counted from 0)", what, tostring(i), count)
  end
  return C.is_tensor(rows) and rows[i]:tolist() or rows[i + 1]
end

--- Return, for each token of text i, the number of its word, from 0; -1 for special tokens and padding. It maps labels
--- of words to tokens.
--
--   local vocabulary = {["[UNK]"] = 0, deep = 1, ["##er"] = 2}
--   local tokenizer = accelhost.text.Tokenizer{
--     pre_tokenizer = {type = "Whitespace"}, model = {type = "WordPiece", vocab = vocabulary},
--   }
--   print(unpack(tokenizer("deep deeper"):word_ids(0)))  --> 0  1  1
---@param i integer the text, from 0
---@return integer[]
function BatchEncoding:word_ids(i)
  row_of(self, "word_ids", i, "_ids")
  return rawget(self, "_words"):get(i)
end

--- The tokens of text i as texts.
--
--   local vocabulary = {["[UNK]"] = 0, deep = 1, ["##er"] = 2}
--   local tokenizer = accelhost.text.Tokenizer{model = {type = "WordPiece", vocab = vocabulary}}
--   print(unpack(tokenizer("deeper"):tokens(0)))  --> deep  ##er
---@param i integer the text, from 0
---@return string[]
function BatchEncoding:tokens(i)
  return rawget(self, "_tokenizer"):convert_ids_to_tokens(row_of(self, "tokens", i, "_ids"))
end

return batch_encoding
