-- accelhost's side of the comparison: reads programs from stdin, runs each, answers with the value of every variable.
--
--   in:   "rows"                              the ops: name, signature, where it is public
--         "program N M", N lines of Lua, and M names, one a line
--   out:  per program a status of each line ("." or the error's text), then a record of each name and "end", all as
--         strings behind their length
local accelhost = require "accelhost"
local C = require "accelhost._C"
local F, nn, optim, autograd = accelhost.nn.functional, accelhost.nn, accelhost.optim, accelhost.autograd

local out = {}
local function put(text)
  out[#out + 1] = ("%d\n"):format(#text)
  out[#out + 1] = text
end

local function flush()
  io.stdout:write(table.concat(out))
  io.stdout:flush()
  out = {}
end

-- Tensors seen in this program, to report for each the earlier one that shares its storage.
local seen

local function put_tensor(tensor, name)
  local first = #seen + 1
  for i = 1, #seen do
    if C.same_storage(seen[i], tensor) then
      first = i
      break
    end
  end
  seen[#seen + 1] = tensor
  put("T")
  put(name)
  put(tensor.dtype)
  put(table.concat(tensor:shape(), ","))
  put((tensor.requires_grad and "r" or "-") .. (tensor.is_leaf and "l" or "-"))
  put(tostring(first))
  put(C.to_string(tensor))
end

local put_value

local function put_module(module, name)
  for key, value in module:named_parameters() do
    put_value(value, name .. "." .. key)
  end
  for key, value in module:named_buffers() do
    put_value(value, name .. "." .. key)
  end
end

local function put_optimizer(optimizer, name)
  for i, group in ipairs(optimizer.param_groups) do
    put_value(group.lr, name .. ".lr" .. i)
  end
end

local function put_table(value, name)
  local keys, count = {}, value[0] == nil and #value or 0
  for i = 1, count do put_value(value[i], name .. "." .. i) end
  for key in pairs(value) do
    if type(key) == "string" or key < 1 or key > count then keys[#keys + 1] = tostring(key) end
  end
  table.sort(keys)
  for _, key in ipairs(keys) do
    local item = value[key]
    if item == nil then item = value[tonumber(key)] end
    put_value(item, name .. "." .. key)
  end
end

function put_value(value, name)
  if C.is_tensor(value) then
    put_tensor(value, name)
    if value.is_leaf and value.grad then put_tensor(value.grad, name .. ".grad") end
  elseif type(value) == "number" then
    put("N") put(name) put(("%.17g"):format(value))
  elseif type(value) == "boolean" then
    put("B") put(name) put(tostring(value))
  elseif type(value) == "string" then
    put("S") put(name) put(value)
  elseif type(value) == "nil" then
    put("0") put(name)
  elseif nn.is_module(value) then
    put_module(value, name)
  elseif optim.Optimizer.is_optimizer(value) then
    put_optimizer(value, name)
  elseif type(value) == "table" and getmetatable(value) == nil then
    put_table(value, name)
  end
end

local function run(lines, names)
  local env = setmetatable({accelhost = accelhost, F = F, nn = nn, optim = optim, autograd = autograd,
    linalg = accelhost.linalg, special = accelhost.special}, {__index = _G})
  accelhost.manual_seed(0)
  for _, line in ipairs(lines) do
    local chunk, text = loadstring(line, "=line")
    local ok = chunk
    if chunk then ok, text = pcall(setfenv(chunk, env)) end
    put(ok and "." or tostring(text))
  end
  accelhost.set_grad_enabled(true)
  seen = {}
  for _, name in ipairs(names) do
    local ok, text = pcall(put_value, rawget(env, name), name)
    if not ok then put("E") put(name) put(tostring(text)) end
  end
  put("end")
  flush()
end

local function rows()
  local names = {}
  for name in pairs(C) do
    if C.op_info(name) then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local info = C.op_info(name)
    put(name)
    put(info.signature)
    put((info["function"] and "f" or "-") .. (info.functional and "F" or "-") .. (info.method and "m" or "-") ..
      (C[name .. "_"] and "i" or "-"))
  end
  put("end")
  flush()
end

accelhost.set_num_threads(1)
while true do
  local head = io.read("*l")
  if not head then break end
  if head == "rows" then
    rows()
  else
    local count, named = head:match "^program (%d+) (%d+)$"
    local lines, names = {}, {}
    for i = 1, tonumber(count) do lines[i] = io.read("*l") end
    for i = 1, tonumber(named) do names[i] = io.read("*l") end
    run(lines, names)
  end
end
