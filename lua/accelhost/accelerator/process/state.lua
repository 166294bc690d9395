--- Read-only views of a process's identity in its job and of an accelerator's progress.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local groups = require "accelhost.distributed.groups"
local place = require "accelhost.accelerator.process.place"
local comm = C.comm

local state = {}

-- Facts of the job, which never change: asked for once.
local facts = {}

local function learn()
  local rank, size, local_rank = comm.rank(), comm.size(), comm.local_rank()
  facts = {
    process_index = rank, num_processes = size, local_process_index = local_rank,
    is_main_process = rank == 0, is_local_main_process = local_rank == 0, is_last_process = rank == size - 1,
    use_distributed = size > 1,
  }
end

--- Add the fields of this process's identity in its job to a class whose objects have a device.
function state.add_facts(cls)
  for _, name in ipairs {
    "process_index", "num_processes", "local_process_index", "is_main_process", "is_local_main_process",
    "is_last_process", "use_distributed",
  } do
    class.property(cls, name, function()
      if facts[name] == nil then learn() end
      return facts[name]
    end)
  end
  class.property(cls, "distributed_type", function(self)
    if not self.use_distributed then return "NO" end
    return self.device:find "^cuda" and "MULTI_GPU" or "MULTI_CPU"
  end)
end

---@field device string where this process trains: its GPU, else the CPU
---@field process_index integer this process's rank, from 0
---@field num_processes integer
---@field local_process_index integer
---@field is_main_process boolean rank 0
---@field is_local_main_process boolean
---@field is_last_process boolean
---@field use_distributed boolean are there several processes?
---@field distributed_type string "NO", "MULTI_CPU" or "MULTI_GPU"
---@field backend string? the backend of collectives
---@field initialized boolean
local PartialState = class.strict(class.new "PartialState", {"backend"})
PartialState.__newindex = class.assign
state.PartialState = PartialState

local read_partial = arguments.signature("PartialState", {{"cpu: flag"}})

--- This process's identity in its job, without an accelerator, and the methods of an accelerator that need no more. All
--- such objects have the same values.
--
--   accelhost.PartialState().num_processes  --> 1
---@param cpu? boolean use the CPU even where there are GPUs
function PartialState:init(...)
  self:_describe(place.of("PartialState", read_partial(...)))
end

function PartialState:_describe(device)
  rawset(self, "device", device)
  rawset(self, "backend", comm.size() > 1 and comm.backend(device:match "^[^:]+") or nil)
  rawset(self, "initialized", true)
  groups.begin()
end

-- As Accelerate prints it.
function PartialState:__tostring()
  local backend = self.backend and "  Backend: " .. self.backend or ""
  return ("Distributed environment: %s%s\nNum processes: %d\nProcess index: %d\nLocal process index: %d\nDevice: %s\n")
    :format(self.distributed_type, backend, self.num_processes, self.process_index, self.local_process_index,
      self.device)
end

state.add_facts(PartialState)

--- Methods of processes.lua, which an accelerator has and a PartialState; they are documented as the accelerator's.
state.methods = {
  "wait_for_everyone", "print", "set_trigger", "check_trigger", "split_between_processes", "main_process_first",
  "local_main_process_first", "on_main_process", "on_local_main_process", "on_last_process", "on_process",
  "on_local_process",
}

class.part(PartialState, "_processes", "accelhost.accelerator.process.processes", {})
for _, name in ipairs(state.methods) do
  local function method(self, ...) return self._processes[name](self._processes, ...) end
  class.property(PartialState, name, function() return method end)
end

---@field mixed_precision string
local AcceleratorState = PartialState:extend "AcceleratorState"
state.AcceleratorState = AcceleratorState

local read_state = arguments.signature("AcceleratorState",
  {{"mixed_precision: 'no'|'bf16'|'fp16'|'fp8'", "no"}, {"cpu: flag"}})

--- A PartialState with a precision, the class of `accelerator.state`.
--
--   accelhost.AcceleratorState().mixed_precision  --> no
function AcceleratorState:init(...)
  local precision, cpu = read_state(...)
  self:_describe(place.of("AcceleratorState", cpu))
  rawset(self, "mixed_precision", precision)
end

--- The state of an accelerator.
---@return AcceleratorState
function state.of(accelerator)
  local it = AcceleratorState:_blank()
  it:_describe(accelerator.device)
  rawset(it, "mixed_precision", accelerator.mixed_precision)
  return it
end

function AcceleratorState:__tostring()
  return PartialState.__tostring(self) .. ("\nMixed precision type: %s\n"):format(self.mixed_precision)
end

---@field sync_gradients boolean
---@field num_steps integer micro-steps of a window
---@field adjust_scheduler boolean
---@field sync_with_dataloader boolean
---@field sync_each_batch boolean
---@field active_dataloader table? the prepared loader whose `for` is the innermost one that runs
---@field in_dataloader boolean is there one?
---@field end_of_dataloader boolean is its batch the last one?
---@field remainder integer samples of its last round that are no full round, -1 when that is not known
local GradientState = class.strict(class.new "GradientState")
GradientState.__newindex = class.assign

--- An accelerator's position in its window and its loops: the value of `accelerator.gradient_state`.
function GradientState:init(accelerator)
  self._accelerator = accelerator
end

function GradientState:__tostring()
  return ("GradientState(sync_gradients=%s, num_steps=%d)"):format(tostring(self.sync_gradients), self.num_steps)
end

for _, name in ipairs {"num_steps", "adjust_scheduler", "sync_with_dataloader", "sync_each_batch"} do
  class.property(GradientState, name, function(self) return self._accelerator._accumulation[name] end)
end
class.property(GradientState, "sync_gradients", function(self) return self._accelerator.sync_gradients end)

local function active(self) return self._accelerator._prepared:active_loader(true) end

class.property(GradientState, "active_dataloader", active)
class.property(GradientState, "in_dataloader", function(self) return active(self) ~= nil end)
class.property(GradientState, "end_of_dataloader", function(self)
  local loader = active(self)
  return loader ~= nil and loader.end_of_dataloader
end)
class.property(GradientState, "remainder", function(self)
  local loader = active(self)
  return loader and loader.remainder or -1
end)
state.GradientState = GradientState

return state
