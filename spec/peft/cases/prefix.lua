-- Train a prefix, save the run and load it: the losses are those of one process.
local accelhost = require "accelhost"
local models, optim, peft = accelhost.models, accelhost.optim, accelhost.peft

local accelerator = accelhost.Accelerator {sharding = os.getenv "SHARDING" or "none"}
local is_classifier = os.getenv "CLASSIFIER" ~= nil
local base = is_classifier and models.AutoModelForSequenceClassification.from_pretrained "spec/fixtures/models/sequence"
  or models.AutoModelForCausalLM.from_pretrained "spec/fixtures/models/decoders/llama"
accelhost.manual_seed(5)
local model = peft.get_peft_model(base, peft.PrefixTuningConfig {num_virtual_tokens = 3, prefix_projection = true})
local optimizer = optim.AdamW(model:parameters(), {lr = 1e-2})
model, optimizer = accelerator:prepare(model, optimizer)
local ids = accelhost.arange(16):remainder(base.config.vocab_size):view(2, 8)
local labels = is_classifier and accelhost.arange(2) or ids
if accelerator.num_processes == 2 then
  ids, labels = ids:narrow(0, accelerator.process_index, 1), labels:narrow(0, accelerator.process_index, 1)
end

local function step()
  local loss = model {input_ids = ids, labels = labels}.loss
  accelerator:backward(loss)
  optimizer:step()
  optimizer:zero_grad()
  accelerator:print(("%.4f"):format(accelerator:gather(loss:detach():reshape(1)):mean():item()))
end
for _ = 1, 3 do step() end
accelerator:save_state(os.getenv "FOLDER")
step()
accelerator:load_state(os.getenv "FOLDER")
step()
