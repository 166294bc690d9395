-- Read the logs of runs: the curves of event files, of JSON lines and of CSV files.
local C = require "accelhost._C"
local LogFile = require "accelhost.track.log_file"
local arguments = require "accelhost.util.arguments"

local curves = {}

-- Points of rows, by name.
local function of_rows(rows)
  local found = {}
  for i, row in ipairs(rows) do
    for _, name in ipairs(row.names) do
      local value = row.values[name]
      if type(value) == "number" then
        local curve = found[name] or {step = {}, wall_time = {}, value = {}, row = {}}
        local at = #curve.value + 1
        curve.step[at], curve.wall_time[at] = tonumber(row.step) or i - 1, tonumber(row.wall_time) or i - 1
        curve.value[at], curve.row[at] = value, row
        found[name] = curve
      end
    end
  end
  return found
end

local function read_table(kind)
  return function(path)
    local rows, clean = require("accelhost.track." .. kind).format.read(LogFile.content("read", path))
    return of_rows(rows), not clean and "a line that is no row was left out" or nil
  end
end

local function read_events(path)
  local found, trouble, restart = C.events.read(path)
  for _, curve in pairs(found) do
    -- The steps were not counted.
    local last = #curve.step
    if last > 1 and curve.step[1] == 0 and curve.step[last] == 0 then
      for i = 1, last do curve.step[i] = i - 1 end
    end
  end
  return found, trouble, restart
end

local readers = {
  {"tfevents", read_events}, {"%.jsonl$", read_table "jsonl"}, {"%.csv$", read_table "csv"},
}

local function reader_of(name)
  for place, row in ipairs(readers) do
    if name:find(row[1]) then return row[2], place end
  end
end

-- Append the points of a run that continues in another file to the earlier ones. (Places are counted, not read by # in
-- each turn: compiled code was seen to get a length from before the last turn's writes.)
local function append(curve, more)
  local count = #curve.value
  for name, list in pairs(more) do
    for i = 1, curve[name] and #more.value or 0 do curve[name][count + i] = list[i] end
  end
end

-- The points before a step.
local function cut(curve, step)
  local kept = {}
  for name, list in pairs(curve) do
    local few, count = {}, 0
    for i, at in ipairs(curve.step) do
      if at < step then
        count = count + 1
        few[count] = list[i]
      end
    end
    kept[name] = few
  end
  return kept
end

local function name_of(path) return path:match "[^/]+$" or path end

-- The files of a folder that are logs, in the order in which they were begun, and the folders in it.
local function list_logs(path)
  local logs, folders = {}, {}
  local names = C.data.list_folder(path)
  table.sort(names)
  for _, name in ipairs(names) do
    local full = path .. "/" .. name
    local kind = C.data.look(full)
    local _, place = reader_of(name)
    if kind == "file" and place then logs[#logs + 1] = {path = full, place = place} end
    if kind == "folder" then folders[#folders + 1] = full end
  end
  table.sort(logs, function(a, b)
    if a.place ~= b.place then return a.place < b.place end
    return a.path < b.path
  end)
  return logs, folders
end

-- Read the files of one run: those of one kind continue each other, another kind has the same values again.
local function read_files(run, logs)
  local places = {}
  for _, log in ipairs(logs) do
    local found, trouble, restart = reader_of(name_of(log.path))(log.path)
    if trouble then run.troubles[#run.troubles + 1] = ("%s: %s"):format(log.path, trouble) end
    for tag, curve in pairs(restart and run.curves or {}) do run.curves[tag] = cut(curve, restart) end
    for _, tag in ipairs(arguments.sorted_keys(found)) do
      if not run.curves[tag] then
        run.curves[tag], places[tag] = found[tag], log.place
      elseif places[tag] == log.place then
        append(run.curves[tag], found[tag])
      end
    end
  end
  return run
end

local function new_run(name) return {name = name, curves = {}, troubles = {}} end

local function has_points_of(run, other)
  for tag, curve in pairs(other.curves) do
    if not run.curves[tag] or #run.curves[tag].value < #curve.value then return false end
  end
  return true
end

-- A trial's folder has the sweep's metrics.jsonl, and often the script's own log of the same values deeper in it: they
-- are one run.
local function join_trial(runs, path, run, first)
  local inner = runs[first + 1]
  local is_trial = C.data.look(path .. "/params.yaml") == "file"
  if not is_trial or #runs ~= first + 1 or not has_points_of(inner, run) then return end
  run.curves, runs[first + 1] = inner.curves, nil
  for _, trouble in ipairs(inner.troubles) do run.troubles[#run.troubles + 1] = trouble end
end

local function read_folder(runs, path, name, depth)
  local logs, folders = list_logs(path)
  local run, first = read_files(new_run(name), logs), #runs
  local is_run = next(run.curves) or run.troubles[1]
  if is_run then
    first = first + 1
    runs[first] = run
  end
  if depth == 0 then return end
  for _, folder in ipairs(folders) do read_folder(runs, folder, name .. "/" .. name_of(folder), depth - 1) end
  if is_run then join_trial(runs, path, run, first) end
end

--- The runs of a path: a log file is one, a folder with logs is one, and so are the folders in it that have logs.
---@return table[]? runs {name, curves = {tag = {step, wall_time, value}}, troubles}; nil and the reason when it cannot
--- be read
---@return string? reason
function curves.read(path)
  local kind, reason = C.data.look(path)
  local plain = #path > 1 and path:gsub("/+$", "") or path
  if not kind then return nil, reason or "there is no such file or folder" end
  if kind == "folder" then
    local runs = {}
    read_folder(runs, plain, plain, 8)
    if not runs[1] then return nil, "no event file, .jsonl or .csv file with numbers is in this folder" end
    return runs
  end
  if not reader_of(name_of(plain)) then
    return nil, "expected an event file (tfevents in its name), a .jsonl or a .csv file, or a folder of them"
  end
  return {read_files(new_run(plain), {{path = plain, place = 1}})}
end

return curves
