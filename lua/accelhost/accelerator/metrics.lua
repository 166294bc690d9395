--- Bringing together what the processes have.
local arguments = require "accelhost.util.arguments"
local collectives = require "accelhost.accelerator.collectives"

--- Give the Accelerator class gather, gather_for_metrics, reduce and pad_across_processes.
---@param Accelerator table
return function(Accelerator)
  --- Concatenate every process's tensor on dim 0, on every process; tables are walked, scalars become length 1.
  ---@param ... userdata|table
  ---@return any ...
  function Accelerator:gather(...) -- luacheck: ignore self
    return collectives.map(collectives.gather, ...)
  end

  --- gather, without the samples that were repeated to fill the last round of the active loader.
  ---@param ... userdata|table
  ---@return any ...
  function Accelerator:gather_for_metrics(...)
    local loader = self:_active_loader()
    local keep = loader and loader.end_of_dataloader and loader.remainder
    if not keep or keep <= 0 then return self:gather(...) end
    return collectives.map(function(tensor)
      local all = collectives.gather(tensor)
      return all:size(0) > keep and all:narrow(0, 0, keep) or all
    end, ...)
  end

  --- Combine every process's tensor: "sum", "mean", "max", "min" or "product"; on every process.
  ---@param value userdata|table
  ---@param reduction? string default "sum"
  ---@return any
  function Accelerator:reduce(value, reduction) -- luacheck: ignore self
    return (collectives.map(function(tensor) return collectives.reduce(tensor, reduction or "sum") end, value))
  end

  --- Pad every process's tensor to the longest along a dim.
  ---@param value userdata|table
  ---@param options? {dim?: integer, pad_index?: number, pad_first?: boolean}
  ---@return any
  function Accelerator:pad_across_processes(value, options) -- luacheck: ignore self
    options = options or {}
    arguments.check_names("pad_across_processes", options, {"dim", "pad_index", "pad_first"})
    return (collectives.map(function(tensor) return collectives.pad(tensor, options) end, value))
  end
end
