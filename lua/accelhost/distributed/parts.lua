--- Parts of the processes as separate groups. Each is made by all processes of a group together.
---@param timeout? number as of new_group
---@param pg_options? nil
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local groups = require "accelhost.distributed.groups"
local comm = C.comm
local fail = arguments.fail

local parts = {}

-- Number of groups made so far.
local made = 0

local function check_ranks(what, ranks, whole)
  local seen = {}
  for _, rank in ipairs(ranks) do
    if type(rank) ~= "number" or rank % 1 ~= 0 or rank < 0 or rank >= whole then
      fail("%s: ranks: expected ranks in 0..%d, got %s", what, whole - 1, arguments.describe(rank))
    end
    if seen[rank] then fail("%s: ranks: rank %d is there twice", what, rank) end
    seen[rank] = true
  end
  if #ranks == 0 then fail("%s: ranks: expected at least one rank, got none", what) end
  return seen
end

local function check_options(what, backend, pg_options, device_id)
  groups.check_backend(what, backend)
  if pg_options ~= nil then fail("%s: pg_options: shared memory has none; leave it out", what) end
  groups.check_device_id(what, device_id)
end

-- One of the parts that a split of `parent` makes; nil native: this process is in none.
local function part_of(what, native, ranks, timeout, desc, backend)
  made = made + 1
  if not native then return groups.outside end
  if native:size() ~= #ranks then
    fail("%s: the processes named different ranks: this one %d of them, but %d joined", what, #ranks,
      native:size())
  end
  if timeout then native:timeout(timeout) end
  local group = groups.ProcessGroup(native, ranks, "group " .. made, desc)
  group.asked_for = groups.choose_backend(native, backend)
  return group
end

local read_new = arguments.signature("distributed.new_group", {
  {"ranks: list"}, {"timeout: positive"}, {"backend: string"}, {"pg_options"},
  {"use_local_synchronization: flag", false}, {"group_desc: string"}, {"device_id"}, {"sort_ranks: flag", true},
})

--- Make a separate group of some processes. All processes of the world call it, in the same order, whether they are in
--- the group or not. A process can be in 7 groups besides the world at once.
--
--   dist.new_group({0}):size()  --> 1
---@param ranks? integer[] ranks in the job; default: all
---@param timeout? number seconds that its collectives wait at most; default: the world's
---@param backend? string as of init_process_group
---@param pg_options? nil none
---@param use_local_synchronization? boolean default false; true is refused
---@param group_desc? string its purpose
---@param device_id? string a device
---@param sort_ranks? boolean default true: ranks in the group follow those in the job; false: the order of `ranks`
---@return ProcessGroup group a placeholder, whose collectives do nothing, on processes that are not in it
function parts.new_group(...)
  local what = "distributed.new_group"
  local ranks, timeout, backend, pg_options, locally, desc, device_id, sorted = read_new(...)
  local parent = groups.resolve(what)
  check_options(what, backend, pg_options, device_id)
  if locally then
    fail("%s: use_local_synchronization: all processes make a group together here; leave it out", what)
  end
  ranks = arguments.copy(ranks or parent.ranks)
  local member = check_ranks(what, ranks, comm.size())
  if sorted then table.sort(ranks) end
  local key = 0
  for i, rank in ipairs(ranks) do
    if rank == comm.rank() then key = i end
  end
  return part_of(what, parent.native:split(member[comm.rank()] and 0 or -1, key), ranks, timeout, desc, backend)
end

local read_subgroups = arguments.signature("distributed.new_subgroups", {
  {"group_size: count"}, {"group: group"}, {"timeout: positive"}, {"backend: string"}, {"pg_options"},
  {"group_desc: string"},
})

--- Cut a group into groups of equal size, of ranks that follow each other. All processes of the group call it.
--
--   dist.new_subgroups(1):size()  --> 1
---@param group_size? integer default: the processes of this host
---@return ProcessGroup own the one that this process is in
---@return ProcessGroup[] all those of other processes as placeholders
function parts.new_subgroups(...)
  local what = "distributed.new_subgroups"
  local size, group, timeout, backend, pg_options, desc = read_subgroups(...)
  local parent = groups.resolve(what, group)
  check_options(what, backend, pg_options)
  if not parent then fail("%s: this process is not in the group", what) end
  local whole = parent:size()
  size = size or comm.local_size()
  if size > whole then
    fail("%s: group_size: expected at most the %d processes of the group, got %d", what, whole, size)
  end
  if whole % size ~= 0 then fail("%s: the %d processes of the group do not divide by %d", what, whole, size) end
  local all, mine = {}, math.floor(parent:rank() / size)
  local native = parent.native:split(mine, parent:rank())
  for i = 0, whole / size - 1 do
    local ranks = {unpack(parent.ranks, i * size + 1, (i + 1) * size)}
    all[i + 1] = part_of(what, i == mine and native or nil, ranks, timeout, desc, backend)
  end
  return all[mine + 1], all
end

local read_enumeration = arguments.signature("distributed.new_subgroups_by_enumeration", {
  "ranks_per_subgroup_list: list", {"timeout: positive"}, {"backend: string"}, {"pg_options"},
  {"group_desc: string"},
})

--- Cut the world into groups of the ranks that are listed; each rank is in one of them at most. All processes call it.
--
--   dist.new_subgroups_by_enumeration({{0}}):size()  --> 1
---@param ranks_per_subgroup_list integer[][]
---@return ProcessGroup? own the one that this process is in
---@return ProcessGroup[] all those of other processes as placeholders
function parts.new_subgroups_by_enumeration(...)
  local what = "distributed.new_subgroups_by_enumeration"
  local lists, timeout, backend, pg_options, desc = read_enumeration(...)
  local parent, everyone, mine = groups.resolve(what), {}, nil
  check_options(what, backend, pg_options)
  for i, ranks in ipairs(lists) do
    if type(ranks) ~= "table" then fail("%s: list %d: expected a table of ranks", what, i) end
    for _, rank in ipairs(ranks) do
      everyone[#everyone + 1] = rank
      if rank == comm.rank() then mine = i end
    end
  end
  check_ranks(what, everyone, comm.size())
  local native = parent.native:split(mine or -1)
  local all = {}
  for i, ranks in ipairs(lists) do
    local sorted = arguments.copy(ranks)
    table.sort(sorted)
    all[i] = part_of(what, i == mine and native or nil, sorted, timeout, desc, backend)
  end
  return all[mine], all
end

local read_split = arguments.signature("distributed.split_group", {
  {"parent_pg: group"}, {"split_ranks: list"}, {"timeout: positive"}, {"pg_options"}, {"group_desc: string"},
  {"backend: string"},
})

--- Cut a group into groups of the listed ranks. All processes of the group call it.
--
--   dist.split_group({split_ranks = {{0}}}):size()  --> 1
---@param parent_pg? ProcessGroup default: the world
---@param split_ranks integer[][] ranks in that group, each in one of the lists at most
---@return ProcessGroup group the one that this process is in, or a placeholder
function parts.split_group(...)
  local what = "distributed.split_group"
  local parent, lists, timeout, pg_options, desc, backend = read_split(...)
  parent = groups.resolve(what, parent)
  check_options(what, backend, pg_options)
  if not parent then fail("%s: this process is not in parent_pg", what) end
  if not lists then fail("%s: 'split_ranks' is missing", what) end
  local everyone, mine, key = {}, nil, 0
  for i, ranks in ipairs(lists) do
    if type(ranks) ~= "table" then fail("%s: split_ranks: list %d: expected a table of ranks", what, i) end
    for k, rank in ipairs(ranks) do
      everyone[#everyone + 1] = rank
      if rank == parent:rank() then mine, key = i, k end
    end
  end
  check_ranks(what, everyone, parent:size())
  local native, ranks = parent.native:split(mine or -1, key), {}
  for k, rank in ipairs(mine and lists[mine] or {}) do ranks[k] = parent.ranks[rank + 1] end
  return part_of(what, native, ranks, timeout, desc, backend)
end

return parts
