--- Embeddings: tables of vectors that are looked up by number (from 0), one by one or in bags.
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local init = require "accelhost.nn.initializers"
local Module = require("accelhost.nn.module").Module
local new = require("accelhost.nn.parameter").new
local repr = require "accelhost.nn.repr"

local fail = arguments.fail
local embedding = {}

--- The base of both tables: the weight, and the options of its rows.
local Table = Module:extend "EmbeddingTable"

--- Set the fields from the options by name and make the weight, unless it is given.
function Table:setup(o)
  local count, width, what = o.num_embeddings, o.embedding_dim, self._name
  if o.padding_idx then
    if o.padding_idx < -count or o.padding_idx >= count then
      fail("%s: padding_idx %d is outside of the %d rows", what, o.padding_idx, count)
    end
    if o.padding_idx < 0 then o.padding_idx = o.padding_idx + count end
  end
  if o.sparse then fail("%s: sparse: there are no sparse tensors here; gradients are dense", what) end
  self.num_embeddings, self.embedding_dim, self.padding_idx = count, width, o.padding_idx
  self.max_norm, self.norm_type, self.scale_grad_by_freq = o.max_norm, o.norm_type, o.scale_grad_by_freq
  self.sparse = false
  if o._weight then
    if o._weight:dim() ~= 2 or o._weight:size(0) ~= count or o._weight:size(1) ~= width then
      fail("%s: _weight: expected shape (%d, %d), got %s", what, count, width, arguments.shape_text(o._weight))
    end
    self.weight = new(o._weight, not o._freeze)
  else
    self.weight = new(C.empty({count, width}, {dtype = o.dtype, device = o.device}), not o._freeze)
    self:reset_parameters()
  end
end

--- N(0, 1); the padding row is 0.
function Table:reset_parameters()
  init.normal_(self.weight)
  if self.padding_idx then
    C.autograd.no_grad(function() self.weight:select(0, self.padding_idx):zero_() end)
  end
end

-- The options that are not PyTorch's defaults, in its order.
local function text_of(self, mode)
  local text = ("%d, %d"):format(self.num_embeddings, self.embedding_dim)
  local padding = self.padding_idx and ", padding_idx=" .. self.padding_idx or ""
  if not mode then text = text .. padding end
  if self.max_norm then text = text .. ", max_norm=" .. repr.float(self.max_norm) end
  if self.norm_type ~= 2 then text = text .. ", norm_type=" .. repr.value(self.norm_type) end
  if self.scale_grad_by_freq then text = text .. ", scale_grad_by_freq=True" end
  return mode and text .. (", mode='%s'"):format(mode) .. padding or text
end

local rows = {"num_embeddings: size", "embedding_dim: size"}
local treatment = {
  {"max_norm: positive"}, {"norm_type: number", 2}, {"scale_grad_by_freq: flag", false},
}

-- A reader of these parameters in this order, by name into a table.
local function reader(what, ...)
  local parameters = {}
  for i = 1, select("#", ...) do
    local part = select(i, ...)
    for _, parameter in ipairs(part) do parameters[#parameters + 1] = parameter end
  end
  return arguments.setter(what, parameters)
end

--- One vector for each number.
--
--   nn.Embedding(10, 3, {padding_idx = 0})  -- row 0 is zero and gets no gradient
---@field weight Tensor [num_embeddings, embedding_dim]
local Embedding = Table:extend "Embedding"
embedding.Embedding = Embedding

local read = reader("Embedding", rows, {{"padding_idx: integer"}}, treatment, {
  {"sparse: flag", false}, {"_weight: tensor"}, {"_freeze: flag", false}, {"device: device"}, {"dtype: dtype"},
})

---@param padding_idx integer|table? counted from 0, negative from the end
---@param max_norm number? rows that are used are first cut to this length, in the weight itself
---@param norm_type number? of that length, 2
---@param scale_grad_by_freq boolean? divide gradients by the number of uses of a row in the batch
function Embedding:init(...)
  local options = {}
  read(options, ...)
  self:setup(options)
end

---@param input Tensor integers, any shape
---@return Tensor [..., embedding_dim]
function Embedding:forward(input)
  if not self.max_norm and not self.scale_grad_by_freq then return C.embedding(input, self.weight, self.padding_idx) end
  return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq)
end

function Embedding:extra_repr()
  return text_of(self)
end

local given = {"embeddings: tensor", {"freeze: flag", true}}

-- A table of a given matrix, which is frozen unless freeze = false.
local function from_matrix(Class, read_options, ...)
  local options = {}
  read_options(options, ...)
  local matrix = options.embeddings
  if matrix:dim() ~= 2 then
    fail("from_pretrained: embeddings: expected 2 dims, got %s", arguments.shape_text(matrix))
  end
  local freeze = options.freeze
  options.embeddings, options.freeze, options._weight = nil, nil, matrix
  options.num_embeddings, options.embedding_dim = matrix:size(0), matrix:size(1)
  local made = Class(options)
  made.weight.requires_grad = not freeze
  return made
end

local read_pretrained = reader("from_pretrained", given, {{"padding_idx: integer"}}, treatment,
  {{"sparse: flag", false}})

--- Make an embedding from a matrix.
---@param embeddings Tensor [num_embeddings, embedding_dim]
---@param freeze boolean|table? default true; or options by name, as of the constructor
---@return Embedding
function Embedding.from_pretrained(...)
  return from_matrix(Embedding, read_pretrained, ...)
end

--- The sum, mean or largest of the vectors of a bag of numbers.
--
--   local bag = nn.EmbeddingBag(10, 3, {mode = "sum"})
--   bag(accelhost.tensor({1, 2, 4, 5}, {dtype = "int64"}), accelhost.tensor({0, 3}, {dtype = "int64"}))  --> [2, 3]
---@field weight Tensor [num_embeddings, embedding_dim]
local EmbeddingBag = Table:extend "EmbeddingBag"
embedding.EmbeddingBag = EmbeddingBag

local mode = {"mode: 'sum'|'mean'|'max'", "mean"}
local read_bag = reader("EmbeddingBag", rows, treatment, {
  mode, {"sparse: flag", false}, {"_weight: tensor"}, {"include_last_offset: flag", false}, {"padding_idx: integer"},
  {"device: device"}, {"dtype: dtype"},
})

function EmbeddingBag:init(...)
  local options = {}
  read_bag(options, ...)
  self:setup(options)
  self.mode, self.include_last_offset = options.mode, options.include_last_offset
end

---@param input Tensor integers [B, L], every row a bag, or [L] with offsets
---@param offsets Tensor? where in [L] each bag begins
---@param per_sample_weights Tensor? of the input's shape, for mode "sum"
---@return Tensor [B, embedding_dim]
function EmbeddingBag:forward(input, offsets, per_sample_weights)
  return F.embedding_bag(input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
    false, per_sample_weights, self.include_last_offset, self.padding_idx)
end

function EmbeddingBag:extra_repr()
  return text_of(self, self.mode)
end

local read_pretrained_bag = reader("EmbeddingBag.from_pretrained", given, treatment, {
  mode, {"sparse: flag", false}, {"include_last_offset: flag", false}, {"padding_idx: integer"},
})

--- Make a bag from a matrix.
---@param embeddings Tensor [num_embeddings, embedding_dim]
---@param freeze boolean|table? default true; or options by name, as of the constructor
---@return EmbeddingBag
function EmbeddingBag.from_pretrained(...)
  return from_matrix(EmbeddingBag, read_pretrained_bag, ...)
end

return embedding
