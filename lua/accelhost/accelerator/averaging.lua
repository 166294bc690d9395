--- What happens around every backward of a job: gradients of prepared models are averaged, whether the script calls
--- accelerator:backward(loss) or loss:backward(), as hooks do it in PyTorch's DDP.
--
-- accelerator:backward is a collective: all processes agree which of that accelerator's models the loss reached. A
-- plain backward averages the models that it reached on this process, so that a process may differentiate by itself
-- what is not prepared.
local C = require "accelhost._C"
local Parallel = require "accelhost.accelerator.parallel"
local warn = require "accelhost.util.warn"
local comm = C.comm

local averaging = {}

-- The prepared models in the order of prepare: the same on all processes.
---@type Parallel[]
local handles = {}

-- What accelerator:backward says about the backward that it is about to start.
local asking, asked_weight

-- Models whose parameters are gone on all processes are forgotten. A collective, when there are any handles.
local function sweep()
  if #handles == 0 then return end
  collectgarbage()
  local gone = {}
  for i, handle in ipairs(handles) do gone[i] = handle:abandoned() and 1 or 0 end
  if comm.size() > 1 then
    local all = C.tensor(gone, {device = "cpu"})
    comm.all_reduce(all, "min")
    gone = all:tolist()
  end
  local kept = {}
  for i, handle in ipairs(handles) do
    if gone[i] == 1 then
      handle:close()
    else
      kept[#kept + 1] = handle
    end
  end
  handles = kept
end

--- Take a model in. A collective.
---@param model table
---@param accelerator Accelerator
---@param options {bucket_cap_mb?: number}
function averaging.add(model, accelerator, options)
  handles[#handles + 1] = Parallel(model, accelerator, options)
  sweep()
end

--- Let go of the handles for which `leaves` is true.
---@param leaves fun(handle: Parallel): boolean
function averaging.remove(leaves)
  local kept = {}
  for _, handle in ipairs(handles) do
    if leaves(handle) then
      handle:close()
    else
      kept[#kept + 1] = handle
    end
  end
  handles = kept
end

--- The handles of an accelerator.
---@param accelerator Accelerator
---@return Parallel[]
function averaging.of(accelerator)
  local own = {}
  for _, handle in ipairs(handles) do
    if handle.accelerator == accelerator then own[#own + 1] = handle end
  end
  return own
end

--- Differentiate a loss for an accelerator. A collective in a step that synchronises.
---@param accelerator Accelerator
---@param loss userdata
---@param weight number
---@param options {retain_graph?: boolean}
function averaging.backward(accelerator, loss, weight, options)
  asking, asked_weight = accelerator, weight
  C.autograd.backward(loss, nil, options)
end

-- A backward that is under way: who asked for it, and the one model whose buckets may go out while it runs.
local current, early

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

local function before()
  local accelerator, weight = asking, asked_weight
  asking, asked_weight = nil, nil
  current, early = accelerator, nil
  for i = 1, #handles do
    local handle = handles[i]
    local owner = handle.accelerator
    handle:begin_backward(owner == accelerator and weight or nil, owner._micro_step, owner.sync_gradients)
  end
  local only
  if accelerator then
    only = only_one(accelerator)
  elseif #handles == 1 then
    only = handles[1]
  end
  if only and only.accelerator.sync_gradients then
    only:check()
    early = only
    only:begin_average()
  end
end

-- Which models the loss depended on: on any process when they are to agree, else on this one.
local function reached_models(asked, agree)
  local reached = {}
  for i, handle in ipairs(asked) do reached[i] = handle:was_reached() and 1 or 0 end
  if agree and comm.size() > 1 then
    local all = C.tensor(reached, {device = "cpu"})
    comm.all_reduce(all, "max")
    reached = all:tolist()
  end
  return reached
end

-- One that the loss does not depend on keeps its gradients and its window as they are.
local function finish(handle, reached)
  if not reached then return handle:skip() end
  handle:check()
  if handle.accelerator.sync_gradients then
    if handle ~= early then handle:begin_average() end
    handle:finish_average()
  end
end

local function after()
  local accelerator, any = current, false
  local only = accelerator and only_one(accelerator)
  if only then
    -- Alone it takes part on every process: one that did not reach it counts as zero.
    any = only:was_reached()
    finish(only, true)
  elseif accelerator then
    local asked = averaging.of(accelerator)
    for i, reached in ipairs(#asked > 0 and reached_models(asked, accelerator.sync_gradients) or {}) do
      any = any or reached == 1
      finish(asked[i], reached == 1)
    end
  end
  for i = 1, #handles do
    local handle = handles[i]
    if handle.accelerator ~= accelerator then
      local reached = handle:was_reached()
      any = any or reached
      finish(handle, reached)
    end
  end
  current, early = nil, nil
  if not any and comm.size() > 1 then
    warn("backward: the loss depends on no prepared model, so its gradients are not averaged over the processes; "
      .. "give the model to accelerator:prepare")
  end
end

local function failed()
  for i = 1, #handles do handles[i]:skip() end
  current, early = nil, nil
end

C.autograd.watch_backward(before, after, failed)

return averaging
