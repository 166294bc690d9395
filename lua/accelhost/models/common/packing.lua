--- Texts of a batch one after the other, without the padding between them: computations on single tokens then run on
--- real tokens only. The numbers are those of the padded batch, dropout masks included; at padding there
-- are zeros in the end.
local C = require "accelhost._C"
local nn = require "accelhost.nn.dropout"

local packing = {}

-- Below this share of padding packing and unpacking cost as much as they save.
local WORTH = 0.06

--- The places of a batch's tokens.
---@class packing.Places
---@field index Tensor [total] in the flattened batch
---@field positions Tensor [total] in the token's text
---@field bounds Tensor [batch + 1] int64: text i is bounds[i] .. bounds[i + 1] - 1 of the tokens
---@field longest integer tokens of the longest text
---@field batch integer
---@field tokens integer of a padded text

--- The places of tokens by a mask; nil where packing does not pay or cannot be: little padding, a text without tokens,
--- another device than the CPU.
---@param kept Tensor? [batch, tokens] bool
---@return packing.Places?
function packing.places(kept)
  if kept == nil or kept:dim() ~= 2 or kept.device ~= "cpu" or kept:numel() == 0 then return nil end
  local lengths = kept:sum(1)
  local bounds = C.cat({C.zeros({1}, {dtype = "int64"}), lengths:cumsum(0)})
  local total = bounds:select(0, -1):item()
  if total > (1 - WORTH) * kept:numel() or lengths:min():item() == 0 then return nil end
  local batch, tokens = kept:size(0), kept:size(1)
  local index = kept:reshape(-1):nonzero():reshape(-1)
  return {
    index = index, positions = index:remainder(tokens), bounds = bounds, longest = lengths:max():item(),
    batch = batch, tokens = tokens,
  }
end

--- nn.Dropout of a padded batch or, with its places, of packed texts, for which it draws the same mask.
---@class packing.Dropout: Dropout
local Dropout = nn.Dropout:extend "Dropout"
packing.Dropout = Dropout

---@param places? packing.Places
---@return Tensor
function Dropout:forward(x, places)
  if not places or not self.training then return nn.Dropout.forward(self, x) end
  return C.padded_dropout(x, places.index, places.batch * places.tokens, self.p)
end

--- [batch, tokens, ...] as [total, ...].
---@param places packing.Places
---@return Tensor
function packing.pack(places, x)
  return x:flatten(0, 1):index_select(0, places.index)
end

--- [total, ...] as [batch, tokens, ...], with zeros between the texts.
---@param places packing.Places
---@return Tensor
function packing.unpack(places, x)
  local shape = x:shape()
  shape[1] = places.batch * places.tokens
  return x:new_zeros(shape):index_copy(0, places.index, x):unflatten(0, {places.batch, places.tokens})
end

return packing
