--- TrainingArguments' fsdp and fsdp_config as the plugin of an Accelerator.
local arguments = require "accelhost.util.arguments"

local fail = arguments.fail
local fsdp = {}

local strategies = {full_shard = "FULL_SHARD", shard_grad_op = "SHARD_GRAD_OP", no_shard = "NO_SHARD"}
local refused = {
  offload = "parameters and gradients are not offloaded",
  hybrid_shard = "there is one group of processes to shard over",
  hybrid_shard_zero2 = "there is one group of processes to shard over",
}
-- transformers' names of options that the plugin has under another name
local renamed = {transformer_layer_cls_to_wrap = "transformer_cls_names_to_wrap", version = "fsdp_version"}

local function words_of(value)
  if type(value) == "table" then return value end
  local words = {}
  for word in (type(value) == "string" and value or ""):gmatch "%S+" do words[#words + 1] = word end
  return words
end

local function check_word(word)
  if refused[word] then fail("TrainingArguments: fsdp: '%s' is not supported: %s", word, refused[word]) end
  if word ~= "auto_wrap" and not strategies[word] then
    fail("TrainingArguments: fsdp: expected full_shard, shard_grad_op, no_shard or auto_wrap, got %s",
      arguments.describe(word))
  end
end

local function read_config(config)
  local plugin = {}
  for _, name in ipairs(arguments.sorted_keys(config or {})) do
    local value = config[name]
    name = renamed[name] or name
    if name ~= "fsdp_version" then name = name:gsub("^fsdp_", "") end
    name = renamed[name] or name
    if name:find "^xla" and value then fail("TrainingArguments: fsdp_config: %s: there is no XLA here", name) end
    if not name:find "^xla" then plugin[name] = value end
  end
  local classes = plugin.transformer_cls_names_to_wrap
  if type(classes) == "string" then plugin.transformer_cls_names_to_wrap = {classes} end
  if plugin.min_num_params == 0 then plugin.min_num_params = nil end
  return plugin
end

--- The options of an FullyShardedDataParallelPlugin; nil when states are not sharded.
---@return table?
function fsdp.plugin(args)
  local value = args.fsdp
  local words = words_of(value)
  if value ~= true and #words == 0 then
    if args.fsdp_config and next(args.fsdp_config) ~= nil then
      fail "TrainingArguments: fsdp_config: it needs fsdp = 'full_shard' or 'shard_grad_op'"
    end
    return nil
  end
  local plugin = read_config(args.fsdp_config)
  for _, word in ipairs(words) do
    check_word(word)
    if strategies[word] then plugin.sharding_strategy = strategies[word] end
  end
  return plugin
end

return fsdp
