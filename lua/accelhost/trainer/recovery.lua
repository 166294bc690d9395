--- Live recovery of a training (accelerator/checkpoint/recovery.lua): the Trainer's state between two
--- updates.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local recovery = {}

-- Fields of a training that a new process does not find out for itself.
local fields = {"logged_norm", "logged_rate", "samples"}

-- Return the packed log history: it is long and only grows, so it is packed again when it has grown.
local function packed_history(trainer, cache)
  local history = trainer.state.log_history
  if cache.history ~= history or cache.count ~= #history then
    cache.history, cache.count, cache.bytes = history, #history, assert(C.codec.pack(history))
  end
  return cache.bytes
end

local function plain(state)
  local values = {}
  for name, value in pairs(state) do
    if name ~= "log_history" and name ~= "stateful_callbacks" then values[name] = value end
  end
  return values
end

local function state_of(trainer, cache)
  local own = {}
  for _, name in ipairs(fields) do own[name] = trainer[name] end
  trainer.state.runtime = trainer:seconds()
  return {
    own = own, state = plain(trainer.state), history = packed_history(trainer, cache), control = plain(trainer.control),
    callbacks = trainer.callback_handler:state_dict(), losses = trainer.losses:state_dict(),
    counts = trainer.counts and trainer.counts:state_dict(),
  }
end

local function restore(trainer, saved)
  for name, value in pairs(saved.own) do trainer[name] = value end
  for name, value in pairs(saved.state) do trainer.state[name] = value end
  trainer.state.log_history = C.codec.unpack(saved.history)
  for name, value in pairs(saved.control) do trainer.control[name] = value end
  trainer.callback_handler:load_state_dict(arguments.copy(saved.callbacks))
  trainer.losses:load_state_dict(saved.losses)
  if trainer.counts then trainer.counts:load_state_dict(saved.counts) end
  trainer._began, trainer._earlier = C.system.now(), trainer.state.runtime
end

--- Does this process replace a killed one, within the training? Then nothing is read from a disk.
function recovery.replaces(trainer)
  if not C.recovery.is_on() then return false end
  trainer.accelerator._recovery:hold()
  return C.recovery.find() ~= nil
end

--- Begin the loop, or resume it at the position of the process before this one.
---@return {undo: fun()} # for the end of the training
function recovery.resume(trainer)
  if not C.recovery.is_on() then return {undo = function() end} end
  local cache = {}
  local part = {
    state_dict = function() return state_of(trainer, cache) end,
    load_state_dict = function(_, saved) restore(trainer, saved) end,
  }
  local of_accelerator = trainer.accelerator._recovery
  of_accelerator:attach(part)
  of_accelerator:resume()
  return {undo = function() of_accelerator:detach(part) end}
end

return recovery
