--- Busted's output handler for the specs: one line per file, each failure in full, the counts last.
--
-- A test may be pending only with a reason that begins with "needs ": a data set, a device. Any other is a failure.
local ffi = require "ffi"
local system = require "system"

ffi.cdef [[
struct ah_spec_usage { long user[2], kernel[2], others[14]; };
int getrusage(int who, struct ah_spec_usage *usage);
]]

local report = {}

-- CPU seconds of this process and of those that it has waited for.
local function cpu_seconds()
  local usage, seconds = ffi.new "struct ah_spec_usage", 0
  for who = -1, 0 do
    ffi.C.getrusage(who, usage)
    seconds = seconds + tonumber(usage.user[0] + usage.kernel[0]) + tonumber(usage.user[1] + usage.kernel[1]) / 1e6
  end
  return seconds
end

local device = os.getenv "ACCELHOST_TEST_DEVICE"
local on_device = device and " on device " .. device or ""

local function text_of(message)
  if type(message) == "string" then return message end
  if message == nil then return "nil error" end
  local meta = getmetatable(message)
  if meta and meta.__tostring then return tostring(message) end
  return require("pl.pretty").write(message)
end

local function write(...) io.stdout:write(...) end

-- The state of the run so far.
local Run = {}
Run.__index = Run

function Run:file_begins(file)
  self.file = {name = file.name, passed = 0, failed = 0, start = system.monotime(), cpu = cpu_seconds()}
  self.write_tally("running " .. file.name)
end

function Run:file_ends()
  local file = self.file
  local seconds = system.monotime() - file.start
  self.write_time(file.name .. on_device, seconds, cpu_seconds() - file.cpu)
  write(file.failed == 0 and "ok     " or "FAILED ", file.name, on_device, "  ", tostring(file.passed),
    file.failed > 0 and (" passed, " .. file.failed .. " failed") or "",
    seconds > 1 and ("  (%.0f s)"):format(seconds) or "", "\n")
  io.stdout:flush()
  self.file = nil
end

function Run:fails(element, message, trace)
  self.failed = self.failed + 1
  if self.file then self.file.failed = self.file.failed + 1 end
  local place = element.trace or trace or {}
  write("\nFAILED ", self.handler.getFullName(element), "\n")
  if place.short_src then write("  ", place.short_src, ":", tostring(place.currentline), "\n") end
  write("  ", (text_of(message):gsub("\n", "\n  ")), "\n")
  if trace and trace.traceback and trace.traceback ~= "" then
    write("  ", (trace.traceback:gsub("^\n", ""):gsub("%s+$", ""):gsub("\n", "\n  ")), "\n")
  end
  write("\n")
  io.stdout:flush()
end

function Run:is_skipped(element)
  local progress = self.handler.inProgress[tostring(element)]
  local reason = progress and type(progress.message) == "string" and progress.message:gsub("^[^:]+:%d+: ", "")
  if not (reason and reason:find("^needs ")) then
    return self:fails(element, "a test may be pending only with a reason that begins with 'needs '")
  end
  self.skipped = self.skipped + 1
  if not self.reasons[reason] then self.reason_order[#self.reason_order + 1] = reason end
  self.reasons[reason] = (self.reasons[reason] or 0) + 1
end

function Run:test_ends(element, status)
  if status == "success" then
    self.passed, self.file.passed = self.passed + 1, self.file.passed + 1
  elseif status == "pending" then
    self:is_skipped(element)
  end
end

function Run:ends()
  for _, reason in ipairs(self.reason_order) do
    write("skipped ", tostring(self.reasons[reason]), ": ", reason, "\n")
  end
  io.stdout:flush()
  self.write_tally(("%d passed, %d failed, %d skipped"):format(self.passed, self.failed, self.skipped))
end

--- A handler for Busted's --output.
---@param write_tally fun(text: string) receives "running FILE" at the start of each file and the counts at the end
---@param write_time fun(name: string, seconds: number, cpu: number) receives each file's times at its end
---@return fun(options: table): table
function report.handler(write_tally, write_time)
  return function(options)
    local busted = require "busted"
    local handler = require "busted.outputHandlers.base"()
    local run = setmetatable({
      handler = handler, write_tally = write_tally, write_time = write_time, passed = 0, failed = 0, skipped = 0,
      reasons = {}, reason_order = {},
    }, Run)
    local function on(event, method)
      busted.subscribe(event, function(...)
        method(...)
        return nil, true
      end)
    end
    local function failure(element, _, message, trace) run:fails(element, message, trace) end
    on({"file", "start"}, function(file) run:file_begins(file) end)
    on({"file", "end"}, function() run:file_ends() end)
    on({"test", "end"}, function(element, _, status) run:test_ends(element, status) end)
    on({"pending"}, function(element, _, message, trace)
      handler.inProgress[tostring(element)] = {message = message, trace = trace}
    end)
    on({"failure"}, failure)
    on({"error"}, failure)
    on({"suite", "end"}, function() run:ends() end)
    handler.subscribe = function(self) self.options = options end
    return handler
  end
end

return report
