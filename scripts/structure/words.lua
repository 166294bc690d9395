-- The word list of the language rules: words for which the field has a better term, searched for in comments, strings
-- and Markdown. words.txt has the list, one "pattern | better term" a line; a pattern that begins with "^" is searched
-- for at the begin of comments of C and Lua. A third column limits a pattern to a folder. words_allowed.txt has
-- "PATH COUNT" for each file that still has findings, and may only shrink.
-- usage: accelhost scripts/structure/words.lua [PATH...]   print FILE:LINE: word -> better term; exit code 1 if any
--        accelhost scripts/structure/words.lua --allow     print the lines of words_allowed.txt as of now
local here = arg and arg[0] and arg[0]:match("^(.*)/[^/]*$") or "scripts/structure"
package.path = here .. "/?.lua;" .. package.path
local files = require "files"

local words = {}

-- Read "pattern | better term | folder" lines.
local function read_list(path)
  local list = {}
  for line in io.lines(path) do
    local pattern, better = line:match("^([^#]-)%s+|%s+([^|]+)")
    local first = pattern and pattern:match "^%^(.+)$"
    if pattern then
      list[#list + 1] = {pattern = (first and "^" .. first or "%f[%w_]" .. pattern) .. "%f[^%w_]", first = first ~= nil,
        better = better:gsub("%s+$", ""), folder = line:match "|[^|]*|%s+(%S+)" or ""}
    end
  end
  return list
end

-- Read "PATH COUNT" lines as a table; counts of files, and the line of each.
local function read_allowed(path)
  local allowed, lines, number = {}, {}, 0
  for line in io.lines(path) do
    number = number + 1
    local file, count = line:match("^([^#%s]%S*)%s+(%d+)$")
    if file then allowed[file], lines[file] = tonumber(count), number end
  end
  return allowed, lines
end

-- Replace everything outside the stretches {from, to} by spaces; line breaks stay.
local function only(text, stretches)
  local out, at = {}, 1
  for _, stretch in ipairs(stretches) do
    out[#out + 1] = text:sub(at, stretch[1] - 1):gsub("[^\n]", " ")
    out[#out + 1] = text:sub(stretch[1], stretch[2])
    at = stretch[2] + 1
  end
  out[#out + 1] = text:sub(at):gsub("[^\n]", " ")
  return table.concat(out)
end

local function string_end(text, from)
  local quote, i = text:sub(from, from), from + 1
  while i <= #text do
    local c = text:sub(i, i)
    if c == quote or c == "\n" then return i end
    i = i + (c == "\\" and 2 or 1)
  end
  return #text
end

-- Comments and strings of C.
local function c_prose(text)
  local stretches, at = {}, 1
  while true do
    local from = text:find("[/\"']", at)
    if not from then break end
    local two, to = text:sub(from, from + 1), nil
    if two == "/*" then to = select(2, text:find("*/", from + 2, true)) or #text
    elseif two == "//" then to = (text:find("\n", from, true) or #text + 1) - 1
    elseif two:sub(1, 1) == '"' then to = string_end(text, from)
    elseif two:sub(1, 1) == "'" then at = string_end(text, from) + 1
    else at = from + 1 end
    if to then
      local line = text:sub(1, from - 1):match("[^\n]*$")
      if not (two:sub(1, 1) == '"' and line:find("^%s*#%s*include")) then stretches[#stretches + 1] = {from, to} end
      at = to + 1
    end
  end
  return only(text, stretches)
end

-- Comments and strings of Lua. A string of letters, digits and underscores alone is a name, not prose.
local function lua_prose(text)
  local stretches, at = {}, 1
  while true do
    local from = text:find("[%-\"'%[]", at)
    if not from then break end
    local level = text:match("^%-%-%[(=*)%[", from) or text:match("^%[(=*)%[", from)
    local to
    if level then to = select(2, text:find("]" .. level .. "]", from, true)) or #text
    elseif text:sub(from, from + 1) == "--" then to = (text:find("\n", from, true) or #text + 1) - 1
    elseif text:find("^[\"']", from) then
      to = string_end(text, from)
    end
    local is_name = text:find("^[\"']", from) and not text:sub(from, to):find("%s")
    if to and not is_name then stretches[#stretches + 1] = {from, to} end
    at = (to or from) + 1
  end
  return only(text, stretches)
end

-- Comments of a shell or Python script, or a Makefile: from "#" at the beginning of a line or after a space.
local function script_prose(text)
  local stretches = {}
  for from in text:gmatch("()#") do
    if from == 1 or text:find("^%s", from - 1) then
      local to = (text:find("\n", from, true) or #text + 1) - 1
      local last = stretches[#stretches]
      if not last or last[2] < from then stretches[#stretches + 1] = {from, to} end
    end
  end
  return only(text, stretches)
end

-- Markdown without code blocks and `code`.
local function markdown_prose(text)
  local blank = function(s) return (s:gsub("[^\n]", " ")) end
  return (("\n" .. text):gsub("\n```.-\n```", blank):gsub("\n    [^\n]*", blank):gsub("`[^`\n]*`", blank):sub(2))
end

local readers = {c = c_prose, h = c_prose, cu = c_prose, cuh = c_prose, cc = c_prose, def = c_prose, lua = lua_prose,
  sh = script_prose, py = script_prose, md = markdown_prose}

-- Remove inline code, paths, calls, the names of annotations, placeholders in capitals and questions.
local function plain(line)
  line = line:gsub("`[^`]*`", " "):gsub("%S+/%S+%.%a+", " "):gsub("%-%-%-@%w+%s+%S+", " "):gsub("[%w_.:]+%(", " ")
  return (line:gsub("%f[%w_]%u[%u_]+%f[^%w_]", " "):gsub("[Ww]hat[^.;]*%?", " "))
end

-- The text of a comment that begins in this line, nil without one. A Lua comment continues the one in the line before.
local function begun_comment(path, line, before)
  if path:find "%.lua$" then return not before:find "^%s*%-%-" and line:match "^%s*%-%-+%s*(.*)$" or nil end
  return line:match "^%s*/%*+%s*(.*)$"
end

-- The listed words in a file's prose: {line, found, better} each.
local function find_words(path, text, list)
  local reader = readers[path:match("%.(%w+)$") or ""] or (path == "Makefile" and script_prose)
  local found, number, before = {}, 0, ""
  if not reader then return found end
  local raw = (text .. "\n"):gmatch("(.-)\n")
  for line in (reader(text) .. "\n"):gmatch("(.-)\n") do
    number = number + 1
    local prose, whole = plain(line):lower(), raw()
    local begun = (begun_comment(path, whole, before) or ""):lower()
    before = whole
    for _, word in ipairs(prose:find("%w") and list or {}) do
      local match = path:sub(1, #word.folder) == word.folder and (word.first and begun or prose):match(word.pattern)
      if match then found[#found + 1] = {line = number, found = match, better = word.better} end
    end
  end
  return found
end

--- Report the files with more findings than words_allowed.txt grants, word by word, and those with fewer.
---@param all table[] from files.all
---@param report fun(path: string, line: integer, text: string)
function words.check(all, report)
  local list = read_list(here .. "/words.txt")
  local allowed, lines = read_allowed(here .. "/words_allowed.txt")
  local seen = {}
  for _, file in ipairs(all) do
    local found, most = find_words(file.path, file.text, list), allowed[file.path] or 0
    seen[file.path] = true
    if #found > most then
      for _, each in ipairs(found) do report(file.path, each.line, ("%s -> %s"):format(each.found, each.better)) end
    elseif #found < most then
      local text = ("%s has only %d: lower the count"):format(file.path, #found)
      report(here .. "/words_allowed.txt", lines[file.path], text)
    end
  end
  for path in pairs(allowed) do
    if not seen[path] then report(here .. "/words_allowed.txt", lines[path], path .. " does not exist") end
  end
end

-- As a program: all findings below the given paths.
local function main(wanted)
  local list, count = read_list(here .. "/words.txt"), 0
  local counts_only = wanted[1] == "--allow"
  for _, file in ipairs(files.all()) do
    local is_wanted = counts_only or #wanted == 0
    for _, prefix in ipairs(wanted) do is_wanted = is_wanted or file.path:sub(1, #prefix) == prefix end
    local found = is_wanted and find_words(file.path, file.text, list) or {}
    count = count + #found
    if counts_only and #found > 0 then print(("%s %d"):format(file.path, #found)) end
    for _, each in ipairs(counts_only and {} or found) do
      print(("%s:%d: %s -> %s"):format(file.path, each.line, each.found, each.better))
    end
  end
  io.stderr:write(("%d words with a better term\n"):format(count))
  return count == 0 or counts_only
end

if arg and arg[0] and arg[0]:find("words%.lua$") and not main(arg) then os.exit(1) end

return words
