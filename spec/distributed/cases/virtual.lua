-- Trains with virtual_shards and prints digests of the results. usage: virtual.lua KIND [folder [save|load]]
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data
local bit = require "bit"

local kind, folder, way = arg[1], arg[2], arg[3]

local function digest(tensors)
  local hash = 5381
  for _, tensor in ipairs(tensors) do
    for _, value in ipairs(tensor:detach():to "float64":flatten():tolist()) do
      local text = ("%.17g"):format(value)
      for i = 1, #text do hash = bit.bxor(bit.lshift(hash, 5) + bit.rshift(hash, 27), text:byte(i)) end
    end
  end
  return bit.tohex(hash)
end

local Gpt = nn.Module:extend "Gpt"
function Gpt:init()
  self.token, self.place = nn.Embedding(17, 24), nn.Embedding(8, 24)
  self.norm, self.qkv, self.out = nn.LayerNorm(24), nn.Linear(24, 72), nn.Linear(24, 24)
  self.drop, self.head = nn.Dropout(0.1), nn.Linear(24, 17)
end
function Gpt:forward(ids)
  local x = self.token(ids) + self.place(accelhost.arange(8))
  local q, k, v = unpack(self.qkv(self.norm(x)):reshape(-1, 8, 3, 2, 12):permute(2, 0, 3, 1, 4):unbind(0))
  local mixed = F.scaled_dot_product_attention(q, k, v, {is_causal = true, dropout_p = self.training and 0.1 or 0})
  return self.head(x + self.drop(self.out(mixed:transpose(1, 2):reshape(-1, 8, 24))))
end

-- kind -> options of the accelerator, model, data set, loader's options, optimizer, loss of a batch
local kinds = {}

function kinds.mlp()
  local inputs = accelhost.randn(74, 12)
  local set = data.TensorDataset(inputs, accelhost.randint(0, 5, {74}))
  local model = nn.Sequential(nn.Linear(12, 33), nn.ReLU(), nn.Dropout(0.3), nn.Linear(33, 5))
  return {}, model, set, {batch_size = 3, shuffle = true},
    optim.SGD(model:parameters(), {lr = 0.1, momentum = 0.9, weight_decay = 1e-3}),
    function(x, y) return F.cross_entropy(model(x), y) end
end

function kinds.cnn()
  local t = data.transforms
  local pictures = (accelhost.rand(40, 3, 10, 10) * 255):to "uint8"
  local Pictures = data.Dataset:extend "Pictures"
  local change = t.Compose {t.RandomHorizontalFlip(), t.RandomCrop(8), t.ConvertImageDtype "float32"}
  function Pictures:len() return 40 end -- luacheck: ignore self
  -- Draws of a transform, and of the default generator.
  function Pictures:get(i) return change(pictures[i]) + accelhost.randn(1) * 0.1, i % 4 end -- luacheck: ignore self
  local model = nn.Sequential(nn.Conv2d(3, 8, 3, {padding = 1}), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 4))
  return {}, model, Pictures(), {batch_size = 2, shuffle = true}, optim.AdamW(model:parameters(), {lr = 1e-2}),
    function(x, y) return F.cross_entropy(model(x), y) end
end

function kinds.gpt()
  local set = data.TensorDataset(accelhost.randint(0, 17, {50, 9}))
  local model = Gpt()
  return {mixed_precision = "bf16", gradient_accumulation_steps = 2}, model, set, {batch_size = 2, shuffle = true},
    optim.AdamW(model:parameters(), {lr = 1e-2}),
    function(ids) return F.cross_entropy(model(ids:narrow(1, 0, 8)):flatten(0, 1), ids:narrow(1, 1, 8):flatten()) end
end

-- Windows of two steps of a model that centres its input by a running mean.
local Centred = nn.Module:extend "Centred"
function Centred:init()
  self.linear = nn.Linear(12, 5)
  self:register_buffer("mean", accelhost.zeros(12))
end
function Centred:forward(x)
  if self.training then self.mean = self.mean * 0.9 + x:mean(0) * 0.1 end
  return self.linear((x - self.mean):tanh())
end
function kinds.windows()
  local options, _, set, loading = kinds.mlp()
  options.gradient_accumulation_steps = 2
  local model = Centred()
  return options, model, set, loading, optim.SGD(model:parameters(), {lr = 0.1}),
    function(x, y) return F.cross_entropy(model(x), y) end
end

-- Batches of 5 rows of 24, in shards that a last round leaves out or cuts short; weights of one's own.
function kinds.uneven()
  local options, model, _, loading, optimizer, loss = kinds.mlp()
  options.even_batches = false
  local set = data.TensorDataset(accelhost.randn(58, 12), accelhost.randint(0, 5, {58}))
  return options, model, set, loading, optimizer, loss
end

-- Samples made by workers, drawn with replacement; evaluations in the middle of a pass that draw and are left by break.
local function midway() end
function kinds.nested()
  local options, model, set, _, optimizer, loss = kinds.cnn()
  local Plain = data.Dataset:extend "Plain"
  local t = data.transforms
  local change = t.Compose {t.RandomCrop(8), t.ConvertImageDtype "float32"}
  local pictures = (accelhost.rand(40, 3, 10, 10) * 255):to "uint8"
  function Plain:len() return 40 end -- luacheck: ignore self
  function Plain:get(i) return change(pictures[i]), i % 4 end -- luacheck: ignore self
  midway = function(accelerator, loader)
    model[2]:eval() -- batch norm; dropout draws
    for i, x, y in accelhost.enumerate(loader) do
      local out = accelhost.no_grad(function() return loss(x, y) end)
      accelerator:gather_for_metrics(out)
      if i == 1 then break end
    end
    model[2]:train()
  end
  return options, model, Plain(), {batch_size = 2, num_workers = 2,
    sampler = data.RandomSampler(set, {replacement = true})}, optimizer, loss
end

accelhost.manual_seed(3)
local options, model, set, loading, optimizer, loss_of = kinds[kind]()
options.virtual_shards = 8
local accelerator = accelhost.Accelerator(options)
local loader = data.DataLoader(set, loading)
local test = data.DataLoader(set, {batch_size = loading.batch_size, shuffle = kind == "nested"})
local scheduler = optim.lr_scheduler.StepLR(optimizer, {step_size = 2, gamma = 0.9})
model, optimizer, loader, test, scheduler = accelerator:prepare(model, optimizer, loader, test, scheduler)

local steps, losses = 0, {}
if way == "load" then
  accelerator:load_state(folder)
  steps = 4
end
local function train()
  while steps < 9 do
    for x, y in loader do
      accelerator:accumulate(model)
      local loss = loss_of(x, y)
      accelerator:backward(loss)
      if accelerator.sync_gradients then
        accelerator:clip_grad_norm_(model:parameters(), 0.5)
        steps = steps + 1
      end
      optimizer:step()
      scheduler:step()
      optimizer:zero_grad()
      for _, value in ipairs(accelerator:gather_for_metrics(loss):tolist()) do losses[#losses + 1] = value end
      if way == "save" and steps == 4 and accelerator.sync_gradients then return accelerator:save_state(folder) end
      if steps == 9 and accelerator.sync_gradients then break end
      if accelerator.sync_gradients then midway(accelerator, test) end
    end
  end
end
train()

-- Draws outside of loops, and an evaluation.
local drawn, guesses = accelhost.randn(3), {}
model:eval()
for x, y in test do
  local out = accelhost.no_grad(function() return loss_of(x, y) end)
  guesses[#guesses + 1] = accelerator:gather_for_metrics(out)
end
accelerator:print(("%s weights %s buffers %s losses %s drawn %s evaluated %s of %d steps"):format(kind,
  digest(model:parameters()), digest(model:buffers()), way and "-" or digest {accelhost.tensor(losses)},
  digest {drawn}, digest(guesses), steps))
