--- Messages between a trial and its sweep, in both directions as texts: by the channel of the trial's job, or,
--- where the sweep cannot start processes itself (Slurm), by two files in the trial's folder that both see.
local C = require "accelhost._C"

local link = {}

-- Seconds between two polls of a file, and before a trial considers a silent sweep dead.
local LOOK, TIMEOUT = 0.1, 600

---@class Mailbox
local Mailbox = {}
Mailbox.__index = Mailbox

--- A file of lines that one side writes and the other reads.
---@return Mailbox
function link.mailbox(path) return setmetatable({path = path, offset = 0}, Mailbox) end

--- Add a text, which holds no line's end.
function Mailbox:send(text)
  local file, reason = io.open(self.path, "ab")
  if not file then error("cannot write " .. reason, 0) end
  file:setvbuf "no"
  file:write(text .. "\n")
  file:close()
end

--- Return the texts that have arrived whole since the last call.
function Mailbox:receive()
  local file, texts = io.open(self.path, "rb"), {}
  if not file then return texts end
  file:seek("set", self.offset)
  local content = file:read "*a" or ""
  file:close()
  for line in content:gmatch "([^\n]*)\n" do
    texts[#texts + 1] = line
    self.offset = self.offset + #line + 1
  end
  return texts
end

local sent, received, waiting

--- Is there a sweep to talk to?
---@param facts table of the trial
function link.is_open(facts) return facts.mailbox ~= nil or C.channel.is_open() end

--- Send the sweep a message.
function link.send(facts, text)
  if not facts.mailbox then return C.channel.send(text) end
  sent = sent or link.mailbox(facts.mailbox .. ".messages")
  sent:send(text)
end

--- Receive the next message of the sweep.
---@param seconds? number timeout; nil: wait until it arrives
---@return string? text nil when none arrived
function link.receive(facts, seconds)
  if not facts.mailbox then return C.channel.receive(seconds) end
  received, waiting = received or link.mailbox(facts.mailbox .. ".answers"), waiting or {}
  local deadline = C.system.now() + (seconds or TIMEOUT)
  while true do
    for _, text in ipairs(received:receive()) do waiting[#waiting + 1] = text end
    if waiting[1] then return table.remove(waiting, 1) end
    if C.system.now() >= deadline then break end
    C.system.sleep(LOOK)
  end
  return not seconds and C.json.encode {kind = "answer", answer = "interrupt"} or nil
end

return link
