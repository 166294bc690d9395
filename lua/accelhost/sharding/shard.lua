--- This process's shard of a prepared model (host/sync/shard.h): a piece of each parameter, one dim long, on the
--- parameter's own memory.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

---@field kind string "optimizer", "gradients" or "full"
---@field slices boolean are gradients sharded too, over several processes?
local Shard = class.new "Shard"

---@param native userdata the processes
function Shard:init(reducer, kind, native)
  self.reducer, self.kind, self.native = reducer, kind, native
  self.slices = kind ~= "optimizer" and native:size() > 1
  self.place = setmetatable({}, {__mode = "k"}) -- parameter -> its number
  self.pieces = {}                              -- number -> {value =, grad =}
  for i, parameter in ipairs(reducer:parameters()) do self.place[parameter] = i end
end

--- The piece of a parameter. The same tensor each time: an optimizer's state is kept by it.
---@return {value: userdata, grad: userdata}
function Shard:piece(parameter)
  local i = self.place[parameter]
  local piece = self.pieces[i]
  if not piece then
    piece = {}
    piece.value, piece.grad = self.reducer:piece(i)
    self.pieces[i] = piece
  end
  return piece
end

--- Copy the gradients, which the script may have changed, to their pieces. Raise where one is no mean over the
--- processes: its pieces would be used as the whole of it.
function Shard:check_means(what)
  local i = self.reducer:find_sum()
  if not i then return self.reducer:settle() end
  arguments.fail("%s: the gradient of parameter %d is this process's own sum (its last backward was within no_sync), "
    .. "and with sharding = '%s' a process has no more than its shard of the mean: let a backward average it first",
    what, i, self.kind)
end

--- This process's elements of a tensor that is shaped as the parameter is; a copy.
---@param whole userdata
---@return userdata # [n]
function Shard:cut(parameter, whole)
  local first, count = self.reducer:shard(self.place[parameter], self.native:rank())
  return C.autograd.no_grad(function() return whole:detach():reshape(-1):narrow(0, first, count):clone() end)
end

--- Gather the whole parameter from the pieces of all processes. A collective.
---@param piece userdata
---@return userdata # shaped as the parameter
function Shard:join(parameter, piece)
  local all = self.native:size() > 1 and self.native:all_gather_ragged(piece) or piece:clone()
  return all:reshape(parameter:shape())
end

--- Return the cuts of the parameters, to compare with others.
function Shard:cuts()
  local cuts = {}
  for i = 1, #self.reducer:parameters() do
    for rank = 0, self.native:size() - 1 do cuts[#cuts + 1] = (self.reducer:shard(i, rank)) end
  end
  return cuts
end

return Shard
