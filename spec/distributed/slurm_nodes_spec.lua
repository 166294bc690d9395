-- Jobs of Slurm on several nodes, and the scripts of examples/slurm.
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local run = require "spec.support.run"
local slurm_hosts = require "spec.support.slurm_hosts"

local secret = {ACCELHOST_SECRET = "one two three four five"}

describe("Slurm's nodes", function()
  if slurm_hosts.missing() then
    it("are tried on a cluster of this machine", function() pending(slurm_hosts.missing()) end)
    return
  end

  local dir, cluster
  setup(function()
    dir = folder.make()
    cluster = slurm_hosts.start(4)
  end)
  teardown(function()
    cluster.stop()
    folder.remove(dir)
  end)

  local mnist = "examples/mnist.lua --smoke --dtype float64 --no_dropout --train_size 256 --batch_size 8 --log_losses "
  local expected = {}
  local losses = files.numbers
  local function compare(ranks, path)
    if not expected[ranks] then
      local result = run.program({"sh", "-c", ("exec %s launch --num_processes %d %s%s/one%d"):format(run.path, ranks,
        mnist, dir, ranks)}, {timeout = 120})
      assert.equal(0, result.code, result.output)
      expected[ranks] = losses(dir .. "/one" .. ranks)
    end
    local got = losses(path)
    assert.is_true(#got > 3)
    assert.equal(#expected[ranks], #got)
    for i, loss in ipairs(expected[ranks]) do
      assert.is_true(math.abs(got[i] - loss) <= 1e-12, ("step %d: %.17g, %.17g"):format(i, loss, got[i]))
    end
  end

  for _, count in ipairs {2, 4} do
    it(("train BasicNet on %d of them under srun as as many ranks on one do"):format(count), function()
      local path = dir .. "/srun" .. count
      local result = cluster.run(("srun -w node[1-%d] --ntasks-per-node 2 --overcommit accelhost %s%s"):format(count,
        mnist, path), {timeout = 150, env = secret})
      assert.equal(0, result.code, result.output)
      compare(2 * count, path)
    end)
  end

  it("train it by MPI, without a secret, where srun has PMIx", function()
    local path = dir .. "/mpi"
    local result = cluster.run(([[
      srun --mpi=list 2>&1 | grep -q pmix || { echo no pmix; exit 9; }
      export ACCELHOST_WIRE=mpi OMPI_MCA_btl_tcp_if_include=10.77.0.0/24
      srun --mpi=pmix -w node[1-2] --ntasks-per-node 2 accelhost %s%s]]):format(mnist, path), {timeout = 150})
    if result.stdout:find "no pmix" or result.output:find "to build: libopenmpi" then
      return pending "needs PMIx in Slurm and accelhost-mpi.so"
    end
    assert.equal(0, result.code, result.output)
    compare(4, path)
  end)

  it("end soon by MPI when a rank is killed or stopped, and name it", function()
    local path = dir .. "/fault.lua"
    local file = assert(io.open(path, "w"))
    file:write [[local d = require("accelhost").distributed d.init_process_group() d.barrier()
      if d.get_rank() == 3 then os.execute("kill -" .. os.getenv "SIGNAL" .. " $PPID") end
      d.barrier()]]
    file:close()
    local said = {KILL = "lost rank 3, which died %(rank 3 [^\n]*, on node2%)",
      STOP = "timed out after 3 s: rank 3 was last seen at"}
    for _, signal in ipairs {"KILL", "STOP"} do
      local result = cluster.run(([[
        srun --mpi=list 2>&1 | grep -q pmix || { echo no pmix; exit 9; }
        export ACCELHOST_WIRE=mpi OMPI_MCA_btl_tcp_if_include=10.77.0.0/24
        export ACCELHOST_TIMEOUT=3 SIGNAL=%s
        from=$EPOCHREALTIME; srun --mpi=pmix -w node[1-2] --ntasks-per-node 2 accelhost %s </dev/null
        echo "seconds $(echo "$EPOCHREALTIME - $from" | bc)"]]):format(signal, path), {timeout = 100})
      if result.stdout:find "no pmix" or result.output:find "to build: libopenmpi" then
        return pending "needs PMIx in Slurm and accelhost-mpi.so"
      end
      assert.matches(said[signal], result.output)
      assert.is_true(tonumber(result.stdout:match "seconds ([%d.]+)") < 20, result.output)
    end
  end)

  -- Submit a script to sbatch, do something during its $job, and wait until that has ended.
  local function batch(words, env, during)
    local out = os.tmpname()
    local result = cluster.run(([[
      job=$(sbatch --parsable --output=%s --error=%s --cpus-per-task=1 %s) || exit
      %s
      while squeue -h -j $job 2>/dev/null | grep -q .; do sleep 0.2; done
      scontrol show job $job | grep -o 'JobState=[A-Z]*\|Restarts=[0-9]*']]):format(out, out, words, during or ""),
      {timeout = 200, env = env})
    local text = files.read(out)
    os.remove(out)
    return {state = result.stdout, text = text, all = text .. result.output}
  end

  it("run the example of one node, and that of several", function()
    local path = dir .. "/batch"
    local one, nodes, wrong = unpack(run.at_once {
      function() return batch("examples/slurm/one_node.sbatch " .. mnist .. path .. 1, {RANKS = "2"}) end,
      function() return batch("examples/slurm/nodes.sbatch " .. mnist .. path .. 2) end,
      function() return batch("examples/slurm/nodes.sbatch -e 'error \"cause\"'") end,
    })
    assert.matches("JobState=COMPLETED", one.state, one.all)
    compare(2, path .. 1)
    assert.matches("JobState=COMPLETED", nodes.state, nodes.all)
    compare(4, path .. 2)
    assert.matches("JobState=FAILED", wrong.state)
    assert.matches("cause", wrong.text)
  end)

  it("save, queue again and resume to the same weights when the time is up", function()
    local words = "examples/by_feature/checkpointing.lua --train_size 640 --epochs 8 --resume --project_dir " .. dir
    -- The signal of the time limit, which Slurm itself sends at a whole minute.
    local straight, cut = unpack(run.at_once {
      function() return batch("examples/slurm/nodes.sbatch " .. words .. "/straight") end,
      function()
        return batch("examples/slurm/requeue.sbatch " .. words .. "/cut", nil, ([[
          until ls %s/cut/checkpoints/checkpoint_1 >/dev/null 2>&1; do sleep 0.05; done
          scancel --batch --signal=USR1 $job]]):format(dir))
      end,
    })
    local weights = straight.text:match "weights: (%x+)"
    assert.is_string(weights, straight.all)
    assert.matches("JobState=COMPLETED", cut.state, cut.all)
    assert.matches("Restarts=1", cut.state, cut.text)
    assert.matches("resumes after step", cut.text)
    assert.equal(weights, cut.text:match "weights: (%x+)", cut.text)
  end)
end)
