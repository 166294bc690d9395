--- nn.parallel: where PyTorch has DistributedDataParallel.
local namespace = require "accelhost.util.namespace"

return namespace.new("nn.parallel", {}, {DistributedDataParallel = {"accelhost.distributed.parallel"}}, {refused = {
  DataParallel = "DistributedDataParallel, with a process for each part, as PyTorch recommends too",
}})
