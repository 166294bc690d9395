--- Files that one process writes for all: objects, and a model's weights in the layout of Hugging Face.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local later = require "accelhost.util.later"
local nn_utils = later "accelhost.nn.utils"
local averaging = later "accelhost.averaging"
local shards = later "accelhost.checkpoint.shards"
local stored = later "accelhost.checkpoint.stored"

local function check_safe(what, safe)
  if not safe then
    arguments.fail("%s: safe_serialization: files here are data always; leave it out", what)
  end
end

-- Methods of the Accelerator class.
local Accelerator = {}

--- accelhost.save, on the main process only (on each host's with save_on_each_node). No collective: wait_for_everyone
--- waits until the file exists for all.
--
--   local path = os.tmpname()
--   accelerator:save({epoch = 3}, path)
--   accelhost.load(path).epoch  --> 3
---@param obj any tensors, numbers, texts, booleans and tables of them
---@param f string the file
---@param safe_serialization? boolean only true: files are data
Accelerator.save = arguments.method("accelerator:save", {
  "obj: any", "f: string", {"safe_serialization: flag", true},
}, function(self, object, path, safe)
  check_safe("save", safe)
  local writes = self.is_main_process
  if self.project_configuration.save_on_each_node then writes = self.is_local_main_process end
  if writes then require("accelhost.io").save(object, path) end
end)

--- Write a model's weights into a folder, on the main process only: model.safetensors, or, where that would be larger
--- than max_shard_size, model-00001-of-0000N.safetensors and model.safetensors.index.json, which Hugging Face's
--- from_pretrained and accelhost.load_checkpoint_in_model read. Each file is written whole and then named; files of
--- an earlier save are removed at last. Tied weights are written once. No collective.
--
--   accelerator:save_model(net, os.tmpname() .. ".model", {max_shard_size = "500MB"})
---@param save_directory string made when it is not there
---@param max_shard_size? integer|string bytes of a file: a number, or "10GB" (10^9), "500MiB"; default "10GB"
---@param safe_serialization? boolean only true: files are data
Accelerator.save_model = arguments.method("save_model", {
  "model: module", "save_directory: string", {"max_shard_size: string|number", "10GB"},
  {"safe_serialization: flag", true},
}, function(self, model, folder, size, safe)
  check_safe("save_model", safe)
  local most = shards.bytes("save_model: max_shard_size", size)
  averaging.make_whole(self)
  if not self.is_main_process then return averaging.release(self) end
  if C.data.look(folder) == "file" then arguments.fail("save_model: '%s' is a file, not a folder", folder) end
  local made, reason = C.io.make_folder(folder)
  if not made then arguments.fail("save_model: %s", reason) end
  local state = model:state_dict {keep_vars = true}
  for name, value in pairs(state) do
    if not C.is_tensor(value) then
      arguments.fail("save_model: '%s' is %s: a model's extra state is kept by save_state and accelhost.save only",
        name, arguments.describe(value))
    end
  end
  local names, tensors, tied = stored.unique(nn_utils.state_pairs(state))
  for i, tensor in ipairs(tensors) do tensors[i] = stored.plain(tensor) end
  averaging.release(self)
  shards.write(folder, names, tensors, tied, most)
end)

return Accelerator
