--- Padding as modules: edges of a constant, and edges taken from the input itself.
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
  -- ConstantPad: edges of `value`. padding = {left, right, top, bottom, front, back}, or one number for all.
  class("ConstantPad" .. dims .. "d", dims, "constant", {amount, "value: number"})
  -- ZeroPad: edges of zeros.
  class("ZeroPad" .. dims .. "d", dims, "constant", {amount}, 0)
  -- ReflectionPad: the input mirrored at its edges, which are not repeated.
  class("ReflectionPad" .. dims .. "d", dims, "reflect", {amount})
  -- ReplicationPad: the edges repeated.
  class("ReplicationPad" .. dims .. "d", dims, "replicate", {amount})
  -- CircularPad: the input repeated periodically.
  class("CircularPad" .. dims .. "d", dims, "circular", {amount})
end

return padding
