--- The comments of the sources, as the binary carries them (scripts/docs/extract.lua makes the text), one by one.
--
-- A comment has paragraphs, code (lines that are indented) and LuaCATS tags:
--
--   {path = "accelhost/nn/linear.lua", line = 23, target = 'local Linear = Module:extend "Linear"', owner = nil,
--    names = {Linear = true}, parts = {{text = "y = x W^T + b."}, {code = {"local fc = ..."}}},
--    params = {{name = "bias", type = "boolean", optional = true, text = "default true"}}, returns = {}, fields = {}}
local reader = {}

-- A type ends at the first blank that is not between brackets and follows none of : , |
local function split_type(text)
  local depth, i = 0, 1
  while i <= #text do
    local char = text:sub(i, i)
    if char:find "[%(%[{<]" then depth = depth + 1 end
    if char:find "[%)%]}>]" then depth = depth - 1 end
    if char == " " and depth <= 0 and not text:sub(i - 1, i - 1):find "[:,|]" then break end
    i = i + 1
  end
  return text:sub(1, i - 1), (text:sub(i + 1):gsub("^#%s*", ""):gsub("^%s+", ""))
end

-- Tensors are userdata to Lua; a table with a shape behind it is a tensor's comment too.
local function plain_type(kind, text)
  if (kind == "table" or kind == "table?") and text:find "^%[" then return kind:find "%?" and "Tensor?" or "Tensor" end
  return (kind:gsub("userdata", "Tensor"))
end

-- Tag -> function that adds it to its comment.
local tags = {
  param = function(block, rest)
    local name, optional, tail = rest:match "^([%w_%.]+)(%??)%s*(.*)$"
    if not name then return end
    local kind, text = split_type(tail)
    block.params[#block.params + 1] = {
      name = name, optional = optional == "?", type = plain_type(kind, text), text = text,
    }
  end,
  field = function(block, rest)
    local name, tail = rest:match "^([%w_]+)%??%s+(.*)$"
    if not name then return end
    local kind, text = split_type(tail)
    block.fields[#block.fields + 1] = {name = name, type = plain_type(kind, text), text = text}
  end,
  ["return"] = function(block, rest)
    local kind, text = split_type(rest)
    block.returns[#block.returns + 1] = {type = plain_type(kind, text), text = text}
  end,
  class = function(block, rest)
    block.class, block.parent = rest:match "^([%w_%.]+)%s*:?%s*([%w_%.]*)"
  end,
  -- For a class whose methods are those of another one, which delegates to it.
  part = function(block, rest)
    block.part_of = rest:match "[%w_]+"
  end,
  -- For a comment that speaks of several names.
  names = function(block, rest)
    block.listed = rest:match "[%w_]+"
    for name in rest:gmatch "[%w_]+" do block.names[name] = true end
  end,
}

-- Read the name that the first line of a definition defines.
local function read_target(block)
  local target, names = block.target, block.names
  local owner, separator, name = target:match "^function ([%w_%.]+)([%.:])([%w_]+)%s*%("
  if not name then name = target:match "^function ([%w_]+)%s*%(" or target:match "^local function ([%w_]+)" end
  if name then
    block.owner, block.is_static = owner and owner:match "[%w_]+$", separator == "."
    names[name] = true
    block.arguments = target:match "%((.-)%)"
    return
  end
  local op = target:match "^OP%(([%w_]+),"
  if op then
    names[op], block.op = true, true
    return
  end
  local row = target:match '^{"([%w_]+)",' or target:match '^[A-Z]+%("?([%w_]+)'
  if row then
    names[row] = true
    block.signature = target:match '"([^"]*)"}?,?$'
    block.owner = block.signature and (block.signature:find "^generator:G" and "Generator"
      or block.signature:find "^input:T" and "Tensor") or nil
    return
  end
  if target:find "^return function" then names[block.path:match "([%w_]+)%.lua$"] = true end
  local path = target:match "^local ([%w_]+)%s*=" or target:match "^([%w_%.]+)%s*=$"
    or target:match "^([%w_%.]+)%s*=[^=]"
  if path then
    names[path:match "[%w_]+$"] = true
    block.owner = path:match "^([%w_]+)%.[%w_]+$"
  end
  local quoted = target:match '"([%w_]+)"'
  if quoted then names[quoted] = true end
  -- A definition that makes a class contains its name: Module:extend "Linear", define("RNN", ...
  block.class = target:match '[%w_]%(?%s*"([%w_]+)"'
end

local function read_lines(block, lines)
  local tag, paragraph, code
  for _, line in ipairs(lines) do
    local name, rest = line:match "^@([%w_]+)%s*(.*)$"
    if name then
      paragraph, code = nil, nil
      tag = {name, rest}
      block.tags[#block.tags + 1] = tag
    elseif tag and line ~= "" then
      tag[2] = tag[2] .. " " .. line
    elseif line == "" then
      tag, paragraph = nil, nil
      if code then code[#code + 1] = "" end
    elseif line:find "^    " or line:find "^  " and not paragraph then
      if not code then
        code = {}
        block.parts[#block.parts + 1] = {code = code}
      end
      paragraph = nil
      code[#code + 1] = line
    else
      code = nil
      if paragraph and not line:find "^[%-%*] " then
        paragraph.text = paragraph.text .. " " .. line
      else
        paragraph = {text = line}
        block.parts[#block.parts + 1] = paragraph
      end
    end
  end
end

-- Remove the common indentation of a piece of code, and empty lines at its end.
local function trim_code(code)
  while code[#code] == "" do code[#code] = nil end
  local least = math.huge
  for _, line in ipairs(code) do
    if line ~= "" then least = math.min(least, #line:match "^ *") end
  end
  for i, line in ipairs(code) do code[i] = line:sub(least + 1) end
end

-- The further lines of a result below its first one.
local function align_results(lines)
  local column
  for i, line in ipairs(lines) do
    if column and line:find "^%s*%-%->" then line = (" "):rep(column) .. line:match "%-%->.*$" end
    local before = line:match "^(.-)%-%->"
    column = before and #before
    lines[i] = line
  end
end

local function lines_of(text)
  local lines = {}
  for line in text:gmatch "([^\n]*)\n" do lines[#lines + 1] = line end
  return lines
end

local function read_text(block, text)
  block.parts, block.params, block.returns, block.fields, block.tags = {}, {}, {}, {}, {}
  read_lines(block, lines_of(text))
  for _, part in ipairs(block.parts) do
    if part.code then
      trim_code(part.code)
      align_results(part.code)
    end
  end
  for _, tag in ipairs(block.tags) do
    if tags[tag[1]] then tags[tag[1]](block, tag[2]) end
  end
end

-- Members of a comment that are read from its text when one of them is first needed: most comments are of local
-- functions, which no page shows.
local of_text = {parts = true, params = true, returns = true, fields = true, tags = true}
local unread = setmetatable({}, {__mode = "k"})
local lazy = {
  __index = function(block, key)
    if not of_text[key] then return nil end
    local text = unread[block]
    unread[block] = nil
    read_text(block, text)
    return rawget(block, key)
  end,
}

-- These tags state the names of their comment, by which it is found.
local function has_naming_tag(text)
  return text:find("@class", 1, true) or text:find("@names", 1, true) or text:find("@part", 1, true)
end

local function finish(block, text)
  if block.path:find "%.md$" then
    block.parts, block.params, block.returns, block.fields, block.tags = {}, {}, {}, {}, {}
    block.lines = lines_of(text)
    align_results(block.lines)
    return block
  end
  read_target(block)
  if has_naming_tag(text) then
    read_text(block, text)
  else
    unread[block] = text
    setmetatable(block, lazy)
  end
  if block.class then block.names[block.class:match "[%w_]+$"] = true end
  return block
end

--- All comments of a text, in the order of the files. `section` is the comment that speaks of the file, or of the rows
--- of a table up to the next such comment. `common` is the first comment of a file: its tags describe the parameters,
--- and the results, of all functions of the file whose own comments do not.
function reader.read(text)
  local blocks, section, common, at = {}, nil, nil, 1
  while at <= #text do
    local path, number, target, first = text:match("^@@ (%S+) (%d+) ?([^\n]*)\n()", at)
    local block = {path = path, line = tonumber(number), target = target, names = {}}
    if not section or section.path ~= path or target == "" and path:find "%.def$" then
      section = target == "" and block or {path = path, parts = {}}
    end
    if not common or common.path ~= path then common = target == "" and block or {path = path} end
    block.section, block.common = section, common
    at = (text:find("\n@@ ", first - 1, true) or #text) + 1
    blocks[#blocks + 1] = finish(block, text:sub(first, at - 1))
  end
  local whole = {}
  for _, each in ipairs(blocks) do
    if each.part_of then whole[each.path .. each.class] = each.part_of end
    each.owner = each.owner and whole[each.path .. each.owner] or each.owner
  end
  return blocks
end

--- The description of a parameter: that of its function's comment, else of the file's.
---@param block table?
---@return table? # {name, type, optional, text}
function reader.param(block, name)
  for _, comment in ipairs {block, block and block.common} do
    for _, param in ipairs(comment.params or {}) do
      if param.name == name then return param end
    end
  end
end

--- Has a comment words, besides tags?
---@param block table?
function reader.has_text(block)
  return block ~= nil and #block.parts > 0
end

return reader
