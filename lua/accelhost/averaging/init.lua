--- The gradient average of every backward of a job: gradients of prepared models are averaged, whether the script calls
--- accelerator:backward(loss) or loss:backward(), as by the hooks of PyTorch's DDP.
--
-- accelerator:backward is a collective: all processes agree on the accelerator's models that the loss reached. A plain
-- backward averages the models that it reached on this process, so that a process alone may differentiate models that
-- are not prepared.
local C = require "accelhost._C"
local Parallel = require "accelhost.averaging.parallel"
local warn = require "accelhost.util.warn"
local comm = C.comm

local averaging = {}

-- The prepared models in the order of prepare: the same on all processes.
---@type Parallel[]
local handles = {}

-- Set by accelerator:backward for the backward that it is about to start.
local asking, asked_weight

-- Models whose parameters are collected on all processes are removed; those of some processes only stay. A collective.
local function sweep()
  collectgarbage()
  local shared, flags, removed = {}, {}, {}
  for _, handle in ipairs(handles) do
    if not handle.group then shared[#shared + 1] = handle end
  end
  for i, handle in ipairs(shared) do flags[i] = handle:abandoned() and 1 or 0 end
  if comm.size() > 1 then
    local all = C.tensor(flags, {device = "cpu"})
    comm.all_reduce(all, "min")
    flags = all:tolist()
  end
  for i, handle in ipairs(shared) do removed[handle] = flags[i] == 1 end
  averaging.remove(function(handle) return removed[handle] end)
end

--- Add a model. A collective.
---@param model table
---@param accelerator Accelerator|table the one that prepares it: its sync_gradients and _micro_step are read
---@param options table as of Parallel
---@return Parallel
function averaging.add(model, accelerator, options)
  local kind = options.virtual_shards and require "accelhost.averaging.virtual_shards" or Parallel
  local handle = kind(model, accelerator, options)
  handles[#handles + 1] = handle
  if not options.group then sweep() end
  return handle
end

--- Let go of the handles for which `leaves` is true.
---@param leaves fun(handle: Parallel, i: integer): boolean
function averaging.remove(leaves)
  local kept = {}
  for i, handle in ipairs(handles) do
    if leaves(handle, i) then
      handle:close()
    else
      kept[#kept + 1] = handle
    end
  end
  handles = kept
end

--- The handles of an accelerator.
---@return Parallel[]
function averaging.of(accelerator)
  local own = {}
  for _, handle in ipairs(handles) do
    if handle.accelerator == accelerator then own[#own + 1] = handle end
  end
  return own
end

--- The handle of an accelerator's model, nil when it has not prepared it.
---@param model table
---@return Parallel?
function averaging.find(accelerator, model)
  for _, handle in ipairs(handles) do
    if handle.accelerator == accelerator and handle:belongs_to(model) then return handle end
  end
end

--- Make the parameters of an accelerator's models whole, so that one process may read them, where they are shared out
--- among devices. A collective.
function averaging.make_whole(accelerator)
  for _, handle in ipairs(averaging.of(accelerator)) do
    if handle.shard then handle.reducer:make_whole() end
  end
end

--- Release them again.
function averaging.release(accelerator)
  for _, handle in ipairs(averaging.of(accelerator)) do
    if handle.shard then handle.reducer:release() end
  end
end

--- Return this process's shard of the parameter's model, nil when its state is not sharded.
---@return Shard?
function averaging.shard_of(parameter)
  local handle = Parallel.of(parameter)
  return handle and handle.shard or nil
end

--- Differentiate a loss for an accelerator. A collective in a step that synchronises.
---@param loss userdata
---@param weight? number nil: it counts as itself
---@param options {retain_graph?: boolean}
function averaging.backward(accelerator, loss, weight, options)
  asking, asked_weight = accelerator, weight
  C.autograd.backward(loss, nil, options)
end

-- A backward that is under way: the one model of the accelerator that asked, which participates on every process; which
-- models the loss reaches, where that was found out beforehand; and the model whose buckets go out while it runs.
local lone, expected, early

local function only_one(accelerator)
  local found
  for i = 1, #handles do
    if handles[i].accelerator == accelerator then
      if found then return nil end
      found = handles[i]
    end
  end
  return found
end

local function any_sync(of)
  for _, handle in ipairs(of) do
    if handle.sync then return true end
  end
  return false
end

-- Agree, before a backward, on the models that it reaches on any process.
local function agree(asked, reached)
  local flags = {}
  for i, handle in ipairs(asked) do flags[i] = reached[handle] and 1 or 0 end
  local all = C.tensor(flags, {device = "cpu"})
  comm.all_reduce(all, "sum")
  for i, count in ipairs(all:tolist()) do reached[asked[i]] = count > 0 end
end

-- The same where some may be through with their inputs; the buffers are those of one that is not.
local function join_round(joining, asked, reached)
  local flags = {}
  for i, handle in ipairs(asked) do flags[i] = reached[handle] == true end
  joining:ask(flags)
  for i, handle in ipairs(asked) do reached[handle] = joining.wanted[i] end
  averaging.follow(asked, joining.speaker)
end

-- Return the models that a backward from the roots will reach: those of the calling accelerator on any process, when it
-- synchronises, the others on this one. Known beforehand, so that the buckets of one among several overlap too.
local function reached_models(roots, accelerator)
  local reached, asked = {}, accelerator and averaging.of(accelerator) or {}
  for _, leaf in ipairs(C.autograd.prepared_leaves(roots)) do
    local handle = Parallel.of(leaf)
    if handle then reached[handle] = true end
  end
  if any_sync(asked) then
    if accelerator._joining then
      join_round(accelerator._joining, asked, reached)
    else
      agree(asked, reached)
    end
  end
  return reached
end

--- Have the buffers of models follow a process's.
---@param of Parallel[]
function averaging.follow(of, rank)
  for _, handle in ipairs(of) do handle.reducer:buffers_from(rank) end
end

--- Join the remaining backwards of the other processes of an accelerator until they have finished. A collective.
---@param joining Joining
function averaging.shadow(accelerator, joining)
  local asked = averaging.of(accelerator)
  joining:stay(function()
    averaging.follow(asked, joining.speaker)
    for i, handle in ipairs(asked) do
      if joining.wanted[i] then handle:shadow() end
    end
  end)
  averaging.follow(asked, 0)
end

-- The only model that is to be averaged after this backward.
local function only_expected()
  local found
  for i = 1, #handles do
    local handle = handles[i]
    if expected[handle] and handle.sync then
      if found then return nil end
      found = handle
    end
  end
  return found
end

local function before(roots)
  local accelerator, weight = asking, asked_weight
  asking, asked_weight = nil, nil
  local joining = accelerator and accelerator._joining
  lone, expected, early = accelerator and not joining and only_one(accelerator) or nil, nil, nil
  for i = 1, #handles do
    local handle = handles[i]
    local owner = handle.accelerator
    handle:begin_backward(owner == accelerator and weight or nil, owner._micro_step)
  end
  if lone then lone:check() end
  local first = lone or (#handles == 1 and not accelerator and handles[1])
  if not first and #handles > 0 and comm.size() > 1 then
    expected = reached_models(roots, accelerator)
    first = only_expected()
  end
  if first and first.sync then
    first:check()
    early = first
    first:begin_average()
  end
end

-- One that the loss does not depend on keeps its gradients and its window.
local function finish(handle, reached)
  if not reached then return handle:skip() end
  handle:check()
  if handle.sync then
    if handle ~= early then handle:begin_average() end
    handle:finish_average()
  else
    handle:after_accumulation()
  end
end

local function after()
  local any = false
  for i = 1, #handles do
    local handle = handles[i]
    local reached = handle:was_reached()
    if expected then reached = expected[handle] == true end
    any = any or reached
    -- A lone model that this process did not reach counts as zero.
    finish(handle, reached or handle == lone)
  end
  lone, expected, early = nil, nil, nil
  if not any and comm.size() > 1 then
    warn("backward: the loss depends on no prepared model, so its gradients are not averaged over the processes; "
      .. "pass the model to accelerator:prepare")
  end
end

local function failed()
  for i = 1, #handles do handles[i]:skip() end
  lone, expected, early = nil, nil, nil
end

C.autograd.watch_backward(before, after, failed)

return averaging
