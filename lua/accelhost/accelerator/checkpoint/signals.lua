--- Stopping with a checkpoint when a signal asks for it.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local comm = C.comm

local fail, describe = arguments.fail, arguments.describe

---@part Accelerator
---@field asked {dir: string?, every: integer, calls: integer}|false by save_on_signal
local SignalWatch = class.new "SignalWatch"

function SignalWatch:init(accelerator)
  self.accelerator, self.asked = accelerator, false
end

local known = {"TERM", "USR1", "INT", "HUP"}

local read = arguments.signature("save_on_signal",
  {{"output_dir: string"}, {"signals: list", {"TERM", "USR1"}}, {"every: count", 1}})

-- The signal that any process has got, as its place among the known ones; 0 for none. A collective.
local function agreed(own)
  local place = 0
  for i, name in ipairs(known) do
    if name == own then place = i end
  end
  if comm.size() == 1 then return place end
  local all = C.tensor({place}, {dtype = "int64", device = "cpu"})
  comm.all_reduce(all, "max")
  return all:item()
end

--- Let signals, such as those that a cluster sends before the time limit, request a checkpoint and the end instead of
--- ending the script at once. They are recorded on any process or the launcher, and check_signal acts on them.
--
-- `launch` forwards SIGTERM and kills processes that have not ended after --grace seconds (30); it forwards SIGUSR1 to
-- scripts that handle it.
--
--   accelerator:save_on_signal{output_dir = "last", signals = {"TERM"}}
---@param output_dir? string folder of the state; without, as with save_state
---@param signals? string[] of TERM, USR1, INT and HUP; default TERM and USR1
---@param every? integer let the processes agree at every n-th call of check_signal only; default 1
function SignalWatch:save_on_signal(...)
  local dir, signals, every = read(...)
  for _, name in ipairs(signals) do
    local word = type(name) == "string" and name:gsub("^SIG", "")
    if not word or not C.system.catch_signal(word) then
      fail("save_on_signal: signals: expected names among %s, got %s", table.concat(known, ", "), describe(name))
    end
  end
  self.asked = {dir = dir, every = every, calls = 0}
end

--- Has any process got a signal that save_on_signal watches? Then the state is saved (unless save = false) and the
--- signal's name is the answer, on all processes at the same step, and the script should end; else false. Call it
--- where a step is complete. A collective.
--
--   accelerator:save_on_signal()
--   for inputs, labels in loader do
--     optimizer:step()
--     if accelerator:check_signal() then break end
--   end
---@param save? boolean default true; or {save = false}
---@return string|false
SignalWatch.check_signal = arguments.method("check_signal", {{"save: flag", true}}, function(self, save)
  local asked, virtual_shards = self.asked, self.accelerator._virtual_shards
  if not asked then fail "check_signal: call save_on_signal first" end
  if virtual_shards and not virtual_shards:is_between() then return false end
  asked.calls = asked.calls + 1
  if asked.calls % asked.every ~= 0 then return false end
  local name = known[agreed(C.system.take_signal())]
  if not name then return false end
  if save then self.accelerator:save_state(asked.dir) end
  return name
end)

return SignalWatch
