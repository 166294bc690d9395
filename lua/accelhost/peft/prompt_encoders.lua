--- The trained modules of prompt learning: vectors in front of a text, or keys and values of them, as they are or
--- computed from smaller ones. Names of parameters and random numbers are peft's.
local activation = require "accelhost.nn.activation"
local container = require "accelhost.nn.container"
local init = require "accelhost.nn.initializers"
local recurrent = require "accelhost.util.later" "accelhost.nn.recurrent"
local Embedding = require("accelhost.nn.embedding").Embedding
local Linear = require("accelhost.nn.linear").Linear
local Module = require("accelhost.nn.module").Module

-- Rows of an embedding, [num_virtual_tokens, width].
local PromptEmbedding = Module:extend "PromptEmbedding"

function PromptEmbedding:init(count, width) self.embedding = Embedding(count, width) end

function PromptEmbedding:forward() return self.embedding.weight end

-- The prefix: keys and values of all layers, or vectors from which an MLP computes them.
local PrefixEncoder = PromptEmbedding:extend "PrefixEncoder"

function PrefixEncoder:init(count, width, config)
  if config.prefix_projection then
    self.embedding = Embedding(count, config.token_dim)
    self.transform = container.Sequential(Linear(config.token_dim, config.encoder_hidden_size), activation.Tanh(),
      Linear(config.encoder_hidden_size, width))
  else
    self.embedding = Embedding(count, width)
  end
  if config.init_weights ~= "zero" then return end
  local last = self.transform and self.transform[3] or self.embedding
  init.zeros_(last.weight)
  if last.bias then init.zeros_(last.bias) end
end

function PrefixEncoder:forward()
  local rows = self.embedding.weight
  return self.transform and self.transform(rows) or rows
end

-- P-tuning: an MLP, or an LSTM and an MLP, computes the vectors.
local PromptEncoder = PromptEmbedding:extend "PromptEncoder"

function PromptEncoder:init(count, width, config)
  local hidden = config.encoder_hidden_size
  self.embedding = Embedding(count, width)
  if config.encoder_reparameterization_type == "LSTM" then
    self.lstm_head = recurrent.LSTM(width, hidden, config.encoder_num_layers,
      {batch_first = true, dropout = config.encoder_dropout, bidirectional = true})
    self.mlp_head = container.Sequential(Linear(2 * hidden, 2 * hidden), activation.ReLU(), Linear(2 * hidden, width))
  else
    self.mlp_head = container.Sequential(Linear(width, hidden), activation.ReLU(), Linear(hidden, hidden),
      activation.ReLU(), Linear(hidden, width))
  end
end

function PromptEncoder:forward()
  local rows = self.embedding.weight
  if self.lstm_head then rows = (self.lstm_head(rows:unsqueeze(0))):squeeze(0) end
  return self.mlp_head(rows)
end

local classes = {PREFIX_TUNING = PrefixEncoder, P_TUNING = PromptEncoder}
local prompt_encoders = {}

--- Make the module of a configuration whose sizes are complete. Called without arguments, it returns
--- [num_virtual_tokens, width]; of vectors of a model with an encoder twice as many rows.
---@param config PeftConfig
---@param is_plain boolean the module has its results as parameters: it is not trained
---@return Module
function prompt_encoders.make(config, is_plain)
  local count, width = config.num_virtual_tokens, 2 * config.num_layers * config.token_dim
  if config.peft_type ~= "PREFIX_TUNING" then -- vectors, for each of the model's stacks
    count, width = count * config.num_transformer_submodules, config.token_dim
  end
  local made = not is_plain and classes[config.peft_type]
  if not made then return PromptEmbedding(count, width) end
  return made(count, width, config)
end

--- Does the configuration's module compute its results from other numbers?
---@param config PeftConfig
function prompt_encoders.is_computed(config)
  return config.peft_type == "P_TUNING" or config.prefix_projection == true
end

return prompt_encoders
