-- Run the examples of the documentation, each in its own environment with the predefined names. The text after "-->" is
-- compared with the output or the values of the line; "..." in it matches anything, and further lines that begin with
-- "-->" continue it. A table may be written as {1, 2}, a tensor as its values [[1, 2]] or its sizes [1, 2].
local accelhost = require "accelhost"
local nn, data, optim = accelhost.nn, accelhost.data, accelhost.optim

local examples = {}

local Net = nn.Module:extend "Net"

function Net:init()
  self.fc1, self.fc2 = nn.Linear(4, 3), nn.Linear(3, 2)
end

function Net:forward(input)
  return self.fc2(nn.functional.relu(self.fc1(input)))
end

-- The predefined names of the guide "Reading the reference", those that are one line each, are read from it; a value is
-- created when an example first uses it.
local values = {
  nn = function() return nn end,
  F = function() return nn.functional end,
  optim = function() return optim end,
  data = function() return data end,
  transforms = function() return data.transforms end,
  lr_scheduler = function() return optim.lr_scheduler end,
  linalg = function() return accelhost.linalg end,
  distributions = function() return accelhost.distributions end,
  metrics = function() return accelhost.metrics end,
  -- In a world that is there already, but for the call that makes one.
  dist = function()
    local dist = accelhost.distributed
    if not dist.is_initialized() then dist.init_process_group() end
    return setmetatable({init_process_group = function(...)
      if dist.is_initialized() then dist.destroy_process_group() end
      dist.init_process_group(...)
    end}, {__index = dist})
  end,
  ddp = function(env) return env.dist.DistributedDataParallel(nn.Linear(4, 2)) end,
  Net = function() return Net end,
  input = function(env) return env.x end,
  model = function(env) return env.net end,
  writer = function() return accelhost.track.SummaryWriter(os.tmpname() .. ".runs") end,
  local_sgd = function(env) return accelhost.LocalSGD(env.accelerator, env.net, 8) end,
  batch = function(env) return env.images end,
  -- For linear algebra.
  C = function() return accelhost.eye(2) end,
  v = function() return accelhost.tensor {1, 2} end,
  tau = function() return accelhost.ones(3) end,
  LU = function(env) return (accelhost.linalg.lu_factor(env.A)) end,
  pivots = function(env) return select(2, accelhost.linalg.lu_factor(env.A)) end,
  conv = function() return nn.Conv2d(2, 4, 3) end,
}

local root = arg[0]:match "^(.*)/scripts/docs/" or "."
for line in io.lines(root .. "/examples/guides/reading.md") do
  local name, value = line:match "^local ([%a_][%w_]*) = (.*)$"
  if name and not values[name] then
    local chunk = assert(loadstring("return " .. value, "=reading.md"))
    values[name] = function(env) return setfenv(chunk, env)() end
  end
end

-- Files that examples make go with them.
local made = {}
local own_os = setmetatable({tmpname = function()
  made[#made + 1] = os.tmpname()
  return made[#made]
end}, {__index = os})

local function remove_files()
  local dist = package.loaded["accelhost.distributed"]
  if dist and dist.is_initialized() then dist.destroy_process_group() end
  for i, path in ipairs(made) do os.execute(("rm -rf '%s' '%s'.*"):format(path, path)) made[i] = nil end
end

local function environment()
  local env = {accelhost = accelhost, printed = {}, os = own_os}
  env.print = function(...)
    local words = {}
    for i = 1, select("#", ...) do words[i] = tostring((select(i, ...))) end
    table.insert(rawget(env, "printed"), table.concat(words, "\t"))
  end
  return setmetatable(env, {__index = function(self, name)
    if not values[name] then return _G[name] end
    local value = values[name](self)
    rawset(self, name, value)
    return value
  end})
end

-- The expression that a line shows: y of "local y = f(x)", an expression itself.
local function shown_by(code)
  if loadstring("return " .. code) then return code, true end
  local names = code:match "^%s*local ([%w_, ]+)=[^=]" or code:match "^%s*([%w_][%w_%.%[%], ]*)=[^=]"
  return names, false
end

-- An expression may have begun some lines above: remove them.
local function begin_above(out, code)
  for count = 1, math.min(4, #out) do
    code = out[#out - count + 1] .. "\n" .. code
    if loadstring("return " .. code) then
      for i = #out - count + 1, #out do out[i] = nil end
      return code, count
    end
  end
end

-- The code with a call of __is(n, values) at each line that has an expected result; and the expected results.
local function translate(lines)
  local out, expected = {}, {}
  for _, line in ipairs(lines) do
    local more = line:match "^%s*%-%->%s?(.*)$"
    local code, text = line:match "^(.-)%s*%-%->%s*(.*)$"
    if more and #expected > 0 then
      expected[#expected] = expected[#expected] .. "\n" .. more
      out[#out + 1] = ""
    elseif text then
      expected[#expected + 1] = text
      local shown, is_expression = shown_by(code)
      if is_expression then
        out[#out + 1] = ("__is(%d, %s)"):format(#expected, code)
      else
        local whole, count = nil, nil
        if not shown then whole, count = begin_above(out, code) end
        for _ = 1, whole and count or 0 do out[#out + 1] = "" end
        out[#out + 1] = whole and ("__is(%d, %s)"):format(#expected, (whole:gsub("\n", " ")))
          or ("%s; __is(%d, %s)"):format(code, #expected, shown or "nil")
      end
    else
      out[#out + 1] = line
    end
  end
  return table.concat(out, "\n"), expected
end

local function normal(text)
  return (text:gsub("%s+", " "):gsub("^ ", ""):gsub(" $", ""))
end

local function matches(text, wanted)
  local pattern = normal(wanted):gsub("[%^%$%(%)%%%.%[%]%*%+%-%?]", "%%%0"):gsub("%%%.%%%.%%%.", ".*")
  return normal(text):find("^" .. pattern .. "$") ~= nil
end

local function sizes_of(tensor)
  return "[" .. table.concat(tensor:shape(), ", ") .. "]"
end

-- A value as a list: tables in braces, tensors in brackets.
local function list_of(value)
  if accelhost.is_tensor(value) then return (list_of(value:tolist()):gsub("{", "["):gsub("}", "]")) end
  if type(value) ~= "table" or getmetatable(value) then return tostring(value) end
  local parts = {}
  for i, item in ipairs(value) do parts[i] = list_of(item) end
  return "{" .. table.concat(parts, ", ") .. "}"
end

-- Several values, each in the same way.
local function text_of(how, ...)
  local words = {}
  for i = 1, select("#", ...) do
    local value = (select(i, ...))
    words[i] = how == sizes_of and not accelhost.is_tensor(value) and "?" or how(value)
  end
  return table.concat(words, ", ")
end

-- Return true if the values have the wanted text: as printed, as a list, or, of tensors, the sizes.
local function gives(wanted, ...)
  for _, how in ipairs {tostring, list_of, sizes_of} do
    if matches(text_of(how, ...), wanted) then return true end
  end
  return false
end

local function shortened(text)
  return #text > 600 and text:sub(1, 600) .. " ..." or text
end

--- Run an example.
---@param lines string[]
---@param name string for messages
---@return string? failure nil if all results were as expected
function examples.run(lines, name)
  local source, expected = translate(lines)
  local chunk, reason = loadstring(source, "=" .. name)
  if not chunk then return reason end
  local env, failure = environment(), nil
  env.__is = function(n, ...)
    local printed = rawget(env, "printed")
    local text = #printed > 0 and table.concat(printed, "\n")
    rawset(env, "printed", {})
    if not (text and matches(text, expected[n]) or not text and gives(expected[n], ...)) then
      text = shortened(text or text_of(tostring, ...))
      failure = failure or ("%s: expected --> %s\n  got\n%s"):format(name, expected[n], text)
    end
  end
  accelhost.manual_seed(0)
  local fine, message = pcall(setfenv(chunk, env))
  accelhost.set_default_device "cpu"
  remove_files()
  if not fine then return ("%s: %s"):format(name, tostring(message)) end
  return failure
end

return examples
