local accelhost = require "accelhost"
local check = require "spec.support.check"

-- Everything that draws, as a function of options.
local draws = {
  rand = function(o) return accelhost.rand(5, o) end,
  randn = function(o) return accelhost.randn({20}, o) end,
  randint = function(o) return accelhost.randint(9, {5}, o) end,
  randint_like = function(o) return accelhost.randint_like(accelhost.ones(5), 9, o) end,
  randperm = function(o) return accelhost.randperm(7, o) end,
  rand_like = function(o) return accelhost.rand_like(accelhost.ones(5), o) end,
  randn_like = function(o) return accelhost.randn_like(accelhost.ones(5), o) end,
  bernoulli = function(o) return accelhost.full({9}, 0.5):bernoulli(o) end,
  multinomial = function(o) return accelhost.ones(9):multinomial(4, o) end,
  poisson = function(o) return accelhost.poisson(accelhost.full({9}, 20), o) end,
  normal = function(o)
    return accelhost.normal(0, 1, {3}, {generator = o and o.generator})
  end,
  uniform_ = function(o) return accelhost.zeros(5):uniform_(2, 3, o) end,
  normal_ = function(o) return accelhost.zeros(5):normal_(2, 3, o) end,
  bernoulli_ = function(o) return accelhost.zeros(9):bernoulli_(0.5, o) end,
  random_ = function(o) return accelhost.zeros(9):random_(0, 100, o) end,
  exponential_ = function(o) return accelhost.zeros(9):exponential_(1, o) end,
  cauchy_ = function(o) return accelhost.zeros(9):cauchy_(0, 1, o) end,
  log_normal_ = function(o) return accelhost.zeros(9):log_normal_(0, 1, o) end,
  geometric_ = function(o) return accelhost.zeros(9):geometric_(0.1, o) end,
}

-- `o` with more options.
local function with(o, more)
  more.generator = o and o.generator
  return more
end

local F = accelhost.nn.functional
for name, size in pairs {dropout = {9}, dropout1d = {4, 5, 2}, dropout2d = {4, 5, 2, 2}, dropout3d = {4, 5, 2, 2, 2},
  alpha_dropout = {9}, feature_alpha_dropout = {4, 5, 2}} do
  draws[name] = function(o) return F[name](accelhost.ones(size), with(o, {training = true})) end
end
draws["dropout, inplace"] = function(o) return F.dropout(accelhost.ones(9), with(o, {inplace = true})) end
draws.dropout_ = function(o) return accelhost.ones(9):dropout_(0.5, true, o) end
draws.rrelu = function(o) return F.rrelu(-accelhost.ones(9), with(o, {training = true})) end
draws.rrelu_ = function(o) return F.rrelu_(-accelhost.ones(9), with(o, {training = true})) end
draws.gumbel_softmax = function(o) return F.gumbel_softmax(accelhost.zeros(3, 3), o) end
draws.scaled_dot_product_attention = function(o)
  local x = accelhost.eye(6)
  return F.scaled_dot_product_attention(x, x, x, with(o, {dropout_p = 0.5}))
end
draws.varlen_attn = function(o)
  local x, cu = accelhost.eye(6):view(6, 1, 6), accelhost.tensor({0, 6}, {dtype = "int32"})
  return F.varlen_attn(x, x, x, cu, cu, 6, 6, with(o, {dropout_p = 0.5}))
end
for name, given in pairs {uniform_ = {}, normal_ = {}, xavier_uniform_ = {}, xavier_normal_ = {}, kaiming_uniform_ = {},
  kaiming_normal_ = {}, trunc_normal_ = {}, orthogonal_ = {}, sparse_ = {0.5}} do
  draws["nn.init." .. name] = function(o)
    given[#given + 1] = o
    local result = accelhost.nn.init[name](accelhost.empty(4, 5), unpack(given))
    given[#given] = nil
    return result
  end
end
-- An interval that most normal draws would miss.
draws["nn.init.trunc_normal_ far out"] = function(o)
  return accelhost.nn.init.trunc_normal_(accelhost.empty(9), 0, 1, 2, 3, o)
end

describe("the option generator", function()
  -- Draws are compared with the CPU's.
  local device = accelhost.get_default_device()
  setup(function() accelhost.set_default_device "cpu" end)
  teardown(function() accelhost.set_default_device(device) end)

  if device ~= "cpu" then
    it("is refused on another device than its own", function()
      check.raises(("rand: generator: expected a Generator of %s, where the result is to be, got one of cpu"):format(
        accelhost.zeros(1, {device = device}).device), function()
        accelhost.rand(2, {generator = accelhost.Generator(), device = device})
      end)
    end)
  end

  for name, draw in pairs(draws) do
    it("lets " .. name .. " draw from its own generator", function()
      accelhost.manual_seed(7)
      local expected, after = draw({}), accelhost.rand(1)
      local own = accelhost.Generator(7)
      accelhost.manual_seed(1)
      local before = accelhost.get_rng_state()
      assert.is_true(accelhost.equal(expected, draw {generator = own}))
      assert.is_true(accelhost.equal(before, accelhost.get_rng_state()))
      assert.is_true(accelhost.equal(after, accelhost.rand(1, {generator = own})))
    end)
  end

  it("accepts nothing but a Generator, where something is drawn", function()
    check.raises("rand: generator: expected a Generator, got number 3", function()
      accelhost.rand(2, {generator = 3})
    end)
    check.raises("zeros: unknown option 'generator'", function()
      accelhost.zeros(2, {generator = accelhost.Generator()})
    end)
  end)

  it("leaves the default generator in place after an error", function()
    local own = accelhost.Generator(1)
    pcall(function() accelhost.full({2}, 3):bernoulli {generator = own} end)
    accelhost.manual_seed(5)
    local x = accelhost.rand(2)
    assert.is_true(accelhost.equal(x, accelhost.rand(2, {generator = accelhost.Generator(5)})))
  end)
end)

describe("random numbers of further distributions", function()
  it("refuse parameters out of range", function()
    local x = accelhost.zeros(2)
    check.raises("poisson: expected finite rates of 0 or more, got -1", function() accelhost.poisson(x - 1) end)
    check.raises("cauchy_: expected sigma above 0, got 0", function() x:cauchy_(0, 0) end)
    check.raises("log_normal_: expected std above 0, got -1", function() x:log_normal_(0, -1) end)
    check.raises("geometric_: expected p between 0 and 1, got 1", function() x:geometric_(1) end)
    check.raises("normal: std: expected deviations of at least 0", function() accelhost.normal(0, -1, {2}) end)
    check.raises("normal: size: expected one for two numbers", function() accelhost.normal(0, 1) end)
  end)

  it("have their means", function()
    accelhost.manual_seed(2)
    check.near(40, accelhost.poisson(accelhost.full({20000}, 40)):mean(), 5e-3)
    check.near(5, accelhost.zeros(20000):geometric_(0.2):mean(), 2e-2)
    check.near(math.exp(0.5), accelhost.zeros(20000):log_normal_(0, 1):mean(), 3e-2)
  end)
end)

describe("a view as another dtype", function()
  it("reads the same bytes", function()
    local x = accelhost.tensor {1, -2}
    assert.same({0x3f800000, -0x40000000}, x:view("int32"):tolist())
    assert.same({0, 0, 128, 63, 0, 0, 0, 192}, x:view("uint8"):tolist())
    x:view("int32"):zero_()
    assert.same({0, 0}, x:tolist())
  end)

  it("lets the last dim absorb the difference in size", function()
    local x = accelhost.arange(8):view(2, 4)
    assert.same({2, 8}, x:view("int32"):shape())
    assert.same({2, 4}, x:view("int32"):view("int64"):shape())
    assert.same(x:tolist(), x:view("int32"):view("int64"):tolist())
    check.raises("view: (4, 2) with strides (1, 4) cannot be read as int32", function() x:t():view("int32") end)
    check.raises("cannot be read as int64", function() accelhost.ones(3):view("int64") end)
    check.raises("view: float32 holds bytes that are no truth values; use ne(0)", function()
      accelhost.ones(3):view("bool")
    end)
  end)

  it("has no gradient", function()
    assert.is_false(accelhost.ones(2, {requires_grad = true}):view("int32").requires_grad)
  end)
end)

describe("a tensor reports", function()
  it("its size in bytes, its device and its transposes", function()
    local x = accelhost.zeros(2, 3, {dtype = "float64"})
    assert.equal(48, x.nbytes)
    assert.equal(8, x.itemsize)
    assert.is_true(x.is_cpu == (x.device == "cpu"))
    assert.same({3, 2}, x.mT:shape())
    assert.same({4, 3, 2}, accelhost.zeros(4, 2, 3).mT:shape())
    assert.same({3, 2}, x.H:shape())
    check.raises("mT: expected at least 2 dims, got shape (3,)", function() return accelhost.zeros(3).mT end)
  end)
end)

describe("A Generator's device", function()
  it("is the CPU, or the one that was named, by position or by name", function()
    assert.equal("cpu", accelhost.Generator().device)
    assert.equal("cpu", accelhost.Generator("cpu").device)
    assert.equal(3, accelhost.Generator {seed = 3, device = "cpu"}:initial_seed())
    assert.equal(4, accelhost.Generator(4, "cpu"):initial_seed())
    assert.equal(67280421310721, accelhost.Generator {device = "cpu"}:initial_seed())
  end)

  it("is checked, with the other options", function()
    check.raises("Generator: unknown option 'sed'", function() accelhost.Generator {sed = 3} end)
    check.raises('device "cpux": accelhost-cpux.so is not here', function() accelhost.Generator "cpux" end)
    check.raises("expected a whole number up to 2^53, got string", function() accelhost.Generator("a", "cpu") end)
    check.raises("Generator: device: meta draws no random numbers", function() accelhost.Generator "meta" end)
  end)
end)
