--- Locals that live on after the chunk that declared them.
--
-- After each top-level `local` statement a call is inserted, on the same line, that passes a function whose upvalues
-- are the variables just declared. A later chunk gets the variables that it mentions as upvalues, joined to those: it
-- is the same variable, so that functions made earlier see later assignments, and a new `local x` hides the old one
-- without touching it. The passed function assigns too (x = x): LuaJIT treats a variable that its chunk never assigns
-- as a constant, and compiled code would not see a later assignment.
local lexer = require "accelhost.repl.lexer"

local locals = {}

local HANDOVER = "\194\164" -- no name that a user would type
local VALUES = HANDOVER .. "v"
local MOST = 60             -- upvalues that a function of LuaJIT may have

local opening = {["function"] = true, ["do"] = true, ["if"] = true, ["repeat"] = true, ["("] = true, ["{"] = true,
  ["["] = true}
local closing = {["end"] = true, ["until"] = true, [")"] = true, ["}"] = true, ["]"] = true}
local joining = {["and"] = true, ["or"] = true, ["not"] = true}
local constants = {["nil"] = true, ["true"] = true, ["false"] = true, ["..."] = true}

-- Return the place of the word that closes words[i].
local function closed_at(words, i)
  local depth = 0
  for k = i, #words do
    local word = words[k].kind ~= "string" and words[k].word
    if opening[word] then depth = depth + 1 elseif closing[word] then depth = depth - 1 end
    if depth == 0 then return k end
  end
  return #words
end

-- The last word of the expressions that begin at words[i].
local function expressions_end(words, i)
  local have -- the kind of the expression before the next word: nil, a "value", or one that can be "called"
  while words[i] do
    local at = words[i]
    local word = at.kind ~= "string" and at.word
    if not have then
      if at.kind == "name" then
        have = "called"
      elseif at.kind == "string" or at.kind == "number" or constants[word] then
        have = "value"
      elseif opening[word] then
        i = closed_at(words, i)
        have = word == "(" and "called" or "value"
      end
    elseif word == "." or word == ":" then
      i = i + 1
      have = "called"
    elseif have == "called" and (word == "(" or word == "[" or word == "{") then
      i = closed_at(words, i)
    elseif at.kind == "sign" and not opening[word] and word ~= ";" and word ~= "::" or joining[word] then
      have = nil
    elseif not (have == "called" and at.kind == "string") then
      return i - 1
    end
    i = i + 1
  end
  return #words
end

-- The last word of the `local` statement at words[i], and the names that it declares.
local function statement_end(words, i)
  local names = {}
  if words[i + 1].word == "function" then return closed_at(words, i + 1), {words[i + 2].word} end
  repeat
    i = i + 1
    names[#names + 1] = words[i].word
    i = i + 1
  until not words[i] or words[i].word ~= ","
  if not words[i] or words[i].word ~= "=" then return i - 1, names end
  return expressions_end(words, i + 1), names
end

-- The text with the handovers, of one that LuaJIT can read.
local function hand_over(text, words)
  local parts, done, i = {}, 0, 1
  while words[i] do
    local word = words[i].kind == "keyword" and words[i].word
    if word == "local" then
      local last, names = statement_end(words, i)
      parts[#parts + 1] = text:sub(done + 1, words[last].to)
      for first = 1, #names, MOST - 1 do
        parts[#parts + 1] = (" %s(function()"):format(HANDOVER)
        for k = first, math.min(#names, first + MOST - 2) do
          parts[#parts + 1] = (" %s=%s"):format(names[k], names[k])
        end
        parts[#parts + 1] = " end);"
      end
      if words[last + 1] and words[last + 1].word == ";" then parts[#parts] = " end)" end
      done, i = words[last].to, last
    elseif opening[word] then
      i = closed_at(words, i)
    end
    i = i + 1
  end
  parts[#parts + 1] = text:sub(done + 1)
  return table.concat(parts)
end

-- The variables that live and that the words mention, each once.
local function mentioned(words, living)
  local names, seen = {}, {}
  for _, at in ipairs(words) do
    if at.kind == "name" and living[at.word] and not seen[at.word] then
      names[#names + 1], seen[at.word] = at.word, true
    end
  end
  return names
end

local function keep(living, holder)
  for i = 1, math.huge do
    local name = debug.getupvalue(holder, i)
    if not name then return end
    living[name] = {holder, i}
  end
end

-- Statements, and expressions after them from `values` on, which pass through a function: a call that is returned
-- leaves no frame with its line.
local function body_of(text, words, values)
  if not values then return hand_over(text, words) end
  local last, statements = words[#words], text:sub(1, values - 1)
  if last.word == ";" and last.kind == "sign" then last = words[#words - 1] end
  return ("%s return %s(%s)"):format(hand_over(statements, lexer.list(statements)), VALUES, text:sub(values, last.to))
end

local function pass(...)
  return ...
end

--- Compile a text, which must be one that LuaJIT can read.
---@param values? integer where expressions begin, whose values the chunk returns
---@param source string the chunk's name
---@param living table<string, table> the variables that live: name -> {function, number of its upvalue}; those that the
--- chunk declares are added as it runs
---@return function? # nil and a message when the chunk mentions too many
---@return string?
function locals.load(text, values, source, living)
  local words = lexer.list(text)
  local names = mentioned(words, living)
  if #names >= MOST then
    return nil, ("this refers to %d variables of earlier lines, and LuaJIT's limit is %d"):format(#names, MOST - 1)
  end
  local declared = table.concat({HANDOVER, VALUES, unpack(names)}, ",")
  local make, message = loadstring(("local %s return function(...) %s\nend"):format(declared,
    body_of(text, words, values)), source)
  if not make then return nil, message end
  local chunk = make()
  for i = 1, math.huge do
    local name = debug.getupvalue(chunk, i)
    if not name then return chunk end
    if name == HANDOVER then
      debug.setupvalue(chunk, i, function(holder) keep(living, holder) end)
    elseif name == VALUES then
      debug.setupvalue(chunk, i, pass)
    else
      debug.upvaluejoin(chunk, i, living[name][1], living[name][2])
    end
  end
end

--- Return the value of a living variable.
---@param living table<string, table>
function locals.value(living, name)
  local found = living[name]
  if not found then return nil end
  local _, value = debug.getupvalue(found[1], found[2])
  return value
end

return locals
