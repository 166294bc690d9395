--- What is computed in which precision. Only full precision is there: nothing is cast, scaled or skipped.
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local configuration = require "accelhost.accelerator.configuration"

--- Give the Accelerator class autocast and unscale_gradients.
---@param Accelerator table
return function(Accelerator)
  --- Run fn as the forward of a prepared model runs: with mixed_precision = "no" in the dtypes that its tensors have.
  --
  --   accelerator:autocast(function() return 7 end)  --> 7
  ---@param handler? AutocastKwargs|function or fn at once
  ---@param fn? function
  ---@return any # what fn returns
  function Accelerator:autocast(handler, fn) -- luacheck: ignore self
    if type(handler) == "function" and fn == nil then
      handler, fn = nil, handler
    end
    if handler ~= nil then configuration.of("autocast: handler", "AutocastKwargs", handler) end
    arguments.check("autocast", "fn", "function", fn)
    return fn()
  end

  --- Take the scale out of the gradients of an optimizer (default: of all). With mixed_precision = "no" there is none.
  --
  --   accelerator:unscale_gradients(optimizer)
  ---@param optimizer? Optimizer
  function Accelerator:unscale_gradients(optimizer) -- luacheck: ignore self
    local kind = require "accelhost.accelerator.kinds"
    if optimizer ~= nil and kind(optimizer) ~= "optimizer" then
      arguments.fail("unscale_gradients: expected an optimizer or nothing, got %s", arguments.describe(optimizer))
    end
  end

  class.property(Accelerator, "scaler", function() return nil end)
  class.property(Accelerator, "optimizer_step_was_skipped", function(self)
    for optimizer in pairs(self._optimizers) do
      if optimizer.step_was_skipped then return true end
    end
    return false
  end)
end
