--- GPT-NeoX and Pythia: attention and MLP in parallel, a part of each head rotated, LayerNorm and biases.
local C = require "accelhost._C"
local DecoderConfig = require "accelhost.models.decoders.decoder_config"
local activations = require "accelhost.models.common.activations"
local decoder = require "accelhost.models.decoders.decoder"
local fused = require "accelhost.nn.fused"
local layers = require "accelhost.models.decoders.decoder_layers"
local LayerNorm = require("accelhost.nn.norm").LayerNorm
local Linear = require("accelhost.nn.linear").Linear
local Module = require("accelhost.nn.module").Module

local null = C.json.null

--- GPT-NeoX's configuration; the defaults are the sizes of GPT-NeoX-20B. rotary_pct and rotary_emb_base of older files
--- become partial_rotary_factor and rope_theta of rope_parameters.
--
--   accelhost.models.GPTNeoXConfig{rotary_pct = 0.5}.rope_parameters.partial_rotary_factor  --> 0.5
---@field rope_parameters table rope_type, rope_theta, partial_rotary_factor and the scaling's
local GPTNeoXConfig = DecoderConfig:extend "GPTNeoXConfig"
GPTNeoXConfig.model_type = "gpt_neox"
GPTNeoXConfig.defaults = {
  vocab_size = 50432, hidden_size = 6144, num_hidden_layers = 44, num_attention_heads = 64, intermediate_size = 24576,
  hidden_act = "gelu", attention_dropout = 0, hidden_dropout = 0, classifier_dropout = 0.1,
  max_position_embeddings = 2048, initializer_range = 0.02, layer_norm_eps = 1e-5, use_cache = true, bos_token_id = 0,
  eos_token_id = 2, tie_word_embeddings = false, use_parallel_residual = true, rope_parameters = null,
  attention_bias = true,
}
GPTNeoXConfig.older_names = {
  "rope_theta", "rope_scaling", "partial_rotary_factor", "torch_dtype", "rotary_pct", "rotary_emb_base",
}

GPTNeoXConfig.rope_names = {
  rope_theta = "rope_theta", partial_rotary_factor = "partial_rotary_factor", rotary_pct = "partial_rotary_factor",
  rotary_emb_base = "rope_theta",
}

--- Return the rotary parameters.
---@param given? table
---@param older table values of fields of older files
---@return table
function GPTNeoXConfig:read_rope(given, older)
  return DecoderConfig.read_rope(self, given, {
    rope_theta = older.rotary_emb_base or older.rope_theta,
    partial_rotary_factor = older.rotary_pct or older.partial_rotary_factor or 0.25,
  })
end

local MLP = Module:extend "GPTNeoXMLP"

function MLP:init(config, o)
  self.dense_h_to_4h = Linear(config.hidden_size, config.intermediate_size)
  self.dense_4h_to_h = Linear(config.intermediate_size, config.hidden_size)
  self.act = o.act
end

function MLP:forward(x)
  local wide, narrow = self.dense_h_to_4h, self.dense_4h_to_h
  return fused.gelu_mlp(x, wide, activations.gelu_formula[self.act], narrow) or narrow(self.act(wide(x)))
end

function GPTNeoXConfig:decoder_options()
  return {
    norm = function(width) return LayerNorm(width, {eps = self.layer_norm_eps}) end, mlp = MLP,
    act = layers.activation(self, "hidden_act"), rotary = layers.one_rotary(self), projections = "by_head",
    qkv_bias = self.attention_bias, out_bias = self.attention_bias, parallel = self.use_parallel_residual,
    dropout = self.hidden_dropout, embedding_dropout = self.hidden_dropout, embedding = "embed_in",
    final_norm = "final_layer_norm", attention = "attention",
  }
end

---@family GPT-NeoX: num_attention_heads = 1
return decoder.family("GPTNeoX", GPTNeoXConfig, {
  base_model_prefix = "gpt_neox", token_embedding = "embed_in", renamed = {["embed_out.weight"] = "lm_head.weight"},
  layer = "GPTNeoXLayer",
})
