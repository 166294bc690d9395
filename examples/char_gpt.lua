-- Trains a small GPT-2 on the characters of a text, then lets it write:
--
--   accelhost examples/char_gpt.lua --data shakespeare.txt --minutes 10
--   accelhost launch --num_processes 2 examples/char_gpt.lua --data shakespeare.txt
--
-- The model and its tokenizer go into a folder, from which examples/generate.lua continues texts. Without a text it
-- reads Shakespeare's from $ACCELHOST_DATA, or data/, or else learns to add ("27+45=72").
local accelhost = require "accelhost"
local data, models, optim, F = accelhost.data, accelhost.models, accelhost.optim, accelhost.nn.functional

local args = accelhost.parse_args {
  description = "Trains a character GPT.",
  {"data", nil, "text to learn from (default: Shakespeare's, where it is found, else sums)", type = "string",
    metavar = "FILE"},
  {"output", "runs/char_gpt", "folder for model, tokenizer and tokens", metavar = "DIR"},
  {"steps", 2000, "optimizer steps", integer = true, minimum = 1},
  {"minutes", nil, "train for this time instead of a number of steps", type = "number"},
  {"layers", 4, "number of blocks", integer = true, minimum = 1},
  {"heads", 4, "attention heads of each block", integer = true, minimum = 1},
  {"width", 128, "features of each token", integer = true, minimum = 4},
  {"block_size", 128, "characters that the model sees", integer = true, minimum = 2},
  {"batch_size", 16, "blocks per process and step", integer = true, minimum = 1},
  {"dropout", 0, "dropout rate, against overfitting"},
  {"lr", 4e-3, "learning rate after warm-up"},
  {"warmup", 100, "warm-up steps", integer = true, minimum = 0},
  {"weight_decay", 0.1, "weight decay of matrices"},
  {"eval_every", 1000, "steps between two evaluations", integer = true, minimum = 1},
  {"dtype", "float32", "dtype of the model; bfloat16: mixed precision", choices = {"float32", "float64", "bfloat16"}},
  {"gradient_checkpointing", false, "recompute layers in backward to save memory"},
  {"seed", 1, "seed of weights and blocks", integer = true, minimum = 0},
  {"quiet", false, "print only the progress bar"},
  {"smoke", false, "the same in a few seconds, with a smaller model"},
}
if args.smoke then args.steps, args.layers, args.width, args.block_size, args.warmup = 60, 1, 32, 32, 10 end

local accelerator = accelhost.Accelerator {mixed_precision = args.dtype == "bfloat16" and "bf16" or "no"}
accelhost.manual_seed(args.seed)
local function show(line)
  if args.quiet then return end
  accelerator:print(line)
  io.stdout:flush() -- a log can be read while it grows
end

-- The text, as a file of tokens.

local function read(path)
  local file, reason = io.open(path, "rb")
  local text = file and file:read "*a"
  if file then file:close() end
  return text, reason
end

local function sums() -- lines of additions
  local lines, numbers = {}, accelhost.randint(0, 50, {4000, 2}):tolist()
  for i, pair in ipairs(numbers) do lines[i] = ("%d+%d=%d\n"):format(pair[1], pair[2], pair[1] + pair[2]) end
  return table.concat(lines)
end

local text
if args.data then
  text = assert(read(args.data))
else
  text = read((os.getenv "ACCELHOST_DATA" or "data") .. "/tinyshakespeare/input.txt") or sums()
end
local tokenizer = accelhost.text.character_tokenizer(text)
local path = args.output .. "/tokens.bin"
accelerator:main_process_first(function()
  if accelerator.is_main_process then
    tokenizer:save_pretrained(args.output)
    data.write_tokens(path, tokenizer(text).input_ids)
  end
end)

-- Nine tenths to learn from, in blocks that begin anywhere; the rest to validate on, each token once.
local count = data.TokenFile(path, args.block_size).tokens
local first = math.floor(0.9 * count)
local train_set = data.TokenFile(path, {block_size = args.block_size, stride = 1, count = first})
local test_set = data.TokenFile(path, {block_size = args.block_size, first = first})
local train_loader = data.DataLoader(train_set,
  {batch_size = args.batch_size, sampler = data.RandomSampler(train_set, {replacement = true})})
local test_loader = data.DataLoader(test_set, {batch_size = 4 * args.batch_size})

-- The model; the weights of matrices decay.

local model = models.GPT2LMHeadModel(models.GPT2Config {
  vocab_size = #tokenizer, n_positions = args.block_size, n_layer = args.layers, n_head = args.heads,
  n_embd = args.width, resid_pdrop = args.dropout, embd_pdrop = args.dropout, attn_pdrop = args.dropout,
  bos_token_id = accelhost.json.null, eos_token_id = accelhost.json.null,
})
if args.dtype == "float64" then model:to "float64" end
if args.gradient_checkpointing then model:gradient_checkpointing_enable() end
local decayed, others = {}, {}
for _, parameter in ipairs(model:parameters()) do
  table.insert(parameter:dim() > 1 and decayed or others, parameter)
end
local optimizer = optim.AdamW({
  {params = decayed, weight_decay = args.weight_decay}, {params = others, weight_decay = 0},
}, {lr = args.lr, betas = {0.9, 0.99}})

-- Warm-up, then a cosine down to a tenth. How many steps the minutes hold is known better and better as they pass.
local total, began, step = args.steps, os.time(), 0
local schedule = optim.lr_scheduler.LambdaLR(optimizer, function(at)
  if at < args.warmup then return (at + 1) / args.warmup end
  local part = math.min(1, (at - args.warmup) / math.max(1, total - args.warmup))
  return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * part))
end)
model, optimizer, train_loader, test_loader, schedule =
  accelerator:prepare(model, optimizer, train_loader, test_loader, schedule)

local bar = accelhost.progress {total = total, desc = "training"}
local function count_steps()
  local passed = os.time() - began
  if not args.minutes or step % 20 > 0 or passed < 5 then return end
  local left = (60 * args.minutes - passed) / (passed / step)
  total = accelhost.utils.broadcast(accelhost.tensor(step + math.max(1, math.floor(left)))):item()
  bar.total = total
end

--- The mean loss of a character of the validation text, in nats.
local function validate()
  local losses = {}
  model:eval()
  accelhost.no_grad(function()
    for batch in test_loader do
      local ids = batch.input_ids
      local logits = model(ids).logits:narrow(1, 0, ids:size(1) - 1)
      local rows = F.cross_entropy(logits:transpose(1, 2), ids:narrow(1, 1, ids:size(1) - 1), {reduction = "none"})
      losses[#losses + 1] = accelerator:gather_for_metrics(rows:mean(1))
    end
  end)
  model:train()
  return accelhost.cat(losses):mean():item()
end

while step < total do
  for batch in train_loader do
    local loss = model(batch).loss
    accelerator:backward(loss)
    accelerator:clip_grad_norm_(model:parameters(), 1)
    optimizer:step()
    schedule:step()
    optimizer:zero_grad()
    step = step + 1
    count_steps()
    bar:update(1)
    if step % args.eval_every == 0 and step < total then
      show(("step %d of %d: loss %.4f, validation %.4f"):format(step, total, loss:item(), validate()))
    end
    if step >= total then break end
  end
end
bar:close()
local loss = validate()

-- Text of the trained model.

model = accelerator:unwrap_model(model):eval()
local beginning = text:match "\n" or text:match "^[%z\1-\127\194-\244][\128-\191]*"
local prompt = tokenizer(beginning, {return_attention_mask = false}).input_ids:to(accelerator.device)
local ids = model:generate(prompt, {
  max_new_tokens = args.block_size - 1, do_sample = true, temperature = 0.8, top_k = 0,
})
show(tokenizer:decode(ids[0]))
if accelerator.is_main_process then model:save_pretrained(args.output) end
accelerator:wait_for_everyone()
show(("Loss: %.4f; model and tokenizer in %s"):format(loss, args.output))
