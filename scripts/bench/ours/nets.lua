--- The nets of train.lua: make() -> module, batch() -> input, labels, loss(model, input, labels) -> scalar, batch_size.
local accelhost = require "accelhost"
local nn, F, models = accelhost.nn, accelhost.nn.functional, accelhost.models

local BasicNet = nn.Module:extend "BasicNet"
function BasicNet:init()
  self.conv1 = nn.Conv2d(1, 32, 3, 1)
  self.conv2 = nn.Conv2d(32, 64, 3, 1)
  self.dropout1 = nn.Dropout(0.25)
  self.dropout2 = nn.Dropout(0.5)
  self.fc1 = nn.Linear(9216, 128)
  self.fc2 = nn.Linear(128, 10)
end

function BasicNet:forward(x)
  x = F.relu(self.conv1(x))
  x = F.relu(self.conv2(x))
  x = self.dropout1(F.max_pool2d(x, 2))
  x = F.relu(self.fc1(x:flatten(1)))
  return F.log_softmax(self.fc2(self.dropout2(x)), 1)
end

local Mlp = nn.Module:extend "Mlp"
function Mlp:init()
  self.fc1 = nn.Linear(784, 128)
  self.fc2 = nn.Linear(128, 10)
end

function Mlp:forward(x)
  return F.log_softmax(self.fc2(F.relu(self.fc1(x:flatten(1)))), 1)
end

-- ResNet-18 with the stem for small images (3x3, no pooling).
local Block = nn.Module:extend "Block"
function Block:init(inputs, outputs, stride)
  self.conv1 = nn.Conv2d(inputs, outputs, 3, {stride = stride, padding = 1, bias = false})
  self.bn1 = nn.BatchNorm2d(outputs)
  self.conv2 = nn.Conv2d(outputs, outputs, 3, {padding = 1, bias = false})
  self.bn2 = nn.BatchNorm2d(outputs)
  if stride > 1 or inputs ~= outputs then
    local conv = nn.Conv2d(inputs, outputs, 1, {stride = stride, bias = false})
    self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(outputs))
  end
end

function Block:forward(x)
  local y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
  return F.relu(y + (self.shortcut and self.shortcut(x) or x))
end

local function resnet18(channels, dtype)
  return function()
    local layers = {nn.Conv2d(channels, 64, 3, {padding = 1, bias = false}), nn.BatchNorm2d(64), nn.ReLU()}
    local inputs = 64
    for stage, outputs in ipairs {64, 128, 256, 512} do
      layers[#layers + 1] = Block(inputs, outputs, stage > 1 and 2 or 1)
      layers[#layers + 1] = Block(outputs, outputs, 1)
      inputs = outputs
    end
    for _, head in ipairs {nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)} do layers[#layers + 1] = head end
    return nn.Sequential(unpack(layers)):to(dtype)
  end
end

local function images(count, channels, size, dtype)
  return function()
    return accelhost.randn({count, channels, size, size}, {dtype = dtype}), accelhost.randint(0, 10, {count})
  end
end

local function classifier(make, count, channels, size, dtype, loss)
  return {make = make, batch = images(count, channels, size, dtype), batch_size = count,
    loss = function(model, input, labels) return loss(model(input), labels) end}
end

-- Sentences of 64 tokens; the BERT of 2 layers, 128 wide.
local bert_tiny = {
  batch_size = 32,
  make = function()
    return models.BertForSequenceClassification {vocab_size = 30522, hidden_size = 128, num_hidden_layers = 2,
      num_attention_heads = 2, intermediate_size = 512, num_labels = 2}
  end,
  batch = function() return accelhost.randint(0, 30522, {32, 64}), accelhost.randint(0, 2, {32}) end,
  loss = function(model, ids, labels) return model{input_ids = ids, labels = labels}.loss end,
}

local function gpt(count, tokens, width, layers, heads)
  return {
    batch_size = count,
    make = function()
      return models.GPT2LMHeadModel {vocab_size = 65, n_positions = tokens, n_embd = width, n_layer = layers,
        n_head = heads, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0}
    end,
    batch = function()
      local ids = accelhost.randint(0, 65, {count, tokens})
      return ids, ids
    end,
    loss = bert_tiny.loss,
  }
end

-- A perceptron whose step is all overhead.
local tiny = {
  batch_size = 16,
  make = function() return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)) end,
  batch = function() return accelhost.randn {16, 16}, accelhost.randn {16, 1} end,
  loss = function(model, input, labels) return F.mse_loss(model(input), labels) end,
}

-- The wide perceptron of precision.lua.
local wide = {
  batch_size = 256,
  make = function()
    return nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
  end,
  batch = function() return accelhost.randn(256, 1024), accelhost.randint(0, 10, {256}) end,
  loss = function(model, input, labels) return F.cross_entropy(model(input), labels) end,
}

local Lstm = nn.Module:extend "Lstm"
function Lstm:init()
  self.embedding, self.lstm = nn.Embedding(65, 64), nn.LSTM(64, 128, {batch_first = true})
  self.head = nn.Linear(128, 65)
end

function Lstm:forward(ids)
  return self.head((self.lstm(self.embedding(ids)))):flatten(0, 1)
end

-- A language model of characters on 16 blocks of 32.
local lstm = {
  batch_size = 16,
  make = Lstm,
  batch = function() return accelhost.randint(0, 65, {16, 32}), accelhost.randint(0, 65, {16 * 32}) end,
  loss = function(model, ids, labels) return F.cross_entropy(model(ids), labels) end,
}

return {
  tiny = tiny,
  wide = wide,
  lstm = lstm,
  mnist_cnn = classifier(BasicNet, 64, 1, 28, "float32", F.nll_loss),
  mlp = classifier(Mlp, 64, 1, 28, "float32", F.nll_loss),
  resnet18_28 = classifier(resnet18(1, "float32"), 16, 1, 28, "float32", F.cross_entropy),
  resnet18_32 = classifier(resnet18(3, "float32"), 16, 3, 32, "float32", F.cross_entropy),
  resnet18_28_float64 = classifier(resnet18(1, "float64"), 16, 1, 28, "float64", F.cross_entropy),
  bert_tiny = bert_tiny,
  char_gpt = gpt(16, 128, 128, 4, 4), -- the model of examples/char_gpt.lua
  gpt = gpt(12, 256, 384, 6, 6), -- 10.8 million parameters
}
