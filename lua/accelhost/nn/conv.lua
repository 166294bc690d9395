--- Convolutions.
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local edges = require "accelhost.nn.functional.edges"
local init = require "accelhost.nn.initializers"
local Module = require("accelhost.nn.module").Module
local new = require("accelhost.nn.parameter").new
local repr = require "accelhost.nn.repr"
local tuple = require("accelhost.nn.functional.sizes").tuple

local fail = arguments.fail
local conv = {}

local function any(values, than)
  for i = 1, #values do
    if values[i] ~= than then return true end
  end
  return false
end

--- The base of Conv1d, Conv2d and the transposed ones.
local Conv = Module:extend "Conv"

--- Set the fields, make the parameters and draw them as PyTorch does.
function Conv:setup(dims, transposed, o)
  local what = self._name
  if o.in_channels % o.groups ~= 0 or o.out_channels % o.groups ~= 0 then
    fail("%s: in_channels %d and out_channels %d must be divisible by groups %d", what, o.in_channels, o.out_channels,
      o.groups)
  end
  self.in_channels, self.out_channels, self.groups = o.in_channels, o.out_channels, o.groups
  self.kernel_size = tuple(what, "kernel_size", o.kernel_size, dims)
  self.stride = tuple(what, "stride", o.stride, dims)
  self.dilation = tuple(what, "dilation", o.dilation, dims)
  self.padding_mode, self.padding = o.padding_mode, o.padding
  if o.padding == "same" and any(self.stride, 1) then fail("%s: padding 'same' needs stride 1", what) end
  if type(o.padding) ~= "string" then self.padding = tuple(what, "padding", o.padding, dims) end
  self._pads, self._edges = edges.place(self.padding, self.kernel_size, self.dilation, self.padding_mode == "zeros")
  local sizes = transposed and {o.in_channels, o.out_channels / o.groups} or {o.out_channels, o.in_channels / o.groups}
  for d = 1, dims do sizes[2 + d] = self.kernel_size[d] end
  local options = {dtype = o.dtype, device = o.device}
  self.weight = new(C.empty(sizes, options))
  if o.bias then self.bias = new(C.empty({o.out_channels}, options)) end
  self:reset_parameters()
end

--- U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for weight and bias.
function Conv:reset_parameters()
  init.kaiming_uniform_(self.weight, {a = math.sqrt(5)})
  if self.bias then
    local fan_in = init.calculate_fan_in_and_fan_out(self.weight)
    if fan_in ~= 0 then
      local bound = 1 / math.sqrt(fan_in)
      init.uniform_(self.bias, -bound, bound)
    end
  end
end

--- The input with the edges that the convolution cannot make.
function Conv:_padded(input)
  if not self._edges then return input end
  return F.pad(input, self._edges, self.padding_mode == "zeros" and "constant" or self.padding_mode)
end

function Conv:extra_repr()
  local text = ("%d, %d, kernel_size=%s, stride=%s"):format(self.in_channels, self.out_channels,
    repr.value(self.kernel_size), repr.value(self.stride))
  if type(self.padding) == "string" or any(self.padding, 0) then
    text = text .. ", padding=" .. repr.value(self.padding)
  end
  if any(self.dilation, 1) then text = text .. ", dilation=" .. repr.value(self.dilation) end
  if self.output_padding and any(self.output_padding, 0) then
    text = text .. ", output_padding=" .. repr.value(self.output_padding)
  end
  if self.groups ~= 1 then text = text .. ", groups=" .. self.groups end
  if self.bias == nil then text = text .. ", bias=False" end
  if self.padding_mode ~= "zeros" then text = text .. ", padding_mode=" .. self.padding_mode end
  return text
end

local parameters = {
  "in_channels: size", "out_channels: size", "kernel_size: counts", {"stride: counts", 1},
  {"padding: sizes|'same'|'valid'", 0}, {"dilation: counts", 1}, {"groups: count", 1}, {"bias: flag", true},
  {"padding_mode: 'zeros'|'reflect'|'replicate'|'circular'", "zeros"}, {"device: device"}, {"dtype: dtype"},
}

local function options(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode,
                       device, dtype)
  return {in_channels = in_channels, out_channels = out_channels, kernel_size = kernel_size, stride = stride,
    padding = padding, dilation = dilation, groups = groups, bias = bias, padding_mode = padding_mode, device = device,
    dtype = dtype}
end

local function class(name, dims)
  local Class = Conv:extend(name)
  local read = arguments.signature(name, parameters)
  function Class:init(...)
    self:setup(dims, false, options(read(...)))
  end
  conv[name] = Class
  return Class
end

--- Cross-correlation over [N, C, L].
--
--   nn.Conv1d(4, 8, 3, {padding = 1})(accelhost.randn(2, 4, 10)):size(-1)  --> 10
---@field weight Tensor [out_channels, in_channels / groups, k]
local Conv1d = class("Conv1d", 1)

---@param input Tensor [N, C, L]
---@return Tensor [N, out_channels, L']
function Conv1d:forward(input)
  return C.conv1d(self:_padded(input), self.weight, self.bias, self.stride[1], self._pads[1], self.dilation[1],
    self.groups)
end

--- Cross-correlation over [N, C, H, W].
--
--   nn.Conv2d(1, 32, 3, {stride = 1, padding = 1})
---@field weight Tensor [out_channels, in_channels / groups, kh, kw]
local Conv2d = class("Conv2d", 2)

---@param input Tensor [N, C, H, W]
---@return Tensor [N, out_channels, H', W']
function Conv2d:forward(input)
  return C.conv2d(self:_padded(input), self.weight, self.bias, self.stride, self._pads, self.dilation, self.groups)
end

--- Cross-correlation over [N, C, D, H, W].
--
--   nn.Conv3d(1, 2, 3)(accelhost.randn(1, 1, 5, 5, 5)):size(-1)  --> 3
---@field weight Tensor [out_channels, in_channels / groups, kd, kh, kw]
local Conv3d = class("Conv3d", 3)

---@param input Tensor [N, C, D, H, W]
---@return Tensor [N, out_channels, D', H', W']
function Conv3d:forward(input)
  return F.conv3d(self:_padded(input), self.weight, self.bias, self.stride, self._pads, self.dilation, self.groups)
end

local transposed_parameters = {
  "in_channels: size", "out_channels: size", "kernel_size: counts", {"stride: counts", 1}, {"padding: sizes", 0},
  {"output_padding: sizes", 0}, {"groups: count", 1}, {"bias: flag", true}, {"dilation: counts", 1},
  {"padding_mode: 'zeros'", "zeros"}, {"device: device"}, {"dtype: dtype"},
}

-- Return the output_padding that yields `output_size`: the spatial sizes, or the sizes of all dims of the result.
local function output_padding(self, input, output_size)
  local dims, more = #self.kernel_size, {}
  arguments.check(self._name, "output_size", "counts", output_size)
  output_size = #output_size == dims + 2 and {unpack(output_size, 3)} or output_size
  output_size = tuple(self._name, "output_size", output_size, dims)
  for d = 1, dims do
    local least = (input:size(d - dims - 1) - 1) * self.stride[d] - 2 * self.padding[d] +
      self.dilation[d] * (self.kernel_size[d] - 1) + 1
    more[d] = output_size[d] - least
    if more[d] < 0 or more[d] >= self.stride[d] then
      fail("%s: output_size: dim %d: expected a size between %d and %d, got %d", self._name, d - 1, least,
        least + self.stride[d] - 1, output_size[d])
    end
  end
  return more
end

local function transposed_class(name, dims)
  local Class = Conv:extend(name)
  local read = arguments.signature(name, transposed_parameters)
  local run = "conv_transpose" .. dims .. "d"
  function Class:init(...)
    local in_channels, out_channels, kernel_size, stride, padding, more, groups, bias, dilation, padding_mode, device,
      dtype = read(...)
    self.output_padding = tuple(name, "output_padding", more, dims)
    self:setup(dims, true, options(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias,
      padding_mode, device, dtype))
  end
  --- With output_size the output padding is computed for that size.
  ---@param input Tensor [N, in_channels, sizes...]
  ---@param output_size integer[]? spatial sizes, or those of the whole result
  ---@return Tensor [N, out_channels, sizes...]
  function Class:forward(input, output_size)
    local more = output_size and output_padding(self, input, output_size) or self.output_padding
    return F[run](input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation)
  end
  conv[name] = Class
end

--- The transpose (gradient) of a convolution with respect to its input: [N, in, sizes...] to [N, out, larger sizes...].
--
--   nn.ConvTranspose2d(1, 4, 2, {stride = 2})(images):size(-1)  --> 56
---@names ConvTranspose1d ConvTranspose2d ConvTranspose3d
for dims = 1, 3 do transposed_class("ConvTranspose" .. dims .. "d", dims) end

return conv
