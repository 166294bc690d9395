-- Parametrizations: tensors of a module that are functions of others.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local nn = accelhost.nn
local parametrize = nn.utils.parametrize

local Symmetric = nn.Module:extend "Symmetric"
function Symmetric.forward(_, x) return x:triu() + x:triu(1):transpose(0, 1) end
function Symmetric.right_inverse(_, x) return x:triu() end

local Double = nn.Module:extend "Double"
function Double:init() self.calls = 0 end
function Double:forward(x)
  self.calls = self.calls + 1
  return x * 2
end

local Split = nn.Module:extend "Split"
function Split.forward(_, a, b) return accelhost.cat({a, b}, 0) end
function Split.right_inverse(_, x) return x:narrow(0, 0, 1), x:narrow(0, 1, x:size(0) - 1) end

describe("A parametrized tensor", function()
  it("is computed from its original, which gets the gradient", function()
    local layer = nn.Linear(3, 3)
    assert.equal(layer, parametrize.register_parametrization(layer, "weight", Symmetric()))
    assert.same(layer.weight:transpose(0, 1):tolist(), layer.weight:tolist())
    layer(accelhost.ones(1, 3)):sum():backward()
    local original = layer.parametrizations.weight.original
    assert.same({{1, 2, 2}, {0, 1, 2}, {0, 0, 1}}, original.grad:tolist())
    local names = {}
    for name in layer:named_parameters() do names[#names + 1] = name end
    assert.same({"bias", "parametrizations.weight.original"}, names)
  end)

  it("accepts a value through the right_inverse, in place", function()
    local layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Symmetric())
    local original = layer.parametrizations.weight.original
    layer.weight = accelhost.tensor {{1, 2}, {2, 3}}
    assert.same({{1, 2}, {0, 3}}, original:tolist())
    assert.equal(original, layer.parametrizations.weight.original)
    assert.same({{1, 2}, {2, 3}}, layer.weight:tolist())
  end)

  it("may have several parametrizations, applied in order", function()
    local layer = nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    parametrize.register_parametrization(layer, "weight", Double())
    layer.parametrizations.weight.original:requires_grad_(false):fill_(3)
    assert.same({{6, 6}, {6, 6}}, layer.weight:tolist())
    assert.matches("%(weight%): ParametrizationList%(\n      %(0%): Symmetric%(%)\n      %(1%): Double%(%)",
      tostring(layer))
    check.raises("Double: it has no right_inverse, which assigning to a parametrized tensor needs", function()
      layer.weight = accelhost.ones(2, 2)
    end)
  end)

  it("may be computed from several originals", function()
    local layer = nn.Linear(2, 3)
    local before = layer.weight:tolist()
    parametrize.register_parametrization(layer, "weight", Split())
    assert.same(before, layer.weight:tolist())
    local list = layer.parametrizations.weight
    assert.same({1, 2}, {list.original0:size(0), list.original1:size(0)})
    assert.is_true(nn.is_parameter(list.original1))
    check.raises("'weight' of ParametrizedLinear is made of 2 tensors", function()
      parametrize.remove_parametrizations(layer, "weight", {leave_parametrized = false})
    end)
    parametrize.remove_parametrizations(layer, "weight")
    assert.same(before, layer.weight:tolist())
    assert.equal("Linear(in_features=2, out_features=3, bias=True)", tostring(layer))
  end)

  it("may be a buffer", function()
    local bn = nn.BatchNorm1d(2)
    parametrize.register_parametrization(bn, "running_mean", Double())
    bn.parametrizations.running_mean.original:fill_(2)
    assert.same({4, 4}, bn.running_mean:tolist())
    assert.equal(2, #bn:parameters())
    parametrize.remove_parametrizations(bn, "running_mean", {leave_parametrized = false})
    assert.same({2, 2}, bn.running_mean:tolist())
    assert.same({2, 2}, bn:state_dict().running_mean:tolist())
  end)

  it("is a parameter again, the same one, when its parametrizations are removed", function()
    local layer = nn.Linear(2, 2)
    local weight = layer.weight
    parametrize.register_parametrization(layer, "weight", Symmetric())
    local value = layer.weight:tolist()
    assert.equal(nn.Linear, parametrize.type_before_parametrizations(layer))
    parametrize.remove_parametrizations(layer, "weight")
    assert.equal(weight, layer.weight)
    assert.same(value, layer.weight:tolist())
    assert.equal(nn.Linear, getmetatable(layer))
    assert.is_nil(layer.parametrizations)
  end)

  it("is distinguished", function()
    local layer = nn.Linear(2, 2)
    assert.is_false(parametrize.is_parametrized(layer))
    parametrize.register_parametrization(layer, "weight", Double())
    assert.is_true(parametrize.is_parametrized(layer))
    assert.is_true(parametrize.is_parametrized(layer, "weight"))
    assert.is_false(parametrize.is_parametrized(layer, "bias"))
  end)

  it("is computed once inside of cached", function()
    local double = Double()
    local layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", double)
    double.calls = 0
    local a, b = parametrize.cached(function() return layer.weight, layer.weight end)
    assert.equal(a, b)
    assert.equal(1, double.calls)
    assert.is_false(layer.weight == layer.weight)
    assert.is_false(pcall(parametrize.cached, error, "x"))
    assert.is_false(layer.weight == layer.weight)
  end)

  it("is copied, saved and loaded with the module, and steps with an optimizer", function()
    local layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Symmetric())
    local copy = layer:deepcopy()
    local optimizer = accelhost.optim.SGD(copy:parameters(), {lr = 0.5})
    copy(accelhost.ones(1, 2)):sum():backward()
    optimizer:step()
    assert.is_not.same(layer.weight:tolist(), copy.weight:tolist())
    assert.same(copy.weight:transpose(0, 1):tolist(), copy.weight:tolist())
    layer:load_state_dict(copy:state_dict())
    assert.same(copy.weight:tolist(), layer.weight:tolist())
  end)

  it("follows its module to another dtype and mode", function()
    local double = Double()
    local layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", double):to "float64":eval()
    assert.equal("float64", layer.weight.dtype)
    assert.is_false(double.training)
  end)

  it("keeps shape and dtype unless that is allowed", function()
    local Sum = nn.Module:extend "Sum"
    function Sum.forward(_, x) return x:sum(0) end
    check.raises("Sum: expected it to return a float32 (2, 3) as the tensor is, got float32 (3,)", function()
      parametrize.register_parametrization(nn.Linear(3, 2), "weight", Sum())
    end)
    local layer = parametrize.register_parametrization(nn.Linear(3, 2), "weight", Sum(), {unsafe = true})
    assert.same({3}, layer.weight:shape())
    local None = nn.Module:extend "None"
    function None.forward() end
    check.raises("register_parametrization: None: expected it to return a tensor, got nil", function()
      parametrize.register_parametrization(nn.Linear(3, 2), "weight", None())
    end)
  end)

  it("is transferred to another module, with the original's values", function()
    local from = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Symmetric())
    parametrize.register_parametrization(from, "bias", Double())
    local to = nn.Linear(2, 2)
    local bias = to.bias:tolist()
    assert.equal(to, parametrize.transfer_parametrizations_and_params(from, to, "weight"))
    assert.same(from.weight:tolist(), to.weight:tolist())
    assert.same(bias, to.bias:tolist())
    parametrize.transfer_parametrizations_and_params(from, nn.Identity())
    local empty = parametrize.transfer_parametrizations_and_params(from, nn.Identity(), "bias")
    assert.same(from.bias:tolist(), empty.bias:tolist())
  end)

  it("has to be there", function()
    check.raises("register_parametrization: Linear has no parameter or buffer 'wait'", function()
      parametrize.register_parametrization(nn.Linear(1, 1), "wait", Double())
    end)
    check.raises("remove_parametrizations: 'weight' of Linear is not parametrized", function()
      parametrize.remove_parametrizations(nn.Linear(1, 1), "weight")
    end)
  end)
end)
