--- A training step of an encoder of the shape of distilbert-base with random weights, which sorts 8 texts of up to 128
--- tokens. usage: encoder.lua full|padded BLOCKS
--
-- peers/encoder.py documents the measurement and does the same.
local accelhost = require "accelhost"
local models, optim = accelhost.models, accelhost.optim

local TEXTS, TOKENS = 8, 128
local shape, blocks = arg[1], tonumber(arg[2])
accelhost.manual_seed(1)
local model = models.DistilBertForSequenceClassification(models.DistilBertConfig()):train()
local optimizer = optim.AdamW(model:parameters(), {lr = 2e-5})
local batch = {
  input_ids = accelhost.randint(1, 30522, {TEXTS, TOKENS}),
  attention_mask = accelhost.ones({TEXTS, TOKENS}, {dtype = "int64"}), labels = accelhost.arange(TEXTS):remainder(2),
}
for i = 0, shape == "padded" and TEXTS - 1 or -1 do
  local length = TOKENS * (i + 1) / TEXTS
  batch.attention_mask[i]:narrow(0, length, TOKENS - length):fill_(0)
end

local times = {}
for block = 0, blocks do
  local begin = os.clock()
  model(batch).loss:backward()
  optimizer:step()
  optimizer:zero_grad()
  if block > 0 then times[block] = os.clock() - begin end
end
table.sort(times)
print("step_ms", 1e3 * times[math.floor(#times / 2) + 1])
print("peak_mb", accelhost.memory_stats().max_rss / 2 ^ 20)
