-- A trial of the storm: a small model, saved after every epoch, which reports its results.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.args {lr = 0.1, width = 8, epochs = 5, pace = 0.06}
local accelerator = accelhost.Accelerator {
  project_config = {project_dir = "run", automatic_checkpoint_naming = true, total_limit = 2},
}
accelhost.set_seed(1)
local inputs = accelhost.randn(64, 4)
local model = nn.Sequential(nn.Linear(4, args.width), nn.Tanh(), nn.Linear(args.width, 1))
local optimizer = optim.Adam(model:parameters(), {lr = args.lr})
local loader = data.DataLoader(data.TensorDataset(inputs, inputs:sum(1, {keepdim = true})),
  {batch_size = 16, shuffle = true})
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)

local progress = {epoch = 0, loss = 0}
function progress:state_dict() return {epoch = self.epoch, loss = self.loss} end
function progress:load_state_dict(state) self.epoch, self.loss = state.epoch, state.loss end
accelerator:register_for_checkpointing(progress)

-- The report after the last checkpoint may have been lost.
if accelerator:load_state() then accelhost.report(progress.epoch, {loss = progress.loss}) end

for epoch = progress.epoch + 1, args.epochs do
  local sum = 0
  for x, y in loader do
    local loss = F.mse_loss(model(x), y)
    accelerator:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    sum = sum + accelerator:reduce(loss:detach(), "mean"):item()
  end
  progress.epoch, progress.loss = epoch, sum / #loader
  os.execute("sleep " .. args.pace)
  accelerator:save_state()
  accelhost.report(epoch, {loss = progress.loss})
end
