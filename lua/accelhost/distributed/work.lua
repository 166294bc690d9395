--- The result of an asynchronous call: a work to wait for, and futures made of it.
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

local work = {}

local Work = class.new "Work"
work.Work = Work

--- A call that is under way, the result of `async_op`, isend and irecv.
--
--   dist.all_reduce(x, {async_op = true}):wait()  --> true
-- `finish` copies the result to the script's tensors; `value` returns it on request.
function Work:init(native, finish, value)
  self._native, self._finish, self._value = native, finish, value
end

--- Wait until the call is done; the tensors that it was given then hold the result. An error of the call is raised
--- here.
--
--   dist.all_reduce(x, {async_op = true}):wait()  --> true
---@return boolean # true
function Work:wait()
  if self._native then
    local native, finish = self._native, self._finish
    self._native, self._finish = nil, nil
    local given = native:wait()
    self._source = type(given) == "number" and given or nil
    if finish then finish() end
  end
  return true
end

--- Is it done? Does not wait.
--
--   dist.all_reduce(x, {async_op = true}):is_completed()  --> true
function Work:is_completed()
  return not self._native or self._native:is_completed()
end

--- Of irecv: the sender's rank in the job. Waits.
--
--   if dist.get_rank() == 1 then dist.irecv(x):source_rank() end
---@return integer?
function Work:source_rank()
  self:wait()
  return self._ranks and self._ranks[self._source + 1]
end

--- The result of the call: a tensor or a table of them.
--
--   dist.all_reduce(x, {async_op = true}):result()
---@return any
function Work:result()
  self:wait()
  return self._value
end

--- The work as a future: its value is that of result().
--
--   dist.all_reduce(x, {async_op = true}):get_future():wait()
---@return Future
function Work:get_future()
  return work.Future(function() return self:result() end, function() return self:is_completed() end)
end

local Future = class.new "Future"
work.Future = Future

--- A value that is available later, as communication hooks return it.
--
--   dist.Future(function() return x end):wait()
---@param wait fun(): any waits for the value and returns it; called once
---@param done? fun(): boolean is it there without waiting? default: once it was waited for
function Future:init(wait, done)
  self._wait = arguments.check("distributed.Future", "wait", "function", wait)
  self._done = done
end

--- The value; waits until it is there.
--
--   dist.Future(function() return x end):wait()
---@return any
function Future:wait()
  if self._wait then
    local wait = self._wait
    self._wait, self._done = nil, nil
    self._result = wait()
  end
  return self._result
end

--- The value, as wait returns it.
--
--   dist.Future(function() return x end):value()
---@return any
function Future:value() return self:wait() end

--- Is the value there without waiting?
--
--   dist.Future(function() return x end):done()  --> false
function Future:done()
  return not self._wait or self._done ~= nil and self._done()
end

--- Return another future, of the result of fn for this one's value (PyTorch's `then`, which is a word of Lua). fn runs
--- when that future is waited for.
--
--   dist.Future(function() return x end):chain(function(value) return value * 2 end):wait()
---@param fn fun(value: any): any
---@return Future
function Future:chain(fn)
  arguments.check("Future:chain", "fn", "function", fn)
  return Future(function() return fn(self:wait()) end)
end

return work
