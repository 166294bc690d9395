-- Fine-tunes a BERT that sorts sentences, or pairs of them, in one process or in many:
--
--   accelhost examples/text_classification.lua --data sst2 --model minilm
--   accelhost launch --num_processes 2 examples/text_classification.lua --data mrpc/train.csv,mrpc/dev.csv ...
--
-- The data are TSV or CSV files with columns "sentence" (or "sentence1", "sentence2") and "label", a number from 0 or
-- a name. --model is a checkpoint's folder in Hugging Face's layout. Without it a small model and its vocabulary are
-- made from the data; without data there are generated sentences. With --lora an adapter is trained, and --save writes
-- the model with it in its weights. By the Trainer: text_classification_trainer.lua.
local accelhost = require "accelhost"
local data, metrics, models, optim, peft, text =
  accelhost.data, accelhost.metrics, accelhost.models, accelhost.optim, accelhost.peft, accelhost.text

local args = accelhost.parse_args {
  description = "Trains a classifier of sentences or of pairs of them.",
  {"data", nil, "folder with train and test (or dev) files, or TRAIN,TEST", type = "string", metavar = "DIR|FILES"},
  {"model", nil, "folder of a checkpoint to begin with", type = "string", metavar = "DIR"},
  {"save", nil, "folder that the model and its tokenizer are written to", type = "string", metavar = "DIR"},
  {"lora", 0, "rank of a LoRA adapter that is trained in place of the weights (0: none)", integer = true, minimum = 0},
  {"epochs", 3, "passes over the training set", integer = true, minimum = 1},
  {"batch_size", 32, "rows per process and step", integer = true, minimum = 1},
  {"max_length", 128, "tokens of a row at most", integer = true, minimum = 4},
  {"lr", nil, "learning rate (default: 5e-5 with --model, 5e-4 with --lora too, else 2e-3)", type = "number"},
  {"warmup", 0.1, "share of the steps in which the rate rises"},
  {"seed", 42, "seed of weights and order", integer = true, minimum = 0},
  {"quiet", false, "print nothing"},
  {"smoke", false, "the same in a few seconds"},
}
if args.smoke then args.epochs, args.batch_size = 1, 8 end
args.lr = args.lr or args.model and (args.lora > 0 and 5e-4 or 5e-5) or 2e-3

local function generated(count)
  local nouns = {"film", "story", "cast", "ending", "score"}
  local words = {[0] = {"dull", "weak", "tired", "awful"}, {"moving", "clever", "warm", "splendid"}}
  local sentences, labels = {}, {}
  for i, draw in ipairs(accelhost.randint(0, 1000, {count, 4}):tolist()) do
    local label = draw[1] % 2
    local word = words[label][draw[2] % 4 + 1]
    if draw[3] % 3 == 0 then label, word = 1 - label, "not " .. word end
    sentences[i], labels[i] = ("The %s is %s."):format(nouns[draw[4] % #nouns + 1], word), label
  end
  return data.Table {sentence = sentences, label = labels}
end

-- The first of some files that is there.
local function find(folder, names)
  for _, name in ipairs(names) do
    for _, ending in ipairs {".tsv", ".csv"} do
      local file = io.open(folder .. "/" .. name .. ending)
      if file then
        file:close()
        return folder .. "/" .. name .. ending
      end
    end
  end
  error(("%s: there is no %s.tsv or .csv"):format(folder, table.concat(names, ".tsv, .csv or ")), 0)
end

local function load(where)
  if not where then
    return generated(args.smoke and 1600 or 4000), generated(400)
  end
  local train, test = where:match "^(.*),(.*)$"
  if not train then train, test = find(where, {"train"}), find(where, {"test", "dev", "validation"}) end
  local parts = data.load_dataset("csv", {data_files = {train = train, test = test}})
  return parts.train, parts.test
end

local accelerator = accelhost.Accelerator()
accelhost.set_seed(args.seed)
local train_set, test_set = load(args.data)
local first = train_set[0].sentence1 and "sentence1" or "sentence"
local second = train_set[0].sentence2 and "sentence2" or nil

-- Labels that are names get numbers in the order of the alphabet.
local classes, number_of, name_of = train_set:unique "label", {}, {}
table.sort(classes)
for i, class in ipairs(classes) do number_of[class], name_of[i - 1] = i - 1, tostring(class) end

-- A vocabulary: the marks, all characters alone and within a word, and the words that are there most often.
local function make_tokenizer(set)
  local counts, words, vocabulary, size = {}, {}, {}, 0
  local function add(token)
    if not vocabulary[token] then vocabulary[token], size = size, size + 1 end
  end
  for _, mark in ipairs {"[PAD]", "[UNK]", "[CLS]", "[SEP]"} do add(mark) end
  for i = 0, #set - 1 do
    local row = set[i]
    for word in (row[first] .. " " .. (second and row[second] or "")):lower():gmatch "[%w\128-\255]+" do
      if not counts[word] then words[#words + 1] = word end
      counts[word] = (counts[word] or 0) + 1
    end
  end
  for byte = 33, 126 do
    local character = string.char(byte)
    if not character:find "%u" then
      add(character)
      add("##" .. character)
    end
  end
  table.sort(words, function(a, b)
    if counts[a] ~= counts[b] then return counts[a] > counts[b] end
    return a < b
  end)
  for i = 1, math.min(#words, 8000) do add(words[i]) end
  local cls, sep = {SpecialToken = {id = "[CLS]", type_id = 0}}, {SpecialToken = {id = "[SEP]", type_id = 0}}
  local a, b = {Sequence = {id = "A", type_id = 0}}, {Sequence = {id = "B", type_id = 1}}
  return text.Tokenizer({
    model = {type = "WordPiece", vocab = vocabulary}, normalizer = {type = "BertNormalizer"},
    pre_tokenizer = {type = "BertPreTokenizer"},
    post_processor = {
      type = "TemplateProcessing", single = {cls, a, sep},
      pair = {cls, a, sep, b, {SpecialToken = {id = "[SEP]", type_id = 1}}},
      special_tokens = {
        ["[CLS]"] = {id = "[CLS]", ids = {vocabulary["[CLS]"]}, tokens = {"[CLS]"}},
        ["[SEP]"] = {id = "[SEP]", ids = {vocabulary["[SEP]"]}, tokens = {"[SEP]"}},
      },
    },
  }, {pad_token = "[PAD]", unk_token = "[UNK]", cls_token = "[CLS]", sep_token = "[SEP]"})
end

local tokenizer = args.model and text.AutoTokenizer.from_pretrained(args.model) or make_tokenizer(train_set)
local model
if args.model then
  model = models.AutoModelForSequenceClassification.from_pretrained(args.model, {id2label = name_of})
else
  model = models.BertForSequenceClassification {
    vocab_size = #tokenizer, hidden_size = 64, num_hidden_layers = 2, num_attention_heads = 4, intermediate_size = 128,
    max_position_embeddings = args.max_length, id2label = name_of,
  }
end

if args.lora > 0 then
  model = peft.get_peft_model(model, peft.LoraConfig {
    r = args.lora, lora_alpha = 2 * args.lora, target_modules = "all-linear", task_type = "SEQ_CLS",
  })
end

-- Sentences become numbers of tokens batch by batch, and as long as the longest of the batch.
local function collate(rows)
  local firsts, seconds, labels = {}, second and {}, {}
  for i, row in ipairs(rows) do
    firsts[i], labels[i] = row[first], number_of[row.label]
    if second then seconds[i] = row[second] end
  end
  local batch = tokenizer(firsts, seconds, {padding = true, truncation = true, max_length = args.max_length})
  return {
    input_ids = batch.input_ids, attention_mask = batch.attention_mask, token_type_ids = batch.token_type_ids,
    labels = accelhost.tensor(labels, {dtype = "int64"}),
  }
end

local train_loader = data.DataLoader(train_set, {batch_size = args.batch_size, shuffle = true, collate_fn = collate})
local test_loader = data.DataLoader(test_set, {batch_size = 2 * args.batch_size, collate_fn = collate})
local optimizer = optim.AdamW(model:parameters(), {lr = args.lr, weight_decay = 0})
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)
local steps = args.epochs * #train_loader
local schedule = accelerator:prepare(optim.get_scheduler("linear", optimizer,
  {num_warmup_steps = math.floor(args.warmup * steps), num_training_steps = steps}))

-- Counted over all processes: each adds its own rows, and the counts are reduced.
local function evaluate()
  local measured = metrics.combine {
    metrics.accuracy {accelerator = accelerator},
    metrics.f1 {average = #classes == 2 and "binary" or "macro", accelerator = accelerator},
  }
  model:eval()
  accelhost.no_grad(function()
    for batch in test_loader do
      measured:add_batch {predictions = model(batch).logits:argmax(1), references = batch.labels}
    end
  end)
  return measured:compute()
end

local function report(line)
  if not args.quiet then accelerator:print(line) end
end

local found
for epoch = 1, args.epochs do
  model:train()
  for batch in accelhost.progress(train_loader, {
    desc = ("epoch %d/%d"):format(epoch, args.epochs), disable = args.quiet,
  }) do
    accelerator:backward(model(batch).loss)
    optimizer:step()
    schedule:step()
    optimizer:zero_grad()
  end
  found = evaluate()
  report(("epoch %d: accuracy %.4f, f1 %.4f"):format(epoch, found.accuracy, found.f1))
end
if args.save and accelerator.is_main_process then
  local trained = accelerator:unwrap_model(model)
  if args.lora > 0 then trained = trained:merge_and_unload() end
  trained:save_pretrained(args.save)
  tokenizer:save_pretrained(args.save)
end
report(("Accuracy: %.2f"):format(100 * found.accuracy))
