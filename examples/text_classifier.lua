-- Learns from sentences whether they praise or blame, with a small Transformer encoder over words:
--
--   accelhost examples/text_classifier.lua --train sst2/train.tsv --test sst2/test.tsv
--   accelhost launch --num_processes 2 examples/text_classifier.lua ...
--
-- A file holds lines "sentence<TAB>0 or 1". Without files it learns from generated sentences.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.parse_args {
  description = "Trains a classifier of sentences.",
  {"train", nil, "TSV file to learn from (default: generated sentences)", type = "string", metavar = "FILE"},
  {"test", nil, "TSV file to test on", type = "string", metavar = "FILE"},
  {"epochs", 2, "passes over the training set", integer = true, minimum = 1},
  {"batch_size", 64, "sentences per process and step", integer = true, minimum = 1},
  {"width", 64, "features of each word", integer = true, minimum = 4},
  {"length", 48, "words of a sentence at most", integer = true, minimum = 1},
  {"lr", 1e-3, "learning rate"},
  {"seed", 1, "seed of weights and order", integer = true, minimum = 0},
  {"smoke", false, "the same in a few seconds"},
}
if args.smoke then args.width, args.epochs = 32, 1 end

local function generated(count)
  local nouns = {"film", "story", "cast", "ending", "score"}
  local words = {[0] = {"dull", "weak", "tired", "awful"}, {"moving", "clever", "warm", "splendid"}}
  local rows, draws = {}, accelhost.randint(0, 1000, {count, 4}):tolist()
  for i, draw in ipairs(draws) do
    local label = draw[1] % 2
    local word = words[label][draw[2] % 4 + 1]
    if draw[3] % 3 == 0 then label, word = 1 - label, "not " .. word end
    rows[i] = {("the %s is %s"):format(nouns[draw[4] % #nouns + 1], word), label}
  end
  return rows
end

local function read(path)
  local rows = {}
  for line in io.lines(path) do
    local sentence, label = line:match "^(.*)\t([01])%s*$"
    if label then rows[#rows + 1] = {sentence, tonumber(label)} end
  end
  return rows
end

local accelerator = accelhost.Accelerator()
accelhost.manual_seed(args.seed)
local train_rows = args.train and read(args.train) or generated(args.smoke and 1500 or 4000)
local test_rows = args.test and read(args.test) or generated(1000)

local vocabulary, words = {}, 1 -- 0 pads, 1 is a word that was never met
for _, row in ipairs(train_rows) do
  for word in row[1]:gmatch "%S+" do
    if not vocabulary[word] then
      words = words + 1
      vocabulary[word] = words
    end
  end
end

local Sentences = data.Dataset:extend "Sentences"
function Sentences:init(rows) self.rows = rows end
function Sentences:len() return #self.rows end
function Sentences:get(i)
  local codes = {}
  for word in self.rows[i + 1][1]:gmatch "%S+" do
    if #codes < args.length then codes[#codes + 1] = vocabulary[word] or 1 end
  end
  return accelhost.tensor(codes, {dtype = "int64"}), self.rows[i + 1][2]
end

local function collate(samples) -- sentences of a batch become as long as the longest
  local codes, labels = {}, {}
  for i, sample in ipairs(samples) do codes[i], labels[i] = sample[1], sample[2] end
  return nn.utils.rnn.pad_sequence(codes, {batch_first = true}), accelhost.tensor(labels, {dtype = "int64"})
end

local Classifier = nn.Module:extend "Classifier"
function Classifier:init()
  self.word, self.place = nn.Embedding(words + 1, args.width, {padding_idx = 0}), nn.Embedding(args.length, args.width)
  self.encoder = nn.TransformerEncoderLayer(args.width, 4, 2 * args.width, {dropout = 0.1, batch_first = true})
  self.head = nn.Linear(args.width, 2)
end
function Classifier:forward(x) -- (batch, time) of word numbers
  local padding = x:eq(0)
  local h = self.word(x) + self.place(accelhost.arange(x:size(1)))
  h = self.encoder(h, {src_key_padding_mask = padding})
  local there = padding:logical_not():unsqueeze(-1):float()
  return self.head((h * there):sum(1) / there:sum(1))
end

local model = Classifier()
local optimizer = optim.AdamW(model:parameters(), {lr = args.lr})
local train_loader = data.DataLoader(Sentences(train_rows),
  {batch_size = args.batch_size, shuffle = true, collate_fn = collate})
local test_loader = data.DataLoader(Sentences(test_rows), {batch_size = args.batch_size, collate_fn = collate})
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

for epoch = 1, args.epochs do
  for sentences, labels in accelhost.progress(train_loader, {desc = ("epoch %d/%d"):format(epoch, args.epochs)}) do
    accelerator:backward(F.cross_entropy(model(sentences), labels))
    optimizer:step()
    optimizer:zero_grad()
  end
end

model:eval()
local correct = 0
accelhost.no_grad(function()
  for sentences, labels in test_loader do
    local predictions, truth = accelerator:gather_for_metrics(model(sentences):argmax(1), labels)
    correct = correct + predictions:eq(truth):sum():item()
  end
end)
accelerator:print(("Accuracy: %.2f"):format(100 * correct / #test_rows))
