--- Process groups: the participants of a collective. The world is made by init_process_group, parts of it by all
--- processes together (parts.lua).
---@param group ProcessGroup
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local comm = C.comm
local fail = arguments.fail

local groups = {}

---@field native userdata
---@field ranks integer[] the members' ranks in the job, by their rank in the group
---@field group_name string
---@field group_desc string
---@field asked_for string? the devices whose backend was asked for by name
local ProcessGroup = class.new "ProcessGroup"
ProcessGroup._is_process_group = true

--- Processes that make collectives together: init_process_group makes the world, new_group its parts.
--
--   dist.group.WORLD:size()  --> 1
function ProcessGroup:init(native, ranks, name, desc)
  if type(native) ~= "userdata" or C.is_tensor(native) then
    fail("ProcessGroup: init_process_group and new_group make one")
  end
  self.native, self.ranks, self.group_name, self.group_desc = native, ranks, name, desc or "undefined"
end

--- This process's rank in the group, from 0.
--
--   dist.group.WORLD:rank()  --> 0
---@return integer
function ProcessGroup:rank() return self.native:rank() end

--- Return the number of processes in the group.
--
--   dist.group.WORLD:size()  --> 1
---@return integer
function ProcessGroup:size() return self.native:size() end

--- The name of the group, another for each.
--
--   dist.group.WORLD:name()  --> world
---@return string
function ProcessGroup:name() return self.group_name end

--- Return the backend that moves the data: "shm" (shared memory), "self" (one process), "nccl" where it was requested.
--
--   dist.group.WORLD:backend()  --> self
---@return string
function ProcessGroup:backend() return self.native:backend(self.asked_for) end

function ProcessGroup:extra_repr()
  return ("%s, ranks %s"):format(self.group_name, table.concat(self.ranks, " "))
end

-- The placeholder for a group that this process is not in.
local outside = setmetatable({}, {
  _is_process_group = true, _name = "ProcessGroup", __tostring = function() return "NON_GROUP_MEMBER" end,
})
groups.outside = outside

-- The world, once there is one, and the timeout and the device backend before it. One that an accelerator made is
-- replaced by that of init_process_group.
local world, timeout_before, choice_before
local made_by_accelerator = false

local function all_ranks()
  local ranks = {}
  for r = 0, comm.size() - 1 do ranks[r + 1] = r end
  return ranks
end

-- The group of all processes, for calls that need no init_process_group.
local job

--- All processes of the job as a group, whether or not there is a world.
---@return ProcessGroup
function groups.of_job()
  job = job or ProcessGroup(comm.world(), all_ranks(), "job", "all processes of the job")
  return job
end

--- The group that `group` names: the world for nil; nil when this process is not in it.
---@param group? table
---@return ProcessGroup?
function groups.resolve(what, group)
  if not world and (not group or group ~= job) then
    fail("%s: there is no process group yet; call init_process_group first, or create an accelerator", what)
  end
  if group == nil then return world end
  if group == outside then return nil end
  if not group.native then fail("%s: the group was destroyed", what) end
  return group
end

--- The rank in a group of the process that is `rank` in the job.
---@param name string of the argument
---@return integer
function groups.local_rank(what, group, rank, name)
  for i, member in ipairs(group.ranks) do
    if member == rank then return i - 1 end
  end
  fail("%s: %s: expected a rank of the group (%s), got %d", what, name, table.concat(group.ranks, ", "), rank)
end

-- Beginning and end.

-- The rule of each backend for tensors of GPUs: the host moves them, or only NCCL may.
local choice_of = {gloo = "none", shm = "none", ["cpu:gloo"] = "any", ["cpu:shm"] = "any"}
for _, name in ipairs {"nccl", "cuda:nccl", "cpu:gloo,cuda:nccl", "cpu:shm,cuda:nccl"} do choice_of[name] = "only" end

--- Raise for a backend that is not here.
---@param backend? string
function groups.check_backend(what, backend)
  local usable, reason = backend == nil or choice_of[backend], nil
  if usable == "only" then
    usable, reason = comm.device_backend "cuda"
    reason = reason and "it moves tensors of NVIDIA GPUs: " .. reason
  end
  if usable then return end
  fail("%s: backend '%s' is not here: %s", what, backend, reason
    or backend:match "mpi" and "it moves bytes between hosts with ACCELHOST_WIRE=mpi, beneath 'gloo'"
    or "expected 'gloo' or 'shm', which are both the shared memory of this host, or 'nccl'")
end

--- Let a group use a backend; nil: the one that fits the device of its tensors.
---@param backend? string
---@return string? the devices whose backend it is
function groups.choose_backend(native, backend)
  if backend then native:device_comm(choice_of[backend]) end
  return backend == "nccl" and "cuda" or nil
end

--- Raise for an invalid device. A valid one has no effect: a group uses the device of its tensors.
---@param device_id? string
function groups.check_device_id(what, device_id)
  if device_id ~= nil then arguments.check(what, "device_id", "device", device_id) end
end

local function check_method(store, pg_options, device_id)
  local what = "distributed.init_process_group"
  if store ~= nil then fail("%s: store: the launcher connects the processes; leave it out", what) end
  if pg_options ~= nil then fail("%s: pg_options: shared memory has none; leave it out", what) end
  groups.check_device_id(what, device_id)
end

-- Return the rendezvous address of processes that no launcher started.
local function place_of(init_method)
  if not init_method or init_method == "env://" then return nil end
  return init_method:match "^tcp://localhost:(%d+)$" or init_method:match "^tcp://127%.[%d%.]+:(%d+)$"
    or init_method:match "^unix://(.+)$"
    or fail("distributed.init_process_group: init_method '%s' is not here: expected 'env://', 'tcp://localhost:PORT' "
      .. "or 'unix://NAME', which are places of this host", init_method)
end

-- Configure, from the script, a process that the environment does not configure.
local function take_place(init_method, size, rank)
  local place = place_of(init_method)
  if os.getenv "WORLD_SIZE" or comm.size() > 1 or (size or 1) <= 1 then return end
  if not rank then fail("distributed.init_process_group: 'rank' is missing: world_size is set") end
  if rank < 0 or rank >= size then
    fail("distributed.init_process_group: rank: expected 0 to %d, got %d", size - 1, rank)
  end
  comm.take_place(rank, size, place)
end

local function check_place(name, variable, given, found)
  if given and given ~= -1 and given ~= found then
    fail("distributed.init_process_group: %s is %d, but this job was started with %s = %d (accelhost launch "
      .. "--num_processes sets it)", name, given, variable, found)
  end
end

--- Begin: all processes of the job become the world; after an accelerator was created they are it already, and only
--- timeout and backend change. Rank and size are those of the launch, by `accelhost launch`, torchrun or by hand with
--- RANK and WORLD_SIZE; given ones must agree with that. Processes that torchrun or a shell has started find each other
--- on their host by MASTER_PORT, or by init_method. Returns when all processes are here.
--
--   dist.init_process_group{backend = "gloo", timeout = 60}
---@param backend? string "gloo" or "shm": both are this host's shared memory, and tensors of GPUs are copied through
--- it; "nccl" or "cpu:gloo,cuda:nccl": GPUs exchange tensors by NCCL, and it is an error where they cannot; default:
--- NCCL where possible
---@param init_method? string "env://", or where to meet: "tcp://localhost:PORT", "unix://NAME"
---@param timeout? number seconds that a collective waits at most; default: the launcher's --timeout, 600
---@param store? in PyTorch's place of it; only nil
---@param pg_options? nil none
---@param device_id? string a valid device; without effect, a group uses the device of its tensors
groups.init_process_group = arguments.named("distributed.init_process_group", {
  {"backend: string"}, {"init_method: string"}, {"timeout: positive"}, {"world_size: integer"}, {"rank: integer"},
  {"store"}, {"group_name: string", ""}, {"pg_options"}, {"device_id"},
}, function(what, backend, init_method, timeout, size, rank, store, name, pg_options, device_id)
  if world and not made_by_accelerator then
    fail("distributed.init_process_group: there is a world already; destroy_process_group ends it")
  end
  groups.check_backend(what, backend)
  check_method(store, pg_options, device_id)
  take_place(init_method, size, rank)
  check_place("world_size", "WORLD_SIZE", size, comm.size())
  check_place("rank", "RANK", rank, comm.rank())
  local native = comm.world()
  timeout_before = native:timeout()
  if timeout then native:timeout(timeout) end
  choice_before = native:device_comm "any"
  local asked_for = groups.choose_backend(native, backend)
  native:barrier()
  world, made_by_accelerator = ProcessGroup(native, all_ranks(), name ~= "" and name or "world", "default_pg"), false
  world.asked_for = asked_for
end)

--- Make all processes of the job the world where there is none, as Accelerate's state does; here one process, too.
function groups.begin()
  if world then return end
  world, made_by_accelerator = ProcessGroup(comm.world(), all_ranks(), "world", "default_pg"), true
end

local read_destroy = arguments.signature("distributed.destroy_process_group", {{"group: group"}})

--- End a group; without one the world, and all its parts with it.
--
--   dist.destroy_process_group()
function groups.destroy_process_group(...)
  local group = groups.resolve("distributed.destroy_process_group", (read_destroy(...)))
  if not group then return end
  if group == world then
    if not made_by_accelerator then
      world.native:timeout(timeout_before)
      world.native:device_comm(choice_before)
    end
    world = nil
  else
    group.native:close()
    group.native = false
  end
end

--- Has init_process_group been called, or an accelerator been created?
--
--   dist.is_initialized()  --> true
function groups.is_initialized() return world ~= nil end

--- Are there collectives? Always.
--
--   dist.is_available()  --> true
function groups.is_available() return true end

--- Report whether a backend is available: "gloo" and "shm", the shared memory of this host, and "nccl" where there are
--- GPUs and its library.
--
--   dist.is_backend_available("nccl")  --> false
---@param backend string
---@return boolean
function groups.is_backend_available(backend)
  arguments.check("distributed.is_backend_available", "backend", "string", backend)
  return backend == "gloo" or backend == "shm" or backend == "self"
    or backend == "nccl" and groups.is_nccl_available()
end

--- Did torchrun start this process?
--
--   dist.is_torchelastic_launched()  --> false
function groups.is_torchelastic_launched() return os.getenv "TORCHELASTIC_RUN_ID" ~= nil end

--- Is there a backend that replaces gloo? Always.
--
--   dist.is_gloo_available()  --> true
function groups.is_gloo_available() return true end

--- Are there GPUs of NVIDIA here, and the library that moves tensors between them?
--
--   dist.is_nccl_available()  --> false
function groups.is_nccl_available() return comm.device_backend "cuda" ~= nil end

--- Never, as yet.
--
--   dist.is_mpi_available()  --> false
---@return boolean
function groups.is_mpi_available() return false end

-- Properties of a group.

local function reader_of_group(name)
  return arguments.signature("distributed." .. name, {{"group: group"}})
end

local read_rank = reader_of_group "get_rank"

--- This process's rank in a group, from 0; -1 when it is not in it.
--
--   dist.get_rank()  --> 0
---@return integer
function groups.get_rank(...)
  local group = groups.resolve("distributed.get_rank", (read_rank(...)))
  return group and group:rank() or -1
end

local read_size = reader_of_group "get_world_size"

--- Return the number of processes in a group; -1 when this one is not in it.
--
--   dist.get_world_size()  --> 1
---@return integer
function groups.get_world_size(...)
  local group = groups.resolve("distributed.get_world_size", (read_size(...)))
  return group and group:size() or -1
end

local read_backend = reader_of_group "get_backend"

--- Return the backend of a group: "shm" (shared memory), "self" (one process), "nccl" where init_process_group
--- was called with it.
--
--   dist.get_backend()  --> self
---@return string
function groups.get_backend(...)
  local group = groups.resolve("distributed.get_backend", (read_backend(...)))
  if not group then fail("distributed.get_backend: this process is not in the group") end
  return group:backend()
end

local read_ranks = reader_of_group "get_process_group_ranks"

local read_config = reader_of_group "get_backend_config"

--- Return the backend of a group for each device: "cpu:shm,cuda:nccl" where there are GPUs.
--
--   dist.get_backend_config()  --> cpu:self
---@return string
function groups.get_backend_config(...)
  local group = groups.resolve("distributed.get_backend_config", (read_config(...)))
  if not group then fail("distributed.get_backend_config: this process is not in the group") end
  local gpus = C.device.device_count "cuda" > 0 and ",cuda:" .. group.native:backend "cuda" or ""
  return "cpu:" .. group.native:backend() .. gpus
end

--- Return the backend for a device: "shm", on GPUs "nccl" where it is available.
--
--   dist.get_default_backend_for_device("cpu")  --> shm
---@return string
function groups.get_default_backend_for_device(device)
  arguments.check("distributed.get_default_backend_for_device", "device", "device", device)
  return device:match "^cuda" and comm.device_backend "cuda" or "shm"
end

--- Set the timeout of a group's collectives from now on.
--
--   dist.set_timeout(60)
---@param timeout number seconds
groups.set_timeout = arguments.named("distributed.set_timeout", {
  "timeout: positive", {"group: group"},
}, function(what, timeout, group)
  group = groups.resolve(what, group)
  if group then group.native:timeout(timeout) end
end)

--- The ranks in the job of a group's members, in their order in the group.
--
--   dist.get_process_group_ranks()  --> {0}
---@return integer[]
function groups.get_process_group_ranks(...)
  local group = groups.resolve("distributed.get_process_group_ranks", (read_ranks(...)))
  if not group then fail("distributed.get_process_group_ranks: this process is not in the group") end
  return arguments.copy(group.ranks)
end

local function read_place(name, ...)
  local what = "distributed." .. name
  local group, rank = ...
  group = groups.resolve(what, arguments.check(what, "group", "group", group))
  if not group then fail("%s: this process is not in the group", what) end
  return what, group, rank
end

--- The rank in the job of a group's member.
--
--   dist.get_global_rank(dist.group.WORLD, 0)  --> 0
---@param group_rank integer
---@return integer
function groups.get_global_rank(group, group_rank)
  local what = read_place("get_global_rank", group)
  arguments.check(what, "group_rank", "size", group_rank)
  return group.ranks[group_rank + 1] or fail("%s: group_rank: expected 0 to %d, got %d", what, #group.ranks - 1,
    group_rank)
end

--- The rank in a group of the process that has `global_rank` in the job.
--
--   dist.get_group_rank(dist.group.WORLD, 0)  --> 0
---@param global_rank integer
---@return integer
function groups.get_group_rank(group, global_rank)
  local what = read_place("get_group_rank", group)
  arguments.check(what, "global_rank", "size", global_rank)
  return groups.local_rank(what, group, global_rank, "global_rank")
end

--- This process's rank among those of its host.
--
--   dist.get_node_local_rank()  --> 0
---@param fallback_rank? integer where it is not set
---@return integer
function groups.get_node_local_rank(fallback_rank) -- luacheck: ignore fallback_rank
  return comm.local_rank()
end

--- The world and the placeholder for groups that this process is not in.
groups.group = setmetatable({}, {
  __index = function(_, name)
    if name == "WORLD" then return world end
    if name == "NON_GROUP_MEMBER" then return outside end
    fail("distributed.group has no '%s' (known: WORLD, NON_GROUP_MEMBER)", tostring(name))
  end,
})

groups.ProcessGroup = ProcessGroup

return groups
