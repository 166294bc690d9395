-- Compiled steps of data parallel ranks, each on its own device: device_compile.lua [how]. Losses and weights are
-- those of the function, to the bit. Prints "ok"; HOW "closed": the error of a replay after its group closed; "kill":
-- the last rank dies before a replay; "differ": it makes another call instead of one.
local ffi = require "ffi"
ffi.cdef "int kill(int process, int signal); int getpid();"
local accelhost = require "accelhost"
local nn, F, optim, dist = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.distributed
local comm = require "accelhost._C".comm
local how = ...

local function plain() return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 10)) end
local function normed()
  return nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.25), nn.Linear(16, 10))
end
local function sgd(p) return optim.SGD(p, {lr = 0.05, momentum = 0.9}) end
local function adamw(p) return optim.AdamW(p, {lr = 0.02}) end

local accelerator
local function train(compiled, options, steps)
  accelhost.manual_seed(3)
  accelerator = accelhost.Accelerator {mixed_precision = options.precision or "no",
    kwargs_handlers = {accelhost.DistributedDataParallelKwargs {bucket_cap_mb = 0.0005}}}
  local net = (options.net or plain)()
  local optimizer = (options.optimizer or sgd)(net:parameters())
  local scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, {T_max = 20})
  net, optimizer, scheduler = accelerator:prepare(net, optimizer, scheduler)
  local function step(x, y)
    local loss = F.cross_entropy(net(x), y)
    accelerator:backward(loss)
    if options.clip then accelerator:clip_grad_norm_(net:parameters(), options.clip) end
    optimizer:step()
    scheduler:step()
    optimizer:zero_grad()
    if options.gather then return loss, accelerator:gather(loss), accelerator:reduce(loss, "mean") end
    return loss
  end
  local call = compiled and accelerator:compile(step) or step
  local seen = {}
  accelhost.manual_seed(10 + accelerator.process_index)
  for i = 1, steps do
    local x = accelhost.randn({8, 12}, {device = "cpu"}):to(accelerator.device)
    local y = accelhost.randint(0, 10, {8}, {device = "cpu"}):to(accelerator.device)
    if i == steps and options.before_last then options.before_last() end
    for _, value in ipairs {call(x, y)} do
      for _, number in ipairs(value:flatten():tolist()) do seen[#seen + 1] = ("%.17g"):format(number) end
    end
    -- Outside the graph, in one order with it.
    if options.beside then
      local sum = accelhost.full({100}, i, {device = accelerator.device})
      local work = comm.all_reduce_async(sum)
      if i % 2 == 0 then work:wait() end
    end
  end
  assert(not compiled or call.captured, "the step was not captured")
  for _, list in ipairs {net:parameters(), net:buffers()} do
    for _, tensor in ipairs(list) do
      for _, number in ipairs(tensor:detach():flatten():tolist()) do seen[#seen + 1] = ("%.17g"):format(number) end
    end
  end
  return table.concat(seen, " ")
end

local last = comm.rank() == comm.size() - 1
if how == "closed" then
  -- Of a subgroup; the graph of another group continues.
  dist.init_process_group()
  local part = dist.new_group {1, 0}
  accelerator = accelhost.Accelerator()
  local function sum_of(group)
    return accelerator:compile(function(x)
      local sum = x * 2
      dist.all_reduce(sum, {group = group})
      return sum
    end)
  end
  local within, whole, x = sum_of(part), sum_of(), accelhost.full({2}, 1, {device = accelerator.device})
  for _ = 1, 4 do assert(within(x):sum():item() == 8 and whole(x):sum():item() == 8) end
  dist.destroy_process_group(part)
  collectgarbage()
  print(pcall(within, x))
  assert(whole(x):sum():item() == 8)
  within:reset()
elseif how then
  local acts = {kill = function() ffi.C.kill(ffi.C.getpid(), 9) end,
    differ = function() dist.all_reduce(accelhost.ones(3, {device = accelerator.device})) end}
  if how == "differ" then dist.init_process_group() end
  print(pcall(train, true, {before_last = last and acts[how] or nil}, 6))
  error "as expected"
else
  for i, options in ipairs {
    {clip = 0.5}, {optimizer = adamw, beside = true}, {net = normed, gather = true},
    {precision = "bf16", optimizer = adamw}, {precision = "fp16"},
  } do
    local steps = i == 1 and 20 or 7
    local a, b = train(false, options, steps), train(true, options, steps)
    assert(a == b, ("setting %d:\n%s\n%s"):format(i, a:sub(1, 300), b:sub(1, 300)))
  end
  print "ok"
end
