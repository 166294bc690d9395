-- Train an adapter of a quantised model, save the run and load it: the losses are those of one process.
local accelhost = require "accelhost"
local models, optim, peft = accelhost.models, accelhost.optim, accelhost.peft

local accelerator = accelhost.Accelerator {sharding = os.getenv "SHARDING" or "none"}
local base = models.AutoModelForCausalLM.from_pretrained "spec/fixtures/quantized/nf4"
accelhost.manual_seed(5)
local model = peft.get_peft_model(peft.prepare_model_for_kbit_training(base),
  peft.LoraConfig {r = 4, target_modules = "all-linear"}):train()
local optimizer = optim.AdamW(model:parameters(), {lr = 1e-2})
model, optimizer = accelerator:prepare(model, optimizer)
local ids = accelhost.arange(16):view(2, 8)
if accelerator.num_processes == 2 then ids = ids:narrow(0, accelerator.process_index, 1) end

local function loss_of() return model {input_ids = ids, labels = ids}.loss end
for _ = 1, 3 do
  accelerator:backward(loss_of())
  optimizer:step()
  optimizer:zero_grad()
end
local function report()
  accelerator:print(("%.5f"):format(accelerator:gather(loss_of():detach():reshape(1)):mean():item()))
end
report()
local folder = os.getenv "FOLDER"
accelerator:save_state(folder)
accelerator:backward(loss_of())
optimizer:step()
accelerator:load_state(folder)
report()
