-- MLPs whose linear maps and GELU are computed as one: as the modules that hooks watch.
local accelhost = require "accelhost"
local C = require "accelhost._C"
local check = require "spec.support.check"
local models, nn = accelhost.models, accelhost.nn

local encoder = {vocab_size = 30, hidden_size = 8, num_hidden_layers = 1, num_attention_heads = 2,
  intermediate_size = 16, hidden_dropout_prob = 0, attention_probs_dropout_prob = 0, num_labels = 3}
local text = {input_ids = accelhost.arange(10):view(2, 5), labels = accelhost.tensor{0, 2}:long()}
local image = {pixel_values = accelhost.randn(2, 3, 16, 16), labels = accelhost.tensor{0, 2}:long()}

-- {module, its input, the name of the wide linear map}
local function in_encoder(act)
  return function()
    local made = {hidden_act = act}
    for name, value in pairs(encoder) do made[name] = value end
    return models.BertForSequenceClassification(made), text, "intermediate.dense"
  end
end
local cases = {
  ["BERT, by the error function,"] = in_encoder "gelu",
  ["BERT, by tanh,"] = in_encoder "gelu_new",
  DistilBERT = function()
    return models.DistilBertForSequenceClassification {vocab_size = 30, dim = 8, n_layers = 1, n_heads = 2,
      hidden_dim = 16, dropout = 0, attention_dropout = 0, seq_classif_dropout = 0, num_labels = 3}, text, "lin1"
  end,
  ViT = function()
    return models.ViTForImageClassification {hidden_size = 8, num_hidden_layers = 1, num_attention_heads = 2,
      intermediate_size = 16, image_size = 16, patch_size = 4, num_labels = 3}, image, "intermediate.dense"
  end,
  ConvNeXt = function()
    return models.ConvNextForImageClassification {hidden_sizes = {4, 8}, depths = {1, 1}, num_labels = 3}, image,
      "pwconv1"
  end,
  ["GPT-NeoX"] = function()
    return models.GPTNeoXForCausalLM {vocab_size = 30, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
      num_attention_heads = 1}, {input_ids = text.input_ids, labels = text.input_ids}, "dense_h_to_4h"
  end,
  ["a layer of nn.TransformerEncoder"] = function()
    return nn.TransformerEncoderLayer(8, 2, {dim_feedforward = 16, dropout = 0, activation = "gelu"}),
      accelhost.randn(5, 2, 8), "linear1"
  end,
  ["nn.Sequential, by the error function,"] = function()
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3)), accelhost.randn(5, 8), "0"
  end,
}

local function ends_with(path, name) return path == name or path:sub(-#name - 1) == "." .. name end

-- The result and the gradients of a module.
local function step(model, input)
  model:zero_grad()
  local out = model(input)
  out = type(out) == "table" and out.loss or out:square():sum()
  out:backward()
  local found = {out:detach()}
  for _, parameter in ipairs(model:parameters()) do found[#found + 1] = parameter.grad and parameter.grad:clone() end
  return found
end

-- The number of calls of gelu_linear while fn runs.
local function fused_calls(fn)
  local calls, original = 0, C.gelu_linear
  C.gelu_linear = function(...)
    calls = calls + 1
    return original(...)
  end
  local done, failure = pcall(fn)
  C.gelu_linear = original
  if not done then error(failure, 0) end
  return calls
end

describe("an MLP with GELU of", function()
  for name, make in pairs(cases) do
    it(name .. " is computed as one, with the numbers and gradients of its modules when hooks watch them", function()
      accelhost.manual_seed(7)
      local model, input, wide = make()
      model:train()
      local one, two
      assert.is_true(fused_calls(function() one = step(model, input) end) > 0)
      local watched = 0
      for path, module in model:named_modules() do
        if ends_with(path, wide) then
          module:register_forward_hook(function() watched = watched + 1 end)
        end
      end
      assert.equal(0, fused_calls(function() two = step(model, input) end))
      assert.is_true(watched > 0)
      assert.equal(#two, #one)
      for i, t in ipairs(two) do check.near(check.flat(t), one[i], 1e-5) end
    end)
  end

  it("nn.TransformerEncoderLayer is not computed as one while its inner dropout draws", function()
    local layer = nn.TransformerEncoderLayer(8, 2, {dim_feedforward = 16, dropout = 0.1, activation = "gelu"})
    local x = accelhost.randn(5, 2, 8)
    assert.equal(0, fused_calls(function() layer(x) end))
    layer:eval()
    assert.equal(1, fused_calls(function() layer(x) end))
  end)

  it("a model with adapters on its linear maps is not computed as one", function()
    local model = accelhost.peft.get_peft_model(models.BertForSequenceClassification(encoder),
      accelhost.peft.LoraConfig {r = 2, target_modules = "all-linear"})
    assert.equal(0, fused_calls(function() model(text) end))
  end)
end)
