-- Processes of one job that no launcher of ours has started: by torchrun, or by hand.
local run = require "spec.support.run"

local function own_pid()
  local stat = io.open "/proc/self/stat"
  local number = stat:read "*n"
  stat:close()
  return number
end

-- A name that no other run on this machine has.
local function own_port() return ("%d-%d"):format(own_pid(), math.random(1e9)) end

-- Starts processes by a shell text in which `rank N WORDS...` starts one and `await TEXT` waits until one of them has
-- printed that. Returns the output of all, each line prefixed by its rank, and their exit codes in a line each,
-- sorted.
local function shell(text, options)
  options = options or {}
  local env = {RANK = false, LOCAL_RANK = false, WORLD_SIZE = false, LOCAL_WORLD_SIZE = false, MASTER_ADDR = false,
    MASTER_PORT = own_port(), ACCELHOST_TIMEOUT = options.timeout or 60, ACCELHOST_JOB = false}
  local path = os.tmpname()
  local result = run.program({"bash", "-c", [[
    host=$0 output=$1
    rank() { r=$1; shift; { RANK=$r "$host" "$@" 2>&1; echo "exit $?"; } | sed -u "s/^/$r: /" | tee -a "$output" & }
    await() { until grep -q "$1" "$output"; do sleep 0.02; done; }
    ]] .. text .. "\nwait", run.path, path}, {timeout = 100, env = env})
  os.remove(path)
  local lines = {}
  for line in result.stdout:gmatch "[^\n]+" do lines[#lines + 1] = line end
  table.sort(lines)
  return table.concat(lines, "\n"), result
end

local case = "spec/distributed/cases/dist_collectives.lua"
local begin = "dist = require('accelhost').distributed dist.init_process_group() "

describe("Processes without a common launcher", function()
  it("meet in any order and are a job", function()
    for _, order in ipairs {"2 1 0", "0 1 2"} do
      local said = shell("export WORLD_SIZE=3; for r in " .. order .. "; do rank $r " .. case .. "; sleep 0.1; done")
      assert.equal("0: exit 0\n0: ok\n1: exit 0\n1: ok\n2: exit 0\n2: ok", said)
    end
  end)

  it("receive rank and size from the script, too", function()
    local script = "local d = require('accelhost').distributed local r = tonumber(arg[1]) " ..
      ("d.init_process_group{init_method = 'tcp://localhost:%d', rank = r, world_size = 2} "):format(
        20000 + own_pid() % 40000) ..
      "local t = require('accelhost').ones(1) d.all_reduce(t) print(t:item(), d.get_rank(), d.get_backend())"
    local said = shell(([[for r in 0 1; do { "$host" -e "%s" $r 2>&1; } & done]]):format(script))
    assert.equal("2\t0\tshm\n2\t1\tshm", said)
  end)

  it("average gradients with an accelerator as launched ones do", function()
    local said = shell("export WORLD_SIZE=2; for r in 0 1; do rank $r spec/distributed/cases/accelerator.lua; done")
    assert.matches("0: exit 0\n0: .*\n1: exit 0", said)
  end)

  it("keep jobs with other ports apart", function()
    local script = begin .. "local l = {} dist.all_gather_object(l, os.getenv('MASTER_PORT')) print(l[1] == l[2])"
    local said = shell(([[
      export WORLD_SIZE=2; own=$MASTER_PORT
      for job in a b; do for r in 0 1; do MASTER_PORT=$own-$job rank $r -e "%s"; done; done]]):format(script))
    assert.equal(("0: exit 0\n"):rep(2) .. ("0: true\n"):rep(2) .. ("1: exit 0\n"):rep(2) .. "1: true\n1: true", said)
  end)

  it("report which rank was killed", function()
    local script = begin .. "if dist.get_rank() == 1 then os.execute('kill -9 $PPID') end dist.barrier()"
    local said = shell(([[export WORLD_SIZE=3; for r in 0 1 2; do rank $r -e "%s"; done]]):format(
      (script:gsub("%$", "\\$"))))
    assert.matches("0: %-e:1: barrier #2 at %-e:1: lost rank 1, which died", said)
    assert.matches("2: %-e:1: barrier #2 at %-e:1: lost rank 1, which died", said)
    assert.matches("0: exit 1\n", said)
    assert.matches("1: exit 137\n", said)
  end)

  it("report which rank has failed, and which did not arrive", function()
    local script = begin .. "if dist.get_rank() == 1 then error('cause') end dist.barrier()"
    local said = shell(([[export WORLD_SIZE=2; for r in 0 1; do rank $r -e "%s"; done]]):format(script))
    assert.matches("0: %-e:1: barrier #2 at %-e:1: lost rank 1, which failed: %-e:1: cause", said)
    said = shell(("export WORLD_SIZE=2 ACCELHOST_PATIENCE=0.3; rank 1 -e \"%s\""):format(begin), {timeout = 3})
    assert.matches("1: accelhost: rank 1 of 2 %(MASTER_PORT [%d-]+%) has waited 0.3 s for rank 0; `accelhost launch "
      .. "%-%-num_processes 2` starts all of them", said)
    for missing, other in pairs {[0] = 1, [1] = 0} do
      said = shell(("export WORLD_SIZE=2; rank %d -e \"%s\""):format(other, begin), {timeout = 1})
      assert.matches(("%%-e:1: rank %d of 2 %%(MASTER_PORT [%%d-]+%%): rank %d did not arrive within 1 s"):format(other,
        missing), said)
    end
  end)

  it("report contradictions", function()
    local said = shell(([[WORLD_SIZE=2 rank 0 -e "%s"; WORLD_SIZE=3 rank 1 -e "%s"]]):format(begin, begin))
    assert.matches("0: %-e:1: WORLD_SIZE is 2 here, but 3 of rank 1", said)
    assert.matches("1: %-e:1: WORLD_SIZE is 3 here, but 2 of rank 0", said)
    said = shell(([[
      export WORLD_SIZE=3; for r in 0 1 1; do rank $r -e "%s"; done; await "occurs twice"; rank 2 -e "%s"]]):format(
      begin, begin))
    assert.matches("1: %-e:1: RANK 1 occurs twice %(MASTER_PORT [%d-]+%); set a different MASTER_PORT for each job",
      said)
    assert.matches("0: exit 0\n1: .*2: exit 0", said)
    said = shell(([[
      export WORLD_SIZE=2; for r in 0 0; do rank $r -e "%s"; done; await "occurs twice"; rank 1 -e "%s"]]):format(
      begin, begin))
    assert.matches("0: %-e:1: RANK 0 occurs twice", said)
    said = shell(([[export WORLD_SIZE=2 MASTER_ADDR=10.255.1.2; rank 1 -e "%s"]]):format(begin))
    assert.matches("MASTER_ADDR is 10.255.1.2, another host: LOCAL_RANK and LOCAL_WORLD_SIZE must define which of the "
      .. "2 ranks are here", said)
    said = shell(([[export SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_NODEID=1 SLURM_STEP_NUM_NODES=2
      "$host" -e "%s" 2>&1]]):format(begin))
    assert.matches("SLURM_STEP_NUM_NODES is 2, but SLURM_STEP_TASKS_PER_NODE is not set", said)
    said = shell(([[export WORLD_SIZE=4 LOCAL_WORLD_SIZE=2; LOCAL_RANK=0 rank 2 -e "%s"; LOCAL_RANK=1 rank 1 -e "%s"
      ]]):format(begin, begin))
    assert.matches("1: %-e:1: the ranks of a host have to be consecutive, and rank 1 is number 1 after rank 2", said)
  end)

  it("see rank 0 die while it waits for the last of them", function()
    local said = shell(([[
      export WORLD_SIZE=3 ACCELHOST_PATIENCE=0.3; RANK=0 "$host" -e "%s" & first=$!
      rank 1 -e "%s"; await "rank 1 has waited"; kill -9 $first; wait $first]]):format(begin, begin))
    assert.matches("1: %-e:1: .*rank 0, which died", said)
  end)

  it("report once why they end", function()
    local script = begin .. "dist.barrier() if arg[1] then os.execute 'kill -9 \\$PPID' end dist.barrier()"
    local said = shell(([[export WORLD_SIZE=2; rank 0 -e "%s"; rank 1 -e "%s" x]]):format(script, script))
    local _, count = said:gsub("lost rank 1, which died", "")
    assert.equal(1, count, said)
    assert.matches("0: exit 1\n", said)
  end)

  it("start programs that are no ranks", function()
    local script = begin .. "local p = io.popen(arg[1] .. ' -e \\\"print(os.getenv([[RANK]]), " ..
      "require([[accelhost]]).Accelerator().num_processes)\\\"') io.write(p:read('*a'))"
    local said = shell(([[export WORLD_SIZE=2; for r in 0 1; do rank $r -e "%s" "$host"; done]]):format(script))
    assert.equal("0: exit 0\n0: nil\t1\n1: exit 0\n1: nil\t1", said)
  end)
end)
