--- accelhost.progress: a progress bar around a loader, an iterator or a count.
--
--   for inputs, labels in accelhost.progress(loader, {desc = "epoch 1", disable = true}) do print(inputs, labels) end
--
-- draws
--
--   | epoch 1:  45%|████▌     | 422/938 [00:04<00:05, 98.4 it/s]
--
-- On a terminal the line redraws itself on stderr, below other output, an inner loop's below the outer one's; piped, a
-- line is written about every tenth of the way. Only rank 0 draws. The bar changes nothing about the iteration: break
-- is safe.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local columns_of = require("accelhost.util.columns").of
local cut = require("accelhost.util.columns").cut
local screen = require "accelhost.util.screen"

local fail = arguments.fail

---@class Progress
---@field n integer steps done
---@field total integer?
local Progress = class.new "progress"

local eighths = {"▏", "▎", "▍", "▌", "▋", "▊", "▉"}
-- Columns: of the bar in lines, of a line that is no terminal's; of a terminal's bar, and of a shortened description.
local BAR, SURFACE, LEAST_BAR, MOST_BAR, LEAST_DESC = 10, 90, 4, 40, 12

local function duration(seconds)
  seconds = math.floor(seconds + 0.5)
  local hours, rest = math.floor(seconds / 3600), seconds % 3600
  local text = ("%02d:%02d"):format(math.floor(rest / 60), rest % 60)
  return hours > 0 and ("%d:%s"):format(hours, text) or text
end

local function three_digits(value)
  if value >= 99.95 then return ("%.0f"):format(value) end
  return (value >= 9.995 and "%.1f" or "%.2f"):format(value)
end

local function rate_text(rate, unit)
  if not rate or rate <= 0 then return "? " .. unit .. "/s" end
  if rate < 1 then return three_digits(1 / rate) .. " s/" .. unit end
  return three_digits(rate) .. " " .. unit .. "/s"
end

local function bar_text(fraction, width)
  local parts = math.floor(fraction * width * 8)
  local full, eighth = math.floor(parts / 8), parts % 8
  if full >= width then return ("█"):rep(width) end
  return ("█"):rep(full) .. (eighths[eighth] or " ") .. (" "):rep(width - full - 1)
end

-- The parts of a line: description, percentage, count, times, speed, postfix.
local function parts_of(self, now)
  local elapsed = now - self._began
  local rate = self._rate
  if (self._closed or not rate) and elapsed > 0 and self.n > 0 then rate = self.n / elapsed end
  local parts = {
    desc = self.desc and self.desc .. ": " or "", speed = ", " .. rate_text(rate, self._unit),
    postfix = self._postfix and ", " .. self._postfix or "", times = duration(elapsed), bar = "",
  }
  if not self.total then
    parts.percentage, parts.count = "", ("%d %s"):format(self.n, self._unit)
    return parts
  end
  parts.fraction = self.total > 0 and math.min(1, self.n / self.total) or 1
  parts.percentage, parts.count = ("%3.0f%%"):format(parts.fraction * 100), ("%d/%d"):format(self.n, self.total)
  if self.n < self.total then
    parts.times = parts.times .. "<" .. (rate and duration((self.total - self.n) / rate) or "?")
  end
  return parts
end

local function joined(parts, bar)
  local middle = parts.fraction and (bar and ("|%s| "):format(bar) or " ") or ""
  return ("%s%s%s%s [%s%s%s]"):format(parts.desc, parts.percentage, middle, parts.count, parts.times, parts.speed,
    parts.postfix)
end

-- Where a line is too long for the terminal it has no bar, then a shorter description, then no speed; then it is cut.
local function line_of(self, now)
  local parts = parts_of(self, now)
  if not self._columns then return joined(parts, parts.fraction and bar_text(parts.fraction, BAR)) end
  local limit = self._columns - 1
  local room = limit - columns_of(joined(parts, ""))
  if parts.fraction and room >= LEAST_BAR then
    return joined(parts, bar_text(parts.fraction, math.min(MOST_BAR, room)))
  end
  local excess = columns_of(joined(parts)) - limit
  local length = columns_of(parts.desc)
  if excess > 0 and length > LEAST_DESC then
    parts.desc = cut(self.desc, math.max(LEAST_DESC, length - excess) - 3) .. "…: "
    excess = columns_of(joined(parts)) - limit
  end
  if excess > 0 then parts.speed = "" end
  return cut(joined(parts), limit)
end

local function draw(self, now)
  screen.draw(self._line, line_of(self, now))
  self._drawn = now
end

-- Does a `for` over the bar still run? A loop that was left by break or an error has no frame any more.
local function is_iterated(self)
  for level = 2, math.huge do
    if not debug.getinfo(level, "l") then return false end
    for i = 1, math.huge do
      local name, value = debug.getlocal(level, i)
      if not name then break end
      if value == self then return true end
    end
  end
end

-- Piped: a line when another tenth is reached; without a total every ten seconds.
local function report(self, now)
  if self.total then
    local tenth = math.floor(10 * self.n / math.max(1, self.total))
    if tenth <= self._tenth then return end
    self._tenth = tenth
  elseif now - self._drawn < 10 then
    return
  end
  self._drawn = now
  self._file:write(line_of(self, now), "\n")
  self._file:flush()
end

local function start(self)
  self.n, self._rate, self._postfix = 0, nil, nil
  self._began = self._clock()
  self._drawn, self._seen, self._seen_n = self._began, self._began, 0
  self._tenth, self._closed = 0, false
  if self._disabled or not self._terminal then return end
  screen.close(self._line, true)
  screen.open(self._line, self._own_terminal, self._launched)
  draw(self, self._began)
end

-- The smoothed speed: the newest stretch counts 0.3, as in tqdm.
local function measure(self, now)
  local seconds, steps = now - self._seen, self.n - self._seen_n
  if seconds <= 0 or steps <= 0 then return end
  local speed = steps / seconds
  self._rate = self._rate and 0.3 * speed + 0.7 * self._rate or speed
  self._seen, self._seen_n = now, self.n
end

--- Count `steps` more (default 1). A loop over the bar does this by itself.
---@param steps? integer
function Progress:update(steps)
  if steps ~= nil then arguments.check("update", "steps", "number", steps) end
  if not self._began then start(self) end
  self.n = self.n + (steps or 1)
  if self._disabled then return end
  local now = self._clock()
  if self._terminal then
    if now - self._drawn < self._mininterval then return end
    measure(self, now)
    draw(self, now)
  else
    if now - self._seen >= 1 then measure(self, now) end
    report(self, now)
  end
end

local function postfix_text(value)
  if C.is_tensor(value) then value = value:item() end
  if type(value) == "number" then
    return value % 1 == 0 and math.abs(value) < 1e15 and ("%d"):format(value) or ("%.3g"):format(value)
  end
  return tostring(value)
end

--- Show values behind the speed.
--
--   local bar = accelhost.progress(loader, {disable = true})
--   bar:set_postfix{loss = 0.25}
---@param values table<string, any>|string numbers, strings, or tensors of one element; sorted by name
function Progress:set_postfix(values)
  arguments.check("set_postfix", "values", "table|string", values)
  if self._disabled then return end
  if type(values) == "string" then
    self._postfix = values ~= "" and values or nil
    return
  end
  local names, parts = {}, {}
  for name in pairs(values) do names[#names + 1] = tostring(name) end
  table.sort(names)
  for i, name in ipairs(names) do parts[i] = name .. "=" .. postfix_text(values[name]) end
  self._postfix = #parts > 0 and table.concat(parts, ", ") or nil
end

--- Change the text before the bar.
---@param desc string?
function Progress:set_description(desc)
  if desc ~= nil then arguments.check("set_description", "desc", "string", desc) end
  self.desc = desc
end

--- Print a line above the bar.
function Progress:write(text)
  text = tostring(text)
  if self._disabled then return end
  if screen.has(self._line) then
    screen.above(self._line, text)
  else
    self._file:write(text, "\n")
  end
end

--- Draw the last state and leave the line; a loop that runs to its end does this by itself.
function Progress:close()
  if self._closed then return end
  self._closed = true
  if self._disabled then return end
  local now = self._clock()
  if not self._terminal then
    if not self.total or self._tenth < 10 then self._file:write(line_of(self, now), "\n") end
  elseif screen.has(self._line) then
    if self._leave then draw(self, now) end
    screen.close(self._line, self._leave)
  end
  self._file:flush()
end

local function count(self, first, ...)
  if first == nil then
    self:close()
    return nil
  end
  return first, ...
end

function Progress:__call(state, control)
  local source = self._source
  if not source then fail("progress: nothing to iterate over; call update() for each step") end
  if control == nil then
    start(self)
  else
    self:update()
  end
  if type(source) == "number" then
    if self.n < source then return self.n + 1 end
    return count(self, nil)
  end
  return count(self, source(state, control))
end

local function length_of(source)
  if type(source) == "number" then return source end
  if not class.of(source) or type(source.len) ~= "function" then return nil end
  local ok, length = pcall(source.len, source)
  return ok and length and length * (source._is_loader and source.turns or 1) or nil
end

-- Report whether the line will be seen on a terminal, and its width: a rank's output passes through its launcher, which
-- has set the device that it writes to.
local function look_at_terminal()
  local terminal, columns = screen.is_redrawn(2)
  return terminal, columns > 0 and columns or tonumber(os.getenv("COLUMNS"))
end

local read = arguments.signature("progress", {
  {"source: iterable"}, {"desc: string"}, {"total: size"}, {"leave: flag", true}, {"disable: flag", false},
  {"unit: string", "it"}, {"mininterval: nonnegative", 0.1}, {"file: any"}, {"terminal: flag"}, {"columns: size"},
  {"clock: callable", C.system.now},
})

function Progress:init(...)
  local source, desc, total, leave, disable, unit, mininterval, file, terminal, columns, clock = read(...)
  if terminal == nil and not file and screen.surface then
    terminal, columns = true, columns or SURFACE
  elseif terminal == nil and not file then
    local width
    terminal, width = look_at_terminal()
    columns = columns or width
  end
  self.desc, self.total, self.n = desc, total or length_of(source), 0
  self._source, self._leave, self._unit, self._mininterval = source, leave, unit, mininterval
  self._disabled = disable or C.comm.rank() ~= 0
  self._file, self._terminal, self._columns, self._clock = file or io.stderr, terminal or false, columns, clock
  self._own_terminal = not file and C.system.isatty(1) and C.system.isatty(2)
  self._launched = not file and not C.system.isatty(2)
  self._line = {
    file = self._file,
    is_alive = function() return source == nil or is_iterated(self) end,
    latest = function() return line_of(self, clock()) end,
  }
  if source == nil then
    start(self)
  else
    self._closed = true
  end
end

-- At the end of the process: a bar left by break does not swallow the shell's prompt.
local guard = newproxy(true)
getmetatable(guard).__gc = function()
  screen.leave()
end
Progress._guard = guard

--- A progress bar around a loader, an iterator function or a count (which yields 1, 2, ...); around nothing, for a
--- loop that calls update().
--
--   local bar = accelhost.progress(loader, {desc = "epoch 1", disable = true})
--   for inputs, labels in bar do bar:set_postfix{size = inputs:size(0)} end
--   bar.n  --> 3
---@param desc? string printed before the bar
---@param total? integer number of steps; default source:len()
---@param leave? boolean keep the finished bar
---@param disable? boolean draw nothing
---@param mininterval? number seconds between redraws
---@param file? file* default stderr
---@param terminal? boolean with columns and clock: for outputs whose type cannot be detected
---@return Progress
return function(...) return Progress(...) end
