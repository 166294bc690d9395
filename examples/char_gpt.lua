-- Trains a small GPT on the characters of a text, then lets it write:
--
--   accelhost examples/char_gpt.lua --text shakespeare.txt
--   accelhost launch --num_processes 2 examples/char_gpt.lua --text shakespeare.txt
--
-- Without a text it learns to add ("27+45=72").
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.parse_args {
  description = "Trains a character GPT.",
  {"text", nil, "file to learn from (default: generated sums)", type = "string", metavar = "FILE"},
  {"steps", 500, "optimizer steps", integer = true, minimum = 1},
  {"batch_size", 16, "windows per process and step", integer = true, minimum = 1},
  {"context", 64, "characters that the model sees", integer = true, minimum = 2},
  {"width", 128, "of the model", integer = true, minimum = 4},
  {"heads", 4, "of attention", integer = true, minimum = 1},
  {"layers", 3, "number of blocks", integer = true, minimum = 1},
  {"lr", 1e-3, "learning rate"},
  {"seed", 1, "seed of weights and windows", integer = true, minimum = 0},
  {"smoke", false, "the same in a few seconds, with a smaller model"},
}
if args.smoke then args.steps, args.width, args.layers = 60, 32, 1 end

local Block = nn.Module:extend "Block"

function Block:init(width, heads)
  self.heads = heads
  self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
  self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
  self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
end

function Block:forward(x) -- (batch, time, width)
  local batch, time, width = unpack(x:shape())
  local qkv = self.qkv(self.norm1(x)):view(batch, time, 3, self.heads, -1):permute(2, 0, 3, 1, 4)
  local q, k, v = unpack(qkv:unbind(0))
  local y = F.scaled_dot_product_attention(q, k, v, {is_causal = true})
  x = x + self.proj(y:transpose(1, 2):reshape(batch, time, width))
  return x + self.down(F.gelu(self.up(self.norm2(x))))
end

local Gpt = nn.Module:extend "Gpt"

function Gpt:init(characters)
  self.token, self.place = nn.Embedding(characters, args.width), nn.Embedding(args.context, args.width)
  self.blocks = nn.ModuleList()
  for _ = 1, args.layers do self.blocks:append(Block(args.width, args.heads)) end
  self.norm, self.head = nn.LayerNorm(args.width), nn.Linear(args.width, characters)
end

function Gpt:forward(x) -- (batch, time) of character numbers
  local h = self.token(x) + self.place(accelhost.arange(x:size(1)))
  for _, block in ipairs(self.blocks) do h = block(h) end
  return self.head(self.norm(h))
end

local function sums() -- lines of additions
  local lines, numbers = {}, accelhost.randint(0, 50, {4000, 2}):tolist()
  for i, pair in ipairs(numbers) do lines[i] = ("%d+%d=%d\n"):format(pair[1], pair[2], pair[1] + pair[2]) end
  return table.concat(lines)
end

local accelerator = accelhost.Accelerator()
accelhost.manual_seed(args.seed)
local file = args.text and assert(io.open(args.text, "rb"))
local text = file and file:read("*a") or sums()

local number, character = {}, {} -- of each character, and back
for byte = 0, 255 do
  local c = string.char(byte)
  if text:find(c, 1, true) then
    number[c], character[#character + 1] = #character, c
  end
end
local codes = {}
for i = 1, #text do codes[i] = number[text:sub(i, i)] end
codes = accelhost.tensor(codes, {dtype = "int64"})

local Windows = data.Dataset:extend "Windows" -- a stretch of the text, and the same one character later
function Windows:len() return codes:size(0) - args.context end -- luacheck: ignore self
function Windows:get(i) -- luacheck: ignore self
  return codes:narrow(0, i, args.context), codes:narrow(0, i + 1, args.context)
end

local model = Gpt(#character)
local optimizer = optim.AdamW(model:parameters(), {lr = args.lr, weight_decay = 0.1})
local loader = data.DataLoader(Windows(), {batch_size = args.batch_size, shuffle = true})
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)

local recent, step = {}, 0
local bar = accelhost.progress(loader, {total = args.steps, desc = "training"})
for inputs, targets in bar do
  local loss = F.cross_entropy(model(inputs):flatten(0, 1), targets:flatten())
  accelerator:backward(loss)
  accelerator:clip_grad_norm_(model:parameters(), 1)
  optimizer:step()
  optimizer:zero_grad()
  step = step + 1
  recent[step % 20 + 1] = accelerator:reduce(loss:detach(), "mean"):item()
  if step == args.steps then break end
end

--- The text goes on for `count` characters after a beginning.
local function write(beginning, count)
  local out = {}
  for c in beginning:gmatch "." do out[#out + 1] = number[c] or 0 end
  model:eval()
  accelhost.no_grad(function()
    for _ = 1, count do
      local window = accelhost.tensor({{unpack(out, math.max(1, #out - args.context + 1))}}, {dtype = "int64"})
      out[#out + 1] = F.softmax(model(window)[{0, -1}], -1):multinomial(1):item()
    end
  end)
  for i, code in ipairs(out) do out[i] = character[code + 1] end
  return table.concat(out)
end
accelerator:print(write("\n", 120))
local total = 0
for _, loss in ipairs(recent) do total = total + loss end
accelerator:print(("Loss: %.4f"):format(total / #recent))
