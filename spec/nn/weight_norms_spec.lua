-- Weight and spectral norms, fused batch norms and initialisers against PyTorch.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local fixtures = require("spec.support.fixtures").load "nn_utils"
local nn, utils = accelhost.nn, accelhost.nn.utils

local float64 = {dtype = "float64"}
local modules = {
  Linear = {function() return nn.Linear(3, 4, float64) end, {2, 3}},
  Conv1d = {function() return nn.Conv1d(2, 3, 2, {bias = false, dtype = "float64"}) end},
  Conv2d = {function() return nn.Conv2d(2, 3, 2, float64) end, {1, 2, 3, 3}},
  ConvTranspose2d = {function() return nn.ConvTranspose2d(2, 3, 2, float64) end, {1, 2, 2, 2}},
}

local function call(name, layer, options)
  local space, last = utils, name
  if name:find "^parametrizations" then space, last = utils.parametrizations, name:match "%.(.*)" end
  local given = {module = layer}
  for key, value in pairs(options) do given[key] = value end
  return space[last](given)
end

local function title(case)
  local words = {}
  for key, value in pairs(case.options) do words[#words + 1] = key .. " " .. tostring(value) end
  table.sort(words)
  return ("%s of a %s (%s)"):format(case.call, case.module, table.concat(words, ", "))
end

describe("The numbers of", function()
  for _, case in ipairs(fixtures.norms) do
    it(title(case) .. " are PyTorch's", function()
      accelhost.manual_seed(3)
      local make, shape = unpack(modules[case.module])
      local layer = call(case.call, make(), case.options)
      local x = accelhost.randn(shape, float64)
      x.requires_grad = true
      for i = 1, 2 do
        local output = layer(x)
        check.near(case.outputs[i], output, 1e-12, "output " .. i);
        (output * accelhost.arange(output:numel(), float64):reshape(output:shape()):sin()):sum():backward()
      end
      local keys = {}
      for key in utils.state_pairs(layer:state_dict()) do keys[#keys + 1] = key end
      assert.same(case.keys, keys)
      for name, parameter in layer:named_parameters() do check.near(case.grads[name], parameter.grad, 1e-11, name) end
      check.near(case.grad_input, x.grad, 1e-11, "gradient of the input")
      layer:eval()
      check.near(case.outputs[3], layer(x), 1e-12, "output in evaluation mode")
      assert.equal(case.text, tostring(layer))
    end)
  end
end)

describe("A batch normalisation fused into", function()
  local norms = {
    Linear = "BatchNorm1d", Conv1d = "BatchNorm1d", Conv2d = "BatchNorm2d", ConvTranspose2d = "BatchNorm2d",
  }
  for _, case in ipairs(fixtures.fused) do
    it("a " .. case.module .. " has PyTorch's weights", function()
      accelhost.manual_seed(3)
      local layer = modules[case.module][1]()
      local bn = nn[norms[case.module]](case.module == "Linear" and 4 or 3, float64)
      accelhost.no_grad(function()
        for _, tensor in ipairs {bn.weight, bn.bias, bn.running_mean} do tensor:normal_() end
        bn.running_var:uniform_(0.5, 2)
      end)
      layer:eval()
      bn:eval()
      local fused = case.module == "Linear" and utils.fuse_linear_bn_eval(layer, bn)
        or utils.fuse_conv_bn_eval(layer, bn, case.module == "ConvTranspose2d")
      check.near(case.weight, fused.weight, 1e-13)
      check.near(case.bias, fused.bias, 1e-13)
      assert.is_not.equal(layer.weight, fused.weight)
    end)
  end

  it("a layer without a bias makes one that is not trained", function()
    local fused = utils.fuse_linear_bn_eval(nn.Linear(2, 3, {bias = false}):eval(), nn.BatchNorm1d(3):eval())
    assert.is_false(fused.bias.requires_grad)
    assert.is_true(fused.weight.requires_grad)
  end)

  it("a layer with another number of outputs is refused", function()
    check.raises("fuse_linear_bn_eval: expected as many features of bn as outputs of linear, or 1, got 2 and 3",
      function() utils.fuse_linear_bn_eval(nn.Linear(2, 3):eval(), nn.BatchNorm1d(2):eval()) end)
  end)

  it("a layer in training mode is refused, and so is one without statistics", function()
    check.raises("fuse_conv_bn_eval: expected both modules in evaluation mode; call :eval() on them", function()
      utils.fuse_conv_bn_eval(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1))
    end)
    check.raises("fuse_linear_bn_eval: bn: expected a batch normalisation with running statistics", function()
      utils.fuse_linear_bn_eval(nn.Linear(1, 1):eval(), nn.BatchNorm1d(1, {track_running_stats = false}):eval())
    end)
  end)
end)

describe("The initialiser", function()
  for _, case in ipairs(fixtures.init) do
    it(("%s of shape %s fills as PyTorch's"):format(case.call, table.concat(case.shape, " x ")), function()
      accelhost.manual_seed(3)
      local tensor = accelhost.empty(case.shape, float64)
      assert.equal(tensor, nn.init[case.call](tensor, case.options))
      check.near(case.values, tensor, 1e-15)
    end)
  end

  it("refuses shapes that it does not fit", function()
    check.raises("dirac_: expected 3 to 5 dims, got 2", function() nn.init.dirac_(accelhost.zeros(2, 2)) end)
    check.raises("dirac_: expected groups to divide the 3 outputs, got 2", function()
      nn.init.dirac_(accelhost.zeros(3, 1, 1), 2)
    end)
    check.raises("sparse_: expected 2 dims, got 3", function() nn.init.sparse_(accelhost.zeros(1, 1, 1), 0.5) end)
  end)
end)

describe("The older norms", function()
  it("are removed again and leave a parameter with the value", function()
    for _, name in ipairs {"weight_norm", "spectral_norm"} do
      local layer = utils[name](nn.Linear(3, 2)):eval()
      local x = accelhost.randn(1, 3)
      local before = layer(x):tolist()
      assert.equal(layer, utils["remove_" .. name](layer))
      check.near(before[1], layer(x), 1e-6)
      assert.is_true(nn.is_parameter(layer.weight))
      check.raises(("remove_%s: 'weight' of Linear has none"):format(name), function()
        utils["remove_" .. name](layer)
      end)
    end
  end)

  it("divide a weight of one dim by its length", function()
    local norm = utils.spectral_norm(nn.InstanceNorm1d(4, {affine = true}))
    norm(accelhost.randn(2, 4, 3))
    check.near({0.5, 0.5, 0.5, 0.5}, norm.weight, 1e-6)
  end)

  it("are carried along by a copy", function()
    local copy = utils.weight_norm(nn.Linear(3, 2)):deepcopy()
    accelhost.no_grad(function() copy.weight_g:zero_() end)
    check.near({copy.bias[0]:item(), copy.bias[1]:item()}, copy(accelhost.ones(3)), 0)
    assert.equal(copy, utils.remove_weight_norm(copy))
  end)

  it("are refused twice, and for tensors that are not parameters", function()
    local layer = utils.weight_norm(nn.Linear(2, 2))
    check.raises("weight_norm: 'weight' of Linear has one already", function() utils.weight_norm(layer) end)
    check.raises("weight_norm: Linear has no parameter 'wait'", function() utils.weight_norm(layer, "wait") end)
    check.raises("spectral_norm: dim 2 is out of range (expected -2..1)", function()
      utils.parametrizations.spectral_norm(nn.Linear(2, 2), {dim = 2})
    end)
  end)
end)

describe("skip_init", function()
  it("makes a module without drawing numbers", function()
    accelhost.manual_seed(3)
    local expected = accelhost.randn(2):tolist()
    accelhost.manual_seed(3)
    local layer = utils.skip_init(nn.Linear, 4, 3, {bias = false})
    assert.same({3, 4}, {layer.weight:size(0), layer.weight:size(1)})
    assert.same(expected, accelhost.randn(2):tolist())
    assert.is_false(nn.Linear(1, 1).weight:eq(nn.Linear(1, 1).weight):all():item())
  end)

  it("accepts classes of modules only", function()
    check.raises("skip_init: module_cls: expected a class of modules such as nn.Linear, got a Linear", function()
      utils.skip_init(nn.Linear(1, 1))
    end)
  end)
end)
