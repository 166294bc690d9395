--- A training step on the device "meta": the memory it would need, from the device's count of bytes.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local step = {}

local fail = arguments.raise

local function live() return C.system.memory_stats("meta").live end

local function settle()
  collectgarbage()
  collectgarbage()
  C.system.empty_cache() -- resets the peak
end

-- "64x1x28x28" or "8x128:int64"
local function parse(word)
  local sizes, dtype = word:match "^([%dx]*):(%w+)$"
  sizes = sizes or word:match "^[%dx]*$"
  local shape = {}
  for size in (sizes or ""):gmatch "%d+" do shape[#shape + 1] = tonumber(size) end
  if #shape == 0 or table.concat(shape, "x") ~= sizes then
    fail("--batch: expected shapes such as 64x1x28x28 or 8x128:int64, separated by commas, got '%s'", word)
  end
  return {shape = shape, dtype = dtype}
end

--- The inputs that --batch describes.
function step.inputs(text)
  local list = {}
  for word in (text .. ","):gmatch "([^,]*)," do list[#list + 1] = parse(word) end
  return list
end

local function make(accelhost, inputs, dtype)
  local tensors = {}
  for i, input in ipairs(inputs) do
    tensors[i] = accelhost.zeros(input.shape, {dtype = input.dtype or dtype, device = "meta"})
  end
  return tensors
end

-- The sum of all outputs of a model that depend on its weights.
local function total(value, sum)
  if C.is_tensor(value) then
    if not value.requires_grad then return sum end
    return sum and sum + value:sum():float() or value:sum():float()
  end
  if type(value) == "table" then
    for _, item in pairs(value) do sum = total(item, sum) end
  end
  return sum
end

--- The memory that a forward keeps for its backward, and the peak of forward and backward in addition to weights and
--- inputs, gradients included; both in bytes.
---@param model table on meta
---@param inputs table[] of step.inputs
---@param dtype string of the inputs that name none
---@return {kept: number, peak: number}
function step.measure(accelhost, model, inputs, dtype)
  local default = accelhost.get_default_device()
  accelhost.set_default_device "meta"
  model:train()
  model:zero_grad()
  local tensors = make(accelhost, inputs, dtype)
  settle()
  local before, result = live(), nil
  C.system.collect_stress(true)
  local fine, message = xpcall(function()
    local outputs = {model(unpack(tensors))}
    collectgarbage()
    result = {kept = live() - before}
    local loss = total(outputs)
    if loss then loss:backward() end
    result.peak = C.system.memory_stats("meta").peak - before
  end, function(text) return tostring(text) end)
  C.system.collect_stress(false)
  accelhost.set_default_device(default)
  model:zero_grad()
  if not fine then
    message = message:gsub("%(a tensor of Lua numbers is made with .-%)$", "(such as --batch 8x128:int64)")
    fail("the model does not accept --batch: %s", message)
  end
  return result
end

-- "SGD,momentum=0.9" to "SGD" and {momentum = 0.9}
local function parse_optimizer(text)
  local name, rest = text:match "^(%w+)(.*)$"
  local options = {}
  for key, value in (rest or ""):gmatch ",([%w_]+)=([^,]+)" do
    if value == "true" or value == "false" then options[key] = value == "true" else options[key] = tonumber(value) end
    if options[key] == nil then fail("--optimizer: %s: expected a number, true or false, got '%s'", key, value) end
  end
  return name or text, options
end

-- The bytes of all tensors of a table.
local function bytes_in(value)
  if C.is_tensor(value) then return value:numel() * value:element_size() end
  local sum = 0
  if type(value) == "table" then
    for _, item in pairs(value) do sum = sum + bytes_in(item) end
  end
  return sum
end

--- The bytes of an optimizer's state for parameters of these shapes.
---@param text string its name, and options as in "SGD,momentum=0.9"
---@param shapes integer[][]
---@param dtype string of the parameters
---@return number bytes
---@return string name
function step.optimizer_state(accelhost, text, shapes, dtype)
  local name, options = parse_optimizer(text)
  local class = accelhost.optim[name]
  local parameters = {}
  for i, shape in ipairs(shapes) do
    local sizes = {unpack(shape)}
    parameters[i] = accelhost.empty(sizes, {dtype = dtype, device = "meta"}):requires_grad_()
    parameters[i].grad = accelhost.empty(sizes, {dtype = dtype, device = "meta"})
  end
  if #parameters == 0 then return 0, name end
  local fine, optimizer = pcall(class, parameters, options)
  local message = optimizer
  if fine then fine, message = pcall(optimizer.step, optimizer) end
  if not fine then
    fail("--optimizer: cannot infer the state of %s from shapes: %s", name,
      (tostring(message):gsub("^[^:]*:%d+: ", ""):gsub("\n.*", "")))
  end
  return bytes_in(optimizer:state_dict().state), name
end

return step
