-- The documentation in all its forms. usage: accelhost scripts/docs/build.lua OUT
--
-- OUT/index.html: the site, one file; OUT/markdown/*.md; OUT/types: for editors; OUT/man/*.1; OUT/completion: for bash,
-- zsh and fish. The texts are those of the program that runs this script (lua/accelhost/docs), the README is the
-- checkout's, the table of PyTorch's names that of scripts/coverage.
local here = arg[0]:match "^(.*)/" or "."
local root = here .. "/../.."
package.path = here .. "/?.lua;" .. package.path
local C = require "accelhost._C"
local accelhost = require "accelhost"
local answers = require "accelhost.docs.answers"
local commands = require "accelhost.docs.commands"
local completion = require "accelhost.docs.completion"
local html = require "html"
local man = require "man"
local markdown = require "markdown"
local model = require "accelhost.docs.model"

local out = arg[1] or error "usage: accelhost scripts/docs/build.lua OUT"
local binary = assert(C.system.program(), "the path of the running program is not known")

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

local function write(path, text)
  assert(C.io.make_folder(path:match "^(.*)/"))
  local file = assert(io.open(path, "wb"))
  file:write(text)
  assert(file:close())
end

local function coverage()
  local pipe = io.popen(("'%s' '%s/scripts/coverage/table.lua' 2>/dev/null"):format(binary, root))
  local text = pipe:read "*a"
  pipe:close()
  return text:find "^# " and text or "# Names of PyTorch\n\nThe table was not made.\n"
end

-- The same for names of Accelerate and of packages that its examples use.
local function others()
  local found, missing = {"\n## accelerate\n", "| Accelerate | accelhost |", "|---|---|"}, {}
  for _, row in ipairs(answers.rows "accelerate") do
    local other, names = row[2]:match "^as (.*)$", row[1]:gsub("%S+", "`%0`")
    if other then
      for name in names:gmatch "%S+" do found[#found + 1] = ("| %s | %s |"):format(name, other) end
    else
      missing[#missing + 1] = ("\nNot here (%s): %s"):format(row[2], names)
    end
  end
  found[#found + 1] = table.concat(missing, "\n") .. "\n\n## Other modules\n\n| module | accelhost |\n|---|---|"
  for _, row in ipairs(answers.modules()) do
    local other = row[2]:match "^as (.*)$"
    found[#found + 1] = ("| `%s` | %s |"):format(row[1], other or "not here: " .. row[2])
  end
  return table.concat(found, "\n") .. "\n"
end

-- Pages in the order of the site: {group, id, title, text, guide = true?}.
local function all_pages(reference)
  local start = read(root .. "/README.md")
  local pages = {{group = "Start", id = "start", title = "Read me first", text = start, guide = true}}
  for _, guide in ipairs(reference.guides) do
    pages[#pages + 1] = {
      group = "Guides: " .. guide.group, id = "guide-" .. guide.name, title = guide.title,
      text = table.concat(guide.lines, "\n") .. "\n", guide = true, name = guide.name,
    }
  end
  for _, page in ipairs(reference.pages) do
    pages[#pages + 1] = {
      group = "Reference", id = "page-" .. page.name, title = page.name, text = markdown.page(page), page = page,
    }
  end
  local list = commands.of(binary)
  pages[#pages + 1] = {group = "Program", id = "commands", title = "Commands", text = markdown.commands(list)}
  pages[#pages + 1] = {
    group = "Program", id = "environment", title = "Environment variables",
    text = markdown.variables(reference.variables),
  }
  pages[#pages + 1] = {
    group = "Program", id = "pytorch", title = "PyTorch's names", text = coverage() .. others(), guide = true,
  }
  return pages, list
end

-- Search.

-- The sections of a guide.
local function add_headings(page, add)
  local fenced = false
  for line in page.text:gmatch "[^\n]+" do
    if line:find "^```" then fenced = not fenced end
    local heading = not fenced and line:match "^## (.*)$"
    if heading then add(heading, page.id .. "-" .. markdown.anchor(heading), page.title) end
  end
end

-- PyTorch's names that are called otherwise here, or are not here: rows and lists of the table of names.
local function add_absent(page, add)
  local space, place
  for line in page.text:gmatch "[^\n]+" do
    local heading = line:match "^## (.*)$"
    if heading then space, place = heading, page.id .. "-" .. markdown.anchor(heading) end
    local name, answer = line:match "^| `([%w_%.]+)` | (.*) |$"
    if name and space == "Other modules" then
      add(name, place, answer)
    elseif name then
      add(space .. "." .. name, place, "here: " .. answer)
    end
    local reason, list = line:match "^Not here %((.-)%): (.*)$"
    for word in (list or ""):gmatch "`([%w_]+)`" do add(space .. "." .. word, place, "not here: " .. reason) end
  end
end

local function name_rows(reference, pages, list)
  local rows, seen = {}, {}
  local function add(name, id, summary)
    if not seen[name] then rows[#rows + 1] = {name, id, summary} end
    seen[name] = true
  end
  for name, entry in pairs(reference.by_name) do
    if name:find "^Tensor:" then add(name, entry.name, model.summary(entry)) end
  end
  for _, entry in ipairs(reference.entries) do
    for _, alias in ipairs(entry.aliases) do add(alias, entry.name, model.summary(entry)) end
  end
  for _, entry in ipairs(reference.entries) do add(entry.name, entry.name, model.summary(entry)) end
  for _, page in ipairs(pages) do
    local about = page.page and page.page.parts[1]
    add(page.title, page.id, about and about.text or page.group)
  end
  for _, variable in ipairs(reference.variables) do
    add(variable.name, variable.name, model.summary(variable))
  end
  for _, command in ipairs(list) do
    add("accelhost " .. command.name, "commands-" .. markdown.anchor("accelhost " .. command.name), command.summary)
  end
  for _, page in ipairs(pages) do
    if page.id == "pytorch" then add_absent(page, add) elseif page.guide then add_headings(page, add) end
  end
  table.sort(rows, function(a, b) return a[1] < b[1] end)
  return rows
end

-- The index by last names, and the file where each name is in full.
local function index_rows(reference)
  local rows = {}
  for _, page in ipairs(reference.pages) do
    for _, section in ipairs(page.sections) do
      for _, item in ipairs(section.items) do
        if item.entry.page == page.name then
          rows[#rows + 1] = {item.name, page.name .. ".md", model.summary(item.entry)}
        end
      end
    end
  end
  local function key(row) return row[1]:match("[%w_]+$"):lower() .. " " .. row[1] end
  table.sort(rows, function(a, b) return key(a) < key(b) end)
  return rows
end

-- The site.

-- Return the place of a heading of a page: entries by their name, others after the page's.
local function place_of(page, reference, titles, heading)
  local named = page.page and reference.by_name[heading] or titles[heading]
  return named and heading or page.id .. "-" .. markdown.anchor(heading)
end

-- The names of a page by section, each a link.
local function contents(page, reference, titles)
  local rows = {}
  for _, section in ipairs(page.page.sections) do
    local names = {}
    for i, item in ipairs(section.items) do
      names[i] = ('<a href="#%s">%s</a>'):format(html.escape(item.entry.name), html.escape(item.name:match "[%w_]+$"))
    end
    local head = ""
    if markdown.is_headed(page.page, section) then
      head = ('<a class="section" href="#%s">%s</a> '):format(
        html.escape(place_of(page, reference, titles, section.title)), html.escape(section.title))
    end
    rows[#rows + 1] = "<p>" .. head .. table.concat(names, " ") .. "</p>"
  end
  return '<div class="contents">' .. table.concat(rows, "\n") .. "</div>\n"
end

local function site_page(page, reference, titles)
  local seen = {}
  local function id(heading, level)
    if level == 1 then return page.id end
    local name = place_of(page, reference, titles, heading)
    if seen[name] then name = name .. "-" .. level end
    seen[name] = true
    return name
  end
  local function link(code)
    local name = code:gsub("%(.*", "")
    local entry = reference.by_name[name]
    if entry and (name:find "[%.:]" or page.page) and #name > 1 then return entry.name end
    return titles[name]
  end
  local body = html.page(page.text, id, link)
  -- The first heading is the page's own: its place is the page.
  body = body:gsub('<h1 id="[^"]*">', "<h1>", 1)
  if page.page then
    local from, to = body:find("<!-- names -->", 1, true)
    body = body:sub(1, from - 1) .. contents(page, reference, titles) .. body:sub(to + 1)
  end
  return ('<article class="page%s" id="%s" data-title="%s">\n%s\n</article>'):format(page.guide and " guide" or "",
    page.id, html.escape(page.title), body)
end

local function navigation(pages)
  local parts, group = {}, nil
  for _, page in ipairs(pages) do
    if page.group ~= group then
      group = page.group
      parts[#parts + 1] = "<h2>" .. group .. "</h2>"
    end
    parts[#parts + 1] = ('<a href="#%s">%s</a>'):format(page.id, html.escape(page.title))
  end
  return table.concat(parts, "\n")
end

local function site(pages, reference, list)
  local titles = {environment = "environment"}
  for _, page in ipairs(pages) do
    if page.name then titles["examples/guides/" .. page.name .. ".md"] = page.id end
    if page.page then titles[page.page.title] = page.id end
  end
  for _, variable in ipairs(reference.variables) do titles[variable.name] = variable.name end
  local articles = {}
  for i, page in ipairs(pages) do articles[i] = site_page(page, reference, titles) end
  local names = C.json.encode(accelhost.json.array(name_rows(reference, pages, list))):gsub("</", "<\\/")
  return (read(here .. "/site.html"):gsub("{{(%w+)}}", {
    version = accelhost._VERSION, style = read(here .. "/site.css"), script = read(here .. "/site.js"),
    navigation = navigation(pages), articles = table.concat(articles, "\n"), names = names,
  }))
end

local function main()
  local reference = model.build(accelhost)
  local pages, list = all_pages(reference)
  write(out .. "/index.html", site(pages, reference, list))
  for _, page in ipairs(pages) do
    write(("%s/markdown/%s.md"):format(out, page.page and page.page.name or page.id), page.text)
  end
  write(out .. "/markdown/index.md", markdown.index(index_rows(reference)))
  local pipe = io.popen "date -u +%Y-%m-%d"
  local date = pipe:read "*l"
  pipe:close()
  write(out .. "/man/accelhost.1", man.program(list, reference.variables, accelhost._VERSION, date))
  for _, command in ipairs(list) do
    if man.has_page(command) then
      write(("%s/man/accelhost-%s.1"):format(out, command.name), man.command(command, accelhost._VERSION, date))
    end
  end
  for shell, name in pairs {bash = "accelhost", zsh = "_accelhost", fish = "accelhost.fish"} do
    write(("%s/completion/%s/%s"):format(out, shell, name), completion[shell](list))
  end
  os.exit(require "accelhost.docs.types"(accelhost, out .. "/types"))
end

main()
