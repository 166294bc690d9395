--- The public surface as data: every function that a script can call, with the types of its arguments, from the
--- signatures that the functions themselves read. Specs call each of them wrongly.
--
--   for _, entry in ipairs(surface.entries()) do ... entry.call("abc") ... end
local accelhost = require "accelhost"
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local kinds = require "accelhost.util.kinds"
local nn, data, optim = accelhost.nn, accelhost.data, accelhost.optim

local surface = {}

--- The public tables, in the order in which a name is looked for.
surface.tables = {
  {"accelhost", accelhost}, {"nn", nn}, {"nn.functional", nn.functional}, {"nn.init", nn.init}, {"nn.utils", nn.utils},
  {"data", data}, {"data.transforms", data.transforms}, {"optim", optim},
  {"optim.lr_scheduler", optim.lr_scheduler}, {"autograd", accelhost.autograd},
  {"linalg", accelhost.linalg}, {"distributed", accelhost.distributed},
  {"utils.checkpoint", accelhost.utils.checkpoint},
}

-- An object whose methods are public, made again for each call; a wrong call changes only its own.
local objects = {
  {"tensor", function() return accelhost.ones(2, 2) end, C.methods},
  {"Module", function() return nn.Linear(2, 2) end, nn.Module},
  {"ModuleList", function() return nn.ModuleList {} end, nn.ModuleList},
  {"MultiheadAttention", function() return nn.MultiheadAttention(2, 1) end, nn.MultiheadAttention},
  {"TransformerEncoderLayer", function() return nn.TransformerEncoderLayer(2, 1) end, nn.TransformerEncoderLayer},
  {"DataLoader", function() return data.DataLoader(data.SyntheticDigits {size = 2}) end, data.DataLoader},
  {"Subset", function() return data.Subset(data.SyntheticDigits {size = 2}, 0, 1) end, data.Subset},
  {"RandomSampler", function() return data.RandomSampler(3) end, data.RandomSampler},
  {"DistributedSampler", function() return data.DistributedSampler(3) end, data.DistributedSampler},
  {"Optimizer", function() return optim.AdamW {nn.Parameter(accelhost.ones(2))} end, optim.AdamW},
  {"LRScheduler", function()
    return optim.lr_scheduler.StepLR(optim.AdamW {nn.Parameter(accelhost.ones(2))}, 1)
  end, optim.lr_scheduler.StepLR},
  {"Accelerator", function() return accelhost.Accelerator() end, accelhost.Accelerator},
  {"Generator", function() return accelhost.Generator() end, getmetatable(accelhost.Generator()).__index},
  {"progress", function() return accelhost.progress(3, {disable = true}) end},
}

local function is_callable(value)
  return type(value) == "function" or type(value) == "table" and kinds.is_callable(value)
end

-- Functions that end the process, or that accept anything.
local left_out = {
  ["accelhost.parse_args"] = true, -- writes its errors for the user of the script and exits
  ["accelhost.args"] = true, -- so does this
  ["accelhost.nn.Identity"] = true,
  ["accelhost.randint"] = true,    -- randint(high, size) or randint(low, high, size)
  ["Accelerator:print"] = true,    -- writes its arguments
  ["progress:write"] = true,
}

-- Methods that a class written in a script defines or calls, of its parent.
local for_classes = {}
for _, name in ipairs {
  "check_group", "define", "define_fused", "each_parameter", "init_state", "setup", "apply", "each_group", "per_group",
  "functions_per_group", "check", "check_optimizer", "get_lr", "new_step", "zeros_like", "init", "from_pretrained",
} do
  for_classes[name] = true
end

local function sorted_names(object)
  local seen, list = {}, {}
  while type(object) == "table" do
    for name in pairs(object) do
      if type(name) == "string" and not name:find "^_" and not seen[name] then
        seen[name] = true
        list[#list + 1] = name
      end
    end
    object = rawget(object, "_parent")
  end
  table.sort(list)
  return list
end

--- Every public function and method: {title, name, call(...), method, function}.
---@return table[]
function surface.entries()
  local entries = {}
  for _, row in ipairs(surface.tables) do
    local title, object = row[1], row[2]
    for _, name in ipairs(getmetatable(object).names()) do
      local value = object[name]
      local full = (title == "accelhost" and "" or "accelhost.") .. title .. "." .. name
      if is_callable(value) and not left_out[full] and name ~= "accelerator" then
        entries[#entries + 1] = {title = title .. "." .. name, name = name, fn = value, call = value}
      end
    end
  end
  for _, row in ipairs(objects) do
    local title, make, methods = unpack(row)
    local object = make()
    for _, name in ipairs(sorted_names(methods or getmetatable(object))) do
      local fine, method = pcall(function() return object[name] end)
      if fine and type(method) == "function" and name ~= "extend"
        and not (title ~= "tensor" and for_classes[name]) and not left_out[title .. ":" .. name] then
        entries[#entries + 1] = {
          title = title .. ":" .. name, name = name, fn = method, method = true,
          call = function(...) return method(make(), ...) end,
        }
      end
    end
  end
  return entries
end

local set = data.TensorDataset(accelhost.zeros(2, 2))
local pool = {
  1, true, "float32", "cpu", accelhost.ones(2, 2), {1}, {}, false, function() end, nn.Linear(2, 2), set,
  accelhost.Generator(), accelhost.distributed.group.NON_GROUP_MEMBER,
  {accelhost.ones(2)}, {set}, optim.SGD {nn.Parameter(accelhost.ones(2))}, {nn.ReLU()},
}
local junk = {
  "junk", -1.5, true, {junk = 1}, {"junk", "junk"}, accelhost.ones(3):lt(2), coroutine.create(function() end), print,
}

--- A value that a kind of argument accepts.
---@param kind table? of accelhost.util.kinds
---@return any
function surface.sample(kind)
  if not kind then return 1 end
  if kind.words then return kind.words[1] end
  if kind.sample then return kind.sample end
  for _, value in ipairs(pool) do
    if kind.test(value) then return value end
  end
  error("no sample of " .. kind.name)
end

--- Values that it does not accept.
---@param kind table?
---@return any[]
function surface.wrong(kind)
  local values = {}
  for _, value in ipairs(kind and junk or {}) do
    if not kind.test(value) then values[#values + 1] = value end
  end
  return values
end

--- The parameters that a function of this entry reads, {name, kind, required}; nil for one without a signature.
---@param entry table
---@return table[]? rows
---@return string? the name in its errors
function surface.rows(entry)
  local name, text
  if type(entry.fn) == "function" then name, text = C.system.signature(entry.fn) end
  if not name then
    -- A method's signature is stored under its bare name; those of loaders and optimizers are not read.
    if entry.method and not entry.title:find "^tensor:" and not entry.title:find "^Module:" then return nil end
    if entry.name == "autocast" then return nil end -- its options end at a function argument
    if entry.title == "Module:compile" then return nil end -- not here; the accelerator has one
    local rows = arguments.signatures[entry.title] or arguments.signatures[entry.name]
    local itself = rows and entry.method and rows[1]
    if itself and (itself.name == "input" or entry.title:find "^tensor:") then rows = {unpack(rows, 2)} end
    return rows, entry.name
  end
  local letters = {
    T = "tensor", i = "integer", n = "number", b = "flag", s = "string", d = "dtype", D = "device", F = "callable",
    G = "generator", O = "number|tensor|flag", I = "integers",
  }
  local list = {name = "list", test = function(value)
    return type(value) == "table" and getmetatable(value) == nil and accelhost.is_tensor(value[1])
  end}
  local many = setmetatable({sample = {1}}, {__index = kinds.get "integers"})
  local rows = {}
  for parameter, letter, rest in text:gmatch "([%w_]+):(.)([^,]*)" do
    local kind = letter == "L" and list or letter == "I" and many or letters[letter] and kinds.get(letters[letter])
    -- true and false fill tensors, and select by position whether a variance is unbiased.
    if parameter == "fill_value" or (parameter == "correction" and text:find "unbiased:b") then
      kind = kinds.get "number|flag"
    elseif parameter == "dim" and text:find "unbiased:b" then
      kind = kinds.get "integers|flag"
    end
    rows[#rows + 1] = {name = parameter, kind = kind, required = rest == "", list = letter == "L" or letter == "I"}
  end
  if entry.method then rows = {unpack(rows, 2)} end
  return rows, name
end

--- Is this the text of an error that the library did not mean to raise?
---@param message any
---@return boolean
function surface.is_raw(message)
  if type(message) ~= "string" then return true end
  for _, sign in ipairs {
    "attempt to ", "bad argument #", "accelhost/[%w_/]+%.lua:%d+:", "^accelhost/", "table index is ", "stack overflow",
    "invalid value %(", "malformed", "number expected", "expected, got no value",
  } do
    if message:find(sign) then return true end
  end
  return false
end

return surface
