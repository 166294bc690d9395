--- A program on a pseudo-terminal (of `script`): type its input, wait for its output.
--
--   local at = terminal.open({run.path}, {env = {TERM = "xterm"}})
--   at:wait "%[1%]> "
--   at:type "1 + 1\n"
--   at:wait "2\n"
--   assert.equal(0, at:close())
local C = require "accelhost._C"
local run = require "spec.support.run"

local terminal = {}
terminal.__index = terminal

local slowness = tonumber(os.getenv "ACCELHOST_TEST_SLOWNESS") or 1

--- Start a program.
---@param words string[]
---@param options? {env?: table<string, string>, columns?: integer, dir?: string}
function terminal.open(words, options)
  options = options or {}
  local base = os.tmpname()
  local parts = {"stty rows 30 cols " .. (options.columns or 200) .. "; exec env"}
  local env = {ACCELHOST_CONFIG_FILE = "", TERM = "xterm", NO_COLOR = "1", XDG_STATE_HOME = base .. ".state"}
  for name, value in pairs(options.env or {}) do env[name] = value end
  for name, value in pairs(env) do parts[#parts + 1] = name .. "=" .. run.quote(value) end
  for _, word in ipairs(words) do parts[#parts + 1] = run.quote(word) end
  local line = ("%s timeout -k 1 %d script -qefc %s %s.shown > /dev/null 2>&1; echo $? > %s.code"):format(
    options.dir and "cd " .. run.quote(options.dir) .. " &&" or "", 300 * slowness, run.quote(table.concat(parts, " ")),
    base, base)
  local self = setmetatable({base = base, at = 1}, terminal)
  self.pipe = assert(io.popen(line, "w"))
  self.pipe:setvbuf "no"
  return self
end

--- All that was shown so far, lines ended by "\n" alone, without the terminal's own sequences.
---@return string
function terminal:shown()
  local file = io.open(self.base .. ".shown", "rb")
  local text = file and file:read "*a" or ""
  if file then file:close() end
  return (text:gsub("^Script started[^\n]*\n", ""):gsub("\r", ""):gsub("\27%[%?2004[hl]", ""))
end

--- Type.
---@param text string
function terminal:type(text)
  self.pipe:write(text)
end

--- Wait for text that matches the pattern, after the last match; an error after the time.
---@param pattern string
---@param seconds? number 60
---@return string # the text shown up to its end
function terminal:wait(pattern, seconds)
  local last = C.system.now() + (seconds or 60) * slowness
  repeat
    local text = self:shown()
    local _, to = text:find(pattern, self.at)
    if to then
      local part = text:sub(self.at, to)
      self.at = to + 1
      return part
    end
    C.terminal.sleep(0.02)
  until C.system.now() > last
  error(("waited for '%s'; shown since: %q"):format(pattern, self:shown():sub(self.at)), 2)
end

--- Type a line at the prompt; return its output, up to the next prompt.
---@param text string
---@return string
function terminal:line(text)
  self:type(text .. "\n")
  self:wait(text:match "([^\n]*)$":gsub("%p", "%%%0") .. "\n")
  return (self:wait "%[%d+%]> $":gsub("%[%d+%]> $", ""))
end

--- End the input and the program.
---@return integer # its exit code
function terminal:close()
  self.pipe:close()
  local file = io.open(self.base .. ".code")
  local code = file and tonumber(file:read "*a")
  if file then file:close() end
  os.execute("rm -rf " .. run.quote(self.base) .. " " .. run.quote(self.base) .. ".*")
  return code
end

return terminal
