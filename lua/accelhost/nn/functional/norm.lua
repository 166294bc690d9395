--- Normalisations made of others.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail, shape_text, checked = arguments.fail, arguments.shape_text, arguments.checked
local F = {}

--- Normalise every channel of every sample of [N, C, ...] on its own (Ulyanov et al., 2016): a batch norm whose
-- channels are the N C planes. The running statistics, one per channel, move by the mean over the samples; without
-- use_input_stats they are used.
--
--   F.instance_norm(images):size(-1)  --> 28
---@return userdata # like input
F.instance_norm = checked("instance_norm", {
  "input: tensor", {"running_mean: tensor"}, {"running_var: tensor"}, {"weight: tensor"}, {"bias: tensor"},
  {"use_input_stats: flag", true}, {"momentum: number", 0.1}, {"eps: number", 1e-5},
}, function(input, mean, var, weight, bias, use_input, momentum, eps)
  if input:dim() < 3 then fail("instance_norm: expected an input (N, C, ...), got %s", shape_text(input)) end
  local sizes = input:shape()
  local samples, channels, planes = sizes[1], sizes[2], input:shape()
  if input:numel() == 0 then return input:clone() end
  if use_input and input:numel() == samples * channels then
    fail("instance_norm: expected more than 1 value per channel, got input %s", shape_text(input))
  end
  if not use_input and not (mean and var) then
    fail("instance_norm: running_mean and running_var are needed when use_input_stats is false")
  end
  planes[1], planes[2] = 1, samples * channels
  local function each_sample(t) return t and t:tile(samples) end
  local means, vars = each_sample(mean), each_sample(var)
  local result = C.batch_norm(input:reshape(planes), means, vars, each_sample(weight), each_sample(bias), use_input,
    momentum, eps)
  if use_input then
    C.autograd.no_grad(function()
      if mean then mean:copy_(means:view(samples, channels):mean(0)) end
      if var then var:copy_(vars:view(samples, channels):mean(0)) end
    end)
  end
  return result:view(sizes)
end)

--- x / (k + alpha mean(x'^2))^beta, the mean over `size` neighbouring channels x' of [N, C, ...], with zeros beyond the
-- first and last (Krizhevsky et al., 2012).
--
--   F.local_response_norm(images, 2):size(-1)  --> 28
---@return userdata # like input
F.local_response_norm = checked("local_response_norm", {
  "input: tensor", "size: count", {"alpha: number", 1e-4}, {"beta: number", 0.75}, {"k: number", 1},
}, function(input, size, alpha, beta, k)
  if input:dim() < 3 then fail("local_response_norm: expected an input (N, C, ...), got %s", shape_text(input)) end
  if input:numel() == 0 then return input end
  local sizes = input:shape()
  local before, after = math.floor(size / 2), math.floor((size - 1) / 2)
  local squares = (input * input):reshape(sizes[1], 1, sizes[2], -1)
  local rest = squares:size(3)
  squares = C.cat({squares:new_zeros {sizes[1], 1, before, rest}, squares,
    squares:new_zeros {sizes[1], 1, after, rest}}, 2)
  local means = C.avg_pool2d(squares, {size, 1}, 1)
  return input / (means * alpha + k):pow(beta):reshape(sizes)
end)

return F
