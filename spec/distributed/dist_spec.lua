-- accelhost.distributed in one process and in several.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local run = require "spec.support.run"
local dist = accelhost.distributed

local function launch(ranks, case, options)
  return run.host({"launch", "--num_processes", ranks, "spec/distributed/cases/" .. case .. ".lua"},
    options or {timeout = 60})
end

-- Runs a text on `ranks` processes, after init_process_group.
local function script(ranks, text, timeout)
  return run.host({"launch", "--num_processes", ranks, "--patience", 5, "-e", [[
    accelhost = require "accelhost"; dist = accelhost.distributed
    dist.init_process_group {timeout = ]] .. (timeout or 20) .. [[}
    rank = dist.get_rank() ]] .. text}, {timeout = 40})
end

describe("accelhost.distributed", function()
  for _, ranks in ipairs {1, 2, 3} do
    it(("returns to each of %d ranks the results of PyTorch's calls"):format(ranks), function()
      local result = launch(ranks, "dist_collectives")
      assert.equal("", result.stderr)
      assert.same(run.everyone(ranks, "ok\n"), run.by_rank(result.stdout), result.output)
      run.succeeds(result)
    end)
  end

  it("names both places where ranks call different things", function()
    local result = script(2, "if rank == 0 then dist.all_reduce(accelhost.ones(3)) else dist.barrier() end")
    assert.matches("collective #2 differs: rank 0 all_reduce float32 %(3,%) at %-e:%d+; rank 1 barrier at %-e:%d+",
      result.stderr)
    assert.equal(3, result.code)
  end)

  it("names the missing ranks at a monitored barrier", function()
    local text = [[if rank == 1 then require("accelhost._C").comm.recv(accelhost.ones(1), 0) end
      dist.monitored_barrier{timeout = 1, wait_all_ranks = true}]]
    local result = script(2, text)
    assert.matches("monitored_barrier #2 at %-e:%d+: rank 1 did not arrive within 1 s: rank 1 waits for a message from "
      .. "rank 0", result.stderr)
    assert.equal(4, result.code)
  end)

  it("fails a message whose sender has ended, or which never arrives", function()
    local result = script(2, "if rank == 0 then dist.recv(accelhost.ones(1), 1) end")
    assert.matches("recv from rank 1 at %-e:%d+: rank 1 ended without it", result.stderr)
    assert.equal(3, result.code)
    result = script(2, "dist.recv(accelhost.ones(1), 1 - rank, nil, 5)", 3)
    assert.matches("recv from rank [01], tag 5, at %-e:%d+: timed out after 3 s: rank [01] waits for a message from "
      .. "rank [01]", result.stderr)
    assert.equal(4, result.code)
  end)

  it("refuses a message that does not fit, with both places", function()
    local result = script(2,
      "if rank == 0 then dist.send(accelhost.ones(3), 1) else dist.recv(accelhost.ones(2, 2), 0) end")
    assert.matches("recv from rank 0 at %-e:%d+: expected float32 %(2, 2%), but rank 0 sent float32 %(3,%) at %-e:%d+",
      result.stderr)
  end)

  it("refuses parts where the sent and the expected size differ", function()
    local result = script(2, [[dist.all_to_all_single(accelhost.ones(3), accelhost.ones(3), {1, 2},
      {1, 2})]])
    assert.matches("all_to_all_single: rank 0 sends rank 1 2 rows, which expects 1", result.stderr)
  end)

  it("refuses a world that contradicts how the script was launched", function()
    for text, message in pairs {
      ["dist.destroy_process_group() dist.init_process_group{world_size = 4}"] =
        "world_size is 4, but this job was started with WORLD_SIZE = 2",
      ["dist.destroy_process_group() dist.init_process_group{rank = 1 - rank, world_size = 2}"] =
        "rank is 1, but this job was started with RANK = 0",
    } do
      assert.matches(message, script(2, text).stderr, nil, true)
    end
  end)
end)

describe("A world of one", function()
  local function begin() dist.init_process_group() end
  before_each(function()
    if dist.is_initialized() then dist.destroy_process_group() end
  end)
  after_each(function()
    if dist.is_initialized() then dist.destroy_process_group() end
  end)

  it("is made once, with backends that are here", function()
    check.raises("distributed.get_rank: there is no process group yet; call init_process_group first",
      function() dist.get_rank() end)
    check.raises("backend 'nccl' is not here: it moves tensors of NVIDIA GPUs",
      function() dist.init_process_group "nccl" end)
    check.raises("backend 'ucc' is not here: expected 'gloo' or 'shm'", function() dist.init_process_group "ucc" end)
    check.raises("init_method 'tcp://elsewhere:1' is not here: expected 'env://', 'tcp://localhost:PORT'",
      function() dist.init_process_group {init_method = "tcp://elsewhere:1"} end)
    check.raises("'rank' is missing: world_size is set", function() dist.init_process_group {world_size = 2} end)
    check.raises("rank: expected 0 to 1, got 2", function() dist.init_process_group {world_size = 2, rank = 2} end)
    begin()
    check.raises("there is a world already", begin)
    assert.equal(0, dist.get_rank())
    assert.equal("self", dist.get_backend())
    assert.same({0}, dist.get_process_group_ranks())
    local world = require("accelhost._C").comm.world()
    local before = world:timeout()
    dist.destroy_process_group()
    dist.init_process_group {timeout = 7}
    dist.set_timeout(9)
    assert.equal(9, world:timeout())
    dist.destroy_process_group()
    assert.equal(before, world:timeout())
    begin()
    assert.is_true(dist.is_gloo_available() and dist.is_backend_available "gloo" and not dist.is_nccl_available())
  end)

  it("refuses the arguments that PyTorch refuses", function()
    begin()
    local x = accelhost.ones(2)
    check.raises("broadcast: 'src' is missing", function() dist.broadcast(x) end)
    check.raises("broadcast: src: expected a rank of the group (0), got 1", function() dist.broadcast(x, 1) end)
    check.raises("pass src or group_src, not both", function() dist.broadcast(x, {src = 0, group_src = 0}) end)
    check.raises("send: dst: expected another process than this one, 0", function() dist.send(x, 0) end)
    check.raises("all_gather: tensor_list: expected 1 tensors, one for each process, got 2",
      function() dist.all_gather({x, x}, x) end)
    check.raises("tensor 1 is float32 (3,), expected float32 (2,)",
      function() dist.all_gather({accelhost.ones(3)}, x) end)
    check.raises("output_tensor (3,) does not hold 1 tensors (2,)",
      function() dist.all_gather_into_tensor(accelhost.ones(3), x) end)
    check.raises("expected tensors of one dtype, got int64 and float32",
      function() dist.reduce_scatter_tensor(accelhost.ones(2, {dtype = "int64"}), x) end)
    check.raises("mean needs a floating dtype, got int64",
      function() dist.all_reduce(accelhost.ones(2, {dtype = "int64"}), dist.ReduceOp.AVG) end)
    check.raises("and needs an integer dtype or bool, got float32",
      function() dist.all_reduce(x, dist.ReduceOp.BAND) end)
    check.raises("distributed.ReduceOp has no PREMUL_SUM: multiply the tensor before the call",
      function() return dist.ReduceOp.PREMUL_SUM end)
    check.raises("input_split_sizes: expected sizes that add up to dim 0 of (2,), got 3",
      function() dist.all_to_all_single(x, x, {2}, {3}) end)
    check.raises("ranks: expected ranks in 0..0, got number 1", function() dist.new_group {1} end)
    check.raises("ranks: rank 0 is there twice", function() dist.new_group {0, 0} end)
    check.raises("use_local_synchronization: all processes make a group together here",
      function() dist.new_group({0}, {use_local_synchronization = true}) end)
    check.raises("expected at most the 1 processes of the group, got 2", function() dist.new_subgroups(2) end)
    check.raises("P2POp: op: expected isend or irecv", function() dist.P2POp(dist.send, x, 0) end)
    check.raises("item 1: expected a P2POp", function() dist.batch_isend_irecv {{}} end)
    local part = dist.new_group {0}
    dist.destroy_process_group(part)
    check.raises("the group was destroyed", function() dist.barrier(part) end)
  end)

  it("sends no code and nothing that holds itself, and names the place", function()
    begin()
    local loop = {inner = {}}
    loop.inner[1] = loop
    check.raises("all_gather_object: obj.model.step: a function cannot be serialized; expected tensors, numbers, "
      .. "texts, booleans and tables of them", function() dist.all_gather_object({}, {model = {step = print}}) end)
    check.raises("obj.inner[1]: a table cannot be serialized (it holds itself)",
      function() dist.all_gather_object({}, loop) end)
    check.raises("object_list[2]: a Linear cannot be serialized",
      function() dist.broadcast_object_list({1, accelhost.nn.Linear(1, 1)}, 0) end)
    check.raises("obj[\"a b\"]", function() dist.gather_object({["a b"] = io.stdout}, {}) end)
    local shared, list = {1}, {}
    dist.all_gather_object(list, {shared, shared})
    assert.same({{1}, {1}}, list[1])
  end)
end)
