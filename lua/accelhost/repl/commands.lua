--- Lines at the prompt that are no Lua.
local C = require "accelhost._C"
local Page = require "accelhost.util.page"
local describe = require "accelhost.repl.describe"
local modules = require "accelhost.repl.modules"
local pager = require "accelhost.repl.pager"
local show = require "accelhost.repl.show"

local commands = {}

local function flag(word)
  if word == "on" or word == "" then return true end
  if word == "off" then return false end
  return nil
end

-- Rows {usage, help, function}; the function receives the evaluation and the rest of the line, and returns false if it
-- failed.
local table_of = {}

table_of.time = {"%time CHUNK", "runs a chunk and prints its duration", function(e, rest)
  local cpu = os.clock()
  local fine = e:run(rest)
  e.write(("%.3f ms, %.3f ms of processor time\n"):format(1000 * (e.seconds or 0), 1000 * (os.clock() - cpu)))
  return fine
end}

table_of.profile = {"%profile CHUNK", "runs a chunk and prints the times of its ops", function(e, rest)
  local prof = require("accelhost").profiler.profile()
  prof:start()
  local fine = e:run(rest)
  prof:stop()
  e.write(prof:key_averages():table {row_limit = 20} .. "\n")
  return fine
end}

table_of.restart = {"%restart", "forgets all variables and modules of yours", function(e)
  e:reset()
  e.write "all variables are forgotten\n"
  return true
end}

local MOST_PROCESSES = 256

table_of.procs = {"%procs N", "has later lines run in N new processes; 1: in this one", function(e, rest)
  local count = tonumber(rest)
  if not count or count % 1 ~= 0 or count < 1 or count > MOST_PROCESSES then
    e:complain(("%%procs: expected a number of processes from 1 to %d, got '%s'"):format(MOST_PROCESSES, rest))
    return false
  end
  if not e.switch then
    e:complain "%procs: lines run in one process of several already"
    return false
  end
  e.switch(count)
  e.write(("later lines run in %s, without the variables until now\n"):format(count == 1 and "this process"
    or ("%d processes"):format(count)))
  return true
end}

table_of.who = {"%who", "lists the locals and globals that were made here", function(e)
  local rows = {}
  for name in next, e.living do rows[#rows + 1] = {name, e:value(name)} end
  for name, value in next, _G do
    if type(name) == "string" and not e.known[name] and not e.living[name] then
      rows[#rows + 1] = {name, value, "global "}
    end
  end
  table.sort(rows, function(a, b) return a[1] < b[1] end)
  for _, row in ipairs(rows) do
    local text = C.is_tensor(row[2])
      and ("tensor (%s) %s"):format(table.concat(row[2]:shape(), ", "), row[2].dtype) or show(row[2], 1000)
    local first = text:match "^[^\n]*"
    if first ~= text or #first > 60 then first = first:sub(1, 60):gsub("%s+$", "") .. " ..." end
    e.write(("%s%-12s %s\n"):format(row[3] or "", row[1], first))
  end
  return true
end}

table_of.globals = {"%globals [on|off]", "reports each new global, of modules too", function(e, rest)
  local on = flag(rest)
  if on == nil then
    e:complain(("%%globals: expected on or off, got '%s'"):format(rest))
    return false
  end
  local meta = debug.getmetatable(_G) or {}
  if meta.__newindex and not e.watches then
    e:complain "%globals: another one watches them already"
    return false
  end
  meta.__newindex = on and function(globals, name, value)
    e.write(("%s: makes the global '%s'\n"):format(C.system.call_site(), tostring(name)))
    rawset(globals, name, value)
  end or nil
  e.watches = on
  debug.setmetatable(_G, meta)
  return true
end}

table_of.run = {"%run FILE [ARGUMENTS]", "runs a script and keeps its locals", function(e, rest)
  local words = {}
  for word in rest:gmatch "%S+" do words[#words + 1] = word end
  if not words[1] then
    e:complain "%run: expected a file"
    return false
  end
  return e:run_file(unpack(words))
end}

table_of.reload = {"%reload [MODULE]", "loads changed modules again: one, or all that lines or scripts have required",
  function(e, rest)
    local list = {}
    for _, name in ipairs(modules.loaded()) do
      if rest == "" or name == rest then list[#list + 1] = name end
    end
    if rest ~= "" and #list == 0 then
      e:complain(("%%reload: no module '%s' of yours is loaded"):format(rest))
      return false
    end
    for _, name in ipairs(list) do
      local fine, message = modules.reload(name)
      if not fine then
        e:complain(("%%reload: '%s' stays as it was: %s"):format(name, message))
        return false
      end
    end
    e.write(#list > 0 and "reloaded " .. table.concat(list, ", ") .. "\n" or "nothing to reload\n")
    return true
  end}

table_of.autoreload = {"%autoreload [on|off]", "loads modules again whose files have changed, before each line",
  function(e, rest)
    local on = flag(rest == "2" and "on" or rest == "0" and "off" or rest)
    if on == nil then
      e:complain(("%%autoreload: expected on or off, got '%s'"):format(rest))
      return false
    end
    e.watched = on and {} or nil
    if on then modules.record(e.watched) end
    return true
  end}

local order = {"time", "profile", "who", "run", "reload", "autoreload", "globals", "restart", "procs"}

--- Their names, sorted.
function commands.names()
  local list = {unpack(order)}
  table.sort(list)
  return list
end

local usage = [[
A line runs once it is complete; an open block or bracket continues on the next line. The last expression of a line
prints its value, unless a ';' follows it. Locals persist in later lines; a new one of the same name hides the old one.
_, __ and ___ are the last three results. Predefined names: accelhost, nn, F, optim, data, accelerator, and the
functions that make tensors (randn, zeros, ...).]]

local function show_usage(e)
  local rows = {
    {"? NAME, NAME ?", "describes a name: of the library, or by the comment above your function"},
    {"?? NAME", "its source"},
  }
  for _, name in ipairs(order) do rows[#rows + 1] = {table_of[name][1], table_of[name][2]} end
  rows[#rows + 1] = {"$ PROGRAM", "runs a line in the shell"}
  rows[#rows + 1] = {"Tab", "completes names, fields, methods, options and files"}
  rows[#rows + 1] = {"Ctrl-C", "clears a line, ends running code"}
  rows[#rows + 1] = {"Ctrl-D, exit", "ends the prompt"}
  local width = e.columns()
  local page = Page(width)
  page:wrap(usage, 0)
  page:line()
  for _, row in ipairs(rows) do page:wrap(row[2], 27, "  " .. row[1] .. " ") end
  e.write(table.concat(page.lines, "\n") .. "\n")
  return true
end

-- On a terminal a program has it for itself; captured output is shown as it is written.
local function run_program(e, line)
  if e.terminal or e.captured then
    io.stdout:flush()
    return os.execute(line) == 0
  end
  local pipe = assert(io.popen("( " .. line .. "\n) 2>&1; echo \" $?\""))
  local text = pipe:read "*a"
  pipe:close()
  local output, code = text:match "^(.*) (%d+)\n$"
  e.write(output or text)
  return code == "0"
end

local function run_command(e, name, rest)
  local found = table_of[name]
  if not found then
    local near = C.system.nearest(name, order)
    e:complain(("there is no %%%s%s"):format(name, near and (" (did you mean '%%%s'?)"):format(near)
      or "; ? lists all"))
    return false
  end
  return found[3](e, rest)
end

-- Names of these commands in other prompts.
local plain = {
  help = function(e, rest) return rest == "" and show_usage(e) or rest ~= "" and describe.name(e, rest) end,
  clear = function(e)
    if e.clear then e:clear() elseif e.terminal then e.write "\27[H\27[2J" end
    return true
  end,
}

-- A word of `plain` and its argument; nil where a variable has the name.
local function plain_word(e, text)
  local name, rest = text:match "^%s*(%a+)%s*%(?%s*[\"']?([%w_%.:]*)[\"']?%s*%)?%s*$"
  if not plain[name] or e.living[name] or rawget(_G, name) ~= nil then return nil end
  return name, rest
end

--- Is the text a word that other prompts know (help, help(NAME), clear), and nothing of the user's?
---@param e Evaluate
function commands.is_plain(e, text) return plain_word(e, text) ~= nil end

--- Run one.
---@param e Evaluate
---@return boolean
function commands.run(e, text)
  text = text:match "^%s*(.-)%s*$"
  local word, about = plain_word(e, text)
  if word then return pager(e, plain[word], e, about) end
  local program = text:match "^%$%s*(.*)$"
  if program then return run_program(e, program) end
  local name, rest = text:match "^%%([%w_]*)%s*(.*)$"
  if name then return run_command(e, name, rest) end
  local marks, wanted = text:match "^(%?+)%s*(.*)$"
  if not marks then wanted, marks = text:match "^(.-)%s*(%?+)$" end
  if wanted == "" then return pager(e, show_usage, e) end
  return pager(e, #marks > 1 and describe.source or describe.name, e, wanted)
end

return commands
