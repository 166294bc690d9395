local accelhost = require "accelhost"
local run = require "spec.support.run"
local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim

describe("an accelerator", function()
  for _, ranks in ipairs {1, 2, 3} do
    it(("keeps its promises in %d process%s"):format(ranks, ranks == 1 and "" or "es"), function()
      local result = run.host({"launch", "--num_processes", ranks, "spec/distributed/cases/accelerator.lua"},
        {timeout = 120})
      assert.equal((ranks > 1 and ("[r0-r%d] "):format(ranks - 1) or "") .. "ok\n", result.stdout)
      assert.equal(0, result.code)
      assert.matches("2 parameters of the model got no gradient on any process: none.weight, none.bias", result.stderr)
    end)

    it(("keeps the window of each model in %d process%s"):format(ranks, ranks == 1 and "" or "es"), function()
      local result = run.host({"launch", "--num_processes", ranks, "spec/distributed/cases/windows.lua"},
        {timeout = 120})
      assert.equal((ranks > 1 and ("[r0-r%d] "):format(ranks - 1) or "") .. "ok\n", result.stdout)
      assert.equal(0, result.code)
      assert.matches("a new pass began inside an accumulation window", result.stderr)
    end)
  end

  it("passes unknown objects and nil through prepare, in order", function()
    local accelerator = accelhost.Accelerator()
    local model = nn.Linear(1, 1)
    local a, b, c = accelerator:prepare("text", nil, model)
    assert.equal("text", a)
    assert.is_nil(b)
    assert.equal(model, c)
  end)

  it("names a misspelt option and a wrong value", function()
    assert.error_matches(function() accelhost.Accelerator {gradient_acumulation_steps = 2} end, "unknown option")
    assert.error_matches(function() accelhost.Accelerator {gradient_accumulation_steps = 0} end, "at least 1")
    assert.error_matches(function() accelhost.Accelerator {mixed_precision = "fp16"} end, "mixed_precision")
    assert.error_matches(function() accelhost.Accelerator("cpu") end, "expected a table of options, got 'cpu'")
    assert.error_matches(function() accelhost.Accelerator():no_sync(nn.Linear(1, 1)) end, "no_sync: expected a model")
    assert.equal("Accelerator(process 0 of 1, cpu)", tostring(accelhost.Accelerator()))
  end)

  it("works twice in one process", function()
    for _ = 1, 2 do
      local accelerator = accelhost.Accelerator()
      local model = nn.Linear(2, 1)
      local optimizer = optim.SGD(model:parameters(), {lr = 0.1})
      model, optimizer = accelerator:prepare(model, optimizer)
      accelerator:backward(model(accelhost.ones(1, 2)):sum())
      optimizer:step()
      optimizer:zero_grad()
      assert.is_nil(model.weight.grad)
    end
  end)

  it("carries over gradients and optimizer state from before prepare", function()
    local model = nn.Linear(2, 1)
    local optimizer = optim.SGD(model:parameters(), {lr = 0.1, momentum = 0.9})
    model(accelhost.ones(1, 2)):sum():backward()
    optimizer:step()
    local before = model.weight.grad:tolist()
    accelhost.Accelerator():prepare(model, optimizer)
    assert.same(before, model.weight.grad:tolist())
    optimizer:step()
  end)

  it("steps a scheduler once per optimizer step and not inside a window", function()
    local accelerator = accelhost.Accelerator {gradient_accumulation_steps = 2}
    local model = nn.Linear(1, 1)
    local optimizer = optim.SGD(model:parameters(), {lr = 1})
    local scheduler = optim.lr_scheduler.LambdaLR(optimizer, function(step) return 1 - step / 10 end)
    model, optimizer, scheduler = accelerator:prepare(model, optimizer, scheduler)
    local rates = {}
    for i = 1, 4 do
      accelerator:accumulate(model)
      accelerator:backward(model(accelhost.ones(1, 1)):sum())
      optimizer:step()
      scheduler:step()
      optimizer:zero_grad()
      rates[i] = optimizer.param_groups[1].lr
    end
    assert.same({1, 0.9, 0.9, 0.8}, rates)
  end)

  it("clips by the norm of all gradients", function()
    local accelerator = accelhost.Accelerator()
    local model = accelerator:prepare(nn.Linear(2, 1, {bias = false}))
    accelerator:backward(model(accelhost.tensor {{3, 4}}):sum())
    local norm = accelerator:clip_grad_norm_(model:parameters(), 1)
    assert.equal(5, norm:item())
    assert.is_true((model.weight.grad - accelhost.tensor {{0.6, 0.8}}):abs():max():item() < 1e-6)
  end)

  it("names what is no loss", function()
    local accelerator = accelhost.Accelerator()
    assert.error_matches(function() accelerator:backward(5) end, "backward: loss: expected a tensor, got number 5")
    assert.error_matches(function() accelerator:backward() end, "backward: loss: expected a tensor, got nil")
  end)

  it("restores synchronisation when no_sync's function raises", function()
    local accelerator = accelhost.Accelerator()
    pcall(accelerator.no_sync, accelerator, nn.Linear(1, 1), function() error("stop") end)
    assert.is_true(accelerator.sync_gradients)
  end)

  it("lets a script train on after prepare without an accelerator's backward", function()
    local model = accelhost.Accelerator():prepare(nn.Linear(1, 1))
    F.mse_loss(model(accelhost.ones(2, 1)), accelhost.zeros(2, 1)):backward()
    assert.is_truthy(model.weight.grad)
  end)
end)
