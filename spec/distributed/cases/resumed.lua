-- A training that saves every step and resumes from the newest checkpoint, for jobs that are disturbed. The first rank
-- appends to a file a line for each step: its number, the ranks, the samples in their order, and the sum of the losses.
-- usage: resumed.lua FOLDER [PAUSE [RANK STEP]], where a rank kills itself at a step of the first attempt. As long as
-- there is a file "hold" in the folder no process begins.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local dir, pause, victim, at = arg[1], arg[2] or "0", tonumber(arg[3]), tonumber(arg[4])
local SAMPLES, BATCH = 96, 2
local accelerator = accelhost.Accelerator {
  project_config = {project_dir = dir .. "/run", automatic_checkpoint_naming = true, total_limit = 2},
}
accelhost.manual_seed(1)
local model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))
local optimizer = optim.AdamW(model:parameters(), {lr = 1e-2})
local set = data.TensorDataset(accelhost.randn(SAMPLES, 8), accelhost.randn(SAMPLES, 1), accelhost.arange(SAMPLES))
local loader = data.DataLoader(set, {batch_size = BATCH, shuffle = true})
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)
local progress = {step = 0}
function progress:state_dict() return {step = self.step} end
function progress:load_state_dict(state) self.step = state.step end
accelerator:register_for_checkpointing(progress)

local function is_held()
  local file = io.open(dir .. "/hold")
  return file and file:close()
end

while is_held() do os.execute "exec sleep 0.05" end
if accelerator:load_state() then accelerator:print("resumes after step " .. progress.step) end
for _ = loader.epoch, 0 do
  for x, y, number in loader do
    local loss = F.mse_loss(model(x), y, {reduction = "sum"})
    accelerator:backward(loss / #x)
    optimizer:step()
    optimizer:zero_grad()
    progress.step = progress.step + 1
    local samples, sum = accelerator:gather_for_metrics(number), accelerator:reduce(loss:detach())
    if progress.step == at and accelerator.process_index == victim and os.getenv "ACCELHOST_RESTART_COUNT" == "0" then
      os.execute "kill -9 $PPID"
    end
    if accelerator.is_main_process then
      local file = assert(io.open(dir .. "/steps", "a"))
      file:write(("%d %d %s %.17g\n"):format(progress.step, accelerator.num_processes,
        table.concat(samples:tolist(), ","), sum:item()))
      file:close()
    end
    accelerator:save_state()
    os.execute("exec sleep " .. pause)
  end
end
accelerator:print(("weights %s, restarts %s, of them after failures %s"):format(accelhost.sha256(model:state_dict()),
  os.getenv "ACCELHOST_RESTART_COUNT", os.getenv "TORCHELASTIC_RESTART_COUNT"))
