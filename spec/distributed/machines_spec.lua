-- accelhost launch --num_machines: launchers of several machines that are one job.
local hosts = require "spec.support.hosts"
local run = require "spec.support.run"
local scenes = require "spec.support.scenes"

-- Every machine runs the same command (`words`, in the shell's quotes); `during` runs once all four ranks have printed
-- "begin" and their number. They wait for the file $over.
local function launch(words, options)
  options = options or {}
  local text = {"launch() { k=$1; shift; on $k launch --num_machines 2 --main_process_ip node1 --secret_file none " ..
    "--silence 3 --patience 1 \"$@\"; }"}
  for node = 1, 2 do
    text[#text + 1] = ("launch %d %s | tee -a \"$log\" &"):format(node, options[node] or words)
  end
  text[#text + 1] = options.during and "until [ \"$(grep -o 'begin [0-9]' \"$log\" | sort -u | wc -l)\" = 4 ]; do " ..
    "sleep 0.05; done\n" .. options.during or ""
  text[#text + 1] = "from=$EPOCHREALTIME; wait; echo \"seconds $(echo \"$EPOCHREALTIME - $from\" | bc)\""
  local path = os.tmpname()
  local result = hosts.run(2, ("export log=%s over=%s.over\n"):format(path, path) .. table.concat(text, "\n"),
    {timeout = 100, env = options.env})
  os.remove(path)
  os.remove(path .. ".over")
  local said, code = {}, {}
  for node = 1, 2 do said[node], code[node] = hosts.said(result, node) end
  return said, code, tonumber(result.stdout:match "seconds ([%d.]+)"), result
end

local begin = [[print("begin " .. os.getenv "RANK") io.flush() ]]
local sleep = "'" .. begin .. "os.execute \"exec sleep 30\"'"
local function job(lua) return "--num_processes 4 -e '" .. lua .. "'" end
-- A launcher on a node, by its process id there.
local function signal(node, name)
  return ("testhosts on %d sh -c 'kill -%s $(pgrep -xf \".*/accelhost launch --num_machines 2 .*\" | head -n 1)'")
    :format(node, name)
end

describe("accelhost launch on several machines", function()
  if hosts.missing() then
    it("runs on test hosts", function() pending(hosts.missing()) end)
    return
  end

  local scene = scenes.new(it, 4)
  -- Of several launches at once: the result of each, in a table.
  local function all(list)
    local calls = {}
    for i, arguments in ipairs(list) do
      calls[i] = function()
        local said, code, took = launch(unpack(arguments))
        return {said = said, code = code, took = took}
      end
    end
    return run.at_once(calls)
  end

  scene("reports to each rank its position", function()
    return launch(job [[for _, n in ipairs {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK",
      "GROUP_WORLD_SIZE", "MASTER_ADDR"} do io.write(os.getenv(n), " ") end print()]])
  end, function(said, code)
    assert.same({0, 0}, code, said[1] .. said[2])
    assert.matches("0 4 0 2 0 2 node1 \n", said[1])
    assert.matches("%[r1%] 1 4 1 2 0 2 node1 \n", said[1])
    assert.matches("%[r2%] 2 4 0 2 1 2 node1 \n", said[2])
    assert.matches("%[r3%] 3 4 1 2 1 2 node1 \n", said[2])
  end)

  scene("accepts another number of ranks on each, and the configured machine ranks", function()
    local lua = "print(os.getenv \"GROUP_RANK\", os.getenv \"WORLD_SIZE\", os.getenv \"RANK\")"
    return launch("", {"--machine_rank 0 --nproc_per_node 1 -e '" .. lua .. "'",
      "--node_rank 1 --nproc_per_node 2 -e '" .. lua .. "'"})
  end, function(said, code)
    assert.same({0, 0}, code, said[1] .. said[2])
    assert.equal("0\t3\t0\n", said[1]:match "0\t[^\n]*\n")
    assert.matches("%[r1%] 1\t3\t1\n", said[2])
    assert.matches("%[r2%] 1\t3\t2\n", said[2])
  end)

  scene("names the host and the rank that failed, on each", function()
    return launch(job [[print "begin" if os.getenv "RANK" == "3" then error "cause" end
      os.execute "exec sleep 30"]])
  end, function(said, code, took)
    assert.same({3, 3}, code, said[1] .. said[2])
    for node = 1, 2 do assert.matches("accelhost launch: on node2: rank 3 failed: %-e:1: cause\n", said[node]) end
    assert.matches("ranks 0%-1, on node1, ended because of it", said[1])
    assert.is_true(took < 10)
  end)

  -- The failure, the node that reports it, its text about the other node, and the time limit.
  for what, trial in pairs {
    ["a host is switched off"] = {"testhosts kill 2", {1}, "", 8},
    ["the first host is switched off"] = {"testhosts kill 1", {2}, "its connection ended", 8},
    ["a launcher is killed"] = {signal(2, "KILL"), {1}, "its connection ended", 8},
    ["a cable is pulled"] = {"testhosts down 2", {1, 2}, "the network does not reach it", 15},
  } do
    scene("ends soon when " .. what, function()
      return launch("--num_processes 4 -e " .. sleep, {during = trial[1]})
    end, function(said, code, took)
      for _, node in ipairs(trial[2]) do
        local other = 3 - node
        assert.equal(3, code[node], said[node])
        local gone = ("accelhost launch: on node%d: machine %d, with ranks %s, is gone: "):format(other, other - 1,
          other == 1 and "0-1" or "2-3")
        assert.truthy(said[node]:find(gone .. trial[3], 1, true), said[node])
      end
      assert.is_true(took < trial[4])
    end)
  end

  scene("ends soon when a rank is killed or stopped in a collective, and names it", function()
    local text = [[local d = require("accelhost").distributed d.init_process_group()
      if os.getenv "RANK" == "%d" then os.execute "kill -%s $PPID" end d.barrier()]]
    return all {{job(text:format(3, "KILL"))}, {"--timeout 2 " .. job(text:format(3, "STOP"))},
      {"--timeout 3 " .. job(text:format(2, "STOP"))}}
  end, function(results)
    local killed, stopped, silent = unpack(results)
    assert.same({3, 3}, killed.code)
    for node = 1, 2 do assert.matches("on node2: rank 3 was killed by SIGKILL", killed.said[node]) end
    assert.is_true(killed.took < 8)
    assert.same({4, 4}, stopped.code)
    for node = 1, 2 do
      assert.matches("timed out after 2 s: rank 3 was last seen at", stopped.said[node])
      assert.matches("rank 3 [^\n]*was killed\n", stopped.said[node])
    end
    assert.is_true(stopped.took < 12)
    -- A stopped rank that speaks for its host sends nothing, so the others' information about it is old.
    assert.same({4, 4}, silent.code)
    for node = 1, 2 do
      assert.matches("timed out after 3 s: rank 2, which speaks for host node2, has been silent for", silent.said[node])
      assert.matches("rank 2 [^\n]*was killed\n", silent.said[node])
    end
    assert.is_true(silent.took < 12)
  end)

  scene("shows its ranks to `top` on each, and where the others are", function()
    local lua = [[require("accelhost").distributed.init_process_group() ]] .. begin ..
      [[os.execute "until [ -e $over ]; do sleep 0.05; done"]]
    return launch(job(lua), {during = "testhosts on 2 \"$host\" top --once; touch $over"})
  end, function(_, code, _, result)
    assert.same({0, 0}, code, result.output)
    for rank = 0, 3 do
      assert.matches(("\n +%d +%%d+ +%s "):format(rank, rank < 2 and "elsewhere" or "%l+"), result.stdout)
    end
    assert.not_matches("of ranks  at", result.stdout)
  end)

  scene("passes a signal on", function()
    return launch("--num_processes 4 -e " .. sleep, {during = signal(2, "TERM")})
  end, function(said, code, took)
    assert.same({143, 143}, code, said[1] .. said[2])
    assert.matches("accelhost launch: on node2: the launcher was asked to end by SIGTERM\n", said[1])
    assert.is_true(took < 10)
  end)

  scene("counts a signal that arrives on all machines at once as one, and lets the ranks finish", function()
    return launch(job([[local system = require("accelhost._C").system
      system.catch_signal "TERM" ]] .. begin .. [[
      while not system.take_signal() do os.execute "sleep 0.05" end
      os.execute "sleep 0.5" print("saved by " .. os.getenv "RANK")]]),
      {during = signal(1, "TERM") .. " & " .. signal(2, "TERM")})
  end, function(said, code)
    assert.same({143, 143}, code, said[1] .. said[2])
    for rank = 0, 3 do assert.matches("saved by " .. rank, said[1 + math.floor(rank / 2)]) end
  end)

  scene("restarts all ranks, as the next generation", function()
    return launch("--max_restarts 2 " .. job [[local n = os.getenv "ACCELHOST_RESTART_COUNT"
      print("attempt " .. n) if os.getenv "RANK" == "2" and n < "2" then error("no " .. n) end]])
  end, function(said, code)
    assert.same({0, 0}, code, said[1] .. said[2])
    for node = 1, 2 do
      for n = 0, 2 do assert.matches("attempt " .. n .. "\n", said[node]) end
      assert.matches("on node2: rank 2 failed: %-e:2: no 1\n", said[node])
      assert.matches("attempt 1 failed; all ranks restart %(restart 2 of at most 2%)\n", said[node])
    end
  end)

  scene("waits until the ranks of all have ended, and ends as the worst of them", function()
    return all {{job [[if os.getenv "RANK" == "3" then os.execute "sleep 4" os.exit(7) end]]},
      {"--patience 60 " .. job "io.stderr:write \"usage\\n\" os.exit(2)"}}
  end, function(results)
    local said, code = results[1].said, results[1].code
    assert.same({3, 3}, code)
    assert.matches("the ranks of this machine have ended; waiting for those of node2 %(machine 1%)", said[1])
    assert.matches("on node2: rank 3 exited with code 7", said[1])
    said, code = results[2].said, results[2].code
    assert.same({2, 2}, code)
    assert.is_nil((said[1] .. said[2]):find "accelhost launch")
  end)

  local ok = " -e 'print \"begin\"'"
  scene("names the machines that do not arrive", function()
    return all {{"", {"--timeout 4 --machine_rank 0" .. ok, "--help >/dev/null"}},
      {"", {"--help >/dev/null", "--timeout 4 --machine_rank 1" .. ok}}}
  end, function(results)
    local said, code = results[1].said, results[1].code
    assert.matches("machine %(node1%) has waited 1 s for machine 1\n", said[1])
    assert.matches("node1: did not arrive within 4 s: machine 1\n", said[1])
    assert.equal(3, code[1])
    said = results[2].said
    assert.matches("has waited 1 s for the job's store at node1, port 29500, which the first machine serves: that " ..
      "has not begun, or the job is over %(store at node1, port 29500: Connection refused%)\n", said[2])
    assert.matches("the first machine did not arrive within 4 s: store at node1, port 29500", said[2])
  end)

  local contradictions = {
    {"--machine_rank 0", "--machine_rank 0", "main_process_ip is node1, which is no address of this machine, and it " ..
      "is to be number 0", alone = true},
    {"--num_processes 2", "--num_processes 4", "is configured for %d ranks, and node%d for %d"},
    {"--nproc_per_node 1", "--num_processes 4 --nproc_per_node 2", "the job is to have 4 ranks, and its 2 machines " ..
      "have 3"},
    {"--max_restarts 1", "",
      "node%d is configured for at most %d restarts of all ranks %(max_restarts%), and node%d for %d"},
    {"", "--num_machines 1:2", "node%d is configured for at least %d of its 2 machines, and node%d for %d"},
  }
  scene("refuses contradictions before any rank starts, on each", function()
    local list = {}
    for i, words in ipairs(contradictions) do
      local limit = words.alone and " --timeout 2" or " --timeout 30" -- alone: the other one waits in vain
      list[i] = {"", {words[1] .. limit .. ok, words[2] .. limit .. ok}}
    end
    return all(list)
  end, function(results)
    for i, words in ipairs(contradictions) do
      local said, code = results[i].said, results[i].code
      assert.same({3, 3}, code, said[1] .. said[2])
      for node = words.alone and 2 or 1, 2 do assert.matches(words[3], said[node]) end
      assert.is_nil((said[1] .. said[2]):find "begin\n")
    end
  end)

  scene("lets only machines join that know the secret", function()
    local function with(first, second)
      return function()
        local text = ("%s on 1 $words & %s on 2 $words & wait"):format(first, second)
        local result = hosts.run(2, [[
          d=$(mktemp -d); words="launch --num_machines 2 --main_process_ip node1 --timeout 6 -e print(1)"
          printf 'one two three four' >$d/a; printf 'one two three five' >$d/b; chmod 600 $d/a $d/b
          printf 'one two three four' >$d/open; chmod 644 $d/open; printf short >$d/short; chmod 600 $d/short
          export XDG_CONFIG_HOME=$d; ]] .. text .. "; rm -rf $d", {timeout = 60})
        return {(hosts.said(result, 1)), (hosts.said(result, 2))}
      end
    end
    local file = "ACCELHOST_SECRET_FILE=$d/"
    return run.at_once {with(file .. "a", file .. "a"), with("ACCELHOST_SECRET='one two three four'", file .. "a"),
      with(file .. "a", file .. "b"), with("", file .. "open"), with(file .. "short", file .. "nothing")}
  end, function(said)
    assert.same({"1\n", "[r1] 1\n"}, said[1])
    assert.same({"1\n", "[r1] 1\n"}, said[2])
    assert.matches("store at node1, port 29500: it has another secret: it belongs to another job", said[3][2])
    assert.matches("a job on several hosts needs a secret, or any process that reaches node1 could join it: head %-c",
      said[4][1])
    assert.matches("/open: others may read it, and it is the job's secret %(chmod 600%)", said[4][2])
    assert.matches("/short: expected a secret of 16 to 256 bytes, got 5", said[5][1])
  end)

  scene("refuses a machine of another job with the same secret, and reports it on both", function()
    local result = hosts.run(2, [[
      export ACCELHOST_SECRET='one two three four'
      words="launch --num_machines 2 --main_process_ip node1 --num_processes 2 --timeout 4"
      on 1 $words --rdzv_id first -e 'print(1)' & on 2 $words --rdzv-id=second -e 'print(1)' & wait]], {timeout = 60})
    local same = hosts.run(2, [[
      export ACCELHOST_SECRET='one two three four' ACCELHOST_RDZV_ID=both
      lua='require("accelhost").distributed.init_process_group() print(os.getenv "ACCELHOST_RDZV_ID")'
      words="launch --num_machines 2 --main_process_ip node1 --num_processes 2 --timeout 20 -e"
      on 1 $words "$lua" & on 2 $words "$lua" & wait]], {timeout = 60})
    return {(hosts.said(result, 1)), (hosts.said(result, 2))}, {(hosts.said(same, 1)), (hosts.said(same, 2))}
  end, function(other, same)
    assert.matches("store: expected the job 'first' %(rdzv_id%), got 'second' from 10%.77%.0%.2, another job of " ..
      "this user", other[1])
    assert.matches("store at node1, port 29500: expected the job 'second' %(rdzv_id%), got 'first', another job",
      other[2])
    assert.same({"both\n", "[r1] both\n"}, same)
  end)

  -- Two launchers on one machine; another user of it has another folder.
  scene("meets on loopback by a secret that the user's launchers draw", function()
    local result = run.program({"bash", "-c", [[
      d=$(mktemp -d); mkdir $d/me $d/other; export XDG_CONFIG_HOME=$d/config
      words="launch --num_machines 2 --main_process_ip 127.0.0.1 --main_process_port $2 --num_processes 2 --timeout 5"
      XDG_RUNTIME_DIR=$d/me "$1" $words -e 'print(1)' >$d/first 2>&1 &
      XDG_RUNTIME_DIR=$d/other "$1" $words --machine_rank 1 -e 'print(1)' >$d/stranger 2>&1
      XDG_RUNTIME_DIR=$d/me "$1" $words --machine_rank 1 -e 'print(1)' >$d/second 2>&1; wait
      for name in first second stranger; do echo "$name: $(cat $d/$name)"; done
      stat -c '%a %s' $d/me/accelhost-secret; ls $d/me | wc -l
      unset XDG_RUNTIME_DIR
      "$1" $words -e 'print(2)' & "$1" $words --machine_rank 1 -e 'print(2)'; wait
      stat -c '%a' $d/config/accelhost $d/config/accelhost/secret-*; rm -rf $d]], "bash", run.path, "29631"},
      {timeout = 60, env = {ACCELHOST_SECRET = false, ACCELHOST_SECRET_FILE = false}})
    return result
  end, function(result)
    assert.matches("^first: 1\nsecond: %[r1%] 1\nstranger: [^\n]*it has another secret[^\n]*\n600 48\n1\n",
      result.output)
    assert.matches("2\n700\n600\n$", result.output)
  end)

  scene("keeps the secret from programs that a rank starts, before and after a restart", function()
    local result = hosts.run(2, [[
      export ACCELHOST_SECRET='one two three four'
      words="launch --num_machines 2 --main_process_ip node1 --num_processes 4 --max_restarts 1 --timeout 20"
      lua='require("accelhost").distributed.init_process_group()
        os.execute [=[echo "attempt $ACCELHOST_RESTART_COUNT: ${ACCELHOST_SECRET-none}" \
          "$(tr "\\0" "\\n" </proc/$PPID/environ | grep -c "one two")"]=]
        require("accelhost").distributed.barrier()
        assert(os.getenv "ACCELHOST_RESTART_COUNT" == "1")'
      on 1 $words -e "$lua" & on 2 $words -e "$lua" & wait]], {timeout = 60})
    return {(hosts.said(result, 1)), (hosts.said(result, 2))}
  end, function(said)
    if run.no_command_line then return pending(run.no_command_line) end
    for node = 1, 2 do
      for attempt = 0, 1 do
        assert.matches(("attempt %d: none 0\n"):format(attempt), said[node])
      end
      assert.is_nil(said[node]:find("one two", 1, true))
    end
  end)
end)
