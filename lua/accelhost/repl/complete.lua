--- Completion by the Tab key: names, fields and methods with the typed prefix, files within strings, options within the
--- table of a call.
--
-- No code of the user runs: tables are read without their metatables' functions, and only the library's own namespaces
-- are asked for their names.
---@param e Evaluate
local C = require "accelhost._C"
local columns_of = require("accelhost.util.columns").of
local functions = require "accelhost.functions"
local lexer = require "accelhost.repl.lexer"
local names = require "accelhost.repl.names"
local namespace = require "accelhost.util.namespace"

local complete = {}

local MOST = 200 -- choices that are shown

local keywords = {
  "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in", "local", "nil", "not",
  "or", "repeat", "return", "then", "true", "until", "while",
}

local tensor_fields = {
  "grad", "dtype", "requires_grad", "data", "device", "is_leaf", "grad_fn", "ndim", "T", "mT", "H", "mH", "itemsize",
  "nbytes", "is_cpu", "is_cuda",
}

local function is_library(fn)
  return type(fn) == "function" and debug.getinfo(fn, "S").source:find "^=accelhost/" ~= nil
end

-- The metatable of a namespace of the library, nil of anything else.
local function namespace_of(value)
  local meta = type(value) == "table" and debug.getmetatable(value)
  local lister = type(meta) == "table" and rawget(meta, "names")
  return is_library(lister) and is_library(rawget(meta, "__index")) and meta or nil
end

-- Return the tables in which a value's fields may be, the nearest first.
local function places_of(value)
  local places, seen = {}, {}
  local function add(place)
    if type(place) == "table" and not seen[place] then
      seen[place] = true
      places[#places + 1] = place
    end
  end
  if type(value) == "string" then add(string) end
  if type(value) == "table" then
    add(value)
    add(rawget(value, "_fields"))
  end
  local meta = type(value) ~= "string" and debug.getmetatable(value)
  for _ = 1, 20 do
    if type(meta) ~= "table" then break end
    local index = rawget(meta, "__index")
    if type(index) == "table" then
      add(index)
      add(rawget(index, "_fields"))
    elseif rawget(meta, "_class") == meta then
      add(meta)
    end
    local parent = rawget(meta, "_parent")
    if parent == nil then parent = type(index) == "table" and index ~= meta and debug.getmetatable(index) or nil end
    if type(parent) == "table" and rawget(parent, "_class") == parent then add(parent) end
    meta = parent
  end
  return places
end

-- Look up a field without running any code but the library's.
local function field(value, key)
  if namespace_of(value) then
    if value == package.loaded["accelhost"] and key == "accelerator" and rawget(value, key) == nil then return nil end
    local fine, found = pcall(function() return value[key] end)
    return fine and found or nil
  end
  if C.is_tensor(value) and (key == "grad" or key == "data" or key == "T" or key == "mT") then
    local fine, found = pcall(function() return value[key] end)
    return fine and found or nil
  end
  for _, place in ipairs(places_of(value)) do
    local found = rawget(place, key)
    if found ~= nil then return found end
  end
  return nil
end

-- All names below a value, and whether each is a function: name -> boolean.
local function fields_of(value)
  local found = {}
  local meta = namespace_of(value)
  for _, name in ipairs(meta and meta.names() or {}) do found[name] = type(rawget(value, name)) == "function" end
  for _, place in ipairs(places_of(value)) do
    for name, held in next, place do
      if type(name) == "string" and found[name] == nil then found[name] = type(held) == "function" end
    end
    -- Fields that are computed when they are read (class.property).
    local getters = rawget(place, "_getters")
    for name in next, type(getters) == "table" and getters or {} do
      if type(name) == "string" then found[name] = false end
    end
  end
  if C.is_tensor(value) then
    for name in pairs(C.methods) do found[name] = true end
    for _, name in ipairs(namespace.names(functions.methods)) do found[name] = true end
    for _, name in ipairs(tensor_fields) do found[name] = false end
  end
  return found
end

-- The value of a name as a line sees it, without making anything.
local function value_of(e, name)
  if e.living[name] then return e:value(name) end
  local held = rawget(_G, name)
  if held ~= nil then return held end
  if name == "accelerator" then
    return rawget(require "accelhost", "accelerator") or (require "accelhost").Accelerator
  end
  return e:value(name)
end

local function constant(word)
  if word.kind == "number" then return tonumber(word.word) end
  return word.kind == "string" and word.word:match "^[\"'](.*)[\"']$" or nil
end

-- The value of the path that ends at words[last] (model.layers[1].weight); nil without one.
local function resolve(e, words, last)
  local steps, i = {}, last
  while true do
    local at, before = words[i], words[i - 1]
    if not at then return nil end
    if at.word == "]" and words[i - 2] and words[i - 2].word == "[" then
      table.insert(steps, 1, constant(before))
      i = i - 3
    elseif at.kind == "name" and before and before.kind == "sign" and (before.word == "." or before.word == ":") then
      table.insert(steps, 1, at.word)
      i = i - 2
    elseif at.kind == "name" then
      local value = value_of(e, at.word)
      for _, step in ipairs(steps) do
        if value == nil then return nil end
        value = field(value, step)
      end
      return value
    else
      return nil
    end
  end
end

--- Return the value of a path (model.layers[1].weight), found as for completion; nil without one.
function complete.value(e, path)
  local words = lexer.list(path)
  return #words > 0 and resolve(e, words, #words) or nil
end

local function sorted(list)
  table.sort(list)
  local unique = {}
  for _, one in ipairs(list) do
    if one ~= unique[#unique] then unique[#unique + 1] = one end
  end
  return unique
end

-- Names that begin with a prefix; those with _ in front only when that is typed.
local function starting(list, prefix)
  local found = {}
  for _, name in ipairs(list) do
    local hidden = name:sub(1, 1) == "_" and prefix:sub(1, 1) ~= "_"
    if name:sub(1, #prefix) == prefix and name:find "^[%a_][%w_]*$" and not hidden then found[#found + 1] = name end
  end
  return sorted(found)
end

local function member_names(value, mark, prefix)
  local list = {}
  for name, is_function in next, fields_of(value) do
    if mark == "." or is_function then list[#list + 1] = name end
  end
  return starting(list, prefix)
end

local function bare_names(e, prefix)
  local list = {"_", unpack(keywords)}
  for name in next, e.living do list[#list + 1] = name end
  for name in next, _G do
    if type(name) == "string" then list[#list + 1] = name end
  end
  for _, name in ipairs(names.all()) do list[#list + 1] = name end
  return starting(list, prefix)
end

local built

--- The model of the reference, made once.
---@return table
function complete.reference()
  built = built or require("accelhost.docs.model").build(require "accelhost")
  return built
end

-- The call in whose last table the text ends: the word before its "(" or "{"; nil elsewhere.
local function called(words)
  local closed, opened = 0, 0 -- brackets with both ends behind i, and without an end
  for i = #words, 1, -1 do
    local word = words[i].kind == "sign" and words[i].word
    if word == ")" or word == "}" or word == "]" then
      closed = closed + 1
    elseif (word == "(" or word == "{" or word == "[") and closed > 0 then
      closed = closed - 1
    elseif word == "(" or word == "{" or word == "[" then
      opened = opened + 1
      if opened == 2 then return word == "(" and i - 1 or nil end
      if word ~= "{" then return nil end
      if words[i - 1] and words[i - 1].kind == "name" then return i - 1 end
    end
  end
end

-- Names that have a value in the table in which the text ends.
local function named_before(words)
  local depth, found = 0, {}
  for i = #words, 1, -1 do
    local word = words[i].kind == "sign" and words[i].word
    if word == ")" or word == "}" or word == "]" then
      depth = depth + 1
    elseif word == "(" or word == "{" or word == "[" then
      if depth == 0 then return found end
      depth = depth - 1
    elseif word == "=" and depth == 0 and words[i - 1] and words[i - 1].kind == "name" then
      found[words[i - 1].word] = true
    end
  end
  return found
end

-- Names of options, as "lr = ".
local function option_names(words, prefix)
  local last = words[#words]
  if not last or (last.word ~= "{" and last.word ~= ",") then return {} end
  local at = called(words)
  if not at or not words[at] or words[at].kind ~= "name" then return {} end
  local path, i = words[at].word, at
  while words[i - 1] and words[i - 1].kind == "sign" and words[i - 1].word:find "^[%.:]$" and words[i - 2] do
    path = words[i - 2].word .. words[i - 1].word .. path
    i = i - 2
  end
  local entry = require "accelhost.docs.find"(complete.reference(), path)
  local found, given = {}, named_before(words)
  for _, parameter in ipairs(entry and entry.parameters or {}) do
    local name = parameter.name
    if name and not given[name] and name:sub(1, #prefix) == prefix then found[#found + 1] = name .. " = " end
  end
  return found
end

local function file_names(prefix)
  local folder, begin = prefix:match "^(.*/)([^/]*)$"
  local found = {}
  for _, name in ipairs(C.edit.list((folder or "."):gsub("^~/", (os.getenv "HOME" or "~") .. "/"))) do
    local hidden = name:sub(1, 1) == "." and (begin or prefix) == ""
    if not hidden and name:sub(1, #(begin or prefix)) == (begin or prefix) then
      found[#found + 1] = (folder or "") .. name
    end
  end
  return sorted(found)
end

--- Return all possible completions of the text's last piece, and that piece, with which all of them begin.
---@param before string the typed text, up to the cursor
---@return string[] choices
---@return string prefix
function complete.choices(e, before)
  local shell = before:match "^%s*%$.-([^%s\"']*)$"
  if shell then return file_names(shell), shell end
  local command = before:match "^%s*%%(%a*)$"
  if command then return starting(require("accelhost.repl.commands").names(), command), command end
  before = before:gsub("^%s*%?+", "")
  local words = lexer.list(before)
  local last = words[#words]
  if last and last.kind == "open" then
    local path = last.word:match "^[\"']([^\n]*)$"
    return path and file_names(path) or {}, path or ""
  end
  local prefix = ""
  if last and (last.kind == "name" or last.kind == "keyword") and last.to == #before then
    prefix = last.word
    words[#words] = nil
  end
  local mark = words[#words]
  if mark and mark.kind == "sign" and (mark.word == "." or mark.word == ":") then
    local value = resolve(e, words, #words - 1)
    return value ~= nil and member_names(value, mark.word, prefix) or {}, prefix
  end
  local options = option_names(words, prefix)
  if prefix == "" or #options > 0 then return options, prefix end
  return bare_names(e, prefix), prefix
end

local function common_prefix(list)
  local shared = list[1]
  for _, one in ipairs(list) do
    while one:sub(1, #shared) ~= shared do shared = shared:sub(1, -2) end
  end
  return shared
end

-- Choices in columns; of files the last part of their path.
local function in_columns(list, width)
  local shown, widest = {}, 0
  for i = 1, math.min(#list, MOST) do
    shown[i] = list[i]:match "([^/]+/?)$" or list[i]
    widest = math.max(widest, columns_of(shown[i]) + 2)
  end
  local across = math.max(1, math.floor(width / widest))
  local down = math.ceil(#shown / across)
  local lines = {}
  for row = 1, down do
    local line = {}
    for i = row, #shown, down do line[#line + 1] = shown[i] .. (" "):rep(widest - columns_of(shown[i])) end
    lines[row] = table.concat(line):gsub("%s+$", "")
  end
  if #list > MOST then lines[#lines + 1] = ("... (%d more)"):format(#list - MOST) end
  return table.concat(lines, "\n") .. "\n"
end

--- Return the text to insert at the cursor, and the list to show when that is empty.
---@return string insert
---@return string? list
function complete.at(e, before)
  local list, prefix = complete.choices(e, before)
  if #list == 0 then return "" end
  local insert = common_prefix(list):sub(#prefix + 1)
  if insert ~= "" or #list == 1 then return insert end
  return "", in_columns(list, e.columns())
end

return complete
