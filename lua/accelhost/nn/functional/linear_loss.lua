--- Cross entropy of a linear map, without its logits.
--
-- Rows are computed in chunks. Where gradients are wanted those of a chunk's logits are made at once, and become the
-- rows' gradients of the input and a summand of the weight's, so that logits of one chunk exist at a time. Second
-- derivatives are those of linear and cross_entropy.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autograd = require "accelhost.autograd"
local reduction_row = require("accelhost.nn.functional.reduction").row

local checked, fail, shape_text = arguments.checked, arguments.fail, arguments.shape_text
local F = {}

local what = "linear_cross_entropy"
-- The least number of logits of a chunk, on the CPU and on devices: its products are efficient then, and the weight's
-- gradient is a sum over few chunks.
local LEAST, LEAST_OF_DEVICES = 2 ^ 20, 2 ^ 29

local function is_half(tensor) return tensor.dtype == "float16" or tensor.dtype == "bfloat16" end

-- The losses of rows with labels, or of rows with probabilities; in float32 for fp16 and bf16.
local function loss_of_rows(input, weight, bias, target, how, reduction)
  local logits = C.linear(input, weight, bias)
  local loss
  if how.labels then
    loss = C.cross_entropy_rows(logits, target, how.weight, how.ignore_index, reduction, how.label_smoothing, true)
  else
    local wide = is_half(logits)
    loss = C.cross_entropy(wide and logits:float() or logits, wide and target:float() or target,
      {weight = how.weight, reduction = reduction, label_smoothing = how.label_smoothing})
  end
  logits:free() -- their gradient is written over them
  return loss
end

-- The loss by the whole of the logits.
local function whole(input, weight, bias, target, how)
  local loss = loss_of_rows(input, weight, bias, target, how, how.reduction)
  return loss.dtype == how.dtype and loss or loss:to(how.dtype)
end

-- The number that divides the sum of the losses: of rows, or the sum of their labels' weights.
local function total_of(input, target, how)
  if how.reduction ~= "mean" then return nil end
  if not how.labels then return C.full({}, input:size(0), {dtype = "float64", device = input.device}) end
  local counts = target:ne(how.ignore_index)
  if not how.weight then return counts:sum():double() end
  local weights = how.weight:index_select(0, C.where(counts, target, 0):long())
  return C.where(counts, weights, 0):sum({dtype = "float64"})
end

-- The gradients that are wanted, by the places of input, weight and bias, added up over chunks; those of fp16 and bf16
-- are in float32, but for the input's.
local function new_sums(needs, input) return {needs = needs, half = is_half(input)} end

local function add_gradient(sums, place, made, input, first, count)
  if place == 1 then
    sums[1] = sums[1] or C.empty(input:shape(), {dtype = input.dtype, device = input.device})
    sums[1]:narrow(0, first, count):copy_(made)
  elseif sums[place] then
    sums[place]:add_(made)
    made:free()
  else
    sums[place] = sums.half and made:float() or made
  end
end

-- Compute a chunk's loss and add its gradients, where `grad` is the loss's.
local function add_chunk(sums, input, weight, bias, target, how, first, count, reduction, grad)
  local rows, leaf, leaf_bias = input:narrow(0, first, count):detach(), weight:detach(), bias and bias:detach()
  local leaves, places = {}, {}
  for place, tensor in pairs {rows, leaf, leaf_bias} do
    if sums.needs[place] then
      leaves[#leaves + 1], places[#places + 1] = tensor:requires_grad_(), place
    end
  end
  local loss, grads = C.autograd.enable_grad(function()
    local own = loss_of_rows(rows, leaf, leaf_bias, target:narrow(0, first, count), how, reduction)
    return own:detach(), C.autograd.grad({own}, leaves, {grad_outputs = {grad}})
  end)
  for i, place in ipairs(places) do add_gradient(sums, place, grads[i], input, first, count) end
  return loss
end

-- The gradients times a factor (a tensor), if any, in the dtypes of the arguments. They are scaled in place.
local function scaled(sums, factor, input, weight, bias)
  local list = {}
  for place, like in pairs {input, weight, bias} do
    local grad = sums[place]
    if grad and factor then grad:mul_(factor) end
    list[place] = grad and grad.dtype ~= like.dtype and grad:to(like.dtype) or grad
  end
  return list[1], list[2], list[3]
end

local Chunked = autograd.Function:extend(what)

local function each_chunk(input, how, fn)
  local count = input:size(0)
  for first = 0, count - 1, how.rows do fn(first, math.min(how.rows, count - first)) end
end

-- Of halves the gradients of the sum are scaled at the end, in float32: within a chunk they would underflow.
local function set_scales(ctx, input, total)
  local half = is_half(input)
  local inverse = total and 1 / total
  ctx.scale = inverse and not half and inverse:to(input.dtype)
    or C.ones({}, {dtype = half and "float32" or input.dtype, device = input.device})
  ctx.factor = inverse and half and inverse:float() or nil
end

function Chunked.forward(ctx, input, weight, bias, target, how)
  ctx:save_for_backward(input, weight, target, bias)
  ctx.how = how
  local needs, total, losses = ctx.needs_input_grad, total_of(input, target, how), {}
  set_scales(ctx, input, total)
  if how.recording and (needs[1] or needs[2] or needs[3]) and how.reduction ~= "none" then
    ctx.sums = new_sums(needs, input)
  end
  each_chunk(input, how, function(first, count)
    if ctx.sums then
      losses[#losses + 1] = add_chunk(ctx.sums, input, weight, bias, target, how, first, count, "sum", ctx.scale)
    else
      losses[#losses + 1] = loss_of_rows(input:narrow(0, first, count), weight, bias, target:narrow(0, first, count),
        how, how.reduction == "none" and "none" or "sum")
    end
  end)
  if how.reduction == "none" then return C.cat(losses, 0):to(how.dtype) end
  local loss = C.stack(losses):sum({dtype = "float64"})
  return (total and loss / total or loss):to(how.dtype)
end

-- The same by ops that have second derivatives.
local function differentiable(ctx, grad, input, weight, bias, target)
  local wanted, places, list = {}, {}, {}
  for place, tensor in pairs {input, weight, bias} do
    if ctx.needs_input_grad[place] then wanted[#wanted + 1], places[#places + 1] = tensor, place end
  end
  local grads = C.autograd.grad({whole(input, weight, bias, target, ctx.how)}, wanted,
    {grad_outputs = {grad}, create_graph = true})
  for i, place in ipairs(places) do list[place] = grads[i] end
  return list[1], list[2], list[3]
end

function Chunked.backward(ctx, grad)
  local how, sums = ctx.how, ctx.sums
  local input, weight, target, bias = unpack(ctx.saved_tensors, 1, 4)
  if C.autograd.is_grad_enabled() then return differentiable(ctx, grad, input, weight, bias, target) end
  local by_row = how.reduction == "none" and grad:to(ctx.scale.dtype)
  ctx.sums = nil -- another backward computes them again
  if not sums then
    sums = new_sums(ctx.needs_input_grad, input)
    each_chunk(input, how, function(first, count)
      add_chunk(sums, input, weight, bias, target, how, first, count, by_row and "none" or "sum",
        by_row and by_row:narrow(0, first, count) or ctx.scale)
    end)
  end
  if by_row then return scaled(sums, nil, input, weight, bias) end
  return scaled(sums, ctx.factor and grad:float() * ctx.factor or grad, input, weight, bias)
end

-- Raise the error of a chunk; that of a label with its position in all of them. Devices report labels later.
local function raise(problem, target, how, classes)
  if not how.labels or target.device ~= "cpu" then error(problem, 0) end
  local outside = target:lt(0):logical_or(target:ge(classes)):logical_and(target:ne(how.ignore_index))
  if not outside:any():item() then error(problem, 0) end
  local place = outside:nonzero():flatten():narrow(0, 0, 1):item()
  fail("%s: target %d at position %d is outside 0..%d", what, target:narrow(0, place, 1):item(), place, classes - 1)
end

local function check_shapes(input, weight, bias)
  if input:dim() < 1 or input:dim() > 2 then
    fail("%s: input: expected (in_features) or (N, in_features), got shape %s", what, shape_text(input))
  end
  if weight:dim() < 2 or weight:size(-1) ~= input:size(-1) then
    fail("%s: linear_weight: expected (classes, ..., %d) for input %s, got %s", what, input:size(-1),
      shape_text(input), shape_text(weight))
  end
  local sizes = weight:shape()
  sizes[#sizes] = nil
  if #sizes > 1 and input:dim() == 1 then
    fail("%s: expected an input (N, in_features) for linear_weight %s, got %s", what, shape_text(weight),
      shape_text(input))
  end
  local classes = arguments.sizes_text(sizes)
  if bias and shape_text(bias) ~= classes then
    fail("%s: linear_bias: expected the shape %s of linear_weight's classes, got %s", what, classes, shape_text(bias))
  end
  return sizes
end

-- Several losses for each row, of a weight (classes, d1, ..., in_features).
local function of_dims(input, weight, bias, target, how, sizes)
  local logits = C.linear(input, weight:reshape(-1, weight:size(-1)), bias and bias:reshape(-1))
  local loss = C.cross_entropy(logits:reshape(input:size(0), unpack(sizes)), target, {
    weight = how.weight, ignore_index = how.ignore_index, reduction = how.reduction,
    label_smoothing = how.label_smoothing,
  })
  return loss:to(how.dtype)
end

-- The loss of rows (N, in_features).
local function of_rows(input, weight, bias, target, how)
  local count, classes = input:size(0), weight:size(0)
  local fits = how.labels and target:dim() == 1 and target:size(0) == count
    or not how.labels and target:dim() == 2 and target:size(0) == count and target:size(1) == classes
  if not fits then
    fail("%s: target: expected labels (N) or probabilities (N, classes) for input %s and linear_weight %s, got %s %s",
      what, shape_text(input), shape_text(weight), target.dtype, shape_text(target))
  end
  if how.weight and is_half(input) then how.weight = how.weight:float() end
  local least = input.device == "cpu" and LEAST or LEAST_OF_DEVICES
  how.rows = how.rows or math.max(input:size(1), math.ceil(least / math.max(classes, 1)))
  if count <= how.rows or target.requires_grad then return whole(input, weight, bias, target, how) end
  how.recording = C.autograd.is_grad_enabled()
  local fine, loss = pcall(Chunked.apply, input, weight, bias, target, how)
  return fine and loss or raise(loss, target, how, classes)
end

local function compute(input, weight, bias, target, how)
  local sizes = check_shapes(input, weight, bias)
  if #sizes > 1 then return of_dims(input, weight, bias, target, how, sizes) end
  if input:dim() == 2 then return of_rows(input, weight, bias, target, how) end
  local loss = of_rows(input:unsqueeze(0), weight, bias, target:unsqueeze(0), how)
  return how.reduction == "none" and loss:squeeze(0) or loss
end

local read_options = arguments.signature(what .. ": options", {{"batch_chunk_size: count"}})

--- F.cross_entropy of F.linear(input, linear_weight, linear_bias), whose logits [N, classes] are never stored: they are
-- computed in chunks of rows, and so are the gradients. For language models, whose vocabulary makes them the largest
-- tensor of a step; model{..., labels = ids, skip_logits = true} uses it. Losses and gradients are those of the two
-- functions but for rounding; of labels they have the same bits where there is one chunk.
--
--   F.linear_cross_entropy(accelhost.ones(3, 2), accelhost.zeros(4, 2), accelhost.arange(3))  --> tensor(1.3863)
---@param input userdata (N, in_features) or (in_features)
---@param linear_weight userdata (classes, in_features); with further dims (classes, d1, ..., in_features) each row has
--- a loss for each place in these, by the whole of the logits
---@param target userdata labels (N), or probabilities (N, classes)
---@param linear_bias? userdata (classes)
---@param weight? userdata (classes): weighs the classes
---@param ignore_index? integer label that counts nothing; default -100
---@param options? table batch_chunk_size: rows of a chunk; default: as many as in_features, which makes its logits as
--- large as the weight, and at least 2^20 logits (2^29 on devices)
F.linear_cross_entropy = checked("linear_cross_entropy", {
  "input: tensor", "linear_weight: tensor", "target: tensor", {"linear_bias: tensor"}, {"weight: tensor"},
  reduction_row, {"ignore_index: integer"}, {"label_smoothing: number", 0}, {"options: table"},
}, function(input, linear_weight, target, linear_bias, weight, reduction, ignore_index, label_smoothing, options)
  local labels = not target:is_floating_point()
  if not labels and ignore_index then fail("%s: ignore_index: it is for labels, the target has probabilities", what) end
  if not (label_smoothing >= 0 and label_smoothing <= 1) then
    fail("%s: label_smoothing: expected 0..1, got %g", what, label_smoothing)
  end
  local how = {
    labels = labels, weight = weight, reduction = reduction, ignore_index = ignore_index or -100,
    label_smoothing = label_smoothing, rows = options and next(options) and read_options(options), dtype = input.dtype,
  }
  if not C.autocast.is_enabled() then return compute(input, linear_weight, linear_bias, target, how) end
  return C.autocast.call("lower", "lower", function(x, w, b)
    how.dtype = is_half(x) and "float32" or x.dtype
    return compute(x, w, b, target, how)
  end, input, linear_weight, linear_bias)
end)

return F
