--- accelhost.optim.swa_utils: averaged weights and their learning rate. The averages are modules, defined in nn.
local namespace = require "accelhost.util.namespace"

local lazy = {SWALR = {"accelhost.optim.lr_scheduler.swa"}}
namespace.add(lazy, "accelhost.nn.averaged", {
  "AveragedModel", "update_bn", "get_swa_avg_fn", "get_ema_avg_fn", "get_swa_multi_avg_fn", "get_ema_multi_avg_fn",
})

return namespace.new("optim.swa_utils", {}, lazy)
