-- One training step of a GPT-2, "plain" or "forgetting"; prints the peak of the tensors' memory in addition to the
-- model's.
local accelhost = require "accelhost"

accelhost.manual_seed(1)
local model = accelhost.models.GPT2LMHeadModel {
  vocab_size = 40, n_positions = 128, n_embd = 64, n_layer = 12, n_head = 4,
}
if (...) == "forgetting" then model:gradient_checkpointing_enable() end
local ids = accelhost.randint(0, 40, {8, 128})
collectgarbage()
local before = accelhost.memory_stats().live
model {input_ids = ids, labels = ids}.loss:backward()
print(accelhost.memory_stats().peak - before)
