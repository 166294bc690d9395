-- The orthogonal parametrization against PyTorch.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local fixtures = require("spec.support.fixtures").load "nn_utils"
local nn = accelhost.nn
local orthogonal = nn.utils.parametrizations.orthogonal

describe("An orthogonal weight", function()
  for _, case in ipairs(fixtures.orthogonal) do
    it(("is PyTorch's: %d x %d by %s, %s base"):format(case.shape[1], case.shape[2], case.map,
      case.trivial and "with" or "without"), function()
      accelhost.manual_seed(3)
      local layer = nn.Linear(case.shape[2], case.shape[1], {dtype = "float64"})
      orthogonal(layer, "weight", case.map, {use_trivialization = case.trivial})
      check.near(case.first, layer.weight, 1e-12, "at first")
      local original = layer.parametrizations.weight.original
      accelhost.no_grad(function()
        original:add_(accelhost.randn(original:shape(), {dtype = "float64"}):mul_(0.1):tril(-1))
      end)
      local weight = layer.weight
      check.near(case.weight, weight, 1e-11, "afterwards")
      local factors = accelhost.arange(weight:numel(), {dtype = "float64"}):reshape(weight:shape()):sin();
      (weight * factors):sum():backward()
      check.near(case.grad, original.grad, 1e-10, "gradient")
    end)
  end

  it("stays orthogonal while it is trained", function()
    accelhost.manual_seed(1)
    local layer = orthogonal(nn.Linear(4, 6))
    local optimizer = accelhost.optim.SGD(layer:parameters(), {lr = 0.1})
    for _ = 1, 5 do
      optimizer:zero_grad()
      layer(accelhost.randn(8, 4)):square():sum():backward()
      optimizer:step()
    end
    local gram = layer.weight:transpose(0, 1):matmul(layer.weight)
    assert.is_true((gram - accelhost.eye(4)):abs():max():item() < 1e-5)
  end)

  it("accepts a batch of matrices, and an orthogonal value", function()
    local module = nn.Module:extend "Batch"()
    module.w = nn.Parameter(accelhost.randn(2, 3, 3))
    orthogonal(module, "w", "cayley")
    local gram = module.w:transpose(-2, -1):matmul(module.w)
    assert.is_true((gram - accelhost.eye(3)):abs():max():item() < 1e-5)
    local turned = module.w:detach():flip(-1)
    module.w = turned
    check.near(check.flat(turned), module.w, 1e-6)
  end)

  it("refuses values that are not matrices, and values where its map has no inverse", function()
    check.raises("orthogonal: expected a matrix or batch of matrices, got shape (2,)", function()
      orthogonal(nn.Linear(2, 2), "bias")
    end)
    check.raises("orthogonal: Linear has no parameter or buffer 'wait'", function()
      orthogonal(nn.Linear(2, 2), "wait")
    end)
    check.raises("orthogonal: expected float32 or float64, got bfloat16", function()
      orthogonal(nn.Linear(2, 2, {dtype = "bfloat16"}))
    end)
    check.raises("orthogonal: unknown orthogonal_map 'cayly'", function()
      orthogonal(nn.Linear(2, 2), "weight", "cayly")
    end)
    local layer = orthogonal(nn.Linear(2, 2), "weight", "cayley", {use_trivialization = false})
    check.raises("_Orthogonal: it has no right_inverse", function() layer.weight = accelhost.eye(2) end)
    local other = orthogonal(nn.Linear(2, 2))
    check.raises("orthogonal: expected a matrix or batch of matrices of shape (2, 2), got (3, 3)", function()
      other.weight = accelhost.eye(3)
    end)
  end)
end)
