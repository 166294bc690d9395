--- GradScaler in steps that accelerator:compile captures, on the simulated GPU: steps that a graph skips, and the
--- host's state after them, against the same steps without a graph.
local optimizers = require "spec.cases.optimizers"
local sim = require "spec.support.sim"

local preamble = [[
  local accelhost = require "accelhost"
  local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim
  accelhost.set_default_device "cuda"
  local function text(value)
    if type(value) == "table" then
      local names, parts = {}, {}
      for name in pairs(value) do names[#names + 1] = name end
      table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
      for i, name in ipairs(names) do parts[i] = tostring(name) .. "=" .. text(value[name]) end
      return "{" .. table.concat(parts, " ") .. "}"
    end
    if accelhost.is_tensor(value) then return text(value:flatten():tolist()) end
    return type(value) == "number" and ("%.17g"):format(value) or tostring(value)
  end
  local function batch(factor)
    local x = accelhost.randn({8, 12}, {device = "cpu"}) * (factor or 1)
    return x:to "cuda", accelhost.randint(0, 10, {8}, {device = "cpu"}):to "cuda"
  end
  local function fp16(scale, interval)
    return {mixed_precision = "fp16", kwargs_handlers = {accelhost.GradScalerKwargs{init_scale = scale or 1024,
      growth_interval = interval or 5}}}
  end
  -- A step of a small net in float16, and its objects.
  local function new_step(options)
    accelhost.manual_seed(3)
    local accelerator = accelhost.Accelerator(fp16(options.scale, options.interval))
    local net = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 10))
    local optimizer = (options.optimizer or function(p) return optim.AdamW(p, {lr = 0.05}) end)(net:parameters())
    local scheduler = options.scheduler and options.scheduler(optimizer)
      or optim.lr_scheduler.CosineAnnealingLR(optimizer, {T_max = 20})
    net, optimizer, scheduler = accelerator:prepare(net, optimizer, scheduler)
    local function step(x, y)
      local loss = F.cross_entropy(net(x), y)
      accelerator:backward(loss)
      if options.clip then accelerator:clip_grad_norm_(net:parameters(), options.clip) end
      optimizer:step()
      if not options.schedule_outside then scheduler:step() end
      optimizer:zero_grad()
      return loss
    end
    return step, {accelerator = accelerator, net = net, optimizer = optimizer, scheduler = scheduler}
  end
  -- All that 20 steps leave behind; those in options.planted have gradients that overflow.
  local function train(compiled, options)
    local step, with = new_step(options)
    local call = compiled and with.accelerator:compile(step) or step
    local lines, planted = {}, options.planted or {[9] = true}
    for i = 1, options.steps or 20 do
      local loss = call(batch(planted[i] and math.huge or 1))
      if options.schedule_outside then with.scheduler:step() end
      if not options.silent then
        lines[#lines + 1] = text {loss:item(), with.accelerator.optimizer_step_was_skipped,
          with.accelerator.scaler:get_scale(), with.scheduler:get_last_lr()}
      end
    end
    lines[#lines + 1] = text {with.optimizer:state_dict(), with.scheduler:state_dict(),
      with.accelerator.scaler:state_dict(), with.net:state_dict()}
    return table.concat(lines, "\n"), call, with
  end
  local function same(options)
    local a, _, eager = train(false, options)
    local b, call, with = train(true, options)
    print(a == b, call.captured, eager.accelerator.scaler:get_scale() == with.accelerator.scaler:get_scale())
    if a ~= b then print(a) print(b) end
  end
]]

-- Return the program's output, or its error.
local function told(code, env)
  local result = sim.host(preamble .. code, env)
  return result.stdout .. result.stderr
end

local case = sim.case

local all_same = "true\ttrue\ttrue\n"

describe("A compiled step in float16", function()
  case("returns the bits of the function, also where a step overflows, whatever the order of threads", function()
    for _, seed in ipairs {"1", "2", "3"} do
      assert.equal(all_same:rep(3), told([[
        same {}
        same {silent = true}
        same {clip = 0.5, planted = {[4] = true, [5] = true, [20] = true}}]], {ACCELHOST_SIM_SEED = seed}))
    end
  end)

  case("returns them with every optimizer whose step is the device's", function()
    assert.equal(all_same:rep(#optimizers.fused()), told [[
      local optimizers = require "spec.cases.optimizers"
      for _, name in ipairs(optimizers.fused()) do
        same {optimizer = function(p) return optim[name](p, optimizers.train(name)) end, planted = {[6] = true},
          steps = 8, silent = true}
      end]])
  end)

  case("restores schedules, with their momenta, and follows those outside of it", function()
    assert.equal(all_same:rep(4), told [[
      same {schedule_outside = true}
      same {silent = true, scheduler = function(o)
        return optim.lr_scheduler.OneCycleLR(o, {max_lr = 0.1, total_steps = 30})
      end}
      same {silent = true, scheduler = function(o)
        local scheduler = optim.lr_scheduler
        return scheduler.SequentialLR(o, {scheduler.LinearLR(o), scheduler.ExponentialLR(o, 0.9)}, {7})
      end}
      same {planted = {[7] = true}, optimizer = function(p)
        return optim.SGD({{params = {p[1], p[2]}, lr = 0.1}, {params = {p[3], p[4]}}}, {lr = 0.01, momentum = 0.9})
      end}]])
  end)

  case("runs as it is until a step was not left out", function()
    assert.equal(all_same .. "5\n", told [[
      same {scale = 2 ^ 20, planted = {true, true, true, true}, steps = 9}
      local _, with = new_step {}
      local runs = 0
      local call = with.accelerator:compile(function(x, y)
        runs = runs + 1
        with.accelerator:backward(F.cross_entropy(with.net(x), y))
        with.optimizer:step()
        with.optimizer:zero_grad()
      end)
      for i = 1, 9 do call(batch(i < 4 and math.huge or 1)) end
      print(runs)]])
  end)

  case("asks the device only when the host wants to know", function()
    assert.equal("true\tfalse\tfalse\n", told [[
      local step, with = new_step {}
      local call = with.accelerator:compile(step)
      local function unasked()
        local _, entry = next(with.accelerator.scaler._latest)
        return entry.overflow == nil
      end
      for i = 1, 6 do call(batch()) end
      with.net:train()
      with.optimizer:zero_grad()
      local before = unasked()
      local skipped = with.accelerator.optimizer_step_was_skipped
      print(before, unasked(), skipped)]])
  end)

  case("accepts a scaler of the script's own", function()
    assert.equal("true\ttrue\n", told [[
      local function go(compiled)
        accelhost.manual_seed(1)
        local accelerator = accelhost.Accelerator()
        local net = nn.Linear(12, 10)
        net:to "cuda"
        local sgd = optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9})
        local scaler = accelhost.amp.GradScaler("cuda", {init_scale = 512, growth_interval = 3})
        local step = function(x, y)
          local loss = accelhost.autocast("cuda", function() return F.cross_entropy(net(x), y) end)
          scaler:scale(loss):backward()
          scaler:unscale_(sgd)
          scaler:step(sgd)
          scaler:update()
          sgd:zero_grad()
          return loss
        end
        if compiled then step = accelerator:compile(step) end
        local seen = {}
        for i = 1, 12 do seen[i] = text {step(batch(i == 7 and math.huge or 1)):item(), scaler:state_dict()} end
        return table.concat(seen) .. text(net:state_dict()) .. text(sgd:state_dict()), step
      end
      local a = go(false)
      local b, step = go(true)
      print(a == b, step.captured)]])
  end)

  case("leaves gradients whose optimizer steps outside", function()
    assert.equal("true\n", told [[
      local function go(compiled)
        local _, with = new_step {}
        local step = function(x, y)
          with.accelerator:backward(F.cross_entropy(with.net(x), y))
          with.accelerator:clip_grad_norm_(with.net:parameters(), 1)
        end
        if compiled then step = with.accelerator:compile(step) end
        local seen = {}
        for i = 1, 10 do
          step(batch(i == 6 and math.huge or 1))
          with.optimizer:step()
          with.scheduler:step()
          seen[i] = text {with.accelerator.optimizer_step_was_skipped, with.accelerator.scaler:state_dict()}
          with.optimizer:zero_grad()
        end
        return table.concat(seen) .. text(with.net:state_dict()) .. text(with.optimizer:state_dict())
      end
      print(go(false) == go(true))]])
  end)

  case("decides for each of two optimizers, with one update for both", function()
    assert.equal("true\n", told [[
      local function go(compiled)
        accelhost.manual_seed(1)
        local accelerator = accelhost.Accelerator(fp16())
        local one, two = nn.Linear(12, 10), nn.Linear(12, 10)
        local a, b = optim.Adam(one:parameters()), optim.SGD(two:parameters(), {lr = 0.1})
        local rates = optim.lr_scheduler.StepLR(a, 2)
        one, two, a, b, rates = accelerator:prepare(one, two, a, b, rates)
        local step = function(x, y, z)
          accelerator:backward(F.cross_entropy(one(x), y) + F.cross_entropy(two(z), y))
          a:step() b:step() rates:step() a:zero_grad() b:zero_grad()
        end
        if compiled then step = accelerator:compile(step) end
        local seen = {}
        for i = 1, 10 do
          local x, y = batch(i == 5 and math.huge or 1)
          step(x, y, (batch(i == 8 and math.huge or 1)))
          seen[i] = text {a.step_was_skipped, b.step_was_skipped, accelerator.scaler:state_dict(), rates:get_last_lr()}
        end
        return table.concat(seen) .. text(one:state_dict()) .. text(two:state_dict()) .. text(a:state_dict())
      end
      print(go(false) == go(true))]])
  end)

  -- Its error when this is in a captured step.
  local function refused(body)
    return told([[
      local accelerator = accelhost.Accelerator(fp16())
      local net = nn.Linear(12, 10)
      local sgd = optim.SGD(net:parameters(), {lr = 0.1})
      net, sgd = accelerator:prepare(net, sgd)
      local calls = 0
      local step = accelerator:compile(function(x, y)
        calls = calls + 1
        local function again() accelerator:backward(F.cross_entropy(net(x), y)) end
        again()
        ]] .. body .. [[

        sgd:zero_grad()
      end)
      local before
      for i = 1, 3 do
        before = accelerator.scaler:state_dict()._growth_tracker
        local fine, problem = pcall(step, batch())
        if not fine then print(problem) end
      end
      print(calls, accelerator.scaler:state_dict()._growth_tracker - before)]])
  end

  case("has one update of the scale, and reports a second", function()
    assert.matches("scale: the scaler has been updated in this captured step[^\n]*\n3\t0\n$",
      refused "sgd:step() if calls == 3 then again() end")
  end)

  case("cannot read a decision that the device has not made yet", function()
    assert.matches("step_was_skipped: the device has not decided[^\n]*\n3\t0\n$",
      refused "sgd:step() if calls == 3 then print(accelerator.optimizer_step_was_skipped) end")
    assert.matches("update: a new scale cannot be captured[^\n]*\n3\t0\n$",
      refused "sgd:step() if calls == 3 then accelerator.scaler:update(2) end")
  end)
end)

describe("GradScaler on CUDA", function()
  case("unscales without waiting and asks in step", function()
    assert.equal("true\t0.5\t512\t1\tfalse\n", told [[
      local w = nn.Parameter(accelhost.ones {3})
      local sgd = optim.SGD({w}, {lr = 1})
      local scaler = accelhost.amp.GradScaler("cuda", {init_scale = 1024})
      scaler:scale((w * 0.5):sum()):backward()
      scaler:unscale_(sgd)
      local lazy, gradient = scaler._stages[sgd].overflow == nil, w.grad[0]:item()
      w.grad = nil
      scaler:update()
      scaler:scale((w * math.huge):sum()):backward()
      scaler:step(sgd)
      scaler:update()
      print(lazy, gradient, scaler:get_scale(), w[0]:item(), scaler:state_dict()._growth_tracker ~= 0)]])
  end)
end)
