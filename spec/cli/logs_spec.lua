-- accelhost launch --log_dir, --tee, --redirects: the ranks' output in files.
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local script = "print('out', os.getenv 'RANK') io.stderr:write('err ', os.getenv 'RANK', '\\n')"

local function launch(words, options)
  local all = {"launch", "--num_processes", "2"}
  for _, word in ipairs(words) do all[#all + 1] = word end
  return run.host(all, options or {timeout = 30})
end

local function read(path)
  local file = io.open(path)
  local text = file and file:read "*a"
  if file then file:close() end
  return text
end

describe("logs of ranks", function()
  local leave
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  local function only_run(path)
    local list = folder.names(path)
    assert.equal(1, #list)
    return path .. "/" .. list[1]
  end

  it("are in a folder for each run, attempt and rank, in addition to the screen's output", function()
    local result = launch {"--log_dir", "logs", "-e", script}
    local here = only_run "logs"
    run.succeeds(result)
    assert.same({[0] = "out\t0\n", "out\t1\n"}, run.by_rank(result.stdout))
    assert.truthy(result.stderr:find("accelhost launch: logs go to " .. here .. "\n", 1, true))
    for rank = 0, 1 do
      assert.equal("out\t" .. rank .. "\n", read(here .. "/attempt_0/" .. rank .. "/stdout.log"))
      assert.equal("err " .. rank .. "\n", read(here .. "/attempt_0/" .. rank .. "/stderr.log"))
    end
  end)

  it("hold the streams and ranks that --tee and --redirects name", function()
    local result = launch {"-q", "--log_dir=logs", "--tee", "1:2", "--redirects", "0:3", "-e", script}
    local here = only_run "logs"
    assert.same({"[r1] out\t1\n", "[r1] err 1\n"}, {result.stdout, result.stderr})
    assert.equal("out\t0\n", read(here .. "/attempt_0/0/stdout.log"))
    assert.equal("err 0\n", read(here .. "/attempt_0/0/stderr.log"))
    assert.equal("err 1\n", read(here .. "/attempt_0/1/stderr.log"))
    assert.is_nil(read(here .. "/attempt_0/1/stdout.log"))
  end)

  it("of a single rank and of each attempt are kept apart", function()
    local code = "print(os.getenv 'ACCELHOST_RESTART_COUNT') if os.getenv 'ACCELHOST_RESTART_COUNT' == '0' then " ..
      "os.exit(1) end"
    local result = run.host({"launch", "-q", "--log_dir", "logs", "--max_restarts", "1", "-e", code}, {timeout = 30})
    local here = only_run "logs"
    assert.same({0, "0\n1\n"}, {result.code, result.stdout})
    for attempt = 0, 1 do
      assert.equal(attempt .. "\n", read(("%s/attempt_%d/0/stdout.log"):format(here, attempt)))
    end
  end)

  it("are written to a new folder among the temporary files without --log_dir", function()
    local result = launch({"--redirects", "3", "-e", script}, {timeout = 30, env = {TMPDIR = "."}})
    local here = result.stderr:match "logs go to (%S+)\n"
    assert.same({0, ""}, {result.code, result.stdout})
    assert.equal("out\t1\n", read(here .. "/attempt_0/1/stdout.log"))
  end)

  it("that cannot be made are an error, and a full disk ends a file but not the job", function()
    local result = launch {"--log_dir", "/proc/none", "-e", script}
    assert.equal(3, result.code)
    assert.matches("accelhost launch: cannot make the folder /proc/none", result.stderr)
    -- Files of the launcher may not grow past 1 KiB: a writer gets the same error as on a full disk.
    local shell = [["$0" launch --num_processes 2 --log_dir logs --tee 0:3 --redirects 1:3 -e "$1" & pid=$!
      until [ -e logs/*/attempt_0/1/stderr.log ]; do sleep 0.05; done
      prlimit --pid $pid --fsize=1024; touch go; wait $pid]]
    result = run.program({"sh", "-c", shell, run.path, "while not io.open 'go' do os.execute 'sleep 0.05' end " ..
      "if os.getenv 'RANK' == '1' then for i = 1, 300 do print(('x'):rep(20)) end else print 'well' end"},
      {timeout = 30})
    assert.same({0, "well\n"}, {result.code, result.stdout})
    assert.equal("well\n", read(only_run "logs" .. "/attempt_0/0/stdout.log"))
    assert.matches("cannot write a log file, which ends here: File too large", result.stderr)
  end)
end)
