--- A prepared model: its parameters and gradients live in flat arenas, and gradients are averaged over the processes
--- while backward runs.
--
-- It holds the parameters through the reducer in C only, and the model weakly, so that `abandoned` can
-- find out that the script has dropped the model.
local Buffers = require "accelhost.averaging.buffers"
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local floating = require("accelhost.nn.parameter").floating
local module = require "accelhost.nn.module"
local warn = require "accelhost.util.warn"

---@field accelerator Accelerator that prepared it
---@field reducer userdata
---@field window number sum of this process's weights since gradients were averaged
---@field suppressed integer depth of nested no_sync
---@field triggered boolean the next backward averages, no_sync or not
---@field sync boolean does the backward under way average?
---@field shard Shard|false this process's shard, when the model's state is sharded
---@field buffers Buffers
---@field sends_buffers boolean do they go along with an average?
---@field mean boolean do gradients hold the mean of the window so far, not its sum?
local Parallel = class.new "Parallel"

-- parameter -> the handle of the prepared model that averages its gradient
local averaged_in = setmetatable({}, {__mode = "k"})

--- The handle that averages the gradient of this parameter over the processes, nil when none does.
---@return Parallel?
function Parallel.of(parameter)
  return averaged_in[parameter]
end

--- Copy rank 0's parameters and buffers to every process. A collective.
---@param model table
---@param options {bucket_cap_mb?: number, broadcast_buffers?: boolean, group?: userdata, apart?: boolean,
--- sharding?: string, units?: integer[]} group: a part of the processes; apart: they keep their own values; sharding
--- and units: as in accelhost.sharding
function Parallel:init(model, accelerator, options)
  self.accelerator = accelerator
  self.group = options.group or false
  self.buffers, self.sends_buffers = Buffers(model), options.broadcast_buffers ~= false
  local buffers = self.buffers.tensors
  self.reducer = C.comm.new_reducer(floating(model:parameters()), self.sends_buffers and buffers or {}, {
    bucket_cap_mb = options.bucket_cap_mb, group = options.group, apart = options.apart,
    sharding = options.sharding, units = options.units,
  })
  local sharded = options.sharding ~= nil and options.sharding ~= "none"
  self.shard = sharded
    and require "accelhost.sharding.shard"(self.reducer, options.sharding, options.group or C.comm.world())
  if not self.sends_buffers and not options.apart then self:spread(buffers, 0) end
  self.suppressed, self.triggered, self.sync, self.mean = 0, false, true, false
  self.window = 0
  self.total = 1       -- divisor of the gradients of this backward
  self.averaged_by = 1 -- the value of `window` when they were averaged last
  self.micro_step = false -- the last one that counted in the window
  self.pending = false -- are there gradients that no prepared optimizer has used?
  self.held = setmetatable({model = model}, {__mode = "v"})
  for _, parameter in ipairs(self.reducer:parameters()) do averaged_in[parameter] = self end
  self:remember_tree(model)
end

--- Broadcast the values of one process. A collective.
---@param tensors userdata[]
function Parallel:spread(tensors, root)
  if C.comm.size() == 1 then return end
  local group = self.group or C.comm.world()
  C.autograd.no_grad(function()
    for _, tensor in ipairs(tensors) do group:broadcast(tensor, root) end
  end)
end

--- Return the current buffers, which an average copies from now on.
---@return userdata[]
function Parallel:current_buffers()
  self.buffers:look(function(i, tensor)
    if self.sends_buffers then self.reducer:replace_buffer(i, tensor) end
  end)
  return self.buffers.tensors
end

--- Wait until all gradients are averaged, and the buffers are one process's.
function Parallel:finish_reducing()
  self:current_buffers()
  self.reducer:finish()
end

--- Broadcast the parameters and buffers of one process. A collective.
function Parallel:take_over(root)
  self:spread(self.reducer:parameters(), root)
  local model = self.held.model
  if model then self:spread(model:buffers(), root) end
end

--- Will the next backward average?
function Parallel:synchronises()
  local owner = self.accelerator
  return self.triggered or self.suppressed == 0 and (owner.sync_gradients or owner._sync_each_batch == true)
end

--- Is it this model's?
---@param model table
function Parallel:belongs_to(model)
  return self.held.model == model
end

--- Have all its parameters been dropped by the script, or claimed by a later prepare?
function Parallel:abandoned()
  return self.reducer:abandoned()
end

--- Release the parameters: they keep values and gradients, and another handle may claim them.
function Parallel:close()
  for _, hook in ipairs(self.removers or {}) do hook:remove() end
  for _, parameter in ipairs(self.reducer:parameters()) do
    if averaged_in[parameter] == self then averaged_in[parameter] = nil end
  end
  self.reducer:close()
end

-- Comparison of the model with its structure at prepare.

--- Note the structure of the model, so that a backward need not read it: the count of changes to all modules, and the
--- items of modules that are arrays, which change without notice.
function Parallel:remember_tree(model)
  local arrays, count = setmetatable({}, {__mode = "k"}), 0
  for _, child in ipairs(model:modules()) do
    if child._is_array then
      local items = setmetatable({}, {__mode = "v"})
      for i = 1, #child do items[i] = child[i] end
      arrays[child] = items
      count = count + 1
    end
  end
  self.arrays, self.array_count, self.changes = arrays, count, module.changes()
end

local function same_tree(self)
  if self.changes ~= module.changes() then return false end
  if self.array_count == 0 then return true end
  for child, items in pairs(self.arrays) do
    if #child ~= #items then return false end
    for i = 1, #child do
      if rawget(child, i) ~= items[i] then return false end
    end
  end
  return true
end

-- Return the place of the first parameter that is not the one from prepare, and the present number of parameters.
local function changed_parameter(self)
  local model = self.held.model
  if not model or same_tree(self) then return nil end
  local now, before = floating(model:parameters()), self.reducer:parameters()
  for i = 1, math.max(#now, #before) do
    if now[i] ~= before[i] then return i, #now end
  end
  self:remember_tree(model)
end

--- Were parameters added, removed, cast or resized since prepare?
function Parallel:is_stale()
  return changed_parameter(self) ~= nil or self.reducer:changed() ~= nil
end

--- Describe a change since prepare that would silently be missing in the average; nil for none.
---@return string?
function Parallel:changed()
  local i, count = changed_parameter(self)
  if i then
    return ("backward: the model's parameters changed since prepare (parameter %d of %d); prepare it again"):format(i,
      count)
  end
  local place, was, is = self.reducer:changed()
  return place and ("backward: parameter %d was %s at prepare and is %s now; prepare the model again"):format(place,
    was, is)
end

--- Raise when the model was no longer the prepared one as this backward began.
function Parallel:check()
  if self.change then arguments.fail("%s", self.change) end
end

-- Windows.

local function each_gradient(self, fn)
  C.autograd.no_grad(function()
    for i, parameter in ipairs(self.reducer:parameters()) do fn(i, parameter, parameter.grad) end
  end)
end

--- Gradients from before this window are not part of its mean: they are added again when it is averaged.
function Parallel:set_aside()
  if not self.reducer:has_gradient() then return end
  local kept = {}
  each_gradient(self, function(i, parameter, grad)
    if grad ~= nil then
      kept[i] = grad:clone()
      parameter.grad = nil
    end
  end)
  self.kept = kept
end

--- Add them again.
function Parallel:add_again()
  local kept = self.kept
  if not kept then return end
  self.kept = nil
  each_gradient(self, function(i, parameter, grad)
    if kept[i] and grad ~= nil then
      grad:add_(kept[i])
    elseif kept[i] then
      parameter.grad = kept[i]
    end
  end)
  if self.shard then self.reducer:are_means() end
end

local function scale(self, factor)
  each_gradient(self, function(_, _, grad)
    if grad ~= nil then grad:mul_(factor) end
  end)
end

-- A new micro-step of this weight, or another part of the last one's sum.
local function count(self, weight, micro_step)
  local again = micro_step and self.micro_step == micro_step
  self.micro_step = micro_step
  if not again then
    if self.window == 0 then self:set_aside() end
    self.window = self.window + weight
  elseif self.window == 0 then
    -- This micro-step was averaged already.
    self:set_aside()
    self.window = self.kept and self.averaged_by or weight
  end
end

--- Before the engine runs.
---@param weight? number of this micro-step; nil: a backward that counts as itself, as with PyTorch's DDP
---@param micro_step integer|false its number; false: every backward is a separate one
function Parallel:begin_backward(weight, micro_step)
  self.change = self:changed()
  self.sync = self:synchronises()
  self.pending = true
  self.reducer:touched()
  if self.window > 0 and not self.reducer:has_gradient() then self.window, self.kept, self.mean = 0, nil, false end
  self.window_before, self.micro_step_before, self.kept_before = self.window, self.micro_step, self.kept
  -- The sum over the processes of the mean times each one's weight is the sum of the window so far.
  self.scaled = self.mean and self.window > 0
  if self.scaled then scale(self, self.window) end
  if weight then
    count(self, weight, micro_step)
  elseif self.accelerator._batch_proportions then
    self.change = self.change or "backward: the processes have unequal shares of a batch, which accelerator:backward "
      .. "weighs; loss:backward() does not"
  end
  self.total = self.window > 0 and self.window or 1
  if self.shard then self.reducer:weigh() end
end

--- After the engine ran: did the loss depend on the model, on this process?
function Parallel:was_reached()
  return self.reducer:touched()
end

--- The loss depended on this model on no process, or the engine failed: as if begin_backward had not been called.
function Parallel:skip()
  self.reducer:cancel()
  if self.shard then self.reducer:unweigh() end
  if self.kept ~= self.kept_before then self:add_again() end
  self.window, self.micro_step = self.window_before, self.micro_step_before
  if self.scaled then scale(self, 1 / self.window) end
end

--- Start averaging; in the middle of a backward buckets are sent as they get ready.
function Parallel:begin_average()
  self.reducer:begin(self.total)
end

-- A parameter without gradient on every process is most often a mistake in the model: name it, once.
local function warn_unused(self)
  self.checked = true
  local model, names = self.held.model, {}
  if not model then return end
  for name, parameter in model:named_parameters() do
    if parameter.requires_grad and parameter.grad == nil then names[#names + 1] = name end
  end
  if #names > 0 and C.comm.rank() == 0 then
    warn(("%d parameter%s of the model got no gradient on any process: %s"):format(#names, #names == 1 and "" or "s",
      table.concat(names, ", ")))
  end
end

--- Wait until all gradients are averaged.
function Parallel:finish_average()
  self:finish_reducing()
  self.triggered = false
  self.mean = not self.accelerator.sync_gradients and self.accelerator._sync_each_batch == true
  if not self.mean then
    self.window, self.averaged_by = 0, self.window
  end
  self:after_average()
end

--- The gradients of a window are those of the mean now.
function Parallel:after_average()
  if self.kept and not self.mean then self:add_again() end
  if not self.checked then warn_unused(self) end
end

--- After a backward that does not average.
function Parallel:after_accumulation()
  if self.shard then self.reducer:release() end
end

--- Join the average of a backward of other processes, without gradients.
function Parallel:shadow()
  self:drop_gradients()
  self.reducer:begin(0)
  self:finish_reducing()
  self:drop_gradients()
  self.window, self.kept, self.mean = 0, nil, false
end

--- Leave the parameters without gradients.
function Parallel:drop_gradients()
  each_gradient(self, function(_, parameter) parameter.grad = nil end)
end

--- Drop the gradients of an unfinished window.
function Parallel:drop_window()
  self:drop_gradients()
  self.window, self.kept, self.mean = 0, nil, false
end

--- An optimizer has used the gradients of this parameter's model.
function Parallel.used(parameter)
  local handle = averaged_in[parameter]
  if handle then handle.pending = false end
end

--- The open window as plain data, for a checkpoint: gradients that no optimizer has used yet; nil without.
---@return table?
function Parallel:window_state()
  local open = (self.window > 0 or self.pending) and self.reducer:has_gradient()
  if not open and not self.kept then return nil end
  local gradients = {}
  each_gradient(self, function(i, _, grad) gradients[i] = grad end)
  return {
    window = self.window, averaged_by = self.averaged_by, micro_step = self.micro_step, mean = self.mean == true,
    gradients = gradients, kept = self.kept, shared = self:shared_means(),
  }
end

--- Return the cuts of the gradients' means between processes; nil when they are whole, or no means yet.
---@return integer[]?
function Parallel:shared_means()
  local shard = self.shard
  return shard and shard.slices and not self.reducer:find_sum() and shard:cuts() or nil
end

-- Means that are cut can only go where they are cut in the same way.
local function check_shards(self, states)
  local cuts = states[1] and states[1].shared
  if not cuts then return end
  local own = self.shard and self.shard.slices and self.shard:cuts() or {}
  local same = #states == 1 and #own == #cuts
  for i, place in ipairs(cuts) do same = same and own[i] == place end
  if not same then
    arguments.fail("load_state: the saved gradients that wait for a step are in shards of other processes or of "
      .. "another sharding: continue with those, or save after the step")
  end
end

-- The sum of two tables of tensors by number.
local function add_all(sum, more)
  for i, tensor in pairs(more or {}) do sum[i] = sum[i] and sum[i] + tensor or tensor end
  return sum
end

-- Are its gradients the same on all processes? Else they are this one's part of a sum.
local function is_common(state) return state.mean or state.window == 0 end

--- Load the windows of a checkpoint: this process's, or those of several processes, which are merged.
---@param states table[] as window_state returned them; none: no window is open
---@param common table? rank 0's, for a process that was not there: of gradients that are averaged it loads those
function Parallel:load_window(states, common)
  check_shards(self, states)
  local first, gradients, kept, window = states[1], {}, nil, 0
  for _, state in ipairs(states) do
    if state == first or not is_common(state) then add_all(gradients, state.gradients) end
    if state.kept then kept = add_all(kept or {}, state.kept) end
    window = window + state.window
  end
  self:drop_window()
  if not first and common and common.window == 0 then
    first, gradients, kept = common, common.gradients, common.kept
  end
  self.pending = first ~= nil
  if not first then return end
  each_gradient(self, function(i, parameter)
    if gradients[i] then parameter.grad = gradients[i]:to {device = parameter.device} end
  end)
  self.window, self.averaged_by, self.micro_step, self.mean = window, first.averaged_by, first.micro_step, first.mean
  self.kept = kept
  if self.shard and is_common(first) then self.reducer:are_means() end
end

return Parallel
