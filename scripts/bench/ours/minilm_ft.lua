--- Fine-tuning MiniLM on SST-2: BertForSequenceClassification, AdamW, a linear schedule.
--
-- usage: accelhost [launch --num_processes N] minilm_ft.lua DATA bench STEPS BLOCKS [SEED]
--        ... DATA losses STEPS [SEED]          the first losses, without dropout
--        ... DATA epoch [SEED] [STEPS]         one epoch, batches of 32 in all, and the accuracy on test.tsv
--
-- DATA: the folder with minilm and sst2. peers/minilm_ft.py documents the measurement and does the same: the same rows
-- in the same order from the same initial weights.
local accelhost = require "accelhost"
local system = require("accelhost._C").system
local models, optim, text = accelhost.models, accelhost.optim, accelhost.text

local BATCH = 32
local root, mode = arg[1], arg[2]
local accelerator = accelhost.Accelerator()
local rank, world = accelerator.process_index, accelerator.num_processes
local tokenizer = text.AutoTokenizer.from_pretrained(root .. "/minilm")

local function read(name)
  local sentences, labels = {}, {}
  for line in io.lines(root .. "/sst2/" .. name .. ".tsv") do
    local sentence, label = line:match "^(.*)\t([01])$"
    if label then sentences[#sentences + 1], labels[#labels + 1] = sentence, tonumber(label) end
  end
  return sentences, labels
end

-- Rows of the set as a padded batch, and its number of tokens.
local function make_batch(sentences, labels, order, first, last)
  local some, classes = {}, {}
  for i = first, last do
    some[#some + 1], classes[#classes + 1] = sentences[order[i] + 1], labels[order[i] + 1]
  end
  local encoded, batch = tokenizer(some, {padding = true, truncation = true}), {}
  for _, name in ipairs {"input_ids", "attention_mask", "token_type_ids"} do batch[name] = encoded[name] end
  batch.labels = accelhost.tensor(classes, {dtype = "int64"})
  return batch, batch.attention_mask:sum():item()
end

-- This rank's part of every batch of `size` rows; the last one may be smaller.
local function batches_of(sentences, labels, order, size, steps)
  local step, count = 0, #order
  return function()
    local begin = step * size
    if step == steps or begin >= count then return nil end
    step = step + 1
    local rows = math.min(size, count - begin)
    local share = math.ceil(rows / world)
    return make_batch(sentences, labels, order, begin + rank * share + 1, begin + math.min(rows, (rank + 1) * share))
  end
end

-- A model with the first weights of the seed, and a function that does one step.
local function prepare(seed, steps, dropout)
  local changes = {num_labels = 2}
  if not dropout then changes.hidden_dropout_prob, changes.attention_probs_dropout_prob = 0, 0 end
  local model = models.BertForSequenceClassification.from_pretrained(root .. "/minilm", changes)
  accelhost.manual_seed(seed)
  accelhost.no_grad(function()
    model.classifier.weight:copy_(accelhost.randn(2, 384) * 0.02)
    model.classifier.bias:zero_()
  end)
  accelhost.manual_seed(seed + rank)
  model:train()
  local optimizer = optim.AdamW(model:parameters(), {lr = 5e-5, weight_decay = 0})
  model, optimizer = accelerator:prepare(model, optimizer)
  local schedule = optim.get_linear_schedule_with_warmup(optimizer, math.floor(steps / 10), steps)
  return model, function(batch)
    local loss = model(batch).loss
    accelerator:backward(loss)
    optimizer:step()
    schedule:step()
    optimizer:zero_grad()
    return loss
  end
end

local function total(value) return accelerator:reduce(accelhost.tensor {value}, "sum"):item() end

local run = {}

function run.bench(sentences, labels, order, steps, blocks, seed)
  local _, step = prepare(seed, 10 * steps, true)
  local batches, tokens, padded = {}, 0, 0
  for batch, count in batches_of(sentences, labels, order, BATCH * world, steps) do
    batches[#batches + 1], tokens, padded = batch, tokens + count, padded + batch.input_ids:numel()
  end
  local times, processor = {}, {}
  for block = 0, blocks do
    local begin, used = system.now(), os.clock()
    for _, batch in ipairs(batches) do step(batch) end
    times[block], processor[block] = system.now() - begin, os.clock() - used
  end
  table.sort(times)
  table.sort(processor)
  local middle = math.floor(blocks / 2) + 1
  tokens = total(tokens)
  if rank == 0 then
    print("tokens_per_s", tokens / times[middle])
    print("step_cpu_ms", 1e3 * processor[middle] / steps)
    print("tokens", tokens)
    print("padded", padded)
  end
end

function run.losses(sentences, labels, order, steps, _, seed)
  local _, step = prepare(seed, 10 * steps, false)
  local i = 0
  for batch in batches_of(sentences, labels, order, BATCH, steps) do
    i = i + 1
    local loss = total(step(batch):item()) / world
    if rank == 0 then print(("loss_%d %.7f"):format(i, loss)) end
  end
end

local function accuracy(model)
  local sentences, labels = read "test"
  local order, right = {}, 0
  for i = 1, #sentences do order[i] = i - 1 end
  model:eval()
  accelhost.no_grad(function()
    for batch in batches_of(sentences, labels, order, BATCH) do
      local expected = batch.labels
      batch.labels = nil
      right = right + model(batch).logits:argmax(1):eq(expected):sum():item()
    end
  end)
  return 100 * total(right) / #sentences
end

function run.epoch(sentences, labels, order, seed, most)
  local steps = math.min(most or #order, math.ceil(#order / BATCH))
  local model, step = prepare(seed, steps, true)
  local tokens, done, begin, used = 0, 0, system.now(), os.clock()
  for batch, count in batches_of(sentences, labels, order, BATCH, steps) do
    local loss = step(batch)
    tokens, done = tokens + count, done + 1
    if rank == 0 and done % 100 == 0 then
      io.stderr:write(("step %d loss %.4f\n"):format(done, loss:item()))
    end
  end
  local spent = system.now() - begin
  used = os.clock() - used
  tokens = total(tokens)
  local right = accuracy(model)
  if rank == 0 then
    print("accuracy", right)
    print("tokens_per_s", tokens / spent)
    print("processor_s", used)
  end
end

local counts = {bench = 2, losses = 1, epoch = 0}
local numbers = {}
for i = 3, #arg do numbers[#numbers + 1] = tonumber(arg[i]) end
local seed = numbers[counts[mode] + 1] or 1
local sentences, labels = read "train"
accelhost.manual_seed(seed)
local order = accelhost.randperm(#sentences):tolist()
if mode == "epoch" then
  run.epoch(sentences, labels, order, seed, numbers[2])
else
  run[mode](sentences, labels, order, numbers[1], numbers[2], seed)
end
