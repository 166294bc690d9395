--- Finding the comment that belongs to a public value, among those that the reader has read.
---@param index table
local class = require "accelhost.util.class"
local reader = require "accelhost.docs.reader"
local signature = require "accelhost.docs.signature"

local comments = {}

--- The file of the library that defines a value.
---@return string?
function comments.path_of(value)
  if class.is_class(value) then
    for _, name in ipairs {"init", "forward", "__call", "step", "get", "iter", "get_lr", "init_state"} do
      local fn = rawget(value, name)
      local path = type(fn) == "function" and comments.path_of(fn)
      if path and not path:find "/util/" then return path end
    end
    return nil
  end
  if type(value) ~= "function" then return nil end
  local source = debug.getinfo(signature.unguarded(value), "S").source
  return source:find "^=accelhost/" and "lua/" .. source:sub(2) or nil
end

--- Comments by name, and the first one of each file.
---@param blocks table[] of the reader
function comments.index(blocks)
  local index = {by_name = {}, file = {}}
  for _, block in ipairs(blocks) do
    if not index.file[block.path] then index.file[block.path] = block end
    for name in pairs(block.names) do
      index.by_name[name] = index.by_name[name] or {}
      table.insert(index.by_name[name], block)
    end
  end
  return index
end

--- The comment that fits a name best: points(block) is nil for one that cannot be it.
---@param points fun(block: table): number?
---@return table? block
function comments.best(index, name, points)
  local found, most
  for _, block in ipairs(index.by_name[name] or {}) do
    local score = points(block)
    if score then
      score = score + (reader.has_text(block) and 1 or 0)
      if not most or score > most then found, most = block, score end
    end
  end
  return found
end

--- The comment of a row of the op table.
---@return table? block
function comments.op(index, name)
  return comments.best(index, name, function(block) return block.op and 0 or nil end)
end

--- The comment of a row of a table of C functions, found by its signature.
---@param text? string
---@return table? block
function comments.row(index, name, text)
  return comments.best(index, name, function(block)
    return block.path:find "^host/" and not block.op and block.signature == text and 0 or nil
  end)
end

--- The comment of a function of the library in Lua.
---@param value function
---@param folder string searched when the function's file is unknown
---@return table? block
function comments.of_function(index, name, value, folder)
  local path = comments.path_of(value)
  return comments.best(index, name, function(block)
    if block.op or block.target:find("^function [%w_%.]+:") or block.path:find "^host/" then return nil end
    if block.path == path then return 8 end
    -- A C function that the library re-exports is documented where it does so.
    if not path and block.target:find("= C%.[%w_%.]+$") then return 6 end
    return block.path:find(folder, 1, true) and 4 or nil
  end)
end

--- The comment of a class.
---@param value table
---@return table? block
function comments.of_class(index, value, name, folder)
  local path = comments.path_of(value)
  return comments.best(index, name, function(block)
    if block.op or block.target:find "^function " or block.path:find "^host/" then return nil end
    return (block.path == path and 8 or 0) + (block.path:find(folder, 1, true) and 4 or 0)
      + (block.class and 2 or 0)
  end)
end

--- The comment of a method.
---@param value function
---@param path string the file of the class
---@return table? block
function comments.of_method(index, class_name, name, value, path)
  local own = comments.path_of(value)
  return comments.best(index, name, function(block)
    if block.op or block.path:find "^host/" then return nil end
    if block.listed and block.path == own then return 8 end
    if block.owner == class_name then return 4 + (block.path == own and 8 or 0) end
    return block.owner and (block.path == own and block.path == path) and 4 or nil
  end)
end

return comments
