--- Specs from a fixture of op results made with PyTorch (scripts/fixtures/shape_index.py).
--
-- A fixture names inputs and lists cases: an expression over the inputs, its results, and the gradients of the weighted
-- sum of the float results. define() turns each case into specs: the same results and gradients, also from inputs that
-- are strided in memory, and a second derivative that agrees with differences.
local accelhost = require "accelhost"
local C = require "accelhost._C"
local gradcheck = require "spec.support.gradcheck"

local M = {}

local function contiguous(description)
  return accelhost.tensor(description.values, {dtype = description.dtype}):reshape(description.shape)
end

--- The same values with a gap after every element and the dims in reverse order in memory.
local function strided(description)
  local tensor = contiguous(description)
  local order = {}
  for d = 1, tensor:dim() do order[d] = tensor:dim() - d end
  local wide = accelhost.stack({tensor:permute(order), tensor:permute(order)}, -1)
  return wide:select(-1, 1):permute(order)
end

local function flat(tensor)
  local values = tensor:detach():reshape({-1}):tolist()
  return type(values) == "table" and values or {values}
end

--- Raise unless tensor has this dtype, shape and values.
---@param tensor userdata
---@param wanted {dtype: string, shape: integer[], values: any[]}
---@param tolerance number
---@param what string
function M.check(tensor, wanted, tolerance, what)
  assert(tensor.dtype == wanted.dtype, ("%s: expected %s, got %s"):format(what, wanted.dtype, tensor.dtype))
  local shape, expected = table.concat(tensor:shape(), ", "), table.concat(wanted.shape, ", ")
  assert(shape == expected, ("%s: expected shape (%s), got (%s)"):format(what, expected, shape))
  local values = flat(tensor)
  for k, value in ipairs(wanted.values) do
    local got = values[k]
    if got ~= value and not (type(got) == "number" and math.abs(got - value) <= tolerance) then
      error(("%s: element %d: expected %s, got %s"):format(what, k - 1, tostring(value), tostring(got)), 2)
    end
  end
end

local function environment(fixture, make)
  local env = {
    A = accelhost, F = accelhost.nn.functional, math = math,
    index = C.index, slice = C.slice, as_strided = C.as_strided,
    first = function(value) return value end,
    repeat_of = function(tensor, ...) return tensor["repeat"](tensor, ...) end,
  }
  for name, description in pairs(fixture.inputs) do
    env[name] = make(description):detach()
    if description.dtype == "float64" then env[name]:requires_grad_() end
  end
  return env
end

local function weights_like(tensor)
  local values = {}
  for k = 1, tensor:numel() do values[k] = 0.5 + (k * 0.6180339887498949) % 1 end
  return accelhost.tensor(values, {dtype = "float64"}):reshape(tensor:shape()):to(tensor.device)
end

local function check_case(fixture, case, make)
  local env = environment(fixture, make)
  local results = {setfenv(assert(loadstring("return " .. case.code)), env)()}
  assert(#results == #case.results, ("expected %d results, got %d"):format(#case.results, #results))
  local outputs, given = {}, {}
  for i, result in ipairs(results) do
    M.check(result, case.results[i], fixture.tolerance, "result " .. i)
    if result.requires_grad then
      outputs[#outputs + 1] = result
      given[#given + 1] = weights_like(result)
    end
  end
  if #outputs > 0 then accelhost.autograd.backward(outputs, given) end
  for name in pairs(fixture.inputs) do
    local grad, wanted = env[name].grad, case.grads[name]
    assert((grad == nil) == (wanted == nil), ("gradient of %s: expected %s"):format(name, wanted and "one" or "none"))
    if grad then M.check(grad, wanted, fixture.tolerance * 10 + 1e-12, "gradient of " .. name) end
  end
end

local function check_second_derivative(fixture, case)
  local env = environment(fixture, contiguous)
  local names, inputs = {}, {}
  for name in pairs(case.grads) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do inputs[i] = env[name] end
  local code = setfenv(assert(loadstring("return " .. case.code)), env)
  gradcheck.gradgradcheck(function(...)
    for i, name in ipairs(names) do env[name] = select(i, ...) end
    return code()
  end, inputs)
end

--- Call it() for every case.
---@param fixture {inputs: table, cases: table[], tolerance: number, first_only: string}
--- first_only: a part of the code of cases that have no second derivative
---@param it function busted's
function M.define(fixture, it)
  for _, case in ipairs(fixture.cases) do
    it(case.code .. " returns PyTorch's results and gradients", function() check_case(fixture, case, contiguous) end)
    it(case.code .. " does not depend on its inputs' strides", function()
      if case.code:find("as_strided", 1, true) or case.code:find("view(", 1, true) then return end
      check_case(fixture, case, strided)
    end)
    if next(case.grads) and not case.code:find(fixture.first_only, 1, true) then
      it(case.code .. " has a second derivative", function() check_second_derivative(fixture, case) end)
    end
  end
end

--- Call it() for every case, with the inputs on another device.
---@param fixture table
---@param it function busted's
---@param device string
function M.define_on(fixture, it, device)
  local function make(description) return contiguous(description):to(device) end
  for _, case in ipairs(fixture.cases) do
    it(case.code .. " returns PyTorch's results and gradients on " .. device, function()
      check_case(fixture, case, make)
    end)
  end
end

return M
