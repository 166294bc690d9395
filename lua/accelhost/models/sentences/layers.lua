--- The layers of sentence-transformers after a model: pooling, linear maps, norms. Each is called with features, a
--- table with token_embeddings [texts, tokens, width] and attention_mask, and sets sentence_embedding [texts, width].
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local activation = require "accelhost.nn.activation"
local arguments = require "accelhost.util.arguments"
local Linear = require("accelhost.nn.linear").Linear
local Module = require("accelhost.nn.module").Module

local fail, describe = arguments.fail, arguments.describe
local layers = {}

-- The first token of each text that is no padding.
local function first_of(mask) return mask:argmax(1) end

-- Return the state [texts, width] of one token of each text.
local function pick(states, index)
  local texts, tokens = states:size(0), states:size(1)
  local rows = C.arange(0, texts * tokens, tokens, {device = states.device})
  return states:flatten(0, 1):index_select(0, index + rows)
end

local function sum_of(states, weights) return (states * weights:unsqueeze(-1)):sum(1) end

-- Return the weights in the dtype of the states, float32 for shorter ones.
local function as_weights(mask, states)
  local dtype = states.dtype
  return mask:to((dtype == "float16" or dtype == "bfloat16") and "float32" or dtype)
end

-- mode -> function(states, mask, the mask with the prompt).
local modes = {
  cls = function(states, mask) return pick(states, first_of(mask)) end,
  lasttoken = function(states, mask)
    local last = (mask * C.arange(mask:size(1), {device = mask.device})):amax(1)
    return pick(states, last) * mask:amax(1):unsqueeze(-1):to(states.dtype)
  end,
  max = function(states, mask) return states:masked_fill(mask:unsqueeze(-1):eq(0), -math.huge):amax(1) end,
  mean = function(states, mask)
    local weights = as_weights(mask, states)
    return (sum_of(states, weights) / weights:sum(1, true):clamp_min(1e-9)):to(states.dtype)
  end,
  mean_sqrt_len_tokens = function(states, mask)
    local weights = as_weights(mask, states)
    return (sum_of(states, weights) / weights:sum(1, true):clamp_min(1e-9):sqrt()):to(states.dtype)
  end,
  weightedmean = function(states, mask, whole)
    local places = C.arange(1, mask:size(1) + 1, {device = mask.device}) - first_of(whole):unsqueeze(-1)
    local weights = as_weights(mask * places, states)
    return (sum_of(states, weights) / weights:sum(1, true):clamp_min(1e-9)):to(states.dtype)
  end,
}

-- Fields of older configurations -> modes.
local older = {
  pooling_mode_cls_token = "cls", pooling_mode_max_tokens = "max", pooling_mode_mean_tokens = "mean",
  pooling_mode_mean_sqrt_len_tokens = "mean_sqrt_len_tokens", pooling_mode_weightedmean_tokens = "weightedmean",
  pooling_mode_lasttoken = "lasttoken",
}
local order = {"cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"}

-- Return the modes that flags of an older configuration select, in their order.
local function older_modes(config)
  local chosen, found = {}, {}
  for field, mode in pairs(older) do chosen[mode] = config[field] == true end
  for _, mode in ipairs(order) do
    if chosen[mode] then found[#found + 1] = mode end
  end
  return #found > 0 and found or {"mean"}
end

--- Pooling: the states of a text's tokens as one vector. The config is that of sentence-transformers: pooling_mode
--- (mean, cls, max, mean_sqrt_len_tokens, weightedmean, lasttoken, or several, whose vectors are concatenated) or,
--- older, flags such as pooling_mode_mean_tokens; include_prompt = false leaves out the tokens of a prompt.
local Pooling = Module:extend "Pooling"
layers.Pooling = Pooling

function Pooling:init(config)
  local mode = config.pooling_mode
  self.modes = type(mode) == "string" and {mode} or type(mode) == "table" and mode or older_modes(config)
  for _, name in ipairs(self.modes) do
    if not modes[name] then
      fail("Pooling: pooling_mode: expected one of %s, got %s", table.concat(order, ", "), describe(name))
    end
  end
  self.include_prompt = config.include_prompt ~= false
  self.width = config.embedding_dimension or config.word_embedding_dimension
end

--- Return the number of values of a vector.
function Pooling:dimension(width) return #self.modes * (self.width or width) end

--- Return the fields of its configuration.
function Pooling:to_dict(width)
  return {
    embedding_dimension = self.width or width, include_prompt = self.include_prompt,
    pooling_mode = #self.modes == 1 and self.modes[1] or self.modes,
  }
end

function Pooling:forward(features)
  local states, whole = features.token_embeddings, features.attention_mask:to "int64"
  local mask, prompt, found = whole, not self.include_prompt and features.prompt_length, {}
  if prompt and prompt > 0 then
    local places = C.arange(mask:size(1), {device = mask.device})
    mask = mask * places:ge(first_of(mask):unsqueeze(-1) + prompt):to "int64"
  end
  for i, name in ipairs(self.modes) do found[i] = modes[name](states, mask, whole) end
  features.sentence_embedding = #found == 1 and found[1] or C.cat(found, -1)
  return features
end

-- Names of activations: the last part of PyTorch's class.
local activations = {"Tanh", "Identity", "ReLU", "GELU", "SiLU", "Sigmoid"}

--- Dense: activation_function(linear(x)), and x or its projection added with use_residual. The config is that of
--- sentence-transformers; the activation is one of Tanh, Identity, ReLU, GELU, SiLU and Sigmoid.
local Dense = Module:extend "Dense"
layers.Dense = Dense

local function activation_of(path)
  local name = type(path) == "string" and path:match "[%w]+$" or "Tanh"
  for _, known in ipairs(activations) do
    if name == known then
      return name, name == "Identity" and require("accelhost.nn.container").Sequential() or activation[name]()
    end
  end
  fail("Dense: activation_function: expected one of %s, got %s", table.concat(activations, ", "), describe(path))
end

-- Raise unless a layer reads and writes the embeddings of texts.
local function check_names(what, config)
  for _, name in ipairs {"module_input_name", "module_output_name"} do
    if (config[name] or "sentence_embedding") ~= "sentence_embedding" then
      fail("%s: %s: only sentence_embedding is implemented, got %s", what, name, describe(config[name]))
    end
  end
end

function Dense:init(config)
  check_names("Dense", config)
  local from, to, bias = config.in_features, config.out_features, config.bias ~= false
  self.linear = Linear(from, to, {bias = bias})
  self.name, self.activation_function = activation_of(config.activation_function)
  self.use_residual = config.use_residual == true
  if self.use_residual and from ~= to then self.residual = Linear(from, to, {bias = false}) end
end

--- Return the number of values of a vector.
function Dense:dimension() return self.linear.out_features end

--- Return the fields of its configuration.
function Dense:to_dict()
  local place = self.name == "Identity" and "linear" or "activation"
  return {
    in_features = self.linear.in_features, out_features = self.linear.out_features, bias = self.linear.bias ~= nil,
    activation_function = ("torch.nn.modules.%s.%s"):format(place, self.name),
    module_input_name = "sentence_embedding", module_output_name = "sentence_embedding",
    use_residual = self.use_residual or nil,
  }
end

function Dense:forward(features)
  local x = features.sentence_embedding
  local y = self.activation_function(self.linear(x))
  if self.use_residual then y = y + (self.residual and self.residual(x) or x) end
  features.sentence_embedding = y
  return features
end

--- Normalize: vectors of length 1.
local Normalize = Module:extend "Normalize"
layers.Normalize = Normalize

function Normalize:init(config) check_names("Normalize", config) end

--- Return the number of values of a vector.
function Normalize:dimension(width) return width end

--- Return the fields of its configuration.
function Normalize:to_dict()
  return {module_input_name = "sentence_embedding", module_output_name = "sentence_embedding"}
end

function Normalize:forward(features)
  features.sentence_embedding = F.normalize(features.sentence_embedding, {dim = 1})
  return features
end

return layers
