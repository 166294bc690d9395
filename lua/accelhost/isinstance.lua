--- The class of a value.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local parameter = require "accelhost.nn.parameter"

local fail, describe = arguments.fail, arguments.describe

--- The class of tensors, for accelhost.isinstance(x, accelhost.Tensor). Tensors are made by accelhost.tensor,
--- accelhost.empty, accelhost.zeros and the like: calling the class is an error.
--
--   accelhost.isinstance(a, accelhost.Tensor)  --> true
local Tensor = class.new "Tensor"

function Tensor:init(...) -- luacheck: ignore self
  fail "Tensor: expected accelhost.empty(2, 3) for a tensor of a size, or accelhost.tensor{...} for one of values"
end

-- Values in place of a class: a marker or a function that makes objects.
local tests = {[Tensor] = C.is_tensor, [parameter.new] = parameter.is_parameter,
  [C.random.Generator] = C.random.is_generator}

-- `what` names item i of classes in a message.
local function is_one_of(value, classes, what)
  for i, one in ipairs(classes) do
    local test = tests[one]
    if not test and not class.is_class(one) then
      fail("isinstance: %s: expected a class such as nn.Linear, or an array of classes, got %s", what:format(i),
        describe(one))
    end
    if test and test(value) or not test and class.is(value, one) then return true end
  end
  return false
end

--- Is a value an instance of a class or of a subclass? Classes are nn.Linear and all other modules, nn.Parameter,
--- accelhost.Tensor, optim.SGD, data.Dataset, accelhost.Accelerator, accelhost.Generator, and those made by extend.
--- With an array of classes: of one of them.
--
--   accelhost.isinstance(net.fc1, nn.Linear)                --> true
--   accelhost.isinstance(net.fc1, nn.Module)                --> true
--   accelhost.isinstance(net.fc1, {nn.Conv2d, nn.ReLU})     --> false
---@param classinfo table a class, or an array of classes
local function isinstance(value, classinfo)
  local several = type(classinfo) == "table" and getmetatable(classinfo) == nil
  if several then return is_one_of(value, classinfo, "item %d of classinfo") end
  return is_one_of(value, {classinfo or false}, "classinfo")
end

return {isinstance = isinstance, Tensor = Tensor}
