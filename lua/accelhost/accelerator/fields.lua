--- Fields of an accelerator that describe its job and its options.
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local state = require "accelhost.accelerator.process.state"

-- Fields of Accelerate that are absent here, with the reason.
local whole = "accelerator.sharding names the sharded state of a model"
local no_layout = "there are no other layouts than processes side by side"
local refused = {
  deepspeed_plugin = whole, parallelism_config = no_layout, torch_device_mesh = no_layout,
  tensor_parallel_rank = no_layout, data_parallel_rank = no_layout, data_parallel_shard_rank = no_layout,
  pipeline_parallel_rank = no_layout, context_parallel_rank = no_layout,
  maybe_context_parallel = no_layout, is_fsdp2 = whole, is_composable_parallelism_enabled = no_layout,
  lomo_backward = "there is no LOMO optimizer here",
  deepspeed_ulysses_dl_adapter = whole, verify_device_map = "a model is on one device here",
}

local function project(self) return self.project_configuration end

local function loaders(self) return self.dataloader_config end

--- Add the fields to the Accelerator class.
---@param Accelerator table
return function(Accelerator)
  state.add_facts(Accelerator)
  class.property(Accelerator, "multi_device", function(self) return self.use_distributed and self.device ~= "cpu" end)
  class.property(Accelerator, "should_save_model", function(self) return self.is_local_main_process end)
  class.property(Accelerator, "project_dir", function(self) return project(self).project_dir end)
  class.property(Accelerator, "logging_dir", function(self) return project(self).logging_dir end)
  class.property(Accelerator, "save_iteration", function(self) return project(self).iteration end)
  for _, name in ipairs {
    "split_batches", "dispatch_batches", "use_seedable_sampler", "non_blocking", "use_stateful_dataloader",
  } do
    class.property(Accelerator, name, function(self) return loaders(self)[name] end)
  end
  class.property(Accelerator, "even_batches", function(self) return loaders(self).even_batches end,
    function(self, even)
      loaders(self).even_batches = arguments.check("Accelerator", "even_batches", "flag", even)
    end)
  class.property(Accelerator, "virtual_shards", function(self)
    return self._virtual_shards and self._virtual_shards.count or nil
  end)
  class.property(Accelerator, "share", function(self)
    return self._batch_proportions and arguments.copy(self._batch_proportions) or nil
  end)
  class.property(Accelerator, "gradient_accumulation_steps", function(self) return self._accumulation.num_steps end,
    function(self, steps)
      self._accumulation.num_steps = arguments.check("Accelerator", "gradient_accumulation_steps", "count", steps)
    end)
  class.property(Accelerator, "sync_gradients", function(self)
    return self._gradients.synchronises and (not self._virtual_shards or self._virtual_shards:round_ends())
  end, function(self, sync)
    self._gradients.synchronises = arguments.check("Accelerator", "sync_gradients", "flag", sync)
  end)
  class.property(Accelerator, "step", function(self) return self._gradients.step end)
  -- As averaging reads them.
  class.property(Accelerator, "_micro_step", function(self) return self._gradients.micro_step end)
  class.property(Accelerator, "_joining", function(self) return self._gradients.joining end)
  class.property(Accelerator, "scaler", function(self) return self._loss_scaler.scaler or nil end)
  class.property(Accelerator, "optimizer_step_was_skipped", function(self)
    for optimizer in pairs(self._prepared.optimizers) do
      if optimizer.step_was_skipped then return true end
    end
    return false
  end)
  class.property(Accelerator, "fp8_backend", function(self) return self.mixed_precision == "fp8" and "TE" or "NO" end)
  class.property(Accelerator, "trackers", function(self) return self._trackers.list end)
  class.property(Accelerator, "state", function(self) return self._state end)
  class.property(Accelerator, "gradient_state", function(self) return self._gradient_state end)
  for name, reason in pairs(refused) do
    class.property(Accelerator, name, function()
      arguments.fail("Accelerator has no %s: %s", name, reason)
    end)
  end
end
