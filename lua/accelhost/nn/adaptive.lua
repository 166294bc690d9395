--- The adaptive softmax: classes by falling frequency, the rare ones in clusters with smaller projections.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local container = require "accelhost.nn.container"
local linear = require "accelhost.nn.linear"
local Module = require("accelhost.nn.module").Module

local fail, shape_text = arguments.fail, arguments.shape_text

--- Log softmax over many classes of uneven frequency, with its loss (Grave et al., 2017). Classes are sorted by falling
-- frequency; the first cutoffs[1] have outputs in the head, those between two cutoffs share one and a projection of
-- their own, which is div_value times narrower from cluster to cluster.
--
--   local loss_of = nn.AdaptiveLogSoftmaxWithLoss(16, 100, {10, 40})
--   local output, loss = loss_of(accelhost.randn(3, 16), accelhost.tensor({0, 20, 99}, {dtype = "int64"}))
---@field head Linear to the first classes and the clusters
---@field tail ModuleList a Sequential of two linear maps for each cluster
local Adaptive = Module:extend "AdaptiveLogSoftmaxWithLoss"

local read = arguments.signature("AdaptiveLogSoftmaxWithLoss", {
  "in_features: count", "n_classes: count", "cutoffs: counts", {"div_value: positive", 4}, {"head_bias: flag", false},
  {"device: device"}, {"dtype: dtype"},
})

---@param cutoffs integer[] rising, each in 1..n_classes - 1
function Adaptive:init(...)
  local in_features, n_classes, cutoffs, div_value, head_bias, device, dtype = read(...)
  if type(cutoffs) == "number" then cutoffs = {cutoffs} end
  local ends = {unpack(cutoffs)}
  ends[#ends + 1] = n_classes
  for i = 1, #ends - 1 do
    if ends[i] >= ends[i + 1] then
      fail("AdaptiveLogSoftmaxWithLoss: cutoffs: expected rising numbers in 1..%d, got %s", n_classes - 1,
        table.concat(cutoffs, ", "))
    end
  end
  if #cutoffs == 0 then fail("AdaptiveLogSoftmaxWithLoss: cutoffs: expected at least one") end
  self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, ends
  self.div_value, self.head_bias = div_value, head_bias
  self.shortlist_size, self.n_clusters = ends[1], #ends - 1
  self.head_size = ends[1] + #ends - 1
  self.head = linear.Linear(in_features, self.head_size, head_bias, device, dtype)
  self.tail = container.ModuleList {}
  for i = 1, self.n_clusters do
    local width = math.floor(in_features / div_value ^ i)
    self.tail:append(container.Sequential(linear.Linear(in_features, width, false, device, dtype),
      linear.Linear(width, ends[i + 1] - ends[i], false, device, dtype)))
  end
end

--- Draw all weights again.
function Adaptive:reset_parameters()
  self.head:reset_parameters()
  for _, projection in ipairs(self.tail) do
    for _, layer in ipairs(projection) do layer:reset_parameters() end
  end
end

local function check_sizes(self, input, target)
  local dims = target:dim()
  if dims > 1 or input:dim() ~= dims + 1 or dims == 1 and input:size(0) ~= target:size(0) then
    fail("AdaptiveLogSoftmaxWithLoss: expected an input (N, %d) with a target (N,), or (%d,) with (), got %s and %s",
      self.in_features, self.in_features, shape_text(input), shape_text(target))
  end
  if target:numel() == 0 then return end
  local low, high = target:min():item(), target:max():item()
  if low < 0 or high >= self.n_classes then
    fail("AdaptiveLogSoftmaxWithLoss: target %d is outside 0..%d", low < 0 and low or high, self.n_classes - 1)
  end
end

---@param input Tensor [N, in_features] or [in_features]
---@param target Tensor [N] or 0-dim classes, counted from 0
---@return Tensor output [N] or 0-dim: the log probability of each target
---@return Tensor loss 0-dim: the mean of -output
function Adaptive:forward(input, target)
  arguments.check("AdaptiveLogSoftmaxWithLoss", "input", "tensor", input)
  arguments.check("AdaptiveLogSoftmaxWithLoss", "target", "tensor", target)
  check_sizes(self, input, target)
  local batched = target:dim() > 0
  if not batched then input, target = input:unsqueeze(0), target:unsqueeze(0) end
  local place = target:long() -- in the head: the class, or its cluster
  local output = input:new_zeros {target:size(0)}
  for i = 1, self.n_clusters do
    local first, behind = self.cutoffs[i], self.cutoffs[i + 1]
    local inside = target:ge(first):logical_and(target:lt(behind))
    local rows = inside:nonzero():view(-1)
    if rows:numel() > 0 then
      local scores = C.log_softmax(self.tail[i](input:index_select(0, rows)), 1)
      local within = (target:index_select(0, rows):long() - first):unsqueeze(1)
      output = output:index_add(0, rows, scores:gather(1, within):squeeze(1))
      place = place:masked_fill(inside, self.shortlist_size + i - 1)
    end
  end
  local head = C.log_softmax(self.head(input), 1)
  output = output + head:gather(1, place:unsqueeze(1)):squeeze(1)
  return batched and output or output:squeeze(0), -output:mean()
end

--- The log probabilities of all classes.
---@param input Tensor [N, in_features]
---@return Tensor [N, n_classes]
function Adaptive:log_prob(input)
  local head = C.log_softmax(self.head(input), 1)
  local parts = {head:narrow(1, 0, self.shortlist_size)}
  for i = 1, self.n_clusters do
    parts[i + 1] = C.log_softmax(self.tail[i](input), 1) + head:narrow(1, self.shortlist_size + i - 1, 1)
  end
  return C.cat(parts, 1)
end

--- The most probable class of each row; clusters are computed only where the head prefers one.
---@param input Tensor [N, in_features]
---@return Tensor [N] int64
function Adaptive:predict(input)
  local best = self.head(input):argmax(1)
  local rows = best:ge(self.shortlist_size):nonzero():view(-1)
  if rows:numel() == 0 then return best end
  return best:index_copy(0, rows, self:log_prob(input:index_select(0, rows)):argmax(1))
end

return {AdaptiveLogSoftmaxWithLoss = Adaptive}
