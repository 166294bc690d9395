-- Memory and time of a GPT with AdamW by the sharded parts of its state:
--
--   accelhost launch --num_processes 4 scripts/bench/sharding.lua full [STEPS]
--
-- A process's memory is its proportional set size (Pss of /proc/self/smaps_rollup): its own memory, and its part of
-- shared mappings. It is read where it is large, in forward behind the last block, in backward behind each block, and
-- around the step; rank 0 prints the peak of each process and the time of a step.
local accelhost = require "accelhost"
local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim

local sharding, steps = arg[1] or "none", tonumber(arg[2] or 3)
local small = os.getenv "SMALL" ~= nil
local width, heads, depth, length, vocabulary = 768, 12, 12, 64, 32768
if small then width, heads, depth, vocabulary = 64, 4, 3, 512 end

local peak, where = 0, "?"
local function look(place)
  local file = assert(io.open "/proc/self/smaps_rollup")
  local kib = tonumber(file:read("*a"):match "\nPss:%s*(%d+) kB")
  file:close()
  if kib > peak then peak, where = kib, place end
end

local Block = nn.Module:extend "Block"
function Block:init()
  self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
  self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
  self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
end

local function heads_of(x) return x:view(x:size(0), x:size(1), heads, -1):transpose(1, 2) end

function Block:forward(x)
  local q, k, v = unpack(self.qkv(self.ln_1(x)):chunk(3, -1))
  local mixed = F.scaled_dot_product_attention(heads_of(q), heads_of(k), heads_of(v), {is_causal = true})
  x = x + self.proj(mixed:transpose(1, 2):reshape(x:shape()))
  return x + self.out(F.gelu(self.fc(self.ln_2(x))))
end

local GPT = nn.Module:extend "GPT"
function GPT:init()
  self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
  self.h = nn.ModuleList {}
  for _ = 1, depth do self.h:append(Block()) end
  self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, {bias = false})
  self.head.weight = self.wte.weight
end

function GPT:forward(ids)
  local x = self.wte(ids) + self.wpe(accelhost.arange(ids:size(1)))
  for i = 1, depth do
    x = self.h[i](x)
    if x.requires_grad then x:register_hook(function() look("backward, block " .. i) end) end
  end
  return self.head(self.ln_f(x))
end

accelhost.manual_seed(0)
local accelerator = accelhost.Accelerator {sharding = sharding}
local net = GPT()
local count = 0
for _, parameter in ipairs(net:parameters()) do count = count + parameter:numel() end
local model, optimizer = accelerator:prepare(net, optim.AdamW(net:parameters(), {lr = 3e-4}))
look "prepare"
accelhost.manual_seed(accelerator.process_index)
local took, loss = {}, nil
for step = 1, steps do
  accelerator:wait_for_everyone()
  local begin = os.clock()
  local ids = accelhost.randint(vocabulary, {1, length + 1})
  loss = F.cross_entropy(model(ids:narrow(1, 0, length)):view(-1, vocabulary), ids:narrow(1, 1, length):reshape(-1))
  look "forward"
  accelerator:backward(loss)
  look "backward"
  optimizer:step()
  look "step"
  optimizer:zero_grad()
  took[step] = os.clock() - begin
end
local all = accelerator:gather(accelhost.tensor({peak / 1024, took[steps]}, {dtype = "float64"}))
if accelerator.is_main_process then
  local mib, seconds = {}, {}
  for i, value in ipairs(all:tolist()) do
    local list = i % 2 == 1 and mib or seconds
    list[#list + 1] = ("%.1f"):format(value)
  end
  print(("%s: %.1f M parameters, %d processes, peak Pss %s MiB (%s), processor time of a step %s s, loss %.6f"):format(
    sharding, count / 1e6, accelerator.num_processes, table.concat(mib, " "), where, table.concat(seconds, " "),
    loss:item()))
end
