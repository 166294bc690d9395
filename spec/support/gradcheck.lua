--- Gradients against finite differences, in float64.
--
--   local gradcheck = require "spec.support.gradcheck"
--   gradcheck.gradcheck(function(x, y) return x:matmul(y) end, {x, y})
--   gradcheck.gradgradcheck(function(x) return x:exp() end, {x})
--
-- The inputs that are checked are float64 tensors that require grad; others are passed through. A failure raises and
-- says which element differs by how much.
local accelhost = require "accelhost"

local M = {}

local function flat(tensor)
  local values = tensor:detach():reshape({-1}):tolist()
  return type(values) == "table" and values or {values}
end

-- Fixed weights that differ from element to element, so that no error cancels in the sum.
local function weights_like(tensor)
  local values = {}
  for k = 1, tensor:numel() do values[k] = 0.5 + (k * 0.6180339887498949) % 1 end
  return accelhost.tensor(values, {dtype = "float64"}):reshape(tensor:shape())
end

local function is_checked(value)
  return accelhost.is_tensor(value) and value.requires_grad
end

-- The results of fn that carry gradients, and their weighted sum.
local function evaluate(fn, inputs)
  local outputs = {}
  for _, output in ipairs {fn(unpack(inputs, 1, table.maxn(inputs)))} do
    if accelhost.is_tensor(output) and output.dtype == "float64" then outputs[#outputs + 1] = output end
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

--- Compare the gradients of fn's float64 results with central differences, element by element.
---@param fn fun(...): userdata
---@param inputs any[] what fn gets; tensors that require grad are checked
---@param options? {step?: number, atol?: number, rtol?: number} 1e-6, 1e-5, 1e-4
---@return boolean # true, or it raises
function M.gradcheck(fn, inputs, options)
  options = options or {}
  local step, atol, rtol = options.step or 1e-6, options.atol or 1e-5, options.rtol or 1e-4
  local checked, places = {}, {}
  for i = 1, table.maxn(inputs) do
    if is_checked(inputs[i]) then
      assert(inputs[i].dtype == "float64", "gradcheck: checked inputs must be float64")
      checked[#checked + 1] = inputs[i]
      places[#places + 1] = i
    end
  end
  assert(#checked > 0, "gradcheck: no input requires grad")
  local outputs, given = {}, {}
  for _, output in ipairs(evaluate(fn, inputs)) do
    if output.requires_grad then
      outputs[#outputs + 1] = output
      given[#given + 1] = weights_like(output)
    end
  end
  assert(#outputs > 0, "gradcheck: no result requires grad")
  local analytic = accelhost.autograd.grad(outputs, checked, {grad_outputs = given, allow_unused = true})
  for i, tensor in ipairs(checked) do
    local found = analytic[i] and flat(analytic[i])
    if analytic[i] then
      assert(table.concat(analytic[i]:shape(), ",") == table.concat(tensor:shape(), ","),
        "gradcheck: the gradient's shape differs from the input's")
    end
    for k, wanted in ipairs(numeric_gradient(fn, inputs, tensor, step)) do
      local got = found and found[k] or 0
      if not (math.abs(got - wanted) <= atol + rtol * math.abs(wanted)) then
        error(("gradcheck: argument %d, element %d: the rule gives %.9g, differences give %.9g")
          :format(places[i], k - 1, got, wanted), 2)
      end
    end
  end
  return true
end

--- Compare second derivatives: gradcheck of fn's gradient, as a function of the inputs and of the gradient coming in.
---@param fn fun(...): userdata
---@param inputs any[]
---@param options? table as for gradcheck
---@return boolean
function M.gradgradcheck(fn, inputs, options)
  local count = table.maxn(inputs)
  local arguments, incoming = {}, 0
  for i = 1, count do arguments[i] = inputs[i] end
  for _, output in ipairs(evaluate(fn, inputs)) do
    if output.requires_grad then
      incoming = incoming + 1
      arguments[count + incoming] = weights_like(output):requires_grad_()
    end
  end
  assert(incoming > 0, "gradgradcheck: no result requires grad")
  return M.gradcheck(function(...)
    local given = {...}
    local outputs, grads, checked = {}, {}, {}
    for _, output in ipairs(evaluate(fn, {unpack(given, 1, count)})) do
      if output.requires_grad then
        outputs[#outputs + 1] = output
        grads[#grads + 1] = given[count + #outputs]
      end
    end
    for i = 1, count do
      if is_checked(given[i]) then checked[#checked + 1] = given[i] end
    end
    local found = accelhost.autograd.grad(outputs, checked,
      {grad_outputs = grads, create_graph = true, allow_unused = true})
    local results = {}
    for i = 1, #checked do
      if found[i] then results[#results + 1] = found[i] end
    end
    return unpack(results)
  end, arguments, options)
end

return M
