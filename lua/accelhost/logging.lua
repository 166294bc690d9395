--- accelhost.logging: lines about a run on stderr, with time, level and name; of the main process unless asked for
--- more.
--
--   local logger = accelhost.logging.get_logger "train"
--   logger:info("epoch %d of %d", 1, 10)
--   logger:warning("rank %d has an odd batch", 1, {main_process_only = false})
---@param message any
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local namespace = require "accelhost.util.namespace"

local fail, describe = arguments.fail, arguments.describe

local numbers = {debug = 10, info = 20, warning = 30, error = 40, critical = 50}
local words = "debug, info, warning, error or critical"

-- A level by its word (in any case) or Python's number.
local function level_of(what, value)
  if type(value) == "number" then return value end
  local level = type(value) == "string" and numbers[value:lower()]
  if not level then fail("%s: expected %s, got %s", what, words, describe(value)) end
  return level
end

local function level_of_environment()
  for _, name in ipairs {"ACCELHOST_LOG_LEVEL", "ACCELERATE_LOG_LEVEL"} do
    local text = os.getenv(name)
    if text and text ~= "" then return level_of(name, text) end
  end
  return numbers.info
end

-- The level of all loggers without one; read on first use.
local verbosity

local function verbosity_now()
  verbosity = verbosity or level_of_environment()
  return verbosity
end

---@field name string
local Logger = class.new "Logger"

function Logger:init(name, level)
  self.name, self._level, self._logged = name, level or false, {}
end

local known = {"main_process_only", "in_order"}

-- The options behind a message's values, when the last one is a table of such names.
local function take_options(count, ...)
  local last = count > 0 and select(count, ...)
  if type(last) ~= "table" or getmetatable(last) ~= nil or next(last) == nil then return count, {} end
  for name in pairs(last) do
    if type(name) ~= "string" then return count, {} end
  end
  arguments.check_names("logger", last, known)
  return count - 1, last
end

local function text_of(message, count, ...)
  if count == 0 then return tostring(message) end
  local fine, text = pcall(string.format, message, ...)
  if not fine then fail("logger: %s", (text:gsub("^.-:%d+: ", ""):gsub("to '%?'", "to 'format'"))) end
  return text
end

-- One write, so that lines of several processes do not mix.
local function write(self, level, text)
  io.stdout:flush()
  io.stderr:write(("%s %s %s: %s\n"):format(os.date "%Y-%m-%d %H:%M:%S", level:upper(), self.name, text))
end

local function log(self, level, message, ...)
  local count, options = take_options(select("#", ...), ...)
  local enabled = self:is_enabled_for(level)
  local rank, size = C.comm.rank(), C.comm.size()
  if options.in_order and size > 1 then
    for turn = 0, size - 1 do
      if turn == rank and enabled then
        write(self, level, text_of(message, count, ...))
        io.stderr:flush()
      end
      C.comm.barrier()
    end
  elseif enabled and (rank == 0 or options.main_process_only == false or options.in_order) then
    write(self, level, text_of(message, count, ...))
  end
end

--- Would a line of this level be written?
--
--   accelhost.logging.get_logger("a", "error"):is_enabled_for "info"  --> false
---@param level string|number
function Logger:is_enabled_for(level)
  return level_of("is_enabled_for", level) >= (self._level or verbosity_now())
end

--- Write from this level on; nil: that of set_verbosity.
---@param level? string|number
function Logger:set_level(level)
  self._level = level ~= nil and level_of("set_level", level) or false
end

--- Write a line of a level. `values` are formatted into the message by string.format. The last value may be a table of
--- options: {main_process_only = false} writes on every process, {in_order = true} on one after the other, which is a
--- collective (all processes must call it).
---@param level string
---@param ... any values, options
function Logger:log(level, message, ...)
  level_of("log", level)
  log(self, level, message, ...)
end

--- Write a line of the level "debug"; see log.
---@param ... any values, options
function Logger:debug(message, ...) log(self, "debug", message, ...) end

--- Write a line of the level "info"; see log.
---@param ... any values, options
function Logger:info(message, ...) log(self, "info", message, ...) end

--- Write a line of the level "warning"; see log.
---@param ... any values, options
function Logger:warning(message, ...) log(self, "warning", message, ...) end

--- Write a line of the level "error"; see log.
---@param ... any values, options
function Logger:error(message, ...) log(self, "error", message, ...) end

--- Write a line of the level "critical"; see log.
---@param ... any values, options
function Logger:critical(message, ...) log(self, "critical", message, ...) end

--- Write a line of the level "error" with the traceback of this place below it; for the handler of an xpcall.
--
--   local logger = accelhost.logging.get_logger "train"
--   xpcall(function() return 2 end, function(message) logger:exception(message) end)  --> true, 2
---@param ... any values, options
function Logger:exception(message, ...)
  local count, options = take_options(select("#", ...), ...)
  local text, trace = text_of(message, count, ...), debug.traceback("", 2):gsub("^\n", "")
  log(self, "error", "%s\n%s", text, trace, options)
end

--- Write a warning, but each text only once in this process.
---@param ... any values, options
function Logger:warning_once(message, ...)
  local count = take_options(select("#", ...), ...)
  local text = text_of(message, count, ...)
  if self._logged[text] then return end
  self._logged[text] = true
  log(self, "warning", message, ...)
end

local logging = {}
local loggers = {}

local read = arguments.signature("get_logger", {"name: string", {"log_level: string|number"}})

--- The logger of a name, made when it is first asked for. Levels are debug, info, warning, error and critical. Without
--- a level it uses that of set_verbosity, else the variable ACCELHOST_LOG_LEVEL (or
--- ACCELERATE_LOG_LEVEL), else "info".
--
--   local logger = accelhost.logging.get_logger("train", {log_level = "debug"})
---@return Logger
function logging.get_logger(...)
  local name, level = read(...)
  local logger = loggers[name] or Logger(name)
  loggers[name] = logger
  if level ~= nil then logger:set_level(level) end
  return logger
end

--- Set the level from which on loggers without one write.
--
--   accelhost.logging.set_verbosity "warning"
--   accelhost.logging.get_verbosity()  --> warning
---@param level string|number
function logging.set_verbosity(level)
  verbosity = level_of("set_verbosity", level)
end

--- The level that set_verbosity has set, or the variable ACCELHOST_LOG_LEVEL, or "info".
---@return string|number # a number where it is no level that has a name
function logging.get_verbosity()
  for word, number in pairs(numbers) do
    if number == verbosity_now() then return word end
  end
  return verbosity_now()
end

return namespace.new("logging", logging, {}, {refused = {
  getLogger = "logging.get_logger(name)", basicConfig = "lines go to stderr; logging.set_verbosity(level)",
}})
