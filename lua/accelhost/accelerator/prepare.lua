--- Preparing: models, loaders, optimizers and schedulers are made ready for a job, and let go of.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local averaging = require "accelhost.accelerator.averaging"
local collectives = require "accelhost.accelerator.collectives"
local kind_of = require "accelhost.accelerator.kinds"
local passes = require "accelhost.data.passes"
local wrappers = require "accelhost.accelerator.wrappers"

-- kind -> what makes the object ready and gives what the script is to use
local prepare_kind = {}

--- A model: its parameters and gradients move into arenas.
function prepare_kind.model(self, model)
  if self.device_placement then model:to {device = self.device} end
  averaging.add(model, self, {bucket_cap_mb = self._bucket_cap_mb or nil})
  return model
end

--- A loader: this rank's share of it.
function prepare_kind.loader(self, loader)
  local sharded = loader:shard {
    rank = self.process_index, size = self.num_processes,
    split_batches = self.split_batches, even_batches = self.even_batches,
    synchronize = collectives.broadcast_bytes,
    device = self.device_placement and self.device ~= "cpu" and self.device or nil,
  }
  self._loaders[sharded] = true
  return sharded
end

--- An optimizer that waits for the end of a window.
function prepare_kind.optimizer(self, optimizer)
  return wrappers.optimizer(self, optimizer)
end

--- A scheduler that waits with it.
function prepare_kind.scheduler(self, scheduler)
  return wrappers.scheduler(self, scheduler)
end

-- A model whose parameters changed since it was prepared is prepared anew.
local function forget_stale(self, model)
  averaging.remove(function(handle)
    local stale = handle.accelerator == self and handle:belongs_to(model) and handle:is_stale()
    if stale then self._prepared[model] = nil end
    return stale
  end)
end

--- Give the Accelerator class prepare and free_memory.
---@param Accelerator table
---@return fun(self: Accelerator) begin
return function(Accelerator)
  --- Make models, optimizers, loaders and schedulers ready for this job; they come back in the same order. Parameters
  --- and buffers take rank 0's values, loaders give this rank's share. Other values pass through. A collective.
  --
  --   net, optimizer, loader, scheduler = accelerator:prepare(net, optimizer, loader, scheduler)
  ---@param ... any models, optimizers, loaders and schedulers
  ---@return any ... the same objects, made ready, in the same order
  function Accelerator:prepare(...)
    local count = select("#", ...)
    if count == 0 then arguments.fail("prepare: expected models, optimizers, loaders or schedulers, got nothing") end
    local results = {...}
    -- Schedulers last: they follow the optimizers.
    for _, round in ipairs {{model = true, loader = true, optimizer = true}, {scheduler = true}} do
      for i = 1, count do
        local object = select(i, ...)
        local kind = kind_of(object)
        if kind and round[kind] then
          if kind == "model" then forget_stale(self, object) end
          if not self._prepared[object] then
            local result = prepare_kind[kind](self, object)
            self._prepared[object] = result
            self._prepared[result] = result
          end
          results[i] = self._prepared[object]
        end
      end
    end
    return unpack(results, 1, count)
  end

  --- The model as it was before prepare: the same object, since prepare wraps nothing around it.
  --
  --   accelerator:unwrap_model(net) == net  --> true
  ---@param model Module
  ---@return Module
  function Accelerator:unwrap_model(model) -- luacheck: ignore self
    return model
  end

  --- Let go of everything that prepare was given: models keep their values and gradients, which are averaged no more.
  --
  --   model, optimizer = accelerator:free_memory(model, optimizer)
  ---@param ... any the script's own references
  ---@return nil one for each of them
  function Accelerator:free_memory(...)
    averaging.remove(function(handle) return handle.accelerator == self end)
    self:_begin()
    collectgarbage()
    C.system.empty_cache()
    return unpack({}, 1, select("#", ...))
  end

  --- The same as free_memory.
  --
  --   accelerator:clear()
  Accelerator.clear = Accelerator.free_memory

  -- The prepared loader whose pass is the innermost one, nil when that is another's or there is none.
  function Accelerator:_active_loader()
    local pass = passes.top()
    if pass and passes.matters() then pass = passes.innermost() end
    return pass and self._loaders[pass.loader] and pass.loader or nil
  end

  -- References are weak: a script that drops its objects needs to tell nobody.
  return function(self)
    self._loaders = setmetatable({}, {__mode = "k"})   -- prepared loader -> true
    self._prepared = setmetatable({}, {__mode = "kv"}) -- object -> what prepare returned for it
  end
end
