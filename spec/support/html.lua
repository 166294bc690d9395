--- HTML as a tree, strict enough that markup which was not meant shows up: every element is closed in its turn, every
--- attribute is quoted, no id is there twice.
local html = {}

local void = {meta = true, input = true, br = true, ["!doctype"] = true, path = false}
local raw = {script = true, style = true}
local entities = {amp = "&", lt = "<", gt = ">", quot = '"', ["#39"] = "'"}

local function plain(text)
  return (text:gsub("&([%w#]+);", entities))
end

local Element = {}
Element.__index = Element

--- All elements below, of one name or of any, in their order.
---@param name? string
---@return table[]
function Element:all(name)
  local list = {}
  local function walk(element)
    for _, child in ipairs(element) do
      if type(child) == "table" then
        if not name or child.name == name then list[#list + 1] = child end
        walk(child)
      end
    end
  end
  walk(self)
  return list
end

--- The text within, words with one blank between them.
---@return string
function Element:words()
  local parts = {}
  local function walk(element)
    for _, child in ipairs(element) do
      if type(child) == "table" then
        walk(child)
        if child.name ~= "strong" and child.name ~= "a" then parts[#parts + 1] = " " end
      else
        parts[#parts + 1] = child
      end
    end
  end
  walk(self)
  return (table.concat(parts):gsub("%s+", " "):gsub("^ ", ""):gsub(" $", ""))
end

local function attributes_of(text, report)
  local found = {}
  local rest = text:gsub('([%w:-]+)="([^"]*)"', function(key, value)
    if found[key] then report("attribute " .. key .. " twice") end
    if value:find "[<>]" then report("a bracket in attribute " .. key) end
    found[key] = plain(value)
    return ""
  end)
  for word in rest:gmatch "%S+" do
    if not word:find "^[%w-]+$" then report("an attribute that is none: " .. word) end
    found[word] = true
  end
  return found
end

local function new_element(name, attributes)
  return setmetatable({name = name, attributes = attributes, text = ""}, Element)
end

--- Read a page.
---@param source string
---@return table # its root, with `troubles`, `by_id` and `source`
function html.parse(source)
  local root = new_element("root", {})
  root.troubles, root.by_id, root.source = {}, {}, source
  local function report(text) root.troubles[#root.troubles + 1] = text end
  local open, at = {root}, 1
  while at <= #source do
    local top = open[#open]
    local from = source:find("<", at, true) or #source + 1
    local text = source:sub(at, from - 1)
    if text ~= "" then
      if text:find(">", 1, true) then report("a bracket in text: " .. text:sub(1, 40)) end
      top[#top + 1] = plain(text)
    end
    if from > #source then break end
    local close, after = source:match("^</(%w+)>()", from)
    if close then
      if top.name == close and #open > 1 then open[#open] = nil
      else report(("</%s> closes <%s>"):format(close, top.name)) end
      at = after
    else
      local name, words, alone, next_at = source:match("^<(!?[%w]+)([^<>]-)(/?)>()", from)
      if not name then
        report("no tag: " .. source:sub(from, from + 40))
        at = from + 1
      else
        name = name:lower()
        local element = new_element(name, name == "!doctype" and {} or attributes_of(words, report))
        top[#top + 1] = element
        local id = element.attributes.id
        if id then
          if root.by_id[id] then report("id " .. id .. " twice") end
          root.by_id[id] = element
        end
        at = next_at
        if raw[name] then
          local finish = source:find("</" .. name .. ">", at, true) or report("no end of " .. name) or #source
          element.text, at = source:sub(at, finish - 1), finish + #name + 3
        elseif alone ~= "/" and not void[name] then
          open[#open + 1] = element
        end
      end
    end
  end
  for i = 2, #open do report("<" .. open[i].name .. "> is not closed") end
  return root
end

return html
