--- Hold kernels of float32 or halves against the float64 ones: other code and other layouts, so an error in either
--- shows.
--
--   local precision = require "spec.support.precision"
--   precision.agree(function(x, w) return F.conv2d(x, w) end, {{2, 3, 8, 8}, {32, 3, 3, 3}})
local accelhost = require "accelhost"
local check = require "spec.support.check"

local precision = {}

local function run(fn, values, dtype, incoming)
  local inputs = {}
  for i, value in ipairs(values) do inputs[i] = value:to(dtype):detach():requires_grad_() end
  local output = fn(unpack(inputs))
  output:backward(incoming(output):to(dtype))
  local results = {output:detach()}
  for _, input in ipairs(inputs) do results[#results + 1] = input.grad end
  return results
end

--- Run fn and its gradients in both types on the same random numbers; the largest difference may be `tolerance` times
--- the largest number of a result.
---@param fn fun(...): userdata
---@param shapes integer[][] of fn's inputs
---@param tolerance number? 2e-5, for halves 0.01
---@param dtype string? "float32"
function precision.agree(fn, shapes, tolerance, dtype)
  dtype = dtype or "float32"
  tolerance = tolerance or dtype == "float32" and 2e-5 or 0.01
  accelhost.manual_seed(5)
  local values, given = {}, nil
  for i, shape in ipairs(shapes) do values[i] = accelhost.randn(shape):to(dtype) end
  local function incoming(output)
    given = given or accelhost.randn(output:shape()):to(dtype)
    return given
  end
  local double, single = run(fn, values, "float64", incoming), run(fn, values, dtype, incoming)
  for i, wanted in ipairs(double) do
    local what = i == 1 and "result" or "gradient of input " .. i - 1
    local expected, got = check.flat(wanted), check.flat(single[i])
    assert(#expected == #got, what .. ": another number of elements")
    local largest = 1e-30
    for _, value in ipairs(expected) do largest = math.max(largest, math.abs(value)) end
    for k, value in ipairs(expected) do
      local difference = math.abs(value - got[k])
      if not (difference <= tolerance * largest) then
        error(("%s, element %d: float64 has %.9g, %s %.9g (largest %.3g)"):format(what, k - 1, value, dtype, got[k],
          largest), 2)
      end
    end
  end
end

return precision
