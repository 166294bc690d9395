-- The base of trackers that write lines: a file with a row for each call of log, which an interrupted or resumed run
-- continues.
local C = require "accelhost._C"
local GeneralTracker = require "accelhost.track.tracker"
local LogFile = require "accelhost.track.log_file"
local arguments = require "accelhost.util.arguments"
local values = require "accelhost.track.values"

local fail = arguments.fail

---@field path string? the file, when it is started
---@field row_count integer? number of its rows
local TableTracker = GeneralTracker:extend "TableTracker"

local own = {step = true, wall_time = true} -- names of the row itself

--- Create a tracker class; its format writes and reads rows.
---@param format table {read = fun(text): rows, clean; write = fun(rows): text; line = fun(row, columns): text}
---@return table
function TableTracker.define(class_name, name, format)
  local made = TableTracker:extend(class_name)
  made.name, made.requires_logging_directory, made.format = name, true, format
  return made
end

local option_names = {"purge_step"}

--- Open the file, or continue it: drop a row that was cut short, and those from purge_step on.
function TableTracker:start()
  local what, options = "init_trackers: " .. self.name, self.options or {}
  arguments.check_names(what, options, option_names)
  if options.purge_step ~= nil then arguments.check(what, "purge_step", "size", options.purge_step) end
  self.folder = LogFile.folder(what, self.logging_dir .. "/" .. self.run_name)
  self.path = ("%s/metrics.%s"):format(self.folder, self.name)
  self.row_count = 0
  local text = LogFile.content(what, self.path)
  if text then self:_read_rows(text, options.purge_step) end
  self.file = LogFile(what, self.path)
  self.tracker = self.file
end

-- Rewrite the file with a part of its rows.
function TableTracker:_rewrite(purge_step, count)
  local what = "log: " .. self.name
  self.file:close()
  self:_read_rows(LogFile.content(what, self.path) or "", purge_step, count)
  self.file = LogFile(what, self.path)
  self.tracker = self.file
end

--- Drop the rows from a step on.
function TableTracker:purge(step) self:_rewrite(step) end

--- Drop all rows but the first ones.
function TableTracker:keep_rows(count) self:_rewrite(nil, count) end

function TableTracker:_read_rows(text, purge_step, count)
  local rows, clean = self.format.read(text)
  local kept = {columns = rows.columns}
  for i = 1, math.min(#rows, count or #rows) do
    local row = rows[i]
    if not (purge_step and row.step and row.step >= purge_step) then kept[#kept + 1] = row end
  end
  if not clean or #kept < #rows then C.io.write_text(self.path, self.format.write(kept)) end
  self.columns, self.row_count = rows.columns, #kept
end

--- Keep the configuration in config.json.
function TableTracker:store_init_configuration(given)
  local names, found = values.flat("init_trackers: " .. self.name .. ": config", given)
  for _, name in ipairs(names) do
    if type(found[name]) == "number" and found[name] - found[name] ~= 0 then found[name] = tostring(found[name]) end
  end
  C.io.write_text(self.folder .. "/config.json", C.json.encode(found, 2) .. "\n")
end

--- Write a row.
---@param given table<string, any>
---@param step? integer
---@param options? table walltime
function TableTracker:log(given, step, options)
  local what = "log: " .. self.name
  arguments.check_names(what, options or {}, {"walltime"})
  local names, found = values.flat(what, given)
  if step == nil and found.step ~= nil then step = values.number(what, "step", found.step) end
  local wall_time = options and options.walltime or C.system.time()
  local row = {step = step, wall_time = wall_time, names = {}, values = found}
  for _, name in ipairs(names) do
    if not own[name] then
      row.names[#row.names + 1] = name
    elseif found[name] ~= row[name] then
      fail("%s: '%s' is a name of the row itself, which has %s; got %s", what, name, tostring(row[name]),
        tostring(found[name]))
    end
  end
  self:_append(row)
end

function TableTracker:_append(row)
  self.file:append(self.format.line(row))
  self.row_count = self.row_count + 1
end

--- Close the file.
function TableTracker:finish()
  if self.file then self.file:close() end
end

return TableTracker
