-- Trains embeddings of sentences by pairs that belong together (arXiv 1705.00652), in one process or in many: each
-- sentence is to be nearer to its partner than to the partners of the other pairs of its batch.
--
--   accelhost examples/sentence_embeddings.lua --model all-MiniLM-L6-v2 --data pairs.tsv --save runs/embeddings
--   accelhost launch --num_processes 2 examples/sentence_embeddings.lua --model ...
--
-- The file has columns "anchor" and "positive". --model is a folder of sentence-transformers, or of an encoder alone.
-- Without it there is a small random BERT with a vocabulary of the data.
local accelhost = require "accelhost"
local data, models, optim, text = accelhost.data, accelhost.models, accelhost.optim, accelhost.text

local args = accelhost.parse_args {
  description = "Trains embeddings of sentences on pairs.",
  {"data", nil, "TSV or CSV file with columns anchor and positive", type = "string", metavar = "FILE"},
  {"model", nil, "folder of a checkpoint to begin with", type = "string", metavar = "DIR"},
  {"save", nil, "folder that the model is written to (default without --model: runs/sentence_embeddings)",
    type = "string", metavar = "DIR"},
  {"epochs", 2, "passes over the training set", integer = true, minimum = 1},
  {"batch_size", 32, "pairs per process and step", integer = true, minimum = 2},
  {"lr", nil, "learning rate (default: 2e-5 with --model, else 2e-3)", type = "number"},
  {"precision", "no", "mixed precision", choices = {"no", "bf16"}},
  {"smoke", false, "the same in a few seconds"},
}
if args.smoke then args.epochs = 1 end

-- Pairs that name the same animal and the same place by other words.
local function generated(count)
  local animals = {{"dog", "hound"}, {"cat", "kitten"}, {"horse", "pony"}, {"bird", "crow"}, {"fish", "trout"}}
  local places = {{"garden", "yard"}, {"river", "stream"}, {"house", "home"}, {"wood", "forest"}, {"road", "path"}}
  local anchors, positives = {}, {}
  for i, draw in ipairs(accelhost.randint(0, 1000, {count, 2}):tolist()) do
    local animal, place = animals[draw[1] % #animals + 1], places[draw[2] % #places + 1]
    anchors[i] = ("The %s is in the %s."):format(animal[1], place[1])
    positives[i] = ("A %s was seen near a %s."):format(animal[2], place[2])
  end
  return data.Table {anchor = anchors, positive = positives}
end

-- A folder with a small BERT and a vocabulary of the words of the pairs.
local function make_folder(pairs_of_texts, folder)
  local vocabulary, size = {["[PAD]"] = 0, ["[UNK]"] = 1}, 2
  for i = 0, #pairs_of_texts - 1 do
    local row = pairs_of_texts[i]
    for word in (row.anchor .. " " .. row.positive):lower():gmatch "%w+" do
      if not vocabulary[word] then vocabulary[word], size = size, size + 1 end
    end
  end
  local tokenizer = text.Tokenizer({
    model = {type = "WordPiece", vocab = vocabulary}, normalizer = {type = "BertNormalizer"},
    pre_tokenizer = {type = "BertPreTokenizer"},
  }, {pad_token = "[PAD]", unk_token = "[UNK]"})
  models.BertModel({
    vocab_size = size, hidden_size = 48, num_hidden_layers = 1, num_attention_heads = 4, intermediate_size = 96,
    max_position_embeddings = 64,
  }):save_pretrained(folder)
  tokenizer:save_pretrained(folder)
  return folder
end

local accelerator = accelhost.Accelerator {mixed_precision = args.precision}
accelhost.set_seed(42)
local rows = args.data and data.load_dataset("csv", {data_files = args.data, split = "train"})
  or generated(args.smoke and 640 or 4000)
local folder = args.model or "runs/sentence_embeddings"
if not args.model and accelerator.is_main_process then make_folder(rows, folder) end
accelerator:wait_for_everyone()
local model = models.SentenceTransformer(folder)
local loss_of = models.MultipleNegativesRankingLoss(model, {gather_across_devices = true})

local function collate(list)
  local anchors, positives = {}, {}
  for i, row in ipairs(list) do anchors[i], positives[i] = row.anchor, row.positive end
  return {model:tokenize(anchors), model:tokenize(positives)}
end
local parts = data.random_split(rows, {0.1, 0.9}) -- at least one row for the test
local loader = data.DataLoader(parts[2],
  {batch_size = args.batch_size, shuffle = true, drop_last = true, collate_fn = collate})
local optimizer = optim.AdamW(model:parameters(), {lr = args.lr or (args.model and 2e-5 or 2e-3)})
loss_of, optimizer, loader = accelerator:prepare(loss_of, optimizer, loader)

-- The share of held-out sentences, a few of which differ, whose nearest partner is theirs.
local function evaluate()
  local anchors, positives, seen = {}, {}, {}
  for i = 0, #parts[1] - 1 do
    local row = parts[1][i]
    if not seen[row.anchor] then
      seen[row.anchor] = true
      anchors[#anchors + 1], positives[#positives + 1] = row.anchor, row.positive
    end
  end
  local nearest = model:similarity(model:encode(anchors), model:encode(positives)):argmax(1)
  return 100 * nearest:eq(accelhost.arange(#anchors)):float():mean():item()
end

for epoch = 1, args.epochs do
  loss_of:train()
  for batch in accelhost.progress(loader, {desc = ("epoch %d/%d"):format(epoch, args.epochs)}) do
    accelerator:backward(loss_of(batch))
    optimizer:step()
    optimizer:zero_grad()
  end
  loss_of:eval()
  accelerator:print(("epoch %d: %.1f %% of the sentences are next to their partners"):format(epoch, evaluate()))
end
local target = args.save or not args.model and folder
if target and accelerator.is_main_process then model:save_pretrained(target) end
accelerator:print(("Accuracy: %.2f%s"):format(evaluate(), target and "; model in " .. target or ""))
