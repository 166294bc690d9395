-- Compiled steps of data parallel ranks on the CPU: compile.lua [how]. Losses, weights and buffers are those of the
-- function, to the bit. Prints "ok"; HOW "freed", "hook", "gather": the error.
local accelhost = require "accelhost"
local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim
local how = ...

local function normed()
  return nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.25), nn.Linear(16, 10))
end

-- One of two heads has no gradient.
local Forked = nn.Module:extend "Forked"
function Forked:init()
  self.body, self.head, self.other = nn.Linear(12, 16), nn.Linear(16, 10), nn.Linear(16, 10)
end
function Forked:forward(x) return self.head(self.body(x):tanh()) end

local accelerator
local function train(compiled, options)
  accelhost.manual_seed(3)
  local handler = accelhost.DistributedDataParallelKwargs {bucket_cap_mb = options.cap, comm_hook = options.hook}
  accelerator = accelhost.Accelerator {cpu = true, mixed_precision = options.precision or "no",
    kwargs_handlers = {handler}}
  local net = (options.net or normed)()
  local optimizer = optim.AdamW(net:parameters(), {lr = 0.02})
  local scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, {T_max = 20})
  net, optimizer, scheduler = accelerator:prepare(net, optimizer, scheduler)
  local function step(x, y)
    local loss = F.cross_entropy(net(x), y)
    accelerator:backward(loss)
    accelerator:clip_grad_norm_(net:parameters(), 0.5)
    optimizer:step()
    scheduler:step()
    optimizer:zero_grad()
    return loss, how == "gather" and accelerator:gather(loss)
  end
  local call = compiled and accelerator:compile(step) or step
  local seen = {}
  accelhost.manual_seed(10 + accelerator.process_index)
  for _ = 1, 12 do
    local loss = call(accelhost.randn {8, 12}, accelhost.randint(0, 10, {8}))
    seen[#seen + 1] = ("%.17g"):format(loss:item())
  end
  assert(not compiled or call.captured, "the step was not captured")
  for _, list in ipairs {net:parameters(), net:buffers()} do
    for _, tensor in ipairs(list) do
      for _, number in ipairs(tensor:detach():flatten():tolist()) do seen[#seen + 1] = ("%.17g"):format(number) end
    end
  end
  return table.concat(seen, " "), call
end

if how == "freed" then
  local _, call = train(true, {cap = 0.0005})
  accelerator:free_memory()
  collectgarbage()
  print(pcall(call, accelhost.randn {8, 12}, accelhost.randint(0, 10, {8})))
elseif how then
  print(pcall(train, true, {cap = 25, hook = how == "hook" and "fp16" or nil}))
else
  for i, options in ipairs {{cap = 0.0005}, {cap = 25, precision = "bf16"}, {cap = 0.0005, net = Forked}} do
    local a, b = train(false, options), train(true, options)
    assert(a == b, ("setting %d:\n%s\n%s"):format(i, a:sub(1, 300), b:sub(1, 300)))
  end
  print "ok"
end
