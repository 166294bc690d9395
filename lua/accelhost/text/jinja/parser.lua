--- Parser of Jinja templates: tokens to a tree of nodes, tables whose `kind` is a key of the functions in evaluate.lua.
local lexer = require "accelhost.text.jinja.lexer"

local parser = {}

local DEEPEST = 100

---@class JinjaParser
local Parser = {}
Parser.__index = Parser

--- The next token, nil at the end.
function Parser:peek() return self.tokens[self.at] end

--- Raise an error at the next token.
function Parser:fail(format, ...) lexer.fail((self.tokens[self.at] or self.tokens[#self.tokens]).line, format, ...) end

--- Step over the next token and return it.
function Parser:next()
  local token = self.tokens[self.at]
  if not token then self:fail "unexpected end of the template" end
  self.at = self.at + 1
  return token
end

--- Is the next token of this kind, and value?
function Parser:is(kind, value)
  local token = self:peek()
  return token ~= nil and token.kind == kind and (value == nil or token.value == value)
end

--- Step over a token if it is the next.
function Parser:skip(kind, value)
  if not self:is(kind, value) then return false end
  self.at = self.at + 1
  return true
end

--- Return the next token, which has to be of this kind, and value.
function Parser:expect(kind, value)
  if not self:is(kind, value) then
    local token = self:peek()
    self:fail("expected %s, got %s", value and ("'%s'"):format(value) or "a " .. kind,
      token and ("'%s'"):format(tostring(token.value)) or "the end")
  end
  return self:next()
end

local function node(self, kind, fields)
  fields.kind, fields.line = kind, (self:peek() or self.tokens[#self.tokens]).line
  return fields
end

--- Arguments after "(": a list, and named ones.
function Parser:arguments()
  local list, named = {}, {}
  while not self:skip("operator", ")") do
    local after = self.tokens[self.at + 1]
    if self:is "name" and after and after.kind == "operator" and after.value == "=" then
      local name = self:next().value
      self:next()
      named[#named + 1] = {name, self:expression()}
    else
      list[#list + 1] = self:expression()
    end
    if not self:is("operator", ")") then self:expect("operator", ",") end
  end
  return list, named
end

--- The items of a list, up to `close`.
function Parser:list(close)
  local items = {}
  while not self:skip("operator", close) do
    items[#items + 1] = self:expression()
    if not self:is("operator", close) then self:expect("operator", ",") end
  end
  return node(self, "list", {items = items})
end

--- The pairs of a dictionary.
function Parser:dict()
  local pairs_of = {}
  while not self:skip("operator", "}") do
    local key = self:expression()
    self:expect("operator", ":")
    pairs_of[#pairs_of + 1] = {key, self:expression()}
    if not self:is("operator", "}") then self:expect("operator", ",") end
  end
  return node(self, "dict", {pairs = pairs_of})
end

--- In parentheses: an expression, or a tuple.
function Parser:parentheses()
  if self:skip("operator", ")") then return node(self, "list", {items = {}}) end
  local first = self:expression()
  if self:skip("operator", ")") then return first end
  local items = {first}
  while self:skip("operator", ",") and not self:is("operator", ")") do items[#items + 1] = self:expression() end
  self:expect("operator", ")")
  return node(self, "list", {items = items})
end

local constants = {["true"] = true, True = true, ["false"] = false, False = false}

--- A constant, a name, or something in brackets.
function Parser:primary()
  local token = self:next()
  if token.kind == "string" then
    local text = token.value
    while self:is "string" do text = text .. self:next().value end
    return node(self, "constant", {value = text})
  end
  if token.kind == "number" then return node(self, "constant", {value = token.value}) end
  if token.kind == "name" then
    if constants[token.value] ~= nil then return node(self, "constant", {value = constants[token.value]}) end
    if token.value == "none" or token.value == "None" then return node(self, "none", {}) end
    return node(self, "name", {name = token.value})
  end
  if token.kind == "operator" then
    if token.value == "(" then return self:parentheses() end
    if token.value == "[" then return self:list "]" end
    if token.value == "{" then return self:dict() end
  end
  self.at = self.at - 1
  self:fail("unexpected '%s'", tostring(token.value))
end

--- After "[": an index, or a slice.
function Parser:subscript(value)
  local parts, colons = {}, 0
  for i = 1, 3 do
    if not (self:is("operator", ":") or self:is("operator", "]")) then parts[i] = self:expression() end
    if not self:skip("operator", ":") then break end
    colons = colons + 1
  end
  self:expect("operator", "]")
  if colons == 0 then
    if not parts[1] then self:fail "expected an index" end
    return node(self, "item", {value = value, index = parts[1]})
  end
  return node(self, "slice", {value = value, first = parts[1], last = parts[2], step = parts[3]})
end

--- After `is`: a test, with one argument if a value follows.
function Parser:test(value)
  local negated = self:skip("name", "not")
  local test = node(self, "test", {value = value, name = self:expect("name").value, list = {}})
  local token = self:peek()
  if self:skip("operator", "(") then
    test.list = self:arguments()
  elseif token and (token.kind == "string" or token.kind == "number" or token.kind == "name"
    and not (token.value == "and" or token.value == "or" or token.value == "else" or token.value == "is"
    or token.value == "if" or token.value == "in" or token.value == "not")) then
    test.list = {self:postfix(self:primary())}
  end
  return negated and node(self, "not", {value = test}) or test
end

--- Fields, calls, filters and tests after a value.
function Parser:postfix(value, filters)
  while true do
    if self:skip("operator", ".") then
      local token = self:next()
      value = node(self, "item", {value = value, dotted = true, index = node(self, "constant", {value = token.value})})
    elseif self:skip("operator", "[") then
      value = self:subscript(value)
    elseif self:skip("operator", "(") then
      local list, named = self:arguments()
      value = node(self, "call", {value = value, list = list, named = named})
    elseif filters and self:skip("operator", "|") then
      local name, list, named = self:expect("name").value, {}, {}
      if self:skip("operator", "(") then list, named = self:arguments() end
      value = node(self, "filter", {value = value, name = name, list = list, named = named})
    elseif filters and self:skip("name", "is") then
      value = self:test(value)
    else
      return value
    end
  end
end

--- A value with its sign.
function Parser:unary()
  if self:skip("operator", "-") then
    return self:postfix(node(self, "negative", {value = self:postfix(self:primary())}), true)
  end
  self:skip("operator", "+")
  return self:postfix(self:primary(), true)
end

-- Operators of a level are left-associative; levels from the loosest on.
local levels = {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}}

--- An expression of the operators of this level and of those after it.
function Parser:binary(level)
  if not levels[level] then return self:unary() end
  local left = self:binary(level + 1)
  while true do
    local found
    for _, operator in ipairs(levels[level]) do found = found or self:is("operator", operator) and operator end
    if not found then return left end
    self:next()
    left = node(self, "binary", {operator = found, left = left, right = self:binary(level + 1)})
  end
end

local comparisons = {["=="] = true, ["!="] = true, ["<"] = true, [">"] = true, ["<="] = true, [">="] = true}

--- A chain of comparisons, as Python has them.
function Parser:comparison()
  local left, chain = self:binary(1), nil
  while true do
    local token, operator = self:peek(), nil
    if token and token.kind == "operator" and comparisons[token.value] then
      operator = self:next().value
    elseif self:skip("name", "in") then
      operator = "in"
    elseif self:is("name", "not") and self.tokens[self.at + 1] and self.tokens[self.at + 1].value == "in" then
      self.at = self.at + 2
      operator = "not in"
    end
    if not operator then return chain or left end
    local right = self:binary(1)
    local part = node(self, "compare", {operator = operator, left = left, right = right})
    chain = chain and node(self, "and", {left = chain, right = part}) or part
    left = right
  end
end

--- `not`.
function Parser:negation()
  if self:skip("name", "not") then return node(self, "not", {value = self:negation()}) end
  return self:comparison()
end

--- `and`.
function Parser:conjunction()
  local left = self:negation()
  while self:skip("name", "and") do left = node(self, "and", {left = left, right = self:negation()}) end
  return left
end

--- `or`.
function Parser:disjunction()
  local left = self:conjunction()
  while self:skip("name", "or") do left = node(self, "or", {left = left, right = self:conjunction()}) end
  return left
end

--- An expression, with `if` and `else`.
function Parser:expression()
  self.depth = self.depth + 1
  if self.depth > DEEPEST then self:fail("nested more than %d deep", DEEPEST) end
  local value = self:disjunction()
  while self:skip("name", "if") do
    local condition = self:disjunction()
    local other = self:skip("name", "else") and self:expression() or nil
    value = node(self, "choice", {condition = condition, value = value, other = other})
  end
  self.depth = self.depth - 1
  return value
end

--- An expression, or several as a tuple.
function Parser:tuple()
  local first = self:expression()
  if not self:is("operator", ",") then return first end
  local items = {first}
  while self:skip("operator", ",") and not self:is "end" do items[#items + 1] = self:expression() end
  return node(self, "list", {items = items})
end

-- Statements.

local statements = {}

statements["if"] = function(self)
  local branches, other = {}, nil
  repeat
    local condition = self:tuple()
    self:expect "end"
    local body, stop = self:body {"elif", "else", "endif"}
    branches[#branches + 1] = {condition, body}
    if stop == "else" then
      self:expect "end"
      other, stop = self:body {"endif"}
    end
  until stop == "endif"
  return node(self, "if", {branches = branches, other = other})
end

statements["for"] = function(self)
  local names = {self:expect("name").value}
  while self:skip("operator", ",") do names[#names + 1] = self:expect("name").value end
  self:expect("name", "in")
  local list = self:disjunction()
  local condition = self:skip("name", "if") and self:expression() or nil
  self:expect "end"
  local body, stop = self:body {"else", "endfor"}
  local other
  if stop == "else" then
    self:expect "end"
    other = self:body {"endfor"}
  end
  return node(self, "for", {names = names, list = list, condition = condition, body = body, other = other})
end

statements["set"] = function(self)
  local name = self:expect("name").value
  local field = self:skip("operator", ".") and self:expect("name").value or nil
  if self:skip("operator", "=") then return node(self, "set", {name = name, field = field, value = self:tuple()}) end
  self:expect "end"
  return node(self, "set", {name = name, field = field, body = self:body {"endset"}})
end

statements["macro"] = function(self)
  local name, parameters = self:expect("name").value, {}
  self:expect("operator", "(")
  while not self:skip("operator", ")") do
    local parameter = self:expect("name").value
    parameters[#parameters + 1] = {parameter, self:skip("operator", "=") and self:expression() or nil}
    if not self:is("operator", ")") then self:expect("operator", ",") end
  end
  self:expect "end"
  return node(self, "macro", {name = name, parameters = parameters, body = self:body {"endmacro"}})
end

statements["generation"] = function(self)
  self:expect "end"
  return node(self, "block", {body = self:body {"endgeneration"}})
end

statements["break"] = function(self) return node(self, "break", {}) end

statements["continue"] = function(self) return node(self, "continue", {}) end

--- Nodes up to one of the names in `stops`, which is read.
---@param stops string[]
---@return table[] nodes
---@return string? stop
function Parser:body(stops)
  local nodes = {}
  self.depth = self.depth + 1
  if self.depth > DEEPEST then self:fail("nested more than %d deep", DEEPEST) end
  while self:peek() do
    local token = self:next()
    if token.kind == "text" then
      nodes[#nodes + 1] = node(self, "text", {value = token.value})
    elseif token.value == "{{" then
      nodes[#nodes + 1] = node(self, "output", {value = self:tuple()})
      self:expect "end"
    else
      local name = self:expect("name").value
      for _, stop in ipairs(stops) do
        if name == stop then
          self.depth = self.depth - 1
          return nodes, name
        end
      end
      if not statements[name] then self:fail("the statement '%s' is not supported", name) end
      nodes[#nodes + 1] = statements[name](self)
      self:expect "end"
    end
  end
  if stops[1] then self:fail("expected '%s'", stops[#stops]) end
  self.depth = self.depth - 1
  return nodes
end

--- The tree of a template.
---@return table[] nodes
function parser.parse(source)
  local self = setmetatable({tokens = lexer.read(source), at = 1, depth = 0}, Parser)
  if #self.tokens == 0 then return {} end
  return (self:body {})
end

return parser
