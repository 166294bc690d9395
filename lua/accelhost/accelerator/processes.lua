--- Which process does what, and when.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local collectives = require "accelhost.accelerator.collectives"
local protect = require "accelhost.util.protect"
local split = require "accelhost.accelerator.split"
local comm = C.comm

--- Give the Accelerator class waiting, printing, triggers and the work of single processes.
---@param Accelerator table
---@return fun(self: Accelerator) begin
return function(Accelerator)
  --- Wait until every process is here.
  function Accelerator:wait_for_everyone() -- luacheck: ignore self
    comm.barrier()
  end

  --- print, on the local main process only.
  function Accelerator:print(...)
    if self.is_local_main_process then print(...) end
  end

  --- Raise a flag on this process; check_trigger then answers true on all.
  function Accelerator:set_trigger()
    self._trigger = true
  end

  --- Did any process raise its flag since the last check? Lowers it. A collective.
  ---@return boolean
  function Accelerator:check_trigger()
    local flag = C.full({1}, self._trigger and 1 or 0, {device = "cpu"})
    self._trigger = false
    return collectives.reduce(flag, "sum"):item() >= 1
  end

  --- This process's part of a list, a tensor, or a table of fields that are such, all of one length: contiguous, the
  --- first (n mod processes) get one more.
  ---@param items table|userdata
  ---@param options? {apply_padding?: boolean} give all processes equally many: repeat the last item of all
  ---@return table|userdata
  function Accelerator:split_between_processes(items, options)
    return split(items, self.process_index, self.num_processes, options or {})
  end

  --- Run fn on the main process first, then on the others.
  ---@param fn function
  ---@return any # what fn returns
  function Accelerator:main_process_first(fn)
    arguments.check("main_process_first", "fn", "callable", fn)
    if not self.is_main_process then comm.barrier() end
    return protect(function(fine)
      if self.is_main_process and fine then comm.barrier() end
    end, fn)
  end

  return function(self) self._trigger = false end
end
