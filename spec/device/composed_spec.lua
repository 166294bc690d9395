--- accelhost.linalg and functions on images on "far": intermediate tensors are stored where their inputs are.
local accelhost = require "accelhost"
local fixtures = require "spec.support.fixtures"
local op_fixture = require "spec.support.op_fixture"

describe("Composed functions:", function()
  for _, fixture in ipairs(fixtures.files "linalg") do op_fixture.define_on(fixture, it, "far") end
  op_fixture.define_on(fixtures.load "spatial", it, "far")

  it("gradcheck and gradgradcheck compare gradients where the inputs are", function()
    local x = accelhost.tensor({0.3, -1.2}, {dtype = "float64", device = "far"}):requires_grad_()
    local function cubes(value) return value:pow(3) end
    assert.is_true(accelhost.autograd.gradcheck(cubes, {x}))
    assert.is_true(accelhost.autograd.gradgradcheck(cubes, {x}))
  end)

  it("Categorical's mean and variance are where its probabilities are", function()
    local probs = accelhost.tensor({{0.3, 0.7}}, {device = "far"})
    local distribution = accelhost.distributions.Categorical(probs)
    assert.equal(probs.device, distribution.mean.device)
    assert.equal(probs.device, distribution.variance.device)
  end)

  it("invert_permutation accepts a permutation there", function()
    local permutation = accelhost.tensor({2, 0, 1}, {dtype = "int64", device = "far"})
    assert.same({1, 2, 0}, accelhost.nn.utils.rnn.invert_permutation(permutation):tolist())
  end)
end)
