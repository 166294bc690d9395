--- Run Busted inside the host: ./accelhost scripts/busted.lua [options] spec...
--
--   --tally=FILE    write "N passed, N failed, N skipped" there instead of printing it last
--
-- $ACCELHOST_TEST_DEVICE is the default device of the run, "cpu" without it.
--
-- Everything else is Busted's own (--filter=PATTERN, --shuffle, ...). Run from the root of the tree. The exit code is 0
-- when nothing failed. A test may be pending only with a reason that begins with "needs ": a data set, a device.

local tally_path
local forwarded = {[0] = arg[0], "--output=accelhost"}
for index = 1, #arg do
  local value = arg[index]
  local path = value:match("^%-%-tally=(.+)$")
  if path then
    tally_path = path
  else
    forwarded[#forwarded + 1] = value
  end
end
arg = forwarded

package.path = "./?.lua;./?/init.lua;./lua/?.lua;./lua/?/init.lua;" .. package.path
  .. ";/usr/local/share/lua/5.1/?.lua;/usr/local/share/lua/5.1/?/init.lua"
  .. ";/usr/share/lua/5.1/?.lua;/usr/share/lua/5.1/?/init.lua"

local function write_tally(text)
  if not tally_path then return end
  local file = assert(io.open(tally_path, "w"))
  file:write(text, "\n")
  file:close()
end

-- Busted restores package.loaded after each file. What is loaded before it starts stays: one library for all specs, as
-- a script has it, and C modules that are opened once.
local function preload_library()
  local pipe = io.popen("find lua -name '*.lua' | LC_ALL=C sort")
  for path in pipe:lines() do
    local name = path:gsub("^lua/", ""):gsub("%.lua$", ""):gsub("/init$", ""):gsub("/", ".")
    local fine, message = pcall(require, name)
    if not fine then io.stderr:write("cannot load ", name, ": ", tostring(message), "\n") end
  end
  pipe:close()
end

--- One line per file, each failure in full, the counts last.
local function output_handler(options)
  local busted = require "busted"
  local pretty = require "pl.pretty"
  local handler = require "busted.outputHandlers.base"()
  local passed, failed, skipped = 0, 0, 0
  local skip_reasons, skip_order = {}, {}
  local file_name, file_passed, file_failed, file_start

  local function text_of(message)
    if type(message) == "string" then return message end
    if message == nil then return "nil error" end
    local meta = getmetatable(message)
    if meta and meta.__tostring then return tostring(message) end
    return pretty.write(message)
  end

  local function report(element, message, trace)
    failed = failed + 1
    if file_failed then file_failed = file_failed + 1 end
    local place = element.trace or trace or {}
    io.stdout:write("\nFAILED ", handler.getFullName(element), "\n")
    if place.short_src then
      io.stdout:write("  ", place.short_src, ":", tostring(place.currentline), "\n")
    end
    io.stdout:write("  ", (text_of(message):gsub("\n", "\n  ")), "\n")
    if trace and trace.traceback and trace.traceback ~= "" then
      io.stdout:write("  ", (trace.traceback:gsub("^\n", ""):gsub("%s+$", ""):gsub("\n", "\n  ")), "\n")
    end
    io.stdout:write("\n")
    io.stdout:flush()
    return nil, true
  end

  busted.subscribe({"file", "start"}, function(file)
    file_name, file_passed, file_failed = file.name, 0, 0
    file_start = os.time()
    write_tally("running " .. file_name)
    return nil, true
  end)
  busted.subscribe({"file", "end"}, function()
    local seconds = os.time() - file_start
    io.stdout:write(file_failed == 0 and "ok     " or "FAILED ", file_name, "  ", tostring(file_passed),
      file_failed > 0 and (" passed, " .. file_failed .. " failed") or "",
      seconds > 1 and ("  (" .. seconds .. " s)") or "", "\n")
    io.stdout:flush()
    file_failed = nil
    return nil, true
  end)
  busted.subscribe({"test", "end"}, function(element, _, status)
    if status == "success" then
      passed, file_passed = passed + 1, file_passed + 1
    elseif status == "pending" then
      local progress = handler.inProgress[tostring(element)]
      local reason = progress and type(progress.message) == "string" and progress.message:gsub("^[^:]+:%d+: ", "")
      if reason and reason:find("^needs ") then
        skipped = skipped + 1
        if not skip_reasons[reason] then skip_order[#skip_order + 1] = reason end
        skip_reasons[reason] = (skip_reasons[reason] or 0) + 1
      else
        report(element, "a test may be pending only with a reason that begins with 'needs '")
      end
    end
    return nil, true
  end)
  busted.subscribe({"pending"}, function(element, _, message, trace)
    handler.inProgress[tostring(element)] = {message = message, trace = trace}
    return nil, true
  end)
  local function failure(element, _, message, trace) return report(element, message, trace) end
  busted.subscribe({"failure"}, failure)
  busted.subscribe({"error"}, failure)
  busted.subscribe({"suite", "end"}, function()
    for _, reason in ipairs(skip_order) do
      io.stdout:write("skipped ", tostring(skip_reasons[reason]), ": ", reason, "\n")
    end
    local counts = ("%d passed, %d failed, %d skipped"):format(passed, failed, skipped)
    if not tally_path then io.stdout:write(counts, "\n") end
    io.stdout:flush()
    write_tally(counts)
    return nil, true
  end)

  handler.subscribe = function(self) self.options = options end
  return handler
end
package.preload["busted.outputHandlers.accelhost"] = function() return output_handler end

preload_library()

-- The same specs on another device: what does not say where it makes a tensor makes it there.
local device = os.getenv "ACCELHOST_TEST_DEVICE"
if device then require("accelhost").set_default_device(device) end

-- On failure the runner throws nil, the 5.1 way to make an interpreter exit with 1.
local fine, message = pcall(function()
  local run = require "busted.runner"
  run({standalone = false})
  return nil
end)
if not fine and message ~= nil then io.stderr:write(tostring(message), "\n") end
io.stdout:flush()
os.exit(fine and 0 or 1)
