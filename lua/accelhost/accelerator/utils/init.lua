--- accelhost.utils: the functions of Accelerate's utils: seeds, collectives without an accelerator, values of any form,
--- batch sizes that fit; and checkpoint, PyTorch's way to trade time for memory.
--
--   local utils = accelhost.utils
--   utils.set_seed(42)
--   utils.find_batch_size{x = images}  --> 2
local namespace = require "accelhost.util.namespace"

-- File -> the names that it defines.
local files = {
  nested = {
    "recursively_apply", "send_to_device", "find_batch_size", "slice_tensors", "concatenate", "get_data_structure",
    "initialize_tensors", "listify", "convert_to_fp32",
  },
  seed = {"set_seed", "synchronize_rng_state", "synchronize_rng_states"},
  folders = {"makedirs"},
  memory = {"find_executable_batch_size", "should_reduce_batch_size", "release_memory", "clear_device_cache"},
  operations = {
    "gather", "reduce", "broadcast", "pad_across_processes", "gather_object", "broadcast_object_list",
    "copy_tensor_to_devices",
  },
}

local lazy = {checkpoint = {"accelhost.accelerator.utils.checkpoint"}}
for file, names in pairs(files) do namespace.add(lazy, "accelhost.accelerator.utils." .. file, names) end

return namespace.new("utils", {}, lazy, {refused = {
  data = "accelhost.data has the loaders", tensorboard = "accelhost.track.SummaryWriter",
  GradientAccumulationPlugin = "accelhost.GradientAccumulationPlugin and the other configurations",
  LocalSGD = "accelhost.LocalSGD",
}})
