local accelhost = require "accelhost"
local run = require "spec.support.run"
local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim

describe("A prepared optimizer", function()
  for _, ranks in ipairs {1, 2, 3} do
    it(("steps in %d processes as one does on the global batch"):format(ranks), function()
      local result = run.host({"launch", "--num_processes", ranks, "spec/distributed/cases/optimizers.lua"},
        {timeout = 120})
      assert.equal("", result.stderr)
      assert.same(run.everyone(ranks, "ok\n"), run.by_rank(result.stdout), result.output)
      run.succeeds(result)
    end)
  end
end)

describe("an accelerator", function()
  for _, ranks in ipairs {1, 2, 3} do
    it(("keeps its promises in %d process%s"):format(ranks, ranks == 1 and "" or "es"), function()
      local result = run.host({"launch", "--num_processes", ranks, "spec/distributed/cases/accelerator.lua"},
        {timeout = 120})
      assert.same(run.everyone(ranks, "ok\n"), run.by_rank(result.stdout), result.output)
      run.succeeds(result)
      assert.matches("2 parameters of the model got no gradient on any process: none.weight, none.bias", result.stderr)
    end)

    it(("keeps the window of each model in %d process%s"):format(ranks, ranks == 1 and "" or "es"), function()
      local result = run.host({"launch", "--num_processes", ranks, "spec/distributed/cases/windows.lua"},
        {timeout = 120})
      assert.same(run.everyone(ranks, "ok\n"), run.by_rank(result.stdout), result.output)
      run.succeeds(result)
      assert.matches("a new pass began inside an accumulation window", result.stderr)
    end)

    it(("averages gradients of a plain backward in %d process%s"):format(ranks, ranks == 1 and "" or "es"), function()
      local result = run.host({"launch", "--num_processes", ranks, "spec/distributed/cases/plain.lua"}, {timeout = 120})
      assert.same(run.everyone(ranks, "ok\n"), run.by_rank(result.stdout), result.output)
      run.succeeds(result)
      assert.equal(ranks > 1, result.stderr:find("the loss depends on no prepared model", 1, true) ~= nil)
    end)

    it(("forgets objects that a script drops in %d process%s"):format(ranks, ranks == 1 and "" or "es"), function()
      local result = run.host({"launch", "--num_processes", ranks, "spec/distributed/cases/again.lua"}, {timeout = 120})
      assert.same(run.everyone(ranks, "ok\n"), run.by_rank(result.stdout), result.output)
      run.succeeds(result)
    end)
  end

  for _, ranks in ipairs {2, 3} do
    it(("sends buckets early for one of several models in %d processes"):format(ranks), function()
      local result = run.host({"launch", "--num_processes", ranks, "spec/distributed/cases/several.lua"})
      assert.same(run.everyone(ranks, "ok\n"), run.by_rank(result.stdout), result.output)
      run.succeeds(result)
    end)
  end

  local unprepared = {
    accelerator = "backward: the loss depends on no prepared model",
    plain = "backward: the loss depends on no prepared model",
    step = "SGD:step: parameter 1 1 x 2 belongs to no prepared model",
  }
  for way, text in pairs(unprepared) do
    it("reports that a model was not prepared: " .. way, function()
      for ranks = 1, 2 do
        local result = run.host({"launch", "--num_processes", ranks, "spec/distributed/cases/unprepared.lua", way},
          {timeout = 60})
        assert.equal(0, result.code, result.output)
        if ranks == 1 then
          assert.equal("", result.stderr)
        else
          assert.is_truthy(result.stderr:find(text, 1, true), result.output)
        end
      end
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
    assert.error_matches(function() accelhost.Accelerator {mixed_precision = "fp7"} end, "mixed_precision")
    assert.error_matches(function() accelhost.Accelerator {cpu = "yes"} end, "cpu: expected true or false, got 'yes'")
    assert.error_matches(function() accelhost.Accelerator("cpu") end, "device_placement: expected true or false")
    assert.error_matches(function() accelhost.Accelerator():no_sync(nn.Linear(1, 1)) end, "no_sync: expected a model")
    local device = accelhost.get_default_device()
    assert.equal("Accelerator(process 0 of 1, " .. device .. ")", tostring(accelhost.Accelerator()))
  end)

  it("refuses arguments that would be ignored silently", function()
    local accelerator = accelhost.Accelerator()
    assert.error_matches(function() accelerator:prepare {nn.Linear(1, 1)} end,
      "argument 1 is a table that holds a Linear: pass the objects themselves")
    assert.error_matches(function() accelerator:gather_for_metrics() end, "expected values, got nothing")
    assert.error_matches(function() accelerator:gather_for_metrics(nil) end, "got nil")
    assert.error_matches(function() accelerator.sync_gradients = 1 end, "sync_gradients: expected true or false")
    assert.error_matches(function() accelerator.gradient_state.sync_gradients = true end, "GradientState")
    assert.matches("^GradientState%(sync_gradients=true, num_steps=1%)$", tostring(accelerator.gradient_state))
  end)

  it("names an unknown field, read or written", function()
    local accelerator = accelhost.Accelerator()
    assert.error_matches(function() return accelerator.is_main_proces end, "is_main_proces.*mean 'is_main_process'")
    assert.error_matches(function() accelerator.gradient_acumulation_steps = 2 end,
      "mean 'gradient_accumulation_steps'")
    assert.error_matches(function() accelerator:prepair() end, "mean 'prepare'")
    accelerator.gradient_accumulation_steps = 2
    assert.equal(2, accelerator.gradient_accumulation_steps)
  end)

  it("asks for a colon", function()
    local accelerator, model = accelhost.Accelerator(), nn.Linear(1, 1)
    local optimizer = optim.SGD(model:parameters())
    assert.error_matches(function() return accelerator.prepare(model) end, "got a Linear; write object:prepare%(...%)")
    assert.error_matches(function() accelerator.backward(model.weight:sum()) end, "write object:backward%(...%)")
    assert.error_matches(function() accelerator.print("x") end, "got 'x'; write object:print%(...%)")
    assert.error_matches(function() optimizer.step() end, "got nil; write object:step%(...%)")
  end)

  it("has Accelerate's settings as fields", function()
    local accelerator = accelhost.Accelerator {split_batches = true, even_batches = false, cpu = true,
      device_placement = false, step_scheduler_with_optimizer = false}
    assert.same({true, false, "cpu", false, false}, {accelerator.split_batches, accelerator.even_batches,
      accelerator.device, accelerator.device_placement, accelerator.step_scheduler_with_optimizer})
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

  it("refuses to clip values that are not parameters", function()
    local accelerator = accelhost.Accelerator()
    local model = accelerator:prepare(nn.Linear(2, 1))
    accelerator:backward(model(accelhost.ones(1, 2)):sum())
    local function refused(text, ...)
      local given = {...}
      assert.error_matches(function() accelerator:clip_grad_norm_(unpack(given)) end, text)
    end
    refused("clip_grad_norm_: parameters: expected .* got a Linear", model, 1)
    refused("clip_grad_norm_: parameters: expected .* got a table", {model}, 1)
    refused("clip_grad_norm_: max_norm: expected a number", model:parameters(), "1")
    refused("norm_type: expected a number above 0", model:parameters(), 1, {norm_type = 0})
    refused("clip_grad_norm_: unknown option 'norm'", model:parameters(), 1, {norm = 1})
    assert.error_matches(function() accelerator:clip_grad_value_(model, 1) end,
      "clip_grad_value_: parameters: expected .* got a Linear")
  end)

  it("clips by other norms", function()
    local accelerator = accelhost.Accelerator()
    local model = accelerator:prepare(nn.Linear(2, 1, {bias = false}))
    for _, case in ipairs {{1, 7}, {"inf", 4}, {math.huge, 4}, {2, 5}} do
      for _, named in ipairs {true, false} do
        model:zero_grad()
        accelerator:backward(model(accelhost.tensor {{3, 4}}):sum())
        local norm = accelerator:clip_grad_norm_(model:parameters(), 1, named and {norm_type = case[1]} or case[1])
        assert.near(case[2], norm:item(), 1e-5)
      end
    end
  end)

  it("names values that are not losses", function()
    local accelerator = accelhost.Accelerator()
    assert.error_matches(function() accelerator:backward(5) end, "backward: loss: expected a tensor, got number 5")
    assert.error_matches(function() accelerator:backward() end, "backward: 'loss' is missing")
  end)

  it("restores synchronisation when no_sync's function raises", function()
    local accelerator = accelhost.Accelerator()
    pcall(accelerator.no_sync, accelerator, nn.Linear(1, 1), function() error("stop") end)
    assert.is_true(accelerator.sync_gradients)
  end)

  it("returns the functions' results, nils at the end included", function()
    local accelerator = accelhost.Accelerator()
    local function count(...) return select("#", ...), ... end
    local n, first = count(accelerator:no_sync(nn.Linear(1, 1), function() return 1, nil, nil end))
    assert.same({3, 1}, {n, first})
    n, first = count(accelerator:main_process_first(function() return 2, nil end))
    assert.same({2, 2}, {n, first})
  end)

  it("lets a script train on after prepare without an accelerator's backward", function()
    local model = accelhost.Accelerator():prepare(nn.Linear(1, 1))
    F.mse_loss(model(accelhost.ones(2, 1)), accelhost.zeros(2, 1)):backward()
    assert.is_truthy(model.weight.grad)
  end)
end)
