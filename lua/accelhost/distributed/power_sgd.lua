--- PowerSGD (Vogels and others, 2019): a gradient that is a matrix [n, m] is sent as two thin ones, [n, r] and [m, r],
--- whose product is near it; the error of the product is added to the next gradient. The matrices are the gradients of
--- a bucket, or the whole bucket as one square.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local default_hooks = require "accelhost.distributed.default_hooks"
local groups = require "accelhost.distributed.groups"
local work = require "accelhost.distributed.work"
local fail = arguments.fail

local power = {}

---@field iter integer backwards so far
local PowerSGDState = class.new "PowerSGDState"
power.PowerSGDState = PowerSGDState

local read_state = arguments.signature("PowerSGDState", {
  {"process_group: group"}, {"matrix_approximation_rank: count", 1}, {"start_powerSGD_iter: size", 1000},
  {"min_compression_rate: nonnegative", 2}, {"use_error_feedback: flag", true}, {"warm_start: flag", true},
  {"orthogonalization_epsilon: nonnegative", 0}, {"random_seed: integer", 0},
  {"compression_stats_logging_frequency: size", 10000}, {"batch_tensors_with_same_shape: flag", false},
})

--- The state of powerSGD_hook and batched_powerSGD_hook, one for each model.
--
--   dist.algorithms.ddp_comm_hooks.powerSGD_hook.PowerSGDState {start_powerSGD_iter = 10}
---@param matrix_approximation_rank? integer the r above; default 1
---@param start_powerSGD_iter? integer number of backwards that are averaged in full before, at least 2 with error
--- feedback or warm start; default 1000
---@param min_compression_rate? number a gradient is sent in full unless it becomes smaller by more than that; default 2
---@param use_error_feedback? boolean default true: add the error to the next gradient
---@param warm_start? boolean default true: begin with the last backward's thin matrices
---@param orthogonalization_epsilon? number added to norms, where columns of zeros are to be expected; default 0
---@param random_seed? integer of the first thin matrices; the same on all processes; default 0
---@param compression_stats_logging_frequency? integer makes no difference: compression_stats() returns them at any time
---@param batch_tensors_with_same_shape? boolean default false: matrices of one shape are multiplied together
function PowerSGDState:init(...)
  self.process_group, self.matrix_approximation_rank, self.start_powerSGD_iter, self.min_compression_rate,
    self.use_error_feedback, self.warm_start, self.orthogonalization_epsilon, self.random_seed,
    self.compression_stats_logging_frequency, self.batch_tensors_with_same_shape = read_state(...)
  if (self.use_error_feedback or self.warm_start) and self.start_powerSGD_iter <= 1 then
    fail("PowerSGDState: start_powerSGD_iter: expected at least 2 with error feedback or warm start, got %d",
      self.start_powerSGD_iter)
  end
  self.generator = C.random.Generator(self.random_seed)
  self.errors, self.ps, self.qs = {}, {}, {} -- by bucket
  self.iter, self.numel_before, self.numel_after = 0, 0, 0
end

--- Return the compression of the gradients so far.
--
--   dist.algorithms.ddp_comm_hooks.powerSGD_hook.PowerSGDState():compression_stats()  --> 0, 0, 0
---@return number rate elements before per element after, 0 before anything was compressed
---@return integer before elements of gradients
---@return integer after elements that were sent for them
function PowerSGDState:compression_stats()
  return self.numel_after > 0 and self.numel_before / self.numel_after or 0, self.numel_before, self.numel_after
end

local function count_bucket(state, bucket)
  if bucket:is_last() then state.iter = state.iter + 1 end
end

-- Columns [batch, n, r] made orthogonal and of length 1, in place.
local function orthogonalize(state, matrices)
  local columns, epsilon = matrices:size(2), state.orthogonalization_epsilon
  for i = 0, columns - 1 do
    local column = matrices:narrow(2, i, 1)
    local length = (column * column):sum(1, true):sqrt()
    if epsilon > 0 then
      column:div_(length + epsilon)
    else -- a column of zeros stays one
      column:div_(length:masked_fill(length:eq(0), 1))
    end
    if i + 1 < columns then
      local rest = matrices:narrow(2, i + 1, columns - i - 1)
      rest:sub_((column * rest):sum(1, true) * column)
    end
  end
end

-- Sort the gradients into those that are compressed and those that are sent uncompressed.
local function sort_gradients(state, gradients)
  local matrices, plain = {}, {}
  for _, gradient in ipairs(gradients) do
    local n = gradient:dim() > 0 and gradient:size(0) or 1
    local m = n > 0 and gradient:numel() / n or 0
    local rank = math.min(n, m, state.matrix_approximation_rank)
    local whole, thin = n * m, (n + m) * rank
    local compress = thin * state.min_compression_rate < whole
    state.numel_before = state.numel_before + whole
    state.numel_after = state.numel_after + (compress and thin or whole)
    if compress then
      matrices[#matrices + 1] = {gradient = gradient, matrix = gradient:reshape(n, m), n = n, m = m, rank = rank}
    else
      plain[#plain + 1] = gradient
    end
  end
  return matrices, plain
end

-- The bucket as one matrix.
local function as_square(state, square, elements)
  local side = square:size(0)
  local rank = math.min(side, state.matrix_approximation_rank)
  state.numel_before, state.numel_after = state.numel_before + elements, state.numel_after + 2 * side * rank
  return {{gradient = square, matrix = square, n = side, m = side, rank = rank}}, {}
end

-- Batches [batch, n, m]: of one matrix each, or of all of one shape.
local function batches_of(state, matrices)
  local list, by_shape = {}, {}
  for _, one in ipairs(matrices) do
    local key = ("%d x %d"):format(one.n, one.m)
    local batch = state.batch_tensors_with_same_shape and by_shape[key]
    if not batch then
      batch = {n = one.n, m = one.m, rank = one.rank, members = {}}
      by_shape[key], list[#list + 1] = batch, batch
    end
    table.insert(batch.members, one)
  end
  for _, batch in ipairs(list) do
    local rows = {}
    for i, one in ipairs(batch.members) do rows[i] = one.matrix:unsqueeze(0) end
    batch.value = #rows == 1 and rows[1] or C.cat(rows, 0)
  end
  return list
end

-- The thin matrices of all batches side by side in one tensor, which is summed at once.
local function lay_out(state, index, batches, like)
  local p_size, q_size = 0, 0
  for _, batch in ipairs(batches) do
    local count = #batch.members * batch.rank
    p_size, q_size = p_size + count * batch.n, q_size + count * batch.m
  end
  local fresh = not state.warm_start or not state.ps[index]
  if fresh then state.ps[index], state.qs[index] = like:new_empty({p_size}), like:new_empty({q_size}) end
  local p_at, q_at = 0, 0
  for _, batch in ipairs(batches) do
    local count = #batch.members
    local p_count, q_count = count * batch.n * batch.rank, count * batch.m * batch.rank
    batch.p = state.ps[index]:narrow(0, p_at, p_count):view(count, batch.n, batch.rank)
    batch.q = state.qs[index]:narrow(0, q_at, q_count):view(count, batch.m, batch.rank)
    p_at, q_at = p_at + p_count, q_at + q_count
    -- Drawn on the CPU, so that it is the same on every device.
    if fresh then
      batch.q:copy_(batch.q:new_empty(batch.q:shape(), {device = "cpu"}):normal_({generator = state.generator}))
    end
  end
  return state.ps[index], state.qs[index]
end

-- One process's part of the compression of its gradients. `sort` returns the parts of the buffer that are compressed
-- and those that are not.
local function compress(state, group, index, buffer, sort, ...)
  local before
  if state.use_error_feedback then
    if state.errors[index] then buffer:add_(state.errors[index]) end
    before = buffer:clone()
  end
  local matrices, plain = sort(state, ...)
  local batches = batches_of(state, matrices)
  local p, q = lay_out(state, index, batches, buffer)
  for _, batch in ipairs(batches) do
    orthogonalize(state, batch.q)
    batch.p:copy_(batch.value:matmul(batch.q))
  end
  local rows = {}
  for i, gradient in ipairs(plain) do rows[i] = gradient:reshape(-1) end
  local flat = #rows > 0 and C.cat(rows, 0)
  local sent = flat and default_hooks.begin_sum(group, flat:div_(group:size()))
  local thin = #batches > 0 and default_hooks.begin_sum(group, p)
  return work.Future(function()
    local at = 0
    if sent then sent:wait() end
    for _, gradient in ipairs(plain) do
      gradient:copy_(flat:narrow(0, at, gradient:numel()):view(gradient:shape()))
      at = at + gradient:numel()
    end
    if thin then
      thin:wait()
      for _, batch in ipairs(batches) do
        orthogonalize(state, batch.p)
        batch.q:copy_(batch.value:transpose(1, 2):matmul(batch.p))
      end
      default_hooks.begin_sum(group, q:div_(group:size())):wait()
      for _, batch in ipairs(batches) do
        local near = batch.p:matmul(batch.q:transpose(1, 2))
        for i, one in ipairs(batch.members) do one.gradient:copy_(near[i - 1]:reshape(one.gradient:shape())) end
      end
    end
    if before then state.errors[index] = before:sub_(buffer) end
    if not state.warm_start then state.ps[index], state.qs[index] = nil, nil end
    return buffer
  end)
end

-- The group of a hook's state, and the plain average while the state's first iterations last.
local function begin(name, state, bucket)
  if not class.is(state, PowerSGDState) then
    fail("%s: state: expected a PowerSGDState, got %s", name, arguments.describe(state))
  end
  local group = groups.resolve(name, state.process_group)
  local whole = state.iter < state.start_powerSGD_iter
  count_bucket(state, bucket)
  return group, whole and default_hooks.allreduce_hook(state.process_group, bucket) or nil
end

--- Send low-rank approximations of the gradients (PowerSGD) after the state's first iterations. Weights of models that
--- are not trained so stay the same on all processes.
--
--   local power = dist.algorithms.ddp_comm_hooks.powerSGD_hook
--   ddp:register_comm_hook(power.PowerSGDState {start_powerSGD_iter = 10}, power.powerSGD_hook)
---@param state PowerSGDState
---@return Future
function power.powerSGD_hook(state, bucket)
  local group, average = begin("powerSGD_hook", state, bucket)
  if average then return average end
  return compress(state, group, bucket:index(), bucket:buffer(), sort_gradients, bucket:gradients())
end

--- Send a low-rank approximation of each bucket as a whole: all its gradients, one behind the other, as a square matrix
--- that zeros fill up. Fewer and larger products than powerSGD_hook, at a lower accuracy: the rows are no gradients'.
--- min_compression_rate has no part in it.
--
--   local power = dist.algorithms.ddp_comm_hooks.powerSGD_hook
--   ddp:register_comm_hook(power.PowerSGDState {start_powerSGD_iter = 10}, power.batched_powerSGD_hook)
---@param state PowerSGDState
---@return Future
function power.batched_powerSGD_hook(state, bucket)
  local group, average = begin("batched_powerSGD_hook", state, bucket)
  if average then return average end
  local gradients, rows, count, at = bucket:gradients(), {}, 0, 0
  for i, gradient in ipairs(gradients) do
    rows[i], count = gradient:reshape(-1), count + gradient:numel()
  end
  local side = math.ceil(math.sqrt(count))
  rows[#rows + 1] = rows[1]:new_zeros {side * side - count}
  local flat = C.cat(rows, 0)
  return compress(state, group, bucket:index(), flat, as_square, flat:view(side, side), count):chain(function()
    for _, gradient in ipairs(gradients) do
      gradient:copy_(flat:narrow(0, at, gradient:numel()):view(gradient:shape()))
      at = at + gradient:numel()
    end
    return bucket:buffer()
  end)
end

return power
