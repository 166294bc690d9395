-- TORCHELASTIC_ERROR_FILE: why a process failed, for the program that started it.
local accelhost = require "accelhost"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local run = require "spec.support.run"

describe("The error file", function()
  local leave
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  -- Return the contents of the file once the host has failed with these words, and the time.
  local function told(words, path, env)
    local all = {TORCHELASTIC_ERROR_FILE = path}
    for name, value in pairs(env or {}) do all[name] = value end
    local result = run.host(words, {timeout = 40, env = all})
    assert.not_equal(0, result.code)
    local message = accelhost.json.decode(files.read(path)).message
    local when = tonumber(message.extraInfo.timestamp)
    assert.is_true(math.abs(when - os.time()) < 40)
    return message, when, result
  end

  it("holds an error and where it was raised, as PyTorch's record writes it", function()
    local message, _, result = told({"-e", "local function f() error 'cause' end f()"}, "error.json")
    assert.equal("-e:1: cause", message.message)
    assert.equal("-e:1: cause\n  -e:1: in f\n  -e:1: in main chunk", message.extraInfo.py_callstack)
    assert.equal(message.extraInfo.py_callstack .. "\n", result.stderr)
    assert.is_string(message.extraInfo.timestamp)
    assert.is_nil(message.errorCode)
  end)

  it("is JSON whatever the error's text", function()
    local words = {"-e", "error '\"a\\\\b\" \\0010\\195\\169'"}
    assert.equal("-e:1: \"a\\b\" ?0\195\169", told(words, "error.json").message)
    assert.equal("-e:1: ?x", told({"-e", "error '\\255x'"}, "error.json").message)
  end)

  it("of a launcher holds the failure that ended the job, and the code of the rank that is to blame", function()
    local first = "if os.getenv 'TORCHELASTIC_ERROR_FILE' then os.exit(9) end if os.getenv 'RANK' == '1' then "
    local job = {"launch", "--num_processes", "2", "-e"}
    job[5] = first .. "error 'cause' end require('accelhost._C').comm.barrier()"
    local message = told(job, "error.json")
    assert.equal("rank 1 failed: -e:1: cause", message.message)
    assert.matches("^rank 1 failed: %-e:1: cause\n  %-e:1: in main chunk\n", message.extraInfo.py_callstack)
    assert.equal(1, message.errorCode)
    job[5] = first .. "os.execute 'kill -SEGV $PPID' end require('accelhost._C').comm.barrier()"
    message = told(job, "error.json")
    assert.equal(-11, message.errorCode)
    assert.matches("^rank 1 was killed by SIGSEGV", message.message)
  end)

  it("is that of the last attempt, and there is none of a job that ends well or of wrong usage", function()
    local again = "error('no ' .. os.getenv 'ACCELHOST_RESTART_COUNT')"
    local message = told({"launch", "--max_restarts", "1", "-e", again}, "error.json")
    assert.equal("rank 0 failed: -e:1: no 1", message.message)
    os.remove "error.json"
    local env = {TORCHELASTIC_ERROR_FILE = "error.json"}
    for code, words in pairs {
      [0] = {"launch", "--max_restarts", "1", "-e", "if os.getenv 'ACCELHOST_RESTART_COUNT' == '0' then error() end"},
      [2] = {"launch", "-e", "os.exit(2)"},
    } do
      assert.equal(code, run.host(words, {timeout = 40, env = env}).code)
      assert.is_nil(io.open "error.json")
    end
  end)

  -- torchrun blames whose time is the least, of equal ones the lowest rank: times are whole seconds.
  it("of a rank that lost another is later than that one's", function()
    local text = "local comm = require('accelhost._C').comm comm.barrier() " ..
      "if os.getenv 'RANK' == '1' then error 'cause' end comm.barrier()"
    local calls, whens = {}, {}
    for rank = 0, 1 do
      local env = {RANK = rank, LOCAL_RANK = rank, WORLD_SIZE = 2, LOCAL_WORLD_SIZE = 2, MASTER_PORT = 4711}
      calls[rank + 1] = function() whens[rank] = select(2, told({"-e", text}, rank .. ".json", env)) end
    end
    run.at_once(calls)
    assert.is_true(whens[0] > whens[1])
  end)

  it("that cannot be written is reported, and nothing else changes", function()
    local result = run.host({"-e", "error 'cause'"}, {env = {TORCHELASTIC_ERROR_FILE = "nowhere/error.json"}})
    assert.equal(1, result.code)
    assert.equal("-e:1: cause\n  -e:1: in main chunk\naccelhost: cannot write 'nowhere/error.json' " ..
      "(TORCHELASTIC_ERROR_FILE): No such file or directory\n", result.stderr)
  end)
end)
