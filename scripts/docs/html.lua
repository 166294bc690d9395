-- Markdown to HTML, as far as our pages use it: headings, paragraphs, lists, tables, fenced code (Lua coloured), inline
-- code, emphasis and links. Inline code that names something of the reference becomes a link to it.
local html = {}

local function escape(text)
  return (text:gsub("&", "&amp;"):gsub("<", "&lt;"):gsub(">", "&gt;"):gsub('"', "&quot;"))
end
html.escape = escape

local words = {}
for word in ([[and break do else elseif end false for function if in local nil not or repeat return then true until
  while]]):gmatch "%S+" do
  words[word] = true
end

-- Tokens at the beginning of a piece of Lua: {pattern, class}.
local tokens = {
  {"^%-%->[^\n]*", "result"}, {"^%-%-[^\n]*", "comment"}, {'^"[^"\n]*"', "string"}, {"^'[^'\n]*'", "string"},
  {"^%[%[.-%]%]", "string"}, {"^%d[%w%.]*", "number"}, {"^[%a_][%w_]*", "word"},
}

--- Lua, coloured.
---@param text string
---@return string
function html.lua(text)
  local out, at = {}, 1
  while at <= #text do
    local found
    for _, token in ipairs(tokens) do
      local from, to = text:find(token[1], at)
      if from then
        local piece, class = text:sub(from, to), token[2]
        if class == "word" then class = words[piece] and "keyword" or nil end
        out[#out + 1] = class and ('<span class="%s">%s</span>'):format(class, escape(piece)) or escape(piece)
        at, found = to + 1, true
        break
      end
    end
    if not found then
      out[#out + 1] = escape(text:sub(at, at))
      at = at + 1
    end
  end
  return table.concat(out)
end

--- Render the inside of a line. `link(name)` returns the address of a name of the reference, or nil.
---@param text string
---@param link fun(name: string): string?
---@return string
function html.inline(text, link)
  local kept = {}
  local function keep(piece)
    kept[#kept + 1] = piece
    return "\1" .. #kept .. "\1"
  end
  text = text:gsub("`([^`]+)`", function(code)
    local target = link(code)
    local shown = "<code>" .. escape(code) .. "</code>"
    return keep(target and ('<a href="#%s">%s</a>'):format(target, shown) or shown)
  end)
  text = escape(text)
  text = text:gsub("%[([^%]\n]+)%]%(([^%)%s]+)%)", function(label, target)
    return keep(('<a href="%s">%s</a>'):format(target, label))
  end)
  text = text:gsub("%*%*(.-)%*%*", "<strong>%1</strong>")
  text = text:gsub("(https?://[%w%._/%-#]+[%w/])", function(address)
    return keep(('<a href="%s">%s</a>'):format(address, address))
  end)
  -- Kept text may itself contain marks of text that was kept before.
  for _ = 1, 3 do text = text:gsub("\1(%d+)\1", function(n) return kept[tonumber(n)] end) end
  return text
end

local blocks = {}

-- ``` code
function blocks.fence(state, lines, i)
  local kind, code = lines[i]:match "^```(.*)$", {}
  i = i + 1
  while lines[i] and not lines[i]:find "^```" do
    code[#code + 1] = lines[i]
    i = i + 1
  end
  local text = table.concat(code, "\n")
  local shown = (kind == "lua" or kind == "signature") and html.lua(text) or escape(text)
  state.out[#state.out + 1] = ('<pre class="%s"><code>%s</code></pre>'):format(kind ~= "" and kind or "text", shown)
  return i + 1
end

local function cells(line)
  local list = {}
  line = line:gsub("^|", ""):gsub("|%s*$", ""):gsub("\\|", "\2")
  for part in (line .. "|"):gmatch "([^|]*)|" do
    list[#list + 1] = (part:gsub("\2", "|"):gsub("^%s+", ""):gsub("%s+$", ""))
  end
  return list
end

-- | a | b |, with columns that are empty throughout left out
function blocks.rows(state, lines, i)
  local head, rows = cells(lines[i]), {}
  i = i + 2
  while lines[i] and lines[i]:find "^|" do
    rows[#rows + 1] = cells(lines[i])
    i = i + 1
  end
  local used = {}
  for column = 1, #head do
    used[column] = head[column] ~= ""
    for _, row in ipairs(rows) do used[column] = used[column] or (row[column] or "") ~= "" end
  end
  local function write(row, tag)
    local parts = {}
    for column = 1, #head do
      if used[column] then
        parts[#parts + 1] = ("<%s>%s</%s>"):format(tag, html.inline(row[column] or "", state.link), tag)
      end
    end
    return "<tr>" .. table.concat(parts) .. "</tr>"
  end
  state.out[#state.out + 1] = '<div class="wide"><table><thead>' .. write(head, "th") .. "</thead><tbody>"
  for _, row in ipairs(rows) do state.out[#state.out + 1] = write(row, "td") end
  state.out[#state.out + 1] = "</tbody></table></div>"
  return i
end

-- - item, with indented continuation lines
function blocks.list(state, lines, i)
  local tag = lines[i]:find "^%d" and "ol" or "ul"
  state.out[#state.out + 1] = "<" .. tag .. ">"
  while lines[i] and (lines[i]:find "^[%-%*] " or lines[i]:find "^%d+%. ") do
    local text = lines[i]:gsub("^[%-%*] ", ""):gsub("^%d+%. ", "")
    i = i + 1
    while lines[i] and lines[i]:find "^%s+%S" do
      text = text .. " " .. lines[i]:match "^%s+(.*)$"
      i = i + 1
    end
    state.out[#state.out + 1] = "<li>" .. html.inline(text, state.link) .. "</li>"
    -- A blank line may separate items.
    if lines[i] == "" and lines[i + 1] and lines[i + 1]:find "^[%-%*] " then i = i + 1 end
  end
  state.out[#state.out + 1] = "</" .. tag .. ">"
  return i
end

function blocks.heading(state, lines, i)
  local hashes, text = lines[i]:match "^(#+)%s+(.*)$"
  local id = state.id(text, #hashes)
  local here = ('<a class="here" href="#%s" aria-label="link to this">#</a>'):format(escape(id))
  state.out[#state.out + 1] = ('<h%d id="%s">%s%s</h%d>'):format(#hashes, escape(id), html.inline(text, state.link),
    here, #hashes)
  return i + 1
end

function blocks.paragraph(state, lines, i)
  local parts = {}
  while lines[i] and lines[i] ~= "" and not lines[i]:find "^```" and not lines[i]:find "^#+ "
    and not (#parts > 0 and (lines[i]:find "^[%-%*] " or lines[i]:find "^|")) do
    parts[#parts + 1] = lines[i]
    i = i + 1
  end
  state.out[#state.out + 1] = "<p>" .. html.inline(table.concat(parts, "\n"), state.link) .. "</p>"
  return i
end

-- A marker for the function that assembles pages.
function blocks.mark(state, lines, i)
  state.out[#state.out + 1] = lines[i]
  return i + 1
end

local function kind_of(line, next_line)
  if line:find "^<!%-%-" then return "mark" end
  if line:find "^```" then return "fence" end
  if line:find "^#+ " then return "heading" end
  if line:find "^|" and next_line and next_line:find "^|[%s:%-|]+$" then return "rows" end
  if line:find "^[%-%*] " or line:find "^%d+%. " then return "list" end
  return "paragraph"
end

--- A page.
---@param text string Markdown
---@param id fun(heading: string, level: integer): string the anchor of a heading
---@param link fun(name: string): string?
---@return string
function html.page(text, id, link)
  local lines, state = {}, {out = {}, id = id, link = link}
  for line in (text .. "\n"):gmatch "([^\n]*)\n" do lines[#lines + 1] = line end
  local i = 1
  while i <= #lines do
    if lines[i] == "" then
      i = i + 1
    else
      i = blocks[kind_of(lines[i], lines[i + 1])](state, lines, i)
    end
  end
  return table.concat(state.out, "\n")
end

return html
