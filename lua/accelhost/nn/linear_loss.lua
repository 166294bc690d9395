--- The cross entropy of a linear map, a module with its weight.
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local repr = require "accelhost.nn.repr"
local Linear = require("accelhost.nn.linear").Linear
local Module = require("accelhost.nn.module").Module

local linear_loss = {}

--- The cross entropy between a linear map's logits, which are computed in chunks and never stored, and classes:
--- F.linear_cross_entropy with its options. Input [N, in_features]; target class numbers [N] or probabilities
--- [N, num_classes]. The map is the field `linear`; `weight` [num_classes] weighs the classes and is a buffer.
--
--   local loss_of = nn.LinearCrossEntropyLoss(2, 3, {bias = true})
--   loss_of(accelhost.zeros(2, 2), labels):dim()  --> 0
---@param out_features? integer[] dims with a loss for each of their places: input [N, in_features], target
--- [N, d1, ...] or [N, num_classes, d1, ...]
---@field linear Linear
---@field weight Tensor?
local LinearCrossEntropyLoss = Module:extend "LinearCrossEntropyLoss"
linear_loss.LinearCrossEntropyLoss = LinearCrossEntropyLoss

local read = arguments.signature("LinearCrossEntropyLoss", {
  "in_features: size", "num_classes: size", {"out_features: list", {}}, {"bias: flag", false}, {"device: device"},
  {"dtype: dtype"}, {"reduction: 'none'|'mean'|'sum'", "mean"}, {"weight: tensor"}, {"ignore_index: integer"},
  {"label_smoothing: probability", 0}, {"options: table"},
})

function LinearCrossEntropyLoss:init(...)
  local in_features, num_classes, out_features, bias, device, dtype, reduction, weight, ignore_index, label_smoothing,
    options = read(...)
  if weight and (weight:dim() ~= 1 or weight:size(0) ~= num_classes) then
    arguments.fail("LinearCrossEntropyLoss: weight: expected %d elements, one for each class, got shape %s",
      num_classes, arguments.shape_text(weight))
  end
  local rows = num_classes
  for _, size in ipairs(out_features) do rows = rows * size end
  self.num_classes, self.out_features, self.reduction = num_classes, out_features, reduction
  self.ignore_index, self.label_smoothing, self.options = ignore_index, label_smoothing, options
  self:register_buffer("weight", weight)
  self.linear = Linear(in_features, rows, {bias = bias, device = device, dtype = dtype})
end

-- The linear map's rows as classes and further dims.
local function by_class(self, tensor, ...)
  if #self.out_features == 0 then return tensor end
  local sizes = {self.num_classes}
  for _, size in ipairs(self.out_features) do sizes[#sizes + 1] = size end
  for i = 1, select("#", ...) do sizes[#sizes + 1] = (select(i, ...)) end
  return tensor:reshape(unpack(sizes))
end

---@param input Tensor [N, in_features]
---@param target Tensor
---@return Tensor
function LinearCrossEntropyLoss:forward(input, target)
  local linear = self.linear
  return F.linear_cross_entropy(input, by_class(self, linear.weight, linear.in_features), target, {
    linear_bias = linear.bias and by_class(self, linear.bias), weight = self.weight, reduction = self.reduction,
    ignore_index = self.ignore_index, label_smoothing = self.label_smoothing, options = self.options,
  })
end

function LinearCrossEntropyLoss:extra_repr()
  local linear = self.linear
  return repr.join("in_features", repr.value(linear.in_features), "num_classes", repr.value(self.num_classes),
    "out_features", repr.value(self.out_features), "bias", repr.value(linear.bias ~= nil), "reduction",
    self.reduction, "ignore_index", repr.value(self.ignore_index), "label_smoothing",
    repr.float(self.label_smoothing), "options", self.options and "table" or "None")
end

return linear_loss
