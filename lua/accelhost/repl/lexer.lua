--- The words of a Lua text, one after the other, by which the prompt analyses a line before LuaJIT has read it, or when
--- it cannot read it because it is not finished.
local lexer = {}

local keywords = {}
for word in ("and break do else elseif end false for function goto if in local nil not or repeat return then true "
  .. "until while"):gmatch "%a+" do
  keywords[word] = true
end
keywords["goto"] = nil -- a name where no label follows

local doubled = {["=="] = true, ["~="] = true, ["<="] = true, [">="] = true, ["::"] = true, [".."] = true}

-- The end of [[...]] that begins at `from`; nil when none begins there, false when it has no end.
local function long_end(text, from)
  local level = text:match("^%[(=*)%[", from)
  if not level then return nil end
  local _, to = text:find("]" .. level .. "]", from + #level + 2, true)
  return to or false
end

-- The end of a quoted string; false when it has none.
local function quoted_end(text, from)
  local quote, at = text:sub(from, from), from + 1
  while true do
    local stop = text:find("[\\\n" .. quote .. "]", at)
    if not stop then return false end
    local found = text:sub(stop, stop)
    if found == quote then return stop end
    if found == "\n" then return false end
    local skipped = text:match("^z%s*()", stop + 1)
    at = skipped or stop + 2
  end
end

local function comment_end(text, from)
  local to = long_end(text, from + 2)
  if to ~= nil then return to end
  return (text:find("\n", from, true) or #text + 1) - 1
end

local function number_end(text, from)
  local at = from
  while true do
    local to = text:match("^[eEpP][%+%-]()", at) or text:match("^[%w%.]()", at)
    if not to then return at - 1 end
    at = to
  end
end

local function string_or_bracket(text, at)
  local first = text:sub(at, at)
  if first ~= "[" then return "string", quoted_end(text, at) end
  local to = long_end(text, at)
  if to == nil then return "sign", at end
  return "string", to
end

local function read(text, at)
  local first = text:sub(at, at)
  if first:find "[%a_\128-\255]" then
    local to = text:match("^[%w_\128-\255]+()", at) - 1
    return keywords[text:sub(at, to)] and "keyword" or "name", to
  end
  if first:find "%d" or text:find("^%.%d", at) then return "number", number_end(text, at) end
  if first == '"' or first == "'" or first == "[" then return string_or_bracket(text, at) end
  if text:sub(at, at + 1) == "--" then return "comment", comment_end(text, at) end
  if text:sub(at, at + 2) == "..." then return "sign", at + 2 end
  return "sign", doubled[text:sub(at, at + 1)] and at + 1 or at
end

--- Iterate over the words.
---@return fun(): string?, string?, integer?, integer? # the kind (name, keyword, number, string, comment, sign, or
--- open: a string or comment without its end), the word, where it begins and ends
function lexer.words(text)
  local at = 1
  return function()
    at = text:find("%S", at)
    if not at then
      at = #text + 1
      return nil
    end
    local from, kind, to = at, read(text, at)
    if not to then kind, to = "open", #text end
    at = to + 1
    return kind, text:sub(from, to), from, to
  end
end

--- All words but comments.
---@return table[] # {kind, word, from, to}
function lexer.list(text)
  local list = {}
  for kind, word, from, to in lexer.words(text) do
    if kind ~= "comment" then list[#list + 1] = {kind = kind, word = word, from = from, to = to} end
  end
  return list
end

return lexer
