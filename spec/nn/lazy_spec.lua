-- Layers that infer the size of their input: the same layer as the plain one of that size.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local layers = require "spec.cases.layers"
local nn, optim = accelhost.nn, accelhost.optim

-- The plain layer of the size that the row's input has, drawn from the same seed.
local function plain_of(name, lazy, arguments)
  local Plain = nn[name:gsub("^Lazy", "")]
  local size = lazy.in_features or lazy.in_channels or lazy.num_features
  local all = {size, unpack(arguments)}
  if name:find "InstanceNorm" then all[2] = {affine = true, track_running_stats = true} end
  accelhost.manual_seed(7)
  return Plain(unpack(all)), Plain
end

local function same_state(expected, module)
  local count = 0
  for name, tensor in nn.utils.state_pairs(expected:state_dict()) do
    assert.is_true(tensor:equal(module:state_dict()[name]), name)
    count = count + 1
  end
  assert.truthy(count > 0)
end

for _, row in ipairs(layers.lazy) do
  local name, arguments, input = row.name, row.arguments, row.inputs[1]:detach()

  describe("nn." .. name, function()
    it("becomes the plain layer with the first input, of the same weights and results", function()
      local lazy = nn[name](unpack(arguments))
      assert.equal(name, lazy:class_name())
      assert.is_true(lazy:has_uninitialized_params())
      accelhost.manual_seed(7)
      local output = lazy(input)
      local plain, Plain = plain_of(name, lazy, arguments)
      assert.equal(Plain, getmetatable(lazy))
      assert.equal(tostring(plain), tostring(lazy))
      assert.is_true(plain(input):equal(output))
      same_state(plain, lazy)
    end)

    it("gets its size from a state that is loaded before", function()
      local lazy, other = nn[name](unpack(arguments)), nn[name](unpack(arguments))
      lazy(input)
      other:load_state_dict(lazy:state_dict())
      assert.equal(getmetatable(lazy), getmetatable(other))
      same_state(lazy, other)
      assert.is_true(lazy:eval()(input):equal(other:eval()(input)))
    end)
  end)
end

describe("A lazy layer", function()
  local function make()
    return nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
  end
  local images = accelhost.ones(2, 3, 6, 6)

  it("is trained by an optimizer that was made before the first batch", function()
    local net = make()
    local optimizer = optim.AdamW(net:parameters(), {lr = 0.1})
    for _ = 1, 2 do
      net(images):sum():backward()
      local before = net[5].weight:clone()
      optimizer:step()
      optimizer:zero_grad()
      assert.is_false(before:equal(net[5].weight))
    end
    assert.same({2, 64}, net[5].weight:shape())
  end)

  it("is copied without a size, and the copy gets its own", function()
    local net = make()
    local copy = net:deepcopy()
    net(images)
    assert.equal("LazyConv2d", copy[1]:class_name())
    copy:load_state_dict(net:state_dict())
    assert.is_true(copy(images):equal(net(images)))
    local wider = make()
    wider(accelhost.ones(2, 5, 6, 6))
    assert.equal(5, wider[1].in_channels)
  end)

  it("keeps a dtype that it was converted to before the first batch", function()
    local net = make():double()
    assert.equal("float64", net(images:double()).dtype)
    assert.equal("float64", net[5].weight.dtype)
  end)

  it("saves a state without sizes that a layer without one loads", function()
    local lazy = nn.LazyLinear(3)
    assert.same({3, 0}, lazy:state_dict().weight:shape())
    assert.is_true(lazy:state_dict().bias:equal(accelhost.zeros(3)))
    nn.LazyLinear(3):load_state_dict(lazy:state_dict())
  end)

  it("is refused by prepare until a batch has passed, by its name", function()
    local accelerator, net = accelhost.Accelerator(), make()
    check.raises("prepare: '0' (LazyConv2d) has no sizes yet: call the model with one batch before prepare",
      function() accelerator:prepare(net) end)
    net(images)
    assert.equal(net, accelerator:prepare(net))
  end)

  it("refuses inputs of other numbers of dims", function()
    check.raises("LazyConv2d: expected an input of 3 or 4 dims, got shape (2,)", function()
      nn.LazyConv2d(2, 3)(accelhost.ones(2))
    end)
    check.raises("LazyBatchNorm1d: expected an input of at least 2 dims", function()
      nn.LazyBatchNorm1d()(accelhost.ones(2))
    end)
    check.raises("LazyLinear: expected a tensor, got 'x'", function() nn.LazyLinear(2) "x" end)
  end)
end)
