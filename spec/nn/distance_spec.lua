local accelhost = require "accelhost"
local gradcheck = require "spec.support.gradcheck"
local F = accelhost.nn.functional

-- The distances by the definition, from ops.
local function pairs_of(x, p)
  local count = x:size(0)
  local all = (x:unsqueeze(1) - x:unsqueeze(0)):norm(p, 2)
  return all:masked_select(accelhost.ones(count, count):triu(1):bool())
end

local function far(a, b) return (a - b):abs():max():item() end

describe("pdist", function()
  before_each(function() accelhost.manual_seed(0) end)

  for _, p in ipairs {0, 0.5, 1, 1.5, 2, 3, math.huge} do
    it("accepts many long rows, of any layout, for p = " .. p, function()
      for _, shape in ipairs {{300, 5}, {7, 131}} do
        local x = accelhost.randn(shape, {dtype = "float64"}):t():contiguous():t():requires_grad_()
        local y = x:detach():clone():requires_grad_()
        local found, expected = F.pdist(x, p), pairs_of(y, p)
        assert.is_true(far(found, expected) <= 1e-9 * expected:abs():max():item())
        local weight = accelhost.randn_like(expected)
        found:backward(weight)
        expected:backward(weight)
        assert.is_true(far(x.grad, y.grad) <= 1e-9 * math.max(1, y.grad:abs():max():item()))
      end
    end)
  end

  it("has derivatives, and those have some", function()
    local x = accelhost.randn(5, 3, {dtype = "float64"}):requires_grad_()
    for _, p in ipairs {1.5, 2, 3} do
      local function distances(t) return F.pdist(t, p) end
      gradcheck.gradcheck(distances, {x})
      gradcheck.gradgradcheck(distances, {x})
    end
  end)

  it("computes halves in float32, and propagates nan and infinity", function()
    local x = accelhost.tensor {{0, 0}, {3, 4}, {60000, 0}}
    assert.same({5, 60000, 60000}, F.pdist(x:half()):tolist())
    local odd = F.pdist(accelhost.tensor {{0, 0 / 0}, {1, 1}, {1, math.huge}}, math.huge)
    assert.is_true(odd[0]:isnan():item() and odd[1]:isnan():item())
    assert.equal(math.huge, odd[2]:item())
  end)
end)
