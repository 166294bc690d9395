--- CosineAnnealingWarmRestarts.
local LRScheduler = require "accelhost.optim.lr_scheduler.scheduler"
local arguments = require "accelhost.util.arguments"
local host_updates = require "accelhost.util.host_updates"

local cos, pi, floor, log = math.cos, math.pi, math.floor, math.log

--- Cosine annealing that starts again after T_0 epochs, then after T_0 * T_mult, ...
--
--   local schedule = optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, {T_0 = 10})
--   optimizer:step()
--   schedule:step()
--   schedule:get_last_lr()[1]  --> 0.097552825814758
local Restarts = LRScheduler:define("CosineAnnealingWarmRestarts",
  {"T_0: count", {"T_mult: count", 1}, {"eta_min: number", 0}}, {"T_i", "T_cur"})

function Restarts:check(last_epoch)
  self.T_i, self.T_cur = self.T_0, last_epoch
end

function Restarts:get_lr()
  return self:each_group(function(_, base)
    return self.eta_min + (base - self.eta_min) * (1 + cos(pi * self.T_cur / self.T_i)) / 2
  end)
end

--- The epoch may have a fraction: scheduler:step(epoch + i / iterations).
function Restarts:step(epoch)
  if host_updates.is_recording() then return self:_step_captured(epoch) end
  self._step_count = self._step_count + 1
  self:_move_to(epoch)
end

function Restarts:_move_to(epoch)
  if epoch == nil and self.last_epoch < 0 then epoch = 0 end
  if epoch == nil then
    epoch = self.last_epoch + 1
    self.T_cur = self.T_cur + 1
    if self.T_cur >= self.T_i then
      self.T_cur = self.T_cur % self.T_i
      self.T_i = self.T_i * self.T_mult
    end
  elseif epoch < 0 then
    arguments.fail("%s: expected an epoch from 0, got %g", self._name, epoch)
  elseif epoch < self.T_0 then
    self.T_i, self.T_cur = self.T_0, epoch
  elseif self.T_mult == 1 then
    self.T_cur = epoch % self.T_0
  else
    local n = floor(log(epoch / self.T_0 * (self.T_mult - 1) + 1) / log(self.T_mult))
    self.T_cur = epoch - self.T_0 * (self.T_mult ^ n - 1) / (self.T_mult - 1)
    self.T_i = self.T_0 * self.T_mult ^ n
  end
  self.last_epoch = floor(epoch)
  self:apply(self:get_lr())
end

return Restarts
