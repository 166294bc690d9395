--- accelhost.amp: mixed precision: forward in bfloat16 or float16, weights and their gradients in float32.
--
--   local scaler = accelhost.amp.GradScaler()
--   local optimizer = optim.SGD(net:parameters(), {lr = 0.1})
--   local loss = accelhost.autocast("cpu", {dtype = "float16"}, function() return net(x):pow(2):mean() end)
--   scaler:scale(loss):backward()
--   scaler:step(optimizer)
--   scaler:update()
--
-- bfloat16 has the range of float32 and needs no GradScaler.
local autocast = require "accelhost.amp.autocast"
local namespace = require "accelhost.util.namespace"

local lazy = {GradScaler = {"accelhost.amp.grad_scaler"}}
namespace.add(lazy, "accelhost.amp.custom", {"custom_fwd", "custom_bwd"})

return namespace.new("amp", {
  autocast = autocast.autocast,
  is_autocast_available = autocast.is_autocast_available,
}, lazy)
