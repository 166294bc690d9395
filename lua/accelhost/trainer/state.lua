--- TrainerState: the progress of a training; every checkpoint has it as trainer_state.json, under transformers' keys.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

---@field epoch number passes done, with the part of the present one
---@field global_step integer updates done
---@field max_steps integer updates in all
---@field num_train_epochs integer
---@field log_history table[] everything that was logged
---@field best_metric number?
---@field best_global_step integer?
---@field best_model_checkpoint string?
---@field is_world_process_zero boolean
local TrainerState = class.new "TrainerState"

-- key -> its value at the start; those after the first lines are this library's own.
local function initial()
  return {
    epoch = 0, global_step = 0, max_steps = 0, num_train_epochs = 0, logging_steps = 500, eval_steps = 500,
    save_steps = 500, train_batch_size = 0, num_input_tokens_seen = 0, total_flos = 0, is_hyper_param_search = false,
    finished_epochs = 0, total_batch_size = 0, num_processes = 1, loss_sum = 0, loss_steps = 0, logged_loss_sum = 0,
    logged_loss_steps = 0, runtime = 0,
  }
end
local optional = {"best_metric", "best_global_step", "best_model_checkpoint", "trial_name", "trial_params"}

--- The state of a training that has not begun.
--
--   accelhost.TrainerState().global_step  --> 0
function TrainerState:init()
  for name, value in pairs(initial()) do self[name] = value end
  self.log_history, self.stateful_callbacks = {}, {}
  self.is_local_process_zero, self.is_world_process_zero = true, true
end

-- JSON has no word for a number that is not finite.
local function storable(value)
  if type(value) == "table" then
    local copy = {}
    for key, item in pairs(value) do copy[key] = storable(item) end
    return copy
  end
  if type(value) == "number" and value - value ~= 0 then return C.json.null end
  return value
end

--- The text of trainer_state.json.
---@return string
function TrainerState:to_json()
  local values = {stateful_callbacks = self.stateful_callbacks}
  for name in pairs(initial()) do values[name] = storable(self[name]) end
  for _, name in ipairs(optional) do
    values[name] = self[name] == nil and C.json.null or storable(self[name])
  end
  values.log_history = C.json.array(storable(self.log_history))
  values.is_local_process_zero, values.is_world_process_zero = true, true
  return C.json.encode(values, 2) .. "\n"
end

--- Write it to a file.
function TrainerState:write(path)
  local fine, reason = pcall(C.io.write_text, path, self:to_json())
  if not fine then arguments.fail("Trainer: %s", tostring(reason)) end
end

--- The state of a file; keys that it lacks keep their values at the start.
---@param path string trainer_state.json
---@return TrainerState
function TrainerState.from_file(path)
  local file, reason = io.open(path, "rb")
  if not file then arguments.fail("Trainer: cannot read '%s': %s", path, reason) end
  local text = file:read "*a"
  file:close()
  local fine, values = pcall(C.json.decode, text)
  if not fine then arguments.fail("Trainer: '%s': %s", path, tostring(values)) end
  local state = TrainerState()
  for name, value in pairs(values) do
    if value ~= C.json.null then state[name] = value end
  end
  return state
end

return TrainerState
