--- Checkpoints: the whole state of a run in a folder that is there whole or not at all.
local C = require "accelhost._C"
local agree = require "accelhost.accelerator.process.agree"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local later = require "accelhost.util.later"
local contents = later "accelhost.checkpoint.contents"
local hook_list = require "accelhost.util.hook_list"
local manifest = later "accelhost.checkpoint.manifest"
local names = later "accelhost.checkpoint.names"
local objects = require "accelhost.accelerator.process.objects"
local printable = require "accelhost.util.printable"
local run_state = require "accelhost.accelerator.checkpoint.run_state"
local averaging = later "accelhost.averaging"
local comm = C.comm

local fail, describe = arguments.fail, arguments.describe

---@part Accelerator
---@field registered any[] further objects whose state is saved
---@field per_process table<any, boolean> those among them of which each process saves its own
---@field save_hooks {call: function}[]
---@field load_hooks {call: function}[]
---@field saving table|false the save under way
local Checkpointer = class.new "Checkpointer"

function Checkpointer:init(accelerator)
  self.accelerator, self.registered, self.save_hooks, self.load_hooks = accelerator, {}, {}, {}
  self.per_process = {}
  self.saving = false
end

-- The saves under way. Each lives until it has completed, even if its accelerator is collected.
local running = {} -- luacheck: ignore 241

-- Return the seconds that rank 0's writer waits for the other ranks' writers: the timeout of a collective.
local function patience() return tonumber(os.getenv "ACCELHOST_TIMEOUT" or "") or 600 end

-- May a folder of this name be replaced? Only an empty one, or a checkpoint and nothing else.
local function check_goal(path)
  local kind, reason = C.data.look(path)
  if reason then fail("save_state: '%s': %s", path, reason) end
  if kind == "file" then fail("save_state: '%s' is a file", path) end
  if not kind then return end
  if #C.data.list_folder(path) == 0 then return end
  reason = C.saver.check(path)
  if reason then fail("save_state: cannot replace %s: pass another folder", reason) end
end

-- Choose the folder of a state and the older checkpoints to remove once it is complete; decided by rank 0.
local function choose_place(self, dir)
  local project = self.accelerator.project_configuration
  if dir ~= nil then
    check_goal(dir)
    return {path = dir, victims = {}}
  end
  if not project.automatic_checkpoint_naming then
    fail("save_state: pass a folder, or the accelerator a project_config = {project_dir = ..., "
      .. "automatic_checkpoint_naming = true}")
  end
  if not project.project_dir then fail "save_state: automatic_checkpoint_naming needs a project_dir" end
  local number = names.next(project.project_dir, project.iteration)
  local path = names.path(project.project_dir, number)
  if C.recovery.is_on() then check_goal(path) end
  return {path = path, number = number, victims = names.surplus(project.project_dir, number, project.total_limit)}
end

-- Create the hidden folder on rank 0. Returns its saver (nil on the others) and the folder, which differs from the
-- one that the others received where rank 0 replaces a killed process.
local function begin_folder(place)
  local saver
  local folder = agree.main("save_state", function()
    local reason
    -- A numbered name is new, but to the replacement of a process that has used it already.
    saver, reason = C.saver.begin(place.path, not place.number or C.recovery.is_on())
    if not saver then fail("save_state: %s", reason) end
    return saver:folder()
  end)
  return saver, saver and saver:folder() or folder
end

-- All write into it.
local function open_saver(place)
  local saver, folder = begin_folder(place)
  return saver or C.saver.join(folder, comm.rank()), folder
end

-- Rank 0 has made the folder; fail on a host where this name is another folder.
local function check_shared(folder)
  local file = io.open(folder)
  if file then return file:close() end
  fail("save_state: on %s there is no '%s', which rank 0 has made: all hosts need to share the folder",
    C.system.host_name(), folder)
end

local function run_hooks(list, ...)
  for _, entry in ipairs(list) do entry.call(...) end
end

-- Refuse unscaled gradients: the step after loading would unscale them again.
local function check_unscaled(self)
  local scaler = self.accelerator.scaler
  for _, optimizer in pairs(scaler and self.accelerator._prepared.optimizers or {}) do
    if scaler:_unscaled(optimizer) and not scaler:_stepped(optimizer) then
      fail("save_state: gradients are unscaled (by clipping or unscale_gradients) and wait for their optimizer's "
        .. "step: save after it")
    end
  end
end

-- Run fn with the random generators that are in use outside of shards.
local function in_common_stream(self, fn, ...)
  local virtual_shards = self.accelerator._virtual_shards
  if virtual_shards then return virtual_shards:outside(fn, ...) end
  return fn(...)
end

-- Collect the files that this process writes.
local function collect(self, folder, copied, parts)
  if not C.recovery.is_on() then check_shared(folder) end
  check_unscaled(self)
  local accelerator = self.accelerator
  local list = run_state.objects(accelerator)
  list.weights, list.windows, list.accelerator = {}, run_state.windows(accelerator), run_state.own(accelerator)
  for i, model in ipairs(list.models) do
    list.weights[i] = model._checkpoint_state and model:_checkpoint_state() or model:state_dict {keep_vars = true}
  end
  run_hooks(self.save_hooks, list.models, list.weights, folder)
  list.optimizer_states, list.optimizer_parts = {}, {}
  for i, optimizer in ipairs(list.optimizers) do
    list.optimizer_states[i] = not parts and optimizer:state_for(0) or false
    list.optimizer_parts[i] = parts and optimizer:own_part() or nil
  end
  local files = comm.rank() == 0 and contents.shared_files("save_state", list, copied) or {}
  local own = contents.own_files("save_state", list, comm.rank(), copied)
  local facts = manifest.facts()
  facts.objects = contents.counts(list)
  facts.objects.models = #list.weights
  return files, own, C.json.encode(facts)
end

-- The writer of a process that has no files.
local nobody = {}
for _, name in ipairs {"start", "written", "wait", "cancel", "close"} do nobody[name] = function() end end

-- Open the writer where killed ranks are replaced. Rank 0 writes the files of all ranks, so that a replacement that
-- repeats a save waits for no other rank, and the others do not write their files again.
local function open_alone(place)
  local saver, folder = begin_folder(place)
  return saver or nobody, folder
end

-- Files of all on rank 0.
local function receive_files(own)
  return objects.concatenated("save_state", own)
end

local function existing(paths)
  local found = {}
  for _, path in ipairs(paths) do
    if C.data.look(path) then found[#found + 1] = path end
  end
  return found
end

-- Free the copies of a save; the next save makes its own.
local function free_copies(files)
  for _, file in ipairs(files or {}) do
    for _, tensor in ipairs(file.tensors or {}) do tensor:free() end
  end
end

-- Wait for the save that is under way, if there is one. A collective; errors are those of all.
local function finish(self)
  local saving = self.saving
  if not saving then return end
  self.saving, running[saving] = false, nil
  local saver, what = saving.saver, ("save_state: '%s' was not saved"):format(saving.path)
  local failed = saver:written()
  local fine, text = pcall(agree.reasons, what, failed)
  if not fine then
    saver:cancel()
    saver:wait()
    comm.barrier() -- no thread writes into the folder any more, which rank 0 removes
    saver:close()
    free_copies(saving.copies)
    error(text, 0)
  end
  local reason = saver:wait()
  saver:close()
  free_copies(saving.copies)
  agree.reasons(what, reason)
end

-- Checkpoints that can be loaded, the newest first; decided by rank 0.
local function candidates(self, dir)
  if dir then return {dir} end
  local project_dir = self.accelerator.project_dir
  if not project_dir then fail "load_state: pass a folder, or the accelerator a project_dir" end
  local list = {}
  for _, number in ipairs(names.numbers(project_dir)) do
    table.insert(list, 1, names.path(project_dir, number))
  end
  return list
end

-- Return why a checkpoint cannot be used, nil when it can; each process checks some of the files. A collective.
local function find_damage(folder)
  local facts, reason = manifest.read(folder)
  reason = reason or facts and manifest.check(folder, facts, comm.rank() + 1, comm.size())
  local all = objects.all_gather("load_state", {reason = reason, reads = facts ~= nil, host = C.system.host_name()})
  for _, other in ipairs(all) do
    if other.reason and all[1].reads and not other.reads then
      return nil, ("on %s %s, and on %s it has one: all hosts need to share the folder"):format(other.host,
        other.reason, all[1].host)
    end
    if other.reason then return nil, other.reason end
  end
  return facts
end

-- A line on stderr, from rank 0.
local function notice(format, ...)
  if comm.rank() ~= 0 then return end
  io.stdout:flush()
  io.stderr:write("load_state: ", printable.message(format:format(...)), "\n")
end

-- The first checkpoint that is whole.
local function choose(list, automatic)
  local damaged = {}
  for _, folder in ipairs(list) do
    local facts, reason = find_damage(folder)
    if facts then
      if #damaged > 0 then notice("%s; using '%s'", table.concat(damaged, "; "), folder) end
      return folder, facts
    end
    damaged[#damaged + 1] = ("'%s' cannot be used: %s"):format(folder, reason)
    if not automatic then break end
  end
  if #damaged > 0 then fail("load_state: %s", table.concat(damaged, "; ")) end
end

local function proportions_text(list) return list and table.concat(list, ":") or "evenly" end

local function apply(self, folder, facts, purge_step)
  local accelerator = self.accelerator
  local list = run_state.objects(accelerator)
  run_hooks(self.load_hooks, list.models, folder)
  contents.check_counts(folder, facts, list)
  local own, windows, common = contents.restore(contents.getter(folder, facts), facts, list, comm.rank(), comm.size())
  local before, here = proportions_text(own.share), proportions_text(accelerator.share)
  if before ~= here then
    notice("'%s' was saved where processes shared batches %s, here %s", folder, before, here)
  end
  if own.virtual_shards ~= accelerator.virtual_shards then
    notice("'%s' was saved with virtual_shards = %s, here it is %s: the training continues, but not to the same bits",
      folder, tostring(own.virtual_shards), tostring(accelerator.virtual_shards))
  end
  run_state.set_own(accelerator, own, purge_step)
  run_state.set_windows(accelerator, windows, common)
end

-- Report the differences to the saved run.
local function report_differences(folder, facts, without)
  local size = comm.size()
  if facts.world_size ~= size then
    local kept = "all random generators continue"
    if #without > 0 then
      kept = ("%s %s: no random generators in it, so the present ones continue"):format(
        #without == 1 and "rank" or "ranks", table.concat(without, ", "))
    end
    notice("'%s' was saved by %d process%s, this job has %d; %s", folder, facts.world_size,
      facts.world_size == 1 and "" or "es", size, kept)
  end
  local differences = manifest.differences(facts)
  if #differences > 0 then
    notice("'%s' was saved under other conditions, so sums may be rounded otherwise (%s)", folder,
      table.concat(differences, "; "))
  end
end

local read_save = arguments.signature("save_state",
  {{"output_dir: string"}, {"safe_serialization: flag", true}, {"async: flag", false}, {"sharded: flag"}})
local read_load = arguments.signature("load_state", {{"input_dir: string"}, {"purge_step"}})

-- Append a hook to the list of a field and return a handle that removes it.
local function add_hook(self, field, what, hook)
  arguments.check(what, "hook", "callable", hook)
  local entry = {call = hook}
  self[field] = hook_list.with(self[field], entry)
  return {remove = function() self[field] = hook_list.without(self[field], entry) end}
end

--- Save the whole state of the run in a folder: models, optimizers, schedulers and loaders that were prepared (a
--- loader's epoch, position and order), objects that were registered, gradients that no optimizer has used yet with
--- their accumulation window, and every process's random generators. A collective.
--
-- The folder is filled under a hidden name and renamed when everything is on the disk: a run that is killed leaves
-- the old one, a failure (a full disk) is raised on all processes, names the one that met it and leaves nothing. A
-- manifest keeps every file's size and SHA-256. Files are safetensors and JSON: data, nothing that is run.
--
-- Without a folder it is PROJECT_DIR/checkpoints/checkpoint_N, with the next free N, if the accelerator was made with
-- automatic_checkpoint_naming; of those total_limit are kept, the oldest being removed when the new one is there.
-- A folder that exists is replaced if it is a checkpoint. Only files that a manifest names are removed: a checkpoint
-- with another file or a link in it stays, and one line names the reason.
--
-- With `async` the values are copied and written by a thread while the script continues; a failure is raised by the
-- next save_state, load_state, wait_for_checkpoint or end_training, or ends the script with an error.
--
--   accelerator:save_state(os.tmpname() .. ".checkpoint", {async = true})
--   accelerator:wait_for_checkpoint()
---@param safe_serialization? boolean only true: files are data
---@param async? boolean return while the files are still being written
---@param sharded? boolean with sharding: each process writes its part of the optimizers' states, and rank 0 never has
--- them whole; default false. Such a state loads into any number of processes and any sharding too
---@return string # the folder
function Checkpointer:save_state(...)
  local accelerator, virtual_shards = self.accelerator, self.accelerator._virtual_shards
  local dir, safe, async, parts = read_save(...)
  if parts and accelerator.sharding == "none" then
    fail "save_state: sharded: no state is sharded here; leave it out"
  end
  if parts == nil then parts = accelerator._saves_parts end
  if not safe then fail "save_state: safe_serialization: files here are data always; leave it out" end
  if virtual_shards and not virtual_shards:is_between() then
    fail("save_state: with virtual_shards a state can be saved when a step is complete, where "
      .. "accelerator.sync_gradients is true")
  end
  finish(self)
  local place = agree.main("save_state", choose_place, self, dir)
  local together = C.recovery.is_on()
  async = async and not together
  local saver, folder = (together and open_alone or open_saver)(place)
  averaging.make_whole(accelerator)
  local fine, files, own, facts = pcall(agree.run, "save_state", in_common_stream, self, collect, self, folder, async,
    parts)
  averaging.release(accelerator)
  if not fine then
    saver:close()
    error(files, 0)
  end
  for _, file in ipairs(together and receive_files(own) or own) do files[#files + 1] = file end
  saver:start {
    files = files, parts = together and 1 or comm.size(), facts = facts, victims = existing(place.victims),
    timeout = patience(),
  }
  self.saving = {saver = saver, path = place.path, copies = async and files or nil}
  running[self.saving] = true
  if not async then finish(self) end
  if place.number then accelerator.project_configuration.iteration = place.number + 1 end
  return place.path
end

--- Wait until a state that is being saved with `async` is complete, and free its copies; raises the error of a failed
--- save. A collective. end_training does so too.
--
--   accelerator:wait_for_checkpoint()
function Checkpointer:wait_for_checkpoint()
  finish(self)
end

--- Load a saved state: everything that save_state wrote, to the bit. The same objects have to be
--- prepared and registered, in the same order. Every file's size and hash is checked first. A collective.
--
-- Without a folder it is the newest of PROJECT_DIR/checkpoints that is whole; one that is damaged is named and the
-- one before is used. False when there is none yet, so that a script may call it first, restarted or not.
--
-- Trackers drop the steps after the last one that was logged before the state was saved when something is logged again,
-- in jsonl and csv files for good, in TensorBoard's as with SummaryWriter's purge_step: a run that
-- was killed logs these steps again. purge_step names another step, false leaves everything. Without a checkpoint the
-- run begins again: the logged values of the first step that is logged now, and of later steps, are dropped.
--
-- A job of another number of processes can load it too: only the random generators of processes that did not exist are
-- missing, which a line reports. `for` over a loader yields the rest of its pass, of
--- loader.epoch.
--
-- In a process that replaces a killed one (`launch --recover live`) it is the state of the newest step, received from
-- the living processes, and no file is read.
--
--   accelhost.Accelerator{project_dir = "run"}:load_state()  --> false
---@param purge_step? integer|false from which logged values are dropped, see above
---@return string|false # the folder; "live" where the state was received from the living processes
function Checkpointer:load_state(...)
  local accelerator, virtual_shards = self.accelerator, self.accelerator._virtual_shards
  local dir, purge_step = read_load(...)
  if purge_step then arguments.check("load_state", "purge_step", "size", purge_step) end
  if C.recovery.is_on() then
    if accelerator._recovery:restore(purge_step) then return "live" end
    if not dir and not accelerator.project_dir then return false end
  end
  finish(self)
  local list = agree.main("load_state", candidates, self, dir)
  local folder, facts = choose(list, dir == nil)
  if not folder then
    accelerator._trackers:begin_again(purge_step)
    return false
  end
  agree.run("load_state", apply, self, folder, facts, purge_step)
  local whose = virtual_shards and 0 or comm.rank() -- with shards all processes have the same state
  local found = agree.run("load_state", contents.restore_random, folder, facts, whose)
  if virtual_shards then virtual_shards:reset() end
  local without = {}
  for rank, has in ipairs((objects.all_gather("load_state", found))) do
    if not has then without[#without + 1] = tostring(rank - 1) end
  end
  report_differences(folder, facts, without)
  local number = accelerator.project_dir and names.number(accelerator.project_dir, folder)
  if number then accelerator.project_configuration.iteration = number + 1 end
  return folder
end

local read_registered = arguments.signature("register_for_checkpointing", {{"per_process: flag", false}})

--- Have the state of further objects saved with save_state: those with state_dict and load_state_dict (averaged
--- models, samplers of one's own), and generators. The main process's states are saved, and loaded by all
--- processes; with {per_process = true} after the objects, each process's own, such as those of its environments.
--
--   accelerator:register_for_checkpointing(accelhost.Generator(7))
---@param ... any
function Checkpointer:register_for_checkpointing(...)
  local wrong, count, per_process = {}, select("#", ...), false
  local last = count > 1 and select(count, ...)
  if arguments.is_options(last) and last.per_process ~= nil then
    count, per_process = count - 1, read_registered(last)
  end
  for i = 1, count do
    local object = select(i, ...)
    if not contents.has_state(object) then wrong[#wrong + 1] = ("%d (%s)"):format(i, describe(object)) end
  end
  if #wrong > 0 then
    fail("register_for_checkpointing: expected objects with state_dict and load_state_dict; argument%s %s ha%s none",
      #wrong == 1 and "" or "s", table.concat(wrong, ", "), #wrong == 1 and "s" or "ve")
  end
  for i = 1, count do
    local object = select(i, ...)
    self.registered[#self.registered + 1], self.per_process[object] = object, per_process
  end
end

--- Call `hook(models, weights, folder)` on every process before a state is saved: `weights` are the models' state
--- dicts. A hook may change both lists, or empty `weights` to save them itself, into the folder, whose files become
--- part of the checkpoint.
--
--   local handle = accelerator:register_save_state_pre_hook(function(models, weights, folder) end)
--   handle.remove()
---@param hook fun(models: Module[], weights: table[], folder: string)
---@return {remove: fun()} # its remove() removes the hook
function Checkpointer:register_save_state_pre_hook(hook)
  return add_hook(self, "save_hooks", "register_save_state_pre_hook", hook)
end

--- Call `hook(models, folder)` on every process before a state is loaded; it may remove models from the list and load
--- them itself.
--
--   local handle = accelerator:register_load_state_pre_hook(function(models, folder) end)
--   handle.remove()
---@param hook fun(models: Module[], folder: string)
---@return {remove: fun()} # its remove() removes the hook
function Checkpointer:register_load_state_pre_hook(hook)
  return add_hook(self, "load_hooks", "register_load_state_pre_hook", hook)
end

return Checkpointer
