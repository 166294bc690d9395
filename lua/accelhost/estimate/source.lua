--- The subject of an estimate: a model that a script creates, or tensors in files, as rows of weights: {name, layer,
--- shape, numel, numbers = those that it has, size = bytes of an element, float = its dtype may be another, trained,
--- parameter = not a buffer}.
---@param accelhost table the public surface
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local later = require "accelhost.util.later"
local quantization = later "accelhost.models.common.quantization"

local source = {}

local fail = arguments.raise

local is_class = class.is_class

local function is_module(value)
  local meta = not is_class(value) and getmetatable(value)
  return type(meta) == "table" and meta._is_module == true
end

local function describe(value)
  return type(value) == "nil" and "nothing" or "a " .. type(value)
end

-- A module, a function or class that makes one, or the entry `name` of a table of such.
local function to_model(value, path, name)
  if name then
    local fine, entry = pcall(function() return value[name] end)
    if type(value) ~= "table" or not fine or entry == nil then
      fail("--model: the result of %s has no '%s'", path, name)
    end
    value = entry
  end
  if is_module(value) then return value end
  if type(value) == "function" or is_class(value) then
    local made = value()
    if is_module(made) then return made end
    fail("%s: expected a function that returns a model (nn.Module), got one that returns %s", path, describe(made))
  end
  if type(value) == "table" then
    local names = {}
    for key in pairs(value) do names[#names + 1] = tostring(key) end
    table.sort(names)
    fail("%s returns a table: name the model in it by --model (there are: %s)", path, table.concat(names, ", "))
  end
  fail("%s: expected the file to return a model (nn.Module), or a function or class that makes one, got %s", path,
    describe(value))
end

-- Is the last statement of a file a return? No statement may follow one.
local function ends_with_return(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return not loadstring(text:gsub("^#[^\n]*", "") .. "\nlocal _")
end

-- Call a function while new tensors are on the device "meta".
local function on_meta(accelhost, fn)
  local before = accelhost.get_default_device()
  accelhost.set_default_device "meta"
  local fine, result = xpcall(fn, tostring)
  accelhost.set_default_device(before)
  return fine, result
end

--- Return the folder of a checkpoint for a folder, or for the config.json in it; nil for other paths.
---@return string?
function source.checkpoint_folder(path)
  if C.data.look(path) == "folder" then return path end
  if path:match "[^/]*$" == "config.json" then return path:match "^(.*)/" or "." end
end

--- The model of a checkpoint's configuration, on the device "meta": the class that wrote it, or the class `name` of
--- accelhost.models.
---@param name? string
---@param quantises? BitsAndBytesConfig default that of config.json
---@return table module
function source.of_checkpoint(accelhost, folder, name, quantises)
  local fine, result = on_meta(accelhost, function()
    local models = accelhost.models
    local config = models.AutoConfig.from_pretrained(folder)
    name = name or config.architectures and config.architectures[1] or "AutoModel"
    local known, cls = pcall(function() return models[name] end)
    if not known or cls == nil then arguments.fail("--model: accelhost.models has no '%s'", name) end
    local model = cls.from_config and cls.from_config(config) or cls(config)
    local entry = config.quantization_config
    quantises = quantises or entry and quantization.read("estimate-memory", folder, entry)
    if quantises then quantization.replace_on_meta(folder, model, quantises) end
    return model
  end)
  if not fine then fail("%s", (result:gsub("^accelhost/[%w_/]+%.lua:%d+: ", ""))) end
  return result:to "meta"
end

--- The model of a script, made on the device "meta": without memory and without values.
---@param name? string the model's name in the table that the script returns
---@return table module
function source.model(accelhost, path, name)
  local chunk, message = loadfile(path)
  if not chunk then fail("%s", message) end
  if not ends_with_return(path) then
    fail("%s: expected the file to return a model (nn.Module), or a function or class that makes one, got nothing (it "
      .. "ends without a return, and was not run)", path)
  end
  local fine, result = on_meta(accelhost, function() return to_model(chunk(), path, name) end)
  if not fine then
    local hint = result:find("on meta", 1, true) and
      "\n  the script runs on shapes alone (device \"meta\"): let it return the model instead of using it" or ""
    fail("%s%s", result, hint)
  end
  return result:to "meta"
end

local function row(name, tensor, trained, parameter)
  return {
    parameter = parameter,
    name = name, layer = name:match "^(.*)%.[^.]*$" or name, numel = tensor:numel(), shape = tensor:shape(),
    numbers = tensor:numel() * (parameter and tensor.dtype == "uint8" and 2 or 1), -- 4-bit codes: two in a byte
    size = tensor:element_size(),
    float = tensor:is_floating_point(), trained = trained,
  }
end

--- List the weights of a model; a weight of several names counts once.
---@param model table
function source.of_model(model)
  local rows = {}
  for name, tensor in model:named_parameters() do rows[#rows + 1] = row(name, tensor, tensor.requires_grad, true) end
  for name, tensor in model:named_buffers() do rows[#rows + 1] = row(name, tensor, false) end
  for name, module in model:named_modules() do
    for _, tensor in ipairs(module._constants and module:_constants() or {}) do
      if tensor ~= module.weight then -- scales, whose dtype is not the model's
        local scales = row(name .. ".scales", tensor, false)
        scales.float = false
        rows[#rows + 1] = scales
      end
    end
  end
  return rows
end

local function add_tensors(rows, prefix, value)
  if C.is_tensor(value) then
    rows[#rows + 1] = row(prefix, value, value:is_floating_point())
  elseif type(value) == "table" then
    local keys = {}
    for key in pairs(value) do keys[#keys + 1] = key end
    table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
    for _, key in ipairs(keys) do
      add_tensors(rows, prefix == "" and tostring(key) or prefix .. "." .. tostring(key), value[key])
    end
  end
end

--- The tensors of a file of weights, or of all the files that an index of shards names.
function source.of_file(accelhost, path)
  local rows, files = {}, {path}
  if path:find "%.index%.json$" then
    local file, message = io.open(path, "rb")
    if not file then fail("%s", message) end
    local index = accelhost.json.decode(file:read "*a")
    file:close()
    if type(index.weight_map) ~= "table" then fail("%s: expected a weight_map, as an index of shards has", path) end
    local seen = {}
    files = {}
    for _, name in pairs(index.weight_map) do
      if not seen[name] then files[#files + 1] = (path:match "^(.*/)" or "") .. name end
      seen[name] = true
    end
    table.sort(files)
  end
  for _, name in ipairs(files) do add_tensors(rows, "", accelhost.load(name)) end
  if #rows == 0 then fail("%s holds no tensors", path) end
  return rows
end

return source
