--- Full-text search in the reference, the guides, the commands and their options, for `accelhost help WORDS`.
local C = require "accelhost._C"
local answers = require "accelhost.docs.answers"
local commands = require "accelhost.docs.commands"
local model = require "accelhost.docs.model"

local search = {}

-- Words in small letters: "num_processes" is two, "DataLoader" is itself and two.
local function words_of(text)
  local list = {}
  for word in text:gmatch "[%w]+" do
    list[#list + 1] = word:lower()
    local parts = word:gsub("(%l)(%u)", "%1 %2")
    if parts ~= word then
      for part in parts:gmatch "%S+" do list[#list + 1] = part:lower() end
    end
  end
  return list
end

-- The part of a word that its other forms share: "clipping" and "clip", "processes" and "process".
local function stem(word)
  for _, ending in ipairs {"ping", "ting", "ning", "ing", "es", "ed", "s"} do
    if #word - #ending >= 4 and word:sub(-#ending) == ending then return word:sub(1, #word - #ending) end
  end
  return word
end

local function text_of_parts(parts)
  local list = {}
  for _, part in ipairs(parts) do list[#list + 1] = part.text end
  return table.concat(list, " ")
end

-- The sections of a guide: {heading, text}.
local function sections_of(guide)
  local list, fenced = {}, false
  for _, line in ipairs(guide.lines) do
    if line:find "^```" then fenced = not fenced end
    local heading = not fenced and line:match "^#+ (.*)$"
    if heading then list[#list + 1] = {heading, {}} end
    if #list > 0 and not fenced then table.insert(list[#list][2], line) end
  end
  return list
end

local function add_entries(add, reference)
  for _, entry in ipairs(reference.entries) do
    local names = {}
    for _, parameter in ipairs(entry.parameters) do
      names[#names + 1] = parameter.name
      names[#names + 1] = parameter.text
    end
    add(entry.name, model.summary(entry), text_of_parts(entry.parts), table.concat(names, " "))
  end
end

local function add_guides(add, reference)
  for _, guide in ipairs(reference.guides) do
    for i, section in ipairs(sections_of(guide)) do
      add(guide.name, i == 1 and section[1] or ("%s: %s"):format(guide.title, section[1]),
        table.concat(section[2], " "), "")
    end
  end
end

local function add_commands(add, binary)
  for _, command in ipairs(commands.of(binary)) do
    add(command.name, command.summary, table.concat(command.text, " "), "")
    for _, option in ipairs(command.options) do
      if option.flag ~= "--help" then add(command.name .. " " .. option.flag, option.text, "", "") end
    end
  end
end

--- All rows that are searched: {name, summary, further text, names and texts of arguments}.
---@param reference table the model
---@param binary? string the program, whose commands are asked for their options
function search.rows(reference, binary)
  local rows = {}
  local function add(name, summary, text, more)
    rows[#rows + 1] = {name = name, summary = summary, text = text, more = more}
  end
  add_guides(add, reference)
  if binary then add_commands(add, binary) end
  add_entries(add, reference)
  for _, variable in ipairs(reference.variables) do
    add(variable.name, model.summary(variable), text_of_parts(variable.parts), "")
  end
  for _, row in ipairs(answers.modules()) do
    local other = row[2]:match "^as (.*)$"
    add(row[1], other and "here: " .. other or "not here: " .. row[2], "", "")
  end
  return rows
end

-- Does a word begin with the query's, as "clip" and "clipping" do?
local function has(words, wanted)
  for _, word in ipairs(words) do
    if word:sub(1, #wanted) == wanted then return true end
  end
  return false
end

-- The lower the better: all words in the name, in the summary too, in the text, among the arguments; nil: not all.
local function rank(row, wanted)
  row.words = row.words or {words_of(row.name), words_of(row.summary), words_of(row.text), words_of(row.more)}
  local place, in_name = 0, 0
  for _, word in ipairs(wanted) do
    local found
    for i, words in ipairs(row.words) do
      found = found or has(words, word) and i
    end
    if not found then return nil end
    place = math.max(place, found)
    if found == 1 then in_name = in_name + 1 end
  end
  return place - 0.9 * in_name / #wanted
end

-- Is a row a method that is found only by the name of its class, which is found too?
local function is_found_by_class(row, wanted, names)
  local class, method = row.name:match "^(.*)[%.:]([%w_]+)$"
  if not names[class] or not class:find "%u[%w_]*$" then return false end
  for _, word in ipairs(wanted) do
    if has(words_of(method), word) or has(row.words[2], word) then return false end
  end
  return true
end

local function ranked(rows, wanted)
  local found = {}
  for i, row in ipairs(rows) do
    local place = rank(row, wanted)
    if place then found[#found + 1] = {place, i, row} end
  end
  table.sort(found, function(a, b)
    if a[1] ~= b[1] then return a[1] < b[1] end
    return a[2] < b[2]
  end)
  local names, list = {}, {}
  for _, one in ipairs(found) do names[one[3].name] = true end
  for _, one in ipairs(found) do
    if not is_found_by_class(one[3], wanted, names) then list[#list + 1] = one[3] end
  end
  return list
end

-- The query with each unknown word replaced by the known one that is spelt most alike.
local function corrected(rows, wanted)
  local known, seen, list = {}, {}, {}
  for _, row in ipairs(rows) do
    for _, text in ipairs {row.name, row.summary} do
      for _, word in ipairs(words_of(text)) do
        if #word > 3 and not seen[word] then
          known[#known + 1] = word
          seen[word] = true
        end
      end
    end
  end
  for i, word in ipairs(wanted) do
    list[i] = has(known, word) and word or C.system.nearest(word, known)
    if not list[i] then return nil end
  end
  return list
end

-- The rows with some of the words, those with rare words first, as far as they weigh half of the best.
local function partly(rows, wanted)
  local weights, order, list = {}, {}, {}
  for i, row in ipairs(rows) do weights[row], order[row] = 0, i end
  for _, word in ipairs(wanted) do
    local with_word = ranked(rows, {word})
    for i, row in ipairs(with_word) do
      weights[row] = weights[row] + math.log(#rows / #with_word) - 1e-3 * i / #rows
    end
  end
  for _, row in ipairs(rows) do
    if weights[row] > 0 then list[#list + 1] = row end
  end
  table.sort(list, function(a, b)
    if weights[a] ~= weights[b] then return weights[a] > weights[b] end
    return order[a] < order[b]
  end)
  while #list > 0 and weights[list[#list]] < weights[list[1]] / 2 do list[#list] = nil end
  return list
end

--- The rows that have all words, the best one first; where none has all of several, those with rare ones of them.
---@param rows table[] of search.rows
---@param query string
---@param is_exact? boolean find no words of similar spelling
---@return table[]
---@return string? instead the words that were searched in place of the query's
---@return boolean? is_partly no row has all of them
function search.find(rows, query, is_exact)
  local wanted = words_of(query)
  for i, word in ipairs(wanted) do wanted[i] = stem(word) end
  if #wanted == 0 then return {} end
  local found = ranked(rows, wanted)
  if #found > 0 or is_exact then return found end
  local other = corrected(rows, wanted)
  found = other and ranked(rows, other) or found
  if #found > 0 then return found, table.concat(other, " ") end
  if #wanted < 2 then return {} end
  return partly(rows, wanted), nil, true
end

return search
