--- The hooks around a module's forward, on one call: {given = its arguments, results = forward's results, ran = hooks
-- that ran}. Arguments and results are arrays with their length in n.
local arguments = require "accelhost.util.arguments"
local kinds = require "accelhost.util.kinds"
local pack = require "accelhost.util.pack"
local protect = require "accelhost.util.protect"
local warn = require "accelhost.util.warn"

local describe, fail = arguments.describe, arguments.fail
local forward_hooks = {}

local is_plain = kinds.is_plain

-- A hook's replacement of these values: a table of new ones, one value, or nil.
local function replaced(values, changed)
  if changed == nil then return values end
  if not is_plain(changed) then return {n = 1, changed} end
  changed.n = math.max(changed.n or 0, #changed)
  return changed
end

-- A call's arguments by place, and those by name: the trailing table of options.
local function split(given)
  local last = given[given.n]
  if not arguments.is_options(last) then return given, {} end
  return {n = given.n - 1, unpack(given, 1, given.n - 1)}, last
end

local function join(self, given, placed, named)
  if placed == nil then return given end
  if not is_plain(placed) or not is_plain(named) then
    fail("%s: a forward pre-hook with_kwargs returns nothing or two tables, arguments and options; got %s and %s",
      self._name, describe(placed), describe(named))
  end
  local joined = {n = math.max(placed.n or 0, #placed)}
  for i = 1, joined.n do joined[i] = placed[i] end
  if next(named) ~= nil then
    joined.n = joined.n + 1
    joined[joined.n] = named
  end
  return joined
end

--- Run the hooks before forward: they may change call.given.
---@param call table
function forward_hooks.before(self, call)
  for _, entry in ipairs(self._forward_pre_hooks or {}) do
    local given = call.given
    if entry.with_kwargs then
      local placed, named = split(given)
      call.given = join(self, given, entry.call(self, placed, named))
    else
      call.given = replaced(given, entry.call(self, given))
    end
  end
end

local function run(self, call, entry)
  call.ran[entry] = true
  local results, given = call.results, call.given
  local output = results
  if not results or results.n == 1 then output = results and results[1] end
  local changed
  if entry.with_kwargs then
    local placed, named = split(given)
    changed = entry.call(self, placed, named, output)
  else
    changed = entry.call(self, given, output)
  end
  call.results = replaced(results, changed)
end

--- Run the hooks after forward: they may change call.results.
---@param call table
function forward_hooks.after(self, call)
  for _, entry in ipairs(self._forward_hooks or {}) do run(self, call, entry) end
end

-- After an error: the hooks that always run, as far as they have not. Their own errors must not hide it.
local function rescue(self, call)
  for _, entry in ipairs(self._forward_hooks or {}) do
    if entry.always_call and not call.ran[entry] then
      local fine, problem = pcall(run, self, call, entry)
      if not fine then
        warn(("%s: a forward hook with always_call failed after another error: %s"):format(self._name,
          tostring(problem)))
      end
    end
  end
end

--- Return the results of fn(self, call); when it raises, the hooks that always run do so first.
---@param fn fun(self: table, call: table): ...
---@param ... any the module's arguments
function forward_hooks.protected(self, fn, ...)
  local call = {given = pack(...), ran = {}}
  for _, entry in ipairs(self._forward_hooks or {}) do
    if entry.always_call then
      return protect(function(fine)
        if not fine then rescue(self, call) end
      end, fn, self, call)
    end
  end
  return fn(self, call)
end

return forward_hooks
