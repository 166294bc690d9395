--- Requests of the shell channel: each function receives the kernel and the request's content.
local C = require "accelhost._C"
local cell = require "accelhost.repl.cell"
local display = require "accelhost.display"
local complete = require "accelhost.repl.complete"
local history = require "accelhost.jupyter.history"
local json = require "accelhost.util.json"
local lexer = require "accelhost.repl.lexer"
local locals = require "accelhost.repl.locals"
local mime = require "accelhost.jupyter.mime"
local text = require "accelhost.jupyter.text"

local requests = {}

local function text_of(value) return type(value) == "string" and value or "" end

--- Describe the kernel.
function requests.kernel_info_request(self) self:reply(self.info) end

-- The engine of this process, also where cells run in several.
local function here(self) return self.engine.here or self.engine end

-- The values of the expressions that a client asked for with its cell.
local function expressions_of(self, wanted)
  local found, engine = {}, here(self)
  for name, expression in pairs(type(wanted) == "table" and wanted or {}) do
    local chunk, problem = nil, "expected a text"
    if type(expression) == "string" then
      chunk, problem = loadstring("return " .. expression)
      if chunk then chunk, problem = locals.load(expression, 1, "=expression", engine.living) end
    end
    local fine, value = false, problem
    if chunk then fine, value = pcall(setfenv(chunk, engine.environment)) end
    found[name] = fine and {status = "ok", data = mime.bundle(value), metadata = {}}
      or {status = "error", ename = "Error", evalue = text.utf8(tostring(value)), traceback = json.array {}}
  end
  return found
end

-- Cells that were sent before a failed one has been replied to: they do not run.
local function later_cells(self)
  local cells = {}
  local request = C.jupyter.wait("shell", 0)
  while request do
    table.insert(request.type == "execute_request" and cells or self.pending, request)
    request = C.jupyter.wait("shell", 0)
  end
  return cells
end

local function abort(self, cells)
  local current = self.request
  for _, request in ipairs(cells) do
    self.request = request
    self:publish("status", {execution_state = "busy"})
    self:reply {status = "aborted"}
    self:publish("status", {execution_state = "idle"})
  end
  self.request = current
end

--- Run a cell.
function requests.execute_request(self, content)
  local code = text_of(content.code)
  self.silent, self.failure = content.silent == true, nil
  self.stdin = content.allow_stdin ~= false
  local stored = content.store_history ~= false and not self.silent
  C.jupyter.begin(self.request.header, self.engine.size ~= nil)
  if stored then self.count = self.count + 1 end
  if not self.silent then self:publish("execute_input", {code = code, execution_count = self.count}) end
  if stored and code:find "%S" then history.add(self.history, self.count, code) end
  local fine = cell.run(self.engine, code, self.count)
  if not fine and self.engine.size and not self.failure then self:complain "the cell failed in some processes" end
  for object in pairs(display.pending) do pcall(object.show, object) end
  local expressions = expressions_of(self, content.user_expressions)
  local failure = self.failure
  local aborted = failure and content.stop_on_error ~= false and later_cells(self) or {}
  if fine or not failure then
    self:reply {status = "ok", execution_count = self.count, user_expressions = expressions,
      payload = json.array {}}
  else
    self:reply {status = "error", execution_count = self.count, ename = failure.ename, evalue = failure.evalue,
      traceback = failure.traceback}
  end
  abort(self, aborted)
end

-- The kinds of choices, as front ends show them.
local function kind_of(self, before, prefix, choice)
  if choice:find "^%%" or before:find "^%s*%%%a*$" then return "magic" end
  if choice:find " = $" then return "param" end
  if lexer.list(choice)[1] and lexer.list(choice)[1].kind == "keyword" then return "keyword" end
  if choice:find "/" then return "path" end
  local path = before:sub(1, #before - #prefix):match "[%w_%.:%[%]\"']*$" or ""
  local value = complete.value(here(self), path .. choice)
  if type(value) == "function" then return "function" end
  if type(value) == "table" and rawget(value, "_class") == value then return "class" end
  local meta = type(value) == "table" and debug.getmetatable(value)
  if type(meta) == "table" and rawget(meta, "names") then return "module" end
  return value == nil and "property" or "instance"
end

--- Complete a name.
function requests.complete_request(self, content)
  local code = text.utf8(text_of(content.code))
  local position = tonumber(content.cursor_pos) or text.length(code)
  local before = code:sub(1, text.bytes_before(code, position))
  local last = before:match "[^\n]*$"
  local seen = last:find "^%s*[%%%$%?]" and last or before
  local choices, prefix
  if self.engine.size then choices, prefix = self.engine:choices(seen)
  else choices, prefix = complete.choices(self.engine, seen) end
  local matches, types = json.array {}, json.array {}
  local first = text.length(before) - text.length(prefix)
  for i, choice in ipairs(choices) do
    matches[i] = text.utf8(choice)
    types[i] = {start = first, ["end"] = first + text.length(prefix), text = matches[i],
      type = kind_of(self, seen, prefix, choice)}
  end
  self:reply {status = "ok", matches = matches, cursor_start = first, cursor_end = first + text.length(prefix),
    metadata = {_jupyter_types_experimental = types}}
end

-- The name at a place, or the one of the call around it.
local function name_at(code, at)
  local head = code:sub(1, at):match "[%w_%.:]*$"
  local name = head .. code:sub(at + 1):match "^[%w_]*"
  if name:find "%a" then return name:match "^[%.:]*(.-)[%.:]*$" end
  return code:sub(1, at):match "([%a_][%w_%.:]*)%s*[%(%{][^%(%)%{%}]*$"
end

--- Describe a name, or show its source.
function requests.inspect_request(self, content)
  local code = text.utf8(text_of(content.code))
  local at = text.bytes_before(code, tonumber(content.cursor_pos) or text.length(code))
  local name, parts = name_at(code, at), {}
  local describe = require "accelhost.repl.describe"
  local own = here(self)
  local engine = setmetatable({
    write = function(shown) parts[#parts + 1] = shown end,
    complain = function() end,
    columns = own.columns, living = own.living, environment = own.environment,
  }, {__index = getmetatable(own)})
  local found = name ~= nil and (content.detail_level == 1 and describe.source(engine, name)
    or describe.name(engine, name))
  local shown = table.concat(parts)
  found = found and shown ~= ""
  self:reply {status = "ok", found = found == true,
    data = found and {["text/plain"] = text.utf8(shown)} or {}, metadata = {}}
end

-- The indentation of the next line: two spaces for each block and bracket that is open.
local function indent_of(code)
  local depth = 0
  local deeper = {["function"] = 1, ["do"] = 1, ["then"] = 1, ["repeat"] = 1, ["("] = 1, ["{"] = 1, ["["] = 1,
    ["end"] = -1, ["until"] = -1, [")"] = -1, ["}"] = -1, ["]"] = -1, ["elseif"] = -1}
  for _, word in ipairs(lexer.list(code)) do
    if word.kind ~= "string" then depth = depth + (deeper[word.word] or 0) end
  end
  return ("  "):rep(math.max(0, depth))
end

--- Is the text of a cell complete?
function requests.is_complete_request(self, content)
  local code = text_of(content.code)
  local parts = cell.parts(self.engine, code)
  local state = "complete"
  for i, part in ipairs(parts) do
    state = here(self):state_of(part)
    if state == "invalid" or (state == "incomplete" and i < #parts) then
      state = "invalid"
      break
    end
  end
  self:reply {status = state, indent = state == "incomplete" and indent_of(code) or nil}
end

--- List cells that ran.
function requests.history_request(self, content)
  self:reply {status = "ok", history = history.answer(self.history, content)}
end

--- List comms: there are none.
function requests.comm_info_request(self) self:reply {status = "ok", comms = {}} end

--- There are no widgets: a front end learns that its comm has no counterpart.
function requests.comm_open(self, content)
  if type(content.comm_id) == "string" then self:publish("comm_close", {comm_id = content.comm_id, data = {}}) end
end

return requests
