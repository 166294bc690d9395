--- A training step in float32 or under autocast: BasicNet on 64 images, a 1024-2048-2048-10 network on 256 rows, or a
--- GPT of 2 layers of width 256 on 8 x 128 tokens; AdamW.
--
-- usage: accelhost precision.lua NET DTYPE STEPS      NET: cnn, wide or gpt; DTYPE: float32, bfloat16 or float16
--
-- Prints the median processor time of a step.
local accelhost = require "accelhost"
local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim

local net, dtype, steps = arg[1], arg[2], tonumber(arg[3])

local Block = nn.Module:extend "Block"
function Block:init(width, heads)
  self.heads = heads
  self.norm1, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
  self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
end

function Block:forward(x)
  local batch, length, width = unpack(x:shape())
  local qkv = self.qkv(self.norm1(x)):view(batch, length, 3, self.heads, width / self.heads):permute(2, 0, 3, 1, 4)
  local mixed = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {is_causal = true})
  x = x + self.out(mixed:transpose(1, 2):reshape(batch, length, width))
  return x + self.down(F.gelu(self.up(self.norm2(x))))
end

local Gpt = nn.Module:extend "Gpt"
function Gpt:init()
  self.token, self.place = nn.Embedding(256, 256), nn.Embedding(128, 256)
  self.blocks = nn.Sequential(Block(256, 8), Block(256, 8))
  self.norm, self.head = nn.LayerNorm(256), nn.Linear(256, 256)
end

function Gpt:forward(tokens)
  local x = self.token(tokens) + self.place(accelhost.arange(tokens:size(1)))
  return self.head(self.norm(self.blocks(x))):reshape(-1, 256)
end

-- net -> model, inputs, labels
local nets = {
  cnn = function()
    local model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
      nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10))
    return model, accelhost.randn(64, 1, 28, 28), accelhost.randint(0, 10, {64})
  end,
  wide = function()
    local model = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
    return model, accelhost.randn(256, 1024), accelhost.randint(0, 10, {256})
  end,
  gpt = function() return Gpt(), accelhost.randint(0, 256, {8, 128}), accelhost.randint(0, 256, {1024}) end,
}

accelhost.manual_seed(1)
local model, inputs, labels = nets[net]()
local optimizer = optim.AdamW(model:parameters(), {lr = 1e-3})
local options = {dtype = dtype ~= "float32" and dtype or nil, enabled = dtype ~= "float32"}

local function step()
  local loss = accelhost.autocast("cpu", options, function() return F.cross_entropy(model(inputs), labels) end)
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
end

for _ = 1, 3 do step() end
local times = {}
for i = 1, steps do
  local begin = os.clock()
  step()
  times[i] = os.clock() - begin
end
table.sort(times)
print("step_ms", 1e3 * times[math.floor(steps / 2) + 1])
