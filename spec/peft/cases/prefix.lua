-- Train a prefix, save the run and load it: the losses are those of one process.
local accelhost = require "accelhost"
local models, optim, peft = accelhost.models, accelhost.optim, accelhost.peft

local accelerator = accelhost.Accelerator {sharding = os.getenv "SHARDING" or "none"}
accelhost.manual_seed(5)
local model = peft.get_peft_model(models.AutoModelForCausalLM.from_pretrained "spec/fixtures/models/decoders/llama",
  peft.PrefixTuningConfig {num_virtual_tokens = 3, prefix_projection = true})
local optimizer = optim.AdamW(model:parameters(), {lr = 1e-2})
model, optimizer = accelerator:prepare(model, optimizer)
local ids = accelhost.arange(16):view(2, 8)
if accelerator.num_processes == 2 then ids = ids:narrow(0, accelerator.process_index, 1) end

local function step()
  local loss = model {input_ids = ids, labels = ids}.loss
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
