--- Batch normalisation whose batch is that of all processes.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local batch_norm = require "accelhost.nn.batch_norm"

local fail = arguments.fail
local BatchNorm = batch_norm.BatchNorm

local function size_of(group)
  if group then return group:size() end
  return C.comm.size()
end

-- The sum of the processes' tensors. Its gradient is theirs: every process's result is made from every one's tensor.
local function sum_over(group, x)
  local total = C.autograd.no_grad(function()
    local copy = x:clone()
    if group then return group:all_reduce(copy, "sum") end
    return C.comm.all_reduce(copy, "sum")
  end)
  if x.requires_grad and C.autograd.is_grad_enabled() then
    C.autograd.record(function(grad) return sum_over(group, grad:contiguous()) end, {x}, {total})
  end
  return total
end

--- Batch normalisation over [N, C, ...] with the statistics of the batches of all processes together, which may differ
-- in size. In one process, and in evaluation, it is BatchNorm. Every process calls it as often as the others: forward
-- and backward exchange sums of C numbers.
--
--   model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
local SyncBatchNorm = BatchNorm:extend "SyncBatchNorm"

local read = arguments.signature("SyncBatchNorm", {
  "num_features: size", {"eps: number", 1e-5}, {"momentum: number|false", 0.1}, {"affine: flag", true},
  {"track_running_stats: flag", true}, {"process_group: any"}, {"device: device"}, {"dtype: dtype"},
  {"bias: flag", true},
})

local function is_group(value)
  local fine, method = pcall(function() return value.all_reduce end)
  return fine and type(method) == "function"
end

---@param process_group userdata? a part of the processes, by default all of them
function SyncBatchNorm:init(...)
  local features, eps, momentum, affine, track, group, device, dtype, bias = read(...)
  if group ~= nil and not is_group(group) then
    fail("SyncBatchNorm: process_group: expected a group of processes, got %s", arguments.describe(group))
  end
  self.process_group = group
  self:setup(features, eps, momentum, affine, track, device, dtype, bias)
end

-- The statistics of all processes' values of each channel, as [1, C, 1, ...], and the number of values.
local function statistics(self, x)
  local over, group = {0}, self.process_group
  for d = 2, x:dim() - 1 do over[d] = d end
  local own = x:numel() / math.max(x:size(1), 1)
  local sums = sum_over(group, C.cat {x:sum(over), x:new_full({1}, own)})
  local count = sums:select(0, x:size(1)):item()
  if count <= 1 then fail("SyncBatchNorm: expected more than 1 value per channel in training, got %d", count) end
  local row = {1, x:size(1)}
  for d = 3, x:dim() do row[d] = 1 end
  local mean = sums:narrow(0, 0, x:size(1)) / count
  local centred = x - mean:view(row)
  local variance = sum_over(group, (centred * centred):sum(over)) / count
  return centred, mean, variance, count, row
end

-- Move the running statistics; the variance that is kept is the unbiased one.
local function track(self, mean, variance, count, momentum)
  if not self.running_mean then return end
  C.autograd.no_grad(function()
    self.running_mean:mul_(1 - momentum):add_(mean:to(self.running_mean.dtype), momentum)
    self.running_var:mul_(1 - momentum):add_(variance:to(self.running_var.dtype), momentum * count / (count - 1))
  end)
end

---@param input Tensor [N, C, ...]
---@return Tensor like input
function SyncBatchNorm:forward(input)
  if input:dim() < 2 or input:size(1) ~= self.num_features then
    fail("SyncBatchNorm: expected an input (N, %d, ...), got %s", self.num_features, arguments.shape_text(input))
  end
  local joined = self.training or self.running_mean == nil
  if not joined or size_of(self.process_group) == 1 then return self:normalise(input) end
  if self.eps <= 0 then
    fail("SyncBatchNorm: eps: expected a number above 0 in training, got %s", arguments.describe(self.eps))
  end
  local momentum = self:next_momentum()
  local x = input.dtype == "float64" and input or input:float()
  local centred, mean, variance, count, row = statistics(self, x)
  track(self, mean, variance, count, momentum)
  local result = centred * (variance + self.eps):rsqrt():view(row)
  if self.weight then result = result * self.weight:to(x.dtype):view(row) end
  if self.bias then result = result + self.bias:to(x.dtype):view(row) end
  return result:to(input.dtype)
end

local read_convert = arguments.signature("convert_sync_batchnorm", {"module: module", {"process_group: any"}})

-- The SyncBatchNorm in the place of a BatchNorm, with its tensors.
local function converted(module, group)
  local made = SyncBatchNorm(module.num_features, module.eps, module.momentum, false, false, group)
  made.affine, made.track_running_stats, made.training = module.affine, module.track_running_stats, module.training
  made.weight, made.bias = module.weight, module.bias
  for _, name in ipairs {"running_mean", "running_var", "num_batches_tracked"} do
    if module[name] ~= nil then made:register_buffer(name, module[name]) end
  end
  return made
end

--- Replace every BatchNorm1d, 2d and 3d of a module by a SyncBatchNorm with the same tensors, and return the module;
-- of a BatchNorm itself, the new one.
---@param process_group userdata?
---@return Module
function SyncBatchNorm.convert_sync_batchnorm(...)
  local module, group = read_convert(...)
  local names = {BatchNorm1d = true, BatchNorm2d = true, BatchNorm3d = true}
  if names[module._name] then return converted(module, group) end
  for name, child in module:named_modules {remove_duplicate = false} do
    if names[child._name] then module:set_submodule(name, converted(child, group)) end
  end
  return module
end

return {SyncBatchNorm = SyncBatchNorm}
