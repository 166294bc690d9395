-- A training whose ranks kill themselves at points of KILL: "rank:place:step ..." (places: forward, backward, reduced,
-- stepped, logged, evaluation, saving, writing, set_up, loaded); each once, by the files of FOLDER. At `writing` it is
-- killed by another process, once a checkpoint's first file is there. Prints the SHA-256 of all that has to be as if
-- no rank had been killed. FEATURES: words for features of the training.
local accelhost = require "accelhost"
local C = require "accelhost._C"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local has = {}
for word in (os.getenv "FEATURES" or ""):gmatch "%S+" do has[word] = true end
local folder, rank = os.getenv "FOLDER", tonumber(os.getenv "RANK") or 0

local at_step = 0
local kills = {}
for victim, place, step in (os.getenv "KILL" or ""):gmatch "(%d+):(%a+_?%a*):(%d+)" do
  if tonumber(victim) == rank then kills[#kills + 1] = {place = place, step = tonumber(step)} end
end

local doomed = false -- another process is about to kill this one
local watcher = "pid=$PPID; (for _ in $(seq 500); do ls -A %s/run/checkpoints/.*saving*/ | grep -q . && break; done; "
  .. "kill -9 $pid) > /dev/null 2>&1 &"

local function maybe_die(place)
  for i, kill in ipairs(kills) do
    local mark = ("%s/killed_%d_%d"):format(folder, rank, i)
    if kill.place == place and kill.step == at_step and not io.open(mark) then
      assert(io.open(mark, "w")):close()
      io.stdout:flush()
      doomed = place == "writing"
      os.execute(doomed and watcher:format(folder) or "kill -9 $PPID")
    end
  end
end

local Net = nn.Module:extend "Net"
function Net:init()
  self.fc1 = nn.Linear(8, 16)
  if has.norm then self.norm = nn.BatchNorm1d(16) end
  if has.fresh then self:register_buffer("mean", accelhost.zeros(16)) end
  if has.dropout then self.dropout = nn.Dropout(0.3) end
  self.fc2 = nn.Linear(16, 3)
end
function Net:forward(x)
  x = self.fc1(x)
  if has.norm then x = self.norm(x) end
  if has.fresh and self.training then self.mean = self.mean * 0.9 + x:detach():mean(0) * 0.1 end
  if has.dropout then x = self.dropout(x) end
  x = self.fc2(F.relu(x))
  if self.training then maybe_die "forward" end
  return x
end

if has.extra then
  Net.count = 0
  function Net:get_extra_state() return accelhost.tensor {self.count} end
  function Net:set_extra_state(state) self.count = state:sum():item() end
end

local accelerator = accelhost.Accelerator {
  gradient_accumulation_steps = has.windows and 3 or 1, mixed_precision = has.bf16 and "bf16" or has.fp16 and "fp16"
    or nil,
  virtual_shards = has.shards and 4 or nil, bucket_cap_mb = has.buckets and 0.0001 or nil,
  project_config = not has.homeless
    and {project_dir = folder .. "/run", automatic_checkpoint_naming = true, total_limit = 2} or nil,
  dataloader_config = {use_seedable_sampler = not has.drawn, dispatch_batches = has.dispatch or nil},
  rng_types = has.torch and {"torch", "generator"} or nil, log_with = has.logs and {"jsonl", "csv"} or nil,
}
math.randomseed(7 + rank)
accelhost.manual_seed(3)
local model = Net()
local kinds = {
  adamw = function(p) return optim.AdamW(p, {lr = 0.02}) end,
  lbfgs = function(p) return optim.LBFGS(p, {lr = 0.1, max_iter = 2, history_size = 3}) end,
  sgd = function(p) return optim.SGD(p, {lr = 0.05, momentum = 0.9}) end,
}
local optimizer = (has.lbfgs and kinds.lbfgs or has.sgd and kinds.sgd or kinds.adamw)(model:parameters())
local scheduler = optim.lr_scheduler.StepLR(optimizer, 4, 0.8)
local generator = accelhost.Generator():manual_seed(11)
local rows = accelhost.randn(45, 8, {generator = generator})
local inputs = rows
local labels = inputs:sum(1):gt(0):to "int64"

local set = data.TensorDataset(inputs, labels)
if has.stream then
  local Rows = {}
  function Rows:shard(count, index) -- luacheck: ignore self
    return {iter = function()
      local i = index - count
      return function()
        i = i + count
        if i < 45 then return inputs[i], labels[i] end
      end
    end}
  end
  function Rows:iter() return self:shard(1, 0):iter() end
  set = setmetatable({}, {__index = Rows})
end
if has.workers then
  local Noisy = data.Dataset:extend "Noisy"
  function Noisy:len() return 45 end -- luacheck: ignore self
  function Noisy:get(i) -- luacheck: ignore self
    return rows[i] + 0.1 * accelhost.randn(8) * math.random(), labels[i]
  end
  if has.stream then
    inputs = setmetatable({}, {__index = function(_, i) return rows[i] + 0.1 * accelhost.randn(8) end})
  else
    set = Noisy()
  end
end
local loader = data.DataLoader(set, {
  batch_size = 4, shuffle = not has.stream or nil, num_workers = has.workers and 2 or nil,
  persistent_workers = has.persistent or nil,
})
local eval_loader = data.DataLoader(data.TensorDataset(rows, labels), {batch_size = 8})
model, optimizer, scheduler, loader, eval_loader =
  accelerator:prepare(model, optimizer, scheduler, loader, eval_loader)
local side_loader = has.zipped and accelerator:prepare(data.DataLoader(set, {batch_size = 2, shuffle = true}))
local next_side
accelhost.manual_seed(100 + rank) -- each process draws its own

local progress = {steps = 0, sum = 0, drawn = 0}
local ballast = has.heavy and accelhost.zeros(2000000) or nil -- so that writing is slow
function progress:state_dict() return {steps = self.steps, sum = self.sum, drawn = self.drawn, ballast = ballast} end
function progress:load_state_dict(state)
  self.steps, self.sum, self.drawn = state.steps, state.sum, state.drawn
end
accelerator:register_for_checkpointing(progress)

-- Within the average of gradients, in the middle of backward.
local first = model:parameters()[1]
if not has.shards then first:register_hook(function() maybe_die "backward" end) end

if has.logs then accelerator:init_trackers "logs" end
maybe_die "set_up"
if has.peeked then
  for _ in eval_loader do break end -- luacheck: ignore 512
  eval_loader:batches()()
end
if not has.forgets then
  local found = accelerator:load_state()
  if os.getenv "TELL" then io.stderr:write(("load_state: %s at %d\n"):format(tostring(found), progress.steps)) end
end
at_step = progress.steps
maybe_die "loaded"

local function evaluate()
  model:eval()
  local right = 0
  accelhost.no_grad(function()
    for x, y in eval_loader do
      right = right + accelerator:gather_for_metrics(model(x):argmax(1):eq(y)):sum():item()
      maybe_die "evaluation"
      if has.peeks then break end
    end
  end)
  model:train()
  return right
end

local function one_step(x, y)
  at_step = progress.steps + 1
  if has.extra then model.count = model.count + at_step end
  accelerator:accumulate(model)
  local loss
  local function closure()
    loss = F.cross_entropy(model(x), y)
    accelerator:backward(loss)
    return loss
  end
  if has.lbfgs then
    optimizer:zero_grad()
    optimizer:step(function()
      optimizer:zero_grad()
      return closure()
    end)
  else
    if has.zero_first then optimizer:zero_grad() end
    closure()
    if has.clip then accelerator:clip_grad_norm_(model:parameters(), 0.5) end
    maybe_die "reduced"
    optimizer:step()
    maybe_die "stepped"
  end
  scheduler:step()
  if not has.zero_first then optimizer:zero_grad() end
  progress.steps, progress.sum = at_step, progress.sum + loss:item()
  progress.drawn = progress.drawn + math.random() + accelhost.rand(1):item()
  if next_side and at_step % 3 == 0 then progress.sum = progress.sum + next_side():sum():item() end
  if has.logs then
    accelerator:log {seen = at_step}
    maybe_die "logged"
    accelerator:log({drawn = progress.drawn}, {step = at_step})
  end
end

for epoch = loader.epoch, 2 do
  if side_loader then next_side = side_loader:batches() end
  for x, y in loader do
    one_step(x, y)
    if has.breaks and progress.steps % 3 == 0 then break end
    if has.within and progress.steps % 4 == 0 then progress.sum = progress.sum + evaluate() end
    if has.saving and progress.steps % 3 == 0 then
      at_step = progress.steps
      maybe_die "writing"
      accelerator:save_state {async = epoch == 1}
      if doomed then os.execute "sleep 20" end
      maybe_die "saving"
      if has.stops then return end
    end
  end
  progress.sum = progress.sum + evaluate()
end
if has.saving then accelerator:wait_for_checkpoint() end

local state = optimizer:state_dict()
local sums = {accelhost.sha256(model:state_dict()), ("%.17g %.17g %d"):format(progress.sum, progress.drawn,
  progress.steps), ("%.17g"):format(state.param_groups[1].lr), accelhost.sha256(accelhost.get_rng_state())}
print(table.concat(sums, " "))
C.comm.barrier()
