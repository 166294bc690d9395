--- Pooling over [N, C, L] and [N, C, H, W].
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local Module = require("accelhost.nn.module").Module
local repr = require "accelhost.nn.repr"

local pooling = {}

--- A class whose parameters become fields; stride defaults to kernel_size.
local function class(name, parameters, forward, shown)
  local Class = Module:extend(name)
  local set = arguments.setter(name, parameters)
  function Class:init(...)
    set(self, ...)
    if self.kernel_size and self.stride == nil then self.stride = self.kernel_size end
  end
  Class.forward = forward
  function Class:extra_repr()
    local parts = {}
    for i, field in ipairs(shown) do
      local value = self[field]
      -- The one-dimensional averages print tuples.
      if name == "AvgPool1d" and type(value) == "number" then value = {value} end
      parts[i] = field .. "=" .. repr.value(value)
    end
    return table.concat(parts, ", ")
  end
  pooling[name] = Class
end

local max_parameters = {
  "kernel_size: counts", {"stride: counts"}, {"padding: sizes", 0}, {"dilation: counts", 1},
  {"return_indices: flag", false}, {"ceil_mode: flag", false},
}
local max_shown = {"kernel_size", "stride", "padding", "dilation", "ceil_mode"}

--- The largest value of each window; padding counts as -inf. With return_indices its place is a second result.
---@class MaxPool2d: Module
class("MaxPool2d", max_parameters, function(self, input)
  return C.max_pool2d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
    self.return_indices)
end, max_shown)

local function one(value) return type(value) == "table" and value[1] or value end

---@class MaxPool1d: Module
class("MaxPool1d", max_parameters, function(self, input)
  if self.return_indices then
    local values, places = C.max_pool2d(input:unsqueeze(-2), {1, one(self.kernel_size)}, {1, one(self.stride)},
      {0, one(self.padding)}, {1, one(self.dilation)}, self.ceil_mode, true)
    return values:squeeze(-2), places:squeeze(-2)
  end
  return C.max_pool1d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)
end, max_shown)

local average_parameters = {
  "kernel_size: counts", {"stride: counts"}, {"padding: sizes", 0}, {"ceil_mode: flag", false},
  {"count_include_pad: flag", true},
}
local average_shown = {"kernel_size", "stride", "padding"}

--- The mean of each window; padding counts as 0 unless count_include_pad is false.
---@class AvgPool2d: Module
class("AvgPool2d", average_parameters, function(self, input)
  return C.avg_pool2d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)
end, average_shown)

---@class AvgPool1d: Module
class("AvgPool1d", average_parameters, function(self, input)
  return C.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)
end, average_shown)

--- The mean of as many windows as the output has places.
---@class AdaptiveAvgPool2d: Module
class("AdaptiveAvgPool2d", {"output_size: sizes"}, function(self, input)
  return C.adaptive_avg_pool2d(input, self.output_size)
end, {"output_size"})

---@class AdaptiveAvgPool1d: Module
class("AdaptiveAvgPool1d", {"output_size: sizes"}, function(self, input)
  return C.adaptive_avg_pool1d(input, self.output_size)
end, {"output_size"})

return pooling
