--- The pages of the reference: the entries of each page, their order and headings.
---@param self table the model
local pages = {}

-- The order of sections where the alphabet does not serve.
local first_files = {
  "lua/accelhost/init.lua", "lua/accelhost/tensor.lua", "host/bind/tensor/tensor_fields.c", "host/bind/tensor/tensor.c",
  "host/bind/tensor/tensor_move.c", "host/bind/tensor/create.c", "host/ops/schema/create.def",
  "host/bind/tensor/random.c", "host/ops/schema/shape.def", "host/ops/schema/index.def",
  "host/ops/schema/elementwise.def", "host/ops/schema/reduce.def", "host/ops/schema/matmul.def",
  "lua/accelhost/nn/module.lua", "lua/accelhost/nn/parameter.lua", "lua/accelhost/nn/container.lua",
  "lua/accelhost/nn/linear.lua", "lua/accelhost/data/sets/dataset.lua", "lua/accelhost/data/loader/init.lua",
  "lua/accelhost/accelerator/init.lua", "lua/accelhost/accelerator/training/prepare.lua",
  "lua/accelhost/accelerator/training/gradients.lua",
}
local place_of_file = {}
for i, path in ipairs(first_files) do place_of_file[path] = i end

-- Titles of entries from C files other than tables of ops.
local titles = {
  ["host/bind/train/autograd.c"] = "Gradients",
  ["host/bind/lua/callback.c"] = "Gradients",
  ["host/bind/tensor/create.c"] = "Making tensors",
  ["host/bind/lua/device.c"] = "Devices",
  ["host/bind/lua/handle.c"] = "Memory",
  ["host/bind/tensor/random.c"] = "Random numbers",
  ["host/bind/tensor/system.c"] = "Threads and memory",
  ["host/bind/tensor/tensor.c"] = "Shape, type and values",
  ["host/bind/tensor/tensor_move.c"] = "Dtype and device",
  ["host/bind/tensor/tensor_fields.c"] = "Fields",
  ["host/bind/format/json.c"] = "JSON",
  ["host/bind/format/io.c"] = "Files",
  ["host/bind/tensor/dtype.c"] = "Dtypes",
}
-- Titles on pages other than the file's own.
local elsewhere = {
  ["lua/accelhost/tensor.lua"] = "Parts, norms, bytes", ["lua/accelhost/accelerator/init.lua"] = "Accelerator",
  ["lua/accelhost/nn/module.lua"] = "Module",
}

-- Return the title of a section, the beginning of its comment, and the rest of that as text.
local function title_of(section, page)
  if not section or section.path == page.path and section.path:find "%.lua$" then return page.title, {} end
  if elsewhere[section.path] then return elsewhere[section.path], {} end
  local first = section.parts[1] and section.parts[1].text
  if not first then return titles[section.path] or page.title, section.parts end
  local topic, sentence = first:match "^([%w_%.]+): *(.*)$"
  if topic and (topic:find "%." or topic == "accelhost" or topic == page.title) then
    if topic == page.title then return page.title, {} end
    local text = sentence:sub(1, 1):upper() .. sentence:sub(2)
    return topic:match "[%w_]+$", {{text = text}, unpack(section.parts, 2)}
  end
  local title, rest = first:match "^(.-)[%.:] +(.*)$"
  title = title or first:match "^(.-)%.?$"
  local parts = {}
  if rest and rest ~= "" then
    -- A name of the library stays as written.
    local is_name = (rest:match "^[%w_]+" or ""):find "_"
    parts[1] = {text = is_name and rest or rest:sub(1, 1):upper() .. rest:sub(2)}
  end
  -- The rest of a table's comment is for who reads the source.
  for i = 2, section.path:find "%.def$" and 1 or #section.parts do parts[#parts + 1] = section.parts[i] end
  return title:sub(1, 1):upper() .. title:sub(2), parts, sentence
end

local function section_of(page, entry)
  local title, parts = title_of(entry.section, page)
  for _, section in ipairs(page.sections) do
    if section.title == title then return section end
  end
  local section = {title = title, path = entry.path, line = entry.section and entry.section.line or 0, parts = parts,
    items = {}}
  page.sections[#page.sections + 1] = section
  return section
end

--- Add an entry to a page, in the section of its file.
---@param page table
---@param name string the entry's name on that page
function pages.put(self, page, name, entry)
  local section = section_of(page, entry)
  section.items[#section.items + 1] = {name = name, entry = entry}
  entry.page = entry.page or page.name
  self.by_name[name] = self.by_name[name] or entry
  if entry.name ~= name then entry.aliases[#entry.aliases + 1] = name end
end

--- Sort the sections of a page.
---@param page table
function pages.sort_sections(page)
  table.sort(page.sections, function(a, b)
    local left, right = place_of_file[a.path] or 100, place_of_file[b.path] or 100
    if left ~= right then return left < right end
    if a.path ~= b.path then return (a.path or "") < (b.path or "") end
    return a.line < b.line
  end)
end

-- "accelhost.nn: modules" on the page of that name becomes "Modules".
local function about(parts)
  local first = parts[1] and parts[1].text
  local sentence = first and (first:match "^accelhost[%w_%.]*: *(.*)$" or first:match "^Tensor: *(.*)$"
    or first:match "^nn%.Module: *(.*)$")
  if not sentence then return parts end
  return {{text = sentence:sub(1, 1):upper() .. sentence:sub(2)}, unpack(parts, 2)}
end

--- Make a page; its introduction is the first comment of the file.
---@param path? string
function pages.new(self, name, title, path)
  local block = path and self.index.file[path]
  local page = {
    name = name, title = title, parts = block and block.target == "" and about(block.parts) or {}, sections = {},
    path = path,
  }
  self.pages[#self.pages + 1] = page
  return page
end

--- Sort the pages.
function pages.sort(self)
  local order = {accelhost = 1, Tensor = 2, linalg = 3, nn = 10, Module = 11, ["nn.functional"] = 12, ["nn.init"] = 13,
    ["nn.utils"] = 14, optim = 20, data = 30, Accelerator = 40, autograd = 50}
  for _, page in ipairs(self.pages) do
    local root = page.name:match "^([%w_]+)%."
    page.place = order[page.name] or root == "nn" and 15 or order[root] or 60
  end
  table.sort(self.pages, function(a, b)
    if a.place ~= b.place then return a.place < b.place end
    return a.name < b.name
  end)
end

return pages
