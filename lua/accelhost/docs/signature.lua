--- The parameters of a public function, from the signature that the function itself parses its arguments with.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local kinds = require "accelhost.util.kinds"
local reader = require "accelhost.docs.reader"

local signature = {}

-- The letters of the op table and of C functions.
local letters = {
  T = {"tensor", "Tensor"}, O = {"a tensor or a number", "Tensor|number|boolean"},
  L = {"a table of tensors", "Tensor[]"},
  i = {"integer", "integer"}, I = {"integers", "integer|integer[]"}, n = {"number", "number"}, b = {"flag", "boolean"},
  d = {"dtype", "string"}, s = {"string", "string"}, D = {"device", "string"}, F = {"function", "function"},
  G = {"generator", "Generator"}, ["*"] = {"any", "any"},
}

-- The kinds of arguments (accelhost.util.kinds) as LuaCATS types.
local types = {
  any = "any", integer = "integer", size = "integer", count = "integer", number = "number", positive = "number",
  nonnegative = "number", probability = "number", ["false"] = "false", flag = "boolean", string = "string",
  ["function"] = "function", callable = "function", iterable = "any", table = "table", list = "table",
  sizes = "integer|integer[]", counts = "integer|integer[]", integers = "integer|integer[]",
  numbers = "number|number[]", datasets = "Dataset[]", callables = "function[]", tensor = "Tensor",
  tensors = "Tensor|Tensor[]", dtype = "string", device = "string", generator = "Generator", module = "Module",
  modules = "Module[]", dataset = "Dataset", sized = "Dataset|integer", sampler = "Sampler|table",
  tensor_list = "Tensor[]", group = "ProcessGroup", accelerator = "Accelerator",
}

-- Descriptions of parameters of these names where the comment has none.
local hint = "a choice between PyTorch's implementations of the same step; accepted, without effect"
local unknown_here = "of PyTorch; true is an error with the reason"
local world = "default: the world"
local known_texts = {
  foreach = hint, fused = hint, capturable = unknown_here, differentiable = unknown_here,
  maximize = "go up the gradient, to make a score larger",
  generator = "the generator to draw from, instead of the default one",
  transform = "of a sample before it is returned", target_transform = "of a sample's label",
  reduction = "of the losses of the samples: mean, sum, or none to have each",
  last_epoch = "the epoch to resume from; -1 begins", group = world, process_group = world,
  async_op = "true: return a work at once",
  group_src = "its rank in the group, instead of `src`", group_dst = "its rank in the group, instead of `dst`",
}

-- The kind and type of parameters of these names that the function checks by itself.
local by_name = {
  params = {"a table of parameters, or of groups {params = ..., lr = ...}", "Tensor[]|table[]"},
  optimizer = {"an optimizer", "Optimizer"}, schedulers = {"a table of schedulers", "LRScheduler[]"},
}

-- Parameters of these names are of these types in all of lua/, unless their comment has another one.
local types_of_names = {
  accelerator = "Accelerator", accelhost = "table", adapter_name = "string", args = "TrainingArguments",
  batch_sampler = "table", batches = "table", before = "string", bucket = "GradBucket", callback = "table",
  changes = "table", channels = "integer", class_name = "string", cls = "table", column_names = "string|string[]",
  config_class = "PretrainedConfig", count = "integer", definition = "Definition", device = "string",
  directory = "string", dtype = "string", entry = "table", epoch = "integer", facts = "table", field = "string",
  file = "string", fn = "function", folder = "string", format = "string", given = "table", heads = "integer",
  height = "integer", high = "number", i = "integer", indent = "integer", index = "integer", indices = "integer[]",
  inner = "table", inputs = "table", interval = "integer", key = "string", kind = "string", label = "string",
  line = "integer", loader = "DataLoader", logging_dir = "string", low = "number", message = "string", model = "Module",
  Module = "table", module = "Module", most = "integer", n = "integer", name = "string", names = "string[]",
  native = "userdata", new_column_name = "string", now = "number", num_shards = "integer", number = "integer",
  numbers = "integer[]", objects = "table", Optimizer = "table", optimizer = "Optimizer",
  original_column_name = "string", parameter = "Tensor", parts = "table[]", pass = "Pass", path = "string",
  paths = "string[]", prefix = "string", project_dir = "string", rank = "integer", real = "Tensor",
  reducer = "userdata", root = "integer", sampler = "table", saved = "table", scale = "number", scene = "table",
  scheduler = "LRScheduler", self = "table", sequences = "Tensor[]", set = "table", sets = "table",
  settings = "table<string, any>", shard_of = "fun(parameter: userdata): Shard?", shards = "integer", size = "integer",
  sizes = "integer[]", source = "string", step = "integer", store = "Store", study = "table", tag = "string",
  tensor = "Tensor", test_dataset = "Dataset", text = "string", title = "string", tokens = "integer", total = "integer",
  trainer = "Trainer", trial = "table", value = "any", weight = "number", width = "integer", word = "string",
  x = "Tensor",
}

local function type_of(kind)
  if not kind then return nil end
  local parts = {}
  for part in kind.name:gmatch "[^|]+" do
    parts[#parts + 1] = part:find "^'" and '"' .. part:sub(2, -2) .. '"' or types[part] or "any"
  end
  return table.concat(parts, "|")
end

--- An upvalue of a function, by its name.
---@param wanted string
function signature.upvalue(fn, wanted)
  for i = 1, math.huge do
    local name, value = debug.getupvalue(fn, i)
    if not name then return nil end
    if name == wanted then return value end
  end
end

local upvalue = signature.upvalue

-- A reader made by arguments.signature holds its parameters.
local function rows_of_reader(fn)
  local info = debug.getinfo(fn, "S")
  local rows_of = info.source:find "util/arguments%.lua$" and upvalue(fn, "rows_of")
  local rows = rows_of and rows_of(upvalue(fn, "parameters"))
  if rows then return rows, upvalue(fn, "what") end
end

-- The reader that a function calls: among several the one of its name.
local function reader_of(fn, name)
  local found
  for i = 1, math.huge do
    local upname, value = debug.getupvalue(fn, i)
    if not upname then break end
    if type(value) == "function" then
      local rows, what = rows_of_reader(value)
      if rows and (not found or what == name) then found = rows end
    end
  end
  return found
end

-- The function inside the guard of util/class.lua around methods, the part's method that a method delegates to, and the
-- function inside the wrapper of util/autocast.lua around functions.
local function reading(fn)
  local info = debug.getinfo(fn, "S")
  if info.source:find "util/class%.lua$" then
    fn = upvalue(fn, "method") or fn
    return class.delegated(fn) or fn
  end
  if info.source:find "util/autocast%.lua$" then return upvalue(fn, "fn") or fn end
  return fn
end

--- The function in its file, inside of guards, casts and the reader of its arguments.
---@return function
function signature.unguarded(fn)
  fn = reading(fn)
  return debug.getinfo(fn, "S").source:find "util/arguments%.lua$" and upvalue(fn, "body") or fn
end

-- A function that makes an object holds the object's class.
local function class_of(fn)
  for i = 1, math.huge do
    local name, value = debug.getupvalue(fn, i)
    if not name then return nil end
    if type(value) == "table" and rawget(value, "_class") == value and rawget(value, "init") then return value end
  end
end

local function from_rows(rows)
  local list = {}
  for i, row in ipairs(rows) do
    local default = row.default
    if type(default) == "function" then default = nil end
    local known = not row.kind and by_name[row.name] or {}
    list[i] = {
      name = row.name, required = row.required, default = default, kind = row.kind and row.kind.text or known[1],
      type = type_of(row.kind) or known[2], text = row.text or known_texts[row.name],
    }
  end
  return list
end

local function read_default(letter, text)
  if letter == "s" then return text end
  if letter == "b" then return text == "true" end
  return tonumber(text) or text
end

--- The parameters of a text as in the op table: "input:T, dim:i=-1, dtype:d?".
---@return table[] # {name, required, default, kind, type}
function signature.parse(text)
  local list = {}
  for name, letter, rest in text:gmatch "([%w_]+):(.)([^,]*)" do
    local kind = letters[letter]
    local default = rest:match "^=(.*)$"
    list[#list + 1] = {
      name = name, required = rest == "", default = default and read_default(letter, default),
      is_string = letter == "s",
      kind = kind[1]:find " " and kind[1] or kinds.get(kind[1]).text, type = kind[2],
    }
  end
  return list
end

-- A function that checks its arguments itself: the names in its head, or those in its comment.
local function from_comment(block)
  local list = {}
  local given = block and block.arguments
  if not given or given == "..." and #block.params > 0 then
    for i, param in ipairs(block and block.params or {}) do
      list[i] = {name = param.name, required = not param.optional, type = param.type}
    end
    return list
  end
  for name in given:gmatch "[%w_%.]+" do
    local param = reader.param(block, name)
    list[#list + 1] = {
      name = name, required = not (param and param.optional), type = param and param.type or types_of_names[name],
    }
  end
  return list
end

--- The parameters of a public function, class or op.
---@param block table? its comment
---@return table[] # {name, required, default, kind, type}
function signature.of(value, name, block)
  local fn = value
  if type(value) == "table" then fn = value.init end
  if type(fn) == "function" then
    local known, text = C.system.signature(fn)
    if known then return signature.parse(text) end
    fn = reading(fn)
    local rows = reader_of(fn, name)
    if rows then return from_rows(rows) end
    rows = type(value) == "table" and arguments.signatures[value._name]
    if rows then return from_rows(rows) end
    local made = class_of(fn)
    if made then return signature.of(made, made._name, block) end
    if debug.getinfo(fn, "u").nparams == 0 and not debug.getinfo(fn, "u").isvararg then return {} end
  end
  local list = from_comment(block)
  -- A class of accelhost.models is called with its configuration.
  local config = type(value) == "table" and value.config_class
  if config then table.insert(list, 1, {name = "config", required = true, type = config._name .. "|table"}) end
  return list
end

local function shown(value)
  if type(value) == "string" then return ("%q"):format(value) end
  if type(value) == "table" then
    local parts = {}
    for i, item in ipairs(value) do parts[i] = shown(item) end
    return "{" .. table.concat(parts, ", ") .. "}"
  end
  local thirds = type(value) == "number" and value * 3
  if thirds and thirds % 1 == 0 and value % 1 ~= 0 then return ("%d/3"):format(thirds) end
  if type(value) == "number" then return value % 1 == 0 and ("%d"):format(value) or ("%.14g"):format(value) end
  return tostring(value)
end

--- A parameter as the signature shows it: "dim = -1".
---@param parameter table
function signature.parameter_text(parameter)
  if parameter.required then return parameter.name end
  return parameter.name .. " = " .. shown(parameter.default)
end

--- "(input, dim = -1)".
---@param parameters table[]
function signature.text(parameters)
  local parts = {}
  for i, parameter in ipairs(parameters) do parts[i] = signature.parameter_text(parameter) end
  return "(" .. table.concat(parts, ", ") .. ")"
end

--- The parameters of an entry under one of its names: a method has its tensor before the colon.
---@param entry table of the model
---@return table[]
function signature.under(entry, name)
  local first = entry.parameters[1]
  local bound = name:find "^Tensor:" and first and first.name == "input" and entry.kind ~= "method"
  return bound and {unpack(entry.parameters, 2)} or entry.parameters
end

return signature
