-- Jobs from Lua: started, heard, spoken to and ended by the process that started them.
local C = require "accelhost._C"
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local slow = tonumber(os.getenv "ACCELHOST_TEST_SLOWNESS") or 1

local function start(code, options)
  local all = {num_processes = 1, threads = 1, capture = true, grace = 5, argv = {"run", "-e", code}}
  for name, value in pairs(options or {}) do all[name] = value end
  return C.job.start(all)
end

-- The events of a job up to its end, texts joined by kind: {output = {[0] = ..}, message = {..}, notice =, ..}.
local function finish(job)
  local heard = {output = {}, error = {}, message = {}, notice = "", order = {}}
  local until_time = os.time() + 120 * slow
  while not heard.code do
    assert(os.time() <= until_time, "the job does not end")
    for _, event in ipairs(C.job.wait({job}, 1)) do
      assert.equal(job, event.job)
      heard.order[#heard.order + 1] = event.kind
      if event.kind == "ended" then heard.code = event.code
      elseif event.kind == "notice" then heard.notice = heard.notice .. event.text
      elseif event.kind == "message" then
        heard.message[event.rank] = heard.message[event.rank] or {}
        table.insert(heard.message[event.rank], event.text)
      else
        local said = event.stream == 1 and heard.error or heard.output
        said[event.rank] = (said[event.rank] or "") .. event.text
      end
    end
  end
  return heard
end

-- A program that counts them would count its own pipe too, when it is faster than this process.
local function descriptors()
  collectgarbage()
  return #folder.names "/proc/self/fd"
end

-- The processes, zombies left out, whose command line has this text.
local function running(text)
  local pipe = io.popen(("pgrep -f -- %s; true"):format(run.quote(text)))
  local found = {}
  for pid in pipe:lines() do
    local file = io.open("/proc/" .. pid .. "/stat")
    local state = file and file:read("*a"):match "%) (%a)"
    if file then file:close() end
    local command = io.open("/proc/" .. pid .. "/cmdline")
    local words = command and command:read "*a" or ""
    if command then command:close() end
    if state and state ~= "Z" and words:find("accelhost", 1, true) and not words:find "^sh" then
      found[#found + 1] = pid
    end
  end
  pipe:close()
  return found
end

local echo = [[
  local channel = require("accelhost._C").channel
  while true do
    local text = channel.receive()
    if text == "stop" then break end
    if text then channel.send(text) end
  end]]

describe("a job from Lua", function()
  it("reports each rank's output, its stream, and its exit status", function()
    local heard = finish(start([[
      io.stdout:write("out of " .. os.getenv "RANK" .. "\n")
      io.stderr:write("err of " .. os.getenv "RANK" .. "\n")]], {num_processes = 2}))
    assert.same({[0] = "out of 0\n", "out of 1\n"}, heard.output)
    assert.same({[0] = "err of 0\n", "err of 1\n"}, heard.error)
    assert.equal(0, heard.code)
    assert.equal("ended", heard.order[#heard.order])
  end)

  it("reports its processes and its size, and nothing else", function()
    local job = start("", {num_processes = 3})
    assert.equal(3, job.num_processes)
    assert.equal(3, #job.pids)
    assert.has_error(function() return job.size end, "a job has no field or method 'size'")
    job:close()
    assert.has_error(function() return job:exit_code() end, "this job was closed")
    job:close()
  end)

  it("has no exit code before its end, and no failure when it ended well", function()
    local job = start(echo)
    assert.is_nil(job:exit_code())
    job:send(0, "stop")
    finish(job)
    assert.equal(0, job:exit_code())
    assert.is_nil(job:failure())
    assert.equal("", job:report())
  end)

  it("sets the variables and threads of its ranks", function()
    local heard = finish(start([[io.write(os.getenv "ONE", " ", os.getenv "OMP_NUM_THREADS")]],
      {variables = {"ONE=a=b"}, threads = 2}))
    assert.equal("a=b 2", heard.output[0])
  end)

  it("reports a failed rank with its traceback", function()
    local job = start([[if os.getenv "RANK" == "1" then error("went wrong") end]],
      {num_processes = 2, name = "trial 7"})
    assert.equal(3, finish(job).code)
    local failure = job:failure()
    assert.equal(1, failure.rank)
    assert.matches("went wrong", failure.text)
    assert.is_false(failure.timed_out)
    assert.is_nil(failure.signal)
    assert.matches("^trial 7: rank 1 failed: .*went wrong", job:report())
  end)

  it("reports a killed rank with its signal and its memory", function()
    local job = start([[os.execute("kill -9 " .. io.open("/proc/self/stat"):read "*n")]], {num_processes = 2})
    assert.equal(3, finish(job).code)
    local failure = job:failure()
    assert.equal("KILL", failure.signal)
    assert.is_true(failure.memory > 1e6)
    assert.is_nil(failure.text)
    assert.matches("was killed by SIGKILL", job:report())
  end)

  it("ends by a signal, and with that signal's code", function()
    local job = start(echo)
    job:signal "TERM"
    assert.equal(128 + 15, finish(job).code)
    job = start(echo)
    job:kill()
    assert.equal(128 + 9, finish(job).code)
  end)

  it("interrupts one rank and continues", function()
    local job = start([[
      local C = require "accelhost._C"
      C.system.catch_signal "INT"
      C.channel.send "ready"
      while not C.system.take_signal() do C.channel.receive(0.05) end
      print "interrupted"]], {num_processes = 2})
    local ready, said, told = 0, {}, nil
    repeat
      for _, event in ipairs(C.job.wait({job}, 10)) do
        if event.kind == "message" then
          ready = ready + 1
          if ready == 2 then job:interrupt(1) end
        elseif event.kind == "output" then
          said[#said + 1] = event.rank
          if #said == 1 then job:interrupt(0) end
        elseif event.kind == "ended" then
          told = event.code
        end
      end
    until told
    assert.equal(0, told)
    assert.same({1, 0}, said)
  end)

  it("refuses options that it does not know, and arguments that are none", function()
    assert.error_matches(function() C.job.start{argv = {}, num_proceses = 2} end,
      "unknown option 'num_proceses'.*num_processes")
    assert.error_matches(function() C.job.start{} end, "job.start: argv: expected a table of texts, got nil")
    assert.error_matches(function() C.job.start{argv = {1}} end, "job.start: argv: expected texts, got number 1")
    assert.error_matches(function() C.job.start{argv = {}, variables = {"A"}} end, "expected NAME=VALUE, got 'A'")
    assert.error_matches(function() C.job.start{argv = {}, num_processes = 0} end, "expected 1..256 ranks, got 0")
    assert.error_matches(function() C.job.start{argv = {}, capture = true, show = true} end, "cannot both be set")
    local job = start(echo)
    assert.error_matches(function() job:signal "WINCH" end, "expected TERM, INT")
    assert.error_matches(function() job:send(1, "") end, "rank 1 is none of this job's 1")
    job:close()
  end)
end)

describe("a job's channel", function()
  it("carries messages of every size both ways, in their order", function()
    local job = start(echo, {num_processes = 2})
    local sent = {}
    for _, size in ipairs {0, 1, 3, 65535, 65536, 65537, 2 ^ 20, 2 ^ 26, 0, 5} do
      sent[#sent + 1] = ("ab\0\n\255"):rep(math.ceil(size / 5)):sub(1, size)
      job:send(nil, sent[#sent])
    end
    job:send(nil, "stop")
    local heard = finish(job)
    assert.equal(0, heard.code)
    for rank = 0, 1 do
      assert.equal(#sent, #heard.message[rank])
      for i, text in ipairs(sent) do assert.is_true(text == heard.message[rank][i], "message " .. i) end
    end
  end)

  it("refuses input longer than 256 MiB", function()
    local job = start(echo)
    assert.error_matches(function() job:send(0, ("x"):rep(2 ^ 28 + 1)) end, "268435457 bytes, and 268435456 may")
    job:close()
  end)

  it("delivers a message after the rank's earlier output", function()
    local heard = finish(start([[
      local channel = require("accelhost._C").channel
      for i = 1, 50 do print(("x"):rep(1000)) channel.send "m" end]]))
    local lines, messages = 0, 0
    assert.equal(50 * 1001, #heard.output[0])
    for _, kind in ipairs(heard.order) do
      if kind == "message" then messages = messages + 1 else lines = lines + 1 end
      if messages == 1 then assert.is_true(lines > 0) end
    end
    assert.equal(50, messages)
  end)

  it("waits for a message up to its timeout", function()
    local heard = finish(start([[
      local channel = require("accelhost._C").channel
      assert(channel.is_open())
      print(channel.receive(0), channel.receive(0.01))]]))
    assert.equal("nil\tnil\n", heard.output[0])
  end)

  it("both sides may send first", function()
    local job = start([[
      local channel = require("accelhost._C").channel
      channel.send(("r"):rep(2 ^ 25))
      print(#channel.receive())]])
    job:send(0, ("p"):rep(2 ^ 25))
    local heard = finish(job)
    assert.equal(2 ^ 25, #heard.message[0][1])
    assert.equal("33554432\n", heard.output[0])
  end)

  it("ends with its rank, and the others listen on", function()
    local job = start([[
      local channel = require("accelhost._C").channel
      if os.getenv "RANK" == "1" then os.exit(0) end
      print(channel.receive())]], {num_processes = 2})
    local refused
    for _ = 1, 6000 * slow do
      C.job.wait({job}, 0.01)
      local ok, message = pcall(job.send, job, 1, "")
      if not ok then refused = message break end
    end
    assert.matches("rank 1 listens no more", refused)
    job:send(nil, "still there")
    assert.equal("still there\n", finish(job).output[0])
    assert.error_matches(function() job:send(nil, "") end, "no rank listens any more")
  end)

  it("is not inherited by processes that a rank starts", function()
    local heard = finish(start([[
      print(os.getenv "ACCELHOST_CHANNEL")
      os.execute("ls -l /proc/self/fd | grep -c socket; echo ${ACCELHOST_CHANNEL-none}")]]))
    assert.equal("nil\n0\nnone\n", heard.output[0])
  end)

  it("is not there in a script without a launcher", function()
    local result = run.script([[
      local channel = require("accelhost._C").channel
      print(channel.is_open(), pcall(channel.send, "x"))]])
    assert.matches("^false\tfalse\t.*channel.send: this process was started by no job", result.stdout)
  end)
end)

describe("waiting for jobs", function()
  it("hears eight at once", function()
    local jobs, ended, said = {}, 0, {}
    for i = 1, 8 do jobs[i] = start(("print(%d)"):format(i), {num_processes = 1 + i % 2}) end
    while ended < 8 do
      for _, event in ipairs(C.job.wait(jobs, 30)) do
        if event.kind == "ended" then
          assert.equal(0, event.code)
          ended = ended + 1
        elseif event.kind == "output" then
          said[#said + 1] = event.text
        end
      end
    end
    table.sort(said)
    assert.equal("1\n1\n2\n3\n3\n4\n5\n5\n6\n7\n7\n8\n", table.concat(said))
    assert.same({}, C.job.wait(jobs))
    assert.same({}, C.job.wait{})
  end)

  it("holds a rank that floods: unrequested messages are not kept here", function()
    local job = start([[
      local channel = require("accelhost._C").channel
      local text = ("x"):rep(2 ^ 20)
      while true do io.write(text) channel.send(text) end]])
    os.execute "sleep 0.5"
    local bytes, turns = 0, 0
    local before = collectgarbage "count"
    while bytes < 2 ^ 26 do
      turns = turns + 1
      local events, size = C.job.wait({job}, 10), 0
      for _, event in ipairs(events) do size = size + #event.text end
      assert.is_true(size < 2 ^ 24, "one wait returned " .. size)
      bytes = bytes + size
    end
    job:close()
    collectgarbage()
    assert.is_true(collectgarbage "count" - before < 2 ^ 15)
  end)

  it("leaves no descriptor, process or memory of fifty jobs, closed or collected", function()
    finish(start "")
    local before = descriptors()
    for i = 1, 50 do
      local job = start "print(1)"
      if i % 3 == 0 then job:close() elseif i % 3 == 1 then finish(job) end
    end
    collectgarbage()
    assert.equal(before, descriptors())
  end)

  it("receives the signals that it watches, and restores their handlers", function()
    local result = run.script([[
      local C = require "accelhost._C"
      local self = io.open("/proc/self/stat"):read "*n"
      C.job.watch_signals("INT", "TERM")
      io.popen("kill -INT " .. self .. "; kill -TERM " .. self):close()
      local names = {}
      while #names < 2 do
        for _, event in ipairs(C.job.wait({}, 5)) do
          assert(event.kind == "signal")
          names[#names + 1] = event.name
        end
      end
      table.sort(names)
      print(table.concat(names, " "))
      io.stdout:flush()
      C.job.watch_signals()
      os.execute("kill -TERM " .. self)
      print "never"]])
    run.prints("INT TERM\n", result)
    assert.equal(128 + 15, result.code)
  end)

  it("reports a signal that arrives while it waits", function()
    local result = run.script([[
      local C = require "accelhost._C"
      C.job.watch_signals "INT"
      local job = C.job.start{argv = {"run", "-e",
        "os.execute('kill -INT ' .. os.getenv 'PARENT') os.execute 'sleep 60'"},
        variables = {"PARENT=" .. io.open("/proc/self/stat"):read "*n"}, grace = 1}
      local event = C.job.wait({job}, 30)[1]
      print(event.kind, event.name)
      job:signal "INT"
      local code
      repeat
        for _, more in ipairs(C.job.wait({job}, 30)) do code = more.code or code end
      until code
      print(code)]])
    run.prints("signal\tINT\n130\n", result)
  end)

  it("ends its jobs when it is killed", function()
    local mark = "jobs_spec_" .. tostring({}):match "0x(%x+)"
    run.script(([[
      local C = require "accelhost._C"
      local job = C.job.start{num_processes = 2, argv = {"run", "-e",
        "os.execute 'sleep 1' require('accelhost._C').channel.receive() --[=[%s]=]"}}
      C.job.wait({job}, 0.3)
      os.execute("kill -9 " .. io.open("/proc/self/stat"):read "*n")]]):format(mark))
    local left
    for _ = 1, 1200 * slow do
      left = running(mark)
      if #left == 0 then break end
      os.execute "sleep 0.05"
    end
    assert.same({}, left)
  end)
end)

describe("the output that a job shows", function()
  it("is written to this process's streams as by launch", function()
    local result = run.script([[
      local C = require "accelhost._C"
      local job = C.job.start{num_processes = 2, show = true,
        argv = {"run", "-e", "print 'all' print(os.getenv 'RANK')"}}
      repeat C.job.wait({job}) until job:exit_code()]])
    assert.same({[0] = "all\n0\n", "all\n1\n"}, run.by_rank(result.stdout))
    assert.matches("%[r1%] 1\n", result.stdout)
  end)

  it("is kept in files, too", function()
    local leave = folder.enter()
    local result = run.script([[
      local C = require "accelhost._C"
      local job = C.job.start{num_processes = 2, show = true, log_dir = "logs",
        argv = {"run", "-e", "print 'out' io.stderr:write 'err\\n'"}}
      repeat C.job.wait({job}) until job:exit_code()
      job:close()
      os.execute "cat logs/*/attempt_0/1/stdout.log logs/*/attempt_0/0/stderr.log"]])
    leave()
    assert.matches("out\n.*out\nerr\n$", result.stdout)
    assert.error_matches(function() C.job.start{argv = {}, log_dir = "logs"} end, "log_dir: only with show or capture")
    assert.error_matches(function() start("", {log_dir = "/dev/null/x"}) end, "/dev/null/x")
  end)

  it("can print common output without a rank prefix", function()
    local result = run.script([[
      local C = require "accelhost._C"
      local job = C.job.start{num_processes = 2, show = true, collapse = "all",
        argv = {"run", "-e", "local C = require 'accelhost._C' C.comm.barrier() print 'all' print(os.getenv 'RANK')"}}
      repeat C.job.wait({job}) until job:exit_code()]])
    local text = result.stdout:gsub("%[r0%] all\n%[r1%] all\n", "all\n"):gsub("%[r1%] all\n%[r0%] all\n", "all\n")
    assert.matches("%[r0%] 0\n", text)
    assert.matches("%[r1%] 1\n", text)
    assert.matches("all\n", text)
  end)
end)
