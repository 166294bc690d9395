-- One pass over many parameters is the passes over each: sizes that fill no chunk, odd places in memory, neighbours.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local optim, flat = accelhost.optim, check.flat

local function parameters(count)
  accelhost.manual_seed(7)
  local arena = accelhost.randn(count * 61 + 9000)
  local grads = accelhost.randn(count * 61 + 9000)
  local list, at = {}, 1
  for i = 1, count do
    local n = i == 3 and 8500 or i % 60
    list[i] = arena:narrow(0, at, n):detach():requires_grad_()
    list[i].grad = grads:narrow(0, at, n):clone()
    at = at + n + (i % 3 == 0 and 1 or 0)
  end
  return list
end

local function step(name, options, lists)
  for _, list in ipairs(lists) do
    local optimizer = optim[name](list, options)
    optimizer:step()
    optimizer:step()
  end
end

describe("an optimizer of 150 parameters", function()
  for name, options in pairs {SGD = {lr = 0.1, momentum = 0.9}, AdamW = {lr = 0.1}, RMSprop = {lr = 0.1}} do
    it("steps " .. name .. " as 150 optimizers of one", function()
      local together, alone, single = parameters(150), parameters(150), {}
      for i, parameter in ipairs(alone) do
        single[i] = {parameter}
      end
      step(name, options, {together})
      step(name, options, single)
      for i, parameter in ipairs(together) do
        assert.same(flat(alone[i]), flat(parameter))
      end
    end)
  end

  it("clips by the norm of all", function()
    local list, total = parameters(150), 0
    for _, parameter in ipairs(list) do
      total = total + parameter.grad:to("float64"):square():sum():item()
    end
    local norm = accelhost.nn.utils.clip_grad_norm_(list, 1)
    check.near(math.sqrt(total), norm:item(), 1e-4 * math.sqrt(total))
    check.near(1, accelhost.nn.utils.clip_grad_norm_(list, 2):item(), 1e-5)
  end)

  it("finds the one element of its gradients that is not finite", function()
    local list = parameters(150)
    list[149].grad:fill_(math.huge)
    assert.equal(math.huge, accelhost.nn.utils.clip_grad_norm_(list, 1, {norm_type = math.huge}):item())
    list = parameters(150)
    list[148].grad:narrow(0, 3, 1):fill_(0 / 0)
    local norm = accelhost.nn.utils.clip_grad_norm_(list, 1, {norm_type = math.huge}):item()
    assert.is_true(norm ~= norm)
  end)
end)
