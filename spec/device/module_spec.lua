--- Modules and functions of nn on "far" while the default device is the CPU: a layer's intermediate tensors must be
-- stored where its input is, and the results are the CPU's to the bit.
local accelhost = require "accelhost"
local arguments = require "accelhost.util.arguments"
local check = require "spec.support.check"
local layers = require "spec.cases.layers".by_name

local nn, F = accelhost.nn, accelhost.nn.functional

-- The layer that a row trains, and copies of its inputs.
local function make(row, options)
  if row.make then return row.make(options) end
  local values, given = {unpack(row.arguments)}, {}
  for option, value in pairs(row.train or {}) do given[option] = value end
  local class = nn[row.name] -- loads its signature
  for _, parameter in ipairs(arguments.signatures[row.name] or {}) do
    if parameter.name == "device" then given.device = options.device end
  end
  values[#values + 1] = next(given) and given or nil
  return class(unpack(values))
end

local function inputs_of(row)
  local inputs = {}
  for i, input in ipairs(row.train_inputs or row.inputs) do inputs[i] = input:clone() end
  return inputs
end

-- Containers, and a base that is not made.
local others = {ModuleList = true, ModuleDict = true, ParameterList = true, ParameterDict = true, RNNBase = true}

-- Computed by several ops where a device has no kernel: the last bits differ from those of the CPU's kernel.
local by_ops = {GroupNorm = {output = 1e-5, gradients = 1e-4}}

local function same(what, expected, got, tolerance)
  assert.equal("far:0", got.device, what)
  if tolerance then
    local far = (expected - got:cpu()):abs():max():item()
    return assert.is_true(far <= tolerance, what .. " differs by " .. far)
  end
  assert.same(check.flat(expected), check.flat(got), what)
end

local function moved(tensors)
  local there = {}
  for i, tensor in ipairs(tensors) do there[i] = tensor:to "far" end
  return there
end

-- Forward and backward with fixed random numbers; leaves are the floating inputs.
local function run(fn, inputs)
  for _, input in ipairs(inputs) do
    if input:is_floating_point() then input:requires_grad_() end
  end
  accelhost.manual_seed(3)
  local output = fn(unpack(inputs))
  if output.requires_grad then (output * output):sum():backward() end
  return output:detach()
end

describe("on another device", function()
  local of_devices = {}
  for name, layer in pairs(layers) do
    if layer.devices ~= false then of_devices[name] = layer end
  end

  for name, layer in pairs(of_devices) do
    it("a moved nn." .. name .. " equals itself on the CPU", function()
      accelhost.manual_seed(1)
      local here = make(layer, {device = "cpu"})
      accelhost.manual_seed(1)
      local there = make(layer, {device = "cpu"}):to "far"
      local inputs = inputs_of(layer)
      local inputs_there = moved(inputs)
      local near = by_ops[name] or {}
      same("output", run(here, inputs), run(there, inputs_there), near.output)
      for i, input in ipairs(inputs) do
        if input.grad then same("gradient of input " .. i, input.grad, inputs_there[i].grad, near.gradients) end
      end
      local parameters = here:parameters()
      for i, parameter in ipairs(there:parameters()) do
        local expected = parameters[i].grad
        if expected then same("gradient of parameter " .. i, expected, parameter.grad, near.gradients) end
      end
      local state = here:state_dict()
      for key, tensor in pairs(there:state_dict()) do same(key, state[key], tensor) end
    end)
  end

  it("each layer is tested", function()
    local file = assert(io.open "lua/accelhost/nn/init.lua")
    local names = file:read("*a"):match "local files = (%b{})"
    file:close()
    for name in names:gmatch '"([%w_]+)"' do
      assert(layers[name] or others[name], "nn." .. name .. " is missing in spec/cases/layers.lua")
    end
  end)

  it("layers are made there when asked for", function()
    for _, layer in pairs(of_devices) do
      for key, tensor in pairs(make(layer, {device = "far:1"}):state_dict()) do
        assert.equal("far:1", tensor.device, key)
      end
    end
  end)

  local functions = {
    gumbel_softmax = function(x) return F.gumbel_softmax(x, {hard = true}) end,
    normalize = function(x) return F.normalize(x) end,
    cosine_similarity = function(x) return F.cosine_similarity(x, x * 2) end,
    pairwise_distance = function(x) return F.pairwise_distance(x, x * 2) end,
    pad = function(x) return F.pad(x, {1, 2, -1, 1}, {value = 3}) end,
    one_hot = function(x) return F.one_hot(x:gt(0):long()):float() end,
    attention = function(x)
      local q = x:view(1, 4, 6)
      return F.scaled_dot_product_attention(q, q, q, {is_causal = true})
    end,
    attention_without_scores = function(x)
      local q = x:view(1, 1, 24, 1)
      return F.scaled_dot_product_attention(q, q, q, {is_causal = true})
    end,
    varlen_attn = function(x)
      local q, cu = x:view(4, 2, 3), accelhost.tensor({0, 1, 4}, {dtype = "int32", device = x.device})
      return F.varlen_attn(q, q, q, cu, cu, 3, 3, {is_causal = true})
    end,
    repeat_interleave = function(x) return x:repeat_interleave(x:gt(0):long():select(1, 0), 0) end,
    split = function(x) return x:split(3)[2] end,
    take_mask = function(x) return x[x:gt(0)] end,
    dropout = function(x) return F.dropout(x, 0.3) end,
    multinomial = function(x) return x:softmax(1):multinomial(3):float() end,
  }
  for name, fn in pairs(functions) do
    it(name .. " equals itself on the CPU", function()
      accelhost.manual_seed(1)
      local x = accelhost.randn(4, 6)
      local y = x:to "far"
      same("result", run(fn, {x}), run(fn, {y}))
      if x.grad then same("gradient", x.grad, y.grad) end
    end)
  end

  it("initialisers fill where the tensor is", function()
    for _, name in ipairs {"xavier_uniform_", "kaiming_normal_", "orthogonal_", "trunc_normal_", "eye_", "zeros_"} do
      accelhost.manual_seed(1)
      local here = nn.init[name](accelhost.empty(4, 3))
      accelhost.manual_seed(1)
      same(name, here, nn.init[name](accelhost.empty({4, 3}, {device = "far"})))
    end
    accelhost.manual_seed(1)
    local here = nn.init.sparse_(accelhost.empty(4, 3), 0.5)
    accelhost.manual_seed(1)
    same("sparse_", here, nn.init.sparse_(accelhost.empty({4, 3}, {device = "far"}), 0.5))
  end)

  it("a state_dict is loaded across devices", function()
    local here, there = nn.BatchNorm1d(3), nn.BatchNorm1d(3, {device = "far"})
    here(accelhost.randn(4, 3))
    there:load_state_dict(here:state_dict())
    for key, tensor in pairs(there:state_dict()) do same(key, here:state_dict()[key], tensor) end
    here:load_state_dict(there:state_dict())
    assert.equal("cpu", here.weight.device)
  end)

  it("a module is moved there and back with its gradients", function()
    local net = nn.Linear(3, 2)
    net(accelhost.randn(4, 3)):sum():backward()
    local weight, grad = net.weight, net.weight.grad:tolist()
    net:to "far:1"
    assert.equal(weight, net.weight)
    assert.equal("far:1", net.weight.device)
    assert.equal("far:1", net.weight.grad.device)
    net:cpu()
    assert.equal("cpu", net.bias.device)
    assert.same(grad, net.weight.grad:tolist())
  end)

  it("clipping and norms of gradients stay there", function()
    local net = nn.Linear(3, 2, {device = "far"})
    net(accelhost.randn({4, 3}, {device = "far"})):sum():backward()
    local norm = nn.utils.clip_grad_norm_(net:parameters(), 0.1)
    assert.equal("far:0", norm.device)
    assert.equal("far:0", net.weight.grad.device)
    nn.utils.clip_grad_value_(net:parameters(), 0.01)
  end)
end)
