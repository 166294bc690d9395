-- nn.utils.prune against PyTorch (scripts/fixtures/prune.py).
local accelhost = require "accelhost"
local check = require "spec.support.check"
local fixtures = require("spec.support.fixtures").load "prune"
local nn = accelhost.nn
local prune = nn.utils.prune

local modules = {
  Linear = {function() return nn.Linear(4, 3) end, {2, 4}},
  Conv2d = {function() return nn.Conv2d(3, 4, 2) end, {1, 3, 3, 3}},
}

local function same_state(expected, module)
  local state, count = module:state_dict(), 0
  for name, values in pairs(expected) do
    check.near(values, state[name]:reshape(-1), 1e-12, name)
    count = count + 1
  end
  for _ in pairs(state) do count = count - 1 end
  assert.equal(0, count)
end

local function title(case)
  local words = {}
  for i, call in ipairs(case.calls) do
    local options = {}
    for key, value in pairs(call[2]) do options[#options + 1] = ("%s %s"):format(key, tostring(value)) end
    table.sort(options)
    words[i] = call[1] .. " (" .. table.concat(options, ", ") .. ")"
  end
  return ("a %s by %s"):format(case.module, table.concat(words, ", then "))
end

describe("Pruning", function()
  setup(function() accelhost.set_default_dtype "float64" end) -- as the fixture's: channels are drawn in this dtype
  teardown(function() accelhost.set_default_dtype "float32" end)

  for _, case in ipairs(fixtures.cases) do
    it(title(case) .. " has PyTorch's masks, results and gradients", function()
      accelhost.manual_seed(3)
      local make, shape = unpack(modules[case.module])
      local module = make()
      for _, call in ipairs(case.calls) do
        local options = {module = module, name = "weight"}
        for key, value in pairs(call[2]) do options[key] = value == "inf" and math.huge or value end
        assert.equal(module, prune[call[1]](options))
      end
      assert.is_true(prune.is_pruned(module))
      local x = accelhost.arange(accelhost.zeros(shape):numel(), {dtype = "float64"}):view(shape):cos()
      same_state(case.state, module)
      local output = module(x)
      output:sum():backward()
      check.near(case.output, output:detach():reshape(-1), 1e-12, "output")
      check.near(case.grad, module.weight_orig.grad:reshape(-1), 1e-12, "gradient")
      local original = module.weight_orig
      prune.remove(module, "weight")
      assert.equal(original, module.weight)
      check.near(case.removed, module.weight:detach():reshape(-1), 1e-12, "weight")
      assert.is_false(prune.is_pruned(module))
    end)
  end

  for _, case in ipairs(fixtures.global_cases) do
    it(("%g of several parameters together has PyTorch's masks (%d pruned before)"):format(case.amount, case.first),
      function()
        accelhost.manual_seed(3)
        local net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
        if case.first > 0 then prune.l1_unstructured(net[1], "bias", case.first) end
        prune.global_unstructured({{net[1], "weight"}, {net[2], "weight"}, {net[1], "bias"}}, prune.L1Unstructured,
          {amount = case.amount})
        same_state(case.state, net)
      end)
  end

  it("by importance scores removes the least important elements", function()
    local layer, scores = nn.Linear(2, 2), accelhost.tensor {{4, 3}, {2, 1}}
    prune.l1_unstructured(layer, "weight", {amount = 2, importance_scores = scores})
    assert.same({{1, 1}, {0, 0}}, layer.weight_mask:tolist())
    check.raises("L1Unstructured: expected a mask like 'weight' of Linear, of shape (2, 2), got a tensor of shape (3,)",
      function() prune.l1_unstructured(nn.Linear(2, 2), "weight", 1, accelhost.ones(3)) end)
  end)

  it("by a mask or a method of one's own combines with the masks before", function()
    local Every = prune.BasePruningMethod:extend "Every"
    Every.PRUNING_TYPE = "unstructured"
    function Every:init(step) self.step = step end
    function Every:compute_mask(t, default_mask)
      return default_mask * accelhost.arange(t:numel()):remainder(self.step):view_as(t)
    end
    local layer = nn.Linear(4, 2)
    prune.custom_from_mask(layer, "weight", accelhost.tensor {{1, 1, 0, 0}, {0, 0, 1, 1}})
    Every:apply(layer, "weight", 2)
    assert.same({{0, 1, 0, 0}, {0, 0, 0, 1}}, layer.weight_mask:tolist())
  end)

  it("trains the elements that are left and keeps the others at 0", function()
    local layer = prune.l1_unstructured(nn.Linear(4, 2), "weight", 0.5)
    local optimizer = accelhost.optim.SGD(layer:parameters(), {lr = 0.1})
    local before = layer.weight:detach():clone()
    layer(accelhost.ones(1, 4)):sum():backward()
    optimizer:step()
    layer(accelhost.ones(1, 4))
    assert.is_true(layer.weight:detach():eq(0):equal(before:eq(0)))
    assert.is_false(layer.weight:detach():equal(before))
  end)

  it("is saved and loaded, and copied", function()
    local layer = prune.l1_unstructured(nn.Linear(4, 2), "weight", 3)
    local copy, other = layer:deepcopy(), prune.identity(nn.Linear(4, 2), "weight")
    other:load_state_dict(layer:state_dict())
    local x = accelhost.randn(3, 4)
    assert.is_true(layer(x):equal(copy(x)))
    assert.is_true(layer(x):equal(other(x)))
    prune.remove(copy, "weight")
    assert.is_true(prune.is_pruned(layer))
    assert.is_false(prune.is_pruned(copy))
  end)

  it("refuses parameters and amounts that do not fit and leaves the module as it was", function()
    local layer = nn.Linear(4, 2)
    check.raises("Identity: Linear has no parameter 'wieght'", function() prune.identity(layer, "wieght") end)
    check.raises("L1Unstructured: amount: expected at most 8, got 9", function()
      prune.l1_unstructured(layer, "weight", 9)
    end)
    check.raises("amount: expected a fraction below 1 or a whole number, got 1.5", function()
      prune.random_unstructured(layer, "weight", 1.5)
    end)
    check.raises("LnStructured: expected a parameter of at least 2 dims, got shape (2,)", function()
      prune.ln_structured(layer, "bias", 1, 2, 0)
    end)
    check.raises("RandomStructured: dim: expected one of -2..1, got 2", function()
      prune.random_structured(layer, "weight", 1, 2)
    end)
    check.raises("remove: 'weight' of Linear is not pruned", function() prune.remove(layer, "weight") end)
    check.raises("expected a class of unstructured pruning", function()
      prune.global_unstructured({{layer, "weight"}}, prune.LnStructured, {amount = 1})
    end)
    check.raises("global_unstructured: parameters[1][1]: expected a module", function()
      prune.global_unstructured({{"weight", layer}}, prune.L1Unstructured, {amount = 1})
    end)
    assert.is_false(prune.is_pruned(layer))
    assert.same({2, 4}, layer:state_dict().weight:shape())
    assert.is_nil(layer:state_dict().weight_orig)
  end)
end)
