--- GPT-2: a decoder that continues a text. The paths of its weights are those of published checkpoints.
local C = require "accelhost._C"
local activations = require "accelhost.models.common.activations"
local arguments = require "accelhost.util.arguments"
local attention = require "accelhost.models.common.attention"
local cache = require "accelhost.models.common.cache"
local configs = require "accelhost.models.common.config"
local container = require "accelhost.nn.container"
local context = require "accelhost.models.decoders.context"
local fused = require "accelhost.nn.fused"
local generation = require "accelhost.models.generation"
local inputs = require "accelhost.models.common.inputs"
local language_head = require "accelhost.models.decoders.language_head"
local norms = require "accelhost.nn.norm"
local skip = require "accelhost.nn.skip"
local Dropout = require("accelhost.nn.dropout").Dropout
local Embedding = require("accelhost.nn.embedding").Embedding
local Linear = require("accelhost.nn.linear").Linear
local Module = require("accelhost.nn.module").Module
local Parameter = require("accelhost.nn.parameter").new
local PreTrainedModel = require("accelhost.models.common.pretrained").PreTrainedModel
local init = require "accelhost.nn.initializers"

local fail = arguments.fail
local gpt2 = {}

--- y = x W + b with the weight as [in, out], as GPT-2's checkpoints have it.
--
--   accelhost.models.Conv1D(6, 2)(accelhost.ones(3, 2)):size(1)  --> 6
---@param nf integer the width of the output
---@param nx integer the width of the input
---@field weight Tensor [nx, nf]
---@field bias Tensor [nf]
local Conv1D = Module:extend "Conv1D"
gpt2.Conv1D = Conv1D

local read_conv = arguments.signature("Conv1D", {"nf: size", "nx: size"})

function Conv1D:init(...)
  local nf, nx = read_conv(...)
  self.nf, self.nx = nf, nx
  self.weight = Parameter(C.empty({nx, nf}))
  self.bias = Parameter(C.zeros({nf}))
  skip.no_grad(init.normal_, self.weight, 0, 0.02)
end

-- The weight as linear maps have it, [nf, nx]. Under autocast it is cast before it is turned around: of parameters the
-- cast is kept, of views it is not.
local function linear_weight(conv) return C.autocast.lower(conv.weight):t() end

---@param x Tensor [..., nx]
---@return Tensor [..., nf]
function Conv1D:forward(x) return C.linear(x, linear_weight(self), self.bias) end

function Conv1D:extra_repr() return ("nf=%d, nx=%d"):format(self.nf, self.nx) end

local Attention = Module:extend "GPT2Attention"

function Attention:init(config, number)
  local width, heads = config.n_embd, config.n_head
  if width % heads ~= 0 then fail("GPT2Config: n_embd %d is no multiple of n_head %d", width, heads) end
  self.heads, self.width = heads, width
  self.scale = config.scale_attn_weights and 1 / math.sqrt(width / heads) or 1
  if config.scale_attn_by_inverse_layer_idx then self.scale = self.scale / number end
  self.rate = config.attn_pdrop
  self.c_attn = Conv1D(3 * width, width)
  self.c_proj = Conv1D(width, width)
  self.resid_dropout = Dropout(config.resid_pdrop)
end

function Attention:forward(x, how, past)
  local packed, width = self.c_attn(x), self.width
  local q = attention.split(packed:narrow(2, 0, width), self.heads)
  local k = attention.split(packed:narrow(2, width, width), self.heads)
  local v = attention.split(packed:narrow(2, 2 * width, width), self.heads)
  local present = cache.add(past, k, v)
  local y, weights = attention.attend(q, present[1], present[2], {
    visible = how.visible, dropout = self.training and self.rate or 0, scale = self.scale, weights = how.wants_weights,
  })
  return self.resid_dropout(self.c_proj(attention.join(y))), how.keeps and present or nil, weights
end

local MLP = Module:extend "GPT2MLP"

function MLP:init(config)
  local inner = config.n_inner or 4 * config.n_embd
  self.c_fc = Conv1D(inner, config.n_embd)
  self.c_proj = Conv1D(config.n_embd, inner)
  self.act = activations.find("GPT2Config: activation_function", config.activation_function)
  self.dropout = Dropout(config.resid_pdrop)
end

function MLP:forward(x)
  local fc, proj = self.c_fc, self.c_proj
  if self.act == activations.tanh_gelu and fused.is_plain(fc, Conv1D) and fused.is_plain(proj, Conv1D) then
    return self.dropout(fused.gelu_between(x, linear_weight(fc), fc.bias, linear_weight(proj), proj.bias))
  end
  return self.dropout(proj(self.act(fc(x))))
end

local Block = Module:extend "GPT2Block"

function Block:init(config, number)
  local norm = {eps = config.layer_norm_epsilon}
  self.ln_1 = norms.LayerNorm(config.n_embd, norm)
  self.attn = Attention(config, number)
  self.ln_2 = norms.LayerNorm(config.n_embd, norm)
  self.mlp = MLP(config)
end

-- Is the module's input read by the linear map alone?
local function starts_linear(module, class, linear)
  return fused.is_plain(module, class) and fused.is_plain(linear, Conv1D)
end

-- Does no one else hold the output of the module, whose last two are `linear` and `dropout`?
local function ends_linear(linear, dropout)
  return fused.is_plain(linear, Conv1D) and fused.is_plain(dropout, Dropout)
end

-- With `late` the last sum is left to the norm that follows it, which adds and normalises at once: late.rest is the
-- summand still to be added to x, first of the block before, then of this one. Tensors that no one else holds are
-- freed here: the collector would free them some ops later, at the peak of a step.
function Block:forward(x, how, past, late)
  local attn, mlp = self.attn, self.mlp
  local for_linear = starts_linear(attn, Attention, attn.c_attn)
  local mlp_linear = starts_linear(mlp, MLP, mlp.c_fc)
  local normed
  if late and late.rest then
    local before, rest = x, late.rest
    normed, x = norms.of_sum(self.ln_1, before, rest, for_linear)
    before:free()
    if late.frees then rest:free() end
  else
    normed = for_linear and norms.for_linear(self.ln_1, x) or self.ln_1(x)
  end
  local y, present, weights = attn(normed, how, past)
  if for_linear and fused.is_plain(self.ln_1, norms.LayerNorm) then normed:free() end
  local normal, sum = norms.of_sum(self.ln_2, x, y, mlp_linear)
  if for_linear and ends_linear(attn.c_proj, attn.resid_dropout) then y:free() end
  local rest = mlp(normal)
  if mlp_linear and fused.is_plain(self.ln_2, norms.LayerNorm) then normal:free() end
  if not late then return sum + rest, present, weights end
  late.rest, late.frees = rest, mlp_linear and ends_linear(mlp.c_proj, mlp.dropout)
  return sum, present, weights
end

--- The base of all models of this family.
local GPT2PreTrainedModel = PreTrainedModel:extend "GPT2PreTrainedModel"
GPT2PreTrainedModel.config_class, GPT2PreTrainedModel.base_model_prefix = configs.GPT2Config, "transformer"
GPT2PreTrainedModel.token_embedding = "wte"

function GPT2PreTrainedModel:initial_deviation(path)
  local range = self.config.initializer_range
  return path:find "c_proj%.weight$" and range / math.sqrt(2 * self.config.n_layer) or range
end

--- GPT-2 without a head. Called with input_ids [batch, tokens], or a table or a tokenizer's batch with input_ids and
--- any of attention_mask [batch, tokens so far] (1 for tokens, 0 for padding), token_type_ids, position_ids,
--- inputs_embeds (in place of the ids), past_key_values (of an earlier call), use_cache, output_hidden_states and
--- output_attentions. Returns a table: last_hidden_state [batch, tokens, n_embd], past_key_values (for each layer keys
--- and values [batch, heads, tokens so far, width]; not while training, unless use_cache is set), and hidden_states
--- and attentions if requested.
--
--   local config = {vocab_size = 9, n_positions = 8, n_embd = 8, n_layer = 1, n_head = 2}
--   accelhost.models.GPT2Model(config)(accelhost.arange(3):view(1, 3)).last_hidden_state:size(2)  --> 8
local GPT2Model = GPT2PreTrainedModel:extend "GPT2Model"
GPT2Model.recomputes = true
gpt2.GPT2Model = GPT2Model

function GPT2Model:build(config)
  if config.add_cross_attention then fail("GPT2Config: add_cross_attention: there is no encoder to attend to") end
  if config.reorder_and_upcast_attn then
    fail("GPT2Config: reorder_and_upcast_attn: halves are computed in float32 here without it")
  end
  self.wte = Embedding(config.vocab_size, config.n_embd)
  self.wpe = Embedding(config.n_positions, config.n_embd)
  self.drop = Dropout(config.embd_pdrop)
  self.h = container.ModuleList {}
  for number = 1, config.n_layer do self.h:append(Block(config, number)) end
  self.ln_f = norms.LayerNorm(config.n_embd, {eps = config.layer_norm_epsilon})
end

local function embed(self, given, tokens, past)
  local x = given.inputs_embeds or self.wte(given.input_ids)
  if given.position_ids then
    x = x + self.wpe(given.position_ids)
  else
    x = x + self.wpe.weight:narrow(0, past, tokens)
  end
  if given.token_type_ids then x = x + self.wte(given.token_type_ids) end
  return self.drop(x)
end

-- Return true if blocks may leave their last sum to the norm after them: no caller reads the output of a block.
local function sums_late(self, how)
  if how.wants_states or self._recompute then return false end
  for _, block in ipairs(self.h) do
    if not fused.is_plain(block, Block) then return false end
  end
  return true
end

---@param batch Tensor|table
---@param more? table further inputs by name
---@return table
function GPT2Model:forward(batch, more)
  local given = inputs.read(self._name, context.inputs, batch, more)
  local past = inputs.seen(self._name, given, self.config.n_layer)
  local how = context.settings(self, given, past, given.position_ids and math.huge or self.config.n_positions)
  local first = given.past_key_values and given.past_key_values[1]
  how.visible = first and first.position and context.visible_at(first)
    or context.visible(how.kept, how.tokens, past, how.device, {texts = context.texts(how, given.position_ids, past)})
  local late = sums_late(self, how) and {} or nil
  local x, results = context.run(self, self.h, embed(self, given, how.tokens, past), how, given.past_key_values, late)
  x = late and late.rest and (norms.of_sum(self.ln_f, x, late.rest)) or self.ln_f(x)
  return context.outputs(x, results)
end

--- GPT-2 that continues texts: logits [batch, tokens, vocab_size] by the word embeddings, and, when labels
--- [batch, tokens] (the ids themselves) are given, the mean cross entropy of each next token; labels of -100 are left
--- out. `logits_to_keep` = n computes the logits of the last n tokens only; `skip_logits` = true returns the loss
--- without them, by F.linear_cross_entropy: the largest tensor of a step is computed in chunks of tokens.
--
--   local config = {vocab_size = 9, n_positions = 8, n_embd = 8, n_layer = 1, n_head = 2}
--   local model = accelhost.models.GPT2LMHeadModel(config)
--   local ids = accelhost.arange(3):view(1, 3)
--   model{input_ids = ids, labels = ids}.loss:dim()  --> 0
local GPT2LMHeadModel = GPT2PreTrainedModel:extend "GPT2LMHeadModel"
GPT2LMHeadModel.tied = {["lm_head.weight"] = "transformer.wte.weight"}
GPT2LMHeadModel.loss_shifts_labels = true
generation.mix_into(GPT2LMHeadModel)
gpt2.GPT2LMHeadModel = GPT2LMHeadModel

function GPT2LMHeadModel:_is_capturable() return true end -- luacheck: ignore 212

function GPT2LMHeadModel:build(config)
  self.transformer = GPT2Model(config)
  self.lm_head = Linear(config.n_embd, config.vocab_size, {bias = false})
end

---@param batch Tensor|table
---@param more? table further inputs by name
---@return table # logits, loss, past_key_values, hidden_states, attentions
function GPT2LMHeadModel:forward(batch, more)
  return language_head.forward(self, self.transformer, batch, more)
end

return gpt2
