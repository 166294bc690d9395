--- Collectives on Lua values: tensors, numbers, texts, booleans, nil and tables of them. Code is not sent; a value that
--- cannot be serialized is refused before anything is sent, with its path in the table. A tensor on a GPU is sent
--- through the CPU and arrives on the receiver's current GPU (accelhost.cuda.set_device).
---@param device? string "cpu"
local arguments = require "accelhost.util.arguments"
local collectives = require "accelhost.distributed.collectives"
local groups = require "accelhost.distributed.groups"
local serialize = require "accelhost.util.serialize"
local values = require "accelhost.distributed.values"
local fail = arguments.fail

local objects = {}

local function signature(name, parameters)
  return arguments.signature("distributed." .. name, parameters)
end

local read_all_gather = signature("all_gather_object", {"object_list: table", "obj: any", {"group: group"}})

--- Copy every process's value to all of them.
--
--   local all = {}
--   dist.all_gather_object(all, {loss = 0.5})
--   all[1].loss  --> 0.5
---@param object_list table all[r + 1] becomes the value of rank r of the group
function objects.all_gather_object(...)
  local what = "distributed.all_gather_object"
  -- A table with names in the last place is the value when nothing else is it.
  local list, obj, group = ...
  if select("#", ...) > 2 then list, obj, group = read_all_gather(...) end
  arguments.check(what, "object_list", "table", list)
  group = groups.resolve(what, group)
  if not group then return end
  values.all_gather(group.native, serialize.pack(what, "obj", obj), list)
end

local read_gather = signature("gather_object", {
  "obj: any", {"object_gather_list: list"}, {"dst: size"}, {"group: group"}, {"group_dst: size"},
})

--- Copy every process's value to one of them.
--
--   local all = {}
--   dist.gather_object({loss = 0.5}, all, {dst = 0})
--   all[1].loss  --> 0.5
---@param object_gather_list? table on the receiver: all[r + 1] becomes the value of rank r of the group
---@param dst? integer the receiver's rank in the job; default: the group's first
function objects.gather_object(obj, ...)
  local what = "distributed.gather_object"
  local _, list, dst, group, group_dst = read_gather(0, ...)
  group = groups.resolve(what, group)
  if not group then return end
  local root = collectives.root_of(what, group, dst, group_dst or not dst and 0 or nil, "dst")
  if group:rank() == root and not list then
    fail("%s: 'object_gather_list' is missing on rank %d, which receives", what, group.ranks[root + 1])
  end
  values.gather(group.native, serialize.pack(what, "obj", obj), root, list)
end

-- A list whose items may be nil: {n = 3, nil, 1, nil} as table.pack returns it, or up to its last item.
local function count_of(list)
  local count = list.n or #list
  for key in pairs(list) do
    if type(key) == "number" and key > count then count = key end
  end
  return count
end

local function packed_list(what, list)
  local copy = {n = count_of(list)}
  for i = 1, copy.n do copy[i] = list[i] end
  return serialize.pack(what, "object_list", copy)
end

local function fill(list, bytes)
  local given = serialize.unpack(bytes)
  for i = 1, given.n do list[i] = given[i] end
end

local function check_device(what, device)
  if device ~= nil and device ~= "cpu" then
    fail("%s: device: expected nothing or 'cpu', got %s", what, arguments.describe(device))
  end
end

local read_broadcast = signature("broadcast_object_list", {
  "object_list: table", {"src: size"}, {"group: group"}, {"device"}, {"group_src: size"},
})

--- Broadcast the values of one process.
--
--   dist.broadcast_object_list({"a name", 3}, 0)
---@param object_list table filled on all processes but the giver
---@param src? integer the giver's rank in the job; default: the group's first
function objects.broadcast_object_list(...)
  local what = "distributed.broadcast_object_list"
  local list, src, group, device, group_src = read_broadcast(...)
  group = groups.resolve(what, group)
  check_device(what, device)
  if not group then return end
  local root = collectives.root_of(what, group, src, group_src or not src and 0 or nil, "src")
  local gives = group:rank() == root
  local bytes = values.broadcast(group.native, gives and packed_list(what, list) or nil, root)
  if not gives then fill(list, bytes) end
end

local read_scatter = signature("scatter_object_list", {
  "scatter_object_output_list: table", {"scatter_object_input_list: list"}, {"src: size"}, {"group: group"},
  {"group_src: size"},
})

local function pack_each(what, list, size)
  if #list ~= size then
    fail("%s: scatter_object_input_list: expected %d values, one for each process, got %d", what, size, #list)
  end
  local packed = {}
  for r = 1, size do packed[r] = serialize.pack(what, ("scatter_object_input_list[%d]"):format(r), list[r]) end
  return packed
end

--- Scatter the values of one process.
--
--   local out = {}
--   dist.scatter_object_list(out, {"for rank 0"}, {src = 0})
--   out[1]  --> for rank 0
---@param scatter_object_output_list table out[1] becomes this process's value
---@param scatter_object_input_list? any[] on the giver: one for each process
---@param src? integer the giver's rank in the job; default: the group's first
function objects.scatter_object_list(...)
  local what = "distributed.scatter_object_list"
  local out, input, src, group, group_src = read_scatter(...)
  group = groups.resolve(what, group)
  if not group then return end
  local root = collectives.root_of(what, group, src, group_src or not src and 0 or nil, "src")
  local packed
  if group:rank() == root then
    if not input then
      fail("%s: 'scatter_object_input_list' is missing on rank %d, which sends", what, group.ranks[root + 1])
    end
    packed = pack_each(what, input, group:size())
  end
  out[1] = values.scatter(group.native, packed, root)
end

local read_send = signature("send_object_list", {
  "object_list: table", {"dst: size"}, {"group: group"}, {"device"}, {"group_dst: size"},
})

--- Send values to a process, which receives them by recv_object_list.
--
--   if dist.get_world_size() > 1 and dist.get_rank() == 0 then dist.send_object_list({"a name", 3}, 1) end
---@param dst? integer the receiver's rank in the job
function objects.send_object_list(...)
  local what = "distributed.send_object_list"
  local list, dst, group, device, group_dst = read_send(...)
  group = groups.resolve(what, group)
  check_device(what, device)
  if not group then return end
  local peer = collectives.root_of(what, group, dst, group_dst, "dst")
  values.send(group.native, packed_list(what, list), peer)
end

local read_recv = signature("recv_object_list", {
  "object_list: table", {"src: size"}, {"group: group"}, {"device"}, {"group_src: size"},
})

--- Receive values from a process, or from whichever has sent some first.
--
--   local list = {}
--   if dist.get_rank() == 1 then dist.recv_object_list(list, 0) end
---@param object_list table filled
---@param src? integer the sender's rank in the job; default: any
---@return integer # the sender's rank in the job; -1 when this process is not in the group
function objects.recv_object_list(...)
  local what = "distributed.recv_object_list"
  local list, src, group, device, group_src = read_recv(...)
  group = groups.resolve(what, group)
  check_device(what, device)
  if not group then return -1 end
  local peer
  if src or group_src then peer = collectives.root_of(what, group, src, group_src, "src") end
  local bytes
  bytes, peer = values.receive(group.native, peer)
  fill(list, bytes)
  return group.ranks[peer + 1]
end

return objects
