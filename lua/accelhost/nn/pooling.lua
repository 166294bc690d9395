--- Pooling: over rows [N, C, L], images [N, C, H, W] and volumes [N, C, D, H, W], or without the batch.
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local Module = require("accelhost.nn.module").Module
local repr = require "accelhost.nn.repr"
local tuple = require("accelhost.nn.functional.sizes").tuple

local pooling = {}

--- A class whose parameters become fields; stride defaults to kernel_size. `shown` are the fields that are printed;
-- they become tables of `dims` where that is given.
local function class(name, parameters, forward, shown, dims)
  local Class = Module:extend(name)
  local set = arguments.setter(name, parameters)
  function Class:init(...)
    set(self, ...)
    if self.kernel_size and self.stride == nil and not self.norm_type then self.stride = self.kernel_size end
    for _, field in ipairs(dims and shown or {}) do self[field] = tuple(name, field, self[field], dims) end
  end
  Class.forward = forward
  function Class:extra_repr()
    local parts = {}
    for i, field in ipairs(shown) do
      parts[i] = field .. "=" .. repr.value(self[field])
    end
    return table.concat(parts, ", ")
  end
  pooling[name] = Class
end

--- The largest value of each window of [N, C, sizes...] or [C, sizes...]; padding counts as -inf. With return_indices
--- its place in the plane, counted from 0, is a second result.
--
--   nn.MaxPool2d(2)(images):size(-1)  --> 14
---@names MaxPool1d MaxPool2d MaxPool3d
for dims = 1, 3 do
  local pool = "max_pool" .. dims .. "d"
  class("MaxPool" .. dims .. "d", {
    "kernel_size: counts", {"stride: counts"}, {"padding: sizes", 0}, {"dilation: counts", 1},
    {"return_indices: flag", false}, {"ceil_mode: flag", false},
  }, function(self, input)
    return F[pool](input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
      self.return_indices)
  end, {"kernel_size", "stride", "padding", "dilation", "ceil_mode"})
end

--- The mean of each window of [N, C, sizes...] or [C, sizes...]; padding counts as 0 unless count_include_pad is false,
--- and divisor_override divides the sums instead of the number of elements.
--
--   nn.AvgPool1d(2)(x:unsqueeze(1))[0]  --> tensor([[-0.5000, -0.5000]])
---@names AvgPool1d AvgPool2d AvgPool3d
for dims = 1, 3 do
  local pool = "avg_pool" .. dims .. "d"
  local parameters = {
    "kernel_size: counts", {"stride: counts"}, {"padding: sizes", 0}, {"ceil_mode: flag", false},
    {"count_include_pad: flag", true},
  }
  if dims > 1 then parameters[#parameters + 1] = {"divisor_override: integer"} end
  class("AvgPool" .. dims .. "d", parameters, function(self, input)
    if dims == 1 then
      return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)
    end
    return F[pool](input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
      self.divisor_override)
  end, {"kernel_size", "stride", "padding"}, dims == 1 and 1 or nil)
end

--- The mean (Avg), or the largest value (Max), of as many windows as the output has places.
--
--   nn.AdaptiveAvgPool2d(1)(images):size(-1)  --> 1
---@names AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d
for dims = 1, 3 do
  local average, max = "adaptive_avg_pool" .. dims .. "d", "adaptive_max_pool" .. dims .. "d"
  class("AdaptiveAvgPool" .. dims .. "d", {"output_size: open_sizes"}, function(self, input)
    return F[average](input, self.output_size)
  end, {"output_size"})
  class("AdaptiveMaxPool" .. dims .. "d", {"output_size: open_sizes", {"return_indices: flag", false}},
    function(self, input) return F[max](input, self.output_size, self.return_indices) end, {"output_size"})
end

--- (sum of x^norm_type over each window)^(1 / norm_type).
--
--   nn.LPPool1d(2, 2)(accelhost.tensor{{3, 4}}:unsqueeze(1))  --> tensor([[[5.]]])
---@names LPPool1d LPPool2d LPPool3d
for dims = 1, 3 do
  local pool = "lp_pool" .. dims .. "d"
  class("LPPool" .. dims .. "d", {
    "norm_type: number", "kernel_size: counts", {"stride: counts"}, {"ceil_mode: flag", false},
  }, function(self, input)
    return F[pool](input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)
  end, {"norm_type", "kernel_size", "stride", "ceil_mode"})
  local Class = pooling["LPPool" .. dims .. "d"]
  local set = Class.init
  function Class:init(...)
    set(self, ...)
    if self.norm_type == 0 then arguments.fail("%s: norm_type: expected a number other than 0", self._name) end
  end
end

--- The inverse of a max pool: called with its values and indices; zeros elsewhere.
--
--   local values, places = nn.MaxPool2d(2, {return_indices = true})(images)
--   nn.MaxUnpool2d(2)(values, places):size(-1)  --> 28
---@names MaxUnpool1d MaxUnpool2d MaxUnpool3d
for dims = 1, 3 do
  local pool = "max_unpool" .. dims .. "d"
  class("MaxUnpool" .. dims .. "d", {"kernel_size: counts", {"stride: counts"}, {"padding: sizes", 0}},
    function(self, input, indices, output_size)
      return F[pool](input, indices, self.kernel_size, self.stride, self.padding, output_size)
    end, {"kernel_size", "stride", "padding"}, dims)
end

--- The largest values of windows at random places (Graham, 2014): pass output_size, or output_ratio as a share of the
--- input's sizes.
--
--   nn.FractionalMaxPool2d(2, {output_size = 13})(images):size(-1)  --> 13
---@names FractionalMaxPool2d FractionalMaxPool3d
for dims = 2, 3 do
  local name, pool = "FractionalMaxPool" .. dims .. "d", "fractional_max_pool" .. dims .. "d"
  class(name, {
    "kernel_size: counts", {"output_size: open_sizes"}, {"output_ratio: numbers"}, {"return_indices: flag", false},
    {"_random_samples: tensor"},
  }, function(self, input)
    return F[pool](input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
      self._random_samples)
  end, {})
  local Class = pooling[name]
  local set = Class.init
  function Class:init(...)
    set(self, ...)
    if (self.output_size == nil) == (self.output_ratio == nil) then
      arguments.fail("%s: expected either output_size or output_ratio", name)
    end
    local ratio = self.output_ratio or {}
    for _, part in ipairs(type(ratio) == "table" and ratio or {ratio}) do
      if part <= 0 or part >= 1 then
        arguments.fail("%s: output_ratio: expected numbers between 0 and 1, got %g", name, part)
      end
    end
    local samples = self._random_samples
    self._random_samples = nil
    self:register_buffer("_random_samples", samples)
  end
end

return pooling
