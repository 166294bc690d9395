local accelhost = require "accelhost"
local check = require "spec.support.check"
local F = accelhost.nn.functional
local random = require("accelhost._C").random
local fixture = require("spec.support.fixtures").load "rng"

-- The draws that the fixture's generator script makes, by name.
local weights = {{0.1, 0.5, 0.2, 0.9}, {1, 0, 3, 2}}
local chances = {{0.1, 0.9, 0.5}, {0.3, 0.7, 1}}
local f64 = {dtype = "float64"}
local draws = {
  ["rand"] = function() return accelhost.rand(19) end,
  ["rand float64"] = function() return accelhost.rand({7}, f64) end,
  ["randn of 5"] = function() return accelhost.randn(5) end,
  ["randn of 4 in float64"] = function() return accelhost.randn({4}, f64) end,
  ["randn of 16"] = function() return accelhost.randn(16) end,
  ["randn of 37"] = function() return accelhost.randn(37) end,
  ["randn of 20 in float64"] = function() return accelhost.randn({20}, f64) end,
  ["uniform_"] = function() return accelhost.empty(19):uniform_(-0.0357, 0.0357) end,
  ["uniform_ float64"] = function() return accelhost.empty({5}, f64):uniform_(-0.3, 0.7) end,
  ["normal_"] = function() return accelhost.empty(24):normal_(0.5, 0.02) end,
  ["normal_ of 3"] = function() return accelhost.empty(3):normal_(-1, 2) end,
  ["randint"] = function() return accelhost.randint(-3, 1000, {11}) end,
  ["randint beyond 2^32"] = function() return accelhost.randint(0, 2 ^ 40, {5}) end,
  ["random_"] = function() return accelhost.empty({5}, {dtype = "int32"}):random_() end,
  ["random_ of uint8"] = function() return accelhost.empty({5}, {dtype = "uint8"}):random_() end,
  ["random_ of float32"] = function() return accelhost.empty(5):random_() end,
  ["randperm"] = function() return accelhost.randperm(23) end,
  ["bernoulli_"] = function() return accelhost.empty(31):bernoulli_(0.3) end,
  ["bernoulli"] = function() return accelhost.tensor(chances):bernoulli() end,
  ["bernoulli float64"] = function() return accelhost.tensor(chances, f64):bernoulli() end,
  ["exponential_"] = function() return accelhost.empty(6):exponential_(1.5) end,
  ["multinomial"] = function() return accelhost.tensor(weights):multinomial(2) end,
  ["multinomial with replacement"] = function() return accelhost.tensor(weights):multinomial(9, true) end,
  ["dropout"] = function() return F.dropout(accelhost.arange(1, 30, {dtype = "float32"}), 0.25) end,
  ["dropout float64"] = function() return F.dropout(accelhost.arange(1, 12, f64), 0.4) end,
  ["rand float16"] = function() return accelhost.rand({9}, {dtype = "float16"}) end,
  ["rand bfloat16"] = function() return accelhost.rand({9}, {dtype = "bfloat16"}) end,
}

-- Sum of (1 + i mod 97) * t[i].
local function checksum(tensor)
  local sum = 0
  for i, value in ipairs(check.flat(tensor:to("int64"))) do sum = sum + ((i - 1) % 97 + 1) * value end
  return sum
end

describe("the random stream", function()
  it("is PyTorch's for every seed", function()
    for _, case in ipairs(fixture.seeds) do
      accelhost.manual_seed(case[1])
      check.near(case[2], accelhost.rand(3), 0, "seed " .. case[1])
    end
  end)

  it("returns the bits that PyTorch draws, kind after kind", function()
    accelhost.manual_seed(1234)
    for _, step in ipairs(fixture.steps) do check.near(step[2], draws[step[1]](), 1e-15, step[1]) end
    assert.equal(fixture.kept, checksum(F.dropout(accelhost.ones(5000), 0.1):ne(0)))
    assert.equal(fixture.state, checksum(accelhost.get_rng_state()))
    accelhost.randn(3)
    assert.equal(fixture.state_with_waiting_normal, checksum(accelhost.get_rng_state()))
    check.near(fixture.next_normal, accelhost.randn(1), 0)
  end)

  it("feeds a sampler as PyTorch's loader does", function()
    accelhost.manual_seed(7)
    local default = random.default()
    default:spawn() -- the base seed of the workers
    check.near(fixture.sampler, random.randperm(12, default:spawn()), 0)
  end)

  it("fills memory in its own order, whatever the view", function()
    for _, fill in ipairs {
      function(x) return x:uniform_() end,
      function(x) return x:random_(100) end,
      function(x) return x:bernoulli_(0.5) end,
      function(x) return x:exponential_() end,
    } do
      accelhost.manual_seed(3)
      local plain = fill(accelhost.empty(6, 4))
      accelhost.manual_seed(3)
      assert.same(plain:t():tolist(), fill(accelhost.empty(6, 4):t()):tolist())
    end
  end)

  it("writes PyTorch's normal numbers to memory that is not row-major", function()
    accelhost.manual_seed(0)
    check.near({1.5410, -1.3986, -0.5966, 0.1227, -0.2934, 0.4033, 0.1820, -0.5663, -2.1788, 0.8380, -0.8567, 0.3731,
      0.5684, -0.7193, 1.1006, -0.8920, -1.0845, -0.4033, -1.0712, -1.5091},
      accelhost.zeros(4, 5):t():normal_(), 1e-4)
  end)
end)

-- Numbers of PyTorch 2.15, seed 3.
describe("A function of random numbers", function()
  before_each(function() accelhost.manual_seed(3) end)

  it("is PyTorch's gumbel_softmax, of exponential numbers", function()
    check.near({0.9890263612712136, 0.01043163218763648, 0.0005420065411499013},
      F.gumbel_softmax(accelhost.zeros(3, f64), {tau = 0.5}), 1e-14)
  end)

  it("is PyTorch's truncated normal numbers, to the last digits in float64", function()
    check.near({0.8032760780963507, 0.17483339327910358, 0.08897809502587893, -0.6137180077293578,
      0.04618245168476012, -1.3682591776659836}, accelhost.nn.init.trunc_normal_(accelhost.zeros(6, f64)), 1e-14)
  end)
end)

describe("a generator's state", function()
  it("is restored with the waiting normal number", function()
    accelhost.manual_seed(5)
    accelhost.randn(3)
    local state = accelhost.get_rng_state()
    local first = accelhost.randn(2):tolist()
    accelhost.rand(1000)
    accelhost.set_rng_state(state)
    assert.same(first, accelhost.randn(2):tolist())
  end)

  it("is 5056 bytes of uint8", function()
    local state = accelhost.get_rng_state()
    assert.equal("uint8", state.dtype)
    assert.equal(5056, state:numel())
  end)

  it("is refused when it is something else", function()
    check.raises("expected 5056 bytes, got 8",
      function() accelhost.set_rng_state(accelhost.zeros({8}, {dtype = "uint8", device = "cpu"})) end)
    check.raises("not the state of a generator",
      function() accelhost.set_rng_state(accelhost.zeros({5056}, {dtype = "uint8", device = "cpu"})) end)
    check.raises("expected a contiguous uint8 tensor", function() accelhost.set_rng_state(accelhost.zeros(5056)) end)
  end)
end)

describe("a Generator", function()
  it("runs independently of the default one", function()
    accelhost.manual_seed(1)
    local expected = accelhost.rand(2):tolist()
    accelhost.manual_seed(1)
    local own = accelhost.Generator(9)
    local permutation = random.randperm(10, own):tolist()
    assert.same(expected, accelhost.rand(2):tolist())
    assert.same(permutation, random.randperm(10, accelhost.Generator():manual_seed(9)):tolist())
  end)

  it("hands its state over", function()
    local one, other = accelhost.Generator(4), accelhost.Generator(5)
    random.randperm(7, one)
    other:set_state(one:get_state())
    assert.same(random.randperm(50, one):tolist(), random.randperm(50, other):tolist())
  end)

  it("remembers its seed", function()
    assert.equal(12, accelhost.Generator(12):initial_seed())
    accelhost.manual_seed(13)
    assert.equal(13, accelhost.initial_seed())
    local own = accelhost.Generator()
    assert.equal(own:seed(), own:initial_seed())
  end)

  it("reports a spawned seed that is no Lua number", function()
    local spawned = accelhost.Generator(0):spawn()
    check.raises("does not fit a Lua number", function() spawned:initial_seed() end)
  end)

  it("refuses values that are not seeds", function()
    check.raises("manual_seed: seed: expected an integer, got number 1.5", function() accelhost.manual_seed(1.5) end)
    check.raises("manual_seed: seed: expected an integer, got '1'", function() accelhost.manual_seed("1") end)
    check.raises("expected a Generator", function() random.randperm(3, 5) end)
  end)
end)

describe("a random op", function()
  it("stays in its range", function()
    accelhost.manual_seed(0)
    local x = accelhost.rand(10000)
    assert.is_true(x:min():item() >= 0 and x:max():item() < 1)
    local n = accelhost.randint(-2, 3, {10000})
    assert.equal(-2, n:min():item())
    assert.equal(2, n:max():item())
    local from_zero = accelhost.randint(3, {10000})
    assert.equal(0, from_zero:min():item())
    assert.equal(2, from_zero:max():item())
    local halves = accelhost.rand({10000}, {dtype = "bfloat16"})
    assert.is_true(halves:max():item() < 1)
  end)

  it("permutes all numbers", function()
    local sorted = accelhost.randperm(1000):sort()
    assert.is_true(sorted:eq(accelhost.arange(1000)):all():item())
    assert.equal(0, accelhost.randperm(0):numel())
  end)

  it("refuses impossible arguments", function()
    check.raises("randint: expected low < high", function() accelhost.randint(3, 3, {2}) end)
    check.raises("argument 3 (dim1): expected an integer, got a table",
      function() accelhost.ones(2, 3):transpose(0, {1}) end)
    check.raises("uniform_: expected from <= to", function() accelhost.empty(2):uniform_(1, 0) end)
    check.raises("normal_: expected std of 0 or more", function() accelhost.empty(2):normal_(0, -1) end)
    check.raises("bernoulli_: expected p in 0..1", function() accelhost.empty(2):bernoulli_(1.5) end)
    check.raises("expected probabilities in 0..1", function() accelhost.tensor({2}):bernoulli() end)
    for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16"} do
      for _, wrong in ipairs {-0.5, 1.5, 0 / 0} do
        accelhost.manual_seed(1)
        local chances_of = accelhost.tensor({0.5, wrong, 7}, {dtype = dtype})
        check.raises("bernoulli: expected probabilities in 0..1, got ", function() chances_of:bernoulli() end)
        local next_draw = accelhost.rand(1):item()
        accelhost.manual_seed(1)
        assert.equal(accelhost.rand(1):item(), next_draw)
      end
    end
    check.raises("rand: expected a floating dtype", function() accelhost.rand({2}, {dtype = "int64"}) end)
    check.raises("multinomial: cannot draw 3 samples without replacement",
      function() accelhost.tensor({1, 1}):multinomial(3) end)
    check.raises("fewer than 2 samples", function() accelhost.tensor({1, 0}):multinomial(2) end)
    check.raises("expected finite weights", function() accelhost.tensor({1, -1}):multinomial(1) end)
    check.raises("dropout: expected p in 0..1", function() F.dropout(accelhost.ones(2), -0.1) end)
  end)
end)

describe("multinomial of long rows", function()
  it("draws the places of weights above 0 wherever they are, and names a wrong weight", function()
    for _, dtype in ipairs {"float32", "float64"} do
      for _, at in ipairs {0, 7, 8, 500, 511, 512, 1000, 1002} do
        local rows = accelhost.zeros({2, 1003}, {dtype = dtype})
        rows[0][at], rows[1][1002 - at] = 0.25, 1e-30
        assert.same({{at, at, at}, {1002 - at, 1002 - at, 1002 - at}}, rows:multinomial(3, true):tolist())
        assert.same({{at}, {1002 - at}}, rows:multinomial(1):tolist())
        for text, wrong in pairs {["-2"] = -2, inf = 1 / 0} do
          rows[1][at] = wrong
          check.raises("expected finite weights of 0 or more, got " .. text,
            function() rows:multinomial(3, true) end)
        end
      end
    end
  end)

  it("draws in proportion to the weights", function()
    accelhost.manual_seed(4)
    local rows = accelhost.arange(1000):remainder(3):float()
    local drawn = rows:multinomial(30000, true)
    assert.equal(0, drawn:remainder(3):eq(0):sum():item())
    assert.is_true(math.abs(drawn:remainder(3):eq(1):sum():item() - 10000) < 400)
    assert.is_true(math.abs(drawn:lt(500):sum():item() - 15000) < 400)
  end)
end)

describe("dropout", function()
  it("scales kept elements, forward and backward", function()
    accelhost.manual_seed(2)
    local x = accelhost.ones({200}, {requires_grad = true})
    local y = F.dropout(x, 0.5)
    y:sum():backward()
    assert.same(y:tolist(), x.grad:tolist())
    for _, value in ipairs(y:tolist()) do assert.is_true(value == 0 or value == 2) end
  end)

  it("passes its input through outside training and at p = 0", function()
    local x = accelhost.ones(3)
    assert.equal(x, F.dropout(x, 0.5, false))
    assert.equal(x, F.dropout(x, 0))
  end)

  it("draws nothing at p = 1 and returns zeros", function()
    accelhost.manual_seed(2)
    local expected = accelhost.rand(1):item()
    accelhost.manual_seed(2)
    assert.same({0, 0, 0}, F.dropout(accelhost.ones(3), 1):tolist())
    assert.equal(expected, accelhost.rand(1):item())
  end)

  it("shows NaN at dropped elements", function()
    local y = F.dropout(accelhost.tensor({0 / 0, 1 / 0}), 1)
    assert.is_true(y:isnan():all():item())
  end)
end)

describe("a draw into an expanded tensor", function()
  it("is refused and consumes no number", function()
    accelhost.manual_seed(0)
    local first = accelhost.rand(1):item()
    accelhost.manual_seed(0)
    local wide = accelhost.zeros({1}, {dtype = "int64"}):expand(2)
    assert.error_matches(function() wide:random_(0, 2) end, "cannot write in place into an expanded tensor")
    assert.equal(first, accelhost.rand(1):item())
  end)
end)

describe("a draw for a transposed tensor", function()
  local function transposed() return accelhost.ones(2, 3):t() end

  it("falls in memory's order, as PyTorch's does", function()
    accelhost.manual_seed(0)
    local rows = accelhost.rand(2, 3)
    accelhost.manual_seed(0)
    local like = accelhost.rand_like(transposed())
    assert.is_true(like:equal(rows:t()))
    accelhost.manual_seed(0)
    local kept = accelhost.nn.functional.dropout(accelhost.ones(2, 3), 0.5)
    accelhost.manual_seed(0)
    assert.is_true(accelhost.nn.functional.dropout(transposed(), 0.5):equal(kept:t()))
  end)
end)

describe("uniform halves", function()
  it("that round to the open end become the other end, as PyTorch's", function()
    accelhost.manual_seed(0)
    local ends = accelhost.empty({4000}, {dtype = "bfloat16"}):uniform_(2.5, 4.5)
    assert.is_false(ends:ge(4.5):any():item())
    accelhost.manual_seed(0)
    local drawn = accelhost.empty(4000):uniform_(2.5, 4.5):to("bfloat16")
    local rounded = drawn:eq(4.5)
    assert.is_true(rounded:any():item())
    assert.is_true(ends[rounded]:eq(2.5):all():item())
  end)
end)
