--- The kernel of a notebook: it receives requests, has the prompt's engine run their cells, and replies. A thread of
--- the plugin (host/jupyter) serves the sockets, and handles interrupts and the end while a cell runs.
local C = require "accelhost._C"
local evaluate = require "accelhost.repl.evaluate"
local front = require "accelhost.jupyter.front"
local history = require "accelhost.jupyter.history"
local json = require "accelhost.util.json"
local mime = require "accelhost.jupyter.mime"
local requests = require "accelhost.jupyter.requests"
local text = require "accelhost.jupyter.text"

---@class Kernel
---@field engine Evaluate
---@field request table? the request that is served
---@field count integer cells that ran
---@field history table
local Kernel = {}
Kernel.__index = Kernel

local info = {
  status = "ok", protocol_version = "5.4", implementation = "accelhost", implementation_version = C.system.version,
  language_info = {
    name = "lua", version = "5.1", mimetype = "text/x-lua", file_extension = ".lua", pygments_lexer = "lua",
    codemirror_mode = "lua",
  },
  banner = ("accelhost %s. ? prints the help, ? NAME the help of a name."):format(C.system.version),
  help_links = json.array {}, debugger = false, supported_features = json.array {},
}

--- Publish a message of the served request to all clients.
---@param content table
---@param metadata? table
function Kernel:publish(kind, content, metadata)
  C.jupyter.send("iopub", "", self.request and self.request.header or "", kind, json.encode(content),
    metadata and json.encode(metadata) or "")
end

--- Reply to the served request.
---@param content table
function Kernel:reply(content)
  local kind = self.request.type:gsub("request$", "reply")
  C.jupyter.send("shell", self.request.route, self.request.header, kind, json.encode(content))
end

--- Keep and publish the error of the cell.
---@param message string as the prompt shows it
function Kernel:complain(message)
  local lines = json.array {}
  for line in (text.utf8(message) .. "\n"):gmatch "(.-)\n" do lines[#lines + 1] = line end
  local interrupted = message:find "^interrupted at " ~= nil
  self.failure = {ename = interrupted and "Interrupted" or "Error", evalue = lines[1], traceback = lines}
  self:publish("error", self.failure)
end

--- Publish the values of the cell's last expression.
function Kernel:show_values(count, ...)
  local data, metadata = mime.of_values(count, ...)
  if self.silent then return end
  history.add_output(self.history, self.count, data["text/plain"])
  self:publish("execute_result", {execution_count = self.count, data = data, metadata = metadata})
end

local function serve(self, request)
  self.request = request
  self:publish("status", {execution_state = "busy"})
  local handler = requests[request.type]
  local fine, content = pcall(json.decode, request.content)
  if handler and fine and type(content) == "table" then
    local problem
    fine, problem = pcall(handler, self, content)
    if not fine then
      self:reply {status = "error", ename = "Error", evalue = text.utf8(tostring(problem)),
        traceback = json.array {}}
    end
  end
  self:publish("status", {execution_state = "idle"})
end

-- Have an engine run later cells, in this process or in several.
local function start_engine(self, processes)
  local former = self.engine
  if former then (former.here or former):reset() end
  if former and former.close then former:close() end
  local made = (processes > 1 and require "accelhost.repl.cluster" or evaluate).new {
    write = function(shown) io.write(shown) end,
    columns = function() return mime.columns end,
    slow = math.huge,
    captured = true,
    num_processes = processes,
  }
  self.engine = made
  local engine = made.here or made
  engine.switch = function(count) start_engine(self, count) end
  engine.complain = function(_, message) self:complain(message) end
  engine.clear = function() self:publish("clear_output", {wait = false}) end
  engine.show_values = function(_, count, ...) self:show_values(count, ...) end
end

--- Serve the sockets of a connection file until a client requests the end.
---@return integer # the exit code
return function(path)
  local self = setmetatable({count = 0, pending = {}}, Kernel)
  local fine, problem = pcall(C.jupyter.open, path, json.encode(info))
  if not fine then
    io.stderr:write("accelhost jupyter: ", tostring(problem), "\n")
    return 1
  end
  self.info = info
  self.history = history.open()
  start_engine(self, 1)
  front.install(self)
  C.interrupt.watch()
  require "accelhost.repl.programs"()
  while true do
    local request, why = table.remove(self.pending, 1), nil
    if not request then request, why = C.jupyter.wait("shell", 60) end
    if why == "end" then break end
    if request then serve(self, request) end
  end
  C.jupyter.close()
  return 0
end
