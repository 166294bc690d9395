-- Muon against PyTorch.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local fixtures = require("spec.support.fixtures").load "optim"
local optim = accelhost.optim

local function matrices(rows)
  local list = {}
  for i, values in ipairs(rows) do list[i] = accelhost.tensor(values):reshape(fixtures.muon_shapes[i]) end
  return list
end

local function parameters()
  local list = matrices(fixtures.muon_initial)
  for i, matrix in ipairs(list) do list[i] = accelhost.nn.Parameter(matrix) end
  return list
end

describe("Muon", function()
  for number, case in ipairs(fixtures.muon) do
    -- Twelve steps of rate 0.02 or less; the orthogonal matrices are computed in bfloat16 (8 bits).
    it("steps as PyTorch does, within the roundings of bfloat16: case " .. number, function()
      local params = parameters()
      local optimizer = optim.Muon(params, case.options)
      for _, step in ipairs(fixtures.muon_gradients) do
        for i, grad in ipairs(matrices(step)) do params[i].grad = grad end
        optimizer:step()
      end
      local rate = case.options.lr or 1e-3
      for i, expected in ipairs(case.expected) do check.near(expected, params[i], 0.03 * rate * 12, "matrix " .. i) end
    end)
  end

  it("makes steps that are nearly orthogonal", function()
    accelhost.manual_seed(3)
    local param = accelhost.nn.Parameter(accelhost.zeros(5, 5))
    param.grad = accelhost.randn(5, 5)
    optim.Muon({param}, {lr = 1}):step()
    for _ = 1, 20 do
      local v = accelhost.randn(5)
      local stretched = (param:detach():matmul(v):norm() / v:norm()):item()
      assert(stretched > 0.4 and stretched < 1.6, stretched)
    end
  end)

  it("refuses parameters that are no matrices, and coefficients that are not three", function()
    check.raises("Muon: parameter 2: expected 2 dims (other parameters go into an AdamW), got shape (3,)", function()
      optim.Muon {accelhost.zeros(2, 2), accelhost.zeros(3)}
    end)
    check.raises("Muon: ns_coefficients: expected {a, b, c}, got a table", function()
      optim.Muon({accelhost.zeros(2, 2)}, {ns_coefficients = {1, 2}})
    end)
    check.raises("Muon: ns_steps: expected less than 100", function()
      optim.Muon({accelhost.zeros(2, 2)}, {ns_steps = 100})
    end)
  end)

  it("leaves an empty matrix", function()
    local param = accelhost.nn.Parameter(accelhost.zeros(0, 3))
    param.grad = accelhost.zeros(0, 3)
    optim.Muon({param}):step()
    assert.same({0, 3}, param:shape())
  end)
end)
