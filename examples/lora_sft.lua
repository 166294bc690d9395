-- Teaches a chat model to answer as in a file of conversations, by LoRA, in one process or in many:
--
--   accelhost examples/lora_sft.lua --model SmolLM2-135M-Instruct --data conversations.jsonl --save adapter
--   accelhost launch --num_processes 2 examples/lora_sft.lua --model ...
--
-- Each line of the file is an object with "messages" (role and content, the last one of the assistant), or with
-- "prompt" and "completion". Only the answers are learnt. --model is a checkpoint's folder in Hugging Face's layout
-- whose tokenizer has a chat template. Without it a small random model spells bytes, and its embeddings are trained
-- too.
local accelhost = require "accelhost"
local data, models, optim, peft, text =
  accelhost.data, accelhost.models, accelhost.optim, accelhost.peft, accelhost.text

local args = accelhost.parse_args {
  description = "Fine-tunes a chat model by LoRA on conversations.",
  {"data", nil, "file of conversations, an object a line", type = "string", metavar = "FILE"},
  {"model", nil, "folder of a checkpoint to begin with", type = "string", metavar = "DIR"},
  {"save", nil, "folder that the adapter is written to", type = "string", metavar = "DIR"},
  {"r", 8, "rank of the adapter", integer = true, minimum = 1},
  {"alpha", 16, "scale of the adapter, times 1 / r"},
  {"dropout", 0.05, "dropout of the adapter's input"},
  {"epochs", 2, "passes over the training set", integer = true, minimum = 1},
  {"batch_size", 8, "rows per process and step", integer = true, minimum = 1},
  {"max_length", 512, "tokens of a row at most", integer = true, minimum = 8},
  {"lr", nil, "learning rate (default: 2e-4 with --model, else 1e-2)", type = "number"},
  {"precision", "no", "mixed precision", choices = {"no", "bf16"}},
  {"seed", 42, "seed of weights and order", integer = true, minimum = 0},
  {"smoke", false, "the same in a few seconds"},
}
if args.smoke then args.epochs = 1 end
args.lr = args.lr or (args.model and 2e-4 or 1e-2)

-- Questions whose answers follow from them.
local function generated(count)
  local rows = {}
  for i, draw in ipairs(accelhost.randint(0, 1000, {count, 2}):tolist()) do
    local number, letter = draw[1] % 9, string.char(97 + draw[2] % 5)
    rows[i] = {messages = {
      {role = "user", content = ("%d times %s"):format(number, letter)},
      {role = "assistant", content = letter:rep(number) .. "!"},
    }}
  end
  return rows
end

local function load(path)
  if not path then return generated(args.smoke and 320 or 2000) end
  local rows = {}
  for line in io.lines(path) do
    local row = line:find "%S" and accelhost.json.decode(line)
    if row then
      rows[#rows + 1] = {messages = row.messages or {
        {role = "user", content = row.prompt}, {role = "assistant", content = row.completion},
      }}
    end
  end
  return rows
end

-- A tokenizer of bytes with the marks of ChatML.
local function byte_tokenizer()
  local vocabulary = {["<pad>"] = 0, ["<|im_start|>"] = 1, ["<|im_end|>"] = 2}
  for byte = 0, 255 do vocabulary[("<0x%02X>"):format(byte)] = byte + 3 end
  local added = {}
  for id, content in ipairs {"<|im_start|>", "<|im_end|>"} do
    added[id] = {id = id, content = content, special = true}
  end
  return text.Tokenizer({
    model = {type = "BPE", vocab = vocabulary, merges = accelhost.json.array {}, byte_fallback = true},
    added_tokens = added,
    decoder = {type = "Sequence", decoders = {{type = "ByteFallback"}, {type = "Fuse"}}},
  }, {
    pad_token = "<pad>", eos_token = "<|im_end|>",
    chat_template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      .. "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
  })
end

local accelerator = accelhost.Accelerator {mixed_precision = args.precision}
accelhost.set_seed(args.seed)
local tokenizer = args.model and text.AutoTokenizer.from_pretrained(args.model) or byte_tokenizer()
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
local model = args.model and models.AutoModelForCausalLM.from_pretrained(args.model) or models.LlamaForCausalLM {
  vocab_size = #tokenizer, hidden_size = 64, intermediate_size = 128, num_hidden_layers = 2, num_attention_heads = 4,
  num_key_value_heads = 2, max_position_embeddings = args.max_length, tie_word_embeddings = false,
  eos_token_id = tokenizer.eos_token_id, pad_token_id = tokenizer.pad_token_id, bos_token_id = tokenizer.eos_token_id,
}
model = peft.get_peft_model(model, peft.LoraConfig {
  r = args.r, lora_alpha = args.alpha, lora_dropout = args.dropout, target_modules = "all-linear",
  modules_to_save = not args.model and {"embed_tokens", "lm_head"} or nil, task_type = "CAUSAL_LM",
})
if accelerator.is_main_process then model:print_trainable_parameters() end

-- Ids of a conversation, and the labels: those of the last answer, -100 before it.
local function encode(row)
  local before = {}
  for i = 1, #row.messages - 1 do before[i] = row.messages[i] end
  local options = {return_tensors = false, return_dict = false}
  local ids = tokenizer:apply_chat_template(row.messages, options)
  options.add_generation_prompt = true
  local prompt = #tokenizer:apply_chat_template(before, options)
  local labels = {}
  for i = 1, math.min(#ids, args.max_length) do labels[i] = i > prompt and ids[i] or -100 end
  for i = #ids, #labels + 1, -1 do ids[i] = nil end
  return {input_ids = ids, labels = labels}
end

local function collate(rows)
  local longest = 0
  for i, row in ipairs(rows) do
    rows[i] = encode(row)
    longest = math.max(longest, #rows[i].input_ids)
  end
  local batch = {input_ids = {}, attention_mask = {}, labels = {}}
  for i, row in ipairs(rows) do
    local ids, mask, labels, count = row.input_ids, {}, row.labels, #row.input_ids
    for at = 1, longest do
      ids[at], labels[at] = ids[at] or tokenizer.pad_token_id, labels[at] or -100
      mask[at] = at <= count and 1 or 0
    end
    batch.input_ids[i], batch.attention_mask[i], batch.labels[i] = ids, mask, labels
  end
  for name, list in pairs(batch) do batch[name] = accelhost.tensor(list, {dtype = "int64"}) end
  return batch
end

local rows = load(args.data)
local train_set, test_set = unpack(data.random_split(rows, {0.9, 0.1},
  {generator = accelhost.Generator(args.seed)}))
local train_loader = data.DataLoader(train_set, {batch_size = args.batch_size, shuffle = true, collate_fn = collate})
local test_loader = data.DataLoader(test_set, {batch_size = args.batch_size, collate_fn = collate})
local trained = {}
for _, parameter in ipairs(model:parameters()) do
  if parameter.requires_grad then trained[#trained + 1] = parameter end
end
local optimizer = optim.AdamW(trained, {lr = args.lr, weight_decay = 0})
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)
local steps = args.epochs * #train_loader
local schedule = accelerator:prepare(optim.get_scheduler("cosine", optimizer,
  {num_warmup_steps = math.floor(0.05 * steps), num_training_steps = steps}))

-- The mean loss over the answers' tokens of all processes.
local function evaluate()
  local sum, count = 0, 0
  model:eval()
  accelhost.no_grad(function()
    for batch in test_loader do
      local tokens = batch.labels:ne(-100):sum():item()
      sum, count = sum + model(batch).loss:item() * tokens, count + tokens
    end
  end)
  local totals = accelerator:reduce(accelhost.tensor {sum, count}, "sum")
  return totals[0]:item() / totals[1]:item()
end

for epoch = 1, args.epochs do
  model:train()
  for batch in accelhost.progress(train_loader, {desc = ("epoch %d/%d"):format(epoch, args.epochs)}) do
    accelerator:backward(model(batch).loss)
    accelerator:clip_grad_norm_(trained, 1)
    optimizer:step()
    schedule:step()
    optimizer:zero_grad()
  end
  accelerator:print(("epoch %d: loss of the answers %.4f"):format(epoch, evaluate()))
end

local adapted = accelerator:unwrap_model(model):eval()
if args.save and accelerator.is_main_process then
  adapted:save_pretrained(args.save)
  tokenizer:save_pretrained(args.save)
end
local question = {rows[1].messages[1]}
local prompt = tokenizer:apply_chat_template(question, {add_generation_prompt = true}).input_ids
local answer = adapted:generate(prompt, {max_new_tokens = 24})
accelerator:print(question[1].content .. " -> " .. tokenizer:decode(answer[0]:narrow(0, prompt:size(1),
  answer:size(1) - prompt:size(1)), {skip_special_tokens = true}))
accelerator:print(("Perplexity: %.2f"):format(math.exp(evaluate())))
