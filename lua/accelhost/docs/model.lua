--- Everything public as one model: names from the live tables, texts from the sources' comments.
--
--   local model = require("accelhost.docs.model").build(require "accelhost")
--   model.pages       -- {name, title, parts, sections = {{title, parts, items = {{name, entry}, ...}}, ...}}, in order
--   model.entries     -- {name, page, kind, parameters, parts, params, returns, fields, methods, aliases, path, line}
--   model.by_name     -- "nn.Linear", "Tensor:add_", "F.relu" -> entry
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local comments = require "accelhost.docs.comments"
local is_hidden = require "accelhost.docs.hidden_methods"
local pages = require "accelhost.docs.pages"
local reader = require "accelhost.docs.reader"
local signature = require "accelhost.docs.signature"

local model = {}

-- Classes with a separate page.
local own_page = {Accelerator = "Accelerator", Module = "Module"}
-- Functions that make an object whose class has no public name.
local makers = {
  {"Generator", function(accelhost) return getmetatable(accelhost.Generator()) end},
  {"Progress", function(accelhost) return getmetatable(accelhost.progress(1, {disable = true})) end},
}
local function is_namespace(value)
  if type(value) ~= "table" or class.is_class(value) then return false end
  local meta = getmetatable(value)
  return meta == nil and next(value) ~= nil or type(meta) == "table" and rawget(meta, "names") ~= nil
end

local function names_of(namespace)
  local meta = getmetatable(namespace)
  if meta and meta.names then
    local list, seen = {}, {}
    for _, name in ipairs(meta.names()) do
      if not seen[name] and not name:find "^_" then list[#list + 1] = name end
      seen[name] = true
    end
    table.sort(list)
    return list
  end
  local list = {}
  for _, name in ipairs(arguments.sorted_keys(namespace)) do
    if type(name) == "string" then list[#list + 1] = name end
  end
  return list
end

-- The description of a parameter, without the default that the signature shows.
local function text_beside(parameter, text)
  if parameter.default == nil then return text end
  return (text:gsub("^default [^%s:;,]+$", ""):gsub("^default [^:;,]-[:;,] +", ""):gsub("[,;] default [^%s:;,]+$", "")
    :gsub("; default {.-}$", ""))
end

local function describe_parameter(parameter, block)
  local documented = reader.param(block, parameter.name)
  if not documented then return end
  local text = text_beside(parameter, documented.text)
  parameter.text = text ~= "" and text or parameter.text
  parameter.type = parameter.type or documented.type
  -- Where the function does not check the argument, its comment has the type.
  if parameter.kind == "a value" and documented.type ~= "any" then
    parameter.kind, parameter.type = documented.type, documented.type
  end
end

-- Parameters, each with its description from the comment.
local function describe_parameters(parameters, ...)
  for _, parameter in ipairs(parameters) do
    for i = 1, select("#", ...) do describe_parameter(parameter, (select(i, ...))) end
  end
  return parameters
end

-- Functions of these files are ops written in Lua: as ops they return a tensor where the comment states nothing else.
local op_files = {
  "^lua/accelhost/functions/", "^lua/accelhost/linalg/", "^lua/accelhost/nn/functional/",
  "^lua/accelhost/special%.lua$", "^lua/accelhost/data/transforms/colors%.lua$",
  "^lua/accelhost/data/transforms/moves%.lua$", "^lua/accelhost/data/transforms/scales%.lua$",
}
local a_tensor, a_boolean = {{type = "Tensor", text = ""}}, {{type = "boolean", text = ""}}
local a_work = {{type = "Work?", text = "with async_op"}}

-- The results of a function: those of its comment; true or false where that begins with a question.
local function returns_of(block, kind)
  if not block or #block.returns > 0 or kind == "value" then return block and block.returns or {} end
  for _, pattern in ipairs(op_files) do
    if block.path:find(pattern) then return a_tensor end
  end
  local first = block.path:find "^lua/" and block.parts[1] and block.parts[1].text
  return first and first:find "^[^.?]*%?" and a_boolean or {}
end

local function new_entry(self, name, kind, value, block)
  local entry = {
    name = name, kind = kind, value = value, parameters = {}, parts = block and block.parts or {},
    returns = returns_of(block, kind), fields = {}, methods = {}, aliases = {},
    section = block and block.section or self.index.file[comments.path_of(value) or ""],
    path = block and block.path or comments.path_of(value), line = block and block.line,
  }
  self.entries[#self.entries + 1] = entry
  self.by_name[name] = entry
  return entry
end

local function add_parts(entry, block)
  if not block then return end
  local parts = {}
  for _, part in ipairs(entry.parts) do parts[#parts + 1] = part end
  for _, part in ipairs(block.parts) do parts[#parts + 1] = part end
  entry.parts = parts
end

-- A method of an interface is documented once, by the class that declares it.
local function is_documented_by_parent(self, cls, name)
  local parent = rawget(cls, "_parent")
  while parent do
    local own = rawget(parent, name)
    if own and reader.has_text(comments.of_method(self.index, parent._name, name, own, comments.path_of(own))) then
      return true
    end
    parent = rawget(parent, "_parent")
  end
  return false
end

local function add_methods(self, entry, object, class_name, path)
  local names = {}
  for name, value in pairs(object) do
    if type(name) == "string" and type(value) == "function" and not is_hidden(object, name) then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local value = object[name]
    local known, text = C.system.signature(value)
    local block
    if known then
      block = comments.row(self.index, name, text)
    else
      block = comments.of_method(self.index, class_name, name, value, path or comments.path_of(value))
    end
    -- A function of the class itself is written with a dot.
    local full = entry.name .. (not known and block and block.is_static and "." or ":") .. name
    if self.by_name[full] then goto next end
    if not reader.has_text(block) and is_documented_by_parent(self, object, name) then goto next end
    local method = new_entry(self, full, "method", value, block)
    local parameters = signature.of(value, name, block)
    if known then table.remove(parameters, 1) end
    if parameters[1] and parameters[1].name == "self" then table.remove(parameters, 1) end
    method.parameters = describe_parameters(parameters, block)
    method.path = method.path or entry.path
    entry.methods[#entry.methods + 1] = method
    ::next::
  end
end

local function add_class(self, name, value, folder)
  local class_name = value._name
  local block = comments.of_class(self.index, value, class_name, folder)
  local path = block and block.path or comments.path_of(value)
  local function part(what)
    return comments.best(self.index, what, function(other)
      return other.path == path and (other.owner == class_name or block and block.names[other.owner or ""]) and 4 or nil
    end)
  end
  local init, forward, call = part "init", part "forward", part "__call"
  local entry = new_entry(self, name, "class", value, block)
  add_parts(entry, init)
  entry.path, entry.line = path, block and block.line or init and init.line
  entry.section = self.index.file[path or ""] or entry.section
  if not reader.has_text(block) and not reader.has_text(init) then
    add_parts(entry, forward)
    add_parts(entry, call)
  end
  entry.parameters = describe_parameters(signature.of(value, class_name, init or block), block, init)
  entry.fields = block and block.fields or {}
  entry.forward = forward and (#forward.params > 0 or #forward.returns > 0) and forward
    or call and (#call.params > 0 or #call.returns > 0) and call or nil
  local parent = rawget(value, "_parent")
  entry.parent = parent and parent._name
  entry.class_name = class_name
  self.class_names[class_name] = name
  add_methods(self, entry, value, class_name, path)
  return entry
end

local function add_op(self, name, value, home)
  local known = self.ops[name]
  if known then return known end
  local block = comments.op(self.index, name)
  local entry = new_entry(self, home, "op", value, block)
  entry.op = name
  entry.parameters = describe_parameters(signature.parse(C.op_info(name).signature), block)
  if #entry.returns == 0 then entry.returns = a_tensor end
  self.ops[name] = entry
  return entry
end

-- The row of the op table that a function calls, and how: by the row's name, by another one, or in place.
local function op_name(name, value)
  local known = C.system.signature(value)
  local info = known and C.op_info(known)
  if not info then return nil end
  if value == C[known .. "_"] then return known, "in place" end
  return known, known ~= name and "alias" or nil
end

local function add_function(self, name, full, value, folder)
  local op, how = op_name(name, value)
  if op then
    local entry = add_op(self, op, value, full:gsub("[%w_]+$", op))
    entry.inplace = entry.inplace or how == "in place"
    return entry
  end
  if self.by_value[value] then return self.by_value[value] end
  local known, text = C.system.signature(value)
  local block = comments.of_function(self.index, name, value, folder)
  if not reader.has_text(block) and not comments.path_of(value) then
    block = comments.row(self.index, known or name, text) or block
  end
  if not reader.has_text(block) and not self.is_late then return nil end
  local entry = new_entry(self, full, "function", value, block)
  entry.parameters = describe_parameters(signature.of(value, name, block), block)
  for _, parameter in ipairs(#entry.returns == 0 and entry.parameters or {}) do
    if parameter.name == "async_op" then entry.returns = a_work end
  end
  self.by_value[value] = entry
  return entry
end

-- Add names whose functions are documented elsewhere: in a later module, under the name of the out-of-place form, or in
-- a row of the op table.
local function add_late(self)
  self.is_late = true
  for _, row in ipairs(self.late) do
    local page, key, full, value, folder = unpack(row)
    local plain = full:match "^(.*)_$"
    local documented = plain and self.by_name[plain]
    local op = C.op_info(key)
    if documented and not self.by_value[value] then
      documented.inplace = true
      pages.put(self, page, full, documented)
    elseif op then
      -- A function around a row of the op table.
      local entry = add_op(self, op.name, C[op.name], full)
      if entry.name == full then
        entry.parameters[#entry.parameters + 1] = {
          name = "inplace", default = false, kind = "true or false", type = "boolean", text = "write into the input",
        }
      end
      pages.put(self, page, full, entry)
    else
      pages.put(self, page, full, add_function(self, key, full, value, folder))
      pages.sort_sections(page)
    end
  end
end

-- Values that one comment lists are one entry, by the first one's name.
local function add_value(self, name, full, value, folder)
  local block = comments.of_function(self.index, name, value, folder)
  local first = block and block.listed and full:gsub("[%w_]+$", block.listed) or full
  return self.by_name[first] or new_entry(self, first, "value", value, block)
end

-- The file whose first comment describes a namespace: "accelhost.nn.init: ...".
local function file_of_namespace(self, title)
  local found
  for _, path in ipairs(arguments.sorted_keys(self.index.file)) do
    local block = self.index.file[path]
    local first = block.target == "" and block.parts[1] and block.parts[1].text
    if first and path:find "^lua/" and first:match "^(accelhost[%w_%.]*):" == title then
      if path:find "/init%.lua$" then return path end
      found = found or path
    end
  end
  return found
end

local function add_namespace(self, namespace, name)
  local title = name == "accelhost" and name or "accelhost." .. name
  local folder = "lua/accelhost/" .. (name == "accelhost" and "init.lua" or name:gsub("%.", "/"))
  local page = pages.new(self, name, title,
    file_of_namespace(self, title) or name == "accelhost" and folder or nil)
  local inner = {}
  for _, key in ipairs(names_of(namespace)) do
    local value = namespace[key]
    local full = name == "accelhost" and "accelhost." .. key or name .. "." .. key
    if is_namespace(value) then
      inner[#inner + 1] = {value, name == "accelhost" and key or full}
    elseif class.is_class(value) then
      if not self.by_name[full] then pages.put(self, page, full, add_class(self, full, value, folder)) end
    elseif type(value) == "function" then
      local entry = add_function(self, key, full, value, folder)
      if entry then
        pages.put(self, page, full, entry)
      else
        self.late[#self.late + 1] = {page, key, full, value, folder}
      end
    elseif type(value) ~= "userdata" or key ~= "null" then
      pages.put(self, page, full, add_value(self, key, full, value, folder))
    end
  end
  pages.sort_sections(page)
  for _, row in ipairs(inner) do add_namespace(self, row[1], row[2]) end
end

-- The entry of a method that is the same function as one of a module, or calls it.
local function shared_entry(self, name, value)
  local other = self.by_value[value] or self.by_name["accelhost." .. name]
  if other and (other.value == value or comments.path_of(value) == "lua/accelhost/init.lua") then return other end
end

local function add_tensor_method(self, page, name)
  local value, full = C.methods[name], "Tensor:" .. name
  local known, text = C.system.signature(value)
  local plain = name:match "^(.*)_$"
  local info = known and C.op_info(known)
  if info and (known == name or known == plain or C.op_info(plain or name)) then
    local entry = add_op(self, known, value, "Tensor:" .. known)
    if known ~= name and not C.op_info(name) then
      entry.inplace = true
      self.by_name[full] = entry
      -- The out-of-place form, where there is one, documents it.
      if C.methods[plain or name] then return nil end
    end
    return pages.put(self, page, full, entry)
  end
  local entry = shared_entry(self, name, value)
  if not entry then
    local block = not comments.path_of(value) and comments.row(self.index, name, text)
      or comments.of_function(self.index, name, value, "lua/accelhost/tensor.lua")
    entry = new_entry(self, full, "method", value, block)
    entry.parameters = describe_parameters(signature.of(value, name, block), block)
    local first = entry.parameters[1] and entry.parameters[1].name
    if first == "input" or first == "self" then table.remove(entry.parameters, 1) end
  end
  pages.put(self, page, full, entry)
end

-- The methods and fields of tensors.
local function add_tensor(self)
  local page = pages.new(self, "Tensor", "Tensor", "lua/accelhost/tensor.lua")
  for _, block in ipairs(self.blocks) do
    if block.path == "host/bind/tensor/tensor_fields.c" and block.target:find '^{"' then
      local name = block.target:match '"([%w_]+)"'
      local entry = new_entry(self, "Tensor." .. name, "field", nil, block)
      pages.put(self, page, entry.name, entry)
    end
  end
  for _, name in ipairs(arguments.sorted_keys(C.methods)) do add_tensor_method(self, page, name) end
  pages.sort_sections(page)
end

-- Objects whose class has no name in a public table.
local function add_objects(self, accelhost)
  local home = self.pages[1]
  for _, maker in ipairs(makers) do
    local name, object = maker[1], maker[2](accelhost)
    local owner = self.by_name["accelhost." .. name] or self.by_name["accelhost." .. name:lower()]
    if owner then add_methods(self, owner, object, object._name or name, owner.path) end
    if owner then owner.page = owner.page or home.name end
  end
end

-- Move each class with many methods to a page, where each method is an item.
local function split_pages(self)
  for _, entry in ipairs(self.entries) do
    local title = entry.kind == "class" and own_page[entry.class_name]
    if title and not entry.inner then
      local page = pages.new(self, title, title, entry.path)
      page.class = entry
      entry.page = page.name
      pages.put(self, page, entry.name, entry)
      for _, method in ipairs(entry.methods) do
        method.page = page.name
        method.section = method.section or entry.section
        pages.put(self, page, method.name, method)
      end
      pages.sort_sections(page)
    end
  end
end

-- The methods of a class without a public name are documented with those of its subclasses.
local function name_parents(self)
  for i = 1, #self.entries do
    local entry = self.entries[i]
    local parent = entry.kind == "class" and rawget(entry.value, "_parent")
    while parent and not self.class_names[parent._name] do
      add_methods(self, entry, parent, parent._name)
      parent = rawget(parent, "_parent")
    end
    if entry.kind == "class" then entry.parent = parent and parent._name end
    entry.parent_name = parent and self.class_names[parent._name]
  end
end

-- Add short forms of names.
local function add_short_names(self)
  local more = {}
  for _, name in ipairs(arguments.sorted_keys(self.by_name)) do
    local entry = self.by_name[name]
    local short = name:match "^nn%.functional%.(.*)$"
    if short then more["F." .. short] = entry end
    short = name:match "^Tensor:(.*)$"
    if short then more["Tensor." .. short] = entry end
    short = name:match "^accelhost%.(.*)$"
    if short then more[short] = entry end
    if name:find ":" and not name:find "^Tensor" then more[name:gsub(":", ".")] = entry end
    if entry.kind == "method" then more[name:gsub("%.([%w_]+)$", ":%1")] = entry end
  end
  for name, entry in pairs(more) do self.by_name[name] = self.by_name[name] or entry end
end

local guide_index = "examples/guides/README.md"

-- Guides with their groups and in their order, both from the index of the guides; those that it does not list follow.
local function order_guides(self, index)
  local place, group_of, group, count = {}, {}, nil, 0
  for _, line in ipairs(index) do
    group = line:match "^## (.*)$" or group
    local name = line:match "^%- %[([%w_]+)%]%("
    if name then
      count = count + 1
      place[name], group_of[name] = count, group
    end
  end
  for _, guide in ipairs(self.guides) do guide.group = group_of[guide.name] or "More" end
  table.sort(self.guides, function(a, b)
    local left, right = place[a.name] or math.huge, place[b.name] or math.huge
    if left ~= right then return left < right end
    return a.name < b.name
  end)
end

-- Environment variables and guides.
local function add_others(self)
  self.variables, self.documented_variables, self.guides = {}, {}, {}
  local index = {}
  for _, block in ipairs(self.blocks) do
    local variable = block.target:match "^VARIABLE%(([%w_]+)%)"
    -- The description of a setting's variable in variables.def precedes the setting's own help.
    local documented = variable and self.documented_variables[variable]
    if variable and not (documented and block.path:find "settings%.def$") then
      self.variables[#self.variables + 1] = {name = variable, parts = block.parts}
      self.documented_variables[variable] = true
    end
    if block.path == guide_index then
      index = block.lines
    elseif block.lines then
      self.guides[#self.guides + 1] = {
        name = block.path:match "([%w_]+)%.md$", path = block.path, lines = block.lines,
        title = (block.lines[1] or ""):match "^#%s*(.*)$",
      }
    end
  end
  order_guides(self, index)
end

--- Make the model.
function model.build(accelhost)
  local blocks = reader.read(require "accelhost._docs")
  local self = {
    pages = {}, entries = {}, by_name = {}, by_value = {}, ops = {}, late = {}, blocks = blocks,
    index = comments.index(blocks), class_names = {},
  }
  add_others(self)
  add_namespace(self, accelhost, "accelhost")
  add_late(self)
  add_tensor(self)
  add_objects(self, accelhost)
  split_pages(self)
  name_parents(self)
  add_short_names(self)
  pages.sort(self)
  return self
end

--- Has an entry a description?
function model.is_documented(entry)
  for _, part in ipairs(entry.parts) do
    if part.text then return true end
  end
  return false
end

--- Return the first sentence of an entry's description.
function model.summary(entry)
  for _, part in ipairs(entry.parts) do
    if part.text then
      -- A dot behind two letters ("et al.") ends no sentence.
      return part.text:match "^(.-%w%w[%w%)`'][%.%?!])%s+%S" or part.text
    end
  end
  return ""
end

return model
