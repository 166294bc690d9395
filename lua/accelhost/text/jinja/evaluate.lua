--- Evaluation of a parsed template. Templates come with model files: they see only the values that they are given, and
--- their steps and their output are bounded.
local builtins = require "accelhost.text.jinja.builtins"
local lexer = require "accelhost.text.jinja.lexer"
local values = require "accelhost.text.jinja.values"

local evaluate = {}

local STEPS, BYTES = 500000, 2 ^ 24
local NONE = values.NONE

-- State: out (parts of the text), bytes, steps; scope (names) with its parent.
local expressions, statements = {}, {}

local function step(state, node)
  state.steps = state.steps + 1
  if state.steps > STEPS then lexer.fail(node.line, "more than %d steps", STEPS) end
end

local function value_of(state, node)
  step(state, node)
  return expressions[node.kind](state, node)
end

local function lookup(state, name)
  local scope = state.scope
  while scope do
    if scope.names[name] ~= nil then return scope.names[name] end
    scope = scope.parent
  end
  return builtins.functions[name]
end

local function emit(state, text, line)
  state.bytes = state.bytes + #text
  if state.bytes > BYTES then lexer.fail(line, "more than %d bytes of text", BYTES) end
  state.out[#state.out + 1] = text
end

local function push(state) state.scope = {names = {}, parent = state.scope} end

local function pop(state) state.scope = state.scope.parent end

-- Run nodes; "break" or "continue" when a loop is left.
local function run(state, nodes)
  for _, node in ipairs(nodes) do
    step(state, node)
    local left = statements[node.kind](state, node)
    if left then return left end
  end
end

-- The text of nodes.
local function captured(state, nodes)
  local held = state.out
  state.out = {}
  run(state, nodes)
  local text = table.concat(state.out)
  state.out = held
  return text
end

-- Expressions.

expressions.constant = function(_, node) return node.value end

expressions.none = function() return NONE end

expressions.name = function(state, node)
  local value = lookup(state, node.name)
  if value == nil then return values.undefined(node.name) end
  return value
end

expressions.list = function(state, node)
  local items = {}
  for i, item in ipairs(node.items) do items[i] = value_of(state, item) end
  return values.list(items)
end

expressions.dict = function(state, node)
  local dict = values.dict()
  for _, pair in ipairs(node.pairs) do values.set(dict, value_of(state, pair[1]), value_of(state, pair[2])) end
  return dict
end

-- The text of an index for messages.
local function index_text(index) return values.kind(index) == "number" and values.text(index) or tostring(index) end

expressions.item = function(state, node)
  local value, index = value_of(state, node.value), value_of(state, node.index)
  local kind = values.kind(value)
  if kind == "undefined" then lexer.fail(node.line, "'%s' is undefined", value.name) end
  if kind == "dict" then
    local found = value.map[index]
    if node.dotted and found == nil and builtins.methods.dict[index] then
      return function(...) return builtins.methods.dict[index](value, ...) end
    end
    return found == nil and values.undefined(index_text(index)) or found
  end
  if node.dotted then
    local method = (builtins.methods[kind] or {})[index]
    return method and function(...) return method(value, ...) end or values.undefined(index_text(index))
  end
  if (kind == "list" or kind == "string") and type(index) == "number" then
    local items = values.items(value, node.line)
    local found = items[index < 0 and #items + index + 1 or index + 1]
    return found == nil and values.undefined(index_text(index)) or found
  end
  return values.undefined(index_text(index))
end

local function bound(state, node, count, fallback)
  local value = node and value_of(state, node) or NONE
  if value == NONE then return fallback end
  if type(value) ~= "number" then lexer.fail(node.line, "a slice needs numbers, got a %s", values.kind(value)) end
  return value < 0 and value + count or value
end

expressions.slice = function(state, node)
  local value = value_of(state, node.value)
  local items, out = values.items(value, node.line), {}
  local by = node.step and value_of(state, node.step) or 1
  if type(by) ~= "number" or by == 0 then lexer.fail(node.line, "a slice by 0") end
  local count = #items
  local first = bound(state, node.first, count, by > 0 and 0 or count - 1)
  local last = bound(state, node.last, count, by > 0 and count or -1)
  if by > 0 then
    first, last = math.max(first, 0), math.min(last, count) - 1
  else
    first, last = math.min(first, count - 1), math.max(last, -1) + 1
  end
  for i = first, last, by do out[#out + 1] = items[i + 1] end
  return type(value) == "string" and table.concat(out) or values.list(out)
end

local function arguments_of(state, node, names)
  local list, named = {}, {}
  for i, item in ipairs(node.list) do list[i] = value_of(state, item) end
  for _, pair in ipairs(node.named or {}) do
    local place
    for i, name in ipairs(names or {}) do place = place or name == pair[1] and i end
    local value = value_of(state, pair[2])
    if place then list[place] = value else named[pair[1]] = value end
  end
  return list, named
end

-- Call a function of this module with the place of an error.
local function guarded(node, what, call, ...)
  local results = {pcall(call, ...)}
  if results[1] then
    if results[2] == nil then return NONE end
    return results[2]
  end
  local failure = results[2]
  if type(failure) == "table" and failure.message then
    error({line = failure.line == 0 and node.line or failure.line, message = failure.message}, 0)
  end
  lexer.fail(node.line, "%s: %s", what, "a value of the wrong kind")
end

expressions.filter = function(state, node)
  local filter = builtins.filters[node.name]
  if not filter then lexer.fail(node.line, "the filter '%s' is not supported", node.name) end
  local value = value_of(state, node.value)
  local list = arguments_of(state, node, builtins.named[node.name])
  return guarded(node, node.name, filter, value, unpack(list, 1, 4))
end

expressions.test = function(state, node)
  local test = builtins.tests[node.name]
  if not test then lexer.fail(node.line, "the test '%s' is not supported", node.name) end
  local list = arguments_of(state, node)
  return guarded(node, node.name, test, value_of(state, node.value), unpack(list, 1, 4))
end

local function namespace(named)
  local dict = values.dict()
  for name, value in pairs(named) do values.set(dict, name, value) end
  return dict
end

local function call_macro(state, macro, list, named)
  local held = state.scope
  state.scope = {names = {}, parent = macro.scope}
  for i, parameter in ipairs(macro.node.parameters) do
    local value = list[i]
    if value == nil then value = named[parameter[1]] end
    if value == nil and parameter[2] then value = value_of(state, parameter[2]) end
    state.scope.names[parameter[1]] = value == nil and values.undefined(parameter[1]) or value
  end
  local text = captured(state, macro.node.body)
  state.scope = held
  return text
end

expressions.call = function(state, node)
  local name = node.value.kind == "name" and node.value.name
  local list, named = arguments_of(state, node)
  if name == "namespace" or name == "dict" then return namespace(named) end
  local called = value_of(state, node.value)
  if values.kind(called) == "macro" then
    state.depth = state.depth + 1
    if state.depth > 64 then lexer.fail(node.line, "calls nested more than 64 deep") end
    local text = call_macro(state, called, list, named)
    state.depth = state.depth - 1
    return text
  end
  if type(called) ~= "function" then
    lexer.fail(node.line, "'%s' is no function", values.kind(called) == "undefined" and called.name or "a value")
  end
  return guarded(node, name or "a method", called, unpack(list, 1, 4))
end

expressions.negative = function(state, node) return -value_of(state, node.value) end

expressions["not"] = function(state, node) return not values.truth(value_of(state, node.value)) end

expressions["and"] = function(state, node)
  local left = value_of(state, node.left)
  if not values.truth(left) then return left end
  return value_of(state, node.right)
end

expressions["or"] = function(state, node)
  local left = value_of(state, node.left)
  if values.truth(left) then return left end
  return value_of(state, node.right)
end

expressions.choice = function(state, node)
  if values.truth(value_of(state, node.condition)) then return value_of(state, node.value) end
  return node.other and value_of(state, node.other) or values.undefined "the else of an if"
end

local arithmetic = {
  ["-"] = function(a, b) return a - b end, ["*"] = function(a, b) return a * b end,
  ["/"] = function(a, b) return a / b end, ["//"] = function(a, b) return math.floor(a / b) end,
  ["%"] = function(a, b) return a % b end, ["**"] = function(a, b) return a ^ b end,
}

local function added(a, b, line)
  local kind = values.kind(a)
  if kind ~= values.kind(b) or not (kind == "string" or kind == "number" or kind == "list") then
    lexer.fail(line, "'+': expected two strings, numbers or lists, got a %s and a %s", kind, values.kind(b))
  end
  if kind == "string" then return a .. b end
  if kind == "number" then return a + b end
  local items = {}
  for _, list in ipairs {a, b} do
    for _, item in ipairs(list.items) do items[#items + 1] = item end
  end
  return values.list(items)
end

expressions.binary = function(state, node)
  local a, b, operator = value_of(state, node.left), value_of(state, node.right), node.operator
  if operator == "~" then return values.text(a) .. values.text(b) end
  if operator == "+" then return added(a, b, node.line) end
  if operator == "*" and type(a) == "string" and type(b) == "number" then
    if #a * b > BYTES then lexer.fail(node.line, "more than %d bytes of text", BYTES) end
    return a:rep(b)
  end
  if type(a) ~= "number" or type(b) ~= "number" then
    lexer.fail(node.line, "'%s': expected two numbers, got a %s and a %s", operator, values.kind(a), values.kind(b))
  end
  if b == 0 and (operator == "/" or operator == "//" or operator == "%") then lexer.fail(node.line, "division by 0") end
  return arithmetic[operator](a, b)
end

local orders = {
  ["<"] = function(a, b) return a < b end, [">"] = function(a, b) return a > b end,
  ["<="] = function(a, b) return a <= b end, [">="] = function(a, b) return a >= b end,
}

expressions.compare = function(state, node)
  local a, b, operator = value_of(state, node.left), value_of(state, node.right), node.operator
  if operator == "==" then return values.equal(a, b) end
  if operator == "!=" then return not values.equal(a, b) end
  if operator == "in" then return values.contains(a, b, node.line) end
  if operator == "not in" then return not values.contains(a, b, node.line) end
  if type(a) ~= type(b) or type(a) ~= "number" and type(a) ~= "string" then
    lexer.fail(node.line, "'%s': cannot compare a %s and a %s", operator, values.kind(a), values.kind(b))
  end
  return orders[operator](a, b)
end

-- Statements.

statements.text = function(state, node) emit(state, node.value, node.line) end

statements.output = function(state, node)
  local value = value_of(state, node.value)
  emit(state, guarded(node, "the text", values.text, value), node.line)
end

statements["if"] = function(state, node)
  for _, branch in ipairs(node.branches) do
    if values.truth(value_of(state, branch[1])) then return run(state, branch[2]) end
  end
  return node.other and run(state, node.other)
end

-- Set the names of a loop to an item.
local function bind(state, node, item)
  local names = state.scope.names
  if #node.names == 1 then
    names[node.names[1]] = item
    return
  end
  local parts = values.items(item, node.line)
  if #parts ~= #node.names then
    lexer.fail(node.line, "expected %d values, got %d", #node.names, #parts)
  end
  for i, name in ipairs(node.names) do names[name] = parts[i] end
end

local function loop_of(items, i)
  local loop = values.dict()
  local fields = {
    index = i, index0 = i - 1, first = i == 1, last = i == #items, length = #items, revindex = #items - i + 1,
    revindex0 = #items - i,
  }
  for name, value in pairs(fields) do values.set(loop, name, value) end
  if items[i - 1] ~= nil then values.set(loop, "previtem", items[i - 1]) end
  if items[i + 1] ~= nil then values.set(loop, "nextitem", items[i + 1]) end
  return loop
end

-- The items that a loop's condition selects.
local function filtered(state, node, items)
  if not node.condition then return items end
  local out = {}
  for _, item in ipairs(items) do
    push(state)
    bind(state, node, item)
    if values.truth(value_of(state, node.condition)) then out[#out + 1] = item end
    pop(state)
  end
  return out
end

statements["for"] = function(state, node)
  local items = filtered(state, node, values.items(value_of(state, node.list), node.line))
  local completed = false
  for i, item in ipairs(items) do
    step(state, node)
    push(state)
    bind(state, node, item)
    state.scope.names.loop = loop_of(items, i)
    local left = run(state, node.body)
    pop(state)
    if left == "break" then break end
    completed = completed or not left
  end
  if node.other and not completed then return run(state, node.other) end
end

statements["set"] = function(state, node)
  local value = node.body and captured(state, node.body) or value_of(state, node.value)
  if not node.field then
    state.scope.names[node.name] = value
    return
  end
  local space = lookup(state, node.name)
  if values.kind(space) ~= "dict" then lexer.fail(node.line, "'%s' is no namespace", node.name) end
  values.set(space, node.field, value)
end

statements.macro = function(state, node)
  state.scope.names[node.name] = {kind = "macro", node = node, scope = state.scope}
end

statements.block = function(state, node) return run(state, node.body) end

statements["break"] = function() return "break" end

statements["continue"] = function() return "continue" end

--- The text of a template.
---@param nodes table[] of parser.parse
---@param names table<string, any> values of values.import
function evaluate.render(nodes, names)
  local state = {out = {}, bytes = 0, steps = 0, depth = 0, scope = {names = names}}
  run(state, nodes)
  return table.concat(state.out)
end

return evaluate
