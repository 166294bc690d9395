--- The handlers of kwargs_handlers except DistributedDataParallelKwargs, with Accelerate's names and defaults.
local arguments = require "accelhost.util.arguments"
local configuration = require "accelhost.accelerator.options.configuration"

local handlers = {}

local function new(name, parameters, complete)
  handlers[name] = configuration.define(name, parameters, complete)
end

--- Options of communication between the processes, for kwargs_handlers.
--
--   local kwargs = accelhost.InitProcessGroupKwargs{timeout = 800}
--   local accelerator = accelhost.Accelerator{kwargs_handlers = {kwargs}}
---@param backend? string "gloo" and "shm" both name the shared memory of one host, through which tensors of GPUs are
--- copied as well; "nccl": GPUs exchange them by NCCL, or it is an error; default: NCCL where possible
---@param timeout? number seconds after which a collective fails, default: the launcher's --timeout
new("InitProcessGroupKwargs", {{"backend: 'gloo'|'shm'|'nccl'"}, {"timeout: positive"}})

--- Options of accelerator:autocast, for it or kwargs_handlers.
--
--   local kwargs = accelhost.AutocastKwargs{enabled = false}
---@param enabled? boolean false: in full precision
---@param cache_enabled? boolean keep the converted weights of a block
new("AutocastKwargs", {{"enabled: flag", true}, {"cache_enabled: flag", true}})

--- Options of loss scaling in float16, for kwargs_handlers.
--
--   local kwargs = accelhost.GradScalerKwargs{init_scale = 1024}
---@param growth_interval? integer steps without overflow until the scale grows
new("GradScalerKwargs", {
  {"init_scale: positive", 65536}, {"growth_factor: positive", 2}, {"backoff_factor: positive", 0.5},
  {"growth_interval: count", 2000}, {"enabled: flag", true},
})

--- Options of accelerator:profile, for it or kwargs_handlers.
--
--   local kwargs = accelhost.ProfileKwargs{record_shapes = true, schedule_option = {wait = 1, warmup = 1, active = 2}}
--   accelhost.Accelerator{kwargs_handlers = {kwargs}}:profile(function(prof) prof:step() end)
---@param activities? string[] {"cpu"}
---@param schedule_option? table options of accelhost.profiler.schedule
---@param on_trace_ready? fun(prof: Profile) called when a trace is complete
---@param with_flops? boolean false: operations are not counted
---@param output_trace_dir? string folder of each process's trace
---@param max_events? integer events that are kept
new("ProfileKwargs", {
  {"activities: list"}, {"schedule_option: table"}, {"on_trace_ready: callable"}, {"record_shapes: flag", false},
  {"profile_memory: flag", false}, {"with_stack: flag", false}, {"with_flops: false", false},
  {"with_modules: flag", false}, {"output_trace_dir: string"}, {"max_events: count"},
})

local recipe = {
  {"use_autocast_during_eval: flag", false}, {"margin: size", 0}, {"interval: count", 1},
  {"fp8_format: string", "HYBRID"}, {"amax_history_len: count", 1024},
  {"amax_compute_algo: 'max'|'most_recent'", "most_recent"}, {"override_linear_precision: list"},
  {"use_mxfp8_block_scaling: false", false},
}

local function check_recipe(self)
  self.fp8_format = self.fp8_format:upper()
  if self.fp8_format == "E5M2" then
    arguments.fail("%s: fp8_format: E5M2 alone has no products: both operands of one would be e5m2; use HYBRID",
      self._name)
  elseif self.fp8_format ~= "HYBRID" and self.fp8_format ~= "E4M3" then
    arguments.fail("%s: fp8_format: expected HYBRID or E4M3, got %s", self._name, arguments.describe(self.fp8_format))
  end
  for _, higher in ipairs(self.override_linear_precision or {}) do
    if higher then
      arguments.fail("%s: override_linear_precision: the three products of a layer are all in FP8; leave it out",
        self._name)
    end
  end
end

--- Options of mixed_precision = "fp8", for kwargs_handlers: Transformer Engine's recipe DelayedScaling, with
--- Accelerate's defaults.
--
-- A tensor is multiplied by the largest number of its format / amax / 2^margin before it is quantised, where amax is
-- the newest of its largest sizes in earlier steps or the maximum of amax_history_len of them.
--
--   local kwargs = accelhost.TERecipeKwargs{amax_history_len = 16, amax_compute_algo = "max"}
--   accelhost.Accelerator{mixed_precision = "fp8", kwargs_handlers = {kwargs}}.fp8_backend  --> TE
---@param use_autocast_during_eval? boolean compute in FP8 in eval mode too, else in bfloat16
---@param interval? integer steps after which scales are computed again
---@param fp8_format? string "HYBRID": e4m3, gradients e5m2; "E4M3": gradients too
---@param amax_compute_algo? string "most_recent" or "max"
---@param override_linear_precision? boolean[] only {false, false, false}
---@param use_mxfp8_block_scaling? boolean only false
new("TERecipeKwargs", recipe, check_recipe)

--- The same under Accelerate's former name.
--
--   accelhost.FP8RecipeKwargs{backend = "TE"}.margin  --> 0
---@param backend? string only "TE"
new("FP8RecipeKwargs", {{"backend: string", "TE"}, unpack(recipe)}, function(self)
  self.backend = self.backend:upper()
  if self.backend ~= "TE" then
    arguments.fail("FP8RecipeKwargs: backend: expected TE, got %s", arguments.describe(self.backend))
  end
  check_recipe(self)
end)

return handlers
