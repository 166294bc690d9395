--- What prepare gives back for optimizers and schedulers: the same object's face, with steps that wait for the end
--- of an accumulation window.
local wrappers = {}

-- An object that forwards everything to `inner` except the given methods.
local function wrap(inner, methods)
  return setmetatable({_inner = inner}, {
    __index = function(_, key)
      local own = methods[key]
      if own ~= nil then return own end
      local value = inner[key]
      if type(value) ~= "function" then return value end
      return function(_, ...)
        return value(inner, ...)
      end
    end,
    __newindex = function(_, key, value) inner[key] = value end,
    __tostring = function() return tostring(inner) end,
  })
end

--- An optimizer whose step and zero_grad do nothing inside an accumulation window.
---@param accelerator Accelerator
---@param optimizer table
---@return table
function wrappers.optimizer(accelerator, optimizer)
  return wrap(optimizer, {
    step = function(_, ...)
      if accelerator.sync_gradients then return optimizer:step(...) end
    end,
    zero_grad = function(_, ...)
      if accelerator.sync_gradients then return optimizer:zero_grad(...) end
    end,
    step_was_skipped = false,
  })
end

--- A scheduler that steps once per optimizer step, whatever the number of processes.
---@param accelerator Accelerator
---@param scheduler table
---@return table
function wrappers.scheduler(accelerator, scheduler)
  return wrap(scheduler, {
    step = function(_, ...)
      if accelerator.sync_gradients or not accelerator.step_scheduler_with_optimizer then
        return scheduler:step(...)
      end
    end,
  })
end

return wrappers
