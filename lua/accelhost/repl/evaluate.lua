--- Running the text that was typed at a prompt, a chunk at a time.
--
--   local e = require("accelhost.repl.evaluate").new{write = io.write}
--   e:run "local x = 1"
--   e:run "x + 1"                              -- writes 2
--
-- An expression shows its values, but not behind a last ';'. Locals live on (repl/locals.lua). An error is shown and
-- leaves gradient mode, autocast and default device as they were before the chunk.
local C = require "accelhost._C"
local class = require "accelhost.util.class"
local locals = require "accelhost.repl.locals"
local lexer = require "accelhost.repl.lexer"
local names = require "accelhost.repl.names"
local place = require "accelhost.util.hints.place"
local screen = require "accelhost.util.screen"
local show = require "accelhost.repl.show"

---@field number integer of the next chunk
---@field living table<string, table> its locals (repl/locals.lua)
---@field environment table the globals that chunks see
---@field terminal boolean? processes that a chunk starts write to the terminal of this one
---@field captured boolean? the output of such processes reaches the reader as `write` does
---@field rows (fun(): integer)? of the terminal; descriptions that have more lines are shown by a pager
---@field watches boolean? new globals are reported (%globals)
---@field watched table<string, string>? contents of modules that are loaded again when they change (%autoreload)
---@field seconds number? duration of the last chunk
---@field slow number seconds from which the duration of a chunk is printed
---@field switch (fun(processes: integer))? have later texts run in that many processes (%procs)
---@field clear (fun(e: Evaluate))? remove the output that is shown, where that is not a terminal's
---@field known table<string, boolean> globals that were there at the begin
local Evaluate = class.new "Evaluate"

local SLOW = 1 -- seconds from which the duration of a chunk is printed

-- The last three results that were shown: _, __ and ___.
local kept = {_ = 1, __ = 2, ___ = 3}

-- Globals are the program's; an undefined name is searched for among the results and the predefined names.
local function environment_of(self)
  return setmetatable({}, {
    __index = function(_, name)
      local value = rawget(_G, name)
      if value ~= nil then return value end
      if kept[name] then return self._results[kept[name]] end
      value = names.find(name)
      if value ~= nil then return value end
      return _G[name] -- which has words of other languages explained
    end,
    __newindex = _G,
  })
end

-- Live locals and predefined names, for advice after errors.
local function known_names(self)
  local known = {}
  for name in next, self.living do known[name] = true end
  for _, name in ipairs(names.all()) do known[name] = true end
  return known
end

--- Options: write(text) prints output; columns() and rows() return the terminal's size; color: use colors; slow:
--- seconds from which the duration of a chunk is printed; captured: as the field.
---@param options {write: (fun(text: string)), columns: (fun(): integer)?, rows: (fun(): integer)?, color: boolean?,
--- terminal: boolean?, slow: number?, captured: boolean?}
function Evaluate:init(options)
  self.write, self.columns, self.color = options.write, options.columns or function() return 80 end, options.color
  self.number, self.living, self._results, self.terminal, self.known = 1, {}, {}, options.terminal, {}
  self.slow, self.rows, self.captured = options.slow or SLOW, options.rows, options.captured
  for name in next, _G do self.known[name] = true end
  self._loaded = {}
  for name in next, package.loaded do self._loaded[name] = true end
  debug.getregistry()["accelhost.names"] = function() return known_names(self) end
  self.environment = environment_of(self)
end

-- "= x" is "x", as in Lua's own prompt.
local function without_sign(text)
  return (text:gsub("^%s*=", "", 1))
end

local function first_word(text)
  for kind, word in lexer.words(text) do
    if kind ~= "comment" then return word, kind end
  end
end

local reserved = {["nil"] = true, ["true"] = true, ["false"] = true}
local deeper = {["function"] = 1, ["do"] = 1, ["if"] = 1, ["repeat"] = 1, ["("] = 1, ["{"] = 1, ["["] = 1,
  ["end"] = -1, ["until"] = -1, [")"] = -1, ["}"] = -1, ["]"] = -1}

-- Can a word begin a new expression after a statement? A word that could also continue the statement (a bracket, a
-- string, an operator) does so in Lua.
local function begins_apart(words, i)
  local kind, before = words[i].kind, words[i - 1].word
  return before == ";" or before ~= "return" and (kind == "name" or kind == "keyword" or kind == "number")
end

-- Return the place where the expressions at the end of a text of statements begin; nil without them.
local function last_values(text)
  local words, depth, outside = lexer.list(text), 0, {}
  for i, word in ipairs(words) do
    if depth == 0 and i > 1 and begins_apart(words, i) then outside[#outside + 1] = word.from end
    depth = depth + (word.kind ~= "string" and deeper[word.word] or 0)
  end
  for i = #outside, 1, -1 do
    local at = outside[i]
    if loadstring(text:sub(1, at - 1)) and loadstring("return " .. text:sub(at)) then return at end
  end
end

-- Return how LuaJIT can read the text: "value" as expressions, "block" as statements, "mixed" as statements and
-- expressions, "called" if those are a call, which is a statement too; and the place where the expressions begin. Else
-- nil and both messages.
local function read(text, source)
  local chunk, first = loadstring("return " .. text, source)
  local word = first_word(text)
  if chunk and word and word ~= ";" then return "value", 1 end
  local block, second = loadstring(text, source)
  local values = last_values(text)
  if values then return block and "called" or "mixed", values end
  if block then return "block" end
  return nil, first, second
end

-- ? name, name ?, %word and $ program are no Lua (repl/commands.lua).
local function is_command(text)
  return text:find "^%s*[%?%$%%]" ~= nil or text:find "^%s*[%a_][%w_%.:]*%s*%?%??%s*$" ~= nil
end

-- Does a message ask for more text? Only a name needs a '=' there, only a method its arguments, and the text is not
-- meant to continue with them.
local function is_open(message)
  return message ~= nil and message:find "near '<eof>'$" ~= nil and not message:find("'=' expected", 1, true)
    and not message:find("function arguments expected", 1, true)
end

--- Return the state of a text: "complete", "incomplete" while a block, a bracket or a text is not closed, or "invalid".
---@return "complete"|"incomplete"|"invalid"
function Evaluate:state_of(text)
  local command, chunk = text:match "^%s*%%(%a+)%s(.*)$"
  if command == "time" or command == "profile" then return self:state_of(chunk) end
  if is_command(text) then return "complete" end
  -- Comments belong to the code below them; an empty line ends them.
  if not first_word(text) then
    return (not text:find "%S" or text:find "\n%s*$") and "complete" or "incomplete"
  end
  local found, first, second = read(without_sign(text) .. "\n", "=text")
  if found then return "complete" end
  return (is_open(first) or is_open(second)) and "incomplete" or "invalid"
end

--- Is the text complete, so that it can be run or refused?
function Evaluate:is_complete(text)
  return self:state_of(text) ~= "incomplete"
end

--- Does an empty line end an incomplete text? It does where no block, bracket or long string is open: after `x =`,
--- `1 +` or `for i = 1, 3`.
function Evaluate:ends_when_empty(text)
  local depth = 0
  for kind, word in lexer.words(without_sign(text:gsub("^%s*%%time%s", "", 1))) do
    if kind == "open" then return false end
    depth = depth + (kind ~= "string" and deeper[word] or 0)
  end
  return depth <= 0
end

-- A line that is no Lua at all is refused as the expression that it was meant to be, unless it begins as a statement.
local function refusal(text, first, second)
  local _, kind = first_word(text)
  if kind == "keyword" and not text:find "^%s*function%s*%(" and not text:find "^%s*not" then return second end
  return second:find "'=' expected near" and first or second
end

local function color(self, code, text)
  return self.color and ("\27[%sm%s\27[0m"):format(code, text) or text
end

--- Show an error's text.
function Evaluate:complain(text)
  local first, rest = text:match "^([^\n]*)(.*)$"
  self.write(color(self, "31", first) .. rest .. "\n")
end

-- Capture the state that an error must not leave changed.
local function remember()
  local grad, device, dtype = C.autograd.is_grad_enabled(), C.device.get_default_device(), C.dtype.get_default_dtype()
  local autocast = C.autocast.capture()
  return function()
    C.autograd.set_grad_enabled(grad)
    C.device.set_default_device(device)
    C.dtype.set_default_dtype(dtype)
    C.autocast.restore(autocast)
    screen.leave()
  end
end

-- The chunk's own frame is its main one; a chunk that failed by itself needs no traceback.
local function own_part(text)
  text = text:gsub("(\n  [^\n]*:%d+: in )function$", "%1main chunk")
  local message, position = text:match "^(.-)\n  ([^\n]*): in main chunk$"
  if message and not message:find "\n  [^\n]*: in " and message:sub(1, #position) == position then
    return (message:gsub("\n  %(%d+ library frames?%)$", ""))
  end
  return text
end

local function keep_result(self, value)
  local results = self._results
  results[1], results[2], results[3] = value, results[1], results[2]
end

--- Show the values of a chunk. A front end that shows them otherwise has its own method.
function Evaluate:show_values(count, ...)
  local parts = {}
  for i = 1, count do parts[i] = show((select(i, ...)), self.columns()) end
  local text = table.concat(parts, "\t")
  if text:find "\n" then text = table.concat(parts, "\n") end
  self.write(text .. "\n")
end

local function ends_quietly(text)
  local last
  for kind, word in lexer.words(text) do
    if kind ~= "comment" then last = word end
  end
  return last == ";"
end

-- Advice on a name alone: an undefined one near another, or a method that is not called.
local function remark(self, text, value)
  local name = text:match "^%s*([%a_][%w_]*)%s*$"
  if name and value == nil and not self.living[name] and not kept[name] and not reserved[name] then
    local known = {}
    for other in next, known_names(self) do known[#known + 1] = other end
    for other in next, _G do
      if type(other) == "string" and not self.known[other] then known[#known + 1] = other end
    end
    table.sort(known)
    local near = C.system.nearest(name, known)
    return near and ("did you mean '%s'?"):format(near)
  end
  local path, method = text:match "^%s*([%a_][%w_%.]*)%.([%a_][%w_]*)%s*$"
  if path and type(value) == "function" and rawget(C.methods, method) == value then
    return ("a method: %s:%s() calls it"):format(path, method)
  end
end

-- The result of a call: true and values, or false, the error's text and "interrupted".
local function finish(self, job, fine, ...)
  local seconds = C.system.now() - job.began
  self.seconds = seconds
  if not fine then
    local text, why = ...
    job.restore()
    text = own_part(text)
    -- A coroutine prefixes the position again, a wait appends its purpose.
    if why and self.terminal then self.write "\n" end -- behind the terminal's ^C
    local interrupted = why and text:match "^(.-): interrupted"
    if interrupted then
      text = "interrupted at " .. (interrupted:match "^%S+:%d+" or interrupted) .. text:sub(#interrupted + 14)
    end
    self:complain(text)
  elseif select("#", ...) > 0 and not job.quiet and not (job.kind == "called" and (...) == nil) then
    keep_result(self, (...))
    local shown, message = C.interrupt.call(self.show_values, self, select("#", ...), ...)
    if not shown then self:complain(own_part(message)) end
    local advice = shown and remark(self, job.text, (...))
    if advice then self.write(color(self, "2", "(" .. advice .. ")") .. "\n") end
  end
  if seconds >= self.slow then self.write(color(self, "2", ("(%.1f s)"):format(seconds)) .. "\n") end
  return fine
end

-- Load changed modules again (%autoreload), and report it.
local function reload_changed(self)
  local reloaded, failed = require("accelhost.repl.modules").reload_changed(self.watched)
  if #reloaded > 0 then self.write(color(self, "2", ("(reloaded %s)"):format(table.concat(reloaded, ", "))) .. "\n") end
  for _, one in ipairs(failed) do
    self:complain(("%%autoreload: '%s' stays as it was: %s"):format(one[1], one[2]))
  end
end

-- Run a text that LuaJIT can read.
local function run(self, text, kind, values, source, environment, quiet, ...)
  place.sources()[source] = text
  local chunk, message = locals.load(text, values, source, self.living)
  if not chunk then
    self:complain(message)
    return false
  end
  setfenv(chunk, environment)
  if self.watched then reload_changed(self) end
  local job = {quiet = quiet, restore = remember(), began = C.system.now(), kind = kind, text = text}
  local fine = finish(self, job, C.interrupt.call(chunk, ...))
  if self.watched then require("accelhost.repl.modules").record(self.watched) end
  return fine
end

--- Run a chunk or a command, print its results or its error.
---@return boolean # did it run to its end?
function Evaluate:run(text)
  if is_command(text) or text:find "^%s*help" or text:find "^%s*clear" then
    local commands = require "accelhost.repl.commands"
    if is_command(text) or commands.is_plain(self, text) then return commands.run(self, text) end
  end
  local source = ("=[%d]"):format(self.number)
  self.number = self.number + 1
  text = without_sign(text)
  local kind, first, second = read(text, source)
  if not kind then
    local hints = require "accelhost.util.hints"
    place.sources()[source] = text
    self:complain(hints.add(refusal(text, first, second)))
    return false
  end
  return run(self, text, kind, first, source, self.environment, ends_quietly(text))
end

--- Run a script with the globals that it would have alone; its top-level locals stay, after an error too.
---@param ... string its arguments
---@return boolean
function Evaluate:run_file(path, ...)
  local file, message = io.open(path, "rb")
  local text = file and file:read "*a"
  if file then file:close() end
  if not text then
    self:complain(message or ("cannot read '%s'"):format(path))
    return false
  end
  text = text:gsub("^#[^\n]*", "", 1)
  local chunk, problem = loadstring(text, "@" .. path)
  if not chunk then
    self:complain(require("accelhost.util.hints").add(problem))
    return false
  end
  return run(self, text, "block", nil, "@" .. path, _G, true, ...)
end

--- Forget all variables and results, and the modules that were loaded here, so that `require` reads them again.
function Evaluate:reset()
  self.living, self._results = {}, {}
  for name in next, _G do
    if not self.known[name] then rawset(_G, name, nil) end
  end
  for name in next, package.loaded do
    if not self._loaded[name] and not name:find "^accelhost" then package.loaded[name] = nil end
  end
  collectgarbage()
end

--- The value of a name at the prompt: a live local, a global or a predefined name.
function Evaluate:value(name)
  if self.living[name] then return locals.value(self.living, name) end
  return self.environment[name]
end

return {
  --- Make one.
  ---@param options table as for Evaluate
  ---@return Evaluate
  new = function(options) return Evaluate(options) end,
}
