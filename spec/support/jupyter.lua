--- A kernel of accelhost jupyter and its clients, without Python: ZeroMQ by LuaJIT's ffi, on ipc sockets in a folder.
--
--   local kernel = jupyter.start(path)
--   local client = kernel:client()
--   client:send("shell", "execute_request", {code = "1 + 1"})
--   client:receive("iopub", "execute_result").content
local ffi = require "ffi"
local json = require("accelhost").json
local files = require "spec.support.files"
local run = require "spec.support.run"

ffi.cdef [[
void *zmq_ctx_new(void);
int zmq_ctx_term(void *context);
void *zmq_socket(void *context, int type);
int zmq_close(void *socket);
int zmq_connect(void *socket, const char *address);
int zmq_setsockopt(void *socket, int option, const void *value, size_t bytes);
int zmq_getsockopt(void *socket, int option, void *value, size_t *bytes);
int zmq_send(void *socket, const void *bytes, size_t count, int flags);
int zmq_recv(void *socket, void *bytes, size_t count, int flags);
struct spec_hmac { char state[512]; };
void ah_hmac_begin(struct spec_hmac *mac, const void *key, size_t bytes);
void ah_hmac_add(struct spec_hmac *mac, const void *bytes, size_t count);
void ah_hmac_end(struct spec_hmac *mac, unsigned char *digest);
]]

local SUB, REQ, DEALER = 2, 3, 5
local IDENTITY, SUBSCRIBE, LINGER, RCVTIMEO, RCVMORE, SNDMORE = 5, 6, 17, 27, 13, 2
local KEY, MOST = "a key of the spec", 2 ^ 22

local jupyter = {}

--- ZeroMQ's library; nil where it is not installed.
---@return any
function jupyter.library()
  for _, name in ipairs {"libzmq.so.5", "zmq"} do
    local fine, library = pcall(ffi.load, name)
    if fine then return library end
  end
end

local function signature_of(key, parts)
  local mac, digest = ffi.new "struct spec_hmac", ffi.new "unsigned char[32]"
  ffi.C.ah_hmac_begin(mac, key, #key)
  for _, part in ipairs(parts) do ffi.C.ah_hmac_add(mac, part, #part) end
  ffi.C.ah_hmac_end(mac, digest)
  return (ffi.string(digest, 32):gsub(".", function(byte) return ("%02x"):format(byte:byte()) end))
end

local Client = {}
Client.__index = Client

local function set_number(self, socket, option, value)
  self.zmq.zmq_setsockopt(socket, option, ffi.new("int[1]", value), 4)
end

--- Send frames as they are.
---@param channel string
---@param frames string[]
function Client:send_frames(channel, frames)
  for i, frame in ipairs(frames) do
    assert(self.zmq.zmq_send(self.sockets[channel], frame, #frame, i < #frames and SNDMORE or 0) >= 0)
  end
end

--- Send a request.
---@param channel string
---@param kind string its msg_type
---@param content table
---@param key? string default: the kernel's
---@return string # its msg_id
function Client:send(channel, kind, content, key)
  self.count = self.count + 1
  local id = ("%s-%d"):format(self.name, self.count)
  local parts = {
    json.encode {msg_id = id, session = self.name, username = "spec", date = "2026-01-01T00:00:00Z", msg_type = kind,
      version = "5.4"}, "{}", "{}", json.encode(content),
  }
  self:send_frames(channel, {"<IDS|MSG>", signature_of(key or KEY, parts), unpack(parts)})
  return id
end

-- The frames of the next message within some seconds; nil: there is none.
local function receive_frames(self, channel, seconds)
  local socket, frames, more = self.sockets[channel], {}, ffi.new("int[1]", 1)
  set_number(self, socket, RCVTIMEO, math.max(1, math.floor(seconds * 1000)))
  while more[0] ~= 0 do
    local count = self.zmq.zmq_recv(socket, self.room, MOST, 0)
    if count < 0 then return nil end
    frames[#frames + 1] = ffi.string(self.room, count)
    self.zmq.zmq_getsockopt(socket, RCVMORE, more, ffi.new("size_t[1]", 4))
  end
  return frames
end

--- Receive the next message of a kind, passing over others; its signature must be right.
---@param channel string
---@param kind? string
---@param seconds? number default 30
---@return table? # {type, content, parent}; nil: none within that time
function Client:receive(channel, kind, seconds)
  local limit = os.time() + (seconds or 30)
  repeat
    local frames = receive_frames(self, channel, seconds or 30)
    if not frames then return nil end
    while frames[1] ~= "<IDS|MSG>" do table.remove(frames, 1) end
    local parts = {unpack(frames, 3, 6)}
    assert(frames[2] == signature_of(KEY, parts), "the kernel's signature is wrong")
    local message = {type = json.decode(parts[1]).msg_type, parent = json.decode(parts[2]).msg_id,
      content = json.decode(parts[4])}
    if not kind or message.type == kind then return message end
  until os.time() > limit
end

--- Run a cell and wait for its reply.
---@param code string
---@return table # its content
function Client:execute(code)
  local id = self:send("shell", "execute_request", {code = code, allow_stdin = true})
  while true do
    local reply = assert(self:receive("shell", "execute_reply"), "no reply")
    if reply.parent == id then return reply.content end
  end
end

--- Does the kernel answer a heartbeat within some seconds?
---@param seconds number
function Client:beats(seconds)
  self:send_frames("heartbeat", {"beat"})
  local frames = receive_frames(self, "heartbeat", seconds)
  return frames ~= nil and frames[1] == "beat"
end

--- Close its sockets, without a word to the kernel.
function Client:close()
  for _, socket in pairs(self.sockets) do self.zmq.zmq_close(socket) end
  self.zmq.zmq_ctx_term(self.context)
end

local Kernel = {}
Kernel.__index = Kernel

local ports = {shell = 1, control = 2, stdin = 3, iopub = 4, heartbeat = 5}
local kinds = {shell = DEALER, control = DEALER, stdin = DEALER, iopub = SUB, heartbeat = REQ}
local names = 0

--- Connect a new client, which has seen that it misses nothing.
---@return table
function Kernel:client()
  names = names + 1
  local zmq = jupyter.library()
  local client = setmetatable({zmq = zmq, context = zmq.zmq_ctx_new(), sockets = {}, count = 0,
    name = ("client%d"):format(names), room = ffi.new("char[?]", MOST)}, Client)
  for channel, kind in pairs(kinds) do
    local socket = zmq.zmq_socket(client.context, kind)
    client.sockets[channel] = socket
    set_number(client, socket, LINGER, 0)
    if kind == DEALER then zmq.zmq_setsockopt(socket, IDENTITY, client.name, #client.name) end
    if kind == SUB then zmq.zmq_setsockopt(socket, SUBSCRIBE, "", 0) end
    assert(zmq.zmq_connect(socket, ("ipc://%s-%d"):format(self.address, ports[channel])) == 0)
  end
  assert(client:receive("iopub", "iopub_welcome"), "the kernel has not started")
  return client
end

--- Send a signal to the kernel.
---@param name string
function Kernel:signal(name) os.execute(("kill -%s %d"):format(name, self.pid)) end

--- Wait for the kernel's end; nil after some seconds.
---@param seconds integer
---@return integer? # its exit code
function Kernel:wait(seconds)
  local limit = os.time() + seconds
  repeat
    local code = io.open(self.path .. "/code") and files.read(self.path .. "/code"):match "^(%d+)\n"
    if code then return tonumber(code) end
    os.execute "sleep 0.05"
  until os.time() > limit
end

--- End it, if it runs.
function Kernel:close()
  if not self:wait(0) then
    self:signal "KILL"
    self:wait(10)
  end
end

--- Start a kernel.
---@param path string a folder, for its files
---@return table
function jupyter.start(path)
  local self = setmetatable({path = path, address = path .. "/socket"}, Kernel)
  files.write(path .. "/connection.json", json.encode {
    transport = "ipc", ip = self.address, key = KEY, signature_scheme = "hmac-sha256", kernel_name = "accelhost",
    shell_port = ports.shell, control_port = ports.control, stdin_port = ports.stdin, iopub_port = ports.iopub,
    hb_port = ports.heartbeat,
  })
  os.execute(("cd %s && { XDG_STATE_HOME=%s setsid sh -c 'echo $$ > pid; exec %s jupyter kernel -f connection.json' "
    .. "< /dev/null > out 2> err; echo $? > code; } &"):format(run.quote(path), run.quote(path), run.path:find "^/"
    and run.path or "$OLDPWD/" .. run.path))
  local limit = os.time() + 30
  repeat
    os.execute "sleep 0.02"
    local file = io.open(path .. "/pid")
    self.pid = file and tonumber(file:read "*l")
    if file then file:close() end
  until self.pid or os.time() > limit
  return self
end

return jupyter
