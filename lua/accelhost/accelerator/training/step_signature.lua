--- The arguments of a compiled step: the values that must not change, and the graph's own tensors in place of those
--- passed.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail = arguments.fail
local signature = {}

local function text_of(value)
  if C.is_tensor(value) then
    return ("%s %s on %s"):format(value.dtype, arguments.shape_text(value), value.device)
  end
  return arguments.describe(value)
end

-- Record one argument: its leaves in the order of sorted keys.
local function add(list, path, value, device, within)
  if C.is_tensor(value) then
    if value.device ~= device then
      fail("compile: %s is on %s, and the step is captured on %s (loaders of accelerator:prepare copy batches "
        .. "there)", path, value.device, device)
    end
    if value.requires_grad then
      fail("compile: %s requires a gradient, which a graph does not carry out of it; detach it", path)
    end
  elseif type(value) == "table" then
    if within[value] then fail("compile: %s holds itself", path) end
    within[value] = true
    for _, key in ipairs(arguments.sorted_keys(value)) do
      add(list, ("%s.%s"):format(path, tostring(key)), value[key], device, within)
    end
    within[value] = nil
    return
  end
  list[#list + 1] = {path = path, value = value, tensor = C.is_tensor(value)}
end

--- The arguments of a call.
---@param device string the device that their tensors must be on
function signature.of(device, ...)
  local given = {n = select("#", ...), values = {...}}
  for i = 1, given.n do add(given, "argument " .. i, given.values[i], device, {}) end
  return given
end

local function rebuilt(value, made)
  if C.is_tensor(value) then
    made[#made + 1] = C.empty(value:shape(), {dtype = value.dtype, device = value.device})
    return made[#made]
  end
  if type(value) ~= "table" then return value end
  local copy = setmetatable({}, getmetatable(value))
  for _, key in ipairs(arguments.sorted_keys(value)) do rawset(copy, key, rebuilt(value[key], made)) end
  return copy
end

--- The graph's own arguments like those of a call.
---@return table # {values = the arguments of the function, tensors, leaves = the values that must not change}
function signature.inputs(given)
  local inputs = {tensors = {}, leaves = {}, values = {n = given.n}}
  for i = 1, given.n do inputs.values[i] = rebuilt(given.values[i], inputs.tensors) end
  for i, leaf in ipairs(given) do
    inputs.leaves[i] = {path = leaf.path, tensor = leaf.tensor, text = text_of(leaf.value),
      value = not leaf.tensor and leaf.value or nil}
  end
  return inputs
end

--- Compare a call's arguments with the graph's: the text of the first difference, and a remedy, or nil.
---@return string?, string?
function signature.difference(inputs, given)
  for i = 1, math.max(#inputs.leaves, #given) do
    local wanted, got = inputs.leaves[i], given[i]
    if not wanted or not got or wanted.path ~= got.path then
      return ("the step was captured with %s and is called with %s"):format(wanted and wanted.path or "fewer arguments",
        got and got.path or "fewer"), ""
    end
    local text = got.tensor and text_of(got.value)
    if got.tensor ~= wanted.tensor or text and text ~= wanted.text or not text and got.value ~= wanted.value then
      return ("%s: the step was captured with %s, got %s"):format(wanted.path, wanted.text, text_of(got.value)),
        got.tensor and " (a loader's last batch may be smaller: drop_last = true; call reset() to capture again)" or
          " (a graph cannot heed another value: pass it as a tensor, or capture a separate step)"
    end
  end
  return nil
end

--- Copy a call's tensors into the graph's.
function signature.fill(inputs, given)
  local at = 0
  C.autograd.no_grad(function()
    for i = 1, #given do
      if given[i].tensor then
        at = at + 1
        inputs.tensors[at]:copy_(given[i].value)
      end
    end
  end)
end

return signature
