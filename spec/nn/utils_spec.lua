local accelhost = require "accelhost"
local check = require "spec.support.check"
local fixtures = require("spec.support.fixtures").load "optim"

local nn = accelhost.nn

local function parameters(dtype)
  local list = {}
  for i, values in ipairs(fixtures.initial) do
    list[i] = accelhost.tensor(values, {dtype = dtype or "float64"}):reshape(fixtures.shapes[i]):clone()
    list[i].requires_grad = true
    list[i].grad = accelhost.tensor(fixtures.gradients[1][i], {dtype = dtype or "float64"})
      :reshape(fixtures.shapes[i])
  end
  return list
end

describe("Clipping gradients", function()
  for _, case in ipairs(fixtures.clipped) do
    it("scales them as PyTorch does, norm " .. case.norm_type, function()
      local params = parameters()
      local total = nn.utils.clip_grad_norm_(params, 0.7, {norm_type = case.norm_type})
      check.near(case.total, total, 1e-12)
      for i, expected in ipairs(case.gradients) do check.near(expected, params[i].grad, 1e-12) end
    end)
  end

  it("does not scale small gradients, and returns their norm", function()
    local params = parameters()
    local before = params[1].grad:tolist()
    local total = nn.utils.clip_grad_norm_(params, 100)
    check.near(fixtures.clipped[1].total, total, 1e-12)
    assert.same(before, params[1].grad:tolist())
  end)

  it("accepts one tensor, parameters without gradient, and 'inf'", function()
    local params = parameters "float32"
    check.near(math.abs(fixtures.gradients[1][1][1]), nn.utils.clip_grad_norm_(params[1]:detach(), 1), 10)
    params[2].grad = nil
    local largest = 0
    for _, value in ipairs(fixtures.gradients[1][1]) do largest = math.max(largest, math.abs(value)) end
    check.near(largest, nn.utils.clip_grad_norm_(params, 100, "inf"), 1e-6)
    params[1].grad = nil
    assert.equal(0, nn.utils.clip_grad_norm_(params, 1):item())
  end)

  it("is two halves as well: the norm, and scaling by it", function()
    for _, case in ipairs(fixtures.clipped) do
      local params, grads = parameters(), {}
      for i, param in ipairs(params) do grads[i] = param.grad end
      local total = nn.utils.get_total_norm(grads, case.norm_type)
      check.near(case.total, total, 1e-12)
      nn.utils.clip_grads_with_norm_(params, 0.7, total)
      for i, expected in ipairs(case.gradients) do check.near(expected, params[i].grad, 1e-12) end
    end
    local params = parameters()
    nn.utils.clip_grads_with_norm_(params, 100, 1)
    check.near(fixtures.gradients[1][1], params[1].grad, 1e-12)
    assert.equal(0, nn.utils.get_total_norm({}):item())
    check.raises("get_total_norm: the norm of order 2 is not finite", function()
      nn.utils.get_total_norm({accelhost.tensor {1 / 0}}, {error_if_nonfinite = true})
    end)
    check.raises("clip_grads_with_norm_: total_norm: expected one number, got a tensor of shape (2,)", function()
      nn.utils.clip_grads_with_norm_(params, 1, accelhost.ones(2))
    end)
  end)

  it("adds up large gradients the same in every run", function()
    local n = 300001
    local p = accelhost.zeros({n}, {requires_grad = true})
    p.grad = accelhost.full({n}, 0.5)
    check.near(math.sqrt(n * 0.25), nn.utils.clip_grad_norm_({p}, 1e9), 1e-6)
    check.near(n * 0.5, nn.utils.clip_grad_norm_({p}, 1e9, 1), 1e-6)
    nn.utils.clip_grad_norm_({p}, 1)
    check.near(1 / math.sqrt(n), p.grad[n - 1], 1e-6)
  end)

  it("reports values that are not finite only when asked", function()
    local params = parameters()
    params[2].grad = accelhost.full({2, 2}, 0 / 0, {dtype = "float64"})
    local total = nn.utils.clip_grad_norm_(params, 1):item()
    assert.is_true(total ~= total)
    params = parameters()
    params[2].grad = accelhost.full({2, 2}, math.huge, {dtype = "float64"})
    check.raises("clip_grad_norm_: the total norm of order 2 of the gradients is inf", function()
      nn.utils.clip_grad_norm_(params, 1, {error_if_nonfinite = true})
    end)
  end)

  it("clamps by value", function()
    local params = parameters()
    nn.utils.clip_grad_value_(params, 0.25)
    for i, values in ipairs(fixtures.gradients[1]) do
      local expected = {}
      for k, value in ipairs(values) do expected[k] = math.max(-0.25, math.min(0.25, value)) end
      check.near(expected, params[i].grad, 0)
    end
  end)

  it("writes through strided gradients", function()
    local p = accelhost.zeros({2, 3}, {requires_grad = true})
    local base = accelhost.ones {3, 2}
    p.grad = base:transpose(0, 1)
    nn.utils.clip_grad_value_({p}, 0.5)
    assert.same({{0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}}, p.grad:tolist())
  end)

  it("refuses values that are not lists of parameters", function()
    check.raises("clip_grad_norm_: 'max_norm' is missing", function() nn.utils.clip_grad_norm_({}) end)
    check.raises("clip_grad_norm_: parameters: expected a tensor or a table of tensors, got number 1", function()
      nn.utils.clip_grad_norm_(1, 1)
    end)
  end)
end)

describe("Parameters as a vector", function()
  it("are converted there and back", function()
    local net = nn.Linear(2, 2)
    local vector = nn.utils.parameters_to_vector(net:parameters())
    assert.equal(6, vector:size(0))
    nn.utils.vector_to_parameters(accelhost.arange(6):to "float32", net:parameters())
    assert.same({{0, 1}, {2, 3}}, net.weight:tolist())
    assert.same({4, 5}, net.bias:tolist())
    check.raises("expected a vector of 6 elements, got shape (5,)", function()
      nn.utils.vector_to_parameters(accelhost.zeros(5), net:parameters())
    end)
  end)
end)
