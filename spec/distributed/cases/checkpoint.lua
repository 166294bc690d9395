-- A run that is saved and resumed: checkpoint.lua MODE [STEPS]. MODE "run" trains without a word, "save" saves
-- after STEPS steps and ends, "load" resumes and prints a digest of the weights.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data
local mode, steps = arg[1], tonumber(arg[2])

accelhost.manual_seed(mode == "load" and 7 or 0)
local accelerator = accelhost.Accelerator {
  gradient_accumulation_steps = 3, mixed_precision = os.getenv "PRECISION",
  dataloader_config = {
    dispatch_batches = os.getenv "DISPATCH" ~= nil or nil, split_batches = os.getenv "SPLIT" ~= nil,
  },
  project_config = {project_dir = "run", automatic_checkpoint_naming = true},
}
local net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))
local optimizer = optim.AdamW(net:parameters(), {lr = 1e-2})
local set = data.TensorDataset(accelhost.arange(384):reshape(96, 4):sin(), accelhost.arange(96):remainder(2))
local loader = data.DataLoader(set, {batch_size = 4, shuffle = true})
net, optimizer, loader = accelerator:prepare(net, optimizer, loader)
-- Each process draws its own dropout.
if mode ~= "load" then accelhost.manual_seed(accelerator.process_index) end

if mode == "load" then assert(accelerator:load_state() == "run/checkpoints/checkpoint_0") end
local done = 0
for _ = loader.epoch, 1 do
  for x, y in loader do
    accelerator:accumulate(net)
    accelerator:backward(F.cross_entropy(net(x), y), {weight = x:size(0)})
    optimizer:step()
    optimizer:zero_grad()
    done = done + 1
    if mode == "save" and done == steps then
      accelerator:save_state {async = arg[3] == "async"}
      os.exit(0)
    end
  end
end
print(accelhost.sha256(net:state_dict()))
print(accelhost.sha256(accelhost.rand(3)))
