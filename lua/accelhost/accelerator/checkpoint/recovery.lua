--- Live recovery (`launch --recover live`): at every boundary a process publishes the state from which another one
--- continues in its place, and its replacement loads that (host/comm/recover/recover.h).
--
-- A boundary is where a script's training loop asks a prepared loader for a batch and no accumulation window is open:
-- the position that a checkpoint would resume at. State that is equal on all processes (parameters, optimizer states)
-- is published in shards, straight from the tensors; buffers are published whole by each; all else is a note of plain
-- data, only the fields that change from step to step. The list of tensors is a plan (recovery_plan.lua).
local C = require "accelhost._C"
local Plan = require "accelhost.accelerator.checkpoint.recovery_plan"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local contents = require "accelhost.checkpoint.contents"
local hooks = require "accelhost.optim.hooks"
local passes = require "accelhost.data.loader.passes"
local random = require "accelhost.checkpoint.random"
local run_state = require "accelhost.accelerator.checkpoint.run_state"
local serialize = require "accelhost.util.serialize"

local fail = arguments.fail

---@part Accelerator
---@field plan RecoveryPlan|false the tensors that are published
---@field asking Pass|false the pass that is asked for a batch at this boundary
---@field trained table<DataLoader, true> loaders of whose batches a step was made
---@field seen table<DataLoader, integer> `updates` when the loader was asked for a batch last
---@field attached table[] further objects of the run's state, with state_dict and load_state_dict
local Recovery = class.new "Recovery"

function Recovery:init(accelerator)
  self.accelerator, self.plan, self.asking, self.attached = accelerator, false, false, {}
  self.trained, self.seen = setmetatable({}, {__mode = "k"}), setmetatable({}, {__mode = "k"})
end

-- State of the process, which resumes one run:
local owner = nil   -- the part whose accelerator's loops have boundaries
local held = false  -- the run does not resume at load_state
local ready = false -- the script has reached the place where it resumes
local updates       -- steps of optimizers, counted from the first hook on

-- Notes.

-- Tables of the note before are filled again, which leaves little for the collector.
local function states_of(list, of, kept)
  local states = kept or {}
  for i = 1, #list do states[i] = of(list[i], states[i]) end
  return states
end

local function state_dict(object) return object:state_dict() end

-- Is a pass of the loader under way? Not one that was left by break, but one that will resume here and was not asked
-- yet.
local function is_under_way(self, loader)
  local pass, resume = loader._current, loader._resume
  if not pass then return resume ~= nil and resume.live == true end
  if pass.ended or pass.last then return false end
  return pass == self.asking or not passes.is_left(pass, not self.asking)
end

-- Return a loader's position and the state kept of it here.
local function of_loader(self, loader, kept)
  local entry, current, under_way = kept or {}, loader._current, is_under_way(self, loader)
  if not under_way then loader._current = nil end
  entry.state, entry.under_way, entry.trained = loader:state_dict(), under_way, self.trained[loader] or false
  loader._current = current
  return entry
end

-- The options of a group of an optimizer.
local function options_of(group, kept)
  local options = kept or {}
  for name in next, options do
    if group[name] == nil then options[name] = nil end
  end
  for name, value in next, group do
    if name ~= "params" then options[name] = value end
  end
  return options
end

-- Return the entries of a model's state that are in no plan.
local function others_of(model, names, kept)
  local others = kept or {}
  if #names == 0 then return others end
  local state = model:state_dict()
  for _, name in ipairs(names) do others[name] = state[name] end
  return others
end

-- The generators of other devices than the CPU that the script has used; nil without.
local function far_generators()
  if #C.device.opened() == 1 then return nil end
  local states = random.capture()
  states.cpu = nil
  return states
end

-- Return the row count of each tracker that can be truncated to it.
local function rows_of(accelerator)
  local rows
  local trackers = rawget(accelerator, "_trackers")
  for _, tracker in ipairs(trackers and trackers.list or {}) do
    if tracker.row_count then
      rows = rows or {}
      rows[tracker.name] = tracker.row_count
    end
  end
  return rows
end

local function make_note(self)
  local accelerator, plan = self.accelerator, self.plan
  local list, note = plan.objects, plan.note
  for i, model in ipairs(list.models) do note.others[i] = others_of(model, plan.others[i], note.others[i]) end
  for i, optimizer in ipairs(list.optimizers) do
    local groups = accelerator._prepared.optimizers[optimizer].param_groups
    note.optimizers[i] = plan.simple[i] and states_of(groups, options_of, note.optimizers[i]) or optimizer:state_dict()
  end
  note.schedulers = states_of(list.schedulers, state_dict, note.schedulers)
  note.scalers = states_of(list.scalers, state_dict, note.scalers)
  note.registered = states_of(list.registered, contents.state_of, note.registered)
  note.loaders = states_of(list.loaders, function(loader, kept) return of_loader(self, loader, kept) end, note.loaders)
  note.accelerator, note.windows = run_state.own(accelerator), run_state.windows(accelerator)
  note.parts, note.iteration = states_of(self.attached, state_dict), accelerator.project_configuration.iteration
  note.generators, note.rows = far_generators(), rows_of(accelerator)
  return note
end

-- Boundaries.

local function publish_state(self)
  local alike, own = self.plan:tensors()
  C.recovery.publish(alike, own, self.plan.fixed, make_note(self))
end

local function publish(self, loader, pass)
  if owner and owner ~= self then fail "live recovery: the loops of one accelerator can be recovered, here are two" end
  local accelerator = self.accelerator
  owner, self.asking = self, pass or false
  if not self.plan or not self.plan:is_current(accelerator) then self.plan = Plan.make(accelerator) end
  if not self.plan.loaders[loader] then
    fail("live recovery: the state has the positions of prepared loaders only, and this loop is over another one "
      .. "(skip_first_batches makes such): loop over the prepared one; load_state restores its position")
  end
  if accelerator._virtual_shards then
    accelerator._virtual_shards:outside(publish_state, self)
  else
    publish_state(self)
  end
  self.asking = false
end

-- Is this a request of a training loop? Its batch before was trained with; a pass that begins follows one of which a
-- batch was, or is the first of all.
local function is_training(self, loader, pass)
  local before = self.seen[loader]
  self.seen[loader] = updates
  if not pass then return self.trained[loader] or not owner end
  self.trained[loader] = self.trained[loader] or before ~= updates
  return before ~= updates
end

-- Check for state that is not the same on all processes, or is not saved, and so cannot be restored.
local function check(accelerator)
  local hook = accelerator.ddp_handler.comm_hook
  if accelerator.sharding ~= "none" then
    fail("live recovery: needs states that all processes have, and with sharding = '%s' they have parts",
      accelerator.sharding)
  elseif accelerator.device ~= "cpu" then
    fail("live recovery: is for models on the CPU, and this process's device is %s", accelerator.device)
  elseif hook == "power_sgd" or hook == "batched_power_sgd" then
    fail("live recovery: comm_hook = '%s' keeps errors that are part of no state", hook)
  end
end

--- Return the function that a prepared loader calls when it is asked for a batch.
---@return fun(loader: DataLoader, pass?: Pass)
function Recovery:hook()
  check(self.accelerator)
  if not updates then
    updates = 0
    hooks.register_optimizer_step_post_hook(function() updates = updates + 1 end)
  end
  return function(loader, pass)
    if pass and pass.ended or not is_training(self, loader, pass) then return end
    if not ready then
      if not pass then return end
      fail("launch --recover live: call accelerator:load_state() before the loop: there the replacement of a killed "
        .. "process continues (it returns false when there is nothing to continue from)")
    end
    if pass and pass.last then return end -- the code after the loop is repeated with its last step
    if self.accelerator.sync_gradients and passes.is_outermost(loader) then publish(self, loader, pass) end
  end
end

--- Have the state of an object published as each process has it.
---@param object {state_dict: function, load_state_dict: function}
function Recovery:attach(object) self.attached[#self.attached + 1] = object end

--- Remove an object that `attach` added.
---@param object table
function Recovery:detach(object)
  for i = #self.attached, 1, -1 do
    if self.attached[i] == object then table.remove(self.attached, i) end
  end
end

-- Loading a published state.

-- Add the values that a checkpoint's files would hold next to models and optimizers, by their names.
local function add_values(values, note)
  values.accelerator, values.loaders = note.accelerator, {}
  for i, loader in ipairs(note.loaders) do values.loaders[i] = loader.state end
  for i, state in ipairs(note.schedulers) do values[contents.numbered("scheduler", i)] = state end
  for i, state in ipairs(note.scalers) do values[contents.numbered("scaler", i)] = state end
  for i, state in ipairs(note.registered) do values[("custom_checkpoint_%d"):format(i - 1)] = state end
  values["gradients_" .. C.comm.rank()] = note.windows
end

local function apply(self, note, values, list, purge_step)
  local accelerator, size = self.accelerator, C.comm.size()
  local own, windows = contents.restore(function(name) return values[name] end, {world_size = size}, list,
    C.comm.rank(), size)
  run_state.set_own(accelerator, own, purge_step)
  if purge_step ~= false then accelerator._trackers.kept_rows = note.rows or false end
  run_state.set_windows(accelerator, windows)
  accelerator.project_configuration.iteration = note.iteration
  -- The others are in the middle of the pass: their agreement at its begin holds.
  for i, loader in ipairs(list.loaders) do
    if loader._resume then loader._resume.live = note.loaders[i].under_way end
    self.trained[loader] = note.loaders[i].trained
  end
  for i, object in ipairs(self.attached) do object:load_state_dict(note.parts[i]) end
end

--- Let the run resume at `resume`, where the Trainer's loop begins, not at load_state.
function Recovery:hold()
  check(self.accelerator)
  held = true
end

--- Resume a run that `hold` has delayed.
function Recovery:resume()
  held = false
  self:restore()
  held = true
end

--- In the replacement of a killed process: load the state that it published last. Makes no collective, since the others
--- make none at this place.
---@param purge_step? integer|false false: keep the values that were logged after that; the step of a checkpoint has no
--- effect here
---@return boolean # false where this process replaces none, or one that had no step before it
function Recovery:restore(purge_step)
  if held then return false end
  ready = true
  passes.mark_outside_loops()
  local step = C.recovery.find()
  if not step then return false end
  local accelerator = self.accelerator
  local fixed, note, generator, lua = C.recovery.note()
  local known, list = serialize.unpack(fixed), run_state.objects(accelerator)
  contents.check_counts(("step %d"):format(step), {objects = known.counts}, list)
  local values, lists = Plan.values(accelerator, known.layout, note)
  add_values(values, note)
  C.recovery.restore(lists.alike, lists.own)
  C.recovery.take()
  apply(self, note, values, list, purge_step == false and false or nil)
  note.generators = note.generators or {}
  note.generators.cpu = generator
  random.restore(note.generators)
  C.random.set_lua_state(lua)
  if accelerator._virtual_shards then accelerator._virtual_shards:reset() end
  return true
end

return Recovery
