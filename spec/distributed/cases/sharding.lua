-- Jobs whose processes have a share of the states train as those do that have them whole.
local accelhost = require "accelhost"
local checks = require "spec.support.checks"
local optimizers = require "spec.cases.optimizers"
local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim

local state = accelhost.PartialState()
local rank, size = state.process_index, state.num_processes
local kinds = {"optimizer", "gradients", "full"}
local on_device = accelhost.get_default_device() ~= "cpu" -- by on_device.lua: each process has its own memory
local whole_gradients = {none = true, optimizer = true}

-- Sizes that are no multiple of anything; some parameters have fewer elements than there are processes. A weight is
-- large enough for pages that only one process keeps.
local Net = nn.Module:extend "Net"
local Block = nn.Module:extend "Block"
function Block:init() self.norm, self.fc = nn.LayerNorm(67), nn.Linear(67, 67) end
function Block:forward(x) return x + self.fc(self.norm(x)):tanh() end
function Net:init()
  self.first, self.scale = nn.Linear(7, 67), nn.Parameter(accelhost.ones(1))
  self.blocks = nn.ModuleList {Block(), Block(), Block()}
  self.last, self.frozen = nn.Linear(67, 7), nn.Linear(7, 3)
  self.last.bias.requires_grad = false
  self.frozen.weight.requires_grad, self.frozen.bias.requires_grad = false, false
  self.tied = nn.Linear(67, 7, {bias = false})
  self.tied.weight = self.last.weight
end
function Net:forward(x)
  local y = self.first(x)
  for i = 1, #self.blocks do y = self.blocks[i](y) end
  return self.frozen(self.last(y) * self.scale + self.tied(y))
end

local function new_net(dtype)
  accelhost.manual_seed(3)
  return Net():to(dtype)
end

local function batch(step, dtype)
  accelhost.manual_seed(100 * step + rank)
  return accelhost.randn(5, 7):to(dtype), accelhost.randn(5, 3):to(dtype)
end

local function sgd(net) return optim.SGD(net:parameters(), {lr = 0.05, momentum = 0.9}) end
local function adamw(net) return optim.AdamW(net:parameters(), {lr = 1e-2}) end

-- Train; options: dtype, make, steps, and of the accelerator; step(accelerator, model, optimizer, number) in place of
-- the usual one.
local function train(options)
  local dtype = options.dtype or "float64"
  local accelerator = accelhost.Accelerator(options.accelerator)
  local net = new_net(dtype)
  local model, optimizer = accelerator:prepare(net, (options.make or sgd)(net))
  local losses = {}
  for number = 1, options.steps or 4 do
    if options.step then
      losses[number] = options.step(accelerator, model, optimizer, number)
    else
      local x, y = batch(number, dtype)
      local loss = F.mse_loss(model(x), y)
      accelerator:backward(loss)
      optimizer:step()
      optimizer:zero_grad()
      losses[number] = loss:item()
    end
  end
  return {losses = losses, model = model, optimizer = optimizer, accelerator = accelerator}
end

local function sharded(options, sharding, more)
  local copy = {}
  for key, value in pairs(options) do copy[key] = value end
  copy.accelerator = {sharding = sharding}
  for key, value in pairs(more or {}) do copy.accelerator[key] = value end
  return copy
end

local function same_weights(expected, got, tolerance)
  local list = got.model:parameters()
  for i, parameter in ipairs(expected.model:parameters()) do
    checks.near(parameter, list[i], "parameter " .. i, tolerance)
  end
  for i, loss in ipairs(expected.losses) do
    if not (math.abs(loss - got.losses[i]) <= tolerance) then
      error(("loss %d: expected %.17g, got %.17g"):format(i, loss, got.losses[i]))
    end
  end
end

checks.it("has the losses and weights of whole states to the last bit in float64 SGD", function()
  local expected = train(sharded({}, "none"))
  for _, kind in ipairs(kinds) do same_weights(expected, train(sharded({}, kind)), 0) end
end)

checks.it("has them to 1e-6 in float32 for every optimizer that works element by element", function()
  for _, name in ipairs(optimizers.fused()) do
    local options = {dtype = "float32", make = function(net)
      return optim[name](net:parameters(), optimizers.train(name, {lr = 1e-3}))
    end}
    local expected = train(sharded(options, "none"))
    for _, kind in ipairs {"gradients", "full"} do
      same_weights(expected, train(sharded(options, kind)), 1e-6)
    end
  end
end)

checks.it("cuts a model in units by every rule without another number", function()
  local expected = train(sharded({}, "none"))
  local rules = {"blocks", "none", "Block", {"blocks.0", "last"}, 500,
    function(_, path) return path == "blocks.1" end}
  for _, rule in ipairs(rules) do
    same_weights(expected, train(sharded({}, "full", {shard_units = rule})), 0)
  end
  same_weights(expected, train(sharded({}, "gradients", {bucket_cap_mb = 0.001})), 0)
end)

checks.it("keeps a shard of the optimizer's state on each process, and returns it whole", function()
  local options = {dtype = "float32", make = adamw}
  local expected = train(sharded(options, "none")).optimizer:state_dict()
  for _, kind in ipairs(kinds) do
    local got = train(sharded(options, kind)).optimizer
    local held = 0
    for parameter, values in pairs(got.state) do
      held = held + values.exp_avg:numel()
      assert(parameter:dim() == 1)
    end
    local all = 0
    for _, values in pairs(expected.state) do all = all + values.exp_avg:numel() end
    assert(held < all / size + 600, ("%d of %d"):format(held, all))
    local whole = got:state_dict()
    checks.same(expected.param_groups, whole.param_groups)
    for id, values in pairs(expected.state) do
      for name, value in pairs(values) do checks.near(value, whole.state[id][name], name, 0) end
    end
  end
end)

checks.it("clips by the norm of all gradients, and by value", function()
  for _, norm_type in ipairs {2, "inf", 1} do
    local norms = {}
    local options = {step = function(accelerator, model, optimizer, number)
      local x, y = batch(number, "float64")
      local loss = F.mse_loss(model(x), y)
      accelerator:backward(loss)
      norms[#norms + 1] = accelerator:clip_grad_norm_(model:parameters(), 0.1, norm_type):item()
      accelerator:clip_grad_value_(model:parameters(), 0.01)
      optimizer:step()
      optimizer:zero_grad()
      return loss:item()
    end}
    local expected = train(sharded(options, "none"))
    local first = norms
    for _, kind in ipairs(kinds) do
      norms = {}
      same_weights(expected, train(sharded(options, kind)), 1e-12)
      for i, norm in ipairs(first) do assert(math.abs(norm - norms[i]) < 1e-12) end
    end
  end
end)

checks.it("clips nothing without gradients, and refuses to clip or unscale sums that were not averaged", function()
  for _, kind in ipairs(kinds) do
    local accelerator = accelhost.Accelerator {sharding = kind, mixed_precision = "fp16"}
    local model, optimizer = accelerator:prepare(new_net "float32", sgd(nn.Linear(1, 1)))
    local parameters = model:parameters()
    checks.near(accelhost.zeros(1), accelerator:clip_grad_norm_(parameters, 1), "norm", 0)
    checks.same("float32", accelerator:clip_grad_norm_(parameters, 1, "inf").dtype)
    accelerator:clip_grad_value_(parameters, 1)
    optimizer = accelerator:prepare(sgd(model))
    if kind ~= "optimizer" and size > 1 then
      local x, y = batch(1, "float32")
      accelerator:no_sync(model, function() accelerator:backward(F.mse_loss(model(x), y)) end)
      local before = model.first.weight.grad:clone()
      local text = "is this process's own sum"
      checks.refused(text, function() accelerator:unscale_gradients(optimizer) end)
      checks.refused(text, function() accelerator:clip_grad_norm_(parameters, 1) end)
      checks.refused(text, function() accelerator:clip_grad_value_(parameters, 1e-3) end)
      checks.near(before, model.first.weight.grad, "after a refusal", 0)
    end
    accelerator:free_memory()
  end
end)

checks.it("accumulates in windows, with weights, over several forward calls and without zero_grad", function()
  local function window(accelerator, model, optimizer, number)
    local total = 0
    for part = 1, 3 do
      accelerator:accumulate(model)
      local x, y = batch(10 * number + part, "float64")
      local loss = F.mse_loss(model(x) + model(x * 2), y)
      accelerator:backward(loss, {weight = part + rank})
      optimizer:step()
      optimizer:zero_grad()
      total = total + loss:item()
    end
    return total
  end
  local function add_up(accelerator, model, optimizer, number)
    local total = 0
    for part = 1, 2 do
      local x, y = batch(10 * number + part, "float64")
      local loss = F.mse_loss(model(x), y)
      accelerator:backward(loss)
      total = total + loss:item()
    end
    optimizer:step()
    optimizer:zero_grad()
    return total
  end
  local function held_back(accelerator, model, optimizer, number)
    local x, y = batch(number, "float64")
    accelerator:no_sync(model, function() F.mse_loss(model(x), y):backward() end)
    local loss = F.mse_loss(model(x), y)
    loss:backward()
    optimizer:step()
    optimizer:zero_grad()
    return loss:item()
  end
  for _, step in ipairs {window, add_up, held_back} do
    local options = {step = step}
    local more = step == window and {gradient_accumulation_steps = 3} or nil
    local expected = train(sharded(options, "none", more))
    for _, kind in ipairs(kinds) do same_weights(expected, train(sharded(options, kind, more)), 1e-14) end
  end
end)

checks.it("trains in bfloat16, and leaves out a step in float16 whose gradients overflowed on one process", function()
  local options = {dtype = "float32", make = adamw}
  local expected = train(sharded(options, "none", {mixed_precision = "bf16"}))
  for _, kind in ipairs(kinds) do
    same_weights(expected, train(sharded(options, kind, {mixed_precision = "bf16"})), 1e-6)
  end
  local skipped
  options.step = function(accelerator, model, optimizer, number)
    local x, y = batch(number, "float32")
    -- The overflow is in the shard of one process.
    local loss = F.mse_loss(model(x), y) + (number == 2 and model.scale:sum() * 1e38 or 0)
    accelerator:backward(loss)
    if number == 3 then accelerator:clip_grad_norm_(model:parameters(), 1) end
    optimizer:step()
    skipped[number] = optimizer.step_was_skipped
    optimizer:zero_grad()
    return number == 2 and 0 or loss:item()
  end
  local fp16 = {mixed_precision = "fp16", kwargs_handlers = {accelhost.GradScalerKwargs {init_scale = 1024}}}
  skipped = {}
  expected = train(sharded(options, "none", fp16))
  checks.same({false, true, false, false}, skipped, "none")
  for _, kind in ipairs(kinds) do
    skipped = {}
    local got = train(sharded(options, kind, fp16))
    checks.same({false, true, false, false}, skipped, kind)
    checks.same(expected.accelerator.scaler:get_scale(), got.accelerator.scaler:get_scale(), kind)
    same_weights(expected, got, 1e-6)
  end
end)

checks.it("evaluates, recomputes and returns the whole state of a model at any time", function()
  local options = {steps = 2, step = function(accelerator, model, optimizer, number)
    local x, y = batch(number, "float64")
    local loss = F.mse_loss(accelhost.utils.checkpoint.checkpoint(model, x, {use_reentrant = false}), y)
    accelerator:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    return loss:item()
  end}
  local expected = train(sharded(options, "none"))
  local x = batch(9, "float64")
  for _, kind in ipairs(kinds) do
    local got = train(sharded(options, kind))
    same_weights(expected, got, 0)
    got.model:eval()
    checks.near(expected.model(x), accelhost.no_grad(function() return got.model(x) end), kind, 0)
    for name, value in pairs(got.accelerator:get_state_dict(got.model)) do
      checks.near(expected.model:state_dict()[name], value:to(x.device), name, 0)
    end
  end
end)

checks.it("writes the tokens and gathers the metrics of whole states", function()
  local prompt = accelhost.tensor({{1, 5, 2}, {7, 3, 9}}, {dtype = "int64"})
  local function run(sharding)
    accelhost.manual_seed(4)
    local accelerator = accelhost.Accelerator {sharding = sharding}
    local net = accelhost.models.GPT2LMHeadModel {vocab_size = 29, n_positions = 16, n_embd = 16, n_layer = 2,
      n_head = 2, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0}
    local ids = (accelhost.arange(13 * 6) * 11 % 29):view(13, 6)
    local model, optimizer, loader = accelerator:prepare(net, optim.AdamW(net:parameters(), {lr = 1e-2}),
      accelhost.data.DataLoader(accelhost.data.TensorDataset(ids), {batch_size = 2}))
    for batch_ids in loader do
      accelerator:backward(model {input_ids = batch_ids, labels = batch_ids}.loss)
      optimizer:step()
      optimizer:zero_grad()
    end
    model:eval()
    local metrics = {}
    accelhost.no_grad(function()
      for batch_ids in loader do
        metrics[#metrics + 1] = accelerator:gather_for_metrics(model {input_ids = batch_ids}.logits:sum {1, 2})
      end
    end)
    local likeliest = model:generate(prompt, {max_new_tokens = 8}):tolist()
    accelhost.manual_seed(6)
    return accelhost.cat(metrics), likeliest, model:generate(prompt, {max_new_tokens = 8, do_sample = true}):tolist()
  end
  local metrics, likeliest, drawn = run "none"
  checks.same(13, metrics:size(0))
  for _, kind in ipairs(kinds) do
    local got, tokens, more = run(kind)
    checks.near(metrics, got, kind, 1e-4)
    checks.same(likeliest, tokens, kind)
    checks.same(drawn, more, kind)
  end
end)

checks.it("runs the closure of a step once, before it", function()
  local calls = 0
  local options = {step = function(_, model, optimizer, number)
    local x, y = batch(number, "float64")
    return optimizer:step(function()
      calls = calls + 1
      optimizer:zero_grad()
      local loss = F.mse_loss(model(x), y)
      loss:backward()
      return loss
    end):item()
  end}
  local expected = train(sharded(options, "none"))
  for _, kind in ipairs(kinds) do
    calls = 0
    same_weights(expected, train(sharded(options, kind)), 0)
    assert(calls == 4)
  end
end)

checks.it("holds the mean where it is a process's own, and zeros elsewhere", function()
  local function gradients(kind)
    local accelerator = accelhost.Accelerator {sharding = kind}
    local model = accelerator:prepare(new_net "float64")
    local x, y = batch(1, "float64")
    accelerator:backward(F.mse_loss(model(x), y))
    local list = {}
    for i, parameter in ipairs(model:parameters()) do
      list[i] = parameter.grad and accelerator:reduce(parameter.grad:clone(), "sum") or false
    end
    return list
  end
  local expected = gradients "none"
  for _, kind in ipairs(kinds) do
    for i, total in ipairs(gradients(kind)) do
      if expected[i] then
        checks.near(whole_gradients[kind] and expected[i] or expected[i] / size, total, kind, 1e-14)
      end
    end
  end
end)

checks.it("refuses calls that need whole tensors or would be wrong", function()
  for _, kind in ipairs {"gradients", "full"} do
    local accelerator = accelhost.Accelerator {sharding = kind}
    local net = new_net "float32"
    local bare = optim.AdamW(net:parameters())
    local model, prepared, muon = accelerator:prepare(net, bare, optim.Adafactor(net:parameters()))
    local x, y = batch(1, "float32")
    accelerator:backward(F.mse_loss(model(x), y))
    checks.refused("it needs whole tensors", function() muon:step() end)
    checks.refused("pass the optimizer to accelerator:prepare", function() bare:step() end)
    prepared:step()
    checks.refused("a step needs every process", function()
      accelerator:join_uneven_inputs({model}, function() end)
    end)
    checks.refused("no state is sharded here", function()
      accelhost.Accelerator():save_state(os.tmpname(), {sharded = true})
    end)
    if size > 1 then
      prepared:zero_grad()
      accelerator:no_sync(model, function() F.mse_loss(model(x), y):backward() end)
      checks.refused("is this process's own sum", function() prepared:step() end)
    end
    accelerator:free_memory()
  end
end)

checks.it("refuses to change parameters in place by their values where a host has one copy of them", function()
  for _, kind in ipairs {"none", "optimizer", "gradients", "full"} do
    local accelerator = accelhost.Accelerator {sharding = kind}
    local model = accelerator:prepare(new_net "float64")
    local weight = model.first.weight
    local before = weight:detach():clone()
    local ways = {function() weight:add_(1) end, function() weight.data:mul_(2) end,
      function() weight:narrow(0, 1, 3):clamp_(-1e-3, 1e-3) end, function() weight:detach():view(-1):sub_(1) end}
    for _, way in ipairs(ways) do
      if kind == "full" and size > 1 and not on_device then
        checks.refused("one memory for all processes of the host", function() accelhost.no_grad(way) end)
        checks.near(before, weight, "a refused write", 0)
      else
        accelhost.no_grad(way)
      end
    end
    accelerator:wait_for_everyone()
    if kind ~= "full" or accelerator.is_local_main_process or on_device then
      accelhost.no_grad(function() weight:copy_(before + 1) end)
    end
    accelerator:wait_for_everyone()
    checks.near(before + 1, weight, "written by one process", 0)
    accelerator:wait_for_everyone()
    accelhost.no_grad(function() weight:fill_(3) end)
    checks.near(accelhost.full(weight:shape(), 3, {dtype = "float64"}), weight, "written by all", 0)
    accelerator:free_memory()
  end
end)

-- Keeps its sums in float64.
local Plain = optim.Optimizer:extend "Plain"
function Plain:init(params)
  self.elementwise = true
  self:setup(params, {lr = 0.5})
end
function Plain:step(closure)
  return self:each_parameter(closure, function(group, parameter)
    local own = self.state[parameter] or {seen = (parameter:detach() * 0):double()}
    own.seen:add_(parameter.grad:double() / 3)
    self.state[parameter] = own
    parameter:sub_((own.seen * group.lr):to(parameter.dtype))
  end)
end
local function plain(net) return Plain(net:parameters()) end

checks.it("steps a user's optimizer that declares itself element-wise", function()
  local options = {make = plain}
  local expected = train(sharded(options, "none"))
  for _, kind in ipairs(kinds) do
    local got = train(sharded(options, kind))
    same_weights(expected, got, 0)
    for id, values in pairs(expected.optimizer:state_dict().state) do
      checks.near(values.seen, got.optimizer:state_dict().state[id].seen, "state", 0)
    end
  end
end)

-- Call fn with the name of a folder that all processes share, and remove it.
local function in_folder(fn)
  local shared = {os.tmpname() .. ".state"}
  if size > 1 then
    accelhost.utils.broadcast_object_list(shared, 0)
  end
  fn(shared[1])
  state:wait_for_everyone()
  if rank == 0 then os.execute("rm -r '" .. shared[1] .. "'") end
end

local function finish(run, from, to)
  local losses = {}
  for number = from, to do
    local x, y = batch(number, "float32")
    local loss = F.mse_loss(run.model(x), y)
    run.accelerator:backward(loss)
    run.optimizer:step()
    run.optimizer:zero_grad()
    losses[#losses + 1] = loss:item()
  end
  run.losses = losses
  return run
end

-- Save a run in one way, continue it, and load it into others that continue as it did.
local function go_on(folder, make, saved, loaded)
  local in_parts = {parts = {sharding = "gradients"}, plugin = {fsdp_plugin = {state_dict_type = "SHARDED_STATE_DICT"}}}
  local first = train {dtype = "float32", make = make, steps = 2, accelerator = in_parts[saved] or {sharding = saved}}
  first.accelerator:save_state(folder, {sharded = saved == "parts" or nil})
  local parts = io.open(folder .. "/optimizer_rank_0.safetensors")
  assert((parts ~= nil) == (in_parts[saved] ~= nil))
  if parts then parts:close() end
  finish(first, 3, 5)
  for _, kind in ipairs(loaded) do
    local other = train(sharded({dtype = "float32", make = make, steps = 0}, kind))
    other.accelerator:load_state(folder)
    same_weights(first, finish(other, 3, 5), 0)
  end
end

checks.it("resumes from a checkpoint of any sharding to the bit", function()
  in_folder(function(folder)
    for _, saved in ipairs {"none", "optimizer", "gradients", "full", "parts", "plugin"} do
      go_on(folder, adamw, saved, {"none", "optimizer", "gradients", "full"})
    end
  end)
end)

checks.it("resumes so where an optimizer's state has another dtype than the parameters", function()
  in_folder(function(folder)
    for _, saved in ipairs {"none", "full", "parts"} do go_on(folder, plain, saved, {"none", "full"}) end
  end)
end)

checks.it("trains by the Trainer's fsdp as without it", function()
  local function trained(fsdp)
    local folder = os.tmpname()
    local trainer = accelhost.Trainer {
      model = new_net "float32",
      args = {output_dir = folder .. ".trainer", fsdp = fsdp, max_steps = 4, learning_rate = 1e-2, disable_tqdm = true,
        logging_strategy = "no", save_strategy = "no", per_device_train_batch_size = 2},
      train_dataset = accelhost.data.TensorDataset(accelhost.arange(280):view(40, 7):sin(),
        accelhost.arange(120):view(40, 3):cos()),
      compute_loss = function(model, inputs) return F.mse_loss(model(inputs.inputs), inputs.labels) end,
    }
    trainer:train()
    assert(trainer.accelerator.sharding == (fsdp == "full_shard" and "full" or fsdp and "gradients" or "none"))
    return {model = trainer.model, losses = {}}
  end
  local expected = trained(nil)
  for _, fsdp in ipairs {"full_shard", "shard_grad_op auto_wrap"} do same_weights(expected, trained(fsdp), 1e-6) end
end)

if not on_device then checks.it("works with virtual_shards where gradients are not sharded", function()
  local function run(sharding)
    accelhost.manual_seed(5)
    local accelerator = accelhost.Accelerator {virtual_shards = 4, sharding = sharding}
    local net = new_net "float64"
    local model, optimizer, loader = accelerator:prepare(net, sgd(net), accelhost.data.DataLoader(
      accelhost.data.TensorDataset(accelhost.arange(280):view(40, 7):sin():double()), {batch_size = 2}))
    for x in loader do
      accelerator:backward(model(x):square():mean())
      optimizer:step()
      optimizer:zero_grad()
    end
    return {model = model, losses = {}}
  end
  same_weights(run "none", run "optimizer", 0)
  checks.refused("its tree of sums needs whole gradients", function() run "full" end)
end) end

checks.finish()
