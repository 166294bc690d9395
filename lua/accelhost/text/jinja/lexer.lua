--- Tokens of a Jinja template: texts, and the names, strings, numbers and operators of its tags.
--
-- As in transformers, blocks are trimmed (trim_blocks, lstrip_blocks): the line end after a block's tag, and the blanks
-- before one at the beginning of a line, are no text.
local lexer = {}

local escapes = {n = "\n", t = "\t", r = "\r", ["\\"] = "\\", ["'"] = "'", ['"'] = '"'}

-- Operators, longer ones first.
local operators = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<", ">", "=", "(", ")", "[", "]",
  "{", "}", ",", ".", ":", "|"}

local function line_at(source, at)
  local _, lines = source:sub(1, at):gsub("\n", "")
  return lines + 1
end

--- Raise an error of a template, with its line. It is caught by the caller of the template.
function lexer.fail(line, format, ...) error({line = line, message = format:format(...)}, 0) end

local function unescape(text)
  return (text:gsub("\\(.)", function(c) return escapes[c] or "\\" .. c end))
end

-- The string literal that begins at `at`, and the place after it.
local function read_string(source, at, line)
  local quote, stop = source:sub(at, at), at + 1
  while true do
    local c = source:sub(stop, stop)
    if c == "" then lexer.fail(line, "a string without end") end
    if c == quote then break end
    stop = stop + (c == "\\" and 2 or 1)
  end
  return unescape(source:sub(at + 1, stop - 1)), stop + 1
end

local function read_operator(source, at, line)
  for _, operator in ipairs(operators) do
    if source:sub(at, at + #operator - 1) == operator then return operator end
  end
  lexer.fail(line, "unexpected '%s'", source:sub(at, at))
end

-- The tokens of one tag from `at` on: their list is extended; returns the place after the closing text.
local function read_tag(source, at, close, tokens)
  local depth = 0
  while true do
    at = source:find("%S", at) or #source + 1
    local line = line_at(source, at)
    if at > #source then lexer.fail(line, "a tag without '%s'", close) end
    local rest = source:match("^[-+]?" .. close:gsub("%p", "%%%0"), at)
    if rest and depth == 0 then return at + #rest, rest:sub(1, 1) end
    local name, number = source:match("^[%a_][%w_]*", at), source:match("^%d+%.?%d*", at)
    if name then
      tokens[#tokens + 1] = {kind = "name", value = name, line = line}
      at = at + #name
    elseif number then
      tokens[#tokens + 1] = {kind = "number", value = tonumber(number), line = line}
      at = at + #number
    elseif source:find("^['\"]", at) then
      local value, stop = read_string(source, at, line)
      tokens[#tokens + 1] = {kind = "string", value = value, line = line}
      at = stop
    else
      local operator = read_operator(source, at, line)
      depth = depth + (operator:find "^[%(%[{]$" and 1 or operator:find "^[%)%]}]$" and -1 or 0)
      tokens[#tokens + 1] = {kind = "operator", value = operator, line = line}
      at = at + #operator
    end
  end
end

local closing = {["{{"] = "}}", ["{%"] = "%}", ["{#"] = "#}"}

-- The text before a tag, without the space that the tag or the one before it removes.
local function trim_text(text, opening, sign, strips_left, at_line_start)
  if strips_left then text = text:gsub("^%s+", "") end
  if sign == "-" then return (text:gsub("%s+$", "")) end
  if opening ~= "{{" and sign ~= "+" then
    local kept, blanks = text:match "^(.-)([ \t]*)$"
    if kept:sub(-1) == "\n" or kept == "" and at_line_start then return kept, blanks end
  end
  return text
end

--- The tokens of a template. Kinds: text, name, number, string, operator; begin and end, whose value is "{{" or "{%".
---@return table[] tokens {kind, value, line}
function lexer.read(source)
  local tokens, at, strips_left = {}, 1, false
  source = source:gsub("\r\n", "\n"):gsub("\n$", "")
  while true do
    local place = source:find("{[{%%#]", at)
    local opening = place and source:sub(place, place + 1)
    local sign = place and source:match("^[-+]", place + 2)
    local starts = at == 1 or source:sub(at - 1, at - 1) == "\n"
    local text = trim_text(source:sub(at, (place or #source + 1) - 1), opening or "{{", sign, strips_left, starts)
    if text ~= "" then tokens[#tokens + 1] = {kind = "text", value = text, line = line_at(source, at)} end
    if not place then return tokens end
    local line = line_at(source, place)
    local mark
    at = place + 2 + #(sign or "")
    if opening == "{#" then
      local stop = source:find("#}", at, true)
      if not stop then lexer.fail(line, "a comment without '#}'") end
      mark, at = source:sub(stop - 1, stop - 1), stop + 2
    else
      tokens[#tokens + 1] = {kind = "begin", value = opening, line = line}
      at, mark = read_tag(source, at, closing[opening], tokens)
      tokens[#tokens + 1] = {kind = "end", value = opening, line = line}
    end
    strips_left = mark == "-"
    if opening ~= "{{" and mark ~= "-" and mark ~= "+" and source:sub(at, at) == "\n" then at = at + 1 end
  end
end

return lexer
