--- accelhost help: the reference in the terminal.
local C = require "accelhost._C"
local answers = require "accelhost.docs.answers"
local find = require "accelhost.docs.find"
local model = require "accelhost.docs.model"
local Page = require "accelhost.util.page"
local search = require "accelhost.docs.search"
local signature = require "accelhost.docs.signature"
local arguments = require "accelhost.util.arguments"

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
    if item.text and item.text ~= "" then text = text ~= "" and text .. ": " .. item.text or item.text end
    rows[#rows + 1] = {item.name or "->", text}
  end
  return rows
end

local function show_lists(page, entry)
  local parameters = signature.under(entry, entry.name)
  if #parameters > 0 then
    page:heading("Arguments (in this order, or by name in a last table)")
    page:rows(parameter_rows(parameters), 4)
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
      rows[i] = {method.name:match "[.:][%w_]+$" .. signature.text(method.parameters), model.summary(method)}
    end
    page:rows(rows, 4)
  end
end

-- The name and its parameters; a line ends between two arguments.
local function show_head(page, entry)
  local head = entry.name
  if entry.kind ~= "value" and entry.kind ~= "field" then
    local parts = {}
    for i, p in ipairs(signature.under(entry, entry.name)) do
      parts[i] = signature.parameter_text(p):gsub(" ", "\1")
    end
    head = head .. "(" .. table.concat(parts, ", ") .. ")"
  end
  local first = #page.lines + 1
  page:wrap(head:match "^%S+ (.*)$" or "", 4, head:match "^%S+ ?")
  for i = first, #page.lines do page.lines[i] = page.lines[i]:gsub("\1", " ") end
  for i = first, #page.lines do page.lines[i] = page:bold(page.lines[i]) end
end

local function show_entry(page, entry)
  show_head(page, entry)
  page:line()
  page:parts(entry.parts, 2)
  show_lists(page, entry)
  local also = {}
  for _, alias in ipairs(entry.aliases) do also[#also + 1] = alias end
  if entry.inplace then also[#also + 1] = "Tensor:" .. (entry.op or entry.name:match "[%w_]+$") .. "_ (in place)" end
  if entry.parent_name then also[#also + 1] = "the methods of " .. entry.parent_name end
  page:line()
  if #also > 0 then page:wrap("Also: " .. table.concat(also, ", "), 8, "  ") end
  if entry.path then page:line("  source: " .. entry.path) end
end

-- The pages of the modules in a module.
local function inner_pages(reference, name)
  local found = {}
  for _, one in ipairs(reference.pages) do
    if one.name:match "^(.*)%.[%w_]+$" == name then found[#found + 1] = one end
  end
  return found
end

local function items_of(page)
  local items = {}
  for _, section in ipairs(page.sections) do
    for _, item in ipairs(section.items) do items[#items + 1] = item end
  end
  return items
end

-- A module in one sentence, without its end: its own text, or its names.
local function about(reference, one)
  local text = one.parts[1] and one.parts[1].text
  if not text then
    local items, inner = items_of(one), inner_pages(reference, one.name)
    text = #items == 1 and model.summary(items[1].entry) or #items > 1 and one.sections[1].title
    for i, page in ipairs(inner) do inner[i] = page.name end
    text = text or "Holds " .. table.concat(inner, ", ")
  end
  -- The colon or dot that ends a sentence, not that in a name.
  return text:match "^(.-)[%.:]%s" or (text:gsub("[%.:]$", ""))
end

-- Rows of modules: name, sentence, number of names.
local function module_rows(reference, list)
  local rows = {}
  for i, one in ipairs(list) do
    local count = #items_of(one)
    local number = count == 0 and "" or count == 1 and " (1 name)" or (" (%d names)"):format(count)
    rows[i] = {one.name, about(reference, one) .. number}
  end
  return rows
end

local function show_namespace(page, reference, namespace)
  page:line(page:bold(namespace.title))
  if #namespace.parts > 0 then
    page:line()
    page:parts(namespace.parts, 2)
  end
  for _, section in ipairs(namespace.sections) do
    page:heading(section.title)
    local rows = {}
    for i, item in ipairs(section.items) do rows[i] = {item.name:match "[%w_]+$", model.summary(item.entry)} end
    page:rows(rows, 4)
  end
  local inner = namespace.name ~= "accelhost" and inner_pages(reference, namespace.name) or {}
  if #inner > 0 then
    page:heading "Modules"
    page:rows(module_rows(reference, inner), 4)
  end
end

local function show_topics(page, reference, commands)
  page:line("usage: accelhost help NAME, such as nn.Linear, F.relu, Tensor:sum, optim, launch, environment")
  page:line()
  page:wrap("Names are PyTorch's; F is nn.functional. 'accelhost help reading' explains the notation of these pages; "
    .. "'accelhost help WORDS...' searches the reference, the guides and the commands.", 2)
  page:heading("Modules")
  page:rows(module_rows(reference, reference.pages), 4)
  page:heading("Commands")
  page:rows(commands, 4)
  page:heading("Topics")
  local rows = {
    {"environment", "the environment variables that the program reads"},
    {"examples", "the folder of the examples"},
  }
  page:rows(rows, 4)
  local group
  rows = {}
  for i, guide in ipairs(reference.guides) do
    if guide.group ~= group then page:heading("Guides: " .. guide.group) end
    group = guide.group
    rows[#rows + 1] = {guide.name, guide.title}
    local following = reference.guides[i + 1]
    if not following or following.group ~= group then
      page:rows(rows, 4)
      rows = {}
    end
  end
end

local function show_variable(page, variable)
  page:line("  " .. page:bold(variable.name))
  page:parts(variable.parts, 6)
end

local function show_environment(page, reference)
  page:line(page:bold("Environment variables"))
  for _, variable in ipairs(reference.variables) do
    page:line()
    show_variable(page, variable)
  end
end

-- A guide as text: paragraphs and lists wrapped, code and tables unchanged.
local function show_guide(page, guide)
  local words, fenced = {}, false
  local function finish()
    local text = table.concat(words, " "):gsub("%*%*", "")
    local item = text:find "^%- "
    if #words > 0 then page:wrap(item and text:sub(3) or text, item and 2 or 0, item and "-" or "") end
    words = {}
  end
  for _, line in ipairs(guide.lines) do
    local heading = line:match "^#+ (.*)$"
    if line:find "^```" or line == "" or line:find "^%- " or heading or fenced then finish() end
    if line:find "^```" then
      fenced = not fenced
    elseif fenced or line:find "^|" then
      page:line((fenced and "    " or "") .. line)
    elseif heading then
      page:line(page:bold(heading))
    elseif line == "" then
      page:line()
    else
      words[#words + 1] = line:match "^%s*(.*)$"
    end
  end
  finish()
end

-- Names that have the word in them, the nearest one first.
local function near(reference, commands, word)
  local found, known, full, lower = {}, {}, {}, word:lower()
  local function know(name, whole)
    if not full[name] then known[#known + 1] = name end
    full[name] = full[name] or whole
  end
  for _, name in ipairs(arguments.sorted_keys(reference.by_name)) do
    local entry = reference.by_name[name]
    know(name, entry.name)
    know(name:match "[%w_]+$" or name, entry.name)
    if #word > 2 and name:lower():find(lower, 1, true) and entry.name == name then found[#found + 1] = name end
  end
  for _, list in ipairs {reference.pages, reference.guides, reference.variables} do
    for _, one in ipairs(list) do know(one.name, one.name) end
  end
  for _, command in ipairs(commands) do know(command[1], command[1]) end
  -- Entries of exactly this name precede those that have it as a part of their name.
  table.sort(found, function(a, b)
    local left, right = a:lower():match "[%w_]+$" == lower, b:lower():match "[%w_]+$" == lower
    if left ~= right then return left end
    return a < b
  end)
  table.sort(known)
  local nearest = C.system.nearest(word, known) or C.system.nearest(word:match "[%w_]+$" or word, known)
  if nearest then table.insert(found, 1, full[nearest]) end
  return found
end

-- List the functions with an argument of this name: "batch_size" of data.DataLoader.
local function takers(reference, word)
  local found = {}
  for _, entry in ipairs(reference.entries) do
    for _, parameter in ipairs(entry.parameters) do
      if parameter.name == word then found[#found + 1] = entry.name end
    end
  end
  if #found > 6 then found[7] = "..." end
  return table.concat(found, ", ", 1, math.min(#found, 7))
end

local function unknown(word, found)
  local message = ("nothing is called '%s'"):format(word)
  if #found > 0 then
    message = message .. "; near to it: "
    local shown, seen = {}, {}
    for _, name in ipairs(found) do
      if not seen[name] and #shown < 8 then shown[#shown + 1] = name end
      seen[name] = true
    end
    message = message .. table.concat(shown, ", ")
  end
  return message
end

-- Other entries that end in the word: a state_dict is one of modules, of optimizers, of loaders.
local function show_namesakes(page, reference, entry, word)
  local names = {}
  for _, other in ipairs(reference.entries) do
    local name = other.name
    if other ~= entry and other.kind == "method" and name:match "[%w_]+$" == word then names[#names + 1] = name end
  end
  if #names > 0 then page:wrap("Of the same name: " .. table.concat(names, ", "), 8, "  ") end
end

-- The folder of the examples: of the checkout or the installation that the program is in.
local function examples_folder(binary)
  local place = binary and binary:match "^(.*)/"
  for _, path in ipairs(place and {"/examples", "/../examples", "/../share/accelhost/examples"} or {}) do
    local file = io.open(place .. path .. "/mnist.lua")
    if file then
      file:close()
      return place .. path
    end
  end
end

local function show_examples(page)
  local path = examples_folder(C.system.program())
  page:line(page:bold("Examples"))
  page:line()
  if path then
    page:wrap("They are in the folder " .. path .. ". Each is one file with one idea; --help lists its options, "
      .. "--smoke makes a run of seconds. Begin with mnist_plain.lua, mnist.lua and mnist_trainer.lua; by_feature has "
      .. "the features of an Accelerator, one file each.", 2)
  else
    page:wrap("They are not installed next to this program: a checkout has them in examples, an installation in "
      .. "PREFIX/share/accelhost/examples.", 2)
  end
end

local MOST_FOUND, MOST_OF_A_NAME, MOST_OF_A_SUMMARY = 12, 3, 100

-- A summary in about two lines.
local function shortened(text)
  if #text <= MOST_OF_A_SUMMARY then return text end
  return text:sub(1, MOST_OF_A_SUMMARY):match "^(.*)%s" .. " ..."
end

-- Show the results of the full-text search for words, or for a name that is not public; false when there are none.
local function show_found(page, reference, commands, query, is_exact)
  local binary = #commands > 0 and C.system.program() or nil
  local found, instead, is_partly = search.find(search.rows(reference, binary), query, is_exact)
  if #found == 0 then return false end
  page:wrap(instead and ("Nothing mentions '%s'. Found for '%s':"):format(query, instead)
    or is_partly and ("Nothing mentions all of '%s'. Found for a part of the words:"):format(query)
    or ("Found for '%s' (accelhost help NAME shows one of them):"):format(query), 0)
  local rows, counts = {}, {}
  for _, row in ipairs(found) do
    counts[row.name] = (counts[row.name] or 0) + 1
    if #rows < MOST_FOUND and counts[row.name] <= MOST_OF_A_NAME then
      rows[#rows + 1] = {row.name, shortened(row.summary)}
    end
  end
  page:rows(rows, 2)
  if #found > #rows then page:line(("  ... and %d more"):format(#found - #rows)) end
  return true
end

-- Topics other than names; true when the word is one.
local function show_topic(page, reference, commands, word)
  if not word or word == "topics" or word == "guides" or word == "commands" or word == "modules" then
    show_topics(page, reference, commands)
    return true
  end
  if word == "environment" or word == "examples" then
    if word == "examples" then show_examples(page) else show_environment(page, reference) end
    return true
  end
  for _, variable in ipairs(reference.variables) do
    if variable.name == word then
      show_variable(page, variable)
      return true
    end
  end
  for _, guide in ipairs(reference.guides) do
    if guide.name == word then
      show_guide(page, guide)
      return true
    end
  end
  return false
end

-- An answer for a name that is not here: by itself, or by its module.
local function show_answer(page, word, answer, module)
  local other = answer:match "^as (.*)$"
  local message
  if module == "Python" then
    message = ("%s is Python's; in Lua: %s."):format(word, answer)
  elseif other and module and module ~= word then
    message = ("%s is not here by that name. Instead of %s: %s."):format(word, module, other)
  else
    message = (other and "%s has another name here: %s." or "%s is not here (%s)."):format(word, other or answer)
  end
  page:wrap(message, 0)
end

local function show(page, reference, commands, word)
  if show_topic(page, reference, commands, word) then return true end
  local entry, namespace = find(reference, word)
  local answer, module
  if not entry and not namespace then
    answer, module = answers.find(word, function(name)
      for _, one in ipairs(reference.pages) do
        if one.name == name or name == "utils.data" then return true end
      end
      return false
    end)
  end
  if namespace then
    show_namespace(page, reference, namespace)
  elseif entry then
    show_entry(page, entry)
    show_namesakes(page, reference, entry, word)
  elseif answer then
    show_answer(page, word, answer, module)
  end
  return entry or namespace or answer
end

local help = {}
local built -- the model of the public surface, made once

--- Return the help for a name, without one the list of topics; for words the results of the full-text search.
---@param commands string[][] the program's commands, {name, description}
---@param word? string a name, or words between blanks
---@return string? text
---@return string? problem the reason why there is none
function help.text(accelhost, commands, word)
  built = built or model.build(accelhost)
  local reference, page = built, Page()
  if not show(page, reference, commands, word) then
    local owners = takers(reference, word)
    if owners ~= "" then page:wrap(("'%s' is an argument of %s."):format(word, owners), 0) end
    if not show_found(page, reference, commands, word, true) and owners == "" then
      -- Several words are a search: a name that resembles the last one is no answer.
      local found = word:find "%s" and {} or near(reference, commands, word)
      if #found > 0 or not show_found(page, reference, commands, word) then return nil, unknown(word, found) end
    end
  end
  return table.concat(page.lines, "\n") .. "\n"
end

--- The line about a module of the same name as a command, "" where there is none.
---@param accelhost table
---@param command string
function help.namesake(accelhost, command)
  local is_here = pcall(function() return accelhost[command] end)
  return is_here and ("\nThe module of the same name: accelhost help accelhost.%s\n"):format(command) or ""
end

--- Print it.
---@param accelhost table
---@param commands string[][]
---@param word? string
---@return integer # the exit code
function help.print(accelhost, commands, word)
  local text, problem = help.text(accelhost, commands, word)
  io.stdout:write(text or "")
  if problem then
    io.stderr:write("accelhost help: ", problem, "\nTry 'accelhost help' for the list of topics.\n")
  end
  return text and 0 or 1
end

return help
