--- FullyShardedDataParallelPlugin: sharding and shard_units in Accelerate's words.
local arguments = require "accelhost.util.arguments"
local configuration = require "accelhost.accelerator.options.configuration"

local fail = arguments.fail

local names = {"sharding_strategy", "reshard_after_forward", "auto_wrap_policy", "transformer_cls_names_to_wrap",
  "min_num_params", "state_dict_type"}

---@class FullyShardedDataParallelPlugin
local Plugin = configuration.class("FullyShardedDataParallelPlugin", names)

local strategies = {
  FULL_SHARD = "full", SHARD_GRAD_OP = "gradients", NO_SHARD = "none",
}
local numbers = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"} -- as PyTorch counts them

-- Options of Accelerate's: true where the value makes no difference here, else the supported values, and the reason
-- against others.
local others = {
  fsdp_version = true, backward_prefetch = true, forward_prefetch = true, limit_all_gathers = true,
  use_orig_params = true, sync_module_states = true, cpu_ram_efficient_loading = true, state_dict_config = true,
  optim_state_dict_config = true,
  state_dict_type = {FULL_STATE_DICT = true, SHARDED_STATE_DICT = true,
    reason = "it is FULL_STATE_DICT or SHARDED_STATE_DICT, for save_state; both load into any number of processes"},
  cpu_offload = {[false] = true, reason = "parameters and gradients are not offloaded; Accelerator's "
    .. "offload_optimizer_device = 'cpu' offloads the optimizer's state"},
  activation_checkpointing = {[false] = true, reason = "accelhost.checkpoint recomputes the function passed to it"},
  ignored_modules = {reason = "a model is sharded as a whole: prepare the rest as a separate model"},
  param_init_fn = {reason = "rank 0's values are the model's"},
  mixed_precision_policy = {reason = "set by mixed_precision"},
}

local function strategy_of(given)
  local value, reshard = given.sharding_strategy, given.reshard_after_forward
  if type(reshard) == "string" and value == nil then value, reshard = reshard, nil end
  if type(value) == "number" then value = numbers[value] or value end
  if value == nil then value = reshard == false and "SHARD_GRAD_OP" or "FULL_SHARD" end
  local sharding = type(value) == "string" and strategies[value:upper()]
  if not sharding then
    fail("FullyShardedDataParallelPlugin: sharding_strategy: expected FULL_SHARD, SHARD_GRAD_OP or NO_SHARD%s, got %s",
      tostring(value):upper():find "HYBRID" and " (there is one group of processes to shard over)" or "",
      arguments.describe(value))
  end
  return sharding
end

local function units_of(given)
  local policy, classes, least = given.auto_wrap_policy, given.transformer_cls_names_to_wrap, given.min_num_params
  if type(policy) == "function" then return policy end
  policy = policy and tostring(policy):upper()
  if policy == "NO_WRAP" then return "none" end
  if policy == "SIZE_BASED_WRAP" or policy == nil and least and least > 0 then return least or 1e8 end
  if policy ~= nil and policy ~= "TRANSFORMER_BASED_WRAP" then
    fail("FullyShardedDataParallelPlugin: auto_wrap_policy: expected TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP, NO_WRAP "
      .. "or a function of a module and its path, got %s", arguments.describe(given.auto_wrap_policy))
  end
  if type(classes) == "string" then
    local list = {}
    for name in classes:gmatch "[^,%s]+" do list[#list + 1] = name end
    classes = list
  end
  return classes
end

--- Options of sharding a model's state, for Accelerator{fsdp_plugin = ...}, which accepts a plain table of them too.
--
--   local plugin = accelhost.FullyShardedDataParallelPlugin{sharding_strategy = "SHARD_GRAD_OP"}
--   accelhost.Accelerator{fsdp_plugin = plugin}.sharding  --> gradients
--
-- backward_prefetch, forward_prefetch, limit_all_gathers, use_orig_params, sync_module_states and
-- cpu_ram_efficient_loading make no difference here: parameters are stored once per host, in memory that all its
-- processes read.
---@param options? table sharding_strategy: "FULL_SHARD" (default), "SHARD_GRAD_OP", "NO_SHARD", or 1 to 3, or
--- reshard_after_forward; auto_wrap_policy: "TRANSFORMER_BASED_WRAP" with transformer_cls_names_to_wrap,
--- "SIZE_BASED_WRAP" with min_num_params, "NO_WRAP", or a function; default: the items of lists of equal modules;
--- state_dict_type: "FULL_STATE_DICT" (default) or "SHARDED_STATE_DICT", as save_state's `sharded`
function Plugin:init(options)
  options = options or {}
  if type(options) ~= "table" or not arguments.is_options(options) and next(options) ~= nil then
    fail("FullyShardedDataParallelPlugin: expected a table of options, got %s", arguments.describe(options))
  end
  local known = arguments.copy(names)
  for name in pairs(others) do known[#known + 1] = name end
  arguments.check_names("FullyShardedDataParallelPlugin", options, known)
  for name, rule in pairs(others) do
    local value = options[name]
    if value ~= nil and rule ~= true and not rule[value] then
      fail("FullyShardedDataParallelPlugin: %s: not supported: %s", name, rule.reason)
    end
  end
  for _, name in ipairs(names) do rawset(self, name, options[name]) end
  strategy_of(self)
  units_of(self)
end

--- The accelerator's arguments.
--
--   accelhost.FullyShardedDataParallelPlugin{auto_wrap_policy = "NO_WRAP"}:options().shard_units  --> none
---@return {sharding: string, shard_units: any}
function Plugin:options()
  local sharding = strategy_of(self)
  return {sharding = sharding, shard_units = sharding ~= "none" and units_of(self) or nil}
end

return Plugin
