-- A training that a spec starts in one process or two: trains a small classifier by the Trainer, from a checkpoint when
-- requested, and writes the results, exactly, to --out.
local accelhost = require "accelhost"
local nn, F, data = accelhost.nn, accelhost.nn.functional, accelhost.data

local args, own = accelhost.TrainingArguments.parse_args {
  {"out", "result.json", "file"}, {"rows", 40, "of the training set"}, {"stop_at", 0, "end the process at this update"},
  {"term_at", 0, "the last rank sends itself SIGTERM at this update"},
  {"raise_on", -1, "rank that asks for a stop at update 3"}, {"patience", 0, "of early stopping"},
  {"kill", "", "rank:place:update ...: the rank kills itself by SIGKILL there, once"},
  {"resume_newest", false, "resume from the newest checkpoint"},
  {"dropout", 0.2, "share"}, {"nan_at", -1, "row whose loss is no number"},
  defaults = {disable_tqdm = true, logging_steps = 2, per_device_train_batch_size = 4, learning_rate = 1e-2},
}

accelhost.manual_seed(3)
local x = accelhost.randn(own.rows, 5)
local y = x:sum(1):gt(0):to "int64" + x:narrow(1, 0, 1):squeeze(1):gt(0.5):to "int64"
if own.nan_at >= 0 then x[own.nan_at] = 0 / 0 end

local Net = nn.Module:extend "Net"
function Net:init()
  self.one, self.norm, self.drop, self.two = nn.Linear(5, 8), nn.LayerNorm(8), nn.Dropout(own.dropout), nn.Linear(8, 3)
end
function Net:forward(input)
  return self.two(self.drop(F.relu(self.norm(self.one(input)))))
end

local Watch = accelhost.TrainerCallback:extend "Watch"
function Watch:on_step_end(_, state, control) -- luacheck: ignore self
  if own.stop_at > 0 and state.global_step == own.stop_at then os.exit(9) end
  local place = accelhost.PartialState()
  if own.term_at > 0 and state.global_step == own.term_at and place.process_index == place.num_processes - 1 then
    os.execute("kill -TERM " .. io.open("/proc/self/stat"):read("*a"):match "^%d+")
  end
  if accelhost.PartialState().process_index == own.raise_on and state.global_step == 3 then
    control.should_training_stop = true
  end
end

-- The points that `kill` may name, by the files that record progress.
local function maybe_die(place, step)
  local rank = accelhost.PartialState().process_index
  for victim, update in own.kill:gmatch("(%d+):" .. place .. ":(%d+)") do
    local mark = ("%s.%d.%s.%d"):format(own.out, rank, place, step)
    if tonumber(victim) == rank and tonumber(update) == step and not io.open(mark) then
      assert(io.open(mark, "w")):close()
      os.execute "kill -9 $PPID"
    end
  end
end
function Watch:on_pre_optimizer_step(_, state) maybe_die("update", state.global_step) end -- luacheck: ignore self
function Watch:on_evaluate(_, state) maybe_die("evaluate", state.global_step) end -- luacheck: ignore self
function Watch:on_save(_, state) maybe_die("save", state.global_step) end -- luacheck: ignore self
function Watch:on_epoch_end(_, state) maybe_die("epoch", state.global_step) end -- luacheck: ignore self

local list = {Watch()}
if own.patience > 0 then list[2] = accelhost.EarlyStoppingCallback(own.patience) end
local set = data.TensorDataset(x, y)
local test_set = data.Subset(set, 0, math.min(own.rows, 23))
local trainer = accelhost.Trainer {
  model_init = Net, args = args, train_dataset = set, eval_dataset = test_set, callbacks = list,
  compute_loss_func = function(outputs, labels) return F.cross_entropy(outputs, labels) end,
  compute_metrics = function(p)
    return {accuracy = p.predictions:argmax(1):eq(p.label_ids):to("float64"):mean():item(), n = p.label_ids:size(0)}
  end,
}
local output = trainer:train(own.resume_newest or args.resume_from_checkpoint)
local prediction = trainer:predict(test_set)
if trainer.state.is_world_process_zero then
  local weights = {}
  for name, value in pairs(trainer.model:state_dict()) do weights[name] = value:reshape(-1):tolist() end
  local logs = {}
  for i, entry in ipairs(trainer.state.log_history) do
    logs[i] = {}
    for key, value in pairs(entry) do
      if not key:find "runtime" and not key:find "per_second" then logs[i][key] = value end
    end
  end
  local file = assert(io.open(own.out, "w"))
  if own.nan_at >= 0 then -- JSON has no word for the rest
    file:write(accelhost.json.encode {loss = output.training_loss})
    os.exit(0)
  end
  file:write(accelhost.json.encode {
    weights = weights, logs = accelhost.json.array(logs), step = output.global_step, loss = output.training_loss,
    labels = prediction.label_ids:tolist(), predictions = prediction.predictions:reshape(-1):tolist(),
    expected = y:narrow(0, 0, math.min(own.rows, 23)):tolist(), max_steps = trainer.state.max_steps,
    best = trainer.state.best_model_checkpoint, best_metric = trainer.state.best_metric, epoch = trainer.state.epoch,
    test_loss = prediction.metrics.test_loss,
  })
  file:close()
end
