-- Teaches a chat model to answer as in a file of conversations, by LoRA, in one process or in many:
--
--   accelhost examples/lora_sft.lua --model SmolLM2-135M-Instruct --data conversations.jsonl --save adapter
--   accelhost launch --num_processes 2 examples/lora_sft.lua --model ...
--
-- A line of the file is an object with "messages" (role and content, the last one of the assistant) or with "prompt"
-- and "completion"; only answers are learnt. --model is a folder in Hugging Face's layout whose tokenizer has a chat
-- template; --load_in_4bit quantises its weights. Without it a small random model spells its answers.
local accelhost = require "accelhost"
local data, models, optim = accelhost.data, accelhost.models, accelhost.optim
local peft, text = accelhost.peft, accelhost.text

local args = accelhost.parse_args {
  description = "Fine-tunes a chat model by LoRA on conversations.",
  {"data", nil, "file of conversations, an object a line", type = "string", metavar = "FILE"},
  {"model", nil, "folder of a checkpoint to begin with", type = "string", metavar = "DIR"},
  {"save", nil, "folder that the adapter is written to", type = "string", metavar = "DIR"},
  {"r", 8, "rank of the adapter", integer = true, minimum = 1},
  {"epochs", 2, "passes over the training set", integer = true, minimum = 1},
  {"batch_size", 8, "rows per process and step", integer = true, minimum = 1},
  {"max_length", 512, "tokens of a row at most", integer = true, minimum = 8},
  {"lr", nil, "learning rate (default: 2e-4 with --model, else 1e-2)", type = "number"},
  {"load_in_4bit", false, "quantise the weights of the model to NF4 (QLoRA)"},
  {"precision", "no", "mixed precision", choices = {"no", "bf16"}},
  {"smoke", false, "the same in a few seconds"},
}

local function generated(count) -- questions whose answers follow from them
  local rows = {}
  for i, draw in ipairs(accelhost.randint(0, 1000, {count, 2}):tolist()) do
    local number, letter = draw[1] % 9, string.char(97 + draw[2] % 5)
    rows[i] = {prompt = ("%d times %s"):format(number, letter), completion = letter:rep(number) .. "!"}
  end
  return rows
end

local function messages_of(row)
  assert(row.messages or row.prompt and row.completion, "--data: a row has no messages, and no prompt with completion")
  return row.messages or {{role = "user", content = row.prompt}, {role = "assistant", content = row.completion}}
end

local function make_tokenizer() -- of characters, with the marks of ChatML
  local characters = {"\n"}
  for byte = 32, 126 do characters[#characters + 1] = string.char(byte) end
  local made = text.character_tokenizer(table.concat(characters))
  made:add_tokens({"<|im_start|>"}, true)
  made:add_special_tokens {pad_token = "<pad>", eos_token = "<|im_end|>"}
  made.chat_template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
    .. "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
  return made
end

local accelerator = accelhost.Accelerator {mixed_precision = args.precision}
accelhost.set_seed(42)
local tokenizer = args.model and text.AutoTokenizer.from_pretrained(args.model) or make_tokenizer()
local nf4 = args.load_in_4bit and models.BitsAndBytesConfig {load_in_4bit = true, bnb_4bit_quant_type = "nf4",
  bnb_4bit_use_double_quant = true, bnb_4bit_compute_dtype = "bfloat16"} or nil
local model = args.model and models.AutoModelForCausalLM.from_pretrained(args.model, {quantization_config = nf4})
  or models.LlamaForCausalLM {
    vocab_size = #tokenizer, hidden_size = 64, intermediate_size = 128, num_hidden_layers = 2, num_attention_heads = 4,
    num_key_value_heads = 2, eos_token_id = tokenizer.eos_token_id, pad_token_id = tokenizer.pad_token_id,
  }
model = peft.get_peft_model(nf4 and peft.prepare_model_for_kbit_training(model) or model, peft.LoraConfig {
  r = args.r, lora_alpha = 2 * args.r, lora_dropout = 0.05, target_modules = "all-linear",
  modules_to_save = not args.model and {"embed_tokens", "lm_head"} or nil, task_type = "CAUSAL_LM",
})
if accelerator.is_main_process then model:print_trainable_parameters() end

-- The ids of a conversation, and the labels: the ids of its last answer, -100 before it.
local function encode(row)
  local messages = messages_of(row)
  local ids = tokenizer:apply_chat_template(messages, {return_tensors = false, return_dict = false})
  messages[#messages] = nil
  local prompt = tokenizer:apply_chat_template(messages,
    {return_tensors = false, return_dict = false, add_generation_prompt = true})
  local made = {input_ids = {}, labels = {}}
  for i = 1, math.min(#ids, args.max_length) do
    made.input_ids[i], made.labels[i] = ids[i], i > #prompt and ids[i] or -100
  end
  return made
end

local parts = data.random_split(args.data and data.load_dataset("json", {data_files = args.data, split = "train"})
  or generated(args.smoke and 320 or 2000), {0.1, 0.9}) -- at least one row for the test
local flatten = text.DataCollatorWithFlattening() -- the texts of a batch are one row, and see themselves alone
local function collate(list)
  for i, row in ipairs(list) do list[i] = encode(row) end
  return flatten(list)
end
local train_loader = data.DataLoader(parts[2], {batch_size = args.batch_size, shuffle = true, collate_fn = collate})
local test_loader = data.DataLoader(parts[1], {batch_size = args.batch_size, collate_fn = collate})
local optimizer = optim.AdamW(model:parameters(), {lr = args.lr or (args.model and 2e-4 or 1e-2), weight_decay = 0})
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)
local epochs, loss = args.smoke and 1 or args.epochs, nil
local schedule = accelerator:prepare(optim.get_scheduler("cosine", optimizer,
  {num_warmup_steps = 10, num_training_steps = epochs * #train_loader}))

for epoch = 1, epochs do
  model:train()
  for batch in accelhost.progress(train_loader, {desc = ("epoch %d/%d"):format(epoch, epochs)}) do
    accelerator:backward(model(batch).loss)
    accelerator:clip_grad_norm_(model:parameters(), 1)
    optimizer:step()
    schedule:step()
    optimizer:zero_grad()
  end
  model:eval()
  loss = 0
  accelhost.no_grad(function()
    for batch in test_loader do loss = loss + accelerator:reduce(model(batch).loss, "mean"):item() / #test_loader end
  end)
  accelerator:print(("epoch %d: loss of the answers %.4f"):format(epoch, loss))
end

local adapted, question = accelerator:unwrap_model(model), messages_of(parts[1][0])[1]
if args.save and accelerator.is_main_process then adapted:save_pretrained(args.save) end
local prompt = tokenizer:apply_chat_template({question}, {add_generation_prompt = true}).input_ids
local answer = adapted:generate(prompt, {max_new_tokens = 24})[0]:tensor_split({prompt:size(1)})[2]
accelerator:print(question.content .. " -> " .. tokenizer:decode(answer, {skip_special_tokens = true}))
accelerator:print(("Perplexity: %.2f"):format(math.exp(loss)))
