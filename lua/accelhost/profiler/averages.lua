--- The totals of a recording: a row for each name, with its own time and that of its callees.
local arguments = require "accelhost.util.arguments"

---@class KeyAverages
---@field [integer] table {key, kind, count, self_cpu_time_total, cpu_time_total, cpu_time, self_cpu_memory_usage,
--- cpu_memory_usage, input_shapes, device_time_total, kind}
local KeyAverages = {}
KeyAverages.__index = KeyAverages

local function row_of(rows, order, key, kind, shapes, by_shape)
  local id = by_shape and key .. "\0" .. shapes or key
  local row = rows[id]
  if not row then
    row = {
      key = key, kind = kind, count = 0, self_cpu_time_total = 0, cpu_time_total = 0, self_cpu_memory_usage = 0,
      cpu_memory_usage = 0, input_shapes = by_shape and shapes or "", open = 0, device_time_total = 0,
    }
    rows[id] = row
    order[#order + 1] = row
  end
  return row
end

-- Close the spans of the stack that have ended. Spans are sorted by track, then by time, outer ones first: the stack
-- holds those around the present one.
local function close(stack, time)
  while #stack > 0 and stack[#stack].stop <= time do
    local top = table.remove(stack)
    top.row.open = top.row.open - 1
  end
end

-- Add kernels as separate rows, and their time to the op that launched them; by shapes it belongs to no op.
local function add_kernels(rows, order, kernels, by_shape)
  for _, kernel in ipairs(kernels) do
    local op = not by_shape and rows[kernel.op]
    if op and op.kind == "op" then op.device_time_total = op.device_time_total + kernel.microseconds end
    local row = row_of(rows, order, kernel.kernel .. " (" .. kernel.op .. ")", "kernel", "", by_shape)
    row.count = row.count + kernel.count
    row.device_time_total = row.device_time_total + kernel.microseconds
  end
end

--- Rows by name (kind and name: a node of backward is "backward of NAME"), times in microseconds.
---@param recording userdata
---@param by_shape boolean a row for each name and shapes
---@param kernels table[] kernels that devices executed (device_times.stop)
---@return KeyAverages
local function averages_of(recording, by_shape, kernels)
  local rows, order, stack, track = {}, {}, {}, nil
  for i = 0, recording:count() - 1 do
    local name, kind, thread, start, stop, bytes, shapes = recording:span(i)
    if name:find "^ProfilerStep#" then name = "ProfilerStep*" end
    if kind == "backward" and name ~= "backward" then name = "backward of " .. name end
    if kind ~= "bucket" then
      if thread ~= track then close(stack, math.huge) end
      track = thread
      close(stack, start)
      local row, time = row_of(rows, order, name, kind, shapes, by_shape), (stop - start) / 1000
      local around = stack[#stack]
      row.count = row.count + 1
      row.self_cpu_time_total = row.self_cpu_time_total + time
      row.self_cpu_memory_usage = row.self_cpu_memory_usage + bytes
      if row.open == 0 then -- one within its own kind is counted in the outer one's total
        row.cpu_time_total = row.cpu_time_total + time
        row.cpu_memory_usage = row.cpu_memory_usage + bytes
      end
      if around then
        around.row.self_cpu_time_total = around.row.self_cpu_time_total - time
        around.row.self_cpu_memory_usage = around.row.self_cpu_memory_usage - bytes
      end
      row.open = row.open + 1
      stack[#stack + 1] = {row = row, stop = stop}
    end
  end
  add_kernels(rows, order, kernels, by_shape)
  for _, row in ipairs(order) do
    row.cpu_time, row.open = row.cpu_time_total / row.count, nil
  end
  return setmetatable(order, KeyAverages)
end


local function time_text(us)
  if us >= 1e6 then return ("%.3fs"):format(us / 1e6) end
  if us >= 1e3 then return ("%.3fms"):format(us / 1e3) end
  return ("%.3fus"):format(us)
end

local function bytes_text(bytes)
  for _, unit in ipairs {{"GB", 2 ^ 30}, {"MB", 2 ^ 20}, {"KB", 2 ^ 10}} do
    if math.abs(bytes) >= unit[2] then return ("%.2f %s"):format(bytes / unit[2], unit[1]) end
  end
  return ("%d B"):format(bytes)
end

local read_table = arguments.signature("table", {
  {"sort_by: 'cpu_time'|'cpu_time_total'|'self_cpu_time_total'|'cpu_memory_usage'|'self_cpu_memory_usage'|"
    .. "'device_time_total'|'count'"},
  {"row_limit: integer", 100},
})

local function cells_of(row, total, device, memory, shapes)
  local cells = {
    row.key, ("%.2f%%"):format(100 * row.self_cpu_time_total / total), time_text(row.self_cpu_time_total),
    ("%.2f%%"):format(100 * row.cpu_time_total / total), time_text(row.cpu_time_total), time_text(row.cpu_time),
  }
  if device > 0 then
    cells[#cells + 1] = time_text(row.device_time_total)
    cells[#cells + 1] = ("%.2f%%"):format(100 * row.device_time_total / device)
  end
  if memory then
    cells[#cells + 1] = bytes_text(row.cpu_memory_usage)
    cells[#cells + 1] = bytes_text(row.self_cpu_memory_usage)
  end
  cells[#cells + 1] = tostring(row.count)
  if shapes then cells[#cells + 1] = row.input_shapes end
  return cells
end

local function layout(rows)
  local widths, lines = {}, {}
  for _, row in ipairs(rows) do
    for i, text in ipairs(row) do widths[i] = math.max(widths[i] or 0, #text) end
  end
  local rule = {}
  for i, width in ipairs(widths) do rule[i] = ("-"):rep(width) end
  table.insert(rows, 2, rule)
  table.insert(rows, 1, rule)
  rows[#rows + 1] = rule
  for r, row in ipairs(rows) do
    local parts = {}
    for i, text in ipairs(row) do parts[i] = (" "):rep(widths[i] - #text) .. text end
    lines[r] = table.concat(parts, "  ")
  end
  return lines
end

--- The rows as a text with PyTorch's columns.
--
--   local prof = accelhost.profiler.profile({}, function() return w * 2 end)
--   #prof:key_averages():table{sort_by = "cpu_time_total", row_limit = 5} > 0  --> true
---@param sort_by? string a field of the rows; without, the order of their first appearance
---@param row_limit? integer default 100; negative: all
function KeyAverages:table(...)
  local sort_by, row_limit = read_table(...)
  local order, total, device, memory, shapes = {}, 0, 0, false, false
  for i, row in ipairs(self) do
    order[i] = row
    total = total + row.self_cpu_time_total
    if row.kind == "kernel" then device = device + row.device_time_total end
    memory = memory or row.cpu_memory_usage ~= 0
    shapes = shapes or row.input_shapes ~= ""
  end
  if sort_by then
    local place = {}
    for i, row in ipairs(order) do place[row] = i end
    table.sort(order, function(a, b)
      if a[sort_by] ~= b[sort_by] then return a[sort_by] > b[sort_by] end
      return place[a] < place[b]
    end)
  end
  local rows = {{"Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"}}
  for _, name in ipairs(device > 0 and {"Device time", "Device %"} or {}) do rows[1][#rows[1] + 1] = name end
  for _, name in ipairs(memory and {"CPU Mem", "Self CPU Mem"} or {}) do rows[1][#rows[1] + 1] = name end
  rows[1][#rows[1] + 1] = "# of Calls"
  if shapes then rows[1][#rows[1] + 1] = "Input Shapes" end
  for i, row in ipairs(order) do
    if row_limit >= 0 and i > row_limit then break end
    rows[#rows + 1] = cells_of(row, math.max(total, 1e-9), device, memory, shapes)
  end
  local lines = layout(rows)
  lines[#lines + 1] = "Self CPU time total: " .. time_text(total)
  if device > 0 then lines[#lines + 1] = "Device time total: " .. time_text(device) end
  return table.concat(lines, "\n")
end

KeyAverages.__tostring = function(self) return self:table() end

return averages_of
