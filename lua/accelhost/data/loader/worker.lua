--- Processes that make a loader's batches.
--
-- Each is a fork of this process, made when a pass begins (with persistent_workers the first one), so it has the data
-- set of that time. Batch k is worker k % n's; each has at most `prefetch_factor` under way, and batches are given in
-- order. A worker's results are returned through shared memory: tensors, numbers, texts, booleans and tables of them.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local fetch = require "accelhost.data.loader.fetch"
local iterable = require "accelhost.data.iterable"
local kinds = require "accelhost.util.kinds"
local pack = require "accelhost.util.pack"

local fail = arguments.fail
local native = C.worker
local worker = {}

local info -- in a worker: its id, seed and data set

--- In a worker of a loader: {id = number from 0, num_workers =, seed =, dataset =}; nil in the script's own process.
--
--   data.get_worker_info()  --> nil
---@return {id: integer, num_workers: integer, seed: integer, dataset: table}?
function worker.get_worker_info() return info end

-- In the worker.

local BATCHES = -2 -- the streams of batches, forked off a pass's seed

-- Seed every generator of this process for a batch, as a function of the pass, the batch and the rank. Its numbers do
-- not depend on earlier batches, so they repeat when a checkpoint or a replaced process resumes a pass in the middle.
local function seed_batch(request)
  local stream = C.data.stream(C.data.fork_seed(request.seed, BATCHES), request.number, C.comm.rank())
  math.randomseed(C.data.seed_generators(stream))
end

-- Return the function that makes the batch of a request.
local function maker(loader)
  local set = loader.dataset
  if not kinds.is_stream(set) then
    return function(request)
      seed_batch(request)
      return fetch.batch(set, loader.collate_fn, request.batch, request.seed, request.repeats)
    end
  end
  local next_batch
  return function(request)
    seed_batch(request) -- before iter(), which may draw too
    if request.first then
      if request.epoch then set:set_epoch(request.epoch) end -- it may have changed since the fork
      loader.stream.seed, loader.stream.turn = request.seed, loader.stream.first_turn + info.id
      next_batch = loader.partition:iter()
    end
    local batch, valid = next_batch()
    if not batch then return nil end
    info.length, info.uneven, info.valid = #batch, loader.partition:is_uneven(), valid or #batch
    return fetch.finish(loader.collate_fn, iterable.samples(batch))
  end
end

-- Answer requests until the other side has closed the channel. Never returns.
local function serve(channel, loader, id, seed)
  info = {id = id, num_workers = loader.num_workers, seed = seed + id, dataset = loader.dataset}
  local fine, problem = xpcall(function()
    C.random.default():manual_seed(info.seed) -- not the devices': a fork cannot use them
    math.randomseed(info.seed)
    if loader.worker_init_fn then loader.worker_init_fn(id) end
  end, native.traceback)
  local make = maker(loader)
  while true do
    local request = channel:receive()
    if not request then os.exit(0) end
    local reply = {error = problem}
    if fine then
      local made, result = xpcall(function() return pack(make(request)) end, native.traceback)
      if not made then
        reply.error = result
      elseif result.n == 0 or result[1] == nil then
        reply.ended = true
      else
        reply.values = result
        reply.length, reply.uneven, reply.valid = info.length, info.uneven, info.valid
      end
    end
    io.stdout:flush() -- its output is not lost when it ends with its parent
    local sent, reason = channel:answer(request.slot, reply)
    if not sent then channel:answer(request.slot, {error = "DataLoader: " .. reason}) end
  end
end

-- In the script's process.

---@class Workers
local Workers = {}
Workers.__index = Workers

local function start_all(loader, seed)
  local list = {}
  -- Collect garbage first, so that the workers do not finalise objects that are dropped already.
  collectgarbage()
  for id = 0, loader.num_workers - 1 do
    local channel, parent = native.start(loader.prefetch_factor)
    if not parent then
      -- This process must never continue the script.
      local _, problem = pcall(serve, channel, loader, id, seed)
      io.stderr:write(("DataLoader: worker %d: %s\n"):format(id, tostring(problem)))
      os.exit(1)
    end
    list[id + 1] = channel
  end
  return list
end

-- The epoch set on a stream, where it has one.
local function epoch_of(set)
  local epoch = type(set.set_epoch) == "function" and set.epoch
  return type(epoch) == "number" and epoch or nil
end

--- Workers for a loader.
---@param loader table
---@param seed integer `worker_init_fn` runs with generators seeded by seed + 0, seed + 1, ...
---@return Workers
function worker.start(loader, seed)
  return setmetatable({
    list = start_all(loader, seed), count = loader.num_workers, factor = loader.prefetch_factor,
    timeout = loader.timeout, stream = kinds.is_stream(loader.dataset), dataset = loader.dataset,
  }, Workers)
end

--- Begin a pass.
---@param seed userdata the pass's
---@param next_batch fun(): table?, table? the next indices and repeats
---@param before integer batches of the pass that are not asked for
function Workers:begin(seed, next_batch, before)
  self:drain()
  self.seed, self.next_batch = seed, next_batch
  self.before = self.stream and 0 or before -- a stream is read again from its start
  self.asked, self.given = 0, 0     -- requests, and those whose answers were given
  self.owner, self.answers = {}, {} -- of a request: its worker; its answer
  self.queue, self.slot, self.ended, self.met = {}, {}, {}, {} -- of each worker; queue: its requests
  for w = 1, self.count do self.queue[w], self.slot[w] = {}, 0 end
  self.turn = 0
  self:ask()
end

--- The worker whose turn is next, nil when all have ended.
---@return integer?
function Workers:following()
  for step = 1, self.count do
    local w = (self.turn + step - 1) % self.count + 1
    if not self.ended[w] then
      self.turn = w
      return w
    end
  end
end

--- Send requests while workers have room; in turns, whatever they have to do.
function Workers:ask()
  while not self.exhausted and self.asked - self.given < self.count * self.factor do
    local before = self.turn
    local w = self:following()
    if not w or #self.queue[w] >= self.factor then
      self.turn = before
      return
    end
    local request = {seed = self.seed, slot = self.slot[w]}
    if self.stream then
      request.first, request.epoch = not self.met[w], epoch_of(self.dataset)
      self.met[w] = true
    else
      request.batch, request.repeats = self.next_batch()
      if not request.batch then
        self.exhausted, self.turn = true, before
        return
      end
    end
    self.asked = self.asked + 1
    request.number = self.before + self.asked
    self.owner[self.asked] = w
    self.slot[w] = (self.slot[w] + 1) % self.factor
    table.insert(self.queue[w], self.asked)
    self.list[w]:send(request)
  end
end

--- Wait for one answer, of whichever worker; the one of number `wanted` is needed.
---@param wanted integer
function Workers:hear(wanted)
  local w, answer = native.wait(self.list, self.timeout)
  if not w then
    self:close()
    if answer:find "^timed out" then
      fail("DataLoader: %s: worker %d has not made its batch", answer, self.owner[wanted] - 1)
    end
    fail("DataLoader: %s", answer)
  end
  self.answers[table.remove(self.queue[w], 1)] = answer
end

--- The next batch as {values =, length =, uneven =, valid =}; nil at the end of the pass. An error in a worker is
--- raised here.
---@return table?
function Workers:receive()
  while true do
    if self.given == self.asked then return nil end
    local number = self.given + 1
    while not self.answers[number] do self:hear(number) end
    local answer, w = self.answers[number], self.owner[number]
    self.answers[number], self.owner[number] = nil, nil
    self.given = number
    if answer.ended then self.ended[w] = true end
    if answer.error then
      self:close()
      fail("DataLoader: in worker %d: %s", w - 1, answer.error)
    end
    self:ask()
    if not answer.ended then return answer end
  end
end

--- Is the next batch here, so that it is received without waiting? For sets whose batches are requested by indices.
function Workers:is_ready()
  local wanted = self.given + 1
  while wanted <= self.asked and not self.answers[wanted] do
    local w, answer = native.wait(self.list, 1e-9)
    if not w then return false end -- a failure, if any, is raised when it is waited for
    self.answers[table.remove(self.queue[w], 1)] = answer
  end
  return wanted <= self.asked
end

--- Was everything given that there is? For sets whose batches are asked for by indices.
function Workers:is_through() return self.given == self.asked end

--- Wait for the requests under way, so that another pass can begin.
function Workers:drain()
  while self.asked and self.given < self.asked do
    local number = self.given + 1
    while not self.answers[number] do self:hear(number) end
    self.answers[number], self.owner[number] = nil, nil
    self.given = number
  end
  self.exhausted = false
end

--- End the processes.
function Workers:close()
  self.asked, self.given, self.closed = 0, 0, true
  native.close(self.list)
end

return worker
