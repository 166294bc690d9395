--- The text of a script's memory at its peak.
local C = require "accelhost._C"
local units = require "accelhost.estimate.units"

local PHASES = {"set-up", "loader", "forward", "backward", "optimizer"}
local GROUPS, LARGEST = 12, 10

local function count_text(count, noun)
  return ("%d %s%s"):format(count, noun, count == 1 and "" or "s")
end

local function row(name, bytes, total, count)
  local line = ("%-48s %12s %4.0f %%"):format(name, units.bytes(bytes), 100 * bytes / total)
  return count and ("%s %8d"):format(line, count) or line
end

local function add_kinds(lines, peak)
  lines[#lines + 1] = ("%-48s %12s %6s %8s"):format("At the peak", "", "", "blocks")
  for _, kind in ipairs(peak.kinds) do
    lines[#lines + 1] = row("  " .. kind.name, kind.bytes, peak.bytes, kind.count)
  end
  lines[#lines + 1] = row("  total", peak.bytes, peak.bytes)
end

-- A name that fits a column: its end is the more specific part.
local function fitted(text, width)
  return #text <= width and text or "..." .. text:sub(#text - width + 4)
end

local function add_activations(lines, peak)
  if #peak.activations == 0 then return end
  lines[#lines + 1] = ""
  lines[#lines + 1] = "Activations (saved for backward) by module and op; in names * is 0, 1, ..."
  local rest, count = 0, 0
  for i, group in ipairs(peak.activations) do
    if i <= GROUPS then
      local name = fitted(group.module, 46 - #group.op - 1) .. " " .. group.op
      lines[#lines + 1] = row("  " .. name, group.bytes, peak.bytes, group.count)
    else
      rest, count = rest + group.bytes, count + group.count
    end
  end
  if count > 0 then
    lines[#lines + 1] = row(("  %d more"):format(#peak.activations - GROUPS), rest, peak.bytes, count)
  end
end

local function add_largest(lines, peak)
  lines[#lines + 1] = ""
  lines[#lines + 1] = ("The largest allocations alive then (%d of %d)"):format(math.min(LARGEST, #peak.largest),
    #peak.largest)
  for i = 1, math.min(LARGEST, #peak.largest) do
    local block = peak.largest[i]
    local what, where = {block.op}, {block.module}
    what[#what + 1] = block.kind:gsub("^temporaries.*", "temporary")
    where[#where + 1] = block.site ~= "?" and block.site or nil
    lines[#lines + 1] = ("%12s  %-24s  %s"):format(units.bytes(block.bytes),
      block.tensor or count_text(block.owners or 0, "tensor"), table.concat(what, ", "))
    if #where > 0 then lines[#lines + 1] = (" "):rep(14) .. table.concat(where, ", ") end
  end
end

local function add_phases(lines, peak)
  lines[#lines + 1] = ""
  lines[#lines + 1] = "Peak of each phase"
  for _, phase in ipairs(PHASES) do
    if peak.phases[phase] then lines[#lines + 1] = row("  " .. phase, peak.phases[phase], peak.bytes) end
  end
end

--- Return the table.
---@param peak table of blocks.at_peak
---@param run {path: string, steps: integer, wanted: integer, optimizers: table[]}
---@return string
return function(peak, run)
  local names = {}
  for i, optimizer in ipairs(run.optimizers) do names[i] = optimizer._name end
  local lines = {("%s: %s of %s, peak %s in step %d (%s)"):format(run.path, count_text(run.steps, "step"),
    table.concat(names, ", "), units.bytes(peak.bytes), peak.step, peak.phase), ""}
  add_kinds(lines, peak)
  add_activations(lines, peak)
  add_largest(lines, peak)
  add_phases(lines, peak)
  lines[#lines + 1] = ""
  if run.steps < run.wanted then
    lines[#lines + 1] = ("The script ended after %s; --steps %d was requested."):format(count_text(run.steps, "step"),
      run.wanted)
  end
  if peak.lost > 0 then
    lines[#lines + 1] = ("%s did not fit the log and are missing."):format(count_text(peak.lost, "event"))
  end
  lines[#lines + 1] = ("Blocks of tensors on the CPU. The process had %s of resident memory\nat most: "
    .. "workspaces of kernels, Lua, libraries and freed blocks are in it too."):format(
    units.bytes(C.system.memory_stats().max_rss))
  return table.concat(lines, "\n")
end
