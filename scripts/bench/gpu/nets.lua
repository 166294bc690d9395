--- The networks of the GPU benches, each with a batch that stays on the device: nets.NAME(batch, smoke) -> a table of
--- the model, its optimizer, `loss(model)`, the size of a step (`items` images or tokens) and, for a GPT, the
--- operations of a token. With `smoke` everything is small, for a run on the simulated GPU.
--
-- nets.py has the same in PyTorch.
local accelhost = require "accelhost"
local nn, F, optim, models = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.models

local nets = {}

local BasicNet = nn.Module:extend "BasicNet"
function BasicNet:init()
  self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, 1), nn.Conv2d(32, 64, 3, 1)
  self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
  self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)
end

function BasicNet:forward(x)
  x = F.relu(self.conv2(F.relu(self.conv1(x))))
  x = self.dropout1(F.max_pool2d(x, 2))
  x = F.relu(self.fc1(x:flatten(1)))
  return F.log_softmax(self.fc2(self.dropout2(x)), 1)
end

--- BasicNet on MNIST's shape, AdamW.
function nets.mnist_cnn(batch, smoke)
  batch = smoke and 2 or batch
  local model = BasicNet()
  local images, labels = accelhost.randn(batch, 1, 28, 28), accelhost.randint(0, 10, {batch})
  return {
    model = model, optimizer = optim.AdamW(model:parameters(), {lr = 1e-3}), items = batch, unit = "images",
    loss = function() return F.nll_loss(model(images), labels) end,
  }
end

local Block = nn.Module:extend "Block"
function Block:init(from, to, stride)
  self.conv1 = nn.Conv2d(from, to, 3, {stride = stride, padding = 1, bias = false})
  self.bn1 = nn.BatchNorm2d(to)
  self.conv2 = nn.Conv2d(to, to, 3, {padding = 1, bias = false})
  self.bn2 = nn.BatchNorm2d(to)
  self.shortcut = nn.Sequential()
  if stride ~= 1 or from ~= to then
    self.shortcut = nn.Sequential(nn.Conv2d(from, to, 1, {stride = stride, bias = false}), nn.BatchNorm2d(to))
  end
end

function Block:forward(x)
  local y = F.relu(self.bn1(self.conv1(x)))
  return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))
end

--- ResNet-18 for images of 32 x 32, as in examples/resnet.lua; SGD.
function nets.resnet18(batch, smoke)
  batch = smoke and 2 or batch
  local width = smoke and 4 or 64
  local stages, from = nn.Sequential(), width
  for stage = 0, 3 do
    local to = width * 2 ^ stage
    stages:append(nn.Sequential(Block(from, to, stage == 0 and 1 or 2), Block(to, to, 1)))
    from = to
  end
  local model = nn.Sequential(nn.Conv2d(3, width, 3, {padding = 1, bias = false}), nn.BatchNorm2d(width), nn.ReLU(),
    stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(from, 10))
  local images, labels = accelhost.randn(batch, 3, 32, 32), accelhost.randint(0, 10, {batch})
  return {
    model = model, items = batch, unit = "images",
    optimizer = optim.SGD(model:parameters(), {lr = 0.1, momentum = 0.9, weight_decay = 5e-4, nesterov = true}),
    loss = function() return F.cross_entropy(model(images), labels) end,
  }
end

--- GPT-2 of 124M parameters on blocks of 1024 tokens, without dropout unless it is given; AdamW. The vocabulary is
--- padded to 50304.
function nets.gpt2(batch, smoke, dropout)
  dropout = dropout or 0
  batch = smoke and 2 or batch
  local tokens, layers, width, heads = smoke and 16 or 1024, smoke and 2 or 12, smoke and 32 or 768, smoke and 2 or 12
  local model = models.GPT2LMHeadModel {vocab_size = smoke and 64 or 50304, n_positions = tokens, n_embd = width,
    n_layer = layers, n_head = heads, resid_pdrop = dropout, embd_pdrop = dropout, attn_pdrop = dropout}
  local decayed, others, count = {}, {}, 0
  for name, parameter in model:named_parameters() do
    table.insert(parameter:dim() > 1 and decayed or others, parameter)
    if not name:find("wpe", 1, true) then count = count + parameter:numel() end
  end
  local ids = accelhost.randint(0, smoke and 64 or 50304, {batch, tokens})
  return {
    model = model, items = batch * tokens, unit = "tokens", operations = 6 * count + 12 * layers * width * tokens,
    optimizer = optim.AdamW({{params = decayed, weight_decay = 0.1}, {params = others, weight_decay = 0}},
      {lr = 6e-4, betas = {0.9, 0.95}}),
    -- A prepared model would return its logits in float32, a pass that PyTorch's side does not have.
    loss = function() return model{input_ids = ids, labels = ids, skip_logits = true}.loss end,
  }
end

--- An encoder of MiniLM's shape (6 layers of 384) on sentences of 128 tokens, a third of them padding; AdamW.
function nets.minilm(batch, smoke)
  batch = smoke and 2 or batch
  local tokens, width = smoke and 12 or 128, smoke and 24 or 384
  local model = models.BertForSequenceClassification {vocab_size = smoke and 50 or 30522, hidden_size = width,
    num_hidden_layers = smoke and 1 or 6, num_attention_heads = 12, intermediate_size = 4 * width, num_labels = 2}
  local ids, mask = accelhost.randint(0, smoke and 50 or 30522, {batch, tokens}), accelhost.ones({batch, tokens},
    {dtype = "int64"})
  for row = 0, batch - 1 do
    local kept = math.floor(tokens * (1 / 3 + 2 / 3 * ((row * 7) % batch + 1) / batch))
    if kept < tokens then mask:narrow(0, row, 1):narrow(1, kept, tokens - kept):zero_() end
  end
  local labels = accelhost.randint(0, 2, {batch})
  return {
    model = model, items = batch * tokens, unit = "tokens",
    optimizer = optim.AdamW(model:parameters(), {lr = 5e-5, weight_decay = 0}),
    loss = function() return model{input_ids = ids, attention_mask = mask, labels = labels}.loss end,
  }
end

return nets
