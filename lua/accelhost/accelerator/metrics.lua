--- Bringing together what the processes have.
local arguments = require "accelhost.util.arguments"
local collectives = require "accelhost.accelerator.collectives"

local read_padding = arguments.signature("pad_across_processes",
  {"value: any", {"dim: integer", 0}, {"pad_index: number", 0}, {"pad_first: flag", false}})

--- Give the Accelerator class gather, gather_for_metrics, reduce and pad_across_processes.
---@param Accelerator table
return function(Accelerator)
  --- Concatenate every process's tensor on dim 0, on every process; tables are walked, scalars become length 1. The
  --- sizes of dim 0 may differ, the others not. A collective.
  --
  --   accelerator:gather(a)              --> tensor([1., 2., 3.])
  --   local losses, hits = accelerator:gather(a:sum(), b)
  ---@param ... userdata|table
  ---@return any ... one for each argument
  function Accelerator:gather(...) -- luacheck: ignore self
    return collectives.map(collectives.gather, ...)
  end

  --- The same as gather, without the samples that were repeated to fill the last round of the loader whose `for` is
  --- running: of n samples n come back in a pass, so that an accuracy is the data set's. A collective.
  --
  --   local test, seen = accelerator:prepare(loader), 0
  --   for x, y in test do seen = seen + accelerator:gather_for_metrics(y):size(0) end
  --   print(seen)  --> 5
  ---@param ... userdata|table
  ---@return any ... one for each argument
  function Accelerator:gather_for_metrics(...)
    local loader = self:_active_loader()
    local keep = loader and loader.end_of_dataloader and loader.remainder
    if not keep or keep <= 0 then return self:gather(...) end
    return collectives.map(function(tensor)
      local all = collectives.gather(tensor)
      return all:size(0) > keep and all:narrow(0, 0, keep) or all
    end, ...)
  end

  --- Combine every process's tensor, on every process; tables are walked. A collective.
  --
  --   accelerator:reduce(a, "mean")  --> tensor([1., 2., 3.])
  ---@param value userdata|table
  ---@param reduction? string default "sum"; or "mean", "max", "min", "product"
  ---@return any # of the value's form
  function Accelerator:reduce(value, reduction) -- luacheck: ignore self
    return (collectives.map(function(tensor) return collectives.reduce(tensor, reduction or "sum") end, value))
  end

  --- Pad every process's tensor to the longest of all along a dim, for what needs equal sizes; tables are walked. A
  --- collective.
  --
  --   accelerator:pad_across_processes(t, {dim = 1, pad_index = -1}):shape()  --> {2, 3}
  ---@param value userdata|table
  ---@param dim? integer from 0, or from the end
  ---@param pad_index? number what the new elements are
  ---@param pad_first? boolean pad before the elements, not behind them
  ---@return any # of the value's form
  function Accelerator:pad_across_processes(...) -- luacheck: ignore self
    local value, dim, pad_index, pad_first = read_padding(...)
    local options = {dim = dim, pad_index = pad_index, pad_first = pad_first}
    return (collectives.map(function(tensor) return collectives.pad(tensor, options) end, value))
  end
end
