--- One process of a prompt whose lines run in several: it receives lines from the prompt (cluster.lua), runs them and
--- sends back their output.
--
-- Orders, and their answers:
--   {kind = "run", line =, number =, text =} or {kind = "file", line =, path =, arguments =}
--       -> {kind = "done", line =, fine =, shown =, failed =, calls =}; the last two from C.comm.group_status
--   {kind = "skip", line =}     others run a line: nothing
--   {kind = "renew"}            -> {kind = "renewed"}: groups are recreated after a failure
--   {kind = "complete", before =}   -> {kind = "completed", insert =, list =}
--   {kind = "choices", before =}    -> {kind = "choices", list =, prefix =}
--   {kind = "end"}
local C = require "accelhost._C"
local evaluate = require "accelhost.repl.evaluate"
local framing = require "accelhost.launcher.framing"

local function answer(data) framing.send(C.channel.send, data) end

-- Run a line, from its begin to its end as the other processes see it.
local function run(self, order, fn)
  self.shown, self.columns = {}, order.columns
  C.comm.begin_line(order.line)
  local fine = fn(self.evaluate)
  io.stdout:flush()
  C.comm.end_line(order.line)
  local failed, calls = C.comm.group_status()
  answer {kind = "done", line = order.line, fine = fine, shown = table.concat(self.shown), failed = failed,
    calls = calls}
end

local handlers = {}

function handlers.run(self, order)
  self.evaluate.number = order.number
  run(self, order, function(e) return e:run(order.text) end)
end

function handlers.file(self, order)
  run(self, order, function(e) return e:run_file(order.path, unpack(order.arguments)) end)
end

function handlers.skip(_, order)
  C.comm.begin_line(order.line)
  C.comm.end_line(order.line)
end

-- Nothing of the user's is called for it.
function handlers.complete(self, order)
  local insert, list = require("accelhost.repl.complete").at(self.evaluate, order.before)
  answer {kind = "completed", insert = insert, list = list}
end

-- The same as lists.
function handlers.choices(self, order)
  local list, prefix = require("accelhost.repl.complete").choices(self.evaluate, order.before)
  answer {kind = "choices", list = list, prefix = prefix}
end

--- Recreate failed groups; a collective call of all processes.
function handlers.renew()
  C.comm.renew()
  answer {kind = "renewed"}
end

--- Serve the prompt until it sends "end".
return function()
  local settings = framing.receive()
  local self = {shown = {}, columns = settings.columns}
  package.path = settings.path
  rawset(_G, "arg", settings.arg)
  self.evaluate = evaluate.new {
    write = function(text) self.shown[#self.shown + 1] = text end,
    columns = function() return self.columns end,
    color = settings.color,
    slow = math.huge,
  }
  C.interrupt.watch()
  answer {kind = "ready"}
  while true do
    local order = framing.receive()
    if order.kind == "end" then return end
    handlers[order.kind](self, order)
  end
end
