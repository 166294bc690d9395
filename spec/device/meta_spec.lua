--- Device "meta": the ops of the case table return tensors of the CPU's shapes and dtypes, forward and backward, and
-- ops that need values report it.
local accelhost = require "accelhost"
local ops = require "spec.support.ops"

local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim

local function equal(what, expected, got)
  assert.same({"meta", expected.dtype, expected:shape()}, {got.device, got.dtype, got:shape()}, what)
end

-- Ops whose results' shapes depend on values, or that read values to choose their way; by their error.
local by_values = {
  "the shape of the result depends on values, and a tensor on meta has none",
  "a tensor on meta has a shape and no values",
}

local function needs_values(message)
  for _, text in ipairs(by_values) do
    if tostring(message):find(text, 1, true) then return true end
  end
end

describe("the op table on meta", function()
  local refused = {}
  for _, case in ipairs(ops.cases) do
    if #case.inputs > 0 then
      it(case.name .. " has the CPU's shapes", function()
        local here = ops.inputs(case, {grad = true})
        local there = ops.moved(here, "meta")
        local expected = ops.call(case, here)
        local fine, got = pcall(ops.call, case, there)
        if fine then
          for i, output in ipairs(expected) do equal("output " .. i, output, got[i]) end
          if not case.grads then return end
          ops.backward(expected)
          fine, got = pcall(ops.backward, got)
        end
        if not fine then
          assert.truthy(needs_values(got), got)
          refused[case.op] = true
          return
        end
        for i in ipairs(case.grads) do
          if here[i].grad then equal("gradient of input " .. i, here[i].grad, there[i].grad) end
        end
      end)
    end
  end

  it("refuses those ops alone that need values", function()
    local names = {}
    for name in pairs(refused) do names[#names + 1] = name end
    table.sort(names)
    assert.same({
      "argwhere", "bincount", "cov", "cumprod", "histc", "index_fill", "index_put", "linspace", "logspace",
      "masked_scatter", "masked_select", "median", "multi_margin_loss", "multilabel_margin_loss", "nanmedian",
      "nanquantile", "narrow", "nonzero", "norm", "normal", "quantile", "repeat_interleave", "unique",
      "unique_consecutive", "unravel_index", "where",
    }, names)
  end)
end)

describe("a tensor on meta", function()
  it("prints its shape, type and history", function()
    local x = accelhost.empty({2, 3}, {device = "meta"})
    assert.equal("tensor(..., device='meta', size=(2, 3))", tostring(x))
    assert.equal("tensor(..., device='meta', size=(4,), dtype=int64)",
      tostring(accelhost.zeros(4, {device = "meta", dtype = "int64"})))
    assert.equal("tensor(..., device='meta', size=(), grad_fn=<SumBackward>)", tostring(x:requires_grad_():sum()))
  end)

  it("has no values to read", function()
    local x = accelhost.ones({3}, {device = "meta"})
    for _, fn in ipairs {
      function() return x[0]:item() end, function() return x:tolist() end, function() return x:cpu() end,
      function() return accelhost.save(x, "nowhere.safetensors") end, function() return accelhost.nonzero(x) end,
    } do
      local fine, message = pcall(fn)
      assert.is_false(fine)
      assert.truthy(needs_values(message), message)
    end
  end)

  it("allocates no memory, only counts it", function()
    collectgarbage()
    local before = accelhost.memory_stats("meta").live
    local x = accelhost.empty({2 ^ 38}, {device = "meta"})
    assert.equal(2 ^ 40, accelhost.memory_stats("meta").live - before)
    x:free()
    assert.equal(before, accelhost.memory_stats("meta").live)
    assert.error_matches(function() return accelhost.empty({2 ^ 44}, {device = "meta"}) end,
      "empty: meta: 70368744177664 bytes asked for, of addresses for %d+$")
  end)

  it("is filled by every initialiser, whatever the default device", function()
    accelhost.set_default_device "meta"
    finally(function() accelhost.set_default_device "cpu" end)
    for name, argument in pairs {
      uniform_ = 0, normal_ = 0, constant_ = 1, ones_ = false, zeros_ = false, eye_ = false, xavier_uniform_ = 1,
      xavier_normal_ = 1, kaiming_uniform_ = 0, kaiming_normal_ = 0, trunc_normal_ = 0, orthogonal_ = 1,
      sparse_ = 0.5,
    } do
      local tensor = accelhost.empty(4, 3)
      local filled = argument and nn.init[name](tensor, argument) or nn.init[name](tensor)
      assert.same({"meta", {4, 3}}, {filled.device, filled:shape()}, name)
    end
    assert.equal("cpu", nn.init.trunc_normal_(accelhost.empty({3}, {device = "cpu"})).device)
  end)

  it("runs a training step, the optimizer's state included", function()
    local net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
      nn.Linear(4 * 13 * 13, 10)):to "meta"
    local optimizer = optim.AdamW(net:parameters())
    local loss = F.cross_entropy(net(accelhost.randn({8, 1, 28, 28}, {device = "meta"})),
      accelhost.zeros({8}, {device = "meta", dtype = "int64"}))
    loss:backward()
    optimizer:step()
    for _, parameter in ipairs(net:parameters()) do
      assert.same(parameter:shape(), parameter.grad:shape())
      assert.equal("meta", optimizer.state[parameter].exp_avg.device)
    end
  end)
end)
