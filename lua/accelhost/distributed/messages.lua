--- Messages from one process to another.
--
-- Messages of one tag between two processes are received in the order in which they were sent; other tags may overtake.
-- Between GPUs they are sent by NCCL where each process has its own GPU. Data that such a work or call has waited for
-- is valid for the GPU's next kernels; the sender participates, so wait for the work of isend.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local collectives = require "accelhost.distributed.collectives"
local groups = require "accelhost.distributed.groups"
local work = require "accelhost.distributed.work"
local fail = arguments.fail

local messages = {}

local function reader(name, peer)
  return arguments.signature("distributed." .. name, {
    "tensor: tensor", {peer .. ": size"}, {"group: group"}, {"tag: integer", 0}, {"group_" .. peer .. ": size"},
  })
end

-- The other's rank in the group; nil: any.
local function peer_of(what, group, rank, group_rank, name)
  if name == "src" and not rank and not group_rank then return nil end
  local peer = collectives.root_of(what, group, rank, group_rank, name)
  if peer == group:rank() then fail("%s: %s: expected another process than this one, %d", what, name, C.comm.rank()) end
  return peer
end

local read_send = reader("send", "dst")

--- Send a tensor to a process; returns when it has been received.
--
--   if dist.get_world_size() > 1 and dist.get_rank() == 0 then dist.send(x, 1) end
---@param dst? integer the receiver's rank in the job
function messages.send(...)
  local what = "distributed.send"
  local tensor, dst, group, tag, group_dst = read_send(...)
  group = groups.resolve(what, group)
  if not group then return end
  group.native:send(tensor, peer_of(what, group, dst, group_dst, "dst"), tag)
end

local read_recv = reader("recv", "src")

--- Receive a tensor from a process, or from the one that sent first.
--
--   if dist.get_rank() == 1 then dist.recv(x, 0) end
---@param tensor userdata of the dtype and number of elements of the sent one; written
---@param src? integer the sender's rank in the job; default: any
---@return integer # the sender's rank in the job; -1 when this process is not in the group
function messages.recv(...)
  local what = "distributed.recv"
  local tensor, src, group, tag, group_src = read_recv(...)
  group = groups.resolve(what, group)
  if not group then return -1 end
  return group.ranks[group.native:recv(tensor, peer_of(what, group, src, group_src, "src"), tag) + 1]
end

local read_isend = reader("isend", "dst")

--- Begin to send a tensor; it may be changed at once. The work is done when the tensor has been received.
--
--   if dist.get_world_size() > 1 and dist.get_rank() == 0 then dist.isend(x, 1):wait() end
---@param dst? integer the receiver's rank in the job
---@return Work? # nil when this process is not in the group
function messages.isend(...)
  local what = "distributed.isend"
  local tensor, dst, group, tag, group_dst = read_isend(...)
  group = groups.resolve(what, group)
  if not group then return end
  return work.Work(group.native:send(tensor, peer_of(what, group, dst, group_dst, "dst"), tag, true), nil, tensor)
end

local read_irecv = reader("irecv", "src")

--- Begin to receive a tensor, which is complete when the work is.
--
--   if dist.get_rank() == 1 then dist.irecv(x, 0):wait() end
---@param tensor userdata of the dtype and number of elements of the sent one; written
---@param src? integer the sender's rank in the job; default: any
---@return Work? # nil when this process is not in the group
function messages.irecv(...)
  local what = "distributed.irecv"
  local tensor, src, group, tag, group_src = read_irecv(...)
  group = groups.resolve(what, group)
  if not group then return end
  local made = work.Work(group.native:recv(tensor, peer_of(what, group, src, group_src, "src"), tag, true), nil, tensor)
  made._ranks = group.ranks
  return made
end

---@field op function
---@field tensor userdata
---@field peer? integer
---@field group? ProcessGroup
---@field tag integer
---@field group_peer? integer
local P2POp = class.new "P2POp"
messages.P2POp = P2POp

local read_op = arguments.signature("distributed.P2POp", {
  "op: function", "tensor: tensor", {"peer: size"}, {"group: group"}, {"tag: integer", 0}, {"group_peer: size"},
})

--- One message of a batch.
--
--   dist.P2POp(dist.isend, accelhost.ones(3), 1)
---@param op function dist.isend or dist.irecv
---@param peer? integer the other's rank in the job
---@param group_peer? integer its rank in the group, instead of `peer`
function P2POp:init(...)
  self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = read_op(...)
  if self.op ~= messages.isend and self.op ~= messages.irecv then
    fail("distributed.P2POp: op: expected isend or irecv, got another function")
  end
end

local read_batch = arguments.signature("distributed.batch_isend_irecv", {"p2p_op_list: list"})

--- Begin several messages: with a neighbour on either side, for example.
--
--   local rank, size = dist.get_rank(), dist.get_world_size()
--   local received = x:clone()
--   if size > 1 then
--     for _, work in ipairs(dist.batch_isend_irecv {
--       dist.P2POp(dist.isend, x, (rank + 1) % size), dist.P2POp(dist.irecv, received, (rank - 1) % size),
--     }) do work:wait() end
--   end
---@param p2p_op_list P2POp[]
---@return Work[] works in the same order
function messages.batch_isend_irecv(...)
  local works = {}
  for i, op in ipairs((read_batch(...))) do
    if not class.is(op, P2POp) then
      fail("distributed.batch_isend_irecv: item %d: expected a P2POp, got %s", i, arguments.describe(op))
    end
    works[i] = op.op(op.tensor, op.peer, op.group, op.tag, op.group_peer)
  end
  return works
end

return messages
