--- Waiting, printing, triggers, and work of single processes.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local collectives = require "accelhost.accelerator.process.collectives"
local protect = require "accelhost.util.protect"
local comm = C.comm

---@part Accelerator
---@field trigger boolean did this process raise its flag since the last check?
local Processes = class.new "Processes"

---@param state Accelerator|PartialState with the process's identity in its job
function Processes:init(state)
  self.state = state
  self:reset()
end

--- Lower this process's flag.
function Processes:reset() self.trigger = false end

-- A function that runs fn where `here` is true, or in a job of one process, and does nothing elsewhere.
local function only(what, fn, here)
  arguments.check(what, "fn", "callable", fn)
  if here or comm.size() == 1 then return fn end
  return function() end
end

-- Let the processes of which `first` is true run fn before the others.
local function main_first(what, fn, first)
  arguments.check(what, "fn", "callable", fn)
  if not first then comm.barrier() end
  return protect(function(fine)
    if first and fine then comm.barrier() end
  end, fn)
end

--- Wait until every process is here. A collective.
--
--   if accelerator.is_main_process then accelhost.save(net:state_dict(), os.tmpname()) end
--   accelerator:wait_for_everyone()     -- now the file is there for all
function Processes:wait_for_everyone() -- luacheck: ignore self
  comm.barrier()
end

--- Print on the local main process only, as Lua's `print` does.
--
--   accelerator:print("loss", 0.25)
---@param ... any
function Processes:print(...)
  if self.state.is_local_main_process then print(...) end
end

--- Raise a flag on this process; check_trigger then answers true on all.
--
--   if loss:isnan():item() then accelerator:set_trigger() end
function Processes:set_trigger()
  self.trigger = true
end

--- Did any process raise its flag since the last check? Lowers it. A collective.
--
--   accelerator:set_trigger()
--   accelerator:check_trigger()  --> true
function Processes:check_trigger()
  local flag = C.full({1}, self.trigger and 1 or 0, {device = "cpu"})
  self.trigger = false
  return collectives.reduce(flag, "sum"):item() >= 1
end

--- This process's part of a list, a tensor, or a table of fields that are such, all of one length: contiguous, the
--- first (n mod processes) get one more. With fn: the results of fn for it. The input is not changed.
--
--   accelerator:split_between_processes{"a", "b", "c"}  --> {a, b, c}
---@param inputs table|userdata
---@param apply_padding? boolean repeat the last item, so that all processes get equally many
---@param fn? fun(part: table|userdata): any
---@return table|userdata
Processes.split_between_processes = arguments.method("split_between_processes", {
  "inputs: any", {"apply_padding: flag", false}, {"fn: function"},
}, function(self, inputs, apply_padding, fn)
  local split = require "accelhost.accelerator.process.split"
  local part = split(inputs, self.state.process_index, self.state.num_processes, {apply_padding = apply_padding})
  if fn then return fn(part) end
  return part
end)

--- Run fn on the main process first, then on the others: the others find files that it downloads. A collective.
--
--   local set = accelerator:main_process_first(function() return data.SyntheticDigits{size = 10} end)
---@return any # the results of fn
function Processes:main_process_first(fn)
  return main_first("main_process_first", fn, self.state.is_main_process)
end

--- The same as main_process_first, with a first one on every host.
--
--   accelerator:local_main_process_first(function() return 7 end)  --> 7
---@return any # the results of fn
function Processes:local_main_process_first(fn)
  return main_first("local_main_process_first", fn, self.state.is_local_main_process)
end

--- A function that runs fn on the main process and does nothing on the others.
--
--   local report = accelerator:on_main_process(function(loss) print("loss", loss) end)
--   report(0.25)
---@return function
function Processes:on_main_process(fn) return only("on_main_process", fn, self.state.is_main_process) end

--- A function that runs fn on the main process of every host and does nothing on the others.
--
--   accelerator:on_local_main_process(print)("once on each host")
---@return function
function Processes:on_local_main_process(fn)
  return only("on_local_main_process", fn, self.state.is_local_main_process)
end

--- A function that runs fn on the last process and does nothing on the others.
--
--   accelerator:on_last_process(print)("on the last one")
---@return function
function Processes:on_last_process(fn) return only("on_last_process", fn, self.state.is_last_process) end

--- A function that runs fn on one process and does nothing on the others; in a job of one process it runs.
--
--   accelerator:on_process(print, {process_index = 1})("on process 1")
---@param process_index integer from 0
---@return function
Processes.on_process = arguments.method("on_process", {"fn: callable", "process_index: size"}, function(self, fn, index)
  return only("on_process", fn, self.state.process_index == index)
end)

--- A function that runs fn on one process of every host and does nothing on the others; in a job of one process it
--- runs.
--
--   accelerator:on_local_process(print, {local_process_index = 1})("on process 1 of each host")
---@param local_process_index integer from 0
---@return function
Processes.on_local_process = arguments.method("on_local_process", {
  "fn: callable", "local_process_index: size",
}, function(self, fn, index)
  return only("on_local_process", fn, self.state.local_process_index == index)
end)

return Processes
