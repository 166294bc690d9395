--- Values, times and names of a study as people read them.
local json = require "accelhost.util.json"
local printable = require "accelhost.util.printable"

local show = {}

--- A number with up to five digits, whole ones in full; "-" for none.
---@param value number?
---@return string
function show.number(value)
  if value == nil then return "-" end
  if value % 1 == 0 and math.abs(value) < 1e15 then return ("%d"):format(value) end
  return printable.number(value, 5)
end

--- The value of a parameter: a text unchanged, a table as JSON; "" for one that was not active.
function show.value(value)
  if value == nil then return "" end
  if type(value) == "number" then return show.number(value) end
  if type(value) == "table" then
    local fine, text = pcall(json.encode, value)
    return fine and printable.text(text) or "a table"
  end
  return printable.text(tostring(value))
end

--- A stretch of time in its two largest units: "0.25 s", "42 s", "3 min 5 s", "2 h 10 min", "3 d 4 h".
---@param seconds number?
function show.duration(seconds)
  if not seconds or seconds ~= seconds or seconds == math.huge then return "-" end
  seconds = math.max(0, seconds)
  if seconds < 9.995 then return ("%.2f s"):format(seconds) end
  if seconds < 59.95 then return ("%.1f s"):format(seconds) end
  local whole = math.floor(seconds + 0.5)
  if whole < 3600 then return ("%d min %d s"):format(math.floor(whole / 60), whole % 60) end
  if whole < 86400 then return ("%d h %d min"):format(math.floor(whole / 3600), math.floor(whole % 3600 / 60)) end
  return ("%d d %d h"):format(math.floor(whole / 86400), math.floor(whole % 86400 / 3600))
end

--- A stretch of time that is guessed: "5 s", "2 min", "3 h 10 min".
---@param seconds number
---@return string
function show.rough_duration(seconds)
  if seconds < 90 then return ("%d s"):format(math.max(1, math.floor(seconds + 0.5))) end
  if seconds < 5400 then return ("%d min"):format(math.floor(seconds / 60 + 0.5)) end
  return show.duration(seconds)
end

--- A moment, in local time.
---@param epoch number? seconds since 1970
---@return string
function show.date(epoch)
  return epoch and os.date("%Y-%m-%d %H:%M:%S", math.floor(epoch)) or "-"
end

--- The first line of a text that is not blank, at most `most` bytes of it.
---@param text string?
---@param most? integer default 200
function show.first_line(text, most)
  local line = printable.text((text or ""):match "[^\r\n]*%S[^\r\n]*" or "")
  most = most or 200
  if #line <= most then return line end
  -- Not within a character.
  return (line:sub(1, most):gsub("[\192-\255][\128-\191]*$", "")) .. "..."
end

--- The reason why a trial has no rank, in a line: the first one of its error, or the constraint that it breaks; "" for
--- other trials.
function show.remark(trial)
  if trial.error then return show.first_line(trial.error) end
  return trial.violation and "breaks " .. show.first_line(trial.violation) or ""
end

--- "1 trial", "2 trials".
function show.count(count, word)
  return ("%d %s%s"):format(count, word, count == 1 and "" or "s")
end

return show
