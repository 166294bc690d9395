--- The op case table: PyTorch's numbers for every op and for the functions that are made of ops (spec/fixtures/ops),
--- and functions that turn a case into calls.
--
--   local ops = require "spec.support.ops"
--   for _, case in ipairs(ops.cases) do
--     local inputs = ops.inputs(case, {dtype = "float32"})
--     local outputs = ops.call(case, inputs)
--   end
--
-- A layout is the inputs' order in memory: "contiguous", or "strided" (the same values through a transposed or
-- stepping view).
local accelhost = require "accelhost"
local fixtures = require "spec.support.fixtures"

local ops = {cases = fixtures.read "ops"}

--- The numbers of a tensor in row-major order, as a flat table.
---@param tensor userdata
---@return table
function ops.flat(tensor)
  local values = tensor:detach():reshape({-1}):tolist()
  return type(values) == "table" and values or {values}
end

--- The inputs of a call on another device, as leaves.
---@param inputs userdata[]
---@param device string
---@return userdata[]
function ops.moved(inputs, device)
  local there = {}
  for i, input in ipairs(inputs) do
    there[i] = input:detach():to(device)
    if input.requires_grad then there[i]:requires_grad_() end
  end
  return there
end

local function make(values, shape, dtype)
  for _, size in ipairs(shape) do
    if size == 0 then return accelhost.zeros(shape, {dtype = dtype}) end
  end
  return accelhost.tensor(values, {dtype = dtype}):reshape(shape)
end

-- The same values through a view that is not contiguous; a 0-dim tensor has only one layout.
local function strided(tensor)
  local dims = tensor:dim()
  if dims >= 2 then
    return tensor:transpose(0, dims - 1):contiguous():transpose(0, dims - 1)
  elseif dims == 1 then
    return accelhost.stack({tensor, tensor}, 1):select(1, 0)
  end
  return tensor
end

--- Is this input cast in a run at another float dtype?
local function is_float(description)
  return description[1] == "float64" or description[1] == "float32"
end

--- The inputs of a case as fresh leaves.
---@param case table
---@param options? {dtype?: string, layout?: string, grad?: boolean} float dtype; default as in the table
---@return userdata[]
function ops.inputs(case, options)
  options = options or {}
  local inputs = {}
  for i, description in ipairs(case.inputs) do
    local dtype = is_float(description) and options.dtype or description[1]
    local tensor = make(description[3], description[2], dtype)
    if options.layout == "strided" then tensor = strided(tensor) end
    if options.grad and case.grads and case.grads[i] then tensor = tensor:detach():requires_grad_() end
    inputs[i] = tensor
  end
  return inputs
end

local function fill(value, inputs)
  if type(value) ~= "table" then return value end
  if value.input then return inputs[value.input] end
  local copy = {}
  for key, item in pairs(value) do copy[key] = fill(item, inputs) end
  return copy
end

local function arguments(case, inputs)
  local values, count = {}, case.count
  for i = 1, count do values[i] = fill(case.args[i], inputs) end
  if case.named then
    count = count + 1
    values[count] = case.named
  end
  return values, count
end

local targets = {}

-- A function of accelhost, a method or a function of nn.functional: whichever there is, in this order.
local function target(case, first)
  if targets[case.op] then return targets[case.op] end
  if case.op == "getitem" then return function(tensor, key) return tensor[key] end end
  local function field(object) return object[case.op] end
  local tensor = accelhost.is_tensor(first) and first or accelhost
  for _, object in ipairs {accelhost, tensor, accelhost.nn.functional} do
    local fine, found = pcall(field, object)
    if fine and found then
      targets[case.op] = found
      return found
    end
  end
  return error("there is no op '" .. case.op .. "'", 0)
end

--- Call the op of a case.
---@return userdata[] outputs
function ops.call(case, inputs)
  local values, count = arguments(case, inputs)
  if case.seed then accelhost.manual_seed(case.seed) end
  local results = {target(case, values[1])(unpack(values, 1, count))}
  if case.list then return results[1] end
  return results
end

--- Call the in-place form of a case's op; writes into the first input.
---@return userdata
function ops.call_inplace(case, inputs)
  local values, count = arguments(case, inputs)
  if case.seed then accelhost.manual_seed(case.seed) end
  return values[1][case.op .. "_"](unpack(values, 1, count))
end

--- The fixed weights of the generator's sum, for an output.
function ops.weights_like(tensor)
  local values = {}
  for k = 0, tensor:numel() - 1 do values[k + 1] = ((7 * k + 3) % 11 - 5) / 4 end
  return make(values, tensor:shape(), tensor.dtype):to(tensor.device)
end

--- Backward from sum(output * weights) over the outputs that carry gradients.
function ops.backward(outputs)
  local total
  for _, output in ipairs(outputs) do
    if output.requires_grad then
      local part = (output * ops.weights_like(output)):sum()
      total = total and total + part or part
    end
  end
  assert(total, "no output requires a gradient"):backward()
end

local function near(expected, got, tolerance)
  if type(expected) == "boolean" or type(got) == "boolean" then return expected == got end
  if expected ~= expected then return got ~= got end
  if expected == got then return true end
  return math.abs(expected - got) <= tolerance * math.max(1, math.abs(expected))
end

--- Fail unless a tensor has the described dtype, shape and numbers.
---@param what string for the message
---@param description table {dtype, shape, data}
---@param tensor userdata
---@param options {tolerance: number, dtype?: string} dtype: floats' dtype in this run
function ops.expect(what, description, tensor, options)
  if not accelhost.is_tensor(tensor) then error(what .. ": expected a tensor, got " .. type(tensor), 0) end
  local dtype = description[1] == "float64" and options.dtype or description[1]
  if tensor.dtype ~= dtype then error(("%s: expected %s, got %s"):format(what, dtype, tensor.dtype), 0) end
  local wanted_shape, shape = table.concat(description[2], ", "), {}
  for i = 0, tensor:dim() - 1 do shape[i + 1] = tensor:size(i) end
  if wanted_shape ~= table.concat(shape, ", ") then
    error(("%s: expected shape (%s), got (%s)"):format(what, wanted_shape, table.concat(shape, ", ")), 0)
  end
  local values = ops.flat(tensor)
  for k, expected in ipairs(description[3]) do
    if not near(expected, values[k], options.tolerance) then
      error(("%s: element %d: expected %s, got %s"):format(what, k - 1,
        type(expected) == "number" and ("%.17g"):format(expected) or tostring(expected),
        type(values[k]) == "number" and ("%.17g"):format(values[k]) or tostring(values[k])), 0)
    end
  end
end

-- Ops that draw in the order of their input's memory (spec/tensor/random_spec.lua).
local follows_memory = {dropout = true, rand_like = true, randn_like = true}

--- Is the case's result the same for every layout of its inputs?
function ops.any_layout(case)
  return case.only ~= "contiguous" and not follows_memory[case.op]
end

return ops
