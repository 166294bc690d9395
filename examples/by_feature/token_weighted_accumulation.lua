-- A mean over tokens, not over batches: texts of unequal lengths, accumulated over micro-steps and processes.
--
-- The loss of a batch is the mean over its tokens, and batches have unequal numbers of them. `backward(loss, {weight =
-- tokens})` makes the gradient sum(tokens x gradient) / sum(tokens) over the window and all processes: exactly that of
-- the mean over all tokens of the step, however they are spread.
--
--   accelhost launch --num_processes 2 examples/by_feature/token_weighted_accumulation.lua
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.parse_args {
  description = "Trains a language model of small words, weighing each batch by its tokens.",
  {"epochs", 6, "passes over the training set", integer = true, minimum = 1},
  {"gradient_accumulation_steps", 4, "batches of each process in an optimizer step", integer = true, minimum = 1},
  {"lr", 1e-2, "learning rate"},
  {"smoke", false, "the same in a few seconds"},
}
if args.smoke then args.epochs = 2 end

local PAD, LETTERS, MOST = 0, 27, 12

-- Words that rise through the alphabet in steps of one or two, of 3 to 12 letters.
local Words = data.Dataset:extend "Words"
function Words:init(count) self.count = count end
function Words:len() return self.count end
function Words:get(i)
  local length, letter, letters = 3 + i * 7 % 10, 1 + i * 5 % 26, {}
  for k = 1, MOST do
    letters[k] = k <= length and letter or PAD
    letter = (letter + i % 2) % 26 + 1
  end
  return accelhost.tensor(letters, {dtype = "int64"})
end

local accelerator = accelhost.Accelerator {gradient_accumulation_steps = args.gradient_accumulation_steps}
accelhost.set_seed(1)
local Model = nn.Module:extend "Model"
function Model:init()
  self.embedding, self.rnn, self.head = nn.Embedding(LETTERS, 16), nn.GRU(16, 32, {batch_first = true}),
    nn.Linear(32, LETTERS)
end
function Model:forward(x)
  local states = self.rnn(self.embedding(x))
  return self.head(states)
end

local model = Model()
local optimizer = optim.AdamW(model:parameters(), {lr = args.lr})
local loader = data.DataLoader(Words(480), {batch_size = 6, shuffle = true})
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)

-- The mean over the tokens that follow another one, and how many they are.
local function loss_of(words)
  local scores, targets = model(words[{{}, {0, -1}}]), words[{{}, {1}}]
  return F.cross_entropy(scores:reshape(-1, LETTERS), targets:reshape(-1), {ignore_index = PAD}),
    targets:ne(PAD):sum():item()
end

local total, tokens
for epoch = 1, args.epochs do
  total, tokens = 0, 0
  for words in loader do
    accelerator:accumulate(model, function()
      local loss, count = loss_of(words)
      accelerator:backward(loss, {weight = count})
      optimizer:step()
      optimizer:zero_grad()
      total, tokens = total + loss:item() * count, tokens + count
    end)
  end
  local sums = accelerator:reduce(accelhost.tensor({total, tokens}, {dtype = "float64"})):tolist()
  total, tokens = sums[1], sums[2]
  accelerator:print(("epoch %d: loss %.3f over %d tokens"):format(epoch, total / tokens, tokens))
end
accelerator:print(("Perplexity: %.2f"):format(math.exp(total / tokens)))
