-- The documentation of the sources, as one text for the binary: every comment directly above a definition,
-- with the definition's first line. Run by scripts/embed.c with the paths as arguments; lua/accelhost/docs/reader.lua
-- reads the result.
--
-- A comment is a line "@@ PATH LINE DEFINITION" and the comment's lines without their marks. The definition is empty
-- for a separate comment, which describes the rows below it; the first comment of a file describes the file. A guide
-- (Markdown) is copied whole.
local out = {}

local function emit(path, line, target, lines)
  out[#out + 1] = ("@@ %s %d %s"):format(path, line, target)
  for _, text in ipairs(lines) do out[#out + 1] = text end
end

local function lines_of(path)
  local list = {}
  for line in io.lines(path) do list[#list + 1] = line end
  return list
end

-- Lua: blocks that begin with ---, up to the first line that is no comment, as a list of {line, target, lines}.
local blocks_of = setmetatable({}, {__index = function(blocks, path)
  local lines, list = lines_of(path), {}
  local i = 1
  while i <= #lines do
    if lines[i]:find "^%s*%-%-%-" then
      local block = {}
      while lines[i] and lines[i]:find "^%s*%-%-" do
        block[#block + 1] = lines[i]:gsub("^%s*%-%-%-?", ""):gsub("^ ", "")
        i = i + 1
      end
      local target = (lines[i] or ""):match "^%s*(.-)%s*$"
      list[#list + 1] = {line = i, target = #block == i - 1 and "" or target, lines = block}
    end
    i = i + 1
  end
  blocks[path] = list
  return list
end})

-- The comment of a class that each family of models has: "@template FUNCTION SUFFIX" is its last line, FUNCTION is
-- called by a family's file with the first part of its classes' names. FUNCTION -> {{suffix, lines}, ...}
local templates = {}

local function read_templates(path)
  for _, block in ipairs(blocks_of[path]) do
    local maker, suffix = block.lines[#block.lines]:match "^@template (%S+) (%w+)$"
    if maker then
      templates[maker] = templates[maker] or {}
      table.insert(templates[maker], {suffix = suffix, lines = {unpack(block.lines, 1, #block.lines - 1)}})
      block.is_template = true
    end
  end
end

-- "@family TITLE: SIZES" above a call of FUNCTION: emit its templates with these words in place of $family and $sizes,
-- and with the first part of the classes' names in place of $name.
local function emit_family(path, block, title, sizes)
  local maker, name = block.target:match '([%w_%.]+)%("(%w+)"'
  local words = {family = title, sizes = sizes, name = name}
  for _, template in ipairs(templates[maker]) do
    local lines = {}
    for i, text in ipairs(template.lines) do lines[i] = text:gsub("%$(%l+)", words) end
    emit(path, block.line, ('%s("%s%s")'):format(maker, name, template.suffix), lines)
  end
end

local function read_lua(path)
  for _, block in ipairs(blocks_of[path]) do
    local title, sizes = block.lines[1]:match "^@family (.-): (.*)$"
    if title then
      emit_family(path, block, title, sizes)
    elseif not block.is_template then
      emit(path, block.line, block.target, block.lines)
    end
  end
end

-- A row that may run over several lines, as one.
local function joined(lines, i)
  local whole, at = lines[i], i
  while not whole:find "[})],?;?$" and at - i < 4 do
    at = at + 1
    whole = whole .. " " .. (lines[at] or ""):match "^%s*(.-)$"
  end
  return whole:match "^%s*(.-)%s*$"
end

-- C: comments above a row of a table, OP(name, ...) or {"name", ...}, and in tables the separate ones. Rows
-- of ops are extracted without a comment too.
local function read_c(path)
  local lines = lines_of(path)
  local is_table = path:find "%.def$"
  local i, first = 1, true
  while i <= #lines do
    if lines[i]:find "^%s*/%*" then
      local block = {}
      repeat
        local text = lines[i]:gsub("^%s*/?%*+/?", "", 1):gsub("^ ", ""):gsub("%s*%*/%s*$", "")
        block[#block + 1] = text
        i = i + 1
      until lines[i - 1]:find "%*/" or not lines[i]
      local row = lines[i] or ""
      local is_row = row:find "^%s*[A-Z]+%(" or row:find '^%s*{"'
      if is_table and (first or not is_row) then
        emit(path, i, "", block)
        i = i - 1
      elseif is_row then
        emit(path, i, joined(lines, i), block)
      else
        i = i - 1
      end
      i = i + 1
      first = false
    else
      if is_table and lines[i]:find "^OP%(" then emit(path, i, joined(lines, i), {}) end
      i = i + 1
    end
  end
end

-- The environment variables of a job's settings, with the setting's help.
local function read_settings(path)
  local text = table.concat(lines_of(path), "\n"):gsub('"\n%s*"', "")
  for row in text:gmatch "\nSETTING(%b())" do
    local name, variable = row:match "^%(([%w_]+)", row:match '%.variable = "([%w_]+)"'
    local help = row:match '%.help = "(.-)"'
    local default = row:match '%.fallback_text = "(.-)"' or row:match '%.fallback = "(.-)"'
    if variable then
      local flag = ("`accelhost launch --%s` in the environment: %s"):format(name, help)
      emit(path, 1, ("VARIABLE(%s)"):format(variable), {flag .. (default and "; default " .. default or "") .. "."})
    end
  end
end

local readers = {lua = read_lua, md = function(path) emit(path, 1, "", lines_of(path)) end, c = read_c, def = read_c}
for _, path in ipairs {...} do
  if path:find "%.lua$" then read_templates(path) end
end
for _, path in ipairs {...} do
  if path:find "settings%.def$" then read_settings(path) else readers[path:match "%.(%w+)$"](path) end
end
return table.concat(out, "\n") .. "\n"
