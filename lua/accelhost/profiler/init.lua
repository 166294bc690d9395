--- accelhost.profiler: where time is spent. Ops, nodes of backward, collectives, buckets of gradients, waits for
--- batches and ranges of the script's own are recorded with their times, as sums and as a trace that Perfetto opens.
--
--   local prof = accelhost.profiler.profile({record_shapes = true}, function()
--     accelhost.profiler.record_function("forward", function() return net(x) end)
--   end)
--   prof:key_averages():table{sort_by = "self_cpu_time_total", row_limit = 10}
--   prof:export_chrome_trace(os.tmpname())
--
-- While nothing is profiled an op pays two branches for it. Recording costs some 0.1 microseconds for each span; memory
-- is bounded, and a trace that has lost its oldest spans is marked as such.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local averages_of = require "accelhost.profiler.averages"
local class = require "accelhost.util.class"
local device_times = require "accelhost.profiler.device_times"
local memory_use = require "accelhost.profiler.memory_use"
local namespace = require "accelhost.util.namespace"
local protect = require "accelhost.util.protect"
local warn = require "accelhost.util.warn"

local fail = arguments.fail
local trace = C.trace

---@field step_num integer steps so far
---@field current_action string "none", "warmup", "record" or "record_and_save"
local Profile = class.new "Profile"

local read = arguments.signature("profile", {
  {"activities: string|list"}, {"schedule: callable"}, {"on_trace_ready: callable"}, {"record_shapes: flag", false},
  {"profile_memory: flag", false}, {"with_stack: flag", false}, {"with_flops: flag", false},
  {"with_modules: flag", false}, {"max_events: count"}, {"emit_nvtx: flag", false},
})

-- Are kernels on CUDA devices timed: true, false, or nil where that depends on whether one is open?
local function reads_cuda(activities)
  local list = type(activities) == "table" and activities or {activities}
  if #list == 0 then return nil end
  local found = false
  for _, activity in ipairs(list) do
    local name = type(activity) == "string" and activity:lower()
    if name ~= "cpu" and name ~= "cuda" then
      fail("profile: activities: expected \"cpu\" or \"cuda\", got %s", arguments.describe(activity))
    end
    found = found or name == "cuda"
  end
  return found
end

function Profile:init(...)
  local activities, schedule, on_trace_ready, shapes, memory, stack, flops, modules, most, nvtx = read(...)
  self._cuda = reads_cuda(activities)
  if flops then fail "profile: with_flops: operations are not counted here; leave it out" end
  self._schedule, self._on_trace_ready = schedule, on_trace_ready
  self._options = {shapes, memory, stack, modules, most}
  self._nvtx = nvtx
  self.step_num = 0
  self.current_action = "none"
end

local function begin(self)
  if self._nvtx then C.device.report_ranges("cuda", true) end
  if self._cuda ~= false then self._devices = device_times.start(self._cuda) end
  trace.start(unpack(self._options, 1, 5))
end

-- A step of the script is a range around everything in it.
local function open_step(self)
  self._in_step = true
  trace.push(("ProfilerStep#%d"):format(self.step_num))
end

local function close_step(self)
  if self._in_step then trace.pop() end
  self._in_step = false
end

local function ready(self)
  if self._options[2] then collectgarbage() end -- handles that the script dropped are not kept memory
  self._recording = trace.stop()
  if self._nvtx then C.device.report_ranges("cuda", false) end
  self._kernels = device_times.stop(self._devices or {})
  local _, dropped, left_out = self._recording:count()
  if dropped > 0 then
    warn(("profile: %d of the oldest events are lost; {max_events = ...} keeps more, a schedule records less")
      :format(dropped))
  end
  if left_out > 0 then warn(("profile: %d texts (shapes, lines) are left out"):format(left_out)) end
  if self._on_trace_ready then self._on_trace_ready(self) end
end

-- Start, stop or save a recording as the change from one action to the next requires.
local function change_action(self, from, to)
  local records = from == "record" or from == "record_and_save"
  local will = to == "record" or to == "record_and_save"
  if from == "record_and_save" or (records and not will) then
    ready(self)
    from = "none"
  end
  if to ~= "none" and from == "none" then begin(self) end
  if will and from == "warmup" then
    trace.forget()
    if self._devices then device_times.start(false) end
  end
  if to == "none" and from == "warmup" then
    trace.stop()
    if self._nvtx then C.device.report_ranges("cuda", false) end
  end
  self.current_action = to
end

--- Begin to record, or to follow the schedule.
function Profile:start()
  if self._started then fail "profile: it has been started; call stop() first" end
  self._started, self.step_num = true, 0
  change_action(self, "none", self._schedule and self._schedule(0) or "record")
  if self._schedule then open_step(self) end
end

--- End the recording; on_trace_ready is called with the profile, unless the schedule was not recording.
function Profile:stop()
  if not self._started then fail "profile: it has not been started" end
  self._started = false
  close_step(self)
  change_action(self, self.current_action, "none")
end

--- End a step of the script: the schedule advances, and the steps are visible in the trace.
function Profile:step()
  if not self._started then fail "profile:step() must be called between start() and stop()" end
  close_step(self)
  self.step_num = self.step_num + 1
  local action = self._schedule and self._schedule(self.step_num) or self.current_action
  change_action(self, self.current_action, action)
  open_step(self)
end

local function recording_of(self, what)
  if not self._recording then
    fail("profile:%s: nothing was recorded yet; it is there after stop(), or after a round of the schedule", what)
  end
  return self._recording
end

--- Return a row for each name: its number of calls, its time with and without nested calls, and the memory that it did
--- not free. The
--- result is an array of rows, and :table{sort_by, row_limit} is its text.
---@param group_by_input_shape? boolean a row for each name and shapes (with record_shapes)
---@return KeyAverages
function Profile:key_averages(group_by_input_shape)
  if type(group_by_input_shape) == "table" then group_by_input_shape = group_by_input_shape.group_by_input_shape end
  return averages_of(recording_of(self, "key_averages"), group_by_input_shape == true, self._kernels)
end

--- The kernels that CUDA devices executed, as a text: a line for each op and kernel with its calls, its time on the
--- device, GB/s and their share of the memory's bandwidth, TFLOP/s and their share of the card's, where known. A step
--- that is replayed as a graph is one line.
---@param row_limit? integer default 40; negative: all
---@param steps? integer numbers are divided by it
---@return string
Profile.kernel_table = arguments.method("kernel_table", {
  {"row_limit: integer", 40}, {"steps: count", 1},
}, function(self, row_limit, steps)
  recording_of(self, "kernel_table")
  return device_times.text(self._kernels, steps, row_limit)
end)

--- The memory of the CPU that is alive when most is, as a text (with profile_memory): by kind and by the op that
--- allocated it. "saved for backward" was allocated before a backward and freed later; blocks are as large as the
--- allocator makes them. Record one step or more, from a forward to the end of the optimizer's step; those that begin
--- the recording have no gradients or states yet.
--
--   local prof = accelhost.profiler.profile({profile_memory = true}, function() return (w * 2):sum():item() end)
--   prof:memory_table():match "At the peak, by kind"  --> At the peak, by kind
---@param row_limit? integer of ops, default 20; negative: all
---@param model? Module whose parameters are a line
---@param optimizer? Optimizer whose state is a line
---@return string
Profile.memory_table = arguments.method("memory_table", {
  {"row_limit: integer", 20}, {"model: module"}, {"optimizer: any"},
}, function(self, row_limit, model, optimizer)
  local recording = recording_of(self, "memory_table")
  if not self._options[2] then fail "profile:memory_table: nothing was recorded; set profile_memory = true" end
  return memory_use.text(memory_use.at_peak(recording, {model = model, optimizer = optimizer}), row_limit)
end)

--- The spans, in order: an array of {name, kind, thread, start_us, duration_us, memory, shapes, kernel}. `kernel` names
--- the implementation of an op: "openblas sgemm", "oneDNN bfloat16 matmul brg:avx512_core_bf16", "own relu float32"; it
--- is nil where nothing was computed (views).
function Profile:events()
  local recording, list = recording_of(self, "events"), {}
  for i = 0, recording:count() - 1 do
    local name, kind, thread, start, stop, bytes, shapes, kernel = recording:span(i)
    list[i + 1] = {
      name = name, kind = kind, thread = thread, start_us = start / 1000, duration_us = (stop - start) / 1000,
      memory = bytes, shapes = shapes, kernel = kernel,
    }
  end
  return list
end

--- Write the trace as JSON, for https://ui.perfetto.dev or chrome://tracing: a process for the rank, a track for each
--- thread and each bucket of gradients.
function Profile:export_chrome_trace(path)
  arguments.check("export_chrome_trace", "path", "string", path)
  recording_of(self, "export_chrome_trace"):write(path, C.comm.rank())
end

local profiler = {}

--- A profile of this process. With a function behind the options it is started, the function runs with it as its
--- argument, and it is stopped; without, start() and stop() are the script's.
--
--   local prof = accelhost.profiler.profile({record_shapes = true}, function() return w * 2 end)
--   prof:key_averages()[1].count > 0  --> true
---@param activities? string|string[] "cpu", "cuda"; default: both where a CUDA device is open
---@param schedule? fun(step: integer): string see accelhost.profiler.schedule; call prof:step() after each step
---@param on_trace_ready? fun(prof: Profile) called when something was recorded
---@param profile_memory? boolean growth of memory in each op
---@param with_stack? boolean the script's line of each op
---@param with_flops? boolean refused: operations are not counted
---@param with_modules? boolean the modules that ran when an op was called
---@param max_events? integer kept for each thread, default 262144: the newest
---@param emit_nvtx? boolean report spans to NVTX as well, for Nsight Systems; without it where one is attached
---@param fn? fun(prof: Profile)
---@return Profile
function profiler.profile(...)
  local count, fn = select("#", ...), nil
  if count > 0 and type((select(count, ...))) == "function" then fn = select(count, ...) end
  if not fn then return Profile(...) end
  local given = {...}
  local prof = Profile(unpack(given, 1, count - 1))
  prof:start()
  protect(function()
    if prof._started then prof:stop() end
  end, fn, prof)
  return prof
end

--- Run fn as a range of the profile that bears this name; return the results of fn.
--
--   accelhost.profiler.record_function("sum", function() return w:sum():item() end)  --> 6
---@param ... any its arguments
---@return any ...
function profiler.record_function(name, fn, ...)
  arguments.check("record_function", "name", "string", name)
  arguments.check("record_function", "fn", "callable", fn)
  if not trace.running() then return fn(...) end
  trace.push(name)
  return protect(trace.pop, fn, ...)
end

--- A function for on_trace_ready that writes each trace into a folder: NAME_RANK.STEP.json.
--
--   local write = accelhost.profiler.trace_handler(os.tmpname() .. ".traces", "train")
---@param folder string made if it is missing
---@param name? string default "profile"
---@return fun(prof: Profile)
function profiler.trace_handler(folder, name)
  arguments.check("trace_handler", "folder", "string", folder)
  return function(prof)
    C.io.make_folder(folder)
    prof:export_chrome_trace(("%s/%s_%d.%d.json"):format(folder, name or "profile", C.comm.rank(), prof.step_num))
  end
end

return namespace.new("profiler", profiler, {schedule = {"accelhost.profiler.schedule"}}, {refused = {
  ProfilerActivity = 'activities are words: "cpu", "cuda"',
  tensorboard_trace_handler = "profiler.trace_handler(folder) writes the traces",
}})
