--- Gradients against finite differences: in float64 (torch.autograd.gradcheck).
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local M = {}

local function flat(tensor)
  local values = tensor:detach():reshape({-1}):tolist()
  return type(values) == "table" and values or {values}
end

-- Fixed weights that differ from element to element, so that no error cancels in the sum.
local function weights_like(tensor)
  local values = {}
  for k = 1, tensor:numel() do values[k] = 0.5 + (k * 0.6180339887498949) % 1 end
  return C.tensor(values, {dtype = "float64", device = tensor.device}):reshape(tensor:shape())
end

local function is_checked(value)
  return C.is_tensor(value) and value.requires_grad
end

-- The results of fn that carry gradients, and their weighted sum.
local function evaluate(fn, inputs)
  local outputs = {}
  for _, output in ipairs {fn(unpack(inputs, 1, table.maxn(inputs)))} do
    if C.is_tensor(output) and output.dtype == "float64" then outputs[#outputs + 1] = output end
  end
  return outputs
end

local function weighted_sum(outputs)
  local sum = 0
  for _, output in ipairs(outputs) do
    local weights = flat(weights_like(output))
    for k, value in ipairs(flat(output)) do sum = sum + weights[k] * value end
  end
  return sum
end

-- The 0-dim views on all elements of a tensor, in row-major order.
local function elements(tensor)
  local views = {tensor}
  for _ = 1, tensor:dim() do
    local next_views = {}
    for _, view in ipairs(views) do
      for i = 0, view:size(0) - 1 do next_views[#next_views + 1] = view:select(0, i) end
    end
    views = next_views
  end
  return views
end

local function numeric_gradient(fn, inputs, tensor, step)
  local gradient = {}
  for k, element in ipairs(elements(tensor:detach())) do
    local value = element:item()
    element:fill_(value + step)
    local above = weighted_sum(evaluate(fn, inputs))
    element:fill_(value - step)
    local below = weighted_sum(evaluate(fn, inputs))
    element:fill_(value)
    gradient[k] = (above - below) / (2 * step)
  end
  return gradient
end

-- The options of both; raise_exception = false makes a failure the result false.
local read = arguments.signature("gradcheck", {
  "fn: callable", "inputs: table", {"eps: positive", 1e-6}, {"atol: nonnegative", 1e-5}, {"rtol: nonnegative", 1e-3},
  {"raise_exception: flag", true},
})

local function compare(fn, inputs, step, atol, rtol)
  local checked, places = {}, {}
  for i = 1, table.maxn(inputs) do
    if is_checked(inputs[i]) then
      if inputs[i].dtype ~= "float64" then
        arguments.fail("gradcheck: input %d: expected float64, got %s", i, inputs[i].dtype)
      end
      checked[#checked + 1] = inputs[i]
      places[#places + 1] = i
    end
  end
  if #checked == 0 then arguments.fail "gradcheck: no input requires grad" end
  local outputs, given = {}, {}
  for _, output in ipairs(evaluate(fn, inputs)) do
    if output.requires_grad then
      outputs[#outputs + 1] = output
      given[#given + 1] = weights_like(output)
    end
  end
  if #outputs == 0 then arguments.fail "gradcheck: no float64 result requires grad" end
  local analytic = C.autograd.grad(outputs, checked, {grad_outputs = given, allow_unused = true})
  for i, tensor in ipairs(checked) do
    local found = analytic[i] and flat(analytic[i])
    for k, wanted in ipairs(numeric_gradient(fn, inputs, tensor, step)) do
      local got = found and found[k] or 0
      if not (math.abs(got - wanted) <= atol + rtol * math.abs(wanted)) then
        return ("gradcheck: input %d, element %d: the rule returns %.9g, finite differences %.9g"):format(places[i],
          k - 1, got, wanted)
      end
    end
  end
end

--- Compare the gradients of fn's float64 results with central differences, element by element.
--
--     local x = accelhost.tensor({1, 2}, {dtype = "float64", requires_grad = true})
--     accelhost.autograd.gradcheck(function(value) return value:exp() end, {x})  --> true
---@param fn fun(...): userdata
---@param inputs any[] the arguments of fn; the float64 tensors among them that require grad are checked
---@param options? {eps?: number, atol?: number, rtol?: number, raise_exception?: boolean} 1e-6, 1e-5, 1e-3, true
---@return boolean # false only where raise_exception is
function M.gradcheck(...)
  local fn, inputs, eps, atol, rtol, raise = read(...)
  local difference = compare(fn, inputs, eps, atol, rtol)
  if difference and raise then arguments.fail("%s", difference) end
  return difference == nil
end

--- Compare second derivatives: gradcheck of fn's gradient, as a function of the inputs and of the incoming gradient.
--
--     local x = accelhost.tensor({1, 2}, {dtype = "float64", requires_grad = true})
--     accelhost.autograd.gradgradcheck(function(value) return value ^ 3 end, {x})  --> true
---@param fn fun(...): userdata
---@param inputs any[]
---@param options? table as for gradcheck
---@return boolean
function M.gradgradcheck(...)
  local fn, inputs, eps, atol, rtol, raise = read(...)
  local count = table.maxn(inputs)
  local given, incoming = {}, 0
  for i = 1, count do given[i] = inputs[i] end
  for _, output in ipairs(evaluate(fn, inputs)) do
    if output.requires_grad then
      incoming = incoming + 1
      given[count + incoming] = weights_like(output):requires_grad_()
    end
  end
  if incoming == 0 then arguments.fail "gradgradcheck: no float64 result requires grad" end
  return M.gradcheck(function(...)
    local now = {...}
    local outputs, grads, checked = {}, {}, {}
    for _, output in ipairs(evaluate(fn, {unpack(now, 1, count)})) do
      if output.requires_grad then
        outputs[#outputs + 1] = output
        grads[#grads + 1] = now[count + #outputs]
      end
    end
    for i = 1, count do
      if is_checked(now[i]) then checked[#checked + 1] = now[i] end
    end
    local found = C.autograd.grad(outputs, checked,
      {grad_outputs = grads, create_graph = true, allow_unused = true})
    local results = {}
    for i = 1, #checked do
      if found[i] then results[#results + 1] = found[i] end
    end
    return unpack(results)
  end, given, eps, atol, rtol, raise)
end

return M
