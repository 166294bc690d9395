-- BasicNet on several hosts has the losses of as many ranks on one, with every launcher.
local datasets = require "spec.support.datasets"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local hosts = require "spec.support.hosts"
local run = require "spec.support.run"
local scenes = require "spec.support.scenes"

local script = "examples/mnist.lua --dtype float64 --no_dropout --batch_size 8 --data %s --log_losses "

local losses = files.numbers

local function same(expected, got)
  assert.is_true(#expected > 3)
  assert.equal(#expected, #got)
  for i, loss in ipairs(expected) do assert.is_true(math.abs(got[i] - loss) <= 1e-12, ("step %d"):format(i)) end
end

describe("BasicNet on several hosts", function()
  if hosts.missing() then
    it("is trained on test hosts", function() pending(hosts.missing()) end)
    return
  end

  local dir
  local function on_one(ranks)
    local path = dir .. "/one" .. ranks
    local words = {"launch", "--num_processes", ranks}
    for word in (script .. path):gmatch "%S+" do words[#words + 1] = word end
    local result = run.host(words, {timeout = 120})
    assert.equal(0, result.code, result.output)
    return losses(path)
  end
  local expected = {}
  local function compare(ranks, path)
    expected[ranks] = expected[ranks] or on_one(ranks)
    same(expected[ranks], losses(path))
  end

  setup(function()
    dir = folder.make()
    script = script:format(dir)
    datasets.write_mnist(dir, "train", 256)
    datasets.write_mnist(dir, "t10k", 64)
  end)
  teardown(function() folder.remove(dir) end)

  local scene = scenes.new(it, 3)

  for _, count in ipairs {2, 4} do
    scene(("trains on %d of them with two ranks each"):format(count), function()
      local path = ("%s/hosts%d"):format(dir, count)
      local text = ("for k in $(seq %d); do on $k launch --num_machines %d --main_process_ip node1 " ..
        "--secret_file none --num_processes %d %s%s & done; wait"):format(count, count, 2 * count, script, path)
      return hosts.run(count, text, {timeout = 180}), path
    end, function(result, path)
      for node = 1, count do assert.equal(0, select(2, hosts.said(result, node)), result.output) end
      compare(2 * count, path)
    end)
  end

  scene("trains with ranks that torchrun or a shell has started", function()
    local path = dir .. "/shell"
    local text = "export WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node1 ACCELHOST_SECRET='one two three four'\n" ..
      "for r in 0 1 2 3; do RANK=$r LOCAL_RANK=$((r % 2)) on $((r / 2 + 1)) " .. script .. path .. " & done; wait"
    return hosts.run(2, text, {timeout = 180}), path
  end, function(result, path)
    local _, codes = result.stdout:gsub("exit 0\n", "")
    assert.equal(4, codes, result.output)
    compare(4, path)
  end)

  describe("under PyTorch's torchrun", function()
    local torchrun = os.getenv "TORCHRUN" or "torchrun"
    local function need()
      if run.program({"sh", "-c", "command -v " .. torchrun}).code == 0 then return true end
      pending "needs torchrun, in the PATH or in TORCHRUN"
    end
    -- Two ranks on each of `count` hosts.
    local function launch(count, words)
      return hosts.run(count, ([[export ACCELHOST_SECRET="one two three four"
        for k in $(seq %d); do { testhosts on $k %s --no_python --nnodes %d --nproc_per_node 2 --node_rank $((k - 1)) \
          --master_addr 10.77.0.1 --master_port 29500 "$host" %s; echo "exit $?"; } & done; wait]]):format(count,
        torchrun, count, words), {timeout = 180})
    end

    for _, count in ipairs {1, 2} do
      it(("trains on %d"):format(count), function()
        if not need() then return end
        local path = ("%s/torchrun%d"):format(dir, count)
        local result = launch(count, script .. path)
        local _, codes = result.stdout:gsub("exit 0\n", "")
        assert.equal(count, codes, result.output)
        compare(2 * count, path)
      end)
    end

    it("names a rank that is killed, and its host", function()
      if not need() then return end
      local path = dir .. "/killed.lua"
      local file = assert(io.open(path, "w"))
      -- torchrun may send SIGTERM to the rank next to the killed one before that has polled.
      file:write [[require("accelhost._C").system.catch_signal "TERM"
        local d = require("accelhost").distributed d.init_process_group() d.barrier()
        if d.get_rank() == 3 then os.execute "kill -KILL $PPID" end
        d.barrier()]]
      file:close()
      local result = launch(2, path)
      local _, codes = result.stdout:gsub("exit 1\n", "")
      assert.equal(2, codes, result.output)
      assert.matches("lost rank 3, which died %(rank 3 [^\n]*, on node2%)", result.output)
    end)
  end)

  scene("trains with ranks of mpirun, which also keeps the job's secret", function()
    if run.program({"sh", "-c", "mpirun --version | grep -q 'Open MPI'"}, {timeout = 20}).code ~= 0 then return end
    local path = dir .. "/mpirun"
    local text = ([[d=%s
      printf '10.77.0.1 slots=2\n10.77.0.2 slots=2\n' >$d/hostfile
      printf '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nk=${1##*.}; shift\n' >$d/agent
      printf 'exec testhosts on "$k" sh -c "$*"\n' >>$d/agent; chmod +x $d/agent
      export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm_rsh_agent=$d/agent
      export OMPI_MCA_plm_rsh_no_tree_spawn=1 OMPI_MCA_oob_tcp_if_include=10.77.0.0/24
      "$host" launch --hostfile $d/hostfile --num_processes 4 ]]):format(dir) .. script .. path
    return hosts.run(2, text, {timeout = 180}), path
  end, function(result, path)
    if not result then return pending "needs Open MPI's mpirun" end
    assert.equal(0, result.code, result.output)
    compare(4, path)
  end)

  -- A cluster of the test hosts, with its own files, which ends with the test hosts.
  local cluster = [[
    cd $d && mkdir -p state run && chmod 700 run && head -c 1024 /dev/urandom >key && chmod 600 key
    export SLURM_CONF=$d/slurm.conf
    cat >$SLURM_CONF <<END
ClusterName=spec
SlurmctldHost=$(hostname -s)(10.77.0.254)
AuthType=auth/munge
AuthInfo=socket=$d/munge.socket
SlurmUser=root
StateSaveLocation=$d/state
SlurmdSpoolDir=$d/spool-%n
SlurmctldPidFile=$d/slurmctld.pid
SlurmdPidFile=$d/slurmd-%n.pid
SlurmctldLogFile=$d/slurmctld.log
SlurmdLogFile=$d/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
JobAcctGatherType=jobacct_gather/none
NodeName=node1 NodeAddr=10.77.0.1 CPUs=2 State=UNKNOWN
NodeName=node2 NodeAddr=10.77.0.2 CPUs=2 State=UNKNOWN
PartitionName=main Nodes=node1,node2 Default=YES MaxTime=INFINITE State=UP
END
    munged --force --key-file=$d/key --socket=$d/munge.socket --pid-file=$d/run/pid --log-file=$d/run/log \
      --seed-file=$d/run/seed >/dev/null 2>&1
    slurmctld
    for k in 1 2; do testhosts on $k slurmd -N node$k; done
    for i in $(seq 100); do sinfo -h -o %T 2>/dev/null | grep -q '^idle' && break; sleep 0.1; done
    cd "$OLDPWD"
  ]]

  scene("trains with ranks of srun, on Slurm's nodes", function()
    if run.program({"sh", "-c", "command -v munged && command -v slurmctld && command -v slurmd && command -v srun"},
        {timeout = 20}).code ~= 0 then
      return
    end
    local path = dir .. "/srun"
    local text = ("d=%s/cluster; mkdir $d\n"):format(dir) .. cluster ..
      "ACCELHOST_SECRET='one two three four' \"$host\" launch --launcher srun --num_machines 2 --num_processes 4 " ..
      script .. path
    return hosts.run(2, text, {timeout = 180}), path
  end, function(result, path)
    if not result then return pending "needs Slurm (slurm-wlm)" end
    assert.equal(0, result.code, result.output)
    compare(4, path)
  end)
end)
