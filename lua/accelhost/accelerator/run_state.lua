--- What an accelerator's run consists of, beside the folders and notes that it is kept in.
local averaging = require "accelhost.averaging"

local run_state = {}

--- What was prepared and registered, in its order.
---@param self Accelerator
---@return table<string, table[]>
function run_state.objects(self)
  local list = {registered = self._registered, scalers = {self.scaler}}
  for field, kind in pairs {models = "model", optimizers = "optimizer", schedulers = "scheduler", loaders = "loader"} do
    list[field] = self:_prepared_list(kind)
  end
  return list
end

--- The open accumulation window of this process: what each model has gathered; nil when none is open.
---@param self Accelerator
---@return table?
function run_state.windows(self)
  local windows, any = {}, false
  for i, handle in ipairs(averaging.of(self)) do
    windows[i] = handle:window_state() or false
    any = any or windows[i] ~= false
  end
  return any and windows or nil
end

--- The accelerator's own place.
---@param self Accelerator
---@return table
function run_state.own(self)
  return {
    step = self._step, micro_step = self._micro_step, sync_gradients = self.sync_gradients,
    logged_step = self._logged_step or nil, virtual_shards = self.virtual_shards, share = self.share,
  }
end

-- The step from which on what was logged is logged anew; false: nothing goes away.
local function purged_from(own, purge_step)
  if purge_step ~= nil then return purge_step end
  return own.logged_step and own.logged_step + 1 or false
end

--- Put back what `own` and `windows` gave.
---@param self Accelerator
---@param own table
---@param windows table[] of the processes whose windows go on in this one
---@param common table? rank 0's, where this process had none
---@param purge_step integer|false|nil
function run_state.restore(self, own, windows, common, purge_step)
  rawset(self, "_step", own.step)
  rawset(self, "_micro_step", own.micro_step)
  self.sync_gradients = own.sync_gradients
  self._logged_step, self._purge_from = own.logged_step or false, purged_from(own, purge_step)
  for i, handle in ipairs(averaging.of(self)) do
    local states = {}
    for _, of_rank in ipairs(windows) do states[#states + 1] = of_rank[i] or nil end
    handle:load_window(states, common and common[i] or nil)
  end
end

return run_state
