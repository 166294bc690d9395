-- Jobs whose machines fail, return, arrive late and leave: accelhost launch --max_restarts and
-- --nnodes MIN:MAX.
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local hosts = require "spec.support.hosts"
local run = require "spec.support.run"
local scenes = require "spec.support.scenes"

local case = "spec/distributed/cases/resumed.lua"

-- Commands that the shell text may call in addition to those of hosts.run: `start K` runs the command on node K,
-- `await TEXT` waits until a node has printed it, `kill_launcher K [NAME]` and `kill_all K` send signals there.
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
    it("is disturbed on test hosts", function() pending(hosts.missing()) end)
    return
  end

  local places = {}
  teardown(function()
    for _, place in ipairs(places) do folder.remove(place) end
  end)

  -- Every machine receives the arguments `words`; node 1 and those that `text` starts (`start K`) run them, in a folder
  -- that the words call DIR. Returns the output of each node, its exit code, and the folder.
  local function play(count, words, text)
    local dir = folder.make()
    places[#places + 1] = dir
    local head = ("set -- %s; "):format(dir) .. shell .. ("common=%q\n"):format((words:gsub("DIR", dir)))
    local result = hosts.run(count, head .. text .. "\nwait", {timeout = 120})
    local said, code = {}, {}
    for node = 1, count do said[node], code[node] = hosts.said(result, node) end
    return said, code, dir
  end
  local function says(text, line) assert.truthy(text:find(line, 1, true), text) end

  local function steps(dir)
    local list = {}
    for line in io.lines(dir .. "/steps") do
      local number, ranks, samples, loss = line:match "^(%d+) (%d+) (%S+) (%S+)$"
      list[#list + 1] = {number = tonumber(number), ranks = tonumber(ranks), samples = samples, loss = loss}
    end
    return list
  end
  -- The samples of all steps that count: of one that was done again, the last time.
  local function order(dir)
    local newest, list = {}, {}
    for _, step in ipairs(steps(dir)) do newest[step.number] = step.samples end
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
    calm = {weights = result.stdout:match "weights (%x+)", order = order(own)}
    folder.remove(own)
    assert.equal(96, select(2, calm.order:gsub("%d+", "")))
    return calm
  end

  local scene = scenes.new(it, 4)
  local job = case .. " DIR"

  for name, trial in pairs {
    ["a rank was killed"] = {"0 2 5", "start 1; start 2", "on node2: rank 2 was killed by SIGKILL"},
    ["a launcher was killed and started again"] = {"0.1", "start 1; start 2; step 4; kill_launcher 2; start 2",
      "on node2: machine 1, with ranks 2-3, is gone: its connection ended"},
    ["a whole machine was off, its cable too, and returned"] = {"0.1", [[start 1; start 2; step 4
      testhosts down 2; kill_all 2; await "has waited 1 s for machine 1"; testhosts up 2; start 2]],
      "on node2: machine 1, with ranks 2-3, is gone: the network does not reach it"},
  } do
    scene(("continues after %s, to the bit"):format(name), function()
      return play(2, ("--num_machines 2 --num_processes 4 --max_restarts 1 %s %s"):format(job, trial[1]), trial[2])
    end, function(said, code, dir)
      local expected = undisturbed()
      assert.same({0, 0}, code, said[1] .. said[2])
      says(said[1], trial[3])
      says(said[1], "accelhost launch: attempt 0 failed; all ranks restart (restart 1 of at most 1)\n")
      assert.matches("resumes after step [3-9]\n", said[1])
      for node = 1, 2 do
        says(said[node], "weights " .. expected.weights .. ", restarts 1, of them after failures 1\n")
      end
      assert.equal(expected.order, order(dir))
    end)
  end

  scene("continues on the machines that are left, and again on all", function()
    return play(2, ("--nnodes 1:2 --nproc_per_node 2 --max_restarts 1 %s 0.2"):format(job),
      [[start 1; start 2; step 4; kill_launcher 2; await "continues on 1 of 2"; step 8; start 2]])
  end, function(said, code, dir)
    assert.same({0, 0}, code, said[1] .. said[2])
    says(said[1], "accelhost launch: continues on 1 of 2 machines, 2 ranks instead of 4\n")
    says(said[1], "accelhost launch: node2 joined: all ranks restart\n")
    says(said[1], "accelhost launch: continues on 2 of 2 machines, 4 ranks instead of 2\n")
    says(said[2], "accelhost launch: joins the job at its attempt 2, as machine 1 of 2, with ranks from 2 on\n")
    says(said[1], "restarts 2, of them after failures 1\n")
    assert.equal(undisturbed().order, order(dir))
  end)

  scene("has on fewer ranks the losses of a job that had no others", function()
    return play(2, ("--nnodes 1:2 --nproc_per_node 2 --max_restarts 1 %s 0.1"):format(job),
      [[start 1; start 2; step 4; touch $dir/hold; testhosts down 2; kill_launcher 2
      await "continues on 1 of 2"; cp -r $dir/run $dir/kept; rm $dir/hold]])
  end, function(said, code, dir)
    assert.equal(0, code[1], said[1])
    local disturbed, expected = steps(dir), order(dir)
    local weights, from = said[1]:match "weights (%x+)", tonumber(said[1]:match "resumes after step (%d+)")
    assert.equal(undisturbed().order, expected)
    os.remove(dir .. "/steps")
    folder.remove(dir .. "/run")
    assert(os.rename(dir .. "/kept", dir .. "/run"))
    local result = run.host({"launch", "--num_processes", "2", case, dir}, {timeout = 60})
    assert.equal(0, result.code, result.output)
    says(result.stdout, "resumes after step " .. from)
    assert.equal(weights, result.stdout:match "weights (%x+)")
    local alone = steps(dir)
    assert.is_true(#alone > 10)
    for i = 1, #alone do assert.same(alone[i], disturbed[#disturbed - #alone + i]) end
  end)

  scene("begins with the fewest machines after the last call, and restarts with one that arrives later", function()
    return play(2, ("--nnodes 1:2 --nproc_per_node 2 --last_call_timeout 0.5 %s 0.2"):format(job),
      [[start 1; step 4; start 2]])
  end, function(said, code, dir)
    assert.same({0, 0}, code, said[1] .. said[2])
    says(said[1], "accelhost launch: begins on 1 of 2 machines, 2 ranks\n")
    says(said[1], "accelhost launch: node2 joined: all ranks restart\n")
    says(said[1], "restarts 1, of them after failures 0\n")
    assert.equal(undisturbed().order, order(dir))
  end)

  scene("continues without a machine whose launcher is asked to end", function()
    return play(2, ("--nnodes 1:2 --nproc_per_node 2 %s 0.1"):format(job),
      "start 1; start 2; step 4; kill_launcher 2 TERM")
  end, function(said, code, dir)
    assert.same({0, 143}, code, said[1] .. said[2])
    says(said[2], "accelhost launch: on node2: the launcher was asked to end by SIGTERM\n")
    says(said[1], "accelhost launch: node2 was asked to end: all ranks restart\n")
    says(said[1], "accelhost launch: continues on 1 of 2 machines, 2 ranks instead of 4\n")
    says(said[1], "restarts 1, of them after failures 0\n")
    assert.equal(undisturbed().order, order(dir))
  end)

  for what, trial in pairs {["the first machine's launcher is asked to"] = {"1:2", 1},
    ["too few are left"] = {"2:3 --last_call_timeout 0", 2}} do
    scene("ends when " .. what, function()
      local words = ("--nnodes %s --nproc_per_node 2 --max_restarts 1 %s 0.1"):format(trial[1], job)
      return play(2, words, ("start 1; start 2; step 2; kill_launcher %d TERM"):format(trial[2]))
    end, function(said, code)
      assert.same({143, 143}, code, said[1] .. said[2])
      for node = 1, 2 do
        says(said[node], ("on node%d: the launcher was asked to end by SIGTERM\n"):format(trial[2]))
        assert.is_nil(said[node]:find "all ranks restart")
      end
    end)
  end

  scene("assigns the rank of a lost machine to one that has waited for it", function()
    return play(3, ("--num_machines 2 --num_processes 4 --max_restarts 1 %s 0.4"):format(job),
      [[start 1; start 2; step 2; start 3; await "has waited 1 s for a place among the job's 2 machines"
      kill_launcher 2]])
  end, function(said, code)
    assert.same({0, 0}, {code[1], code[3]}, said[1] .. said[3])
    says(said[3], "accelhost launch: joins the job at its attempt 1, as machine 1 of 2, with ranks from 2 on\n")
    says(said[1], "weights " .. undisturbed().weights)
  end)

  -- Its ranks run until a file lets them end.
  local patient = os.tmpname()
  files.write(patient, "print 'begin' io.flush() while not io.open(arg[1]) do os.execute 'sleep 0.05' end")
  teardown(function() os.remove(patient) end)
  scene("turns away a machine too many, and continues", function()
    return play(3, ("--num_machines 2 --num_processes 2 %s DIR/over"):format(patient),
      "start 1; start 2; await begin; start 3; await 'exit 3'; touch $dir/over")
  end, function(said, code)
    assert.same({0, 0, 3}, code, said[1] .. said[2] .. said[3])
    says(said[3], "the job has its 2 machines already, the first of them node1\n")
  end)

  for line, change in pairs {
    ["node1 is configured for 2 machines, and node2 for 3"] = "${common/1:2/1:3}",
    ["node1 is configured for at least 1 of its 2 machines, and node2 for 2"] = "${common/1:2/2:2}",
    ["node1 is configured for at most 0 restarts of all ranks (max_restarts), and node2 for 4"] =
      "\"--max_restarts 4 $common\"",
  } do
    scene("turns away a machine of another job: " .. line, function()
      return play(2, ("--nnodes 1:2 --last_call_timeout 0 --nproc_per_node 1 %s DIR/over"):format(patient),
        "start 1; await begin; common=" .. change .. "; start 2; await 'exit 3'; touch $dir/over")
    end, function(said, code)
      assert.same({0, 3}, code, said[1] .. said[2])
      says(said[2], line)
      assert.is_nil(said[1]:find "all ranks restart")
    end)
  end

  scene("ends on all when the rendezvous machine is lost, and reports that nothing restarts", function()
    return play(2, ("--nnodes 1:2 --nproc_per_node 2 --max_restarts 3 %s 0.1"):format(job),
      "start 1; start 2; step 2; testhosts kill 1")
  end, function(said, code)
    assert.equal(3, code[2])
    says(said[2], "accelhost launch: on node1: machine 0, with ranks 0-1, is gone: ")
    says(said[2], "accelhost launch: no restart: machine 0, which ran the rendezvous, is lost\n")
  end)

  scene("stops when too few machines return in time, and names the missing ones", function()
    local words = ("--num_machines 2 --num_processes 4 --max_restarts 3 --timeout 3 %s 0.1"):format(job)
    return play(2, words, "start 1; start 2; step 2; testhosts kill 2")
  end, function(said, code)
    assert.equal(3, code[1])
    says(said[1], "accelhost launch: machine (node1) has waited 1 s for machine 1\n")
    says(said[1], "accelhost launch: node1: did not arrive within 3 s: machine 1\n")
  end)

  scene("is ended by a signal while it waits for a machine", function()
    return play(2, ("--num_machines 2 --num_processes 4 --max_restarts 3 %s 0.1"):format(job),
      [[start 1; start 2; step 2; kill_launcher 2; await "has waited 1 s for machine 1"; kill_launcher 1 TERM]])
  end, function(said, code) assert.equal(143, code[1], said[1]) end)
end)
