local accelhost = require "accelhost"
local run = require "spec.support.run"

local function lines(script, options)
  options = options or {}
  local words = options.ranks and {"launch", "--num_processes", options.ranks} or {"run"}
  words[#words + 1] = "-e"
  words[#words + 1] = "local accelhost = require 'accelhost' local logging = accelhost.logging "
    .. "local rank = accelhost.accelerator.process_index " .. script
  local env = {ACCELHOST_LOG_LEVEL = options.level or false, ACCELERATE_LOG_LEVEL = options.theirs or false}
  local result = run.host(words, {timeout = 40, env = env})
  assert(result.code == (options.code or 0), result.stderr)
  return (result.stderr:gsub("%d%d%d%d%-%d%d%-%d%d %d%d:%d%d:%d%d ", "")), result.stderr
end

describe("a logger", function()
  it("writes time, level, name and the message with its values", function()
    local text, whole = lines [[logging.get_logger "train":info("loss %.2f in %s", 0.5, "epoch") ]]
    assert.equal("INFO train: loss 0.50 in epoch\n", text)
    assert.matches("^%d%d%d%d%-%d%d%-%d%d %d%d:%d%d:%d%d INFO", whole)
  end)

  it("writes a message without values unchanged", function()
    assert.equal("WARNING a: 100% of {}\n", (lines [[logging.get_logger "a":warning("100% of {}")]]))
    assert.equal("ERROR a: nil\n", (lines [[logging.get_logger "a":error(nil)]]))
  end)

  local all = [[ local l = logging.get_logger("a" %s)
    l:debug("d") l:info("i") l:warning("w") l:error("e") l:critical("c") l:log("debug", "x")]]
  local said = {"DEBUG a: d\n", "INFO a: i\n", "WARNING a: w\n", "ERROR a: e\n", "CRITICAL a: c\n", "DEBUG a: x\n"}

  it("writes from its level on: its own, that of set_verbosity, of a variable, info", function()
    assert.equal(table.concat(said, "", 2, 5), (lines(all:format "")))
    assert.equal(table.concat(said, "", 4, 5), (lines(all:format "", {level = "ERROR"})))
    assert.equal(table.concat(said), (lines(all:format "", {theirs = "debug"})))
    assert.equal(table.concat(said), (lines(all:format ", {log_level = 'debug'}", {level = "error"})))
    assert.equal(said[5], (lines("logging.set_verbosity 'critical'" .. all:format "", {level = "debug"})))
    assert.equal(said[5], (lines("logging.get_logger('a'):set_level(45)" .. all:format "")))
  end)

  it("writes on the main process only, unless asked for all", function()
    local script = [[local l = logging.get_logger "a" l:info("main of %d", 2) accelhost.accelerator:wait_for_everyone()
      l:info("rank " .. rank, {main_process_only = false})]]
    assert.same({[0] = "INFO a: main of 2\nINFO a: rank 0\n", [1] = "INFO a: rank 1\n"},
      run.by_rank((lines(script, {ranks = 2}))))
  end)

  it("writes rank by rank when the order counts", function()
    local script = [[logging.get_logger "a":info("rank %d", rank, {in_order = true})]]
    assert.equal("INFO a: rank 0\n[r1] INFO a: rank 1\n[r2] INFO a: rank 2\n", (lines(script, {ranks = 3})))
    assert.equal("", (lines(script, {ranks = 2, level = "warning"})))
  end)

  it("warns of one thing once", function()
    assert.equal("WARNING a: one 1\nWARNING a: one 2\n", (lines [[local l = logging.get_logger "a"
      for _ = 1, 3 do l:warning_once("one %d", 1) l:warning_once("one %d", 2) end]]))
  end)

  it("adds the traceback of an error", function()
    local text = lines [[local function fail() error("no luck: 100%", 0) end
      xpcall(fail, function(message) logging.get_logger "a":exception(message) end)]]
    assert.matches("^ERROR a: no luck: 100%%\nstack traceback:\n.*%-e:2: in function", text)
  end)

  it("is the same for the same name", function()
    assert.equal(accelhost.logging.get_logger "x", accelhost.logging.get_logger "x")
  end)

  it("reports wrong arguments", function()
    local logger = accelhost.logging.get_logger "wrong"
    assert.error_matches(function() accelhost.logging.get_logger("x", {log_level = "loud"}) end,
      "expected debug, info, warning, error or critical, got 'loud'")
    assert.error_matches(function() accelhost.logging.set_verbosity {} end, "set_verbosity: expected debug")
    assert.error_matches(function() logger:info("x", {on_main = true}) end, "unknown option 'on_main'")
    assert.error_matches(function() logger:error("%d", "x") end, "logger: bad argument #2 to 'format'")
    assert.matches("ACCELHOST_LOG_LEVEL: expected debug", lines([[logging.get_logger "a":info("x")]],
      {level = "loud", code = 1}))
  end)
end)
