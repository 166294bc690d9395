--- Padding as modules: edges of a constant, and edges copied from the input itself.
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local Module = require("accelhost.nn.module").Module
local repr = require "accelhost.nn.repr"

local padding = {}

--- A class that pads the last `dims` dims of an input with or without a batch.
local function class(name, dims, mode, parameters, value)
  local Class = Module:extend(name)
  local set = arguments.setter(name, parameters)
  padding[name] = Class

  function Class:init(...)
    set(self, ...)
    local given = self.padding
    if type(given) == "number" then
      self.padding = {}
      for i = 1, 2 * dims do self.padding[i] = given end
    elseif #given ~= 2 * dims then
      arguments.fail("%s: padding: expected an integer or a table of %d, got %d", name, 2 * dims, #given)
    end
  end

  function Class:forward(input)
    if mode ~= "constant" and input:dim() ~= dims + 1 and input:dim() ~= dims + 2 then
      arguments.fail("%s: expected an input of %d or %d dims, got %s", name, dims + 1, dims + 2,
        arguments.shape_text(input))
    end
    return F.pad(input, self.padding, mode, self.value or value)
  end

  function Class:extra_repr()
    local text = repr.value(self.padding)
    return self.value and "padding=" .. text .. ", value=" .. repr.value(self.value) or text
  end
end

for dims = 1, 3 do
  local amount = "padding: integers"
  --- Edges of `value`. padding = {left, right, top, bottom, front, back}, as many as the class has dims, or one number
  --- for all.
  --
  --   nn.ConstantPad1d(1, 9)(accelhost.ones(1, 1, 2))  --> tensor([[[9., 1., 1., 9.]]])
  ---@names ConstantPad1d ConstantPad2d ConstantPad3d
  class("ConstantPad" .. dims .. "d", dims, "constant", {amount, "value: number"})
  --- Edges of zeros; padding as for ConstantPad.
  --
  --   nn.ZeroPad2d(1)(images):size(2)  --> 30
  ---@names ZeroPad1d ZeroPad2d ZeroPad3d
  class("ZeroPad" .. dims .. "d", dims, "constant", {amount}, 0)
  --- The input mirrored at its edges, which are not repeated; padding as for ConstantPad.
  --
  --   nn.ReflectionPad1d(1)(a:view(1, 1, 3))  --> tensor([[[2., 1., 2., 3., 2.]]])
  ---@names ReflectionPad1d ReflectionPad2d ReflectionPad3d
  class("ReflectionPad" .. dims .. "d", dims, "reflect", {amount})
  --- The edges repeated; padding as for ConstantPad.
  --
  --   nn.ReplicationPad1d(1)(a:view(1, 1, 3))  --> tensor([[[1., 1., 2., 3., 3.]]])
  ---@names ReplicationPad1d ReplicationPad2d ReplicationPad3d
  class("ReplicationPad" .. dims .. "d", dims, "replicate", {amount})
  --- The input repeated periodically; padding as for ConstantPad.
  --
  --   nn.CircularPad1d(1)(a:view(1, 1, 3))  --> tensor([[[3., 1., 2., 3., 1.]]])
  ---@names CircularPad1d CircularPad2d CircularPad3d
  class("CircularPad" .. dims .. "d", dims, "circular", {amount})
end

return padding
