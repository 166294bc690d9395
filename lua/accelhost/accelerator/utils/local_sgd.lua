--- LocalSGD: processes train independently and average their weights every few steps.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local floating = require("accelhost.nn.parameter").floating
local protect = require "accelhost.util.protect"
local comm = C.comm

local LocalSGD = class.strict(class.new "LocalSGD")

local read = arguments.signature("LocalSGD",
  {"accelerator: any", "model: module", "local_sgd_steps: count", {"enabled: flag", true}})

--- Within `run` gradients are not averaged: each process steps by its own, and after every local_sgd_steps calls of
--- `step` the weights become their mean over the processes. The optimizer's state is each process's own.
--
--   local local_sgd = accelhost.LocalSGD(accelerator, net, 8)
--   local_sgd:run(function()
--     local_sgd:step()     -- after optimizer:step()
--   end)
---@param accelerator Accelerator that has prepared the model
---@param enabled? boolean false: everything is as without it
function LocalSGD:init(...)
  self.accelerator, self.model, self.local_sgd_steps, self.enabled = read(...)
  if type(self.accelerator) ~= "table" or type(self.accelerator.no_sync) ~= "function" then
    arguments.fail("LocalSGD: accelerator: expected an Accelerator, got %s", arguments.describe(self.accelerator))
  end
  if self.enabled and C.recovery.is_on() then
    arguments.fail "LocalSGD: live recovery needs weights that are equal on all processes; here each has its own"
  end
  self.num_steps = 0
end

function LocalSGD:__tostring()
  return ("LocalSGD(local_sgd_steps=%d, enabled=%s)"):format(self.local_sgd_steps, tostring(self.enabled))
end

local function is_on(self) return self.enabled and comm.size() > 1 end

--- Run fn, a training loop; at its end the weights become their mean. A collective.
--
--   local_sgd:run(function() return 7 end)  --> 7
---@return any # the results of fn
function LocalSGD:run(fn)
  arguments.check("run", "fn", "function", fn)
  if not is_on(self) then return fn() end
  return protect(function(fine)
    if fine then self:synchronize() end
  end, self.accelerator.no_sync, self.accelerator, self.model, fn)
end

--- Count an optimizer's step. At every local_sgd_steps-th one a collective.
--
--   local_sgd:step()
function LocalSGD:step()
  self.num_steps = self.num_steps + 1
  if is_on(self) and self.num_steps % self.local_sgd_steps == 0 then self:synchronize() end
end

--- Average the weights now. A collective.
--
--   local_sgd:synchronize()
function LocalSGD:synchronize()
  if comm.size() == 1 then return end
  C.autograd.no_grad(function()
    for _, parameter in ipairs(floating(self.model:parameters())) do comm.all_reduce(parameter, "mean") end
  end)
end

return LocalSGD
