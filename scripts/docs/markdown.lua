-- Pages of the reference as Markdown.
local model = require "accelhost.docs.model"
local signature = require "accelhost.docs.signature"

local markdown = {}

local function cell(text)
  return (text:gsub("|", "\\|"):gsub("\n", " "))
end

local function add_parts(out, parts)
  for i, part in ipairs(parts) do
    local item = part.text and part.text:find "^[%-%*] "
    if part.text then
      if not (item and i > 1 and parts[i - 1].text) then out[#out + 1] = "" end
      out[#out + 1] = part.text
    else
      out[#out + 1] = ""
      out[#out + 1] = part.code[1]:find "^[|$]" and "```" or "```lua"
      for _, line in ipairs(part.code) do out[#out + 1] = line:gsub("^| ", "") end
      out[#out + 1] = "```"
    end
  end
end

-- Rows {name, kind, text} as a table with a heading; a column that is empty in all rows is left out.
local function add_table(out, heading, rows)
  if #rows == 0 then return end
  local used = {}
  for column = 1, 3 do
    for _, row in ipairs(rows) do used[column] = used[column] or (row[column] or "") ~= "" end
  end
  local function line(cells)
    local shown = {}
    for column = 1, 3 do
      if used[column] then shown[#shown + 1] = cell(cells[column] or "") end
    end
    out[#out + 1] = "| " .. table.concat(shown, " | ") .. " |"
  end
  out[#out + 1] = ""
  line {heading, "", ""}
  line {"---", "---", "---"}
  for _, row in ipairs(rows) do line(row) end
end

local function parameter_rows(parameters)
  local rows = {}
  for _, p in ipairs(parameters) do
    rows[#rows + 1] = {"`" .. signature.parameter_text(p) .. "`", p.kind or p.type or "", p.text or ""}
  end
  return rows
end

local function tagged_rows(list)
  local rows = {}
  for _, item in ipairs(list) do
    local kind = item.type ~= "" and "`" .. item.type .. "`" or ""
    rows[#rows + 1] = {item.name and "`" .. item.name .. "`" or "", kind, item.text or ""}
  end
  return rows
end

local function returned_text(entry)
  local parts = {}
  for _, item in ipairs(entry.returns) do
    local text = item.text:gsub("^%.%.%. ?", "")
    parts[#parts + 1] = "`" .. item.type .. "`" .. (text ~= "" and " " .. text or "")
  end
  return table.concat(parts, ", ")
end

local function add_footer(out, entry)
  local notes = {}
  local names = {}
  for _, alias in ipairs(entry.aliases) do names[#names + 1] = "`" .. alias .. "`" end
  if entry.inplace then
    names[#names + 1] = "`Tensor:" .. (entry.op or entry.name:match "[%w_]+$") .. "_` in place"
  end
  if #names > 0 then notes[#notes + 1] = "Also " .. table.concat(names, ", ") .. "." end
  if entry.parent_name then notes[#notes + 1] = "Has the methods of `" .. entry.parent_name .. "`." end
  if #notes > 0 then
    out[#out + 1] = ""
    out[#out + 1] = table.concat(notes, " ")
  end
end

local function add_entry(out, entry, name, level)
  local hashes = ("#"):rep(level)
  out[#out + 1] = ""
  out[#out + 1] = hashes .. " " .. name
  if entry.kind ~= "value" and entry.kind ~= "field" then
    out[#out + 1] = ""
    out[#out + 1] = "```signature"
    out[#out + 1] = entry.name .. signature.text(signature.under(entry, entry.name))
    out[#out + 1] = "```"
  end
  add_parts(out, entry.parts)
  add_table(out, "argument", parameter_rows(signature.under(entry, entry.name)))
  local returned = returned_text(entry)
  if returned ~= "" and entry.kind ~= "class" then
    out[#out + 1] = ""
    out[#out + 1] = (entry.kind == "field" and "A " or "Returns ") .. returned
  end
  if entry.forward then
    add_table(out, "calling it", tagged_rows(entry.forward.params))
    local rows = tagged_rows(entry.forward.returns)
    for _, row in ipairs(rows) do
      out[#out + 1] = ""
      out[#out + 1] = "Returns " .. row[2] .. " " .. row[3]
    end
  end
  add_table(out, "field", tagged_rows(entry.fields))
  add_footer(out, entry)
end

-- Write an entry in full on its own page, under its first name; on other pages write a line with a link.
local function add_item(out, page, item)
  local entry = item.entry
  if item.name ~= entry.name and entry.kind == "value" then return end
  if entry.page ~= page.name or item.name ~= entry.name then
    local same = item.name:match "[%w_]+$" == entry.name:match "[%w_]+$"
    local text = same and model.summary(entry)
      or ("%s of `%s`."):format(item.name:find "_$" and "The in-place form" or "Another name", entry.name)
    out[#out + 1] = ""
    out[#out + 1] = ("- `%s` %s"):format(item.name .. signature.text(signature.under(entry, item.name)), text)
    return
  end
  add_entry(out, entry, item.name, 3)
  for _, method in ipairs(page.class == entry and {} or entry.methods) do
    if method.page == nil or method.page == page.name then add_entry(out, method, method.name, 4) end
  end
end

--- Has a section its own heading? Not one with the name of its only entry.
---@param page table
---@param section table
---@return boolean
function markdown.is_headed(page, section)
  local only = #section.items == 1 and #section.parts == 0 and section.items[1].name:match "[%w_]+$"
  return section.title ~= page.title and section.title ~= only
end

--- A page.
---@param page table of the model
---@return string
function markdown.page(page)
  local out = {"# " .. page.title}
  add_parts(out, page.parts)
  out[#out + 1] = "\n<!-- names -->"
  for _, section in ipairs(page.sections) do
    if markdown.is_headed(page, section) then
      out[#out + 1] = ""
      out[#out + 1] = "## " .. section.title
    end
    if section.title ~= page.title then add_parts(out, section.parts) end
    for _, item in ipairs(section.items) do add_item(out, page, item) end
  end
  return table.concat(out, "\n") .. "\n"
end

--- The commands.
---@param commands table[]
---@return string
function markdown.commands(commands)
  local out = {"# Commands\n", "`accelhost --version` prints the version, `accelhost COMMAND --help` the text below."}
  for _, command in ipairs(commands) do
    out[#out + 1] = ("\n## accelhost %s\n"):format(command.name)
    out[#out + 1] = "```\n" .. table.concat(command.usage, "\n") .. "\n```\n"
    out[#out + 1] = table.concat(command.text, "\n")
    local rows = {}
    for _, option in ipairs(command.options) do
      rows[#rows + 1] = {"`" .. (option.flag .. " " .. option.value):gsub(" $", "") .. "`", option.text}
    end
    add_table(out, "option", rows)
    if #command.tail > 0 then out[#out + 1] = "\n" .. table.concat(command.tail, "\n") end
  end
  return table.concat(out, "\n") .. "\n"
end

--- The environment variables.
---@param variables table[]
---@return string
function markdown.variables(variables)
  local out = {"# Environment variables", "", "A flag or a setting of the script overrides a variable."}
  for _, variable in ipairs(variables) do
    out[#out + 1] = "\n## " .. variable.name
    add_parts(out, variable.parts)
  end
  return table.concat(out, "\n") .. "\n"
end

--- Return the anchor of a heading in a Markdown file, as its readers make anchors.
---@param heading string
---@return string
function markdown.anchor(heading)
  return (heading:lower():gsub("[^%w_ %-]", ""):gsub(" ", "-"))
end

--- All names in alphabetical order, with where they are.
---@param rows table[] {name, file, summary}
---@return string
function markdown.index(rows)
  local out, letter = {"# All names"}, nil
  for _, row in ipairs(rows) do
    local first = row[1]:match("[%w_]+$"):sub(1, 1):upper()
    if first ~= letter then
      letter = first
      out[#out + 1] = "\n## " .. letter .. "\n"
    end
    out[#out + 1] = ("- [`%s`](%s#%s) %s"):format(row[1], row[2], markdown.anchor(row[1]), row[3])
  end
  return table.concat(out, "\n") .. "\n"
end

return markdown
