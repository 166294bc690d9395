--- DistributedDataParallel: a model whose gradients are averaged over the processes while backward runs.
--
-- The work is done by the reducer that accelerator:prepare uses too (averaging/init.lua): this is a face of it with
-- PyTorch's names.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local averaging = require "accelhost.averaging"
local comm_hook = require "accelhost.distributed.comm_hook"
local groups = require "accelhost.distributed.groups"
local join = require "accelhost.distributed.join"
local module = require "accelhost.nn.module"
local protect = require "accelhost.util.protect"
local fail, describe = arguments.fail, arguments.describe

---@field module Module
local DistributedDataParallel = module.Module:extend "DistributedDataParallel"

local read_options = arguments.signature("DistributedDataParallel", {
  "module: module", {"device_ids"}, {"output_device"}, {"dim: integer", 0}, {"broadcast_buffers: flag", true},
  {"init_sync: flag", true}, {"process_group: group"}, {"bucket_cap_mb: positive"},
  {"find_unused_parameters: flag", false}, {"check_reduction: flag", false}, {"gradient_as_bucket_view: flag", false},
  {"static_graph: flag", false}, {"delay_all_reduce_named_params"}, {"param_to_hook_all_reduce"},
  {"mixed_precision"}, {"device_mesh"}, {"skip_all_reduce_unused_params: flag", false},
})

-- Refuse options that name GPUs, or change the behaviour of PyTorch's reducer.
local function refuse_options(...)
  local device_ids, output_device, dim, delayed, delaying, mixed_precision, device_mesh, skipping = ...
  for name, value in pairs {device_ids = device_ids, output_device = output_device} do
    local first = type(value) == "table" and value[1] or value
    if first ~= nil and first ~= "cpu" then
      fail("DistributedDataParallel: %s: the module is on the cpu, where it stays; leave it out, got %s", name,
        describe(first))
    end
  end
  if dim ~= 0 then fail("DistributedDataParallel: dim: expected 0, got %d", dim) end
  if delayed ~= nil or delaying ~= nil then
    fail("DistributedDataParallel: delay_all_reduce_named_params and param_to_hook_all_reduce go together with a model "
      .. "that is cut in parts, which is not here; leave them out")
  end
  if mixed_precision ~= nil then
    fail("DistributedDataParallel: mixed_precision is not here; fp16_compress_hook sends gradients in half the bytes")
  end
  if device_mesh ~= nil then fail("DistributedDataParallel: device_mesh is not here; pass a process_group") end
  if skipping then
    fail("DistributedDataParallel: skip_all_reduce_unused_params: buckets go out in one order on every process, so "
      .. "none can be left out; leave it out")
  end
end

-- The reducer of this model: there is one as long as the model lives.
local function own_handle(self)
  return averaging.of(self._owner)[1] or fail(
    "DistributedDataParallel: this model averages no more: an accelerator or another one owns its module now")
end

--- A model whose gradients are averaged over the processes of a group: each bucket of them as soon as backward has
--- completed it, while backward continues. All processes get rank 0's parameters and buffers first. A gradient stays in
--- one place for good (`gradient_as_bucket_view` is always so). The names in a state_dict begin with "module.", as in
--- PyTorch.
--
--   local ddp = dist.DistributedDataParallel(nn.Linear(4, 2))
--   ddp(x):sum():backward()
--
-- Parameters that a loss does not reach count as zero, and stay without a gradient when no process reached them: no
-- option is needed for it (PyTorch raises without `find_unused_parameters`). Buffers go along with the last bucket of
-- a backward, not with a forward, so a forward is no collective. Buckets are those of PyTorch after its first backward:
-- in the reverse order of the parameters, from the first backward on.
---@param module Module with at least one parameter that requires a gradient
---@param device_ids? table of GPUs: nothing, for a module on the cpu
---@param output_device? string of GPUs
---@param broadcast_buffers? boolean default true: every process has rank 0's buffers after a backward
---@param init_sync? boolean default true; false: every process keeps its own values, which must be equal already
---@param bucket_cap_mb? number size of a bucket; default 25, the first one 1
---@param find_unused_parameters? boolean makes no difference here
---@param check_reduction? boolean makes no difference, as in PyTorch
---@param gradient_as_bucket_view? boolean makes no difference here
---@param static_graph? boolean makes no difference here
---@param delay_all_reduce_named_params? nil
---@param param_to_hook_all_reduce? nil
---@param mixed_precision? nil
---@param device_mesh? nil
function DistributedDataParallel:init(...)
  local inner, device_ids, output_device, dim, broadcast_buffers, init_sync, group, bucket_cap_mb, find_unused, _,
    bucket_view, static, delayed, delaying, mixed_precision, device_mesh, skipping = read_options(...)
  refuse_options(device_ids, output_device, dim, delayed, delaying, mixed_precision, device_mesh, skipping)
  local members = groups.resolve("DistributedDataParallel", group)
  if not members then fail("DistributedDataParallel: this process is not in process_group") end
  local trained = {}
  for _, parameter in ipairs(inner:parameters()) do
    if parameter.requires_grad then trained[#trained + 1] = parameter end
  end
  if #trained == 0 then
    fail("DistributedDataParallel: no parameter of the module requires a gradient, so there is nothing to average")
  end
  self.module = inner
  -- Averaging reads these fields of the object that prepared a model.
  self._owner = setmetatable({sync_gradients = true, _micro_step = false}, {_name = "DistributedDataParallel"})
  self._options = {
    bucket_cap_mb = bucket_cap_mb, broadcast_buffers = broadcast_buffers, find_unused_parameters = find_unused,
    gradient_as_bucket_view = bucket_view, static_graph = static,
  }
  self._group, self._hooked = members, false
  averaging.add(inner, self._owner, {
    bucket_cap_mb = bucket_cap_mb, broadcast_buffers = broadcast_buffers, apart = not init_sync,
    group = group and members.native or nil,
  })
end

--- The module's own result.
---@param ... any
---@return any ...
function DistributedDataParallel:forward(...)
  join.notify(self)
  return self.module(...)
end

--- Run fn without averaging: gradients add up on each process until the next backward outside.
--
--   ddp:no_sync(function() ddp(x):sum():backward() end)
---@return any # the results of fn
function DistributedDataParallel:no_sync(fn)
  arguments.check("no_sync", "fn", "function", fn)
  local handle = own_handle(self)
  handle.suppressed = handle.suppressed + 1
  return protect(function() handle.suppressed = handle.suppressed - 1 end, fn)
end

-- Communication hooks.

--- Do something else with each bucket than averaging it: hook(state, bucket) is called when the bucket's gradients are
--- final, in the same order on all processes. It returns the final gradients, as a tensor, a future or a work:
--- dividing is its own affair. See accelhost.distributed.algorithms.ddp_comm_hooks for some. Once for a model.
--
--   ddp:register_comm_hook(nil, function(_, bucket)
--     return dist.all_reduce(bucket:buffer():div_(dist.get_world_size()), {async_op = true})
--   end)
---@param state any for the hook
---@param hook fun(state: any, bucket: GradBucket): any
function DistributedDataParallel:register_comm_hook(state, hook)
  arguments.check("register_comm_hook", "hook", "callable", hook)
  if self._hooked then fail("register_comm_hook: the model has a hook already") end
  comm_hook.install(own_handle(self).reducer, state, hook)
  self._hooked = true
end

--- Return statistics of the buckets of the last backward that averaged: a table of numbers, times in nanoseconds.
--
--   ddp:logging_data().total_parameter_size_bytes  --> 40
---@return table # world_size, rank, backend_name, iteration, bucket_cap_bytes, bucket_sizes (bytes of parameters, in
--- the order of their reduction), num_parameter_tensors, total_parameter_size_bytes, backward_compute_time,
--- backward_comm_time, backward_compute_comm_overlap_time, comm_hook, and the options
function DistributedDataParallel:logging_data()
  local reducer = own_handle(self).reducer
  local stats, sizes, total = reducer:stats(), {}, 0
  local first, last
  for i, bucket in ipairs(stats.buckets) do
    sizes[i], total = bucket.bytes, total + bucket.bytes
    if bucket.issued_ns > 0 then first = math.min(first or bucket.issued_ns, bucket.issued_ns) end
    if bucket.reduced_ns > 0 then last = math.max(last or 0, bucket.reduced_ns) end
  end
  local options = self._options
  first, last = first or 0, last or first or 0
  return {
    world_size = self._group:size(), rank = self._group:rank(), backend_name = self._group:backend(),
    module_name = self.module._name, iteration = stats.rounds,
    bucket_cap_bytes = (options.bucket_cap_mb or 25) * 2 ^ 20, bucket_sizes = sizes,
    num_parameter_tensors = #reducer:parameters(), total_parameter_size_bytes = total,
    backward_compute_time = math.max(0, stats.backward_end_ns - stats.backward_begin_ns),
    backward_comm_time = last - first,
    backward_compute_comm_overlap_time = math.max(0, math.min(stats.backward_end_ns, last) - first),
    comm_hook = self._hooked, broadcast_buffers = options.broadcast_buffers,
    find_unused_parameters = options.find_unused_parameters, static_graph = options.static_graph,
    gradient_as_bucket_view = true,
  }
end

-- Uneven inputs.

--- Run fn, in which processes may have unequal numbers of batches: one that has no inputs left joins, with zeros, the
--- averages that the others still form. When all have ended, every process gets the parameters and buffers of those
--- that were last. `fn` calls the model once for each backward. See Join for several models.
--
--   ddp:join(function() for _ = 1, 3 do ddp(x):sum():backward() end end)
---@param fn function
---@param divide_by_initial_world_size? boolean default true; false: by the number of processes that still have inputs
---@param enable? boolean default true; false: just run fn
---@param throw_on_early_termination? boolean default false; true: all processes raise as soon as one has no inputs left
---@return any # the results of fn
function DistributedDataParallel:join(...)
  return join.of_model(self, ...)
end

--- The hook of Join for a model: the work of a process that has no inputs left, and its work at the end.
---@param options {divide_by_initial_world_size?: boolean}
---@return {main_hook: fun(joining: table), post_hook: fun(joining: table)}
function DistributedDataParallel:join_hook(options)
  local divide_by_all = options.divide_by_initial_world_size ~= false
  return {
    -- The others' backward, as a process does it whose loss reaches nothing.
    main_hook = function(joining)
      if not joining.wanted[1] then return end
      local reducer = own_handle(self).reducer
      for _, parameter in ipairs(reducer:parameters()) do parameter.grad = nil end
      reducer:buffers_from(joining.speaker)
      reducer:begin(divide_by_all and 1 or 0)
      reducer:finish()
    end,
    post_hook = function(joining)
      local handle = own_handle(self)
      handle:take_over(joining.speaker)
      handle.reducer:buffers_from(0)
    end,
  }
end

-- Before a forward in a join: the buffers that go along are those of a process that still has inputs.
function DistributedDataParallel:_before_round(joining)
  own_handle(self).reducer:buffers_from(joining.speaker)
end

--- Does the next backward average? Of Join.
function DistributedDataParallel:_will_average()
  return own_handle(self):synchronises() and C.autograd.is_grad_enabled() and self.training
end

return DistributedDataParallel
