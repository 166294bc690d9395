--- An optimizer's state by pieces, and whole.
--
-- While a model is sharded, state[piece] in the optimizer replaces state[parameter]. State per element is one tensor as
-- long as the piece; the rest (counters) is the same on all processes.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local protect = require "accelhost.util.protect"

local states = {}

-- States of the whole tensor, also of one that has no dims, as these have none.
local counters = {step = true, mu_product = true, eta = true, mu = true}

--- Call fn(parameter, shard) for the parameters of an optimizer that are sharded.
---@param fn fun(parameter: userdata, shard: Shard)
function states.each(optimizer, shard_of, fn)
  for _, group in ipairs(optimizer.param_groups) do
    for _, parameter in ipairs(group.params) do
      local shard = shard_of(parameter)
      if shard then fn(parameter, shard) end
    end
  end
end

--- Cut the state that whole parameters have to this process's pieces.
function states.cut(optimizer, shard_of)
  local state = optimizer.state
  states.each(optimizer, shard_of, function(parameter, shard)
    local whole = state[parameter]
    if whole == nil then return end
    local cut, piece = {}, shard:piece(parameter).value
    for name, value in pairs(whole) do
      local by_element = C.is_tensor(value) and C.same_shape(value, parameter) and not counters[name]
      cut[name] = by_element and shard:cut(parameter, value) or value
      if by_element and optimizer._offloads then cut[name] = optimizer:_placed(cut[name], piece) end
    end
    state[parameter], state[piece] = nil, cut
  end)
end

-- Join the pieces of all processes; on the CPU those that are offloaded, also where one process could not.
local function join(optimizer, parameter, shard, own, keeps)
  local whole = {}
  for _, name in ipairs(arguments.sorted_keys(own)) do
    local value = own[name]
    if C.is_tensor(value) and C.same_shape(value, shard:piece(parameter).value) then
      local joined = shard:join(parameter, optimizer._offloads and value:cpu() or value)
      if keeps then
        whole[name] = joined
      else
        joined:free()
      end
    else
      whole[name] = value
    end
  end
  return whole
end

--- The optimizer's state_dict as without sharding: on all processes, or on one of them, the others get nil. A
--- collective.
---@param only? integer rank
---@return table?
function states.whole(optimizer, shard_of, only)
  states.cut(optimizer, shard_of)
  local state, whole = optimizer.state, {}
  for key, value in pairs(state) do whole[key] = value end
  local keeps = only == nil or C.comm.rank() == only
  states.each(optimizer, shard_of, function(parameter, shard)
    local piece = shard:piece(parameter).value
    local own = state[piece]
    whole[piece] = nil
    if own ~= nil then whole[parameter] = join(optimizer, parameter, shard, own, keeps) end
  end)
  if not keeps then return nil end
  optimizer.state = whole
  return protect(function() optimizer.state = state end, optimizer.state_dict, optimizer)
end

--- This process's part of the state, as plain data for a separate file.
---@param over_pieces function as of stepping
---@return {state: table, cut: boolean[]} cut: is each parameter's state a piece? in the order of the groups
function states.own(optimizer, shard_of, over_pieces)
  states.cut(optimizer, shard_of)
  local cut = {}
  for _, group in ipairs(optimizer.param_groups) do
    for _, parameter in ipairs(group.params) do cut[#cut + 1] = shard_of(parameter) ~= nil end
  end
  local dict = over_pieces(optimizer, shard_of, function() return true end, optimizer.state_dict, optimizer)
  return {state = dict, cut = cut}
end

-- The whole of a parameter's state, of the pieces in the order of the ranks.
local function join_pieces(pieces, parameter)
  local whole = {}
  for name, first in pairs(pieces[1]) do
    if C.is_tensor(first) and first:dim() == 1 and not counters[name] then
      local list = {}
      for i, piece in ipairs(pieces) do list[i] = piece[name] end
      whole[name] = C.cat(list, 0):reshape(parameter:shape())
    else
      whole[name] = first
    end
  end
  return whole
end

--- The whole state_dict of the results of `own` on all ranks of a job, which may have been another.
---@param parts table[] by rank
function states.together(optimizer, parts)
  local whole, parameters = parts[1].state, {}
  for _, group in ipairs(optimizer.param_groups) do
    for _, parameter in ipairs(group.params) do parameters[#parameters + 1] = parameter end
  end
  if #parameters ~= #parts[1].cut then return whole end -- load_state_dict reports the difference
  local function state_of(part, id) return part.state.state[id] or part.state.state[tostring(id)] end
  local joined = {}
  for i, parameter in ipairs(parameters) do
    local id, pieces = i - 1, {}
    for rank, part in ipairs(parts) do pieces[rank] = state_of(part, id) end
    if pieces[1] ~= nil then joined[id] = parts[1].cut[i] and join_pieces(pieces, parameter) or pieces[1] end
  end
  return {state = joined, param_groups = whole.param_groups}
end

return states
