--- accelhost.distributed: processes that compute together, by PyTorch's names.
--
--   local dist = accelhost.distributed
--   dist.init_process_group "gloo"
--   local total = accelhost.tensor {dist.get_rank() + 1}
--   dist.all_reduce(total)
--   dist.destroy_process_group()
--
-- `accelhost launch --num_processes 2 script.lua` starts the processes; started without it a script is a world of one.
-- Every call is compared with the calls of the other processes: ranks that disagree, die or do not call are named at
-- once or after the timeout, and every later call of the group fails. Ranks count from 0.
--
-- GPUs exchange tensors by NCCL where each process has its own GPU; a call then returns when the GPU has it in its
-- queue, as with PyTorch. Where two processes share a GPU, where NCCL is not installed, and with the backend "gloo"
-- they are copied through the host's memory, as are, always, messages and operations without a call in NCCL (bits of
-- integers). Sums by NCCL are formed in NCCL's order, the same on every process.
local groups = require "accelhost.distributed.groups"
local namespace = require "accelhost.util.namespace"

local lazy = {}
namespace.add(lazy, "accelhost.distributed.groups", {
  "init_process_group", "destroy_process_group", "is_initialized", "is_available", "is_backend_available",
  "is_gloo_available", "is_nccl_available", "is_mpi_available", "get_rank", "get_world_size", "get_backend",
  "get_backend_config", "get_default_backend_for_device", "set_timeout", "get_process_group_ranks", "get_global_rank",
  "get_group_rank", "get_node_local_rank", "is_torchelastic_launched", "ProcessGroup",
})
namespace.add(lazy, "accelhost.distributed.parts", {
  "new_group", "new_subgroups", "new_subgroups_by_enumeration", "split_group",
})
namespace.add(lazy, "accelhost.distributed.collectives", {
  "ReduceOp", "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "all_gather_single",
  "gather", "gather_single", "gather_into_tensor", "scatter", "reduce_scatter", "reduce_scatter_tensor",
  "reduce_scatter_single", "barrier", "monitored_barrier",
})
namespace.add(lazy, "accelhost.distributed.exchange", {"all_to_all", "all_to_all_single"})
namespace.add(lazy, "accelhost.distributed.messages", {
  "send", "recv", "isend", "irecv", "P2POp", "batch_isend_irecv",
})
namespace.add(lazy, "accelhost.distributed.objects", {
  "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list",
  "recv_object_list",
})
namespace.add(lazy, "accelhost.distributed.work", {"Work", "Future"})
namespace.add(lazy, "accelhost.data", {"DistributedSampler"})
lazy.DistributedDataParallel = {"accelhost.distributed.parallel"}
lazy.GradBucket = {"accelhost.distributed.bucket"}
lazy.algorithms = {"accelhost.distributed.algorithms"}
lazy.nn = {"accelhost.distributed.functional"}

return namespace.new("distributed", {group = groups.group}, lazy, {refused = {
  TCPStore = "the launcher connects the processes", FileStore = "the launcher connects the processes",
  HashStore = "the launcher connects the processes", PrefixStore = "the launcher connects the processes",
  rpc = "send and recv are the messages", init_device_mesh = "new_group and new_subgroups make groups",
  DeviceMesh = "new_group and new_subgroups make groups", shrink_group = "new_group makes one of the ranks that stay",
  all_reduce_coalesced = "call all_reduce for each tensor, with async_op",
  all_gather_coalesced = "call all_gather for each tensor, with async_op",
  default_pg_timeout = "init_process_group{timeout = seconds}",
}})
