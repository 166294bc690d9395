--- accelhost types: definition files for the Lua language server, one for each module.
--
-- The objects of a class are described by a LuaCATS class of its name; a base class is also a table with `extend`.
-- Optional arguments appear twice: by position, and in an overload with the trailing table.
local C = require "accelhost._C"
local model = require "accelhost.docs.model"
local signature = require "accelhost.docs.signature"

local keywords = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat return then true until
  while]]):gmatch "%S+" do
  keywords[word] = true
end

local function safe(name)
  return keywords[name] and name .. "_" or name
end

local function type_of(item)
  local kind = item.type
  if not kind or kind == "" then return "any" end
  return (kind:gsub("%s*%.%.%.$", ""))
end

local function write_text(out, entry)
  for i, part in ipairs(entry.parts) do
    if i > 1 then out[#out + 1] = "---" end
    if part.text then
      out[#out + 1] = "--- " .. part.text
    else
      out[#out + 1] = "--- ```lua"
      for _, line in ipairs(part.code) do out[#out + 1] = "--- " .. line:gsub("^| ?", "") end
      out[#out + 1] = "--- ```"
    end
  end
end

-- "a: integer, b?: boolean"
local function typed(parameters, owner)
  local list = {}
  if owner then list[1] = "self: " .. owner end
  for _, p in ipairs(parameters) do
    if p.name == "..." then
      list[#list + 1] = "...: " .. type_of(p)
    else
      list[#list + 1] = safe(p.name) .. (p.required and "" or "?") .. ": " .. type_of(p)
    end
  end
  return table.concat(list, ", ")
end

local function returned(entry, kind)
  if kind then return ": " .. kind end
  local list = {}
  for i, item in ipairs(entry.returns) do list[i] = type_of(item) end
  return #list > 0 and ": " .. table.concat(list, ", ") or ""
end

-- Return the overload with the options in a table after the required parameters.
local function overload(entry, owner, kind)
  local required, options = {}, {}
  for _, p in ipairs(entry.parameters) do
    if p.required and #options == 0 then
      required[#required + 1] = p
    elseif p.name ~= "..." then
      options[#options + 1] = ("%s?: %s"):format(safe(p.name), type_of(p))
    end
  end
  if #options == 0 then return nil end
  local head = typed(required, owner)
  return ("---@overload fun(%s%soptions: {%s})%s"):format(head, head ~= "" and ", " or "",
    table.concat(options, ", "), returned(entry, kind))
end

local function write_tags(out, entry, owner, kind)
  for _, p in ipairs(entry.parameters) do
    local text = p.text or p.kind or ""
    if p.name == "..." then
      out[#out + 1] = ("---@param ... %s %s"):format(type_of(p), text)
    else
      out[#out + 1] = ("---@param %s%s %s %s"):format(safe(p.name), p.required and "" or "?", type_of(p), text)
    end
  end
  if kind then
    out[#out + 1] = "---@return " .. kind
  else
    for _, item in ipairs(entry.returns) do
      out[#out + 1] = ("---@return %s%s"):format(type_of(item), item.text ~= "" and " # " .. item.text or "")
    end
  end
  out[#out + 1] = overload(entry, owner, kind)
end

local function names(parameters)
  local list = {}
  for i, p in ipairs(parameters) do list[i] = safe(p.name) end
  return table.concat(list, ", ")
end

local function write_function(out, target, entry, kind)
  write_text(out, entry)
  write_tags(out, entry, nil, kind)
  out[#out + 1] = ("function %s(%s) end"):format(target, names(entry.parameters))
  out[#out + 1] = ""
end

local function write_method(out, owner, name, entry, parameters)
  local described = setmetatable({parameters = parameters}, {__index = entry})
  write_text(out, entry)
  write_tags(out, described, owner)
  if keywords[name] then
    out[#out + 1] = ('%s["%s"] = function(self%s) end'):format(owner, name,
      #parameters > 0 and ", " .. names(parameters) or "")
  else
    out[#out + 1] = ("function %s:%s(%s) end"):format(owner, name, names(parameters))
  end
  out[#out + 1] = ""
end

local function call_operator(entry)
  local forward = entry.forward
  if not forward or #forward.params ~= 1 or #forward.returns ~= 1 or forward.params[1].name == "..." then return nil end
  return ("---@operator call(%s): %s"):format(type_of(forward.params[1]), type_of(forward.returns[1]))
end

local function write_class(out, target, entry)
  local name = entry.class_name
  out[#out + 1] = "---@class " .. name .. (entry.parent and entry.parent ~= name and ": " .. entry.parent or "")
  for _, field in ipairs(entry.fields) do
    out[#out + 1] = ("---@field %s %s %s"):format(field.name, type_of(field), field.text or "")
  end
  out[#out + 1] = call_operator(entry)
  local base = not entry.parent
  if base then
    out[#out + 1] = ("---@field extend fun(self: %s, name: string): %s a subclass"):format(name, name)
    out[#out + 1] = ("---@overload fun(%s): %s"):format(typed(entry.parameters), name)
  end
  out[#out + 1] = ("local %s = {}"):format(name)
  out[#out + 1] = ""
  for _, method in ipairs(entry.methods) do
    local own = method.name:match "[%w_]+$"
    if method.name:find "%.[%w_]+$" then
      write_function(out, name .. "." .. own, method)
    else
      write_method(out, name, own, method, method.parameters)
    end
  end
  if base then
    write_text(out, entry)
    out[#out + 1] = target .. " = " .. name
    out[#out + 1] = ""
  else
    write_function(out, target, entry, name)
  end
end

-- A function's own object (Generator, Progress) is a class of the same file.
local function write_maker(out, target, entry)
  local name = target:match "[%w_]+$":gsub("^%l", string.upper)
  out[#out + 1] = "---@class " .. name
  out[#out + 1] = ("local %s = {}"):format(name)
  out[#out + 1] = ""
  for _, method in ipairs(entry.methods) do
    write_method(out, name, method.name:match "[%w_]+$", method, method.parameters)
  end
  write_function(out, target, entry, name)
end

local function write_item(out, short, item)
  local entry = item.entry
  local name = item.name:match "[%w_]+$"
  local target = short .. "." .. name
  if entry.kind == "class" then
    write_class(out, target, entry)
  elseif entry.kind == "value" then
    write_text(out, entry)
    out[#out + 1] = ("---@type %s"):format(name == "accelerator" and "Accelerator" or type(entry.value))
    out[#out + 1] = target .. " = nil"
    out[#out + 1] = ""
  elseif #entry.methods > 0 then
    write_maker(out, target, entry)
  else
    write_function(out, target, entry)
  end
end

local function write_namespace(page, pages)
  local full = page.name == "accelhost" and "accelhost" or "accelhost." .. page.name
  local short = page.name:match "[%w_]+$"
  local out = {"---@meta " .. full, "", "---@class " .. full, ("local %s = {}"):format(short), ""}
  for _, other in ipairs(pages) do
    local parent, key = other.title:match "^(.*)%.([%w_]+)$"
    if parent == full then
      out[#out + 1] = "---@type " .. other.title
      out[#out + 1] = ("%s.%s = nil"):format(short, key)
      out[#out + 1] = ""
    end
  end
  for _, section in ipairs(page.sections) do
    for _, item in ipairs(section.items) do write_item(out, short, item) end
  end
  out[#out + 1] = "return " .. short
  return table.concat(out, "\n") .. "\n"
end

local operators = {"add", "sub", "mul", "div", "pow", "mod"}

local function write_tensor(page)
  local out = {"---@meta _", "", "---@class Tensor"}
  local methods = {}
  for _, section in ipairs(page.sections) do
    for _, item in ipairs(section.items) do
      local entry = item.entry
      if entry.kind == "field" then
        out[#out + 1] = ("---@field %s %s %s"):format(item.name:match "[%w_]+$",
          entry.returns[1] and type_of(entry.returns[1]) or "any", model.summary(entry))
      else
        methods[#methods + 1] = item
      end
    end
  end
  for _, name in ipairs(operators) do out[#out + 1] = ("---@operator %s(Tensor|number): Tensor"):format(name) end
  out[#out + 1] = "---@operator unm: Tensor"
  out[#out + 1] = "local Tensor = {}"
  out[#out + 1] = ""
  for _, item in ipairs(methods) do
    local entry, name = item.entry, item.name:match "[%w_]+$"
    local parameters = signature.under(entry, item.name)
    write_method(out, "Tensor", name, entry, parameters)
    if entry.inplace and C.methods[name .. "_"] then write_method(out, "Tensor", name .. "_", entry, parameters) end
  end
  return table.concat(out, "\n") .. "\n"
end

local function save(path, text)
  local file, reason = io.open(path, "w")
  if not file then return nil, reason end
  file:write(text)
  return file:close()
end

--- Write the files.
---@return integer # the exit code
return function(accelhost, folder)
  local reference = model.build(accelhost)
  local files = {["accelhost/tensor.lua"] = ""}
  for _, page in ipairs(reference.pages) do
    if page.name == "Tensor" then
      files["accelhost/tensor.lua"] = write_tensor(page)
    elseif not page.class then
      local path = page.name == "accelhost" and "accelhost.lua" or "accelhost/" .. page.name:gsub("%.", "/") .. ".lua"
      files[path] = write_namespace(page, reference.pages)
    end
  end
  for path, text in pairs(files) do
    local fine, reason = C.io.make_folder((folder .. "/" .. path):match "^(.*)/")
    if fine then fine, reason = save(folder .. "/" .. path, text) end
    if not fine then
      io.stderr:write("accelhost types: ", reason, "\n")
      return 1
    end
  end
  return 0
end
