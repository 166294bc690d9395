-- accelhost launch --num_machines: launchers of several machines that are one job.
local hosts = require "spec.support.hosts"

-- Every machine gives the same command (`words`, in the shell's quotes); `during` happens when all ranks have said
-- "begin".
local function launch(words, options)
  options = options or {}
  local text = {"launch() { k=$1; shift; on $k launch --num_machines 2 --main_process_ip node1 --secret_file none " ..
    "--silence 3 --patience 1 \"$@\"; }"}
  for node = 1, 2 do
    text[#text + 1] = ("launch %d %s > >(tee -a \"$log\") &"):format(node, options[node] or words)
  end
  text[#text + 1] = options.during and "until [ \"$(grep begin \"$log\" | cut -c1 | sort -u | wc -l)\" = 2 ]; do " ..
    "sleep 0.05; done\n" .. options.during or ""
  text[#text + 1] = "from=$EPOCHREALTIME; wait; echo \"took $(echo \"$EPOCHREALTIME - $from\" | bc)\""
  local path = os.tmpname()
  local result = hosts.run(2, "log=" .. path .. "\n" .. table.concat(text, "\n"), {timeout = 40, env = options.env})
  os.remove(path)
  local said, code = {}, {}
  for node = 1, 2 do said[node], code[node] = hosts.said(result, node) end
  return said, code, tonumber(result.stdout:match "took ([%d.]+)"), result
end

local sleep = [['print "begin" io.flush() os.execute "exec sleep 30"']]
local function job(lua) return "--num_processes 4 -e '" .. lua .. "'" end
-- A launcher on a node, by its process id there.
local function signal(node, name)
  return ("testhosts on %d sh -c 'kill -%s $(pgrep -xf \".*/accelhost launch --num_machines 2 .*\" | head -n 1)'")
    :format(node, name)
end

describe("accelhost launch on several machines", function()
  if hosts.missing() then
    it("is tried on hosts of its own", function() pending(hosts.missing()) end)
    return
  end

  it("tells each rank its place", function()
    local lua = [[for _, n in ipairs {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK",
      "GROUP_WORLD_SIZE", "MASTER_ADDR"} do io.write(os.getenv(n), " ") end print()]]
    local said, code = launch(job(lua))
    assert.same({0, 0}, code, said[1] .. said[2])
    assert.matches("0 4 0 2 0 2 node1 \n", said[1])
    assert.matches("%[r1%] 1 4 1 2 0 2 node1 \n", said[1])
    assert.matches("%[r2%] 2 4 0 2 1 2 node1 \n", said[2])
    assert.matches("%[r3%] 3 4 1 2 1 2 node1 \n", said[2])
  end)

  it("takes another number of ranks on each, and the numbers of machines as they are told", function()
    local lua = "print(os.getenv \"GROUP_RANK\", os.getenv \"WORLD_SIZE\", os.getenv \"RANK\")"
    local said, code = launch("", {"--machine_rank 0 --nproc_per_node 1 -e '" .. lua .. "'",
      "--node_rank 1 --nproc_per_node 2 -e '" .. lua .. "'"})
    assert.same({0, 0}, code, said[1] .. said[2])
    assert.equal("0\t3\t0\n", said[1]:match "0\t[^\n]*\n")
    assert.matches("%[r1%] 1\t3\t1\n", said[2])
    assert.matches("%[r2%] 1\t3\t2\n", said[2])
  end)

  it("names the host and the rank that failed, on each", function()
    local said, code, took = launch(job [[print "begin" if os.getenv "RANK" == "3" then error "cause" end
      os.execute "exec sleep 30"]])
    assert.same({3, 3}, code, said[1] .. said[2])
    for node = 1, 2 do assert.matches("accelhost launch: on node2: rank 3 failed: %-e:1: cause\n", said[node]) end
    assert.matches("ranks 0%-1, on node1, ended because of it", said[1])
    assert.is_true(took < 10)
  end)

  it("ends soon when a host is switched off, a cable is pulled or a launcher is killed", function()
    local gone = "accelhost launch: on node%d: machine %d, with ranks %s, is gone: "
    for _, case in ipairs {{"testhosts kill 2", 1}, {"testhosts kill 1", 2}, {signal(2, "KILL"), 1}} do
      local said, code, took = launch("--num_processes 4 -e " .. sleep, {during = case[1]})
      local other = 3 - case[2]
      assert.equal(3, code[case[2]], said[case[2]])
      assert.truthy(said[case[2]]:find(gone:format(other, other - 1, other == 1 and "0-1" or "2-3"), 1, true),
        said[case[2]])
      assert.is_true(took < 8, case[1])
    end
    local said, code, took = launch("--num_processes 4 -e " .. sleep, {during = "testhosts down 2"})
    assert.same({3, 3}, code)
    assert.truthy(said[1]:find(gone:format(2, 1, "2-3") .. "the network does not reach it", 1, true), said[1])
    assert.truthy(said[2]:find(gone:format(1, 0, "0-1") .. "the network does not reach it", 1, true), said[2])
    assert.is_true(took < 15)
  end)

  it("ends soon when a rank is killed or stopped in a collective, and names it", function()
    local begin = [[local d = require("accelhost").distributed d.init_process_group()
      local function me(name) if os.getenv "RANK" == "3" then os.execute("kill -" .. name .. " $PPID") end end ]]
    local said, code, took = launch(job(begin .. [[me "KILL" d.barrier()]]))
    assert.same({3, 3}, code)
    for node = 1, 2 do assert.matches("on node2: rank 3 was killed by SIGKILL", said[node]) end
    assert.is_true(took < 8)
    said, code, took = launch("--timeout 2 " .. job(begin .. [[me "STOP" d.barrier()]]))
    assert.same({4, 4}, code)
    for node = 1, 2 do
      assert.matches("timed out after 2 s: rank 3 was last seen at", said[node])
      assert.matches("rank 3 [^\n]*was ended\n", said[node])
    end
    assert.is_true(took < 12)
    -- Of a rank that is stopped and speaks for its host the others hear nothing, so what they know is old.
    begin = begin:gsub('"3"', '"2"')
    said, code, took = launch("--timeout 3 " .. job(begin .. [[me "STOP" d.barrier()]]))
    assert.same({4, 4}, code)
    for node = 1, 2 do
      assert.matches("timed out after 3 s: rank 2, which speaks for host node2, has been silent for", said[node])
      assert.matches("rank 2 [^\n]*was ended\n", said[node])
    end
    assert.is_true(took < 12)
  end)

  it("shows its ranks to `top` on each, and where the others are", function()
    local lua = [[require("accelhost").distributed.init_process_group() print "begin" io.flush()
      os.execute "sleep 1.5"]]
    local _, code, _, result = launch(job(lua), {during = "testhosts on 2 \"$host\" top --once"})
    assert.same({0, 0}, code, result.output)
    for rank = 0, 3 do
      assert.matches(("\n +%d +%%d+ +%s "):format(rank, rank < 2 and "elsewhere" or "%l+"), result.stdout)
    end
    assert.not_matches("of ranks  at", result.stdout)
  end)

  it("passes a signal on", function()
    local said, code, took = launch("--num_processes 4 -e " .. sleep, {during = signal(2, "TERM")})
    assert.same({143, 143}, code, said[1] .. said[2])
    assert.matches("accelhost launch: on node2: the launcher was asked to end by SIGTERM\n", said[1])
    assert.is_true(took < 10)
  end)

  it("starts all ranks anew, as the next generation", function()
    local said, code = launch("--max_restarts 2 " .. job [[local n = os.getenv "ACCELHOST_RESTART_COUNT"
      print("attempt " .. n) if os.getenv "RANK" == "2" and n < "2" then error("no " .. n) end]])
    assert.same({0, 0}, code, said[1] .. said[2])
    for node = 1, 2 do
      for n = 0, 2 do assert.matches("attempt " .. n .. "\n", said[node]) end
      assert.matches("on node2: rank 2 failed: %-e:2: no 1\n", said[node])
      assert.matches("attempt 1 failed; all ranks start anew %(restart 2 of at most 2%)\n", said[node])
    end
  end)

  it("waits until the ranks of all have ended, and ends as the worst of them", function()
    local said, code = launch(job [[if os.getenv "RANK" == "3" then os.execute "sleep 2" os.exit(7) end]])
    assert.same({3, 3}, code)
    assert.matches("the ranks of this machine have ended; waiting for those of node2 %(machine 1%)", said[1])
    assert.matches("on node2: rank 3 exited with code 7", said[1])
    said, code = launch(job "io.stderr:write \"usage\\n\" os.exit(2)")
    assert.same({2, 2}, code)
    assert.is_nil((said[1] .. said[2]):find "accelhost launch")
  end)

  it("tells who does not come, and what contradicts", function()
    local ok = " -e ''"
    local said, code = launch("", {"--timeout 3 --machine_rank 0" .. ok, "--help >/dev/null"})
    assert.matches("machine %(node1%) has waited 1 s for machine 1\n", said[1])
    assert.matches("node1: did not come within 3 s: machine 1\n", said[1])
    assert.equal(3, code[1])
    said = launch("", {"--help >/dev/null", "--timeout 2 --machine_rank 1" .. ok})
    assert.matches("has waited 1 s for the job's store at node1, port 29500, which the first machine serves", said[2])
    assert.matches("the first machine did not come within 2 s: store at node1, port 29500", said[2])
    for words, line in pairs {
      [{"--machine_rank 0", "--machine_rank 0"}] = "main_process_ip is node1, which is no address of this machine, " ..
        "and it is to be number 0",
      [{"--num_processes 2", "--num_processes 4"}] = "says that the job has %d ranks, and node%d %d",
      [{"--nproc_per_node 1", "--num_processes 4 --nproc_per_node 2"}] = "the job is to have 4 ranks, and its 2 " ..
        "machines have 3",
    } do
      said = launch("", {words[1] .. " --timeout 2" .. ok, words[2] .. " --timeout 2" .. ok})
      assert.matches(line, said[2] .. said[1])
    end
  end)

  it("lets only those take part that know the secret", function()
    local function with(first, second)
      local text = ("%s on 1 $words & %s on 2 $words & wait"):format(first, second)
      local result = hosts.run(2, [[
        d=$(mktemp -d); words="launch --num_machines 2 --main_process_ip node1 --timeout 2 -e print(1)"
        printf 'one two three four' >$d/a; printf 'one two three five' >$d/b; chmod 600 $d/a $d/b
        printf 'one two three four' >$d/open; chmod 644 $d/open; printf short >$d/short; chmod 600 $d/short
        export XDG_CONFIG_HOME=$d; ]] .. text .. "; rm -rf $d", {timeout = 20})
      return hosts.said(result, 1), hosts.said(result, 2)
    end
    local file = "ACCELHOST_SECRET_FILE=$d/"
    local one, two = with(file .. "a", file .. "a")
    assert.same({"1\n", "[r1] 1\n"}, {one, two})
    one, two = with("ACCELHOST_SECRET='one two three four'", file .. "a")
    assert.same({"1\n", "[r1] 1\n"}, {one, two})
    local _, other = with(file .. "a", file .. "b")
    assert.matches("store at node1, port 29500: it has another secret: it belongs to another job", other)
    local none, open = with("", file .. "open")
    assert.matches("a job on several hosts needs a secret, or whoever reaches node1 could join it: head %-c 32", none)
    assert.matches("/open: others may read it, and it is the job's secret %(chmod 600%)", open)
    local short = with(file .. "short", file .. "nothing")
    assert.matches("/short: expected a secret of 16 to 256 bytes, got 5", short)
  end)
end)
