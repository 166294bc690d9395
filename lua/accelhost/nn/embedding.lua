--- A table of vectors looked up by index (from 0).
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local init = require "accelhost.nn.initializers"
local Module = require("accelhost.nn.module").Module
local new = require("accelhost.nn.parameter").new

local fail = arguments.fail

---@class Embedding: Module
---@field weight table [num_embeddings, embedding_dim]
local Embedding = Module:extend "Embedding"

local read = arguments.signature("Embedding", {
  "num_embeddings: size", "embedding_dim: size", {"padding_idx: integer"}, {"device: device"}, {"dtype: dtype"},
})
local read_pretrained = arguments.signature("from_pretrained",
  {"embeddings: tensor", {"freeze: flag", true}, {"padding_idx: integer"}})

--- nn.Embedding(10, 3, {padding_idx = 0}): row 0 is zero and gets no gradient.
---@param num_embeddings integer
---@param embedding_dim integer
---@param padding_idx integer|table? counted from 0, negative from the end
function Embedding:init(...)
  local count, width, padding_idx, device, dtype = read(...)
  if padding_idx then
    if padding_idx < -count or padding_idx >= count then
      fail("Embedding: padding_idx %d is outside of the %d rows", padding_idx, count)
    end
    if padding_idx < 0 then padding_idx = padding_idx + count end
  end
  self.num_embeddings, self.embedding_dim, self.padding_idx = count, width, padding_idx
  self.weight = new(C.empty({count, width}, {dtype = dtype, device = device}))
  self:reset_parameters()
end

--- N(0, 1); the padding row is 0.
function Embedding:reset_parameters()
  init.normal_(self.weight)
  if self.padding_idx then
    C.autograd.no_grad(function() self.weight:select(0, self.padding_idx):zero_() end)
  end
end

--- Make an embedding from a matrix.
---@param embeddings table [num_embeddings, embedding_dim]
---@param freeze boolean|table? default true; or {freeze =, padding_idx =}
---@return Embedding
function Embedding.from_pretrained(...)
  local embeddings, freeze, padding_idx = read_pretrained(...)
  if embeddings:dim() ~= 2 then
    fail("from_pretrained: embeddings: expected 2 dims, got %s", arguments.shape_text(embeddings))
  end
  local self = Embedding(embeddings:size(0), embeddings:size(1), {padding_idx = padding_idx, dtype = embeddings.dtype})
  self.weight = new(embeddings, not freeze)
  return self
end

---@param input table integers, any shape
---@return table [..., embedding_dim]
function Embedding:forward(input)
  return C.embedding(input, self.weight, self.padding_idx)
end

function Embedding:extra_repr()
  local text = ("%d, %d"):format(self.num_embeddings, self.embedding_dim)
  return self.padding_idx and text .. ", padding_idx=" .. self.padding_idx or text
end

return {Embedding = Embedding}
