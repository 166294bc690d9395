local run = require "spec.support.run"
local scenes = require "spec.support.scenes"
local json = require "accelhost".json

local case = "spec/distributed/cases/stuck.lua"

-- Start a job, do something about it in the shell ($job is its pid), end it.
local function beside(words, script)
  local shell = "\"$0\" " .. words .. [[ > /dev/null 2>&1 & job=$!
    ]] .. script .. [[

    kill -KILL $job]]
  return run.program({"bash", "-c", shell, run.path}, {timeout = 60}).stdout
end

-- The output of top, once it matches a pattern of the shell: a rank's keys are sorted, the ranks in order.
local look = [[
    SECONDS=0
    while [ $SECONDS -lt 60 ]; do
      output=$("$0" top --once --json $job)
      case $output in *%s*) break;; esac
      sleep 0.1
    done
    printf '%%s\n' "$output"]]

local function ranks_of(words, expected)
  local job = json.decode(beside(words, look:format(expected))).jobs[1]
  return job.ranks, job
end

describe("accelhost top", function()
  local scene = scenes.new(it, 4)

  scene("shows a rank that was stopped, and the ranks that wait for it", function()
    return ranks_of("launch --num_processes 3 " .. case .. " stop", "waits?for?rank?2*waits?for?rank?2*stopped")
  end, function(ranks, job)
    assert.matches("launch %-%-num_processes 3 " .. case:gsub("%p", "%%%0") .. " stop$", job.command)
    assert.equal(3, #ranks)
    assert.equal("stopped", ranks[3].state)
    assert.equal(("is stopped by a signal (kill -CONT %d continues it)"):format(ranks[3].pid), ranks[3].doing)
    assert.equal("waiting", ranks[1].state)
    assert.same({2}, ranks[1].waits_for)
    assert.equal("waits for rank 2", ranks[2].doing)
    assert.equal("barrier", ranks[1].collective.name)
    assert.equal(2, ranks[1].collective.number)
    assert.equal(case .. ":20", ranks[1].collective.site)
    assert.is_true(ranks[1].collective.waiting and ranks[1].collective.seconds > 0)
    assert.is_false(ranks[3].collective.waiting)
  end)

  scene("shows an endless loop, its line and its processor time", function()
    return not run.no_handlers and ranks_of("launch --num_processes 2 " .. case .. " loop",
      "waits?for?rank?1*cpu???[01].[1-9]*compiled")
  end, function(ranks)
    if not ranks then return pending(run.no_handlers) end
    assert.equal("runs in compiled code at " .. case .. ":9", ranks[2].doing)
    assert.is_true(ranks[2].cpu > 0.02)
  end)

  scene("shows a read that never returns", function()
    if run.no_handlers then return end
    local path = os.tmpname()
    os.remove(path)
    os.execute("mkfifo " .. path)
    local ranks = ranks_of("launch --num_processes 2 " .. case .. " read " .. path, "open?of")
    os.remove(path)
    return ranks, path
  end, function(ranks, path)
    if not ranks then return pending(run.no_handlers) end
    assert.equal("sleeping", ranks[2].state)
    assert.equal(("waits in open of '%s' at %s:11"):format(path, case), ranks[2].doing)
  end)

  scene("shows the ranks that wait for a message, their senders, and the line", function()
    local script = [[-e 'local accelhost = require "accelhost"
      local dist = accelhost.distributed
      dist.init_process_group()
      local x = accelhost.zeros(3)
      if dist.get_rank() == 0 then dist.recv(x, {src = 2, tag = 7}) end
      if dist.get_rank() == 1 then dist.send(x, 2) end
      os.execute "sleep 50"']]
    return (ranks_of("launch --num_processes 3 " .. script, "waits?for?a?message*rank?2?to?receive*sleeping"))
  end, function(ranks)
    assert.same({"waiting", "waiting", "sleeping"}, {ranks[1].state, ranks[2].state, ranks[3].state})
    assert.same({2}, ranks[1].waits_for)
    assert.equal("waits for a message from rank 2, tag 7", ranks[1].doing)
    assert.same({"recv", 7, "-e:5"}, {ranks[1].message.kind, ranks[1].message.tag, ranks[1].message.site})
    assert.is_true(ranks[1].message.seconds > 0)
    assert.equal("waits for rank 2 to receive a message", ranks[2].doing)
    assert.equal("-e:6", ranks[2].message.site)
    assert.is_nil(ranks[3].message)
  end)

  scene("shows the ranks of a subgroup of the job, and the missing ones", function()
    local script = [[-e 'local accelhost = require "accelhost"
      local dist = accelhost.distributed
      dist.init_process_group()
      local odd, x = dist.new_group({1, 3}), accelhost.zeros(3)
      if dist.get_rank() == 1 then dist.all_reduce(x, {group = odd}) end
      if dist.get_rank() == 0 then dist.recv(x) end
      os.execute "sleep 50"']]
    local shown = look:gsub(" %-%-json", ""):format "any?rank*waits?for?rank?3"
    return beside("launch --num_processes 4 " .. script, shown)
  end, function(text)
    assert.matches("all_reduce #1 of ranks 1 3 at %-e:5, [%d.]+ s +%- +waits for rank 3\n", text)
    assert.matches("%-e:6 +waits for a message from any rank\n", text)
  end)

  -- For snapshots of a training that is under way.
  local steps = [[until "$0" top --once --json $job | grep -q step_rate; do sleep 0.1; done; ]]

  local training = [[-e 'local accelhost = require "accelhost"
    local model = accelhost.nn.Linear(4, 1)
    local optimizer = accelhost.optim.SGD(model:parameters(), {lr = 0})
    while true do
      model(accelhost.ones(2, 4)):mul(0):add(2.5):sum():backward()
      optimizer:step()
    end']]

  scene("shows a script that runs without a launcher as a job of one rank: steps, their rate, the loss", function()
    return (ranks_of(training, "step_rate*steps???[1-9][0-9]"))
  end, function(ranks)
    assert.equal(1, #ranks)
    assert.is_true(ranks[1].steps > 1 and ranks[1].step_rate > 0 and ranks[1].backwards >= ranks[1].steps)
    assert.equal(5, ranks[1].loss)
    assert.equal("-e:5", ranks[1].site)
    assert.is_true(ranks[1].memory > 1e6 and ranks[1].threads >= 1)
    assert.same({}, ranks[1].waits_for)
  end)

  scene("shows a batch that a worker does not deliver", function()
    return (ranks_of([[-e 'local accelhost = require "accelhost"
      local Slow = accelhost.data.Dataset:extend "Slow"
      function Slow:init() end
      function Slow:len() return 4 end
      function Slow:get(i) os.execute "sleep 8" return i end
      for batch in accelhost.data.DataLoader(Slow(), {num_workers = 1}) do end']], "waits?*-e:6"))
  end, function(ranks)
    assert.equal("sleeping", ranks[1].state)
    assert.matches("^waits %a+ [%a ]+ at %-e:6$", ranks[1].doing)
  end)

  scene("shows a job whose ranks another program has started", function()
    local shell = [[
      for rank in 0 1; do
        RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_PORT=$$ "$0" "$1" stop of$$ &
        ranks="$ranks $!"
      done
      while [ $SECONDS -lt 60 ]; do
        output=$("$0" top --once --json "$1 stop of$$")
        case $output in *waits?for?rank?1*stopped*) break;; esac
        sleep 0.1
      done
      printf '%s\n' "$output"
      kill -KILL $ranks]]
    return run.program({"bash", "-c", shell, run.path, case}, {timeout = 60})
  end, function(result)
    local job = json.decode(result.stdout).jobs[1]
    assert.equal(2, #job.ranks)
    assert.equal(job.ranks[1].pid, job.pid)
    assert.same({1}, job.ranks[1].waits_for)
    assert.equal("stopped", job.ranks[2].state)
  end)

  scene("prints a table when it is piped, and again at each refresh", function()
    return beside(training, steps .. [["$0" top $job --interval 0.2 | head -n 4]])
  end, function(text)
    assert.matches("^job %d+: [^\n]*\nRANK +PID +STATE +STEPS +STEPS/S +LOSS +MEMORY +CPU +THR[^\n]*\n"
      .. " +0 +%d+ [^\n]*%-e:5[^\n]*\njob", text)
  end)

  scene("shows a prompt that waits for a line as such", function()
    return not run.no_command_line and ranks_of("repl < <(exec sleep 20)", "at?its?prompt") or nil
  end, function(ranks)
    if run.no_command_line then return pending(run.no_command_line) end
    assert.equal("sleeping", ranks[1].state)
    assert.equal("at its prompt", ranks[1].doing)
  end)

  scene("shows a rank that waits for a program, and in another PID namespace by its pid here", function()
    local unshare = "unshare -r -p -f --mount-proc --kill-child "
    if run.program({"sh", "-c", unshare .. "true"}).code ~= 0 then return end
    local shell = unshare .. [[sh -c '"$0" -e "$1"; true' "$0" "$1$$" & job=$!
      while [ $SECONDS -lt 60 ]; do
        output=$("$0" top --once --json "$1$$")
        case $output in *for?a?program*) break;; esac
        sleep 0.1
      done
      printf '%s\n' "$output" $(pgrep -nf "^$0 -e .*--$$")
      kill -KILL $job]]
    local script = 'os.execute [[sleep 50]] --'
    return run.program({"bash", "-c", shell, run.path, script}, {timeout = 60}).stdout
  end, function(text)
    if not text then return pending "needs user namespaces" end
    local line, pid = text:match "^([^\n]*)\n(%d+)\n"
    local rank = json.decode(line).jobs[1].ranks[1]
    assert.equal(tonumber(pid), rank.pid)
    assert.is_true(rank.memory > 1e6)
    assert.equal("waits for a program at -e:1", rank.doing)
  end)

  it("shows the call that a rank waits for, and the line, within 80 columns", function()
    local lines = require "accelhost.top.lines"
    local rank = {
      rank = 0, pid = 23919, state = "waiting", steps = 0, backwards = 0, memory = 14 * 2 ^ 20, cpu = 0.004,
      threads = 1, site = "stuck.lua:9",
      collective = {name = "barrier", number = 6, site = "stuck.lua:20", seconds = 12},
      doing = "waits for ranks 1, 2",
    }
    local seen = {jobs = {{pid = 7, command = "accelhost launch stuck.lua", ranks = {rank}}}}
    assert.same({
      "job 7: accelhost launch stuck.lua",
      "RANK    PID  STATE    STEPS  STEPS/S  LOSS  MEMORY  CPU  THR",
      "   0  23919  waiting      0        -     -     14M   0%    1",
      "      now: waits for ranks 1, 2; script line: stuck.lua:9",
      "      last collective: barrier #6 at stuck.lua:20, 12.0 s",
    }, lines.of(seen, 80))
    rank.collective.site = "/data/project/experiments/first/distributed/cases/stuck.lua:20"
    assert.equal("      last collective: barrier #6 at stuck.lua:20, 12.0 s", lines.of(seen, 80)[5])
    rank.collective.site = "stuck.lua:20"
    assert.equal(3, #lines.of(seen, 140))
    assert.equal(3, #lines.of(seen))
  end)

  it("ends when there is no such job, and where /proc is not mounted", function()
    local result = run.host({"top", "--interval", "0.1", "no such job"}, {timeout = 20})
    assert.equal(1, result.code)
    run.prints("none of your jobs runs on this host\n", result)
    local bare = {"unshare", "-r", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$0" "$@"'}
    local function without_proc(...)
      return run.program({bare[1], bare[2], bare[3], bare[4], bare[5], bare[6], ...}, {timeout = 20})
    end
    if without_proc("true").code ~= 0 then return pending "needs user namespaces" end
    result = without_proc(run.path, "top")
    assert.equal(1, result.code)
    assert.matches("^accelhost top: /proc is not mounted", result.stderr)
    run.prints("", result)
  end)

  it("reports that there is no such job", function()
    local result = run.host({"top", "--once", "no such job"}, {timeout = 20})
    assert.equal(1, result.code)
    run.prints("none of your jobs runs on this host\n", result)
    result = run.host({"top", "--once", "one", "two"}, {timeout = 20})
    assert.equal(2, result.code)
    assert.matches("^accelhost top: unexpected argument 'two'\n", result.stderr)
    assert.equal(2, run.host({"top", "--interval", "0"}, {timeout = 20}).code)
  end)

  local page = steps .. [[
    (sleep 3; printf q; sleep 1) | script -qec "stty cols 40 rows 6; $0 top $job --interval 0.2; stty -a" /dev/null]]

  scene("draws a page on a terminal that ends with q and leaves the terminal as it was", function()
    return beside(training, page)
  end, function(text)
    assert.matches("\27%[%?1049h\27%[%?25l\27%[H", text)
    assert.matches("accelhost top, every 0.2 s; q quits\27%[K\r+\n", text)
    for line in text:gmatch("\n(RANK[^\r\27]*)") do assert.is_true(#line <= 40) end
    assert.matches("\27%[%?25h\27%[%?1049l.* icanon.* echo ", text)
    assert.is_nil(text:find("-echo ", 1, true))
  end)
end)
