--- Jobs whose GPUs are in several hosts: NCCL's communicator spans them, its id passed on by the job's own connections.
--- Hosts are namespaces of this machine (scripts/testhosts), GPUs simulated ones, of which each host sees others, since
--- cards of one machine have to differ; their NCCL meets in files of a folder that the hosts share.
local hosts = require "spec.support.hosts"
local run = require "spec.support.run"
local sim = require "spec.support.sim"

-- Run a script in two ranks on each of two hosts; the lines that its ranks print, sorted, and the result.
local function job(code, env)
  local folder = os.tmpname()
  os.remove(folder)
  assert(run.program({"mkdir", folder}).code == 0)
  local all = {ACCELHOST_CUDA = "sim", ACCELHOST_SIM_DEVICES = 4, ACCELHOST_SIM_LINKS = folder, OMP_NUM_THREADS = 1,
    ACCELHOST_TEST_DEVICE = false, ACCELHOST_USE_CPU = false, CODE = (code:gsub("SIMULATOR", sim.library))}
  for name, value in pairs(env or {}) do all[name] = value end
  local result = hosts.run(2, [[
    for k in 1 2; do
      CUDA_VISIBLE_DEVICES=$((2 * k - 2)),$((2 * k - 1)) on $k launch --num_machines 2 --main_process_ip node1 \
        --secret_file none --num_processes 4 -e "$CODE" &
    done
    wait]], {timeout = 120, env = all})
  local left = run.program({"sh", "-c", 'ls -A "$0" | wc -l; rm -r "$0"', folder}).stdout
  local lines = {}
  for line in result.stdout:gmatch "[12]: ([^\n]*)" do
    lines[#lines + 1] = line:match "^[%[r%d%] ]*(rank %d:.*)$"
  end
  table.sort(lines)
  return lines, result, tonumber(left)
end

local HEAD = [[
  local accelhost = require "accelhost"
  local ffi = require "ffi"
  ffi.cdef "const char *simulated_calls(void);"
  local function calls(name)
    return tonumber(ffi.string(ffi.load("SIMULATOR").simulated_calls()):match("\n" .. name .. " (%d+)") or 0)
  end
  local accelerator = accelhost.Accelerator()
  local rank = accelerator.process_index
]]

describe("A job of GPUs in two hosts", function()
  if hosts.missing() or not sim.there then
    it("runs on test hosts", function() pending(hosts.missing() or "needs the simulated GPU (make sim)") end)
    return
  end

  it("has collectives of all ranks by one NCCL communicator, opened once", function()
    local lines, result, left = job(HEAD .. [[
      local x = accelhost.full({3}, rank + 1, {device = accelerator.device})
      local sum = accelerator:reduce(x, "sum")
      local all = accelerator:gather(x)
      accelerator:wait_for_everyone()
      print(("rank %d: %d %d of %s, %d opened, reduced: %d"):format(rank, sum[0]:item(), all:numel(),
        accelerator.device, calls "ncclCommInitRankConfig", calls "ncclAllReduce"))]])
    assert.same({
      "rank 0: 10 12 of cuda:0, 1 opened, reduced: 1", "rank 1: 10 12 of cuda:1, 1 opened, reduced: 1",
      "rank 2: 10 12 of cuda:0, 1 opened, reduced: 1", "rank 3: 10 12 of cuda:1, 1 opened, reduced: 1",
    }, lines, result.output)
    assert.equal(0, left)
  end)

  it("averages gradients by it to the same bits on every rank", function()
    local lines, result = job(HEAD .. [[
      accelhost.manual_seed(3)
      local net = accelhost.nn.Linear(8, 4)
      local optimizer = accelhost.optim.SGD(net:parameters(), {lr = 0.1})
      net, optimizer = accelerator:prepare(net, optimizer)
      accelhost.manual_seed(10 + rank)
      local x = accelhost.randn({6, 8}, {device = accelerator.device})
      for _ = 1, 3 do
        accelerator:backward(net(x):square():mean())
        optimizer:step()
        optimizer:zero_grad()
      end
      local sum = 0
      for _, p in ipairs(net:parameters()) do sum = sum + p:double():sum():item() end
      print(("rank %d: %.17g %s"):format(rank, sum, tostring(calls "ncclAllReduce" > 0)))]])
    assert.equal(4, #lines, result.output)
    local value = lines[1]:match "^rank 0: (%S+) true$"
    for i, line in ipairs(lines) do assert.equal(("rank %d: %s true"):format(i - 1, value), line, result.output) end
  end)

  it("ends on both hosts where a rank is killed within a collective", function()
    local _, result = job(HEAD .. [[
      local x = accelhost.ones({3}, {device = accelerator.device})
      accelerator:reduce(x, "sum")
      if rank == 3 then os.execute "kill -KILL $PPID" end
      accelerator:reduce(x, "sum")
      accelhost.synchronize()
      print(("rank %d: not ended"):format(rank))]])
    for node = 1, 2 do
      local said, code = hosts.said(result, node)
      assert.equal(3, code, result.output)
      assert(said:find("rank 3 was killed by SIGKILL", 1, true), result.output)
      assert.is_nil(said:find("not ended", 1, true))
    end
  end)
end)
