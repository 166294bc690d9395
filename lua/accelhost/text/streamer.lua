--- Streamers: text as it is generated.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

local fail, describe = arguments.fail, arguments.describe
local streamer = {}

--- Write a text while model:generate writes its tokens: whole characters, as soon as no later token can change them.
---
--- A subclass replaces on_finalized_text(text, stream_end), which prints.
--
--   | local streamer = accelhost.text.TextStreamer(tokenizer, {skip_prompt = true, skip_special_tokens = true})
--   | model:generate(tokenizer("The sea").input_ids, {streamer = streamer})
local TextStreamer = class.new "TextStreamer"
streamer.TextStreamer = TextStreamer

local read = arguments.signature("TextStreamer", {
  "tokenizer", {"skip_prompt: flag", false}, {"skip_special_tokens: flag", false},
  {"clean_up_tokenization_spaces: flag"},
})

---@param tokenizer Tokenizer
---@param skip_prompt? boolean do not write the prompt (default false)
---@param skip_special_tokens? boolean leave special tokens out (default false)
---@param clean_up_tokenization_spaces? boolean remove blanks in front of marks; by default the tokenizer's
function TextStreamer:init(...)
  local tokenizer, skips, specials, clean = read(...)
  self.tokenizer, self.skip_prompt = tokenizer, skips
  self.decoding = {skip_special_tokens = specials, clean_up_tokenization_spaces = clean}
  self.tokens, self.printed, self.is_prompt = {}, 0, true
end

local function decode(self) return self.tokenizer:decode(self.tokens, self.decoding) end

-- Return the number of bytes of a text without an incomplete character at its end.
local function whole(text)
  return #text:gsub("\239\191\189+$", "")
end

-- A line that ends begins a new text; its last token stays, since decoders remove a blank at the beginning.
local function restart(self)
  self.tokens = {self.tokens[#self.tokens]}
  self.printed = #decode(self)
end

--- Write the text of further tokens, as far as its characters are complete.
---@param ids Tensor|integer[] of one text: first the prompt, then each token
function TextStreamer:put(ids)
  if C.is_tensor(ids) then
    if ids:dim() == 2 and ids:size(0) > 1 then
      fail("TextStreamer: expected tokens of one text, got %d texts", ids:size(0))
    end
    ids = ids:reshape(-1):tolist()
  elseif type(ids) ~= "table" then
    fail("TextStreamer: put: expected tokens, got %s", describe(ids))
  end
  local skips = self.skip_prompt and self.is_prompt
  self.is_prompt = false
  if skips then return end
  for _, id in ipairs(ids) do self.tokens[#self.tokens + 1] = id end
  local text = decode(self)
  local length = whole(text)
  local more = text:sub(self.printed + 1, length)
  self.printed = math.max(self.printed, length)
  if text:sub(-1) == "\n" then restart(self) end
  self:on_finalized_text(more, false)
end

--- Write the rest of the text; the next tokens are those of a prompt again.
function TextStreamer:finish()
  local rest = #self.tokens > 0 and decode(self):sub(self.printed + 1) or ""
  self.tokens, self.printed, self.is_prompt = {}, 0, true
  self:on_finalized_text(rest, true)
end

--- Print a part of the text.
---@param stream_end? boolean the text is complete
function TextStreamer:on_finalized_text(text, stream_end) -- luacheck: ignore 212
  io.write(text, stream_end and "\n" or "")
  io.flush()
end

return streamer
