--- The handlers of kwargs_handlers except DistributedDataParallelKwargs, with Accelerate's names and defaults.
local configuration = require "accelhost.accelerator.options.configuration"

local handlers = {}

local function new(name, parameters) handlers[name] = configuration.define(name, parameters) end

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

return handlers
