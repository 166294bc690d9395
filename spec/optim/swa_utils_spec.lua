-- Averaged weights against PyTorch.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local fixtures = require("spec.support.fixtures").load "nn_utils"
local nn, optim = accelhost.nn, accelhost.optim
local swa = optim.swa_utils

local float64 = {dtype = "float64"}

local function made(options)
  local given = {use_buffers = options.use_buffers}
  for _, name in ipairs {"avg_fn", "multi_avg_fn"} do
    if options[name] then given[name] = swa[options[name]](options.decay) end
  end
  return given
end

local function check_state(expected, model)
  local seen = 0
  for name, tensor in nn.utils.state_pairs(model:state_dict()) do
    check.near(expected[name], tensor, 1e-13, name)
    seen = seen + 1
  end
  for _ in pairs(expected) do seen = seen - 1 end
  assert.equal(0, seen)
end

describe("An averaged model", function()
  for number, case in ipairs(fixtures.averaged) do
    it("has PyTorch's weights, before and after update_bn: case " .. number, function()
      accelhost.manual_seed(3)
      local model = nn.Sequential(nn.Linear(2, 3, float64), nn.BatchNorm1d(3, float64))
      local average = swa.AveragedModel(model, made(case.options))
      local batches = {}
      for i = 1, 4 do batches[i] = accelhost.randn(4, 2, float64) end
      for _, batch in ipairs(batches) do
        model(batch)
        accelhost.no_grad(function()
          for _, p in ipairs(model:parameters()) do p:add_(accelhost.randn(p:shape(), float64)) end
        end)
        average:update_parameters(model)
      end
      check_state(case.state, average)
      local i = 0
      swa.update_bn(function()
        i = i + 1
        return batches[i]
      end, average)
      check_state(case.updated, average)
      assert.equal(0.1, average.module[2].momentum)
    end)
  end

  it("returns its copy's results, and keeps its mode through update_bn", function()
    local model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)):eval()
    local average = swa.AveragedModel(model)
    local x = accelhost.randn(3, 2)
    assert.same(model(x):tolist(), average(x):tolist())
    average:eval()
    swa.update_bn(accelhost.data.DataLoader(accelhost.data.TensorDataset(x, x), {batch_size = 3}), average)
    assert.is_false(average.module[2].training)
  end)

  it("refuses two functions, and a model of another structure", function()
    local fn = swa.get_swa_avg_fn()
    check.raises("AveragedModel: pass avg_fn or multi_avg_fn, not both", function()
      swa.AveragedModel(nn.Linear(1, 1), {avg_fn = fn, multi_avg_fn = fn})
    end)
    check.raises("update_parameters: expected a model of 2 tensors as at first, got 1", function()
      swa.AveragedModel(nn.Linear(1, 1)):update_parameters(nn.Linear(1, 1, {bias = false}))
    end)
    check.raises("get_ema_avg_fn: decay: expected a probability between 0 and 1", function() swa.get_ema_avg_fn(2) end)
  end)
end)

describe("SWALR", function()
  for number, case in ipairs(fixtures.swalr) do
    it("sets PyTorch's rates: case " .. number, function()
      local optimizer = optim.SGD {
        {params = {accelhost.zeros(1)}, lr = 0.1}, {params = {accelhost.zeros(1)}, lr = 0.02},
      }
      local scheduler = swa.SWALR(optimizer, case.options)
      for _, rates in ipairs(case.lrs) do
        check.near(rates, {optimizer.param_groups[1].lr, optimizer.param_groups[2].lr}, 1e-14)
        optimizer:step()
        scheduler:step()
      end
    end)
  end

  it("refuses another strategy, and rates that are not one per group", function()
    local optimizer = optim.SGD {accelhost.zeros(1)}
    check.raises("SWALR: unknown anneal_strategy 'step' (known: cos, linear)", function()
      swa.SWALR(optimizer, {swa_lr = 1, anneal_strategy = "step"})
    end)
    check.raises("SWALR: swa_lr: expected 1 values, one per parameter group, got 2", function()
      swa.SWALR(optimizer, {swa_lr = {1, 2}})
    end)
  end)
end)
