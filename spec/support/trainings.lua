--- The trainings of spec/fixtures/trainer.json, made here: the same net, data, losses, metrics and callbacks.
local accelhost = require "accelhost"
local silently = require "spec.support.silently"

local trainings = {}

local nn, F, data = accelhost.nn, accelhost.nn.functional, accelhost.data

local ROWS, EVAL_ROWS, IN, HIDDEN, CLASSES = 18, 7, 3, 4, 3
local DOUBLE = {dtype = "float64"}

-- Numbers as the fixture's script makes them.
local function numbers(count, scale, shift)
  local list = {}
  for i = 0, count - 1 do list[i + 1] = scale * ((i * 37 + shift) % 97 - 48) / 48 end
  return list
end

local function tensor(count, scale, shift, ...)
  return accelhost.tensor(numbers(count, scale, shift), DOUBLE):reshape(...)
end

local function integers(count, of)
  local list = {}
  for i = 0, count - 1 do list[i + 1] = of(i) end
  return accelhost.tensor(list, {dtype = "int64"})
end

local X, EVAL_X = tensor(ROWS * IN, 1, 5, ROWS, IN), tensor(EVAL_ROWS * IN, 1, 11, EVAL_ROWS, IN)
local LABELS = integers(ROWS, function(i) return (i * 7 + 1) % 5 % CLASSES end)
local EVAL_LABELS = integers(EVAL_ROWS, function(i) return (i * 3 + 2) % CLASSES end)
local VALUES, EVAL_VALUES = X:sum(1) * 0.5 + 0.25, EVAL_X:sum(1) * 0.5 - 0.25

local Net = nn.Module:extend "Net"
function Net:init(kind)
  self.kind = kind
  self.one = nn.Linear(IN, HIDDEN)
  self.norm = nn.LayerNorm(HIDDEN)
  self.two = nn.Linear(HIDDEN, kind == "classes" and CLASSES or 1)
  self:to(DOUBLE)
  for i, parameter in ipairs(self:parameters()) do
    parameter.data = tensor(parameter:numel(), 0.7, 3 + 11 * (i - 1), unpack(parameter:shape()))
  end
end
function Net:forward(batch)
  local logits = self.two(self.norm(self.one(batch.x)):tanh())
  if self.kind == "values" then logits = logits:squeeze(-1) end
  if not batch.labels then return {logits = logits} end
  local loss = self.kind == "values" and F.mse_loss or F.cross_entropy
  return {loss = loss(logits, batch.labels), logits = logits}
end

local Rows = data.Dataset:extend "Rows"
function Rows:init(x, labels) self.x, self.labels = x, labels end
function Rows:len() return self.x:size(0) end
function Rows:get(i) return {x = self.x[i], labels = self.labels[i]} end

local Stream = data.IterableDataset:extend "Stream"
function Stream:init(rows) self.rows = rows end
function Stream:iter()
  local at = -1
  return function()
    at = at + 1
    if at < self.rows:len() then return self.rows:get(at) end
  end
end

-- The rows in another order each epoch.
local Order = data.Sampler:extend "Order"
function Order:init() self.epoch = -1 end
function Order:len() return ROWS end -- luacheck: ignore self
function Order:iter()
  self.epoch = self.epoch + 1
  local at = -1
  return function()
    at = at + 1
    if at < ROWS then return (at * 5 + 7 * self.epoch) % ROWS end
  end
end

local Ordered = accelhost.Trainer:extend "Ordered"
function Ordered:get_train_dataloader()
  return data.DataLoader(self.train_dataset, {
    batch_size = self.args.per_device_train_batch_size, sampler = Order(),
    collate_fn = accelhost.default_data_collator,
  })
end

local function watcher(seen, raises)
  local watch, last = {}, nil
  for _, event in ipairs(require("accelhost.trainer.callbacks").events) do
    local name = event:sub(4)
    watch[event] = function(_, _, state, control)
      seen[#seen + 1] = last == state.global_step and name or ("%d %s"):format(state.global_step, name)
      last = state.global_step
      local flag = raises[("%s %d"):format(name, state.global_step)]
      if flag then control[flag] = true end
    end
  end
  return watch
end

local function accuracy(prediction)
  return {accuracy = prediction.predictions:argmax(-1):eq(prediction.label_ids):to("float64"):mean():item()}
end

local function totals(prediction)
  return {inputs = prediction.inputs:sum():item(), losses = prediction.losses:mean():item()}
end

-- Counts until it is asked for the result.
local function batched()
  local right, count, calls = 0, 0, 0
  return function(prediction, compute_result)
    right = right + prediction.predictions:argmax(-1):eq(prediction.label_ids):sum():item()
    count, calls = count + prediction.label_ids:size(0), calls + 1
    if not compute_result then return end
    local result = {accuracy = right / count, calls = calls}
    right, count, calls = 0, 0, 0
    return result
  end
end

local function sets_of(kind)
  if kind == "values" then return Rows(X, VALUES), Rows(EVAL_X, EVAL_VALUES) end
  return Rows(X, LABELS), Rows(EVAL_X, EVAL_LABELS)
end

local function evaluation_of(more, eval_set, train_set)
  if not more.eval then return nil end
  if more.eval ~= "several" then return eval_set end
  return {a = eval_set, b = Rows(X:narrow(0, 0, 5), train_set.labels:narrow(0, 0, 5))}
end

local function loss_of(kind)
  local loss = kind == "values" and F.mse_loss or F.cross_entropy
  return function(outputs, labels) return loss(outputs.logits, labels) end
end

local function callbacks_of(more, seen)
  local list = {watcher(seen, more.raises or {})}
  if more.patience then
    list[2] = accelhost.EarlyStoppingCallback(more.patience, {early_stopping_threshold = more.threshold})
  end
  return list
end

-- The arguments of a case: those of all, and its own.
local function arguments_of(base, case, path)
  local given = {output_dir = path}
  for _, list in ipairs {base, case.args or {}} do
    for name, value in pairs(list) do given[name] = value end
  end
  return given
end

--- Train a case of spec/fixtures/trainer.json.
---@param base table arguments that all cases have
---@param case table
---@param path string the output_dir
---@return Trainer, table, string[] # the trainer, the result of train, and the events that a callback received
function trainings.run(base, case, path)
  local more, seen = case.more or {}, {}
  local kind = more.kind or "classes"
  local train_set, eval_set = sets_of(kind)
  local model = Net(kind)
  model.main_input_name = "x"
  local metrics = more.metrics == true and accuracy or more.metrics == "inputs" and totals
    or more.metrics == "batches" and batched() or nil
  local trainer = (more.order and Ordered or accelhost.Trainer) {
    model = model, args = arguments_of(base, case, path),
    train_dataset = more.stream and Stream(train_set) or train_set,
    eval_dataset = evaluation_of(more, eval_set, train_set), compute_metrics = metrics,
    compute_loss_func = more.loss ~= "own" and loss_of(kind) or nil, callbacks = callbacks_of(more, seen),
  }
  trainer:remove_callback(require("accelhost.trainer.callbacks").PrinterCallback)
  return trainer, silently(trainer.train, trainer), seen
end

return trainings
