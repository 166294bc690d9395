-- DistributedDataParallel, its hooks and Join.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local run = require "spec.support.run"
local dist, nn = accelhost.distributed, accelhost.nn

local function script(ranks, text, env)
  return run.host({"launch", "--num_processes", ranks, "-e", [[
    accelhost = require "accelhost"; dist, nn = accelhost.distributed, accelhost.nn
    hooks = dist.algorithms.ddp_comm_hooks
    dist.init_process_group {timeout = 20}
    rank = dist.get_rank() ]] .. text}, {timeout = 40, env = env})
end

-- Elements and dtypes of the collectives of rank 0 behind the line "step", from the log.
local function sent_after(told, mark)
  local list = {}
  for line in told:sub((told:find(mark, 1, true)) or 1):gmatch "[^\n]+" do
    local dtype, count = line:match "rank 0 of 2: #%d+ all_reduce_async ([%w]+) %((%d+),%)"
    if dtype then list[#list + 1] = dtype .. " " .. count end
  end
  return list
end

describe("DistributedDataParallel", function()
  for _, ranks in ipairs {1, 2, 3} do
    it(("averages, hooks and joins in %d processes"):format(ranks), function()
      local result = run.host({"launch", "--num_processes", ranks, "spec/distributed/cases/ddp.lua"}, {timeout = 90})
      assert.same(run.everyone(ranks, "ok\n"), run.by_rank(result.stdout), result.output)
      assert.equal(0, result.code, result.stderr)
    end)
  end

  it("has PyTorch's numbers in two processes: steps, uneven inputs, halves, PowerSGD of either form", function()
    local result = run.host({"launch", "--num_processes", 2, "spec/distributed/cases/ddp_pytorch.lua"}, {timeout = 60})
    assert.same(run.everyone(2, "ok\n"), run.by_rank(result.stdout), result.stderr)
    assert.equal("", result.stderr)
  end)

  it("sends the number of bytes that its hook implies", function()
    local text = [[
      local net = nn.Linear(64, 32, {bias = false})
      local ddp = dist.DistributedDataParallel(net)
      ddp:register_comm_hook(HOOK)
      for step = 1, 3 do
        if step == 3 and rank == 0 then io.stderr:write("the third\n") end
        ddp(accelhost.ones(2, 64)):sum():backward()
      end dist.barrier()]]
    local function sent(hook)
      return sent_after(script(2, (text:gsub("HOOK", hook)), {ACCELHOST_DEBUG = "comm"}).stderr, "the third")
    end
    assert.same({"float32 2048"}, sent "nil, hooks.default_hooks.allreduce_hook")
    assert.same({"float16 2048"}, sent "nil, hooks.default_hooks.fp16_compress_hook")
    assert.same({"bfloat16 2048"}, sent "nil, hooks.default_hooks.bf16_compress_hook")
    local power = "hooks.powerSGD_hook.PowerSGDState {start_powerSGD_iter = %d, matrix_approximation_rank = 2}, "
      .. "hooks.powerSGD_hook.powerSGD_hook"
    assert.same({"float32 64", "float32 128"}, sent(power:format(2)))
    assert.same({"float32 2048"}, sent(power:format(3)))
    local batched = power:gsub("powerSGD_hook$", "batched_powerSGD_hook")
    assert.same({"float32 92", "float32 92"}, sent(batched:format(2))) -- 2048 elements: a square of 46
    assert.same({"float32 2048"}, sent(batched:format(3)))
  end)

  it("raises a hook's error on the process where it happens", function()
    local result = script(2, [[
      local ddp = dist.DistributedDataParallel(nn.Linear(2, 2))
      ddp:register_comm_hook(nil, function(_, bucket)
        if rank == 1 then error "no such thing" end
        return dist.all_reduce(bucket:buffer(), {async_op = true})
      end)
      ddp(accelhost.ones(1, 2)):sum():backward()]])
    assert.matches("communication hook: %-e:%d+: no such thing", result.stderr)
    assert.equal(3, result.code)
  end)

  it("refuses models that differ, on every process", function()
    local result = script(2, "dist.DistributedDataParallel(nn.Linear(2, 2 + rank))")
    assert.matches("number 0 of the parameters is float32 %(3, 2%) on rank 1, float32 %(2, 2%) on rank 0",
      result.stderr)
  end)
end)

describe("DistributedDataParallel of a world of one", function()
  before_each(function()
    if not dist.is_initialized() then dist.init_process_group() end
  end)
  after_each(function() dist.destroy_process_group() end)
  local DDP = dist.DistributedDataParallel

  it("is nn.parallel's too", function()
    assert.equal(DDP, nn.parallel.DistributedDataParallel)
    check.raises("nn.parallel has no DataParallel: DistributedDataParallel", function()
      return nn.parallel.DataParallel
    end)
  end)

  it("refuses unsupported options, with a reason", function()
    local frozen = nn.Linear(2, 2)
    frozen:requires_grad_(false)
    local net = nn.Linear(2, 2)
    for text, call in pairs {
      ["no parameter of the module requires a gradient"] = function() DDP(frozen) end,
      ["device_ids: the module is on the cpu, where it stays; leave it out, got number 0"] =
        function() DDP(net, {device_ids = {0}}) end,
      ["output_device: the module is on the cpu"] = function() DDP(net, {output_device = "cuda:0"}) end,
      ["dim: expected 0, got 1"] = function() DDP(net, {dim = 1}) end,
      ["mixed_precision is not here; fp16_compress_hook"] = function() DDP(net, {mixed_precision = {}}) end,
      ["device_mesh is not here; pass a process_group"] = function() DDP(net, {device_mesh = 1}) end,
      ["skip_all_reduce_unused_params: buckets go out in one order"] =
        function() DDP(net, {skip_all_reduce_unused_params = true}) end,
      ["delay_all_reduce_named_params and param_to_hook_all_reduce"] =
        function() DDP(net, {delay_all_reduce_named_params = {}}) end,
      ["unknown option 'bucket_cap'"] = function() DDP(net, {bucket_cap = 1}) end,
    } do
      check.raises(text, call)
    end
    check.raises("module: expected a module, got a function", function() DDP(print) end)
  end)

  it("reports a wrong hook", function()
    local ddp = DDP(nn.Linear(2, 2))
    check.raises("hook: expected a function or something callable, got nil",
      function() ddp:register_comm_hook(nil, nil) end)
    ddp:register_comm_hook(nil, function() return 3 end)
    check.raises("the hook of bucket 0: expected a tensor of 32 elements, a future or a work, got number 3",
      function() ddp(accelhost.ones(1, 2)):sum():backward() end)
    local power = dist.algorithms.ddp_comm_hooks.powerSGD_hook
    check.raises("start_powerSGD_iter: expected at least 2 with error feedback or warm start, got 1",
      function() power.PowerSGDState {start_powerSGD_iter = 1} end)
    assert.equal(0, power.PowerSGDState {
      start_powerSGD_iter = 0, use_error_feedback = false, warm_start = false,
    }.iter)
    check.raises("powerSGD_hook: state: expected a PowerSGDState", function() power.powerSGD_hook({}, {}) end)
    check.raises("batched_powerSGD_hook: state: expected a PowerSGDState, got", function()
      power.batched_powerSGD_hook({}, {})
    end)
    check.raises("quantization_hooks: sums of quantized gradients", function()
      return dist.algorithms.ddp_comm_hooks.quantization_hooks
    end)
  end)

  it("refuses a join that cannot be", function()
    local ddp = DDP(nn.Linear(2, 2))
    check.raises("item 1: expected a DistributedDataParallel, got a Linear",
      function() dist.algorithms.join.Join({nn.Linear(2, 2)}, print) end)
    check.raises("item 1 is in a join already", function()
      ddp:join(function() ddp:join(function() end) end)
    end)
    assert.equal(5, ddp:join(function() return 5 end, {enable = false}))
    check.raises("inside", function() ddp:join(function() error "inside" end) end)
    assert.equal(6, ddp:join(function() return 6 end))
  end)
end)
