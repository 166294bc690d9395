--- accelhost.distributed.algorithms: Join for processes with unequal numbers of inputs, and communication hooks, under
--- PyTorch's names.
local namespace = require "accelhost.util.namespace"

local function of(title, file, names)
  local lazy = {}
  namespace.add(lazy, "accelhost.distributed." .. file, names)
  return namespace.new(title, {}, lazy)
end

local comm_hooks = "distributed.algorithms.ddp_comm_hooks"
return namespace.new("distributed.algorithms", {
  join = of("distributed.algorithms.join", "join", {"Join"}),
  ddp_comm_hooks = namespace.new(comm_hooks, {
    default_hooks = of(comm_hooks .. ".default_hooks", "default_hooks", {
      "allreduce_hook", "fp16_compress_hook", "bf16_compress_hook", "fp16_compress_wrapper", "bf16_compress_wrapper",
    }),
    debugging_hooks = of(comm_hooks .. ".debugging_hooks", "default_hooks", {"noop_hook"}),
    powerSGD_hook = of(comm_hooks .. ".powerSGD_hook", "power_sgd", {
      "PowerSGDState", "powerSGD_hook", "batched_powerSGD_hook",
    }),
  }, nil, {refused = {
    quantization_hooks = "sums of quantized gradients would need their own collectives; fp16_compress_hook halves the "
      .. "bytes",
    post_localSGD_hook = "no_sync and all_reduce of the parameters do it",
  }}),
})
