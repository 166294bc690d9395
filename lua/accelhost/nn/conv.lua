--- Convolutions.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local init = require "accelhost.nn.initializers"
local Module = require("accelhost.nn.module").Module
local new = require("accelhost.nn.parameter").new
local pad = require("accelhost.nn.functional").pad
local repr = require "accelhost.nn.repr"

local fail = arguments.fail
local conv = {}

--- A number, or a table of `count` numbers, as a table.
local function tuple(what, name, value, count)
  if type(value) == "number" then
    local t = {}
    for i = 1, count do t[i] = value end
    return t
  end
  if type(value) == "table" and #value == count then return value end
  return fail("%s: %s: expected a number or a table of %d, got %s", what, name, count, arguments.describe(value))
end

local function any(values, than)
  for i = 1, #values do
    if values[i] ~= than then return true end
  end
  return false
end

--- What Conv1d, Conv2d and the transposed ones share.
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
  self:_place_padding(dims)
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

--- What the convolution itself pads (_pads: zeros, the same on both sides), and what is padded before it (_edges, as
-- for F.pad).
function Conv:_place_padding(dims)
  local symmetric = true
  self._pads, self._edges = {}, {}
  for d = 1, dims do
    local total = 0
    if self.padding == "same" then
      total = self.dilation[d] * (self.kernel_size[d] - 1)
    elseif type(self.padding) == "table" then
      total = 2 * self.padding[d]
    end
    symmetric = symmetric and total % 2 == 0
    local before = math.floor(total / 2)
    self._pads[d] = before
    self._edges[2 * (dims - d) + 1], self._edges[2 * (dims - d) + 2] = before, total - before
  end
  if symmetric and self.padding_mode == "zeros" then
    self._edges = nil
  else
    for d = 1, dims do self._pads[d] = 0 end
  end
end

--- The input with the edges that the convolution cannot make.
function Conv:_padded(input)
  if not self._edges then return input end
  return pad(input, self._edges, self.padding_mode == "zeros" and "constant" or self.padding_mode)
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

--- Cross-correlation over [N, C, L].
---@class Conv1d: Module
---@field weight table [out_channels, in_channels / groups, k]
local Conv1d = Conv:extend "Conv1d"
conv.Conv1d = Conv1d
local read1 = arguments.signature("Conv1d", parameters)

function Conv1d:init(...)
  self:setup(1, false, options(read1(...)))
end

---@param input table [N, C, L]
---@return table [N, out_channels, L']
function Conv1d:forward(input)
  return C.conv1d(self:_padded(input), self.weight, self.bias, self.stride[1], self._pads[1], self.dilation[1],
    self.groups)
end

--- Cross-correlation over [N, C, H, W].
--
--   nn.Conv2d(1, 32, 3, {stride = 1, padding = 1})
---@class Conv2d: Module
---@field weight table [out_channels, in_channels / groups, kh, kw]
local Conv2d = Conv:extend "Conv2d"
conv.Conv2d = Conv2d
local read2 = arguments.signature("Conv2d", parameters)

function Conv2d:init(...)
  self:setup(2, false, options(read2(...)))
end

---@param input table [N, C, H, W]
---@return table [N, out_channels, H', W']
function Conv2d:forward(input)
  return C.conv2d(self:_padded(input), self.weight, self.bias, self.stride, self._pads, self.dilation, self.groups)
end

local transposed_parameters = {
  "in_channels: size", "out_channels: size", "kernel_size: counts", {"stride: counts", 1}, {"padding: sizes", 0},
  {"output_padding: sizes", 0}, {"groups: count", 1}, {"bias: flag", true}, {"dilation: counts", 1},
  {"padding_mode: 'zeros'", "zeros"}, {"device: device"}, {"dtype: dtype"},
}

local function transposed_class(name, dims)
  local Class = Conv:extend(name)
  local read = arguments.signature(name, transposed_parameters)
  function Class:init(...)
    local in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation,
      padding_mode, device, dtype = read(...)
    self.output_padding = tuple(name, "output_padding", output_padding, dims)
    self:setup(dims, true, options(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias,
      padding_mode, device, dtype))
  end
  conv[name] = Class
  return Class
end

--- The transpose (gradient) of Conv1d with respect to its input.
---@class ConvTranspose1d: Module
---@field weight table [in_channels, out_channels / groups, k]
local ConvTranspose1d = transposed_class("ConvTranspose1d", 1)

---@param input table [N, in_channels, L]
---@return table [N, out_channels, L']
function ConvTranspose1d:forward(input)
  return C.conv_transpose1d(input, self.weight, self.bias, self.stride[1], self.padding[1], self.output_padding[1],
    self.groups, self.dilation[1])
end

--- The transpose (gradient) of Conv2d with respect to its input.
---@class ConvTranspose2d: Module
---@field weight table [in_channels, out_channels / groups, kh, kw]
local ConvTranspose2d = transposed_class("ConvTranspose2d", 2)

---@param input table [N, in_channels, H, W]
---@return table [N, out_channels, H', W']
function ConvTranspose2d:forward(input)
  return C.conv_transpose2d(input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups,
    self.dilation)
end

return conv
