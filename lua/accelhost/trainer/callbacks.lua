--- Callbacks: objects whose methods are called at the events of a training and steer it by the flags of a
--- TrainerControl.
--
--   local Stop = accelhost.TrainerCallback:extend "Stop"
--   function Stop:on_step_end(args, state, control)
--     if state.global_step >= 10 then control.should_training_stop = true end
--   end
--
-- A flag that is raised on one process is raised on all (see loop.lua), so none waits for another.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local display = require "accelhost.display"
local progress = require "accelhost.util.progress"

local callbacks = {}

callbacks.events = {
  "on_init_end", "on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end", "on_step_begin",
  "on_pre_optimizer_step", "on_optimizer_step", "on_substep_end", "on_step_end", "on_evaluate", "on_predict", "on_save",
  "on_log", "on_prediction_step",
}

--- The base of callbacks. Each method gets the arguments, the TrainerState, the TrainerControl and a table with model,
--- optimizer, lr_scheduler, train_dataloader, eval_dataloader, trainer, and logs or metrics where there are any. A
--- callback with state_dict and load_state_dict is saved with checkpoints and restored when a run continues.
--
--   local Quiet = accelhost.TrainerCallback:extend "Quiet"
local TrainerCallback = class.new "TrainerCallback"
callbacks.TrainerCallback = TrainerCallback

--- The Trainer is made.
function TrainerCallback:on_init_end() end -- luacheck: ignore self

--- The training begins, perhaps from a checkpoint.
function TrainerCallback:on_train_begin() end -- luacheck: ignore self

--- It is over; the best model, if it was asked for, is loaded.
function TrainerCallback:on_train_end() end -- luacheck: ignore self

--- A pass begins.
function TrainerCallback:on_epoch_begin() end -- luacheck: ignore self

--- Called at the end of a pass, before logging, evaluating and saving.
function TrainerCallback:on_epoch_end() end -- luacheck: ignore self

--- An update begins: before its first batch.
function TrainerCallback:on_step_begin() end -- luacheck: ignore self

--- Gradients are averaged and clipped.
function TrainerCallback:on_pre_optimizer_step() end -- luacheck: ignore self

--- The optimizer has stepped; gradients are still there.
function TrainerCallback:on_optimizer_step() end -- luacheck: ignore self

--- A batch within an update is done.
function TrainerCallback:on_substep_end() end -- luacheck: ignore self

--- Called after an update, before logging, evaluating and saving.
function TrainerCallback:on_step_end() end -- luacheck: ignore self

--- An evaluation is done: `metrics` of the last argument.
function TrainerCallback:on_evaluate() end -- luacheck: ignore self

--- A prediction is done.
function TrainerCallback:on_predict() end -- luacheck: ignore self

--- A checkpoint is there.
function TrainerCallback:on_save() end -- luacheck: ignore self

--- Values are logged: `logs` of the last argument.
function TrainerCallback:on_log() end -- luacheck: ignore self

--- A batch of an evaluation is done.
function TrainerCallback:on_prediction_step() end -- luacheck: ignore self

--- The flags by which callbacks steer a training; each is reset when it is served.
---@field should_training_stop boolean end the training after this update
---@field should_epoch_stop boolean continue with the next epoch
---@field should_save boolean
---@field should_evaluate boolean
---@field should_log boolean
local TrainerControl = class.new "TrainerControl"
callbacks.TrainerControl = TrainerControl
callbacks.flags = {"should_training_stop", "should_epoch_stop", "should_save", "should_evaluate", "should_log"}

function TrainerControl:init()
  for _, name in ipairs(callbacks.flags) do self[name] = false end
end

--- Begin an update: clear the requests from before it.
function TrainerControl:new_step()
  self.should_log, self.should_evaluate, self.should_save = false, false, false
end

--- The flags, in transformers' form.
---@return table
function TrainerControl:state_dict()
  local flags = {}
  for _, name in ipairs(callbacks.flags) do flags[name] = self[name] end
  return {args = flags, attributes = {}}
end

--- Raises the flags that the arguments' strategies ask for; every Trainer has one.
local DefaultFlowCallback = TrainerCallback:extend "DefaultFlowCallback"
callbacks.DefaultFlowCallback = DefaultFlowCallback

--- Raise the flags of actions that are due after an update.
function DefaultFlowCallback:on_step_end(args, state, control) -- luacheck: ignore self
  local step, last = state.global_step, state.global_step >= state.max_steps
  if step == 1 and args.logging_first_step then control.should_log = true end
  if args.logging_strategy == "steps" and step % state.logging_steps == 0 then control.should_log = true end
  if args.eval_strategy == "steps" and step % state.eval_steps == 0 and step >= args.eval_delay then
    control.should_evaluate = true
  end
  if args.save_strategy == "steps" and step % state.save_steps == 0 then control.should_save = true end
  if not last then return end
  control.should_training_stop = true
  if args.eval_strategy == "steps" and step >= args.eval_delay then control.should_evaluate = true end
  if args.save_strategy == "steps" then control.should_save = true end
end

--- Raise the flags of actions that are due after an epoch.
function DefaultFlowCallback:on_epoch_end(args, state, control) -- luacheck: ignore self
  if args.logging_strategy == "epoch" then control.should_log = true end
  if args.eval_strategy == "epoch" and state.epoch >= args.eval_delay then control.should_evaluate = true end
  if args.save_strategy == "epoch" then control.should_save = true end
end

-- Four digits, or all of a large number: a speed is 51987, not 5.199e+04.
local function number_text(value)
  local size = math.abs(value)
  return (size >= 1e4 and size < 1e15 and "%.0f" or "%.4g"):format(value)
end

-- Format the logged values, in the order of names.
local function text_of(logs)
  local parts = {}
  for i, name in ipairs(arguments.sorted_keys(logs)) do
    local value = logs[name]
    parts[i] = ("%s = %s"):format(name, type(value) == "number" and number_text(value) or tostring(value))
  end
  return table.concat(parts, ", ")
end

local undrawn = {epoch = true, step = true, total_flos = true, grad_norm = true, learning_rate = true}

local function is_curve(name, value)
  return type(value) == "number" and not undrawn[name] and not name:find "runtime" and not name:find "per_second"
end

-- In a notebook: draw the logged numbers in one figure. Are they drawn?
local function draw_logs(self, state, logs)
  if not display.front_end or not state.is_world_process_zero then return false end
  local numbers = {}
  for name, value in pairs(logs) do
    if is_curve(name, value) then numbers[name] = value end
  end
  if next(numbers) == nil then return true end
  local first = not self._figure
  if first then self._figure = require "accelhost.plot.figure"(nil, {together = false}) end
  self._figure:log(numbers, state.global_step)
  if first then self._figure:show() end
  return true
end

--- A progress bar over the updates, with the loss that was logged last, and one over each evaluation. Logged values are
--- printed above them on a terminal, in a notebook drawn in one figure, else printed to stdout, after the banner.
--
--   local trainer_callback = accelhost.ProgressCallback()
local ProgressCallback = TrainerCallback:extend "ProgressCallback"
callbacks.ProgressCallback = ProgressCallback

--- Draw the bar.
function ProgressCallback:on_train_begin(_, state)
  self._bar = progress {total = state.max_steps, desc = "training", unit = "step"}
  if state.global_step > 0 then self._bar:update(state.global_step) end
end

--- An update further.
function ProgressCallback:on_step_end() self._bar:update(1) end

--- Show the loss, and the line of all values; that of the end is in the summary.
function ProgressCallback:on_log(_, state, _, more)
  local bar, logs = self._bar, more.logs
  if not bar or logs.train_loss then return end
  if logs.loss then bar:set_postfix {loss = logs.loss} end
  if draw_logs(self, state, logs) then return end
  local line = ("step %d: %s"):format(state.global_step, text_of(logs))
  if C.comm.is_terminal(1) and C.comm.is_terminal(2) then return bar:write(line) end
  if state.is_world_process_zero then print(line) end
end

--- A batch of an evaluation further, where the set knows its length.
function ProgressCallback:on_prediction_step(_, _, _, more)
  local loader = more.eval_dataloader
  if not self._evaluation then
    if not C.comm.is_terminal(2) and not display.front_end then return end
    local fine, count = pcall(loader.len, loader)
    if not fine then return end
    self._evaluation = progress {total = count, desc = "evaluating", unit = "batch", leave = self._bar == nil}
  end
  self._evaluation:update(1)
end

local function end_evaluation(self)
  if self._evaluation then self._evaluation:close() end
  self._evaluation = nil
end

--- Remove the evaluation's progress bar.
function ProgressCallback:on_evaluate() end_evaluation(self) end

--- Remove the prediction's progress bar.
function ProgressCallback:on_predict() end_evaluation(self) end

--- Leave the bar unchanged.
function ProgressCallback:on_train_end()
  self._bar:close()
  if self._figure then self._figure:show() end
  self._bar, self._figure = nil, nil
end

--- Prints the logged values, a line each time, on rank 0.
--
--   local trainer_callback = accelhost.PrinterCallback()
local PrinterCallback = TrainerCallback:extend "PrinterCallback"
callbacks.PrinterCallback = PrinterCallback

--- Print the line.
function PrinterCallback:on_log(_, state, _, more) -- luacheck: ignore self
  if state.is_world_process_zero then print(("step %d: %s"):format(state.global_step, text_of(more.logs))) end
end

--- Ends a training when the metric of metric_for_best_model has not become better, by more than a threshold, in that
--- many evaluations. Its count of evaluations is part of a checkpoint.
--
--   local callback = accelhost.EarlyStoppingCallback(3)
local EarlyStoppingCallback = TrainerCallback:extend "EarlyStoppingCallback"
callbacks.EarlyStoppingCallback = EarlyStoppingCallback

local read_early = arguments.signature("EarlyStoppingCallback",
  {{"early_stopping_patience: count", 1}, {"early_stopping_threshold: nonnegative", 0}})

function EarlyStoppingCallback:init(...)
  self.patience, self.threshold = read_early(...)
  self.waited = 0
end

--- Refuse a training without evaluations of the metric.
function EarlyStoppingCallback:on_train_begin(args) -- luacheck: ignore self
  if not args.metric_for_best_model or args.eval_strategy == "no" then
    arguments.fail "EarlyStoppingCallback needs metric_for_best_model and an eval_strategy other than 'no'"
  end
end

--- Count an evaluation; the best metric is still that of those before.
function EarlyStoppingCallback:on_evaluate(args, state, control, more)
  local name = args.metric_for_best_model:gsub("^eval_", "")
  local value, best = more.metrics["eval_" .. name], state.best_metric
  if value == nil then return end -- another of several evaluation sets
  local gain = best and (args.greater_is_better and value - best or best - value)
  self.waited = (not best or gain > self.threshold) and 0 or self.waited + 1
  if self.waited >= self.patience then control.should_training_stop = true end
end

--- Return the state for a checkpoint, in transformers' form.
---@return table
function EarlyStoppingCallback:state_dict()
  return {
    args = {early_stopping_patience = self.patience, early_stopping_threshold = self.threshold},
    attributes = {early_stopping_patience_counter = self.waited},
  }
end

--- Wait on from where a checkpoint was.
---@param state table
function EarlyStoppingCallback:load_state_dict(state)
  self.waited = state.attributes.early_stopping_patience_counter
end

--- Calls callbacks in their order.
local CallbackHandler = class.new "CallbackHandler"
callbacks.CallbackHandler = CallbackHandler

function CallbackHandler:init(trainer)
  self.trainer, self.list, self._heeding = trainer, {}, {}
end

--- Add a callback: an object of a subclass of TrainerCallback, the class itself, or a plain table of on_... functions.
function CallbackHandler:add(callback)
  if class.is_class(callback) then callback = callback() end
  if type(callback) ~= "table" then
    arguments.fail("Trainer: callbacks: expected a TrainerCallback, got %s", arguments.describe(callback))
  end
  for name in pairs(callback) do
    if type(name) == "string" and name:find "^on_" then
      arguments.check("Trainer", "callbacks", "'" .. table.concat(callbacks.events, "'|'") .. "'", name)
    end
  end
  self.list[#self.list + 1], self._heeding = callback, {}
end

--- Remove a callback: the object, or all of a class. Returns the first one.
---@return table?
function CallbackHandler:remove(callback)
  local first
  self._heeding = {}
  for i = #self.list, 1, -1 do
    local other = self.list[i]
    if other == callback or class.of(other) and class.is(other, callback) then
      first = other
      table.remove(self.list, i)
    end
  end
  return first
end

-- Return the callbacks with a method for an event; arguments are not collected for an event without one.
function CallbackHandler:_listeners(event)
  local found = self._heeding[event]
  if not found then
    found = {}
    for _, callback in ipairs(self.list) do
      local method = callback[event]
      if method and method ~= TrainerCallback[event] then found[#found + 1] = callback end
    end
    self._heeding[event] = found
  end
  return found
end

--- Call an event's method of all callbacks.
---@param event string
---@param more? table
function CallbackHandler:call(event, more)
  local listeners = self._heeding[event] or self:_listeners(event)
  if #listeners == 0 then return end
  local trainer = self.trainer
  local given = {
    trainer = trainer, model = trainer.model, optimizer = trainer.optimizer, lr_scheduler = trainer.lr_scheduler,
    train_dataloader = trainer.train_dataloader, processing_class = trainer.processing_class,
  }
  if more then
    for name, value in pairs(more) do given[name] = value end
  end
  local args, state, control = trainer.args, trainer.state, trainer.control
  for i = 1, #listeners do
    local callback = listeners[i]
    callback[event](callback, args, state, control, given)
  end
end

local function name_of(callback, i) return (class.of(callback) or {})._name or "callback " .. i end

--- The states of callbacks that have one, by name.
function CallbackHandler:state_dict()
  local states = {TrainerControl = self.trainer.control:state_dict()}
  for i, callback in ipairs(self.list) do
    if callback.state_dict then states[name_of(callback, i)] = callback:state_dict() end
  end
  return states
end

--- Restore the callbacks' states.
---@param states table
function CallbackHandler:load_state_dict(states)
  for i, callback in ipairs(self.list) do
    local state = states[name_of(callback, i)]
    if callback.load_state_dict and state then callback:load_state_dict(state) end
  end
end

return callbacks
