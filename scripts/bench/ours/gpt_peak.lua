--- The peak of the resident memory of training steps of a GPT of 10.8 million parameters on 12 x 256 tokens; AdamW.
--
-- usage: accelhost gpt_peak.lua DTYPE STEPS      DTYPE: float32 or bfloat16 (autocast)
local accelhost = require "accelhost"
local models, optim = accelhost.models, accelhost.optim

local dtype, steps = arg[1], tonumber(arg[2])
accelhost.manual_seed(1)
local model = models.GPT2LMHeadModel {vocab_size = 65, n_positions = 256, n_embd = 384, n_layer = 6, n_head = 6,
  resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0}
local optimizer = optim.AdamW(model:parameters(), {lr = 1e-3})
local ids = accelhost.randint(0, 65, {12, 256})
local options = {dtype = "bfloat16", enabled = dtype ~= "float32"}

for _ = 1, steps do
  accelhost.autocast("cpu", options, function() return model{input_ids = ids, labels = ids}.loss end):backward()
  accelhost.nn.utils.clip_grad_norm_(model:parameters(), 1)
  optimizer:step()
  optimizer:zero_grad()
end
for line in io.lines "/proc/self/status" do
  local kilobytes = line:match "^VmHWM:%s*(%d+)"
  if kilobytes then print("peak_mb", kilobytes / 1024) end
end
