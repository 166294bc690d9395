--- Distributions against PyTorch's numbers (scripts/fixtures/distributions.py), and their failure messages.
local accelhost = require "accelhost"
local cases = require("spec.support.fixtures").load("distributions").cases
local check = require "spec.support.check"

local D = accelhost.distributions
local EXACT = 1e-12

local function tensors(args, dtype, requires_grad)
  local made = {}
  for name, value in pairs(args) do
    made[name] = accelhost.tensor(value, {dtype = dtype, requires_grad = requires_grad or nil})
  end
  return made
end

local function make(case, dtype) return D[case.name](tensors(case.args, dtype)) end

local function title(case)
  local names = {}
  for name in pairs(case.args) do names[#names + 1] = name end
  table.sort(names)
  return ("%s(%s) of shape (%s)"):format(case.name, table.concat(names, ", "), table.concat(case.batch_shape, ", "))
end

describe("A distribution has PyTorch's", function()
  for _, case in ipairs(cases) do
    it("numbers: " .. title(case), function()
      local d = make(case, "float64")
      local value = accelhost.tensor(case.value, {dtype = case.name == "Categorical" and "int64" or "float64"})
      assert.same(case.batch_shape, d.batch_shape)
      assert.same(case.event_shape, d.event_shape)
      for _, field in ipairs {"mean", "mode", "variance", "stddev"} do
        if case[field] then check.near(case[field], d[field], EXACT, field) end
      end
      for _, method in ipairs {"log_prob", "cdf"} do
        if case[method] then check.near(case[method], d[method](d, value), EXACT, method) end
      end
      if case.icdf then
        check.near(case.icdf, d:icdf(accelhost.full(case.batch_shape, 0.3, {dtype = "float64"})), EXACT, "icdf")
      end
      if case.enumerated then check.near(case.enumerated, d:enumerate_support(), 0, "enumerate_support") end
      check.near(case.entropy, d:entropy(), EXACT, "entropy")
      check.near(case.kl, D.kl_divergence(d, D[case.name](tensors(case.other, "float64"))), EXACT, "kl_divergence")
    end)

    it("samples and gradients: " .. title(case), function()
      for label, dtype in pairs {sample = "float64", sample32 = "float32"} do
        accelhost.manual_seed(7)
        local d = make(case, dtype)
        local drawn = accelhost.cat {d:sample():reshape(-1), d:sample({3, 2}):reshape(-1)}
        check.near(case[label], drawn, label == "sample" and EXACT or 1e-6, label)
      end
      if not case.grads then return end
      local leaves = tensors(case.args, "float64", true)
      accelhost.manual_seed(7)
      local d = D[case.name](leaves)
      assert.is_true(d.has_rsample)
      local drawn = d:rsample {4}
      assert.is_false(d:sample().requires_grad)
      local flat = drawn:reshape(-1)
      local weighed = flat * accelhost.arange(flat:numel(), {dtype = "float64"}):sin()
      weighed:sum():backward()
      for name, grad in pairs(case.grads) do check.near(grad, leaves[name].grad, 1e-9, "gradient of " .. name) end
    end)

    it("expand: " .. title(case), function()
      local d = make(case, "float64")
      local shape = {5, unpack(case.batch_shape)}
      local wide = d:expand(shape)
      assert.same(shape, wide.batch_shape)
      assert.same(case.event_shape, wide.event_shape)
      check.near(check.flat(d:entropy():expand(shape)), wide:entropy(), EXACT)
      assert.equal(5, wide:sample():size(0))
      assert.matches("^" .. case.name .. "%(", tostring(wide))
    end)
  end
end)

describe("Independent", function()
  it("sums over the dims that it makes part of the event", function()
    local base = D.Normal(accelhost.zeros(2, 3), 2)
    local d = D.Independent(base, 1)
    assert.same({2}, d.batch_shape)
    assert.same({3}, d.event_shape)
    local x = d:sample {4}
    assert.same({4, 2, 3}, x:shape())
    check.near(check.flat(base:log_prob(x):sum(-1)), d:log_prob(x), 1e-6)
    check.near(check.flat(base:entropy():sum(-1)), d:entropy(), 1e-6)
    local other = D.Independent(D.Normal(accelhost.ones(2, 3), 1), 1)
    check.near(check.flat(D.kl_divergence(base, other.base_dist):sum(-1)), D.kl_divergence(d, other), 1e-6)
    assert.same({6, 2}, d:expand({6, 2}).batch_shape)
    check.raises("Independent: reinterpreted_batch_ndims: expected at most 2, the batch dims of Normal, got 3",
      function() D.Independent(base, 3) end)
  end)
end)

describe("Policy gradients", function()
  it("reach the logits through log_prob and entropy", function()
    local logits = accelhost.randn(4, 3, {requires_grad = true})
    local policy = D.Categorical {logits = logits}
    local action = policy:sample()
    assert.equal("int64", action.dtype)
    assert.is_false(action.requires_grad)
    local gain = policy:log_prob(action) + policy:entropy()
    gain:sum():backward()
    assert.is_true(logits.grad:abs():sum():item() > 0)
  end)
end)

describe("Distributions refuse", function()
  local ones = accelhost.ones
  for message, call in pairs {
    ["Normal: scale: expected numbers above 0, got tensor(-1.)"] = function() D.Normal(0, -1) end,
    ["Normal: scale: expected numbers above 0, got a tensor of shape (2,) with others in it"] = function()
      D.Normal(accelhost.zeros(2), accelhost.tensor {1, 0})
    end,
    ["Normal:log_prob: value: expected a shape that fits (2,) (batch and event), got (3,)"] = function()
      D.Normal(accelhost.zeros(2), 1):log_prob(ones(3))
    end,
    ["Normal:log_prob: value: expected a tensor, got number 1"] = function() D.Normal(0, 1):log_prob(1) end,
    ["Categorical: expected either probs or logits, got neither"] = function() D.Categorical() end,
    ["Categorical: expected either probs or logits, got both"] = function() D.Categorical(ones(2), ones(2)) end,
    ["Categorical:log_prob: value: expected whole numbers from 0 to 1, got tensor(2.)"] = function()
      D.Categorical(ones(2)):log_prob(accelhost.tensor(2))
    end,
    ["Categorical has no rsample: its samples have no gradient"] = function() D.Categorical(ones(2)):rsample() end,
    ["Bernoulli has no cdf(value)"] = function() D.Bernoulli(0.5):cdf(ones(1)) end,
    ["Uniform: high: expected numbers above low, got others"] = function() D.Uniform(1, 0) end,
    ["Beta: concentration0: expected numbers above 0"] = function() D.Beta(1, 0) end,
    ["Dirichlet: concentration: expected a tensor of at least 1 dim"] = function()
      D.Dirichlet(accelhost.tensor(1))
    end,
    ["Dirichlet:log_prob: value: expected vectors of numbers from 0 that sum to 1"] = function()
      D.Dirichlet(ones(2)):log_prob(ones(2))
    end,
    ["MultivariateNormal: expected exactly one of covariance_matrix"] = function()
      D.MultivariateNormal(ones(2), {covariance_matrix = accelhost.eye(2), scale_tril = accelhost.eye(2)})
    end,
    ["MultivariateNormal: covariance_matrix: expected symmetric positive definite matrices, got others"] = function()
      D.MultivariateNormal(ones(2), -accelhost.eye(2))
    end,
    ["MultivariateNormal: scale_tril: expected a shape (..., 2, 2) for loc (2,), got (3, 3)"] = function()
      D.MultivariateNormal(ones(2), {scale_tril = accelhost.eye(3)})
    end,
    ["Normal has no field or method 'lok' (did you mean 'loc'?)"] = function() return D.Normal(0, 1).lok end,
    ["kl_divergence: expected two distributions of classes that have one (or register_kl), got a Normal and a Gamma"] =
      function() D.kl_divergence(D.Normal(0, 1), D.Gamma(1, 1)) end,
  } do
    it(message, function() check.raises(message, call) end)
  end

  it("nothing with validate_args = false, or by default where that is off", function()
    assert.equal(-1, D.Normal(0, -1, {validate_args = false}).scale:item())
    D.Distribution.set_default_validate_args(false)
    local fine, message = pcall(function() assert.equal(-1, D.Normal(0, -1).scale:item()) end)
    D.Distribution.set_default_validate_args(true)
    assert(fine, message)
  end)
end)

describe("A distribution of one's own", function()
  it("extends the base, and registers its divergence", function()
    local Point = D.Distribution:extend "Point"
    function Point:init(at)
      self.at = at
      self:_setup(at:shape(), {})
    end

    function Point:rsample(...) return self.at:expand((self:_extended_shape(...))) end
    function Point:_get_mean() return self.at end
    D.register_kl(Point, Point, function(p, q) return (p.at - q.at):abs() end)
    local p, q = Point(accelhost.ones(2)), Point(accelhost.zeros(2))
    check.near({1, 1}, D.kl_divergence(p, q), 0)
    assert.same({3, 2}, p:sample({3}):shape())
    check.near({1, 1}, p.mean, 0)
  end)
end)
