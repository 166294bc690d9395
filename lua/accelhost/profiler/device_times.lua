--- Times of kernels on CUDA devices: when they are measured, and their table.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local device_times = {}

-- The names of the CUDA devices that are open.
local function open_devices()
  local names = {}
  for _, name in ipairs(C.device.opened()) do
    if name:find "^cuda" then names[#names + 1] = name end
  end
  return names
end

--- Begin to time the kernels of all CUDA devices that are open. Earlier times are forgotten.
---@param asked boolean is it an error when there is no device? Then the current one is opened.
---@return string[] devices
function device_times.start(asked)
  local names = open_devices()
  if #names == 0 and asked then
    local reason = C.device.missing "cuda"
    if reason then arguments.fail("profile: activities: \"cuda\" needs a CUDA device: %s", reason) end
    names = {"cuda"}
  end
  for _, name in ipairs(names) do C.device.start_times(name) end
  return names
end

-- The bytes that a device's memory moves in a microsecond at most, nil where the driver does not report its clock; the
-- memory moves two words a clock.
local function bandwidth_of(name)
  local facts = C.device.properties("cuda", tonumber(name:match ":(%d+)$" or 0))
  local clock, width = tonumber(facts.memory_clock_rate), tonumber(facts.memory_bus_width)
  return clock and width and clock * width > 0 and clock * 1e3 * 2 * width / 8 / 1e6 or nil
end

--- Wait for the devices and return their rows, those of several devices one after the other.
---@return table[] rows {op, kernel, count, microseconds, bytes, operations, least_microseconds, bandwidth}
function device_times.stop(names)
  local rows = {}
  for _, name in ipairs(names) do
    local bandwidth = bandwidth_of(name)
    for _, row in ipairs(C.device.stop_times(name)) do
      row.bandwidth = bandwidth
      rows[#rows + 1] = row
    end
  end
  return rows
end

local function rate(amount, microseconds, unit)
  return amount > 0 and microseconds > 0 and ("%.0f"):format(amount / microseconds / unit) or "-"
end

-- The share of the memory's bandwidth, in percent.
local function share_of_memory(row)
  if not row.bandwidth or row.bytes == 0 or row.microseconds == 0 then return "-" end
  return ("%.0f%%"):format(100 * row.bytes / row.microseconds / row.bandwidth)
end

-- The share of the rate of the units that do the operations, in percent.
local function share_of_peak(row)
  local least = row.least_microseconds or 0
  return least > 0 and row.microseconds > 0 and ("%.0f%%"):format(100 * least / row.microseconds) or "-"
end

--- A line for each op and kernel, the longest total time first. GB/s and TFLOP/s are those of the bytes and operations
--- that a launch requires at least, where known; "of limit" is the share of the bandwidth of the device's memory, and
--- "of peak" that of the operations per second of its tensor cores, or of float32 and float64, at the highest clock.
---@param rows table[]
---@param steps integer numbers are divided by it
---@param row_limit integer negative: all
function device_times.text(rows, steps, row_limit)
  local total, order, lines = 0, {}, {}
  for i, row in ipairs(rows) do
    total = total + row.microseconds
    order[i] = row
  end
  table.sort(order, function(a, b)
    if a.microseconds ~= b.microseconds then return a.microseconds > b.microseconds end
    return a.op .. a.kernel < b.op .. b.kernel
  end)
  local unit = steps == 1 and "" or " a step"
  lines[1] = ("%-28s %-30s %10s %12s %6s %7s %8s %8s %7s"):format("op", "kernel", "calls" .. unit, "us" .. unit,
    "share", "GB/s", "of limit", "TFLOP/s", "of peak")
  for i, row in ipairs(order) do
    if row_limit >= 0 and i > row_limit then
      lines[#lines + 1] = ("... and %d more"):format(#order - row_limit)
      break
    end
    local us = row.microseconds
    lines[#lines + 1] = ("%-28s %-30s %10.4g %12.1f %5.1f%% %7s %8s %8s %7s"):format(row.op, row.kernel,
      row.count / steps, us / steps, 100 * us / math.max(total, 1e-9), rate(row.bytes, us, 1e3), share_of_memory(row),
      rate(row.operations, us, 1e6), share_of_peak(row))
  end
  lines[#lines + 1] = ("%.1f us%s on the device"):format(total / steps, unit)
  return table.concat(lines, "\n")
end

--- Write the table of a whole run to stderr: ACCELHOST_CUDA_TIMES=1, at the end of the process.
function device_times.report()
  local names = open_devices()
  if #names == 0 then return end
  io.stderr:write(device_times.text(device_times.stop(names), 1, 50), "\n")
end

return device_times
