--- A prompt whose lines run in several processes at once: the counterpart of repl/evaluate.lua.
--
-- The prompt reads a line, each process runs it (member.lua). Output is printed as it arrives, equal output of all
-- ranks once, as by `launch`; then, when all have completed, the results, once when they are equal everywhere. After a
-- line that failed on some ranks, or in which their collectives differed, groups are recreated before the next line.
local C = require "accelhost._C"
local class = require "accelhost.util.class"
local evaluate = require "accelhost.repl.evaluate"
local pager = require "accelhost.repl.pager"
local protect = require "accelhost.util.protect"
local framing = require "accelhost.launcher.framing"

---@field number integer of the next line
---@field ranks integer[] which run it
local Cluster = class.new "Cluster"

local SLOW = 1 -- seconds from which the duration of a line is printed
local MEMBER = 'require "accelhost.repl.member"()'

local function all_ranks(size)
  local list = {}
  for rank = 0, size - 1 do list[#list + 1] = rank end
  return list
end

local function notify(self, text) self.write(text .. "\n") end

-- Speaking and hearing.

-- A rank that has died receives nothing; its exit is reported where its answer is awaited.
local function send(self, rank, order)
  framing.send(function(message) pcall(self.job.send, self.job, rank, message) end, order)
end

-- Wait until every one of `ranks` has answered with `kind`: their answers by rank, nil when the processes have ended.
local function await(self, ranks, kind)
  local answers, missing = {}, #ranks
  while missing > 0 do
    for _, event in ipairs(C.job.wait {self.job}) do
      if event.kind == "signal" then
        if self.terminal then self.write "\n" end -- behind the terminal's ^C
        self.job:interrupt()
      elseif event.kind == "notice" then io.stderr:write(event.text)
      elseif event.kind == "ended" then return nil
      elseif event.kind == "message" then
        local whole, data = self.receivers[event.rank](event.text)
        if whole and data.kind == kind then
          answers[event.rank], missing = data, missing - 1
        end
      end
    end
  end
  return answers
end

-- Ctrl-C is for the processes while they work.
local function awaited(self, ranks, kind)
  C.job.watch_signals "INT"
  return protect(function() C.job.watch_signals() end, await, self, ranks, kind)
end

-- The processes.

local function lose(self)
  self.job:settle()
  if self.job:exit_code() == 0 then -- os.exit() was typed
    self.job:close()
    os.exit(0)
  end
  local report = self.job:report()
  io.stdout:flush()
  io.stderr:write(report)
  self.job:close()
  self.job = nil
  notify(self, "the processes have ended, and with them their variables; %restart starts new ones")
  return false
end

local function start(self)
  local compiler = jit.status() and "--jit=on" or "--jit=off"
  self.job = C.job.start {
    num_processes = self.size, argv = {"run", compiler, "-e", MEMBER}, show = true, collapse = "all",
    name = "accelhost repl", grace = 5,
  }
  self.receivers, self.ranks = {}, all_ranks(self.size)
  for rank = 0, self.size - 1 do self.receivers[rank] = framing.receiver() end
  send(self, nil, {path = package.path, columns = self.columns(), color = self.color, arg = rawget(_G, "arg")})
  return awaited(self, self.ranks, "ready") ~= nil or lose(self)
end

--- Options as for evaluate.new, and num_processes.
---@param options {write: (fun(text: string)), columns: (fun(): integer)?, rows: (fun(): integer)?, color: boolean?,
--- terminal: boolean?, num_processes: integer}
function Cluster:init(options)
  self.write, self.columns, self.color = options.write, options.columns or function() return 80 end, options.color
  self.terminal, self.rows = options.terminal, options.rows
  self.size, self.number, self.line = options.num_processes, 1, 0
  self.here = evaluate.new(options)
  start(self)
end

--- Is the text complete, so that it can be run?
function Cluster:is_complete(text)
  if text:find "^%s*%%ranks?%s" then
    local rest = text:match "^%s*%%ranks?%s+[%d,%-%s]*(.*)$"
    return rest == "" or self.here:is_complete(rest)
  end
  return self.here:is_complete(text)
end

--- Does an empty line end an incomplete text?
function Cluster:ends_when_empty(text)
  return self.here:ends_when_empty((text:gsub("^%s*%%ranks?%s+[%d,%-]+%s*", "")))
end

-- "[r0,r2-r3] "
local function prefix(ranks)
  local parts, at = {}, 1
  while at <= #ranks do
    local last = at
    while ranks[last + 1] == ranks[last] + 1 do last = last + 1 end
    parts[#parts + 1] = last > at and ("r%d-r%d"):format(ranks[at], ranks[last]) or ("r%d"):format(ranks[at])
    at = last + 1
  end
  return ("[%s] "):format(table.concat(parts, ","))
end

-- Show the output of the ranks: bare when it is the same everywhere, else after the ranks that wrote it.
local function show(self, ranks, answers)
  local groups, order = {}, {}
  for _, rank in ipairs(ranks) do
    local text = answers[rank].shown
    if not groups[text] then
      groups[text] = {}
      order[#order + 1] = text
    end
    table.insert(groups[text], rank)
  end
  for _, text in ipairs(order) do
    local mark = prefix(groups[text])
    self.write(#order == 1 and text or (text:gsub("[^\n]+", function(line) return mark .. line end)))
  end
end

-- Have the ranks made different numbers of collectives? The last counts of each are compared, since a rank that skips a
-- line makes no calls.
local function have_diverged(self, answers)
  local seen = {}
  for rank, answer in pairs(answers) do self.calls[rank] = answer.failed and {} or answer.calls end
  for _, answer in pairs(answers) do
    if answer.failed then return true end
  end
  for _, calls in pairs(self.calls) do
    for group, count in pairs(calls) do
      if seen[group] and seen[group] ~= count then return true end
      seen[group] = count
    end
  end
  return false
end

local function renew(self)
  self.calls = {}
  send(self, nil, {kind = "renew"})
  return awaited(self, all_ranks(self.size), "renewed") ~= nil or lose(self)
end

-- Have some ranks run a line while the others pass it.
local function run_on(self, ranks, order)
  if not self.job then
    notify(self, "there are no processes; %restart starts new ones")
    return false
  end
  local taking = {}
  self.line, self.calls = self.line + 1, self.calls or {}
  order.line, order.columns = self.line, self.columns()
  for _, rank in ipairs(ranks) do taking[rank] = true end
  for rank = 0, self.size - 1 do send(self, rank, taking[rank] and order or {kind = "skip", line = self.line}) end
  local began = C.system.now()
  local answers = awaited(self, ranks, "done")
  if not answers then return lose(self) end
  self.job:settle()
  show(self, ranks, answers)
  local seconds = C.system.now() - began
  if seconds >= SLOW then notify(self, ("(%.1f s)"):format(seconds)) end
  if have_diverged(self, answers) and not renew(self) then return false end
  for _, answer in pairs(answers) do
    if not answer.fine then return false end
  end
  return true
end

-- Commands of this prompt.

-- "0,2-3" -> {0, 2, 3}; nil and why not.
local function read_ranks(self, text)
  local list, seen = {}, {}
  if text:find "^%s*all%s*$" then return all_ranks(self.size) end
  for part in text:gmatch "[^,%s]+" do
    local first, last = part:match "^(%d+)%-?(%d*)$"
    first, last = tonumber(first), tonumber(last) or tonumber(first)
    if not first or first > last or last >= self.size then
      return nil, ("expected ranks from 0 to %d, such as 0,2 or 1-3 or all, got '%s'"):format(self.size - 1, part)
    end
    for rank = first, last do
      if not seen[rank] then list[#list + 1] = rank end
      seen[rank] = true
    end
  end
  table.sort(list)
  if #list == 0 then return nil, "expected ranks, such as 0,2 or all" end
  return list
end

local usage = [[
  %rank R LINE             runs a line in rank R alone
  %ranks LIST [LINE]       runs it, or all that follow, in some ranks: 0,2 or 1-3 or all
  %restart                 ends the processes and starts new ones, without variables
]]

local function run_text(self, ranks, text)
  local number = self.number
  self.number = number + 1
  return run_on(self, ranks, {kind = "run", number = number, text = text})
end

local function choose(self, text, once)
  local list, rest = text:match "^%s*([%d,%-]+)%s*(.*)$"
  if not list then list, rest = text:match "^%s*(all)%s*(.*)$" end
  local ranks, why = read_ranks(self, list or text)
  if not ranks then
    notify(self, why)
    return false
  end
  if rest ~= "" then return run_text(self, ranks, rest) end
  if once then
    notify(self, "%rank: expected a statement after the rank")
    return false
  end
  self.ranks = ranks
  notify(self, #ranks == self.size and "lines run on all ranks" or "lines run on " .. prefix(ranks):sub(1, -2)
    .. "; %ranks all makes it all again")
  return true
end

local commands = {
  rank = function(self, text) return choose(self, text, true) end,
  ranks = function(self, text) return choose(self, text, false) end,
  restart = function(self)
    if self.job then self.job:close() end
    self.calls = {}
    if not start(self) then return false end
    notify(self, ("%d new processes"):format(self.size))
    return true
  end,
}

--- Run a line on the selected ranks and print its results.
---@return boolean # did it run to its end everywhere?
function Cluster:run(text)
  local name, rest = text:match "^%s*%%(%a+)%s*(.*)$"
  if commands[name] then return commands[name](self, rest) end
  if name == "procs" then return self.here:run(text) end
  if text:find "^%s*%$" then return self.here:run(text) end
  if not text:find "^%s*%?" and not text:find "%?%s*$" then return run_text(self, self.ranks, text) end
  return pager(self, function()
    local fine = run_text(self, self.ranks, text)
    if text:find "^%s*%?%s*$" then self.write(usage) end
    return fine
  end)
end

--- Run a script in all processes; its top-level locals live on there.
---@param ... string its arguments
---@return boolean
function Cluster:run_file(path, ...)
  return run_on(self, self.ranks, {kind = "file", path = path, arguments = {...}})
end

--- Return the text to insert at the cursor, and the list to show when that is empty, as rank 0 completes it.
---@return string insert
---@return string? list
function Cluster:complete(before)
  local command = before:match "^%s*%%(%a*)$"
  if command then
    local fitting = {}
    for name in pairs(commands) do
      if name:sub(1, #command) == command then fitting[#fitting + 1] = name end
    end
    if #fitting == 1 then return fitting[1]:sub(#command + 1) .. " " end
  end
  if not self.job then return "" end
  send(self, 0, {kind = "complete", before = (before:gsub("^%s*%%ranks?%s+[%d,%-]+%s*", ""))})
  local answers = awaited(self, {0}, "completed")
  if not answers then
    lose(self)
    return ""
  end
  return answers[0].insert, answers[0].list
end

--- Return all possible completions of the text's last piece, and that piece, as rank 0 completes it.
---@return string[] choices
---@return string prefix
function Cluster:choices(before)
  if not self.job then return {}, "" end
  send(self, 0, {kind = "choices", before = before})
  local answers = awaited(self, {0}, "choices")
  if answers then return answers[0].list, answers[0].prefix end
  lose(self)
  return {}, ""
end

--- Show an error's text.
function Cluster:complain(text) self.here:complain(text) end

--- End the processes.
function Cluster:close()
  if not self.job then return end
  pcall(send, self, nil, {kind = "end"})
  local job = self.job
  self.job = nil
  repeat C.job.wait({job}, 1) until job:exit_code()
  job:settle()
  job:close()
end

return {
  --- Make one.
  ---@param options table as for Cluster
  ---@return Cluster
  new = function(options) return Cluster(options) end,
}
