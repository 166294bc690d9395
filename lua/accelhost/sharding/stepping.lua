--- A step of an optimizer whose parameters are sharded: over this process's pieces, then all get those of the others.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local protect = require "accelhost.util.protect"
local states = require "accelhost.sharding.states"
local host_updates = require "accelhost.util.host_updates"

local fail = arguments.fail
local stepping = {}

--- The shards that an optimizer's parameters are in, in their order.
---@return Shard[]
function stepping.shards(optimizer, shard_of)
  local list, known = {}, {}
  states.each(optimizer, shard_of, function(_, shard)
    if not known[shard] then
      known[shard] = true
      list[#list + 1] = shard
    end
  end)
  return list
end

--- Run fn while the optimizer's parameters, and their gradients, are this process's pieces of those for which `wants`
--- is true.
---@param wants fun(shard: Shard): boolean
---@param fn fun(...): ...
---@param ... any its arguments
---@return any # the results of fn
function stepping.over_pieces(optimizer, shard_of, wants, fn, ...)
  local whole, pieces = {}, {}
  for g, group in ipairs(optimizer.param_groups) do
    local list = {}
    for i, parameter in ipairs(group.params) do
      local shard = shard_of(parameter)
      if shard and wants(shard) then
        local piece = shard:piece(parameter)
        piece.value.grad = parameter.grad ~= nil and piece.grad or nil
        list[i], pieces[#pieces + 1] = piece.value, piece.value
      else
        list[i] = parameter
      end
    end
    whole[g] = group.params
    group.params = list
  end
  return protect(function()
    for g, params in ipairs(whole) do optimizer.param_groups[g].params = params end
    for _, piece in ipairs(pieces) do piece.grad = nil end
  end, fn, ...)
end

--- Raise unless the optimizer steps each element by its own numbers, so that it can step a piece.
function stepping.check(optimizer)
  if optimizer._kind or optimizer.elementwise == true then return end
  fail("%s:step: it needs whole tensors, and with sharding a process has the state of a part of each: use an "
    .. "optimizer that works element by element (SGD, Adam, AdamW, Lion, ...), or set `elementwise = true` in a class "
    .. "of your own that does", optimizer._name)
end

--- Step. A collective.
---@param shards Shard[] those of the optimizer
---@param closure? function
---@param step fun(closure: function?): any steps the optimizer
---@return any # the results of the closure or the step
function stepping.step(optimizer, shard_of, shards, closure, step)
  stepping.check(optimizer)
  if host_updates.is_recording() then
    fail("%s:step: a sharded step waits for the other processes, so it cannot be captured", optimizer._name)
  end
  local loss
  if closure ~= nil then
    arguments.check(optimizer._name .. ":step", "closure", "callable", closure)
    loss = C.autograd.enable_grad(closure)
  end
  for _, shard in ipairs(shards) do shard:check_means(optimizer._name .. ":step") end
  states.cut(optimizer, shard_of)
  for _, shard in ipairs(shards) do shard.reducer:hold() end
  local result = stepping.over_pieces(optimizer, shard_of, function() return true end, step)
  for _, shard in ipairs(shards) do shard.reducer:spread() end
  if closure ~= nil then return loss end
  return result
end

return stepping
