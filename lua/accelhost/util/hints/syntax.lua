--- Words of other languages at which Lua's parser stops, and Lua's form instead.
local place = require "accelhost.util.hints.place"

-- {the parser's message, a pattern of the line ("": anything, on the very line it names), the hint}; the first that
-- fits.
local rows = {
  {"near '!'", "!=", "Lua writes ~= for \"is not equal\", and `not` for !"},
  {"near '[%+%-%*/%.]?=?'", "[%+%-%*/]=", "Lua has no +=: write x = x + 1"},
  {"near '[=%+]'", "%+%+", "Lua has no ++: write x = x + 1"},
  {"near '='", "[%+%-%*/]=", "Lua has no +=: write x = x + 1"},
  {"near '%*'", "%*%*", "Lua writes x ^ 2 for a power"},
  {"near '/'", "//", "LuaJIT has no //: write math.floor(a / b), of tensors accelhost.floor_divide(a, b)"},
  {"near '!'", "![^=]", "Lua writes `not` for !"},
  {"near '%?'", "%?.*:", "Lua writes condition and one or other"},
  {"near '<'", "<%s*%a+%s*>", "LuaJIT has no attributes of variables: leave <const> out"},
  {"malformed number near '%d[%d_]*'", "%d_%d", "numbers have no _ in them: 1000000, or 1e6"},
  {"near '", "'''", "a text of several lines is [[...]]"},
  {"near '", '"""', "a text of several lines is [[...]]"},
  {"near '@'", "@", "a product of matrices is a:matmul(b)"},
  {"'then' expected near ':'", "", "an `if` ends its condition with `then`, and its block with `end`"},
  {"'then' expected near '='", "", "a comparison is ==, a single = assigns"},
  {"'then' expected near 'in'", "", "Lua has no `in` for values: use a loop, or keep a table, seen[value]"},
  {"near '[^']+'", "=%s*[^=]+%f[%w_]if%f[^%w_].+%f[%w_]else%f[^%w_]", "Lua writes condition and one or other"},
  {"'then' expected near", "", "an `if` ends its condition with `then`, and its block with `end`"},
  {"expected near '{'", "", "a block is do ... end, then ... end or function() ... end, without braces"},
  {"'do' expected near", "", "a loop ends its head with `do`, and its block with `end`"},
  {"near ':'", "^%s*[ew]l?[si][el]", "`else` and `elseif condition then` end with no colon"},
  {"near '[^']+'", "^%s*def%s", "Lua writes function name(arguments) ... end"},
  {"near '[^']+'", "^%s*class%s", 'a class is local Net = nn.Module:extend "Net"'},
  {"near '[^']+'", "^%s*import%s", "Lua writes local accelhost = require \"accelhost\""},
  {"near '[^']+'", "^%s*from%s", "Lua writes local nn = accelhost.nn"},
  {"near '[^']+'", "^%s*with%s", "a `with` block is a function: accelhost.no_grad(function() ... end)"},
  {"near '[^']+'", "^%s*elif%s", "Lua writes elseif condition then"},
  {"near '[^']+'", "^%s*while%s.*:%s*$", "a loop ends its head with `do`, and its block with `end`"},
  {"near '[^']+'", "=.*%f[%w_]is%s", "Lua writes == for `is`, ~= for `is not`"},
  {"near '[^']+'", "^%s*try%s*:", "Lua writes local fine, message = pcall(function() ... end)"},
  {"near '[^']+'", "^%s*raise%s", "Lua writes error(\"message\")"},
  {"near '[^']+'", "^%s*print%s+[^%s%(\"'{%[]", "Lua writes print(x)"},
  {"near '[^']+'", "^%s*assert%s", "assert is a function: assert(condition, message)"},
  {"near '[^']+'", "^%s*del%s", "Lua writes name = nil"},
  {"near '[^']+'", "^%s*pass%s*$", "an empty block holds nothing"},
  {"near '[^']+'", "%f[%w_]lambda%f[^%w_]", "Lua writes function(x) return x * 2 end"},
  {"near '[^']+'", "%f[%w_]continue%f[^%w_]",
    "Lua has no continue: goto next_one, with ::next_one:: at the loop's end"},
  {"near '[^']+'", "%f[%w_]f[\"'].*{", "Lua fills texts by (\"loss %.3f\"):format(loss)"},
  {"ambiguous syntax", "", "this line continues the call of the line above: end that line with ;"},
  {"near '#'", "", "comments begin with --, and # is the length"},
  {"near ':'", "%[[^%]]*:", "a slice of a tensor is t[{{0, 3}}], a column t[{{}, 0}]"},
  {"near ':'", "%b[]%s*:", "a slice of a tensor is t[{{0, 3}}], a column t[{{}, 0}]"},
  {"'%]' expected near ','", "", "a position of a tensor is t[{0, 1}]"},
  {"near '%['", "", "a list is {1, 2, 3}, a position of a tensor t[{0, 1}]"},
  {"'}' expected near ':'", "%[%s*{", "a slice of a tensor is t[{{0, 3}}], a column t[{{}, 0}]"},
  {"'}' expected near ':'", "", "a table's names are written {lr = 0.1}"},
  {"near '&'", "&&", "Lua writes `and`"},
  {"near '|'", "||", "Lua writes `or`"},
  {"near '[&|]'", "", "Lua writes `and`, `or`; of bool tensors a * b, a + b; of bits bit.band(a, b), bit.bor(a, b)"},
  {"'%)' expected near '='", "%([^%(%)]*[%w_]+%s*=", "named arguments are written in a table: f(x, {name = value})"},
  {"'<name>' expected near", "[{,]%s*[%w_'\"]+%s*:", "a table's names are written {lr = 0.1}"},
  {"function arguments expected near", "", "a method is called, x:name(); a field is x.name"},
  {"'end' expected .*near '<eof>'", "", "a block (function, if, for, while, do) is not closed by its `end`"},
  {"'<eof>' expected near 'end'", "", "there is one `end` more than blocks (function, if, for, while, do)"},
}

local syntax = {}

--- The hint for a message of Lua's parser, nil when it is none or none is known.
---@return string?
function syntax.explain(message)
  local path, number, what = message:match "([^%s:]+):(%d+): ([^\n]* near [^\n]*)"
  if not path then return nil end
  -- The parser may have stopped at the first word of the next line.
  for at = tonumber(number), math.max(1, tonumber(number) - 1), -1 do
    local line = place.line("@" .. path, at) or place.line("=" .. path, at) or ""
    for _, row in ipairs(rows) do
      if what:find(row[1]) and line:find(row[2]) and (row[2] ~= "" or at == tonumber(number)) then return row[3] end
    end
  end
end

return syntax
