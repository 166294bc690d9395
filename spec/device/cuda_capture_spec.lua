--- accelerator:compile: a training step captured as a CUDA graph, on the simulated GPU. Each case is a program of its
--- own, since a process opens its devices once.
local optimizers = require "spec.cases.optimizers"
local sim = require "spec.support.sim"

local preamble = [[
  local accelhost = require "accelhost"
  local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim
  accelhost.set_default_device "cuda"
  local function batch(n)
    local x = accelhost.randn({n or 8, 12}, {device = "cpu"}):to "cuda"
    return x, accelhost.randint(0, 10, {n or 8}, {device = "cpu"}):to "cuda"
  end
  -- A step of a small net, and its objects.
  local function new_step(options)
    options = options or {}
    accelhost.manual_seed(3)
    local accelerator = accelhost.Accelerator(options.accelerator or {})
    local net = options.net and options.net() or nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 10))
    local optimizer = (options.optimizer or function(p) return optim.SGD(p, {lr = 0.05, momentum = 0.9}) end)(
      net:parameters())
    local scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, {T_max = 20})
    net, optimizer, scheduler = accelerator:prepare(net, optimizer, scheduler)
    local function step(x, y)
      local out = net(x)
      local loss = F.cross_entropy(out, y)
      accelerator:backward(loss)
      if options.clip then accelerator:clip_grad_norm_(net:parameters(), options.clip) end
      optimizer:step()
      if not options.schedule_outside then scheduler:step() end
      optimizer:zero_grad()
      return loss, out
    end
    return step, {accelerator = accelerator, net = net, optimizer = optimizer, scheduler = scheduler}
  end
  -- The losses of n steps, the weights after them, and how far the optimizer has counted.
  local function train(compiled, options, n)
    local step, with = new_step(options)
    local call = compiled and with.accelerator:compile(step) or step
    local losses = {}
    for i = 1, n or 20 do
      losses[i] = ("%.17g"):format((call(batch()):item()))
      if options and options.schedule_outside then with.scheduler:step() end
    end
    local weights = {}
    for _, parameter in ipairs(with.net:parameters()) do
      for _, value in ipairs(parameter:flatten():tolist()) do weights[#weights + 1] = ("%.17g"):format(value) end
    end
    return table.concat(losses, " "), table.concat(weights, " "), with.optimizer.param_groups[1].lr, call
  end
  local function same(options, n)
    local a, p, lr = train(false, options, n)
    local b, q, other, call = train(true, options, n)
    print(a == b, p == q, lr == other, call.captured)
  end
]]

local function on_sim(code, env) return sim.host(preamble .. code, env) end

local case = sim.case

-- Return the program's output, or its error.
local function told(code, env)
  local result = on_sim(code, env)
  return result.code == 0 and result.stdout or result.stderr
end

local all_same = "true\ttrue\ttrue\ttrue\n"

describe("A compiled step", function()
  case("returns the bits of the function for 20 steps, with momentum and a schedule", function()
    assert.equal(all_same, told "same()")
  end)

  case("returns the bits of AdamW with clipping and a schedule, within the step and outside", function()
    assert.equal(all_same .. all_same, told [[
      local function adamw(p) return optim.AdamW(p, {lr = 0.05}) end
      same {optimizer = adamw, clip = 0.5}
      same {optimizer = adamw, clip = 1e-3, schedule_outside = true}]])
  end)

  case("returns the bits of every optimizer whose step is the device's", function()
    local result = told [[
      local optimizers = require "spec.cases.optimizers"
      for _, name in ipairs(optimizers.fused()) do
        same({optimizer = function(p) return optim[name](p, optimizers.train(name)) end}, 8)
      end]]
    assert.equal(all_same:rep(#optimizers.fused()), result)
  end)

  case("returns the bits of batch norm's statistics in float64, whatever the order of threads", function()
    for _, seed in ipairs {"1", "2", "3"} do
      assert.equal(all_same, told([[
        same({net = function()
          return nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 10))
        end}, 6)]], {ACCELHOST_SIM_SEED = seed}))
    end
  end)

  case("runs the function twice, captures it once and never runs it again", function()
    assert.equal("3\ttrue\n1\t2\n", told [[
      local step, with = new_step()
      local runs = 0
      local compiled = with.accelerator:compile(function(x, y)
        runs = runs + 1
        return step(x, y)
      end)
      for i = 1, 10 do compiled(batch()) end
      print(runs, compiled.captured)
      local first, again = 0, 0
      local other = with.accelerator:compile(function(x)
        first = first + 1
        return x:sum()
      end, {warmup = 1})
      other(batch())
      first = 0
      for i = 1, 3 do other(batch()) end
      other:reset()
      again = first
      for i = 1, 3 do other(batch()) end
      print(again, first - again)]])
  end)

  case("accepts tables of tensors and returns tables, which the next call overwrites", function()
    assert.equal("10\t20\ttrue\n14\t28\tfalse\n14\t14\n", told [[
      local accelerator = accelhost.Accelerator()
      local step = accelerator:compile(function(b, scale)
        return {sum = b.x:sum(), more = {b.y * scale}}, "text"
      end)
      local function call(n)
        return step({x = accelhost.full({2}, n), y = accelhost.full({1}, 2 * n)}, 2)
      end
      for i = 1, 3 do call(i) end
      local first = call(5)
      print(first.sum:item(), first.more[1]:item(), first.more[1].requires_grad == false)
      local kept = first.sum:clone()
      local second, text = call(7)
      print(second.sum:item(), second.more[1]:item(), text ~= "text")
      print(first.sum:item(), second.sum:item())]])
  end)

  case("leaves the gradients of its end, so that the optimizer may step outside", function()
    assert.equal("true\ttrue\n", told [[
      local function go(compiled)
        local _, with = new_step()
        local step = function(x, y)
          local loss = F.cross_entropy(with.net(x), y)
          with.accelerator:backward(loss)
          return loss
        end
        if compiled then step = with.accelerator:compile(step) end
        local losses = {}
        for i = 1, 8 do
          losses[i] = step(batch()):item()
          with.optimizer:step()
          with.optimizer:zero_grad()
        end
        return table.concat(losses, " "), with.net[1].weight:sum():item()
      end
      local a, p = go(false)
      local b, q = go(true)
      print(a == b, p == q)]])
  end)

  case("accepts a prepared loader's batches, and Lua may collect while it is captured", function()
    for _, seed in ipairs {"1", "2", "3"} do
      assert.equal("true\t24\ttrue\n", told([[
        local data = accelhost.data
        local function go(compiled)
          local step, with = new_step()
          local function collecting(x, y)
            collectgarbage()
            local loss = step(x, y)
            collectgarbage()
            return loss
          end
          local call = compiled and with.accelerator:compile(collecting) or collecting
          local set = data.TensorDataset(accelhost.randn({48, 12}, {device = "cpu"}),
            accelhost.randint(0, 10, {48}, {device = "cpu"}))
          local loader = with.accelerator:prepare(data.DataLoader(set, {batch_size = 4, shuffle = true}))
          local losses = {}
          for epoch = 1, 2 do
            for x, y in loader do losses[#losses + 1] = ("%.17g"):format((call(x, y):item())) end
          end
          return losses, call
        end
        local a = go(false)
        local b, call = go(true)
        print(table.concat(a, " ") == table.concat(b, " "), #b, call.captured)]], {ACCELHOST_SIM_SEED = seed}))
    end
  end)

  case("reports an index that is out of range, as the function would", function()
    for _, checks in ipairs {"now", "later"} do
      assert.matches("^true\ntrue\nfalse\t[^\n]*cross_entropy: target 11 at position 0 is outside 0%.%.9", told([[
        local step, with = new_step()
        local compiled = with.accelerator:compile(step)
        local function call(label)
          local x, y = batch()
          y[0] = label
          return compiled(x, y):item()
        end
        for i = 1, 4 do call(1) end
        print((pcall(call, 2)))
        for i = 1, 2000 do F.one_hot(accelhost.tensor({1}):to "int64", 3) end
        print((pcall(call, 2)))
        print(pcall(call, 11))]], {ACCELHOST_CUDA_CHECKS = checks}))
    end
  end)
end)

describe("A compiled step reports a change:", function()
  local function after_capture(call)
    return told([[
      local step, with = new_step()
      local compiled = with.accelerator:compile(function(x, y, more) return step(x, y) end)
      for i = 1, 4 do
        local x, y = batch()
        compiled(x, y, {scale = 1})
      end
      local x, y = batch()
      ]] .. call)
  end

  for name, given in pairs {
    ["a shape"] = {"compiled(batch(4))", "argument 1: the step was captured with float32 %(8, 12%) on cuda:0, got "
      .. "float32 %(4, 12%) on cuda:0"},
    ["a dtype"] = {"compiled(x, y:to 'int32', {scale = 1})", "argument 2: the step was captured with int64 %(8,?%) on "
      .. "cuda:0, got int32"},
    ["a device"] = {"compiled(x:to 'cpu', y, {scale = 1})", "argument 1 is on cpu, and the step is captured on cuda"},
    ["a number"] = {"compiled(x, y, {scale = 2})", "argument 3.scale: the step was captured with number 1, got number"},
    ["a name"] = {"compiled(x, y, {rate = 1})", "captured with argument 3.scale and is called with argument 3.rate"},
    ["fewer arguments"] = {"compiled(x, y)", "captured with argument 3.scale and is called with fewer"},
    ["a gradient that is there"] = {"with.net(x):sum():backward() compiled(x, y, {scale = 1})",
      "a parameter of shape %(16, 12%) had no gradient when the step was captured and has one now"},
    ["a parameter that moved"] = {"local p = with.net[1].weight p.data = p.data:clone() compiled(x, y, {scale = 1})",
      "parameters, gradients or state are not those of the captured step, or were moved"},
    ["state that was replaced"] = {[[local state = with.optimizer.state[with.net[1].weight]
      state.momentum_buffer = state.momentum_buffer:clone()
      compiled(x, y, {scale = 1})]], "SGD: parameter 1 or its state was replaced since its step was captured"},
    ["a tensor from outside that was freed"] = {[[local bias = accelhost.ones({8, 12}, {device = "cuda"})
      local other = with.accelerator:compile(function(a) return (a + bias):sum() end)
      for i = 1, 3 do other(x) end
      bias:free()
      other(x)]], "the captured step uses 512 bytes of a tensor that was freed or replaced since"},
  } do
    case(name, function()
      assert.matches(given[2], after_capture(given[1]))
    end)
  end
end)

describe("A step that cannot be captured", function()
  -- The error of a step that does this when it is captured, then its result without a graph.
  local function refused(body)
    return told([[
      local accelerator = accelhost.Accelerator()
      local w = nn.Parameter(accelhost.ones {3})
      local strange, calls = true, 0
      local event = accelhost.cuda.Event()
      event:record()
      local step = accelerator:compile(function(x)
        local y = x * 2
        calls = calls + 1
        if strange and calls == 3 then
          ]] .. body .. [[

        end
        return (y + w):sum()
      end)
      local x = accelhost.ones({3}, {device = "cuda"})
      step(x) step(x)
      print(pcall(step, x))
      strange = false
      print(step(x):item(), step(x * 2):item(), x:sum():item())]])
  end

  for what, given in pairs {
    ["reading a value"] = {"y:sum():item()", "reading values of the device cannot be captured in a graph; return"},
    ["printing"] = {"tostring(y)", "reading values of the device cannot be captured"},
    ["a copy to the CPU"] = {"y:to 'cpu'", "reading values of the device cannot be captured"},
    ["a tensor from the CPU"] = {"y = y + accelhost.tensor({1, 2, 3}, {device = 'cuda'})",
      "a copy of the host's values cannot be captured in a graph; make the tensor on the device before"},
    ["an op that runs on the CPU"] = {"require('accelhost._C').standard_gamma(y)",
      "standard_gamma: an op that runs on the CPU cannot be captured"},
    ["linear algebra"] = {"accelhost.linalg.det(accelhost.ones({2, 2}, {device = 'cuda'}))",
      "matrix_det: linear algebra by cuSOLVER cannot be captured"},
    ["an op whose shape depends on values"] = {"y:nonzero()", "nonzero: [^\n]* cannot be captured"},
    ["waiting"] = {"accelhost.synchronize()", "waiting for the device cannot be captured"},
    ["recording an event"] = {"event:record()",
      "recording an event cannot be captured in a graph; do it outside"},
    ["waiting for an event"] = {"event:synchronize()", "waiting for an event cannot be captured"},
    ["querying an event"] = {"event:query()", "querying an event cannot be captured"},
    ["a copy to another device"] = {"y:to 'cuda:1'", "a copy between devices cannot be captured"},
    ["a compiled step"] = {"accelerator:compile(function() end)()", "a compiled step cannot be called within another"},
    ["an error of the script"] = {"error 'mine'", "mine"},
  } do
    case("is reported, and leaves the device as it was: " .. what, function()
      local text = refused(given[1])
      assert.matches("^false\t[^\n]*" .. given[2], text)
      assert.matches("\n9\t15\t3\n$", text)
    end)
  end

  case("names the script's line", function()
    assert.matches("^false\t%-e:%d+: reading values", refused "y:sum():item()")
  end)

  case("leaves counters, rates and gradients as if it had not been tried", function()
    assert.equal("false\ttrue\ttrue\ttrue\n", told [[
      local function adamw(p) return optim.AdamW(p) end
      local function go(failing)
        local step, with = new_step {optimizer = adamw}
        local strange = false
        local compiled = with.accelerator:compile(function(x, y)
          local loss = step(x, y)
          if strange then
            with.accelerator:backward(F.cross_entropy(with.net(x), y))
            loss:item()
          end
          return loss
        end)
        local losses, failed, gone = {}, nil, nil
        for i = 1, 6 do
          local x, y = batch()
          if failing and i == 3 then
            strange = true
            failed = pcall(compiled, x, y)
            gone = with.net[1].weight.grad == nil
            strange = false
          end
          losses[i] = compiled(x, y):item()
        end
        return table.concat(losses, " "), with.optimizer.param_groups[1].lr, failed, gone
      end
      local a, lr = go(false)
      local b, other, failed, gone = go(true)
      print(failed, gone, a == b, lr == other)]])
  end)

  case("is an accumulation window", function()
    assert.matches("compile: gradient_accumulation_steps is 4", told [[
      accelhost.Accelerator({gradient_accumulation_steps = 4}):compile(function() end)]])
  end)

  case("is a step of an optimizer that is written in Lua", function()
    assert.matches("Muon:step: its numbers are the host's, so it cannot be captured in a graph", told [[
      local w = nn.Parameter(accelhost.randn {3, 3})
      local accelerator = accelhost.Accelerator()
      local optimizer = accelerator:prepare(optim.Muon({w}, {lr = 0.1}))
      local step = accelerator:compile(function()
        accelerator:backward((w * w):sum())
        optimizer:step()
        optimizer:zero_grad()
      end)
      for i = 1, 3 do step() end]])
  end)
end)

describe("A replay", function()
  case("reports an operation that fails in it", function()
    assert.matches("^4\n[^\n]*kernel fold_[^\n]* failed, as ACCELHOST_SIM_FAIL asked", (told([[
      local accelerator = accelhost.Accelerator()
      local step = accelerator:compile(function(x) return (x * 2):sum() end, {warmup = 1})
      local x = accelhost.tensor({1, 1}, {device = "cpu"}):to "cuda"
      io.stderr:write(step(x):item(), "\n")
      step(x):item()]], {ACCELHOST_SIM_FAIL = "launch:4"})))
  end)

  case("reuses memory within the graph, and nothing outside uses it", function()
    assert.equal("true\ttrue\t0\n", told [[
      local accelerator = accelhost.Accelerator()
      local step = accelerator:compile(function(x)
        for i = 1, 20 do x = x * 2 - x + 1 end
        return x
      end)
      local x = accelhost.zeros {1000}
      for i = 1, 3 do step(x) end
      local calls, right = accelhost.memory_stats("cuda").system_calls, true
      for i = 1, 5 do
        local others = {}
        local out = step(x + i)
        for k = 1, 30 do others[k] = accelhost.full({1000}, -7) end
        right = right and out:sum():item() == 1000 * (i + 20)
        for k = 1, 30 do right = right and others[k]:sum():item() == -7000 end
        if i == 1 then calls = accelhost.memory_stats("cuda").system_calls end
      end
      local first = accelhost.memory_stats("cuda").system_calls - calls
      step:reset()
      collectgarbage()
      print(right, step(x):sum():item() == 20000, first)]])
  end)

  case("draws new random numbers, those of the function, whatever the order of threads", function()
    for _, seed in ipairs {"1", "2", "3"} do
      assert.equal(all_same .. "true\n", told([[
        same({net = function()
          return nn.Sequential(nn.Linear(12, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, 10))
        end}, 8)
        local step = accelhost.Accelerator():compile(function(x) return F.dropout(x, 0.5) end, {warmup = 1})
        local x, seen = accelhost.ones {64}, {}
        for i = 1, 5 do seen[tostring(step(x):sum():item()) .. table.concat(step(x):tolist())] = true end
        local count = 0
        for _ in pairs(seen) do count = count + 1 end
        print(count > 2)]], {ACCELHOST_SIM_SEED = seed}))
    end
  end)

  case("computes the function's results in bfloat16", function()
    assert.equal(all_same:rep(2), told [[
      same({accelerator = {mixed_precision = "bf16"}}, 8)
      same({accelerator = {mixed_precision = "bf16"}, optimizer = function(p) return optim.AdamW(p, {lr = 0.05}) end,
        clip = 0.5}, 8)]])
  end)

  case("computes a GPT-2 in bfloat16 and its gradients by slices, with dropout", function()
    assert.equal(all_same, told [[
      local Net = nn.Module:extend "Net"
      function Net:init()
        self.gpt = accelhost.models.GPT2Model {vocab_size = 4, n_positions = 4, n_embd = 12, n_layer = 2, n_head = 3}
        self.head = nn.Linear(12, 10)
      end
      function Net:forward(x)
        return self.head(self.gpt({inputs_embeds = x:view(2, 4, 12)}).last_hidden_state:flatten(0, 1))
      end
      same({accelerator = {mixed_precision = "bf16"}, net = Net}, 8)]])
  end)
end)
