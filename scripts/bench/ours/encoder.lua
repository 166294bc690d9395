--- A training step of an encoder of the shape of distilbert-base with random weights, which sorts 8 texts of up to 128
--- tokens. usage: encoder.lua full|padded BLOCKS [DTYPE]      DTYPE: float32 or bfloat16 (autocast)
--
-- peers/encoder.py documents the measurement and does the same.
local accelhost = require "accelhost"
local models, optim = accelhost.models, accelhost.optim
local timing = require "timing"

local TEXTS, TOKENS = 8, 128
local shape, blocks, dtype = arg[1], tonumber(arg[2]), arg[3] or "float32"
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

timing.steps(blocks, function()
  accelhost.autocast("cpu", {dtype = "bfloat16", enabled = dtype ~= "float32"}, function()
    return model(batch).loss
  end):backward()
  optimizer:step()
  optimizer:zero_grad()
end)
