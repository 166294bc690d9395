--- Files of tokens as data sets of blocks, which language models are trained on.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local Dataset = require("accelhost.data.sets.dataset").Dataset

local fail, signature = arguments.fail, arguments.signature

---@field tokens integer number of the file's tokens
---@field dtype string "uint16" or "uint32"
local TokenFile = Dataset:extend "TokenFile"

local bytes_of = {uint16 = 2, uint32 = 4}

-- The mapped files. They are no fields: a set is sent to another process as its path, and is mapped there.
local mapped = setmetatable({}, {__mode = "k"})

local function file_of(self)
  local file = mapped[self]
  if not file then
    file = C.data.tokens(self.path, bytes_of[self.dtype] or 0)
    mapped[self] = file
  end
  return file
end

local read = signature("TokenFile", {
  "path: string", "block_size: count", {"stride: count"}, {"shift: flag", false}, {"dtype: 'uint16'|'uint32'"},
  {"vocab_size: count"}, {"first: size", 0}, {"count: size"},
})

--- A file of tokens (data.write_tokens writes one; nanoGPT's .bin files are such) as blocks of `block_size` tokens:
--- block i begins at token `first` + i * stride. The file is mapped, and a loader's batch is copied from it at once. A
--- block is a table for GPT2LMHeadModel: input_ids [block_size] int64, and labels, which are the same tokens (the model
--- shifts them), or with `shift` the tokens one place later, for a model that leaves that to its caller.
---
--- With stride = 1 blocks begin anywhere: a RandomSampler with replacement then draws as nanoGPT's get_batch does.
--
--   local path = os.tmpname()
--   data.write_tokens(path, accelhost.arange(10))
--   local set = data.TokenFile(path, {block_size = 4})
--   print(#set, set:get(1).labels)  --> 2  tensor([4, 5, 6, 7])
--   local anywhere = data.TokenFile(path, {block_size = 4, stride = 1})
--   local loader = data.DataLoader(anywhere, {sampler = data.RandomSampler(anywhere, {replacement = true, seed = 1})})
---@param path string a .npy file's header has the width of its numbers; any other has no header
---@param stride? integer from one block to the next, default block_size: none overlap, and a rest at the end of the
--- file is left out
---@param shift? boolean labels are the next tokens (default false: the same ones)
---@param dtype? string "uint16" (the default of a file without header) or "uint32"
---@param vocab_size? integer a token that is not below it is an error with its place
---@param first? integer the part of the file that is used begins at this token, default 0
---@param count? integer number of tokens of that part, default all
function TokenFile:init(...)
  local path, block_size, stride, shift, dtype, vocab_size, first, count = read(...)
  self.path, self.block_size, self.stride, self.shift, self.vocab_size = path, block_size, stride or block_size, shift,
    vocab_size
  self.dtype = dtype
  local file = file_of(self)
  self.tokens, self.dtype = file:len(), file:bytes() == 2 and "uint16" or "uint32"
  if first + (count or 0) > self.tokens then
    fail("TokenFile: '%s' has %d tokens, not %d from %d on", path, self.tokens, count or 1, first)
  end
  self._first = first
  local room = (count or self.tokens - first) - block_size - (shift and 1 or 0)
  if room < 0 then
    fail("TokenFile: '%s': %d tokens%s are fewer than a block has (%d%s)", path, count or self.tokens - first,
      (count or first > 0) and " of its part" or "", block_size, shift and " and the next one" or "")
  end
  self._count = math.floor(room / self.stride) + 1
end

function TokenFile:len() return self._count end

-- Blocks that begin at these places, and their labels.
local function blocks(self, places)
  local length, limit, what = self.block_size, self.vocab_size or 0, ("TokenFile: '%s'"):format(self.path)
  local file = file_of(self)
  local ids = file:blocks(places, length, limit, what)
  if self.shift then
    for i = 1, #places do places[i] = places[i] + 1 end
  end
  return ids, file:blocks(places, length, limit, what)
end

local function place_of(self, i)
  if type(i) ~= "number" or i % 1 ~= 0 or i < 0 or i >= self._count then
    fail("TokenFile: index %s is out of range (0 to %d)", tostring(i), self._count - 1)
  end
  return self._first + i * self.stride
end

function TokenFile:get(i)
  local ids, labels = blocks(self, {place_of(self, i)})
  return {input_ids = ids:select(0, 0), labels = labels:select(0, 0)}
end

--- Return the blocks of a whole batch, as a loader requests them.
---@param indices integer[] from 0
---@return table<string, Tensor> # input_ids and labels [#indices, block_size]
function TokenFile:rows(indices)
  local places = {}
  for k = 1, #indices do places[k] = place_of(self, indices[k]) end
  local ids, labels = blocks(self, places)
  return {input_ids = ids, labels = labels}
end

function TokenFile:extra_repr()
  return ("'%s', tokens=%d, block_size=%d, stride=%d"):format(self.path, self.tokens, self.block_size, self.stride)
end

return {TokenFile = TokenFile}
