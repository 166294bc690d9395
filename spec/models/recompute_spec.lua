-- Models whose layers are computed again in backward: the same numbers in less memory.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local run = require "spec.support.run"
local models, nn = accelhost.models, accelhost.nn

local function gpt(layers)
  accelhost.manual_seed(4)
  return models.GPT2LMHeadModel {vocab_size = 40, n_positions = 16, n_embd = 16, n_layer = layers or 3, n_head = 2}
end

local function bert()
  accelhost.manual_seed(4)
  return models.BertForSequenceClassification {vocab_size = 40, hidden_size = 16, num_hidden_layers = 3,
    num_attention_heads = 2, intermediate_size = 32, max_position_embeddings = 16}
end

local ids = accelhost.arange(24):view(2, 12)
local mask = accelhost.ones({2, 12}, {dtype = "int64"})
mask[1]:narrow(0, 9, 3):zero_()

local batches = {
  {"GPT2LMHeadModel", gpt, {input_ids = ids, labels = ids, attention_mask = mask}},
  {"BertForSequenceClassification", bert, {input_ids = ids, attention_mask = mask,
    labels = accelhost.tensor({0, 1}, {dtype = "int64"})}},
}

-- Loss and gradients of one step, the generator's next number behind it.
local function step(make, batch, prepare)
  local model = make()
  prepare(model)
  accelhost.manual_seed(7)
  local loss = model(batch).loss
  loss:backward()
  local found = {loss:item(), accelhost.rand(1):item()}
  for i, parameter in ipairs(model:parameters()) do found[i + 2] = parameter.grad:tolist() end
  return found
end

describe("gradient_checkpointing_enable", function()
  for _, case in ipairs(batches) do
    local name, make, batch = unpack(case)

    it("leaves loss and gradients to the bit, with dropout: " .. name, function()
      local plain = step(make, batch, function() end)
      assert.same(plain, step(make, batch, function(model)
        model:gradient_checkpointing_enable {use_reentrant = false}
        assert.is_true(model.is_gradient_checkpointing)
      end))
      assert.same(plain, step(make, batch, function(model)
        model:gradient_checkpointing_enable()
        model:gradient_checkpointing_disable()
        assert.is_false(model.is_gradient_checkpointing)
      end))
    end)

    it("does so under autocast: " .. name, function()
      local function cast(prepare)
        return step(function()
          local model = make()
          return setmetatable({parameters = function() return model:parameters() end, inner = model},
            {__call = function(_, given) return accelhost.autocast("cpu", model, given) end})
        end, batch, function(wrapped) prepare(wrapped.inner) end)
      end
      assert.same(cast(function() end), cast(function(model) model:gradient_checkpointing_enable() end))
    end)

    it("computes each layer twice in training and once in evaluation: " .. name, function()
      local model, calls = make(), 0
      model:gradient_checkpointing_enable()
      for _, module in ipairs(model:modules()) do
        if module._name == "GPT2Block" or module._name == "BertLayer" then
          module:register_forward_hook(function() calls = calls + 1 end)
        end
      end
      model(batch).loss:backward()
      assert.equal(6, calls)
      model:eval()
      model(batch).loss:backward()
      assert.equal(9, calls)
    end)
  end

  it("returns the hidden states and weights of attention of a plain run", function()
    local function states(enable)
      local model = gpt()
      if enable then model:gradient_checkpointing_enable() end
      accelhost.manual_seed(7)
      local out = model {input_ids = ids, output_hidden_states = true, output_attentions = true}
      return {out.hidden_states[3]:tolist(), out.attentions[2]:tolist()}
    end
    assert.same(states(false), states(true))
  end)

  it("holds a fraction of the memory during the forward pass, and its peak is lower", function()
    local function live(enable)
      accelhost.manual_seed(4)
      local model = models.GPT2LMHeadModel {vocab_size = 40, n_positions = 128, n_embd = 64, n_layer = 8, n_head = 4}
      if enable then model:gradient_checkpointing_enable() end
      local batch = accelhost.randint(0, 40, {4, 128})
      collectgarbage()
      local before = accelhost.memory_stats().live
      local loss = model {input_ids = batch, labels = batch}.loss
      collectgarbage()
      local held = accelhost.memory_stats().live - before
      loss:backward()
      return held
    end
    local plain, forgetting = live(false), live(true)
    assert.is_true(forgetting < 0.2 * plain, ("%d bytes, plain %d"):format(forgetting, plain))
  end)

  it("lets a training step's peak fall", function()
    local function peak(word)
      local result = run.host({"spec/models/cases/peak.lua", word}, {timeout = 60})
      assert.equal(0, result.code, result.output)
      return tonumber(result.stdout)
    end
    local plain, forgetting = peak "plain", peak "forgetting"
    assert.is_true(forgetting < 0.5 * plain, ("%d bytes, plain %d"):format(forgetting, plain))
  end)

  it("keeps no keys and values, and reports it when they are requested", function()
    local model = gpt()
    model:gradient_checkpointing_enable()
    assert.is_nil(model(ids).past_key_values)
    check.raises("GPT2Model: use_cache: layers that are computed again keep no keys and values", function()
      model {input_ids = ids, use_cache = true}
    end)
    model:eval()
    assert.is_table(model(ids).past_key_values)
  end)

  it("is refused by options that are none and by models without such layers", function()
    check.raises("gradient_checkpointing_enable: unknown option 'reentrant'", function()
      gpt():gradient_checkpointing_enable {reentrant = false}
    end)
    local Plain = models.PreTrainedModel:extend "Plain"
    Plain.config_class = models.GPT2Config
    function Plain:build() self.layer = nn.Linear(2, 2) end
    check.raises("gradient_checkpointing_enable: Plain has no layers that can be computed again", function()
      Plain():gradient_checkpointing_enable()
    end)
  end)
end)
