--- Live recovery (`accelhost launch --recover live`): what each process keeps at every step of the training, and how a
--- new one takes a killed one's place. Which calls are answered again is told in host/comm/recover.h.
--
-- A step begins where a prepared loader is asked for a batch after an optimizer has stepped with the one before: there
-- nothing is under way. Not for the last request of a pass, behind which the script goes on with something else.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local hooks = require "accelhost.optim.hooks"
local live = require "accelhost.checkpoint.live"
local passes = require "accelhost.data.passes"
local run_state = require "accelhost.accelerator.run_state"

local fail = arguments.fail
local native, comm = C.recovery, C.comm

local recovery = {}

local updates = 0 -- steps of optimizers in this process
hooks.register_optimizer_step_post_hook(function() updates = updates + 1 end)

-- accelerator -> {objects, answer: what load_state gave, updates: when the last step was kept}
local kept = setmetatable({}, {__mode = "k"})
local held = setmetatable({}, {__mode = "k"})    -- accelerators of which load_state is not where a run goes on
local trained = setmetatable({}, {__mode = "k"}) -- loaders of whose batches an optimizer has made a step
local seen = setmetatable({}, {__mode = "k"})    -- pass -> updates when it gave its last batch

local function keep(self)
  local own = kept[self]
  if not own then
    fail("launch --recover live: call accelerator:load_state() before the loop, where a process that takes a killed "
      .. "one's place goes on (it gives false when there is nothing to go on from)")
  end
  own.updates = updates
  local objects = own.objects
  objects.windows, objects.accelerator = run_state.windows(self), run_state.own(self)
  local note, tensors = live.capture(objects)
  note.answer, note.iteration = own.answer, self.project_configuration.iteration
  local bytes, reason = C.codec.pack(note)
  if not bytes then fail("live recovery: a state cannot be kept: %s", reason) end
  native.mark(bytes, tensors, comm.rank(), comm.size())
end

-- A prepared loader begins a pass (nil) or is asked for another batch of it.
local function asked(self, loader, pass)
  if not pass then
    local own = kept[self]
    if trained[loader] and own and own.updates ~= updates and not passes.is_within(loader) then keep(self) end
    return
  end
  local before = seen[pass]
  seen[pass] = updates
  if not before or before == updates then return end
  trained[loader] = true
  if not pass.last and not passes.is_within(loader) then keep(self) end
end

--- Have a loader that is prepared tell when a step begins.
---@param self Accelerator
---@param loader DataLoader
function recovery.watch(self, loader)
  loader:on_request(function(pass) asked(self, loader, pass) end)
end

--- Refuse an accelerator whose processes have more of their own than is kept.
---@param self Accelerator
function recovery.check(self)
  local what = self._shards and "virtual_shards" or self.sharding ~= "none" and "sharding"
  if what then fail("Accelerator: %s: not with launch --recover live", what) end
end

-- What was prepared and registered, and what the Trainer has beside.
local function objects_of(self, own)
  local objects = run_state.objects(self)
  if own then
    objects.registered = {unpack(objects.registered)}
    table.insert(objects.registered, own)
  end
  return objects
end

-- The first step that is kept begins here.
local function begin(self, answer, own)
  if kept[self] then return end
  kept[self] = {objects = objects_of(self, own), answer = answer}
  keep(self)
end

-- In the place of a process that was killed: go on from what was kept of it. Nil: there is nothing to take.
local function take(self, own)
  local step = recovery.step()
  if not step then return nil end
  local note = C.codec.unpack(native.note(comm.rank()))
  local objects = objects_of(self, own)
  native.take(live.restore(objects, note), comm.size())
  run_state.restore(self, note.accelerator, {note.windows}, nil, nil)
  self.project_configuration.iteration = note.iteration
  live.restore_random(note)
  kept[self] = {objects = objects, answer = note.answer, updates = updates}
  return note.answer or step > 0 and ("step %d of this run"):format(step)
end

--- Of a process that takes a killed one's place: the step at which it goes on; nil: from the beginning, or it is none.
---@return integer?
function recovery.step() return native.is_due() and native.find() or nil end

--- The script is where a run goes on: load_state.
---@param self Accelerator
---@param load fun(): string|false what is done where no process is replaced
---@return string|false # what `load` gave, or the step of this run
function recovery.load(self, load)
  if held[self] then return load() end
  local place = take(self)
  if place == nil then
    place = load()
    begin(self, place)
  end
  return place
end

--- The script goes on elsewhere than where it calls load_state: at `go_on`.
---@param self Accelerator
function recovery.hold(self) held[self] = true end

--- There.
---@param self Accelerator
---@param own table what has a state (state_dict, load_state_dict) beside what was registered
function recovery.go_on(self, own)
  if kept[self] then fail "launch --recover live: one training of a script can be gone on with, and this is another" end
  if take(self, own) == nil then begin(self, false, own) end
end

return recovery
