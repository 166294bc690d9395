--- The loss of connectionist temporal classification, in addition to its fixture (modules_spec.lua).
local accelhost = require "accelhost"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local tensors = require "spec.support.tensors"

local F = accelhost.nn.functional

describe("ctc_loss", function()
  local long = tensors.long
  local targets = long {{1, 2, 2}, {3, 1, 0}}
  local function loss(x) return F.ctc_loss(x:log_softmax(-1), targets, {6, 4}, {3, 2}, 0, "none") end

  it("has the gradients of differences, and none of higher order", function()
    local x = accelhost.randn({6, 2, 4}, {dtype = "float64", requires_grad = true})
    gradcheck.gradcheck(loss, {x})
    check.raises("backward of ctc: its second derivative is not implemented", function()
      accelhost.autograd.grad(loss(x):sum(), x, {create_graph = true})
    end)
  end)

  it("agrees between dtypes and for targets in rows or one after the other", function()
    local x = accelhost.randn {6, 2, 4}
    check.near(check.flat(loss(x:double())), loss(x), 1e-5)
    local flat = F.ctc_loss(x:log_softmax(-1), long {1, 2, 2, 3, 1}, long {6, 4}, long {3, 2}, 0, "none")
    check.near(check.flat(flat), loss(x), 0)
    assert.equal("bfloat16", loss(x:bfloat16()).dtype)
  end)

  it("costs inf, or 0 on demand, where the target does not fit the steps", function()
    local x = accelhost.zeros({2, 1, 3}, {requires_grad = true}):log_softmax(-1)
    assert.equal(math.huge, F.ctc_loss(x, long {{1, 1}}, {2}, {2}, {reduction = "none"}):item())
    assert.equal(0, F.ctc_loss(x, long {{1, 1}}, {2}, {2}, {reduction = "none", zero_infinity = true}):item())
    local inner = x:detach():requires_grad_()
    F.ctc_loss(inner, long {{1, 1}}, {2}, {2}):backward()
    assert.is_true(inner.grad:isnan():all():item())
  end)

  for message, call in pairs {
    ["ctc_loss: input length 7 at position 1 is outside 0..6"] = {targets, {6, 7}, {3, 2}},
    ["ctc_loss: target length 4 at position 0 is outside 0..3"] = {targets, {6, 6}, {4, 2}},
    ["ctc_loss: target_lengths: expected 2 lengths, got 3 numbers"] = {targets, {6, 6}, {4, 2, 1}},
    ["ctc_loss: target 4 at position 3 is outside 0..3"] = {long {{1, 2}, {1, 4}}, {6, 6}, {2, 2}},
    ["ctc_loss: targets: expected the 5 labels that target_lengths add up to, got 4"] =
      {long {1, 2, 2, 3}, {6, 6}, {3, 2}},
    ["ctc_loss: blank: expected a class in 0..3, got 4"] = {targets, {6, 6}, {3, 2}, 4},
    ["ctc_loss: targets: expected int64 for a batch of 2, got int64 (1, 3)"] =
      {targets:narrow(0, 0, 1), {6, 6}, {3, 2}},
  } do
    it("reports: " .. message, function()
      check.raises(message, function() F.ctc_loss(accelhost.zeros(6, 2, 4), unpack(call)) end)
    end)
  end
end)
