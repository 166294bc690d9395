-- accelhost sweep on a terminal: the last screen, and the effect of Ctrl-C.
local C = require "accelhost._C"
local write = require("spec.support.files").write
local folder = require "spec.support.folder"
local run = require "spec.support.run"
local screen = require "spec.support.screen"
local terminal = require "spec.support.terminal"

if not pcall(C.sqlite.open, ":memory:") then
  return describe("A sweep on a terminal", function()
    pending "needs accelhost-sqlite.so, which is built where SQLite is"
  end)
end

local script = [[
local accelhost = require "accelhost"
local args = accelhost.args {x = 0.5, pause = 0.01}
print "a trial's own words"
io.stderr:write "noise\n"
for step = 1, 5 do
  accelhost.report(step, {loss = args.x / step})
  require("accelhost._C").terminal.sleep(args.pause)
end
if args.x > 0.7 then error "too big" end
]]

-- Return the output, carriage returns and all.
local function raw(at)
  local file = assert(io.open(at.base .. ".shown", "rb"))
  local text = file:read "*a"
  file:close()
  return (text:gsub("^Script started[^\n]*\n", ""):gsub("\n?Script done.*$", ""))
end

local definition = [[return {script = "train.lua", sampler = "grid", parallel = 1,
  space = {x = require("accelhost").sweep.quniform(0.2, 0.8, 0.2), pause = %g}}]]

describe("A sweep on a terminal", function()
  local leave
  setup(function()
    local home = require("lfs").currentdir()
    if run.path:sub(1, 1) ~= "/" then run.path = home .. "/" .. run.path end
    leave = folder.enter()
    write("train.lua", script)
  end)
  teardown(function() leave() end)

  it("leaves failures and its summary, and nothing of the table or of the trials' output", function()
    write("short.lua", definition:format(0.05))
    local at = terminal.open({run.path, "sweep", "short.lua"}, {columns = 60})
    at:wait "trial +step +loss"
    at:wait "best%.yaml"
    at:wait "}"
    local seen = screen.new(60)
    seen:feed(raw(at))
    assert.equal(0, at:close())
    assert.same({}, seen.unknown)
    local text = seen:text():gsub("began .-\n\n", "began then\n\n") -- slow trials: it wraps
    assert.matches([[
trial 3 failed: train.lua:9: too big
short: minimize loss, sampler grid
4 trials: 3 complete, 1 failed
began then

best: loss 0.04 in trial 0
  x  0.2
short.study/best.yaml, for accelhost launch --params:
{
  pause = 0.05,
  x = 0.2,
}
]], text, 1, true)
    assert.is_nil(text:find("noise", 1, true) or text:find("own words", 1, true) or text:find("rank", 1, true))
  end)

  it("ends trials at their next report after Ctrl-C, and resumes afterwards", function()
    write("long.lua", definition:format(0.15))
    local at = terminal.open({run.path, "sweep", "long.lua"}, {columns = 80})
    at:wait "[12] +0%.[12] " -- a busy machine may show but one of the first two
    at:type "\3"
    at:wait "interrupted: 1 trial will end at the next report"
    at:wait "best: none, "
    at:wait "\n"
    local seen = screen.new(80)
    seen:feed(raw(at))
    assert.equal(130, at:close())
    assert.is_nil(seen:text():find("step", 1, true))
    assert.matches("1 trial: 1 waiting", seen:text(), 1, true)
    local result = run.host({"sweep", "long.lua"}, {timeout = 60})
    assert.matches("4 trials: 3 complete, 1 failed", result.stdout, 1, true)
  end)
end)
