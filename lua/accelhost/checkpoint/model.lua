--- Weights of a model from files into a model.
local arguments = require "accelhost.util.arguments"
local files = require "accelhost.io"
local shards = require "accelhost.checkpoint.shards"

local model_files = {}

-- Fill in names that are missing in the files and tied, in the model, to a name that is in them: its tensor is loaded
-- already.
local function fill_tied(model, state)
  local first = {}
  local own = model:state_dict {keep_vars = true}
  for name in pairs(state) do
    if own[name] ~= nil then first[own[name]] = name end
  end
  for name, tensor in pairs(own) do
    if state[name] == nil and first[tensor] then state[name] = state[first[tensor]] end
  end
end

--- Copy weights from files into a model: from one file (safetensors, or PyTorch's), from an index
--- (model.safetensors.index.json) and the files that it names, or from a folder that has either. Names that only the
--- files or only the model have are reported; with `strict` they are errors. Shapes must agree always.
--
--   | accelhost.load_checkpoint_in_model(net, "downloads/model").missing_keys
---@param checkpoint string a file, an index or a folder
---@return table # {missing_keys = {...}, unexpected_keys = {...}}
model_files.load_checkpoint_in_model = arguments.named("load_checkpoint_in_model", {
  "model: module", "checkpoint: string", {"strict: flag", false},
}, function(what, model, path, strict)
  local state = {}
  for _, file in ipairs(shards.files(what, path)) do
    local part = files.load(file)
    if type(part) ~= "table" or getmetatable(part) ~= nil then
      arguments.fail("load_checkpoint_in_model: '%s' holds %s, not tensors by name", file, arguments.describe(part))
    end
    for name, tensor in pairs(part) do state[name] = tensor end
  end
  fill_tied(model, state)
  return model:load_state_dict(state, {strict = strict})
end)

return model_files
