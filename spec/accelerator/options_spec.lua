-- Every option of Accelerator has an effect in a job of two processes, or is refused.
local accelhost = require "accelhost"
local options = require "spec.support.options"
local run = require "spec.support.run"

local function text_of(given)
  if type(given) == "string" then return ("%q"):format(given) end
  if type(given) ~= "table" then return tostring(given) end
  local class, parts = getmetatable(given), {}
  for name, value in pairs(given) do
    parts[#parts + 1] = (type(name) == "number" and "" or name .. " = ") .. text_of(value)
  end
  return (class and "accelhost." .. class._name or "") .. "{" .. table.concat(parts, ", ") .. "}"
end

-- Wrong values are found in this process, effects in separate jobs.
local function observe(given)
  accelhost.Accelerator(given)
  local result = run.host({"launch", "--num_processes", 2, "spec/distributed/cases/options.lua", text_of(given)})
  assert.equal(0, result.code, result.output)
  return result.stdout
end

describe("The options", function()
  local _ = accelhost.Accelerator
  options.walk("Accelerator", {
    observe = observe,
    values = {
      device_placement = false, split_batches = true, gradient_accumulation_steps = 2, even_batches = false,
      step_scheduler_with_optimizer = false, bucket_cap_mb = 0.01, dataloader_config = {split_batches = true},
      rng_types = {"torch"}, log_with = "csv", project_dir = "run", project_config = {logging_dir = "logs"},
      gradient_accumulation_plugin = {num_steps = 2}, scheduler_steps = "per_process",
      virtual_shards = 4,
      kwargs_handlers = {accelhost.DistributedDataParallelKwargs {bucket_cap_mb = 0.01}}, sharding = "optimizer",
      fsdp_plugin = {sharding_strategy = "SHARD_GRAD_OP"},
    },
    with = {
      step_scheduler_with_optimizer = {gradient_accumulation_steps = 2}, even_batches = {split_batches = true},
      log_with = {project_dir = "run"}, virtual_shards = {cpu = true},
    },
    refused = {mixed_precision = "fp7"},
    inert = {
      cpu = "ranks have nothing but the CPU to run on",
      log_gpu = "ranks have no CUDA device; spec/device/cuda_sensors_spec.lua logs one's sensors",
      offload_optimizer_device = "ranks have no CUDA device; spec/device/cuda_sharding_spec.lua offloads one's state",
      shard_units = "the model is one module; spec/distributed/sharding_spec.lua cuts one of several",
    },
  })
end)

-- The error of an accelerator of this process for options that contradict each other.
local function refused(text, given)
  assert.error_matches(function() accelhost.Accelerator(given) end, text)
end

describe("An accelerator", function()
  it("refuses options that contradict each other", function()
    refused("pass gradient_accumulation_steps or gradient_accumulation_plugin, not both",
      {gradient_accumulation_steps = 2, gradient_accumulation_plugin = {num_steps = 2}})
    refused("even_batches = true, but dataloader_config sets even_batches = false",
      {even_batches = true, dataloader_config = {even_batches = false}})
    refused("split_batches = false, but dataloader_config sets split_batches = true",
      {split_batches = false, dataloader_config = {split_batches = true}})
    refused("project_dir = 'a', but project_config sets 'b'", {project_dir = "a", project_config = {project_dir = "b"}})
    local ddp = accelhost.DistributedDataParallelKwargs {bucket_cap_mb = 5}
    refused("bucket_cap_mb = 4, but kwargs_handlers sets 5", {bucket_cap_mb = 4, kwargs_handlers = {ddp}})
    refused("sharding = full, but fsdp_plugin sets gradients",
      {sharding = "full", fsdp_plugin = {sharding_strategy = "SHARD_GRAD_OP"}})
    refused("there are two DistributedDataParallelKwargs", {kwargs_handlers = {ddp, ddp}})
  end)

  it("refuses unsupported sharding, with the reason", function()
    refused("unknown sharding 'zero' %(known: none, optimizer, gradients, full%)", {sharding = "zero"})
    refused("units are of sharding = 'gradients' and 'full', got sharding = 'optimizer'",
      {sharding = "optimizer", shard_units = 10})
    refused("sync_each_batch: with sharding = 'full' the gradients of a window are averaged once",
      {sharding = "full", gradient_accumulation_plugin = {num_steps = 2, sync_each_batch = true}})
    refused("comm_hook: with sharding = 'gradients' gradients are reduced into shares",
      {sharding = "gradients", kwargs_handlers = {accelhost.DistributedDataParallelKwargs {comm_hook = "fp16"}}})
    refused("offload_optimizer_device: it is an option of sharded optimizer state: set sharding",
      {offload_optimizer_device = "cpu"})
    refused("unknown offload_optimizer_device 'nvme' %(known: none, cpu%)",
      {sharding = "full", offload_optimizer_device = "nvme"})
    for text, given in pairs {
      ["sharding_strategy: expected FULL_SHARD, .*there is one group"] = {sharding_strategy = "HYBRID_SHARD"},
      ["auto_wrap_policy: expected TRANSFORMER_BASED_WRAP"] = {auto_wrap_policy = "SOME"},
      ["cpu_offload: not supported: parameters and gradients are not offloaded"] = {cpu_offload = true},
      ["state_dict_type: not supported: it is FULL_STATE_DICT"] = {state_dict_type = "LOCAL_STATE_DICT"},
      ["unknown option 'sharding_stategy'"] = {sharding_stategy = "FULL_SHARD"},
    } do
      refused(text, {fsdp_plugin = given})
    end
    local function prepare(units)
      local accelerator = accelhost.Accelerator {sharding = "full", shard_units = units}
      return function() accelerator:prepare(accelhost.nn.Linear(2, 2)) end
    end
    assert.error_matches(prepare "Block", "shard_units: the model has no module and no class 'Block'")
    assert.error_matches(prepare(0.5), "shard_units: expected 'blocks', 'none', names .* got number 0.5")
    assert.error_matches(prepare {"a", 3}, "shard_units: item 2: expected the name of a module or .* got number 3")
  end)

  it("reads a plugin in Accelerate's words", function()
    local function units(given) return accelhost.FullyShardedDataParallelPlugin(given):options() end
    assert.same({sharding = "full"}, units())
    assert.same({sharding = "gradients"}, units {reshard_after_forward = false})
    assert.same({sharding = "none"}, units {sharding_strategy = 3, min_num_params = 9})
    assert.same({sharding = "full", shard_units = "none"}, units {auto_wrap_policy = "no_wrap"})
    assert.same({sharding = "full", shard_units = 1e8}, units {auto_wrap_policy = "SIZE_BASED_WRAP"})
    assert.same({sharding = "full", shard_units = 500}, units {min_num_params = 500})
    assert.same({sharding = "full", shard_units = {"GPT2Block", "Block"}},
      units {auto_wrap_policy = "TRANSFORMER_BASED_WRAP", transformer_cls_names_to_wrap = "GPT2Block, Block"})
  end)

  it("refuses options without an effect, with the reason", function()
    refused("data_seed needs use_seedable_sampler = true", {dataloader_config = {data_seed = 1}})
    refused("GradScalerKwargs: only mixed_precision = 'fp16' scales losses",
      {kwargs_handlers = {accelhost.GradScalerKwargs()}})
    refused("AutocastKwargs: mixed_precision is 'no', so nothing is cast",
      {kwargs_handlers = {accelhost.AutocastKwargs()}})
    accelhost.Accelerator {kwargs_handlers = {accelhost.AutocastKwargs {enabled = false}}}
    refused("deepspeed_plugin: not supported: .*sharding = 'optimizer', 'gradients' or 'full' is its ZeRO stage 1, "
      .. "2 or 3", {deepspeed_plugin = {}})
    refused("dynamo_backend: not supported: nothing is compiled here", {dynamo_backend = "inductor"})
    refused("rng_types: expected 'generator' .* got 'cuda'", {rng_types = {"cuda"}})
    assert.error_matches(function() accelhost.DistributedDataParallelKwargs {comm_hook = "bf17"} end, "comm_hook")
    assert.error_matches(function() accelhost.DistributedDataParallelKwargs {comm_wrapper = "fp16"} end,
      "comm_wrapper and comm_state_option need a comm_hook")
    assert.error_matches(function()
      accelhost.DistributedDataParallelKwargs {comm_hook = "fp16", comm_state_option = {}}
    end, "comm_state_option is for comm_hook = 'power_sgd' and 'batched_power_sgd', got 'fp16'")
    assert.error_matches(function() accelhost.InitProcessGroupKwargs {backend = "ucc"} end,
      "unknown backend 'ucc' %(known: gloo, shm, nccl%)")
  end)

  it("reports the expected type of a configuration", function()
    refused("dataloader_config: expected a DataLoaderConfiguration or a table of its options, got 'x'",
      {dataloader_config = "x"})
    refused("DataLoaderConfiguration: unknown option 'split'", {dataloader_config = {split = true}})
    refused("gradient_accumulation_plugin: expected a GradientAccumulationPlugin",
      {gradient_accumulation_plugin = accelhost.ProjectConfiguration()})
    refused("GradientAccumulationPlugin: 'num_steps' is missing", {gradient_accumulation_plugin = {}})
    refused("log_with: expected a name, a tracker or a table of them", {log_with = 5})
    refused("kwargs_handlers: item 1: expected DistributedDataParallelKwargs, .* got a table", {kwargs_handlers = {{}}})
  end)

  it("orders and draws as Accelerate does with a seedable sampler", function()
    -- Accelerate 1.15, set_seed(42), a shuffled loader of 0 .. 7 in batches of 2, two passes: batch[0], torch.rand(1).
    local expected = {6, 0.3829, 0, 0.9593, 2, 0.3904, 4, 0.6009, 4, 0.9408, 7, 0.1332, 3, 0.9346, 6, 0.5936}
    local drawn = {}
    accelhost.utils.set_seed(42)
    local loader = accelhost.Accelerator {dataloader_config = {use_seedable_sampler = true}}:prepare(
      accelhost.data.DataLoader(accelhost.data.TensorDataset(accelhost.arange(8)), {batch_size = 2, shuffle = true}))
    for _ = 1, 2 do
      for batch in loader do
        drawn[#drawn + 1] = batch[0]:item()
        drawn[#drawn + 1] = math.floor(accelhost.rand(1):item() * 1e4 + 0.5) / 1e4
      end
    end
    assert.same(expected, drawn)
  end)

  it("shows its arguments", function()
    local accelerator = accelhost.Accelerator {
      dataloader_config = {dispatch_batches = true, use_seedable_sampler = true, data_seed = 4},
      log_with = {"csv", "jsonl"},
      project_config = accelhost.ProjectConfiguration {project_dir = "run", iteration = 3},
      gradient_accumulation_plugin = {num_steps = 3, sync_with_dataloader = false},
    }
    assert.same({true, true, true, true, false}, {accelerator.dispatch_batches, accelerator.use_seedable_sampler,
      accelerator.even_batches, accelerator.non_blocking, accelerator.use_stateful_dataloader})
    assert.same({"run", "run", 3, 2}, {accelerator.project_dir, accelerator.logging_dir, accelerator.save_iteration,
      #accelerator.log_with})
    local state = accelerator.gradient_state
    assert.same({3, true, false, false}, {state.num_steps, state.adjust_scheduler, state.sync_with_dataloader,
      state.sync_each_batch})
    assert.same({false, -1, false}, {state.in_dataloader, state.remainder, state.end_of_dataloader})
    assert.is_nil(state.active_dataloader)
    assert.is_nil(accelerator.scaler)
    assert.same({"NO", false, false, true, false, 0}, {accelerator.distributed_type, accelerator.use_distributed,
      accelerator.multi_device, accelerator.should_save_model, accelerator.optimizer_step_was_skipped,
      accelerator.step})
    assert.equal("no", accelerator.state.mixed_precision)
    assert.equal(accelerator.device, accelerator.state.device)
  end)

  it("keeps its own copy of a configuration", function()
    local config = accelhost.DataLoaderConfiguration()
    local accelerator = accelhost.Accelerator {dataloader_config = config}
    accelerator.even_batches = false
    accelerator.gradient_accumulation_steps = 5
    assert.is_true(config.even_batches)
    assert.is_true(accelhost.Accelerator {dataloader_config = config}.even_batches)
    assert.equal(5, accelerator.gradient_state.num_steps)
    assert.error_matches(function() accelerator.gradient_accumulation_steps = 0 end,
      "expected an integer of at least 1")
    assert.error_matches(function() accelerator.even_batches = 1 end, "even_batches: expected true or false")
  end)

  it("reports its rank, which cannot be set", function()
    local accelerator = accelhost.Accelerator()
    assert.error_matches(function() accelerator.process_index = 1 end,
      "Accelerator.process_index is read%-only: it cannot be set")
    assert.error_matches(function() accelerator.split_batches = true end, "it cannot be set")
  end)

  it("reports why it lacks attributes of Accelerate's", function()
    local accelerator = accelhost.Accelerator()
    assert.error_matches(function() return accelerator.deepspeed_plugin end, "accelerator.sharding names")
    assert.error_matches(function() accelerator:lomo_backward() end, "there is no LOMO optimizer here")
    assert.error_matches(function() accelerator:verify_device_map() end, "a model is on one device here")
  end)
end)
