-- Check the documentation against the program: every public name has a text, every example runs and has the expected
-- result, every environment variable that is read is documented. Prints the failures; exit code 1 if there are any.
--
-- usage: accelhost scripts/docs/check.lua [NAME]       NAME: only entries with this in their name
--
-- scripts/docs/untold.txt lists names that have no text yet; it may only become shorter.
package.path = arg[0]:match "^(.*)/" .. "/?.lua;" .. package.path
local accelhost = require "accelhost"
local examples = require "examples"
local folder = require "spec.support.folder"
local model = require "accelhost.docs.model"

local root = arg[0]:match "^(.*)/scripts/docs/" or "."
local wanted = arg[1]
local breaches = 0

local function report(format, ...)
  breaches = breaches + 1
  print(format:format(...))
end

local function known_untold()
  local list = {}
  for line in io.lines(root .. "/scripts/docs/untold.txt") do
    if line ~= "" and not line:find "^#" then list[line] = true end
  end
  return list
end

local function check_texts(reference)
  local untold = known_untold()
  for _, entry in ipairs(reference.entries) do
    local has = model.is_documented(entry)
    if not has and not untold[entry.name] then
      report("%s: %s has no text", entry.path or "?", entry.name)
    elseif has and untold[entry.name] then
      report("scripts/docs/untold.txt: %s has a text; remove it from the list", entry.name)
    end
    untold[entry.name] = nil
  end
  for name in pairs(untold) do report("scripts/docs/untold.txt: %s is no public name", name) end
end

local function run_parts(parts, name)
  local count = 0
  for _, part in ipairs(parts) do
    if part.code and not part.code[1]:find "^[%$%|]" then
      count = count + 1
      local failure = examples.run(part.code, name)
      if failure then report("%s", failure) end
    end
  end
  return count
end

-- A block that begins with a file's name in a comment is that file: a spec runs it with the guide's commands; here it
-- only has to be Lua.
local function run_guide(guide)
  local lines, inside, file = {}, false, nil
  for i, line in ipairs(guide.lines) do
    local own = false
    if line:find "^```" then
      if file and not loadstring(table.concat(file, "\n")) then report("%s:%d: the file is no Lua", guide.path, i) end
      inside, file = not inside and line == "```lua", nil
    elseif inside and guide.lines[i - 1] == "```lua" and line:find "^%-%- [%w_]+%.lua$" then
      file = {line}
    elseif file then
      file[#file + 1] = line
    else
      own = inside
    end
    lines[i] = own and line or ""
  end
  local failure = examples.run(lines, guide.path)
  if failure then report("%s", failure) end
end

local function is_wanted(name)
  return not wanted or name:find(wanted, 1, true) ~= nil
end

local function check_examples(reference)
  local count = 0
  for _, entry in ipairs(reference.entries) do
    if is_wanted(entry.name) then count = count + run_parts(entry.parts, entry.name) end
  end
  for _, page in ipairs(reference.pages) do
    if is_wanted(page.name) then count = count + run_parts(page.parts, "page " .. page.name) end
    for _, section in ipairs(page.sections) do
      if is_wanted(section.title) then count = count + run_parts(section.parts, "section " .. section.title) end
    end
  end
  for _, guide in ipairs(reference.guides) do
    if is_wanted(guide.path) then run_guide(guide) end
  end
  return count
end

-- Our own variables, wherever the sources name them.
local function check_variables(reference)
  local known = {}
  for _, variable in ipairs(reference.variables) do
    if known[variable.name] then report("host/cli/base/variables.def: %s has two rows", variable.name) end
    known[variable.name] = true
  end
  local pipe = io.popen(("grep -rhoE '\"ACCELHOST_[A-Z_]+\"' %s/host %s/lua | sort -u"):format(root, root))
  for line in pipe:lines() do
    local name = line:match '"(.*)"'
    if not known[name] then report("host/cli/base/variables.def: %s is read and has no row", name) end
  end
  pipe:close()
end

local reference = model.build(accelhost)
if not wanted then
  check_texts(reference)
  check_variables(reference)
end
local leave = folder.enter() -- examples write files under their own names
local count = check_examples(reference)
leave()
io.stderr:write(("%d names, %d examples, %d guides, %d breaches\n"):format(#reference.entries, count, #reference.guides,
  breaches))
os.exit(breaches > 0 and 1 or 0)
