--- accelerator:compile on the CPU: a step that is captured once and replayed by C, to the bits of the function.
local accelhost = require "accelhost"
local optimizers = require "spec.cases.optimizers"
local run = require "spec.support.run"

local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim

local function mlp() return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 10)) end
local function sgd(p) return optim.SGD(p, {lr = 0.05, momentum = 0.9}) end
local function adamw(p) return optim.AdamW(p, {lr = 0.02}) end

-- A step of a net and its optimizer, and its objects. Options: accelerator, net, optimizer, scheduler, clip,
-- loss(net, x, y), batch(i).
local function new_step(options)
  accelhost.manual_seed(3)
  local accelerator = accelhost.Accelerator(options.accelerator or {cpu = true})
  local net = (options.net or mlp)()
  local optimizer = (options.optimizer or sgd)(net:parameters())
  local scheduler = options.scheduler and options.scheduler(optimizer)
    or optim.lr_scheduler.CosineAnnealingLR(optimizer, {T_max = 20})
  net, optimizer, scheduler = accelerator:prepare(net, optimizer, scheduler)
  local loss_of = options.loss or function(n, x, y) return F.cross_entropy(n(x), y) end
  local function step(x, y)
    local loss = loss_of(net, x, y)
    accelerator:backward(loss)
    local norm = options.clip and accelerator:clip_grad_norm_(net:parameters(), options.clip)
    if options.clip_value then accelerator:clip_grad_value_(net:parameters(), options.clip_value) end
    optimizer:step()
    scheduler:step()
    optimizer:zero_grad()
    return loss, norm
  end
  return step, {accelerator = accelerator, net = net, optimizer = optimizer, scheduler = scheduler}
end

local function default_batch() return accelhost.randn {8, 12}, accelhost.randint(0, 10, {8}) end

local function texts(list)
  local all = {}
  for _, tensor in ipairs(list) do
    for _, value in ipairs(tensor:detach():flatten():tolist()) do all[#all + 1] = ("%.17g"):format(value) end
  end
  return table.concat(all, " ")
end

-- The losses of n steps, then weights and buffers, as texts.
local function train(compiled, options, n)
  local step, with = new_step(options)
  local call = compiled and with.accelerator:compile(step) or step
  local seen = {}
  for i = 1, n or 20 do
    if options.before then options.before(i, with) end
    local loss, norm = call((options.batch or default_batch)(i))
    seen[#seen + 1] = texts {loss} .. (norm and " " .. texts {norm} or "")
  end
  if compiled then assert.is_true(call.captured) end
  return seen, texts(with.net:parameters()), texts(with.net:buffers()), with.optimizer.param_groups[1].lr
end

local function same(options, n)
  local seen, weights, buffers, lr = train(false, options or {}, n)
  local again, others, statistics, rate = train(true, options or {}, n)
  assert.same(seen, again)
  assert.equal(weights, others)
  assert.equal(buffers, statistics)
  assert.equal(lr, rate)
end

local Language = nn.Module:extend "Language"
function Language:init(kind, options)
  self.embedding = nn.Embedding(11, 8)
  self.core = nn[kind](8, 12, options)
  self.head = nn.Linear(12, 11)
end
function Language:forward(tokens)
  return self.head((self.core(self.embedding(tokens)))):flatten(0, 1)
end

local function tokens() return accelhost.randint(0, 11, {4, 6}), accelhost.randint(0, 11, {24}) end

local Gpt = nn.Module:extend "Gpt"
function Gpt:init()
  self.gpt = accelhost.models.GPT2LMHeadModel {vocab_size = 11, n_positions = 8, n_embd = 12, n_layer = 2, n_head = 3}
end
function Gpt:forward(ids) return self.gpt({input_ids = ids}).logits:flatten(0, 1) end

local function cnn()
  return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.25),
    nn.Conv2d(4, 8, 3), nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.5), nn.Linear(32, 10))
end

-- A row-major activation, one layer, and convolutions, whose gradients of it are channels-last.
local function mixed(layer)
  return nn.Sequential(nn.Linear(12, 32 * 64), nn.Unflatten(1, {32, 8, 8}), layer, nn.Conv2d(32, 64, 1), nn.ReLU(),
    nn.Conv2d(64, 64, 3, {groups = 64}), nn.Conv2d(64, 8, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
end

local function images() return accelhost.randn {6, 1, 14, 14}, accelhost.randint(0, 10, {6}) end

describe("A compiled step on the CPU returns the bits of the function for 20 steps:", function()
  for name, options in pairs {
    ["a perceptron with momentum and a schedule"] = {},
    ["AdamW with a clipped norm"] = {optimizer = adamw, clip = 0.5},
    ["clipped values"] = {clip_value = 1e-3},
    ["a norm of another order"] = {optimizer = adamw, clip = 1e-3, net = function()
      return nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.SiLU(), nn.Dropout(0.25), nn.Linear(16, 10))
    end},
    ["a convolutional net with batch norm and dropout"] = {net = cnn, batch = images, optimizer = adamw},
    ["a pooled row-major activation before convolutions"] = {net = function() return mixed(nn.MaxPool2d(2)) end},
    ["a normalised row-major activation before convolutions"] = {net = function()
      return mixed(nn.BatchNorm2d(32))
    end},
    ["an LSTM"] = {net = function() return Language("LSTM", {batch_first = true, num_layers = 2, dropout = 0.25}) end,
      batch = tokens, clip = 0.25},
    ["a bidirectional GRU of sparse use"] = {net = function()
      local net = Language("GRU", {batch_first = true})
      net.core = nn.GRU(8, 6, {batch_first = true, bidirectional = true})
      return net
    end, batch = tokens, optimizer = adamw},
    ["a GPT with dropout"] = {net = Gpt, batch = tokens, optimizer = adamw, clip = 1},
    ["a GPT in bfloat16"] = {net = Gpt, batch = tokens, optimizer = adamw, clip = 1,
      accelerator = {cpu = true, mixed_precision = "bf16"}},
    ["cosine restarts with a number as loss factor"] = {
      scheduler = function(o) return optim.lr_scheduler.CosineAnnealingWarmRestarts(o, {T_0 = 3}) end,
      loss = function(net, x, y) return F.cross_entropy(net(x), y, {label_smoothing = 0.1}) * 0.5 + 1e-3 end},
    ["gradients summed over two halves"] = {loss = function(net, x, y)
      local a, b = x:chunk(2)[1], x:chunk(2)[2]
      return F.cross_entropy(net(a), y:narrow(0, 0, 4)) + F.cross_entropy(net(b), y:narrow(0, 4, 4))
    end},
    ["in-place ops and tensors made within"] = {loss = function(net, x, y)
      local h = x * 2
      h:add_(accelhost.ones {12}):mul_(0.5)
      local mask = accelhost.arange(12):remainder(2):to "float32"
      return F.cross_entropy(net(h * mask + accelhost.rand_like(x) * 0.1), y)
    end},
    ["recomputed layers with dropout"] = {loss = function(net, x, y)
      local checkpoint = accelhost.utils.checkpoint
      local h = checkpoint.checkpoint(function(z) return F.dropout(net[1](z):tanh(), 0.5) end, x)
      return F.cross_entropy(net[3](h), y)
    end},
    ["batches of three sizes"] = {batch = function(i)
      local n = 4 + 2 * (i % 3)
      return accelhost.randn {n, 12}, accelhost.randint(0, 10, {n})
    end},
  } do
    it(name, function() same(options) end)
  end

  it("every optimizer whose step is the device's", function()
    for _, name in ipairs(optimizers.fused()) do
      same({optimizer = function(p) return optim[name](p, optimizers.train(name)) end}, 8)
    end
  end)

  it("on two threads", function()
    local threads = accelhost.get_num_threads()
    accelhost.set_num_threads(2)
    same({net = cnn, batch = images, optimizer = adamw}, 8)
    same({net = Gpt, batch = tokens, optimizer = adamw, clip = 1}, 8)
    accelhost.set_num_threads(threads)
  end)
end)

describe("A compiled step on the CPU", function()
  it("runs the function twice, captures it once and never runs it again", function()
    local step, with = new_step {}
    local runs = 0
    local compiled = with.accelerator:compile(function(x, y)
      runs = runs + 1
      return step(x, y)
    end)
    for _ = 1, 10 do compiled(default_batch()) end
    assert.equal(3, runs)
    compiled:reset()
    assert.is_false(compiled.captured)
    for _ = 1, 10 do compiled(default_batch()) end
    assert.equal(6, runs)
  end)

  it("accepts tables of tensors and returns tables, which the next call overwrites", function()
    local accelerator = accelhost.Accelerator {cpu = true}
    local step = accelerator:compile(function(b, scale)
      return {sum = b.x:sum(), more = {b.y * scale}}, "text"
    end)
    local function call(n) return step({x = accelhost.full({2}, n), y = accelhost.full({1}, 2 * n)}, 2) end
    for i = 1, 3 do call(i) end
    local first = call(5)
    assert.same({10, 20, false}, {first.sum:item(), first.more[1]:item(), first.more[1].requires_grad})
    local kept = first.sum:clone()
    local second, text = call(7)
    assert.same({14, 28, "text", 14, 10}, {second.sum:item(), second.more[1]:item(), text, first.sum:item(),
      kept:item()})
  end)

  it("leaves the gradients of its end, so that the optimizer may step outside", function()
    local function go(compiled)
      local _, with = new_step {}
      local step = function(x, y)
        local loss = F.cross_entropy(with.net(x), y)
        with.accelerator:backward(loss)
        return loss
      end
      if compiled then step = with.accelerator:compile(step) end
      local losses = {}
      for i = 1, 8 do
        losses[i] = step(default_batch()):item()
        with.optimizer:step()
        if i % 3 > 0 then with.optimizer:zero_grad() end
      end
      return losses, texts(with.net:parameters())
    end
    local losses, weights = go(false)
    local others, again = go(true)
    assert.same(losses, others)
    assert.equal(weights, again)
  end)

  it("trains nets and optimizers that were not prepared", function()
    local function go(compiled)
      accelhost.manual_seed(3)
      local net = mlp()
      local optimizer = adamw(net:parameters())
      local function step(x, y)
        local loss = F.cross_entropy(net(x), y)
        loss:backward()
        nn.utils.clip_grad_norm_(net:parameters(), 0.5)
        optimizer:step()
        optimizer:zero_grad()
        return loss
      end
      local call = compiled and accelhost.Accelerator({cpu = true}):compile(step) or step
      local losses = {}
      for i = 1, 8 do losses[i] = call(default_batch()):item() end
      return losses, texts(net:parameters())
    end
    local losses, weights = go(false)
    local others, again = go(true)
    assert.same(losses, others)
    assert.equal(weights, again)
  end)

  it("makes gradients of models that were not prepared, for an optimizer outside", function()
    local function go(compiled, every)
      accelhost.manual_seed(3)
      local net = mlp()
      local optimizer = adamw(net:parameters())
      local function step(x, y)
        local loss = F.cross_entropy(net(x), y)
        loss:backward()
        return loss
      end
      local call = compiled and accelhost.Accelerator({cpu = true}):compile(step) or step
      local losses = {}
      for i = 1, 12 do
        losses[i] = call(default_batch()):item()
        optimizer:step()
        if i % every == 0 then optimizer:zero_grad() end
      end
      return losses, texts(net:parameters())
    end
    for every = 1, 3 do
      local losses, weights = go(false, every)
      local others, again = go(true, every)
      assert.same(losses, others)
      assert.equal(weights, again)
    end
  end)

  it("has one graph for each of four signatures, then runs the function, with one notice", function()
    local result = run.host {"-e", [[
      local accelhost = require "accelhost"
      local runs = 0
      local step = accelhost.Accelerator({cpu = true}):compile(function(x)
        runs = runs + 1
        return x:sum()
      end)
      for round = 1, 3 do
        for n = 1, 7 do assert(step(accelhost.full({n}, round)):item() == n * round) end
      end
      print(runs)]]}
    assert.equal(2 + 4 + 1 + 2 * 3 .. "\n", result.stdout)
    assert.equal(0, result.code)
    local _, notices = result.stderr:gsub("warning: compile: argument 1: the step was captured with float32 %(3,%) on "
      .. "cpu, got float32 %([127],%) on cpu; there are 4 graphs for other arguments", "")
    assert.equal(3, notices)
  end)

  it("reads arguments wherever they are, and returns its own memory", function()
    local accelerator = accelhost.Accelerator {cpu = true}
    local step = accelerator:compile(function(x, y) return x:sum() + y:sum(), y:view(6), x * 1 end)
    local all = accelhost.arange(60):float():view(10, 6)
    local function check(x, y)
      local sum, view, copy = step(x, y)
      assert.equal(x:sum():item() + y:sum():item(), sum:item())
      assert.same(y:flatten():tolist(), view:tolist())
      assert.same(x:tolist(), copy:tolist())
      if step.captured then assert.is_false(view:data_ptr() == y:data_ptr()) end
    end
    for i = 0, 4 do check(all:narrow(0, i, 2), all[i + 3]:view(2, 3)) end
    check(all:narrow(1, 1, 3):contiguous():view(5, 6):narrow(0, 1, 2), all[1]:view(3, 2):t())
    check(all:narrow(0, 7, 2):clone(), all:t():narrow(0, 0, 2):narrow(1, 0, 3))
    check(all:narrow(0, 2, 2), all[9]:view(2, 3))
  end)

  it("changes an argument's copy, not the argument", function()
    local step = accelhost.Accelerator({cpu = true}):compile(function(x) return x:add_(1):sum() end)
    local results = {}
    for i = 1, 6 do
      local x = accelhost.full({3}, i)
      results[i] = step(x):item()
      if i > 2 then assert.same({i, i, i}, x:tolist()) end
    end
    assert.same({6, 9, 12, 15, 18, 21}, results)
  end)

  it("keeps gradients that a hook has kept", function()
    local function go(compiled)
      local _, with = new_step {}
      local kept
      with.net[1].weight:register_hook(function(gradient) kept = gradient end)
      local function step(x, y)
        local loss = F.cross_entropy(with.net(x), y)
        with.accelerator:backward(loss)
        with.optimizer:step()
        with.optimizer:zero_grad()
        return loss, kept
      end
      local call = compiled and with.accelerator:compile(step) or step
      local seen = {}
      for i = 1, 8 do
        local loss, gradient = call(default_batch())
        seen[i] = texts {loss, gradient}
      end
      return seen, texts(with.net:parameters())
    end
    local losses, weights = go(false)
    local others, again = go(true)
    assert.same(losses, others)
    assert.equal(weights, again)
  end)

  it("continues from a checkpoint that is loaded between two calls", function()
    local function go(compiled)
      local step, with = new_step {optimizer = adamw}
      local call = compiled and with.accelerator:compile(step) or step
      local losses = {}
      for i = 1, 12 do
        losses[i] = call(default_batch()):item()
        if i == 5 then
          with.saved = {with.net:state_dict(), with.optimizer:state_dict()}
          for name, tensor in pairs(with.saved[1]) do with.saved[1][name] = tensor:clone() end
        elseif i == 8 then
          with.net:load_state_dict(with.saved[1])
        end
      end
      return losses, texts(with.net:parameters())
    end
    local losses, weights = go(false)
    local others, again = go(true)
    assert.same(losses, others)
    assert.equal(weights, again)
  end)
end)

describe("A compiled step of two processes", function()
  it("averages gradients and broadcasts buffers to the bits of the function", function()
    for threads = 1, 2 do
      local result = run.host({"launch", "--num_processes", "2", "spec/distributed/cases/compile.lua"},
        {env = {OMP_NUM_THREADS = threads}})
      run.succeeds(result)
      assert.matches("ok", result.stdout)
    end
  end)

  it("reports a model that was freed, and a communication hook", function()
    for how, text in pairs {
      freed = "averages gradients of a model that was freed since: capture it again",
      hook = "backward: a communication hook cannot be captured in a graph; leave it out",
      gather = "all_gather_ragged: a collective of the script cannot be captured in a graph; call it outside",
    } do
      local result = run.host {"launch", "--num_processes", "2", "spec/distributed/cases/compile.lua", how}
      assert.matches(text, result.stdout)
    end
  end)
end)

describe("A step that cannot be captured on the CPU", function()
  -- The error of a step that does this when it is captured, then its results without that.
  local function refused(body)
    local accelerator = accelhost.Accelerator {cpu = true}
    local w = nn.Parameter(accelhost.ones {3})
    local strange, calls = true, 0
    local step = accelerator:compile(function(x)
      local y = x * 2
      calls = calls + 1
      if strange and calls == 3 then body(y, accelerator) end
      return (y + w):sum()
    end)
    local x = accelhost.ones {3}
    step(x)
    step(x)
    local fine, message = pcall(step, x)
    strange = false
    assert.same({9, 15, 3}, {step(x):item(), step(x * 2):item(), x:sum():item()})
    assert.is_true(step.captured)
    return fine, tostring(message)
  end

  local remedy = " cannot be captured in a graph; return the tensor from the step and read it afterwards"
  local outside = accelhost.get_rng_state()
  local pixels = accelhost.ones({2, 4, 8, 8}, {dtype = "float64"}):contiguous {memory_format = "channels_last"}
  for what, given in pairs {
    ["item"] = {function(y) y:sum():item() end, "item: reading values" .. remedy},
    ["tolist"] = {function(y) y:tolist() end, "tolist: reading values" .. remedy},
    ["a comparison"] = {function(y) accelhost.equal(y, y * 1) end, "cannot be captured in a graph"},
    ["a comparison with tolerances"] = {function(y) accelhost.allclose(y, y * 1) end, "cannot be captured in a graph"},
    ["a file"] = {function(y) accelhost.save({y}, "unwritten") end, "save: reading values"},
    ["a tensor as an index"] = {function(y) return y[y:argmax()] end, "cannot be captured in a graph"},
    ["printing"] = {function(y) tostring(y) end, "reading values" .. remedy},
    ["a tensor in the place of a number"] = {function(y) F.dropout(y, y:min() * 0) end, "reading values" .. remedy},
    ["nonzero"] = {function(y) y:nonzero() end, "nonzero: a result whose shape depends on values cannot be captured"},
    ["a mask as index"] = {function(y) return y[y:gt(0)] end, "shape depends on values cannot be captured"},
    ["one_hot without a number of classes"] = {function(y) F.one_hot(y:to "int64") end, "one_hot: reading values"},
    ["a tensor of the script's values"] = {function(y) return y + accelhost.tensor {1, 2, 3} end,
      "add: a tensor of shape %(3,%) whose values the host wrote within the step cannot be captured in a graph; make "
      .. "it before the step, or pass it as an argument"},
    ["a loop over memory"] = {function(y) y:with_data(function() end) end, "with_data: a loop of the script cannot"},
    ["another generator"] = {function()
      accelhost.rand({3}, {generator = accelhost.Generator()})
    end, "rand: a generator other than the default one cannot be captured"},
    ["a state of the generator from outside"] = {function()
      accelhost.set_rng_state(outside)
    end, "set_rng_state: a state from outside of the step cannot be captured in a graph; set it before the step"},
    ["a channels-last tensor from outside that a kernel converts"] = {function()
      F.conv2d(pixels, accelhost.ones({4, 4, 3, 3}, {dtype = "float64"}))
    end, "conv2d: a tensor from outside of the step that is stored channels%-last cannot be captured in a graph; call "
      .. "contiguous%(%) before the step"},
    ["a compiled step"] = {function(_, a) a:compile(function() end)() end, "cannot be called within another"},
    ["error_if_nonfinite"] = {function(y)
      local p = nn.Parameter(y:detach():clone())
      p:sum():backward()
      nn.utils.clip_grad_norm_({p}, 1, {error_if_nonfinite = true})
    end, "clip_grad_norm_: error_if_nonfinite, or a norm of gradients of several dtypes cannot be captured"},
    ["an error of the script"] = {function() error "mine" end, "mine"},
  } do
    it("is refused by its name, and leaves the device as it was: " .. what, function()
      local fine, message = refused(given[1])
      assert.is_false(fine)
      assert.matches(given[2], message)
    end)
  end
end)

describe("A compiled step on the CPU reports", function()
  it("an index that is out of range, as the function would", function()
    local step, with = new_step {}
    local compiled = with.accelerator:compile(step)
    local function call(label)
      local x, y = default_batch()
      y[0] = label
      return compiled(x, y):item()
    end
    for _ = 1, 4 do call(1) end
    local rate = with.optimizer.param_groups[1].lr
    local fine, message = pcall(call, 11)
    assert.is_false(fine)
    assert.matches("cross_entropy: target 11 at position 0 is outside 0%.%.9", tostring(message))
    assert.equal(rate, with.optimizer.param_groups[1].lr)
    assert.is_true(call(2) > 0)
  end)

  for name, given in pairs {
    ["a parameter that moved"] = {function(with)
      local p = with.net[1].weight
      p.data = p.data:clone()
    end, "parameters, gradients or state are not those of the captured step, or were moved"},
    ["state that was replaced"] = {function(with)
      local state = with.optimizer.state[with.net[1].weight]
      state.momentum_buffer = state.momentum_buffer:clone()
    end, "SGD: parameter 1 or its state was replaced since its step was captured"},
  } do
    it(name, function()
      local step, with = new_step {}
      local compiled = with.accelerator:compile(step)
      for _ = 1, 4 do compiled(default_batch()) end
      given[1](with)
      local fine, message = pcall(compiled, default_batch())
      assert.is_false(fine)
      assert.matches(given[2], tostring(message))
    end)
  end

  it("a tensor from outside that was freed", function()
    local bias = accelhost.ones {8, 12}
    local step = accelhost.Accelerator({cpu = true}):compile(function(a) return (a + bias):sum() end)
    local x = accelhost.randn {8, 12}
    for _ = 1, 4 do step(x) end
    bias = nil
    collectgarbage()
    local fine, message = pcall(step, x)
    assert.is_false(fine)
    assert.matches("the captured step uses 384 bytes of a tensor that was freed or replaced since", tostring(message))
  end)
end)
