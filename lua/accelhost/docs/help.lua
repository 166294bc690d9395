--- accelhost help: the reference in the terminal.
local C = require "accelhost._C"
local model = require "accelhost.docs.model"
local Page = require "accelhost.docs.page"
local signature = require "accelhost.docs.signature"

local function parameter_rows(parameters)
  local rows = {}
  for _, parameter in ipairs(parameters) do
    local text = parameter.kind or parameter.type or ""
    if parameter.text then text = (text ~= "" and text .. "; " or "") .. parameter.text end
    rows[#rows + 1] = {signature.parameter_text(parameter), text}
  end
  return rows
end

local function tagged_rows(list)
  local rows = {}
  for _, item in ipairs(list) do
    local text = item.type or ""
    if item.text and item.text ~= "" then text = text ~= "" and text .. "  " .. item.text or item.text end
    rows[#rows + 1] = {item.name or "->", text}
  end
  return rows
end

local function show_lists(page, entry)
  if #entry.parameters > 0 then
    page:heading("Arguments (in this order, or by name in a last table)")
    page:rows(parameter_rows(entry.parameters), 4)
  end
  if #entry.returns > 0 then
    page:heading("Returns")
    for _, item in ipairs(tagged_rows(entry.returns)) do page:wrap(item[2], 4) end
  end
  if entry.forward then
    page:heading("Calling it")
    page:rows(tagged_rows(entry.forward.params), 4)
    page:rows(tagged_rows(entry.forward.returns), 4)
  end
  if #entry.fields > 0 then
    page:heading("Fields")
    page:rows(tagged_rows(entry.fields), 4)
  end
  if #entry.methods > 0 then
    page:heading("Methods")
    local rows = {}
    for i, method in ipairs(entry.methods) do
      rows[i] = {method.name:match ":.*$" .. signature.text(method.parameters), model.summary(method)}
    end
    page:rows(rows, 4)
  end
end

local function show_entry(page, entry)
  local callable = entry.kind ~= "value" and entry.kind ~= "field"
  local head = entry.name
  if callable then head = entry.name .. signature.text(entry.parameters) end
  local first = #page.lines + 1
  page:wrap(head:match "^%S+ (.*)$" or "", 4, head:match "^%S+ ?")
  for i = first, #page.lines do page.lines[i] = page:bold(page.lines[i]) end
  page:line()
  page:parts(entry.parts, 2)
  show_lists(page, entry)
  local also = {}
  for _, alias in ipairs(entry.aliases) do also[#also + 1] = alias end
  if entry.inplace then also[#also + 1] = "Tensor:" .. (entry.op or entry.name:match "[%w_]+$") .. "_ (in place)" end
  if entry.parent and entry.parent ~= entry.class_name then also[#also + 1] = "the methods of " .. entry.parent end
  page:line()
  if #also > 0 then page:wrap("Also: " .. table.concat(also, ", "), 8, "  ") end
  if entry.path then page:line("  " .. entry.path) end
end

local function show_namespace(page, told)
  page:line(page:bold(told.title))
  if #told.parts > 0 then
    page:line()
    page:parts(told.parts, 2)
  end
  if told.class then
    page:line()
    page:wrap(model.summary(told.class) .. " 'accelhost help " .. told.class.name .. "' tells how to make one.", 2)
  end
  for _, section in ipairs(told.sections) do
    page:heading(section.title)
    local rows = {}
    for i, item in ipairs(section.items) do rows[i] = {item.name:match "[%w_]+$", model.summary(item.entry)} end
    page:rows(rows, 4)
  end
end

local function show_topics(page, told, commands)
  page:line("usage: accelhost help NAME, such as nn.Linear, F.relu, Tensor:sum, optim, launch, environment")
  page:heading("Modules")
  local rows = {}
  for _, one in ipairs(told.pages) do
    local count = 0
    for _, section in ipairs(one.sections) do count = count + #section.items end
    local first = one.parts[1] and one.parts[1].text or one.class and model.summary(one.class) or ""
    first = first:match "^(.-)[%.:]%s" or first:gsub("%.$", "")
    rows[#rows + 1] = {one.name, ("%s (%d names)"):format(first, count)}
  end
  page:rows(rows, 4)
  page:heading("Commands")
  page:rows(commands, 4)
  page:heading("Topics")
  rows = {{"environment", "the environment variables that the program reads"}}
  for _, guide in ipairs(told.guides) do rows[#rows + 1] = {guide.name, guide.title} end
  page:rows(rows, 4)
end

local function show_environment(page, told)
  page:line(page:bold("Environment variables"))
  for _, variable in ipairs(told.variables) do
    page:line()
    page:line("  " .. page:bold(variable.name))
    page:parts(variable.parts, 6)
  end
end

-- Names that have the word in them, the nearest one first.
local function near(told, word)
  local found, known, lower = {}, {}, word:lower()
  for name in pairs(told.by_name) do
    known[#known + 1] = name
    if #word > 2 and name:lower():find(lower, 1, true) and told.by_name[name].name == name then
      found[#found + 1] = name
    end
  end
  for _, page in ipairs(told.pages) do known[#known + 1] = page.name end
  for _, guide in ipairs(told.guides) do known[#known + 1] = guide.name end
  table.sort(found)
  table.sort(known)
  local nearest = C.system.nearest(word, known)
  if not nearest then
    -- The last part of the name alone: nn.Linaer is near to Linear.
    local short = {}
    for i, name in ipairs(known) do short[i] = name:match "[%w_]+$" or name end
    local last = C.system.nearest(word:match "[%w_]+$" or word, short)
    for i, name in ipairs(known) do
      if last and short[i] == last and told.by_name[name] then nearest = nearest or told.by_name[name].name end
    end
  end
  if nearest then table.insert(found, 1, nearest) end
  return found
end

local function unknown(told, word)
  local found = near(told, word)
  io.stderr:write(("accelhost help: nothing is called '%s'"):format(word))
  if #found > 0 then
    io.stderr:write "; near to it: "
    local shown, seen = {}, {}
    for _, name in ipairs(found) do
      if not seen[name] and #shown < 8 then shown[#shown + 1] = name end
      seen[name] = true
    end
    io.stderr:write(table.concat(shown, ", "))
  end
  io.stderr:write "\nTry 'accelhost help' for the list of topics.\n"
  return 1
end

local function show(page, told, commands, word)
  if not word then
    show_topics(page, told, commands)
    return true
  end
  if word == "environment" then
    show_environment(page, told)
    return true
  end
  for _, guide in ipairs(told.guides) do
    if guide.name == word then
      for _, line in ipairs(guide.lines) do page:line(line) end
      return true
    end
  end
  local entry, namespace = model.find(told, word)
  if namespace then
    show_namespace(page, namespace)
  elseif entry then
    show_entry(page, entry)
  end
  return entry or namespace
end

--- Print what is known of a name, without one the list of topics.
---@param accelhost table the public surface
---@param commands string[][] the program's commands, {name, what it does}
---@param word? string
---@return integer # the exit code
return function(accelhost, commands, word)
  local told, page = model.build(accelhost), Page()
  if not show(page, told, commands, word) then return unknown(told, word) end
  io.stdout:write(table.concat(page.lines, "\n"), "\n")
  return 0
end
