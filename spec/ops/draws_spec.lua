-- Masks of dropout that several threads draw: those of one thread, and the generator's next number too.
local accelhost = require "accelhost"
local F, models = accelhost.nn.functional, accelhost.models

local function rand(...) return accelhost.rand(...) - 0.5 end

-- 64 sentences of at most 40 tokens: rows of padding are passed over.
local function encoder()
  local model = models.BertModel {vocab_size = 50, hidden_size = 64, num_hidden_layers = 1, num_attention_heads = 2,
    intermediate_size = 128}
  model:train()
  local ids, mask = accelhost.randint(1, 50, {64, 40}), accelhost.ones({64, 40}, {dtype = "int64"})
  for i = 0, 63 do accelhost.no_grad(function() mask[i]:narrow(0, 40 - i % 30, i % 30):zero_() end) end
  return function() return model{input_ids = ids, attention_mask = mask}.last_hidden_state * mask:unsqueeze(2) end
end

local cases = {
  ["an array"] = function()
    local x = rand(40, 1000)
    return function() return F.dropout(x, 0.3) end
  end,
  ["an array of an odd size"] = function()
    local x = rand(100003)
    return function() return F.dropout(x, 0.9) end
  end,
  ["an array of bfloat16"] = function()
    local x = rand(300, 301):to "bfloat16"
    return function() return F.dropout(x, 0.5) end
  end,
  ["an array of float16"] = function()
    local x = rand(300, 301):to "float16"
    return function() return F.dropout(x, 0.5) end
  end,
  ["a transposed array"] = function()
    local x = rand(301, 300):t()
    return function() return F.dropout(x, 0.25) end
  end,
  ["images in channels-last order"] = function()
    local x = rand(8, 30, 21, 21):contiguous {memory_format = "channels_last"}
    return function() return F.dropout(x, 0.25) end
  end,
  ["weights of attention"] = function()
    local q, k = rand(3, 5, 130, 16), rand(3, 5, 70, 16)
    return function() return F.scaled_dot_product_attention(q, k, k, {dropout_p = 0.2}) end
  end,
  ["rows and weights of padded sentences"] = encoder,
}

describe("the mask of dropout", function()
  local threads = accelhost.get_num_threads()
  after_each(function() accelhost.set_num_threads(threads) end)

  for name, prepare in pairs(cases) do
    it("of " .. name .. " does not depend on the number of threads", function()
      accelhost.manual_seed(5)
      local run, first, state = prepare()
      for count = 1, 9 do
        accelhost.set_num_threads(count)
        accelhost.manual_seed(11)
        local result = run():detach()
        local after = accelhost.get_rng_state()
        first, state = first or result, state or after
        assert.truthy(accelhost.equal(state, after), count .. " threads: the generator's state")
        if name:find "^rows" then
          assert.truthy(accelhost.allclose(first, result, {rtol = 0, atol = 1e-5}), count .. " threads: the result")
        else
          assert.truthy(accelhost.equal(first, result), count .. " threads: the result")
        end
      end
    end)
  end
end)
