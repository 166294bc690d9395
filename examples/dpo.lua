-- Teaches a chat model which of two answers people prefer, by direct preference optimization (arXiv 2305.18290) of an
-- adapter; the model without the adapter is the reference. In one process or in many:
--
--   accelhost examples/dpo.lua --model SmolLM2-135M-Instruct --data preferences.jsonl --save adapter
--   accelhost launch --num_processes 2 examples/dpo.lua --model ...
--
-- A line of the file is an object with "prompt", "chosen" and "rejected". --model is a folder in Hugging Face's layout
-- whose tokenizer has a chat template. Without it there is a small random model of characters.
local accelhost = require "accelhost"
local data, models, optim, peft, text =
  accelhost.data, accelhost.models, accelhost.optim, accelhost.peft, accelhost.text
local F = accelhost.nn.functional

local args = accelhost.parse_args {
  description = "Trains a chat model on preferences between answers.",
  {"data", nil, "file of preferences, an object a line", type = "string", metavar = "FILE"},
  {"model", nil, "folder of a checkpoint to begin with", type = "string", metavar = "DIR"},
  {"save", nil, "folder that the adapter is written to", type = "string", metavar = "DIR"},
  {"beta", 0.1, "how far the model may leave the reference: small is far"},
  {"r", 8, "rank of the adapter", integer = true, minimum = 1},
  {"epochs", 1, "passes over the training set", integer = true, minimum = 1},
  {"batch_size", 8, "pairs per process and step", integer = true, minimum = 1},
  {"max_length", 512, "tokens of a row at most", integer = true, minimum = 8},
  {"lr", nil, "learning rate (default: 5e-5 with --model, else 5e-3)", type = "number"},
  {"precision", "no", "mixed precision", choices = {"no", "bf16"}},
  {"smoke", false, "the same in a few seconds"},
}

-- Requests, with a polite answer and a rude one.
local function generated(count)
  local things, rows = {"tea", "soup", "bread", "rice"}, {}
  for i, draw in ipairs(accelhost.randint(0, 1000, {count, 3}):tolist()) do
    local thing = things[draw[1] % #things + 1]
    rows[i] = {
      prompt = ("%d %s"):format(draw[2] % 9 + 1, thing),
      chosen = ("Here is your %s%s"):format(thing, draw[3] % 2 == 0 and "." or "!"),
      rejected = ("No %s%s"):format(thing, draw[3] % 2 == 0 and "!" or "."),
    }
  end
  return rows
end

local function make_tokenizer()
  local characters = {"\n"}
  for byte = 32, 126 do characters[#characters + 1] = string.char(byte) end
  local made = text.character_tokenizer(table.concat(characters))
  made:add_special_tokens {pad_token = "<pad>", eos_token = "<end>"}
  made.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}<end>{% endfor %}"
    .. "{% if add_generation_prompt %}assistant: {% endif %}"
  return made
end

local accelerator = accelhost.Accelerator {mixed_precision = args.precision}
accelhost.set_seed(42)
local tokenizer = args.model and text.AutoTokenizer.from_pretrained(args.model) or make_tokenizer()
local model = args.model and models.AutoModelForCausalLM.from_pretrained(args.model) or models.LlamaForCausalLM {
  vocab_size = #tokenizer, hidden_size = 48, intermediate_size = 96, num_hidden_layers = 2, num_attention_heads = 4,
  num_key_value_heads = 2, eos_token_id = tokenizer.eos_token_id, pad_token_id = tokenizer.pad_token_id,
}
model = peft.get_peft_model(model, peft.LoraConfig {
  r = args.r, lora_alpha = 2 * args.r, target_modules = "all-linear", task_type = "CAUSAL_LM",
})

-- The ids of a prompt with an answer, and the labels: the answer's ids, -100 before them.
local function encode(row, answer)
  local messages = {{role = "user", content = row.prompt}}
  local prompt = tokenizer:apply_chat_template(messages,
    {return_tensors = false, return_dict = false, add_generation_prompt = true})
  messages[2] = {role = "assistant", content = answer}
  local ids = tokenizer:apply_chat_template(messages, {return_tensors = false, return_dict = false})
  local made = {input_ids = {}, labels = {}}
  for i = 1, math.min(#ids, args.max_length) do
    made.input_ids[i], made.labels[i] = ids[i], i > #prompt and ids[i] or -100
  end
  return made
end

-- One row: the chosen answers, then the rejected ones. `texts` has each token's text.
local flatten = text.DataCollatorWithFlattening()
local function collate(list)
  local answers, numbers = {}, {}
  for i, row in ipairs(list) do
    answers[i], answers[#list + i] = encode(row, row.chosen), encode(row, row.rejected)
  end
  for number, answer in ipairs(answers) do
    for _ = 1, #answer.input_ids do numbers[#numbers + 1] = number - 1 end
  end
  local batch = flatten(answers)
  batch.texts = accelhost.tensor(numbers, {dtype = "int64"})
  return batch
end

-- Log probabilities [2, pairs] of the chosen and the rejected answers.
local function log_probabilities(net, batch)
  local logits = net({input_ids = batch.input_ids, position_ids = batch.position_ids}).logits
  local tokens = batch.texts:size(0)
  local nll = F.cross_entropy(logits[0]:narrow(0, 0, tokens - 1), batch.labels[0]:narrow(0, 1, tokens - 1),
    {reduction = "none"})
  local count = batch.texts:max():item() + 1
  return -nll:new_zeros({count}):index_add(0, batch.texts:narrow(0, 1, tokens - 1), nll):view(2, -1)
end

-- The rewards [2, pairs]: beta times how much likelier an answer is than by the reference.
local function rewards(net, batch)
  local reference = accelhost.no_grad(function()
    return net:disable_adapter(log_probabilities, net, batch)
  end)
  return (log_probabilities(net, batch) - reference) * args.beta
end

local parts = data.random_split(args.data and data.load_dataset("json", {data_files = args.data, split = "train"})
  or generated(args.smoke and 200 or 1000), {0.2, 0.8}) -- at least one row for the test
local train_loader = data.DataLoader(parts[2], {batch_size = args.batch_size, shuffle = true, collate_fn = collate})
local test_loader = data.DataLoader(parts[1], {batch_size = args.batch_size, collate_fn = collate})
local optimizer = optim.AdamW(model:parameters(), {lr = args.lr or (args.model and 5e-5 or 5e-3), weight_decay = 0})
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

local accuracy
for epoch = 1, args.epochs do
  model:train()
  for batch in accelhost.progress(train_loader, {desc = ("epoch %d/%d"):format(epoch, args.epochs)}) do
    local reward = rewards(model, batch)
    accelerator:backward(-F.logsigmoid(reward[0] - reward[1]):mean())
    accelerator:clip_grad_norm_(model:parameters(), 1)
    optimizer:step()
    optimizer:zero_grad()
  end
  model:eval()
  local right, margin = {}, {}
  accelhost.no_grad(function()
    for batch in test_loader do
      local reward = rewards(model, batch)
      right[#right + 1] = accelerator:gather_for_metrics(reward[0]:gt(reward[1]):float())
      margin[#margin + 1] = accelerator:gather_for_metrics(reward[0] - reward[1])
    end
  end)
  accuracy = 100 * accelhost.cat(right):mean():item()
  accelerator:print(("epoch %d: the chosen answer's reward is higher by %.3f"):format(epoch,
    accelhost.cat(margin):mean():item()))
end
if args.save and accelerator.is_main_process then accelerator:unwrap_model(model):save_pretrained(args.save) end
accelerator:print(("Accuracy: %.2f"):format(accuracy))
