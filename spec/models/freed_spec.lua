-- Tensors that layers of decoders and generation free before the garbage collector finds them.
local accelhost = require "accelhost"
local C = require "accelhost._C"
local fused = require "accelhost.nn.fused"
local models, nn = accelhost.models, accelhost.nn

local config = {vocab_size = 30, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 2,
  num_attention_heads = 2, num_key_value_heads = 1, pad_token_id = 0}

local makers = {
  Llama = function() return models.LlamaForCausalLM(config) end,
  Qwen3 = function() return models.Qwen3ForCausalLM(config) end,
  Phi3 = function() return models.Phi3ForCausalLM(config) end,
  GPTNeoX = function()
    return models.GPTNeoXForCausalLM {vocab_size = 30, hidden_size = 16, intermediate_size = 16, num_hidden_layers = 2,
      num_attention_heads = 2}
  end,
}

describe("A decoder's layers", function()
  for name, make in pairs(makers) do
    it("leave inputs and results of watched modules to the hooks: " .. name, function()
      accelhost.manual_seed(1)
      local model, kept = make(), {}
      for _, module in model:named_modules() do
        if next(module._modules or {}) == nil then
          module:register_forward_pre_hook(function(_, inputs) kept[#kept + 1] = inputs[1] or inputs end)
          module:register_forward_hook(function(_, _, output) kept[#kept + 1] = output end)
        end
      end
      local ids = accelhost.randint(1, 30, {1, 5})
      model{input_ids = ids, labels = ids}.loss:backward()
      accelhost.no_grad(function() model{input_ids = ids, use_cache = true} end)
      local tensors = 0
      for _, tensor in ipairs(kept) do
        if C.is_tensor(tensor) then
          tensors = tensors + 1
          assert.is_true(tensor:numel() > 0 and tensor:float():sum():item() == tensor:float():sum():item())
        end
      end
      assert.is_true(tensors > 40)
    end)
  end

  it("free the tensors of a prompt, but keys, values and the states between layers", function()
    if accelhost.get_default_device() ~= "cpu" then return end
    accelhost.manual_seed(2)
    local wide = {vocab_size = 30, hidden_size = 64, intermediate_size = 256, num_hidden_layers = 4,
      num_attention_heads = 4, num_key_value_heads = 4}
    local model, tokens = models.LlamaForCausalLM(wide):eval(), 600
    local ids = accelhost.randint(1, 30, {1, tokens})
    local function live_after()
      collectgarbage()
      collectgarbage()
      collectgarbage "stop"
      local before = C.system.memory_stats().live
      local given, output = {input_ids = ids, use_cache = true, logits_to_keep = 1}, nil
      accelhost.no_grad(function() output = model(given) end)
      local live = C.system.memory_stats().live - before
      collectgarbage "restart"
      return live, output
    end
    live_after()
    local state = 4 * tokens * wide.hidden_size
    local live = live_after()
    assert.is_true(live < (3 * wide.num_hidden_layers + 4) * state)
  end)
end)

describe("fused.leave_nothing", function()
  it("is true of plain linear maps and norms, and false of subclasses with a forward and of watched ones", function()
    local Own = nn.Linear:extend "Own"
    function Own:forward(x) return nn.Linear.forward(self, x) end
    assert.is_true(fused.leave_nothing(nn.Linear(2, 2), nn.RMSNorm(2), nn.LayerNorm(2)))
    assert.is_false(fused.leave_nothing(nn.Linear(2, 2), Own(2, 2)))
    assert.is_false(fused.leave_nothing(nn.Dropout(0.5)))
    local watched = nn.Linear(2, 2)
    watched:register_forward_hook(function() end)
    assert.is_false(fused.leave_nothing(watched))
  end)
end)

describe("generate", function()
  it("leaves scores to a processor, to a stopping criterion and to the results", function()
    accelhost.manual_seed(3)
    local model, ids = models.LlamaForCausalLM(config):eval(), accelhost.randint(1, 30, {1, 4})
    local kept = {}
    local function keep(_, scores)
      kept[#kept + 1] = scores
      return scores
    end
    model:generate(ids, {max_new_tokens = 12, logits_processor = {keep}})
    model:generate(ids, {max_new_tokens = 12, stopping_criteria = {function(_, scores)
      kept[#kept + 1] = scores
      return false
    end}})
    local result = model:generate(ids, {max_new_tokens = 12, min_new_tokens = 12, output_scores = true,
      output_logits = true, return_dict_in_generate = true})
    for _, list in ipairs {kept, result.scores, result.logits} do
      assert.is_true(#list >= 12)
      for i = 2, #list do
        assert.equal(30, list[i]:size(1))
        assert.is_false(list[i]:equal(list[i - 1]))
      end
    end
  end)
end)
