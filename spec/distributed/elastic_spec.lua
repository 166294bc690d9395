-- Jobs on several machines whose machines fail, come back, come late and go: accelhost launch --max_restarts and
-- --nnodes MIN:MAX.
local folder = require "spec.support.folder"
local hosts = require "spec.support.hosts"
local run = require "spec.support.run"

local case = "spec/distributed/cases/resumed.lua"

-- What a text of the shell may call besides what hosts.run has: `start K` gives the command on node K, `await TEXT`
-- waits until somebody has said it, `kill_launcher K [NAME]` and `kill_all K` send signals there.
local shell = [[
dir=$1; shift; log=$dir/log; : >>$log
words="launch --main_process_ip node1 --secret_file none --silence 2 --patience 1"
start() { on $1 $words $common 2>&1 | tee -a $log & }
await() { until grep -q -e "$1" $log; do sleep 0.02; done; }
step() { until grep -q "^$1 " $dir/steps 2>/dev/null; do sleep 0.02; done; }
kill_launcher() {
  testhosts on $1 sh -c "kill -${2:-KILL} \$(pgrep -xf '.*/accelhost launch .*' | head -n 1)"
}
kill_all() { testhosts on $1 sh -c 'kill -KILL -1' 2>/dev/null; }
]]

describe("A job on several machines", function()
  if hosts.missing() then
    it("is disturbed on hosts of its own", function() pending(hosts.missing()) end)
    return
  end

  local dir
  before_each(function() dir = folder.make() end)
  after_each(function() folder.remove(dir) end)

  -- Every machine is given `words`; node 1 and those of `text` (with `start K`) run them.
  local function play(count, words, text, timeout)
    local head = ("set -- %s; "):format(dir) .. shell .. ("common=%q\n"):format(words)
    local result = hosts.run(count, head .. text .. "\nwait", {timeout = timeout or 60})
    local said, code = {}, {}
    for node = 1, count do said[node], code[node] = hosts.said(result, node) end
    return said, code, result
  end
  local function says(text, line) assert.truthy(text:find(line, 1, true), text) end

  local function steps()
    local list = {}
    for line in io.lines(dir .. "/steps") do
      local number, ranks, samples, loss = line:match "^(%d+) (%d+) (%S+) (%S+)$"
      list[#list + 1] = {number = tonumber(number), ranks = tonumber(ranks), samples = samples, loss = loss}
    end
    return list
  end
  -- The samples of all steps that count: of one that was done again, the last time.
  local function order()
    local newest, list = {}, {}
    for _, step in ipairs(steps()) do newest[step.number] = step.samples end
    for _, samples in ipairs(newest) do list[#list + 1] = samples end
    return table.concat(list, ",")
  end

  local calm
  -- An undisturbed run of four ranks on one machine: its weights and the order of its samples.
  local function undisturbed()
    if calm then return calm end
    local own = folder.make()
    local result = run.host({"launch", "--num_processes", "4", case, own}, {timeout = 60})
    assert.equal(0, result.code, result.output)
    local kept = dir
    dir = own
    calm = {weights = result.stdout:match "weights (%x+)", order = order()}
    dir = kept
    folder.remove(own)
    assert.equal(96, select(2, calm.order:gsub("%d+", "")))
    return calm
  end

  for name, trial in pairs {
    ["a rank was killed"] = {"0 2 5", "start 1; start 2", "on node2: rank 2 was killed by SIGKILL"},
    ["a launcher was killed and started again"] = {"0.1", "start 1; start 2; step 4; kill_launcher 2; start 2",
      "on node2: machine 1, with ranks 2-3, is gone: its connection ended"},
    ["a whole machine was off, its cable too, and came back"] = {"0.1", [[start 1; start 2; step 4
      testhosts down 2; kill_all 2; await "has waited 1 s for machine 1"; testhosts up 2; start 2]],
      "on node2: machine 1, with ranks 2-3, is gone: the network does not reach it"},
  } do
    it(("goes on after %s, to the bit"):format(name), function()
      local expected = undisturbed()
      local said, code = play(2, ("--num_machines 2 --num_processes 4 --max_restarts 1 %s %s %s"):format(case, dir,
        trial[1]), trial[2])
      assert.same({0, 0}, code, said[1] .. said[2])
      says(said[1], trial[3])
      says(said[1], "accelhost launch: attempt 0 failed; all ranks start anew (restart 1 of at most 1)\n")
      assert.matches("goes on after step [3-9]\n", said[1])
      for node = 1, 2 do
        says(said[node], "weights " .. expected.weights .. ", restarts 1, of them after failures 1\n")
      end
      assert.equal(expected.order, order())
    end)
  end

  it("continues on the machines that are left, and again on all", function()
    local said, code = play(2, ("--nnodes 1:2 --nproc_per_node 2 --max_restarts 1 %s %s 0.1"):format(case, dir),
      [[start 1; start 2; step 4; kill_launcher 2; await "continues on 1 of 2"; step 8; start 2]])
    assert.same({0, 0}, code, said[1] .. said[2])
    says(said[1], "accelhost launch: continues on 1 of 2 machines, 2 ranks instead of 4\n")
    says(said[1], "accelhost launch: node2 came: all ranks start anew\n")
    says(said[1], "accelhost launch: continues on 2 of 2 machines, 4 ranks instead of 2\n")
    says(said[2], "accelhost launch: joins the job at its attempt 2, as machine 1 of 2, with ranks from 2 on\n")
    says(said[1], "restarts 2, of them after failures 1\n")
    assert.equal(undisturbed().order, order())
  end)

  it("has on fewer ranks the losses of a job that had no others", function()
    local said, code = play(2, ("--nnodes 1:2 --nproc_per_node 2 --max_restarts 1 %s %s 0.1"):format(case, dir),
      [[start 1; start 2; step 4; testhosts down 2; kill_launcher 2
      await "continues on 1 of 2"; cp -r $dir/run $dir/kept]])
    assert.equal(0, code[1], said[1])
    local disturbed, expected = steps(), order()
    local weights, from = said[1]:match "weights (%x+)", tonumber(said[1]:match "goes on after step (%d+)")
    assert.equal(undisturbed().order, expected)
    os.remove(dir .. "/steps")
    folder.remove(dir .. "/run")
    assert(os.rename(dir .. "/kept", dir .. "/run"))
    local result = run.host({"launch", "--num_processes", "2", case, dir}, {timeout = 60})
    assert.equal(0, result.code, result.output)
    says(result.stdout, "goes on after step " .. from)
    assert.equal(weights, result.stdout:match "weights (%x+)")
    local alone = steps()
    assert.is_true(#alone > 10)
    for i = 1, #alone do assert.same(alone[i], disturbed[#disturbed - #alone + i]) end
  end)

  it("begins with the fewest machines when the last call is over, and anew with one that comes later", function()
    local said, code = play(2, ("--nnodes 1:2 --nproc_per_node 2 --last_call_timeout 0.5 %s %s 0.1"):format(case, dir),
      [[start 1; step 4; start 2]])
    assert.same({0, 0}, code, said[1] .. said[2])
    says(said[1], "accelhost launch: begins on 1 of 2 machines, 2 ranks\n")
    says(said[1], "accelhost launch: node2 came: all ranks start anew\n")
    says(said[1], "restarts 1, of them after failures 0\n")
    assert.equal(undisturbed().order, order())
  end)

  it("goes on without a machine whose launcher is asked to end", function()
    local said, code = play(2, ("--nnodes 1:2 --nproc_per_node 2 %s %s 0.1"):format(case, dir),
      "start 1; start 2; step 4; kill_launcher 2 TERM")
    assert.same({0, 143}, code, said[1] .. said[2])
    says(said[2], "accelhost launch: on node2: the launcher was asked to end by SIGTERM\n")
    says(said[1], "accelhost launch: node2 was asked to end: all ranks start anew\n")
    says(said[1], "accelhost launch: continues on 1 of 2 machines, 2 ranks instead of 4\n")
    says(said[1], "restarts 1, of them after failures 0\n")
    assert.equal(undisturbed().order, order())
  end)

  it("ends when the first machine's launcher is asked to, or too few are left", function()
    for _, trial in ipairs {{"1:2", 1}, {"2:3 --last_call_timeout 0", 2}} do
      local words = ("--nnodes %s --nproc_per_node 2 --max_restarts 1 %s %s 0.1"):format(trial[1], case, dir)
      local said, code = play(2, words, ("start 1; start 2; step 2; kill_launcher %d TERM"):format(trial[2]))
      assert.same({143, 143}, code, said[1] .. said[2])
      for node = 1, 2 do
        says(said[node], ("on node%d: the launcher was asked to end by SIGTERM\n"):format(trial[2]))
        assert.is_nil(said[node]:find "start anew")
      end
      os.remove(dir .. "/steps")
      folder.remove(dir .. "/run")
    end
  end)

  it("gives the place of a machine that is gone to one that has waited for it", function()
    local said, code = play(3, ("--num_machines 2 --num_processes 4 --max_restarts 1 %s %s 0.1"):format(case, dir),
      [[start 1; start 2; step 2; start 3; await "has waited 1 s for a place among the job's 2 machines"
      kill_launcher 2]])
    assert.same({0, 0}, {code[1], code[3]}, said[1] .. said[3])
    says(said[3], "accelhost launch: joins the job at its attempt 1, as machine 1 of 2, with ranks from 2 on\n")
    says(said[1], "weights " .. undisturbed().weights)
  end)

  it("turns away who is too many or wants another job, and goes on", function()
    local path = dir .. "/sleep.lua"
    local file = assert(io.open(path, "w"))
    file:write 'print "begin" io.flush() os.execute "exec sleep 3"'
    file:close()
    local said, code = play(3, "--num_machines 2 --num_processes 2 " .. path,
      "start 1; start 2; await begin; start 3")
    assert.same({0, 0, 3}, code, said[1] .. said[2] .. said[3])
    says(said[3], "the job has its 2 machines already, the first of them node1\n")
    os.remove(dir .. "/log")
    said, code = play(2, "--last_call_timeout 0 " .. path,
      "common=\"--nnodes 1:2 $common\"; start 1; await begin; common=${common/1:2/1:3}; start 2")
    assert.same({0, 3}, code, said[1] .. said[2])
    says(said[2], "node1 says that there are 2 machines, and node2 3\n")
    assert.is_nil(said[1]:find "start anew")
  end)

  it("ends on all when the machine is gone at which they meet, saying that nothing starts anew", function()
    local said, code = play(2, ("--nnodes 1:2 --nproc_per_node 2 --max_restarts 3 %s %s 0.1"):format(case, dir),
      [[start 1; start 2; step 2; testhosts kill 1]])
    assert.equal(3, code[2])
    says(said[2], "accelhost launch: on node1: machine 0, with ranks 0-1, is gone: ")
    says(said[2], "accelhost launch: nothing starts anew, as the machines of the job met at machine 0\n")
  end)

  it("gives up when too few come back in time, naming who is missing", function()
    local words = ("--num_machines 2 --num_processes 4 --max_restarts 3 --timeout 3 %s %s 0.1"):format(case, dir)
    local said, code = play(2, words, "start 1; start 2; step 2; testhosts kill 2")
    assert.equal(3, code[1])
    says(said[1], "accelhost launch: machine (node1) has waited 1 s for machine 1\n")
    says(said[1], "accelhost launch: node1: did not come within 3 s: machine 1\n")
  end)

  it("is ended by a signal while it waits for a machine", function()
    local said, code = play(2, ("--num_machines 2 --num_processes 4 --max_restarts 3 %s %s 0.1"):format(case, dir),
      [[start 1; start 2; step 2; kill_launcher 2; await "has waited 1 s for machine 1"; kill_launcher 1 TERM]], 30)
    assert.equal(143, code[1], said[1])
  end)
end)
