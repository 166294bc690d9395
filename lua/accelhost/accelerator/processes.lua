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
  --- Wait until every process is here. A collective.
  --
  --   if accelerator.is_main_process then accelhost.save(net:state_dict(), os.tmpname()) end
  --   accelerator:wait_for_everyone()     -- now the file is there for all
  function Accelerator:wait_for_everyone() -- luacheck: ignore self
    comm.barrier()
  end

  --- Print on the local main process only, as Lua's `print` does.
  --
  --   accelerator:print("loss", 0.25)
  ---@param ... any
  function Accelerator:print(...)
    if self.is_local_main_process then print(...) end
  end

  --- Raise a flag on this process; check_trigger then answers true on all.
  --
  --   if loss:isnan():item() then accelerator:set_trigger() end
  function Accelerator:set_trigger()
    self._trigger = true
  end

  --- Did any process raise its flag since the last check? Lowers it. A collective.
  --
  --   accelerator:set_trigger()
  --   accelerator:check_trigger()  --> true
  ---@return boolean
  function Accelerator:check_trigger()
    local flag = C.full({1}, self._trigger and 1 or 0, {device = "cpu"})
    self._trigger = false
    return collectives.reduce(flag, "sum"):item() >= 1
  end

  --- This process's part of a list, a tensor, or a table of fields that are such, all of one length: contiguous, the
  --- first (n mod processes) get one more.
  --
  --   accelerator:split_between_processes{"a", "b", "c"}  --> {a, b, c}
  ---@param items table|userdata
  ---@param apply_padding? boolean give all processes equally many: repeat the last item of all
  ---@return table|userdata
  function Accelerator:split_between_processes(items, apply_padding)
    if type(apply_padding) == "boolean" then apply_padding = {apply_padding = apply_padding} end
    return split(items, self.process_index, self.num_processes, apply_padding or {})
  end

  --- Run fn on the main process first, then on the others: what the first one downloads the others find. A
  --- collective.
  --
  --   local set = accelerator:main_process_first(function() return data.SyntheticDigits{size = 10} end)
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
