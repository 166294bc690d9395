-- Teaches a T5 to write summaries (or translations: any texts for texts), in one process or in many:
--
--   accelhost examples/summarization.lua --model t5-small --data articles.jsonl --save runs/summaries
--   accelhost launch --num_processes 2 examples/summarization.lua --model ...
--
-- A line of the file is an object with "text" and "summary". --model is a checkpoint's folder in Hugging Face's layout.
-- Without it there is a small random T5; without data, weather reports whose summaries name the place and the weather.
local accelhost = require "accelhost"
local data, models, optim, text = accelhost.data, accelhost.models, accelhost.optim, accelhost.text

local args = accelhost.parse_args {
  description = "Trains a T5 on texts and their summaries.",
  {"data", nil, "file of texts with summaries, an object a line", type = "string", metavar = "FILE"},
  {"model", nil, "folder of a checkpoint to begin with", type = "string", metavar = "DIR"},
  {"save", nil, "folder that the model and its tokenizer are written to", type = "string", metavar = "DIR"},
  {"prefix", "summarize: ", "beginning of each input, as the checkpoint expects it", metavar = "TEXT"},
  {"epochs", 4, "passes over the training set", integer = true, minimum = 1},
  {"batch_size", 16, "rows per process and step", integer = true, minimum = 1},
  {"max_source", 512, "tokens of a text at most", integer = true, minimum = 4},
  {"max_target", 64, "tokens of a summary at most", integer = true, minimum = 4},
  {"lr", nil, "learning rate (default: 3e-4 with --model, else 3e-3)", type = "number"},
  {"precision", "no", "mixed precision", choices = {"no", "bf16"}},
  {"smoke", false, "the same in a few seconds"},
}
if args.smoke then args.epochs = 2 end

local places = {"paris", "lima", "oslo", "cairo", "delhi", "quito"}
local weathers = {"rain", "snow", "fog", "sun", "wind"}
local fillers = {"people stay at home", "the market is open", "trains are late", "children play outside"}

local function generated(count)
  local texts, summaries = {}, {}
  for i, draw in ipairs(accelhost.randint(0, 1000, {count, 4}):tolist()) do
    local place, weather = places[draw[1] % #places + 1], weathers[draw[2] % #weathers + 1]
    texts[i] = ("in %s %s . there is %s all day . %s"):format(place, fillers[draw[3] % #fillers + 1], weather,
      fillers[draw[4] % #fillers + 1])
    summaries[i] = ("%s in %s"):format(weather, place)
  end
  return data.Table {text = texts, summary = summaries}
end

-- A tokenizer of the words of the reports, which ends each text as T5's does.
local function make_tokenizer()
  local vocabulary, size = {["<pad>"] = 0, ["</s>"] = 1, ["<unk>"] = 2}, 3
  local words = table.concat(places, " ") .. " " .. table.concat(weathers, " ") .. " " .. table.concat(fillers, " ")
    .. " in there is all day . summarize :"
  for word in words:gmatch "%S+" do
    if not vocabulary[word] then vocabulary[word], size = size, size + 1 end
  end
  local a, b = {Sequence = {id = "A", type_id = 0}}, {Sequence = {id = "B", type_id = 0}}
  local ending, added = {SpecialToken = {id = "</s>", type_id = 0}}, {}
  for i, content in ipairs {"<pad>", "</s>", "<unk>"} do added[i] = {id = i - 1, content = content, special = true} end
  return text.Tokenizer({
    added_tokens = added,
    model = {type = "WordPiece", vocab = vocabulary, unk_token = "<unk>"}, pre_tokenizer = {type = "BertPreTokenizer"},
    post_processor = {
      type = "TemplateProcessing", single = {a, ending}, pair = {a, ending, b, ending},
      special_tokens = {["</s>"] = {id = "</s>", ids = {1}, tokens = {"</s>"}}},
    },
  }, {
    pad_token = "<pad>", eos_token = "</s>", unk_token = "<unk>", model_input_names = {"input_ids", "attention_mask"},
  })
end

local accelerator = accelhost.Accelerator {mixed_precision = args.precision}
accelhost.set_seed(42)
local tokenizer = args.model and text.AutoTokenizer.from_pretrained(args.model) or make_tokenizer()
local model = args.model and models.AutoModelForSeq2SeqLM.from_pretrained(args.model)
  or models.T5ForConditionalGeneration {
    vocab_size = #tokenizer, d_model = 48, d_kv = 12, d_ff = 96, num_layers = 2, num_heads = 4, dropout_rate = 0,
  }

local function ids_of(words, most)
  return tokenizer(words, {truncation = true, max_length = most, return_tensors = false}).input_ids
end

local pad = text.DataCollatorForSeq2Seq(tokenizer)
local function collate(list)
  for i, row in ipairs(list) do
    list[i] = {input_ids = ids_of(args.prefix .. row.text, args.max_source),
      labels = ids_of(row.summary, args.max_target)}
  end
  return pad(list)
end

local parts = data.random_split(args.data and data.load_dataset("json", {data_files = args.data, split = "train"})
  or generated(args.smoke and 480 or 2000), {0.1, 0.9}) -- at least one row for the test
local train_loader = data.DataLoader(parts[2], {batch_size = args.batch_size, shuffle = true, collate_fn = collate})
local test_loader = data.DataLoader(parts[1], {batch_size = args.batch_size, collate_fn = collate})
local optimizer = optim.AdamW(model:parameters(), {lr = args.lr or (args.model and 3e-4 or 3e-3), weight_decay = 0})
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

-- The share of held-out texts whose summary is written word for word.
local function evaluate()
  local right = {}
  model:eval()
  for batch in test_loader do
    local written = accelerator:unwrap_model(model):generate({
      input_ids = batch.input_ids, attention_mask = batch.attention_mask, max_new_tokens = batch.labels:size(1),
    })
    local wanted = batch.labels:masked_fill(batch.labels:eq(-100), tokenizer.pad_token_id)
    local hits = {}
    for i = 0, wanted:size(0) - 1 do
      local words = tokenizer:decode(written[i], {skip_special_tokens = true})
      hits[i + 1] = words == tokenizer:decode(wanted[i], {skip_special_tokens = true}) and 1 or 0
    end
    right[#right + 1] = accelerator:gather_for_metrics(accelhost.tensor(hits))
  end
  return 100 * accelhost.cat(right):mean():item()
end

for epoch = 1, args.epochs do
  model:train()
  for batch in accelhost.progress(train_loader, {desc = ("epoch %d/%d"):format(epoch, args.epochs)}) do
    accelerator:backward(model(batch).loss)
    accelerator:clip_grad_norm_(model:parameters(), 1)
    optimizer:step()
    optimizer:zero_grad()
  end
end
local trained = accelerator:unwrap_model(model)
if args.save and accelerator.is_main_process then
  trained:save_pretrained(args.save)
  tokenizer:save_pretrained(args.save)
end
local accuracy = evaluate()
local row = parts[1][0]
local ids = tokenizer(args.prefix .. row.text, {truncation = true, max_length = args.max_source}).input_ids
accelerator:print(row.text .. " -> " .. tokenizer:decode(trained:generate(ids, {max_new_tokens = args.max_target})[0],
  {skip_special_tokens = true}))
accelerator:print(("Accuracy: %.2f"):format(accuracy))
