--- Averages of a model's weights over the course of training. A script finds them under optim.swa_utils.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local batch_norm = require "accelhost.nn.batch_norm"
local class = require "accelhost.util.class"
local nn_module = require "accelhost.nn.module"

local fail, no_grad = arguments.fail, C.autograd.no_grad
local averaged = {}

--- The function of the equally weighted average: average + (current - average) / (n + 1).
---@return fun(average: table, current: table, n: number): table
function averaged.get_swa_avg_fn()
  return function(average, current, n) return average + (current - average) / (n + 1) end
end

--- The function of the exponential moving average: decay average + (1 - decay) current.
---@return fun(average: table, current: table, n: number): table
averaged.get_ema_avg_fn = arguments.checked("get_ema_avg_fn", {{"decay: probability", 0.999}}, function(decay)
  return function(average, current) return decay * average + (1 - decay) * current end
end)

local function mover(weight_of)
  return function(averages, currents, n)
    local weight = weight_of(n)
    for i, average in ipairs(averages) do
      if average:is_floating_point() then
        average:lerp_(currents[i], weight)
      else
        average:copy_(average * (1 - weight) + currents[i] * weight)
      end
    end
  end
end

--- The same for lists of tensors, in place.
---@return fun(averages: table[], currents: table[], n: number)
function averaged.get_swa_multi_avg_fn()
  return mover(function(n) return 1 / (n + 1) end)
end

--- The exponential moving average for lists of tensors, in place.
--
--   local ema = optim.swa_utils.AveragedModel(model, {multi_avg_fn = optim.swa_utils.get_ema_multi_avg_fn(0.999)})
---@return fun(averages: table[], currents: table[], n: number)
averaged.get_ema_multi_avg_fn = arguments.checked("get_ema_multi_avg_fn", {
  {"decay: probability", 0.999},
}, function(decay)
  return mover(function() return 1 - decay end)
end)

local read_model = arguments.signature("AveragedModel", {
  "model: module", {"device: device"}, {"avg_fn: callable"}, {"multi_avg_fn: callable"}, {"use_buffers: flag", false},
})

--- A copy of a model whose parameters are the average of the model's: update_parameters(model) after a step adds the
--- weights to the average. All steps have equal weight (SWA) unless avg_fn(average, current, n) or
--- multi_avg_fn(averages, currents, n) computes the average; n is the number of models averaged before. Buffers are
--- copied, or averaged too with use_buffers.
--
--   local swa = optim.swa_utils.AveragedModel(model)
--   swa:update_parameters(model)
---@field module Module
---@field n_averaged Tensor a buffer
local AveragedModel = nn_module.Module:extend "AveragedModel"

function AveragedModel:init(...)
  local model, device, avg_fn, multi_avg_fn, use_buffers = read_model(...)
  if avg_fn and multi_avg_fn then fail("AveragedModel: pass avg_fn or multi_avg_fn, not both") end
  self.module = model:deepcopy()
  if device then self.module:to {device = device} end
  self:register_buffer("n_averaged", C.tensor(0, {dtype = "int64", device = device}))
  self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers
end

function AveragedModel:forward(...)
  return self.module(...)
end

local function tensors_of(module, use_buffers)
  local list = module:parameters()
  for _, buffer in ipairs(use_buffers and module:buffers() or {}) do list[#list + 1] = buffer end
  for i, tensor in ipairs(list) do list[i] = tensor:detach() end
  return list
end

local function copy_all(targets, sources)
  for i, target in ipairs(targets) do target:copy_(sources[i]) end
end

-- Lists of one dtype and device each, as multi_avg_fn expects them.
local function in_groups(averages, currents, fn)
  local groups, order = {}, {}
  for i, average in ipairs(averages) do
    local key = average.dtype .. average.device
    if not groups[key] then
      groups[key] = {{}, {}}
      order[#order + 1] = groups[key]
    end
    local group = groups[key]
    group[1][#group[1] + 1], group[2][#group[2] + 1] = average, currents[i]
  end
  for _, group in ipairs(order) do fn(group[1], group[2]) end
end

--- Add a model's weights to the average; the first call copies them.
---@param model Module of the same structure
function AveragedModel:update_parameters(model)
  arguments.check("update_parameters", "model", "module", model)
  local averages, currents = tensors_of(self.module, self.use_buffers), tensors_of(model, self.use_buffers)
  if #averages ~= #currents then
    fail("update_parameters: expected a model of %d tensors as at first, got %d", #averages, #currents)
  end
  local n = self.n_averaged:item()
  no_grad(function()
    for i, current in ipairs(currents) do currents[i] = current:to {device = averages[i].device} end
    if n == 0 then
      copy_all(averages, currents)
    elseif self.multi_avg_fn then
      in_groups(averages, currents, function(some, others) self.multi_avg_fn(some, others, n) end)
    else
      local average_of = self.avg_fn or averaged.get_swa_avg_fn()
      for i, average in ipairs(averages) do average:copy_(average_of(average, currents[i], n)) end
    end
    if not self.use_buffers then copy_all(self.module:buffers(), model:buffers()) end
    self.n_averaged:add_(1)
  end)
end

averaged.AveragedModel = AveragedModel

local function norms_of(model)
  local norms = {}
  for _, module in ipairs(model:modules()) do
    for _, kind in ipairs {"BatchNorm1d", "BatchNorm2d", "BatchNorm3d"} do
      if batch_norm[kind] and class.is(module, batch_norm[kind]) then norms[#norms + 1] = module end
    end
  end
  return norms
end

--- Set the statistics of a model's batch normalisations to those of one pass over a loader, whose batches' first values
--- are the inputs: for averaged weights, which have no statistics.
--
--   local swa = optim.swa_utils.AveragedModel(net)
--   optim.swa_utils.update_bn(loader, swa)
---@param device string? device that batches are copied to
averaged.update_bn = arguments.checked("update_bn", {
  "loader: iterable", "model: module", {"device: device"},
}, function(loader, model, device)
  local norms, momenta = norms_of(model), {}
  if #norms == 0 then return end
  local training = model.training
  for i, norm in ipairs(norms) do
    norm:reset_running_stats()
    momenta[i] = norm.momentum
    norm.momentum = false
  end
  model:train()
  no_grad(function()
    for input in loader do
      if type(input) == "table" then input = input[1] end
      model(device and input:to {device = device} or input)
    end
  end)
  for i, norm in ipairs(norms) do norm.momentum = momenta[i] end
  model:train(training)
end)

return averaged
