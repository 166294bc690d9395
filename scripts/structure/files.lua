-- The project's files as text, and a line-based parser of C and Lua: definitions, calls, comments.
local files = {}

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  return text
end

local function lines_of(text)
  local lines = {}
  for line in (text .. "\n"):gmatch("(.-)\n") do lines[#lines + 1] = line end
  if lines[#lines] == "" then lines[#lines] = nil end
  return lines
end

--- Every file that git knows or would add; those that a script wrote (folders named generated, fixtures) are empty.
---@return {path: string, text: string, lines: string[]}[]
function files.all()
  local list = {}
  local pipe = assert(io.popen("git ls-files --cached --others --exclude-standard"))
  for path in pipe:lines() do
    local file = io.open(path)
    if file then
      file:close()
      local text = (path:find "/generated/" or path:find "^spec/fixtures/") and "" or read(path)
      list[#list + 1] = {path = path, text = text, lines = lines_of(text)}
    end
  end
  pipe:close()
  return list
end

-- The last place of the comment or string that begins at `from`; nil when it is a plain slash.
local function end_of_blank(text, from)
  local two = text:sub(from, from + 1)
  if two == "/*" then return select(2, text:find("*/", from + 2, true)) or #text end
  if two == "//" then return (text:find("\n", from, true) or #text + 1) - 1 end
  local quote = two:sub(1, 1)
  if quote == "/" then return nil end
  local i = from + 1
  while i <= #text and text:sub(i, i) ~= quote do i = i + (text:sub(i, i) == "\\" and 2 or 1) end
  return i
end

--- The text with every C comment and string replaced by spaces; line breaks stay.
---@param text string
---@return string
function files.c_code(text)
  local out, at = {}, 1
  while true do
    local from = text:find("[/\"']", at)
    if not from then break end
    out[#out + 1] = text:sub(at, from - 1)
    local to = end_of_blank(text, from)
    out[#out + 1] = to and text:sub(from, to):gsub("[^\n]", " ") or "/"
    at = (to or from) + 1
  end
  out[#out + 1] = text:sub(at)
  return table.concat(out)
end

--- The functions that a C text defines, by the project's layout: the head starts in column 1, its brace is alone in a
--- line.
---@param text string code without comments
---@return {name: string, static: boolean, from: integer, to: integer}[]
function files.c_functions(text)
  local lines, found = lines_of(text), {}
  local head
  for i, line in ipairs(lines) do
    if line:find("^[%a_]") then
      -- Arguments may run over several lines; the first line has the name.
      head = line:find("%(") and not line:find("^typedef") and not line:find("=") and i or nil
    elseif line == "{" and head then
      local first = lines[head]
      local name = first:match("([%w_]+)%s*%(")
      found[#found + 1] = {name = name, static = first:find("^static") ~= nil, from = head}
    elseif line:find("^}") and head then
      local last = found[#found]
      if last and last.from == head then last.to = i end
      head = nil
    end
  end
  return found
end

--- The functions of a Lua text that begin and end in the same column.
---@param lines string[]
---@return {name: string, from: integer, to: integer}[]
function files.lua_functions(lines)
  local found, open = {}, {}
  for i, line in ipairs(lines) do
    local indent, name = line:match("^( *)local function ([%w_]+)")
    if not name then indent, name = line:match("^( *)function ([%w_.:]+)") end
    if name and not line:find("%f[%w]end%f[%W]%s*$") then
      while open[#open] and open[#open].indent >= #indent do open[#open] = nil end
      open[#open + 1] = {name = name, indent = #indent, from = i}
    else
      local last = open[#open]
      if last and line:find("^ *end%f[%W]") and #line:match("^ *") == last.indent then
        open[#open] = nil
        last.to = i
        found[#found + 1] = last
      end
    end
  end
  return found
end

--- The comments of a file: its text with the code blanked out, lines kept.
---@param file {path: string, lines: string[]}
---@return string[] one per line, "" where there is none
function files.comments(file)
  local out, inside = {}, false
  local c = file.path:find("%.[ch]$") or file.path:find("%.def$")
  local mark = file.path:find("%.lua$") and "%-%-" or "#"
  for i, line in ipairs(file.lines) do
    if c then
      local text = inside and line or line:match("/[*/].*")
      if text then
        local rest = text:gsub("/%*.-%*/", "")
        inside = inside and not text:find("%*/") or (not inside and rest:find("/%*") ~= nil)
      end
      out[i] = text or ""
    else
      out[i] = line:match(mark .. ".*") or ""
    end
  end
  return out
end

return files
