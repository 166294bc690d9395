local accelhost = require "accelhost"
local autograd = accelhost.autograd
local nn, F = accelhost.nn, accelhost.nn.functional

local function leaf(data)
  return accelhost.tensor(data, {requires_grad = true, dtype = "float64"})
end

local function random(...)
  accelhost.manual_seed(11)
  return accelhost.randn({...}, {dtype = "float64"})
end

-- The derivative of sum(g * v) by central differences against the one by autograd, where g is the gradient of
-- sum(fn(x) * w) with respect to x. Returns the largest difference.
local function second_difference(fn, x, w)
  local v = random(unpack(x:shape())) * 0.5 + 0.1
  local function slope(at)
    at.requires_grad = true
    local g = autograd.grad((fn(at) * w):sum(), {at}, {create_graph = true})[1]
    return (g * v):sum()
  end
  local analytic = autograd.grad(slope(x), {x})[1]
  local worst, h = 0, 1e-5
  local flat, slopes = x:detach():reshape(-1), analytic:reshape(-1)
  for i = 0, x:numel() - 1 do
    local function shifted(step)
      local moved = flat:clone()
      moved[i] = moved[i] + step
      return slope(moved:reshape(x:shape())):item()
    end
    worst = math.max(worst, math.abs((shifted(h) - shifted(-h)) / (2 * h) - slopes[i]:item()))
  end
  return worst
end

describe("the second derivative", function()
  local cases = {
    {"batch_norm in training", {4, 3, 2, 2}, function(x)
      return F.batch_norm(x, nil, nil, random(3) + 2, random(3), {training = true})
    end},
    {"batch_norm in training without weight", {5, 3}, function(x)
      return F.batch_norm(x, nil, nil, nil, nil, {training = true}) ^ 2
    end},
    {"batch_norm in evaluation", {4, 3, 2}, function(x)
      return F.batch_norm(x, random(3), random(3):abs() + 1, random(3), random(3)) ^ 2
    end},
    {"layer_norm", {3, 4}, function(x) return F.layer_norm(x, {4}, random(4), random(4)) end},
    {"max_pool2d", {2, 3, 5, 5}, function(x) return F.max_pool2d(x ^ 3, 2) end},
    {"max_pool2d with overlap and padding", {1, 2, 5, 4}, function(x)
      return F.max_pool2d(x, 3, {stride = 2, padding = 1, ceil_mode = true}) ^ 3
    end},
    {"div rounding down", {6}, function(x) return x:div(0.7, "floor") * x ^ 2 end},
    {"floor_divide", {6}, function(x) return x:floor_divide(0.7) * x ^ 2 end},
    {"abs", {6}, function(x) return x:abs() * x ^ 2 end},
    {"sign, floor, ceil, round and trunc", {6}, function(x)
      return (x:sign() + x:floor() + x:ceil() + x:round() + x:trunc()) * x ^ 2
    end},
    {"l1_loss", {6}, function(x) return F.l1_loss(x ^ 2, random(6)) end},
    {"huber_loss", {6}, function(x) return F.huber_loss(x ^ 2, random(6), {delta = 0.3}) end},
    {"smooth_l1_loss", {6}, function(x) return F.smooth_l1_loss(x ^ 2, random(6)) end},
    {"roll by nothing", {6}, function(x) return x:roll(0) ^ 3 end},
    {"roll", {6}, function(x) return x:roll(2) ^ 3 end},
    {"zero_ and fill_", {6}, function(x)
      local y = x * 2
      y:narrow(0, 0, 2):zero_()
      y:narrow(0, 3, 1):fill_(3)
      return y * x ^ 2
    end},
    {"scatter_reduce of products with no, one, two and three zeros", {9}, function(x)
      local zeros = accelhost.tensor({1, 1, 0, 1, 0, 0, 0, 0, 0}, {dtype = "float64"})
      local index = accelhost.tensor({0, 0, 1, 1, 2, 2, 3, 3, 3}, {dtype = "int64"})
      local rest = x - random(9) * (1 - zeros) -- 0 at the x that is asked
      return accelhost.full({4}, 1.5, {dtype = "float64"}):scatter_reduce(0, index, rest, "prod") * x:sum()
    end},
    {"hardswish", {6}, function(x) return F.hardswish(x * 3) end},
    {"a comparison in place", {6}, function(x)
      local y = x * 2
      y:gt_(0)
      return y * x ^ 3
    end},
  }
  for _, case in ipairs(cases) do
    it("of " .. case[1] .. " agrees with differences", function()
      local x = random(unpack(case[2]))
      local y = case[3](x)
      assert.is_true(second_difference(case[3], x, random(unpack(y:shape()))) < 1e-6)
    end)
  end

  it("of batch_norm with respect to weight and input agrees with the composition", function()
    local x, w, b = random(4, 3), leaf {1, 2, 3}, leaf {0, 1, 0}
    x.requires_grad = true
    local function by_hand(input)
      local centred = input - input:mean(0)
      return centred / ((centred * centred):mean(0) + 1e-5):sqrt() * w + b
    end
    local function seconds(fn)
      local g = autograd.grad((fn(x) ^ 3):sum(), {x, w, b}, {create_graph = true})
      local total = (g[1] ^ 2):sum() + (g[2] ^ 2):sum() + (g[3] ^ 2):sum()
      local out = {}
      for _, t in ipairs(autograd.grad(total, {x, w, b})) do
        for _, value in ipairs(t:reshape(-1):tolist()) do out[#out + 1] = value end
      end
      return out
    end
    local ours = seconds(function(input) return F.batch_norm(input, nil, nil, w, b, {training = true}) end)
    for i, value in ipairs(seconds(by_hand)) do assert.near(value, ours[i], 1e-8 * (1 + math.abs(value))) end
  end)

  it("goes through a convolutional net with normalisation and pooling", function()
    accelhost.manual_seed(3)
    local net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
      nn.Linear(36, 2)):double()
    local x = random(2, 1, 8, 8)
    x.requires_grad = true
    local g = autograd.grad(net(x):pow(2):sum(), {x}, {create_graph = true})[1];
    (g * g):sum():backward()
    for _, p in ipairs(net:parameters()) do assert.equal(p:numel(), p.grad:isfinite():sum():item()) end
  end)
end)

describe("the derivative of picking by order", function()
  it("is a constant, with create_graph too", function()
    local x = accelhost.tensor({3, 1, 2}, {requires_grad = true})
    for _, pick in ipairs {
      function() return (x:sort()) end, function() return (x:topk(2)) end, function() return (x:max(0)) end,
    } do
      local slope = unpack(accelhost.autograd.grad(pick():sum(), {x}, {create_graph = true}))
      assert.is_false(slope.requires_grad)
    end
  end)

  it("of products by index is exact where one factor is 0, as PyTorch's", function()
    for _, name in ipairs {"scatter_reduce", "index_reduce"} do
      local x, index = leaf {0, 2, 3}, accelhost.tensor({0, 0, 0}, {dtype = "int64"})
      local y = accelhost[name](accelhost.ones({1}, {dtype = "float64"}), 0, index, x, "prod")
      local first = autograd.grad({y:sum()}, {x}, {create_graph = true})[1]
      assert.same({6, 0, 0}, first:tolist())
      assert.same({5, 3, 2}, autograd.grad({first:sum()}, {x})[1]:tolist())
    end
  end)
end)
