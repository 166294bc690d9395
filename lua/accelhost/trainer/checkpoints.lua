--- Checkpoints of a Trainer: OUTPUT_DIR/checkpoint-STEP, a folder of accelerator:save_state with trainer_state.json in
--- it, complete or absent; the rotation of old ones, and the one from which a run resumes.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local TrainerState = require "accelhost.trainer.state"

local checkpoints = {}
local FILE = "trainer_state.json"

--- The path of the checkpoint of an update.
function checkpoints.path(folder, step) return ("%s/checkpoint-%d"):format(folder, step) end

--- The updates of a folder's checkpoints, in their order.
function checkpoints.steps(folder)
  local steps = {}
  if C.data.look(folder) ~= "folder" then return steps end
  for _, name in ipairs(C.data.list_folder(folder) or {}) do
    steps[#steps + 1] = tonumber(name:match "^checkpoint%-(%d+)$")
  end
  table.sort(steps)
  return steps
end

-- The oldest ones go, by their updates; the best and the newest stay.
local function rotate(trainer)
  local limit, folder = trainer.args.save_total_limit, trainer.args.output_dir
  if not limit or not trainer.accelerator.is_main_process then return end
  local steps, best = checkpoints.steps(folder), trainer.state.best_model_checkpoint
  local surplus = #steps - limit
  for i = 1, #steps - 1 do
    local path = checkpoints.path(folder, steps[i])
    if surplus > 0 and path ~= best then
      C.saver.remove(path)
      surplus = surplus - 1
    end
  end
end

--- A training is over: of the one checkpoint that is to stay, the best one stays.
function checkpoints.finish(trainer)
  local best, folder = trainer.state.best_model_checkpoint, trainer.args.output_dir
  if trainer.args.save_total_limit ~= 1 or not best or not trainer.accelerator.is_main_process then return end
  for _, step in ipairs(checkpoints.steps(folder)) do
    local path = checkpoints.path(folder, step)
    if path ~= best then C.saver.remove(path) end
  end
end

--- Have the state of a training written into each checkpoint; returns the hook's handle.
---@return {remove: fun()}
function checkpoints.attach(trainer)
  return trainer.accelerator:register_save_state_pre_hook(function(_, _, folder)
    if not trainer.accelerator.is_main_process then return end
    trainer.state:write(folder .. "/" .. FILE)
  end)
end

--- Save a checkpoint of the present update. A collective.
---@return string # its folder
function checkpoints.save(trainer)
  local path = checkpoints.path(trainer.args.output_dir, trainer.state.global_step)
  trainer.state.stateful_callbacks = trainer.callback_handler:state_dict()
  trainer.accelerator:save_state(path)
  rotate(trainer)
  return path
end

-- The checkpoints to try, the newest first.
local function candidates(trainer, from)
  if type(from) == "string" then return {from} end
  local folder, paths = trainer.args.output_dir, {}
  for _, step in ipairs(checkpoints.steps(folder)) do table.insert(paths, 1, checkpoints.path(folder, step)) end
  if #paths == 0 then
    arguments.fail("Trainer: resume_from_checkpoint: there is no checkpoint in '%s'; train() begins a new run", folder)
  end
  return paths
end

--- Resume from a checkpoint: the one that is named, or the newest that is whole. A collective.
---@param from string|true
---@return TrainerState
function checkpoints.resume(trainer, from)
  local paths = candidates(trainer, from)
  for i, path in ipairs(paths) do
    local fine, reason = pcall(trainer.accelerator.load_state, trainer.accelerator, path)
    if fine then return TrainerState.from_file(path .. "/" .. FILE) end
    if i == #paths or not tostring(reason):find("cannot be used", 1, true) then error(reason, 0) end
    if trainer.accelerator.is_main_process then
      io.stderr:write(("Trainer: %s; trying '%s'\n"):format(tostring(reason), paths[i + 1]))
    end
  end
end

return checkpoints
