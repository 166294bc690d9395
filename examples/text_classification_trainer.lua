-- Fine-tunes a BERT that sorts sentences, or pairs of them, by the Trainer: text_classification.lua without its loop.
--
--   accelhost examples/text_classification_trainer.lua --data sst2 --model minilm --learning_rate 5e-5
--   accelhost launch --num_processes 2 examples/text_classification_trainer.lua --data mrpc/train.csv,mrpc/dev.csv
--
-- Every argument of the Trainer is an option (see --help). The data are TSV or CSV files with columns "sentence" (or
-- "sentence1" and "sentence2") and "label", a number from 0 or a name. Without --model a small model is made that knows
-- the words of the data; without data there are generated sentences.
local accelhost = require "accelhost"
local data, metrics, models, text = accelhost.data, accelhost.metrics, accelhost.models, accelhost.text

local args, own = accelhost.TrainingArguments.parse_args {
  description = "Trains a classifier of sentences or of pairs of them by the Trainer.",
  {"data", nil, "folder with train.tsv and test.tsv, or TRAIN,TEST", type = "string", metavar = "DIR|FILES"},
  {"model", nil, "folder of a checkpoint to begin with", type = "string", metavar = "DIR"},
  {"max_length", 128, "tokens of a row at most", integer = true, minimum = 4},
  {"smoke", false, "the same in a few seconds"},
  defaults = {
    output_dir = "runs/text_classification_trainer", num_train_epochs = 2, per_device_train_batch_size = 32,
    per_device_eval_batch_size = 64, learning_rate = 2e-3, warmup_steps = 0.1, eval_strategy = "epoch",
    save_strategy = "epoch", logging_steps = 50,
  },
}

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

local function load(where)
  if not where then return generated(own.smoke and 1600 or 4000), generated(400) end
  local train, test = where:match "^(.*),(.*)$"
  local files = {train = train or where .. "/train.tsv", test = test or where .. "/test.tsv"}
  local parts = data.load_dataset("csv", {data_files = files})
  return parts.train, parts.test
end

accelhost.set_seed(args.seed)
local train_set, test_set = load(own.data)
local pairs_of_sentences = train_set[0].sentence1 ~= nil
local first, second = pairs_of_sentences and "sentence1" or "sentence", pairs_of_sentences and "sentence2" or nil

-- Labels that are names get numbers in the order of the alphabet.
local classes, number_of = train_set:unique "label", {}
table.sort(classes)
for i, class in ipairs(classes) do number_of[class] = i - 1 end

-- A tokenizer that knows the words of a data set.
local function make_tokenizer(set)
  local vocabulary, size = {["[PAD]"] = 0, ["[UNK]"] = 1, ["[CLS]"] = 2, ["[SEP]"] = 3}, 4
  for i = 0, #set - 1 do
    local row = set[i]
    for word in (row[first] .. " " .. (second and row[second] or "")):lower():gmatch "[%w\128-\255]+" do
      if not vocabulary[word] then vocabulary[word], size = size, size + 1 end
    end
  end
  return text.Tokenizer({
    model = {type = "WordPiece", vocab = vocabulary}, normalizer = {type = "BertNormalizer"},
    pre_tokenizer = {type = "BertPreTokenizer"},
    post_processor = {type = "BertProcessing", cls = {"[CLS]", 2}, sep = {"[SEP]", 3}},
  }, {pad_token = "[PAD]", unk_token = "[UNK]", cls_token = "[CLS]", sep_token = "[SEP]"})
end

local tokenizer = own.model and text.AutoTokenizer.from_pretrained(own.model) or make_tokenizer(train_set)

-- Numbers of tokens in place of the sentences, once for all; the collator fills each batch up to its longest row.
local function tokenize(set)
  return set:map(function(batch)
    local encoded = tokenizer(batch[first], second and batch[second],
      {truncation = true, max_length = own.max_length, return_tensors = false})
    local labels = {}
    local given = accelhost.is_tensor(batch.label) and batch.label:tolist() or batch.label
    for i, label in ipairs(given) do labels[i] = number_of[label] end
    return {input_ids = encoded.input_ids, token_type_ids = encoded.token_type_ids,
      attention_mask = encoded.attention_mask, label = labels}
  end, {batched = true, remove_columns = set.column_names})
end

local trainer = accelhost.Trainer {
  model_init = function()
    if own.model then
      return models.AutoModelForSequenceClassification.from_pretrained(own.model, {num_labels = #classes})
    end
    return models.BertForSequenceClassification {
      vocab_size = #tokenizer, hidden_size = 64, num_hidden_layers = 2, num_attention_heads = 4,
      intermediate_size = 128, max_position_embeddings = own.max_length, num_labels = #classes,
    }
  end,
  args = args, train_dataset = tokenize(train_set), eval_dataset = tokenize(test_set), processing_class = tokenizer,
  data_collator = text.DataCollatorWithPadding(tokenizer),
  preprocess_logits_for_metrics = function(logits) return logits:argmax(1) end,
  compute_metrics = function(p)
    local measured = metrics.combine {metrics.accuracy(), metrics.f1 {average = #classes == 2 and "binary" or "macro"}}
    return measured:compute {predictions = p.predictions, references = p.label_ids}
  end,
}
trainer:train(args.resume_from_checkpoint)
local found = trainer:evaluate()
if trainer.state.is_world_process_zero then
  print(("Accuracy: %.2f; checkpoints in %s"):format(100 * found.eval_accuracy, args.output_dir))
end
